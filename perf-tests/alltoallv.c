/* Every rank gets its block of every rank's data; each pair has a length of its own. */
#include "common/perf.h"

static tuttiResult_t launch(const struct perf_call *call)
{
    return call->library->all_to_allv(call->send, call->send_counts, NULL, call->recv,
                                      call->recv_counts, NULL, call->type, call->comm,
                                      call->stream);
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
    .expected = perf_expect_exchanged,
};

int main(int argc, char **argv)
{
    return perf_main(&alltoallv, argc, argv);
}
