/* The root gets the blocks of all ranks, each of a length of its own. */
#include "common/perf.h"

static tuttiResult_t launch(const struct perf_call *call)
{
    void *recv = call->rank == call->root ? call->recv : NULL;
    return call->library->gatherv(call->send, recv, call->recv_counts, NULL, call->type, call->root,
                                  call->comm, call->stream);
}

static const struct perf_collective gatherv = {
    .name = "gatherv",
    .collective = tuttiCollGather,
    .rooted = true,
    .gets_blocks = true,
    .uneven = true,
    .volume = perf_volume_all,
    .factor = perf_factor_others,
    .launch = launch,
    .expected = perf_expect_gathered_at_root,
};

int main(int argc, char **argv)
{
    return perf_main(&gatherv, argc, argv);
}
