/* Attention of a rank that has whole sequences.
 *
 * Collectives  none.
 * Memory       kept for backward: the logarithms of the sums, [batch, heads, context]. Scratch:
 *              that of the operations (tr_attention_scratch).
 * Limits       none.
 * Test         tests/trainer/parallel_test.c: what the cut attentions are compared with. */
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

static tr_status forward(struct tr_parallel *parallel, const struct tr_attend *call, void *scratch)
{
    const struct tr_attention shape = shape_of(call);
    parallel->backend->attention_forward(call->out, call->room, call->q, call->k, call->v, scratch,
                                         &shape);
    return TR_OK;
}

static tr_status backward(struct tr_parallel *parallel, const struct tr_attend *call, void *scratch)
{
    const struct tr_attention shape = shape_of(call);
    const long rows = call->batch * call->context;
    parallel->backend->clear_rows(call->dq, call->q_stride, rows,
                                  call->heads * call->d); /* the operation adds */
    parallel->backend->clear_rows(call->dk, call->kv_stride, rows, call->kv_heads * call->d);
    parallel->backend->clear_rows(call->dv, call->kv_stride, rows, call->kv_heads * call->d);
    parallel->backend->attention_backward(call->dq, call->dk, call->dv, call->dout, call->out,
                                          call->room, call->q, call->k, call->v, scratch, &shape);
    return TR_OK;
}

static size_t room(const struct tr_parallel *parallel, const struct tr_attend *shape)
{
    (void)parallel;
    return (size_t)(shape->batch * shape->heads * shape->context) * sizeof(float);
}

static size_t scratch_of(const struct tr_parallel *parallel, const struct tr_attend *call)
{
    (void)parallel;
    const struct tr_attention shape = shape_of(call);
    return tr_attention_scratch(&shape) * sizeof(float);
}

const struct tr_attention_kind tr_local_attention = {
    .forward = forward, .backward = backward, .room = room, .scratch = scratch_of};
