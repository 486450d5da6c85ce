/* What is said of each step while a run trains. */
#include <json-c/json.h>
#include <math.h>
#include <stdlib.h>

#include "picture.h"
#include "trainer.h"
#include "watch/clock.h"

static struct json_object *mesh_sizes(const struct tr_mesh *mesh)
{
    struct json_object *sizes = json_object_new_object();
    for (int axis = 0; axis < TR_NUM_AXES; ++axis)
        json_object_object_add(sizes, tr_axis_names[axis], json_object_new_int(mesh->size[axis]));
    return sizes;
}

tr_status tr_trainer_report_run(struct tr_trainer *t)
{
    if (!t->log.json.file) return TR_OK;
    char version[32], *text = tr_config_to_json(&t->config);
    int code = 0;
    if (!text) return tr_fail("out of memory for --log=%s", t->config.log);
    const tuttiResult_t result = tuttiGetVersion(&code);
    if (result != tuttiSuccess) {
        free(text);
        return tr_fail("tuttiGetVersion: %s", tuttiGetErrorString(result));
    }
    snprintf(version, sizeof version, "%d.%d.%d", code / 10000, code / 100 % 100, code % 100);
    struct json_object *object = json_object_new_object();
    json_object_object_add(object, "kind", json_object_new_string("run"));
    json_object_object_add(object, "version", json_object_new_string(version));
    json_object_object_add(object, "after_step", json_object_new_int64(t->step));
    json_object_object_add(object, "ranks", json_object_new_int(t->mesh->nranks));
    json_object_object_add(object, "mesh", mesh_sizes(t->mesh));
    json_object_object_add(object, "parameters",
                           json_object_new_uint64(t->engine.model.params.count));
    json_object_object_add(object, "peak_flops", json_object_new_double(round(t->peak)));
    json_object_object_add(object, "options", json_tokener_parse(text));
    tr_log_run(&t->log, t->step,
               json_object_to_json_string_ext(object, JSON_C_TO_STRING_SPACED |
                                                          JSON_C_TO_STRING_NOSLASHESCAPE));
    json_object_put(object);
    free(text);
    return TR_OK;
}

static tr_status evaluate(struct tr_trainer *t)
{
    const double began = tr_clock_seconds();
    double loss;
    TR_TRY(tr_trainer_validate(t, &loss));
    t->held_out = loss;
    const double now = tr_clock_seconds();
    t->log.last_time += now - began; /* no time of steps */
    tr_plot_add(&t->plot, TR_PLOT_HELD_OUT, t->step, loss);
    if (isfinite(loss)) tr_log_held_out(&t->log, t->step, loss, now - t->started);
    return TR_OK;
}

/* What the matrix products of a step reach of the peak; NaN where that is not measured. */
static double share_of_peak(const struct tr_trainer *t, double tokens_per_second)
{
    if (!(t->peak > 0)) return NAN;
    return tokens_per_second * tr_model_flops_per_token(&t->engine.model.size) / t->peak;
}

tr_status tr_trainer_report(struct tr_trainer *t, const struct tr_step *step)
{
    const double tokens = (double)(t->config.batch * t->config.context);
    const struct tr_log_row row = {.step = t->step,
                                   .total = t->total_steps,
                                   .loss = step->loss,
                                   .lr = step->lr,
                                   .norm = step->norm,
                                   .tokens_per_step = tokens,
                                   .tokens_per_second = tokens / step->seconds,
                                   .share_of_peak = share_of_peak(t, tokens / step->seconds),
                                   .elapsed = tr_clock_seconds() - t->started,
                                   .seconds = t->config.seconds,
                                   .spike = step->spike,
                                   .skipped = step->skipped};
    tr_log_step(&t->log, &row);
    tr_picture_step(t, &row);
    tr_epochs_step(&t->epochs, t->samples - (uint64_t)t->config.batch, t->samples, step->loss);
    if (t->mesh->rank == 0 && t->epochs.ended && tr_log_may_print(&t->log, t->step))
        tr_epochs_print(&t->epochs, t->step);
    const int64_t every = t->config.eval_every;
    return every && t->step % every == 0 ? evaluate(t) : TR_OK;
}
