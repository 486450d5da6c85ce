/* Averages of floats near the ends of their types. */
#include "averages.h"

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_SAID = 5, MOST_RANKS = 64, BYTES_A_RANK = 9000 };

/* ---- Types ----------------------------------------------------------------------------------- */

struct format {
    tuttiDataType_t type;
    int size, exponent_bits, mantissa_bits;
    uint64_t largest; /* the bits of the largest finite number */
    uint64_t beyond;  /* of what stands for no finite number: infinity, or, without one, NaN */
};

static const struct format formats[] = {
    {tuttiFloat64, 8, 11, 52, 0x7fefffffffffffff, 0x7ff0000000000000},
    {tuttiFloat32, 4, 8, 23, 0x7f7fffff, 0x7f800000},
    {tuttiFloat16, 2, 5, 10, 0x7bff, 0x7c00},
    {tuttiBfloat16, 2, 8, 7, 0x7f7f, 0x7f80},
    {tuttiFloat8e4m3, 1, 4, 3, 0x7e, 0x7f},
    {tuttiFloat8e5m2, 1, 5, 2, 0x7b, 0x7c},
};
enum { NFORMATS = sizeof formats / sizeof *formats };

/* As a long double, which holds the sum of many of the largest doubles. */
static long double value_of(const struct format *format, uint64_t bits)
{
    const int bias = (1 << (format->exponent_bits - 1)) - 1;
    const uint64_t sign = bits >> (format->exponent_bits + format->mantissa_bits);
    const uint64_t magnitude = bits & ~(sign << (format->exponent_bits + format->mantissa_bits));
    if (magnitude == format->beyond && format->type != tuttiFloat8e4m3)
        return sign ? -INFINITY : INFINITY;
    if (magnitude > format->largest) return NAN;
    const int exponent = (int)(magnitude >> format->mantissa_bits);
    uint64_t mantissa = magnitude & (((uint64_t)1 << format->mantissa_bits) - 1);
    if (exponent) mantissa |= (uint64_t)1 << format->mantissa_bits;
    const long double value =
        ldexpl((long double)mantissa, (exponent ? exponent : 1) - bias - format->mantissa_bits);
    return sign ? -value : value;
}

static uint64_t get(const struct format *format, const char *from, size_t i)
{
    uint64_t bits = 0;
    memcpy(&bits, from + i * (size_t)format->size, (size_t)format->size); /* little endian */
    return bits;
}

static void put(const struct format *format, char *to, size_t i, uint64_t bits)
{
    memcpy(to + i * (size_t)format->size, &bits, (size_t)format->size);
}

/* ---- Values ---------------------------------------------------------------------------------- */

static uint64_t hash(int rank, size_t i)
{
    uint64_t x = ((uint64_t)i * 64 + (uint64_t)rank + 1) * 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

/* Element i of rank's input: of three elements the first is the largest number on all ranks, the
 * second is large, the third is large but on one rank, or, every sixth time, on all. */
static uint64_t bits_of(const struct format *format, int nranks, int rank, size_t i)
{
    const uint64_t sign = (uint64_t)1 << (format->exponent_bits + format->mantissa_bits);
    const uint64_t h = hash(rank, i);
    if (i % 3 == 0) return format->largest | (i % 2 ? sign : 0);
    if (i % 6 == 2 && nranks > 1 && rank == (int)(i % (size_t)nranks)) return format->beyond;
    /* The last binary orders of magnitude. */
    const uint64_t below = (h >> 8) % ((uint64_t)2 << format->mantissa_bits);
    return (format->largest - below) | (h & 1 ? sign : 0);
}

/* ---- Calls ----------------------------------------------------------------------------------- */

struct bench {
    tuttiComm_t comm;
    int rank, nranks, host_of[MOST_RANKS];
    const struct format *format;
    const char *algorithm;
    size_t nbytes;         /* of the longest calls */
    long double *averages; /* of all elements */
    char *in, *out;
    int nwrong;
    bool failed; /* a call has: there is no use in further ones */
};

static void average_all(struct bench *bench)
{
    const struct format *format = bench->format;
    for (size_t i = 0; i < bench->nbytes / (size_t)format->size; i++) {
        bench->averages[i] = 0;
        for (int r = 0; r < bench->nranks; r++)
            bench->averages[i] +=
                value_of(format, bits_of(format, bench->nranks, r, i)) / bench->nranks;
    }
}

static bool is_right(const struct bench *bench, size_t i, uint64_t bits)
{
    const long double got = value_of(bench->format, bits), average = bench->averages[i];
    if (isnan(average)) return isnan(got);
    if (isinf(average)) return got == average;
    /* Each value and each partial sum is rounded, to half a step of the largest number at most. */
    const long double largest = value_of(bench->format, bench->format->largest);
    const long double step = ldexpl(largest, -bench->format->mantissa_bits);
    return isfinite(got) && fabsl(got - average) <= (bench->nranks + 1) * step;
}

/* `count` elements of `got` must be averages of those from `first` on. */
static void compare(struct bench *bench, const char *what, tuttiResult_t result, const char *got,
                    size_t first, size_t count)
{
    size_t i = 0;
    while (!result && i < count && is_right(bench, first + i, get(bench->format, got, i))) i++;
    if (!result && i == count) return;
    bench->failed |= result != tuttiSuccess;
    if (bench->nwrong++ >= MOST_SAID) return;
    fprintf(stderr,
            "rank %d of %d: %s (%s) of %zu elements of type %d: %s; element %zu is %Lg, expected "
            "%Lg\n",
            bench->rank, bench->nranks, what, bench->algorithm ? bench->algorithm : "chosen", count,
            (int)bench->format->type, result ? tuttiGetLastError(bench->comm) : "wrong", first + i,
            i < count ? value_of(bench->format, get(bench->format, got, i)) : 0,
            i < count ? bench->averages[first + i] : 0);
}

static void fill(struct bench *bench, size_t count)
{
    for (size_t i = 0; i < count; i++)
        put(bench->format, bench->in, i, bits_of(bench->format, bench->nranks, bench->rank, i));
}

static void all_reduce(struct bench *bench, size_t count, bool in_place)
{
    char *out = in_place ? bench->in : bench->out;
    const tuttiResult_t result =
        tuttiAllReduce(bench->in, out, count, bench->format->type, tuttiAvg, bench->comm, NULL);
    compare(bench, "all_reduce", result, out, 0, count);
}

static void reduce(struct bench *bench, size_t count, bool in_place)
{
    const int root = bench->nranks / 2;
    char *out = in_place ? bench->in : bench->out;
    const tuttiResult_t result =
        tuttiReduce(bench->in, out, count, bench->format->type, tuttiAvg, root, bench->comm, NULL);
    if (bench->rank == root || result) compare(bench, "reduce", result, out, 0, count);
}

static void reduce_scatter(struct bench *bench, size_t count, bool in_place)
{
    const size_t each = count / (size_t)bench->nranks, own = each * (size_t)bench->rank;
    char *out = in_place ? bench->in + own * (size_t)bench->format->size : bench->out;
    const tuttiResult_t result =
        tuttiReduceScatter(bench->in, out, each, bench->format->type, tuttiAvg, bench->comm, NULL);
    compare(bench, "reduce_scatter", result, out, own, each);
}

/* Rank 0 gets nothing, the others more and more. */
static void reduce_scatter_v(struct bench *bench, size_t count, bool in_place)
{
    size_t counts[MOST_RANKS], own = 0;
    const size_t n = (size_t)bench->nranks;
    for (size_t r = 0; r < n; r++) counts[r] = 2 * count * r / (n * n);
    for (int r = 0; r < bench->rank; r++) own += counts[r];
    char *out = in_place ? bench->in + own * (size_t)bench->format->size : bench->out;
    const tuttiResult_t result = tuttiReduceScatterV(bench->in, out, counts, bench->format->type,
                                                     tuttiAvg, bench->comm, NULL);
    compare(bench, "reduce_scatter_v", result, out, own, counts[bench->rank]);
}

static const struct {
    tuttiCollective_t collective;
    void (*run)(struct bench *bench, size_t count, bool in_place);
} calls[] = {{tuttiCollAllReduce, all_reduce},
             {tuttiCollReduce, reduce},
             {tuttiCollReduceScatter, reduce_scatter},
             {tuttiCollReduceScatter, reduce_scatter_v}};
enum { NCALLS = sizeof calls / sizeof *calls };

/* Small enough for a flag, for a slot, and, where there is one, for a message by reference. */
static void run_sizes(struct bench *bench, int call)
{
    const size_t sizes[] = {8, 700, bench->nbytes};
    for (size_t c = 0; c < 3; c++)
        for (int in_place = 0; in_place < 2 && !bench->failed; in_place++) {
            const size_t count = sizes[c] / (size_t)bench->format->size;
            fill(bench, count);
            calls[call].run(bench, count, in_place);
        }
}

static bool is_deterministic(void)
{
    const char *mode = getenv("TUTTI_DETERMINISTIC");
    return mode && !strcmp(mode, "on");
}

/* One of `share` algorithms that the communicator may use, another one for each type, and the one
 * that the library chooses. */
static void run_algorithms(struct bench *bench, int call, int share)
{
    const tuttiCollective_t collective = calls[call].collective;
    const int skew = (int)(bench->format - formats) + call;
    for (int i = 0;; i++) {
        bench->algorithm = tuttiAlgorithmName(collective, i);
        if (bench->algorithm &&
            ((i + skew) % share ||
             !tuttiAlgorithmFits(collective, bench->algorithm, bench->nranks, bench->host_of) ||
             (is_deterministic() && !tuttiAlgorithmIsDeterministic(collective, bench->algorithm))))
            continue;
        const tuttiResult_t set = tuttiCommSetAlgorithm(bench->comm, collective, bench->algorithm);
        bench->nwrong += set != tuttiSuccess;
        run_sizes(bench, call);
        if (!bench->algorithm) return;
    }
}

/* The hosts that TUTTI_HOST_ID makes. */
static bool find_hosts(struct bench *bench)
{
    const char *id = getenv("TUTTI_HOST_ID");
    const int mine = id ? id[strlen(id) - 1] : 0;
    return bench->nranks <= MOST_RANKS &&
           !tuttiAllGather(&mine, bench->host_of, 1, tuttiInt32, bench->comm, NULL);
}

static int run(tuttiComm_t comm, bool allocated, int share)
{
    struct bench bench = {.comm = comm};
    void *memory = NULL;
    if (tuttiCommUserRank(comm, &bench.rank) || tuttiCommCount(comm, &bench.nranks) ||
        !find_hosts(&bench))
        return 1;
    bench.nbytes = (size_t)bench.nranks * BYTES_A_RANK;
    bench.averages = malloc(bench.nbytes * sizeof *bench.averages);
    if (allocated && tuttiMemAlloc(&memory, 2 * bench.nbytes) != tuttiSuccess) return 1;
    if (!allocated) memory = malloc(2 * bench.nbytes);
    if (!bench.averages || !memory) return 1;
    bench.in = memory;
    bench.out = bench.in + bench.nbytes;
    for (int f = 0; f < NFORMATS; f++) {
        bench.format = &formats[f];
        average_all(&bench);
        for (int c = 0; c < NCALLS; c++) run_algorithms(&bench, c, share);
    }
    free(bench.averages);
    if (allocated) return bench.nwrong + (tuttiMemFree(memory) != tuttiSuccess);
    free(memory);
    return bench.nwrong;
}

int average_calls(tuttiComm_t comm, int share)
{
    return run(comm, false, share) + run(comm, true, share);
}
