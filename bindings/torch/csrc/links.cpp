// Messages between two ranks of a group.
#include "links.hpp"

#include <utility>

#include <c10/util/Exception.h>

#include "process.hpp"
#include "rendezvous.hpp"

namespace tutti_torch
{

Links::Links(c10::intrusive_ptr<c10d::Store> store, std::string name, std::string id, int rank,
             std::shared_ptr<Queue> group)
    : store_(std::move(store)), name_(std::move(name)), id_(std::move(id)), rank_(rank),
      group_(std::move(group)), process_(this_process())
{
}

Link Links::make(int source, int destination) const
{
    const std::string from = std::to_string(source), to = std::to_string(destination);
    const std::string key = "tutti/" + id_ + "/" + from + "-" + to;
    const std::string name = name_ + ", messages from rank " + from + " to rank " + to;
    const Numbering numbering{name.substr(0, LONGEST_NAME), {source, destination}};
    const int peer = rank_ == source ? destination : source;
    Meeting meeting{.store = store_,
                    .key = key,
                    .ready_key = key + "/ready",
                    .numbering = numbering,
                    .rank = rank_ == source ? 0 : 1,
                    .nranks = 2,
                    .failure = "the first message from rank " + from + " to rank " + to + " in " +
                               name_ + " did not arrive",
                    .timeout = {},
                    .look = {}};
    auto connect = [meeting, peer, group = group_](std::chrono::milliseconds timeout,
                                                   const std::function<void()> &look) mutable {
        meeting.timeout = timeout;
        meeting.look = [&] {
            look();
            const std::string end = group->end_of(peer);
            TORCH_CHECK_WITH(DistBackendError, end.empty(), meeting.failure, ": ", end);
        };
        return meet(meeting, nullptr);
    };
    return {std::make_shared<Queue>(connect), std::make_shared<const Numbering>(numbering)};
}

Link Links::between(int source, int destination)
{
    TORCH_CHECK_WITH(DistBackendError, process_ == this_process(), FORKED);
    std::lock_guard<std::mutex> guard(lock_);
    TORCH_CHECK_WITH(DistBackendError, !is_closed_, "the group was shut down on this rank");
    const auto found = links_.find({source, destination});
    if (found != links_.end()) return found->second;
    Link link = make(source, destination); /* throws where the system gives no thread */
    links_.insert({{source, destination}, link});
    return link;
}

/* None in a child made by fork: a thread of the parent may have held the lock. */
std::map<std::pair<int, int>, Link> Links::all()
{
    if (process_ != this_process()) return {};
    std::lock_guard<std::mutex> guard(lock_);
    return links_;
}

bool Links::leave(std::chrono::steady_clock::time_point until)
{
    refuse_more();
    bool is_done = true;
    for (const auto &[ranks, link] : all()) is_done = link.queue->leave(until) && is_done;
    return is_done;
}

void Links::refuse_more()
{
    if (process_ != this_process()) return;
    std::lock_guard<std::mutex> guard(lock_);
    is_closed_ = true;
}

void Links::abort()
{
    for (const auto &[ranks, link] : all()) link.queue->abort();
}

void Links::close()
{
    refuse_more();
    for (const auto &[ranks, link] : all()) {
        const bool receives = ranks.second == rank_;
        if (receives && link.queue->is_busy()) link.queue->abort();
        link.queue->close();
    }
}

tuttiResult_t Links::error()
{
    for (const auto &[ranks, link] : all())
        if (const tuttiResult_t result = link.queue->error(); result != tuttiSuccess) return result;
    return tuttiSuccess;
}

} // namespace tutti_torch
