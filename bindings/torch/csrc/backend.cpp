// A group: how it begins, what it tells of itself, and how it ends.
#include "backend.h"

#include <set>

#include <Python.h>

#include "callbacks.h"
#include "errors.h"
#include "process.h"
#include "rendezvous.h"

namespace tutti_torch
{

namespace
{

/* The queues of all groups of the process. */
struct Groups {
    std::mutex lock;
    std::set<std::shared_ptr<Queue>> queues; /* guarded by lock */
};

void list(const std::shared_ptr<Queue> &queue)
{
    Groups &groups = of_process<Groups>();
    std::lock_guard<std::mutex> guard(groups.lock);
    groups.queues.insert(queue);
}

void unlist(const std::shared_ptr<Queue> &queue)
{
    Groups &groups = of_process<Groups>();
    std::lock_guard<std::mutex> guard(groups.lock);
    groups.queues.erase(queue);
}

std::set<std::shared_ptr<Queue>> all_queues()
{
    Groups &groups = of_process<Groups>();
    std::lock_guard<std::mutex> guard(groups.lock);
    return groups.queues;
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
      timeout_ms_(options_->timeout.count())
{
    Meeting meeting{store, "tutti", name, rank, size, {}};
    queue_ = std::make_shared<Queue>([meeting](std::chrono::milliseconds timeout) mutable {
        meeting.timeout = timeout;
        return meet(meeting);
    });
    queue_->connect_now(options_->timeout);
    list(queue_);
    init();
}

Backend::~Backend()
{
    end(false);
}

/* Frees the communicator, after what is queued or without it. */
void Backend::end(bool does_abort)
{
    if (!queue_) return;
    WithoutPython without;
    if (does_abort) queue_->abort();
    unlist(queue_);
    queue_->close();
}

void Backend::leave()
{
    using namespace std::chrono_literals;
    WithoutPython without;
    const auto until = std::chrono::steady_clock::now() + 1s;
    for (const auto &queue : all_queues()) {
        queue->finish(until);
        queue->abort();
        unlist(queue);
        queue->close();
    }
    (void)finish_callbacks(1s);
}

WorkPointer Backend::run(Operation operation)
{
    if (operation.timeout == c10d::kUnsetTimeout)
        operation.timeout = std::chrono::milliseconds(timeout_ms_.load(std::memory_order_relaxed));
    auto work = c10::make_intrusive<TuttiWork>(rank_, std::move(operation), ++sequence_, hooks_);
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
    options_->timeout = timeout;
    timeout_ms_ = timeout.count();
}

c10d::ErrorType Backend::getError()
{
    switch (queue_->error()) {
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

void Backend::abort()
{
    hooks_->tell_abort();
    end(true);
}

void Backend::shutdown()
{
    end(false);
}

void Backend::registerAbortHook(int64_t id, c10d::AbortHook hook)
{
    hooks_->add_abort(id, std::move(hook));
}

void Backend::unregisterAbortHook(int64_t id)
{
    hooks_->remove_abort(id);
}

void Backend::registerCompletionHook(int64_t id, c10d::CompletionHook hook)
{
    hooks_->add_completion(id, std::move(hook));
}

void Backend::unregisterCompletionHook(int64_t id)
{
    hooks_->remove_completion(id);
}

} // namespace tutti_torch
