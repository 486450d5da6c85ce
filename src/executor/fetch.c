/* The hardware fetches ahead within a page only, and begins in a page when its second cache
 * line is missed. The folds of a call of some KiB have few cache lines in each of many pages, so
 * they wait for these beginnings. */
#include "executor/fetch.h"

#include "base/prefetch.h"
#include "executor/internal.h"

enum { PAGE_BYTES = 4096, MOST_PAGES = 2 };

/* Cache line by cache line, all pages in turns: the hardware then fetches from all of them at once.
 */
void tt_fetch_to_read(const char *data, size_t nbytes, int nlines)
{
    const size_t end = nbytes < MOST_PAGES * PAGE_BYTES ? nbytes : MOST_PAGES * PAGE_BYTES;
    for (int line = 0; line < nlines; line++)
        for (size_t at = (size_t)line * TT_CACHE_LINE; at < end; at += PAGE_BYTES)
            __builtin_prefetch(data + at);
}

void tt_fetch_to_write(const char *data, size_t nbytes, int nlines)
{
    const size_t end = nbytes < MOST_PAGES * PAGE_BYTES ? nbytes : MOST_PAGES * PAGE_BYTES;
    for (int line = 0; line < nlines; line++)
        for (size_t at = (size_t)line * TT_CACHE_LINE; at < end; at += PAGE_BYTES)
            tt_prefetch_for_writing(data + at);
}

void tt_fetch_for_step(const struct tt_work *work, int channel, const struct tt_program_step *step,
                       uint32_t index, int nlines)
{
    struct tt_spans spans;
    if (step->kind != TT_STEP_LINK || step->op != TT_FOLD || !step->nrecv) return;
    tt_step_spans(work, channel, step, index, &spans);
    if (spans.local) tt_fetch_to_read(spans.local, spans.nbytes, nlines);
    if (work->collective.binding->nontemporal) return; /* the result goes past the caches */
    if (spans.dst) tt_fetch_to_write(spans.dst, spans.nbytes, nlines);
}
