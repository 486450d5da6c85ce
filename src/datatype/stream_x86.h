/* Template: copies past the caches on x86. reduce_avx2.c and reduce_avx512.c include it once,
 * having defined stream_line(to, from), which copies a cache line of CACHE_LINE bytes to an aligned
 * address. */
static void stream(void *dst, const void *src, size_t nbytes)
{
    char *to = dst;
    const char *from = src;
    const size_t before = -(uintptr_t)to % CACHE_LINE;
    const size_t head = before < nbytes ? before : nbytes;
    if (head != 0) memcpy(to, from, head);
    size_t i = head;
    /* The hardware prefetches as well as prefetch instructions would. */
    for (; i + CACHE_LINE <= nbytes; i += CACHE_LINE) stream_line(to + i, from + i);
    if (i < nbytes) memcpy(to + i, from + i, nbytes - i);
}

static void fence(void)
{
    _mm_sfence();
}
