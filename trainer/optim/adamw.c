/* AdamW over all parameters. */
#include "optim.h"

#include <math.h>

void tr_adamw_step(const struct tr_ops *ops, const struct tr_params *params,
                   const struct tr_config *config, float *weights, const float *gradients, float *m,
                   float *v, int64_t t, double lr, double scale)
{
    struct tr_adamw_step step = {
        .gradient_scale = (float)scale,
        .lr = (float)lr,
        .beta1 = (float)config->beta1,
        .beta2 = (float)config->beta2,
        .eps = (float)config->eps,
        .correct1 = (float)(1 / (1 - pow(config->beta1, (double)t))),
        .correct2 = (float)(1 / (1 - pow(config->beta2, (double)t))),
    };
    for (int p = 0; p < params->n; ++p) {
        const struct tr_param *param = &params->items[p];
        step.decay = param->decay ? (float)config->decay : 0;
        ops->adamw(weights + param->offset, gradients + param->offset, m + param->offset,
                   v + param->offset, param->count, &step);
    }
}
