/* Every rank gets its block, of a length of its own, of the root's data. */
#include "common/perf.h"

static tuttiResult_t launch(const struct perf_call *call)
{
    const void *send = call->rank == call->root ? call->send : NULL;
    return call->library->scatterv(send, call->recv, call->send_counts, NULL, call->type,
                                   call->root, call->comm, call->stream);
}

static const struct perf_collective scatterv = {
    .name = "scatterv",
    .collective = tuttiCollScatter,
    .rooted = true,
    .sends_blocks = true,
    .uneven = true,
    .volume = perf_volume_all,
    .factor = perf_factor_others,
    .launch = launch,
    .expected = perf_expect_scattered,
};

int main(int argc, char **argv)
{
    return perf_main(&scatterv, argc, argv);
}
