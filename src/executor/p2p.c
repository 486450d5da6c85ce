/* Point to point: a message of any length as slices through slots, or whole by reference. */
#include "executor/internal.h"

enum { REFERENCE_MIN_BYTES = 16384, BITE_BYTES = 1 << 20 };

/* The signature of a point-to-point message is its length: the only thing both sides must agree on.
 */
static uint64_t length_signature(size_t nbytes)
{
    return (uint64_t)nbytes | 1ull << 63;
}

/* The next bytes of the message, by reference if the link can. */
static bool publish(struct tt_work *work, struct tt_link *link, size_t nbytes, bool may_copy)
{
    const char *data = work->data + work->offset;
    const uint64_t signature = length_signature(work->nbytes);
    if (nbytes >= REFERENCE_MIN_BYTES && link->ops->publish_direct(link, data, nbytes, signature)) {
        work->waits_for_drain = true;
    } else {
        void *slot = may_copy ? link->ops->slot(link, nbytes) : NULL;
        if (!slot) return false;
        tt_copy(slot, data, nbytes, false);
        link->ops->publish(link, nbytes, signature);
    }
    work->offset += nbytes;
    work->progress++;
    return true;
}

/* All at once by reference, else slice by slice. */
static bool publish_all(struct tt_work *work, struct tt_link *link)
{
    if (work->offset == 0 && publish(work, link, work->nbytes, false)) return true;
    do {
        const size_t left = work->nbytes - work->offset;
        const size_t nbytes = left < link->slot_bytes ? left : link->slot_bytes;
        if (!publish(work, link, nbytes, true)) return false;
    } while (work->offset < work->nbytes);
    return true;
}

static tt_status advance_send(struct tt_work *work)
{
    struct tt_link *link = tt_fabric_tx(work->engine->fabric, work->peer, TT_P2P_CHANNEL);
    if (!work->published) work->published = publish_all(work, link);
    if (!work->published) return TT_IN_PROGRESS;
    return !work->waits_for_drain || link->ops->drained(link) ? TT_OK : TT_IN_PROGRESS;
}

static tt_status length_mismatch(struct tt_work *work, const struct tt_message *message)
{
    char sender[128], receiver[128];
    struct tt_fabric *fabric = work->engine->fabric;
    tt_fabric_name_rank(fabric, work->peer, sender, sizeof sender);
    tt_fabric_name_rank(fabric, fabric->rank, receiver, sizeof receiver);
    return tt_fabric_fail(fabric, TT_ERR_USAGE,
                          "%s sends %llu bytes, %s receives %zu bytes: give both the same count",
                          sender, (unsigned long long)(message->signature & ~(1ull << 63)),
                          receiver, work->nbytes);
}

/* A bounded part of the first message; released when all of it has been copied. */
static tt_status take_bite(struct tt_work *work, struct tt_link *link,
                           const struct tt_message *message, size_t *taken)
{
    const size_t left = message->nbytes - *taken;
    const size_t nbytes = left < BITE_BYTES ? left : BITE_BYTES;
    char *to = work->data + work->offset;
    if (!message->data)
        TT_TRY(link->ops->fetch(link, to, *taken, nbytes));
    else if ((const char *)message->data + *taken != to) /* not delivered in place */
        tt_copy(to, (const char *)message->data + *taken, nbytes, work->bound.nontemporal);
    *taken += nbytes;
    work->offset += nbytes;
    work->progress++;
    return TT_OK;
}

static tt_status advance_recv(struct tt_work *work)
{
    struct tt_link *link = tt_fabric_rx(work->engine->fabric, work->peer, TT_P2P_CHANNEL);
    const uint64_t signature = length_signature(work->nbytes);
    do {
        struct tt_message message;
        const size_t left = work->nbytes - work->offset;
        if (!work->taken)
            link->ops->expect(link, work->data + work->offset,
                              left < link->slot_bytes ? left : link->slot_bytes, signature);
        TT_TRY(link->ops->peek(link, &message));
        if (message.signature != signature) return length_mismatch(work, &message);
        TT_TRY(take_bite(work, link, &message, &work->taken));
        if (work->taken < message.nbytes) return TT_IN_PROGRESS; /* a bite at a time */
        link->ops->release(link);
        work->taken = 0;
    } while (work->offset < work->nbytes);
    return TT_OK;
}

tt_status tt_p2p_advance(struct tt_work *work)
{
    return work->kind == TT_WORK_SEND ? advance_send(work) : advance_recv(work);
}
