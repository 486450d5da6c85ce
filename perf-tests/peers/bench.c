/* Times one library's collectives, the same way for every library (see peer.h).
 *
 *   bench OPERATION[,OPERATION]... BYTES[,BYTES]... [quiet | loaded [WORK_US]]
 *
 * prints "operation ranks bytes best_us median_us call_best_us call_p50_us call_p90_us
 * call_mean_us" a line, and no line for an operation that the library lacks.
 *
 * best and median are of REPETITIONS repetitions of as many calls as take about REPETITION_US; a
 * repetition's time is that of its slowest rank, divided by the calls. A repetition hides what
 * happens to single calls, so the last four are of calls that are timed one by one, in a pass of
 * its own, which takes the clock's time into each call: a call's time is that of its slowest rank.
 * On a loaded machine that pass is longer and there are no repetitions ("-" in their place); before
 * each call every rank computes for WORK_US, which is in no time.
 *
 * Of a ping-pong half the time counts: one way. Bytes are of the whole vector: a rank's block is
 * bytes / ranks, at least one float, where there are blocks. Each call takes the next place in
 * REGION_BYTES of memory, so that neither input nor output lies warm in a cache. */
#include "peer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/timing.h"

enum {
    REPETITIONS = 11,
    REPETITION_US = 6000,
    STREAM_US = 100000, /* longer than what kernels buffer and than a window takes to open */
    MOST_CALLS = 4000,
    REGION_BYTES = 64 << 20,
    CALLS_QUIET_US = 50000,   /* of the pass that times each call */
    CALLS_LOADED_US = 500000, /* many time slices of other programs */
    FIRST_CALLS = 8,
    MOST_CALL_TIMES = 1 << 20,
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
    bool loaded;
    int work_us;
    double *call_times; /* MOST_CALL_TIMES */
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

/* The next call. False when the library fails. */
static bool call(struct bench *bench)
{
    const size_t at = bench->next * bench->stride;
    bench->next = bench->next + 1 < bench->nplaces ? bench->next + 1 : 0;
    return peer_run(bench->operation, bench->input + at, bench->output + at, bench->count);
}

static int ways_of(const struct bench *bench)
{
    return bench->operation == PEER_PING_PONG ? 2 : 1;
}

/* All ranks begin at once. False when the library fails. */
static bool meet(void)
{
    double nothing = 0;
    return peer_max(&nothing, 1);
}

/* Microseconds of a call on the slowest rank, of ncalls calls; negative when one failed. */
static double repeat(struct bench *bench, int ncalls)
{
    bool fine = meet();
    const double start = now_us();
    for (int i = 0; fine && i < ncalls; i++) fine = call(bench);
    double slowest = (now_us() - start) / (ncalls * ways_of(bench));
    return fine && peer_max(&slowest, 1) ? slowest : -1;
}

/* The best and the median of the repetitions. */
static bool measure_repetitions(struct bench *bench, double *best, double *median)
{
    double times[REPETITIONS];
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
    *best = times[0];
    *median = times[REPETITIONS / 2];
    return true;
}

/* This rank's times of ncalls calls. Returns the microseconds that all of them, with the work
 * between them, took the slowest rank; negative when one failed. */
static double time_each_call(struct bench *bench, double *times, size_t ncalls)
{
    bool fine = meet();
    const double start = now_us();
    for (size_t i = 0; fine && i < ncalls; i++) {
        if (bench->work_us > 0) perf_work(bench->work_us);
        const double before = now_us();
        fine = call(bench);
        times[i] = (now_us() - before) / ways_of(bench);
    }
    double slowest = now_us() - start;
    return fine && peer_max(&slowest, 1) ? slowest : -1;
}

/* Times single calls for a while: how many fit is only known while they run, so they run in parts,
 * each at most as long as all before it. The ranks agree because the slowest decides. */
static bool measure_calls(struct bench *bench, struct perf_statistics *statistics)
{
    const double wanted_us = bench->loaded ? CALLS_LOADED_US : CALLS_QUIET_US;
    double spent_us = 0;
    size_t ncalls = 0, more = FIRST_CALLS;
    while (more > 0) {
        const double part_us = time_each_call(bench, bench->call_times + ncalls, more);
        if (part_us < 0) return false;
        ncalls += more;
        spent_us += part_us;
        const double rest = (wanted_us - spent_us) / spent_us * (double)ncalls;
        more = rest < 1 ? 0 : rest < (double)ncalls ? (size_t)rest : ncalls;
        if (more > MOST_CALL_TIMES - ncalls) more = MOST_CALL_TIMES - ncalls;
    }
    if (!peer_max(bench->call_times, ncalls)) return false;
    *statistics = perf_statistics_of(bench->call_times, (int)ncalls);
    return true;
}

static bool measure(struct bench *bench, size_t nbytes)
{
    double best = 0, median = 0;
    struct perf_statistics calls;
    if (repeat(bench, 4) < 0) return false; /* peers map each other's memory in the first calls */
    if (!bench->loaded && !measure_repetitions(bench, &best, &median)) return false;
    if (!measure_calls(bench, &calls)) return false;
    if (bench->rank != 0) return true;
    printf("%s %d %zu ", names[bench->operation], bench->nranks, nbytes);
    if (bench->loaded)
        printf("- -");
    else
        printf("%.3f %.3f", best, median);
    printf(" %.3f %.3f %.3f %.3f\n", calls.min, calls.p50, calls.p90, calls.mean);
    fflush(stdout);
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
        if (peer_has(bench->operation) && !measure_operation(bench, sizes)) return false;
    }
    return true;
}

/* Reads the arguments after the sizes. */
static bool read_load(struct bench *bench, int argc, char **argv)
{
    if (argc < 3 || argc > 5) return false;
    if (argc == 3 || (argc == 4 && strcmp(argv[3], "quiet") == 0)) return true;
    bench->loaded = strcmp(argv[3], "loaded") == 0;
    char *end = "";
    if (argc == 5) bench->work_us = (int)strtol(argv[4], &end, 10);
    return bench->loaded && *end == '\0' && bench->work_us >= 0;
}

int main(int argc, char **argv)
{
    struct bench bench = {0};
    if (!peer_open(&argc, &argv, &bench.rank, &bench.nranks)) return 1;
    if (!read_load(&bench, argc, argv)) {
        fprintf(stderr, "usage: bench OPERATIONS BYTES [quiet | loaded [WORK_US]], "
                        "the first two comma-separated\n");
        peer_close();
        return 2;
    }
    bench.call_times = malloc(MOST_CALL_TIMES * sizeof *bench.call_times);
    const bool fine = bench.call_times && measure_all(&bench, argv[1], argv[2]);
    free(bench.call_times);
    peer_close();
    return fine ? 0 : 1;
}
