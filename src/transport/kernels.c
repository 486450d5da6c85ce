/* Kernels that use memory of other ranks of the host: what a rank says of its own in its record,
 * and whom a rank must wait for before it frees what kernels of others may use.
 *
 * A rank whose kernel begins first says so, then looks whether a lender is gone; a rank that leaves
 * says that it lends nothing any more, then looks for such kernels: the fences order these, so one
 * of the two sees the other. A rank that has aborted lends its memory for a while to calls that it
 * has done its part of. */
#include "transport/fabric.h"

uint64_t tt_fabric_lender(const struct tt_fabric *fabric, int rank)
{
    return UINT64_C(1) << fabric->hosts->local_of[rank] % 64;
}

/* Where kernels overlap, the lenders of one that has ended stay among those of the others. */
void tt_fabric_begin_kernel(struct tt_fabric *fabric, uint64_t lenders)
{
    struct tt_rank_record *record = fabric->record;
    if (atomic_load_explicit(&record->kernels, memory_order_acquire))
        lenders |= atomic_load_explicit(&record->lenders, memory_order_relaxed);
    /* acquire: tt_fabric_is_used_by */
    atomic_store_explicit(&record->lenders, lenders, memory_order_release);
    /* acquire: tt_fabric_is_used_by */
    atomic_fetch_add_explicit(&record->kernels, 1, memory_order_seq_cst);
    atomic_thread_fence(memory_order_seq_cst);
}

void tt_fabric_end_kernel(struct tt_fabric *fabric)
{
    /* acquire: tt_fabric_is_used_by, tt_fabric_begin_kernel */
    atomic_fetch_sub_explicit(&fabric->record->kernels, 1, memory_order_release);
}

bool tt_fabric_lends(const struct tt_fabric *fabric, int rank, uint64_t seq)
{
    const struct tt_rank_record *record = tt_fabric_record(fabric, rank);
    /* release: tt_fabric_leave, tt_fabric_abort */
    const uint32_t state = atomic_load_explicit(&record->state, memory_order_acquire);
    /* A rank of another host says nothing of its state before it leaves, and lends no memory, as
     * one without a GPU: what it has sent is here, or on its way. */
    if (!tt_fabric_is_local(fabric, rank) || tt_fabric_is_relayed(fabric, rank))
        return (state != TT_RANK_LEFT && state != TT_RANK_ABORTED) ||
               atomic_load_explicit(&record->done, memory_order_acquire) >= seq;
    if (state != TT_RANK_ABORTED) return state == TT_RANK_HERE;
    /* release: tt_fabric_leave */
    return !atomic_load_explicit(&record->withdrawn, memory_order_acquire) &&
           atomic_load_explicit(&record->done, memory_order_acquire) >= seq;
}

/* Of this host: each rank learns at another moment that one of another host has left. */
static uint32_t count_left(const struct tt_fabric *fabric)
{
    uint32_t n = 0;
    for (int r = 0; r < fabric->nranks; r++)
        n += tt_fabric_is_local(fabric, r) &&
             atomic_load_explicit(&tt_fabric_record(fabric, r)->state, memory_order_acquire) !=
                 TT_RANK_HERE;
    return n;
}

/* First kernels, which cover the time until `captured` is set (carrier/kernel/replays.c). The ranks
 * that a rank has counted as left are among those that are counted here later: if they are as many,
 * this one is among them, if it has left. */
bool tt_fabric_is_used_by(const struct tt_fabric *fabric, int rank)
{
    const struct tt_rank_record *record = tt_fabric_record(fabric, rank);
    atomic_thread_fence(memory_order_seq_cst);
    /* release: tt_fabric_begin_kernel, tt_fabric_end_kernel */
    if (atomic_load_explicit(&record->kernels, memory_order_acquire) &&
        atomic_load_explicit(&record->lenders, memory_order_acquire) &
            tt_fabric_lender(fabric, fabric->rank))
        return true;
    /* release: tt_graphs_publish_use of carrier/kernel/replays.c */
    const uint32_t captured = atomic_load_explicit(&record->captured, memory_order_acquire);
    const bool here =
        atomic_load_explicit(&fabric->record->state, memory_order_relaxed) == TT_RANK_HERE;
    return captured && (here || captured - 1 < count_left(fabric));
}

int tt_fabric_user(const struct tt_fabric *fabric)
{
    return tt_fabric_find_beside(fabric, tt_fabric_is_used_by);
}
