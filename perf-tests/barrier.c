/* No rank goes on before all have come. */
#include "common/perf.h"

static tuttiResult_t launch(const struct perf_call *call)
{
    return call->library->barrier(call->comm, call->stream);
}

static const struct perf_collective barrier = {
    .name = "barrier",
    .collective = tuttiCollBarrier,
    .never_in_place = true,
    .moves_nothing = true,
    .volume = perf_volume_one,
    .factor = perf_factor_one,
    .launch = launch,
};

int main(int argc, char **argv)
{
    return perf_main(&barrier, argc, argv);
}
