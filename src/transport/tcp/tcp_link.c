/* The links over the sockets to one peer. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/pause.h"
#include "transport/tcp/tcp.h"

static struct tt_tcp_link *tcp_link_of(struct tt_link *link)
{
    return link->end;
}

static struct tt_tcp *socket_of(const struct tt_tcp_link *link, uint64_t number)
{
    return &link->end->sockets[number % (uint64_t)link->end->nsockets];
}

char *tt_tcp_slot(struct tt_tcp_link *link, uint64_t number)
{
    struct tt_tcp_room *room = link->end->room;
    const size_t nslots = room->nslots, slot_bytes = link->link.slot_bytes;
    if (!link->slots) {
        link->slots = aligned_alloc(TT_CACHE_LINE, nslots * slot_bytes);
        if (!link->slots) {
            tt_ignore(tt_room_fail(room->context, TT_ERR_SYSTEM,
                                   "rank %d: out of memory for %zu slots of %zu bytes to rank %d",
                                   room->context->rank, nslots, slot_bytes, link->end->peer));
            return NULL;
        }
        room->nbytes += nslots * slot_bytes;
    }
    return link->slots + number % nslots * slot_bytes;
}

/* Fails the communicator: this rank waits for a peer that is gone. */
static tt_status missed(const struct tt_tcp_end *end)
{
    const struct tt_room_context *context = end->room->context;
    return context->events->missed(context->owner, end->peer);
}

/* ---- The sender's end ----------------------------------------------------------------------- */

/* Reads all sockets: credits may have come. A failure is recorded by the fabric. */
static void read_credits(struct tt_tcp_end *end)
{
    for (int i = 0; i < end->nsockets; i++) {
        tt_ignore(tt_tcp_flush(&end->sockets[i]));
        tt_ignore(tt_tcp_read(&end->sockets[i]));
    }
}

static bool has_room(struct tt_tcp_link *link)
{
    struct tt_tcp_end *end = link->end;
    if (end->state == TT_TCP_UP && link->next == link->allowed) read_credits(end);
    if (end->state == TT_TCP_GONE) tt_ignore(missed(end));
    return end->state == TT_TCP_UP && link->next < link->allowed;
}

static void *tcp_slot(struct tt_link *base, size_t nbytes)
{
    struct tt_tcp_link *link = tcp_link_of(base);
    (void)nbytes;
    return has_room(link) ? tt_tcp_slot(link, link->next) : NULL;
}

static void put_head(struct tt_outgoing *item, struct tt_tcp_end *end, const struct tt_frame *frame)
{
    const size_t n = end->room->owner->ahead(end->owner, item->head);
    memcpy(item->head + n, frame, sizeof *frame);
    item->head_nbytes = (uint32_t)(n + sizeof *frame);
}

static void send_message(struct tt_tcp_link *link, const void *data, size_t nbytes,
                         uint64_t signature, bool reference)
{
    if (link->end->state != TT_TCP_UP)
        return; /* the connection was lost after its slot was given */
    struct tt_tcp *tcp = socket_of(link, link->next);
    struct tt_outgoing *item = tt_tcp_push(tcp);
    if (!item) { /* there is room for all credits that are due */
        tt_ignore(tt_tcp_refuse(tcp, "credits, in all", link->allowed));
        return;
    }
    const struct tt_frame frame = {.kind = TT_FRAME_DATA,
                                   .channel = (uint8_t)link->channel,
                                   .nbytes = (uint32_t)nbytes,
                                   .number = (uint32_t)link->next,
                                   .signature = signature};
    put_head(item, link->end, &frame);
    item->body = data;
    item->body_nbytes = (uint32_t)nbytes;
    const struct tt_room_context *up = link->end->room->context;
    item->is_p2p = link->channel >= up->nchannels - 1 - up->nbridges; /* link.h */
    tcp->np2p += item->is_p2p;
    if (reference) {
        item->link = link;
        link->references++;
    }
    link->next++;
    tt_count_more(link->end->room->context->nmessages, 1);
    tt_ignore(tt_tcp_flush(tcp));
}

static void tcp_publish(struct tt_link *base, size_t nbytes, uint64_t signature)
{
    struct tt_tcp_link *link = tcp_link_of(base);
    tt_count_more(link->end->room->context->nbytes_copied, nbytes);
    send_message(link, tt_tcp_slot(link, link->next), nbytes, signature, false);
}

static bool tcp_publish_direct(struct tt_link *base, const struct tt_memory *memory,
                               const void *data, size_t nbytes, uint64_t signature)
{
    (void)memory;
    struct tt_tcp_link *link = tcp_link_of(base);
    if (nbytes > base->slot_bytes || !has_room(link)) return false;
    tt_count_more(link->end->room->context->nbytes_direct, nbytes);
    send_message(link, data, nbytes, signature, true);
    return true;
}

static bool tcp_reaches(struct tt_link *base, const struct tt_memory *memory, const void *data,
                        size_t nbytes)
{
    (void)memory;
    (void)data;
    return nbytes <= base->slot_bytes;
}

static bool tcp_drained(struct tt_link *base)
{
    const struct tt_tcp_link *link = tcp_link_of(base);
    const struct tt_tcp_end *end = link->end;
    bool returned = true;
    for (int i = 0; i < end->nopen; i++) {
        if (link->references) tt_ignore(tt_tcp_flush(&end->sockets[i]));
        returned &= tt_tcp_returned_of(&end->sockets[i], link->channel);
    }
    return link->references == 0 && returned;
}

static bool tcp_flushed(struct tt_link *base)
{
    struct tt_tcp_end *end = tcp_link_of(base)->end;
    return end->state != TT_TCP_UP || tt_tcp_end_flush(end);
}

/* Copies a body that was published by reference to the slot of its message, which is unused. */
static void copy_to_slot(struct tt_outgoing *item)
{
    struct tt_tcp_link *link = item->link;
    struct tt_frame frame;
    memcpy(&frame, item->head + item->head_nbytes - sizeof frame, sizeof frame);
    char *slot = tt_tcp_slot(link, link->next - (uint32_t)((uint32_t)link->next - frame.number));
    if (slot) {
        memcpy(slot, item->body, item->body_nbytes);
        item->body = slot;
        item->link = NULL;
        link->references--;
    }
}

static void copy_queue(struct tt_tcp_end *end, struct tt_tcp *tcp)
{
    for (uint32_t k = 0; k < tcp->count; k++) {
        struct tt_outgoing *item = &tcp->queue[(tcp->first + k) % tcp->room];
        if (item->link) copy_to_slot(item);
        if (!item->link) continue;
        tt_ignore(end->room->owner->lost(end->owner, tcp, ENOMEM)); /* drops all items */
    }
}

/* Memory that is lent to the kernel cannot be copied any more: where the kernel keeps it, the
 * connection ends (tt_tcp_close), so that the peer never gets bytes that were written later. */
void tt_tcp_end_give_back(struct tt_tcp_end *end, int64_t deadline_ns)
{
    for (int i = 0; i < end->nopen; i++) copy_queue(end, &end->sockets[i]);
    for (int i = 0; i < end->nopen; i++) {
        struct tt_tcp *tcp = &end->sockets[i];
        struct tt_pause pause = {0};
        while (!tt_tcp_returned(tcp) && !tt_expired(deadline_ns)) tt_pause(&pause);
        if (!tt_tcp_returned(tcp)) tt_ignore(end->room->owner->lost(end->owner, tcp, ECANCELED));
    }
}

/* ---- The receiver's end --------------------------------------------------------------------- */

static struct tt_arrival *first_arrival(struct tt_tcp_link *link)
{
    return &link->arrivals[link->next % link->end->room->nslots];
}

/* Moves the received part of a message to its slot; the rest will be received there. */
static void move_to_slot(struct tt_tcp_link *link, struct tt_arrival *arrival)
{
    struct tt_tcp *tcp = socket_of(link, link->next);
    char *slot = tt_tcp_slot(link, link->next);
    if (!slot) { /* out of memory, which has failed the fabric: receive nothing more */
        tt_ignore(link->end->room->owner->lost(link->end->owner, tcp, ENOMEM));
        return;
    }
    memcpy(slot, arrival->data, arrival->whole ? arrival->nbytes : tcp->got);
    arrival->data = slot;
    if (!arrival->whole) tcp->to = slot;
}

void tt_tcp_expect(struct tt_tcp_link *link, void *to, size_t nbytes, uint64_t signature)
{
    struct tt_arrival *arrival = first_arrival(link);
    if (link->expected && link->expected != to && arrival->data == link->expected)
        move_to_slot(link, arrival);
    link->expected = to;
    link->expected_nbytes = nbytes;
    link->expected_signature = signature;
}

void tt_tcp_end_refuse_data(struct tt_tcp_end *end)
{
    end->no_data = true;
    for (int c = 0; c < end->nchannels; c++)
        tt_tcp_expect(tt_tcp_link_at(end, false, c), NULL, 0, 0);
}

static void tcp_expect(struct tt_link *base, void *to, size_t nbytes, uint64_t signature)
{
    tt_tcp_expect(tcp_link_of(base), to, nbytes, signature);
}

static tt_status read_next(struct tt_tcp_link *link)
{
    struct tt_tcp *tcp = socket_of(link, link->next);
    if (tcp->fd < 0) return missed(link->end);
    if (tcp->count) tt_ignore(tt_tcp_flush(tcp));
    return tt_tcp_read(tcp);
}

static tt_status tcp_peek(struct tt_link *base, struct tt_message *message)
{
    struct tt_tcp_link *link = tcp_link_of(base);
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

static tt_status tcp_fetch(struct tt_link *base, void *to, size_t offset, size_t nbytes)
{
    memcpy(to, first_arrival(tcp_link_of(base))->data + offset, nbytes);
    return TT_OK;
}

static void tcp_release(struct tt_link *base)
{
    struct tt_tcp_link *link = tcp_link_of(base);
    struct tt_tcp_end *end = link->end;
    *first_arrival(link) = (struct tt_arrival){0};
    link->expected = NULL;
    link->next++;
    if (++link->credits_due >= end->room->credits_due_max && end->state == TT_TCP_UP)
        tt_ignore(tt_tcp_flush(&end->sockets[0]));
}

static const struct tt_link_ops tcp_link_ops = {
    .slot = tcp_slot,
    .publish = tcp_publish,
    .publish_direct = tcp_publish_direct,
    .reaches = tcp_reaches,
    .drained = tcp_drained,
    .flushed = tcp_flushed,
    .delivered = tcp_flushed, /* the kernel has it */
    .expect = tcp_expect,
    .posts = &tt_no_posts,
    .gpus = &tt_no_gpus,
    .peek = tcp_peek,
    .fetch = tcp_fetch,
    .release = tcp_release,
};

/* ---- All links and sockets of a peer -------------------------------------------------------- */

static void init_link(struct tt_tcp_end *end, int channel, bool outgoing)
{
    const struct tt_tcp_room *room = end->room;
    struct tt_tcp_link *link = tt_tcp_link_at(end, outgoing, channel);
    const size_t slot_bytes = tt_room_slot_bytes(room->context, room->slot_bytes, channel);
    *link = (struct tt_tcp_link){
        .link = {.ops = &tcp_link_ops, .end = link, .peer = end->peer, .slot_bytes = slot_bytes},
        .end = end,
        .channel = channel,
        .allowed = outgoing ? room->nslots : 0};
}

tt_status tt_tcp_end_init(struct tt_tcp_end *end, struct tt_tcp_room *room, void *owner, int peer,
                          int nroutes, int nsockets)
{
    const int nchannels = room->context->nchannels;
    *end = (struct tt_tcp_end){.room = room,
                               .owner = owner,
                               .peer = peer,
                               .nroutes = nroutes,
                               .nsockets = nsockets,
                               .sockets = calloc((size_t)nsockets, sizeof *end->sockets),
                               .nchannels = nchannels,
                               .links = malloc(2 * (size_t)nchannels * sizeof *end->links)};
    if (!end->sockets || !end->links) {
        free(end->sockets);
        free(end->links);
        return tt_fail(TT_ERR_SYSTEM, "out of memory for %d connections to rank %d", nsockets,
                       peer);
    }
    for (int i = 0; i < nsockets; i++) end->sockets[i].fd = -1;
    for (int c = 0; c < nchannels; c++) {
        init_link(end, c, false);
        init_link(end, c, true);
    }
    room->nbytes +=
        (size_t)nsockets * sizeof *end->sockets + 2 * (size_t)nchannels * sizeof *end->links;
    return TT_OK;
}

void tt_tcp_end_fini(struct tt_tcp_end *end)
{
    for (int i = 0; i < end->nsockets; i++) tt_tcp_close(&end->sockets[i]);
    for (int i = 0; i < 2 * end->nchannels; i++) free(end->links[i].slots);
    free(end->links);
    free(end->sockets);
}

bool tt_tcp_end_flush(struct tt_tcp_end *end)
{
    bool flushed = true;
    for (int i = 0; i < end->nopen; i++) flushed &= tt_tcp_flush(&end->sockets[i]) == TT_OK;
    return flushed;
}

bool tt_tcp_end_flush_collectives(struct tt_tcp_end *end)
{
    bool flushed = true;
    for (int i = 0; i < end->nopen; i++) {
        struct tt_tcp *tcp = &end->sockets[i];
        flushed &= tt_tcp_flush(tcp) == TT_OK || tcp->count == tcp->np2p;
    }
    return flushed;
}
