/* tt_reduce and tt_copy over the kernels in use. convert.h and fold_native.h define results that
 * are NaN, zero or out of range. A single source without scalar or division is copied bit for bit.
 */
#include <assert.h>
#include <stdatomic.h>
#include <string.h>

#include "base/prefetch.h"
#include "datatype/datatype.h"
#include "datatype/kernels.h"

enum {
    TILE_BYTES = 1024,  /* stored past the caches from the first-level cache: few enough for these
                         * stores to go on while the next tile is made */
    BLOCK_BYTES = 8192, /* copied from the first-level cache */
    AHEAD_BYTES = 512,  /* fetched while as many are computed */
    CACHE_LINE = 64
};

static bool has_raw(const struct tt_sources *sources)
{
    int s = 0;
    while (s < sources->number && !tt_source_is_raw(sources, s)) s++;
    return s < sources->number;
}

/* The operation whose kernel this pass needs. */
static enum tt_op op_of_pass(const struct tt_reduction *reduction, const struct tt_sources *sources,
                             unsigned flags)
{
    const bool single = sources->number == 1;
    switch (reduction->op) {
    case TT_PREMUL_SUM:
        return has_raw(sources) ? TT_PREMUL_SUM : TT_SUM;
    case TT_AVG:
        if (reduction->nranks == 1) return TT_SUM;
        if (tt_type_is_float(reduction->type)) return single && !has_raw(sources) ? TT_SUM : TT_AVG;
        return flags & TT_FINISH ? TT_AVG : TT_SUM;
    default:
        return reduction->op;
    }
}

static bool changes_single(enum tt_op op)
{
    return op == TT_AVG || op == TT_PREMUL_SUM || op == TT_LOGICAL_AND || op == TT_LOGICAL_OR ||
           op == TT_LOGICAL_XOR;
}

/* From the first whole cache line of dst on. */
static void copy_by_rep_movsb(void *dst, const void *src, size_t nbytes)
{
#if defined(__x86_64__)
    const size_t head = -(uintptr_t)dst % CACHE_LINE;
    void *to = (char *)dst + head;
    const void *from = (const char *)src + head;
    size_t left = nbytes - head;
    memcpy(dst, src, head);
    __asm__ volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(left) : : "memory");
#else
    memcpy(dst, src, nbytes);
#endif
}

static void copy(const struct tt_kernels *kernels, void *dst, const void *src, size_t nbytes,
                 bool nontemporal)
{
    if (dst == src || nbytes == 0) return;
    if (!nontemporal) {
        if (nbytes >= REP_MOVSB_MIN_BYTES &&
            atomic_load_explicit(&tt_copies_by_rep_movsb, memory_order_relaxed))
            copy_by_rep_movsb(dst, src, nbytes);
        else
            kernels->copy(dst, src, nbytes);
        return;
    }
    kernels->stream(dst, src, nbytes);
    kernels->fence();
}

/* Writes one block to a target, or, where nothing is to be done, nothing. */
static void put_block(const struct tt_kernels *kernels, const struct tt_target *target, size_t at,
                      const char *block, size_t nbytes)
{
    char *to = (char *)target->data + at;
    if (to == block) return;
    if (target->nontemporal)
        kernels->stream(to, block, nbytes);
    else
        memcpy(to, block, nbytes);
}

/* The target in which blocks are made: one that stays in the cache; NULL: there is none. */
static char *find_cached(const struct tt_target *targets, int ntargets)
{
    for (int i = 0; i < ntargets; i++)
        if (!targets[i].nontemporal) return targets[i].data;
    return NULL;
}

static bool all_cached(const struct tt_target *targets, int ntargets)
{
    int ncached = 0;
    for (int i = 0; i < ntargets; i++) ncached += !targets[i].nontemporal;
    return ncached == ntargets;
}

static void fetch_for_writing(char *data, size_t nbytes)
{
    for (size_t i = 0; i < nbytes; i += CACHE_LINE) tt_prefetch_for_writing(data + i);
}

/* Fetches elements of all sources that are needed next: the hardware does not fetch beyond a page,
 * of which a message of some KiB has few. */
static void fetch_sources(const struct tt_sources *sources, size_t at, size_t nbytes)
{
    for (int i = 0; i < sources->number; i++)
        for (size_t k = 0; k < nbytes; k += CACHE_LINE)
            __builtin_prefetch((const char *)sources->data[i] + at + k);
}

/* Makes the result block by block, each in a place that stays in the first cache, and copies it to
 * the other targets from there. */
static void reduce_blocks(const struct tt_kernels *kernels, tt_fold_fn *fold,
                          const struct tt_reduction *reduction, const struct tt_target *targets,
                          int ntargets, const struct tt_sources *sources, size_t count)
{
    _Alignas(CACHE_LINE) char tile[TILE_BYTES];
    const size_t size = tt_type_size(reduction->type);
    char *cached = find_cached(targets, ntargets);
    const bool whole = all_cached(targets, ntargets);
    const size_t full = (whole ? BLOCK_BYTES : TILE_BYTES) / size;
    /* The first block ends on a cache line of the first target, so that the others are whole
     * cache lines. */
    size_t n = (full * size - (uintptr_t)targets->data % CACHE_LINE) / size;
    for (size_t done = 0; done < count; done += n, n = full) {
        if (n > count - done) n = count - done;
        char *block = cached ? cached + done * size : tile;
        const size_t left = count - done - n;
        if (!whole) fetch_sources(sources, (done + n) * size, (full < left ? full : left) * size);
        fold(block, sources, done, n, reduction);
        for (int i = 0; i < ntargets; i++)
            put_block(kernels, &targets[i], done * size, block, n * size);
    }
    kernels->fence();
}

/* A store to memory that is not in the cache waits for it. The hardware fetches what is read
 * ahead of time, but not what is written as well, so this does. */
static void reduce_to_two(tt_fold_to_two_fn *fold, const struct tt_reduction *reduction,
                          const struct tt_target *targets, const struct tt_sources *sources,
                          size_t count)
{
    const size_t size = tt_type_size(reduction->type), full = AHEAD_BYTES / size;
    char *first = targets[0].data, *second = targets[1].data;
    size_t n = full < count ? full : count;
    for (size_t done = 0; done < count;) {
        const size_t next = done + n, left = count - next;
        const size_t nnext = full < left ? full : left;
        fetch_for_writing(first + next * size, nnext * size);
        fetch_for_writing(second + next * size, nnext * size);
        fetch_sources(sources, next * size, nnext * size);
        fold(first + done * size, second + done * size, sources, done, n, reduction);
        done = next;
        n = nnext;
    }
}

/* Long copies that stay in the caches are quickest whole; the others go block by block. */
static void copy_to(const struct tt_kernels *kernels, const struct tt_target *targets, int ntargets,
                    const void *src, size_t nbytes)
{
    int nstreams = 0, last = 0;
    for (int i = 0; i < ntargets; i++) {
        nstreams += targets[i].nontemporal;
        if (targets[i].nontemporal)
            last = i;
        else
            copy(kernels, targets[i].data, src, nbytes, false);
    }
    if (nstreams == 1) copy(kernels, targets[last].data, src, nbytes, true);
    if (nstreams < 2) return;
    size_t n = BLOCK_BYTES - (uintptr_t)targets[last].data % CACHE_LINE;
    for (size_t done = 0; done < nbytes; done += n, n = BLOCK_BYTES) {
        if (n > nbytes - done) n = nbytes - done;
        for (int i = 0; i < ntargets; i++)
            if (targets[i].nontemporal)
                put_block(kernels, &targets[i], done, (const char *)src + done, n);
    }
    kernels->fence();
}

static inline void reduce_to(const struct tt_kernels *kernels, const struct tt_reduction *reduction,
                             const struct tt_target *targets, int ntargets,
                             const struct tt_sources *sources, size_t count, unsigned flags)
{
    const enum tt_op op = op_of_pass(reduction, sources, flags);
    const int nsrc = sources->number;
    assert(nsrc >= 1 && tt_op_supports(reduction->op, reduction->type));
    assert(reduction->op != TT_AVG || reduction->nranks >= 1);
    tt_fold_fn *fold = kernels->fold[reduction->type][op];
    if (nsrc == 1 && !changes_single(op))
        copy_to(kernels, targets, ntargets, sources->data[0],
                count * tt_type_size(reduction->type));
    else if (ntargets == 1 && !targets->nontemporal)
        fold(targets->data, sources, 0, count, reduction);
    else if (nsrc == 2 && ntargets == 2 && !targets[0].nontemporal && !targets[1].nontemporal)
        reduce_to_two(kernels->fold_to_two[reduction->type][op], reduction, targets, sources,
                      count);
    else
        reduce_blocks(kernels, fold, reduction, targets, ntargets, sources, count);
}

void tt_reduce_to_with(const struct tt_kernels *kernels, const struct tt_reduction *reduction,
                       const struct tt_target *targets, int ntargets,
                       const struct tt_sources *sources, size_t count, unsigned flags)
{
    reduce_to(kernels, reduction, targets, ntargets, sources, count, flags);
}

void tt_reduce_with(const struct tt_kernels *kernels, const struct tt_reduction *reduction,
                    void *dst, const void *const *src, int nsrc, size_t count, unsigned flags)
{
    static const bool raw[] = {true};
    const struct tt_target target = {.data = dst, .nontemporal = flags & TT_NONTEMPORAL};
    const struct tt_sources sources = {src, flags & TT_RAW ? raw : NULL, nsrc};
    assert(nsrc == 1 || !(flags & TT_RAW));
    tt_reduce_to_with(kernels, reduction, &target, 1, &sources, count, flags);
}

void tt_reduce(const struct tt_reduction *reduction, void *dst, const void *const *src, int nsrc,
               size_t count, unsigned flags)
{
    tt_reduce_with(tt_kernels_in_use(), reduction, dst, src, nsrc, count, flags);
}

void tt_reduce_to(const struct tt_reduction *reduction, const struct tt_target *targets,
                  int ntargets, const struct tt_sources *sources, size_t count, unsigned flags)
{
    reduce_to(tt_kernels_in_use(), reduction, targets, ntargets, sources, count, flags);
}

void tt_copy_to(const struct tt_target *targets, int ntargets, const void *src, size_t nbytes)
{
    copy_to(tt_kernels_in_use(), targets, ntargets, src, nbytes);
}

void tt_copy(void *dst, const void *src, size_t nbytes, bool nontemporal)
{
    copy(tt_kernels_in_use(), dst, src, nbytes, nontemporal);
}

void tt_copy_shared(void *dst, const void *src, size_t nbytes)
{
    if (nbytes && dst != src) tt_kernels_in_use()->copy(dst, src, nbytes);
}

bool tt_has_fast_rep_movsb(void)
{
    return tt_kernels_in_use() &&
           atomic_load_explicit(&tt_copies_by_rep_movsb, memory_order_relaxed);
}

bool tt_copies_past_caches(void)
{
    return tt_kernels_in_use() != &tt_kernels_scalar;
}
