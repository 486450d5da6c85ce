/* clang-format off */
/* Tensor parallelism: every matrix and the heads are cut along tp, and the rows of the residual
 * stream between them, too (sequence-parallel norms; Korthikanti et al., 2022). The model asks for
 * both exchanges through its seams (model/seams.h).
 *
 *     rows of rank r [own, h]  --gather-->   all rows [rows, h]  -> columns of a matrix, heads
 *     rows of rank r [own, h]  <--scatter--  all rows [rows, h]  <- rows of a matrix, summed
 *
 * Collectives  gather: one all-gather; scatter: one reduce-scatter (sum). A block: forward two of
 *              each; backward four gathers (two of gradients, two of the norms' outputs again) and
 *              two scatters.
 * Volume       (t-1)/t * 4 rows h bytes sent a call with t ranks.
 * Memory       none of its own; the model's scratch holds [rows, h] twice.
 * Limits       rows are a multiple of t (seqlayout.h pads sequences).
 * Order        on the backend's stream: the computation waits for them.
 * Test         tests/trainer/grid_cases.h: every case with tp. */
/* clang-format on */
#include "../calls.h"
#include "parallel.h"

tr_status tr_tensor_gather(void *arg, struct tr_data *all, const struct tr_data *mine, long own,
                           long n)
{
    const struct tr_parallel *parallel = arg;
    const struct tr_group *tp = parallel->tp;
    return tr_all_gather(tp, parallel->backend->stream, mine, all, (size_t)(own * n),
                         tr_type_datatype(parallel->backend->types.activations),
                         "gathering the rows of tensor parallelism");
}

tr_status tr_tensor_scatter(void *arg, struct tr_data *mine, struct tr_data *all, long own, long n)
{
    const struct tr_parallel *parallel = arg;
    const struct tr_group *tp = parallel->tp;
    return tr_reduce_scatter(tp, parallel->backend->stream, all, mine, (size_t)(own * n),
                             tr_type_datatype(parallel->backend->types.activations),
                             "summing the rows of tensor parallelism");
}
