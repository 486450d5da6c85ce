// One operation of a group: what it does, and what c10d's users wait for.
#include "work.hpp"

#include <atomic>

#include <ATen/core/ivalue.h>

#include "callbacks.hpp"
#include "errors.hpp"
#include "process.hpp"

namespace tutti_torch
{

namespace
{

uint64_t next_key()
{
    static std::atomic<uint64_t> last{0};
    return ++last;
}

int to_int(std::chrono::milliseconds timeout)
{
    return static_cast<int>(std::min<int64_t>(timeout.count(), INT_MAX));
}

} // namespace

TuttiWork::TuttiWork(int rank, Operation operation, uint64_t sequence,
                     std::shared_ptr<Shared> shared)
    : Work(rank, operation.type, operation.title, operation.inputs), process_(this_process()),
      operation_(std::move(operation)), sequence_(sequence), key_(next_key()),
      shared_(std::move(shared)), timeout_(shared_->deadlines.begin(operation_.timeout, key_))
{
}

/* Where the queue has refused the work, nothing has ended it. */
TuttiWork::~TuttiWork()
{
    shared_->deadlines.end(key_);
}

bool TuttiWork::isCompleted()
{
    return Work::isCompleted() && !unsettled();
}

bool TuttiWork::wait(std::chrono::milliseconds timeout)
{
    if (!Work::isCompleted()) {
        if (timeout == kNoTimeout) {
            check(tuttiEventSynchronize(event_.get()), nullptr);
        } else {
            const tuttiResult_t result = tuttiEventSynchronizeFor(event_.get(), to_int(timeout));
            TORCH_CHECK(result != tuttiInProgress, "Operation timed out! ", operation_.title,
                        " (number ", sequence_, " of the group) has not ended within ",
                        timeout.count(), " ms; it goes on");
            check(result, nullptr);
        }
    }
    while (const FuturePointer future = unsettled()) future->wait();
    if (const std::exception_ptr error = exception()) std::rethrow_exception(error);
    return true;
}

void TuttiWork::abort()
{
    TORCH_CHECK(false, "a work of tutti cannot be aborted by itself; abort the group "
                       "(torch.distributed.distributed_c10d._abort_process_group)");
}

std::vector<at::Tensor> TuttiWork::result()
{
    return operation_.outputs;
}

int TuttiWork::sourceRank() const
{
    TORCH_CHECK(operation_.source >= 0, operation_.title,
                " has no source rank: only a receive has");
    return operation_.source;
}

float TuttiWork::getDuration() const
{
    TORCH_CHECK(shared_->hooks.is_timed,
                "the group takes no times; call _enable_collectives_timing()");
    TORCH_CHECK(const_cast<TuttiWork *>(this)->Work::isCompleted(), operation_.title,
                " has not ended: it has no duration yet");
    return std::chrono::duration<float, std::milli>(ended_ - begun_).count();
}

c10::intrusive_ptr<c10::ivalue::Future> TuttiWork::getFuture()
{
    std::lock_guard<std::mutex> guard(futures_lock_);
    if (!values_) {
        values_ =
            c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()));
        if (done_) settle_values(values_);
    }
    return values_;
}

c10::intrusive_ptr<c10::ivalue::Future> TuttiWork::getFutureResult()
{
    std::lock_guard<std::mutex> guard(futures_lock_);
    if (!outcome_) {
        outcome_ = c10::make_intrusive<c10::ivalue::Future>(c10::IntType::get());
        if (done_) settle_outcome(outcome_);
    }
    return outcome_;
}

void TuttiWork::settle_values(const FuturePointer &values)
{
    if (const std::exception_ptr error = exception())
        values->setError(error);
    else
        values->markCompleted(c10::IValue(operation_.outputs));
}

void TuttiWork::settle_outcome(const FuturePointer &outcome)
{
    const auto result = exception() ? c10d::WorkResult::COMM_ERROR : c10d::WorkResult::SUCCESS;
    outcome->markCompleted(c10::IValue(static_cast<int64_t>(result)));
}

TuttiWork::FuturePointer TuttiWork::unsettled()
{
    if (process_ != this_process()) return nullptr; /* the threads are the parent's */
    std::lock_guard<std::mutex> guard(futures_lock_);
    for (const FuturePointer *future : {&values_, &outcome_})
        /* Where threads are short, those that there are may wait for this one. */
        if (*future && !(*future)->completed() && !callbacks_may_last()) return *future;
    return nullptr;
}

std::exception_ptr TuttiWork::call(tuttiComm_t comm)
{
    const bool is_timed = shared_->hooks.is_timed.load(std::memory_order_relaxed);
    if (is_timed) begun_ = std::chrono::steady_clock::now();
    std::exception_ptr error;
    try {
        operation_.call(comm);
    } catch (...) {
        error = std::current_exception();
    }
    if (is_timed) ended_ = std::chrono::steady_clock::now();
    return error;
}

void TuttiWork::set_failure()
{
    tells_failure_ = shared_->hooks.begin_failure();
}

void TuttiWork::complete(std::exception_ptr error)
{
    shared_->deadlines.end(key_);
    finish(error);
    if (!error) {
        std::optional<float> duration;
        if (shared_->hooks.is_timed.load(std::memory_order_relaxed)) duration = getDuration();
        shared_->hooks.tell_completion({key_, duration});
    }
    std::unique_lock<std::mutex> guard(futures_lock_);
    done_ = true;
    const FuturePointer values = values_, outcome = outcome_; /* later ones are made complete */
    guard.unlock();
    /* In a thread each: no future waits for callbacks of the other one. */
    const auto self = c10::intrusive_ptr<TuttiWork>::reclaim_copy(this);
    if (values) run_callback([self, values] { self->settle_values(values); });
    if (outcome) run_callback([self, outcome] { self->settle_outcome(outcome); });
    if (tells_failure_) run_callback([shared = shared_] { shared->hooks.tell_failure(); });
}

} // namespace tutti_torch
