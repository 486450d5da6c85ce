/* A MEET step: all ranks of the host put their parts into the meeting and take what they need.
 *
 * With a core for each rank everyone reads everyone's part as soon as the part is there. With more
 * ranks than cores the last to arrive reduces for all, so that nobody needs a second turn on a core
 * before the result is out. */
#include <string.h>

#include "base/clock.h"
#include "executor/internal.h"

static struct tt_meeting *meeting_of(const struct tt_work *work, int channel)
{
    return &work->engine->meetings[channel];
}

/* Elements of `number` blocks from place `first` on in this round: all spans of a meeting name
 * places of the same part. */
static size_t blocks_count(const struct tt_work *work, int channel,
                           const struct tt_program_step *step, int first, int number)
{
    if (!number) return 0;
    struct tt_program_span span = step->dst.number ? step->dst : step->local;
    span.first = first;
    span.number = span.run = number;
    span.all = span.contiguous && number == tt_work_program(work)->nblocks;
    return tt_work_count(work, channel, &span);
}

/* Where the block of a place lies in a member's part; NULL when the part does not hold it. */
static const char *block_in_part(const struct tt_work *work, int channel,
                                 const struct tt_program_step *step, int member, int block)
{
    const struct tt_meeting *meeting = meeting_of(work, channel);
    const struct tt_flag *part = tt_meeting_place(meeting, member);
    const int first = (int)part->first, number = (int)part->number;
    if (block < first || block >= first + number) return NULL;
    return tt_meeting_part(meeting, member) +
           blocks_count(work, channel, step, first, block - first) *
               work->collective.binding.element;
}

static tt_status put_in(struct tt_work *work, int channel, const struct tt_program_step *step)
{
    struct tt_meeting *meeting = meeting_of(work, channel);
    const struct tt_binding *binding = &work->collective.binding;
    const struct tt_part part = {.signature = work->collective.signature,
                                 .nbytes =
                                     tt_work_count(work, channel, &step->local) * binding->element,
                                 .first = (uint32_t)step->local.first,
                                 .number = (uint32_t)step->local.number,
                                 .complete = step->finish && step->dst.number};
    if (part.nbytes > meeting->capacity) /* it would overwrite its neighbour */
        return tt_fail(TT_ERR_INTERNAL,
                       "a part of %zu bytes does not fit a place of %zu bytes in a meeting, as the "
                       "call's binding says it does",
                       part.nbytes, meeting->capacity);
    char *to = tt_meeting_data(tt_meeting_place(meeting, meeting->own), part.nbytes);
    struct tt_walk walk =
        tt_work_walk(work, channel, &step->local, tt_span_is_whole(binding, &step->local));
    struct tt_piece piece;
    while (tt_work_next(work, &walk, &piece)) {
        if (piece.count)
            tt_transfer(work, to, tt_piece_data(work, &step->local, &piece), piece.count,
                        tt_is_raw_span(&work->collective.call.reduction, &step->local) ? TT_RAW
                                                                                       : 0);
        to += piece.count * binding->element;
    }
    tt_meeting_put(meeting, &part, !work->engine->fabric->oversubscribed);
    tt_count_more(&work->engine->fabric->nmessages, 1);
    tt_count_more(&work->engine->fabric->nbytes_copied, part.nbytes);
    return TT_OK;
}

static bool is_in(const struct tt_work *work, int channel, int member)
{
    const int looks = work->engine->fabric->oversubscribed ? 1 : TT_BRIEF_LOOKS;
    for (int i = 0; i < looks; i++) {
        if (tt_meeting_is_in(meeting_of(work, channel), member)) return true;
        tt_cpu_relax();
    }
    return false;
}

/* Waits until every member's part is in; checks that each is a part of this call. */
static tt_status await_parts(struct tt_work *work, int channel)
{
    struct tt_position *at = &work->collective.channels[channel];
    const struct tt_meeting *meeting = meeting_of(work, channel);
    for (; at->ready < (uint32_t)meeting->nmembers; at->ready++) {
        const int member = (int)at->ready;
        if (!is_in(work, channel, member)) return TT_IN_PROGRESS;
        if (tt_meeting_place(meeting, member)->signature != work->collective.signature)
            return tt_collective_mismatch(work, tt_fabric_rank_at(work->engine->fabric, member));
        work->progress++;
    }
    return TT_OK;
}

/* target[..] = fold over the members of their blocks [first, first + number), in the order of the
 * members. */
static void fold_blocks(const struct tt_work *work, int channel, const struct tt_program_step *step,
                        char *target, int first, int number, bool finish)
{
    const void **inputs = work->engine->pointers[channel].messages;
    const int nmembers = meeting_of(work, channel)->nmembers;
    for (int i = 0; i < nmembers; i++) inputs[i] = block_in_part(work, channel, step, i, first);
    tt_reduce(&work->collective.call.reduction, target, inputs, nmembers,
              blocks_count(work, channel, step, first, number), finish ? TT_FINISH : 0);
}

/* Whether the result is complete: a rank that takes the result knows, and says so in its part. */
static bool is_complete(const struct tt_meeting *meeting)
{
    for (int i = 0; i < meeting->nmembers; i++)
        if ((tt_meeting_place(meeting, i)->nbytes_kind & 255) == TT_MESSAGE_LAST_PART) return true;
    return false;
}

/* The last to arrive folds everything that was put in, once, for all: also for who takes it, when
 * this rank takes nothing. */
static void fold_for_all(const struct tt_work *work, int channel,
                         const struct tt_program_step *step)
{
    const struct tt_meeting *meeting = meeting_of(work, channel);
    const struct tt_flag *own = tt_meeting_place(meeting, meeting->own);
    struct tt_flag *result = tt_meeting_place(meeting, meeting->nmembers);
    result->nbytes_kind = own->nbytes_kind;
    result->first = own->first;
    result->number = own->number;
    if (own->nbytes_kind >> 8)
        fold_blocks(work, channel, step, tt_meeting_part(meeting, meeting->nmembers),
                    (int)own->first, (int)own->number, is_complete(meeting));
}

static const char *block_source(const struct tt_work *work, int channel,
                                const struct tt_program_step *step, int block, bool folded)
{
    const int nmembers = meeting_of(work, channel)->nmembers;
    if (folded) return block_in_part(work, channel, step, nmembers, block);
    if (step->op == TT_TRANSPOSE)
        return block_in_part(work, channel, step, block, tt_work_program(work)->rank);
    for (int i = 0; i < nmembers; i++) {
        /* A block is usually its own member's: look there first. */
        const char *found = block_in_part(work, channel, step, (block + i) % nmembers, block);
        if (found) return found;
    }
    return NULL;
}

static tt_status take(struct tt_work *work, int channel, const struct tt_program_step *step,
                      bool folded)
{
    const struct tt_program_span *dst = &step->dst;
    const bool whole = tt_span_is_whole(&work->collective.binding, dst) && step->op == TT_FOLD;
    const bool fold_here = step->op == TT_FOLD && !folded;
    struct tt_walk walk = tt_work_walk(work, channel, dst, whole);
    struct tt_piece piece;
    for (int i = 0; tt_work_next(work, &walk, &piece); i++) {
        const int block = dst->first + i;
        if (!piece.count) continue;
        char *data = tt_piece_data(work, dst, &piece);
        if (fold_here) {
            fold_blocks(work, channel, step, data, block, whole ? dst->number : 1, step->finish);
            continue;
        }
        const char *source = block_source(work, channel, step, block, folded);
        if (!source)
            return tt_fail(TT_ERR_INTERNAL, "block %d was put into the meeting by nobody", block);
        memcpy(data, source, piece.count * work->collective.binding.element);
    }
    return TT_OK;
}

/* TT_OK once the last to arrive has published; makes this rank do that work when it is the last. */
static tt_status arrive(struct tt_work *work, int channel, const struct tt_program_step *step)
{
    struct tt_position *at = &work->collective.channels[channel];
    struct tt_meeting *meeting = meeting_of(work, channel);
    if (!at->entered) {
        TT_TRY(put_in(work, channel, step));
        at->entered = true;
        work->progress++;
        if (tt_meeting_arrive(meeting)) {
            TT_AWAIT(await_parts(work, channel));
            if (step->op == TT_FOLD) fold_for_all(work, channel, step);
            tt_meeting_publish(meeting);
        }
    }
    return tt_meeting_is_published(meeting) ? TT_OK : TT_IN_PROGRESS;
}

tt_status tt_step_meet(struct tt_work *work, int channel, const struct tt_program_step *step)
{
    struct tt_position *at = &work->collective.channels[channel];
    const bool last_does_the_work = work->engine->fabric->oversubscribed;
    if (last_does_the_work) {
        TT_AWAIT(arrive(work, channel, step));
    } else {
        if (!at->entered) {
            TT_TRY(put_in(work, channel, step));
            work->progress++;
        }
        at->entered = true;
        TT_AWAIT(await_parts(work, channel));
    }
    TT_TRY(take(work, channel, step, last_does_the_work && step->op == TT_FOLD));
    tt_meeting_finish(meeting_of(work, channel));
    return TT_OK;
}
