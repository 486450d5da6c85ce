// How long the calls of a group may take.
#include "deadlines.hpp"

#include <mutex>
#include <vector>

#include <c10/util/Exception.h>

namespace tutti_torch
{

void need_time(std::chrono::milliseconds time, const char *what)
{
    TORCH_CHECK_VALUE(time.count() >= 0, "the timeout of ", what, " is ", time.count(),
                      " ms, expected 0 (none) or more");
}

void Deadlines::extend(Time more)
{
    if (process_ != this_process()) return;
    std::lock_guard<std::mutex> guard(lock_);
    extensions_.push_back({more, 0});
    has_extensions_ = true;
}

Deadlines::Time Deadlines::begin(Time asked, uint64_t key)
{
    Time time =
        asked == c10d::kUnsetTimeout ? Time(usual_ms_.load(std::memory_order_relaxed)) : asked;
    if (!may_extend()) return time;
    std::lock_guard<std::mutex> guard(lock_);
    for (Extension &extension : extensions_) {
        if (!extension.first) extension.first = key;
        if (time.count()) time += extension.more;
    }
    return time;
}

void Deadlines::end(uint64_t key)
{
    if (!may_extend()) return;
    std::lock_guard<std::mutex> guard(lock_);
    std::erase_if(extensions_, [key](const Extension &each) { return each.first == key; });
    has_extensions_ = !extensions_.empty();
}

} // namespace tutti_torch
