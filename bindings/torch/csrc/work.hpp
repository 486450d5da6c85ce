// One operation of a group: what it does, and what c10d's users wait for.
#ifndef TUTTI_TORCH_WORK_H
#define TUTTI_TORCH_WORK_H

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include <torch/csrc/distributed/c10d/Work.hpp>
#include <tutti.h>

#include "events.hpp"
#include "hooks.hpp"

namespace tutti_torch
{

/* What a group is asked to do. */
struct Operation {
    c10d::OpType type;
    const char *title; /* of the profiler's event; static storage */
    std::vector<at::Tensor> inputs;
    std::vector<at::Tensor> outputs;       /* the future's value */
    std::chrono::milliseconds timeout{-1}; /* of the call; -1: the group's, 0: none */
    bool is_async = true;
    int source = -1; /* the rank that a receive is from */
    /* Makes tutti's calls with stream NULL; throws where one fails. Runs in any thread. */
    std::function<void(tuttiComm_t)> call;
};

/* Lives as long as the user or a queue needs it, and keeps the tensors alive as long. Threads: any
 * may wait and ask; one completes it, with no lock held. */
class TuttiWork final : public c10d::Work
{
  public:
    TuttiWork(int rank, Operation operation, uint64_t sequence, std::shared_ptr<Shared> shared);
    ~TuttiWork() override;

    /* Complete are the operation and the futures that were asked for before its end. */
    bool isCompleted() override;
    /* Waits until the work is complete, not for the futures' callbacks. A wait with a time of its
     * own ends with an error when that has passed, and leaves the operation running. The thread of
     * a wait without a time runs the operation if no other one has begun it. */
    bool wait(std::chrono::milliseconds timeout) override;
    void synchronize() override {}
    void abort() override;
    std::vector<at::Tensor> result() override;
    c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
    c10::intrusive_ptr<c10::ivalue::Future> getFutureResult() override;
    float getDuration() const override;
    uint64_t getSequencenumber() const override
    {
        return sequence_;
    }
    std::chrono::milliseconds getTimeout() const override
    {
        return timeout_;
    }
    uint64_t getCompletionKey() const override
    {
        return key_;
    }
    int sourceRank() const override;

    /* The rest is for the queue. */
    const Operation &operation() const
    {
        return operation_;
    }
    /* From now on waiting is waiting for this event, which happens when complete() has returned. */
    void set_event(Event event)
    {
        event_ = std::move(event);
    }
    /* Makes the calls of the operation. NULL, or what they have thrown. */
    std::exception_ptr call(tuttiComm_t comm);
    /* The queue has failed: complete() has the abort hooks called, in another thread. */
    void set_failure();
    /* Ends the work; error NULL: the operation is done. */
    void complete(std::exception_ptr error);

  private:
    using FuturePointer = c10::intrusive_ptr<c10::ivalue::Future>;
    /* Completes a future that is not complete. Nobody has a callback at it yet, or this thread is
     * one for callbacks and holds no lock. */
    void settle_values(const FuturePointer &values);
    void settle_outcome(const FuturePointer &outcome);
    /* After finish(): whether another thread completes a future soon. */
    bool is_settling();

    const void *const process_;
    Operation operation_;
    const uint64_t sequence_, key_;
    const std::shared_ptr<Shared> shared_;
    const std::chrono::milliseconds timeout_; /* of the call; 0: none */
    Event event_;                             /* none: complete before anybody had the work */
    std::chrono::steady_clock::time_point begun_, ended_;
    bool tells_failure_ = false; /* owner: who completes the work */

    std::mutex futures_lock_;
    /* guarded by futures_lock_ */
    bool done_ = false;
    FuturePointer values_, outcome_;
};

} // namespace tutti_torch

#endif
