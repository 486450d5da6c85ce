/* How often the program took memory of the heap: a test that is linked with allocations.c counts
 * the calls of all threads, and can make one fail. Not under sanitizers, which have allocators of
 * their own. */
#ifndef TT_TESTS_ALLOCATIONS_H
#define TT_TESTS_ALLOCATIONS_H

#include <stdbool.h>
#include <stdint.h>

/* So far: malloc, calloc, realloc, aligned_alloc and posix_memalign. */
uint64_t allocations(void);
/* The n-th allocation of this thread from now on fails, as without memory; 0: none does. Those of
 * shared libraries, such as CUDA's driver, do not count. */
void refuse_allocation(uint64_t n);
/* Whether it has not been asked for yet. */
bool allocation_is_to_come(void);

#endif
