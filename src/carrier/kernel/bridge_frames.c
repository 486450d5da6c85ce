/* Moves messages between kernels' slots and frames on the links with other hosts. */
#include <stdlib.h>
#include <string.h>

#include "carrier/kernel/bridge_internal.h"

/* Frames of a rank that are taken at once at most: then the others'. */
enum { MOST_TAKEN = 16 };

struct tt_bridge_end *tt_bridge_end_of(const struct tt_bridge_peer *peer, int channel,
                                       bool outgoing)
{
    return &peer->ends[2 * channel + outgoing];
}

void tt_bridge_store_tail(const struct tt_bridges *bridges, const struct tt_bridge_end *end)
{
    const uint32_t tail = end->has_credit ? end->told : 0 - bridges->shape.nslots;
    __atomic_store_n(end->tail, tail, __ATOMIC_RELEASE);
}

/* ---- Taking frames -------------------------------------------------------------------------- */

static tt_status refuse(const struct tt_bridge_peer *peer, const struct tt_bridge_frame *frame,
                        size_t nbytes)
{
    return tt_fail(TT_ERR_REMOTE,
                   "rank %d sent no frame of a bridge that is expected: kind %u, channel %u, "
                   "message %u, bytes %u to %zu of %u: use one version of tutti, and the same "
                   "TUTTI_DEVICE_* settings, in a job",
                   peer->rank, frame->kind, frame->channel, frame->number, frame->offset,
                   frame->offset + nbytes, frame->length);
}

static char *slot_at(const struct tt_bridges *bridges, const struct tt_bridge_end *end)
{
    const struct tt_bridge_shape *shape = &bridges->shape;
    return end->slots + (size_t)(end->moved % shape->nslots) * shape->slot_bytes;
}

/* Whether the frame is what the incoming end awaits. */
static bool is_next(const struct tt_bridges *bridges, const struct tt_bridge_end *end,
                    const struct tt_bridge_frame *frame)
{
    const struct tt_bridge_shape *shape = &bridges->shape;
    return end->is_bound && frame->number == end->moved && frame->offset == end->offset &&
           frame->length <= shape->slot_bytes && frame->offset <= frame->length &&
           end->moved - end->told < shape->nslots;
}

/* Puts a part of the next message into its slot. */
static tt_status store(const struct tt_bridges *bridges, const struct tt_bridge_end *end,
                       size_t offset, const char *bytes, size_t nbytes)
{
    char *to = slot_at(bridges, end) + offset;
    if (end->in_gpu)
        return bridges->calls->copy_gpu(bridges->arg, true, to, (char *)(uintptr_t)bytes, nbytes);
    memcpy(to, bytes, nbytes);
    return TT_OK;
}

/* The next message is in its slot: the kernel may take it. */
static void give(const struct tt_bridges *bridges, struct tt_bridge_end *end,
                 const struct tt_bridge_frame *frame)
{
    end->notes[end->moved % bridges->shape.nslots] = (struct tt_device_note){
        .head = frame->head, .nbytes = frame->nbytes, .length = frame->length};
    end->offset = 0;
    end->moved++;
    __atomic_store_n(end->head, frame->head, __ATOMIC_RELEASE);
}

static tt_status take_data(const struct tt_bridges *bridges, struct tt_bridge_peer *peer,
                           const struct tt_bridge_frame *frame, const char *bytes, size_t nbytes)
{
    struct tt_bridge_end *end = tt_bridge_end_of(peer, frame->channel, false);
    if (!end->offset) end->length = frame->length;
    if (!is_next(bridges, end, frame) || frame->length != end->length ||
        nbytes > frame->length - frame->offset)
        return refuse(peer, frame, nbytes);
    TT_TRY(store(bridges, end, frame->offset, bytes, nbytes));
    end->offset += (uint32_t)nbytes;
    peer->has_moved = true;
    if (end->offset == frame->length) give(bridges, end, frame);
    return TT_OK;
}

/* TT_IN_PROGRESS: the kernel would not see the message yet. */
static tt_status take_placed(const struct tt_bridges *bridges, struct tt_bridge_peer *peer,
                             const struct tt_bridge_frame *frame)
{
    struct tt_link *rx = peer->pair.rx;
    struct tt_bridge_end *end = tt_bridge_end_of(peer, frame->channel, false);
    if (!is_next(bridges, end, frame) || frame->offset || !end->in_gpu)
        return refuse(peer, frame, 0);
    TT_AWAIT(rx->ops->gpus->flush(rx, end->slots));
    peer->has_moved = true;
    give(bridges, end, frame);
    return TT_OK;
}

static tt_status take_credit(const struct tt_bridges *bridges, const struct tt_bridge_peer *peer,
                             const struct tt_bridge_frame *frame, const char *bytes, size_t nbytes)
{
    struct tt_bridge_end *end = tt_bridge_end_of(peer, frame->channel, true);
    /* A receiver releases only what was sent, and never less than before; counts wrap. */
    if (frame->number - end->told > end->moved - end->told ||
        (nbytes && nbytes != sizeof end->place))
        return refuse(peer, frame, nbytes);
    if (nbytes) memcpy(&end->place, bytes, nbytes);
    end->has_place = end->has_place || nbytes;
    end->has_credit = true;
    end->told = frame->number;
    if (end->is_bound) tt_bridge_store_tail(bridges, end);
    return TT_OK;
}

static tt_status take(const struct tt_bridges *bridges, struct tt_bridge_peer *peer,
                      const char *bytes, size_t nbytes)
{
    struct tt_bridge_frame frame = {.kind = 0};
    if (nbytes < sizeof frame) return refuse(peer, &frame, nbytes);
    memcpy(&frame, bytes, sizeof frame);
    if (frame.channel >= bridges->shape.nchannels) return refuse(peer, &frame, nbytes);
    bytes += sizeof frame;
    nbytes -= sizeof frame;
    switch (frame.kind) {
    case TT_BRIDGE_FRAME_DATA:
        return take_data(bridges, peer, &frame, bytes, nbytes);
    case TT_BRIDGE_FRAME_PLACED:
        return take_placed(bridges, peer, &frame);
    case TT_BRIDGE_FRAME_CREDIT:
        return take_credit(bridges, peer, &frame, bytes, nbytes);
    case TT_BRIDGE_FRAME_END:
        peer->may_send = false;
        return TT_OK;
    default:
        return refuse(peer, &frame, nbytes);
    }
}

/* Where the message's bytes lie. */
static tt_status find_bytes(struct tt_bridge_peer *peer, const struct tt_message *message,
                            const char **bytes)
{
    struct tt_link *rx = peer->pair.rx;
    *bytes = message->data;
    if (message->data) return TT_OK;
    if (message->nbytes > rx->slot_bytes)
        return refuse(peer, &(struct tt_bridge_frame){.kind = 0}, message->nbytes);
    if (!peer->copy) peer->copy = malloc(rx->slot_bytes);
    if (!peer->copy)
        return tt_fail(TT_ERR_SYSTEM, "out of memory for a message of rank %d", peer->rank);
    *bytes = peer->copy;
    return rx->ops->fetch(rx, peer->copy, 0, message->nbytes);
}

/* A rank that has heard of this one's end needs to say nothing any more, and may leave. */
tt_status tt_bridges_receive(const struct tt_bridges *bridges, struct tt_bridge_peer *peer)
{
    struct tt_link *rx = peer->pair.rx;
    tt_status result = TT_IN_PROGRESS;
    for (int n = 0; n < MOST_TAKEN && peer->may_send && !peer->has_said_end; n++, result = TT_OK) {
        struct tt_message message;
        const char *bytes = NULL;
        tt_status status = rx->ops->peek(rx, &message);
        if (!status) status = find_bytes(peer, &message, &bytes);
        if (!status) status = take(bridges, peer, bytes, message.nbytes);
        if (status) return status < 0 ? status : result;
        rx->ops->release(rx);
    }
    return result;
}

/* ---- Sending frames ------------------------------------------------------------------------- */

/* Where the bytes of the frame go; NULL: the link is full. */
static char *open_frame(const struct tt_bridge_peer *peer, const struct tt_bridge_frame *frame,
                        size_t nbytes)
{
    struct tt_link *tx = peer->pair.tx;
    char *to = tx->ops->slot(tx, sizeof *frame + nbytes);
    if (!to) return NULL;
    memcpy(to, frame, sizeof *frame);
    return to + sizeof *frame;
}

static void close_frame(struct tt_bridge_peer *peer, size_t nbytes)
{
    struct tt_link *tx = peer->pair.tx;
    tx->ops->publish(tx, sizeof(struct tt_bridge_frame) + nbytes, 0);
    peer->nframes++;
}

bool tt_bridge_must_tell(const struct tt_bridge_end *end)
{
    return !end->has_credit || (uint32_t)__atomic_load_n(end->tail, __ATOMIC_ACQUIRE) != end->told;
}

/* False: the link is full. The first one says where the slots are, if the sender's device may write
 * there. */
static bool send_credit(const struct tt_bridges *bridges, struct tt_bridge_peer *peer,
                        struct tt_bridge_end *end)
{
    struct tt_link *tx = peer->pair.tx, *rx = peer->pair.rx;
    const uint32_t tail = (uint32_t)__atomic_load_n(end->tail, __ATOMIC_ACQUIRE);
    const struct tt_bridge_frame frame = {
        .kind = TT_BRIDGE_FRAME_CREDIT, .channel = end->channel, .number = tail};
    struct tt_gpu_place place;
    const bool may_show =
        end->in_gpu && !end->has_credit && tx->slot_bytes >= sizeof frame + sizeof place;
    char *to = open_frame(peer, &frame, may_show ? sizeof place : 0);
    if (!to) return false;
    const bool shows =
        may_show &&
        rx->ops->gpus->show(rx, end->slots,
                            (size_t)bridges->shape.nslots * bridges->shape.slot_bytes, &place);
    if (shows) memcpy(to, &place, sizeof place);
    close_frame(peer, shows ? sizeof place : 0);
    end->has_credit = true;
    end->told = tail;
    return true;
}

uint32_t tt_bridge_unsent(const struct tt_bridges *bridges, const struct tt_bridge_end *end)
{
    const uint32_t n = (uint32_t)__atomic_load_n(end->head, __ATOMIC_ACQUIRE) - end->moved;
    return n <= bridges->shape.nslots ? n : 0;
}

static struct tt_bridge_frame frame_of(const struct tt_bridges *bridges,
                                       const struct tt_bridge_end *end,
                                       enum tt_bridge_frame_kind kind)
{
    const struct tt_device_note *note = &end->notes[end->moved % bridges->shape.nslots];
    return (struct tt_bridge_frame){.kind = (uint16_t)kind,
                                    .channel = end->channel,
                                    .number = end->moved,
                                    .offset = end->offset,
                                    .length = (uint32_t)note->length,
                                    .head = note->head,
                                    .nbytes = note->nbytes};
}

static void count_part(struct tt_bridge_peer *peer, struct tt_bridge_end *end,
                       const struct tt_bridge_frame *frame, size_t nbytes)
{
    end->offset += (uint32_t)nbytes;
    peer->has_moved = true;
    if (end->offset < frame->length) return;
    end->offset = 0;
    end->moved++;
}

/* The next message, from memory of the GPU to that of the peer's. TT_IN_PROGRESS: the link is full.
 */
static tt_status send_placed(const struct tt_bridges *bridges, struct tt_bridge_peer *peer,
                             struct tt_bridge_end *end)
{
    struct tt_link *tx = peer->pair.tx;
    const struct tt_bridge_shape *shape = &bridges->shape;
    const struct tt_bridge_frame frame = frame_of(bridges, end, TT_BRIDGE_FRAME_PLACED);
    const size_t offset = (size_t)(end->moved % shape->nslots) * shape->slot_bytes;
    if (!open_frame(peer, &frame, 0)) return TT_IN_PROGRESS;
    if (frame.length &&
        !tx->ops->gpus->write(tx, slot_at(bridges, end), frame.length, &end->place, offset)) {
        end->has_place = false; /* the link has failed, or is of another kind than the peer's */
        return TT_OK;
    }
    close_frame(peer, 0);
    count_part(peer, end, &frame, frame.length);
    return TT_OK;
}

/* The next part of the next message. TT_IN_PROGRESS: the link is full. */
static tt_status send_part(const struct tt_bridges *bridges, struct tt_bridge_peer *peer,
                           struct tt_bridge_end *end)
{
    if (end->in_gpu && end->has_place && !end->offset) return send_placed(bridges, peer, end);
    const struct tt_bridge_frame frame = frame_of(bridges, end, TT_BRIDGE_FRAME_DATA);
    const size_t most = peer->pair.tx->slot_bytes - sizeof frame;
    size_t nbytes = frame.length - frame.offset;
    if (nbytes > most) nbytes = most;
    char *to = open_frame(peer, &frame, nbytes), *from = slot_at(bridges, end) + frame.offset;
    if (!to) return TT_IN_PROGRESS;
    if (end->in_gpu)
        TT_TRY(bridges->calls->copy_gpu(bridges->arg, false, from, to, nbytes));
    else
        memcpy(to, from, nbytes);
    close_frame(peer, nbytes);
    count_part(peer, end, &frame, nbytes);
    return TT_OK;
}

/* Whether all that the kernel has published is released. */
static bool is_drained(const struct tt_bridge_end *end)
{
    const uint32_t head = (uint32_t)__atomic_load_n(end->head, __ATOMIC_ACQUIRE);
    return end->outgoing ? head == end->moved && (end->has_credit ? end->told == head : !head)
                         : !tt_bridge_must_tell(end);
}

static bool are_drained(const struct tt_bridge_peer *peer)
{
    for (const struct tt_bridge_end *end = peer->bound; end; end = end->next)
        if (!is_drained(end)) return false;
    return true;
}

static bool say_end(struct tt_bridge_peer *peer)
{
    if (!open_frame(peer, &(struct tt_bridge_frame){.kind = TT_BRIDGE_FRAME_END}, 0)) return false;
    close_frame(peer, 0);
    peer->has_said_end = true;
    return true;
}

bool tt_bridge_needs_nothing(const struct tt_bridges *bridges, const struct tt_bridge_peer *peer)
{
    return !peer->may_send || bridges->calls->is_gone(bridges->arg, peer->rank);
}

/* First credits, which let others go on. Of the messages one of each channel in turn. */
tt_status tt_bridges_send(const struct tt_bridges *bridges, struct tt_bridge_peer *peer)
{
    tt_status result = TT_IN_PROGRESS;
    if (peer->has_said_end || tt_bridge_needs_nothing(bridges, peer)) return result;
    for (struct tt_bridge_end *end = peer->bound; end; end = end->next) {
        if (end->outgoing || !tt_bridge_must_tell(end)) continue;
        if (!send_credit(bridges, peer, end)) return result;
        result = TT_OK;
    }
    for (bool more = true; more;) {
        more = false;
        for (struct tt_bridge_end *end = peer->bound; end; end = end->next) {
            if (!end->outgoing || !tt_bridge_unsent(bridges, end)) continue;
            const tt_status sent = send_part(bridges, peer, end);
            if (sent) return sent < 0 ? sent : result;
            result = TT_OK;
            more = true;
        }
    }
    if (bridges->ends && are_drained(peer) && say_end(peer)) result = TT_OK;
    return result;
}
