/* A LINK step: waits for the messages and the slots that the step needs, then does the step in one
 * pass. */
#include <stdlib.h>
#include <string.h>

#include "executor/fetch.h"
#include "executor/link_step.h"
#include "executor/shared_store.h"

static tt_status bounce_of(struct tt_engine *engine, int peer, int channel, char **bounce)
{
    const int nranks = engine->fabric->nranks;
    peer += channel * nranks;
    if (!engine->bounce)
        engine->bounce = calloc((size_t)nranks * (size_t)tt_fabric_nchannels(engine->fabric),
                                sizeof *engine->bounce);
    if (engine->bounce && !engine->bounce[peer])
        engine->bounce[peer] =
            aligned_alloc(TT_CACHE_LINE, engine->fabric->segment->header->slot_bytes);
    if (!engine->bounce || !engine->bounce[peer])
        return tt_fail(TT_ERR_SYSTEM, "out of memory for a receive buffer of %u bytes",
                       engine->fabric->segment->header->slot_bytes);
    *bounce = engine->bounce[peer];
    return TT_OK;
}

void tt_step_expect(struct tt_work *work, const struct tt_program_step *step, void *to,
                    size_t nbytes)
{
    struct tt_link *link = tt_recv_link(work, step, 0);
    link->ops->expect(link, to, nbytes, work->collective.signature);
}

/* A step that only forwards takes the length of the message that comes, unless it is a barrier's.
 */
static tt_status find_length(struct tt_work *work, const struct tt_program_step *step,
                             struct tt_spans *spans)
{
    const bool has_span = step->local.number || step->dst.number;
    struct tt_message message;
    if (has_span || !step->nrecv || !tt_work_program(work)->nblocks) return TT_OK;
    struct tt_link *link = tt_recv_link(work, step, 0);
    TT_AWAIT(link->ops->peek(link, &message));
    spans->nbytes = message.nbytes;
    spans->count = message.nbytes / work->collective.binding->element;
    return TT_OK;
}

/* A binding cuts rounds so that this holds; a larger message would overwrite its neighbour. Slots
 * of links to other hosts are never smaller (choose_layout of transport/fabric.c). */
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

/* A message from another host that is only stored, in one piece, may be delivered there. */
static void ask_for_delivery(struct tt_work *work, struct tt_position *at,
                             const struct tt_program_step *step, const struct tt_spans *spans)
{
    if (at->asked || !spans->nbytes || !spans->dst || step->op != TT_COPY || step->finish ||
        step->nrecv != 1 || step->own_at >= 0 ||
        tt_fabric_is_local(work->engine->fabric, tt_recv_link(work, step, 0)->peer))
        return;
    at->asked = true;
    tt_step_expect(work, step, spans->dst, spans->nbytes);
}

/* After the first look at a link. */
__attribute__((noinline)) static tt_status
look_again(const struct tt_work *work, struct tt_link *link, struct tt_message *message)
{
    return tt_peek_for(work->engine, link, tt_looks(work), message);
}

/* Waits for the messages, one link after the other. */
TT_INLINED tt_status gather_messages(struct tt_work *work, int channel,
                                     const struct tt_program_step *step, size_t nbytes,
                                     bool is_brief)
{
    struct tt_position *at = &work->collective.channels[channel];
    struct tt_step_pointers *pointers = &work->engine->pointers[channel];
    for (uint32_t i = is_brief ? 0 : at->ready; i < step->nrecv; i++) {
        struct tt_link *link = tt_recv_link(work, step, i);
        struct tt_message message;
        tt_status status = link->ops->peek(link, &message);
        if (status == TT_IN_PROGRESS) status = look_again(work, link, &message);
        if (status) return status;
        if (!tt_message_is_of(&message, work->collective.signature) || message.nbytes != nbytes)
            return tt_collective_mismatch(work, link->peer);
        if (!message.data && nbytes) {
            char *bounce = NULL;
            TT_TRY(bounce_of(work->engine, link->peer, channel, &bounce));
            TT_AWAIT(link->ops->fetch(link, bounce, 0, nbytes));
            message.data = bounce;
        }
        pointers->messages[i] = message.data;
        if (work->collective.changes_raw)
            pointers->raw_messages[i] = message.signature & TT_SIGNATURE_RAW;
        if (is_brief) continue;
        if (nbytes >= TT_DIRECT_MIN_BYTES && step->op == TT_FOLD)
            tt_fetch_to_read(message.data, nbytes, TT_FETCH_LATE);
        at->borrows |= message.is_borrowed;
        at->refers |= message.is_reference && !message.is_borrowed;
        at->ready = i + 1;
        work->progress++;
    }
    return TT_OK;
}

TT_INLINED tt_status get_slots(struct tt_work *work, int channel,
                               const struct tt_program_step *step, size_t nbytes, bool is_brief)
{
    struct tt_position *at = &work->collective.channels[channel];
    for (uint32_t i = is_brief ? 0 : at->nslots; i < step->nsend; i++) {
        struct tt_link *link = tt_send_link(work, step, i);
        char *slot = link->ops->slot(link, nbytes);
        if (!slot) return TT_IN_PROGRESS;
        work->engine->pointers[channel].slots[i] = slot;
        if (!is_brief) at->nslots = i + 1;
    }
    return TT_OK;
}

TT_INLINED void release_messages(struct tt_work *work, const struct tt_program_step *step)
{
    for (uint32_t i = 0; i < step->nrecv; i++) {
        struct tt_link *link = tt_recv_link(work, step, i);
        link->ops->release(link);
    }
}

/* ---- Short messages ------------------------------------------------------------------------- */

/* Whether the step's messages are copied through slots and its spans are one piece each. A raw
 * source of a pre-multiplied sum is nobody else's to change, and kernels take none from a slot. */
static bool is_short(const struct tt_work *work, const struct tt_position *at,
                     const struct tt_program_step *step, const struct tt_spans *spans)
{
    const struct tt_reduction *reduction = &work->collective.call->reduction;
    if (spans->nbytes >= TT_DIRECT_MIN_BYTES || spans->has_pieces || at->borrows) return false;
    if (work->collective.changes_raw &&
        (reduction->op == TT_PREMUL_SUM || work->engine->fabric->mixed.is_mixed))
        return false;
    return step->op != TT_COPY || !step->finish || !tt_op_finishes(reduction->op, reduction->type);
}

/* Stores the source of a copy: a raw one as the operation changes it. */
TT_INLINED void store(const struct tt_work *work, const struct tt_spans *spans, const void *source,
                      bool raw)
{
    if (raw)
        tt_reduce(&work->collective.call->reduction, spans->dst, &source, 1, spans->count, TT_RAW);
    else if (source != spans->dst && source == spans->local)
        tt_copy_short_shared(spans->dst, source, spans->nbytes);
    else if (source != spans->dst)
        tt_copy_short(spans->dst, source, spans->nbytes);
}

/* The result of a fold, made in `target`. */
TT_INLINED void fold_short(const struct tt_work *work, int channel,
                           const struct tt_program_step *step, const struct tt_spans *spans,
                           const struct tt_target *target)
{
    const struct tt_sources sources = tt_step_inputs(work, channel, step, spans->local, 0);
    tt_reduce_to(&work->collective.call->reduction, target, 1, &sources, spans->count,
                 step->finish ? TT_FINISH : 0);
}

/* Messages leave before the result is stored: the receivers wait for them. A copy sends a raw
 * source as it is. */
TT_INLINED void do_short(const struct tt_work *work, int channel,
                         const struct tt_program_step *step, const struct tt_spans *spans)
{
    const struct tt_step_pointers *pointers = &work->engine->pointers[channel];
    const bool copies = step->op == TT_COPY, raw = copies && tt_is_source_raw(work, channel, step);
    const uint64_t signature = work->collective.signature | (raw ? TT_SIGNATURE_RAW : 0);
    const size_t nbytes = spans->nbytes;
    const void *source = step->own_at >= 0 ? spans->local : pointers->messages[0];
    if (nbytes && !copies) {
        const struct tt_shared_store *store =
            step->nsend ? tt_send_link(work, step, 0)->store : NULL;
        const struct tt_target target = {.data = step->nsend ? pointers->slots[0] : spans->dst,
                                         .nontemporal = tt_store_is_past_caches(store, nbytes)};
        fold_short(work, channel, step, spans, &target);
        source = target.data;
    }
    for (uint32_t i = 0; i < step->nsend; i++) {
        struct tt_link *link = tt_send_link(work, step, i);
        if (nbytes && (copies || i))
            tt_store_shared(link->store, pointers->slots[i], source, nbytes);
        link->ops->publish(link, nbytes, signature);
    }
    if (nbytes && spans->dst) store(work, spans, source, raw);
}

/* ---- The step ------------------------------------------------------------------------------- */

/* is_brief, a constant: the step is short, and its call waits on one host (advance_brief). */
TT_INLINED tt_status do_step(struct tt_work *work, int channel, const struct tt_program_step *step,
                             const struct tt_spans *spans, bool is_brief)
{
    TT_AWAIT(gather_messages(work, channel, step, spans->nbytes, is_brief));
    TT_AWAIT(get_slots(work, channel, step, spans->nbytes, is_brief));
    if (is_brief || is_short(work, &work->collective.channels[channel], step, spans))
        do_short(work, channel, step, spans);
    else
        TT_TRY(tt_step_long(work, channel, step, spans));
    release_messages(work, step);
    return TT_OK;
}

tt_status tt_step_link(struct tt_work *work, int channel, const struct tt_program_step *step)
{
    struct tt_position *at = &work->collective.channels[channel];
    struct tt_spans spans;
    tt_step_spans(work, channel, step, at->step, &spans);
    if (spans.is_walked) TT_AWAIT(find_length(work, step, &spans));
    TT_TRY(check_fits(work, step, spans.nbytes));
    if (work->engine->fabric->wires) ask_for_delivery(work, at, step, &spans);
    return do_step(work, channel, step, &spans, false);
}

bool tt_step_is_brief(const struct tt_program_step *step, const struct tt_resolved_step *resolved,
                      const struct tt_reduction *reduction)
{
    return step->kind == TT_STEP_LINK && resolved->nbytes < TT_DIRECT_MIN_BYTES &&
           reduction->op != TT_PREMUL_SUM &&
           (step->op != TT_COPY || !step->finish ||
            !tt_op_finishes(reduction->op, reduction->type));
}

/* Where the spans lie in the first round. */
static inline struct tt_spans brief_spans(const struct tt_work *work,
                                          const struct tt_program_step *step,
                                          const struct tt_resolved_step *resolved)
{
    const uintptr_t *origin = work->collective.origin;
    return (struct tt_spans){
        .local = step->own_at >= 0 ? (char *)(origin[step->local.buffer] + resolved->local) : NULL,
        .dst = step->dst.number ? (char *)(origin[step->dst.buffer] + resolved->dst) : NULL,
        .count = resolved->count,
        .nbytes = resolved->nbytes};
}

tt_status tt_do_brief_steps(struct tt_work *work)
{
    const struct tt_collective_work *own = &work->collective;
    const struct tt_program *program = tt_work_program(work);
    const struct tt_program_step *step = tt_program_steps(program);
    const struct tt_resolved_step *resolved = own->call->resolved->steps;
    for (uint32_t s = 0; s < program->nsteps; s++, step++, resolved++) {
        const struct tt_spans spans = brief_spans(work, step, resolved);
        const tt_status status = do_step(work, 0, step, &spans, true);
        if (!status) continue;
        own->channels[0] = (struct tt_position){.step = s};
        return status;
    }
    return TT_OK;
}
