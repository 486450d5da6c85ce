/* One build's operations as a table. */
#include "table.h"

#define TR_STRING_(x) #x
#define TR_STRING(x) TR_STRING_(x)

extern const struct tr_ops TR_OP(ops);
const struct tr_ops TR_OP(ops) = {
    .name = TR_STRING(TR_ISA),
    .linear_forward = TR_OP(linear_forward),
    .linear_backward = TR_OP(linear_backward),
    .norm_forward = TR_OP(norm_forward),
    .norm_backward = TR_OP(norm_backward),
    .gelu_forward = TR_OP(gelu_forward),
    .gelu_backward = TR_OP(gelu_backward),
    .embed_forward = TR_OP(embed_forward),
    .embed_backward = TR_OP(embed_backward),
    .attention_forward = TR_OP(attention_forward),
    .attention_backward = TR_OP(attention_backward),
    .loss = TR_OP(loss),
    .sum_of_squares = TR_OP(sum_of_squares),
    .adamw = TR_OP(adamw),
    .exponential = TR_OP(exponential),
};
