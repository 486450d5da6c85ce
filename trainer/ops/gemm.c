/* Matrix products, by oneDNN. */
#include <dlfcn.h>
#include <dnnl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pool.h"
#include "product.h"

/* oneDNN would share a product among OpenMP's threads, a team of them for each thread that asks,
 * and waits for all of a team, also for those whose core another program has. OpenMP keeps this
 * number for each thread. Asking the loader for the function keeps us from linking a second
 * runtime; a oneDNN that was built without OpenMP brings none. */
static void stay_on_this_thread(void)
{
    static _Thread_local bool done;
    if (done) return;
    done = true;
    void *symbol = dlsym(RTLD_DEFAULT, "omp_set_num_threads");
    void (*set)(int) = NULL;
    memcpy(&set, &symbol, sizeof set);
    if (set) set(1);
}

void tr_gemm(char ta, char tb, long m, long n, long k, float alpha, const float *a, long lda,
             const float *b, long ldb, float beta, float *c, long ldc)
{
    if (m == 0 || n == 0) return;
    if (k == 0) { /* oneDNN need not be asked whether it accepts this */
        for (long i = 0; i < m; ++i)
            for (long j = 0; j < n; ++j) c[i * ldc + j] = beta == 0 ? 0 : beta * c[i * ldc + j];
        return;
    }
    stay_on_this_thread();
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

/* Which kernels oneDNN has for this processor, or for less where its environment says so. */
static enum tr_kernels kernels(void)
{
    static _Atomic int known; /* 1 + enum tr_kernels */
    int found = atomic_load_explicit(&known, memory_order_relaxed);
    if (!found) {
        const unsigned isa = dnnl_get_effective_cpu_isa(), wide = dnnl_cpu_isa_avx512_core;
        found = 1 + ((isa & wide) == wide ? TR_KERNELS_AVX512 : TR_KERNELS_AVX2);
        atomic_store_explicit(&known, found, memory_order_relaxed);
    }
    return (enum tr_kernels)(found - 1);
}

long tr_product_tiles(const struct tr_product *p)
{
    const struct tr_tile most = tr_product_largest(p, kernels());
    return tr_ranges(p->m, most.rows) * tr_ranges(p->n, most.columns);
}

struct tr_tile tr_product_tile(const struct tr_product *p, long index)
{
    const struct tr_tile most = tr_product_largest(p, kernels());
    const long across = tr_ranges(p->n, most.columns);
    const struct tr_range rows = tr_range_at(p->m, most.rows, index / across),
                          columns = tr_range_at(p->n, most.columns, index % across);
    return (struct tr_tile){rows.first, rows.n, columns.first, columns.n};
}

void tr_product_compute(const struct tr_product *p, const struct tr_tile *tile)
{
    const float *a = p->a + tile->row * (p->ta == 'N' ? p->lda : 1);
    const float *b = p->b + tile->column * (p->tb == 'N' ? 1 : p->ldb);
    tr_gemm(p->ta, p->tb, tile->rows, tile->columns, p->k, p->alpha, a, p->lda, b, p->ldb, p->beta,
            p->c + tile->row * p->ldc + tile->column, p->ldc);
}

static void product_piece(const void *arg, long index)
{
    const struct tr_product *product = arg;
    const struct tr_tile tile = tr_product_tile(product, index);
    tr_product_compute(product, &tile);
}

void tr_product_run(const struct tr_product *p)
{
    tr_pool_run(product_piece, p, tr_product_tiles(p));
}
