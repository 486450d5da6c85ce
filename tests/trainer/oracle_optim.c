/* The oracle's norm of all gradients, clipping, and optimizers. */
#include "oracle.h"

#include <math.h>
#include <stdlib.h>

double oracle_norm(const struct oracle *model, const double *gradients, double scale)
{
    double sum = 0;
    for (long i = 0; i < model->total; ++i) sum += scale * gradients[i] * scale * gradients[i];
    return sqrt(sum);
}

double oracle_clip(double norm, double most)
{
    return most > 0 && norm > most ? most / (norm + 1e-6) : 1;
}

void oracle_adamw_step(const struct oracle *model, double *weights, const double *gradients,
                       double *m, double *v, long t, const struct oracle_adamw *adamw)
{
    const double correct1 = 1 - pow(adamw->beta1, (double)t);
    const double correct2 = 1 - pow(adamw->beta2, (double)t);
    for (int p = 0; p < model->nparams; ++p) {
        const struct oracle_param *param = &model->params[p];
        const double decay = param->decay ? adamw->decay : 0;
        for (long i = param->offset; i < param->offset + param->count; ++i) {
            const double g = adamw->scale * gradients[i];
            m[i] = adamw->beta1 * m[i] + (1 - adamw->beta1) * g;
            v[i] = adamw->beta2 * v[i] + (1 - adamw->beta2) * g * g;
            const double step = m[i] / correct1 / (sqrt(v[i] / correct2) + adamw->eps);
            weights[i] -= adamw->lr * (decay * weights[i] + step);
        }
    }
}

void oracle_sgd_step(const struct oracle *model, double *weights, const double *gradients,
                     double *m, const struct oracle_sgd *sgd)
{
    for (int p = 0; p < model->nparams; ++p) {
        const struct oracle_param *param = &model->params[p];
        const double decay = param->decay ? sgd->decay : 0;
        for (long i = param->offset; i < param->offset + param->count; ++i) {
            m[i] = sgd->momentum * m[i] + sgd->scale * gradients[i];
            weights[i] -= sgd->lr * (decay * weights[i] + m[i]);
        }
    }
}

void oracle_lamb_step(const struct oracle *model, double *weights, const double *gradients,
                      double *m, double *v, long t, const struct oracle_adamw *lamb, double least,
                      double most)
{
    const double b1 = lamb->beta1, b2 = lamb->beta2;
    double *u = calloc((size_t)model->total, sizeof *u);
    for (int p = 0; p < model->nparams; ++p) {
        const struct oracle_param *param = &model->params[p];
        double of_weights = 0, of_updates = 0;
        for (long i = param->offset; i < param->offset + param->count; ++i) {
            const double g = lamb->scale * gradients[i];
            m[i] += (1 - b1) * (g - m[i]);
            v[i] += (1 - b2) * (g * g - v[i]);
            u[i] = m[i] / (1 - pow(b1, (double)t)) /
                   (sqrt(v[i] / (1 - pow(b2, (double)t))) + lamb->eps);
            if (param->decay) u[i] += lamb->decay * weights[i];
            of_weights += weights[i] * weights[i];
            of_updates += u[i] * u[i];
        }
        double trust = of_weights > 0 && of_updates > 0 ? sqrt(of_weights / of_updates) : 1;
        if (of_weights > 0 && of_updates > 0) trust = fmin(fmax(trust, least), most);
        for (long i = param->offset; i < param->offset + param->count; ++i)
            weights[i] -= lamb->lr * trust * u[i];
    }
    free(u);
}
