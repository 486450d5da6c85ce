/* Meet: the ranks of one host put their parts into shared memory, and each takes its result when
 * all ranks have put.
 *
 *   r0 \  put        take  / r0     One dependence for any number of ranks, so with more ranks
 *   r1  \_________________/  r1     than cores each rank is scheduled only twice.
 *   r2  /                 \  r2
 *   r3 /                   \ r3
 *
 *                    puts (sent)   takes                     reduced
 *   all_reduce       1             1                         n        (blocks: the whole data)
 *   broadcast        1 (root)      1                         0        (the same)
 *   reduce           1             1 (root)                  n        (the same)
 *   all_gather       1             n                         0        (blocks: one rank's)
 *   reduce_scatter   n             1                         n        (the same)
 *   all_to_all       n             n (its block of each)     0        (the same)
 *   scatter          n (root)      1                         0        (the same)
 *   gather           1             n (root)                  0        (the same)
 *   barrier          0             0                         0
 *
 * steps 1, depth 1, scratch 0, message as sent. Reductions are in rank order.
 *
 * meet_two_shot is an all-reduce of two meetings, a reduce-scatter and an all-gather, in which each
 * rank reduces 1/n of the data instead of all of it: steps 2, depth 2, sent n+1, reduced n,
 * message n (blocks: 1/n of the data). */
#include "algorithms/forms.h"
#include "algorithms/list.h"

static int one_meeting(const struct tt_algorithm *self, const struct tt_shape *shape, int rank,
                       int channel)
{
    return 1;
}

static int two_meetings(const struct tt_algorithm *self, const struct tt_shape *shape, int rank,
                        int channel)
{
    return shape->nranks > 1 ? 2 : 1;
}

static int barrier_nsteps(const struct tt_algorithm *self, const struct tt_shape *shape, int rank,
                          int channel)
{
    return shape->nranks > 1 ? 1 : 0;
}

/* What this rank's buffer holds of the nblocks blocks: all of them, its own, or nothing. */
static struct tt_span whole(const struct tt_shape *shape, enum tt_buffer buffer, int nblocks,
                            int rank)
{
    int first = 0;
    const int number = tt_buffer_blocks(shape, nblocks, buffer, rank, &first);
    return tt_range(buffer, first, number);
}

/* In every collective a rank puts in all of its input and takes all of its output. */
static void meet_step(const struct tt_algorithm *self, const struct tt_shape *shape, int rank,
                      int channel, int index, struct tt_step *step)
{
    if (alone(shape, step)) return;
    const bool reduces = tt_collective_reduces(shape->collective);
    const int nblocks = tt_collective_counts(shape->collective, shape->nranks);
    step->kind = TT_STEP_MEET;
    step->op = reduces ? TT_FOLD : TT_COPY;
    step->recv = everyone(shape);
    if (nblocks == 0) return;
    if (tt_collective_row(shape->collective)->result == TT_RESULT_TRANSPOSED)
        step->op = TT_TRANSPOSE;
    step->local = whole(shape, TT_INPUT, nblocks, rank);
    step->dst = whole(shape, TT_OUTPUT, nblocks, rank);
    step->finish = reduces && step->dst.number > 0;
}

static void two_shot_step(const struct tt_algorithm *self, const struct tt_shape *shape, int rank,
                          int channel, int index, struct tt_step *step)
{
    if (alone(shape, step)) return;
    const bool first = index == 0;
    step->kind = TT_STEP_MEET;
    step->recv = everyone(shape);
    step->op = first ? TT_FOLD : TT_COPY;
    step->finish = first;
    step->local = first ? tt_range(TT_INPUT, 0, shape->nranks) : tt_range(TT_OUTPUT, rank, 1);
    step->dst = first ? tt_range(TT_OUTPUT, rank, 1) : tt_range(TT_OUTPUT, 0, shape->nranks);
}

static struct tt_formula meet_formula(const struct tt_algorithm *self, const struct tt_shape *shape)
{
    const uint64_t n = (uint64_t)shape->nranks;
    const enum tt_collective collective = shape->collective;
    if (!tt_collective_has_data(collective))
        return (struct tt_formula){.steps = n > 1, .depth = n > 1};
    if (n == 1) return formula_alone;
    const bool puts_all = tt_collective_row(collective)->input == TT_HOLDS_ALL;
    const uint64_t put = puts_all ? (uint64_t)tt_collective_counts(collective, shape->nranks) : 1;
    return (struct tt_formula){.steps = 1,
                               .depth = 1,
                               .sent = put,
                               .reduced = tt_collective_reduces(collective) ? n : 0,
                               .message = put};
}

static struct tt_formula two_shot_formula(const struct tt_algorithm *self,
                                          const struct tt_shape *shape)
{
    const uint64_t n = (uint64_t)shape->nranks;
    if (n == 1) return formula_alone;
    return (struct tt_formula){.steps = 2, .depth = 2, .sent = n + 1, .reduced = n, .message = n};
}

const struct tt_algorithm tt_all_reduce_meet = {
    .name = "meet",
    .summary = "all put in, each reduces all",
    .collective = TT_ALL_REDUCE,
    .one_host = true,
    .direct_safe = true,
    .in_rank_order = true,
    .nsteps = one_meeting,
    .step = meet_step,
    .formula = meet_formula,
};

const struct tt_algorithm tt_all_reduce_meet_two_shot = {
    .name = "meet_two_shot",
    .summary = "all put in, each reduces its share, all take the shares",
    .collective = TT_ALL_REDUCE,
    .one_host = true,
    .direct_safe = true,
    .in_rank_order = true,
    .nblocks = one_block_each,
    .nsteps = two_meetings,
    .step = two_shot_step,
    .formula = two_shot_formula,
};

const struct tt_algorithm tt_broadcast_meet = {
    .name = "meet",
    .summary = "root puts its data in, all ranks take it",
    .collective = TT_BROADCAST,
    .one_host = true,
    .direct_safe = true,
    .nsteps = one_meeting,
    .step = meet_step,
    .formula = meet_formula,
};

const struct tt_algorithm tt_reduce_meet = {
    .name = "meet",
    .summary = "all put in, root reduces all",
    .collective = TT_REDUCE,
    .one_host = true,
    .direct_safe = true,
    .in_rank_order = true,
    .nsteps = one_meeting,
    .step = meet_step,
    .formula = meet_formula,
};

const struct tt_algorithm tt_all_gather_meet = {
    .name = "meet",
    .summary = "all put in their block, all take all blocks",
    .collective = TT_ALL_GATHER,
    .one_host = true,
    .direct_safe = true,
    .uneven = true,
    .nsteps = one_meeting,
    .step = meet_step,
    .formula = meet_formula,
};

const struct tt_algorithm tt_reduce_scatter_meet = {
    .name = "meet",
    .summary = "all put in all blocks, each reduces its own",
    .collective = TT_REDUCE_SCATTER,
    .one_host = true,
    .direct_safe = true,
    .in_rank_order = true,
    .uneven = true,
    .nsteps = one_meeting,
    .step = meet_step,
    .formula = meet_formula,
};

const struct tt_algorithm tt_all_to_all_meet = {
    .name = "meet",
    .summary = "all put in all blocks, each takes its own from everyone",
    .collective = TT_ALL_TO_ALL,
    .one_host = true,
    .direct_safe = true,
    .nsteps = one_meeting,
    .step = meet_step,
    .formula = meet_formula,
};

const struct tt_algorithm tt_scatter_meet = {
    .name = "meet",
    .summary = "root puts in all blocks, each takes its own",
    .collective = TT_SCATTER,
    .one_host = true,
    .direct_safe = true,
    .nsteps = one_meeting,
    .step = meet_step,
    .formula = meet_formula,
};

const struct tt_algorithm tt_gather_meet = {
    .name = "meet",
    .summary = "all put in their block, root takes all",
    .collective = TT_GATHER,
    .one_host = true,
    .direct_safe = true,
    .nsteps = one_meeting,
    .step = meet_step,
    .formula = meet_formula,
};

const struct tt_algorithm tt_barrier_meet = {
    .name = "meet",
    .summary = "all ranks enter one meeting",
    .collective = TT_BARRIER,
    .one_host = true,
    .direct_safe = true,
    .nsteps = barrier_nsteps,
    .step = meet_step,
    .formula = meet_formula,
};
