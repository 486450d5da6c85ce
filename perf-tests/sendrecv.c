/* Every rank sends to the next one and receives from the one before, around a ring. */
#include "common/perf.h"

static tuttiResult_t launch(const struct perf_call *call)
{
    int next = (call->rank + 1) % call->nranks;
    int before = (call->rank + call->nranks - 1) % call->nranks;
    tuttiResult_t result = call->library->group_start();
    if (result != tuttiSuccess) return result;
    result =
        call->library->send(call->send, call->count, call->type, next, call->comm, call->stream);
    if (result == tuttiSuccess) {
        result = call->library->recv(call->recv, call->count, call->type, before, call->comm,
                                     call->stream);
    }
    return perf_group_end(call->library, result);
}

static void expected(const struct perf_data *data, size_t first, size_t count, void *want)
{
    int before = (data->rank + data->nranks - 1) % data->nranks;
    perf_fill_input(data, before, first, count, want);
}

static const struct perf_collective sendrecv = {
    .name = "sendrecv",
    .collective = PERF_NO_COLLECTIVE,
    .nccl = "ncclSend",
    .never_in_place = true,
    .volume = perf_volume_one,
    .factor = perf_factor_one,
    .launch = launch,
    .expected = expected,
};

int main(int argc, char **argv)
{
    return perf_main(&sendrecv, argc, argv);
}
