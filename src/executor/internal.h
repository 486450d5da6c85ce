/* Shared by the executor's files only. */
#ifndef TT_EXECUTOR_INTERNAL_H
#define TT_EXECUTOR_INTERNAL_H

#include "base/clock.h"
#include "executor/express.h"
#include "executor/work.h"
#include "executor/work.h"

/* Looks at a flag before the wait loop gets its turn: saves its overhead where answers come in
 * well under a microsecond. Not with more ranks than cores. */
enum { TT_BRIEF_LOOKS = 32 };

/* Shorter messages are copied through slots: a reference costs the sender a wait at the end, a post
 * the receiver a cache line. */
enum { TT_DIRECT_MIN_BYTES = 8192 };

/* Looks at a link for its first message, at most `looks` times; once with more ranks than cores. */
TT_NODISCARD static inline tt_status tt_peek_for(const struct tt_engine *engine,
                                                 struct tt_link *link, int looks,
                                                 struct tt_message *message)
{
    tt_status status = link->ops->peek(link, message);
    if (status != TT_IN_PROGRESS || engine->fabric->oversubscribed) return status;
    for (int look = 1; look < looks && status == TT_IN_PROGRESS; look++) {
        tt_cpu_relax();
        status = link->ops->peek(link, message);
    }
    return status;
}

/* How often a step of a collective looks for what it waits for. */
static inline int tt_looks(const struct tt_work *work)
{
    return work->collective.express ? TT_EXPRESS_LOOKS : TT_BRIEF_LOOKS;
}

/* In the executor `channel` is the communicator's: that of channel c of copy k of a program is
 * k * nchannels + c, which is also the number of its part of every block (program.h). */

/* A walk through a span of the work's program; whole: see tt_walk_begin. */
static inline struct tt_walk tt_work_walk(const struct tt_work *work, int channel,
                                          const struct tt_program_span *span, bool whole)
{
    return tt_walk_begin(tt_work_program(work), work->collective.call->binding, span, channel,
                         work->collective.channels[channel].round, whole);
}

/* Elements of a span in the channel's round. */
static inline size_t tt_work_count(const struct tt_work *work, int channel,
                                   const struct tt_program_span *span)
{
    return tt_span_count(tt_work_program(work), work->collective.call->binding, span, channel,
                         work->collective.channels[channel].round);
}

static inline char *tt_piece_data(const struct tt_work *work, const struct tt_program_span *span,
                                  const struct tt_piece *piece)
{
    return (char *)(work->collective.origin[span->buffer] + piece->offset);
}

/* Where the spans of a LINK step lie in the channel's round. */
struct tt_spans {
    char *local, *dst;    /* NULL: there is none, or it is several pieces of memory */
    size_t count, nbytes; /* of dst, else of local; 0: there is neither */
    bool is_walked;       /* the table of resolved steps does not have the step */
    bool has_pieces;      /* local or dst is several pieces */
};

/* By walking. */
void tt_walk_spans(const struct tt_work *work, int channel, const struct tt_program_step *step,
                   struct tt_spans *spans);

/* Of step number `index` of the channel. */
static inline void tt_step_spans(const struct tt_work *work, int channel,
                                 const struct tt_program_step *step, uint32_t index,
                                 struct tt_spans *spans)
{
    const struct tt_collective_work *own = &work->collective;
    const struct tt_resolved_step *resolved = own->resolved ? &own->resolved[index] : NULL;
    struct tt_resolved_round at;
    if (!resolved || !resolved->known) {
        tt_walk_spans(work, channel, step, spans);
        return;
    }
    tt_resolved_at(resolved, own->channels[channel].round, own->binding->element, &at);
    spans->local = step->local.number ? (char *)(own->origin[step->local.buffer] + at.local) : NULL;
    spans->dst = step->dst.number ? (char *)(own->origin[step->dst.buffer] + at.dst) : NULL;
    spans->count = at.count;
    spans->nbytes = at.nbytes;
    spans->is_walked = spans->has_pieces = false;
}

/* One step of one channel: TT_OK when complete. */
TT_NODISCARD tt_status tt_step_link(struct tt_work *work, int channel,
                                    const struct tt_program_step *step);
/* Lets the step's only message be delivered to `to`, or, with NULL, no longer. */
void tt_step_expect(struct tt_work *work, const struct tt_program_step *step, void *to,
                    size_t nbytes);
TT_NODISCARD tt_status tt_step_meet(struct tt_work *work, int channel,
                                    const struct tt_program_step *step);
/* ---- Brief calls (express.h) ---------------------------------------------------------------- */

/* Of a function with a constant argument, which a brief call and all others have compiled each for
 * themselves. */
#define TT_INLINED __attribute__((always_inline)) static inline

/* Whether a step over links is one of a brief call: its messages are copied through slots, and
 * nothing must be looked up for it beside the table. */
bool tt_step_is_brief(const struct tt_program_step *step, const struct tt_resolved_step *resolved,
                      const struct tt_reduction *reduction);
/* All steps, as tt_step_link does them, or the meeting, as tt_step_meet does it. When one must
 * wait, the position says where. */
TT_NODISCARD tt_status tt_do_brief_steps(struct tt_work *work);
TT_NODISCARD tt_status tt_do_brief_meeting(struct tt_work *work);

/* ---- The beginning and the end of a call ---------------------------------------------------- */

/* Posts the messages of a channel's round that peers may write to the caller's output. row: of the
 * copy's program. */
void tt_post_round(struct tt_work *work, const struct tt_program_channel *row, int channel);
/* How long a call without a deadline (TUTTI_TIMEOUT_MS=0) that has failed waits for peers that use
 * its buffers: far longer than a copy takes. */
enum { TT_WITHDRAWAL_S = 10 };

/* After a failure; to be called until it returns TT_OK: ends all posts of the call. TT_IN_PROGRESS:
 * a peer still writes to the caller's output. TT_OK also when that peer has died, or when the
 * deadline has passed; then the failure's text also says which rank may still use the output (one
 * of them, if there are several). */
TT_NODISCARD tt_status tt_await_writers(struct tt_work *work);

/* Whether a single source is not just copied: it is scaled, or finished. */
bool tt_changes(const struct tt_reduction *reduction, unsigned flags);
/* target[0..count) = the single source, scaled when it is this rank's own raw input, finished when
 * complete. */
void tt_transfer(const struct tt_work *work, void *target, const void *source, size_t count,
                 unsigned flags);
/* In the signature of a message that is a raw source: its sender's input, sent where it lies.
 * Whoever copies raw input changes it, as the operation says, and sends the result without this
 * bit. Only of averages of floats, whose quotients are the same on every rank; the factor of a
 * pre-multiplied sum is not. */
#define TT_SIGNATURE_RAW (1ull << 62)

static inline bool tt_message_is_of(const struct tt_message *message, uint64_t signature)
{
    return (message->signature & ~TT_SIGNATURE_RAW) == signature;
}

/* Whether the span is a raw source: input that the operation changes before it is folded. */
static inline bool tt_is_raw_span(const struct tt_reduction *reduction,
                                  const struct tt_program_span *span)
{
    return span->number && span->buffer == TT_INPUT &&
           tt_op_changes_raw(reduction->op, reduction->type);
}

/* TT_OK, or the communicator's failure, also one that this call detects. */
TT_NODISCARD tt_status tt_work_check(struct tt_work *work);

#endif
