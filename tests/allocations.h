/* How often the program took memory of the heap: a test that is linked with allocations.c counts
 * the calls of all threads. Not under sanitizers, which have allocators of their own. */
#ifndef TT_TESTS_ALLOCATIONS_H
#define TT_TESTS_ALLOCATIONS_H

#include <stdint.h>

/* So far: malloc, calloc, realloc, aligned_alloc and posix_memalign. */
uint64_t allocations(void);

#endif
