/* The norms of architectures, over the rows that this rank owns. */
#include "parts.h"

static void layer_forward(const struct tr_pass *pass, const struct tr_norm *norm,
                          const struct tr_data *unit, const struct tr_data *x)
{
    const struct tr_model *m = pass->model;
    m->backend->norm_forward(norm->y, norm->mean, norm->rstd, x, tr_weight(pass, unit, norm->w),
                             tr_weight(pass, unit, norm->b), m->architecture->norm_epsilon,
                             pass->tokens->own, m->size.width);
}

static void layer_backward(const struct tr_pass *pass, const struct tr_norm *norm,
                           const struct tr_data *unit, struct tr_data *gradients,
                           struct tr_data *dx, const struct tr_data *dy, const struct tr_data *x)
{
    const struct tr_model *m = pass->model;
    m->backend->norm_backward(dx, tr_gradient(pass, gradients, norm->w),
                              tr_gradient(pass, gradients, norm->b), dy, x, norm->mean, norm->rstd,
                              tr_weight(pass, unit, norm->w), pass->tokens->own, m->size.width);
}

const struct tr_norm_kind tr_layer_norm = {layer_forward, layer_backward};

static void rms_forward(const struct tr_pass *pass, const struct tr_norm *norm,
                        const struct tr_data *unit, const struct tr_data *x)
{
    const struct tr_model *m = pass->model;
    m->backend->rms_forward(norm->y, norm->rstd, x, tr_weight(pass, unit, norm->w),
                            m->architecture->norm_epsilon, pass->tokens->own, m->size.width);
}

static void rms_backward(const struct tr_pass *pass, const struct tr_norm *norm,
                         const struct tr_data *unit, struct tr_data *gradients, struct tr_data *dx,
                         const struct tr_data *dy, const struct tr_data *x)
{
    const struct tr_model *m = pass->model;
    m->backend->rms_backward(dx, tr_gradient(pass, gradients, norm->w), dy, x, norm->rstd,
                             tr_weight(pass, unit, norm->w), pass->tokens->own, m->size.width);
}

const struct tr_norm_kind tr_rms_norm = {rms_forward, rms_backward};
