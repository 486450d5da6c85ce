/* Matrix products, by oneDNN. Included by ops/ files only. */
#ifndef TR_PRODUCT_H
#define TR_PRODUCT_H

/* On the thread that asks for it: c[m,n] = alpha op(a) op(b) + beta c; `a` is transposed when ta is
 * 'T' (then stored [k,m]). Any size may be 0. */
void tr_gemm(char ta, char tb, long m, long n, long k, float alpha, const float *a, long lda,
             const float *b, long ldb, float beta, float *c, long ldc);

/* The product of tr_gemm, cut into tiles. */
struct tr_product {
    char ta, tb;
    long m, n, k;
    float alpha;
    const float *a;
    long lda;
    const float *b;
    long ldb;
    float beta;
    float *c;
    long ldc;
};

/* Some rows and columns of c. */
struct tr_tile {
    long row, rows, column, columns;
};

/* oneDNN's kernels, on which depends what tiles cost: those for AVX-512, and all others. */
enum tr_kernels { TR_KERNELS_AVX2, TR_KERNELS_AVX512 };

/* The size of all tiles but the last of a row or column of tiles, which may be smaller. */
struct tr_tile tr_product_largest(const struct tr_product *product, enum tr_kernels kernels);

/* How many tiles there are, which depends on sizes, on ta and tb and on oneDNN's kernels; those
 * that lie side by side follow each other. */
long tr_product_tiles(const struct tr_product *product);
struct tr_tile tr_product_tile(const struct tr_product *product, long index);
void tr_product_compute(const struct tr_product *product, const struct tr_tile *tile);
/* All tiles, which threads share. */
void tr_product_run(const struct tr_product *product);

#endif
