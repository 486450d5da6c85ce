/* The picture of a training: its title, its values, what it takes of an earlier log. */
#include "picture.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "watch/pipe.h"

/* "gpt2, 1.0 M parameters; 4 ranks = fsdp 2 x tp 2; adamw". */
static void write_title(const struct tr_trainer *t, char title[TR_PLOT_TEXT])
{
    const struct tr_config *config = &t->config;
    const struct tr_mesh *mesh = t->mesh;
    char model[TR_TEXT_BYTES], optimizer[TR_TEXT_BYTES], axes[TR_AXES_TEXT];
    tr_config_value(config, TR_OPTION_model, model);
    tr_config_value(config, TR_OPTION_optimizer, optimizer);
    const double count = (double)t->engine.model.params.count;
    tr_mesh_write_axes(mesh, axes);
    snprintf(title, TR_PLOT_TEXT, "%.32s, %.3g %s parameters; %d rank%s%s; %s; %.32s", model,
             count / (count < 1e6 ? 1e3 : 1e6), count < 1e6 ? "k" : "M", mesh->nranks,
             mesh->nranks == 1 ? "" : "s", axes, tr_setup_sharding_name(t->engine.options.sharding),
             optimizer);
}

/* A log that cannot be read is no reason not to train. */
static void read_earlier(struct tr_trainer *t)
{
    const struct tr_config *config = &t->config;
    if (!config->resume[0] || !config->log[0] || access(config->log, F_OK) != 0) return;
    if (tr_plot_read_log(&t->plot, config->log) == TR_OK) return;
    tr_say(stderr, "tutti-train: note: --plot=%s begins without the rest of the log: %s\n",
           config->plot, tr_error());
}

void tr_picture_open(struct tr_trainer *t)
{
    if (t->mesh->rank != 0 || !t->config.plot[0]) return;
    tr_plot_open(&t->plot, t->config.plot);
    write_title(t, t->plot.title);
    if (tr_plot_begin_run(&t->plot, t->config.plot) == TR_OK) {
        read_earlier(t);
        return;
    }
    tr_say(stderr, "tutti-train: %s; no picture is drawn\n", tr_error());
    tr_plot_close(&t->plot);
}

void tr_picture_step(struct tr_trainer *t, const struct tr_log_row *row)
{
    struct tr_plot *plot = &t->plot;
    tr_plot_add(plot, TR_PLOT_LOSS, row->step, row->loss);
    tr_plot_add(plot, TR_PLOT_LR, row->step, row->lr);
    tr_plot_add(plot, TR_PLOT_NORM, row->step, row->norm);
    tr_plot_add(plot, TR_PLOT_SPEED, row->step, row->tokens_per_second);
    tr_plot_add(plot, TR_PLOT_SHARE, row->step, row->share_of_peak);
    tr_plot_refresh(plot, false);
}

void tr_picture_end(struct tr_trainer *t, double held_out)
{
    tr_plot_add(&t->plot, TR_PLOT_HELD_OUT, t->step, held_out);
    tr_plot_refresh(&t->plot, true);
    tr_plot_close(&t->plot);
}

/* ---- Logs -------------------------------------------------------------------------------------
 */

static tr_status read_logs(struct tr_plot *plot, const struct tr_config *config)
{
    char names[TR_TEXT_BYTES], *rest = names;
    strcpy(names, config->plot_logs);
    for (const char *name; (name = strsep(&rest, ","));) {
        if (!name[0])
            return tr_fail("--plot-logs=%s: one of the names is empty; expected files of --log, "
                           "separated by commas",
                           config->plot_logs);
        if (!strcmp(name, config->plot))
            return tr_fail("--plot=%s is one of --plot-logs, which it would replace; give another "
                           "file",
                           name);
        TR_TRY(tr_plot_begin_run(plot, name));
        TR_TRY(tr_plot_read_log(plot, name));
        const struct tr_curve *curves = plot->runs[plot->nruns - 1]->curves;
        int npoints = 0;
        for (int i = 0; i < TR_PLOT_CURVES; ++i) npoints += tr_curve_count(&curves[i]);
        if (!npoints) return tr_fail("%s: no steps in it; expected a file that --log wrote", name);
    }
    return TR_OK;
}

tr_status tr_picture_of_logs(const struct tr_config *config)
{
    if (!config->plot[0])
        return tr_fail("--plot-logs=%s without --plot=FILE.svg: nowhere to draw to",
                       config->plot_logs);
    struct tr_plot plot;
    tr_plot_open(&plot, config->plot);
    tr_status status = read_logs(&plot, config);
    snprintf(plot.title, sizeof plot.title, "%s",
             plot.nruns == 1 ? plot.runs[0]->name : "tutti-train");
    if (status == TR_OK) status = tr_plot_write(&plot);
    if (status == TR_OK) printf("wrote %s\n", config->plot);
    tr_plot_close(&plot);
    return status;
}
