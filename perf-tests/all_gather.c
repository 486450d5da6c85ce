/* Every rank gets all ranks' blocks in rank order. */
#include "common/perf.h"

static tuttiResult_t launch(const struct perf_call *call)
{
    return call->library->all_gather(call->send, call->recv, call->count, call->type, call->comm,
                                     call->stream);
}

static const struct perf_collective all_gather = {
    .name = "all_gather",
    .collective = tuttiCollAllGather,
    .nccl = "ncclAllGather",
    .gets_blocks = true,
    .volume = perf_volume_all,
    .factor = perf_factor_others,
    .launch = launch,
    .expected = perf_expect_gathered,
};

int main(int argc, char **argv)
{
    return perf_main(&all_gather, argc, argv);
}
