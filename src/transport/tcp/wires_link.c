#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "transport/fabric.h"
#include "transport/wire.h"

static struct tt_wire_link *wire_link_of(struct tt_link *link)
{
    return link->end;
}

static struct tt_tcp *socket_of(const struct tt_wire_link *link, uint64_t number)
{
    return &link->wire->sockets[number % (uint64_t)link->wire->nsockets];
}

char *tt_wire_slot(struct tt_wire_link *link, uint64_t number)
{
    struct tt_wires *wires = link->wire->wires;
    const size_t nslots = wires->config.nslots, slot_bytes = wires->config.slot_bytes;
    if (!link->slots) {
        link->slots = aligned_alloc(TT_LINE, nslots * slot_bytes);
        if (!link->slots) {
            (void)!tt_fabric_fail(wires->fabric, TT_ERR_SYSTEM,
                                  "rank %d: out of memory for %zu slots of %zu bytes to rank %d",
                                  wires->fabric->rank, nslots, slot_bytes, link->wire->peer);
            return NULL;
        }
        wires->nbytes += nslots * slot_bytes;
    }
    return link->slots + number % nslots * slot_bytes;
}

/* ---- The sender's end ----------------------------------------------------------------------- */

/* Reads from all sockets what there is: credits among it. What goes wrong is the fabric's failure.
 */
static void look_for_credits(struct tt_wire *wire)
{
    for (int i = 0; i < wire->nsockets; i++) {
        (void)!tt_tcp_flush(&wire->sockets[i]);
        (void)!tt_tcp_read(&wire->sockets[i]);
    }
}

static bool has_room(struct tt_wire_link *link)
{
    struct tt_wire *wire = link->wire;
    if (wire->state == TT_WIRE_UP && link->next == link->allowed) look_for_credits(wire);
    if (wire->state == TT_WIRE_GONE) (void)!tt_wire_missed(wire);
    return wire->state == TT_WIRE_UP && link->next < link->allowed;
}

static void *wire_slot(struct tt_link *base, size_t nbytes)
{
    struct tt_wire_link *link = wire_link_of(base);
    (void)nbytes;
    return has_room(link) ? tt_wire_slot(link, link->next) : NULL;
}

/* What this rank has entered goes ahead of the first message that belongs to it. */
static void put_head(struct tt_outgoing *item, struct tt_wire *wire, const struct tt_frame *frame)
{
    struct tt_fabric *fabric = wire->wires->fabric;
    const uint64_t entered = tt_wire_entered(fabric);
    size_t n = 0;
    if (entered != wire->told) n = tt_wire_put_record(fabric, item->head, TT_RANK_HERE);
    wire->told = entered;
    memcpy(item->head + n, frame, sizeof *frame);
    item->head_nbytes = (uint32_t)(n + sizeof *frame);
}

static void send_message(struct tt_wire_link *link, const void *data, size_t nbytes,
                         uint64_t signature, bool reference)
{
    if (link->wire->state != TT_WIRE_UP) return; /* since its slot was given */
    struct tt_tcp *tcp = socket_of(link, link->next);
    struct tt_outgoing *item = tt_tcp_push(tcp); /* there is room: the link has credit */
    const struct tt_frame frame = {.kind = TT_FRAME_DATA,
                                   .channel = (uint8_t)link->channel,
                                   .nbytes = (uint32_t)nbytes,
                                   .number = (uint32_t)link->next,
                                   .signature = signature};
    put_head(item, link->wire, &frame);
    item->body = data;
    item->body_nbytes = (uint32_t)nbytes;
    if (reference) {
        item->link = link;
        link->references++;
    }
    link->next++;
    tt_count_more(&link->wire->wires->fabric->nmessages, 1);
    (void)!tt_tcp_flush(tcp);
}

static void wire_publish(struct tt_link *base, size_t nbytes, uint64_t signature)
{
    struct tt_wire_link *link = wire_link_of(base);
    tt_count_more(&link->wire->wires->fabric->nbytes_copied, nbytes);
    send_message(link, tt_wire_slot(link, link->next), nbytes, signature, false);
}

static bool wire_publish_direct(struct tt_link *base, const void *data, size_t nbytes,
                                uint64_t signature)
{
    struct tt_wire_link *link = wire_link_of(base);
    if (nbytes > base->slot_bytes || !has_room(link)) return false;
    tt_count_more(&link->wire->wires->fabric->nbytes_direct, nbytes);
    send_message(link, data, nbytes, signature, true);
    return true;
}

static bool wire_reaches(struct tt_link *base, const void *data, size_t nbytes)
{
    (void)data;
    return nbytes <= base->slot_bytes;
}

static bool wire_drained(struct tt_link *base)
{
    const struct tt_wire_link *link = wire_link_of(base);
    const struct tt_wire *wire = link->wire;
    bool returned = true;
    for (int i = 0; i < wire->nopen; i++) {
        if (link->references) (void)!tt_tcp_flush(&wire->sockets[i]);
        returned &= tt_tcp_returned(&wire->sockets[i]);
    }
    return link->references == 0 && returned;
}

static bool wire_flushed(struct tt_link *base)
{
    const struct tt_wire *wire = wire_link_of(base)->wire;
    bool flushed = true;
    for (int i = 0; wire->state == TT_WIRE_UP && i < wire->nsockets; i++)
        flushed &= tt_tcp_flush(&wire->sockets[i]) == TT_OK;
    return flushed;
}

/* The slot of a message that was published by reference is free. */
static void copy_to_slot(struct tt_outgoing *item)
{
    struct tt_wire_link *link = item->link;
    struct tt_frame frame;
    memcpy(&frame, item->head + item->head_nbytes - sizeof frame, sizeof frame);
    char *slot = tt_wire_slot(link, link->next - (uint32_t)((uint32_t)link->next - frame.number));
    if (slot) {
        memcpy(slot, item->body, item->body_nbytes);
        item->body = slot;
        item->link = NULL;
        link->references--;
    }
}

void tt_wires_give_back(struct tt_wires *wires)
{
    for (struct tt_wire *wire = wires->first; wire; wire = wire->following) {
        if (wire->by_rdma) tt_rdma_wire_give_back(wire->rdma);
        for (int i = 0; i < wire->nopen; i++) {
            struct tt_tcp *tcp = &wire->sockets[i];
            for (uint32_t k = 0; k < tcp->count; k++) {
                struct tt_outgoing *item = &tcp->queue[(tcp->first + k) % tcp->room];
                if (item->link) copy_to_slot(item);
                if (!item->link) continue;
                (void)!tt_wire_lost(tcp, ENOMEM); /* drops them all */
            }
        }
    }
}

/* ---- The receiver's end --------------------------------------------------------------------- */

static struct tt_arrival *first_arrival(struct tt_wire_link *link)
{
    return &link->arrivals[link->next % link->wire->wires->config.nslots];
}

/* What has come of a message so far moves to its slot, and the rest will go there. */
static void move_to_slot(struct tt_wire_link *link, struct tt_arrival *arrival)
{
    struct tt_tcp *tcp = socket_of(link, link->next);
    char *slot = tt_wire_slot(link, link->next);
    if (!slot) { /* out of memory, as the fabric knows: nothing more may come */
        (void)!tt_wire_lost(tcp, ENOMEM);
        return;
    }
    memcpy(slot, arrival->data, arrival->whole ? arrival->nbytes : tcp->got);
    arrival->data = slot;
    if (!arrival->whole) tcp->to = slot;
}

void tt_wire_expect(struct tt_wire_link *link, void *to, size_t nbytes, uint64_t signature)
{
    struct tt_arrival *arrival = first_arrival(link);
    if (link->expected && link->expected != to && arrival->data == link->expected)
        move_to_slot(link, arrival);
    link->expected = to;
    link->expected_nbytes = nbytes;
    link->expected_signature = signature;
}

static void wire_expect(struct tt_link *base, void *to, size_t nbytes, uint64_t signature)
{
    tt_wire_expect(wire_link_of(base), to, nbytes, signature);
}

static tt_status read_next(struct tt_wire_link *link)
{
    struct tt_wire *wire = link->wire;
    struct tt_tcp *tcp = socket_of(link, link->next);
    if (tcp->fd < 0) return tt_wire_missed(wire);
    if (tcp->count) (void)!tt_tcp_flush(tcp);
    return tt_tcp_read(tcp);
}

static tt_status wire_peek(struct tt_link *base, struct tt_message *message)
{
    struct tt_wire_link *link = wire_link_of(base);
    const struct tt_arrival *arrival = first_arrival(link);
    if (!arrival->whole) {
        const tt_status status = read_next(link);
        if (status < 0) return status;
        if (!arrival->whole) return TT_IN_PROGRESS;
    }
    *message = (struct tt_message){
        .data = arrival->data, .nbytes = arrival->nbytes, .signature = arrival->signature};
    return TT_OK;
}

static tt_status wire_fetch(struct tt_link *base, void *to, size_t offset, size_t nbytes)
{
    memcpy(to, first_arrival(wire_link_of(base))->data + offset, nbytes);
    return TT_OK;
}

static void wire_release(struct tt_link *base)
{
    struct tt_wire_link *link = wire_link_of(base);
    struct tt_wire *wire = link->wire;
    *first_arrival(link) = (struct tt_arrival){0};
    link->expected = NULL;
    link->next++;
    if (++wire->owed[link->channel] >= wire->wires->owed_max && wire->state == TT_WIRE_UP)
        (void)!tt_tcp_flush(&wire->sockets[0]);
}

const struct tt_link_ops tt_wire_link_ops = {
    .slot = wire_slot,
    .publish = wire_publish,
    .publish_direct = wire_publish_direct,
    .reaches = wire_reaches,
    .drained = wire_drained,
    .flushed = wire_flushed,
    .expect = wire_expect,
    .peek = wire_peek,
    .fetch = wire_fetch,
    .release = wire_release,
};

void tt_wire_link_init(struct tt_wire_link *link, struct tt_wire *wire, int channel, bool outgoing)
{
    *link = (struct tt_wire_link){
        .wire = wire, .channel = channel, .allowed = outgoing ? wire->wires->config.nslots : 0};
}
