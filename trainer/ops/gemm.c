/* Matrix products, by oneDNN. */
#include "backend.h"

#include <dnnl.h>
#include <stdio.h>
#include <stdlib.h>

void tr_gemm(char ta, char tb, long m, long n, long k, float alpha, const float *a, long lda,
             const float *b, long ldb, float beta, float *c, long ldc)
{
    if (m == 0 || n == 0) return;
    if (k == 0) { /* oneDNN need not be asked whether it accepts this */
        for (long i = 0; i < m; ++i)
            for (long j = 0; j < n; ++j) c[i * ldc + j] = beta == 0 ? 0 : beta * c[i * ldc + j];
        return;
    }
    const dnnl_status_t status = dnnl_sgemm(ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
    if (status == dnnl_success) return;
    /* No memory for oneDNN's own buffers, or a bug here. Training on a product that was not
     * computed would be worse than ending, and the other ranks notice that this one has left. */
    fprintf(stderr,
            "tutti-train: oneDNN failed with status %d in a product of [%ld, %ld] by [%ld, %ld]; "
            "if memory is short, a smaller --micro-batch needs less\n",
            (int)status, m, k, k, n);
    abort();
}
