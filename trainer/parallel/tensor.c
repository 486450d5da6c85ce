/* Tensor parallelism: the rows of the residual stream along tp (sequence-parallel norms). See
 * tensor.h's head in parallel.h. */
#include "parallel.h"

tr_status tr_tensor_gather(void *arg, float *all, const float *mine, long own, long n)
{
    const struct tr_group *tp = ((const struct tr_parallel *)arg)->tp;
    return tr_group_check(
        tp, tuttiAllGather(mine, all, (size_t)(own * n), tuttiFloat32, tp->comm, NULL),
        "gathering the rows of tensor parallelism");
}

tr_status tr_tensor_scatter(void *arg, float *mine, float *all, long own, long n)
{
    const struct tr_group *tp = ((const struct tr_parallel *)arg)->tp;
    return tr_group_check(
        tp,
        tuttiReduceScatter(all, mine, (size_t)(own * n), tuttiFloat32, tuttiSum, tp->comm, NULL),
        "summing the rows of tensor parallelism");
}
