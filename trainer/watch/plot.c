/* Keeps the curves of runs, reads them from logs, and writes their picture. */
#include "plot.h"

#include <errno.h>
#include <json-c/json.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "plot_draw.h"
#include "pipe.h"
#include "svg.h"

void tr_plot_open(struct tr_plot *plot, const char *path)
{
    *plot = (struct tr_plot){.path = path && path[0] ? path : NULL};
}

void tr_plot_close(struct tr_plot *plot)
{
    for (int i = 0; i < plot->nruns; ++i) free(plot->runs[i]);
    *plot = (struct tr_plot){0};
}

tr_status tr_plot_begin_run(struct tr_plot *plot, const char *name)
{
    if (plot->nruns == TR_PLOT_RUNS)
        return tr_fail("%s: more than %d runs in one picture; draw fewer", name, TR_PLOT_RUNS);
    struct tr_plot_run *run = calloc(1, sizeof *run);
    if (!run) return tr_fail("out of memory for --plot=%s", plot->path);
    snprintf(run->name, sizeof run->name, "%s", name);
    plot->runs[plot->nruns++] = run;
    return TR_OK;
}

void tr_plot_add(struct tr_plot *plot, enum tr_plot_curve curve, int64_t step, double value)
{
    if (!plot->nruns) return;
    struct tr_curve *curves = plot->runs[plot->nruns - 1]->curves;
    for (int i = 0; i < TR_PLOT_CURVES && curve == TR_PLOT_LOSS; ++i)
        tr_curve_go_back(&curves[i], step);
    tr_curve_add(&curves[curve], step, value);
}

/* ---- Logs -------------------------------------------------------------------------------------
 */

/* Adds the values of a line; false where it is no JSON object. */
static bool add_line(struct tr_plot *plot, const char *line)
{
    static const char *const keys[TR_PLOT_CURVES] = {[TR_PLOT_LOSS] = "loss",
                                                     [TR_PLOT_HELD_OUT] = "held_out_loss",
                                                     [TR_PLOT_LR] = "lr",
                                                     [TR_PLOT_NORM] = "norm",
                                                     [TR_PLOT_SPEED] = "tokens_per_second",
                                                     [TR_PLOT_SHARE] = "share_of_peak"};
    struct json_object *object = json_tokener_parse(line), *step, *value;
    const bool is_object = json_object_is_type(object, json_type_object);
    if (is_object && json_object_object_get_ex(object, "step", &step))
        for (int i = 0; i < TR_PLOT_CURVES; ++i)
            if (json_object_object_get_ex(object, keys[i], &value) &&
                (json_object_is_type(value, json_type_double) ||
                 json_object_is_type(value, json_type_int)))
                tr_plot_add(plot, (enum tr_plot_curve)i, json_object_get_int64(step),
                            json_object_get_double(value));
    json_object_put(object);
    return is_object;
}

tr_status tr_plot_read_log(struct tr_plot *plot, const char *log)
{
    FILE *file = fopen(log, "r");
    if (!file) return tr_fail("%s: %s", log, strerror(errno));
    tr_status status = TR_OK;
    char *line = NULL;
    size_t room = 0;
    long number = 0;
    ssize_t n;
    errno = 0;
    while (status == TR_OK && (n = getline(&line, &room, file)) > 0) {
        ++number;
        if (!add_line(plot, line) && line[n - 1] == '\n')
            status = tr_fail("%s:%ld: not a line of --log, which is a JSON object of a step", log,
                             number);
    }
    if (status == TR_OK && ferror(file)) status = tr_fail("%s: %s", log, strerror(errno));
    free(line);
    fclose(file);
    return status;
}

/* ---- The file ---------------------------------------------------------------------------------
 */

static void draw(const void *plot, FILE *out)
{
    tr_plot_draw(plot, out);
}

tr_status tr_plot_write(const struct tr_plot *plot)
{
    return tr_svg_write("plot", plot->path, draw, plot);
}

void tr_plot_refresh(struct tr_plot *plot, bool last)
{
    enum { SECONDS = 5 };
    if (!plot->path) return;
    const double now = tr_clock_seconds();
    if (!last && plot->written > 0 && now - plot->written < SECONDS) return;
    if (tr_plot_write(plot) == TR_OK) {
        plot->written = now;
        return;
    }
    tr_say(stderr, "tutti-train: %s; no further picture is drawn\n", tr_error());
    tr_plot_close(plot);
}
