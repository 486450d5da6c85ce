/* How far a run is, and the schedules that rise in a line over the warm-up and then follow one
 * curve: cosine, constant, linear, wsd. */
#include <math.h>

#include "rate.h"

double tr_rate_progress(const struct tr_config *config, int64_t step, const struct tr_rate_at *at)
{
    double progress = 0;
    if (step > config->warmup && at->total > config->warmup)
        progress = (double)(step - config->warmup) / (double)(at->total - config->warmup);
    if (config->seconds > 0 && at->elapsed_seconds / config->seconds > progress)
        progress = at->elapsed_seconds / config->seconds;
    return progress < 1 ? progress : 1;
}

/* ---- A straight warm-up, and a curve ----------------------------------------------------------
 */

/* From `lowest` to --lr by the share `height`; the straight warm-up comes first. */
static double risen(const struct tr_config *config, const struct tr_rate_at *at, double height)
{
    if (at->step < config->warmup)
        return config->lr * (double)(at->step + 1) / (double)config->warmup;
    const double lowest = config->lr * config->min_lr;
    return lowest + (config->lr - lowest) * height;
}

double tr_rate_cosine(const struct tr_config *config, const struct tr_rate_at *at)
{
    const double progress = tr_rate_progress(config, at->step, at);
    return risen(config, at, 0.5 * (1 + cos(3.14159265358979323846 * progress)));
}

double tr_rate_constant(const struct tr_config *config, const struct tr_rate_at *at)
{
    return risen(config, at, 1);
}

double tr_rate_linear(const struct tr_config *config, const struct tr_rate_at *at)
{
    return risen(config, at, 1 - tr_rate_progress(config, at->step, at));
}

double tr_rate_wsd(const struct tr_config *config, const struct tr_rate_at *at)
{
    const double left = 1 - tr_rate_progress(config, at->step, at);
    return risen(config, at, left < config->cooldown ? left / config->cooldown : 1);
}
