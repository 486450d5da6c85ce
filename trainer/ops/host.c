/* Memory of the host, and what reads and writes tensors outside a step. */
#include "host.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "../param.h"
#include "../random.h"
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

struct initialize {
    float *x;
    size_t n;
    const struct tr_first_values *values;
    uint64_t first;
};

static void initialize_piece(const void *arg, long index)
{
    const struct initialize *c = arg;
    const struct tr_first_values *v = c->values;
    const struct tr_range part = tr_range_at((long)c->n, TR_PIECE_FLOATS, index);
    for (long i = part.first; i < part.first + part.n; ++i) {
        const double noise = v->deviation != 0 ? tr_random_normal(v->seed, TR_RANDOM_WEIGHTS,
                                                                  v->stream, c->first + (uint64_t)i)
                                               : 0;
        c->x[i] = (float)(v->mean + v->deviation * noise);
    }
}

void tr_host_initialize(float *x, size_t n, const struct tr_first_values *values, uint64_t first)
{
    const struct initialize call = {x, n, values, first};
    tr_pool_run(initialize_piece, &call, tr_ranges((long)n, TR_PIECE_FLOATS));
}

uint64_t tr_host_checksum(const void *tensor, size_t nbytes)
{
    return tr_checksum(tensor, nbytes);
}

enum { FINITE_BLOCK = 1024 };

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

size_t tr_host_find_not_finite(const float *x, size_t n)
{
    size_t i = 0;
    while (n - i >= FINITE_BLOCK && is_finite_block(x + i)) i += FINITE_BLOCK;
    while (i < n && isfinite(x[i])) ++i;
    return i;
}
