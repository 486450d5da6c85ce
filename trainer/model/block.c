/* One transformer block: x + proj(attention(norm(x))), then x + down(act(up(norm(x)))). */
#include "model.h"
#include "parts.h"

const struct tr_data *tr_weight(const struct tr_pass *pass, const struct tr_data *unit, int param)
{
    const struct tr_model *m = pass->model;
    if (param < 0) return NULL;
    return tr_const_at(unit, m->backend->types.weights, m->params.items[param].offset);
}

struct tr_data *tr_gradient(const struct tr_pass *pass, struct tr_data *unit, int param)
{
    const struct tr_model *m = pass->model;
    if (param < 0) return NULL;
    return tr_at(unit, m->backend->types.gradients, m->params.items[param].offset);
}

/* ---- What differs between one rank of tp and several ------------------------------------------
 */

tr_status tr_gather(const struct tr_pass *pass, struct tr_data *room, const struct tr_data *own,
                    const struct tr_data **all)
{
    const struct tr_seams *seams = pass->seams;
    *all = seams->tp > 1 ? room : own;
    if (seams->tp == 1) return TR_OK;
    return seams->gather(seams->arg, room, own, pass->tokens->own, pass->model->size.width);
}

tr_status tr_scatter(const struct tr_pass *pass, struct tr_data *room, struct tr_data *all,
                     const struct tr_data **own)
{
    const struct tr_seams *seams = pass->seams;
    *own = seams->tp > 1 ? room : all;
    if (seams->tp == 1) return TR_OK;
    return seams->scatter(seams->arg, room, all, pass->tokens->own, pass->model->size.width);
}

/* y[own, h] = residual + b + the sum over tp of x[rows, in] w^T */
static tr_status join_stream(const struct tr_pass *pass, struct tr_data *y, const struct tr_data *x,
                             const struct tr_data *w, const struct tr_data *b,
                             const struct tr_data *residual, long in)
{
    const struct tr_backend *backend = pass->model->backend;
    const long rows = pass->tokens->rows, own = pass->tokens->own, h = pass->model->size.width;
    if (pass->seams->tp == 1) {
        backend->linear_forward(y, x, w, b, residual, rows, in, h);
        return TR_OK;
    }
    struct tr_data *all = pass->scratch->d_all;
    backend->linear_forward(all, x, w, NULL, NULL, rows, in, h);
    TR_TRY(pass->seams->scatter(pass->seams->arg, y, all, own, h));
    backend->add_residual(y, residual, b, own, h);
    return TR_OK;
}

/* The gradients of that: dx[rows, in] =, dw and db += */
static tr_status leave_stream(const struct tr_pass *pass, struct tr_data *dx, struct tr_data *dw,
                              struct tr_data *db, const struct tr_data *d_stream,
                              const struct tr_data *x, const struct tr_data *w, long in)
{
    const struct tr_backend *backend = pass->model->backend;
    const long rows = pass->tokens->rows, own = pass->tokens->own, h = pass->model->size.width;
    const bool cut = pass->seams->tp > 1;
    const struct tr_data *dy;
    TR_TRY(tr_gather(pass, pass->scratch->d_all, d_stream, &dy));
    /* The bias was added to this rank's rows only. */
    if (cut && db) backend->linear_backward(NULL, NULL, db, d_stream, NULL, NULL, own, 0, h);
    backend->linear_backward(dx, dw, cut ? NULL : db, dy, x, w, rows, in, h);
    return TR_OK;
}

/* ---- Attention --------------------------------------------------------------------------------
 */

static struct tr_norm norm1_of(const struct tr_block *b, const struct tr_block_acts *a)
{
    return (struct tr_norm){a->norm1, a->mean1, a->rstd1, b->tensor[TR_NORM1_W],
                            b->tensor[TR_NORM1_B]};
}

static struct tr_norm norm2_of(const struct tr_block *b, const struct tr_block_acts *a)
{
    return (struct tr_norm){a->norm2, a->mean2, a->rstd2, b->tensor[TR_NORM2_W],
                            b->tensor[TR_NORM2_B]};
}

static struct tr_attend attend_of(const struct tr_pass *pass, const struct tr_block_acts *a)
{
    struct tr_attend call =
        tr_model_attend(pass->model, pass->tokens->batch, pass->tokens->context);
    call.q = a->q;
    call.k = a->k;
    call.v = a->v;
    call.out = a->attention;
    call.room = a->room;
    return call;
}

static void rotate(const struct tr_pass *pass, struct tr_data *q, struct tr_data *k, int direction)
{
    const struct tr_model *m = pass->model;
    const struct tr_tokens *t = pass->tokens;
    const double theta = m->architecture->rope_theta;
    if (theta == 0) return;
    m->backend->rope(q, t->positions, t->rows, m->heads, m->d, m->q_stride, theta, direction);
    m->backend->rope(k, t->positions, t->rows, m->kv_heads, m->d, m->kv_stride, theta, direction);
}

static tr_status attention_forward(const struct tr_pass *pass, const struct tr_block *b,
                                   struct tr_block_acts *a, const struct tr_data *w)
{
    const struct tr_model *m = pass->model;
    const long rows = pass->tokens->rows, h = m->size.width;
    const struct tr_norm norm = norm1_of(b, a);
    pass->model->architecture->norm->forward(pass, &norm, w, a->input);
    const struct tr_data *x;
    TR_TRY(tr_gather(pass, pass->scratch->all, a->norm1, &x));
    m->backend->linear_forward(a->q, x, tr_weight(pass, w, b->tensor[TR_Q_W]),
                               tr_weight(pass, w, b->tensor[TR_Q_B]), NULL, rows, h, m->q_stride);
    if (!m->packed)
        m->backend->linear_forward(a->k, x, tr_weight(pass, w, b->tensor[TR_K_W]),
                                   tr_weight(pass, w, b->tensor[TR_K_B]), NULL, rows, h,
                                   m->kv_stride);
    rotate(pass, a->q, a->k, 1);
    const struct tr_attend call = attend_of(pass, a);
    TR_TRY(pass->seams->attend_forward(pass->seams->arg, &call));
    return join_stream(pass, a->middle, a->attention, tr_weight(pass, w, b->tensor[TR_PROJ_W]),
                       tr_weight(pass, w, b->tensor[TR_PROJ_B]), a->input, m->heads * m->d);
}

/* The end of either half's backward: scratch->d_all, the gradient of what the norm gave, goes
 * through the norm and is added to d_stream. */
static tr_status enter_stream(const struct tr_pass *pass, const struct tr_norm *norm,
                              const struct tr_data *w, struct tr_data *g, struct tr_data *d_stream,
                              const struct tr_data *x, const struct tr_ready_hook *hook)
{
    const struct tr_data *d_norm;
    TR_TRY(tr_scatter(pass, pass->scratch->d_norm, pass->scratch->d_all, &d_norm));
    pass->model->architecture->norm->backward(pass, norm, w, g, d_stream, d_norm, x);
    tr_hook_call(hook, norm->b);
    tr_hook_call(hook, norm->w);
    return TR_OK;
}

/* From the gradients of q, k and v to that of the normalised input, in scratch->d_all. */
static tr_status qkv_backward(const struct tr_pass *pass, const struct tr_block *b,
                              const struct tr_block_acts *a, const struct tr_data *w,
                              struct tr_data *g)
{
    const struct tr_model *m = pass->model;
    struct tr_scratch *s = pass->scratch;
    const long rows = pass->tokens->rows, h = m->size.width;
    const struct tr_data *x;
    TR_TRY(tr_gather(pass, s->all, a->norm1, &x));
    m->backend->linear_backward(s->d_all, tr_gradient(pass, g, b->tensor[TR_Q_W]),
                                tr_gradient(pass, g, b->tensor[TR_Q_B]), s->dq, x,
                                tr_weight(pass, w, b->tensor[TR_Q_W]), rows, h, m->q_stride);
    if (!m->packed)
        tr_add_product(pass, tr_gradient(pass, g, b->tensor[TR_K_W]),
                       tr_gradient(pass, g, b->tensor[TR_K_B]), s->dk, x,
                       tr_weight(pass, w, b->tensor[TR_K_W]), m->kv_stride);
    return TR_OK;
}

static tr_status attention_backward(const struct tr_pass *pass, const struct tr_block *b,
                                    struct tr_block_acts *a, const struct tr_data *w,
                                    struct tr_data *g, struct tr_data *d_stream,
                                    const struct tr_ready_hook *hook)
{
    const struct tr_model *m = pass->model;
    struct tr_scratch *s = pass->scratch;
    TR_TRY(leave_stream(pass, s->d_attention, tr_gradient(pass, g, b->tensor[TR_PROJ_W]),
                        tr_gradient(pass, g, b->tensor[TR_PROJ_B]), d_stream, a->attention,
                        tr_weight(pass, w, b->tensor[TR_PROJ_W]), m->heads * m->d));
    tr_hook_call(hook, b->tensor[TR_PROJ_B]);
    tr_hook_call(hook, b->tensor[TR_PROJ_W]);
    struct tr_attend call = attend_of(pass, a);
    call.dout = s->d_attention;
    call.dq = s->dq;
    call.dk = s->dk;
    call.dv = s->dv;
    TR_TRY(pass->seams->attend_backward(pass->seams->arg, &call));
    rotate(pass, s->dq, s->dk, -1);
    TR_TRY(qkv_backward(pass, b, a, w, g));
    const int qkv[] = {b->tensor[TR_V_B], b->tensor[TR_K_B], b->tensor[TR_Q_B],
                       b->tensor[TR_V_W], b->tensor[TR_K_W], b->tensor[TR_Q_W]};
    for (int i = 0; i < 6; ++i) tr_hook_call(hook, qkv[i]);
    const struct tr_norm norm = norm1_of(b, a);
    return enter_stream(pass, &norm, w, g, d_stream, a->input, hook);
}

/* ---- MLP --------------------------------------------------------------------------------------
 */

static tr_status mlp_forward(const struct tr_pass *pass, const struct tr_block *b,
                             struct tr_block_acts *a, const struct tr_data *w,
                             struct tr_data *output)
{
    const struct tr_model *m = pass->model;
    const struct tr_norm norm = norm2_of(b, a);
    pass->model->architecture->norm->forward(pass, &norm, w, a->middle);
    const struct tr_data *x;
    TR_TRY(tr_gather(pass, pass->scratch->all, a->norm2, &x));
    m->architecture->mlp->forward(pass, b, a, w, x);
    return join_stream(pass, output, a->active, tr_weight(pass, w, b->tensor[TR_DOWN_W]),
                       tr_weight(pass, w, b->tensor[TR_DOWN_B]), a->middle, m->hidden);
}

static tr_status mlp_backward(const struct tr_pass *pass, const struct tr_block *b,
                              struct tr_block_acts *a, const struct tr_data *w, struct tr_data *g,
                              struct tr_data *d_stream, const struct tr_ready_hook *hook)
{
    struct tr_scratch *s = pass->scratch;
    TR_TRY(leave_stream(pass, s->d_wide, tr_gradient(pass, g, b->tensor[TR_DOWN_W]),
                        tr_gradient(pass, g, b->tensor[TR_DOWN_B]), d_stream, a->active,
                        tr_weight(pass, w, b->tensor[TR_DOWN_W]), pass->model->hidden));
    tr_hook_call(hook, b->tensor[TR_DOWN_B]);
    tr_hook_call(hook, b->tensor[TR_DOWN_W]);
    const struct tr_data *x;
    TR_TRY(tr_gather(pass, s->all, a->norm2, &x));
    pass->model->architecture->mlp->backward(pass, b, a, w, g, x);
    tr_hook_call(hook, b->tensor[TR_UP_B]);
    tr_hook_call(hook, b->tensor[TR_UP_W]);
    tr_hook_call(hook, b->tensor[TR_GATE_W]);
    const struct tr_norm norm = norm2_of(b, a);
    return enter_stream(pass, &norm, w, g, d_stream, a->middle, hook);
}

tr_status tr_block_forward(const struct tr_pass *pass, int slot, const struct tr_block *block,
                           const struct tr_data *weights, struct tr_data *output)
{
    struct tr_block_acts *acts = &pass->acts->blocks[slot];
    TR_TRY(attention_forward(pass, block, acts, weights));
    return mlp_forward(pass, block, acts, weights, output);
}

tr_status tr_block_backward(const struct tr_pass *pass, int slot, const struct tr_block *block,
                            const struct tr_data *weights, struct tr_data *gradients,
                            struct tr_data *d_stream, const struct tr_ready_hook *hook)
{
    struct tr_block_acts *acts = &pass->acts->blocks[slot];
    TR_TRY(mlp_backward(pass, block, acts, weights, gradients, d_stream, hook));
    return attention_backward(pass, block, acts, weights, gradients, d_stream, hook);
}
