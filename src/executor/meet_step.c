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

static struct tt_flag *part_of(const struct tt_work *work, int member)
{
    return tt_segment_meet_flag(work->engine->fabric->segment, member,
                                (int)(work->engine->meetings & 1));
}

/* Elements of blocks [first, first + number) in this round. */
static size_t blocks_count(const struct tt_work *work, int channel, int first, int number)
{
    const struct tt_span span = tt_range(TT_INPUT, first, number);
    return number ? tt_span_count(work, &span, channel, work->channels[channel].round) : 0;
}

/* Where block `name` lies in a member's part; NULL when it is not in it. */
static const char *block_in_part(const struct tt_work *work, int channel, struct tt_flag *flag,
                                 int name)
{
    const int first = (int)flag->first, number = (int)flag->number;
    if (name < first || name >= first + number) return NULL;
    return tt_part_payload(flag) +
           blocks_count(work, channel, first, name - first) * work->bound.element;
}

static void put_in(struct tt_work *work, int channel, const struct tt_step *step)
{
    const size_t round = work->channels[channel].round;
    struct tt_flag *flag = part_of(work, work->engine->fabric->rank);
    const size_t nbytes = tt_span_count(work, &step->local, channel, round) * work->bound.element;
    flag->nbytes_kind = (uint64_t)nbytes << 8 | TT_MESSAGE_SLOT;
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
        const int member = tt_peer_at(&step->recv, state->ready, work->engine->fabric->nranks);
        const struct tt_flag *flag = part_of(work, member);
        if (!is_in(work, flag)) return TT_IN_PROGRESS;
        if (flag->signature != work->signature) return tt_work_mismatch(work, member);
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
    for (int i = 0; i < step->recv.number; i++) {
        const int member = tt_peer_at(&step->recv, i, work->engine->fabric->nranks);
        inputs[i] = block_in_part(work, channel, part_of(work, member), first);
    }
    tt_reduce(&work->call.reduction, target, inputs, step->recv.number,
              blocks_count(work, channel, first, number), finish ? TT_FINISH : 0);
}

/* The last to arrive folds everything that was put in, once, for all: also for who takes it, when
 * this rank takes nothing. All ranks have put in their part, so the result is complete. */
static void fold_for_all(const struct tt_work *work, int channel, const struct tt_step *step)
{
    struct tt_fabric *fabric = work->engine->fabric;
    const struct tt_flag *own = part_of(work, fabric->rank);
    struct tt_flag *result = part_of(work, fabric->nranks);
    result->nbytes_kind = own->nbytes_kind;
    result->first = own->first;
    result->number = own->number;
    fold_blocks(work, channel, step, tt_part_payload(result), (int)own->first, (int)own->number,
                true);
}

static const char *block_source(const struct tt_work *work, int channel, const struct tt_step *step,
                                int name, bool folded)
{
    struct tt_fabric *fabric = work->engine->fabric;
    if (folded) return block_in_part(work, channel, part_of(work, fabric->nranks), name);
    if (step->op == TT_TRANSPOSE)
        return block_in_part(work, channel,
                             part_of(work, tt_peer_at(&step->recv, name, fabric->nranks)),
                             fabric->rank);
    for (int i = 0; i < step->recv.number; i++) {
        /* A block is usually its own member's: look there first. */
        const int member = tt_peer_at(&step->recv, (name + i) % step->recv.number, fabric->nranks);
        const char *found = block_in_part(work, channel, part_of(work, member), name);
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
        const int name = step->dst.first + i;
        if (!count) continue;
        if (fold_here) {
            fold_blocks(work, channel, step, data, name, cursor.whole ? step->dst.number : 1,
                        step->finish);
            continue;
        }
        const char *source = block_source(work, channel, step, name, folded);
        if (!source)
            return tt_fail(TT_ERR_INTERNAL, "block %d was put into the meeting by nobody", name);
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
        if (before + 1 == meeting * (uint64_t)fabric->nranks) {
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
    if (step->recv.number != fabric->nranks || channel != 0)
        return tt_fail(TT_ERR_INTERNAL,
                       "a meeting of %d ranks on channel %d, expected all %d of the host on 0",
                       step->recv.number, channel, fabric->nranks);
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
