/* Moves messages between kernels' ends in pinned memory and the ordinary links with ranks that have
 * no GPU. */
#include "carrier/kernel/relay.h"

#include <stdlib.h>
#include <string.h>

#include "device/call.h"
#include "executor/work.h"

/* An end. Messages of collectives are the same on both links. Those of exchanges are cut anew: a
 * kernel takes all messages of a send but the last one as long as its slots, the host of any
 * length. */
struct relay {
    struct tt_relay_place place;
    bool of_exchanges;
    struct tt_link *link; /* NULL: not bound */
    uint64_t *head, *tail;
    struct tt_device_note *notes; /* [nslots] */
    char *slots;                  /* [nslots][slot_bytes] */
    /* Messages of the kernel's link; counts wrap */
    uint32_t moved;   /* that are sent, or put into slots */
    uint32_t granted; /* of calls that have begun */
    /* Bytes of the message that is being moved */
    size_t offset; /* outgoing: of its slot that are sent; incoming: of the send in earlier slots */
    size_t filled; /* incoming: of its slot */
    size_t taken;  /* incoming: of the first message of the ordinary link */
    struct relay *next;
};

struct tt_relays {
    struct tt_bridge_shape shape;
    struct relay **peers; /* [nranks][2 * nchannels]; NULL: nothing is bound */
    struct relay *first;  /* of those that are bound, linked by next */
};

/* ---- Creation and binding ------------------------------------------------------------------- */

tt_status tt_relays_create(struct tt_relays **out, const struct tt_bridge_shape *shape)
{
    struct tt_relays *relays = calloc(1, sizeof *relays);
    struct relay **peers = calloc((size_t)shape->nranks, sizeof *peers);
    if (!relays || !peers) {
        free(peers);
        free(relays);
        return tt_fail(TT_ERR_SYSTEM, "out of memory for relays to %d ranks", shape->nranks);
    }
    *relays = (struct tt_relays){.shape = *shape, .peers = peers};
    *out = relays;
    return TT_OK;
}

void tt_relays_destroy(struct tt_relays *relays)
{
    if (!relays) return;
    for (int r = 0; r < relays->shape.nranks; r++) free(relays->peers[r]);
    free(relays->peers);
    free(relays);
}

static struct relay *find(const struct tt_relays *relays, const struct tt_relay_place *place)
{
    struct relay *of_peer = relays->peers[place->peer];
    return of_peer ? &of_peer[2 * place->channel + place->outgoing] : NULL;
}

bool tt_relays_has(const struct tt_relays *relays, const struct tt_relay_place *place)
{
    const struct relay *relay = find(relays, place);
    return relay && relay->link;
}

/* A slot is free again as soon as the link has its message: no peer must say so. */
void tt_relays_lay(const struct tt_bridge_shape *shape, bool outgoing, void *memory,
                   struct tt_device_end *end)
{
    tt_bridges_lay(shape, outgoing, memory, NULL, end);
    end->known_tail = 0;
}

tt_status tt_relays_bind(struct tt_relays *relays, const struct tt_relay_place *place,
                         struct tt_link *link, const struct tt_device_end *laid)
{
    struct relay **of_peer = &relays->peers[place->peer];
    if (!*of_peer) *of_peer = calloc(2 * (size_t)relays->shape.nchannels, sizeof **of_peer);
    if (!*of_peer)
        return tt_fail(TT_ERR_SYSTEM, "out of memory for the relay to rank %d", place->peer);
    struct relay *relay = find(relays, place);
    *relay = (struct relay){.place = *place,
                            .of_exchanges = (uint32_t)place->channel == relays->shape.nchannels - 1,
                            .link = link,
                            .head = laid->head,
                            .tail = laid->tail,
                            .notes = laid->notes,
                            .slots = laid->slots,
                            .next = relays->first};
    relays->first = relay;
    return TT_OK;
}

/* ---- What calls may move -------------------------------------------------------------------- */

/* Bytes of a message of an exchange at most. */
static size_t most_bytes(const struct tt_bridge_shape *shape)
{
    return shape->slot_bytes < TT_FLOW_PIECE ? shape->slot_bytes : TT_FLOW_PIECE;
}

uint64_t tt_relay_messages(const struct tt_bridge_shape *shape, size_t nbytes)
{
    const size_t most = most_bytes(shape);
    return nbytes ? nbytes / most + (nbytes % most > 0) : 1;
}

void tt_relays_grant(struct tt_relays *relays, const struct tt_relay_place *place,
                     uint64_t nmessages)
{
    find(relays, place)->granted += (uint32_t)nmessages;
}

bool tt_relays_have_moved(const struct tt_relays *relays, const struct tt_relay_place *place)
{
    const struct relay *relay = find(relays, place);
    return relay->moved == relay->granted;
}

/* ---- Moving --------------------------------------------------------------------------------- */

static tt_status refuse(const struct relay *relay, const struct tt_message *message, size_t most)
{
    return tt_fail(TT_ERR_REMOTE,
                   "rank %d, which has no GPU, sent a message of %zu bytes where a kernel takes at "
                   "most %zu: use one version of tutti in a job",
                   relay->place.peer, message->nbytes, most);
}

static uint32_t slot_of(const struct tt_relays *relays, const struct relay *relay)
{
    return relay->moved % relays->shape.nslots;
}

static char *bytes_of(const struct tt_relays *relays, const struct relay *relay)
{
    return relay->slots + (size_t)slot_of(relays, relay) * relays->shape.slot_bytes;
}

/* Whether the kernel has published a message that may be sent. */
static bool can_send(const struct relay *relay)
{
    return relay->moved != relay->granted &&
           (uint32_t)__atomic_load_n(relay->head, __ATOMIC_ACQUIRE) != relay->moved;
}

/* Whether there is a slot for a message that may be taken. */
static bool can_take(const struct tt_relays *relays, const struct relay *relay)
{
    return relay->moved != relay->granted &&
           relay->moved - (uint32_t)__atomic_load_n(relay->tail, __ATOMIC_ACQUIRE) <
               relays->shape.nslots;
}

/* The next part of the next message. False: the link is full. */
static bool send_part(const struct tt_relays *relays, struct relay *relay)
{
    struct tt_link *link = relay->link;
    const struct tt_device_note *note = &relay->notes[slot_of(relays, relay)];
    size_t nbytes = note->length - relay->offset;
    if (nbytes > link->slot_bytes) nbytes = link->slot_bytes;
    void *to = link->ops->slot(link, nbytes);
    if (!to) return false;
    memcpy(to, bytes_of(relays, relay) + relay->offset, nbytes);
    link->ops->publish(link, nbytes,
                       relay->of_exchanges ? tt_signature_of_send(note->nbytes) : note->head >> 32);
    relay->offset += nbytes;
    if (relay->offset < note->length) return true;
    relay->offset = 0;
    relay->moved++;
    __atomic_store_n(relay->tail, relay->moved, __ATOMIC_RELEASE);
    return true;
}

/* The slot is filled: the kernel may take it. nbytes: of the send. */
static void give(const struct tt_relays *relays, struct relay *relay, uint32_t signature,
                 size_t length, size_t nbytes)
{
    const uint64_t head = tt_device_head(relay->moved + 1, signature);
    relay->notes[slot_of(relays, relay)] =
        (struct tt_device_note){.head = head, .nbytes = nbytes, .length = length};
    relay->moved++;
    __atomic_store_n(relay->head, head, __ATOMIC_RELEASE);
}

/* Bytes [taken, taken + nbytes) of the link's first message. */
static tt_status copy(const struct relay *relay, const struct tt_message *message, char *to,
                      size_t nbytes)
{
    if (!message->data) return relay->link->ops->fetch(relay->link, to, relay->taken, nbytes);
    memcpy(to, (const char *)message->data + relay->taken, nbytes);
    return TT_OK;
}

/* The message of a collective. */
static tt_status take_message(const struct tt_relays *relays, struct relay *relay,
                              const struct tt_message *message)
{
    if (message->nbytes > relays->shape.slot_bytes)
        return refuse(relay, message, relays->shape.slot_bytes);
    TT_AWAIT(copy(relay, message, bytes_of(relays, relay), message->nbytes));
    give(relays, relay, (uint32_t)message->signature, message->nbytes, 0);
    relay->link->ops->release(relay->link);
    return TT_OK;
}

/* What the slot takes of a message that is a part of a send. */
static tt_status take_part(const struct tt_relays *relays, struct relay *relay,
                           const struct tt_message *message)
{
    const size_t total = message->signature & ~TT_SIGNATURE_OF_SEND;
    const size_t before = relay->offset + relay->filled, most = most_bytes(&relays->shape);
    const size_t rest = message->nbytes - relay->taken;
    if (before > total || rest > total - before || (!rest && before < total))
        return refuse(relay, message, before < total ? total - before : 0);
    const size_t length = total - relay->offset < most ? total - relay->offset : most;
    const size_t room = length - relay->filled, nbytes = rest < room ? rest : room;
    TT_AWAIT(copy(relay, message, bytes_of(relays, relay) + relay->filled, nbytes));
    relay->filled += nbytes;
    relay->taken += nbytes;
    if (relay->taken == message->nbytes) {
        relay->link->ops->release(relay->link);
        relay->taken = 0;
    }
    if (relay->filled < length) return TT_OK;
    give(relays, relay, TT_DEVICE_EXCHANGE_BIT, length, total);
    relay->offset = relay->offset + length < total ? relay->offset + length : 0;
    relay->filled = 0;
    return TT_OK;
}

static tt_status take(const struct tt_relays *relays, struct relay *relay)
{
    struct tt_message message;
    const tt_status status = relay->link->ops->peek(relay->link, &message);
    if (status) return status;
    /* Memory of the sender is not to be read here: nobody would wait until it is. */
    if (message.is_reference) return refuse(relay, &message, relays->shape.slot_bytes);
    return relay->of_exchanges ? take_part(relays, relay, &message)
                               : take_message(relays, relay, &message);
}

/* TT_OK: something was moved. */
static tt_status move(const struct tt_relays *relays, struct relay *relay)
{
    tt_status result = TT_IN_PROGRESS;
    if (relay->place.outgoing) {
        for (; can_send(relay) && send_part(relays, relay); result = TT_OK) continue;
        return result;
    }
    while (can_take(relays, relay)) {
        const tt_status status = take(relays, relay);
        if (status) return status < 0 ? status : result;
        result = TT_OK;
    }
    return result;
}

tt_status tt_relays_move(struct tt_relays *relays)
{
    tt_status result = TT_IN_PROGRESS;
    for (struct relay *relay = relays->first; relay; relay = relay->next) {
        const tt_status moved = move(relays, relay);
        if (moved < 0) return moved;
        if (!moved) result = TT_OK;
    }
    return result;
}

/* Whatever becomes of this process. */
static bool has_left(const struct relay *relay)
{
    struct tt_link *link = relay->link;
    return relay->place.outgoing ? link->ops->delivered(link) : link->ops->flushed(link);
}

bool tt_relays_have_work(const struct tt_relays *relays)
{
    for (const struct relay *relay = relays->first; relay; relay = relay->next)
        if (!has_left(relay) || (relay->place.outgoing && can_send(relay))) return true;
    return false;
}

bool tt_relays_have_sent(const struct tt_relays *relays, bool of_exchanges)
{
    for (const struct relay *relay = relays->first; relay; relay = relay->next)
        if (relay->of_exchanges == of_exchanges &&
            (relay->moved != relay->granted || !has_left(relay)))
            return false;
    return true;
}
