/* The root gets all ranks' blocks in rank order. */
#include "common/perf.h"

static tuttiResult_t launch(const struct perf_call *call)
{
    void *recv = call->rank == call->root ? call->recv : NULL;
    return call->library->gather(call->send, recv, call->count, call->type, call->root, call->comm,
                                 call->stream);
}

static const struct perf_collective gather = {
    .name = "gather",
    .collective = tuttiCollGather,
    .nccl = "ncclGather",
    .rooted = true,
    .gets_blocks = true,
    .volume = perf_volume_all,
    .factor = perf_factor_others,
    .launch = launch,
    .expected = perf_expect_gathered_at_root,
};

int main(int argc, char **argv)
{
    return perf_main(&gather, argc, argv);
}
