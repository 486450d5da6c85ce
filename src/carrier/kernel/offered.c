/* Memory of this rank that it offers to its peers.
 *
 * An offer is taken back when no call under way has a row of the range: such a call may have sent
 * references to a peer that has yet to make its own call, and whose kernel reads what they name
 * then. A peer that sees the offer gone closes the memory as soon as it has no kernel. Nobody waits
 * here: the task, and who deregisters the memory, looks again. */
#include <stdlib.h>
#include <string.h>

#include "carrier/kernel/ranges_internal.h"

static int free_place(const struct tt_ranges *ranges)
{
    for (int i = 0; i < TT_MOST_RANGES; i++)
        if (!ranges->is_taken[i]) return i;
    return -1;
}

bool tt_offered_has_room_locked(const struct tt_ranges *ranges)
{
    return free_place(ranges) >= 0;
}

static void put_offer(struct tt_ranges *ranges, const struct tt_own_range *range,
                      const uint8_t handle[TT_CONTEXT_HANDLE])
{
    struct tt_range_offer *offer = tt_range_offer_of(ranges, ranges->comm->rank, range->place);
    uint64_t words[TT_RANGE_HANDLE];
    memcpy(words, handle, sizeof words);
    atomic_store_explicit(&offer->base, (uint64_t)(uintptr_t)range->base, memory_order_relaxed);
    const bool may_open = range->lent || ranges->opens_all;
    atomic_store_explicit(&offer->nbytes, may_open ? range->nbytes : 0, memory_order_relaxed);
    for (int i = 0; i < TT_RANGE_HANDLE; i++)
        atomic_store_explicit(&offer->handle[i], words[i], memory_order_relaxed);
    /* acquire: tt_opened_look_locked */
    atomic_store_explicit(&offer->seq, range->seq, memory_order_release);
    tt_ranges_tell_change(ranges);
}

struct tt_own_range *tt_offered_add_locked(struct tt_ranges *ranges, const struct tt_pointer *found)
{
    const size_t nranks = (size_t)ranges->comm->nranks;
    const int place = free_place(ranges);
    uint8_t handle[TT_CONTEXT_HANDLE];
    if (place < 0 || !found->has_handle) return NULL;
    struct tt_own_range *range = calloc(1, sizeof *range + nranks * sizeof range->opened[0]);
    if (!range) {
        tt_ignore(tt_fail(TT_ERR_SYSTEM, "out of memory for a range"));
        return NULL;
    }
    if (tt_context_share(ranges->comm->context, found->base, handle)) {
        free(range);
        return NULL;
    }
    *range = (struct tt_own_range){.next = ranges->own,
                                   .base = found->base,
                                   .nbytes = found->nbytes,
                                   .allocation = found->allocation,
                                   .seq = ++ranges->nmade,
                                   .place = place,
                                   .is_offered = true};
    for (size_t r = 0; r < nranks; r++) range->opened[r] = TT_NOT_OPENED;
    if (ranges->has_others) range->lent = tt_driver_lend(found->base);
    ranges->own = range;
    ranges->is_taken[place] = true;
    atomic_fetch_add_explicit(&ranges->nown, 1, memory_order_relaxed);
    put_offer(ranges, range, handle);
    tt_ranges_watch_locked(ranges);
    return range;
}

/* ---- The end of an offer -------------------------------------------------------------------- */

/* Whether all calls have ended that have a row of the range. After an abort some are never
 * launched, and kernels that begin later send nothing: the word is read before tt_kernel_has_ended
 * reads how many have begun. */
static bool have_calls_ended(const struct tt_ranges *ranges, const struct tt_own_range *range)
{
    const struct tt_kernel_life *life = &ranges->comm->kernel->life;
    return tt_read_word(&life->report->ended) >= range->last ||
           (__atomic_load_n(&life->report->abort, __ATOMIC_SEQ_CST) && tt_kernel_has_stopped(life));
}

void tt_offered_take_back_locked(struct tt_ranges *ranges, struct tt_own_range *range)
{
    if (!range->is_offered) return;
    range->is_offered = false;
    /* Before the looks of tt_range_reader; answer() in opened.c has them the other way round. */
    atomic_store_explicit(&tt_range_offer_of(ranges, ranges->comm->rank, range->place)->seq, 0,
                          memory_order_seq_cst);
    tt_ranges_tell_change(ranges);
}

int tt_offered_reader_locked(struct tt_ranges *ranges, struct tt_own_range *range)
{
    const int rank = tt_range_reader(ranges, range);
    if (rank >= 0 && !have_calls_ended(ranges, range)) return rank;
    tt_offered_take_back_locked(ranges, range);
    return tt_range_reader(ranges, range);
}

void tt_offered_drop_locked(struct tt_ranges *ranges, struct tt_own_range *range)
{
    struct tt_own_range **at = &ranges->own;
    while (*at != range) at = &(*at)->next;
    *at = range->next;
    atomic_fetch_sub_explicit(&ranges->nown, 1, memory_order_relaxed);
    range->is_gone = true;
    range->next = ranges->gone;
    ranges->gone = range;
    (void)tt_offered_reader_locked(ranges, range);
}

void tt_offered_end_locked(struct tt_ranges *ranges, struct tt_own_range *range)
{
    struct tt_own_range **at = &ranges->gone;
    while (*at != range) at = &(*at)->next;
    *at = range->next;
    ranges->is_taken[range->place] = false;
    ranges->refused_at = 0;
    ranges->gives = ranges->gives || range->lent;
    tt_driver_take_back(range->lent);
    free(range);
}

void tt_offered_end_gone_locked(struct tt_ranges *ranges)
{
    for (struct tt_own_range *range = ranges->gone, *next; range; range = next) {
        next = range->next;
        const int rank = tt_offered_reader_locked(ranges, range);
        if (rank < 0 && !range->is_awaited) tt_offered_end_locked(ranges, range);
    }
}
