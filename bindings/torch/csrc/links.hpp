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

#include "queue.hpp"

namespace tutti_torch
{

/* The messages from one rank to another one have a communicator of these two ranks, in which the
 * source is rank 0, and a queue of their own. So a send waits for nothing but its receive, in
 * whatever order ranks issue sends to, and receives from, several ranks. The first message makes
 * the communicator, inside its queue. Any thread. */
class Links
{
  public:
    Links(c10::intrusive_ptr<c10d::Store> store, std::string name, int rank);

    /* One of the ranks is this one; source is not destination. */
    std::shared_ptr<Queue> between(int source, int destination);

    /* As Queue's, of all queues. */
    bool finish(std::chrono::steady_clock::time_point until);
    void abort();
    /* Receives that nobody has answered are given up. */
    void close();
    /* An error with which a communicator has failed, or success. */
    tuttiResult_t error();

  private:
    std::map<std::pair<int, int>, std::shared_ptr<Queue>> all();

    /* immutable */
    const c10::intrusive_ptr<c10d::Store> store_;
    const std::string name_;
    const int rank_;
    const void *const process_;

    std::mutex lock_;
    std::map<std::pair<int, int>, std::shared_ptr<Queue>> queues_; /* guarded by lock_ */
    bool is_closed_ = false;                                       /* guarded by lock_ */
};

} // namespace tutti_torch

#endif
