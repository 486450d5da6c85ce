// A group: how it begins, what it tells of itself, and how it ends.
#include "backend.hpp"

#include <chrono>
#include <exception>
#include <map>
#include <mutex>
#include <string_view>
#include <thread>
#include <utility>

#include <Python.h>

#include "callbacks.hpp"
#include "errors.hpp"
#include "process.hpp"
#include "rendezvous.hpp"

namespace tutti_torch
{

namespace
{

/* What ends the groups of the process. */
struct Ends {
    struct End {
        std::shared_ptr<Queue> queue;
        std::shared_ptr<Links> links;
        std::shared_ptr<Shared> shared;
    };
    std::mutex lock;
    /* guarded by lock */
    std::map<const Backend *, End> all;
    std::vector<std::weak_ptr<Shared>> aborted; /* whose hooks may still run */
};

/* Tells ids apart, in a few characters. */
std::string short_of(const tuttiUniqueId &id)
{
    return std::to_string(std::hash<std::string_view>()({id.internal, sizeof id.internal}));
}

/* Releases Python's lock, where this thread has it: callbacks that the group waits for need it. */
class WithoutPython
{
  public:
    WithoutPython()
        : thread_(Py_IsInitialized() && PyGILState_Check() ? PyEval_SaveThread() : nullptr)
    {
    }
    ~WithoutPython()
    {
        if (thread_) PyEval_RestoreThread(thread_);
    }
    WithoutPython(const WithoutPython &) = delete;

  private:
    PyThreadState *const thread_;
};

} // namespace

Backend::Options::Options(std::chrono::milliseconds timeout)
    : c10d::Backend::Options("tutti", timeout)
{
}

c10::intrusive_ptr<c10d::Backend::Options> Backend::Options::clone() const
{
    return c10::make_intrusive<Options>(*this);
}

Backend::Backend(const StorePointer &store, int rank, int size, const std::string &name,
                 c10::intrusive_ptr<Options> options)
    : c10d::Backend(rank, size), options_(std::move(options)),
      shared_(std::make_shared<Shared>(options_->timeout)), store_(store), name_(name)
{
    need_time(options_->timeout, "the group");
    TORCH_CHECK_VALUE(rank >= 0 && rank < size, "rank is ", rank, " of world size ", size,
                      ", expected 0 to ", size - 1);
    const auto id = std::make_shared<tuttiUniqueId>();
    queue_ = std::make_shared<Queue>([=](std::chrono::milliseconds timeout, const auto &) {
        const Meeting meeting{.store = store,
                              .key = "tutti",
                              .ready_key = {},
                              .numbering = {name, {}},
                              .rank = rank,
                              .nranks = size,
                              .failure = "communicator " + name + " was not made",
                              .timeout = timeout,
                              .look = {}};
        return meet(meeting, id.get());
    });
    queue_->connect_now(options_->timeout);
    links_ = std::make_shared<Links>(store, name, short_of(*id), rank, queue_);
    init();
    Ends &ends = of_process<Ends>();
    std::lock_guard<std::mutex> guard(ends.lock);
    ends.all.insert({this, {queue_, links_, shared_}});
}

Backend::~Backend()
{
    shutdown();
}

void Backend::shutdown()
{
    WithoutPython without;
    forget();
    links_->close();
    queue_->close();
    if (!is_aborted_) shared_->hooks.finish_failure();
}

/* Does not wait for abort hooks that run: one may wait for this thread. */
void Backend::abort()
{
    WithoutPython without;
    const std::exception_ptr error = shared_->hooks.tell_abort();
    if (!is_aborted_.exchange(true)) leave_hooks();
    forget();
    links_->abort();
    queue_->abort();
    links_->close();
    queue_->close();
    if (error) std::rethrow_exception(error);
}

void Backend::leave_hooks()
{
    Ends &ends = of_process<Ends>();
    std::lock_guard<std::mutex> guard(ends.lock);
    std::erase_if(ends.aborted, [](const auto &shared) { return shared.expired(); });
    ends.aborted.push_back(shared_);
}

void Backend::forget()
{
    Ends &ends = of_process<Ends>();
    std::lock_guard<std::mutex> guard(ends.lock);
    ends.all.erase(this);
}

void Backend::leave()
{
    using namespace std::chrono_literals;
    WithoutPython without;
    Ends &ends = of_process<Ends>();
    std::unique_lock<std::mutex> guard(ends.lock);
    const auto all = std::exchange(ends.all, {});
    const auto aborted = std::exchange(ends.aborted, {});
    guard.unlock();
    const auto until = std::chrono::steady_clock::now() + 1s;
    bool done = true;
    for (const auto &[backend, end] : all) end.shared->hooks.close();
    for (const auto &[backend, end] : all) {
        (void)end.queue->finish(until);
        done = end.links->leave(until) && done; /* peers of messages ask the group's communicator */
        done = end.queue->leave(until) && done;
    }
    for (const auto &[backend, end] : all) end.shared->hooks.finish_failure();
    for (const auto &left : aborted)
        if (const std::shared_ptr<Shared> shared = left.lock()) shared->hooks.finish_failure();
    (void)finish_callbacks(1s);
    /* Threads whose calls were aborted go back to Python before the interpreter ends. */
    if (!done) std::this_thread::sleep_for(100ms);
}

WorkPointer Backend::run(Operation operation)
{
    auto work = c10::make_intrusive<TuttiWork>(rank_, std::move(operation), ++sequence_, shared_);
    queue_->run(work);
    return work;
}

void Backend::watch(c10d::ProcessGroup *group)
{
    watched_ = group;
}

void Backend::setGroupUid(const std::string &uid)
{
    c10d::Backend::setGroupUid(uid);
    c10d::ProcessGroup *group = std::exchange(watched_, nullptr);
    if (!group) return;
    for (const c10::Device &device : group->getDeviceTypes())
        TORCH_CHECK_VALUE(device.is_cpu() || group->getBackend(device.type()).get() != this,
                          "tutti serves cpu, and the group's backend for ", device.type(),
                          " is another one that does not come with PyTorch: of these a group can ",
                          "have only one. Use a backend of PyTorch's for ", device.type(),
                          ", such as cpu:tutti,cuda:nccl");
}

c10::intrusive_ptr<c10d::Backend::Options> Backend::getBackendOptions()
{
    return options_;
}

void Backend::setTimeout(std::chrono::milliseconds timeout)
{
    need_time(timeout, "the group");
    options_->timeout = timeout;
    shared_->deadlines.set(timeout);
}

void Backend::addEphemeralTimeout(const std::chrono::milliseconds &more)
{
    need_time(more, "the next calls");
    shared_->deadlines.extend(more);
}

c10d::ErrorType Backend::getError()
{
    const tuttiResult_t result = queue_->error();
    switch (result != tuttiSuccess ? result : links_->error()) {
    case tuttiSuccess:
        return c10d::ErrorType::SUCCESS;
    case tuttiTimeout:
        return c10d::ErrorType::TIMEOUT;
    case tuttiRemoteError:
        return c10d::ErrorType::REMOTE_ERROR;
    default:
        return c10d::ErrorType::COMM_ERROR;
    }
}

void Backend::registerAbortHook(int64_t id, c10d::AbortHook hook)
{
    shared_->hooks.add_abort(id, std::move(hook));
}

void Backend::unregisterAbortHook(int64_t id)
{
    shared_->hooks.remove_abort(id);
}

void Backend::registerCompletionHook(int64_t id, c10d::CompletionHook hook)
{
    shared_->hooks.add_completion(id, std::move(hook));
}

void Backend::unregisterCompletionHook(int64_t id)
{
    shared_->hooks.remove_completion(id);
}

} // namespace tutti_torch
