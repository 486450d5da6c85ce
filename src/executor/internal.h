/* Shared by the executor's files only. */
#ifndef TT_EXECUTOR_INTERNAL_H
#define TT_EXECUTOR_INTERNAL_H

#include "executor/engine.h"

/* Looks at a flag before the wait loop gets its turn: saves its overhead where answers come in
 * well under a microsecond. Not with more ranks than cores. */
enum { TT_BRIEF_LOOKS = 32 };

/* Where a span's blocks lie in this round. Walks them one by one, or as one piece when work->merged
 * allows it. */
struct tt_cursor {
    const struct tt_work *work;
    const struct tt_span *span;
    int channel, i, n;
    size_t round;
    bool whole;
};

/* whole: the caller found that every span of the step may be walked as one piece
 * (tt_span_is_whole). */
void tt_cursor_init(struct tt_cursor *cursor, const struct tt_work *work,
                    const struct tt_span *span, int channel, size_t round, bool whole);
/* The next piece; false at the end. An empty span has none. */
bool tt_cursor_next(struct tt_cursor *cursor, char **data, size_t *count);
bool tt_span_is_whole(const struct tt_work *work, const struct tt_span *span);
/* The usual span of small calls: everything, in one piece. */
static inline bool tt_span_is_all(const struct tt_work *work, const struct tt_span *span)
{
    return work->bound.merged && span->buffer != TT_SCRATCH && !span->order && span->first == 0 &&
           span->number == work->bound.geometry.nblocks && span->run >= span->number;
}
/* Elements of a span in a round. */
size_t tt_span_count(const struct tt_work *work, const struct tt_span *span, int channel,
                     size_t round);

/* Where the part of a meeting lies that the flag (its length is set) announces. */
static inline char *tt_part_payload(struct tt_flag *flag)
{
    return flag->nbytes_kind >> 8 <= TT_INLINE_BYTES ? (char *)flag->data.bytes
                                                     : (char *)(flag + 1);
}

/* One step of one channel: TT_OK when complete. */
TT_NODISCARD tt_status tt_step_link(struct tt_work *work, int channel, const struct tt_step *step);
/* Lets the step's only message be delivered to `to`, or, with NULL, no longer. */
void tt_step_expect(struct tt_work *work, int channel, const struct tt_step *step, void *to,
                    size_t nbytes);
TT_NODISCARD tt_status tt_step_meet(struct tt_work *work, int channel, const struct tt_step *step);

/* What the signature says of the call, without its turn; and with it. */
uint64_t tt_call_signature(const struct tt_call *call);
uint64_t tt_turn_signature(uint64_t call_signature, uint64_t turn);
/* Sets up a collective whose turn is given; counts it as outstanding. */
void tt_work_begin(struct tt_work *work, struct tt_engine *engine, const struct tt_call *call,
                   uint64_t turn);
/* Writes a collective into this rank's record. */
void tt_record_entry(const struct tt_engine *engine, const struct tt_call *call, uint64_t turn);
/* Marks the work as done and gives the turn to the next. */
void tt_work_complete(struct tt_work *work, tt_status status);

/* Point to point. */
TT_NODISCARD tt_status tt_p2p_advance(struct tt_work *work);

/* target[0..count) = the single source, scaled when it is this rank's own raw input, finished when
 * complete. */
void tt_transfer(const struct tt_work *work, void *target, const void *source, size_t count,
                 unsigned flags);
/* Flags for reading the span as a source: TT_SCALE_FIRST for raw input of a pre-multiplied sum. */
unsigned tt_source_flags(const struct tt_work *work, const struct tt_span *span);

/* Whether there is still hope: TT_OK, or the communicator's failure, perhaps found just now. */
TT_NODISCARD tt_status tt_work_check(struct tt_work *work);

/* Fails the communicator because a peer's call differs. */
TT_NODISCARD tt_status tt_work_mismatch(struct tt_work *work, int peer);
/* "all_reduce number 12 (count 5, float, sum)". */
void tt_work_describe(const struct tt_work *work, char *text, size_t size);

#endif
