// Gloo's all-reduce, barrier and point to point over TCP for bench.c.
//
// RANK and WORLD_SIZE as torchrun gives them; PEER_INTERFACE, the network's; PEER_STORE, an empty
// directory that all ranks see.
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <string>

#include <gloo/allreduce.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>

extern "C" {
#include "peer.h"
}

static std::shared_ptr<gloo::rendezvous::Context> context;
static int my_rank;

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
        *nranks = std::atoi(setting("WORLD_SIZE"));
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
    static uint32_t tag = 0;
    gloo::AllreduceOptions options(context);
    if (input != output) options.setInput(const_cast<T *>(input), count);
    options.setOutput(output, count);
    options.setReduceFunction(combine);
    options.setTag(tag++);
    gloo::allreduce(options);
}

static void point_to_point(const float *input, float *output, size_t nbytes, bool there_and_back)
{
    if (my_rank > 1) return;
    const uint64_t slot = 1;
    auto in = context->createUnboundBuffer(const_cast<float *>(input), nbytes);
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
    return operation == PEER_ALL_REDUCE || operation == PEER_PING_PONG || operation == PEER_STREAM;
}

extern "C" bool peer_run(enum peer_operation operation, const float *input, float *output,
                         size_t count)
{
    try {
        if (operation == PEER_ALL_REDUCE)
            all_reduce(input, output, count, gloo::sum<float>);
        else
            point_to_point(input, output, count * sizeof(float), operation == PEER_PING_PONG);
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
