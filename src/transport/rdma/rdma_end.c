/* The end of a wire: gives callers' memory back after a failure, and destroys the wire. */
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/pause.h"
#include "transport/rdma/rdma_internal.h"
#include "transport/window.h"

enum { STOP_MS = 200 }; /* for a device to complete what it will not do any more */

void tt_rdma_wire_quiet(struct tt_rdma_wire *wire)
{
    wire->quiet = true;
}

void tt_rdma_wire_lost(struct tt_rdma_wire *wire)
{
    wire->quiet = wire->lost = true;
}

bool tt_rdma_wire_sent(struct tt_rdma_wire *wire)
{
    for (int i = 0; i < wire->nroutes; i++)
        if (tt_rdma_poll(wire->used[i])) return true;
    return wire->nposted == wire->ncompleted;
}

/* Whether devices of this host may read callers' memory. */
static bool uses_memory(const struct tt_rdma_wire *wire)
{
    for (int c = 0; c < wire->nchannels; c++)
        if (wire->tx[c].ndirect) return true;
    return false;
}

static void forget_sends(struct tt_rdma_wire *wire)
{
    if (!wire->tx) return;
    for (int c = 0; c < wire->nchannels; c++) {
        struct tt_rdma_link *tx = &wire->tx[c];
        tx->ndirect = 0;
        for (int s = 0; s < TT_RDMA_MAX_SLOTS; s++) {
            if (tx->memory[s]) tx->memory[s]->nsends--;
            tx->memory[s] = NULL;
        }
    }
}

/* Queue pairs in the error state neither read nor write, once they have completed what they had. */
static void stop(struct tt_rdma_wire *wire)
{
    if (wire->stopped) return;
    wire->stopped = wire->quiet = true;
    for (int i = 0; i < wire->nroutes; i++) {
        struct ibv_qp_attr attributes = {.qp_state = IBV_QPS_ERR};
        errno = wire->rdma->verbs->modify_qp(wire->used[i]->qp, &attributes, IBV_QP_STATE);
        if (errno) TT_WARN("RDMA: a queue pair cannot be stopped: %m");
    }
    const int64_t deadline_ns = tt_deadline_ns(STOP_MS);
    struct tt_pause pause = {0};
    while (wire->nposted != wire->ncompleted && !tt_expired(deadline_ns)) {
        for (int i = 0; i < wire->nroutes; i++) tt_ignore(tt_rdma_poll(wire->used[i]));
        tt_pause(&pause);
    }
    if (wire->nposted != wire->ncompleted)
        TT_WARN("RDMA: a stopped queue pair has not completed what it had after %d ms; buffers of "
                "the call that failed may still be written to until the communicator is destroyed",
                STOP_MS);
}

void tt_rdma_wire_give_back(struct tt_rdma_wire *wire, int64_t deadline_ns)
{
    struct tt_pause pause = {0};
    while (!wire->stopped && uses_memory(wire) && !tt_rdma_wire_sent(wire) &&
           !tt_expired(deadline_ns))
        tt_pause(&pause);
    if (!uses_memory(wire)) return;
    stop(wire);
    forget_sends(wire);
}

void tt_rdma_wire_destroy(struct tt_rdma_wire *wire)
{
    if (!wire) return;
    const struct tt_rdma *rdma = wire->rdma;
    int failed = 0;
    for (int i = 0; i < wire->nends; i++) {
        if (wire->ends[i].qp) failed |= rdma->verbs->destroy_qp(wire->ends[i].qp);
        if (wire->ends[i].cq) failed |= rdma->verbs->destroy_cq(wire->ends[i].cq);
    }
    for (int i = 0; i < rdma->ndevices; i++)
        if (wire->regions[i]) failed |= rdma->verbs->dereg_mr(wire->regions[i]);
    forget_sends(wire);
    if (failed) {
        errno = failed;
        TT_WARN("RDMA resources cannot be given back: %m");
    }
    if (wire->memory) {
        tt_window_unpin(wire->memory, wire->nbytes);
        munmap(wire->memory, wire->nbytes);
    }
    free(wire->tx);
    free(wire);
}
