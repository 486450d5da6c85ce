/* Makes the steps of a pipeline stage: the order of the compute steps first, then the messages
 * between each two of them. */
#include "schedule.h"

#include <stdlib.h>

enum { MOST_STAGES = 65536, MOST_BATCHES = 1048576 };

static int smaller(int a, int b)
{
    return a < b ? a : b;
}

const char *tr_schedule_name(enum tr_schedule_kind kind)
{
    static const char *const names[] = {[TR_GPIPE] = "gpipe", [TR_1F1B] = "1f1b"};
    return names[kind];
}

/* Forwards before the first forward that a backward follows at once. */
static int warm_up(enum tr_schedule_kind kind, int nstages, int nbatches, int stage)
{
    return kind == TR_GPIPE ? nbatches : smaller(nstages - 1 - stage, nbatches);
}

int tr_schedule_in_flight(enum tr_schedule_kind kind, int nstages, int nbatches, int stage)
{
    return smaller(warm_up(kind, nstages, nbatches, stage) + 1, nbatches);
}

long tr_schedule_units(int nstages, int nbatches)
{
    return 3L * (nbatches + nstages - 1);
}

double tr_schedule_idle(int nstages, long nbatches)
{
    return (nstages - 1) / (double)(nbatches + nstages - 1);
}

long tr_schedule_enough(int nstages)
{
    const long batches = ((100L - TR_MOST_IDLE) * (nstages - 1) + TR_MOST_IDLE - 1) / TR_MOST_IDLE;
    return batches > 1 ? batches : 1;
}

/* The i-th of the 2 m compute steps of a stage. */
static struct tr_schedule_step compute(const struct tr_schedule *schedule, int warmup, int i)
{
    const int nbatches = schedule->nbatches;
    const bool first = schedule->stage == 0, last = schedule->stage == schedule->nstages - 1;
    bool forward = i < warmup;
    int batch = forward ? i : i - nbatches;
    if (i >= warmup && i < 2 * nbatches - warmup) { /* the steady state */
        const int j = (i - warmup) / 2;
        forward = (i - warmup) % 2 == 0;
        batch = forward ? warmup + j : j;
    }
    return (struct tr_schedule_step){
        .action = forward ? TR_FORWARD : TR_BACKWARD,
        .set = batch % schedule->nsets,
        .batch = batch,
        .receives = forward ? !first : !last,
        .sends = forward ? !last : !first,
        .to_next = -1,
        .from_next = -1,
        .to_previous = -1,
        .from_previous = -1,
    };
}

static struct tr_schedule_step empty_exchange(void)
{
    return (struct tr_schedule_step){
        .action = TR_EXCHANGE,
        .set = -1,
        .batch = -1,
        .to_next = -1,
        .from_next = -1,
        .to_previous = -1,
        .from_previous = -1,
    };
}

static void push(struct tr_schedule *schedule, const struct tr_schedule_step *step)
{
    schedule->steps[schedule->nsteps++] = *step;
}

/* The messages between two compute steps; NULL at either end of the list. apart: the next stage
 * needs the output of `done` before it can send the gradient for `next`. */
static void exchange(struct tr_schedule *schedule, const struct tr_schedule_step *done,
                     const struct tr_schedule_step *next, bool apart)
{
    struct tr_schedule_step group = empty_exchange();
    const bool sends = done && done->sends, receives = next && next->receives;
    if (sends && done->action == TR_FORWARD) group.to_next = done->batch;
    if (sends && done->action == TR_BACKWARD) group.to_previous = done->batch;
    if (sends && receives && apart) {
        push(schedule, &group);
        group = empty_exchange();
    }
    if (receives && next->action == TR_FORWARD) {
        group.from_previous = next->batch;
        group.set = next->set;
    }
    if (receives && next->action == TR_BACKWARD) group.from_next = next->batch;
    if (sends || receives) push(schedule, &group);
}

tr_status tr_schedule_init(struct tr_schedule *schedule, enum tr_schedule_kind kind, int nstages,
                           int nbatches, int stage)
{
    if (nstages < 1 || nstages > MOST_STAGES)
        return tr_fail("a pipeline of %d stages: 1 to %d are possible", nstages, MOST_STAGES);
    if (nbatches < 1 || nbatches > MOST_BATCHES)
        return tr_fail("a pipeline for %d micro-batches: 1 to %d are possible", nbatches,
                       MOST_BATCHES);
    if (stage < 0 || stage >= nstages)
        return tr_fail("stage %d of a pipeline with stages 0 to %d", stage, nstages - 1);
    const size_t most = 4 * (size_t)nbatches + 2; /* computes, exchanges between them, at the ends
                                                     and the one that is apart */
    struct tr_schedule_step *steps = calloc(most, sizeof *steps);
    if (!steps) return tr_fail("no memory for the %zu steps of a pipeline stage", most);
    *schedule = (struct tr_schedule){
        .kind = kind,
        .nstages = nstages,
        .nbatches = nbatches,
        .stage = stage,
        .nsets = tr_schedule_in_flight(kind, nstages, nbatches, stage),
        .steps = steps,
    };
    const int warmup = warm_up(kind, nstages, nbatches, stage);
    struct tr_schedule_step done, next = compute(schedule, warmup, 0);
    exchange(schedule, NULL, &next, false);
    for (int i = 1; i < 2 * nbatches; ++i) {
        push(schedule, &next);
        done = next;
        next = compute(schedule, warmup, i);
        const bool turns = done.action == TR_FORWARD && next.action == TR_BACKWARD;
        exchange(schedule, &done, &next, turns && warmup == nbatches);
    }
    push(schedule, &next);
    exchange(schedule, &next, NULL, false);
    return TR_OK;
}

void tr_schedule_fini(struct tr_schedule *schedule)
{
    free(schedule->steps);
    *schedule = (struct tr_schedule){0};
}

tr_status tr_schedules_create(struct tr_schedule **schedules, enum tr_schedule_kind kind,
                              int nstages, int nbatches)
{
    struct tr_schedule first;
    TR_TRY(tr_schedule_init(&first, kind, nstages, nbatches, 0));
    struct tr_schedule *all = calloc((size_t)nstages, sizeof *all);
    if (!all) {
        tr_schedule_fini(&first);
        return tr_fail("no memory for the schedules of %d pipeline stages", nstages);
    }
    all[0] = first;
    for (int stage = 1; stage < nstages; ++stage) {
        const tr_status status = tr_schedule_init(&all[stage], kind, nstages, nbatches, stage);
        if (status < 0) {
            all[0].nstages = stage;
            tr_schedules_destroy(all);
            return status;
        }
    }
    *schedules = all;
    return TR_OK;
}

void tr_schedules_destroy(struct tr_schedule *schedules)
{
    const int nstages = schedules ? schedules[0].nstages : 0;
    for (int stage = 0; stage < nstages; ++stage) tr_schedule_fini(&schedules[stage]);
    free(schedules);
}
