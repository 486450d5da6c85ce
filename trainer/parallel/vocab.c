/* clang-format off */
/* Vocabulary-parallel cross-entropy: the logits of a row are cut along tp, and no rank ever has a
 * whole row.
 *
 *     loss of a row = log(sum of exp(logit - most)) + most - logit of the target
 *
 * Collectives  forward: an all-reduce (maximum) of the rows' largest logits, and one all-reduce
 *              (sum) of the rows' sums of exponentials and logits of the targets, packed; backward
 *              none: the gradient needs nothing else. The all-reduce that the gradient of the
 *              model's input needs is tensor.c's.
 * Volume       2 f(t) (4 + 8) bytes a row with t ranks and f(t) = (t-1)/t: 24 f(t) s B for B
 *              sequences of s tokens. Gathering the logits would take f(t) 4 V bytes a row.
 * Memory       3 floats of scratch a row, whatever the type of activations.
 * Limits       none: ranges may have different sizes, and may be empty. The columns that pad the
 *              vocabulary are in no rank's range.
 * Order        both calls on the backend's stream: the gradient waits for them.
 *              All ranks of tp sum the rows' losses in the same order, of the same numbers, so they
 *              get the same bits.
 * Test         tests/trainer/vocab_test.c: 2, 3 and 4 ranks, uneven and empty ranges, against
 *              the loss of one rank. */
/* clang-format on */
#include "../calls.h"
#include "parallel.h"

size_t tr_vocab_scratch(const struct tr_parallel *parallel, long rows)
{
    (void)parallel;
    return (size_t)(3 * rows) * sizeof(float);
}

static tr_status combine(const struct tr_parallel *parallel, float *x, long n, tuttiRedOp_t op,
                         const char *what)
{
    const struct tr_group *tp = parallel->tp;
    return tr_all_reduce(tp, parallel->backend->stream, x, (size_t)n, tuttiFloat32, op, what);
}

tr_status tr_vocab_loss(void *arg, struct tr_data *logits, const int32_t *targets,
                        const float *weights, long first, long rows, long n, double *loss)
{
    const struct tr_parallel *parallel = arg;
    const struct tr_backend *backend = parallel->backend;
    float *most = parallel->scratch, *sum = most + rows, *right = sum + rows;
    backend->xent_max(most, logits, rows, n);
    TR_TRY(combine(parallel, most, rows, tuttiMax,
                   "finding the largest logits of a vocabulary cut along tp"));
    backend->xent_exp(sum, right, logits, most, targets, first, rows, n);
    TR_TRY(combine(parallel, sum, 2 * rows, tuttiSum,
                   "summing the exponentials of a vocabulary cut along tp"));
    backend->xent_finish(logits, loss, sum, right, most, weights, targets, first, rows, n);
    return TR_OK;
}
