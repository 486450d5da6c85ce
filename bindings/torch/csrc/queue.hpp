// A communicator and the order of the calls on it.
#ifndef TUTTI_TORCH_QUEUE_H
#define TUTTI_TORCH_QUEUE_H

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include <tutti.h>

#include "work.hpp"

namespace tutti_torch
{

/* Makes a communicator; throws where it cannot. While it waits it calls look now and then, which
 * throws when nobody needs the communicator any more. */
using Connect = std::function<tuttiComm_t(std::chrono::milliseconds timeout,
                                          const std::function<void()> &look)>;

/* Operations run one after another in the order of their issue, each in a thread that waits for
 * it, or in the thread of a stream. Where nothing is queued, a synchronous one runs in the thread
 * that issues it. A child made by fork may only destroy it, which then does nothing. Shared with
 * the operations that are queued. */
class Queue : public std::enable_shared_from_this<Queue>
{
  public:
    /* connect runs before the first operation, or in connect_now. */
    explicit Queue(Connect connect);
    ~Queue();
    Queue(const Queue &) = delete;

    void connect_now(std::chrono::milliseconds timeout);

    /* Throws c10::DistBackendError where the group has ended. An error of the operation itself
     * goes into the work. Any thread. */
    void run(const c10::intrusive_ptr<TuttiWork> &work);
    /* Whether an operation is queued or runs. */
    bool is_busy() const
    {
        return npending_.load(std::memory_order_acquire) != 0 ||
               runs_at_once_.load(std::memory_order_acquire) != 0;
    }
    /* Waits until what is queued now has ended, no longer than that; false: something still runs,
     * or a call runs at once in another thread. */
    bool finish(std::chrono::steady_clock::time_point until);
    /* Success, or the error with which the communicator has failed; InvalidUsage in a child made by
     * fork. Any thread. */
    tuttiResult_t error();
    /* What is known of the end of a rank of the communicator: "rank 1 (host h, pid 7) has died";
     * "": nothing. Any thread. */
    std::string end_of(int rank);

    /* Fails the operation that runs and those that are queued, and tells no abort hook. Any thread,
     * while others wait. */
    void abort();
    /* Completes what is queued, and frees the communicator. Idempotent; not in a function that
     * the queue runs. */
    void close();
    /* As close, but aborts what has not ended until then. False: something had not. */
    bool leave(std::chrono::steady_clock::time_point until);

  private:
    struct Task;
    static void run_task(void *task);
    void launch(const c10::intrusive_ptr<TuttiWork> &work);
    std::exception_ptr call(TuttiWork &work);
    bool refuse_more();
    void end_when_connected();
    void end();
    void end_if_left();
    tuttiComm_t connect(std::chrono::milliseconds timeout);
    tuttiComm_t ready(std::chrono::milliseconds timeout);

    /* immutable */
    const Connect connect_;
    const void *const process_;
    tuttiStream_t stream_ = nullptr;

    std::mutex issuing_; /* held while an operation is issued */
    /* guarded by issuing_ */
    bool is_closed_ = false;

    std::atomic<int> npending_{0}; /* operations in the stream that have not ended */
    /* 1: an operation runs in the thread that issued it; those in the stream wait for its end */
    std::atomic<int> runs_at_once_{0};
    /* The queue was closed by abort while it connected: the thread that does has it ended. Set with
     * comm_lock_. */
    std::atomic<bool> is_left_{false};

    /* owner: who runs an operation */
    std::chrono::milliseconds deadline_{-1}; /* that the communicator has now */

    std::mutex comm_lock_;
    /* guarded by comm_lock_ */
    tuttiComm_t comm_ = nullptr;
    std::exception_ptr failure_; /* of connect_ */
    bool is_connecting_ = false;
    bool is_aborted_ = false;
    bool is_failure_told_ = false; /* to a work */
};

} // namespace tutti_torch

#endif
