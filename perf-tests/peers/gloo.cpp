// Gloo's collectives and point to point over TCP for bench.c; it has no reduce-scatter of this
// kind.
//
// RANK and WORLD_SIZE as torchrun gives them; PEER_INTERFACE, the network's; PEER_STORE, an empty
// directory that all ranks see.
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/alltoall.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/gather.h>
#include <gloo/math.h>
#include <gloo/reduce.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/scatter.h>
#include <gloo/transport/tcp/device.h>

extern "C" {
#include "peer.h"
}

static std::shared_ptr<gloo::rendezvous::Context> context;
static int my_rank, my_nranks;
static uint32_t tag; // of the next call: the ranks make the same calls

static const char *setting(const char *name)
{
    const char *value = std::getenv(name);
    if (!value) throw std::string(name) + " is not set";
    return value;
}

extern "C" bool peer_open(int *, char ***, int *rank, int *nranks)
{
    try {
        my_rank = *rank = std::atoi(setting("RANK"));
        my_nranks = *nranks = std::atoi(setting("WORLD_SIZE"));
        gloo::transport::tcp::attr network;
        network.iface = setting("PEER_INTERFACE");
        network.ai_family = AF_INET;
        auto device = gloo::transport::tcp::CreateDevice(network);
        auto store = gloo::rendezvous::FileStore(setting("PEER_STORE"));
        context = std::make_shared<gloo::rendezvous::Context>(*rank, *nranks);
        context->connectFullMesh(store, device);
        return true;
    } catch (const std::string &why) {
        std::fprintf(stderr, "gloo: %s\n", why.c_str());
    } catch (const std::exception &why) {
        std::fprintf(stderr, "gloo: %s\n", why.what());
    }
    return false;
}

extern "C" void peer_close(void)
{
    context.reset();
}

extern "C" void *peer_alloc(size_t nbytes)
{
    return std::malloc(nbytes);
}

extern "C" void peer_free(void *memory)
{
    std::free(memory);
}

template <typename T>
static void all_reduce(const T *input, T *output, size_t count,
                       void (*combine)(void *, const void *, const void *, size_t))
{
    gloo::AllreduceOptions options(context);
    if (input != output) options.setInput(const_cast<T *>(input), count);
    options.setOutput(output, count);
    options.setReduceFunction(combine);
    options.setTag(tag++);
    gloo::allreduce(options);
}

static void broadcast(float *output, size_t count)
{
    gloo::BroadcastOptions options(context);
    options.setOutput(output, count);
    options.setRoot(0);
    options.setTag(tag++);
    gloo::broadcast(options);
}

static void reduce(float *input, float *output, size_t count)
{
    gloo::ReduceOptions options(context);
    options.setInput(input, count);
    options.setOutput(output, count);
    options.setRoot(0);
    options.setReduceFunction(
        static_cast<void (*)(void *, const void *, const void *, size_t)>(gloo::sum<float>));
    options.setTag(tag++);
    gloo::reduce(options);
}

static void all_gather(float *input, float *output, size_t count)
{
    gloo::AllgatherOptions options(context);
    options.setInput(input, count);
    options.setOutput(output, count * static_cast<size_t>(my_nranks));
    options.setTag(tag++);
    gloo::allgather(options);
}

static void all_to_all(float *input, float *output, size_t count)
{
    gloo::AlltoallOptions options(context);
    options.setInput(input, count * static_cast<size_t>(my_nranks));
    options.setOutput(output, count * static_cast<size_t>(my_nranks));
    options.setTag(tag++);
    gloo::alltoall(options);
}

static void scatter(float *input, float *output, size_t count)
{
    gloo::ScatterOptions options(context);
    std::vector<float *> blocks;
    for (int i = 0; i < my_nranks; i++) blocks.push_back(input + static_cast<size_t>(i) * count);
    if (my_rank == 0) options.setInputs(blocks, count);
    options.setOutput(output, count);
    options.setRoot(0);
    options.setTag(tag++);
    gloo::scatter(options);
}

static void gather(float *input, float *output, size_t count)
{
    gloo::GatherOptions options(context);
    options.setInput(input, count);
    if (my_rank == 0) options.setOutput(output, count * static_cast<size_t>(my_nranks));
    options.setRoot(0);
    options.setTag(tag++);
    gloo::gather(options);
}

static void barrier()
{
    gloo::BarrierOptions options(context);
    options.setTag(tag++);
    gloo::barrier(options);
}

static const uint64_t slot = 1; // of messages from rank to rank

static void send_and_receive(float *input, float *output, size_t nbytes)
{
    const int next = (my_rank + 1) % my_nranks, previous = (my_rank + my_nranks - 1) % my_nranks;
    auto in = context->createUnboundBuffer(input, nbytes);
    auto out = context->createUnboundBuffer(output, nbytes);
    out->recv(previous, slot);
    in->send(next, slot);
    in->waitSend();
    out->waitRecv();
}

static void point_to_point(float *input, float *output, size_t nbytes, bool there_and_back)
{
    if (my_rank > 1) return;
    auto in = context->createUnboundBuffer(input, nbytes);
    auto out = context->createUnboundBuffer(output, nbytes);
    if (my_rank == 0) {
        in->send(1, slot);
        in->waitSend();
        if (there_and_back) out->recv(1, slot), out->waitRecv();
    } else {
        out->recv(0, slot);
        out->waitRecv();
        if (there_and_back) out->send(0, slot), out->waitSend();
    }
}

extern "C" bool peer_has(enum peer_operation operation)
{
    return operation != PEER_REDUCE_SCATTER && operation < PEER_NOPERATIONS;
}

static void call(enum peer_operation operation, float *input, float *output, size_t count)
{
    switch (operation) {
    case PEER_ALL_REDUCE:
        return all_reduce(input, output, count, gloo::sum<float>);
    case PEER_BROADCAST: // in place, as MPI_Bcast is
        return broadcast(output, count);
    case PEER_REDUCE:
        return reduce(input, output, count);
    case PEER_ALL_GATHER:
        return all_gather(input, output, count);
    case PEER_ALL_TO_ALL:
        return all_to_all(input, output, count);
    case PEER_SCATTER:
        return scatter(input, output, count);
    case PEER_GATHER:
        return gather(input, output, count);
    case PEER_SEND_RECV:
        return send_and_receive(input, output, count * sizeof(float));
    case PEER_BARRIER:
        return barrier();
    case PEER_PING_PONG:
    case PEER_STREAM:
        return point_to_point(input, output, count * sizeof(float), operation == PEER_PING_PONG);
    default: // peer_has refuses the others
        return;
    }
}

extern "C" bool peer_run(enum peer_operation operation, const float *input, float *output,
                         size_t count)
{
    try {
        call(operation, const_cast<float *>(input), output, count);
        return true;
    } catch (const std::exception &why) {
        std::fprintf(stderr, "gloo: %s\n", why.what());
        return false;
    }
}

extern "C" bool peer_max(double *values, size_t count)
{
    try {
        all_reduce(values, values, count, gloo::max<double>);
        return true;
    } catch (const std::exception &why) {
        std::fprintf(stderr, "gloo: %s\n", why.what());
        return false;
    }
}
