// What a group's users want to be told: completions (the flight recorder), and that it will abort.
#include "hooks.hpp"

namespace tutti_torch
{

void Hooks::add_completion(int64_t id, c10d::CompletionHook hook)
{
    std::lock_guard<std::mutex> guard(lock_);
    completion_[id] = std::move(hook);
    has_completion_ = true;
}

void Hooks::remove_completion(int64_t id)
{
    std::lock_guard<std::mutex> guard(lock_);
    completion_.erase(id);
    has_completion_ = !completion_.empty();
}

void Hooks::add_abort(int64_t id, c10d::AbortHook hook)
{
    std::lock_guard<std::mutex> guard(lock_);
    abort_[id] = std::move(hook);
}

void Hooks::remove_abort(int64_t id)
{
    std::lock_guard<std::mutex> guard(lock_);
    abort_.erase(id);
}

void Hooks::tell_completion(const c10d::CompletionHookArgs &args)
{
    if (!has_completion_.load(std::memory_order_relaxed)) return;
    std::unique_lock<std::mutex> guard(lock_);
    const auto hooks = completion_;
    guard.unlock();
    for (const auto &[id, hook] : hooks) hook(args);
}

void Hooks::tell_abort()
{
    std::unique_lock<std::mutex> guard(lock_);
    const auto hooks = abort_;
    guard.unlock();
    for (const auto &[id, hook] : hooks) hook();
}

} // namespace tutti_torch
