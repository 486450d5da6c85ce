/* A LINK step: wait for the messages and the slots it needs, then do it in one pass. */
#include <stdlib.h>

#include "base/clock.h"
#include "executor/internal.h"

/* A reference costs the sender a wait at the end; below this a copy is cheaper. */
enum { DIRECT_MIN_BYTES = 4096 };

/* The peer list may hold this rank itself: there its local span takes that place in the order of
 * reduction. */
static bool is_own(const struct tt_work *work, int peer)
{
    return peer == work->engine->fabric->rank;
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

static tt_status peek_briefly(const struct tt_work *work, struct tt_link *link,
                              struct tt_message *message)
{
    const int looks = work->engine->fabric->oversubscribed ? 1 : TT_BRIEF_LOOKS;
    tt_status status = TT_IN_PROGRESS;
    for (int i = 0; i < looks && status == TT_IN_PROGRESS; i++) {
        if (i) tt_cpu_relax();
        status = link->ops->peek(link, message);
    }
    return status;
}

void tt_step_expect(struct tt_work *work, int channel, const struct tt_step *step, void *to,
                    size_t nbytes)
{
    struct tt_fabric *fabric = work->engine->fabric;
    struct tt_link *link =
        tt_fabric_rx(fabric, tt_peer_at(&step->recv, 0, fabric->nranks), channel);
    link->ops->expect(link, to, nbytes, work->signature);
}

/* A message from another host that is only stored, in one piece, may be delivered there. */
static void ask_for_delivery(struct tt_work *work, int channel, const struct tt_step *step,
                             size_t nbytes)
{
    const struct tt_fabric *fabric = work->engine->fabric;
    struct tt_work_channel *state = &work->channels[channel];
    struct tt_cursor cursor;
    char *to;
    size_t count;
    if (!fabric->wires || state->asked || !nbytes || step->op != TT_COPY || step->finish ||
        step->recv.number != 1 || step->local.number ||
        tt_fabric_is_local(fabric, tt_peer_at(&step->recv, 0, fabric->nranks)))
        return;
    tt_cursor_init(&cursor, work, &step->dst, channel, state->round,
                   tt_span_is_whole(work, &step->dst));
    if (!tt_cursor_next(&cursor, &to, &count) || count * work->bound.element != nbytes) return;
    state->asked = true;
    tt_step_expect(work, channel, step, to, nbytes);
}

/* Waits for the messages, one peer after the other; sources[i] is where the i-th lies. */
static tt_status gather_messages(struct tt_work *work, int channel, const struct tt_step *step,
                                 size_t nbytes)
{
    struct tt_work_channel *state = &work->channels[channel];
    struct tt_fabric *fabric = work->engine->fabric;
    const void **sources = work->engine->sources[channel];
    for (; state->ready < step->recv.number; state->ready++) {
        const int peer = tt_peer_at(&step->recv, state->ready, fabric->nranks);
        if (is_own(work, peer)) continue;
        struct tt_link *link = tt_fabric_rx(fabric, peer, channel);
        struct tt_message message;
        TT_TRY(peek_briefly(work, link, &message));
        if (message.signature != work->signature || message.nbytes != nbytes)
            return tt_work_mismatch(work, peer);
        if (!message.data && nbytes) {
            char *bounce;
            TT_TRY(bounce_of(work->engine, peer, channel, &bounce));
            TT_TRY(link->ops->fetch(link, bounce, 0, nbytes));
            message.data = bounce;
        }
        sources[state->ready] = message.data;
        work->progress++;
    }
    return TT_OK;
}

static tt_status get_slots(struct tt_work *work, int channel, const struct tt_step *step,
                           size_t nbytes)
{
    struct tt_work_channel *state = &work->channels[channel];
    struct tt_fabric *fabric = work->engine->fabric;
    for (; state->nslots < step->send.number; state->nslots++) {
        struct tt_link *link =
            tt_fabric_tx(fabric, tt_peer_at(&step->send, state->nslots, fabric->nranks), channel);
        char *slot = link->ops->slot(link, nbytes);
        if (!slot) return TT_IN_PROGRESS;
        work->engine->slots[channel][state->nslots] = slot;
    }
    return TT_OK;
}

/* Memory of this rank that holds exactly what is sent, in one piece, and may be read in place;
 * NULL: copy. */
static const char *sendable(const struct tt_work *work, int channel, const struct tt_step *step,
                            size_t nbytes)
{
    const struct tt_span *span = step->dst.number ? &step->dst : &step->local;
    if (nbytes < DIRECT_MIN_BYTES || !span->number || span->buffer == TT_SCRATCH ||
        !work->direct[span->buffer])
        return NULL;
    if (span == &step->local && (step->recv.number || step->finish)) return NULL;
    struct tt_cursor cursor;
    char *first, *data;
    size_t count;
    tt_cursor_init(&cursor, work, span, channel, work->channels[channel].round,
                   tt_span_is_whole(work, span));
    tt_cursor_next(&cursor, &first, &count);
    if (tt_cursor_next(&cursor, &data, &count)) return NULL;
    struct tt_fabric *fabric = work->engine->fabric;
    for (int i = 0; i < step->send.number; i++) {
        struct tt_link *link =
            tt_fabric_tx(fabric, tt_peer_at(&step->send, i, fabric->nranks), channel);
        if (!link->ops->reaches(link, first, nbytes)) return NULL;
    }
    return first;
}

/* What one pass of a step works with. */
struct pass {
    const struct tt_step *step;
    int channel, nsources;
    int local_at;         /* place of the local span among the sources, -1: none */
    unsigned local_flags; /* of reading it */
    int nslots;           /* send slots to fill; 0 when sent by reference */
    size_t offset;        /* bytes into every message */
};

/* A raw contribution of a pre-multiplied sum that is not first in the order must be scaled aside.
 */
static tt_status scale_aside(const struct tt_work *work, struct pass *pass, const void **local,
                             size_t count)
{
    if (!(pass->local_flags & TT_SCALE_FIRST) || pass->local_at == 0) return TT_OK;
    char *aside;
    TT_TRY(bounce_of(work->engine, work->engine->fabric->rank, pass->channel, &aside));
    tt_transfer(work, aside, *local, count, TT_SCALE_FIRST);
    *local = aside;
    return TT_OK;
}

static tt_status fold(const struct tt_work *work, struct pass *pass, char *target,
                      const char *local, size_t count, unsigned flags)
{
    const void **messages = work->engine->sources[pass->channel];
    const void **inputs = work->engine->inputs[pass->channel];
    const void *own = local;
    const tt_status status = pass->local_at < 0 ? TT_OK : scale_aside(work, pass, &own, count);
    int n = 0;
    if (pass->local_at == 0) inputs[n++] = own;
    for (int i = 0; i < pass->step->recv.number; i++) {
        const int peer = tt_peer_at(&pass->step->recv, i, work->engine->fabric->nranks);
        if (!is_own(work, peer))
            inputs[n++] = (const char *)messages[i] + pass->offset;
        else if (pass->local_at > 0)
            inputs[n++] = own;
    }
    if (pass->local_at == 0) flags |= pass->local_flags;
    if (!status) tt_reduce(&work->call.reduction, target, inputs, n, count, flags);
    return status;
}

/* One contiguous piece: sources -> dst (may be NULL) and the send slots. */
static tt_status do_piece(const struct tt_work *work, struct pass *pass, const char *local,
                          char *dst, size_t count)
{
    char **slots = work->engine->slots[pass->channel];
    const size_t nbytes = count * work->bound.element;
    const unsigned finish = pass->step->finish ? TT_FINISH : 0;
    const bool stream = work->bound.nontemporal && dst && pass->step->dst.buffer == TT_OUTPUT;
    /* With slots to fill and a result that should not stay in the cache, the slot is made first. */
    char *target = dst && !(stream && pass->nslots) ? dst
                   : pass->nslots                   ? slots[0] + pass->offset
                                                    : NULL;
    if (!target || !count) return TT_OK;
    const unsigned flags = finish | (stream && target == dst ? TT_NONTEMPORAL : 0);
    if (pass->step->op == TT_FOLD)
        TT_TRY(fold(work, pass, target, local, count, flags));
    else {
        const void *source =
            local ? local : (const char *)work->engine->sources[pass->channel][0] + pass->offset;
        tt_transfer(work, target, source, count, flags | (local ? pass->local_flags : 0));
    }
    if (dst && target != dst) tt_copy(dst, target, nbytes, true);
    for (int i = target == dst ? 0 : 1; i < pass->nslots; i++)
        tt_copy(slots[i] + pass->offset, target, nbytes, false);
    pass->offset += nbytes;
    return TT_OK;
}

static int place_of_local(const struct tt_work *work, const struct tt_step *step)
{
    if (!step->local.number) return -1;
    for (int i = 0; i < step->recv.number; i++)
        if (is_own(work, tt_peer_at(&step->recv, i, work->engine->fabric->nranks))) return i;
    return 0;
}

/* The step's work, piece by piece, once everything it needs is there. */
static tt_status do_step(const struct tt_work *work, int channel, const struct tt_step *step,
                         int nslots, size_t nbytes)
{
    const size_t round = work->channels[channel].round;
    const bool own_listed =
        place_of_local(work, step) > 0 ||
        (step->recv.number &&
         is_own(work, tt_peer_at(&step->recv, 0, work->engine->fabric->nranks)));
    struct pass pass = {.step = step,
                        .channel = channel,
                        .local_at = place_of_local(work, step),
                        .nslots = nslots,
                        .nsources = step->recv.number + (step->local.number && !own_listed)};
    if (step->local.number) pass.local_flags = tt_source_flags(work, &step->local);
    if (!step->local.number && !step->dst.number)
        return do_piece(work, &pass, NULL, NULL, nbytes / work->bound.element);
    const bool whole = (!step->local.number || tt_span_is_whole(work, &step->local)) &&
                       (!step->dst.number || tt_span_is_whole(work, &step->dst));
    struct tt_cursor locals, dsts;
    tt_cursor_init(&locals, work, &step->local, channel, round, whole);
    tt_cursor_init(&dsts, work, &step->dst, channel, round, whole);
    for (;;) {
        char *local = NULL, *dst = NULL;
        size_t count = 0;
        const bool have_local = tt_cursor_next(&locals, &local, &count);
        const bool have_dst = tt_cursor_next(&dsts, &dst, &count);
        if (!have_local && !have_dst) return TT_OK;
        TT_TRY(do_piece(work, &pass, local, dst, count));
    }
}

static size_t message_bytes(const struct tt_work *work, int channel, const struct tt_step *step,
                            bool *known)
{
    const struct tt_span *span = step->dst.number ? &step->dst : &step->local;
    *known = span->number > 0;
    return *known ? tt_span_count(work, span, channel, work->channels[channel].round) *
                        work->bound.element
                  : 0;
}

/* A step that only forwards takes the length of what comes. */
static tt_status forwarded_bytes(struct tt_work *work, int channel, const struct tt_step *step,
                                 size_t *nbytes)
{
    if (work->call.schedule->nblocks == 0 || !step->recv.number)
        return TT_OK; /* barrier: empty messages */
    struct tt_link *link = tt_fabric_rx(
        work->engine->fabric, tt_peer_at(&step->recv, 0, work->engine->fabric->nranks), channel);
    struct tt_message message;
    TT_TRY(link->ops->peek(link, &message));
    *nbytes = message.nbytes;
    return TT_OK;
}

tt_status tt_step_link(struct tt_work *work, int channel, const struct tt_step *step)
{
    struct tt_fabric *fabric = work->engine->fabric;
    bool known;
    size_t nbytes = message_bytes(work, channel, step, &known);
    if (!known) TT_TRY(forwarded_bytes(work, channel, step, &nbytes));
    ask_for_delivery(work, channel, step, nbytes);
    TT_TRY(gather_messages(work, channel, step, nbytes));
    TT_TRY(get_slots(work, channel, step, nbytes));
    const char *reference = step->send.number ? sendable(work, channel, step, nbytes) : NULL;
    TT_TRY(do_step(work, channel, step, reference ? 0 : step->send.number, nbytes));
    for (int i = 0; i < step->send.number; i++) {
        struct tt_link *link =
            tt_fabric_tx(fabric, tt_peer_at(&step->send, i, fabric->nranks), channel);
        if (reference && link->ops->publish_direct(link, reference, nbytes, work->signature)) {
            work->waits_for_drain = true;
            continue;
        }
        if (reference) tt_copy(work->engine->slots[channel][i], reference, nbytes, false);
        link->ops->publish(link, nbytes, work->signature);
    }
    for (int i = 0; i < step->recv.number; i++) {
        const int peer = tt_peer_at(&step->recv, i, fabric->nranks);
        if (is_own(work, peer)) continue;
        struct tt_link *link = tt_fabric_rx(fabric, peer, channel);
        link->ops->release(link);
    }
    return TT_OK;
}
