/* Matrix products, by oneDNN. */
#include <dlfcn.h>
#include <dnnl.h>
#include <stdbool.h>
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

/* ---- Tiles ------------------------------------------------------------------------------------
 *
 * oneDNN may add the products of an element up in another order where it is given other sizes, so
 * the tiles are the same for one thread as for many. A tile packs its rows of op(a) and its columns
 * of op(b) again. Smaller tiles keep more threads busy, larger ones cost one thread less: most
 * where the result is wide, and less where neither operand is transposed. A wide result of many
 * rows is cut into rows only, as tiles side by side would read and pack the same rows of op(a).
 *
 * A product that is worth the threads' meeting has at least four tiles, also where all of it would
 * go into one or two: by rows, which costs one thread less than 1 %, or two by two where
 * only op(b) is transposed, which then costs less. Tiles have nearly the same size. */
enum { WIDE = 512, MANY = 2048, FEWEST = 4, UNIT = 16, THIN = 4, THIN_READS = 1 << 17 };
static const double worth = 1 << 23; /* products of two numbers */

static struct tr_tile largest_of_many(const struct tr_product *p)
{
    const bool plain = p->ta == 'N' && p->tb == 'N';
    if (p->n <= WIDE) return (struct tr_tile){.rows = plain ? 256 : 512, .columns = WIDE};
    if (p->ta == 'T' || p->m <= WIDE) return (struct tr_tile){.rows = 2048, .columns = 768};
    return (struct tr_tile){.rows = p->m < MANY ? 512 : 1024, .columns = 4096};
}

/* The size of parts of n items that are at most `most`, nearly equal, and whole units. */
static long even(long n, long most)
{
    const long parts = n > most ? tr_ranges(n, most) : 1, each = tr_ranges(n, parts);
    return each > UNIT ? tr_ranges(each, UNIT) * UNIT : UNIT;
}

/* A product of few rows reads its columns of op(b) once: how long that takes is the memory's
 * affair, and each thread reads some. */
static bool is_thin(const struct tr_product *p)
{
    return p->m <= THIN && p->k > 0 && p->ta == 'N' && p->tb == 'T';
}

static struct tr_tile largest_tile(const struct tr_product *p)
{
    if (is_thin(p))
        return (struct tr_tile){.rows = UNIT, .columns = even(p->n, tr_ranges(THIN_READS, p->k))};
    const struct tr_tile most = largest_of_many(p);
    const struct tr_tile tile = {.rows = even(p->m, most.rows),
                                 .columns = even(p->n, most.columns)};
    const long tiles = tr_ranges(p->m, tile.rows) * tr_ranges(p->n, tile.columns);
    if (tiles >= FEWEST || (double)p->m * (double)p->n * (double)p->k < worth) return tile;
    if (p->ta == 'N' && p->tb == 'T')
        return (struct tr_tile){.rows = even(p->m, tr_ranges(p->m, 2)),
                                .columns = even(p->n, tr_ranges(p->n, 2))};
    return (struct tr_tile){.rows = even(p->m, tr_ranges(p->m, FEWEST)), .columns = tile.columns};
}

long tr_product_tiles(const struct tr_product *p)
{
    const struct tr_tile most = largest_tile(p);
    return tr_ranges(p->m, most.rows) * tr_ranges(p->n, most.columns);
}

struct tr_tile tr_product_tile(const struct tr_product *p, long index)
{
    const struct tr_tile most = largest_tile(p);
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
