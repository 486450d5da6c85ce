/* What is said of each step while a run trains. */
#include "trainer.h"
#include "watch/clock.h"

void tr_trainer_report(struct tr_trainer *t, const struct tr_step *step)
{
    const struct tr_log_row row = {.step = t->step,
                                   .total = t->total_steps,
                                   .loss = step->loss,
                                   .lr = step->lr,
                                   .norm = step->norm,
                                   .tokens_per_step = (double)(t->config.batch * t->config.context),
                                   .elapsed = tr_clock_seconds() - t->started,
                                   .seconds = t->config.seconds};
    tr_log_step(&t->log, &row);
    tr_epochs_step(&t->epochs, t->samples - (uint64_t)t->config.batch, t->samples, step->loss);
    if (t->mesh->rank == 0) tr_epochs_print(&t->epochs, t->step);
}
