// How long the calls of a group may take.
#ifndef TUTTI_TORCH_DEADLINES_H
#define TUTTI_TORCH_DEADLINES_H

#include <algorithm>
#include <atomic>
#include <chrono>
#include <climits>
#include <cstdint>
#include <mutex>
#include <vector>

#include <torch/csrc/distributed/c10d/Types.hpp>

#include "process.hpp"

namespace tutti_torch
{

/* Throws ValueError where the time is below 0; `what` has it. */
void need_time(std::chrono::milliseconds time, const char *what);

/* As tutti's functions take a time: 0 to INT_MAX. */
inline int whole_ms(std::chrono::milliseconds time)
{
    return static_cast<int>(std::clamp<int64_t>(time.count(), 0, INT_MAX));
}

/* Shared by a group and its works. Any thread. In a child made by fork the parent's works have no
 * extensions. */
class Deadlines
{
  public:
    using Time = std::chrono::milliseconds;

    explicit Deadlines(Time usual) : process_(this_process()), usual_ms_(usual.count()) {}
    void set(Time usual)
    {
        usual_ms_ = usual.count();
    }
    /* Later works have so much more, until the first of them ends. */
    void extend(Time more);

    /* The deadline of a new work with this key, which asks for `asked`; kUnsetTimeout: the usual
     * one. 0: none. */
    Time begin(Time asked, uint64_t key);
    /* The work with this key has ended. */
    void end(uint64_t key);

  private:
    struct Extension {
        Time more;
        uint64_t first; /* key of the first work that has it; 0: there is none yet */
    };
    /* False also in a child, where lock_ may be held for good. */
    bool may_extend() const
    {
        return has_extensions_.load(std::memory_order_relaxed) && process_ == this_process();
    }

    const void *const process_;
    std::atomic<int64_t> usual_ms_;
    std::atomic<bool> has_extensions_{false};
    std::mutex lock_;
    std::vector<Extension> extensions_; /* guarded by lock_ */
};

} // namespace tutti_torch

#endif
