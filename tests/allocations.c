/* Counts allocations, and refuses some: the functions of the C library are replaced by these, which
 * call it. */
#include "allocations.h"

#include <errno.h>
#include <stdatomic.h>
#include <stddef.h>

void *__libc_malloc(size_t nbytes);
void *__libc_calloc(size_t n, size_t nbytes);
void *__libc_realloc(void *memory, size_t nbytes);
void *__libc_memalign(size_t alignment, size_t nbytes);

static _Atomic uint64_t number;
static _Thread_local uint64_t before_refusal; /* with the refused one; 0: none will be refused */

uint64_t allocations(void)
{
    return atomic_load(&number);
}

void refuse_allocation(uint64_t n)
{
    before_refusal = n;
}

bool allocation_is_to_come(void)
{
    return before_refusal;
}

extern const char __executable_start, etext; /* of the linker: the program's code */

/* False: the allocation is refused. caller: the return address. */
static bool count(const void *caller)
{
    const bool is_own =
        (const char *)caller >= &__executable_start && (const char *)caller < &etext;
    atomic_fetch_add_explicit(&number, 1, memory_order_relaxed);
    if (!before_refusal || !is_own || --before_refusal) return true;
    errno = ENOMEM;
    return false;
}

#pragma GCC diagnostic ignored "-Wmissing-prototypes"
__attribute__((visibility("default"))) void *malloc(size_t nbytes)
{
    return count(__builtin_return_address(0)) ? __libc_malloc(nbytes) : NULL;
}

__attribute__((visibility("default"))) void *calloc(size_t n, size_t nbytes)
{
    return count(__builtin_return_address(0)) ? __libc_calloc(n, nbytes) : NULL;
}

__attribute__((visibility("default"))) void *realloc(void *memory, size_t nbytes)
{
    return count(__builtin_return_address(0)) ? __libc_realloc(memory, nbytes) : NULL;
}

__attribute__((visibility("default"))) void *aligned_alloc(size_t alignment, size_t nbytes)
{
    return count(__builtin_return_address(0)) ? __libc_memalign(alignment, nbytes) : NULL;
}

__attribute__((visibility("default"))) int posix_memalign(void **memory, size_t alignment,
                                                          size_t nbytes)
{
    *memory = count(__builtin_return_address(0)) ? __libc_memalign(alignment, nbytes) : NULL;
    return *memory ? 0 : ENOMEM;
}
