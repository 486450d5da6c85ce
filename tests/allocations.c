/* Counts allocations: the functions of the C library are replaced by these, which call it. */
#include "allocations.h"

#include <errno.h>
#include <stdatomic.h>
#include <stddef.h>

void *__libc_malloc(size_t nbytes);
void *__libc_calloc(size_t n, size_t nbytes);
void *__libc_realloc(void *memory, size_t nbytes);
void *__libc_memalign(size_t alignment, size_t nbytes);

static _Atomic uint64_t number;

uint64_t allocations(void)
{
    return atomic_load(&number);
}

static void count(void)
{
    atomic_fetch_add_explicit(&number, 1, memory_order_relaxed);
}

#pragma GCC diagnostic ignored "-Wmissing-prototypes"
__attribute__((visibility("default"))) void *malloc(size_t nbytes)
{
    count();
    return __libc_malloc(nbytes);
}

__attribute__((visibility("default"))) void *calloc(size_t n, size_t nbytes)
{
    count();
    return __libc_calloc(n, nbytes);
}

__attribute__((visibility("default"))) void *realloc(void *memory, size_t nbytes)
{
    count();
    return __libc_realloc(memory, nbytes);
}

__attribute__((visibility("default"))) void *aligned_alloc(size_t alignment, size_t nbytes)
{
    count();
    return __libc_memalign(alignment, nbytes);
}

__attribute__((visibility("default"))) int posix_memalign(void **memory, size_t alignment,
                                                          size_t nbytes)
{
    count();
    *memory = __libc_memalign(alignment, nbytes);
    return *memory ? 0 : ENOMEM;
}
