// How the ranks of a communicator find each other: the unique id goes over PyTorch's store.
#ifndef TUTTI_TORCH_RENDEZVOUS_H
#define TUTTI_TORCH_RENDEZVOUS_H

#include <chrono>
#include <functional>
#include <string>

#include <torch/csrc/distributed/c10d/Store.hpp>
#include <tutti.h>

#include "errors.hpp"

namespace tutti_torch
{

/* Who meets, where, and what the communicator is like. */
struct Meeting {
    c10::intrusive_ptr<c10d::Store> store;
    std::string key;       /* of the store: only these ranks use it, and one round at a time */
    std::string ready_key; /* that rank 1 of two sets first, and rank 0 waits for; "": none */
    Numbering numbering;   /* has the communicator's name; errors use it */
    int rank;              /* this and the next: of the communicator */
    int nranks;
    std::string failure;               /* how an error of the store, or at the deadline, begins */
    std::chrono::milliseconds timeout; /* of the calls on the communicator, too; 0: none */
    /* Throws where the wait is in vain. Called about twice a second by ranks that wait, which then
     * have a connection of their own to the store. May be empty. */
    std::function<void()> look;
};

/* Collective. Throws c10::DistBackendError on each rank where one of them fails: rank 0 puts the
 * text of its error into the store in place of the id. An id that an earlier round has left in the
 * store is passed over. `used` gets the id; it may be NULL. */
tuttiComm_t meet(Meeting meeting, tuttiUniqueId *used);

} // namespace tutti_torch

#endif
