/* Cross-entropy of softmax, with its gradient: in three parts, between which ranks that each hold a
 * range of the vocabulary combine their maxima and sums; and whole. */
#include "softmax.h"
#include "table.h"

/* The column of the range [first, first + n) that holds `target`, or -1. */
static inline long column_of(int32_t target, long first, long n)
{
    return target >= first && target < first + n ? target - first : -1;
}

INLINE float logit_at(const float *logits, long column)
{
    return column < 0 ? 0 : logits[column];
}

/* The loss of one row whose logits hold exp(logit - most); leaves its gradient there. */
INLINE double finish_row(float *logits, long n, float sum, float right, float most, float weight,
                         long column)
{
    if (weight == 0) { /* a masked row counts nothing, whatever its values */
        memset(logits, 0, (size_t)n * sizeof *logits);
        return 0;
    }
    row_scale(logits, n, weight / sum);
    if (column >= 0) logits[column] -= weight;
    return (double)weight * (log((double)sum) + (double)most - (double)right);
}

void TR_OP(xent_max)(float *most, const float *logits, long rows, long n)
{
    for (long row = 0; row < rows; ++row) most[row] = row_max(logits + row * n, n);
}

void TR_OP(xent_exp)(float *sum, float *right, float *logits, const float *most,
                     const int32_t *targets, long first, long rows, long n)
{
    for (long row = 0; row < rows; ++row, logits += n) {
        right[row] = logit_at(logits, column_of(targets[row], first, n));
        sum[row] = row_exp(logits, n, most[row]);
    }
}

void TR_OP(xent_finish)(float *logits, double *loss, const float *sum, const float *right,
                        const float *most, const float *weight, const int32_t *targets, long first,
                        long rows, long n)
{
    double total = 0;
    for (long row = 0; row < rows; ++row)
        total += finish_row(logits + row * n, n, sum[row], right[row], most[row], weight[row],
                            column_of(targets[row], first, n));
    if (loss) *loss += total;
}

void TR_OP(loss)(float *logits, double *loss, const float *weight, const int32_t *targets,
                 long rows, long n)
{
    double total = 0;
    for (long row = 0; row < rows; ++row, logits += n) {
        const long column = column_of(targets[row], 0, n);
        const float most = row_max(logits, n), right = logit_at(logits, column);
        const float sum = row_exp(logits, n, most);
        total += finish_row(logits, n, sum, right, most, weight[row], column);
    }
    if (loss) *loss += total;
}
