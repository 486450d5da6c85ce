/* Verifies a schedule: runs it symbolically and compares the result with the collective. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "schedule/symbolic.h"

/* ---- A step over links ---------------------------------------------------------------------- */

static tt_status begin(void *arg, int rank, int index, const struct tt_step *step)
{
    struct tt_symbolic *run = arg;
    const char *wrong =
        tt_step_check(step, run->shape, run->geometry.nblocks, run->ranks[rank].nscratch, rank);
    return wrong ? tt_symbolic_refute(run, rank, index, "%s", wrong) : TT_OK;
}

static void drop(void *arg, void *message)
{
    (void)arg;
    struct tt_parcel *parcel = message;
    if (!parcel || --parcel->nreceivers > 0) return;
    tt_clock_release(parcel->clock);
    free(parcel);
}

/* From here on the receiver has what the parcel holds, and knows what its sender knew. */
static tt_status open_parcel(struct tt_symbolic *run, const struct tt_action *action,
                             const struct tt_parcel *parcel)
{
    for (int i = 0; parcel->reference && i < parcel->reference->npeers; i++)
        if (parcel->reference->readings[i].peer == action->rank)
            parcel->reference->readings[i].done = (uint32_t)action->index + 1;
    if (run->clocks &&
        !tt_clock_learn(&run->ranks[action->rank].clock, parcel->clock, run->shape->nranks,
                        parcel->sender, 2 * (uint32_t)(parcel->last_done + 1)))
        return tt_symbolic_no_memory();
    return TT_OK;
}

/* A LINK step, its messages, and the number of blocks of its result. */
struct link_action {
    struct tt_action action;
    struct tt_parcel *const *received;
    int number;
};

static tt_status check_parcel(struct tt_symbolic *run, const struct link_action *link,
                              const struct tt_parcel *parcel)
{
    const struct tt_step *step = link->action.step;
    const struct tt_span *span = step->dst.number > 0 ? &step->dst : &step->local;
    if (parcel->number != link->number)
        return tt_symbolic_refute(run, link->action.rank, link->action.index,
                                  "takes %d blocks from rank %d, which sends %d in its step %d",
                                  link->number, parcel->sender, parcel->number, parcel->step);
    for (int i = 0; span->number > 0 && i < parcel->number; i++) {
        const int name = tt_span_name(span, i, run->geometry.nblocks);
        if (!tt_symbolic_same_length(run, name, parcel->blocks[i].name))
            return tt_symbolic_refute(
                run, link->action.rank, link->action.index,
                "takes block %d from rank %d as block %d, which has another length",
                parcel->blocks[i].name, parcel->sender, name);
    }
    return TT_OK;
}

/* Checks and opens what came; sets link->number. */
static tt_status open_parcels(struct tt_symbolic *run, struct link_action *link)
{
    const struct tt_step *step = link->action.step;
    link->number = step->local.number > 0 ? step->local.number : step->dst.number;
    for (int i = 0; i < step->recv.number; i++) {
        const struct tt_parcel *parcel = link->received[i];
        if (link->number == 0) link->number = parcel->number;
        TT_TRY(check_parcel(run, link, parcel));
        TT_TRY(open_parcel(run, &link->action, parcel));
    }
    return TT_OK;
}

/* *block reduced with a source's block, or, where it holds nothing yet, that block. */
static tt_status add_source(struct tt_symbolic *run, const struct link_action *link,
                            struct tt_named_value *block, const struct tt_named_value *source)
{
    if (block->value.number == 0) {
        *block = *source;
        return TT_OK;
    }
    if (!tt_symbolic_same_length(run, block->name, source->name))
        return tt_symbolic_refute(run, link->action.rank, link->action.index,
                                  "reduces block %d with block %d, which has another length",
                                  block->name, source->name);
    return tt_symbolic_fold(run, &link->action, &block->value, &source->value);
}

/* Block i of the result: the sources in their order. */
static tt_status make_block(struct tt_symbolic *run, const struct link_action *link, int i,
                            struct tt_named_value *block)
{
    const struct tt_step *step = link->action.step;
    const int nblocks = run->geometry.nblocks;
    const bool has_local = step->local.number > 0;
    struct tt_named_value local = {.name = 0};
    if (has_local) {
        local.name = tt_span_name(&step->local, i, nblocks);
        TT_TRY(tt_symbolic_read(run, &link->action, &step->local, i, &local.value));
    }
    block->value.number = 0;
    for (int k = 0; k <= step->recv.number; k++) {
        if (has_local && k == step->own_at) TT_TRY(add_source(run, link, block, &local));
        if (k < step->recv.number)
            TT_TRY(add_source(run, link, block, &link->received[k]->blocks[i]));
    }
    if (step->dst.number == 0) return TT_OK;
    const int name = tt_span_name(&step->dst, i, nblocks);
    if (!tt_symbolic_same_length(run, block->name, name))
        return tt_symbolic_refute(run, link->action.rank, link->action.index,
                                  "stores block %d as block %d, which has another length",
                                  block->name, name);
    block->name = name;
    return TT_OK;
}

/* Whether the executor may read the step's sources again, and store them, after its messages have
 * left (long_step.c, link_step.c). */
static bool stores_late(const struct tt_step *step)
{
    return step->op == TT_COPY && step->dst.number > 0;
}

static tt_status pack_parcel(struct tt_symbolic *run, const struct link_action *link, void **sent)
{
    const struct tt_action *action = &link->action;
    const size_t number = (size_t)link->number;
    struct tt_parcel *parcel = malloc(sizeof *parcel + number * sizeof parcel->blocks[0]);
    if (!parcel) return tt_symbolic_no_memory();
    *parcel = (struct tt_parcel){.nreceivers = action->step->send.number,
                                 .number = link->number,
                                 .sender = action->rank,
                                 .step = action->index,
                                 .last_done = action->index - (stores_late(action->step) ? 1 : 0),
                                 .clock = tt_clock_share(run->ranks[action->rank].clock)};
    for (size_t i = 0; i < number; i++) parcel->blocks[i] = run->result[i];
    *sent = parcel;
    return tt_symbolic_refer(run, action, parcel);
}

static tt_status do_link(struct tt_symbolic *run, struct link_action *link, void **sent)
{
    run->action++;
    TT_TRY(open_parcels(run, link));
    for (int i = 0; i < link->number; i++) TT_TRY(make_block(run, link, i, &run->result[i]));
    for (int i = 0; i < link->number && tt_step_may_be_posted(link->action.step); i++)
        tt_symbolic_post(run, &link->action, link->received[0], i);
    for (int i = 0; i < link->number; i++)
        TT_TRY(tt_symbolic_write(run, &link->action, i, &run->result[i].value));
    return link->action.step->send.number > 0 ? pack_parcel(run, link, sent) : TT_OK;
}

static tt_status link_step(void *arg, int rank, int index, const struct tt_step *step,
                           void *const *received, void **sent)
{
    struct link_action link = {.action = {.rank = rank, .index = index, .step = step},
                               .received = (struct tt_parcel *const *)received};
    const tt_status status = do_link(arg, &link, sent);
    for (int i = 0; i < step->recv.number; i++) drop(arg, received[i]);
    return status;
}

/* ---- The end: what every rank must have ------------------------------------------------------ */

static tt_status check_reduced(struct tt_symbolic *run, int rank, int name,
                               const struct tt_cell *cell)
{
    char text[128];
    if (cell->value.block != name)
        return tt_symbolic_refute(run, rank, cell->step, "OUTPUT[%d] ends as block %d", name,
                                  cell->value.block);
    const char *wrong =
        tt_value_incomplete(&cell->value, &run->full, run->shape->nranks, text, sizeof text);
    if (wrong) return tt_symbolic_refute(run, rank, cell->step, "OUTPUT[%d] %s", name, wrong);
    if (!cell->value.finished)
        return tt_symbolic_refute(run, rank, cell->step, "OUTPUT[%d] is never finished", name);
    return TT_OK;
}

static tt_status check_copied(struct tt_symbolic *run, int rank, int name,
                              const struct tt_cell *cell)
{
    const struct tt_shape *shape = run->shape;
    const enum tt_result_kind kind = tt_collective_row(shape->collective)->result;
    const int source = kind == TT_RESULT_OF_ROOT ? shape->root : name;
    const int block = kind == TT_RESULT_TRANSPOSED ? rank : name;
    const struct tt_value expected = tt_value_own(shape->nranks, source, block);
    if (tt_value_equal(&cell->value, &expected)) return TT_OK;
    char is[64], should[64];
    tt_value_describe(&cell->value, shape->nranks, is, sizeof is);
    tt_value_describe(&expected, shape->nranks, should, sizeof should);
    return tt_symbolic_refute(run, rank, cell->step, "OUTPUT[%d] ends as %s, expected %s", name, is,
                              should);
}

static tt_status check_barrier(struct tt_symbolic *run, int rank)
{
    const struct tt_clock *clock = run->ranks[rank].clock;
    for (int other = 0; other < run->shape->nranks; other++)
        if (other != rank && (!clock || clock->at[other] == 0))
            return tt_symbolic_refute(run, rank, -1, "may leave before rank %d has come", other);
    return TT_OK;
}

static tt_status check_result(struct tt_symbolic *run, int rank)
{
    if (!tt_collective_has_data(run->shape->collective)) return check_barrier(run, rank);
    const struct tt_rank_memory *memory = &run->ranks[rank];
    const bool reduces = tt_collective_reduces(run->shape->collective);
    for (int i = 0; i < memory->noutput; i++) {
        const struct tt_cell *cell = &memory->output[i];
        const int name = memory->first_output + i;
        if (cell->value.number == 0)
            return tt_symbolic_refute(run, rank, -1, "OUTPUT[%d] is never written", name);
        TT_TRY(reduces ? check_reduced(run, rank, name, cell)
                       : check_copied(run, rank, name, cell));
    }
    return TT_OK;
}

/* ---- Runs ----------------------------------------------------------------------------------- */

/* What one execution is to look at. */
struct mode {
    int channel;
    size_t count;
    bool uneven;
    const size_t *counts; /* of the blocks; NULL: `count` each, or, if uneven, none like another */
    bool in_place, clocks;
};

static tt_status run_mode(const struct tt_steps *steps, const struct mode *mode,
                          struct tt_verify_report *report, bool *needs_clocks)
{
    static const struct tt_network_ops ops = {
        .begin = begin, .link = link_step, .meet = tt_symbolic_meet, .drop = drop};
    struct tt_symbolic run = {
        .steps = steps,
        .shape = &steps->shape,
        .geometry = {.count = mode->count,
                     .nblocks = tt_nblocks(steps->algorithm, &steps->shape),
                     .nchannels = tt_nchannels(steps->algorithm, &steps->shape),
                     .align = 1,
                     .split = tt_collective_splits(steps->shape.collective),
                     .counts = mode->counts},
        .uneven = mode->uneven,
        .channel = mode->channel,
        .in_place = mode->in_place,
        .clocks = mode->clocks,
        .report = report,
    };
    struct tt_network_report network = {.nsteps = 0};
    tt_status status = tt_symbolic_init(&run);
    if (!status) status = tt_network_run(steps, mode->channel, &ops, &run, &network);
    if (status == TT_ERR_USAGE && network.text[0])
        snprintf(report->text, sizeof report->text, "%s", network.text);
    for (int rank = 0; rank < steps->shape.nranks && !status; rank++)
        status = check_result(&run, rank);
    tt_symbolic_fini(&run);
    *needs_clocks = run.needs_clocks;
    report->nsteps += network.nsteps;
    report->nmessages += network.nmessages;
    return status;
}

/* Clocks cost memory and time that grow with the ranks: only when something depends on them. */
static tt_status verify_mode(const struct tt_steps *steps, struct mode mode,
                             struct tt_verify_report *report)
{
    bool needs_clocks;
    mode.clocks = !tt_collective_has_data(steps->shape.collective);
    TT_TRY(run_mode(steps, &mode, report, &needs_clocks));
    if (!needs_clocks) return TT_OK;
    struct tt_verify_report again = {
        .direct_safe = report->direct_safe, .post_safe = report->post_safe, .any_count = true};
    mode.clocks = true;
    TT_TRY(run_mode(steps, &mode, &again, &needs_clocks));
    if (report->direct_safe) memcpy(report->direct, again.direct, sizeof report->direct);
    if (report->post_safe) memcpy(report->post, again.post, sizeof report->post);
    report->direct_safe = again.direct_safe;
    report->post_safe = again.post_safe;
    return TT_OK;
}

static tt_status verify_channels(const struct tt_steps *steps, struct mode mode,
                                 struct tt_verify_report *report)
{
    const int nchannels = tt_nchannels(steps->algorithm, &steps->shape);
    *report = (struct tt_verify_report){
        .direct_safe = true, .post_safe = true, .in_rank_order = true, .any_count = true};
    for (mode.channel = 0; mode.channel < nchannels; mode.channel++) {
        mode.in_place = false;
        TT_TRY(verify_mode(steps, mode, report));
        if (!tt_collective_row(steps->shape.collective)->in_place) continue;
        struct tt_verify_report in_place = *report;
        mode.in_place = true;
        const tt_status status = verify_mode(steps, mode, &in_place);
        in_place.nsteps = report->nsteps;
        in_place.nmessages = report->nmessages;
        *report = in_place;
        TT_TRY(status);
    }
    return TT_OK;
}

tt_status tt_verify(const struct tt_steps *steps, size_t count, struct tt_verify_report *report)
{
    return verify_channels(steps, (struct mode){.count = count}, report);
}

tt_status tt_verify_uneven(const struct tt_steps *steps, const size_t *counts,
                           struct tt_verify_report *report)
{
    if (!tt_collective_has_data(steps->shape.collective) ||
        tt_collective_splits(steps->shape.collective))
        return tt_fail(TT_ERR_ARGUMENT, "%s has no count for each rank",
                       tt_collective_name(steps->shape.collective));
    return verify_channels(steps, (struct mode){.uneven = true, .counts = counts}, report);
}
