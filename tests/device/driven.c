/* Ranks that one thread drives. */
#include "driven.h"

#include "shim.h"

void driven_write_numbers(struct driven *d)
{
    int data[DRIVEN_N];
    for (int r = 0; r < d->nranks; r++) {
        for (int i = 0; i < DRIVEN_N; i++) data[i] = r + i;
        gpu_write(d->gpus[r], d->memory[r], data, sizeof data);
    }
}

bool driven_begin_with(struct driven *d, int nranks, int ngpus, int timeout_ms)
{
    tuttiUniqueId id;
    tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
    *d = (struct driven){.nranks = nranks};
    CHECK_EQ(tuttiGetUniqueId(&id), tuttiSuccess);
    if (timeout_ms) config.timeoutMs = timeout_ms;
    CHECK_EQ(tuttiGroupStart(), tuttiSuccess);
    for (int r = 0; r < nranks; r++) {
        d->gpus[r] = config.device = r % ngpus;
        CHECK_EQ(tuttiCommInitRankConfig(&d->comms[r], nranks, id, r, &config), tuttiSuccess);
    }
    CHECK_EQ(tuttiGroupEnd(), tuttiSuccess);
    for (int r = 0; r < nranks; r++) {
        if (!d->comms[r]) return false;
        d->memory[r] = (int *)gpu_memory(d->gpus[r], DRIVEN_N * sizeof(int));
        d->device_streams[r] = gpu_stream(d->gpus[r]);
        CHECK_EQ(tuttiStreamFromDevice(&d->streams[r], d->gpus[r], d->device_streams[r]),
                 tuttiSuccess);
    }
    driven_write_numbers(d);
    return true;
}

bool driven_begin(struct driven *d, int nranks, int ngpus)
{
    return driven_begin_with(d, nranks, ngpus, 0);
}

void driven_finish(struct driven *d)
{
    for (int r = 0; r < d->nranks; r++) {
        CHECK_EQ(tuttiStreamDestroy(d->streams[r]), tuttiSuccess);
        gpu_stream_destroy(d->gpus[r], d->device_streams[r]);
        gpu_free(d->memory[r]);
        CHECK_EQ(tuttiCommDestroy(d->comms[r]), tuttiSuccess);
    }
    gpu_free_all();
}

tuttiStream_t driven_stream_of_gpu(const struct driven *d, int rank)
{
    return d->streams[d->gpus[rank]]; /* of the GPU's first rank */
}

tuttiStream_t driven_stream_of_rank(const struct driven *d, int rank)
{
    return d->streams[rank];
}

tuttiStream_t driven_no_stream(const struct driven *d, int rank)
{
    (void)d;
    (void)rank;
    return NULL;
}

void driven_issue_sums(struct driven *d, int ncalls, driven_choice stream)
{
    CHECK_EQ(tuttiGroupStart(), tuttiSuccess);
    for (int r = 0; r < d->nranks; r++)
        for (int i = 0; i < ncalls; i++)
            CHECK_EQ(tuttiAllReduce(d->memory[r], d->memory[r], DRIVEN_N - (size_t)(i % 3),
                                    tuttiInt32, tuttiSum, d->comms[r], stream(d, r)),
                     tuttiSuccess);
    CHECK_EQ(tuttiGroupEnd(), tuttiSuccess);
}

void driven_synchronize(struct driven *d)
{
    for (int r = 0; r < d->nranks; r++)
        CHECK_EQ(tuttiStreamSynchronize(d->streams[r]), tuttiSuccess);
}

void driven_check_sums(struct driven *d, int ncalls)
{
    unsigned expected[MOST_RANKS], data[DRIVEN_N];
    int nwrong = 0;
    for (int i = 0; i < DRIVEN_N; i++) {
        for (int r = 0; r < d->nranks; r++) expected[r] = (unsigned)(r + i);
        for (int call = 0; call < ncalls; call++) {
            unsigned sum = 0;
            for (int r = 0; r < d->nranks; r++) sum += expected[r];
            for (int r = 0; i < DRIVEN_N - call % 3 && r < d->nranks; r++) expected[r] = sum;
        }
        if (i != 0 && i != DRIVEN_N / 2 && i < DRIVEN_N - 3) continue; /* these tell enough */
        for (int r = 0; r < d->nranks; r++) {
            gpu_read(d->gpus[r], data, d->memory[r], sizeof data);
            nwrong += data[i] != expected[r];
        }
    }
    CHECK_EQ(nwrong, 0);
}
