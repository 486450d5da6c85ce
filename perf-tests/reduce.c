/* The root gets the reduction of all ranks' data. */
#include "common/perf.h"

static tuttiResult_t launch(const struct perf_call *call)
{
    return call->library->reduce(call->send, call->recv, call->count, call->type, call->op,
                                 call->root, call->comm, call->stream);
}

static void expected(const struct perf_data *data, size_t first, size_t count, void *want)
{
    if (data->rank == data->root) {
        perf_fill_reduced(data, first, count, want);
    } else if (data->in_place) {
        perf_fill_input(data, data->rank, first, count, want);
    } else {
        perf_fill_untouched(data, count, want);
    }
}

static const struct perf_collective reduce = {
    .name = "reduce",
    .collective = tuttiCollReduce,
    .nccl = "ncclReduce",
    .reduces = true,
    .rooted = true,
    .volume = perf_volume_one,
    .factor = perf_factor_one,
    .launch = launch,
    .expected = expected,
};

int main(int argc, char **argv)
{
    return perf_main(&reduce, argc, argv);
}
