// One operation of a group: what it does, and what c10d's users wait for.
#include "work.hpp"

#include <algorithm>
#include <atomic>
#include <thread>

#include <ATen/core/ivalue.h>

#include "callbacks.hpp"
#include "deadlines.hpp"
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

/* From one look at the futures of a work to the next. */
constexpr std::chrono::microseconds SHORTEST_REST{10}, LONGEST_REST{1000};

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
    return Work::isCompleted() && !is_settling();
}

bool TuttiWork::wait(std::chrono::milliseconds timeout)
{
    const bool has_end = timeout != kNoTimeout;
    const int timeout_ms = whole_ms(timeout);
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(timeout_ms);
    const auto need = [&](bool has_ended) {
        TORCH_CHECK(has_ended, "Operation timed out! ", operation_.title, " (number ", sequence_,
                    " of the group) has not ended within ", timeout.count(), " ms; it goes on");
    };
    if (!Work::isCompleted()) {
        const tuttiResult_t result = has_end ? tuttiEventSynchronizeFor(event_.get(), timeout_ms)
                                             : tuttiEventSynchronize(event_.get());
        /* The event waits for completion hooks, too. */
        if (result == tuttiInProgress)
            need(Work::isCompleted());
        else
            check(result, nullptr);
    }
    for (auto rest = SHORTEST_REST; is_settling(); rest = std::min(2 * rest, LONGEST_REST)) {
        need(!has_end || std::chrono::steady_clock::now() < end);
        std::this_thread::sleep_for(rest);
    }
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

bool TuttiWork::is_settling()
{
    if (process_ != this_process()) return false; /* the threads are the parent's */
    std::lock_guard<std::mutex> guard(futures_lock_);
    const bool are_complete =
        (!values_ || values_->completed()) && (!outcome_ || outcome_->completed());
    /* Where threads are lacking, the future may wait for the thread that asks. */
    return !are_complete && !callbacks_lack_threads();
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
    std::unique_lock<std::mutex> guard(futures_lock_);
    done_ = true;
    const FuturePointer values = values_, outcome = outcome_; /* later ones are made complete */
    guard.unlock();
    /* In a thread each: no future waits for callbacks of the other one. */
    const auto self = c10::intrusive_ptr<TuttiWork>::reclaim_copy(this);
    if (values) run_callback([self, values] { self->settle_values(values); });
    if (outcome) run_callback([self, outcome] { self->settle_outcome(outcome); });
    if (tells_failure_) run_callback([shared = shared_] { shared->hooks.tell_failure(); });
    if (!error) {
        std::optional<float> duration;
        if (shared_->hooks.is_timed.load(std::memory_order_relaxed)) duration = getDuration();
        shared_->hooks.tell_completion({key_, duration});
    }
}

} // namespace tutti_torch
