/* Moves messages between kernels' ends in pinned memory and the links with other hosts. */
#include "carrier/kernel/bridge.h"

#include <stdlib.h>
#include <string.h>

/* Words that kernels and the host write do not share a cache line. */
enum { WORD_BYTES = 128 };
/* Frames of a rank that are taken at once at most: then the others'. */
enum { MOST_TAKEN = 16 };

enum frame_kind {
    FRAME_DATA = 1, /* a part of a message */
    FRAME_CREDIT,   /* number: messages released */
    FRAME_END       /* this rank sends nothing more */
};

/* Before the bytes of a message. */
struct frame {
    uint16_t kind, channel;
    uint32_t number;       /* of the message in its link */
    uint32_t offset;       /* of the part in the message */
    uint32_t length;       /* of the message */
    uint64_t head, nbytes; /* as in the message's note */
};
static_assert(sizeof(struct frame) == 32, "no padding on the wire");

/* An end of a channel. */
struct end {
    bool is_bound, outgoing;
    uint16_t channel;
    uint64_t *head, *tail;
    struct tt_device_note *notes; /* [nslots] */
    char *slots;                  /* [nslots][slot_bytes] */
    uint32_t moved;               /* messages that are sent, or put into slots */
    uint32_t offset;              /* bytes of the next one that are */
    uint32_t length;              /* incoming: of the next one, where offset is not 0 */
    /* outgoing: a credit has come; incoming: one was sent, which said `told` */
    bool has_credit;
    uint32_t told;
    uint32_t marked[TT_BRIDGE_MARKS]; /* messages published, or released, at the mark */
    struct end *next;
};

/* A mark on the way to a peer. */
struct mark {
    bool waits;       /* not all that was marked is known to be on its way */
    bool is_framed;   /* all of it is in frames, */
    uint64_t nframes; /* of which this is the last one */
};

struct peer {
    int rank;
    struct tt_bridge_pair pair;
    struct end *ends;            /* [2 * nchannels]: incoming, outgoing of each channel */
    struct end *bound;           /* linked by next */
    char *copy;                  /* of a frame that lies nowhere; NULL: none was needed */
    bool has_said_end, may_send; /* may_send: the peer has not said its end */
    bool has_moved;              /* a message, or a part of one, came or went */
    uint64_t nframes;            /* given to the link */
    struct mark marks[TT_BRIDGE_MARKS];
    struct peer *next;
};

struct tt_bridges {
    struct tt_bridge_shape shape;
    tt_bridge_is_gone is_gone;
    const void *arg; /* of is_gone */
    bool ends;
    struct peer **peers; /* [nranks]; NULL: nothing is bound */
    struct peer *first;
};

/* ---- Creation ------------------------------------------------------------------------------- */

static size_t round_up(size_t nbytes)
{
    return (nbytes + WORD_BYTES - 1) / WORD_BYTES * WORD_BYTES;
}

static size_t notes_bytes(const struct tt_bridge_shape *shape)
{
    return round_up(shape->nslots * sizeof(struct tt_device_note));
}

size_t tt_bridge_bytes(const struct tt_bridge_shape *shape)
{
    return 2 * WORD_BYTES + notes_bytes(shape) +
           round_up((size_t)shape->nslots * shape->slot_bytes);
}

tt_status tt_bridges_create(struct tt_bridges **out, const struct tt_bridge_shape *shape,
                            tt_bridge_is_gone is_gone, const void *arg)
{
    struct tt_bridges *bridges = calloc(1, sizeof *bridges);
    struct peer **peers = calloc((size_t)shape->nranks, sizeof *peers);
    if (!bridges || !peers) {
        free(peers);
        free(bridges);
        return tt_fail(TT_ERR_SYSTEM, "out of memory for bridges to %d ranks", shape->nranks);
    }
    *bridges = (struct tt_bridges){.shape = *shape, .is_gone = is_gone, .arg = arg, .peers = peers};
    *out = bridges;
    return TT_OK;
}

void tt_bridges_destroy(struct tt_bridges *bridges)
{
    if (!bridges) return;
    while (bridges->first) {
        struct peer *peer = bridges->first;
        bridges->first = peer->next;
        free(peer->copy);
        free(peer->ends);
        free(peer);
    }
    free(bridges->peers);
    free(bridges);
}

/* ---- Binding -------------------------------------------------------------------------------- */

static struct end *end_of(const struct peer *peer, int channel, bool outgoing)
{
    return &peer->ends[2 * channel + outgoing];
}

bool tt_bridges_has(const struct tt_bridges *bridges, int peer, int channel, bool outgoing)
{
    const struct peer *of = bridges->peers[peer];
    return of && end_of(of, channel, outgoing)->is_bound;
}

static tt_status add_peer(struct tt_bridges *bridges, int rank, const struct tt_bridge_pair *pair)
{
    const size_t nends = 2 * (size_t)bridges->shape.nchannels;
    struct peer *peer = calloc(1, sizeof *peer);
    struct end *ends = calloc(nends, sizeof *ends);
    if (!peer || !ends) {
        free(ends);
        free(peer);
        return tt_fail(TT_ERR_SYSTEM, "out of memory for the bridge to rank %d", rank);
    }
    for (size_t i = 0; i < nends; i++)
        ends[i] = (struct end){.channel = (uint16_t)(i / 2), .outgoing = i % 2};
    *peer = (struct peer){
        .rank = rank, .pair = *pair, .ends = ends, .may_send = true, .next = bridges->first};
    bridges->first = bridges->peers[rank] = peer;
    return TT_OK;
}

/* Of an outgoing end: what the receiver has released; without a credit no slot is free. */
static void store_tail(const struct tt_bridges *bridges, const struct end *end)
{
    const uint32_t tail = end->has_credit ? end->told : 0 - bridges->shape.nslots;
    __atomic_store_n(end->tail, tail, __ATOMIC_RELEASE);
}

void tt_bridges_lay(const struct tt_bridge_shape *shape, bool outgoing, void *memory,
                    struct tt_device_end *end)
{
    char *at = memory;
    *end = (struct tt_device_end){.slots = at + 2 * WORD_BYTES + notes_bytes(shape),
                                  .head = (uint64_t *)at,
                                  .tail = (uint64_t *)(at + WORD_BYTES),
                                  .notes = (struct tt_device_note *)(at + 2 * WORD_BYTES),
                                  .outgoing = outgoing,
                                  .system = 1,
                                  .known_tail = outgoing ? 0 - shape->nslots : 0};
}

tt_status tt_bridges_bind(struct tt_bridges *bridges, int rank, int channel,
                          const struct tt_bridge_pair *pair, const struct tt_device_end *laid)
{
    if (!bridges->peers[rank]) TT_TRY(add_peer(bridges, rank, pair));
    struct peer *peer = bridges->peers[rank];
    struct end *end = end_of(peer, channel, laid->outgoing);
    end->head = laid->head;
    end->tail = laid->tail;
    end->notes = laid->notes;
    end->slots = laid->slots;
    end->is_bound = true;
    end->next = peer->bound;
    peer->bound = end;
    if (end->outgoing) store_tail(bridges, end);
    return TT_OK;
}

/* ---- Taking frames -------------------------------------------------------------------------- */

static tt_status refuse(const struct peer *peer, const struct frame *frame, size_t nbytes)
{
    return tt_fail(TT_ERR_REMOTE,
                   "rank %d sent no frame of a bridge that is expected: kind %u, channel %u, "
                   "message %u, bytes %u to %zu of %u: use one version of tutti, and the same "
                   "TUTTI_DEVICE_* settings, in a job",
                   peer->rank, frame->kind, frame->channel, frame->number, frame->offset,
                   frame->offset + nbytes, frame->length);
}

static tt_status take_data(const struct tt_bridges *bridges, struct peer *peer,
                           const struct frame *frame, const char *bytes, size_t nbytes)
{
    const struct tt_bridge_shape *shape = &bridges->shape;
    struct end *end = end_of(peer, frame->channel, false);
    const uint32_t slot = end->moved % shape->nslots;
    if (!end->offset) end->length = frame->length;
    if (!end->is_bound || frame->number != end->moved || frame->offset != end->offset ||
        frame->length != end->length || frame->length > shape->slot_bytes ||
        nbytes > frame->length - frame->offset || end->moved - end->told >= shape->nslots)
        return refuse(peer, frame, nbytes);
    memcpy(end->slots + (size_t)slot * shape->slot_bytes + frame->offset, bytes, nbytes);
    end->offset += (uint32_t)nbytes;
    peer->has_moved = true;
    if (end->offset < frame->length) return TT_OK;
    end->notes[slot] = (struct tt_device_note){
        .head = frame->head, .nbytes = frame->nbytes, .length = frame->length};
    end->offset = 0;
    end->moved++;
    __atomic_store_n(end->head, frame->head, __ATOMIC_RELEASE);
    return TT_OK;
}

static tt_status take_credit(const struct tt_bridges *bridges, const struct peer *peer,
                             const struct frame *frame)
{
    struct end *end = end_of(peer, frame->channel, true);
    /* A receiver releases only what was sent, and never less than before; counts wrap. */
    if (frame->number - end->told > end->moved - end->told) return refuse(peer, frame, 0);
    end->has_credit = true;
    end->told = frame->number;
    if (end->is_bound) store_tail(bridges, end);
    return TT_OK;
}

static tt_status take(const struct tt_bridges *bridges, struct peer *peer, const char *bytes,
                      size_t nbytes)
{
    struct frame frame = {.kind = 0};
    if (nbytes < sizeof frame) return refuse(peer, &frame, nbytes);
    memcpy(&frame, bytes, sizeof frame);
    if (frame.channel >= bridges->shape.nchannels) return refuse(peer, &frame, nbytes);
    switch (frame.kind) {
    case FRAME_DATA:
        return take_data(bridges, peer, &frame, bytes + sizeof frame, nbytes - sizeof frame);
    case FRAME_CREDIT:
        return take_credit(bridges, peer, &frame);
    case FRAME_END:
        peer->may_send = false;
        return TT_OK;
    default:
        return refuse(peer, &frame, nbytes);
    }
}

/* Where the message's bytes lie. */
static tt_status find_bytes(struct peer *peer, const struct tt_message *message, const char **bytes)
{
    struct tt_link *rx = peer->pair.rx;
    *bytes = message->data;
    if (message->data) return TT_OK;
    if (message->nbytes > rx->slot_bytes)
        return refuse(peer, &(struct frame){.kind = 0}, message->nbytes);
    if (!peer->copy) peer->copy = malloc(rx->slot_bytes);
    if (!peer->copy)
        return tt_fail(TT_ERR_SYSTEM, "out of memory for a message of rank %d", peer->rank);
    *bytes = peer->copy;
    return rx->ops->fetch(rx, peer->copy, 0, message->nbytes);
}

/* A rank that has heard of this one's end needs to say nothing any more, and may leave. */
static tt_status receive(const struct tt_bridges *bridges, struct peer *peer)
{
    struct tt_link *rx = peer->pair.rx;
    tt_status result = TT_IN_PROGRESS;
    for (int n = 0; n < MOST_TAKEN && peer->may_send && !peer->has_said_end; n++, result = TT_OK) {
        struct tt_message message;
        const char *bytes = NULL;
        tt_status status = rx->ops->peek(rx, &message);
        if (!status) status = find_bytes(peer, &message, &bytes);
        if (status == TT_IN_PROGRESS) return result;
        if (!status) status = take(bridges, peer, bytes, message.nbytes);
        if (status) return status;
        rx->ops->release(rx);
    }
    return result;
}

/* ---- Sending frames ------------------------------------------------------------------------- */

/* Where the bytes of the frame go; NULL: the link is full. */
static char *open_frame(const struct peer *peer, const struct frame *frame, size_t nbytes)
{
    struct tt_link *tx = peer->pair.tx;
    char *to = tx->ops->slot(tx, sizeof *frame + nbytes);
    if (!to) return NULL;
    memcpy(to, frame, sizeof *frame);
    return to + sizeof *frame;
}

static void close_frame(struct peer *peer, size_t nbytes)
{
    struct tt_link *tx = peer->pair.tx;
    tx->ops->publish(tx, sizeof(struct frame) + nbytes, 0);
    peer->nframes++;
}

/* What the kernel has released that the sender does not know. */
static bool must_tell(const struct end *end)
{
    return !end->has_credit || (uint32_t)__atomic_load_n(end->tail, __ATOMIC_ACQUIRE) != end->told;
}

/* False: the link is full. */
static bool send_credit(struct peer *peer, struct end *end)
{
    const uint32_t tail = (uint32_t)__atomic_load_n(end->tail, __ATOMIC_ACQUIRE);
    const struct frame frame = {.kind = FRAME_CREDIT, .channel = end->channel, .number = tail};
    if (!open_frame(peer, &frame, 0)) return false;
    close_frame(peer, 0);
    end->has_credit = true;
    end->told = tail;
    return true;
}

/* Messages that the kernel has published and that are not sent. */
static uint32_t unsent(const struct tt_bridges *bridges, const struct end *end)
{
    const uint32_t n = (uint32_t)__atomic_load_n(end->head, __ATOMIC_ACQUIRE) - end->moved;
    return n <= bridges->shape.nslots ? n : 0;
}

/* The next part of the next message. False: the link is full. */
static bool send_part(const struct tt_bridges *bridges, struct peer *peer, struct end *end)
{
    const struct tt_bridge_shape *shape = &bridges->shape;
    const uint32_t slot = end->moved % shape->nslots;
    const struct tt_device_note *note = &end->notes[slot];
    const struct frame frame = {.kind = FRAME_DATA,
                                .channel = end->channel,
                                .number = end->moved,
                                .offset = end->offset,
                                .length = (uint32_t)note->length,
                                .head = note->head,
                                .nbytes = note->nbytes};
    const size_t most = peer->pair.tx->slot_bytes - sizeof frame;
    size_t nbytes = frame.length - frame.offset;
    if (nbytes > most) nbytes = most;
    char *to = open_frame(peer, &frame, nbytes);
    if (!to) return false;
    memcpy(to, end->slots + (size_t)slot * shape->slot_bytes + frame.offset, nbytes);
    close_frame(peer, nbytes);
    end->offset += (uint32_t)nbytes;
    peer->has_moved = true;
    if (end->offset < frame.length) return true;
    end->offset = 0;
    end->moved++;
    return true;
}

/* Whether all that the kernel has published is released. */
static bool is_drained(const struct end *end)
{
    const uint32_t head = (uint32_t)__atomic_load_n(end->head, __ATOMIC_ACQUIRE);
    return end->outgoing ? head == end->moved && (end->has_credit ? end->told == head : !head)
                         : !must_tell(end);
}

static bool are_drained(const struct peer *peer)
{
    for (const struct end *end = peer->bound; end; end = end->next)
        if (!is_drained(end)) return false;
    return true;
}

static bool say_end(struct peer *peer)
{
    if (!open_frame(peer, &(struct frame){.kind = FRAME_END}, 0)) return false;
    close_frame(peer, 0);
    peer->has_said_end = true;
    return true;
}

/* A peer that has said its end, or is gone, needs nothing any more. */
static bool needs_nothing(const struct tt_bridges *bridges, const struct peer *peer)
{
    return !peer->may_send || bridges->is_gone(bridges->arg, peer->rank);
}

/* First credits, which let others go on. Of the messages one of each channel in turn. */
static tt_status send_all(const struct tt_bridges *bridges, struct peer *peer)
{
    tt_status result = TT_IN_PROGRESS;
    if (peer->has_said_end || needs_nothing(bridges, peer)) return result;
    for (struct end *end = peer->bound; end; end = end->next) {
        if (end->outgoing || !must_tell(end)) continue;
        if (!send_credit(peer, end)) return result;
        result = TT_OK;
    }
    for (bool more = true; more;) {
        more = false;
        for (struct end *end = peer->bound; end; end = end->next) {
            if (!end->outgoing || !unsent(bridges, end)) continue;
            if (!send_part(bridges, peer, end)) return result;
            result = TT_OK;
            more = true;
        }
    }
    if (bridges->ends && are_drained(peer) && say_end(peer)) result = TT_OK;
    return result;
}

/* ---- All peers ------------------------------------------------------------------------------ */

tt_status tt_bridges_move(struct tt_bridges *bridges)
{
    tt_status result = TT_IN_PROGRESS;
    for (struct peer *peer = bridges->first; peer; peer = peer->next) {
        const tt_status received = receive(bridges, peer);
        if (received < 0) return received;
        const tt_status sent = send_all(bridges, peer);
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
    for (const struct peer *peer = bridges->first; peer; peer = peer->next) {
        if (needs_nothing(bridges, peer)) continue;
        if (!has_left(&peer->pair)) return true;
        for (const struct end *end = peer->bound; end; end = end->next)
            if (end->outgoing ? unsent(bridges, end) > 0 : must_tell(end)) return true;
    }
    return false;
}

void tt_bridges_mark(struct tt_bridges *bridges, enum tt_bridge_mark mark)
{
    for (struct peer *peer = bridges->first; peer; peer = peer->next) {
        peer->marks[mark] = (struct mark){.waits = true};
        for (struct end *end = peer->bound; end; end = end->next)
            end->marked[mark] = end->outgoing
                                    ? end->moved + unsent(bridges, end)
                                    : (uint32_t)__atomic_load_n(end->tail, __ATOMIC_ACQUIRE);
    }
}

/* Whether what was marked is in frames. Counts wrap. A first credit, for which a peer may have no
 * room before it makes a call, is of no call. */
static bool is_framed(const struct peer *peer, enum tt_bridge_mark mark)
{
    for (const struct end *end = peer->bound; end; end = end->next) {
        const uint32_t n = end->outgoing ? end->moved : end->told;
        const bool counts = end->outgoing || end->has_credit;
        if (counts && n - end->marked[mark] > UINT32_MAX / 2) return false;
    }
    return true;
}

/* While frame follows frame a link is never seen empty: but a frame has left its slot when as
 * many more are given to the link as a link has slots at most. */
static bool is_on_its_way(struct peer *peer, enum tt_bridge_mark mark)
{
    struct mark *at = &peer->marks[mark];
    if (!at->waits) return true;
    if (!at->is_framed && !is_framed(peer, mark)) return false;
    if (!at->is_framed) at->nframes = peer->nframes;
    at->is_framed = true;
    at->waits = peer->nframes - at->nframes < TT_MAX_SLOTS && !has_left(&peer->pair);
    return !at->waits;
}

bool tt_bridges_have_sent(struct tt_bridges *bridges, enum tt_bridge_mark mark)
{
    for (struct peer *peer = bridges->first; peer; peer = peer->next)
        if (!needs_nothing(bridges, peer) && !is_on_its_way(peer, mark)) return false;
    return true;
}

void tt_bridges_end(struct tt_bridges *bridges)
{
    bridges->ends = true;
}

/* Of a peer that has made no call the link may never have room for saying the end. */
bool tt_bridges_has_ended(struct tt_bridges *bridges, int peer)
{
    const struct peer *of = bridges->peers[peer];
    bool is_used = of && of->has_moved;
    for (const struct end *end = of ? of->bound : NULL; end; end = end->next)
        is_used = is_used || (end->outgoing && unsent(bridges, end));
    return !is_used || of->has_said_end || needs_nothing(bridges, of);
}
