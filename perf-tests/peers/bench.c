/* Times one library's collectives, the same way for every library (see peer.h).
 *
 *   bench OPERATION[,OPERATION]... BYTES[,BYTES]...
 *
 * prints "operation ranks bytes best_us median_us" a line, of REPETITIONS repetitions of as many
 * calls as take about REPETITION_US; a repetition's time is that of its slowest rank, and of a
 * ping-pong half: one way. Bytes are of the whole vector: a rank's block is bytes / ranks, at least
 * one float, where there are blocks. Each call takes the next place in REGION_BYTES of memory, so
 * that neither input nor output lies warm in a cache. */
#include "peer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    REPETITIONS = 11,
    REPETITION_US = 6000,
    STREAM_US = 100000, /* longer than what kernels buffer and than a window takes to open */
    MOST_CALLS = 4000,
    REGION_BYTES = 64 << 20,
};

static const char *const names[PEER_NOPERATIONS] = {
    "all_reduce", "broadcast", "reduce",   "all_gather", "reduce_scatter", "all_to_all",
    "scatter",    "gather",    "sendrecv", "barrier",    "pingpong",       "stream"};

struct bench {
    int rank, nranks;
    enum peer_operation operation;
    size_t count;  /* floats of one call, as peer_run takes them */
    size_t stride; /* floats from one call's place to the next, multiple of a cache line */
    size_t nplaces;
    float *input, *output;
    size_t next; /* place of the next call */
};

static double now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

static int ascending(const void *left, const void *right)
{
    const double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

static bool has_blocks(enum peer_operation operation)
{
    return operation == PEER_ALL_GATHER || operation == PEER_REDUCE_SCATTER ||
           operation == PEER_ALL_TO_ALL || operation == PEER_SCATTER || operation == PEER_GATHER;
}

/* Microseconds of a call on the slowest rank, of ncalls calls; negative when one failed. */
static double repeat(struct bench *bench, int ncalls)
{
    bool fine = true;
    (void)peer_max(0);
    const double start = now_us();
    for (int i = 0; fine && i < ncalls; i++) {
        const size_t at = bench->next * bench->stride;
        bench->next = bench->next + 1 < bench->nplaces ? bench->next + 1 : 0;
        fine = peer_run(bench->operation, bench->input + at, bench->output + at, bench->count);
    }
    const int ways = bench->operation == PEER_PING_PONG ? 2 : 1;
    const double mine = fine ? (now_us() - start) / (ncalls * ways) : -1;
    return fine ? peer_max(mine) : -1;
}

static bool measure(struct bench *bench, size_t nbytes)
{
    double times[REPETITIONS];
    (void)repeat(bench, 4); /* peers map each other's memory in the first calls */
    const double first = repeat(bench, 4);
    const double least_us = bench->operation == PEER_STREAM ? STREAM_US : REPETITION_US;
    double wanted = least_us / (first > 0 ? first : 1);
    if (wanted < 2) wanted = 2;
    if (wanted > MOST_CALLS) wanted = MOST_CALLS;
    for (int i = -1; i < REPETITIONS; i++) {
        const double time = repeat(bench, (int)wanted);
        if (time < 0) return false;
        if (i >= 0) times[i] = time;
    }
    qsort(times, REPETITIONS, sizeof *times, ascending);
    if (bench->rank == 0) {
        printf("%s %d %zu %.3f %.3f\n", names[bench->operation], bench->nranks, nbytes, times[0],
               times[REPETITIONS / 2]);
        fflush(stdout);
    }
    return true;
}

static bool measure_size(struct bench *bench, size_t nbytes)
{
    const size_t whole = nbytes / sizeof(float) > 0 ? nbytes / sizeof(float) : 1;
    const size_t nranks = (size_t)bench->nranks;
    const size_t block = whole / nranks > 0 ? whole / nranks : 1;
    const bool blocks = has_blocks(bench->operation);
    bench->count = blocks ? block : whole;
    bench->stride = ((blocks ? block * nranks : whole) + 15) / 16 * 16;
    const size_t region = REGION_BYTES / sizeof(float);
    bench->nplaces = region / bench->stride > 0 ? region / bench->stride : 1;
    const size_t nfloats = bench->nplaces * bench->stride;
    bench->next = 0;
    bench->input = peer_alloc(nfloats * sizeof(float));
    bench->output = peer_alloc(nfloats * sizeof(float));
    bool fine = bench->input && bench->output;
    for (size_t i = 0; fine && i < nfloats; i++) {
        bench->input[i] = (float)(i % 7);
        bench->output[i] = 0;
    }
    fine = fine && measure(bench, nbytes);
    peer_free(bench->input);
    peer_free(bench->output);
    return fine;
}

static bool measure_operation(struct bench *bench, const char *sizes)
{
    while (*sizes) {
        char *end;
        const size_t nbytes = strtoull(sizes, &end, 10);
        if (end == sizes || !measure_size(bench, nbytes)) return false;
        if (bench->operation == PEER_BARRIER) return true;
        sizes = *end == ',' ? end + 1 : end;
    }
    return true;
}

static bool measure_all(struct bench *bench, char *operations, const char *sizes)
{
    char *rest = NULL;
    for (char *name = strtok_r(operations, ",", &rest); name; name = strtok_r(NULL, ",", &rest)) {
        int operation = 0;
        while (operation < PEER_NOPERATIONS && strcmp(names[operation], name) != 0) operation++;
        if (operation == PEER_NOPERATIONS) {
            fprintf(stderr, "bench: unknown operation '%s'\n", name);
            return false;
        }
        bench->operation = (enum peer_operation)operation;
        if (!measure_operation(bench, sizes)) return false;
    }
    return true;
}

int main(int argc, char **argv)
{
    struct bench bench = {0};
    if (!peer_open(&argc, &argv, &bench.rank, &bench.nranks)) return 1;
    if (argc != 3) {
        fprintf(stderr, "usage: bench OPERATIONS BYTES, both comma-separated\n");
        peer_close();
        return 2;
    }
    const bool fine = measure_all(&bench, argv[1], argv[2]);
    peer_close();
    return fine ? 0 : 1;
}
