/* Matrix products that are cut into tiles: tiles cover the result, there are enough of them for
 * several threads, and the bits do not depend on the threads. */
#include "ops/product.h"

#include <stdlib.h>
#include <string.h>

#include "floats.h"
#include "ops/optimizer.h"
#include "ops/pool.h"
#include "peak.h"
#include "reference.h"
#include "setup.h"
#include "shim.h"
#include "shuffle.h"

enum { MOST_THREADS = 3 };

static const enum tr_kernels both[] = {TR_KERNELS_AVX2, TR_KERNELS_AVX512};

static long tiles_of(const struct tr_product *p, enum tr_kernels kernels)
{
    const struct tr_tile tile = tr_product_largest(p, kernels);
    return ((p->m + tile.rows - 1) / tile.rows) * ((p->n + tile.columns - 1) / tile.columns);
}

/* Each element of the result is in one tile, and no tile is much smaller than the first. */
static void check_tiles(const struct tr_product *p)
{
    const long n = tr_product_tiles(p);
    const struct tr_tile first = tr_product_tile(p, 0);
    long area = 0, row = 0, column = 0;
    for (long i = 0; i < n; ++i) {
        const struct tr_tile tile = tr_product_tile(p, i);
        CHECK_EQ(tile.row, row);
        CHECK_EQ(tile.column, column);
        CHECK(tile.rows > 0 && tile.rows <= first.rows);
        CHECK(tile.columns > 0 && tile.columns <= first.columns);
        area += tile.rows * tile.columns;
        column += tile.columns;
        if (column == p->n) column = 0, row += tile.rows;
    }
    CHECK_EQ(row, p->m);
    CHECK_EQ(area, p->m * p->n);
}

/* Else threads are idle while the peak is measured, and a step may be above it. */
TEST(product, the_threads_share_the_one_that_measures_the_peak_evenly)
{
    for (int nthreads = 1; nthreads <= 256; ++nthreads) {
        const struct tr_peak_product peak = tr_peak_product(nthreads);
        const struct tr_product p = {
            .ta = 'N', .tb = 'T', .m = peak.rows, .n = peak.columns, .k = peak.depth};
        const long n = tr_product_tiles(&p);
        const struct tr_tile first = tr_product_tile(&p, 0), last = tr_product_tile(&p, n - 1);
        for (int i = 0; i < 2; ++i)
            CHECK_MESSAGE(tiles_of(&p, both[i]) % nthreads == 0, "%d threads share %ld tiles",
                          nthreads, tiles_of(&p, both[i]));
        CHECK_EQ(last.rows * last.columns, first.rows * first.columns);
    }
}

TEST(product, the_one_that_measures_the_peak_is_in_the_plan_of_a_run_that_measures_it)
{
    enum { NTHREADS = 5 };
    uint64_t needed[2] = {0};
    double resident[2] = {0};
    for (int measures = 0; measures < 2; ++measures) {
        struct tr_config config;
        struct tr_setup setup;
        struct tr_resident parts;
        tr_config_init(&config);
        REQUIRE(tr_config_set(&config, "threads", "5", TR_FROM_COMMAND_LINE) == TR_OK);
        if (measures) REQUIRE(tr_config_set(&config, "log", "x", TR_FROM_COMMAND_LINE) == TR_OK);
        REQUIRE(tr_setup_of(&config, 1, &setup) == TR_OK);
        REQUIRE(tr_setup_memory(&setup, 0, &needed[measures]) == TR_OK);
        REQUIRE(tr_setup_resident(&setup, 0, &parts) == TR_OK);
        resident[measures] = tr_resident_sum(&parts);
    }
    CHECK_EQ(needed[1] - needed[0], tr_peak_bytes(NTHREADS));
    CHECK_EQ(resident[1] - resident[0], tr_peak_bytes(NTHREADS));
    CHECK(tr_peak_bytes(NTHREADS) >= (size_t)NTHREADS * 5 << 18);
}

/* Forward, dx and dw of linear layers of a model of width 192 and micro-batches of 1024 tokens, and
 * what Muon multiplies. */
TEST(product, one_that_is_worth_it_has_four_tiles_and_more)
{
    static const struct tr_product products[] = {
        {.ta = 'N', .tb = 'T', .m = 1024, .n = 192, .k = 192},
        {.ta = 'N', .tb = 'T', .m = 1024, .n = 576, .k = 192},
        {.ta = 'N', .tb = 'T', .m = 1024, .n = 768, .k = 192},
        {.ta = 'N', .tb = 'N', .m = 1024, .n = 192, .k = 768},
        {.ta = 'N', .tb = 'N', .m = 1024, .n = 768, .k = 192},
        {.ta = 'T', .tb = 'N', .m = 192, .n = 192, .k = 1024},
        {.ta = 'T', .tb = 'N', .m = 768, .n = 192, .k = 1024},
        {.ta = 'T', .tb = 'N', .m = 192, .n = 768, .k = 1024},
        {.ta = 'N', .tb = 'T', .m = 384, .n = 384, .k = 1536},
        {.ta = 'T', .tb = 'N', .m = 384, .n = 384, .k = 1536},
        {.ta = 'N', .tb = 'N', .m = 384, .n = 384, .k = 384},
        {.ta = 'N', .tb = 'N', .m = 384, .n = 1536, .k = 384},
    };
    for (size_t i = 0; i < sizeof products / sizeof *products; ++i) {
        const struct tr_product *p = &products[i];
        /* Without AVX-512 halves of a product of these sizes are packed, quarters are not. */
        const bool halves = p->m == 1024 && p->n > 512;
        CHECK_MESSAGE(tiles_of(p, TR_KERNELS_AVX512) >= 4, "%c%c %ld x %ld x %ld", p->ta, p->tb,
                      p->m, p->n, p->k);
        CHECK_MESSAGE(tiles_of(p, TR_KERNELS_AVX2) >= (halves ? 2 : 4), "%c%c %ld x %ld x %ld",
                      p->ta, p->tb, p->m, p->n, p->k);
        check_tiles(p);
    }
    const struct tr_product small = {.ta = 'N', .tb = 'T', .m = 64, .n = 64, .k = 64};
    CHECK_EQ(tr_product_tiles(&small), 1);
}

/* As oneDNN 2.6 and 3 decide with one thread; src/cpu/x64/gemm/gemm_driver.cpp there. */
static bool is_packed_without_avx512(long rows, long columns)
{
    return 1.0 / (double)rows + 1.0 / (double)columns < 0.0038;
}

/* Layers of models of width 384, 768 and 1600, a vocabulary, and micro-batches of 1024 tokens. */
TEST(product, without_avx512_wide_products_and_gradients_of_weights_stay_packed)
{
    static const struct {
        struct tr_product p;
        long tiles;
    } cases[] = {
        {{.ta = 'N', .tb = 'T', .m = 1024, .n = 1152, .k = 384}, 4},
        {{.ta = 'N', .tb = 'T', .m = 1024, .n = 3072, .k = 768}, 4},
        {{.ta = 'N', .tb = 'T', .m = 1024, .n = 50257, .k = 768}, 26},
        {{.ta = 'N', .tb = 'N', .m = 1024, .n = 1536, .k = 384}, 4},
        {{.ta = 'N', .tb = 'N', .m = 1024, .n = 768, .k = 3072}, 2},
        {{.ta = 'N', .tb = 'N', .m = 8192, .n = 768, .k = 3072}, 8},
        {{.ta = 'T', .tb = 'N', .m = 1152, .n = 384, .k = 1024}, 1},
        {{.ta = 'T', .tb = 'N', .m = 384, .n = 1536, .k = 1024}, 1},
        {{.ta = 'T', .tb = 'N', .m = 768, .n = 768, .k = 1024}, 1},
        {{.ta = 'T', .tb = 'N', .m = 3072, .n = 768, .k = 1024}, 4},
        {{.ta = 'T', .tb = 'N', .m = 768, .n = 3072, .k = 1024}, 4},
        {{.ta = 'T', .tb = 'N', .m = 50257, .n = 384, .k = 1024}, 60},
        {{.ta = 'T', .tb = 'N', .m = 6400, .n = 1600, .k = 1024}, 12},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; ++i) {
        const struct tr_product *p = &cases[i].p;
        const struct tr_tile tile = tr_product_largest(p, TR_KERNELS_AVX2);
        CHECK_MESSAGE(is_packed_without_avx512(tile.rows, tile.columns),
                      "%c%c %ld x %ld: tiles of %ld x %ld", p->ta, p->tb, p->m, p->n, tile.rows,
                      tile.columns);
        CHECK_MESSAGE(tiles_of(p, TR_KERNELS_AVX2) == cases[i].tiles, "%c%c %ld x %ld: %ld tiles",
                      p->ta, p->tb, p->m, p->n, tiles_of(p, TR_KERNELS_AVX2));
        CHECK(tiles_of(p, TR_KERNELS_AVX512) >= 4);
    }
}

TEST(product, tiles_cover_results_of_any_size)
{
    static const long sizes[] = {1, 2, 15, 16, 17, 63, 255, 513, 769, 1023, 2049, 4097};
    enum { SIZES = sizeof sizes / sizeof *sizes };
    static const char sides[][2] = {{'N', 'N'}, {'N', 'T'}, {'T', 'N'}};
    for (int i = 0; i < SIZES * SIZES * 6; ++i) {
        const struct tr_product p = {.ta = sides[i % 3][0],
                                     .tb = sides[i % 3][1],
                                     .m = sizes[i / 6 % SIZES],
                                     .n = sizes[i / 6 / SIZES],
                                     .k = i / 3 % 2 ? 1 : 5000};
        check_tiles(&p);
    }
    const struct tr_product none = {.ta = 'N', .tb = 'N', .m = 0, .n = 5, .k = 5},
                            empty = {.ta = 'N', .tb = 'T', .m = 5, .n = 0, .k = 5};
    CHECK_EQ(tr_product_tiles(&none), 0);
    CHECK_EQ(tr_product_tiles(&empty), 0);
}

/* c = alpha a b + beta c, by threads, beside the plain sum in double. */
TEST(product, threads_compute_it_with_alpha_and_beta)
{
    enum { M = 211, N = 203, K = 257 };
    static float a[M * K], b[K * N], before[M * N], c[MOST_THREADS][M * N];
    static double expected[M * N];
    fill(a, M * K, 1, 1);
    fill(b, K * N, 1, 2);
    fill(before, M * N, 1, 3);
    for (int i = 0; i < M; ++i)
        for (int j = 0; j < N; ++j) {
            double sum = 0;
            for (int k = 0; k < K; ++k) sum += (double)a[i * K + k] * (double)b[k * N + j];
            expected[i * N + j] = 2.5 * sum - 0.5 * (double)before[i * N + j];
        }
    for (int n = 0; n < MOST_THREADS; ++n) {
        struct tr_product p = {'N', 'N', M, N, K, 2.5f, a, K, b, N, -0.5f, c[n], N};
        memcpy(c[n], before, sizeof before);
        REQUIRE(tr_pool_open(n + 1, 1) == TR_OK);
        CHECK(tr_product_tiles(&p) >= 4);
        tr_product_run(&p);
        tr_pool_close();
        CHECK(difference(c[n], expected, M * N) < 1e-5);
        CHECK(!memcmp(c[0], c[n], sizeof before));
    }
}

/* Newton-Schulz of one matrix, which has one owner: its threads share each of the 15 products. */
TEST(product, threads_share_what_muon_multiplies)
{
    const struct tr_optimizer muon = {.kind = TR_MUON};
    const struct tr_rule *rule = tr_optimizer_rule(&muon);
    static const long shapes[][2] = {{240, 480}, {480, 240}, {256, 256}};
    enum { FLOATS = 480 * 240 };
    static float x[MOST_THREADS][FLOATS];
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; ++i) {
        const long rows = shapes[i][0], cols = shapes[i][1];
        float *scratch = malloc(rule->scratch(rows, cols) * sizeof *scratch);
        REQUIRE(scratch != NULL);
        for (int n = 0; n < MOST_THREADS; ++n) {
            const long before = pieces_given();
            fill(x[n], rows * cols, 1, 7);
            REQUIRE(tr_pool_open(n + 1, 1) == TR_OK);
            rule->transform(data_of(x[n]), scratch, rows, cols);
            tr_pool_close();
            CHECK_MESSAGE(pieces_given() - before >= 15 * 4, "%ld pieces", pieces_given() - before);
            CHECK(!memcmp(x[0], x[n], (size_t)(rows * cols) * sizeof(float)));
        }
        free(scratch);
    }
}
