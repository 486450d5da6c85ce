/* Agreeing on RDMA: once the sockets of a wire stand, both ranks send an offer of queue pairs over
 * the first of them, connect with the other's, and say whether that worked. If it did not on
 * either side, data goes over the sockets. */
#include <stdlib.h>
#include <string.h>

#include "transport/fabric.h"
#include "transport/wire.h"

/* Owned by its wire, which it serves until that is up. */
struct tt_agreement {
    struct tt_rdma_offer mine, theirs; /* mine is being sent */
    bool they_offered, connected;
};

/* Where data may go over RDMA only, the sockets will not do. */
static tt_status settle(struct tt_wire *wire, bool by_rdma)
{
    struct tt_wires *wires = wire->wires;
    char name[128];
    wire->by_rdma = by_rdma;
    if (by_rdma) {
        atomic_fetch_sub_explicit(&wires->nby_sockets, 1, memory_order_relaxed);
        wires->nbytes += tt_rdma_wire_bytes(wire->rdma);
    } else {
        tt_rdma_wire_destroy(wire->rdma);
        wire->rdma = NULL;
    }
    if (by_rdma || wires->config.allow_tcp) return tt_wire_up(wire);
    tt_fabric_name_rank(wires->fabric, wire->peer, name, sizeof name);
    return tt_fabric_fail(wires->fabric, TT_ERR_ARGUMENT,
                          "TUTTI_TRANSPORT does not allow tcp, and rank %d and %s cannot use RDMA "
                          "(TUTTI_LOG=INFO says why)",
                          wires->fabric->rank, name);
}

static void send_frame(struct tt_wire *wire, enum tt_control_kind kind, uint32_t number,
                       const struct tt_rdma_offer *offer)
{
    struct tt_tcp *tcp = &wire->tcp.sockets[0];
    struct tt_outgoing *item = tt_tcp_push(tcp); /* there is room: nothing else was sent yet */
    const struct tt_frame frame = {
        .kind = (uint8_t)kind, .number = number, .nbytes = offer ? offer->nbytes : 0};
    memcpy(item->head, &frame, sizeof frame);
    item->head_nbytes = sizeof frame;
    item->body = offer ? (const char *)offer->bytes : NULL;
    item->body_nbytes = frame.nbytes;
    (void)!tt_tcp_flush(tcp); /* errors show when reading */
}

/* Both offers are there. */
static tt_status connect_both(struct tt_wire *wire)
{
    struct tt_agreement *agreement = wire->agreement;
    if (!agreement->mine.nbytes || !agreement->theirs.nbytes) return settle(wire, false);
    agreement->connected = tt_rdma_wire_connect(wire->rdma, &agreement->theirs) == TT_OK;
    send_frame(wire, TT_FRAME_READY, agreement->connected, NULL);
    return agreement->connected ? TT_OK : settle(wire, false);
}

static tt_status make_agreement(struct tt_wire *wire)
{
    if (!wire->agreement) wire->agreement = calloc(1, sizeof *wire->agreement);
    return wire->agreement ? TT_OK
                           : tt_fabric_fail(wire->wires->fabric, TT_ERR_SYSTEM,
                                            "out of memory for a wire to rank %d", wire->peer);
}

tt_status tt_wire_agree(struct tt_wire *wire)
{
    struct tt_wires *wires = wire->wires;
    if (!wires->rdma || !wires->infos[wire->peer].rdma) return settle(wire, false);
    wire->state = TT_WIRE_AGREEING;
    TT_TRY(make_agreement(wire));
    struct tt_rdma_offer *mine = &wire->agreement->mine;
    if (tt_rdma_wire_create(&wire->rdma, wires->rdma, wire->peer, mine)) mine->nbytes = 0;
    send_frame(wire, TT_FRAME_OFFER, 0, mine);
    return wire->agreement->they_offered ? connect_both(wire) : TT_OK;
}

tt_status tt_wire_take_offer(struct tt_wire *wire, const char *bytes, uint32_t nbytes)
{
    TT_TRY(make_agreement(wire));
    memcpy(wire->agreement->theirs.bytes, bytes, nbytes);
    wire->agreement->theirs.nbytes = nbytes;
    wire->agreement->they_offered = true;
    return wire->state == TT_WIRE_AGREEING ? connect_both(wire) : TT_OK;
}

/* This rank has connected by then, or has settled for the sockets: their word follows their offer,
 * unless they are not what they should be. */
tt_status tt_wire_take_ready(struct tt_wire *wire, bool ready)
{
    return wire->state == TT_WIRE_AGREEING ? settle(wire, ready && wire->agreement->connected)
                                           : TT_OK;
}
