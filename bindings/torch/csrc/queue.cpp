// A communicator and the order of the calls on it.
#include "queue.hpp"

#include <utility>

#include <c10/util/Exception.h>

#include "callbacks.hpp"
#include "deadlines.hpp"
#include "errors.hpp"
#include "process.hpp"

namespace tutti_torch
{

/* One operation in the stream. Freed when it has run. */
struct Queue::Task {
    std::shared_ptr<Queue> queue;
    c10::intrusive_ptr<TuttiWork> work;
};

Queue::Queue(Connect connect) : connect_(std::move(connect)), process_(this_process())
{
    check(tuttiStreamCreate(&stream_), nullptr);
}

Queue::~Queue()
{
    close();
}

void Queue::connect_now(std::chrono::milliseconds timeout)
{
    (void)ready(timeout);
}

/* Makes the communicator, once: a failure stays. */
tuttiComm_t Queue::connect(std::chrono::milliseconds timeout)
{
    std::unique_lock<std::mutex> guard(comm_lock_);
    if (failure_) std::rethrow_exception(failure_);
    is_connecting_ = true;
    guard.unlock();
    tuttiComm_t comm = nullptr;
    std::exception_ptr failure;
    try {
        comm = connect_(timeout, [this] {
            std::lock_guard<std::mutex> looking(comm_lock_);
            TORCH_CHECK_WITH(DistBackendError, !is_aborted_, "the group was aborted on this rank");
        });
    } catch (...) {
        failure = std::current_exception();
    }
    deadline_ = timeout;
    guard.lock();
    is_connecting_ = false;
    failure_ = failure;
    comm_ = comm;
    const bool is_late = is_aborted_;
    guard.unlock();
    if (failure) std::rethrow_exception(failure);
    if (is_late) abort();
    TORCH_CHECK_WITH(DistBackendError, !is_late, "the group was aborted on this rank");
    return comm;
}

/* The communicator, whose calls now have this deadline. */
tuttiComm_t Queue::ready(std::chrono::milliseconds timeout)
{
    std::unique_lock<std::mutex> guard(comm_lock_);
    TORCH_CHECK_WITH(DistBackendError, !is_aborted_, "the group was aborted on this rank");
    tuttiComm_t comm = comm_;
    guard.unlock();
    if (!comm) comm = connect(timeout);
    if (timeout == deadline_) return comm;
    check(tuttiCommSetTimeout(comm, whole_ms(timeout)), comm);
    deadline_ = timeout;
    return comm;
}

std::exception_ptr Queue::call(TuttiWork &work)
{
    tuttiComm_t comm = nullptr;
    std::exception_ptr error;
    try {
        comm = ready(work.getTimeout());
    } catch (...) {
        error = std::current_exception();
    }
    if (comm) error = work.call(comm);
    if (!error) return error;
    const bool has_failed = !comm || this->error() != tuttiSuccess;
    std::unique_lock<std::mutex> guard(comm_lock_);
    const bool is_aborted = is_aborted_;
    const bool is_news = has_failed && !is_aborted && !std::exchange(is_failure_told_, true);
    guard.unlock();
    if (is_news) work.set_failure();
    if (!is_aborted) return error;
    /* The call may have begun when the communicator was no more, and tell of that. */
    return std::make_exception_ptr(
        c10::DistBackendError({__func__, __FILE__, static_cast<uint32_t>(__LINE__)},
                              "the group was aborted on this rank"));
}

void Queue::run_task(void *argument)
{
    std::unique_ptr<Task> task(static_cast<Task *>(argument));
    task->queue->runs_at_once_.wait(1, std::memory_order_acquire);
    std::exception_ptr error = task->queue->call(*task->work);
    task->queue->end_if_left();
    task->work->complete(std::move(error));
    task->queue->npending_.fetch_sub(1, std::memory_order_release);
}

void Queue::launch(const c10::intrusive_ptr<TuttiWork> &work)
{
    Event event = Event::take();
    auto task = std::make_unique<Task>(Task{shared_from_this(), work});
    npending_.fetch_add(1, std::memory_order_relaxed);
    const tuttiResult_t result = tuttiStreamLaunch(stream_, run_task, task.get());
    if (result != tuttiSuccess) {
        npending_.fetch_sub(1, std::memory_order_relaxed);
        check(result, nullptr);
    }
    (void)task.release(); /* run_task has it */
    check(tuttiEventRecord(event.get(), stream_), nullptr);
    work->set_event(std::move(event));
}

void Queue::run(const c10::intrusive_ptr<TuttiWork> &work)
{
    TORCH_CHECK_WITH(DistBackendError, process_ == this_process(), FORKED);
    std::unique_lock<std::mutex> guard(issuing_);
    TORCH_CHECK_WITH(DistBackendError, !is_closed_, "the group was shut down on this rank");
    if (work->operation().is_async || is_busy()) {
        launch(work);
        return;
    }
    runs_at_once_.store(1, std::memory_order_relaxed);
    guard.unlock();
    std::exception_ptr error = call(*work);
    /* In the total order: notify_all looks for threads that wait after that. */
    runs_at_once_.store(0, std::memory_order_seq_cst);
    runs_at_once_.notify_all();
    end_if_left();
    work->complete(std::move(error));
}

bool Queue::finish(std::chrono::steady_clock::time_point until)
{
    std::unique_lock<std::mutex> guard(issuing_);
    if (is_closed_ || !is_busy()) return true;
    if (runs_at_once_.load(std::memory_order_relaxed)) return false;
    Event event = Event::take();
    check(tuttiEventRecord(event.get(), stream_), nullptr);
    guard.unlock();
    const auto left = until - std::chrono::steady_clock::now();
    const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(left);
    return tuttiEventSynchronizeFor(event.get(), whole_ms(ms)) == tuttiSuccess;
}

tuttiResult_t Queue::error()
{
    if (process_ != this_process()) return tuttiInvalidUsage;
    std::lock_guard<std::mutex> guard(comm_lock_);
    tuttiResult_t result = tuttiSuccess;
    if (is_aborted_) return tuttiRemoteError;
    if (comm_ && tuttiCommGetAsyncError(comm_, &result) != tuttiSuccess) return tuttiInternalError;
    return result;
}

std::string Queue::end_of(int rank)
{
    std::lock_guard<std::mutex> guard(comm_lock_);
    if (!comm_) return "";
    const tuttiResult_t result = tuttiCommCheckRank(comm_, rank);
    return result == tuttiRemoteError ? last_error(result, nullptr) : "";
}

void Queue::abort()
{
    if (process_ != this_process()) return;
    std::unique_lock<std::mutex> guard(comm_lock_);
    is_aborted_ = true;
    tuttiComm_t comm = std::exchange(comm_, nullptr);
    guard.unlock();
    if (comm) (void)tuttiCommAbort(comm);
}

void Queue::close()
{
    if (process_ != this_process()) return;
    if (refuse_more()) end_when_connected();
}

bool Queue::leave(std::chrono::steady_clock::time_point until)
{
    if (process_ != this_process()) return true;
    (void)finish(until);
    if (!refuse_more()) return true;
    const bool is_done = !is_busy();
    if (!is_done) abort();
    end_when_connected();
    return is_done;
}

/* No operation is issued any more. False: none was before. */
bool Queue::refuse_more()
{
    std::lock_guard<std::mutex> guard(issuing_);
    return !std::exchange(is_closed_, true);
}

void Queue::end_when_connected()
{
    std::unique_lock<std::mutex> guard(comm_lock_);
    const bool still_connects = is_aborted_ && is_connecting_;
    is_left_.store(still_connects, std::memory_order_relaxed);
    guard.unlock();
    if (!still_connects) end();
}

/* After a call, which may have connected when the queue was closed. */
void Queue::end_if_left()
{
    /* A call that has connected has held comm_lock_ since this was set. */
    if (!is_left_.load(std::memory_order_relaxed) || !is_left_.exchange(false)) return;
    run_callback([self = shared_from_this()] { self->end(); });
}

/* Once. */
void Queue::end()
{
    runs_at_once_.wait(1, std::memory_order_acquire);
    /* Where a function of the stream closes the queue, all stays: a stream cannot end itself. */
    if (tuttiStreamDestroy(stream_) != tuttiSuccess) return;
    std::unique_lock<std::mutex> guard(comm_lock_);
    tuttiComm_t comm = std::exchange(comm_, nullptr);
    guard.unlock();
    if (comm) (void)tuttiCommDestroy(comm);
}

} // namespace tutti_torch
