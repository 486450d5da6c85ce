#include "ops.h"

#include <assert.h>
#include <dnnl.h>

void tr_gemm(char ta, char tb, long m, long n, long k, float alpha, const float *a, long lda,
             const float *b, long ldb, float beta, float *c, long ldc)
{
    const dnnl_status_t status = dnnl_sgemm(ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
    /* The sizes come from the model, never from input: a refusal is a bug here. */
    assert(status == dnnl_success);
    (void)status;
}
