// Messages between two ranks of a group.
#include "links.hpp"

#include <c10/util/Exception.h>

#include "process.hpp"
#include "rendezvous.hpp"

namespace tutti_torch
{

Links::Links(c10::intrusive_ptr<c10d::Store> store, std::string name, int rank)
    : store_(std::move(store)), name_(std::move(name)), rank_(rank), process_(this_process())
{
}

std::shared_ptr<Queue> Links::between(int source, int destination)
{
    TORCH_CHECK_WITH(DistBackendError, process_ == this_process(), FORKED);
    std::lock_guard<std::mutex> guard(lock_);
    TORCH_CHECK_WITH(DistBackendError, !is_closed_, "the group was shut down on this rank");
    std::shared_ptr<Queue> &queue = queues_[{source, destination}];
    if (queue) return queue;
    const std::string from = std::to_string(source), to = std::to_string(destination);
    Meeting meeting{store_,
                    "tutti/" + from + "-" + to,
                    name_ + ", messages from rank " + from + " to rank " + to,
                    rank_ == source ? 0 : 1,
                    2,
                    {}};
    queue = std::make_shared<Queue>([meeting](std::chrono::milliseconds timeout) mutable {
        meeting.store = meeting.store->clone(); /* a wait holds up others of the same connection */
        meeting.timeout = timeout;
        return meet(meeting);
    });
    return queue;
}

std::map<std::pair<int, int>, std::shared_ptr<Queue>> Links::all()
{
    std::lock_guard<std::mutex> guard(lock_);
    return queues_;
}

bool Links::finish(std::chrono::steady_clock::time_point until)
{
    bool done = true;
    for (const auto &[ranks, queue] : all()) done = queue->finish(until) && done;
    return done;
}

void Links::abort()
{
    for (const auto &[ranks, queue] : all()) queue->abort();
}

void Links::close()
{
    std::unique_lock<std::mutex> guard(lock_);
    is_closed_ = true;
    guard.unlock();
    for (const auto &[ranks, queue] : all()) {
        const bool receives = ranks.second == rank_;
        if (receives && queue->is_busy()) queue->abort();
        queue->close();
    }
}

tuttiResult_t Links::error()
{
    for (const auto &[ranks, queue] : all())
        if (const tuttiResult_t result = queue->error(); result != tuttiSuccess) return result;
    return tuttiSuccess;
}

} // namespace tutti_torch
