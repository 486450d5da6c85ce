// What a group's users want to be told: completions (the flight recorder), and that it will abort.
#include "hooks.hpp"

#include <string>
#include <utility>

#include <c10/util/Exception.h>
#include <cxxabi.h>

#include "errors.hpp"
#include "process.hpp"

namespace tutti_torch
{

namespace
{

/* Calls the hook. What it has thrown, or NULL. */
template <class Hook, class... Args> std::exception_ptr call(const Hook &hook, const Args &...args)
{
    try {
        hook(args...);
    } catch (abi::__forced_unwind &) {
        throw; /* Python ends this thread */
    } catch (...) {
        return std::current_exception();
    }
    return nullptr;
}

} // namespace

Hooks::Hooks() : process_(this_process()) {}

void Hooks::add_completion(int64_t id, c10d::CompletionHook hook)
{
    if (process_ != this_process()) return;
    auto added = std::make_shared<const c10d::CompletionHook>(std::move(hook));
    std::lock_guard<std::mutex> guard(lock_);
    completion_[id].swap(added); /* an earlier one is freed without the lock */
    has_completion_ = true;
}

void Hooks::remove_completion(int64_t id)
{
    if (process_ != this_process()) return;
    decltype(completion_)::node_type removed; /* is freed without the lock */
    std::lock_guard<std::mutex> guard(lock_);
    removed = completion_.extract(id);
    has_completion_ = !completion_.empty();
}

void Hooks::add_abort(int64_t id, c10d::AbortHook hook)
{
    if (process_ != this_process()) return;
    auto added = std::make_shared<const c10d::AbortHook>(std::move(hook));
    std::lock_guard<std::mutex> guard(lock_);
    abort_[id].swap(added); /* an earlier one is freed without the lock */
}

void Hooks::remove_abort(int64_t id)
{
    if (process_ != this_process()) return;
    decltype(abort_)::node_type removed; /* is freed without the lock */
    std::lock_guard<std::mutex> guard(lock_);
    removed = abort_.extract(id);
}

void Hooks::tell_completion(const c10d::CompletionHookArgs &args)
{
    if (!has_completion_.load(std::memory_order_relaxed)) return;
    std::unique_lock<std::mutex> guard(lock_);
    const auto hooks = completion_;
    guard.unlock();
    for (const auto &[id, hook] : hooks)
        if (const std::exception_ptr error = call(*hook, args))
            TORCH_WARN("tutti: a completion hook failed: ", text_of(error));
}

/* Calls all abort hooks, without the lock, which the caller has taken. The first exception of one,
 * or NULL. */
std::exception_ptr Hooks::tell_all(std::unique_lock<std::mutex> guard)
{
    /* This thread calls hooks until the end, also where Python ends the thread. */
    struct Telling {
        Hooks &hooks;
        ~Telling()
        {
            std::lock_guard<std::mutex> guard(hooks.lock_);
            hooks.tellers_.erase(std::this_thread::get_id());
        }
    };
    tellers_.insert(std::this_thread::get_id());
    const auto hooks = abort_;
    guard.unlock();
    const Telling telling{*this};
    std::exception_ptr first;
    for (const auto &[id, hook] : hooks) {
        const std::exception_ptr error = call(*hook);
        if (!first) first = error;
    }
    return first;
}

std::exception_ptr Hooks::tell_abort()
{
    if (process_ != this_process()) return nullptr;
    std::unique_lock<std::mutex> guard(lock_);
    return tellers_.empty() ? tell_all(std::move(guard)) : nullptr;
}

void Hooks::close()
{
    is_closed_ = true;
}

bool Hooks::begin_failure()
{
    if (is_closed_) return false;
    std::lock_guard<std::mutex> guard(lock_);
    failed_at_ = std::chrono::steady_clock::now();
    is_news_ = true;
    return !std::exchange(is_telling_, true);
}

/* Whether a failure is to be told. False: tell_failure() ends. */
bool Hooks::take_news()
{
    std::lock_guard<std::mutex> guard(lock_);
    is_telling_ = std::exchange(is_news_, false);
    if (!is_telling_) told_.notify_all();
    return is_telling_;
}

void Hooks::tell_failure()
{
    /* Where Python ends this thread, nobody waits for it. */
    struct End {
        Hooks &hooks;
        bool is_over = false;
        ~End()
        {
            if (is_over) return;
            std::lock_guard<std::mutex> guard(hooks.lock_);
            hooks.is_telling_ = false;
            hooks.told_.notify_all();
        }
    } end{*this};
    while (take_news())
        if (const std::exception_ptr error = tell_abort())
            TORCH_WARN("tutti: an abort hook failed: ", text_of(error));
    end.is_over = true;
}

void Hooks::finish_failure()
{
    if (process_ != this_process()) return;
    std::unique_lock<std::mutex> guard(lock_);
    if (tellers_.contains(std::this_thread::get_id())) return; /* a hook ends its group */
    /* A further failure may come while this thread waits. */
    while (is_telling_ && std::chrono::steady_clock::now() < failed_at_ + LONGEST)
        told_.wait_until(guard, failed_at_ + LONGEST);
}

} // namespace tutti_torch
