/* Every rank gets its block of every rank's data. */
#include "common/perf.h"

static tuttiResult_t launch(const struct perf_call *call)
{
    return tuttiAlltoAll(call->send, call->recv, call->count, call->type, call->comm, call->stream);
}

static void fill_block(const struct perf_data *data, int block, size_t first, size_t count,
                       void *to)
{
    perf_fill_input(data, block, (size_t)data->rank * data->count + first, count, to);
}

static void expected(const struct perf_data *data, size_t first, size_t count, void *want)
{
    perf_fill_blocks(data, first, count, want, fill_block);
}

static const struct perf_collective alltoall = {
    .name = "alltoall",
    .collective = tuttiCollAllToAll,
    .sends_blocks = true,
    .gets_blocks = true,
    .never_in_place = true,
    .volume = perf_volume_all,
    .factor = perf_factor_others,
    .launch = launch,
    .expected = expected,
};

int main(int argc, char **argv)
{
    return perf_main(&alltoall, argc, argv);
}
