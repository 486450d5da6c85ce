/* Opens memory of peers, and closes it.
 *
 * A reader says that it has an offer before it looks whether the offer still stands, and opens the
 * memory after that. An owner takes its offer back before it looks who has it. So an owner that
 * sees nobody frees memory that nobody opens any more. */
#include <string.h>

#include "base/log.h"
#include "carrier/kernel/graphs.h"
#include "carrier/kernel/ranges_internal.h"
#include "driver/context.h"

static_assert(TT_RANGE_HANDLE * sizeof(uint64_t) == TT_CONTEXT_HANDLE, "an offer holds a handle");

static struct tt_opened *opened_of(struct tt_ranges *ranges, int rank, int i)
{
    return &ranges->opened[ranges->comm->fabric->hosts->local_of[rank] * TT_MOST_RANGES + i];
}

static struct tt_range_answer *answer_of(const struct tt_ranges *ranges, int rank, int i)
{
    const struct tt_fabric *fabric = ranges->comm->fabric;
    return tt_segment_answer(fabric->segment, fabric->local, fabric->hosts->local_of[rank], i);
}

/* The reader does not have it, or not any more. */
static void take_answer_back(struct tt_ranges *ranges, int rank, int i)
{
    *opened_of(ranges, rank, i) = (struct tt_opened){.seq = 0};
    /* acquire: is_open_at */
    atomic_store_explicit(&answer_of(ranges, rank, i)->seq, 0, memory_order_release);
    tt_ranges_tell_change(ranges);
}

/* Where the rank's GPU has the offered memory; 0: it cannot be opened. IN_PROGRESS: not yet. */
static tt_status open_offer(struct tt_ranges *ranges, int rank, const struct tt_range_offer *offer,
                            struct tt_opened *opened, uint64_t *address)
{
    const struct tt_comm_core *comm = ranges->comm;
    uint64_t handle[TT_RANGE_HANDLE];
    uint8_t bytes[TT_CONTEXT_HANDLE];
    *address = 0;
    /* Within a process the links' memory has made the access. */
    if (!tt_ranges_is_other(ranges, rank)) {
        *address = atomic_load_explicit(&offer->base, memory_order_relaxed);
        return TT_OK;
    }
    /* The owner does not want it, or the driver would open a whole piece of memory, of which the
     * allocation is a part. */
    if (atomic_load_explicit(&offer->nbytes, memory_order_relaxed) < TT_CONTEXT_SHARED)
        return TT_OK;
    for (int k = 0; k < TT_RANGE_HANDLE; k++)
        handle[k] = atomic_load_explicit(&offer->handle[k], memory_order_relaxed);
    memcpy(bytes, handle, sizeof bytes);
    const tt_status status = tt_context_open_shared(comm->context, bytes, false, &opened->memory);
    if (status > 0) return status;
    if (!status) {
        *address = (uint64_t)(uintptr_t)opened->memory;
        return TT_OK;
    }
    opened->memory = NULL;
    TT_INFO("communicator %s: rank %d does not read memory of rank %d in place: %s", comm->name,
            comm->rank, rank, tt_last_error());
    return TT_OK;
}

/* The i-th offer of a peer, which has this number. */
static void answer(struct tt_ranges *ranges, int rank, int i, uint64_t seq)
{
    const struct tt_range_offer *offer = tt_range_offer_of(ranges, rank, i);
    struct tt_range_answer *answer = answer_of(ranges, rank, i);
    struct tt_opened *opened = opened_of(ranges, rank, i);
    uint64_t address;
    atomic_store_explicit(&answer->address, 0, memory_order_relaxed);
    atomic_store_explicit(&answer->seq, seq, memory_order_seq_cst);
    const bool stands = atomic_load_explicit(&offer->seq, memory_order_seq_cst) == seq;
    const tt_status status = stands ? open_offer(ranges, rank, offer, opened, &address) : TT_OK;
    if (!stands || status) {
        ranges->looks_again = true;
        take_answer_back(ranges, rank, i);
        return;
    }
    opened->seq = seq;
    if (opened->memory) tt_ranges_watch_locked(ranges);
    /* What it cannot read it does not hold. */
    if (!address) atomic_store_explicit(&answer->seq, 0, memory_order_release);
    /* acquire: address_at of ranges.c */
    atomic_store_explicit(&answer->address, address, memory_order_release);
    tt_ranges_tell_change(ranges);
}

/* Closes the memory, if the offer does not stand any more, or `always`. */
static void close_one(struct tt_ranges *ranges, int rank, int i, bool always)
{
    struct tt_opened *opened = opened_of(ranges, rank, i);
    if (!opened->seq || opened->is_closing) return;
    const struct tt_range_offer *offer = tt_range_offer_of(ranges, rank, i);
    if (!always && atomic_load_explicit(&offer->seq, memory_order_acquire) == opened->seq) return;
    if (!opened->memory) {
        take_answer_back(ranges, rank, i);
        return;
    }
    tt_context_close_shared(ranges->comm->context, opened->memory);
    opened->is_closing = true;
}

void tt_opened_look_locked(struct tt_ranges *ranges)
{
    const uint64_t changes = tt_ranges_changes(ranges);
    if (ranges->seen == changes && !ranges->looks_again) return;
    /* What a rank with graphs has opened stays open (tt_context_let_go). */
    const bool opens = !tt_graphs_are_there(ranges->comm->kernel);
    ranges->seen = changes;
    ranges->looks_again = false;
    for (int r = 0; r < ranges->comm->nranks; r++) {
        for (int i = 0; i < TT_MOST_RANGES && tt_ranges_is_peer(ranges, r); i++) {
            close_one(ranges, r, i, false);
            const uint64_t seq =
                atomic_load_explicit(&tt_range_offer_of(ranges, r, i)->seq, memory_order_acquire);
            if (seq && !opened_of(ranges, r, i)->seq && opens) answer(ranges, r, i, seq);
        }
    }
}

bool tt_opened_close_locked(struct tt_ranges *ranges, bool all)
{
    bool any = false;
    for (int r = 0; r < ranges->comm->nranks; r++) {
        for (int i = 0; i < TT_MOST_RANGES && tt_ranges_is_peer(ranges, r); i++) {
            close_one(ranges, r, i, all);
            struct tt_opened *opened = opened_of(ranges, r, i);
            opened->is_given = opened->is_closing;
            any = any || opened->is_closing;
        }
    }
    return any;
}

void tt_opened_closed_locked(struct tt_ranges *ranges)
{
    for (int r = 0; r < ranges->comm->nranks; r++)
        for (int i = 0; i < TT_MOST_RANGES && tt_ranges_is_peer(ranges, r); i++)
            if (opened_of(ranges, r, i)->is_given) take_answer_back(ranges, r, i);
}

bool tt_opened_any_locked(const struct tt_ranges *ranges)
{
    for (size_t i = 0; i < ranges->nplaces; i++)
        if (ranges->opened[i].memory) return true;
    return false;
}

/* ---- Who has a range of this rank ----------------------------------------------------------- */

struct tt_range_answer *tt_range_answer_at(const struct tt_ranges *ranges,
                                           const struct tt_own_range *range, int rank)
{
    const struct tt_fabric *fabric = ranges->comm->fabric;
    return tt_segment_answer(fabric->segment, fabric->hosts->local_of[rank], fabric->local,
                             range->place);
}

static bool is_open_at(const struct tt_ranges *ranges, const struct tt_own_range *range, int rank)
{
    const struct tt_fabric *fabric = ranges->comm->fabric;
    if (!tt_ranges_is_other(ranges, rank)) return false;
    const struct tt_range_answer *answer = tt_range_answer_at(ranges, range, rank);
    if (atomic_load_explicit(&answer->seq, memory_order_seq_cst) != range->seq) return false;
    const struct tt_rank_record *record = tt_fabric_record(fabric, rank);
    return atomic_load_explicit(&record->state, memory_order_acquire) != TT_RANK_ABORTED &&
           !tt_fabric_is_dead(fabric, rank);
}

int tt_range_reader(const struct tt_ranges *ranges, const struct tt_own_range *range)
{
    for (int r = 0; r < ranges->comm->nranks; r++)
        if (is_open_at(ranges, range, r)) return r;
    return -1;
}
