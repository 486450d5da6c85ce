/* Memory of the host, and what reads and writes tensors outside a step. */
#include "host.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "../param.h"
#include "../random.h"

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

void tr_host_clear(void *tensor, size_t nbytes)
{
    memset(tensor, 0, nbytes);
}

void tr_host_initialize(float *x, size_t n, const struct tr_first_values *values, uint64_t first)
{
    for (size_t i = 0; i < n; ++i) {
        const double noise =
            values->deviation != 0
                ? tr_random_normal(values->seed, TR_RANDOM_WEIGHTS, values->stream, first + i)
                : 0;
        x[i] = (float)(values->mean + values->deviation * noise);
    }
}

uint64_t tr_host_checksum(const void *tensor, size_t nbytes)
{
    return tr_checksum(tensor, nbytes);
}

size_t tr_host_find_not_finite(const float *x, size_t n)
{
    size_t i = 0;
    while (i < n && isfinite(x[i])) ++i;
    return i;
}
