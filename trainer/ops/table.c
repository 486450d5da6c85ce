/* One build's operations as a table. */
#include "host.h"
#include "table.h"

#define TR_STRING_(x) #x
#define TR_STRING(x) TR_STRING_(x)

extern const struct tr_backend TR_OP(backend);
const struct tr_backend TR_OP(backend) = {
    .name = TR_STRING(TR_ISA),
    .wait = tr_host_wait,
    .take = tr_host_take,
    .give = tr_host_give,
    .write = tr_host_copy,
    .read = tr_host_copy,
    .clear = tr_host_clear,
    .initialize = tr_host_initialize,
    .checksum = tr_host_checksum,
    .find_not_finite = tr_host_find_not_finite,
    .add = TR_OP(add),
    .add_on = TR_OP(add_on),
    .add_residual = TR_OP(add_residual),
    .copy_rows = TR_OP(copy_rows),
    .add_rows = TR_OP(add_rows),
    .clear_rows = TR_OP(clear_rows),
    .linear_forward = TR_OP(linear_forward),
    .linear_backward = TR_OP(linear_backward),
    .norm_forward = TR_OP(norm_forward),
    .norm_backward = TR_OP(norm_backward),
    .rms_forward = TR_OP(rms_forward),
    .rms_backward = TR_OP(rms_backward),
    .gelu_forward = TR_OP(gelu_forward),
    .gelu_backward = TR_OP(gelu_backward),
    .swiglu_forward = TR_OP(swiglu_forward),
    .swiglu_backward = TR_OP(swiglu_backward),
    .rope = TR_OP(rope),
    .embed_forward = TR_OP(embed_forward),
    .embed_backward = TR_OP(embed_backward),
    .place_forward = TR_OP(place_forward),
    .place_backward = TR_OP(place_backward),
    .attention_forward = TR_OP(attention_forward),
    .attention_backward = TR_OP(attention_backward),
    .attention_merge = TR_OP(attention_merge),
    .xent_max = TR_OP(xent_max),
    .xent_exp = TR_OP(xent_exp),
    .xent_finish = TR_OP(xent_finish),
    .loss = TR_OP(loss),
    .add_squares = TR_OP(add_squares),
    .optimizers =
        {
#define OPTIMIZER(NAME, name) [TR_##NAME] = &TR_RULE(name),
#include "optimizer_table.h"
        },
    .exponential = TR_OP(exponential),
};
