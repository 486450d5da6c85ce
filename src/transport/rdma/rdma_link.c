/* Links over a wire's queue pairs. Message s of a link goes into slot s mod nslots of the receiver,
 * over route s mod nroutes; the immediate says channel and slot. Credits go back in the headers of
 * the other direction, or, when half of the slots are due, as a write of their own. */
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "transport/rdma/rdma_internal.h"

enum { WORK_DATA, WORK_CREDIT, WORK_RECEIVE };
enum { BATCH = 16 };

static struct tt_rdma_link *link_of(struct tt_link *link)
{
    return link->end;
}

static uint64_t work_id(int kind, int channel, uint64_t slot)
{
    return (uint64_t)kind << 16 | (uint64_t)channel << 8 | slot;
}

static uint64_t slot_of(const struct tt_rdma_link *link)
{
    return link->next % link->wire->rdma->nslots;
}

/* The route that carries a message; credits go over that of their channel's number. */
static struct tt_rdma_route *route_of(const struct tt_rdma_wire *wire, uint64_t number)
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
            requests[i].wr_id = work_id(WORK_RECEIVE, 0, 0);
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

/* A write to `offset` of the peer's memory. */
static void post(struct tt_rdma_route *route, struct ibv_send_wr *request, size_t offset)
{
    struct tt_rdma_wire *wire = route->wire;
    struct ibv_send_wr *bad;
    size_t nbytes = 0;
    for (int i = 0; i < request->num_sge; i++) nbytes += request->sg_list[i].length;
    request->send_flags = IBV_SEND_SIGNALED | (nbytes <= route->inline_bytes ? IBV_SEND_INLINE : 0);
    request->wr.rdma.remote_addr = wire->their_memory + offset;
    request->wr.rdma.rkey = route->theirs.key;
    if (wire->failed || wire->quiet) return;
    const int error = ibv_post_send(route->qp, request, &bad);
    if (!error) {
        wire->nposted++;
        return;
    }
    errno = error;
    char what[128];
    snprintf(what, sizeof what, "a write of %zu bytes is refused: %m", nbytes);
    wire->failed = tt_rdma_fail_route(route, what);
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
    struct tt_rdma_route *route = route_of(wire, (uint64_t)rx->channel);
    char *told = wire->memory + tt_rdma_told_at(wire, rx->channel);
    memcpy(told, &rx->next, sizeof rx->next);
    struct ibv_sge piece = {
        .addr = (uintptr_t)told, .length = sizeof rx->next, .lkey = key_of(route, wire->regions)};
    struct ibv_send_wr request = {.wr_id = work_id(WORK_CREDIT, rx->channel, 0),
                                  .sg_list = &piece,
                                  .num_sge = 1,
                                  .opcode = IBV_WR_RDMA_WRITE};
    post(route, &request, tt_rdma_credit_at(rx->channel));
    rx->told = rx->next;
    rx->ntold++;
}

/* Writes the count when half of the slots are due; with fewer due the sender still has slots. At
 * most nslots such writes are in flight, and the queues have room for that many. */
static void tell_if_due(struct tt_rdma_link *rx)
{
    const uint64_t nslots = rx->wire->rdma->nslots;
    if (untold(rx) >= nslots / 2 && rx->ntold < nslots) tell(rx);
}

/* ---- Completions ---------------------------------------------------------------------------- */

static void on_sent(struct tt_rdma_wire *wire, uint64_t id)
{
    const uint64_t channel = id >> 8 & 255, slot = id & 255;
    wire->ncompleted++;
    if (id >> 16 == WORK_CREDIT) {
        wire->rx[channel].ntold--;
        tell_if_due(&wire->rx[channel]);
        return;
    }
    struct tt_rdma_link *tx = &wire->tx[channel];
    tx->slots &= ~((uint64_t)1 << slot);
    if (!tx->memory[slot]) return;
    tx->memory[slot]->nsends--;
    tx->memory[slot] = NULL;
    tx->ndirect--;
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
                TT_TRY(tt_rdma_fail_completion(route, &done[i]));
                if (done[i].wr_id >> 16 != WORK_RECEIVE) wire->ncompleted++; /* nobody waits */
            } else if (done[i].wr_id >> 16 == WORK_RECEIVE) {
                TT_TRY(on_received(route, ntohl(done[i].imm_data)));
                nreceived++;
            } else {
                on_sent(wire, done[i].wr_id);
            }
        }
        TT_TRY(tt_rdma_post_receives(route, nreceived));
    } while (n == BATCH);
    return wire->failed;
}

/* ---- Sender --------------------------------------------------------------------------------- */

static bool poll_all(struct tt_rdma_wire *wire)
{
    for (int i = 0; i < wire->nroutes; i++)
        if (tt_rdma_poll(wire->used[i])) return false;
    return true;
}

/* Fails the fabric: this rank waits for a peer that is gone. */
static tt_status missed(const struct tt_rdma_wire *wire)
{
    const struct tt_room_context *context = wire->rdma->context;
    return context->events->missed(context->owner, wire->peer);
}

/* Whether the slot of the next message is free on both sides. */
static bool has_room(struct tt_rdma_link *tx)
{
    struct tt_rdma_wire *wire = tx->wire;
    const uint64_t nslots = wire->rdma->nslots, bit = (uint64_t)1 << slot_of(tx);
    if (wire->lost) tt_ignore(missed(wire));
    if (wire->lost || wire->failed) return false;
    if (tx->next - tx->taken == nslots) {
        const _Atomic uint64_t *credit = (void *)(wire->memory + tt_rdma_credit_at(tx->channel));
        learn(tx, atomic_load_explicit(credit, memory_order_acquire)); /* written by the device */
    }
    if ((tx->next - tx->taken == nslots || tx->slots & bit) && !poll_all(wire)) return false;
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
    struct tt_rdma_route *route = route_of(wire, tx->next);
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
        .wr_id = work_id(WORK_DATA, tx->channel, slot),
        .sg_list = pieces,
        .num_sge = memory ? 2 : 1,
        .opcode = IBV_WR_RDMA_WRITE_WITH_IMM,
        .imm_data = htonl((uint32_t)tx->channel << 8 | (uint32_t)slot),
    };
    post(route, &request, tt_rdma_slot_at(wire, false, tx->channel, slot) - TT_RDMA_HEADER);
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
    struct tt_rdma_link *tx = link_of(link);
    return !tx->ndirect || tx->wire->lost || (poll_all(tx->wire) && !tx->ndirect);
}

/* ---- Receiver ------------------------------------------------------------------------------- */

static tt_status rdma_peek(struct tt_link *link, struct tt_message *message)
{
    struct tt_rdma_link *rx = link_of(link);
    struct tt_rdma_wire *wire = rx->wire;
    const uint64_t bit = (uint64_t)1 << slot_of(rx);
    struct tt_rdma_route *route = route_of(wire, rx->next);
    if (!(rx->slots & bit)) {
        TT_TRY(tt_rdma_poll(route));
        if (!(rx->slots & bit)) return wire->lost ? missed(wire) : TT_IN_PROGRESS;
    }
    const char *payload = payload_of(rx, false);
    struct tt_rdma_header header;
    memcpy(&header, payload - TT_RDMA_HEADER, sizeof header);
    if (header.nbytes > link->slot_bytes || header.number != rx->next) {
        TT_TRY(tt_rdma_fail_route(route, "a message is not what it should be"));
        return wire->lost ? missed(wire) : TT_IN_PROGRESS; /* the wire is quiet */
    }
    *message = (struct tt_message){
        .data = payload, .nbytes = (size_t)header.nbytes, .signature = header.signature};
    return TT_OK;
}

static tt_status rdma_fetch(struct tt_link *link, void *to, size_t offset, size_t nbytes)
{
    struct tt_message message;
    TT_TRY(rdma_peek(link, &message));
    memcpy(to, (const char *)message.data + offset, nbytes);
    return TT_OK;
}

static void rdma_release(struct tt_link *link)
{
    struct tt_rdma_link *rx = link_of(link);
    rx->slots &= ~((uint64_t)1 << slot_of(rx));
    rx->next++;
    tell_if_due(rx);
}

/* The device delivers posted writes by itself, credits included. */
static bool rdma_flushed(struct tt_link *link)
{
    struct tt_rdma_link *end = link_of(link);
    return end->outgoing || end->wire->failed || end->wire->quiet ||
           untold(end) < end->wire->rdma->nslots / 2;
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
    .expect = rdma_expect,
    .posts = &tt_no_posts,
    .gpus = &tt_no_gpus,
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
                 .slot_bytes = wire->rdma->slot_bytes},
        .wire = wire,
        .channel = channel,
        .outgoing = outgoing,
    };
}
