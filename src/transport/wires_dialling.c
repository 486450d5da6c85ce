/* Links to a peer whose wire is not connected yet. The first use of a link creates the wire. When
 * the wire is connected, its handles get the ops of the transport that carries the data. */
#include "transport/wires_internal.h"

static const struct tt_link_ops dialling_ops;

/* Whether the handle has the ops it keeps. A caller may have loaded these ones before it got them:
 * then each function hands the call on. */
static bool is_settled(const struct tt_link *link)
{
    return link->ops != &dialling_ops;
}

/* Creates the wire of a handle, and does bounded work for it. TT_OK: the handle has its final ops.
 */
static tt_status make(struct tt_link *link)
{
    if (is_settled(link)) return TT_OK;
    struct tt_wires *wires = link->end;
    const bool have = tt_wire_to(wires, link->peer) != NULL;
    const tt_status status =
        have ? tt_wires_progress(wires) : wires->client->check(wires->up->owner);
    if (status < 0) return status;
    return is_settled(link) ? TT_OK : TT_IN_PROGRESS;
}

static void *dialling_slot(struct tt_link *link, size_t nbytes)
{
    return make(link) == TT_OK ? link->ops->slot(link, nbytes) : NULL;
}

static void dialling_publish(struct tt_link *link, size_t nbytes, uint64_t signature)
{
    if (is_settled(link)) link->ops->publish(link, nbytes, signature);
}

static bool dialling_publish_direct(struct tt_link *link, const struct tt_memory *memory,
                                    const void *data, size_t nbytes, uint64_t signature)
{
    return make(link) == TT_OK && link->ops->publish_direct(link, memory, data, nbytes, signature);
}

static bool dialling_reaches(struct tt_link *link, const struct tt_memory *memory, const void *data,
                             size_t nbytes)
{
    return is_settled(link) && link->ops->reaches(link, memory, data, nbytes);
}

static bool dialling_drained(struct tt_link *link)
{
    return !is_settled(link) || link->ops->drained(link);
}

static bool dialling_flushed(struct tt_link *link)
{
    return !is_settled(link) || link->ops->flushed(link);
}

static bool dialling_delivered(struct tt_link *link)
{
    return !is_settled(link) || link->ops->delivered(link);
}

/* Until the wire is connected the hint is kept for the sockets; other transports ignore it. */
static void dialling_expect(struct tt_link *link, void *to, size_t nbytes, uint64_t signature)
{
    if (is_settled(link)) {
        link->ops->expect(link, to, nbytes, signature);
        return;
    }
    struct tt_wires *wires = link->end;
    const int channel = (int)(link - wires->links) % wires->up->nchannels;
    struct tt_wire *wire = to ? tt_wire_to(wires, link->peer) : wires->table[link->peer];
    if (wire) tt_tcp_expect(tt_tcp_link_at(&wire->tcp, false, channel), to, nbytes, signature);
}

static tt_status dialling_peek(struct tt_link *link, struct tt_message *message)
{
    TT_AWAIT(make(link));
    return link->ops->peek(link, message);
}

static tt_status dialling_fetch(struct tt_link *link, void *to, size_t offset, size_t nbytes)
{
    if (is_settled(link)) return link->ops->fetch(link, to, offset, nbytes);
    return tt_fail(TT_ERR_INTERNAL, "no message of rank %d to fetch: it is not connected yet",
                   link->peer);
}

static void dialling_release(struct tt_link *link)
{
    if (is_settled(link)) link->ops->release(link);
}

static const struct tt_link_ops dialling_ops = {
    .slot = dialling_slot,
    .publish = dialling_publish,
    .publish_direct = dialling_publish_direct,
    .reaches = dialling_reaches,
    .drained = dialling_drained,
    .flushed = dialling_flushed,
    .delivered = dialling_delivered,
    .expect = dialling_expect,
    .posts = &tt_no_posts,
    .gpus = &tt_no_gpus,
    .peek = dialling_peek,
    .fetch = dialling_fetch,
    .release = dialling_release,
};

void tt_wire_handles_init(struct tt_wires *wires, int peer)
{
    for (int c = 0; c < wires->up->nchannels; c++)
        *tt_wires_rx(wires, peer, c) = *tt_wires_tx(wires, peer, c) = (struct tt_link){
            .ops = &dialling_ops,
            .end = wires,
            .peer = peer,
            .slot_bytes = tt_room_slot_bytes(wires->up, wires->config.slot_bytes, c)};
}

static void settle(struct tt_link *handle, const struct tt_link *end)
{
    handle->ops = end->ops;
    handle->end = end->end;
}

void tt_wire_handles_settle(struct tt_wire *wire)
{
    if (wire->is_settled) return;
    wire->is_settled = true;
    const struct tt_transport *room = wire->is_agreed ? wire->room : &tt_tcp_transport;
    void *end = wire->is_agreed ? wire->end : &wire->tcp;
    if (room != &tt_tcp_transport) tt_tcp_end_refuse_data(&wire->tcp);
    for (int c = 0; c < wire->wires->up->nchannels; c++) {
        settle(tt_wires_rx(wire->wires, wire->peer, c), room->rx(end, c));
        settle(tt_wires_tx(wire->wires, wire->peer, c), room->tx(end, c));
    }
}
