/* A rank of another host that is gone, as a rank of this one has found or heard: kept in the
 * segment, and told to all connected ranks. One is enough: a call that needs all ranks cannot end
 * without it. What others have found counts here when this rank has found the same, as the network
 * may refuse the connections of one of them. */
#include <stdio.h>

#include "transport/fabric.h"

void tt_fabric_note_gone(struct tt_fabric *fabric, int rank, const char *text)
{
    struct tt_failure *gone = &fabric->segment->header->gone;
    uint32_t none = 0;
    if (rank == fabric->rank || !atomic_compare_exchange_strong(&gone->state, &none, 1)) return;
    gone->code = rank;
    snprintf(gone->text, sizeof gone->text, "%s", text);
    /* acquire: told */
    atomic_store_explicit(&gone->state, 2, memory_order_release);
}

/* NULL: nobody is known to be gone. */
static const struct tt_failure *told(const struct tt_fabric *fabric)
{
    const struct tt_failure *gone = &fabric->segment->header->gone;
    /* release: tt_fabric_note_gone */
    return atomic_load_explicit(&gone->state, memory_order_acquire) == 2 ? gone : NULL;
}

static bool has_found(const struct tt_fabric *fabric, int rank)
{
    if (!tt_fabric_is_local(fabric, rank)) return tt_wires_miss(fabric->wires, rank);
    /* release: tt_fabric_attach, tt_fabric_leave */
    return atomic_load_explicit(&tt_fabric_record(fabric, rank)->state, memory_order_acquire) !=
               TT_RANK_HERE ||
           tt_fabric_is_dead(fabric, rank);
}

int tt_fabric_gone(const struct tt_fabric *fabric, const char **text)
{
    const struct tt_failure *gone = told(fabric);
    if (!gone || !has_found(fabric, gone->code)) return -1;
    *text = gone->text;
    return gone->code;
}

static bool is_rank(const void *arg, int rank)
{
    return rank == *(const int *)arg;
}

bool tt_fabric_follow_gone(struct tt_fabric *fabric)
{
    const struct tt_failure *gone = told(fabric);
    if (!gone) return false;
    const int rank = gone->code;
    tt_wires_send_gone(fabric->wires, rank, gone->text);
    if (tt_fabric_is_local(fabric, rank) || has_found(fabric, rank)) return false;
    const struct tt_missing missing = {.is_missing = is_rank, .arg = &rank};
    return tt_wires_seek_gone(fabric->wires, &missing);
}
