/* Makes the bridges between kernels' ends and the links with other hosts, and drives them. */
#include "carrier/kernel/bridge_internal.h"

#include <stdlib.h>

/* Words that kernels and the host write do not share a cache line. */
enum { WORD_BYTES = 128 };

/* ---- Creation ------------------------------------------------------------------------------- */

static size_t round_up(size_t nbytes)
{
    return (nbytes + WORD_BYTES - 1) / WORD_BYTES * WORD_BYTES;
}

static size_t notes_bytes(const struct tt_bridge_shape *shape)
{
    return round_up(shape->nslots * sizeof(struct tt_device_note));
}

size_t tt_bridge_word_bytes(const struct tt_bridge_shape *shape)
{
    return 2 * WORD_BYTES + notes_bytes(shape);
}

size_t tt_bridge_slot_bytes(const struct tt_bridge_shape *shape)
{
    return round_up((size_t)shape->nslots * shape->slot_bytes);
}

size_t tt_bridge_bytes(const struct tt_bridge_shape *shape)
{
    return tt_bridge_word_bytes(shape) + tt_bridge_slot_bytes(shape);
}

tt_status tt_bridges_create(struct tt_bridges **out, const struct tt_bridge_shape *shape,
                            const struct tt_bridge_calls *calls, void *arg)
{
    struct tt_bridges *bridges = calloc(1, sizeof *bridges);
    struct tt_bridge_peer **peers = calloc((size_t)shape->nranks, sizeof *peers);
    if (!bridges || !peers) {
        free(peers);
        free(bridges);
        return tt_fail(TT_ERR_SYSTEM, "out of memory for bridges to %d ranks", shape->nranks);
    }
    *bridges = (struct tt_bridges){.shape = *shape, .calls = calls, .arg = arg, .peers = peers};
    *out = bridges;
    return TT_OK;
}

void tt_bridges_destroy(struct tt_bridges *bridges)
{
    if (!bridges) return;
    while (bridges->first) {
        struct tt_bridge_peer *peer = bridges->first;
        bridges->first = peer->next;
        free(peer->copy);
        free(peer->ends);
        free(peer);
    }
    free(bridges->peers);
    free(bridges);
}

/* ---- Binding -------------------------------------------------------------------------------- */

bool tt_bridges_has(const struct tt_bridges *bridges, int peer, int channel, bool outgoing)
{
    const struct tt_bridge_peer *of = bridges->peers[peer];
    return of && tt_bridge_end_of(of, channel, outgoing)->is_bound;
}

static tt_status add_peer(struct tt_bridges *bridges, int rank, const struct tt_bridge_pair *pair)
{
    const size_t nends = 2 * (size_t)bridges->shape.nchannels;
    struct tt_bridge_peer *peer = calloc(1, sizeof *peer);
    struct tt_bridge_end *ends = calloc(nends, sizeof *ends);
    if (!peer || !ends) {
        free(ends);
        free(peer);
        return tt_fail(TT_ERR_SYSTEM, "out of memory for the bridge to rank %d", rank);
    }
    for (size_t i = 0; i < nends; i++)
        ends[i] = (struct tt_bridge_end){.channel = (uint16_t)(i / 2), .outgoing = i % 2};
    *peer = (struct tt_bridge_peer){
        .rank = rank, .pair = *pair, .ends = ends, .may_send = true, .next = bridges->first};
    bridges->first = bridges->peers[rank] = peer;
    return TT_OK;
}

void tt_bridges_lay(const struct tt_bridge_shape *shape, bool outgoing, void *memory, void *slots,
                    struct tt_device_end *end)
{
    char *at = memory;
    *end = (struct tt_device_end){.slots = slots ? slots : at + tt_bridge_word_bytes(shape),
                                  .head = (uint64_t *)at,
                                  .tail = (uint64_t *)(at + WORD_BYTES),
                                  .notes = (struct tt_device_note *)(at + 2 * WORD_BYTES),
                                  .outgoing = outgoing,
                                  .system = 1,
                                  .known_tail = outgoing ? 0 - shape->nslots : 0};
}

tt_status tt_bridges_bind(struct tt_bridges *bridges, int rank, int channel,
                          const struct tt_bridge_pair *pair, const struct tt_device_end *laid,
                          bool in_gpu)
{
    if (!bridges->peers[rank]) TT_TRY(add_peer(bridges, rank, pair));
    struct tt_bridge_peer *peer = bridges->peers[rank];
    struct tt_bridge_end *end = tt_bridge_end_of(peer, channel, laid->outgoing);
    end->head = laid->head;
    end->tail = laid->tail;
    end->notes = laid->notes;
    end->slots = laid->slots;
    end->in_gpu = in_gpu;
    end->is_bound = true;
    end->next = peer->bound;
    peer->bound = end;
    if (end->outgoing) tt_bridge_store_tail(bridges, end);
    return TT_OK;
}

/* ---- All peers ------------------------------------------------------------------------------ */

tt_status tt_bridges_move(struct tt_bridges *bridges)
{
    tt_status result = TT_IN_PROGRESS;
    for (struct tt_bridge_peer *peer = bridges->first; peer; peer = peer->next) {
        const tt_status received = tt_bridges_receive(bridges, peer);
        if (received < 0) return received;
        const tt_status sent = tt_bridges_send(bridges, peer);
        if (sent < 0) return sent;
        if (!received || !sent) result = TT_OK;
    }
    return result;
}

/* Whatever becomes of this process. */
static bool has_left(const struct tt_bridge_pair *pair)
{
    return pair->tx->ops->delivered(pair->tx) && pair->rx->ops->flushed(pair->rx);
}

bool tt_bridges_have_work(struct tt_bridges *bridges)
{
    for (const struct tt_bridge_peer *peer = bridges->first; peer; peer = peer->next) {
        if (tt_bridge_needs_nothing(bridges, peer)) continue;
        if (!has_left(&peer->pair)) return true;
        for (const struct tt_bridge_end *end = peer->bound; end; end = end->next)
            if (end->outgoing ? tt_bridge_unsent(bridges, end) > 0 : tt_bridge_must_tell(end))
                return true;
    }
    return false;
}

void tt_bridges_mark(struct tt_bridges *bridges, enum tt_bridge_mark mark)
{
    for (struct tt_bridge_peer *peer = bridges->first; peer; peer = peer->next) {
        peer->marks[mark] = (struct tt_bridge_marked){.waits = true};
        for (struct tt_bridge_end *end = peer->bound; end; end = end->next)
            end->marked[mark] = end->outgoing
                                    ? end->moved + tt_bridge_unsent(bridges, end)
                                    : (uint32_t)__atomic_load_n(end->tail, __ATOMIC_ACQUIRE);
    }
}

/* Whether what was marked is in frames. Counts wrap. A first credit, for which a peer may have no
 * room before it makes a call, is of no call. */
static bool is_framed(const struct tt_bridge_peer *peer, enum tt_bridge_mark mark)
{
    for (const struct tt_bridge_end *end = peer->bound; end; end = end->next) {
        const uint32_t n = end->outgoing ? end->moved : end->told;
        const bool counts = end->outgoing || end->has_credit;
        if (counts && n - end->marked[mark] > UINT32_MAX / 2) return false;
    }
    return true;
}

/* While frame follows frame a link is never seen empty: but a frame has left its slot when as
 * many more are given to the link as a link has slots at most. */
static bool is_on_its_way(struct tt_bridge_peer *peer, enum tt_bridge_mark mark)
{
    struct tt_bridge_marked *at = &peer->marks[mark];
    if (!at->waits) return true;
    if (!at->is_framed && !is_framed(peer, mark)) return false;
    if (!at->is_framed) at->nframes = peer->nframes;
    at->is_framed = true;
    at->waits = peer->nframes - at->nframes < TT_MAX_SLOTS && !has_left(&peer->pair);
    return !at->waits;
}

bool tt_bridges_have_sent(struct tt_bridges *bridges, enum tt_bridge_mark mark)
{
    for (struct tt_bridge_peer *peer = bridges->first; peer; peer = peer->next)
        if (!tt_bridge_needs_nothing(bridges, peer) && !is_on_its_way(peer, mark)) return false;
    return true;
}

void tt_bridges_end(struct tt_bridges *bridges)
{
    bridges->ends = true;
}

/* Of a peer that has made no call the link may never have room for saying the end. */
bool tt_bridges_has_ended(struct tt_bridges *bridges, int peer)
{
    const struct tt_bridge_peer *of = bridges->peers[peer];
    bool is_used = of && of->has_moved;
    for (const struct tt_bridge_end *end = of ? of->bound : NULL; end; end = end->next)
        is_used = is_used || (end->outgoing && tt_bridge_unsent(bridges, end));
    return !is_used || of->has_said_end || tt_bridge_needs_nothing(bridges, of);
}
