/* A LINK step: waits for the messages and the slots that the step needs, then does the step in one
 * pass. */
#include <stdlib.h>

#include "executor/internal.h"

/* A reference costs the sender a wait at the end; below this a copy is cheaper. */
enum { DIRECT_MIN_BYTES = 4096 };

static struct tt_link *recv_link(const struct tt_work *work, const struct tt_program_step *step,
                                 uint32_t i)
{
    return work->collective.call.loaded->links[step->recv + i];
}

static struct tt_link *send_link(const struct tt_work *work, const struct tt_program_step *step,
                                 uint32_t i)
{
    return work->collective.call.loaded->links[step->send + i];
}

static tt_status bounce_of(struct tt_engine *engine, int peer, int channel, char **bounce)
{
    const int nranks = engine->fabric->nranks;
    peer += channel * nranks;
    if (!engine->bounce)
        engine->bounce = calloc((size_t)nranks * TT_COLLECTIVE_CHANNELS, sizeof *engine->bounce);
    if (engine->bounce && !engine->bounce[peer])
        engine->bounce[peer] = aligned_alloc(TT_LINE, engine->fabric->segment->header->slot_bytes);
    if (!engine->bounce || !engine->bounce[peer])
        return tt_fail(TT_ERR_SYSTEM, "out of memory for a receive buffer of %u bytes",
                       engine->fabric->segment->header->slot_bytes);
    *bounce = engine->bounce[peer];
    return TT_OK;
}

void tt_step_expect(struct tt_work *work, const struct tt_program_step *step, void *to,
                    size_t nbytes)
{
    struct tt_link *link = recv_link(work, step, 0);
    link->ops->expect(link, to, nbytes, work->collective.signature);
}

/* A message from another host that is only stored, in one piece, may be delivered there. */
static void ask_for_delivery(struct tt_work *work, int channel, const struct tt_program_step *step,
                             size_t nbytes)
{
    const struct tt_fabric *fabric = work->engine->fabric;
    struct tt_position *at = &work->collective.channels[channel];
    struct tt_piece piece;
    if (!fabric->wires || at->asked || !nbytes || step->op != TT_COPY || step->finish ||
        step->nrecv != 1 || step->own_at >= 0 ||
        tt_fabric_is_local(fabric, recv_link(work, step, 0)->peer))
        return;
    struct tt_walk walk = tt_work_walk(work, channel, &step->dst,
                                       tt_span_is_whole(&work->collective.binding, &step->dst));
    if (!tt_walk_next(&walk, &piece) || piece.count * work->collective.binding.element != nbytes)
        return;
    at->asked = true;
    tt_step_expect(work, step, tt_piece_data(work, &step->dst, &piece), nbytes);
}

/* Waits for the messages, one link after the other. */
static tt_status gather_messages(struct tt_work *work, int channel,
                                 const struct tt_program_step *step, size_t nbytes)
{
    struct tt_position *at = &work->collective.channels[channel];
    for (; at->ready < step->nrecv; at->ready++) {
        struct tt_link *link = recv_link(work, step, at->ready);
        struct tt_message message;
        TT_AWAIT(tt_peek_for(work->engine, link, TT_BRIEF_LOOKS, &message));
        if (message.signature != work->collective.signature || message.nbytes != nbytes)
            return tt_work_mismatch(work, link->peer);
        if (!message.data && nbytes) {
            char *bounce;
            TT_TRY(bounce_of(work->engine, link->peer, channel, &bounce));
            TT_TRY(link->ops->fetch(link, bounce, 0, nbytes));
            message.data = bounce;
        }
        work->engine->rooms[channel].messages[at->ready] = message.data;
        work->progress++;
    }
    return TT_OK;
}

static tt_status get_slots(struct tt_work *work, int channel, const struct tt_program_step *step,
                           size_t nbytes)
{
    struct tt_position *at = &work->collective.channels[channel];
    for (; at->nslots < step->nsend; at->nslots++) {
        struct tt_link *link = send_link(work, step, at->nslots);
        char *slot = link->ops->slot(link, nbytes);
        if (!slot) return TT_IN_PROGRESS;
        work->engine->rooms[channel].slots[at->nslots] = slot;
    }
    return TT_OK;
}

/* Memory of this rank that holds exactly what is sent, in one piece, and may be read in place;
 * NULL: copy. */
static const char *sendable(const struct tt_work *work, int channel,
                            const struct tt_program_step *step, size_t nbytes)
{
    const struct tt_program_span *span = step->dst.number ? &step->dst : &step->local;
    struct tt_piece piece, more;
    if (nbytes < DIRECT_MIN_BYTES || !span->number || !work->collective.direct[span->buffer])
        return NULL;
    if (span == &step->local && (step->nrecv || step->finish)) return NULL;
    struct tt_walk walk =
        tt_work_walk(work, channel, span, tt_span_is_whole(&work->collective.binding, span));
    if (!tt_walk_next(&walk, &piece) || tt_walk_next(&walk, &more)) return NULL;
    const char *first = tt_piece_data(work, span, &piece);
    for (uint32_t i = 0; i < step->nsend; i++) {
        struct tt_link *link = send_link(work, step, i);
        if (!link->ops->reaches(link, first, nbytes)) return NULL;
    }
    return first;
}

/* What one pass of a step works with. */
struct pass {
    const struct tt_program_step *step;
    int channel;
    unsigned local_flags; /* of reading the local span */
    uint32_t nslots;      /* send slots to fill; 0 when sent by reference */
    size_t offset;        /* bytes into every message */
};

/* A raw contribution of a pre-multiplied sum that is not first in the order must be scaled aside.
 */
static tt_status scale_aside(const struct tt_work *work, const struct pass *pass,
                             const void **local, size_t count)
{
    if (!(pass->local_flags & TT_SCALE_FIRST) || pass->step->own_at <= 0) return TT_OK;
    char *aside;
    TT_TRY(bounce_of(work->engine, work->engine->fabric->rank, pass->channel, &aside));
    tt_transfer(work, aside, *local, count, TT_SCALE_FIRST);
    *local = aside;
    return TT_OK;
}

static tt_status fold(const struct tt_work *work, const struct pass *pass, char *target,
                      const char *local, size_t count, unsigned flags)
{
    const struct tt_channel_room *room = &work->engine->rooms[pass->channel];
    const int32_t own_at = pass->step->own_at;
    const void *own = local;
    TT_TRY(scale_aside(work, pass, &own, count));
    int n = 0;
    for (uint32_t i = 0; i < pass->step->nrecv; i++) {
        if ((int32_t)i == own_at) room->inputs[n++] = own;
        room->inputs[n++] = (const char *)room->messages[i] + pass->offset;
    }
    if (own_at == (int32_t)pass->step->nrecv) room->inputs[n++] = own;
    if (own_at == 0) flags |= pass->local_flags;
    tt_reduce(&work->collective.call.reduction, target, room->inputs, n, count, flags);
    return TT_OK;
}

/* One contiguous piece: sources -> dst (may be NULL) and the send slots. */
static tt_status do_piece(const struct tt_work *work, struct pass *pass, const char *local,
                          char *dst, size_t count)
{
    const struct tt_channel_room *room = &work->engine->rooms[pass->channel];
    const struct tt_binding *binding = &work->collective.binding;
    const size_t nbytes = count * binding->element;
    /* A copy onto itself writes nothing: verify lets peers still read that memory by reference. */
    const bool onto_itself = dst == local && pass->step->op == TT_COPY;
    const bool stream =
        binding->nontemporal && dst && !onto_itself && pass->step->dst.buffer == TT_OUTPUT;
    /* With slots to fill and a result that should not stay in the cache, the slot is made first. */
    char *target = dst && !(stream && pass->nslots) ? dst
                   : pass->nslots                   ? room->slots[0] + pass->offset
                                                    : NULL;
    if (!target || !count) return TT_OK;
    const unsigned flags =
        (pass->step->finish ? TT_FINISH : 0) | (stream && target == dst ? TT_NONTEMPORAL : 0);
    if (pass->step->op == TT_FOLD) {
        TT_TRY(fold(work, pass, target, local, count, flags));
    } else {
        const void *source = local ? local : (const char *)room->messages[0] + pass->offset;
        tt_transfer(work, target, source, count, flags | (local ? pass->local_flags : 0));
    }
    if (dst && target != dst) tt_copy(dst, target, nbytes, true);
    for (uint32_t i = target == dst ? 0 : 1; i < pass->nslots; i++)
        tt_copy(room->slots[i] + pass->offset, target, nbytes, false);
    pass->offset += nbytes;
    return TT_OK;
}

/* The step's work, piece by piece, once everything that the step needs is there. */
static tt_status do_step(const struct tt_work *work, int channel,
                         const struct tt_program_step *step, uint32_t nslots, size_t nbytes)
{
    const struct tt_binding *binding = &work->collective.binding;
    const struct tt_program_span *local = &step->local, *dst = &step->dst;
    struct pass pass = {.step = step, .channel = channel, .nslots = nslots};
    if (local->number) pass.local_flags = tt_source_flags(work, local);
    if (!local->number && !dst->number)
        return do_piece(work, &pass, NULL, NULL, nbytes / binding->element);
    const bool whole = (!local->number || tt_span_is_whole(binding, local)) &&
                       (!dst->number || tt_span_is_whole(binding, dst));
    struct tt_walk locals = tt_work_walk(work, channel, local, whole);
    struct tt_walk dsts = tt_work_walk(work, channel, dst, whole);
    for (;;) {
        struct tt_piece from = {.count = 0}, to = {.count = 0};
        const bool have_from = tt_walk_next(&locals, &from), have_to = tt_walk_next(&dsts, &to);
        if (!have_from && !have_to) return TT_OK;
        TT_TRY(do_piece(work, &pass, have_from ? tt_piece_data(work, local, &from) : NULL,
                        have_to ? tt_piece_data(work, dst, &to) : NULL,
                        have_to ? to.count : from.count));
    }
}

/* Bytes of the step's messages. A step that only forwards takes the length of the message that
 * comes. */
static tt_status message_bytes(struct tt_work *work, int channel,
                               const struct tt_program_step *step, size_t *nbytes)
{
    const struct tt_program_span *span = step->dst.number ? &step->dst : &step->local;
    struct tt_message message;
    *nbytes = 0;
    if (span->number) {
        *nbytes = tt_work_count(work, channel, span) * work->collective.binding.element;
        return TT_OK;
    }
    if (!tt_work_program(work)->nblocks || !step->nrecv) return TT_OK; /* barrier */
    struct tt_link *link = recv_link(work, step, 0);
    TT_AWAIT(link->ops->peek(link, &message));
    *nbytes = message.nbytes;
    return TT_OK;
}

/* A binding cuts rounds so that this holds; a larger message would overwrite its neighbour. */
static tt_status check_fits(const struct tt_work *work, const struct tt_program_step *step,
                            size_t nbytes)
{
    const size_t slot_bytes = work->engine->fabric->segment->header->slot_bytes;
    if (nbytes <= slot_bytes || (!step->nrecv && !step->nsend)) return TT_OK;
    return tt_fail(TT_ERR_INTERNAL,
                   "a message of %zu bytes does not fit a slot of %zu bytes, as the call's binding "
                   "says it does",
                   nbytes, slot_bytes);
}

static void publish(struct tt_work *work, int channel, const struct tt_program_step *step,
                    const char *reference, size_t nbytes)
{
    const uint64_t signature = work->collective.signature;
    for (uint32_t i = 0; i < step->nsend; i++) {
        struct tt_link *link = send_link(work, step, i);
        if (reference && link->ops->publish_direct(link, reference, nbytes, signature)) {
            work->collective.references = true;
            continue;
        }
        if (reference) tt_copy(work->engine->rooms[channel].slots[i], reference, nbytes, false);
        link->ops->publish(link, nbytes, signature);
    }
}

tt_status tt_step_link(struct tt_work *work, int channel, const struct tt_program_step *step)
{
    size_t nbytes;
    TT_AWAIT(message_bytes(work, channel, step, &nbytes));
    TT_TRY(check_fits(work, step, nbytes));
    ask_for_delivery(work, channel, step, nbytes);
    TT_AWAIT(gather_messages(work, channel, step, nbytes));
    TT_AWAIT(get_slots(work, channel, step, nbytes));
    const char *reference = step->nsend ? sendable(work, channel, step, nbytes) : NULL;
    TT_TRY(do_step(work, channel, step, reference ? 0 : step->nsend, nbytes));
    publish(work, channel, step, reference, nbytes);
    for (uint32_t i = 0; i < step->nrecv; i++) {
        struct tt_link *link = recv_link(work, step, i);
        link->ops->release(link);
    }
    return TT_OK;
}
