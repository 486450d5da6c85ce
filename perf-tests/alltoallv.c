/* Every rank gets its block of every rank's data; each pair has a length of its own. */
#include "common/perf.h"

static tuttiResult_t launch(const struct perf_call *call)
{
    return tuttiAlltoAllV(call->send, call->send_counts, NULL, call->recv, call->recv_counts, NULL,
                          call->type, call->comm, call->stream);
}

static void fill_block(const struct perf_data *data, int block, size_t first, size_t count,
                       void *to)
{
    size_t begin = perf_block_begin(&data->blocks, block, data->rank);
    perf_fill_input(data, block, begin + first, count, to);
}

static void expected(const struct perf_data *data, size_t first, size_t count, void *want)
{
    perf_fill_blocks(data, first, count, want, fill_block);
}

static const struct perf_collective alltoallv = {
    .name = "alltoallv",
    .collective = PERF_NO_COLLECTIVE,
    .sends_blocks = true,
    .gets_blocks = true,
    .uneven = true,
    .never_in_place = true,
    .volume = perf_volume_all,
    .factor = perf_factor_others,
    .launch = launch,
    .expected = expected,
};

int main(int argc, char **argv)
{
    return perf_main(&alltoallv, argc, argv);
}
