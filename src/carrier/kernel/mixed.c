/* Communicators of ranks with GPUs and ranks without: which of the others a rank's kernels reach by
 * device memory, what a rank without a GPU has to do with kernels, and when messages between the
 * two kinds of ranks have their turns. */
#include "carrier/kernel/exchange.h"
#include "carrier/kernel/kernel.h"

#include <stdlib.h>

#include "base/log.h"

/* ---- Creation ------------------------------------------------------------------------------- */

tt_status tt_kernel_find_hosts(const struct tt_fabric *fabric, struct tt_hosts **hosts)
{
    const struct tt_hosts *real = fabric->hosts;
    const int n = fabric->nranks;
    *hosts = NULL;
    if (real->nhosts == 1 && !tt_fabric_may_mix(fabric)) return TT_OK;
    uint64_t *ids = malloc((size_t)n * sizeof *ids);
    if (!ids) return tt_fail(TT_ERR_SYSTEM, "out of memory for the hosts of %d ranks", n);
    for (int r = 0; r < n; r++)
        ids[r] = (uint64_t)(fabric->peers[r].gpu < 0 ? real->nhosts + r : real->host_of[r]);
    const tt_status status = tt_hosts_create(ids, n, hosts);
    free(ids);
    return status;
}

void tt_kernel_mix(struct tt_fabric *fabric, size_t slot_bytes)
{
    const size_t own = fabric->segment->header->slot_bytes;
    if (!tt_fabric_may_mix(fabric)) return;
    fabric->mixed = (struct tt_mixed_ranks){.is_mixed = true,
                                            .slot_bytes = slot_bytes < own ? slot_bytes : own};
}

int32_t tt_kernel_mix_without_gpu(struct tt_comm_core *comm, const struct tt_device_offer *offers)
{
    const int nchannels = tt_fabric_nchannels(comm->fabric);
    int r = 0;
    while (offers[r].gpu < 0) r++; /* they all fit the first one, or kernels run no calls */
    tt_kernel_mix(comm->fabric, offers[r].slot_bytes);
    TT_INFO("communicator %s: rank %d has no GPU; calls of the others on memory of GPUs are "
            "carried out by kernels",
            comm->name, comm->rank);
    const int theirs = (int)offers[r].nchannels - 1;
    return theirs < nchannels ? theirs : nchannels;
}

/* ---- Turns of messages ---------------------------------------------------------------------- */

/* Sends of the host to a rank have turns, and receives from it. Where the rank has no GPU, the
 * sends of an exchange to it have one of these turns together, and so have the receives: the first
 * call of each has its number. */

static _Atomic uint64_t *done_of(struct tt_engine *engine, const struct tt_exchange_call *call)
{
    return call->sends ? &engine->sends_done[call->peer] : &engine->recvs_done[call->peer];
}

static uint64_t *issued_of(const struct tt_engine *engine, const struct tt_exchange_call *call)
{
    return call->sends ? &engine->sends_issued[call->peer] : &engine->recvs_issued[call->peer];
}

static bool is_first(const struct tt_group_exchange *exchange, int i)
{
    const struct tt_exchange_call *calls = exchange->calls;
    int j = 0;
    while (calls[j].peer != calls[i].peer || calls[j].sends != calls[i].sends) j++;
    return j == i;
}

void tt_exchange_take_turns(struct tt_group_exchange *exchange, const struct tt_engine *engine)
{
    for (int i = 0; i < exchange->ncalls; i++) {
        struct tt_exchange_call *call = &exchange->calls[i];
        const bool has_turn =
            tt_fabric_is_relayed(engine->fabric, call->peer) && is_first(exchange, i);
        call->turn = has_turn ? ++*issued_of(engine, call) : 0;
    }
}

static void grant(const struct tt_group_exchange *exchange, const struct tt_exchange_call *first,
                  struct tt_proxy *proxy)
{
    for (int i = 0; i < exchange->ncalls; i++) {
        const struct tt_exchange_call *call = &exchange->calls[i];
        if (call->peer == first->peer && call->sends == first->sends)
            tt_proxy_grant_send(proxy, call->peer, call->sends, call->nbytes);
    }
}

void tt_exchange_look_at_turns(struct tt_group_exchange *exchange, struct tt_engine *engine,
                               struct tt_proxy *proxy)
{
    for (int i = 0; i < exchange->ncalls; i++) {
        struct tt_exchange_call *call = &exchange->calls[i];
        if (!call->turn) continue;
        _Atomic uint64_t *done = done_of(engine, call);
        /* release: complete of work.c, send_now of p2p.c, receive_now of p2p.c */
        if (!call->is_granted &&
            atomic_load_explicit(done, memory_order_acquire) + 1 == call->turn) {
            grant(exchange, call, proxy);
            call->is_granted = true;
        }
        if (!call->is_granted || !tt_proxy_has_moved(proxy, call->peer, call->sends)) continue;
        /* acquire: tt_work_advance */
        atomic_store_explicit(done, call->turn, memory_order_release);
        call->turn = 0;
    }
}
