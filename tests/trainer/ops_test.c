/* The operations on rows and elements, in each build that this processor can run: forward against
 * the reference, backward against finite differences of the reference. attention_test.c,
 * embed_test.c and xent_test.c have the others. */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ops/product.h"
#include "ops_check.h"
#include "parallel/norm.h"
#include "random.h"
#include "shim.h"

static double unit(uint32_t high, uint32_t low)
{
    return ldexp(high, -32) + ldexp(low >> 11, -53);
}

/* Box and Muller by the C library; *radius bounds it. */
static double normal(const struct tr_first_values *v, uint64_t index, double *radius)
{
    uint32_t w[4];
    tr_random_words(v->seed, TR_RANDOM_WEIGHTS, v->stream, index, w);
    *radius = sqrt(-2 * log(1 - unit(w[0], w[1])));
    return *radius * cos(2 * acos(-1) * unit(w[2], w[3]));
}

TEST(initialize, first_values_are_normal_numbers_by_box_and_muller)
{
    enum { N = 1 << 20 };
    const struct tr_first_values v = {
        .mean = 0.5, .deviation = 2, .seed = 0x123456789abcdefu, .stream = 7};
    const uint64_t first = UINT64_C(0xffffffff) - N / 2; /* both words of the counter */
    static float right[N];
    double sum = 0, squares = 0;
    int rounded = 0;
    FOR_EACH_BUILD(ops)
    {
        float *x = zeros(N + 1);
        ops->initialize(x, N, &v, first);
        CHECK(x[N] == 0);
        for (int i = 0; i < N && !build_; ++i) {
            double radius;
            const double noise = normal(&v, first + (uint64_t)i, &radius);
            const double value = v.mean + v.deviation * noise;
            right[i] = (float)value;
            rounded += x[i] != right[i];
            CHECK(fabs(x[i] - value) <= fabs(value) * 0x1p-24 + radius * 0x1p-49);
            sum += noise;
            squares += noise * noise;
        }
        if (!build_) memcpy(right, x, sizeof right);
        CHECK_MESSAGE(same_bits(x, right, N), "%s", ops->name);
        /* Any part is the same part of the whole. */
        for (const long *n = odd_sizes; *n; ++n) {
            float *part = zeros(*n + 1);
            ops->initialize(part, (size_t)*n, &v, first + 5);
            CHECK(same_bits(part, right + 5, *n) && part[*n] == 0);
        }
        free_all();
    }
    CHECK_MESSAGE(rounded <= 2, "%d of %d numbers are rounded in another way", rounded, N);
    CHECK(fabs(sum / N) < 0.004 && fabs(squares / N - 1) < 0.006);
}

TEST(initialize, without_deviation_every_value_is_the_mean)
{
    const struct tr_first_values v = {.mean = 1, .seed = 3};
    FOR_EACH_BUILD(ops)
    {
        float *x = zeros(19);
        ops->initialize(x, 19, &v, 0);
        for (int i = 0; i < 19; ++i) CHECK(x[i] == 1);
        free_all();
    }
}

struct linear {
    long rows, in, out;
    const float *dy;
};

static double linear_objective(double *const *in, void *arg)
{
    const struct linear *c = arg;
    static double y[64 * 64];
    ref_linear(y, in[0], in[1], in[2], NULL, c->rows, c->in, c->out);
    return weighted_sum(y, c->dy, c->rows * c->out);
}

static void check_linear(const struct tr_backend *ops, long rows, long in, long out)
{
    const float *x = some(rows * in, 1, 1), *w = some(out * in, 1, 2), *b = some(out, 1, 3),
                *residual = some(rows * out, 1, 4);
    const double *xx = wide_of(x, rows * in), *ww = wide_of(w, out * in), *bb = wide_of(b, out),
                 *rr = wide_of(residual, rows * out);
    float *y = zeros(rows * out);
    double *yy = wide_zeros(rows * out);
    for (int kind = 0; kind < 4; ++kind) {
        const int bias = kind & 1, add = kind & 2;
        memset(y, 0xff, (size_t)(rows * out) * sizeof *y);
        ops->linear_forward(data_of(y), data_of(x), data_of(w), data_of(bias ? b : NULL),
                            data_of(add ? residual : NULL), rows, in, out);
        ref_linear(yy, xx, ww, bias ? bb : NULL, add ? rr : NULL, rows, in, out);
        CHECK(difference(y, yy, rows * out) < 1e-6);
    }
    struct linear c = {.rows = rows, .in = in, .out = out, .dy = some(rows * out, 1, 5)};
    float *dx = zeros(rows * in), *dw = zeros(out * in), *db = zeros(out);
    memset(dx, 0xff, (size_t)(rows * in) * sizeof *dx);
    ops->linear_backward(data_of(dx), data_of(dw), data_of(db), data_of(c.dy), data_of(x),
                         data_of(w), rows, in, out);
    const struct input inputs[] = {
        {"x", x, dx, rows * in}, {"w", w, dw, out * in}, {"b", b, db, out}};
    check_gradients("linear", inputs, 3, linear_objective, &c);

    float *dx2 = zeros(rows * in), *dw2 = zeros(out * in), *db2 = zeros(out);
    ops->linear_backward(data_of(dx2), NULL, NULL, data_of(c.dy), NULL, data_of(w), rows, in, out);
    ops->linear_backward(NULL, data_of(dw2), NULL, data_of(c.dy), data_of(x), NULL, rows, in, out);
    ops->linear_backward(NULL, NULL, data_of(db2), data_of(c.dy), NULL, NULL, rows, in, out);
    CHECK(same_bits(dx, dx2, rows * in) && same_bits(dw, dw2, out * in) && same_bits(db, db2, out));
    free_all();
}

TEST(ops, linear_matches_the_reference_and_its_differences)
{
    FOR_EACH_BUILD(ops)
    {
        check_linear(ops, 5, 19, 23);
        for (const long *n = odd_sizes; *n; ++n) {
            check_linear(ops, *n, 3, 2);
            check_linear(ops, 2, *n, 17);
            check_linear(ops, 2, 5, *n);
        }
    }
}

struct norm {
    long rows, n;
    const float *dy;
};

static double norm_objective(double *const *in, void *arg)
{
    const struct norm *c = arg;
    static double y[64 * 64];
    ref_norm(y, in[0], in[1], in[2], c->rows, c->n);
    return weighted_sum(y, c->dy, c->rows * c->n);
}

static void check_norm(const struct tr_backend *ops, long rows, long n)
{
    const float *x = some(rows * n, 2, 1), *gamma = some(n, 1, 2), *beta = some(n, 1, 3);
    struct norm c = {.rows = rows, .n = n, .dy = some(rows * n, 1, 4)};
    float *y = zeros(rows * n), *mean = zeros(rows), *rstd = zeros(rows);
    double *yy = wide_zeros(rows * n);
    ops->norm_forward(data_of(y), mean, rstd, data_of(x), data_of(gamma), data_of(beta), 1e-5, rows,
                      n);
    ref_norm(yy, wide_of(x, rows * n), wide_of(gamma, n), wide_of(beta, n), rows, n);
    CHECK(difference(y, yy, rows * n) < 1e-6);
    float *dx = zeros(rows * n), *dgamma = zeros(n), *dbeta = zeros(n);
    ops->norm_backward(data_of(dx), data_of(dgamma), data_of(dbeta), data_of(c.dy), data_of(x),
                       mean, rstd, data_of(gamma), rows, n);
    const struct input inputs[] = {
        {"x", x, dx, rows * n}, {"gamma", gamma, dgamma, n}, {"beta", beta, dbeta, n}};
    check_gradients("norm", inputs, 3, norm_objective, &c);

    float *dx2 = zeros(rows * n), *dgamma2 = zeros(n), *dbeta2 = zeros(n);
    ops->norm_backward(data_of(dx2), NULL, NULL, data_of(c.dy), data_of(x), mean, rstd,
                       data_of(gamma), rows, n);
    ops->norm_backward(NULL, data_of(dgamma2), data_of(dbeta2), data_of(c.dy), data_of(x), mean,
                       rstd, data_of(gamma), rows, n);
    CHECK(same_bits(dx, dx2, rows * n) && same_bits(dgamma, dgamma2, n));
    CHECK(same_bits(dbeta, dbeta2, n));
    free_all();
}

TEST(ops, norm_matches_the_reference_and_its_differences)
{
    FOR_EACH_BUILD(ops)
    for (const long *n = odd_sizes; *n; ++n) check_norm(ops, 5, *n);
}

static void plain_rms(double *y, const double *x, const double *gamma, long rows, long n)
{
    for (long r = 0; r < rows; ++r) {
        double square = 0;
        for (long i = 0; i < n; ++i) square += x[r * n + i] * x[r * n + i];
        for (long i = 0; i < n; ++i)
            y[r * n + i] = x[r * n + i] / sqrt(square / (double)n + 1e-5) * gamma[i];
    }
}

static double rms_objective(double *const *in, void *arg)
{
    const struct norm *c = arg;
    static double y[64 * 64];
    plain_rms(y, in[0], in[1], c->rows, c->n);
    return weighted_sum(y, c->dy, c->rows * c->n);
}

static void check_rms(const struct tr_backend *ops, long rows, long n)
{
    const float *x = some(rows * n, 2, 1), *gamma = some(n, 1, 2);
    struct norm c = {.rows = rows, .n = n, .dy = some(rows * n, 1, 4)};
    float *y = zeros(rows * n), *rstd = zeros(rows);
    double *yy = wide_zeros(rows * n);
    ops->rms_forward(data_of(y), rstd, data_of(x), data_of(gamma), 1e-5, rows, n);
    plain_rms(yy, wide_of(x, rows * n), wide_of(gamma, n), rows, n);
    CHECK(difference(y, yy, rows * n) < 1e-6);
    float *dx = zeros(rows * n), *dgamma = zeros(n);
    ops->rms_backward(data_of(dx), data_of(dgamma), data_of(c.dy), data_of(x), rstd, data_of(gamma),
                      rows, n);
    const struct input inputs[] = {{"x", x, dx, rows * n}, {"gamma", gamma, dgamma, n}};
    check_gradients("rms", inputs, 2, rms_objective, &c);

    float *dx2 = zeros(rows * n), *dgamma2 = zeros(n);
    ops->rms_backward(data_of(dx2), NULL, data_of(c.dy), data_of(x), rstd, data_of(gamma), rows, n);
    ops->rms_backward(NULL, data_of(dgamma2), data_of(c.dy), data_of(x), rstd, data_of(gamma), rows,
                      n);
    CHECK(same_bits(dx, dx2, rows * n) && same_bits(dgamma, dgamma2, n));
    free_all();
}

TEST(ops, rms_norm_matches_the_plain_formula_and_its_differences)
{
    FOR_EACH_BUILD(ops)
    for (const long *n = odd_sizes; *n; ++n) check_rms(ops, 5, *n);
}

struct elements {
    long n;
    const float *dy;
};

static void plain_relu(double *y, const double *x, long n)
{
    for (long i = 0; i < n; ++i) y[i] = fmax(x[i], 0);
}

static void plain_relu2(double *y, const double *x, long n)
{
    for (long i = 0; i < n; ++i) y[i] = pow(fmax(x[i], 0), 2);
}

/* The formula of each activation, by enum tr_activation_kind. */
static void (*const formulas[TR_NUM_ACTIVATIONS])(double *y, const double *x, long n) = {
    [TR_GELU] = ref_gelu, [TR_RELU] = plain_relu, [TR_RELU2] = plain_relu2};

struct activation {
    struct elements elements;
    int kind;
};

static double activation_objective(double *const *in, void *arg)
{
    const struct activation *c = arg;
    double y[147];
    formulas[c->kind](y, in[0], c->elements.n);
    return weighted_sum(y, c->elements.dy, c->elements.n);
}

static void check_activation(const struct tr_backend *ops, int kind, long n)
{
    const float *x = some(n, 6, 1);
    struct activation c = {{.n = n, .dy = some(n, 1, 2)}, kind};
    float *y = zeros(n), *dx = copy_of(c.elements.dy, n);
    double *yy = wide_zeros(n);
    char name[32];
    snprintf(name, sizeof name, "activation %d", kind);
    ops->activations[kind].forward(data_of(y), data_of(x), n);
    formulas[kind](yy, wide_of(x, n), n);
    for (long i = 0; i < n; ++i)
        CHECK_MESSAGE(fabs((double)y[i] - yy[i]) < 6e-6, "%s of %g is %g", name, (double)x[i],
                      (double)y[i]); /* 1e-6 of the largest x */
    ops->activations[kind].backward(data_of(dx), data_of(dx), data_of(x), n);
    const struct input inputs[] = {{"x", x, dx, n}};
    check_gradients(name, inputs, 1, activation_objective, &c);
    free_all();
}

TEST(ops, activations_match_their_formulas_and_their_differences)
{
    for (int kind = 0; kind < TR_NUM_ACTIVATIONS; ++kind) {
        CHECK_MESSAGE(formulas[kind], "activation %d of activation_table.h has no formula here",
                      kind);
        if (!formulas[kind]) continue;
        FOR_EACH_BUILD(ops)
        {
            check_activation(ops, kind, 147);
            for (const long *n = odd_sizes; *n; ++n) check_activation(ops, kind, *n);
        }
    }
}

TEST(ops, activations_keep_what_is_no_number)
{
    FOR_EACH_BUILD(ops)
    for (int kind = 0; kind < TR_NUM_ACTIVATIONS; ++kind) {
        float x[17], y[17], dx[17], ones[17];
        for (int i = 0; i < 17; ++i) x[i] = NAN, ones[i] = 1;
        ops->activations[kind].forward(data_of(y), data_of(x), 17);
        ops->activations[kind].backward(data_of(dx), data_of(ones), data_of(x), 17);
        for (int i = 0; i < 17; ++i)
            CHECK_MESSAGE(isnan(y[i]) && (isnan(dx[i]) || dx[i] == 1), "activation %d: %g, %g",
                          kind, (double)y[i], (double)dx[i]);
    }
}

static void plain_swiglu(double *y, const double *gate, const double *up, long n)
{
    for (long i = 0; i < n; ++i) y[i] = gate[i] / (1 + exp(-gate[i])) * up[i];
}

static double swiglu_objective(double *const *in, void *arg)
{
    const struct elements *c = arg;
    double y[147];
    plain_swiglu(y, in[0], in[1], c->n);
    return weighted_sum(y, c->dy, c->n);
}

static void check_swiglu(const struct tr_backend *ops, long n)
{
    const float *gate = some(n, 9, 1), *up = some(n, 2, 2);
    struct elements c = {.n = n, .dy = some(n, 1, 3)};
    float *y = zeros(n), *dgate = copy_of(c.dy, n), *dup = zeros(n);
    double *yy = wide_zeros(n);
    ops->swiglu_forward(data_of(y), data_of(gate), data_of(up), n);
    plain_swiglu(yy, wide_of(gate, n), wide_of(up, n), n);
    CHECK(difference(y, yy, n) < 1e-6);
    ops->swiglu_backward(data_of(dgate), data_of(dup), data_of(dgate), data_of(gate), data_of(up),
                         n);
    const struct input inputs[] = {{"gate", gate, dgate, n}, {"up", up, dup, n}};
    check_gradients("swiglu", inputs, 2, swiglu_objective, &c);

    float *dgate2 = zeros(n), *dup2 = copy_of(c.dy, n);
    ops->swiglu_backward(data_of(dgate2), data_of(dup2), data_of(dup2), data_of(gate), data_of(up),
                         n);
    CHECK(same_bits(dgate, dgate2, n) && same_bits(dup, dup2, n));
    free_all();
}

TEST(ops, swiglu_matches_the_plain_formula_and_its_differences)
{
    FOR_EACH_BUILD(ops)
    {
        check_swiglu(ops, 147);
        for (const long *n = odd_sizes; *n; ++n) check_swiglu(ops, *n);
        /* exp(-gate) neither overflows nor gives NaN far from 0 */
        const float gate[3] = {-200, 200, -1e30f}, up[3] = {1, 1, 1};
        float y[3];
        ops->swiglu_forward(data_of(y), data_of(gate), data_of(up), 3);
        CHECK(fabsf(y[0]) < 1e-30f && y[1] == 200 && fabsf(y[2]) < 1e-7f);
    }
}

TEST(ops, exponential_is_right_to_the_documented_bound)
{
    enum { N = 100001 };
    float *x = zeros(N), *y = zeros(N);
    for (int i = 0; i < N; ++i) x[i] = -87 + 175 * (float)i / N;
    FOR_EACH_BUILD(ops)
    {
        double most = 0;
        ops->exponential(y, x, N);
        for (int i = 0; i < N; ++i) most = fmax(most, fabs((double)y[i] / exp((double)x[i]) - 1));
        CHECK_MESSAGE(most < 2.5e-7, "%s: relative error %g", ops->name, most);
        const float ends[] = {-1e30f, -88, 0, 100};
        float out[4];
        ops->exponential(out, ends, 4);
        CHECK(out[0] == 0 && out[1] == 0 && out[2] == 1 && out[3] > 1.6e38f && isfinite(out[3]));
    }
    free_all();
}

TEST(ops, backward_adds_to_what_is_there)
{
    enum { ROWS = 5, N = 19 };
    const float *x = some(ROWS * N, 1, 1), *dy = some(ROWS * N, 1, 2), *w = some(N * N, 1, 3);
    FOR_EACH_BUILD(ops)
    {
        /* [0] after one call, [1] after two: exactly twice as much up to rounding */
        float *dw[2], *db[2], *dx[2], *dgamma[2], mean[ROWS] = {0}, rstd[ROWS] = {1, 1, 1, 1, 1};
        for (int twice = 0; twice < 2; ++twice) {
            dw[twice] = zeros(N * N);
            db[twice] = zeros(N);
            dx[twice] = zeros(ROWS * N);
            dgamma[twice] = zeros(N);
            for (int i = 0; i <= twice; ++i) {
                ops->linear_backward(NULL, data_of(dw[twice]), data_of(db[twice]), data_of(dy),
                                     data_of(x), data_of(w), ROWS, N, N);
                ops->norm_backward(data_of(dx[twice]), data_of(dgamma[twice]), data_of(db[twice]),
                                   data_of(dy), data_of(x), mean, rstd, data_of(w), ROWS, N);
                ops->rms_backward(data_of(dx[twice]), data_of(dgamma[twice]), data_of(dy),
                                  data_of(x), rstd, data_of(w), ROWS, N);
            }
        }
        float *const *const sums[] = {dw, db, dx, dgamma};
        const long counts[] = {N * N, N, ROWS * N, N};
        for (int k = 0; k < 4; ++k) {
            double *expected = wide_of(sums[k][0], counts[k]);
            for (long i = 0; i < counts[k]; ++i) expected[i] *= 2;
            CHECK_MESSAGE(difference(sums[k][1], expected, counts[k]) < 1e-6, "gradient %d", k);
        }
    }
    free_all();
}

TEST(ops, products_of_size_0_are_safe)
{
    float x[4] = {1, 2, 3, 4}, b[2] = {5, 6}, y[4] = {7, 8, 9, 10}, dw[4] = {1, 1, 1, 1};
    tr_gemm('N', 'T', 0, 2, 2, 1, x, 2, x, 2, 0, y, 2);
    tr_gemm('N', 'T', 2, 0, 2, 1, x, 2, x, 2, 0, y, 0);
    CHECK(y[0] == 7 && y[3] == 10);
    tr_gemm('T', 'N', 2, 2, 0, 1, x, 2, x, 2, 1, y, 2);
    CHECK(y[0] == 7 && y[3] == 10);
    tr_gemm('N', 'N', 2, 2, 0, 1, x, 0, x, 2, 0.5f, y, 2);
    CHECK(y[0] == 3.5f && y[3] == 5);
    y[1] = NAN;
    tr_gemm('N', 'N', 2, 2, 0, 1, x, 0, x, 2, 0, y, 2);
    CHECK(y[0] == 0 && y[1] == 0 && y[3] == 0);
    FOR_EACH_BUILD(ops)
    {
        ops->linear_forward(data_of(y), data_of(x), data_of(x), data_of(b), NULL, 2, 0,
                            2); /* no inputs: the bias is left */
        CHECK(y[0] == 5 && y[1] == 6 && y[2] == 5 && y[3] == 6);
        ops->linear_forward(data_of(y), data_of(x), data_of(x), data_of(b), NULL, 0, 2, 2);
        ops->linear_backward(NULL, data_of(dw), data_of(b), data_of(x), data_of(x), data_of(x), 0,
                             2, 2); /* no rows: nothing is added */
        CHECK(dw[0] == 1 && dw[3] == 1 && b[0] == 5 && b[1] == 6);
        ops->linear_backward(data_of(y), NULL, NULL, data_of(x), data_of(x), data_of(x), 2, 2,
                             0); /* no outputs: dx = 0 */
        CHECK(y[0] == 0 && y[3] == 0);
    }
}

TEST(ops, squares_are_summed_in_blocks_of_a_fixed_order)
{
    enum { N = 10 * TR_SQUARES_BLOCK + 37, BLOCKS = 11 };
    float *x = some(BLOCKS * TR_SQUARES_BLOCK, 1000, 1);
    memset(x + N, 0, (BLOCKS * TR_SQUARES_BLOCK - N) * sizeof *x);
    double first[TR_SUM_DIGITS] = {0}, expected = 0;
    build(0)->add_squares(first, data_of(x), N);
    for (long i = 0; i < N; ++i) expected += (double)x[i] * (double)x[i];
    CHECK(fabs(tr_norm_squares(first) / expected - 1) < 1e-12);
    FOR_EACH_BUILD(ops)
    {
        double padded[TR_SUM_DIGITS] = {0}, turned[TR_SUM_DIGITS] = {0};
        ops->add_squares(padded, data_of(x), BLOCKS * TR_SQUARES_BLOCK);
        CHECK(memcmp(padded, first, sizeof first) == 0);
        for (long b = BLOCKS - 1; b >= 0; --b)
            ops->add_squares(turned, data_of(x + b * TR_SQUARES_BLOCK), TR_SQUARES_BLOCK);
        CHECK(memcmp(turned, first, sizeof first) == 0);
        for (const long *n = odd_sizes; *n; ++n) {
            double sum[TR_SUM_DIGITS] = {0}, plain = 0;
            for (long i = 0; i < *n; ++i) plain += (double)x[i] * (double)x[i];
            ops->add_squares(sum, data_of(x), (size_t)*n);
            CHECK(fabs(tr_norm_squares(sum) / plain - 1) < 1e-12);
        }
    }
    free_all();
}

/* Blocks of one float of 40 bits: what they come to is an integer of 128 bits times 2^-40. The
 * digits of four ranks are added as doubles. */
TEST(ops, the_sum_of_the_blocks_squares_is_exact)
{
    enum { N = 1000, RANKS = 4 };
    FOR_EACH_BUILD(ops)
    {
        double digits[RANKS][TR_SUM_DIGITS] = {{0}};
        unsigned __int128 exact = 0;
        for (uint64_t i = 0; i < N; ++i) {
            uint32_t words[4];
            tr_random_words(7, TR_RANDOM_SAMPLE, 0, i, words);
            const int64_t whole = (int64_t)(words[0] >> 8) >> words[1] % 24; /* at most 24 bits */
            const float x = ldexpf((float)whole, -20);
            exact += (unsigned __int128)whole * (unsigned __int128)whole;
            ops->add_squares(digits[i % RANKS], data_of(&x), 1);
        }
        for (int rank = 1; rank < RANKS; ++rank)
            for (int d = 0; d < TR_SUM_DIGITS; ++d) digits[0][d] += digits[rank][d];
        const double expected = ldexp((double)(uint64_t)exact, -40);
        CHECK(fabs(tr_norm_squares(digits[0]) / expected - 1) < 0x1p-51);
        unsigned __int128 digit_sum = 0; /* 2^-40 is bit 344 of the digits */
        for (int d = 10; d < 14; ++d)
            digit_sum += (unsigned __int128)digits[0][d] << (32 * (d - 10));
        CHECK(digit_sum >> 24 == exact);
    }
}

TEST(ops, the_sum_of_squares_takes_every_float)
{
    FOR_EACH_BUILD(ops)
    {
        const float alone[] = {0x1p-149F, -0x1p-149F, 0x1.fffffep-127F, 1, FLT_MAX, -FLT_MAX, 0};
        for (size_t i = 0; i < sizeof alone / sizeof alone[0]; ++i) {
            double sum[TR_SUM_DIGITS] = {0};
            ops->add_squares(sum, data_of(&alone[i]), 1);
            CHECK(tr_norm_squares(sum) == (double)alone[i] * (double)alone[i]);
        }
        double most[TR_SUM_DIGITS] = {0};
        for (int i = 0; i < 1000; ++i) ops->add_squares(most, data_of(&alone[4]), 1);
        CHECK(tr_norm_squares(most) == 1000 * ((double)FLT_MAX * (double)FLT_MAX));
        const float infinite[] = {1, INFINITY, 2}, none[] = {NAN, 1};
        double sum[TR_SUM_DIGITS] = {0};
        ops->add_squares(sum, data_of(infinite), 3);
        CHECK(tr_norm_squares(sum) == INFINITY);
        ops->add_squares(sum, data_of(alone), 7); /* stays */
        CHECK(tr_norm_squares(sum) == INFINITY);
        ops->add_squares(sum, data_of(none), 2);
        CHECK(isnan(tr_norm_squares(sum)));
    }
}

TEST(ops, residuals_are_added_with_and_without_a_bias)
{
    enum { ROWS = 3 };
    FOR_EACH_BUILD(ops)
    {
        for (const long *n = odd_sizes; *n; ++n) {
            const float *x = some(ROWS * *n, 1, 1), *b = some(*n, 1, 2);
            for (int bias = 0; bias < 2; ++bias) {
                const float *before = some(ROWS * *n, 1, 3);
                float *y = copy_of(before, ROWS * *n);
                ops->add_residual(data_of(y), data_of(x), data_of(bias ? b : NULL), ROWS, *n);
                for (long i = 0; i < ROWS * *n; ++i)
                    CHECK(y[i] == before[i] + (x[i] + (bias ? b[i % *n] : 0)));
            }
        }
        free_all();
    }
}

TEST(ops, rows_that_lie_apart_are_copied_added_and_cleared_without_what_is_between)
{
    enum { ROWS = 4, WIDTH = 19, STRIDE = 23, FROM = 21 };
    FOR_EACH_BUILD(ops)
    {
        const float *from = some(ROWS * FROM, 1, 1), *before = some(ROWS * STRIDE, 1, 2);
        float *copied = copy_of(before, ROWS * STRIDE), *added = copy_of(before, ROWS * STRIDE),
              *cleared = copy_of(before, ROWS * STRIDE), *all = copy_of(from, ROWS * FROM);
        ops->copy_rows(data_of(copied), STRIDE, data_of(from), FROM, ROWS, WIDTH, TR_FP32);
        ops->add_rows(data_of(added), STRIDE, data_of(from), FROM, ROWS, WIDTH);
        ops->clear_rows(data_of(cleared), STRIDE, ROWS, WIDTH);
        ops->add(data_of(all), data_of(from), ROWS * FROM);
        for (long row = 0; row < ROWS; ++row)
            for (long i = 0; i < STRIDE; ++i) {
                const long at = row * STRIDE + i;
                const float x = i < WIDTH ? from[row * FROM + i] : 0;
                CHECK(copied[at] == (i < WIDTH ? x : before[at]));
                CHECK(added[at] == before[at] + x);
                CHECK(cleared[at] == (i < WIDTH ? 0 : before[at]));
            }
        for (long i = 0; i < ROWS * FROM; ++i) CHECK(all[i] == 2 * from[i]);
        free_all();
    }
}

/* Sizes with one piece and several, and with bytes behind the last whole block. */
TEST(ops, a_checksum_knows_every_bit_and_its_place)
{
    static const size_t sizes[] = {8, 60, 64, 68, 65536, 65536 * 2 + 100};
    const struct tr_backend *backend = tr_backend_choose("");
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; ++s) {
        const size_t n = sizes[s];
        unsigned char *x = calloc(1, n), *y = calloc(1, n);
        REQUIRE(x && y);
        const uint64_t zeros = backend->checksum(x, n);
        CHECK(zeros != backend->checksum(x, n - 4));
        for (size_t at = 0; at < n; at += 1 + n / 100) {
            uint64_t other = 0;
            x[at] = 4;
            CHECK_MESSAGE(backend->checksum(x, n) != zeros, "byte %zu of %zu", at, n);
            y[at / 2] = 4;
            if (at) other = backend->checksum(y, n);
            CHECK_MESSAGE(other != backend->checksum(x, n), "bytes %zu and %zu", at, at / 2);
            x[at] = y[at / 2] = 0;
        }
        CHECK(backend->checksum(x, n) == zeros);
        free(x);
        free(y);
    }
}
