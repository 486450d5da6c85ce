// Events that are made once and used again.
#include "events.hpp"

#include <mutex>
#include <utility>
#include <vector>

#include "errors.hpp"
#include "process.hpp"

namespace tutti_torch
{

struct EventPool {
    std::mutex lock;
    std::vector<tuttiEvent_t> unused; /* guarded by lock */
};

namespace
{
enum { MOST_UNUSED = 1024 };
}

Event Event::take()
{
    Event event;
    event.pool_ = &of_process<EventPool>();
    std::unique_lock<std::mutex> guard(event.pool_->lock);
    auto &unused = event.pool_->unused;
    if (!unused.empty()) {
        event.event_ = unused.back();
        unused.pop_back();
        return event;
    }
    guard.unlock();
    check(tuttiEventCreate(&event.event_), nullptr);
    return event;
}

Event::~Event()
{
    if (!event_ || pool_ != &of_process<EventPool>()) return; /* else it is the parent's */
    std::unique_lock<std::mutex> guard(pool_->lock);
    if (pool_->unused.size() < MOST_UNUSED) {
        pool_->unused.push_back(event_);
        return;
    }
    guard.unlock();
    (void)tuttiEventDestroy(event_);
}

Event::Event(Event &&other) noexcept
    : event_(std::exchange(other.event_, nullptr)), pool_(other.pool_)
{
}

Event &Event::operator=(Event &&other) noexcept
{
    std::swap(event_, other.event_);
    std::swap(pool_, other.pool_);
    return *this;
}

} // namespace tutti_torch
