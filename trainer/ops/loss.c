/* Cross-entropy of softmax, with its gradient. */
#include "softmax.h"
#include "table.h"

double TR_OP(loss)(float *logits, const unsigned char *targets, long rows, long n)
{
    double total = 0;
    for (long row = 0; row < rows; ++row, logits += n) {
        const float most = row_max(logits, n), right = logits[targets[row]];
        const float sum = row_exp(logits, n, most);
        total += log((double)sum) + (double)most - (double)right;
        row_scale(logits, n, 1 / sum);
        logits[targets[row]] -= 1;
    }
    return total;
}
