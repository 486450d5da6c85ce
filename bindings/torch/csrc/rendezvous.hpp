// How the ranks of a group find each other: the unique id goes over PyTorch's store.
#ifndef TUTTI_TORCH_RENDEZVOUS_H
#define TUTTI_TORCH_RENDEZVOUS_H

#include <chrono>
#include <string>

#include <torch/csrc/distributed/c10d/Store.hpp>
#include <tutti.h>

namespace tutti_torch
{

/* Who meets, where, and what the communicator is like. */
struct Meeting {
    c10::intrusive_ptr<c10d::Store> store;
    std::string key;  /* of the store; these ranks alone use it, once */
    std::string name; /* of the communicator, for errors and logs */
    int rank;
    int nranks;
    std::chrono::milliseconds timeout; /* of the calls on the communicator, too; 0: none */
};

/* Collective. Throws c10::DistBackendError on each rank where one of them fails: rank 0 puts the
 * text of its error into the store in place of the id. */
tuttiComm_t meet(const Meeting &meeting);

} // namespace tutti_torch

#endif
