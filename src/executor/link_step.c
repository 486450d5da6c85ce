/* A LINK step: waits for the messages and the slots that the step needs, then does the step in one
 * pass. */
#include <stdlib.h>

#include "executor/fetch.h"
#include "executor/internal.h"

static struct tt_link *recv_link(const struct tt_work *work, const struct tt_program_step *step,
                                 uint32_t i)
{
    return work->collective.links[step->recv + i];
}

static struct tt_link *send_link(const struct tt_work *work, const struct tt_program_step *step,
                                 uint32_t i)
{
    return work->collective.links[step->send + i];
}

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
    if (!tt_work_next(work, &walk, &piece) ||
        piece.count * work->collective.binding.element != nbytes)
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
        if (!tt_message_is_of(&message, work->collective.signature) || message.nbytes != nbytes)
            return tt_collective_mismatch(work, link->peer);
        if (!message.data && nbytes) {
            char *bounce = NULL;
            TT_TRY(bounce_of(work->engine, link->peer, channel, &bounce));
            TT_AWAIT(link->ops->fetch(link, bounce, 0, nbytes));
            message.data = bounce;
        }
        if (step->op == TT_FOLD && nbytes >= TT_DIRECT_MIN_BYTES)
            tt_fetch_to_read(message.data, nbytes, TT_FETCH_LATE);
        work->engine->pointers[channel].messages[at->ready] = message.data;
        work->engine->pointers[channel].raw_messages[at->ready] =
            message.signature & TT_SIGNATURE_RAW;
        at->borrows |= message.is_borrowed;
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
        work->engine->pointers[channel].slots[at->nslots] = slot;
    }
    return TT_OK;
}

/* The span that holds exactly what is sent. */
static const struct tt_program_span *sent_span(const struct tt_program_step *step)
{
    return step->dst.number ? &step->dst : &step->local;
}

/* Memory of this rank that holds exactly what is sent, in one piece, and may be read in place;
 * NULL: copy. */
static const char *sendable(const struct tt_work *work, int channel,
                            const struct tt_program_step *step, size_t nbytes)
{
    const struct tt_program_span *span = sent_span(step);
    if (!span->number || !work->collective.direct[span->buffer]) return NULL;
    if (span == &step->local && (step->nrecv || step->finish)) return NULL;
    const char *first = tt_work_one_piece(work, channel, span, &nbytes);
    if (!first) return NULL;
    const struct tt_memory *memory = &work->collective.memory[span->buffer];
    for (uint32_t i = 0; i < step->nsend; i++) {
        struct tt_link *link = send_link(work, step, i);
        if (!link->ops->reaches(link, memory, first, nbytes)) return NULL;
    }
    return first;
}

/* Claims what the receivers have posted. Whether every one has. */
static bool claim_posts(struct tt_work *work, int channel, const struct tt_program_step *step,
                        size_t nbytes)
{
    struct tt_step_pointers *pointers = &work->engine->pointers[channel];
    bool all = true;
    for (uint32_t i = 0; i < step->nsend; i++) {
        struct tt_link *link = send_link(work, step, i);
        struct tt_posted posted = {.nbytes = nbytes, .signature = work->collective.signature};
        pointers->claimed[i] = link->ops->posts->claim(link, &posted);
        pointers->nontemporal[i] = pointers->claimed[i] && posted.nontemporal;
        if (pointers->claimed[i]) pointers->slots[i] = posted.to;
        if (pointers->claimed[i] && !posted.nontemporal)
            tt_fetch_to_write(posted.to, nbytes, TT_FETCH_EARLY);
        all = all && pointers->claimed[i];
    }
    return all;
}

/* Decides for each send link where its message is made: in memory that the receiver has posted, in
 * the slot, or, with a reference, which is returned, nowhere (NULL). A step that computes prefers
 * posts: its result is in the cache. */
static const char *choose_targets(struct tt_work *work, int channel,
                                  const struct tt_program_step *step, size_t nbytes)
{
    struct tt_step_pointers *pointers = &work->engine->pointers[channel];
    const bool folds = step->op == TT_FOLD;
    for (uint32_t i = 0; i < step->nsend; i++)
        pointers->claimed[i] = pointers->nontemporal[i] = false;
    if (nbytes < TT_DIRECT_MIN_BYTES || !step->nsend) return NULL;
    if (folds && claim_posts(work, channel, step, nbytes)) return NULL;
    const char *reference = sendable(work, channel, step, nbytes);
    if (!folds && !reference) claim_posts(work, channel, step, nbytes);
    for (uint32_t i = 0; reference && i < step->nsend; i++)
        if (!pointers->claimed[i]) pointers->slots[i] = NULL;
    return reference;
}

/* Whether the step is only a reference to what lies there. */
static bool makes_nothing(const struct tt_work *work, int channel,
                          const struct tt_program_step *step, const char *reference)
{
    return reference && !step->dst.number && step->nsend == 1 &&
           !work->engine->pointers[channel].slots[0];
}

/* What one pass of a step works with. */
struct pass {
    const struct tt_program_step *step;
    int channel;
    bool local_raw; /* the local span is a raw source */
    size_t offset;  /* bytes into every message */
};

/* The sources of a fold, in their order. */
static struct tt_sources list_inputs(const struct tt_work *work, const struct pass *pass,
                                     const char *local)
{
    const struct tt_step_pointers *pointers = &work->engine->pointers[pass->channel];
    int n = 0;
    for (uint32_t i = 0; i <= pass->step->nrecv; i++) {
        if ((int32_t)i == pass->step->own_at) {
            pointers->raw[n] = pass->local_raw;
            pointers->inputs[n++] = local;
        }
        if (i == pass->step->nrecv) break;
        pointers->raw[n] = pointers->raw_messages[i];
        pointers->inputs[n++] = (const char *)pointers->messages[i] + pass->offset;
    }
    return (struct tt_sources){.data = pointers->inputs, .raw = pointers->raw, .number = n};
}

/* A target in the memory of a source stays in the cache, where reading has brought it. */
static bool is_input(const struct tt_step_pointers *pointers, int ninputs, const char *data)
{
    int i = 0;
    while (i < ninputs && pointers->inputs[i] != data) i++;
    return i < ninputs;
}

/* Where a piece goes: dst, unless the piece lies there already, and the send slots. Results of long
 * calls do not stay in the cache, neither this rank's nor those written to peers. */
static int list_targets(const struct tt_work *work, const struct pass *pass, char *dst, int ninputs)
{
    const struct tt_step_pointers *pointers = &work->engine->pointers[pass->channel];
    const bool stream = work->collective.binding.nontemporal;
    int n = 0;
    if (dst)
        pointers->targets[n++] =
            (struct tt_target){.data = dst,
                               .nontemporal = stream && pass->step->dst.buffer == TT_OUTPUT &&
                                              !is_input(pointers, ninputs, dst)};
    for (uint32_t i = 0; i < pass->step->nsend; i++) {
        if (!pointers->slots[i]) continue;
        char *to = pointers->slots[i] + pass->offset;
        pointers->targets[n++] = (struct tt_target){
            .data = to,
            .nontemporal = pointers->nontemporal[i] && !is_input(pointers, ninputs, to)};
    }
    return n;
}

/* One contiguous piece: sources -> dst (may be NULL) and the send slots. */
static void do_piece(const struct tt_work *work, struct pass *pass, const char *local, char *dst,
                     size_t count)
{
    const struct tt_step_pointers *pointers = &work->engine->pointers[pass->channel];
    const struct tt_reduction *reduction = &work->collective.call.reduction;
    const size_t nbytes = count * work->collective.binding.element;
    const unsigned finish = pass->step->finish ? TT_FINISH : 0;
    if (!count) return;
    if (pass->step->op == TT_FOLD) {
        const struct tt_sources sources = list_inputs(work, pass, local);
        const int ntargets = list_targets(work, pass, dst, sources.number);
        tt_reduce_to(reduction, pointers->targets, ntargets, &sources, count, finish);
    } else {
        const void *source = local ? local : (const char *)pointers->messages[0] + pass->offset;
        const bool raw = local ? pass->local_raw : pointers->raw_messages[0];
        const bool changes = tt_changes(reduction, finish | (raw ? TT_RAW : 0));
        /* A copy onto itself writes nothing: verify lets peers still read that memory. */
        const int ntargets = list_targets(work, pass, dst == source && !changes ? NULL : dst, 0);
        const struct tt_sources sources = {.data = &source, .raw = &raw, .number = 1};
        if (changes)
            tt_reduce_to(reduction, pointers->targets, ntargets, &sources, count, finish);
        else if (ntargets)
            tt_copy_to(pointers->targets, ntargets, source, nbytes);
    }
    pass->offset += nbytes;
}

/* The step's work, piece by piece, once everything that the step needs is there. */
static void do_step(const struct tt_work *work, int channel, const struct tt_program_step *step,
                    size_t nbytes)
{
    const struct tt_binding *binding = &work->collective.binding;
    const struct tt_program_span *local = &step->local, *dst = &step->dst;
    struct pass pass = {.step = step,
                        .channel = channel,
                        .local_raw = tt_is_raw_span(&work->collective.call.reduction, local)};
    if (!local->number && !dst->number) {
        do_piece(work, &pass, NULL, NULL, nbytes / binding->element);
        return;
    }
    const bool whole = (!local->number || tt_span_is_whole(binding, local)) &&
                       (!dst->number || tt_span_is_whole(binding, dst));
    struct tt_walk locals = tt_work_walk(work, channel, local, whole);
    struct tt_walk dsts = tt_work_walk(work, channel, dst, whole);
    for (;;) {
        struct tt_piece from = {.count = 0}, to = {.count = 0};
        const bool have_from = tt_work_next(work, &locals, &from),
                   have_to = tt_work_next(work, &dsts, &to);
        if (!have_from && !have_to) return;
        do_piece(work, &pass, have_from ? tt_piece_data(work, local, &from) : NULL,
                 have_to ? tt_piece_data(work, dst, &to) : NULL, have_to ? to.count : from.count);
    }
}

/* Bytes of the step's messages. A step that only forwards takes the length of the message that
 * comes. */
static tt_status message_bytes(struct tt_work *work, int channel,
                               const struct tt_program_step *step, size_t *nbytes)
{
    const struct tt_program_span *span = sent_span(step);
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
    const struct tt_program_span *span = sent_span(step);
    const struct tt_memory *memory = &work->collective.memory[span->buffer];
    const uint64_t of_reference = tt_is_raw_span(&work->collective.call.reduction, span)
                                      ? signature | TT_SIGNATURE_RAW
                                      : signature;
    for (uint32_t i = 0; i < step->nsend; i++) {
        struct tt_link *link = send_link(work, step, i);
        if (!work->engine->pointers[channel].slots[i]) {
            if (link->ops->publish_direct(link, memory, reference, nbytes, of_reference)) {
                work->collective.references = true;
                continue;
            }
            tt_copy(link->ops->slot(link, nbytes), reference, nbytes, false); /* there is one */
            link->ops->publish(link, nbytes, of_reference);
        } else {
            link->ops->publish(link, nbytes, signature);
        }
    }
}

/* After a failure in mid-step: the receivers shall not wait for this rank. */
static tt_status give_up_claims(struct tt_work *work, int channel,
                                const struct tt_program_step *step, tt_status status)
{
    for (uint32_t i = 0; i < step->nsend; i++) {
        struct tt_link *link = send_link(work, step, i);
        if (work->engine->pointers[channel].claimed[i]) tt_ignore(link->ops->posts->withdraw(link));
    }
    return status;
}

tt_status tt_step_link(struct tt_work *work, int channel, const struct tt_program_step *step)
{
    size_t nbytes;
    TT_AWAIT(message_bytes(work, channel, step, &nbytes));
    TT_TRY(check_fits(work, step, nbytes));
    ask_for_delivery(work, channel, step, nbytes);
    TT_AWAIT(gather_messages(work, channel, step, nbytes));
    TT_AWAIT(get_slots(work, channel, step, nbytes));
    const char *reference = choose_targets(work, channel, step, nbytes);
    const bool borrows = work->collective.channels[channel].borrows;
    const tt_status status = borrows ? tt_fabric_borrow(work->engine->fabric) : TT_OK;
    if (status) return give_up_claims(work, channel, step, status);
    if (!makes_nothing(work, channel, step, reference)) do_step(work, channel, step, nbytes);
    if (borrows) tt_fabric_give_back(work->engine->fabric);
    publish(work, channel, step, reference, nbytes);
    for (uint32_t i = 0; i < step->nrecv; i++) {
        struct tt_link *link = recv_link(work, step, i);
        link->ops->release(link);
    }
    return TT_OK;
}
