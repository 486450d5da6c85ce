/* Proves a pipeline schedule. Each stage alone: order, sets and buffers, which do not depend on
 * when messages arrive. Then all stages together: the messages, and the time. */
#include "schedule.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

static void describe(char *text, size_t nbytes, const struct tr_schedule *schedule, int index)
{
    if (index >= schedule->nsteps) {
        snprintf(text, nbytes, "the end");
        return;
    }
    const struct tr_schedule_step *step = &schedule->steps[index];
    const char *const names[] = {"to next", "from next", "to previous", "from previous"};
    const int batches[] = {step->to_next, step->from_next, step->to_previous, step->from_previous};
    switch (step->action) {
    case TR_FORWARD:
        snprintf(text, nbytes, "forward of micro-batch %d", step->batch);
        break;
    case TR_BACKWARD:
        snprintf(text, nbytes, "backward of micro-batch %d", step->batch);
        break;
    case TR_EXCHANGE:
        snprintf(text, nbytes, "exchange");
        for (int i = 0; i < 4; ++i) {
            const size_t used = strlen(text);
            if (batches[i] >= 0)
                snprintf(text + used, nbytes - used, ", %s: %d", names[i], batches[i]);
        }
    }
}

__attribute__((format(printf, 3, 4))) static tr_status wrong(const struct tr_schedule *schedule,
                                                             int index, const char *format, ...)
{
    char reason[512], step[128];
    va_list args;
    va_start(args, format);
    vsnprintf(reason, sizeof reason, format, args);
    va_end(args);
    describe(step, sizeof step, schedule, index);
    return tr_fail("schedule %s of %d stages and %d micro-batches: stage %d, step %d (%s): %s",
                   tr_schedule_name(schedule->kind), schedule->nstages, schedule->nbatches,
                   schedule->stage, index, step, reason);
}

/* What one stage holds between two of its steps: micro-batches, -1 for none. */
struct holding {
    const struct tr_schedule *schedule;
    int inputs, forwards, backwards; /* the next of each */
    int output, output_gradient, input_gradient;
    int in_flight, most;
    int *sets; /* [nsets] */
};

static tr_status take_set(struct holding *h, int index, int set, int batch)
{
    const int nsets = h->schedule->nsets;
    if (set < 0 || set >= nsets)
        return wrong(h->schedule, index, "set %d, but there are 0 to %d", set, nsets - 1);
    if (h->sets[set] >= 0)
        return wrong(h->schedule, index, "set %d is in use by micro-batch %d", set, h->sets[set]);
    h->sets[set] = batch;
    if (++h->in_flight > h->most) h->most = h->in_flight;
    return TR_OK;
}

static tr_status check_compute(struct holding *h, int index)
{
    const struct tr_schedule *schedule = h->schedule;
    const struct tr_schedule_step *step = &schedule->steps[index];
    const bool forward = step->action == TR_FORWARD;
    const bool has_previous = schedule->stage > 0,
               has_next = schedule->stage < schedule->nstages - 1;
    int *expected = forward ? &h->forwards : &h->backwards;
    int *sent = forward ? &h->output : &h->input_gradient;
    if (step->chunk != 0) return wrong(schedule, index, "chunk %d, expected 0", step->chunk);
    if (step->batch != *expected || step->batch >= schedule->nbatches)
        return wrong(schedule, index, "expected micro-batch %d of 0 to %d", *expected,
                     schedule->nbatches - 1);
    if (!forward && step->batch >= h->forwards)
        return wrong(schedule, index, "its forward has not run");
    if (step->receives != (forward ? has_previous : has_next))
        return wrong(schedule, index, "`receives` is %d", step->receives);
    if (step->sends != (forward ? has_next : has_previous))
        return wrong(schedule, index, "`sends` is %d", step->sends);
    if (step->sends && *sent >= 0)
        return wrong(schedule, index, "overwrites the result of micro-batch %d, which is not sent",
                     *sent);
    if (forward && !has_previous) TR_TRY(take_set(h, index, step->set, step->batch));
    if (step->set < 0 || step->set >= schedule->nsets || h->sets[step->set] != step->batch)
        return wrong(schedule, index, "set %d does not hold this micro-batch", step->set);
    if (!forward && step->receives && h->output_gradient != step->batch)
        return wrong(schedule, index, "its output gradient has not been received");
    if (!forward) {
        h->sets[step->set] = -1;
        --h->in_flight;
        h->output_gradient = -1;
    }
    if (step->sends) *sent = step->batch;
    ++*expected;
    return TR_OK;
}

static tr_status check_exchange(struct holding *h, int index)
{
    const struct tr_schedule *schedule = h->schedule;
    const struct tr_schedule_step *step = &schedule->steps[index];
    const bool next = step->to_next >= 0 || step->from_next >= 0;
    const bool previous = step->to_previous >= 0 || step->from_previous >= 0;
    if (!next && !previous) return wrong(schedule, index, "exchanges nothing");
    if (next && schedule->stage == schedule->nstages - 1)
        return wrong(schedule, index, "there is no next stage");
    if (previous && schedule->stage == 0)
        return wrong(schedule, index, "there is no previous stage");
    if (step->to_next >= 0 && step->to_next != h->output)
        return wrong(schedule, index, "the output buffer holds micro-batch %d (-1: none)",
                     h->output);
    if (step->to_previous >= 0 && step->to_previous != h->input_gradient)
        return wrong(schedule, index, "the input gradient buffer holds micro-batch %d (-1: none)",
                     h->input_gradient);
    if (step->from_next >= 0 && h->output_gradient >= 0)
        return wrong(schedule, index, "the output gradient of micro-batch %d is not used yet",
                     h->output_gradient);
    if (step->from_next >= 0 && step->from_next != h->backwards)
        return wrong(schedule, index, "expected the output gradient of micro-batch %d",
                     h->backwards);
    if (step->from_previous >= 0 &&
        (step->from_previous != h->inputs || h->inputs >= schedule->nbatches))
        return wrong(schedule, index, "expected the input of micro-batch %d of 0 to %d", h->inputs,
                     schedule->nbatches - 1);
    if (step->from_previous < 0 && step->set >= 0)
        return wrong(schedule, index, "set %d, but it receives no input", step->set);
    if (step->from_previous >= 0) {
        TR_TRY(take_set(h, index, step->set, step->from_previous));
        ++h->inputs;
    }
    if (step->from_next >= 0) h->output_gradient = step->from_next;
    if (step->to_next >= 0) h->output = -1;
    if (step->to_previous >= 0) h->input_gradient = -1;
    return TR_OK;
}

static tr_status check_end(const struct holding *h)
{
    const struct tr_schedule *schedule = h->schedule;
    const int end = schedule->nsteps, nbatches = schedule->nbatches;
    if (h->forwards != nbatches || h->backwards != nbatches)
        return wrong(schedule, end, "%d forwards and %d backwards ran", h->forwards, h->backwards);
    if (h->output >= 0)
        return wrong(schedule, end, "the output of micro-batch %d is not sent", h->output);
    if (h->input_gradient >= 0)
        return wrong(schedule, end, "the input gradient of micro-batch %d is not sent",
                     h->input_gradient);
    if (h->output_gradient >= 0)
        return wrong(schedule, end, "the output gradient of micro-batch %d is not used",
                     h->output_gradient);
    if (h->most != schedule->nsets)
        return wrong(schedule, end, "at most %d micro-batches were in flight, expected %d", h->most,
                     schedule->nsets);
    return TR_OK;
}

static tr_status check_stage(const struct tr_schedule *schedule, const struct tr_schedule *first,
                             int stage)
{
    if (schedule->stage != stage || schedule->kind != first->kind ||
        schedule->nstages != first->nstages || schedule->nbatches != first->nbatches)
        return wrong(schedule, 0, "expected stage %d of %s, %d stages, %d micro-batches", stage,
                     tr_schedule_name(first->kind), first->nstages, first->nbatches);
    const int nsets =
        tr_schedule_in_flight(schedule->kind, schedule->nstages, schedule->nbatches, stage);
    if (schedule->nsets != nsets)
        return wrong(schedule, 0, "%d activation sets, expected %d", schedule->nsets, nsets);
    struct holding h = {.schedule = schedule,
                        .output = -1,
                        .output_gradient = -1,
                        .input_gradient = -1,
                        .sets = malloc((size_t)nsets * sizeof *h.sets)};
    if (!h.sets) return tr_fail("no memory to verify a pipeline schedule of %d sets", nsets);
    for (int set = 0; set < nsets; ++set) h.sets[set] = -1;
    tr_status status = TR_OK;
    for (int index = 0; index < schedule->nsteps && status == TR_OK; ++index) {
        switch (schedule->steps[index].action) {
        case TR_FORWARD:
        case TR_BACKWARD:
            status = check_compute(&h, index);
            break;
        case TR_EXCHANGE:
            status = check_exchange(&h, index);
            break;
        }
    }
    if (status == TR_OK) status = check_end(&h);
    free(h.sets);
    return status;
}

/* A stage on its way through its steps. */
struct runner {
    const struct tr_schedule *schedule;
    int index;                       /* of the step it is at */
    long clock;                      /* when that step begins */
    long arrived;                    /* EXCHANGE: when the last message so far moved */
    struct tr_schedule_step pending; /* EXCHANGE: -1 where a message has moved. Else no messages */
    bool can;                        /* its pending messages may move */
};

static bool pending(const struct runner *r)
{
    const struct tr_schedule_step *step = &r->pending;
    return step->to_next >= 0 || step->from_next >= 0 || step->to_previous >= 0 ||
           step->from_previous >= 0;
}

/* Computes until the next EXCHANGE or the end. */
static void advance(struct runner *r, long *starts)
{
    const struct tr_schedule *schedule = r->schedule;
    for (; r->index < schedule->nsteps; ++r->index) {
        const struct tr_schedule_step *step = &schedule->steps[r->index];
        if (starts) starts[r->index] = r->clock;
        if (step->action == TR_EXCHANGE) {
            r->pending = *step;
            r->arrived = r->clock;
            return;
        }
        r->clock += step->action == TR_FORWARD ? 1 : 2;
    }
}

/* Leaves `can` to the stages all of whose messages have met their partners. */
static void only_whole_groups(struct runner *runners, int nstages)
{
    bool changed = true;
    while (changed) {
        changed = false;
        for (int s = 0; s < nstages; ++s) {
            struct runner *r = &runners[s];
            const struct runner *next = s + 1 < nstages && runners[s + 1].can ? r + 1 : NULL;
            const struct runner *previous = s > 0 && runners[s - 1].can ? r - 1 : NULL;
            const struct tr_schedule_step *step = &r->pending;
            const bool lacks =
                (step->to_next >= 0 && !(next && next->pending.from_previous >= 0)) ||
                (step->from_next >= 0 && !(next && next->pending.to_previous >= 0)) ||
                (step->to_previous >= 0 && !(previous && previous->pending.from_next >= 0)) ||
                (step->from_previous >= 0 && !(previous && previous->pending.to_next >= 0));
            if (!r->can || !lacks) continue;
            r->can = false;
            changed = true;
        }
    }
}

/* Moves one message if both ends have it. check_stage has proved that on each link both ends count
 * up from micro-batch 0, so messages that meet are of the same micro-batch. */
static void meet(struct runner *from, int *sent, struct runner *to, int *received, bool *moved)
{
    if (!from->can || !to->can || *sent < 0 || *received < 0) return;
    const long when = from->clock > to->clock ? from->clock : to->clock;
    if (from->arrived < when) from->arrived = when;
    if (to->arrived < when) to->arrived = when;
    *sent = *received = -1;
    *moved = true;
}

/* Whether a stage and the next one wait for each other, or for one that has ended: one of the two
 * is at a message whose other end the other is not at. A deadlock has such a pair: a stage that
 * does not wait for its neighbour waits for the stage beyond, and beyond the last stage there is
 * none. */
static bool stuck(const struct runner *a, const struct runner *b)
{
    const struct tr_schedule_step *x = &a->pending, *y = &b->pending;
    const bool x_waits = x->to_next >= 0 || x->from_next >= 0;
    const bool y_waits = y->to_previous >= 0 || y->from_previous >= 0;
    const bool x_ended = a->index >= a->schedule->nsteps, y_ended = b->index >= b->schedule->nsteps;
    const bool apart = (x->to_next >= 0) != (y->from_previous >= 0) ||
                       (x->from_next >= 0) != (y->to_previous >= 0);
    return apart && (x_waits || x_ended) && (y_waits || y_ended);
}

static tr_status deadlock(const struct runner *runners, int nstages, bool whole)
{
    int s = 0;
    while (s + 2 < nstages && !stuck(&runners[s], &runners[s + 1])) ++s;
    const struct runner *next = &runners[s + 1];
    char at[128];
    describe(at, sizeof at, next->schedule, next->index);
    return wrong(runners[s].schedule, runners[s].index,
                 "deadlock%s: stage %d is at step %d (%s), and they wait for each other",
                 whole ? " when groups move as a whole" : "", s + 1, next->index, at);
}

/* One round of messages; whether there was one. */
static bool move(struct runner *runners, int nstages, bool whole)
{
    bool moved = false;
    for (int s = 0; s < nstages; ++s) runners[s].can = pending(&runners[s]);
    if (whole) only_whole_groups(runners, nstages);
    for (int s = 0; s + 1 < nstages; ++s) {
        struct runner *a = &runners[s], *b = &runners[s + 1];
        meet(a, &a->pending.to_next, b, &b->pending.from_previous, &moved);
        meet(b, &b->pending.to_previous, a, &a->pending.from_next, &moved);
    }
    return moved;
}

/* Runs all stages to their ends. whole: no message of a group moves before all of them can. */
static tr_status run(struct runner *runners, const struct tr_schedule *schedules, bool whole,
                     long *const *starts)
{
    const int nstages = schedules[0].nstages;
    for (int s = 0; s < nstages; ++s) {
        runners[s] = (struct runner){
            .schedule = &schedules[s],
            .pending = {.to_next = -1, .from_next = -1, .to_previous = -1, .from_previous = -1}};
        advance(&runners[s], starts ? starts[s] : NULL);
    }
    while (move(runners, nstages, whole)) {
        for (int s = 0; s < nstages; ++s) {
            struct runner *r = &runners[s];
            if (r->index >= r->schedule->nsteps || pending(r)) continue;
            r->clock = r->arrived;
            ++r->index;
            advance(r, starts ? starts[s] : NULL);
        }
    }
    for (int s = 0; s < nstages; ++s)
        if (pending(&runners[s])) return deadlock(runners, nstages, whole);
    return TR_OK;
}

static tr_status check_time(const struct runner *runners, int nstages)
{
    const struct runner *last = &runners[0]; /* the one that ends last */
    for (int s = 1; s < nstages; ++s)
        if (runners[s].clock > last->clock) last = &runners[s];
    const long units = tr_schedule_units(nstages, last->schedule->nbatches);
    if (last->clock != units)
        return wrong(last->schedule, last->schedule->nsteps,
                     "ends after %ld units of time, expected %ld", last->clock, units);
    return TR_OK;
}

tr_status tr_schedule_verify(const struct tr_schedule *schedules, long *const *starts)
{
    const int nstages = schedules[0].nstages;
    for (int stage = 0; stage < nstages; ++stage)
        TR_TRY(check_stage(&schedules[stage], &schedules[0], stage));
    struct runner *runners = malloc((size_t)nstages * sizeof *runners);
    if (!runners) return tr_fail("no memory to verify a pipeline schedule of %d stages", nstages);
    tr_status status = run(runners, schedules, false, starts);
    if (status == TR_OK) status = check_time(runners, nstages);
    if (status == TR_OK) status = run(runners, schedules, true, NULL);
    free(runners);
    return status;
}
