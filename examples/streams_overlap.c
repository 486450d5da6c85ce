/* Communication behind computation: tutti-run -n 2 streams_overlap
 *
 * The all-reduce of one buffer runs on a stream while this thread computes the next; events say
 * when each was finished and how long it took. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <tutti.h>

enum { NBUFFERS = 4, COUNT = 1 << 18 };

static void try(tuttiResult_t result, const char *what)
{
    if (result == tuttiSuccess) return;
    fprintf(stderr, "%s: %s: %s\n", what, tuttiGetErrorString(result), tuttiGetLastError(NULL));
    exit(1);
}

static void compute(float *data, int which)
{
    for (int i = 0; i < COUNT; i++) data[i] = sinf((float)i) * 0.0f + (float)which;
}

int main(void)
{
    tuttiComm_t comm;
    tuttiStream_t stream;
    tuttiEvent_t start, done;
    int rank, nranks;
    try(tuttiCommInitEnv(&comm, NULL, NULL), "init");
    try(tuttiCommUserRank(comm, &rank), "rank");
    try(tuttiCommCount(comm, &nranks), "count");
    try(tuttiStreamCreate(&stream), "stream");
    try(tuttiEventCreate(&start), "event");
    try(tuttiEventCreate(&done), "event");

    /* Memory that every rank of the host can address is used in place, without copies. */
    void *memory;
    try(tuttiMemAlloc(&memory, NBUFFERS * COUNT * sizeof(float)), "memory");
    float *buffers = memory;

    try(tuttiEventRecord(start, stream), "record");
    for (int b = 0; b < NBUFFERS; b++) {
        float *data = buffers + (size_t)b * COUNT;
        compute(data, b + 1); /* while the stream reduces the buffer before */
        try(tuttiAllReduce(data, data, COUNT, tuttiFloat32, tuttiSum, comm, stream), "all-reduce");
    }
    try(tuttiEventRecord(done, stream), "record");
    try(tuttiStreamSynchronize(stream), "synchronize");

    float ms;
    try(tuttiEventElapsedTime(&ms, start, done), "elapsed");
    for (int b = 0; b < NBUFFERS; b++)
        if (buffers[(size_t)b * COUNT] != (float)((b + 1) * nranks)) return 1;
    if (rank == 0)
        printf("%d buffers computed and reduced over %d ranks in %.1f ms\n", NBUFFERS, nranks,
               (double)ms);

    try(tuttiMemFree(memory), "memory");
    try(tuttiEventDestroy(start), "event");
    try(tuttiEventDestroy(done), "event");
    try(tuttiStreamDestroy(stream), "stream");
    try(tuttiCommDestroy(comm), "destroy");
    return fflush(stdout) == 0 ? 0 : 1; /* a full disk */
}
