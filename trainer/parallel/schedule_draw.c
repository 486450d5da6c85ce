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

tr_status tr_schedule_draw(FILE *out, enum tr_schedule_kind kind, int nstages, int nbatches)
{
    struct tr_schedule *schedules;
    TR_TRY(tr_schedules_create(&schedules, kind, nstages, nbatches));
    tr_status status = TR_OK;
    size_t nsteps = 0;
    for (int s = 0; s < nstages; ++s) nsteps += (size_t)schedules[s].nsteps;
    long *all_starts = malloc(nsteps * sizeof *all_starts);
    long **starts = malloc((size_t)nstages * sizeof *starts);
    int *cells = malloc((size_t)tr_schedule_units(nstages, nbatches) * sizeof *cells);
    if (all_starts && starts && cells) {
        size_t used = 0;
        for (int s = 0; s < nstages; used += (size_t)schedules[s++].nsteps)
            starts[s] = all_starts + used;
        status = tr_schedule_verify(schedules, starts);
        if (status == TR_OK) draw_all(out, schedules, starts, cells);
    } else {
        status = tr_fail("no memory to draw a schedule of %d stages and %d micro-batches", nstages,
                         nbatches);
    }
    free(cells);
    free(starts);
    free(all_starts);
    tr_schedules_destroy(schedules);
    return status;
}
