/* Template: copies on x86. reduce_avx2.c and reduce_avx512.c include it once, having defined
 * stream_line(to, from), which copies a cache line of CACHE_LINE bytes past the caches to an
 * aligned address, and copy_lines(to, from), which copies LINES_AT_ONCE of them: all are read, then
 * all are written. */
enum { LINES_AT_ONCE = 4, AHEAD_BYTES = 1024 };

/* Of nbytes, those before the first cache line of dst. */
static inline size_t head_of(const void *dst, size_t nbytes)
{
    const size_t before = -(uintptr_t)dst % CACHE_LINE;
    return before < nbytes ? before : nbytes;
}

/* A plain loop: memory that another core has written is read in order, some cache lines at once.
 * The memcpy of glibc 2.36 takes up to 1.5 times as long for 1 to 8 KiB of it, and 1.1 times as
 * long for more (2 cores of an AMD EPYC; docs/performance.md). */
static void copy(void *dst, const void *src, size_t nbytes)
{
    char *to = dst;
    const char *from = src;
    size_t i = head_of(dst, nbytes);
    if (i != 0) memcpy(to, from, i);
    for (; i + LINES_AT_ONCE * CACHE_LINE <= nbytes; i += LINES_AT_ONCE * CACHE_LINE)
        copy_lines(to + i, from + i);
    if (i < nbytes) memcpy(to + i, from + i, nbytes - i);
}

static void stream(void *dst, const void *src, size_t nbytes)
{
    char *to = dst;
    const char *from = src;
    size_t i = head_of(dst, nbytes);
    if (i != 0) memcpy(to, from, i);
    /* The hardware fetches this core's memory as well, but not what another core has written. */
    for (; i + CACHE_LINE <= nbytes; i += CACHE_LINE) {
        __builtin_prefetch(from + i + AHEAD_BYTES);
        stream_line(to + i, from + i);
    }
    if (i < nbytes) memcpy(to + i, from + i, nbytes - i);
}

static void fence(void)
{
    _mm_sfence();
}
