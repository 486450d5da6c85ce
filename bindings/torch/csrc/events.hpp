// Events that are made once and used again.
#ifndef TUTTI_TORCH_EVENTS_H
#define TUTTI_TORCH_EVENTS_H

#include <tutti.h>

namespace tutti_torch
{

struct EventPool;

/* Owns an event, or none. */
class Event
{
  public:
    Event() = default;
    ~Event();
    Event(Event &&other) noexcept;
    Event &operator=(Event &&other) noexcept;

    /* An event of nobody else. Throws c10::DistBackendError where there is no memory. Any thread.
     */
    static Event take();
    tuttiEvent_t get() const
    {
        return event_;
    }

  private:
    tuttiEvent_t event_ = nullptr;
    EventPool *pool_ = nullptr; /* that it goes back to */
};

} // namespace tutti_torch

#endif
