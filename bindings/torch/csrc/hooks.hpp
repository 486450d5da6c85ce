// What a group's users want to be told: completions (the flight recorder), and that it will abort.
#ifndef TUTTI_TORCH_HOOKS_H
#define TUTTI_TORCH_HOOKS_H

#include <atomic>
#include <map>
#include <mutex>

#include <torch/csrc/distributed/c10d/Hooks.hpp>

#include "deadlines.hpp"

namespace tutti_torch
{

/* Shared by a group and its works. Any thread; hooks run without its lock. */
class Hooks
{
  public:
    void add_completion(int64_t id, c10d::CompletionHook hook);
    void remove_completion(int64_t id);
    void add_abort(int64_t id, c10d::AbortHook hook);
    void remove_abort(int64_t id);

    void tell_completion(const c10d::CompletionHookArgs &args);
    void tell_abort();

    std::atomic<bool> is_timed{false}; /* works tell how long they took */

  private:
    std::mutex lock_;
    std::atomic<bool> has_completion_{false};
    /* guarded by lock_ */
    std::map<int64_t, c10d::CompletionHook> completion_;
    std::map<int64_t, c10d::AbortHook> abort_;
};

/* What the works of a group share with it. */
struct Shared {
    explicit Shared(std::chrono::milliseconds usual) : deadlines(usual) {}
    Hooks hooks;
    Deadlines deadlines;
};

} // namespace tutti_torch

#endif
