/* Every rank gets the blocks of all ranks, each of a length of its own. */
#include "common/perf.h"

static tuttiResult_t launch(const struct perf_call *call)
{
    return call->library->all_gatherv(call->send, call->recv, call->recv_counts, NULL, call->type,
                                      call->comm, call->stream);
}

static const struct perf_collective all_gatherv = {
    .name = "all_gatherv",
    .collective = tuttiCollAllGather,
    .gets_blocks = true,
    .uneven = true,
    .volume = perf_volume_all,
    .factor = perf_factor_others,
    .launch = launch,
    .expected = perf_expect_gathered,
};

int main(int argc, char **argv)
{
    return perf_main(&all_gatherv, argc, argv);
}
