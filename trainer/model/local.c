/* Attention and loss without other ranks. */
#include "local.h"

#include <string.h>

static struct tr_attention shape_of(const struct tr_attend *call)
{
    return (struct tr_attention){.batch = call->batch,
                                 .queries = call->context,
                                 .keys = call->context,
                                 .heads = call->heads,
                                 .size = call->d,
                                 .group = call->group,
                                 .phase = call->phase,
                                 .q_stride = call->q_stride,
                                 .kv_stride = call->kv_stride,
                                 .out_stride = call->heads * call->d,
                                 .offset = 0};
}

size_t tr_local_scratch(const struct tr_attend *call)
{
    const struct tr_attention shape = shape_of(call);
    return tr_attention_scratch(&shape);
}

static tr_status attend_forward(void *arg, const struct tr_attend *call)
{
    const struct tr_local *local = arg;
    const struct tr_attention shape = shape_of(call);
    local->ops->attention_forward(call->out, call->lse, call->q, call->k, call->v, local->scratch,
                                  &shape);
    return TR_OK;
}

static void clear(float *x, long rows, long stride, long n)
{
    for (long row = 0; row < rows; ++row) memset(x + row * stride, 0, (size_t)n * sizeof *x);
}

static tr_status attend_backward(void *arg, const struct tr_attend *call)
{
    const struct tr_local *local = arg;
    const struct tr_attention shape = shape_of(call);
    const long rows = call->batch * call->context;
    clear(call->dq, rows, call->q_stride, call->heads * call->d); /* the operation adds */
    clear(call->dk, rows, call->kv_stride, call->kv_heads * call->d);
    clear(call->dv, rows, call->kv_stride, call->kv_heads * call->d);
    local->ops->attention_backward(call->dq, call->dk, call->dv, call->dout, call->out, call->lse,
                                   call->q, call->k, call->v, local->scratch, &shape);
    return TR_OK;
}

static size_t attend_room(void *arg, const struct tr_attend *shape)
{
    (void)arg;
    (void)shape;
    return 0;
}

static tr_status loss(void *arg, float *logits, const int32_t *targets, const float *weights,
                      long first, long rows, long n, double *sum)
{
    const struct tr_local *local = arg;
    (void)first;
    *sum = local->ops->loss(logits, weights, targets, rows, n);
    return TR_OK;
}

void tr_local_seams(struct tr_seams *seams, struct tr_local *local)
{
    *seams = (struct tr_seams){.arg = local,
                               .ops = local->ops,
                               .tp = 1,
                               .attend_forward = attend_forward,
                               .attend_backward = attend_backward,
                               .attend_room = attend_room,
                               .loss = loss};
}
