/* Draws a pipeline schedule as text. */
#include "schedule.h"

#include <stdlib.h>

enum { LINE = 120, LABEL = 12, IDLE = -1 };

static int digits(long number)
{
    return number < 10 ? 1 : 1 + digits(number / 10);
}

/* cells[units]: 2 x micro-batch, + 1 for backward, or IDLE. */
static void fill_cells(int *cells, long units, const struct tr_schedule *schedule,
                       const long *starts)
{
    for (long t = 0; t < units; ++t) cells[t] = IDLE;
    for (int i = 0; i < schedule->nsteps; ++i) {
        const struct tr_schedule_step *step = &schedule->steps[i];
        if (step->action == TR_EXCHANGE) continue;
        const bool backward = step->action == TR_BACKWARD;
        cells[starts[i]] = 2 * step->batch + backward;
        if (backward) cells[starts[i] + 1] = 2 * step->batch + backward;
    }
}

/* The cells [first, end) of a stage, padded to `width` except at the end of the line. */
static void draw_line(FILE *out, int stage, const int *cells, long first, long end, int width)
{
    int padding = LABEL - fprintf(out, "stage %d", stage);
    for (long t = first; t < end; ++t) {
        fprintf(out, "%*s", padding, "");
        const int used = cells[t] == IDLE ? fprintf(out, ".")
                                          : fprintf(out, "%c%d", "FB"[cells[t] % 2], cells[t] / 2);
        padding = width - used;
    }
    fprintf(out, "\n");
}

static void draw_ruler(FILE *out, long first, long end, int width)
{
    int padding = LABEL - fprintf(out, "time");
    for (long t = first; t < end; ++t)
        padding = width - fprintf(out, "%*s%ld", padding, "", t) + padding;
    fprintf(out, "\n");
}

static void draw_all(FILE *out, const struct tr_schedule *schedules, long *const *starts,
                     int *cells)
{
    const int nstages = schedules[0].nstages, nbatches = schedules[0].nbatches;
    const long units = tr_schedule_units(nstages, nbatches);
    const int cell = 1 + digits(nbatches - 1), number = digits(units - 1);
    const int width = 1 + (cell > number ? cell : number);
    const long panel = (LINE - LABEL + 1) / width;
    fprintf(out,
            "%s, stages: %d, micro-batches: %d, units of time: %ld, each stage idle for %ld (%.1f "
            "%%)\n",
            tr_schedule_name(schedules[0].kind), nstages, nbatches, units, 3L * (nstages - 1),
            100 * tr_schedule_idle(nstages, nbatches));
    fprintf(out, "activation sets:");
    for (int s = 0; s < nstages; ++s) fprintf(out, " %d", schedules[s].nsets);
    fprintf(out, "\n");
    for (long first = 0; first < units; first += panel) {
        const long end = first + panel < units ? first + panel : units;
        if (first > 0) fprintf(out, "\n");
        draw_ruler(out, first, end, width);
        for (int s = 0; s < nstages; ++s) {
            fill_cells(cells, units, &schedules[s], starts[s]);
            draw_line(out, s, cells, first, end, width);
        }
    }
}

void tr_timeline_destroy(struct tr_timeline *t)
{
    if (t->starts) free(t->starts[0]);
    free(t->starts);
    tr_schedules_destroy(t->schedules);
    *t = (struct tr_timeline){0};
}

static tr_status begin_steps(struct tr_timeline *t)
{
    const int nstages = t->schedules[0].nstages;
    size_t nsteps = 0;
    for (int s = 0; s < nstages; ++s) nsteps += (size_t)t->schedules[s].nsteps;
    t->starts = calloc((size_t)nstages, sizeof *t->starts);
    if (t->starts) t->starts[0] = malloc(nsteps * sizeof **t->starts);
    if (!t->starts || !t->starts[0])
        return tr_fail("no memory to draw a schedule of %d stages and %d micro-batches", nstages,
                       t->schedules[0].nbatches);
    for (int s = 1; s < nstages; ++s) t->starts[s] = t->starts[s - 1] + t->schedules[s - 1].nsteps;
    return tr_schedule_verify(t->schedules, t->starts);
}

tr_status tr_timeline_create(struct tr_timeline *t, enum tr_schedule_kind kind, int nstages,
                             int nbatches)
{
    *t = (struct tr_timeline){0};
    TR_TRY(tr_schedules_create(&t->schedules, kind, nstages, nbatches));
    const tr_status status = begin_steps(t);
    if (status < 0) tr_timeline_destroy(t);
    return status;
}

tr_status tr_schedule_draw(FILE *out, enum tr_schedule_kind kind, int nstages, int nbatches)
{
    struct tr_timeline t;
    TR_TRY(tr_timeline_create(&t, kind, nstages, nbatches));
    int *cells = malloc((size_t)tr_schedule_units(nstages, nbatches) * sizeof *cells);
    const tr_status status =
        cells ? TR_OK
              : tr_fail("no memory to draw a schedule of %d stages and %d micro-batches", nstages,
                        nbatches);
    if (cells) draw_all(out, t.schedules, t.starts, cells);
    free(cells);
    tr_timeline_destroy(&t);
    return status;
}
