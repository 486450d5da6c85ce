/* A LINK step with long messages, which travel by reference or straight into the receiver's output
 * where they can, or with spans of several pieces. */
#include "executor/fetch.h"
#include "executor/link_step.h"
#include "executor/shared_store.h"

/* The span that holds exactly what is sent. */
static const struct tt_program_span *sent_span(const struct tt_program_step *step)
{
    return step->dst.number ? &step->dst : &step->local;
}

/* Memory of this rank that holds exactly what is sent, in one piece, and may be read in place;
 * NULL: copy. */
static const char *sendable(const struct tt_work *work, const struct tt_program_step *step,
                            const struct tt_spans *spans)
{
    const struct tt_program_span *span = sent_span(step);
    const char *data = step->dst.number ? spans->dst : spans->local;
    if (!data || !work->collective.direct[span->buffer]) return NULL;
    if (span == &step->local && (step->nrecv || step->finish)) return NULL;
    const struct tt_memory *memory = &work->collective.memory[span->buffer];
    for (uint32_t i = 0; i < step->nsend; i++) {
        struct tt_link *link = tt_send_link(work, step, i);
        if (!link->ops->reaches(link, memory, data, spans->nbytes)) return NULL;
    }
    return data;
}

/* Claims what the receivers have posted. Whether every one has. */
static bool claim_posts(struct tt_work *work, int channel, const struct tt_program_step *step,
                        size_t nbytes)
{
    struct tt_step_pointers *pointers = &work->engine->pointers[channel];
    bool all = true;
    for (uint32_t i = 0; i < step->nsend; i++) {
        struct tt_link *link = tt_send_link(work, step, i);
        struct tt_posted posted = {.nbytes = nbytes, .signature = work->collective.signature};
        pointers->claimed[i] = link->ops->posts->claim(link, &posted);
        all = all && pointers->claimed[i];
        if (!pointers->claimed[i]) continue;
        pointers->slots[i] = posted.to;
        pointers->nontemporal[i] = pointers->nontemporal[i] || posted.nontemporal;
        if (!pointers->nontemporal[i]) tt_fetch_to_write(posted.to, nbytes, TT_FETCH_EARLY);
    }
    return all;
}

/* Decides for each send link where its message is made: in memory that the receiver has posted, in
 * the slot, or, with a reference, which is returned, nowhere (NULL). A step that computes prefers
 * posts: its result is in the cache. */
static const char *choose_targets(struct tt_work *work, int channel,
                                  const struct tt_program_step *step, const struct tt_spans *spans)
{
    const size_t nbytes = spans->nbytes;
    struct tt_step_pointers *pointers = &work->engine->pointers[channel];
    const bool folds = step->op == TT_FOLD;
    for (uint32_t i = 0; i < step->nsend; i++) {
        pointers->claimed[i] = false;
        pointers->nontemporal[i] =
            tt_store_is_past_caches(tt_send_link(work, step, i)->store, nbytes);
    }
    if (nbytes < TT_DIRECT_MIN_BYTES || !step->nsend) return NULL;
    if (folds && claim_posts(work, channel, step, nbytes)) return NULL;
    const char *reference = sendable(work, step, spans);
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

/* Of a step that copies into one slot and does nothing else, when a look at that is due: the slot's
 * store. Else NULL. */
static struct tt_shared_store *looked_at(struct tt_work *work, int channel,
                                         const struct tt_program_step *step, const char *reference,
                                         const struct tt_spans *spans)
{
    struct tt_step_pointers *pointers = &work->engine->pointers[channel];
    if (step->op != TT_COPY || step->nsend != 1 || reference || pointers->claimed[0]) return NULL;
    struct tt_shared_store *store = tt_send_link(work, step, 0)->store;
    if (!tt_store_is_due(store, spans->nbytes)) return NULL;
    pointers->nontemporal[0] = false;
    return store;
}

/* What one pass of a step works with. */
struct pass {
    const struct tt_program_step *step;
    int channel;
    bool stores, sends; /* what is made: this rank's result, the messages */
    size_t offset;      /* bytes into every message */
};

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
    const bool stream = work->collective.binding->nontemporal;
    int n = 0;
    if (dst && pass->stores)
        pointers->targets[n++] =
            (struct tt_target){.data = dst,
                               .nontemporal = stream && pass->step->dst.buffer == TT_OUTPUT &&
                                              !is_input(pointers, ninputs, dst)};
    for (uint32_t i = 0; pass->sends && i < pass->step->nsend; i++) {
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
    const struct tt_reduction *reduction = &work->collective.call->reduction;
    const size_t nbytes = count * work->collective.binding->element;
    const unsigned finish = pass->step->finish ? TT_FINISH : 0;
    if (!count) return;
    if (pass->step->op == TT_FOLD) {
        const struct tt_sources sources =
            tt_step_inputs(work, pass->channel, pass->step, local, pass->offset);
        const int ntargets = list_targets(work, pass, dst, sources.number);
        tt_reduce_to(reduction, pointers->targets, ntargets, &sources, count, finish);
    } else {
        const void *source = local ? local : (const char *)pointers->messages[0] + pass->offset;
        const bool raw = tt_is_source_raw(work, pass->channel, pass->step);
        const bool changes = tt_changes(reduction, finish | (raw ? TT_RAW : 0));
        /* A copy onto itself writes nothing: verify lets peers still read that memory. */
        const int ntargets = list_targets(work, pass, dst == source && !changes ? NULL : dst, 0);
        const struct tt_sources sources = {.data = &source, .raw = &raw, .number = 1};
        if (ntargets && changes)
            tt_reduce_to(reduction, pointers->targets, ntargets, &sources, count, finish);
        else if (ntargets)
            tt_copy_to(pointers->targets, ntargets, source, nbytes);
    }
    pass->offset += nbytes;
}

static void do_pieces(const struct tt_work *work, struct pass *pass)
{
    const struct tt_binding *binding = work->collective.binding;
    const struct tt_program_span *local = &pass->step->local, *dst = &pass->step->dst;
    const bool whole = (!local->number || tt_span_is_whole(binding, local)) &&
                       (!dst->number || tt_span_is_whole(binding, dst));
    struct tt_walk locals = tt_work_walk(work, pass->channel, local, whole);
    struct tt_walk dsts = tt_work_walk(work, pass->channel, dst, whole);
    for (;;) {
        struct tt_piece from = {.count = 0}, to = {.count = 0};
        const bool have_from = tt_walk_next(&locals, &from), have_to = tt_walk_next(&dsts, &to);
        if (!have_from && !have_to) return;
        do_piece(work, pass, have_from ? tt_piece_data(work, local, &from) : NULL,
                 have_to ? tt_piece_data(work, dst, &to) : NULL, have_to ? to.count : from.count);
    }
}

/* The step's work, or a part of it, once everything that the step needs is there. */
static void compute(const struct tt_work *work, struct pass pass, const struct tt_spans *spans)
{
    if (spans->has_pieces)
        do_pieces(work, &pass);
    else
        do_piece(work, &pass, spans->local, spans->dst, spans->count);
}

static void publish(struct tt_work *work, int channel, const struct tt_program_step *step,
                    const char *reference, size_t nbytes)
{
    const uint64_t signature = work->collective.signature;
    const struct tt_program_span *span = sent_span(step);
    const struct tt_memory *memory = &work->collective.memory[span->buffer];
    const uint64_t of_reference = tt_is_raw_span(&work->collective.call->reduction, span)
                                      ? signature | TT_SIGNATURE_RAW
                                      : signature;
    for (uint32_t i = 0; i < step->nsend; i++) {
        struct tt_link *link = tt_send_link(work, step, i);
        if (!work->engine->pointers[channel].slots[i]) {
            if (link->ops->publish_direct(link, memory, reference, nbytes, of_reference)) {
                work->collective.references = true;
                continue;
            }
            tt_store_shared(link->store, link->ops->slot(link, nbytes), reference, nbytes);
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
        struct tt_link *link = tt_send_link(work, step, i);
        if (work->engine->pointers[channel].claimed[i]) tt_ignore(link->ops->posts->withdraw(link));
    }
    return status;
}

tt_status tt_step_long(struct tt_work *work, int channel, const struct tt_program_step *step,
                       const struct tt_spans *spans)
{
    const char *reference = choose_targets(work, channel, step, spans);
    const bool borrows = work->collective.channels[channel].borrows;
    const bool refers = work->collective.channels[channel].refers;
    const struct tt_lenders source = {.seq = work->turn, .peer = -1};
    tt_status status = borrows ? tt_fabric_borrow(work->engine->fabric, source) : TT_OK;
    if (status) return give_up_claims(work, channel, step, status);
    /* The messages of a copy leave before the result is stored, because the receivers wait for
     * them. A fold makes both at once. */
    const bool sends_first =
        step->op == TT_COPY && step->nsend && step->dst.number && !borrows && !reference;
    struct pass pass = {.step = step, .channel = channel, .stores = !sends_first, .sends = true};
    struct tt_shared_store *store =
        sends_first || !step->dst.number ? looked_at(work, channel, step, reference, spans) : NULL;
    const int64_t begin_ns = store ? tt_now_ns() : 0;
    if (!makes_nothing(work, channel, step, reference)) compute(work, pass, spans);
    if (store) tt_look_end(store, spans->nbytes, begin_ns);
    if (borrows) tt_fabric_give_back(work->engine->fabric);
    if (refers) status = tt_fabric_check_source(work->engine->fabric, source);
    if (status) return give_up_claims(work, channel, step, status);
    publish(work, channel, step, reference, spans->nbytes);
    pass.stores = true;
    pass.sends = false;
    if (sends_first) compute(work, pass, spans);
    return sends_first && refers ? tt_fabric_check_source(work->engine->fabric, source) : TT_OK;
}
