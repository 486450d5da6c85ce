/* Every rank gets its block of the reduction of all ranks' data. */
#include "common/perf.h"

static tuttiResult_t launch(const struct perf_call *call)
{
    return call->library->reduce_scatter(call->send, call->recv, call->count, call->type, call->op,
                                         call->comm, call->stream);
}

static const struct perf_collective reduce_scatter = {
    .name = "reduce_scatter",
    .collective = tuttiCollReduceScatter,
    .nccl = "ncclReduceScatter",
    .reduces = true,
    .sends_blocks = true,
    .volume = perf_volume_all,
    .factor = perf_factor_others,
    .launch = launch,
    .expected = perf_expect_reduced_block,
};

int main(int argc, char **argv)
{
    return perf_main(&reduce_scatter, argc, argv);
}
