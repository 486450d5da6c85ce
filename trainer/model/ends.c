/* The two ends of the model: embeddings, and the final norm with head and loss. */
#include "model.h"
#include "parts.h"

tr_status tr_embed_forward(const struct tr_pass *pass, const struct tr_data *token,
                           const struct tr_data *place, struct tr_data *output)
{
    const struct tr_model *m = pass->model;
    const struct tr_tokens *t = pass->tokens;
    const long h = m->size.width;
    const bool cut = pass->seams->tp > 1;
    struct tr_data *rows = cut ? pass->scratch->d_all : output;
    m->backend->embed_forward(rows, t->ids, tr_weight(pass, token, m->tensor[TR_TOKEN_W]),
                              m->vocabulary_first, m->vocabulary_count, t->rows, h);
    if (cut) TR_TRY(pass->seams->scatter(pass->seams->arg, output, rows, t->own, h));
    if (place)
        m->backend->place_forward(output, t->own_positions,
                                  tr_weight(pass, place, m->tensor[TR_PLACE_W]), t->own, h);
    return TR_OK;
}

tr_status tr_embed_backward(const struct tr_pass *pass, struct tr_data *d_token,
                            struct tr_data *d_place, struct tr_data *d_stream,
                            const struct tr_ready_hook *hook)
{
    const struct tr_model *m = pass->model;
    const struct tr_tokens *t = pass->tokens;
    const long h = m->size.width;
    if (d_place) {
        m->backend->place_backward(tr_gradient(pass, d_place, m->tensor[TR_PLACE_W]), d_stream,
                                   t->own_positions, t->own, h);
        tr_hook_call(hook, m->tensor[TR_PLACE_W]);
    }
    const struct tr_data *rows;
    TR_TRY(tr_gather(pass, pass->scratch->d_all, d_stream, &rows));
    m->backend->embed_backward(tr_gradient(pass, d_token, m->tensor[TR_TOKEN_W]), rows, t->ids,
                               m->vocabulary_first, m->vocabulary_count, t->rows, h);
    tr_hook_call(hook, m->tensor[TR_TOKEN_W]);
    return TR_OK;
}

static struct tr_norm norm_of(const struct tr_pass *pass)
{
    const struct tr_model *m = pass->model;
    return (struct tr_norm){pass->acts->norm, pass->acts->mean, pass->acts->rstd,
                            m->tensor[TR_NORM_W], m->tensor[TR_NORM_B]};
}

tr_status tr_head_logits(const struct tr_pass *pass, const struct tr_data *final,
                         const struct tr_data *head)
{
    const struct tr_model *m = pass->model;
    const struct tr_norm norm = norm_of(pass);
    m->architecture->norm->forward(pass, &norm, final, pass->acts->output);
    const struct tr_data *x;
    TR_TRY(tr_gather(pass, pass->scratch->d_all, pass->acts->norm, &x));
    m->backend->linear_forward(pass->acts->logits, x, tr_weight(pass, head, m->tensor[TR_HEAD_W]),
                               NULL, NULL, pass->tokens->rows, m->size.width, m->vocabulary_count);
    return TR_OK;
}

tr_status tr_head_forward(const struct tr_pass *pass, const struct tr_data *final,
                          const struct tr_data *head, double *loss)
{
    const struct tr_model *m = pass->model;
    const struct tr_tokens *t = pass->tokens;
    TR_TRY(tr_head_logits(pass, final, head));
    return pass->seams->loss(pass->seams->arg, pass->acts->logits, t->targets, t->weights,
                             m->vocabulary_first, t->rows, m->vocabulary_count, loss);
}

tr_status tr_head_backward(const struct tr_pass *pass, const struct tr_data *final,
                           const struct tr_data *head, struct tr_data *d_final,
                           struct tr_data *d_head, struct tr_data *d_stream,
                           const struct tr_ready_hook *hook)
{
    const struct tr_model *m = pass->model;
    const struct tr_tokens *t = pass->tokens;
    struct tr_scratch *s = pass->scratch;
    const long h = m->size.width;
    const struct tr_data *x, *d_norm;
    TR_TRY(tr_gather(pass, s->all, pass->acts->norm, &x));
    m->backend->linear_backward(s->d_all, tr_gradient(pass, d_head, m->tensor[TR_HEAD_W]), NULL,
                                pass->acts->logits, x, tr_weight(pass, head, m->tensor[TR_HEAD_W]),
                                t->rows, h, m->vocabulary_count);
    if (!m->size.tied) tr_hook_call(hook, m->tensor[TR_HEAD_W]);
    TR_TRY(tr_scatter(pass, s->d_norm, s->d_all, &d_norm));
    m->backend->clear(d_stream,
                      (size_t)(t->own * h) *
                          tr_type_bytes(m->backend->types.activations)); /* norm_backward adds */
    const struct tr_norm norm = norm_of(pass);
    m->architecture->norm->backward(pass, &norm, final, d_final, d_stream, d_norm,
                                    pass->acts->output);
    tr_hook_call(hook, m->tensor[TR_NORM_B]);
    tr_hook_call(hook, m->tensor[TR_NORM_W]);
    return TR_OK;
}
