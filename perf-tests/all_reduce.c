/* Every rank gets the reduction of all ranks' data. */
#include "common/perf.h"

static tuttiResult_t launch(const struct perf_call *call)
{
    return call->library->all_reduce(call->send, call->recv, call->count, call->type, call->op,
                                     call->comm, call->stream);
}

static const struct perf_collective all_reduce = {
    .name = "all_reduce",
    .collective = tuttiCollAllReduce,
    .nccl = "ncclAllReduce",
    .reduces = true,
    .volume = perf_volume_one,
    .factor = perf_factor_twice_others,
    .launch = launch,
    .expected = perf_fill_reduced,
};

int main(int argc, char **argv)
{
    return perf_main(&all_reduce, argc, argv);
}
