/* Hints to the cache. */
#ifndef TT_BASE_PREFETCH_H
#define TT_BASE_PREFETCH_H

/* Fetches the cache line of data, which is going to be written: other cores lose their copies. */
static inline void tt_prefetch_for_writing(const void *data)
{
#if defined(__x86_64__)
    __asm__ volatile("prefetchw %0" : : "m"(*(const char *)data));
#else
    __builtin_prefetch(data, 1);
#endif
}

#endif
