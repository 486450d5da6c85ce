/* The only file that knows the order of a step: micro-batches, reduction, clipping, schedule,
 * optimizer. */
#include "trainer.h"

#include <math.h>
#include <string.h>

#include "optim/optim.h"
#include "watch/clock.h"

/* What the ranks tell each other beside the gradients; summed. Only rank 0 fills in the clock. */
enum { LOSS, TOKENS, ELAPSED, STOP, NUM_STATISTICS };

/* Forward and backward of `count` sequences from sample number `first` on; adds to the gradients.
 */
static double run_micro_batch(struct tr_trainer *t, uint64_t first, long count,
                              const struct tr_ready_hook *hook)
{
    const long context = t->gpt.size.context;
    for (long i = 0; i < count; ++i)
        tr_sampler_get(&t->text, (uint64_t)t->config.seed, first + (uint64_t)i, context,
                       t->tokens + i * context, t->targets + i * context);
    const float *weights = t->weights.base;
    tr_gpt_forward(&t->gpt, weights, &t->acts, t->tokens, count, context);
    const double loss = t->ops->loss(t->acts.logits, t->targets, count * context, TR_VOCABULARY);
    tr_gpt_backward(&t->gpt, weights, t->gradients.base, &t->acts, t->tokens, count, context, hook);
    return loss;
}

/* This rank's slice of the batch; the last micro-batch lets the reduction start. */
static double run_batch(struct tr_trainer *t, double *tokens)
{
    long first, count;
    tr_layout_slice(t->config.batch, t->mesh->size[TR_DP], t->mesh->coord[TR_DP], &first, &count);
    const struct tr_ready_hook hook = {.ready = tr_ddp_ready, .arg = &t->ddp};
    double loss = 0;
    memset(t->gradients.base, 0, t->gpt.params.total * sizeof(float));
    for (long done = 0; done < count; done += t->micro) {
        const long now = count - done < t->micro ? count - done : t->micro;
        const bool last = done + now == count;
        if (last) tr_ddp_begin(&t->ddp);
        loss += run_micro_batch(t, t->samples + (uint64_t)(first + done), now, last ? &hook : NULL);
    }
    *tokens = (double)(count * t->gpt.size.context);
    return loss;
}

tr_status tr_step_run(struct tr_trainer *t, struct tr_step *step)
{
    double statistics[NUM_STATISTICS] = {0};
    statistics[LOSS] = run_batch(t, &statistics[TOKENS]);
    if (t->mesh->rank == 0) {
        statistics[ELAPSED] = tr_clock_seconds() - t->started;
        statistics[STOP] = t->config.seconds > 0 && statistics[ELAPSED] >= t->config.seconds;
    }
    TR_TRY(tr_ddp_finish(&t->ddp, statistics, NUM_STATISTICS));

    /* Gradients are sums over the tokens of all ranks: divided once, here. */
    const struct tr_params *params = &t->gpt.params;
    float *weights = t->weights.base;
    const float *gradients = t->gradients.base;
    const double scale = 1 / statistics[TOKENS];
    step->loss = statistics[LOSS] * scale;
    step->norm = tr_clip_norm(t->ops, params, gradients, scale);
    if (!isfinite(step->loss) || !isfinite(step->norm))
        return tr_mesh_alike(
            t->mesh,
            tr_fail(
                "step %lld: the loss is %g and the gradient's norm %g; try a smaller --lr than %g",
                (long long)t->step + 1, step->loss, step->norm, t->config.lr));
    const double progress = tr_schedule_progress(&t->config, t->step, t->total_steps, t->elapsed);
    step->lr = tr_schedule_lr(&t->config, t->step, progress);
    tr_adamw_step(t->ops, params, &t->config, weights, gradients, t->m, t->v, t->step + 1, step->lr,
                  scale * tr_clip_coefficient(step->norm, t->config.clip));
    t->step++;
    t->samples += (uint64_t)t->config.batch;
    t->elapsed = statistics[ELAPSED];
    t->stop = statistics[STOP] > 0;
    return TR_OK;
}

tr_status tr_trainer_run(struct tr_trainer *t)
{
    t->started = t->log.last_time = tr_clock_seconds();
    int64_t saved = -1;
    while (!t->stop && (!t->total_steps || t->step < t->total_steps)) {
        struct tr_step step;
        const double began = tr_clock_seconds();
        TR_TRY(tr_step_run(t, &step));
        t->stepping += tr_clock_seconds() - began;
        const struct tr_log_row row = {.step = t->step,
                                       .total = t->total_steps,
                                       .loss = step.loss,
                                       .lr = step.lr,
                                       .norm = step.norm,
                                       .tokens_per_step =
                                           (double)(t->config.batch * t->config.context),
                                       .elapsed = tr_clock_seconds() - t->started,
                                       .seconds = t->config.seconds};
        tr_log_step(&t->log, &row);
        if (t->config.every && t->step % t->config.every == 0) {
            TR_TRY(tr_trainer_save(t));
            saved = t->step;
        }
    }
    if (t->config.checkpoint[0] && saved != t->step) TR_TRY(tr_trainer_save(t));
    return TR_OK;
}

tr_status tr_trainer_validate(struct tr_trainer *t, double *loss)
{
    enum { MOST = 256 }; /* windows: enough for two digits, and short */
    const long context = t->gpt.size.context;
    const uint64_t all = tr_sampler_held_out(&t->text, context);
    long first, count;
    tr_layout_slice((long)(all < MOST ? all : MOST), t->mesh->size[TR_DP], t->mesh->coord[TR_DP],
                    &first, &count);
    double sums[2] = {0, (double)(count * context)};
    for (long done = 0; done < count; done += t->micro) {
        const long now = count - done < t->micro ? count - done : t->micro;
        for (long i = 0; i < now; ++i)
            tr_sampler_get_held_out(&t->text, (uint64_t)(first + done + i), context,
                                    t->tokens + i * context, t->targets + i * context);
        tr_gpt_forward(&t->gpt, t->weights.base, &t->acts, t->tokens, now, context);
        sums[0] += t->ops->loss(t->acts.logits, t->targets, now * context, TR_VOCABULARY);
    }
    TR_TRY(tr_mesh_check(
        t->mesh, tuttiAllReduce(sums, sums, 2, tuttiFloat64, tuttiSum, t->mesh->world, NULL),
        "summing the held-out loss"));
    *loss = sums[1] > 0 ? sums[0] / sums[1] : NAN;
    return TR_OK;
}
