/* Every rank gets the root's data. */
#include "common/perf.h"

static tuttiResult_t launch(const struct perf_call *call)
{
    return call->library->broadcast(call->send, call->recv, call->count, call->type, call->root,
                                    call->comm, call->stream);
}

static void expected(const struct perf_data *data, size_t first, size_t count, void *want)
{
    perf_fill_input(data, data->root, first, count, want);
}

static const struct perf_collective broadcast = {
    .name = "broadcast",
    .collective = tuttiCollBroadcast,
    .nccl = "ncclBroadcast",
    .rooted = true,
    .volume = perf_volume_one,
    .factor = perf_factor_one,
    .launch = launch,
    .expected = expected,
};

int main(int argc, char **argv)
{
    return perf_main(&broadcast, argc, argv);
}
