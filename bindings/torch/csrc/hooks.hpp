// What a group's users want to be told: completions (the flight recorder), and that it will abort.
#ifndef TUTTI_TORCH_HOOKS_H
#define TUTTI_TORCH_HOOKS_H

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <thread>

#include <torch/csrc/distributed/c10d/Hooks.hpp>

#include "deadlines.hpp"

namespace tutti_torch
{

/* Shared by a group and its works. Any thread; hooks run, and are freed, without its lock: both may
 * wait for Python's. In a child made by fork it does nothing. */
class Hooks
{
  public:
    Hooks();
    void add_completion(int64_t id, c10d::CompletionHook hook);
    void remove_completion(int64_t id);
    void add_abort(int64_t id, c10d::AbortHook hook);
    void remove_abort(int64_t id);

    /* A hook that throws ends neither the others nor the call: a warning tells of it. */
    void tell_completion(const c10d::CompletionHookArgs &args);
    /* Calls all abort hooks. The first exception of one, or NULL. Nothing while a thread calls
     * abort hooks: a hook may abort its group, also by a thread that it waits for. */
    std::exception_ptr tell_abort();
    /* From now on no failure is told: the program ends, and other ranks may have left. */
    void close();
    /* A queue of the group has failed. True: tell_failure() is to be called. False: nothing, or
     * the thread that runs or will run it tells of this failure, too. */
    bool begin_failure();
    /* As tell_abort, and again where queues have failed meanwhile. Hooks may take long; one that
     * throws makes a warning. */
    void tell_failure();
    /* Waits until tell_failure() has ended, at most LONGEST after the last begin_failure(). */
    void finish_failure();

    std::atomic<bool> is_timed{false}; /* works tell how long they took */

  private:
    /* PyTorch's flight recorder writes its file in some seconds. It gives up an attempt after 15 s,
     * where the machine is loaded, and a second one, without stacks, after 15 s more. */
    static constexpr std::chrono::seconds LONGEST{40};

    std::exception_ptr tell_all(std::unique_lock<std::mutex> guard);
    bool take_news();

    const void *const process_;
    std::atomic<bool> has_completion_{false};
    std::atomic<bool> is_closed_{false};
    std::mutex lock_;
    std::condition_variable told_;
    /* guarded by lock_ */
    std::map<int64_t, std::shared_ptr<const c10d::CompletionHook>> completion_;
    std::map<int64_t, std::shared_ptr<const c10d::AbortHook>> abort_;
    bool is_telling_ = false; /* from begin_failure() to the end of tell_failure() */
    bool is_news_ = false;    /* tell_failure() has not begun to tell of the last failure */
    std::set<std::thread::id> tellers_; /* threads that call abort hooks */
    std::chrono::steady_clock::time_point failed_at_;
};

/* What the works of a group share with it. */
struct Shared {
    explicit Shared(std::chrono::milliseconds usual) : deadlines(usual) {}
    Hooks hooks;
    Deadlines deadlines;
};

} // namespace tutti_torch

#endif
