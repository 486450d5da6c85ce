// Messages between two ranks of a group.
#ifndef TUTTI_TORCH_LINKS_H
#define TUTTI_TORCH_LINKS_H

#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include <torch/csrc/distributed/c10d/Store.hpp>

#include "errors.hpp"
#include "queue.hpp"

namespace tutti_torch
{

/* The messages from one rank to another one. */
struct Link {
    std::shared_ptr<Queue> queue;
    std::shared_ptr<const Numbering> numbering; /* of the ranks of its communicator */
};

/* The messages from one rank to another one have a communicator of these two ranks, in which the
 * source is rank 0, and a queue of their own. So a send waits for nothing but its receive, in
 * whatever order ranks issue sends to, and receives from, several ranks. The first message makes
 * the communicator, inside its queue. Any thread. A child made by fork may only end it, which then
 * does nothing. */
class Links
{
  public:
    /* group: knows which of its ranks are gone. id: of this group, and of none that has used the
     * same store before. */
    Links(c10::intrusive_ptr<c10d::Store> store, std::string name, std::string id, int rank,
          std::shared_ptr<Queue> group);

    /* One of the ranks is this one; source is not destination. */
    Link between(int source, int destination);

    /* As Queue's, of all queues. */
    void abort();
    bool leave(std::chrono::steady_clock::time_point until);
    /* Receives that nobody has answered are given up, which tells no abort hook. */
    void close();
    /* An error with which a communicator has failed, or success. */
    tuttiResult_t error();

  private:
    Link make(int source, int destination) const;
    void refuse_more();
    std::map<std::pair<int, int>, Link> all();

    /* immutable */
    const c10::intrusive_ptr<c10d::Store> store_;
    const std::string name_, id_;
    const int rank_;
    const std::shared_ptr<Queue> group_;
    const void *const process_;

    std::mutex lock_;
    std::map<std::pair<int, int>, Link> links_; /* guarded by lock_ */
    bool is_closed_ = false;                    /* guarded by lock_ */
};

} // namespace tutti_torch

#endif
