/* Memory of the host, and what reads and writes tensors outside a step. */
#include "host.h"

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "../param.h"
#include "pool.h"

void tr_host_wait(void)
{
    /* Operations have run when they return. */
}

void *tr_host_take(size_t nbytes, bool shared)
{
    void *memory = NULL;
    if (shared) {
        if (tuttiMemAlloc(&memory, nbytes) != tuttiSuccess) return NULL;
    } else {
        memory = aligned_alloc(TR_MEMORY_UNIT, nbytes);
        if (!memory) return NULL;
        madvise(memory, nbytes, MADV_HUGEPAGE); /* only a hint: failing changes nothing */
    }
    return memset(memory, 0, nbytes);
}

void tr_host_give(void *memory, bool shared)
{
    if (shared && memory)
        tuttiMemFree(memory);
    else
        free(memory);
}

void tr_host_copy(void *to, const void *from, size_t nbytes)
{
    memcpy(to, from, nbytes);
}

struct clear {
    char *bytes;
    size_t nbytes;
};

enum { CLEAR_BYTES = 1 << 20 };

static void clear_piece(const void *arg, long index)
{
    const struct clear *c = arg;
    const struct tr_range part = tr_range_at((long)c->nbytes, CLEAR_BYTES, index);
    memset(c->bytes + part.first, 0, (size_t)part.n);
}

void tr_host_clear(void *tensor, size_t nbytes)
{
    const struct clear clear = {tensor, nbytes};
    tr_pool_run(clear_piece, &clear, tr_ranges((long)nbytes, CLEAR_BYTES));
}

/* Several sums at a time, as the processor need not wait for one to begin the next. */
enum { CHECKSUM_LANES = 8, CHECKSUM_BYTES = 1 << 16 };

struct checksum {
    const char *bytes;
    size_t nbytes;
    _Atomic uint64_t *sum; /* of the pieces' sums, in any order */
};

static void checksum_piece(const void *arg, long index)
{
    const struct checksum *c = arg;
    const struct tr_range part = tr_range_at((long)c->nbytes, CHECKSUM_BYTES, index);
    const char *at = c->bytes + part.first;
    size_t left = (size_t)part.n;
    uint64_t lanes[CHECKSUM_LANES + 1];
    for (uint64_t l = 0; l <= CHECKSUM_LANES; ++l)
        lanes[l] = ((uint64_t)index + 1) * 0x9E3779B97F4A7C15u + l;
    for (; left >= CHECKSUM_LANES * sizeof *lanes; left -= CHECKSUM_LANES * sizeof *lanes)
        for (int l = 0; l < CHECKSUM_LANES; ++l, at += sizeof *lanes) {
            uint64_t word;
            memcpy(&word, at, sizeof word);
            lanes[l] = (lanes[l] ^ word) * 0xD6E8FEB86659FD93u;
            lanes[l] ^= lanes[l] >> 32;
        }
    lanes[CHECKSUM_LANES] ^= tr_checksum(at, left);
    atomic_fetch_add_explicit(c->sum, tr_checksum(lanes, sizeof lanes), memory_order_relaxed);
}

uint64_t tr_host_checksum(const void *tensor, size_t nbytes)
{
    _Atomic uint64_t sum = nbytes;
    const struct checksum call = {tensor, nbytes, &sum};
    tr_pool_run(checksum_piece, &call, tr_ranges((long)nbytes, CHECKSUM_BYTES));
    return sum;
}

enum { FINITE_BLOCK = 1024, FINITE_FLOATS = 1 << 18 };

/* Without an early end, so that the compiler makes vectors of it. */
static bool is_finite_block(const float x[FINITE_BLOCK])
{
    const uint32_t exponent = 0x7F800000;
    uint32_t found = 0;
    for (size_t i = 0; i < FINITE_BLOCK; ++i) {
        uint32_t bits;
        memcpy(&bits, &x[i], sizeof bits);
        found |= (bits & exponent) == exponent;
    }
    return !found;
}

struct look {
    const float *x;
    long n;
    atomic_long *first; /* the least of the pieces' places */
};

static void look_piece(const void *arg, long index)
{
    const struct look *c = arg;
    const struct tr_range part = tr_range_at(c->n, FINITE_FLOATS, index);
    const long end = part.first + part.n;
    long i = part.first;
    while (end - i >= FINITE_BLOCK && is_finite_block(c->x + i)) i += FINITE_BLOCK;
    while (i < end && isfinite(c->x[i])) ++i;
    if (i == end) return;
    long first = atomic_load_explicit(c->first, memory_order_relaxed);
    while (i < first && !atomic_compare_exchange_weak_explicit(
                            c->first, &first, i, memory_order_relaxed, memory_order_relaxed))
        continue;
}

size_t tr_host_find_not_finite(const float *x, size_t n)
{
    atomic_long first = (long)n;
    const struct look call = {x, (long)n, &first};
    tr_pool_run(look_piece, &call, tr_ranges((long)n, FINITE_FLOATS));
    return (size_t)first;
}
