/* The learning rate of a step: warmup, then half a cosine. */
#include "rate.h"

#include <math.h>

double tr_rate_of(const struct tr_config *config, int64_t step, double progress)
{
    if (step < config->warmup) return config->lr * (double)(step + 1) / (double)config->warmup;
    const double lowest = config->lr * config->min_lr;
    return lowest + (config->lr - lowest) * 0.5 * (1 + cos(3.14159265358979323846 * progress));
}

double tr_rate_progress(const struct tr_config *config, int64_t step, int64_t total,
                        double elapsed_seconds)
{
    double progress = 0;
    if (total > config->warmup && step > config->warmup)
        progress = (double)(step - config->warmup) / (double)(total - config->warmup);
    if (config->seconds > 0 && elapsed_seconds / config->seconds > progress)
        progress = elapsed_seconds / config->seconds;
    return progress < 1 ? progress : 1;
}
