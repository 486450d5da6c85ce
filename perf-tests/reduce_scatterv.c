/* Every rank gets its block, of a length of its own, of the reduction of all data. */
#include "common/perf.h"

static tuttiResult_t launch(const struct perf_call *call)
{
    return call->library->reduce_scatterv(call->send, call->recv, call->recv_counts, call->type,
                                          call->op, call->comm, call->stream);
}

static const struct perf_collective reduce_scatterv = {
    .name = "reduce_scatterv",
    .collective = tuttiCollReduceScatter,
    .reduces = true,
    .sends_blocks = true,
    .uneven = true,
    .volume = perf_volume_all,
    .factor = perf_factor_others,
    .launch = launch,
    .expected = perf_expect_reduced_block,
};

int main(int argc, char **argv)
{
    return perf_main(&reduce_scatterv, argc, argv);
}
