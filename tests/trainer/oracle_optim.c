/* The oracle's norm of all gradients, clipping, and optimizers. */
#include "oracle.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

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

static void adamw_param(const struct oracle_param *param, double *weights, const double *gradients,
                        double *m, double *v, long t, const struct oracle_adamw *adamw);

void oracle_adamw_step(const struct oracle *model, double *weights, const double *gradients,
                       double *m, double *v, long t, const struct oracle_adamw *adamw)
{
    for (int p = 0; p < model->nparams; ++p)
        adamw_param(&model->params[p], weights, gradients, m, v, t, adamw);
}

static void adamw_param(const struct oracle_param *param, double *weights, const double *gradients,
                        double *m, double *v, long t, const struct oracle_adamw *adamw)
{
    const double correct1 = 1 - pow(adamw->beta1, (double)t);
    const double correct2 = 1 - pow(adamw->beta2, (double)t);
    const double decay = param->decay ? adamw->decay : 0;
    for (long i = param->offset; i < param->offset + param->count; ++i) {
        const double g = adamw->scale * gradients[i];
        m[i] = adamw->beta1 * m[i] + (1 - adamw->beta1) * g;
        v[i] = adamw->beta2 * v[i] + (1 - adamw->beta2) * g * g;
        const double step = m[i] / correct1 / (sqrt(v[i] / correct2) + adamw->eps);
        weights[i] -= adamw->lr * (decay * weights[i] + step);
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

/* to[rows, cols] = a[rows, inner] b[inner, cols] */
static void multiply(double *to, const double *a, const double *b, long rows, long inner, long cols)
{
    memset(to, 0, (size_t)(rows * cols) * sizeof *to);
    for (long i = 0; i < rows; ++i)
        for (long k = 0; k < inner; ++k)
            for (long j = 0; j < cols; ++j) to[i * cols + j] += a[i * inner + k] * b[k * cols + j];
}

static void transpose(double *to, const double *from, long rows, long cols)
{
    for (long i = 0; i < rows; ++i)
        for (long j = 0; j < cols; ++j) to[j * rows + i] = from[i * cols + j];
}

/* x[rows, cols] with rows <= cols: five times x = a x + (b s + c s s) x, s = x x^T. */
static void orthogonalize(double *x, long rows, long cols)
{
    const size_t n = (size_t)(rows * cols), square = (size_t)(rows * rows);
    double *turned = malloc(n * sizeof *x), *more = malloc(n * sizeof *x), norm = 0;
    double *s = malloc(square * sizeof *s), *ss = malloc(square * sizeof *s);
    for (size_t i = 0; i < n; ++i) norm += x[i] * x[i];
    norm = fmax(sqrt(norm), 1e-7);
    for (size_t i = 0; i < n; ++i) x[i] /= norm;
    for (int step = 0; step < 5; ++step) {
        transpose(turned, x, rows, cols);
        multiply(s, x, turned, rows, cols, rows);
        multiply(ss, s, s, rows, rows, rows);
        for (size_t i = 0; i < square; ++i) s[i] = -4.7750 * s[i] + 2.0315 * ss[i];
        multiply(more, s, x, rows, rows, cols);
        for (size_t i = 0; i < n; ++i) x[i] = 3.4445 * x[i] + more[i];
    }
    free(turned);
    free(more);
    free(s);
    free(ss);
}

static void muon_param(const struct oracle_param *param, double *weights, const double *gradients,
                       double *m, const struct oracle_adamw *adamw, double momentum)
{
    const long rows = param->rows, cols = param->cols;
    double *x = malloc((size_t)param->count * sizeof *x),
           *turned = malloc((size_t)param->count * sizeof *x);
    for (long i = 0; i < param->count; ++i) {
        const double g = adamw->scale * gradients[param->offset + i];
        double *mean = &m[param->offset + i];
        *mean += (1 - momentum) * (g - *mean);
        x[i] = g + momentum * (*mean - g);
    }
    if (rows > cols) {
        transpose(turned, x, rows, cols);
        orthogonalize(turned, cols, rows);
        transpose(x, turned, cols, rows);
    } else {
        orthogonalize(x, rows, cols);
    }
    const double rate = adamw->lr * 0.2 * sqrt((double)(rows > cols ? rows : cols));
    for (long i = 0; i < param->count; ++i) {
        double *w = &weights[param->offset + i];
        *w = *w * (1 - adamw->lr * (param->decay ? adamw->decay : 0)) - rate * x[i];
    }
    free(x);
    free(turned);
}

void oracle_muon_step(const struct oracle *model, double *weights, const double *gradients,
                      double *m, double *v, long t, const struct oracle_adamw *adamw,
                      double momentum)
{
    for (int p = 0; p < model->nparams; ++p) {
        const struct oracle_param *param = &model->params[p];
        if (param->cols && !strncmp(param->name, "blocks.", 7))
            muon_param(param, weights, gradients, m, adamw, momentum);
        else
            adamw_param(param, weights, gradients, m, v, t, adamw);
    }
}
