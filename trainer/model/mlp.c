/* The MLPs of architectures, between the norm and the matrix that leads back to the stream. */
#include "parts.h"

/* up[rows, hidden] = x[rows, h] w^T + b */
static void product_up(const struct tr_pass *pass, const struct tr_block *b,
                       struct tr_block_acts *a, const struct tr_data *w, const struct tr_data *x)
{
    const struct tr_model *m = pass->model;
    m->backend->linear_forward(a->up, x, tr_weight(pass, w, b->tensor[TR_UP_W]),
                               tr_weight(pass, w, b->tensor[TR_UP_B]), NULL, pass->tokens->rows,
                               m->size.width, m->hidden);
}

/* Its gradients, from d_wide; that of x is written to d_all. */
static void product_up_backward(const struct tr_pass *pass, const struct tr_block *b,
                                const struct tr_data *w, struct tr_data *g, const struct tr_data *x)
{
    const struct tr_model *m = pass->model;
    const struct tr_scratch *s = pass->scratch;
    m->backend->linear_backward(s->d_all, tr_gradient(pass, g, b->tensor[TR_UP_W]),
                                tr_gradient(pass, g, b->tensor[TR_UP_B]), s->d_wide, x,
                                tr_weight(pass, w, b->tensor[TR_UP_W]), pass->tokens->rows,
                                m->size.width, m->hidden);
}

static const struct tr_activation *activation_of(const struct tr_model *m)
{
    return &m->backend->activations[m->size.activation];
}

static void plain_forward(const struct tr_pass *pass, const struct tr_block *b,
                          struct tr_block_acts *a, const struct tr_data *w, const struct tr_data *x)
{
    const struct tr_model *m = pass->model;
    product_up(pass, b, a, w, x);
    activation_of(m)->forward(a->active, a->up, pass->tokens->rows * m->hidden);
}

static void plain_backward(const struct tr_pass *pass, const struct tr_block *b,
                           const struct tr_block_acts *a, const struct tr_data *w,
                           struct tr_data *g, const struct tr_data *x)
{
    const struct tr_model *m = pass->model;
    struct tr_data *d_wide = pass->scratch->d_wide;
    activation_of(m)->backward(d_wide, d_wide, a->up, pass->tokens->rows * m->hidden);
    product_up_backward(pass, b, w, g, x);
}

const struct tr_mlp_kind tr_plain_mlp = {plain_forward, plain_backward};

static void swiglu_forward(const struct tr_pass *pass, const struct tr_block *b,
                           struct tr_block_acts *a, const struct tr_data *w,
                           const struct tr_data *x)
{
    const struct tr_model *m = pass->model;
    const long rows = pass->tokens->rows, f = m->hidden;
    product_up(pass, b, a, w, x);
    m->backend->linear_forward(a->gate, x, tr_weight(pass, w, b->tensor[TR_GATE_W]), NULL, NULL,
                               rows, m->size.width, f);
    m->backend->swiglu_forward(a->active, a->gate, a->up, rows * f);
}

static void swiglu_backward(const struct tr_pass *pass, const struct tr_block *b,
                            const struct tr_block_acts *a, const struct tr_data *w,
                            struct tr_data *g, const struct tr_data *x)
{
    const struct tr_model *m = pass->model;
    const struct tr_scratch *s = pass->scratch;
    m->backend->swiglu_backward(s->d_gate, s->d_wide, s->d_wide, a->gate, a->up,
                                pass->tokens->rows * m->hidden);
    product_up_backward(pass, b, w, g, x);
    tr_add_product(pass, tr_gradient(pass, g, b->tensor[TR_GATE_W]), NULL, s->d_gate, x,
                   tr_weight(pass, w, b->tensor[TR_GATE_W]), m->hidden);
}

const struct tr_mlp_kind tr_swiglu_mlp = {swiglu_forward, swiglu_backward};

void tr_add_product(const struct tr_pass *pass, struct tr_data *dw, struct tr_data *db,
                    const struct tr_data *dy, const struct tr_data *x, const struct tr_data *w,
                    long n)
{
    const struct tr_backend *backend = pass->model->backend;
    const long rows = pass->tokens->rows, h = pass->model->size.width;
    struct tr_data *more = pass->scratch->all;
    backend->linear_backward(NULL, dw, db, dy, x, NULL, rows, h, n);
    backend->linear_backward(more, NULL, NULL, dy, NULL, w, rows, h, n);
    backend->add(pass->scratch->d_all, more, (size_t)(rows * h));
}
