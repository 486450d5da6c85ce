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

static void mix(struct tt_fabric *fabric, size_t slot_bytes)
{
    const size_t own = fabric->segment->header->slot_bytes;
    fabric->mixed = (struct tt_mixed_ranks){.is_mixed = true,
                                            .slot_bytes = slot_bytes < own ? slot_bytes : own};
}

tt_status tt_kernel_mix(struct tt_comm_core *comm, size_t slot_bytes)
{
    if (!tt_fabric_may_mix(comm->fabric)) return TT_OK;
    uint64_t *turns = calloc(2 * (size_t)comm->nranks, sizeof *turns);
    if (!turns) return tt_fail(TT_ERR_SYSTEM, "out of memory for turns of %d ranks", comm->nranks);
    comm->kernel->message_turns = turns;
    mix(comm->fabric, slot_bytes);
    return TT_OK;
}

int32_t tt_kernel_mix_without_gpu(struct tt_comm_core *comm, const struct tt_device_offer *offers)
{
    const int nchannels = tt_fabric_nchannels(comm->fabric);
    int r = 0;
    while (offers[r].gpu < 0) r++; /* they all fit the first one, or kernels run no calls */
    mix(comm->fabric, offers[r].slot_bytes);
    TT_INFO("communicator %s: rank %d has no GPU; calls of the others on memory of GPUs are "
            "carried out by kernels",
            comm->name, comm->rank);
    const int theirs = (int)offers[r].nchannels - 1;
    return theirs < nchannels ? theirs : nchannels;
}

/* ---- Turns of messages ---------------------------------------------------------------------- */

/* Sends of the host to a rank have turns, and receives from it. Where the rank has no GPU, the
 * messages of an exchange with it have turns among these, in the order of the group. Messages that
 * follow one another in the exchange have one turn together. */

static _Atomic uint64_t *done_of(struct tt_engine *engine, const struct tt_exchange_call *call)
{
    return call->sends ? &engine->sends_done[call->peer] : &engine->recvs_done[call->peer];
}

static uint64_t *issued_of(const struct tt_engine *engine, const struct tt_exchange_call *call)
{
    return call->sends ? &engine->sends_issued[call->peer] : &engine->recvs_issued[call->peer];
}

/* The turn of the message before, of the same exchange and link; 0: there is none. */
static uint64_t turn_before(const struct tt_group_exchange *exchange, int i)
{
    const struct tt_exchange_call *calls = exchange->calls, *call = &calls[i];
    while (--i >= 0)
        if (calls[i].peer == call->peer && calls[i].sends == call->sends) return calls[i].turn;
    return 0;
}

void tt_exchange_take_turn(struct tt_group_exchange *exchange, struct tt_comm_core *core)
{
    const int i = exchange->nbegun++;
    struct tt_exchange_call *call = &exchange->calls[i];
    if (!tt_fabric_is_relayed(core->fabric, call->peer)) return;
    uint64_t *issued = issued_of(&core->engine, call);
    const uint64_t before = turn_before(exchange, i);
    if (!before || before != *issued) ++*issued;
    call->turn = core->kernel->message_turns[2 * call->peer + call->sends] = *issued;
}

void tt_exchange_look_at_turns(struct tt_group_exchange *exchange, struct tt_engine *engine,
                               struct tt_proxy *proxy)
{
    for (int i = 0; i < exchange->ncalls; i++) {
        struct tt_exchange_call *call = &exchange->calls[i];
        /* release: complete of work.c, send_now of p2p.c, receive_now of p2p.c */
        if (!call->turn || call->is_granted ||
            atomic_load_explicit(done_of(engine, call), memory_order_acquire) + 1 != call->turn)
            continue;
        tt_proxy_grant_send(proxy, call->peer, call->sends, call->nbytes);
        call->is_granted = true;
    }
    for (int i = 0; i < exchange->ncalls; i++) {
        struct tt_exchange_call *call = &exchange->calls[i];
        if (!call->is_granted || !call->turn || !tt_proxy_has_moved(proxy, call->peer, call->sends))
            continue;
        /* acquire: tt_work_advance */
        atomic_store_explicit(done_of(engine, call), call->turn, memory_order_release);
        call->turn = 0;
    }
}

/* ---- Calls that would wait for themselves --------------------------------------------------- */

/* Of the last call of kernels with these turns; 0: there is none. */
static uint64_t last_turn(const struct tt_comm_core *core, const _Atomic uint64_t *turns)
{
    const struct tt_engine *engine = &core->engine;
    const struct tt_kernel_part *on = core->kernel;
    if (turns == &engine->collectives_done)
        return atomic_load_explicit(&on->last_turn, memory_order_relaxed);
    for (int r = 0; r < core->nranks; r++) {
        if (turns == &engine->sends_done[r]) return on->message_turns[2 * r + 1];
        if (turns == &engine->recvs_done[r]) return on->message_turns[2 * r];
    }
    return 0;
}

static bool is_held(const struct tt_comm_core *core, const _Atomic uint64_t *turns)
{
    const uint64_t last = last_turn(core, turns);
    return last && tt_stream_holds_turn(turns, last);
}

bool tt_kernel_is_held_here(const struct tt_comm_core *core, const _Atomic uint64_t *turns)
{
    const struct tt_engine *engine = &core->engine;
    if (!core->fabric->mixed.is_mixed) return false;
    if (turns && last_turn(core, turns) <= atomic_load_explicit(turns, memory_order_relaxed))
        return false;
    bool held = is_held(core, &engine->collectives_done);
    for (int r = 0; r < core->nranks; r++)
        held =
            held || is_held(core, &engine->sends_done[r]) || is_held(core, &engine->recvs_done[r]);
    return held;
}
