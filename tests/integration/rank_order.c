/* Reductions compared bit for bit with a loop over the ranks. */
#include "rank_order.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_SAID = 5 };

/* All calls of one type in one kind of memory. */
struct bench {
    tuttiComm_t comm;
    int rank, nranks;
    tuttiDataType_t type;
    bool allocated; /* by tuttiMemAlloc */
    size_t element, most;
    char *values;   /* [most] of this rank */
    char *expected; /* [most] their reduction */
    char *in, *out; /* [most] */
    int nwrong;
    bool failed; /* a call has: there is no use in further ones */
};

/* ---- Values and the loop over the ranks ------------------------------------------------------ */

/* A value whose sums round: 24 random bits and a random exponent. */
static double value_of(int rank, size_t i)
{
    uint64_t x = (uint64_t)i * 64 + (uint64_t)rank + 1;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    x ^= x >> 31;
    const double mantissa = (double)(int32_t)(x >> 40) - (1 << 23);
    return mantissa * (double)(1 << (x & 15)) / (1 << 20);
}

static uint16_t to_bf16(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static float from_bf16(uint16_t half)
{
    const uint32_t bits = (uint32_t)half << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static void store(tuttiDataType_t type, char *at, double value)
{
    const float single = (float)value;
    const uint16_t half = to_bf16(single);
    if (type == tuttiFloat64)
        memcpy(at, &value, sizeof value);
    else if (type == tuttiFloat32)
        memcpy(at, &single, sizeof single);
    else
        memcpy(at, &half, sizeof half);
}

/* The value as the type holds it. */
static double held(tuttiDataType_t type, double value)
{
    if (type == tuttiFloat64) return value;
    return type == tuttiFloat32 ? (float)value : from_bf16(to_bf16((float)value));
}

/* scale: of a pre-multiplied sum; divisor: of an average, in bf16 by its reciprocal. Each product
 * and each quotient is rounded to the type. */
static double loop_over_ranks(const struct bench *bench, size_t i, double scale, int divisor)
{
    const tuttiDataType_t type = bench->type;
    double wide = 0;
    float single = 0;
    for (int r = 0; r < bench->nranks; r++) {
        double next = held(type, value_of(r, i));
        if (scale != 1)
            next = held(type, type == tuttiFloat64 ? next * scale : (float)next * (float)scale);
        if (divisor != 1)
            next = held(type, type == tuttiFloat64   ? next / divisor
                              : type == tuttiFloat32 ? (float)next / (float)divisor
                                                     : (float)next * (1 / (float)divisor));
        wide = r == 0 ? next : wide + next;
        single = r == 0 ? (float)next : single + (float)next;
    }
    return type == tuttiFloat64 ? wide : single;
}

static void fill(struct bench *bench, double scale, int divisor)
{
    for (size_t i = 0; i < bench->most; i++) {
        store(bench->type, bench->values + i * bench->element, value_of(bench->rank, i));
        store(bench->type, bench->expected + i * bench->element,
              loop_over_ranks(bench, i, scale, divisor));
    }
}

/* ---- Calls ----------------------------------------------------------------------------------- */

/* `count` elements of `got` must be those of the reduction from `first` on. */
static void compare(struct bench *bench, const char *what, tuttiResult_t result, const char *got,
                    size_t first, size_t count)
{
    const size_t size = bench->element;
    const char *expected = bench->expected + first * size;
    if (result == tuttiSuccess && !memcmp(got, expected, count * size)) return;
    size_t i = 0;
    while (i < count && !memcmp(got + i * size, expected + i * size, size)) i++;
    bench->failed |= result != tuttiSuccess;
    if (bench->nwrong++ < MOST_SAID)
        fprintf(stderr,
                "rank %d of %d: %s of %zu elements of type %d from %zu on, %s memory: %s; element "
                "%zu is not that of the loop\n",
                bench->rank, bench->nranks, what, count, (int)bench->type, first,
                bench->allocated ? "allocated" : "private",
                result ? tuttiGetLastError(bench->comm) : "wrong bits", i);
}

static void all_reduce(struct bench *bench, size_t first, size_t count, tuttiRedOp_t op)
{
    const size_t skip = first * bench->element, nbytes = count * bench->element;
    memcpy(bench->in + skip, bench->values + skip, nbytes);
    memset(bench->out + skip, 1, nbytes);
    tuttiResult_t result = tuttiAllReduce(bench->in + skip, bench->out + skip, count, bench->type,
                                          op, bench->comm, NULL);
    compare(bench, "all_reduce", result, bench->out + skip, first, count);
    result = tuttiAllReduce(bench->in + skip, bench->in + skip, count, bench->type, op, bench->comm,
                            NULL);
    compare(bench, "all_reduce in place", result, bench->in + skip, first, count);
}

static void reduce(struct bench *bench, size_t first, size_t count, tuttiRedOp_t op)
{
    const size_t skip = first * bench->element, nbytes = count * bench->element;
    for (int in_place = 0; in_place < 2; in_place++) {
        const int root = in_place ? bench->nranks - 1 : bench->nranks / 2;
        char *out = in_place ? bench->in : bench->out;
        memcpy(bench->in + skip, bench->values + skip, nbytes);
        const tuttiResult_t result = tuttiReduce(bench->in + skip, out + skip, count, bench->type,
                                                 op, root, bench->comm, NULL);
        if (bench->rank == root || result)
            compare(bench, "reduce", result, out + skip, first, count);
    }
}

/* A reduce-scatter, also followed by an all-gather, which must give what all_reduce gives. */
static void reduce_scatter(struct bench *bench, size_t first, size_t count, tuttiRedOp_t op)
{
    const size_t each = count / (size_t)bench->nranks, own = each * (size_t)bench->rank;
    const size_t skip = first * bench->element, block = own * bench->element;
    memcpy(bench->in + skip, bench->values + skip, count * bench->element);
    tuttiResult_t result = tuttiReduceScatter(bench->in + skip, bench->out + skip + block, each,
                                              bench->type, op, bench->comm, NULL);
    compare(bench, "reduce_scatter", result, bench->out + skip + block, first + own, each);
    result = tuttiAllGather(bench->out + skip + block, bench->out + skip, each, bench->type,
                            bench->comm, NULL);
    compare(bench, "reduce_scatter, all_gather", result, bench->out + skip, first,
            each * (size_t)bench->nranks);
    result = tuttiReduceScatter(bench->in + skip, bench->in + skip + block, each, bench->type, op,
                                bench->comm, NULL);
    compare(bench, "reduce_scatter in place", result, bench->in + skip + block, first + own, each);
}

/* Rank 0 gets nothing, the others more and more. */
static void reduce_scatter_v(struct bench *bench, size_t first, size_t count, tuttiRedOp_t op)
{
    enum { MOST_RANKS = 64 };
    size_t counts[MOST_RANKS], own = 0;
    const size_t n = (size_t)bench->nranks, skip = first * bench->element;
    if (n > MOST_RANKS) return;
    for (size_t r = 0; r < n; r++) counts[r] = 2 * count * r / (n * n);
    for (int r = 0; r < bench->rank; r++) own += counts[r];
    memcpy(bench->in + skip, bench->values + skip, count * bench->element);
    const tuttiResult_t result = tuttiReduceScatterV(bench->in + skip, bench->out, counts,
                                                     bench->type, op, bench->comm, NULL);
    compare(bench, "reduce_scatter_v", result, bench->out, first + own, counts[bench->rank]);
}

static void run_sizes(struct bench *bench, tuttiRedOp_t op)
{
    const size_t counts[] = {1, 2, 7, 64, 999, 4096, 30001, bench->most / 3, bench->most - 13};
    const size_t offsets[] = {0, 1, 13};
    for (size_t c = 0; c < sizeof counts / sizeof *counts; c++)
        for (size_t k = 0; k < 3 && !bench->failed; k++) {
            const size_t count = counts[c], first = offsets[k];
            if (count + first > bench->most || (k == 1 && count > 999)) continue;
            all_reduce(bench, first, count, op);
            reduce(bench, first, count, op);
            reduce_scatter(bench, first, count, op);
            reduce_scatter_v(bench, first, count, op);
        }
}

/* Sums, averages and pre-multiplied sums. */
static void run_ops(struct bench *bench)
{
    static const double scale = 0.7109375; /* exact in bf16 */
    char scalar[8];
    tuttiRedOp_t op;
    fill(bench, 1, 1);
    run_sizes(bench, tuttiSum);
    bench->most = bench->most < 5000 ? bench->most : 5000;
    fill(bench, 1, bench->nranks);
    run_sizes(bench, tuttiAvg);
    store(bench->type, scalar, scale);
    fill(bench, scale, 1);
    if (tuttiRedOpCreatePreMulSum(&op, scalar, bench->type, tuttiScalarHostImmediate,
                                  bench->comm) != tuttiSuccess) {
        bench->nwrong++;
        return;
    }
    run_sizes(bench, op);
    if (tuttiRedOpDestroy(op, bench->comm) != tuttiSuccess) bench->nwrong++;
}

static int run(tuttiComm_t comm, tuttiDataType_t type, bool allocated, size_t most)
{
    struct bench bench = {.comm = comm,
                          .type = type,
                          .allocated = allocated,
                          .most = most,
                          .element = type == tuttiFloat64   ? 8
                                     : type == tuttiFloat32 ? 4
                                                            : 2};
    const size_t nbytes = most * bench.element;
    char *memory = malloc(4 * nbytes);
    void *shared = NULL;
    if (!memory || tuttiCommUserRank(comm, &bench.rank) || tuttiCommCount(comm, &bench.nranks) ||
        (allocated && tuttiMemAlloc(&shared, 2 * nbytes))) {
        free(memory);
        return 1;
    }
    bench.values = memory;
    bench.expected = memory + nbytes;
    bench.in = allocated ? shared : memory + 2 * nbytes;
    bench.out = bench.in + nbytes;
    run_ops(&bench);
    free(memory);
    return bench.nwrong + (tuttiMemFree(shared) != tuttiSuccess);
}

int rank_order_calls(tuttiComm_t comm, size_t most)
{
    static const tuttiDataType_t types[] = {tuttiFloat32, tuttiFloat64, tuttiBfloat16};
    int nwrong = 0;
    for (int i = 0; i < 3; i++)
        for (int allocated = 0; allocated < 2; allocated++)
            nwrong += run(comm, types[i], allocated, most);
    return nwrong;
}
