/* The ranks whose memory a kernel uses: whether they are all here, what became of one that is gone,
 * and whose memory this rank's kernels use. */
#include "carrier/kernel/exchange.h"
#include "carrier/kernel/kernel.h"

int tt_kernel_absent_rank(const struct tt_comm_core *comm, const struct tt_group_exchange *exchange,
                          uint64_t turn)
{
    const int n = exchange ? exchange->ncalls : comm->nranks;
    for (int i = 0; i < n; i++) {
        const int rank = exchange ? exchange->calls[i].peer : i;
        /* Whether a rank without a GPU had sent what is received the call's checks say. */
        if (exchange && tt_fabric_is_relayed(comm->fabric, rank)) continue;
        if (!tt_fabric_lends(comm->fabric, rank, turn)) return rank;
    }
    return -1;
}

const char *tt_kernel_how_gone(const struct tt_comm_core *comm, int rank)
{
    const struct tt_rank_record *record = tt_fabric_record(comm->fabric, rank);
    /* release: tt_fabric_leave, tt_fabric_abort */
    switch (atomic_load_explicit(&record->state, memory_order_acquire)) {
    case TT_RANK_HERE:
        return "has died";
    case TT_RANK_ABORTED:
        return "aborted the communicator";
    default:
        return tt_fabric_how_left(comm->fabric, rank);
    }
}

static uint64_t lenders_of(const struct tt_comm_core *comm,
                           const struct tt_group_exchange *exchange)
{
    uint64_t lenders = exchange ? 0 : UINT64_MAX;
    for (int i = 0; exchange && i < exchange->ncalls; i++) {
        if (!tt_fabric_is_local(comm->fabric, exchange->calls[i].peer) ||
            tt_fabric_is_relayed(comm->fabric, exchange->calls[i].peer))
            continue;
        lenders |= tt_fabric_lender(comm->fabric, exchange->calls[i].peer);
    }
    return lenders;
}

bool tt_kernel_may_use_peers(const struct tt_comm_core *comm,
                             const struct tt_group_exchange *exchange, uint64_t turn)
{
    tt_fabric_begin_kernel(comm->fabric, lenders_of(comm, exchange));
    if (!tt_fabric_check(comm->fabric) && tt_kernel_absent_rank(comm, exchange, turn) < 0)
        return true;
    tt_fabric_end_kernel(comm->fabric);
    return false;
}

tt_status tt_kernel_fail_alone(const struct tt_comm_core *comm,
                               const struct tt_group_exchange *exchange, uint64_t turn)
{
    char name[128];
    TT_TRY(tt_fabric_check(comm->fabric));
    const int rank = tt_kernel_absent_rank(comm, exchange, turn);
    tt_fabric_name_rank(comm->fabric, rank, name, sizeof name);
    return tt_fail(TT_ERR_REMOTE, "%s %s", name, tt_kernel_how_gone(comm, rank));
}
