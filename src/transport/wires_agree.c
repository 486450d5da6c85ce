/* Agrees with the peer on the transport that carries the data of a wire. When all sockets are
 * connected, both ranks try the transports that both have, the one with the least cost first. Each
 * rank sends OFFER over the first socket, connects with the peer's offer, and sends READY with the
 * result. If one of them failed, both try the next transport. */
#include <stdlib.h>
#include <string.h>

#include "base/config.h"
#include "transport/wires_internal.h"

/* The state of agreeing. Owned by its wire. */
struct tt_agreement {
    struct tt_room_offer mine[TT_MAX_TRANSPORTS]; /* being sent */
    struct tt_room_offer theirs;
    int their_room; /* the transport of `theirs`; -1: no offer has come */
    bool connected;
};

/* The transport of least cost that both ranks have and that was not tried; -1: none is left. */
static int next_candidate(const struct tt_wire *wire)
{
    const struct tt_wires *wires = wire->wires;
    const uint32_t left =
        wires->infos[wires->up->rank].rooms & wires->infos[wire->peer].rooms & ~wire->tried;
    int best = -1;
    for (int i = 0; i < tt_ntransports; i++)
        if (left >> i & 1 && (best < 0 || tt_transports[i]->cost < tt_transports[best]->cost))
            best = i;
    return best;
}

static tt_status fail_without(struct tt_wire *wire)
{
    const struct tt_wires *wires = wire->wires;
    char name[128], allowed[64], others[64];
    tt_room_name(wires->up, wire->peer, name, sizeof name);
    tt_transports_print(wires->config.allowed, allowed, sizeof allowed);
    tt_transports_print(~wires->config.allowed, others, sizeof others);
    return tt_room_fail(wires->up, TT_ERR_ARGUMENT,
                        "%s allows only %s between hosts, which rank %d and %s cannot "
                        "use (%s=INFO says why): allow %s too",
                        tt_config_name(TT_CONFIG_TRANSPORT), allowed, wires->up->rank, name,
                        tt_config_with_nccl() ? "NCCL_DEBUG" : "TUTTI_LOG", others);
}

static void send_frame(struct tt_wire *wire, enum tt_control_kind kind, uint32_t number,
                       const struct tt_room_offer *offer)
{
    struct tt_tcp *tcp = &wire->tcp.sockets[0];
    struct tt_outgoing *item = tt_tcp_push(tcp); /* there is room: nothing else was sent yet */
    const struct tt_frame frame = {.kind = (uint8_t)kind,
                                   .channel = (uint8_t)wire->candidate,
                                   .number = number,
                                   .nbytes = offer ? offer->nbytes : 0};
    memcpy(item->head, &frame, sizeof frame);
    item->head_nbytes = sizeof frame;
    item->body = offer ? (const char *)offer->bytes : NULL;
    item->body_nbytes = frame.nbytes;
    tt_ignore(tt_tcp_flush(tcp)); /* the next read reports an error */
}

static tt_status settle(struct tt_wire *wire)
{
    struct tt_wires *wires = wire->wires;
    wire->is_agreed = true;
    if (!wire->room->by_kernel)
        atomic_fetch_sub_explicit(&wires->nby_kernel, 1, memory_order_relaxed);
    wires->nbytes += wire->room->bytes(wire->end);
    return tt_wire_up(wire);
}

static tt_status make_agreement(struct tt_wire *wire)
{
    if (wire->agreement) return TT_OK;
    wire->agreement = calloc(1, sizeof *wire->agreement);
    if (!wire->agreement)
        return tt_room_fail(wire->wires->up, TT_ERR_SYSTEM, "out of memory for a wire to rank %d",
                            wire->peer);
    wire->agreement->their_room = -1;
    return TT_OK;
}

static tt_status try_next(struct tt_wire *wire);

static tt_status give_up(struct tt_wire *wire)
{
    if (wire->end) wire->room->destroy(wire->end);
    wire->end = NULL;
    wire->agreement->connected = false;
    return try_next(wire);
}

/* Both offers are known: connects, and sends READY. */
static tt_status connect_both(struct tt_wire *wire)
{
    struct tt_agreement *agreement = wire->agreement;
    if (!agreement->mine[wire->candidate].nbytes || !agreement->theirs.nbytes) return give_up(wire);
    agreement->connected = wire->room->connect(wire->end, &agreement->theirs) == TT_OK;
    send_frame(wire, TT_FRAME_READY, agreement->connected, NULL);
    return agreement->connected ? TT_OK : give_up(wire);
}

static tt_status try_next(struct tt_wire *wire)
{
    wire->candidate = next_candidate(wire);
    if (wire->candidate < 0) return fail_without(wire);
    wire->tried |= 1u << wire->candidate;
    wire->room = tt_transports[wire->candidate];
    void *self = wire->wires->uses[wire->candidate].self;
    if (wire->room->is_certain) {
        struct tt_room_offer none;
        TT_TRY(wire->room->offer(self, wire->peer, &wire->tcp, &wire->end, &none));
        return settle(wire);
    }
    TT_TRY(make_agreement(wire));
    struct tt_room_offer *mine = &wire->agreement->mine[wire->candidate];
    if (wire->room->offer(self, wire->peer, &wire->tcp, &wire->end, mine)) mine->nbytes = 0;
    send_frame(wire, TT_FRAME_OFFER, 0, mine);
    return wire->agreement->their_room == wire->candidate ? connect_both(wire) : TT_OK;
}

tt_status tt_wire_agree(struct tt_wire *wire)
{
    wire->state = TT_WIRE_AGREEING;
    return try_next(wire);
}

tt_status tt_wire_take_offer(struct tt_wire *wire, int room, const char *bytes, uint32_t nbytes)
{
    TT_TRY(make_agreement(wire));
    memcpy(wire->agreement->theirs.bytes, bytes, nbytes);
    wire->agreement->theirs.nbytes = nbytes;
    wire->agreement->their_room = room;
    return wire->state == TT_WIRE_AGREEING && wire->candidate == room ? connect_both(wire) : TT_OK;
}

/* The peer sends READY after its offer, so this rank has connected before, or has gone on to the
 * next transport. */
tt_status tt_wire_take_ready(struct tt_wire *wire, int room, bool ready)
{
    if (wire->state != TT_WIRE_AGREEING || wire->candidate != room) return TT_OK;
    return ready && wire->agreement->connected ? settle(wire) : give_up(wire);
}
