/* Runs a training: steps with clipping and learning rate, checkpoints, validation, a sample. */
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "optim/rate.h"
#include "generate.h"
#include "peak.h"
#include "trainer.h"
#include "watch/clock.h"
#include "watch/stop.h"

/* What the ranks tell each other beside the loss; summed. Rank 0 fills in the time, each rank which
 * signal has asked it to end, and whether it still writes a checkpoint. */
enum { ELAPSED, STOP, WRITING, SIGNALS };
static_assert(SIGNALS + TR_STOP_SIGNALS == TR_NUM_EXTRA, "all that is summed");

static void all_count(long context, float *weights)
{
    for (long i = 0; i < context; ++i) weights[i] = 1;
}

static void feed_training(void *arg, uint64_t number, long context, int32_t *ids, int32_t *targets,
                          float *weights)
{
    const struct tr_trainer *t = arg;
    tr_sampler_get(&t->text, (uint64_t)t->config.seed, number, context, ids, targets);
    all_count(context, weights);
}

static void feed_held_out(void *arg, uint64_t number, long context, int32_t *ids, int32_t *targets,
                          float *weights)
{
    const struct tr_trainer *t = arg;
    tr_sampler_get_held_out(&t->text, number, context, ids, targets);
    all_count(context, weights);
}

/* Decides from the sums, which are the same on all ranks, whether the step is a spike and whether
 * its update is skipped. */
static tr_status look_for_spike(struct tr_trainer *t, struct tr_step *step)
{
    step->spike = tr_spikes_step(&t->spikes, step->loss, step->norm, t->config.spike_deviations);
    step->skipped = t->config.skip_spikes && step->spike.is_spike;
    const int broken = tr_spikes_broken(&t->spikes);
    if (!broken || (step->skipped && broken < TR_SPIKE_BROKEN)) return TR_OK;
    return tr_mesh_alike(
        t->mesh,
        tr_fail("step %lld: the loss is %g and the gradient's norm %g%s; try a smaller --lr than "
                "%g",
                (long long)t->step + 1, step->loss, step->norm,
                step->skipped ? ", and so many successive updates were skipped that the weights "
                                "must be the reason"
                              : "",
                t->config.lr));
}

/* The schedule counts steps, the optimizer's corrections of its moments count updates. */
static tr_status update(struct tr_trainer *t, struct tr_step *step, double scale)
{
    const struct tr_rate_at at = {t->step, t->total_steps, t->elapsed};
    step->lr = tr_rate_of(&t->config, &at);
    if (step->skipped) {
        t->spikes.skipped++;
        return TR_OK;
    }
    struct tr_optimizer how =
        tr_setup_optimizer(&t->config, t->step + 1 - t->spikes.skipped, step->lr);
    how.beta1 = tr_rate_beta1(&t->config, &at);
    tr_trainer_wait_for_copy(t);
    /* Gradients are sums over the tokens of all ranks: divided once, here. */
    return tr_engine_update(&t->engine, &how,
                            tr_clip_coefficient(step->norm, t->config.clip) * scale);
}

tr_status tr_trainer_step(struct tr_trainer *t, struct tr_step *step)
{
    const struct tr_feed feed = {feed_training, t};
    double extra[TR_NUM_EXTRA] = {0};
    if (t->mesh->rank == 0) {
        extra[ELAPSED] = tr_clock_seconds() - t->started;
        extra[STOP] = t->config.seconds > 0 && extra[ELAPSED] >= t->config.seconds;
    }
    extra[WRITING] = t->saving && tr_ckpt_is_writing(t->saving);
    if (tr_stop_heard() >= 0) extra[SIGNALS + tr_stop_heard()] = 1;
    struct tr_step_sums sums;
    TR_TRY(tr_engine_gradients(&t->engine, &feed, t->samples, extra, &sums));
    step->loss = sums.loss;
    step->norm = sums.norm;
    TR_TRY(look_for_spike(t, step));
    TR_TRY(update(t, step, sums.scale));
    t->step++;
    t->held_out = NAN;
    t->samples += (uint64_t)t->config.batch;
    t->elapsed = sums.extra[ELAPSED];
    t->stop = sums.extra[STOP] > 0;
    t->writing = sums.extra[WRITING] > 0;
    for (int i = TR_STOP_SIGNALS - 1; i >= 0; --i)
        if (sums.extra[SIGNALS + i] > 0) t->asked = i;
    t->stop |= t->asked >= 0;
    return TR_OK;
}

bool tr_trainer_is_over(const struct tr_trainer *t)
{
    return t->stop || (t->total_steps && t->step >= t->total_steps);
}

/* Steps until the end. */
static tr_status go_on(struct tr_trainer *t)
{
    TR_TRY(tr_peak_measure(t->backend, t->mesh, tr_peak_is_wanted(&t->config), &t->peak));
    TR_TRY(tr_mesh_agree(t->mesh, tr_trainer_report_run(t)));
    t->started = t->log.last_time = tr_clock_seconds();
    while (!tr_trainer_is_over(t)) {
        struct tr_step step;
        const double began = tr_clock_seconds(), waited = t->save_waited;
        TR_TRY(tr_trainer_step(t, &step));
        step.seconds = tr_clock_seconds() - began - (t->save_waited - waited);
        t->stepping += step.seconds;
        TR_TRY(tr_trainer_report(t, &step));
        TR_TRY(tr_trainer_saved(t));
        if (t->config.every && t->step % t->config.every == 0 && !tr_trainer_is_over(t))
            TR_TRY(tr_trainer_save(t));
    }
    return t->config.checkpoint[0] ? tr_trainer_save_last(t) : TR_OK;
}

/* Whether a rank was asked to end in the last step, or while the last checkpoint was written. */
static tr_status ask_all(struct tr_trainer *t)
{
    int32_t heard = tr_stop_heard();
    TR_TRY(tr_mesh_check(
        t->mesh, tuttiAllReduce(&heard, &heard, 1, tuttiInt32, tuttiMax, t->mesh->world, NULL),
        "asking all ranks for signals"));
    t->asked = heard;
    return TR_OK;
}

tr_status tr_trainer_run(struct tr_trainer *t)
{
    tr_stop_listen(t->mesh->rank == 0);
    tr_status status = tr_trainer_save_rest(t, go_on(t));
    /* A run that was asked to end does nothing else; another signal does not cut that short. */
    if (t->asked >= 0) return status;
    tr_stop_restore();
    if (status == TR_OK) status = ask_all(t);
    if (t->asked >= 0) tr_stop_listen(false);
    return status;
}

tr_status tr_trainer_validate(struct tr_trainer *t, double *loss)
{
    enum { MOST = 256 }; /* windows: enough for two digits, and short */
    const struct tr_feed feed = {feed_held_out, t};
    const uint64_t all = tr_sampler_held_out(&t->text, t->engine.model.size.context);
    *loss = NAN;
    if (!all) return TR_OK;
    TR_TRY(tr_engine_loss(&t->engine, &feed, 0, (long)(all < MOST ? all : MOST), loss));
    if (isfinite(*loss)) return TR_OK;
    return tr_mesh_alike(t->mesh,
                         tr_fail("the held-out loss after step %lld is %g; try a smaller "
                                 "--lr than %g",
                                 (long long)t->step, isnan(*loss) ? NAN : *loss, t->config.lr));
}

tr_status tr_trainer_sample(struct tr_trainer *t, const char *prompt, unsigned char *out,
                            long count)
{
    const struct tr_choice choice = tr_choice_of(&t->config);
    struct tr_generator generator;
    tr_status status = tr_generator_init(&generator, &t->engine, &choice, true);
    if (status == TR_OK)
        tr_generator_give(&generator, (const unsigned char *)prompt, strlen(prompt));
    for (long at = 0; at < count && status == TR_OK; ++at)
        status = tr_generator_draw(&generator, &out[at]);
    tr_generator_fini(&generator);
    return status;
}
