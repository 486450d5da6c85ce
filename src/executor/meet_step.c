/* A MEET step: all ranks of the host put their parts into the meeting and take what they need.
 *
 * With a core for each rank everyone reads everyone's part as soon as the part is there. With more
 * ranks than cores the last to arrive reduces for all, so that nobody needs a second turn on a core
 * before the result is out. */
#include <string.h>

#include "base/clock.h"
#include "executor/internal.h"
#include "executor/shared_store.h"

/* What a step of a meeting works with. Never leaves the functions that are always inline. */
struct meet {
    struct tt_work *work;
    const struct tt_program_step *step;
    struct tt_meeting *meeting;
    struct tt_position *at;
    int channel;
    /* Where the spans lie, and elements and bytes of a block, all blocks being alike, when the
     * table of resolved steps says that; else they are walked */
    bool is_walked;
    char *local, *dst;
    size_t count, nbytes;
};

/* ---- Walking -------------------------------------------------------------------------------- */

/* Elements of `number` blocks from place `first` on in this round: all spans of a meeting name
 * places of the same part. */
static size_t walk_blocks(const struct tt_work *work, int channel,
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
static const char *find_block(const struct tt_work *work, int channel,
                              const struct tt_program_step *step, int member, int block)
{
    const struct tt_meeting *meeting = &work->engine->meetings[channel];
    const struct tt_flag *part = tt_meeting_place(meeting, member);
    const int first = (int)part->first, number = (int)part->number;
    if (block < first || block >= first + number) return NULL;
    return tt_meeting_part(meeting, member) +
           walk_blocks(work, channel, step, first, block - first) *
               work->collective.binding->element;
}

static void walk_into_part(struct tt_work *work, int channel, const struct tt_program_step *step,
                           char *to)
{
    const struct tt_binding *binding = work->collective.binding;
    const bool is_raw = tt_is_raw_span(&work->collective.call->reduction, &step->local);
    struct tt_walk walk =
        tt_work_walk(work, channel, &step->local, tt_span_is_whole(binding, &step->local));
    struct tt_piece piece;
    while (tt_walk_next(&walk, &piece)) {
        if (piece.count)
            tt_transfer(work, to, tt_piece_data(work, &step->local, &piece), piece.count,
                        is_raw ? TT_RAW : 0);
        to += piece.count * binding->element;
    }
}

/* target[..] = fold over the members of their blocks [first, first + number), in the order of the
 * members. */
static void fold_walking(const struct tt_work *work, int channel,
                         const struct tt_program_step *step, char *target, int first, int number,
                         bool finish)
{
    const void **inputs = work->engine->pointers[channel].messages;
    const int nmembers = work->engine->meetings[channel].nmembers;
    for (int i = 0; i < nmembers; i++) inputs[i] = find_block(work, channel, step, i, first);
    tt_reduce(&work->collective.call->reduction, target, inputs, nmembers,
              walk_blocks(work, channel, step, first, number), finish ? TT_FINISH : 0);
}

static const char *find_source(const struct tt_work *work, int channel,
                               const struct tt_program_step *step, int block, bool folded)
{
    const int nmembers = work->engine->meetings[channel].nmembers;
    if (folded) return find_block(work, channel, step, nmembers, block);
    if (step->op == TT_TRANSPOSE)
        return find_block(work, channel, step, block, tt_work_program(work)->rank);
    for (int i = 0; i < nmembers; i++) {
        /* A block is usually its own member's: look there first. */
        const char *found = find_block(work, channel, step, (block + i) % nmembers, block);
        if (found) return found;
    }
    return NULL;
}

static tt_status take_walking(struct tt_work *work, int channel, const struct tt_program_step *step,
                              bool folded)
{
    const struct tt_program_span *dst = &step->dst;
    const struct tt_binding *binding = work->collective.binding;
    const bool folds = step->op == TT_FOLD, whole = folds && tt_span_is_whole(binding, dst);
    struct tt_walk walk = tt_work_walk(work, channel, dst, whole);
    struct tt_piece piece;
    for (int i = 0; tt_walk_next(&walk, &piece); i++) {
        const int block = dst->first + i;
        if (!piece.count) continue;
        char *data = tt_piece_data(work, dst, &piece);
        if (folds && !folded) {
            fold_walking(work, channel, step, data, block, whole ? dst->number : 1, step->finish);
            continue;
        }
        const char *source = find_source(work, channel, step, block, folded);
        if (!source)
            return tt_fail(TT_ERR_INTERNAL, "block %d was put into the meeting by nobody", block);
        tt_copy_short(data, source, piece.count * binding->element);
    }
    return TT_OK;
}

/* ---- Blocks that are alike ------------------------------------------------------------------ */

/* Where the block of a place lies in a member's part, which holds it. */
TT_INLINED const char *block_of(const struct meet *meet, int member, int block)
{
    const int first = (int)tt_meeting_place(meet->meeting, member)->first;
    return tt_meeting_part(meet->meeting, member) + (size_t)(block - first) * meet->nbytes;
}

TT_INLINED void copy_into_part(const struct meet *meet, char *to, size_t nbytes)
{
    const struct tt_program_span *local = &meet->step->local;
    const struct tt_collective_work *own = &meet->work->collective;
    if (!nbytes) return;
    if (own->changes_raw && local->buffer == TT_INPUT) {
        const void *source = meet->local;
        tt_reduce(&own->call->reduction, to, &source, 1, (size_t)local->number * meet->count,
                  TT_RAW);
    } else {
        tt_store_shared(&meet->work->engine->fabric->host.store, to, meet->local, nbytes);
    }
}

/* As fold_walking. */
TT_INLINED void fold_blocks(const struct meet *meet, char *target, int first, int number,
                            bool finish)
{
    const void **inputs = meet->work->engine->pointers[meet->channel].messages;
    const int nmembers = meet->meeting->nmembers;
    const struct tt_target to = {.data = target};
    for (int i = 0; i < nmembers; i++) inputs[i] = block_of(meet, i, first);
    const struct tt_sources sources = {.data = inputs, .number = nmembers};
    tt_reduce_to(&meet->work->collective.call->reduction, &to, 1, &sources,
                 (size_t)number * meet->count, finish ? TT_FINISH : 0);
}

/* The blocks that this rank takes of a member's part. */
TT_INLINED void copy_blocks(const struct meet *meet, int member)
{
    const struct tt_program_span *dst = &meet->step->dst;
    const struct tt_flag *part = tt_meeting_place(meet->meeting, member);
    const int first = (int)part->first, end = first + (int)part->number;
    const int dst_end = dst->first + dst->number;
    const int low = first > dst->first ? first : dst->first, high = end < dst_end ? end : dst_end;
    if (low >= high) return;
    tt_copy_short(meet->dst + (size_t)(low - dst->first) * meet->nbytes,
                  block_of(meet, member, low), (size_t)(high - low) * meet->nbytes);
}

TT_INLINED void take_blocks(const struct meet *meet, bool folded)
{
    const struct tt_program_step *step = meet->step;
    const struct tt_program_span *dst = &step->dst;
    const int nmembers = meet->meeting->nmembers;
    if (!dst->number || !meet->count) return;
    if (folded) {
        copy_blocks(meet, nmembers);
    } else if (step->op == TT_FOLD) {
        fold_blocks(meet, meet->dst, dst->first, dst->number, step->finish);
    } else if (step->op == TT_COPY) {
        for (int i = 0; i < nmembers; i++) copy_blocks(meet, i);
    } else {
        const int rank = tt_work_program(meet->work)->rank;
        for (int i = 0; i < dst->number; i++)
            tt_copy_short(meet->dst + (size_t)i * meet->nbytes,
                          block_of(meet, dst->first + i, rank), meet->nbytes);
    }
}

/* ---- The step ------------------------------------------------------------------------------- */

static tt_status too_large(const struct tt_meeting *meeting, size_t nbytes)
{
    return tt_fail(TT_ERR_INTERNAL,
                   "a part of %zu bytes does not fit a place of %zu bytes in a meeting, as the "
                   "call's binding says it does",
                   nbytes, meeting->capacity);
}

/* wakes: see tt_meeting_put. */
TT_INLINED tt_status put_in(const struct meet *meet, bool wakes)
{
    struct tt_work *work = meet->work;
    struct tt_meeting *meeting = meet->meeting;
    const struct tt_program_step *step = meet->step;
    const size_t nbytes = meet->is_walked ? tt_work_count(work, meet->channel, &step->local) *
                                                work->collective.binding->element
                                          : (size_t)step->local.number * meet->nbytes;
    const struct tt_part part = {.signature = work->collective.signature,
                                 .nbytes = nbytes,
                                 .first = (uint32_t)step->local.first,
                                 .number = (uint32_t)step->local.number,
                                 .complete = step->finish && step->dst.number};
    if (nbytes > meeting->capacity) /* it would overwrite its neighbour */
        return too_large(meeting, nbytes);
    char *to = tt_meeting_data(tt_meeting_place(meeting, meeting->own), nbytes);
    if (meet->is_walked)
        walk_into_part(work, meet->channel, step, to);
    else
        copy_into_part(meet, to, nbytes);
    tt_meeting_put(meeting, &part, wakes);
    struct tt_fabric *fabric = work->engine->fabric;
    tt_count_more(&fabric->nmessages, 1);
    tt_count_more(&fabric->nbytes_copied, nbytes);
    return TT_OK;
}

/* After the first look. */
__attribute__((noinline)) static bool comes_in(const struct tt_work *work,
                                               const struct tt_meeting *meeting, int member)
{
    const int looks = work->engine->fabric->oversubscribed ? 1 : tt_looks(work);
    for (int i = 1; i < looks; i++) {
        tt_cpu_relax();
        if (tt_meeting_is_in(meeting, member)) return true;
    }
    return false;
}

/* Waits until every member's part is in; checks that each is a part of this call. is_brief, a
 * constant: no position is kept. */
TT_INLINED tt_status await_parts(const struct meet *meet, bool is_brief)
{
    struct tt_work *work = meet->work;
    const struct tt_meeting *meeting = meet->meeting;
    for (int i = is_brief ? 0 : (int)meet->at->ready; i < meeting->nmembers; i++) {
        if (!tt_meeting_is_in(meeting, i) && !comes_in(work, meeting, i)) return TT_IN_PROGRESS;
        if (tt_meeting_place(meeting, i)->signature != work->collective.signature)
            return tt_collective_mismatch(work, tt_fabric_rank_at(work->engine->fabric, i));
        if (is_brief) continue;
        meet->at->ready = (uint32_t)i + 1;
        work->progress++;
    }
    return TT_OK;
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
static void fold_for_all(const struct meet *meet)
{
    const struct tt_meeting *meeting = meet->meeting;
    const struct tt_flag *own = tt_meeting_place(meeting, meeting->own);
    struct tt_flag *result = tt_meeting_place(meeting, meeting->nmembers);
    const bool finish = is_complete(meeting);
    result->nbytes_kind = own->nbytes_kind;
    result->first = own->first;
    result->number = own->number;
    if (!(own->nbytes_kind >> 8)) return;
    char *target = tt_meeting_part(meeting, meeting->nmembers);
    if (meet->is_walked)
        fold_walking(meet->work, meet->channel, meet->step, target, (int)own->first,
                     (int)own->number, finish);
    else
        fold_blocks(meet, target, (int)own->first, (int)own->number, finish);
}

/* TT_OK once the last to arrive has published; makes this rank do that work when it is the last. */
static tt_status arrive(const struct meet *meet)
{
    struct tt_meeting *meeting = meet->meeting;
    if (!meet->at->entered) {
        TT_TRY(put_in(meet, false));
        meet->at->entered = true;
        meet->work->progress++;
        if (tt_meeting_arrive(meeting)) {
            TT_AWAIT(await_parts(meet, false));
            if (meet->step->op == TT_FOLD) fold_for_all(meet);
            tt_meeting_publish(meeting);
        }
    }
    return tt_meeting_is_published(meeting) ? TT_OK : TT_IN_PROGRESS;
}

static tt_status put_and_await(const struct meet *meet)
{
    if (!meet->at->entered) {
        TT_TRY(put_in(meet, true));
        meet->at->entered = true;
        meet->work->progress++;
    }
    return await_parts(meet, false);
}

tt_status tt_step_meet(struct tt_work *work, int channel, const struct tt_program_step *step)
{
    const struct tt_collective_work *own = &work->collective;
    struct tt_position *at = &own->channels[channel];
    const struct tt_resolved_step *resolved = own->resolved ? &own->resolved[at->step] : NULL;
    const bool last_does_the_work = work->engine->fabric->oversubscribed;
    struct meet meet = {.work = work,
                        .step = step,
                        .meeting = &work->engine->meetings[channel],
                        .at = at,
                        .channel = channel,
                        .is_walked = !resolved || !resolved->known};
    if (!meet.is_walked) {
        struct tt_resolved_round spans;
        tt_resolved_at(resolved, at->round, own->binding->element, &spans);
        meet.local = (char *)(own->origin[step->local.buffer] + spans.local);
        meet.dst = (char *)(own->origin[step->dst.buffer] + spans.dst);
        meet.count = spans.count;
        meet.nbytes = spans.nbytes;
    }
    TT_AWAIT(last_does_the_work ? arrive(&meet) : put_and_await(&meet));
    const bool folded = last_does_the_work && step->op == TT_FOLD;
    if (meet.is_walked)
        TT_TRY(take_walking(work, channel, step, folded));
    else
        take_blocks(&meet, folded);
    tt_meeting_finish(meet.meeting);
    return TT_OK;
}

tt_status tt_do_brief_meeting(struct tt_work *work)
{
    const struct tt_collective_work *own = &work->collective;
    const struct tt_program_step *step = tt_program_steps(tt_work_program(work));
    const struct tt_resolved_step *resolved = own->call->resolved->steps;
    const struct meet meet = {.work = work,
                              .step = step,
                              .meeting = &work->engine->meetings[0],
                              .local = (char *)(own->origin[step->local.buffer] + resolved->local),
                              .dst = (char *)(own->origin[step->dst.buffer] + resolved->dst),
                              .count = resolved->count,
                              .nbytes = resolved->nbytes};
    tt_status status = put_in(&meet, true);
    if (!status) status = await_parts(&meet, true);
    if (status) {
        own->channels[0] = (struct tt_position){.entered = true};
        return status;
    }
    take_blocks(&meet, false);
    tt_meeting_finish(meet.meeting);
    return TT_OK;
}
