/* Links over a wire's queue pairs. Message s of a link goes into slot s mod nslots of the receiver,
 * over route s mod nroutes; the immediate says channel and slot. Credits go back in the headers of
 * the other direction, or, when half of the slots are due, as a write of their own. */
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "transport/rdma/rdma_internal.h"

enum { BATCH = 16 };

static struct tt_rdma_link *link_of(struct tt_link *link)
{
    return link->end;
}

static uint64_t slot_of(const struct tt_rdma_link *link)
{
    return link->next % link->wire->rdma->nslots;
}

/* Credits go over that of their channel's number. */
struct tt_rdma_route *tt_rdma_route_of(const struct tt_rdma_wire *wire, uint64_t number)
{
    return wire->used[number % (uint64_t)wire->nroutes];
}

static char *payload_of(const struct tt_rdma_link *link, bool outgoing)
{
    return link->wire->memory + tt_rdma_slot_at(link->wire, outgoing, link->channel, slot_of(link));
}

static uint32_t key_of(const struct tt_rdma_route *route, struct ibv_mr *const *regions)
{
    return regions[route->port->device - route->wire->rdma->devices]->lkey;
}

/* ---- Posting -------------------------------------------------------------------------------- */

tt_status tt_rdma_post_receives(struct tt_rdma_route *route, int n)
{
    while (n > 0) {
        struct ibv_recv_wr requests[BATCH] = {0}, *bad;
        const int now = n < BATCH ? n : BATCH;
        for (int i = 0; i < now; i++) {
            requests[i].wr_id = tt_rdma_work_id(TT_RDMA_RECEIVE, 0, 0);
            requests[i].next = i + 1 < now ? &requests[i + 1] : NULL;
        }
        const int error = ibv_post_recv(route->qp, requests, &bad);
        if (error) {
            errno = error;
            char what[128];
            snprintf(what, sizeof what, "receive requests are refused: %m");
            return tt_rdma_fail_route(route, what);
        }
        n -= now;
    }
    return TT_OK;
}

bool tt_rdma_post(struct tt_rdma_route *route, struct ibv_send_wr *request)
{
    struct tt_rdma_wire *wire = route->wire;
    struct ibv_send_wr *bad;
    if (wire->failed || wire->quiet) return false;
    const int error = ibv_post_send(route->qp, request, &bad);
    if (!error) {
        wire->nposted++;
        return true;
    }
    errno = error;
    char what[128];
    size_t nbytes = 0;
    for (int i = 0; i < request->num_sge; i++) nbytes += request->sg_list[i].length;
    snprintf(what, sizeof what, "a %s of %zu bytes is refused: %m",
             request->opcode == IBV_WR_RDMA_READ ? "read" : "write", nbytes);
    wire->failed = tt_rdma_fail_route(route, what);
    return false;
}

/* A write to `offset` of the peer's memory. */
static void post_write(struct tt_rdma_route *route, struct ibv_send_wr *request, size_t offset)
{
    size_t nbytes = 0;
    for (int i = 0; i < request->num_sge; i++) nbytes += request->sg_list[i].length;
    request->send_flags = IBV_SEND_SIGNALED | (nbytes <= route->inline_bytes ? IBV_SEND_INLINE : 0);
    request->wr.rdma.remote_addr = route->wire->their_memory + offset;
    request->wr.rdma.rkey = route->theirs.key;
    tt_rdma_post(route, request);
}

/* Releases that the sender has not been told. */
static uint64_t untold(const struct tt_rdma_link *rx)
{
    return rx->next - rx->told;
}

/* Writes the count of releases to the sender. Always over the same route: an older count must not
 * overtake a newer one. */
static void tell(struct tt_rdma_link *rx)
{
    struct tt_rdma_wire *wire = rx->wire;
    struct tt_rdma_route *route = tt_rdma_route_of(wire, (uint64_t)rx->channel);
    char *told = wire->memory + tt_rdma_told_at(wire, rx->channel);
    memcpy(told, &rx->next, sizeof rx->next);
    struct ibv_sge piece = {
        .addr = (uintptr_t)told, .length = sizeof rx->next, .lkey = key_of(route, wire->regions)};
    struct ibv_send_wr request = {.wr_id = tt_rdma_work_id(TT_RDMA_CREDIT, rx->channel, 0),
                                  .sg_list = &piece,
                                  .num_sge = 1,
                                  .opcode = IBV_WR_RDMA_WRITE};
    post_write(route, &request, tt_rdma_credit_at(rx->channel));
    rx->told = rx->next;
    rx->ntold++;
}

/* Whether half of the slots are due; with fewer due the sender still has slots. */
static bool is_due(const struct tt_rdma_link *rx)
{
    return untold(rx) >= rx->wire->rdma->nslots / 2;
}

/* At most nslots such writes are in flight, and the queues have room for that many. */
static void tell_if_due(struct tt_rdma_link *rx)
{
    if (is_due(rx) && rx->ntold < rx->wire->rdma->nslots) tell(rx);
}

/* ---- Completions ---------------------------------------------------------------------------- */

static void on_sent(struct tt_rdma_link *tx, uint64_t slot)
{
    tx->slots &= ~((uint64_t)1 << slot);
    if (!tx->memory[slot]) return;
    tx->memory[slot]->nsends--;
    tx->memory[slot] = NULL;
    tx->ndirect--;
}

static void on_done(struct tt_rdma_route *route, uint64_t id)
{
    struct tt_rdma_wire *wire = route->wire;
    const uint64_t kind = id >> 16, channel = id >> 8 & 255, slot = id & 255;
    wire->ncompleted++;
    if (kind == TT_RDMA_CREDIT) {
        wire->rx[channel].ntold--;
        tell_if_due(&wire->rx[channel]);
    } else if (kind == TT_RDMA_DATA) {
        on_sent(&wire->tx[channel], slot);
    }
}

/* Takes over a newer count of the receiver's releases. */
static void learn(struct tt_rdma_link *tx, uint64_t taken)
{
    if (taken > tx->taken && taken <= tx->next) tx->taken = taken;
}

/* A message has come. The immediate is checked, as all data from outside. The credits of the
 * message count at once: this rank may wait for them as a sender before it looks at the message. */
static tt_status on_received(struct tt_rdma_route *route, uint32_t immediate)
{
    struct tt_rdma_wire *wire = route->wire;
    const uint32_t channel = immediate >> 8, slot = immediate & 255;
    struct tt_rdma_header header;
    if (channel >= (uint32_t)wire->nchannels || slot >= wire->rdma->nslots ||
        wire->rx[channel].slots >> slot & 1)
        return tt_rdma_fail_route(route, "a message came where none was expected");
    wire->rx[channel].slots |= (uint64_t)1 << slot;
    wire->nreceived++;
    memcpy(&header,
           wire->memory + tt_rdma_slot_at(wire, false, (int)channel, slot) - TT_RDMA_HEADER,
           sizeof header);
    learn(&wire->tx[channel], header.taken);
    return TT_OK;
}

/* Nobody waits for what has failed. */
static void on_failed(struct tt_rdma_route *route, const struct ibv_wc *done)
{
    tt_ignore(tt_rdma_fail_completion(route, done));
    if (done->wr_id >> 16 != TT_RDMA_RECEIVE) route->wire->ncompleted++;
}

tt_status tt_rdma_poll(struct tt_rdma_route *route)
{
    struct tt_rdma_wire *wire = route->wire;
    struct ibv_wc done[BATCH];
    int n;
    do {
        int nreceived = 0;
        n = ibv_poll_cq(route->cq, BATCH, done);
        if (n < 0) return tt_rdma_fail_route(route, "its completion queue cannot be read");
        for (int i = 0; i < n; i++) {
            if (done[i].status != IBV_WC_SUCCESS) {
                on_failed(route, &done[i]);
            } else if (done[i].wr_id >> 16 == TT_RDMA_RECEIVE) {
                tt_ignore(on_received(route, ntohl(done[i].imm_data))); /* wire->failed */
                nreceived++;
            } else {
                on_done(route, done[i].wr_id);
            }
        }
        if (wire->failed) return wire->failed;
        TT_TRY(tt_rdma_post_receives(route, nreceived));
    } while (n == BATCH);
    return wire->failed;
}

tt_status tt_rdma_poll_all(struct tt_rdma_wire *wire)
{
    for (int i = 0; i < wire->nroutes; i++) TT_TRY(tt_rdma_poll(wire->used[i]));
    return TT_OK;
}

/* ---- Sender --------------------------------------------------------------------------------- */

tt_status tt_rdma_missed(const struct tt_rdma_wire *wire)
{
    const struct tt_room_context *context = wire->rdma->context;
    return context->events->missed(context->owner, wire->peer);
}

/* Takes over the count that the receiver's device has written. */
static void read_credit(struct tt_rdma_link *tx)
{
    const _Atomic uint64_t *credit = (void *)(tx->wire->memory + tt_rdma_credit_at(tx->channel));
    learn(tx, atomic_load_explicit(credit, memory_order_acquire)); /* written by the device */
}

/* The slot of the next message must be free on both sides. */
static bool has_room(struct tt_rdma_link *tx)
{
    struct tt_rdma_wire *wire = tx->wire;
    const uint64_t nslots = wire->rdma->nslots, bit = (uint64_t)1 << slot_of(tx);
    if (wire->lost) tt_ignore(tt_rdma_missed(wire));
    if (wire->lost || wire->failed) return false;
    if (tx->next - tx->taken == nslots) read_credit(tx);
    if ((tx->next - tx->taken == nslots || tx->slots & bit) && tt_rdma_poll_all(wire)) return false;
    return tx->next - tx->taken < nslots && !(tx->slots & bit);
}

static void *rdma_slot(struct tt_link *link, size_t nbytes)
{
    struct tt_rdma_link *tx = link_of(link);
    (void)nbytes;
    return has_room(tx) ? payload_of(tx, true) : NULL;
}

/* Sends a header and a payload: the payload in the slot, or, by reference, the one in `memory`. */
static void publish(struct tt_rdma_link *tx, const void *data, size_t nbytes, uint64_t signature,
                    struct tt_rdma_memory *memory)
{
    struct tt_rdma_wire *wire = tx->wire;
    if (wire->lost) return; /* the wire was lost after its slot was given */
    struct tt_rdma_link *rx = &wire->rx[tx->channel];
    struct tt_rdma_route *route = tt_rdma_route_of(wire, tx->next);
    const uint64_t slot = slot_of(tx);
    char *header = payload_of(tx, true) - TT_RDMA_HEADER;
    const struct tt_rdma_header values = {
        .signature = signature, .nbytes = nbytes, .number = tx->next, .taken = rx->next};
    memcpy(header, &values, sizeof values);
    struct ibv_sge pieces[2] = {
        {.addr = (uintptr_t)header,
         .length = (uint32_t)(TT_RDMA_HEADER + (memory ? 0 : nbytes)),
         .lkey = key_of(route, wire->regions)},
        {.addr = (uintptr_t)data, .length = (uint32_t)nbytes},
    };
    if (memory) pieces[1].lkey = key_of(route, memory->regions);
    struct ibv_send_wr request = {
        .wr_id = tt_rdma_work_id(TT_RDMA_DATA, tx->channel, slot),
        .sg_list = pieces,
        .num_sge = memory ? 2 : 1,
        .opcode = IBV_WR_RDMA_WRITE_WITH_IMM,
        .imm_data = htonl((uint32_t)tx->channel << 8 | (uint32_t)slot),
    };
    post_write(route, &request, tt_rdma_slot_at(wire, false, tx->channel, slot) - TT_RDMA_HEADER);
    rx->told = rx->next;
    tx->slots |= (uint64_t)1 << slot;
    tx->memory[slot] = memory;
    tx->next++;
    tt_count_more(wire->rdma->context->nmessages, 1);
}

static void rdma_publish(struct tt_link *link, size_t nbytes, uint64_t signature)
{
    struct tt_rdma_link *tx = link_of(link);
    tt_count_more(tx->wire->rdma->context->nbytes_copied, nbytes);
    publish(tx, NULL, nbytes, signature, NULL);
}

static bool rdma_reaches(struct tt_link *link, const struct tt_memory *buffer, const void *data,
                         size_t nbytes)
{
    (void)buffer;
    return nbytes <= link->slot_bytes &&
           tt_rdma_memory_find(link_of(link)->wire->rdma, data, nbytes) != NULL;
}

static bool rdma_publish_direct(struct tt_link *link, const struct tt_memory *buffer,
                                const void *data, size_t nbytes, uint64_t signature)
{
    (void)buffer;
    struct tt_rdma_link *tx = link_of(link);
    if (nbytes > link->slot_bytes || !has_room(tx)) return false;
    struct tt_rdma_memory *memory = tt_rdma_memory_find(tx->wire->rdma, data, nbytes);
    if (!memory) return false;
    memory->nsends++;
    tx->ndirect++;
    tt_count_more(tx->wire->rdma->context->nbytes_direct, nbytes);
    publish(tx, data, nbytes, signature, memory);
    return true;
}

/* A message that is sent is in the receiver's memory: the caller's buffer is free. */
static bool rdma_drained(struct tt_link *link)
{
    const struct tt_rdma_link *tx = link_of(link);
    return !tx->ndirect || tx->wire->lost || (!tt_rdma_poll_all(tx->wire) && !tx->ndirect);
}

/* ---- Receiver ------------------------------------------------------------------------------- */

/* Takes the header of the first message, which has come: it is data from outside. */
static tt_status look(struct tt_rdma_link *rx)
{
    struct tt_rdma_wire *wire = rx->wire;
    struct tt_rdma_header header;
    memcpy(&header, payload_of(rx, false) - TT_RDMA_HEADER, sizeof header);
    if (header.number != rx->next || header.nbytes > rx->link.slot_bytes) {
        TT_TRY(tt_rdma_fail_route(tt_rdma_route_of(wire, rx->next),
                                  "a message is not what it should be"));
        return wire->lost ? tt_rdma_missed(wire) : TT_IN_PROGRESS; /* the wire is quiet */
    }
    rx->first = header;
    rx->nlooked = rx->next + 1;
    return TT_OK;
}

static tt_status rdma_peek(struct tt_link *link, struct tt_message *message)
{
    struct tt_rdma_link *rx = link_of(link);
    struct tt_rdma_wire *wire = rx->wire;
    const uint64_t bit = (uint64_t)1 << slot_of(rx);
    if (!(rx->slots & bit)) {
        TT_TRY(tt_rdma_poll(tt_rdma_route_of(wire, rx->next)));
        if (!(rx->slots & bit)) return wire->lost ? tt_rdma_missed(wire) : TT_IN_PROGRESS;
    }
    if (rx->nlooked == rx->next) TT_AWAIT(look(rx));
    *message = (struct tt_message){.data = payload_of(rx, false),
                                   .nbytes = (size_t)rx->first.nbytes,
                                   .signature = rx->first.signature};
    return TT_OK;
}

static tt_status rdma_fetch(struct tt_link *link, void *to, size_t offset, size_t nbytes)
{
    struct tt_message message;
    TT_AWAIT(rdma_peek(link, &message));
    memcpy(to, (const char *)message.data + offset, nbytes);
    return TT_OK;
}

static void rdma_release(struct tt_link *link)
{
    struct tt_rdma_link *rx = link_of(link);
    rx->slots &= ~((uint64_t)1 << slot_of(rx));
    rx->nlooked = ++rx->next;
    tell_if_due(rx);
}

/* The device delivers posted writes by itself, credits included. */
static bool rdma_flushed(struct tt_link *link)
{
    struct tt_rdma_link *end = link_of(link);
    return end->outgoing || end->wire->failed || end->wire->quiet || !is_due(end);
}

/* The device drops what it has not sent when the process ends. A write that is complete is in the
 * peer's memory. Of a wire that has failed nobody awaits more. */
static bool rdma_delivered(struct tt_link *link)
{
    const struct tt_rdma_link *tx = link_of(link);
    if (tx->slots && !tx->wire->failed && !tx->wire->quiet) tt_ignore(tt_rdma_poll_all(tx->wire));
    return !tx->slots || tx->wire->failed || tx->wire->quiet;
}

/* The receiver reads messages in their slots. */
static void rdma_expect(struct tt_link *link, void *to, size_t nbytes, uint64_t signature)
{
    (void)link, (void)to, (void)nbytes, (void)signature;
}

static const struct tt_link_ops rdma_ops = {
    .slot = rdma_slot,
    .publish = rdma_publish,
    .publish_direct = rdma_publish_direct,
    .reaches = rdma_reaches,
    .drained = rdma_drained,
    .flushed = rdma_flushed,
    .delivered = rdma_delivered,
    .expect = rdma_expect,
    .posts = &tt_no_posts,
    .gpus = &tt_rdma_gpus,
    .peek = rdma_peek,
    .fetch = rdma_fetch,
    .release = rdma_release,
};

void tt_rdma_link_init(struct tt_rdma_link *link, struct tt_rdma_wire *wire, int channel,
                       bool outgoing)
{
    *link = (struct tt_rdma_link){
        .link = {.ops = &rdma_ops,
                 .end = link,
                 .peer = wire->peer,
                 .slot_bytes =
                     tt_room_slot_bytes(wire->rdma->context, wire->rdma->slot_bytes, channel)},
        .wire = wire,
        .channel = channel,
        .outgoing = outgoing,
    };
}
