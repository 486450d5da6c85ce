/* Sends and receives on device memory: those of a group become one call of a kernel. */
#include <stdlib.h>

#include "carrier/kernel/exchange.h"
#include "carrier/kernel/kernel.h"
#include "device/device.h"

/* Longer messages are moved by several flows, that is, blocks. */
enum { PART_BYTES = 1 << 17 };

/* ---- Of a group: gathering ------------------------------------------------------------------ */

static bool is_p2p(const struct tt_pending_call *call)
{
    return call->kind == TT_CALL_SEND || call->kind == TT_CALL_RECV;
}

/* The i-th send of a rank to itself goes to its i-th receive from itself. */
static tt_status check_own(const struct tt_comm_core *comm,
                           const struct tt_group_exchange *exchange)
{
    const int rank = comm->rank;
    int sends = 0, receives = 0, s = 0;
    for (int i = 0; i < exchange->ncalls; i++)
        if (exchange->calls[i].peer == rank) *(exchange->calls[i].sends ? &sends : &receives) += 1;
    if (sends != receives)
        return tt_fail(
            TT_ERR_USAGE,
            "rank %d sends %d messages to itself from memory of a GPU and receives %d in such "
            "memory: both must be memory of the GPU, or both the host's",
            rank, sends, receives);
    for (int r = 0; r < exchange->ncalls; r++) {
        const struct tt_exchange_call *receive = &exchange->calls[r];
        if (receive->peer != rank || receive->sends) continue;
        while (exchange->calls[s].peer != rank || !exchange->calls[s].sends) s++;
        const struct tt_exchange_call *send = &exchange->calls[s++];
        if (send->nbytes != receive->nbytes)
            return tt_fail(TT_ERR_USAGE,
                           "rank %d sends %zu bytes to itself, and receives %zu bytes: give both "
                           "the same count",
                           rank, send->nbytes, receive->nbytes);
    }
    return TT_OK;
}

/* Calls that one kernel carries out: of one communicator and, if captured, into one graph. */
static bool are_together(const struct tt_pending_call *a, const struct tt_pending_call *b)
{
    return a->comm == b->comm && a->capture == b->capture;
}

/* Of the calls of the list that are together with this one, which is the first of them. */
static tt_status make_exchange(struct tt_pending_call *first, struct tt_group_exchange **out)
{
    int n = 0;
    for (const struct tt_pending_call *call = first; call; call = call->next)
        n += are_together(call, first) && is_p2p(call);
    struct tt_group_exchange *exchange =
        malloc(sizeof *exchange + (size_t)n * sizeof exchange->calls[0]);
    if (!exchange) return tt_fail(TT_ERR_SYSTEM, "out of memory for a group of %d calls", n);
    *exchange = (struct tt_group_exchange){.ncalls = 0};
    for (const struct tt_pending_call *call = first; call; call = call->next)
        if (are_together(call, first) && is_p2p(call))
            exchange->calls[exchange->ncalls++] =
                (struct tt_exchange_call){.data = call->data,
                                          .nbytes = call->nbytes,
                                          .peer = call->peer,
                                          .sends = call->kind == TT_CALL_SEND};
    const tt_status status = check_own(first->comm, exchange);
    if (status)
        free(exchange);
    else
        *out = exchange;
    return status;
}

/* The place of a call that is together with this one, and has its stream if `same_stream`, among
 * these; n: there is none. */
static int find_like(const struct tt_pending_call *calls, int n, const struct tt_pending_call *call,
                     bool same_stream)
{
    int i = 0;
    while (i < n &&
           (!are_together(&calls[i], call) || (same_stream && calls[i].stream != call->stream)))
        i++;
    return i;
}

/* The exchanges of all communicators. Returns their number, or an error after which there are none.
 */
static int make_exchanges(struct tt_pending_call *first, struct tt_pending_call *made)
{
    int n = 0;
    for (struct tt_pending_call *call = first; call; call = call->next) {
        if (!is_p2p(call) || find_like(made, n, call, true) < n) continue;
        const int like = find_like(made, n, call, false);
        tt_status status = TT_OK;
        made[n] = (struct tt_pending_call){.comm = call->comm,
                                           .carrier = call->carrier,
                                           .stream = call->stream,
                                           .kind = TT_CALL_EXCHANGE,
                                           .capture = call->capture,
                                           .is_first = like == n};
        if (like == n)
            status = make_exchange(call, &made[n].exchange);
        else
            made[n].exchange = made[like].exchange;
        if (status) {
            while (--n >= 0) tt_exchange_release(made[n].exchange);
            return status;
        }
        made[n++].exchange->nworks++;
    }
    return n;
}

tt_status tt_kernel_gather(struct tt_calls *calls)
{
    int np2p = 0;
    for (const struct tt_pending_call *call = calls->first; call; call = call->next)
        np2p += is_p2p(call);
    if (!np2p) return TT_OK;
    struct tt_pending_call *made = malloc((size_t)np2p * sizeof *made);
    if (!made) return tt_fail(TT_ERR_SYSTEM, "out of memory for a group of %d calls", np2p);
    const int n = make_exchanges(calls->first, made);
    if (n < 0) {
        free(made);
        return n;
    }
    for (struct tt_pending_call *call = calls->first; call; call = call->next) {
        call->is_gone = is_p2p(call);
        if (call->is_gone) call->exchange = made[find_like(made, n, call, true)].exchange;
    }
    tt_calls_drop_gone(calls);
    for (int i = 0; i < n; i++) tt_calls_add(calls, &made[i]);
    calls->memory = made;
    return TT_OK;
}

/* ---- The table ------------------------------------------------------------------------------ */

/* Parts into which messages are divided at most, the same on all ranks: as many as there are links
 * between two ranks, and fewer where the flows of an exchange of all with all would not fit, or
 * where the ends of its bridges would take more pinned memory than links may take of a GPU. */
static uint64_t most_parts(const struct tt_comm_core *comm)
{
    const struct tt_kernel_part *on = comm->kernel;
    const struct tt_device_links *links = tt_device_room_links(on->room);
    const uint64_t nflows = 2 * (uint64_t)comm->nranks;
    const uint64_t end_bytes = (uint64_t)links->nslots * links->slot_bytes;
    const uint64_t pinned = on->hosts ? TT_DEVICE_BUDGET / (nflows * end_bytes) : UINT64_MAX;
    const uint64_t flows = (uint64_t)TT_DEVICE_MOST_FLOWS * (uint64_t)on->most_blocks / nflows;
    const uint64_t fit = flows < pinned ? flows : pinned;
    return fit < 1 ? 1 : fit < links->nchannels ? fit : links->nchannels;
}

static uint64_t parts_of(const struct tt_comm_core *comm, size_t nbytes)
{
    const uint64_t most = most_parts(comm), wanted = nbytes / PART_BYTES;
    return wanted < 1 ? 1 : wanted < most ? wanted : most;
}

/* A table while it is filled, or, with `table` NULL, counted. */
struct filling {
    struct tt_device_exchange *table;
    struct tt_relay_place *uses; /* [nflows]: of the flows; NULL: nobody wants to know */
    uint32_t nflows, ntransfers;
};

static void add_transfer(struct filling *to, const struct tt_device_transfer *transfer)
{
    if (to->table) tt_device_transfers(to->table)[to->ntransfers] = *transfer;
    to->ntransfers++;
}

/* The flows of the messages that were added from `first` on. */
static void add_flows(struct filling *to, const struct tt_comm_core *comm, int peer, bool outgoing,
                      uint32_t first, uint64_t nparts)
{
    const uint32_t nchannels = tt_device_room_links(comm->kernel->room)->nchannels;
    for (uint32_t part = 0; part < nparts; part++, to->nflows++) {
        /* The first part has a channel of its own: short messages do not meet collectives. */
        const uint32_t channel = part ? part - 1 : nchannels - 1;
        if (to->uses) to->uses[to->nflows] = (struct tt_relay_place){peer, (int)channel, outgoing};
        if (!to->table) continue;
        tt_device_flows(to->table)[to->nflows] = (struct tt_device_flow){
            .peer = (uint32_t)peer,
            .outgoing = outgoing,
            .end = peer == comm->rank
                       ? UINT32_MAX
                       : tt_device_end_at(nchannels, (uint32_t)peer, channel, outgoing),
            .part = part,
            .first = first,
            .number = to->ntransfers - first};
    }
}

/* Messages to, or from, a peer; to itself: both. */
static void add_peer(struct filling *to, const struct tt_comm_core *comm,
                     const struct tt_group_exchange *exchange, int peer, bool outgoing)
{
    const uint32_t first = to->ntransfers;
    uint64_t nparts = 0;
    int s = 0;
    for (int i = 0; i < exchange->ncalls; i++) {
        const struct tt_exchange_call *call = &exchange->calls[i];
        if (call->peer != peer || call->sends != outgoing) continue;
        struct tt_device_transfer transfer = {
            .data = call->data,
            .nbytes = call->nbytes,
            .nparts = tt_fabric_is_relayed(comm->fabric, peer) ? 1 : parts_of(comm, call->nbytes),
            .opened = outgoing && to->table && exchange->number
                          ? tt_ranges_opened(comm, call->data, call->nbytes, exchange->number, peer)
                          : TT_NOT_OPENED};
        if (peer == comm->rank) {
            while (exchange->calls[s].peer != peer || !exchange->calls[s].sends) s++;
            transfer.source = exchange->calls[s++].data;
        }
        add_transfer(to, &transfer);
        if (transfer.nparts > nparts) nparts = transfer.nparts;
    }
    add_flows(to, comm, peer, outgoing, first, nparts);
}

/* Peers by distance, so that not all ranks begin with the same. */
static void add_all(struct filling *to, const struct tt_comm_core *comm,
                    const struct tt_group_exchange *exchange)
{
    const int n = comm->nranks;
    add_peer(to, comm, exchange, comm->rank, false);
    for (int k = 1; k < n; k++) {
        add_peer(to, comm, exchange, (comm->rank + k) % n, true);
        add_peer(to, comm, exchange, (comm->rank + n - k) % n, false);
    }
}

static tt_status make_table(const struct tt_comm_core *comm, struct tt_group_exchange *exchange,
                            const struct filling *count)
{
    struct tt_kernel_part *on = comm->kernel;
    void *table;
    const size_t nbytes = sizeof(struct tt_device_exchange) +
                          count->nflows * sizeof(struct tt_device_flow) +
                          count->ntransfers * sizeof(struct tt_device_transfer);
    TT_TRY(tt_device_ring_take(&on->ring, tt_device_context(on->device), on->life.report, nbytes,
                               exchange->number, &table));
    if (exchange->number) exchange->held = tt_device_ring_hold(table);
    struct filling filling = {.table = table};
    *filling.table =
        (struct tt_device_exchange){.nflows = count->nflows, .ntransfers = count->ntransfers};
    add_all(&filling, comm, exchange);
    exchange->table = filling.table;
    return TT_OK;
}

tt_status tt_kernel_bind_exchange(const struct tt_pending_call *pending)
{
    struct tt_comm_core *comm = pending->comm;
    struct filling count = {.table = NULL};
    if (!comm->kernel->proxy) return TT_OK;
    add_all(&count, comm, pending->exchange);
    struct tt_relay_place *uses = malloc((count.nflows + 1) * sizeof *uses);
    if (!uses) return tt_fail(TT_ERR_SYSTEM, "out of memory for %u messages", count.nflows);
    struct filling filling = {.uses = uses};
    add_all(&filling, comm, pending->exchange);
    const tt_status status = tt_proxy_bind(comm->kernel->proxy, uses, (int)count.nflows);
    free(uses);
    return status;
}

/* ---- Launch --------------------------------------------------------------------------------- */

tt_status tt_kernel_fill_exchange(const struct tt_pending_call *pending,
                                  struct tt_device_call *call)
{
    const struct tt_comm_core *comm = pending->comm;
    struct tt_kernel_part *on = comm->kernel;
    const struct tt_device_links *links = tt_device_room_links(on->room);
    struct tt_group_exchange *exchange = pending->exchange;
    struct filling count = {.table = NULL};
    TT_TRY(tt_kernel_place_ends(on, exchange->number));
    add_all(&count, comm, exchange);
    const uint32_t nflows = count.nflows, most = links->nchannels - 1;
    uint32_t nblocks = nflows < most ? nflows : most;
    if (nflows > nblocks * TT_DEVICE_MOST_FLOWS)
        nblocks = (nflows + TT_DEVICE_MOST_FLOWS - 1) / TT_DEVICE_MOST_FLOWS;
    if (nblocks > (uint32_t)on->exchange_blocks) nblocks = (uint32_t)on->exchange_blocks;
    if (nflows > nblocks * TT_DEVICE_MOST_FLOWS)
        return tt_fail(TT_ERR_USAGE,
                       "a group exchanges messages with %u peers and directions; a rank's share of "
                       "its GPU, %u blocks, takes %u: use smaller groups, or fewer ranks on a GPU",
                       nflows, nblocks, nblocks * TT_DEVICE_MOST_FLOWS);
    TT_TRY(make_table(comm, exchange, &count));
    *call = (struct tt_device_call){.exchange = exchange->table,
                                    .links = *links,
                                    .state = on->state,
                                    .report = on->life.report,
                                    .reference_bytes = TT_REFERENCE_BYTES,
                                    .signature = TT_DEVICE_EXCHANGE_BIT,
                                    .nblocks = nblocks,
                                    .number = exchange->number};
    return TT_OK;
}
