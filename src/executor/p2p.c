/* Point to point: a message of any length in pieces through slots, or whole by reference. */
#include <stdio.h>
#include <string.h>

#include "executor/express.h"
#include "executor/internal.h"
#include "executor/shared_store.h"

enum { REFERENCE_MIN_BYTES = 16384, COPY_BYTES = 1 << 20, LEAST_PIECE_BYTES = 8192, PIECES = 8 };

/* The next bytes of the message, by reference if the link can. */
static bool publish(struct tt_work *work, const char *data, size_t nbytes, bool may_copy)
{
    struct tt_p2p_work *own = &work->p2p;
    struct tt_link *link = own->link;
    const uint64_t signature = tt_signature_of_send(own->nbytes);
    if (nbytes >= REFERENCE_MIN_BYTES && !tt_fabric_is_relayed(work->engine->fabric, own->peer) &&
        link->ops->publish_direct(link, &own->memory, data, nbytes, signature)) {
        own->references = true;
    } else {
        void *slot = may_copy ? link->ops->slot(link, nbytes) : NULL;
        if (!slot) return false;
        if (nbytes) tt_store_shared(link->store, slot, data, nbytes); /* else data may be NULL */
        link->ops->publish(link, nbytes, signature);
    }
    own->offset += nbytes;
    work->progress++;
    return true;
}

/* All at once by reference, else piece by piece. */
static bool publish_all(struct tt_work *work)
{
    const struct tt_p2p_work *own = &work->p2p;
    if (own->offset == 0 && publish(work, own->data, own->nbytes, false)) return true;
    do {
        const size_t left = own->nbytes - own->offset;
        const size_t nbytes = left < own->piece ? left : own->piece;
        if (!publish(work, own->data + own->offset, nbytes, true)) return false;
    } while (own->offset < own->nbytes);
    return true;
}

/* ---- Both sides ----------------------------------------------------------------------------- */

static tt_status advance_send(struct tt_work *work)
{
    struct tt_p2p_work *own = &work->p2p;
    if (!own->published) own->published = publish_all(work);
    if (!own->published) return TT_IN_PROGRESS;
    return !own->references || own->link->ops->drained(own->link) ? TT_OK : TT_IN_PROGRESS;
}

static tt_status length_mismatch(struct tt_work *work, const struct tt_message *message)
{
    char sender[128], receiver[128];
    struct tt_fabric *fabric = work->engine->fabric;
    tt_fabric_name_rank(fabric, work->p2p.peer, sender, sizeof sender);
    tt_fabric_name_rank(fabric, fabric->rank, receiver, sizeof receiver);
    return tt_fabric_fail(fabric, TT_ERR_USAGE,
                          "%s sends %llu bytes, %s receives %zu bytes: give both the same count",
                          sender, (unsigned long long)(message->signature & ~TT_SIGNATURE_OF_SEND),
                          receiver, work->p2p.nbytes);
}

/* The rest of the first message, behind the bytes that were taken, must fit the rest of the buffer.
 * The sender wrote the message's length, and can change it while the message lies in memory that
 * the sender can write. */
static tt_status check_length(struct tt_work *work, const struct tt_message *message)
{
    const struct tt_p2p_work *own = &work->p2p;
    const size_t left = own->nbytes - own->offset, rest = message->nbytes - own->taken;
    if (own->taken <= message->nbytes && rest <= left && (rest || !left)) return TT_OK;
    char sender[128];
    tt_fabric_name_rank(work->engine->fabric, own->peer, sender, sizeof sender);
    return tt_fabric_fail(work->engine->fabric, TT_ERR_REMOTE,
                          "%s sent a message of %zu bytes where %zu of %zu bytes were left to "
                          "receive: memory or network is faulty, or its tutti is another build",
                          sender, message->nbytes, left, own->nbytes);
}

/* A bounded part of the first message; released when all of it has been copied. */
static tt_status copy_some(struct tt_work *work, const struct tt_message *message, char *to)
{
    struct tt_p2p_work *own = &work->p2p;
    struct tt_fabric *fabric = work->engine->fabric;
    const size_t left = message->nbytes - own->taken;
    const size_t nbytes = left < COPY_BYTES ? left : COPY_BYTES;
    const struct tt_lenders source = {.peer = own->peer};
    if (message->is_borrowed) TT_TRY(tt_fabric_borrow(fabric, source));
    if (!message->data)
        TT_AWAIT(own->link->ops->fetch(own->link, to, own->taken, nbytes));
    else if (nbytes && (const char *)message->data + own->taken != to) /* not delivered in place */
        tt_copy(to, (const char *)message->data + own->taken, nbytes, own->nontemporal);
    if (message->is_borrowed)
        tt_fabric_give_back(fabric);
    else if (message->is_reference)
        TT_TRY(tt_fabric_check_source(fabric, source));
    own->taken += nbytes;
    own->offset += nbytes;
    return TT_OK;
}

static tt_status advance_recv(struct tt_work *work)
{
    struct tt_p2p_work *own = &work->p2p;
    const struct tt_link_ops *ops = own->link->ops;
    const uint64_t signature = tt_signature_of_send(own->nbytes);
    do {
        struct tt_message message;
        char *to = own->data + own->offset;
        const size_t left = own->nbytes - own->offset;
        if (!own->taken)
            ops->expect(own->link, to, left < own->piece ? left : own->piece, signature);
        TT_AWAIT(ops->peek(own->link, &message));
        if (message.signature != signature) return length_mismatch(work, &message);
        TT_TRY(check_length(work, &message));
        TT_AWAIT(copy_some(work, &message, to));
        work->progress++;
        if (own->taken < message.nbytes) return TT_IN_PROGRESS; /* the rest at the next call */
        ops->release(own->link);
        own->taken = 0;
    } while (own->offset < own->nbytes);
    return TT_OK;
}

static tt_status advance(struct tt_work *work)
{
    return work->p2p.sends ? advance_send(work) : advance_recv(work);
}

/* ---- Begin and end -------------------------------------------------------------------------- */

static void init(struct tt_work *work, struct tt_engine *engine, bool sends, char *data,
                 size_t nbytes, int peer)
{
    work->ops = &tt_p2p_ops; /* member by member: the other side of the union is large */
    work->engine = engine;
    work->next = NULL;
    work->turns = sends ? &engine->sends_done[peer] : &engine->recvs_done[peer];
    work->state = TT_WORK_ISSUED;
    work->has_begun = false;
    work->status = TT_OK;
    work->turn = sends ? ++engine->sends_issued[peer] : ++engine->recvs_issued[peer];
    work->timeout_ms = tt_engine_timeout(engine);
    work->deadline_ns = 0;
    work->progress = 0;
    work->late.since_ns = 0;
    work->stream = NULL;
    work->p2p = (struct tt_p2p_work){.peer = peer,
                                     .sends = sends,
                                     .data = data,
                                     .nbytes = nbytes,
                                     .nontemporal = nbytes >= TT_NONTEMPORAL_MIN_BYTES};
    atomic_fetch_add_explicit(&engine->outstanding, 1, memory_order_relaxed);
}

void tt_work_send(struct tt_work *work, struct tt_engine *engine, const void *data, size_t nbytes,
                  int peer)
{
    init(work, engine, true, (char *)(uintptr_t)data, nbytes, peer);
}

void tt_work_recv(struct tt_work *work, struct tt_engine *engine, void *data, size_t nbytes,
                  int peer)
{
    init(work, engine, false, data, nbytes, peer);
}

static tt_status ready(struct tt_work *work)
{
    (void)work;
    return TT_OK;
}

/* Bytes of a piece of a message. Inside a host the receiver copies a piece while the sender copies
 * the next one, so a message that would fill few slots is cut into PIECES pieces. */
static size_t piece_of(const struct tt_work *work)
{
    const struct tt_p2p_work *own = &work->p2p;
    const size_t most = own->link->slot_bytes;
    if (!tt_fabric_is_local(work->engine->fabric, own->peer)) return most;
    size_t piece = LEAST_PIECE_BYTES;
    while (piece < most && piece < own->nbytes / PIECES) piece *= 2;
    return piece < most ? piece : most;
}

static tt_status start(struct tt_work *work)
{
    struct tt_p2p_work *own = &work->p2p;
    struct tt_fabric *fabric = work->engine->fabric;
    const int channel = tt_fabric_p2p_channel(fabric);
    own->link = own->sends ? tt_fabric_tx(fabric, own->peer, channel)
                           : tt_fabric_rx(fabric, own->peer, channel);
    own->piece = piece_of(work);
    tt_fabric_find_memory(fabric, own->data, own->nbytes, &own->memory);
    if (own->sends) tt_fabric_introduce(fabric, own->peer, &own->memory);
    return TT_OK;
}

static tt_status flush(struct tt_work *work)
{
    if (!work->engine->fabric->wires) return TT_OK;
    return work->p2p.link->ops->flushed(work->p2p.link) ? TT_OK : TT_IN_PROGRESS;
}

/* A receive that has all of its message, and waits only until it has left this rank, does not need
 * the sender any more, which may be gone. */
static tt_status check(struct tt_work *work)
{
    const struct tt_p2p_work *own = &work->p2p;
    if (!own->sends && work->state == TT_WORK_LEAVING) return TT_OK;
    return tt_fabric_check_peers(work->engine->fabric, 0, own->peer, own->sends);
}

/* After a failure no message may be delivered to the caller's buffer any more. */
static void end(struct tt_work *work, tt_status status)
{
    const struct tt_p2p_work *own = &work->p2p;
    struct tt_fabric *fabric = work->engine->fabric;
    if (!status) return;
    if (!own->sends && own->link) own->link->ops->expect(own->link, NULL, 0, 0);
    if (fabric->wires) tt_wires_give_back(fabric->wires);
}

static void describe(const struct tt_work *work, char *text, size_t size)
{
    snprintf(text, size, "%s %d number %llu (%zu bytes)",
             work->p2p.sends ? "send to" : "receive from", work->p2p.peer,
             (unsigned long long)work->turn, work->p2p.nbytes);
}

/* The message has not been sent or taken. */
static void missing(const struct tt_work *work, char *text, size_t size)
{
    const struct tt_fabric *fabric = work->engine->fabric;
    const int peer = work->p2p.peer;
    char name[128];
    tt_fabric_name_rank(fabric, peer, name, sizeof name);
    const char *format = tt_is_unheard(fabric, peer)  ? "; nothing has been heard of %s"
                         : tt_is_silent(fabric, peer) ? "; %s did not answer"
                                                      : "; %s did not answer, but waits itself";
    snprintf(text, size, format, name);
}

/* A peer that waits itself is not to blame. */
static bool knows(const struct tt_work *work)
{
    const struct tt_fabric *fabric = work->engine->fabric;
    return work->p2p.peer != fabric->rank && tt_is_silent(fabric, work->p2p.peer);
}

const struct tt_work_ops tt_p2p_ops = {.ready = ready,
                                       .start = start,
                                       .advance = advance,
                                       .flush = flush,
                                       .is_woken = true,
                                       .check = check,
                                       .stop = tt_await_readers,
                                       .end = end,
                                       .describe = describe,
                                       .missing = missing,
                                       .knows = knows};

/* ---- Express -------------------------------------------------------------------------------- */

static bool send_now(struct tt_engine *engine, const void *data, size_t nbytes, int peer)
{
    struct tt_link *link =
        tt_fabric_tx(engine->fabric, peer, tt_fabric_p2p_channel(engine->fabric));
    void *slot = link->ops->slot(link, nbytes);
    if (!slot) return false;
    if (nbytes) tt_store_shared(link->store, slot, data, nbytes);
    link->ops->publish(link, nbytes, tt_signature_of_send(nbytes));
    const uint64_t turn = ++engine->sends_issued[peer];
    /* acquire: tt_work_advance */
    atomic_store_explicit(&engine->sends_done[peer], turn, memory_order_release);
    return true;
}

static bool receive_now(struct tt_engine *engine, void *data, size_t nbytes, int peer)
{
    struct tt_link *link =
        tt_fabric_rx(engine->fabric, peer, tt_fabric_p2p_channel(engine->fabric));
    struct tt_message message;
    if (tt_peek_for(engine, link, TT_EXPRESS_LOOKS, &message) != TT_OK) return false;
    if (message.signature != tt_signature_of_send(nbytes) || message.nbytes != nbytes) return false;
    if (!message.data && nbytes) return false;
    if (nbytes) tt_copy_short(data, message.data, nbytes);
    link->ops->release(link);
    const uint64_t turn = ++engine->recvs_issued[peer];
    /* acquire: tt_work_advance */
    atomic_store_explicit(&engine->recvs_done[peer], turn, memory_order_release);
    return true;
}

bool tt_p2p_express(struct tt_engine *engine, bool sends, void *data, size_t nbytes, int peer)
{
    const struct tt_fabric *fabric = engine->fabric;
    if (nbytes >= TT_EXPRESS_BYTES || nbytes > fabric->segment->header->slot_bytes) return false;
    if (fabric->hosts->nhosts > 1 || tt_fabric_check(engine->fabric) != TT_OK) return false;
    return sends ? send_now(engine, data, nbytes, peer) : receive_now(engine, data, nbytes, peer);
}
