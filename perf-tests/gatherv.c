/* The root gets the blocks of all ranks, each of a length of its own. */
#include "common/perf.h"

static tuttiResult_t launch(const struct perf_call *call)
{
    void *recv = call->rank == call->root ? call->recv : NULL;
    return tuttiGatherV(call->send, recv, call->recv_counts, NULL, call->type, call->root,
                        call->comm, call->stream);
}

static void fill_block(const struct perf_data *data, int block, size_t first, size_t count,
                       void *to)
{
    bool sent_from_here = data->in_place && block == data->rank;
    if (data->rank == data->root || sent_from_here) {
        perf_fill_input(data, block, first, count, to);
    } else {
        perf_fill_untouched(data, count, to);
    }
}

static void expected(const struct perf_data *data, size_t first, size_t count, void *want)
{
    perf_fill_blocks(data, first, count, want, fill_block);
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
    .expected = expected,
};

int main(int argc, char **argv)
{
    return perf_main(&gatherv, argc, argv);
}
