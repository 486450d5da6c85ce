/* A MEET step: all ranks of the host put their parts into the meeting place and take what they
 * need.
 *
 * With a core for each rank everyone reads everyone's part as soon as it is there. With more ranks
 * than cores the last to arrive reduces for all, so that nobody needs a second turn on a core
 * before the result is out. Parts lie in one of two places in turn: who enters meeting m + 2 has
 * left m + 1, which everyone entered after having left m. */
#include <string.h>

#include "base/clock.h"
#include "executor/internal.h"

static struct tt_flag *part_of(const struct tt_work *work, int place)
{
    return tt_segment_meet_flag(work->engine->fabric->segment, place,
                                (int)(work->engine->meetings & 1));
}

/* The place of the i-th member among the ranks of this host. */
static int place_of(const struct tt_work *work, const struct tt_step *step, int i)
{
    const struct tt_fabric *fabric = work->engine->fabric;
    return fabric->hosts->local_of[tt_peer_at(&step->recv, i, fabric->nranks)];
}

/* Elements of `number` blocks from place `first` on in this round: all spans of a meeting name
 * places of the same part. */
static size_t blocks_count(const struct tt_work *work, int channel, const struct tt_step *step,
                           int first, int number)
{
    const struct tt_span *part = step->dst.number ? &step->dst : &step->local;
    struct tt_span span = tt_range(TT_INPUT, first, number);
    span.base = part->base;
    span.modulo = part->modulo;
    span.order = part->order;
    return number ? tt_span_count(work, &span, channel, work->channels[channel].round) : 0;
}

/* Where the block of a place lies in a member's part; NULL when it is not in it. */
static const char *block_in_part(const struct tt_work *work, int channel,
                                 const struct tt_step *step, struct tt_flag *flag, int block)
{
    const int first = (int)flag->first, number = (int)flag->number;
    if (block < first || block >= first + number) return NULL;
    return tt_part_payload(flag) +
           blocks_count(work, channel, step, first, block - first) * work->bound.element;
}

static void put_in(struct tt_work *work, int channel, const struct tt_step *step)
{
    const size_t round = work->channels[channel].round;
    struct tt_flag *flag = part_of(work, work->engine->fabric->local);
    const size_t nbytes = tt_span_count(work, &step->local, channel, round) * work->bound.element;
    const bool last = step->finish && step->dst.number;
    flag->nbytes_kind = (uint64_t)nbytes << 8 | (last ? TT_MESSAGE_LAST_PART : TT_MESSAGE_PART);
    char *to = tt_part_payload(flag);
    struct tt_cursor cursor;
    char *data;
    size_t count;
    tt_cursor_init(&cursor, work, &step->local, channel, round,
                   tt_span_is_whole(work, &step->local));
    while (tt_cursor_next(&cursor, &data, &count)) {
        tt_transfer(work, to, data, count, tt_source_flags(work, &step->local));
        to += count * work->bound.element;
    }
    flag->signature = work->signature;
    flag->first = (uint32_t)step->local.first;
    flag->number = (uint32_t)step->local.number;
    atomic_store_explicit(&flag->seq, work->engine->meetings + 1, memory_order_release); /* R3 */
    tt_count_more(&work->engine->fabric->nmessages, 1);
    tt_count_more(&work->engine->fabric->nbytes_copied, nbytes);
}

static bool is_in(const struct tt_work *work, const struct tt_flag *flag)
{
    const int looks = work->engine->fabric->oversubscribed ? 1 : TT_BRIEF_LOOKS;
    for (int i = 0; i < looks; i++) {
        if (atomic_load_explicit(&flag->seq, memory_order_acquire) ==
            work->engine->meetings + 1) /* A3 */
            return true;
        tt_cpu_relax();
    }
    return false;
}

/* Waits until every member's part is in; checks that it is a part of this call. */
static tt_status await_parts(struct tt_work *work, struct tt_work_channel *state,
                             const struct tt_step *step)
{
    for (; state->ready < step->recv.number; state->ready++) {
        const struct tt_flag *flag = part_of(work, place_of(work, step, state->ready));
        if (!is_in(work, flag)) return TT_IN_PROGRESS;
        if (flag->signature != work->signature)
            return tt_work_mismatch(
                work, tt_peer_at(&step->recv, state->ready, work->engine->fabric->nranks));
        work->progress++;
    }
    return TT_OK;
}

/* target[..] = fold over the members of their blocks [first, first + number), in the order of the
 * list. */
static void fold_blocks(const struct tt_work *work, int channel, const struct tt_step *step,
                        char *target, int first, int number, bool finish)
{
    const void **inputs = work->engine->sources[channel];
    for (int i = 0; i < step->recv.number; i++)
        inputs[i] =
            block_in_part(work, channel, step, part_of(work, place_of(work, step, i)), first);
    tt_reduce(&work->call.reduction, target, inputs, step->recv.number,
              blocks_count(work, channel, step, first, number), finish ? TT_FINISH : 0);
}

/* Whether the result is complete: who takes it knows, and says so in its part. */
static bool is_last_part(const struct tt_work *work, const struct tt_step *step)
{
    for (int i = 0; i < step->recv.number; i++) {
        const struct tt_flag *flag = part_of(work, place_of(work, step, i));
        if ((flag->nbytes_kind & 255) == TT_MESSAGE_LAST_PART) return true;
    }
    return false;
}

/* The last to arrive folds everything that was put in, once, for all: also for who takes it, when
 * this rank takes nothing. */
static void fold_for_all(const struct tt_work *work, int channel, const struct tt_step *step)
{
    struct tt_fabric *fabric = work->engine->fabric;
    const struct tt_flag *own = part_of(work, fabric->local);
    struct tt_flag *result = part_of(work, fabric->nlocal);
    result->nbytes_kind = own->nbytes_kind;
    result->first = own->first;
    result->number = own->number;
    fold_blocks(work, channel, step, tt_part_payload(result), (int)own->first, (int)own->number,
                is_last_part(work, step));
}

static const char *block_source(const struct tt_work *work, int channel, const struct tt_step *step,
                                int block, bool folded)
{
    struct tt_fabric *fabric = work->engine->fabric;
    if (folded) return block_in_part(work, channel, step, part_of(work, fabric->nlocal), block);
    if (step->op == TT_TRANSPOSE)
        return block_in_part(work, channel, step, part_of(work, place_of(work, step, block)),
                             fabric->rank);
    for (int i = 0; i < step->recv.number; i++) {
        /* A block is usually its own member's: look there first. */
        const int place = place_of(work, step, (block + i) % step->recv.number);
        const char *found = block_in_part(work, channel, step, part_of(work, place), block);
        if (found) return found;
    }
    return NULL;
}

static tt_status take(struct tt_work *work, int channel, const struct tt_step *step, bool folded)
{
    if (!step->dst.number) return TT_OK;
    const bool whole = tt_span_is_whole(work, &step->dst);
    const bool fold_here = step->op == TT_FOLD && !folded;
    struct tt_cursor cursor;
    char *data;
    size_t count;
    tt_cursor_init(&cursor, work, &step->dst, channel, work->channels[channel].round,
                   whole && step->op == TT_FOLD);
    for (int i = 0; tt_cursor_next(&cursor, &data, &count); i++) {
        const int block = step->dst.first + i;
        if (!count) continue;
        if (fold_here) {
            fold_blocks(work, channel, step, data, block, cursor.whole ? step->dst.number : 1,
                        step->finish);
            continue;
        }
        const char *source = block_source(work, channel, step, block, folded);
        if (!source)
            return tt_fail(TT_ERR_INTERNAL, "block %d was put into the meeting by nobody", block);
        memcpy(data, source, count * work->bound.element);
    }
    return TT_OK;
}

/* TT_OK once the last to arrive has published; makes this rank do that work when it is the last. */
static tt_status arrive(struct tt_work *work, int channel, const struct tt_step *step)
{
    struct tt_work_channel *state = &work->channels[channel];
    struct tt_fabric *fabric = work->engine->fabric;
    struct tt_meeting_area *area = tt_segment_meeting(fabric->segment);
    const uint64_t meeting = work->engine->meetings + 1;
    if (!state->entered) {
        put_in(work, channel, step);
        state->entered = true;
        work->progress++;
        const uint64_t before =
            atomic_fetch_add_explicit(&area->arrived, 1, memory_order_acq_rel); /* R5/A5 */
        if (before + 1 == meeting * (uint64_t)fabric->nlocal) {
            TT_TRY(await_parts(work, state, step));
            if (step->op == TT_FOLD) fold_for_all(work, channel, step);
            atomic_store_explicit(&area->published, meeting, memory_order_release); /* R6 */
        }
    }
    return atomic_load_explicit(&area->published, memory_order_acquire) >= meeting
               ? TT_OK
               : TT_IN_PROGRESS; /* A6 */
}

tt_status tt_step_meet(struct tt_work *work, int channel, const struct tt_step *step)
{
    struct tt_work_channel *state = &work->channels[channel];
    struct tt_fabric *fabric = work->engine->fabric;
    if (step->recv.number != fabric->nlocal || channel != 0)
        return tt_fail(TT_ERR_INTERNAL,
                       "a meeting of %d ranks on channel %d, expected all %d of the host on 0",
                       step->recv.number, channel, fabric->nlocal);
    const bool last_does_the_work = fabric->oversubscribed;
    if (last_does_the_work) {
        TT_TRY(arrive(work, channel, step));
    } else {
        if (!state->entered) put_in(work, channel, step);
        if (!state->entered) work->progress++;
        state->entered = true;
        TT_TRY(await_parts(work, state, step));
    }
    TT_TRY(take(work, channel, step, last_does_the_work && step->op == TT_FOLD));
    work->engine->meetings++;
    return TT_OK;
}
