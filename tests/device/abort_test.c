/* Ranks on GPUs that abort as soon as their stream has done a call: the others finish it. */
#include <stdio.h>

#include "ranks_on_gpus.h"
#include "shim.h"

enum { ROUNDS = 100, MOST = 30000 };

/* Lines, slots, and several rounds of slots. */
static const size_t counts[] = {2, 3000, MOST};

static void check_sums(const struct gpu_rank *rank, const float *memory, size_t count)
{
    static _Thread_local float data[MOST];
    const float sum = (float)(rank->nranks * (rank->nranks + 1) / 2);
    gpu_read(rank->gpu, data, memory, count * sizeof *data);
    for (size_t i = 0; i < count && !tt_test_failed(); i++) CHECK_EQ(data[i], sum);
}

static void reduce_and_abort(struct gpu_rank *rank)
{
    static _Thread_local float data[MOST];
    void *device_stream = gpu_stream(rank->gpu);
    float *memory = (float *)gpu_memory(rank->gpu, sizeof data);
    tuttiStream_t stream;
    CHECK_EQ(tuttiStreamFromDevice(&stream, rank->gpu, device_stream), tuttiSuccess);
    for (size_t i = 0; i < MOST; i++) data[i] = (float)(rank->rank + 1);
    const int nrounds = tt_test_sanitized() ? ROUNDS / 4 : ROUNDS;
    for (int i = 0; i < nrounds && !tt_test_failed(); i++) {
        tuttiComm_t part = NULL;
        tuttiResult_t async = tuttiNumResults;
        const size_t count = counts[i % 3];
        CHECK_MESSAGE(tuttiCommSplit(rank->comm, 0, 0, &part, NULL) == tuttiSuccess, "split: %s",
                      tuttiGetLastError(NULL));
        gpu_write(rank->gpu, memory, data, count * sizeof *data);
        CHECK_EQ(tuttiAllReduce(memory, memory, count, tuttiFloat, tuttiSum, part, stream),
                 tuttiSuccess);
        CHECK_MESSAGE(tuttiStreamSynchronize(stream) == tuttiSuccess, "rank %d, round %d: %s",
                      rank->rank, i, tuttiGetLastError(part));
        CHECK_EQ(tuttiCommGetAsyncError(part, &async), tuttiSuccess);
        CHECK_EQ(async, tuttiSuccess);
        CHECK_EQ(tuttiCommAbort(part), tuttiSuccess);
        check_sums(rank, memory, count);
    }
    CHECK_EQ(tuttiStreamDestroy(stream), tuttiSuccess);
    gpu_stream_destroy(rank->gpu, device_stream);
    gpu_free(memory);
}

TEST(device_abort, two_ranks_abort_as_soon_as_they_have_reduced)
{
    on_gpus(2, 2, NULL, reduce_and_abort, NULL);
}

TEST(device_abort, four_ranks_on_two_gpus_abort_as_soon_as_they_have_reduced)
{
    on_gpus(4, 2, NULL, reduce_and_abort, NULL);
}
