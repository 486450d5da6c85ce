/* Attention of a rank that has whole sequences. No collectives. */
#include <string.h>

#include "parallel.h"

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

static tr_status forward(struct tr_parallel *parallel, const struct tr_attend *call, float *scratch)
{
    const struct tr_attention shape = shape_of(call);
    parallel->ops->attention_forward(call->out, call->lse, call->q, call->k, call->v, scratch,
                                     &shape);
    return TR_OK;
}

static void clear(float *x, long rows, long stride, long n)
{
    for (long row = 0; row < rows; ++row) memset(x + row * stride, 0, (size_t)n * sizeof *x);
}

static tr_status backward(struct tr_parallel *parallel, const struct tr_attend *call,
                          float *scratch)
{
    const struct tr_attention shape = shape_of(call);
    const long rows = call->batch * call->context;
    clear(call->dq, rows, call->q_stride, call->heads * call->d); /* the operation adds */
    clear(call->dk, rows, call->kv_stride, call->kv_heads * call->d);
    clear(call->dv, rows, call->kv_stride, call->kv_heads * call->d);
    parallel->ops->attention_backward(call->dq, call->dk, call->dv, call->dout, call->out,
                                      call->lse, call->q, call->k, call->v, scratch, &shape);
    return TR_OK;
}

static size_t room(const struct tr_parallel *parallel, const struct tr_attend *shape)
{
    (void)parallel;
    (void)shape;
    return 0;
}

static size_t scratch_of(const struct tr_parallel *parallel, const struct tr_attend *call)
{
    (void)parallel;
    const struct tr_attention shape = shape_of(call);
    return tr_attention_scratch(&shape);
}

const struct tr_attention_kind tr_local_attention = {
    .forward = forward, .backward = backward, .room = room, .scratch = scratch_of};
