/* Every rank gets all ranks' blocks in rank order. */
#include "common/perf.h"

static tuttiResult_t launch(const struct perf_call *call)
{
    return tuttiAllGather(call->send, call->recv, call->count, call->type, call->comm,
                          call->stream);
}

static void fill_block(const struct perf_data *data, int block, size_t first, size_t count,
                       void *to)
{
    perf_fill_input(data, block, first, count, to);
}

static void expected(const struct perf_data *data, size_t first, size_t count, void *want)
{
    perf_fill_blocks(data, first, count, want, fill_block);
}

static const struct perf_collective all_gather = {
    .name = "all_gather",
    .collective = tuttiCollAllGather,
    .gets_blocks = true,
    .volume = perf_volume_all,
    .factor = perf_factor_others,
    .launch = launch,
    .expected = expected,
};

int main(int argc, char **argv)
{
    return perf_main(&all_gather, argc, argv);
}
