/* Every rank gets its block of every rank's data. */
#include "common/perf.h"

static tuttiResult_t launch(const struct perf_call *call)
{
    return call->library->all_to_all(call->send, call->recv, call->count, call->type, call->comm,
                                     call->stream);
}

static const struct perf_collective alltoall = {
    .name = "alltoall",
    .collective = tuttiCollAllToAll,
    .nccl = "ncclAlltoAll",
    .sends_blocks = true,
    .gets_blocks = true,
    .never_in_place = true,
    .volume = perf_volume_all,
    .factor = perf_factor_others,
    .launch = launch,
    .expected = perf_expect_exchanged,
};

int main(int argc, char **argv)
{
    return perf_main(&alltoall, argc, argv);
}
