/* What is said of each step while a run trains. */
#include <math.h>

#include "picture.h"
#include "trainer.h"
#include "watch/clock.h"

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
                                   .elapsed = tr_clock_seconds() - t->started,
                                   .seconds = t->config.seconds};
    tr_log_step(&t->log, &row);
    tr_picture_step(t, &row);
    tr_epochs_step(&t->epochs, t->samples - (uint64_t)t->config.batch, t->samples, step->loss);
    if (t->mesh->rank == 0) tr_epochs_print(&t->epochs, t->step);
    const int64_t every = t->config.eval_every;
    return every && t->step % every == 0 ? evaluate(t) : TR_OK;
}
