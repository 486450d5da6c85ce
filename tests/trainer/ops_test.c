/* Each operation, in each build that this processor can run: forward against the reference,
 * backward against finite differences of the reference. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ops/ops.h"
#include "reference.h"
#include "shim.h"

static const char *const builds[] = {"baseline", "v3", "v4"};

/* One input of an operation: its values, and the gradient that backward gave. */
struct input {
    const char *name;
    const float *values, *gradient;
    long n;
};

/* The weighted sum of an operation's outputs, as a function of all inputs in double. */
typedef double (*objective)(double *const *inputs, void *arg);

/* Compares each input's gradient with central differences at some of its elements. */
static void check_gradients(const char *what, const struct input *inputs, int n, objective f,
                            void *arg)
{
    double *wide[8];
    for (int k = 0; k < n; ++k) wide[k] = widen(inputs[k].values, inputs[k].n);
    for (int k = 0; k < n; ++k) {
        const long stride = inputs[k].n / 61 + 1;
        double most = 0, largest = 1e-30;
        for (long i = 0; i < inputs[k].n; i += stride) {
            const double h = 1e-5, x = wide[k][i];
            wide[k][i] = x + h;
            const double above = f(wide, arg);
            wide[k][i] = x - h;
            const double below = f(wide, arg);
            wide[k][i] = x;
            const double numeric = (above - below) / (2 * h);
            most = fmax(most, fabs(numeric - (double)inputs[k].gradient[i]));
            largest = fmax(largest, fabs(numeric));
        }
        CHECK_MESSAGE(most / largest < 2e-5, "%s: gradient of %s is off by %g of its largest", what,
                      inputs[k].name, most / largest);
    }
    for (int k = 0; k < n; ++k) free(wide[k]);
}

static double dot(const double *a, const float *b, long n)
{
    double sum = 0;
    for (long i = 0; i < n; ++i) sum += a[i] * (double)b[i];
    return sum;
}

#define FOR_EACH_BUILD(ops)                                                                        \
    for (size_t build_ = 0; build_ < 3; ++build_)                                                  \
        for (const struct tr_ops *ops = tr_ops_choose(builds[build_]); ops; ops = NULL)

enum { ROWS = 5, IN = 19, OUT = 23 };
struct linear {
    float dy[ROWS * OUT];
};

static double linear_objective(double *const *in, void *arg)
{
    const struct linear *c = arg;
    double y[ROWS * OUT];
    ref_linear(y, in[0], in[1], in[2], NULL, ROWS, IN, OUT);
    return dot(y, c->dy, ROWS * OUT);
}

TEST(ops, linear_matches_the_reference_and_its_differences)
{
    float x[ROWS * IN], w[OUT * IN], b[OUT], residual[ROWS * OUT], y[ROWS * OUT];
    struct linear c;
    fill(x, ROWS * IN, 1, 1);
    fill(w, OUT * IN, 1, 2);
    fill(b, OUT, 1, 3);
    fill(residual, ROWS * OUT, 1, 4);
    fill(c.dy, ROWS * OUT, 1, 5);
    double *xx = widen(x, ROWS * IN), *ww = widen(w, OUT * IN), *bb = widen(b, OUT),
           *rr = widen(residual, ROWS * OUT), yy[ROWS * OUT];
    FOR_EACH_BUILD(ops)
    {
        for (int kind = 0; kind < 4; ++kind) {
            const int bias = kind & 1, add = kind & 2;
            memset(y, 0xff, sizeof y);
            ops->linear_forward(y, x, w, bias ? b : NULL, add ? residual : NULL, ROWS, IN, OUT);
            ref_linear(yy, xx, ww, bias ? bb : NULL, add ? rr : NULL, ROWS, IN, OUT);
            CHECK(difference(y, yy, ROWS * OUT) < 1e-6);
        }
        float dx[ROWS * IN], dw[OUT * IN] = {0}, db[OUT] = {0};
        ops->linear_backward(dx, dw, db, c.dy, x, w, ROWS, IN, OUT);
        const struct input inputs[] = {
            {"x", x, dx, ROWS * IN}, {"w", w, dw, OUT * IN}, {"b", b, db, OUT}};
        check_gradients("linear", inputs, 3, linear_objective, &c);
    }
    free(xx);
    free(ww);
    free(bb);
    free(rr);
}

enum { NORM = 37 };
static double norm_objective(double *const *in, void *arg)
{
    double y[ROWS * NORM];
    ref_norm(y, in[0], in[1], in[2], ROWS, NORM);
    return dot(y, arg, ROWS * NORM);
}

TEST(ops, norm_matches_the_reference_and_its_differences)
{
    float x[ROWS * NORM], gamma[NORM], beta[NORM], dy[ROWS * NORM], y[ROWS * NORM];
    fill(x, ROWS * NORM, 2, 1);
    fill(gamma, NORM, 1, 2);
    fill(beta, NORM, 1, 3);
    fill(dy, ROWS * NORM, 1, 4);
    double *xx = widen(x, ROWS * NORM), *gg = widen(gamma, NORM), *bb = widen(beta, NORM),
           yy[ROWS * NORM];
    FOR_EACH_BUILD(ops)
    {
        float mean[ROWS], rstd[ROWS], dx[ROWS * NORM] = {0}, dgamma[NORM] = {0}, dbeta[NORM] = {0};
        ops->norm_forward(y, mean, rstd, x, gamma, beta, ROWS, NORM);
        ref_norm(yy, xx, gg, bb, ROWS, NORM);
        CHECK(difference(y, yy, ROWS * NORM) < 1e-6);
        ops->norm_backward(dx, dgamma, dbeta, dy, x, mean, rstd, gamma, ROWS, NORM);
        const struct input inputs[] = {
            {"x", x, dx, ROWS * NORM}, {"gamma", gamma, dgamma, NORM}, {"beta", beta, dbeta, NORM}};
        check_gradients("norm", inputs, 3, norm_objective, dy);
    }
    free(xx);
    free(gg);
    free(bb);
}

enum { GELU = 147 };
static double gelu_objective(double *const *in, void *arg)
{
    double y[GELU];
    ref_gelu(y, in[0], GELU);
    return dot(y, arg, GELU);
}

TEST(ops, gelu_matches_the_reference_and_its_differences)
{
    float x[GELU], dy[GELU], y[GELU], dx[GELU];
    fill(x, GELU, 6, 1);
    fill(dy, GELU, 1, 2);
    double *xx = widen(x, GELU), yy[GELU];
    FOR_EACH_BUILD(ops)
    {
        ops->gelu_forward(y, x, GELU);
        ref_gelu(yy, xx, GELU);
        CHECK(difference(y, yy, GELU) < 1e-6);
        memcpy(dx, dy, sizeof dx);
        ops->gelu_backward(dx, dx, x, GELU);
        const struct input inputs[] = {{"x", x, dx, GELU}};
        check_gradients("gelu", inputs, 1, gelu_objective, dy);
    }
    free(xx);
}

TEST(ops, exponential_is_right_to_the_documented_bound)
{
    enum { N = 100001 };
    float *x = malloc(N * sizeof *x), *y = malloc(N * sizeof *y);
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
    free(x);
    free(y);
}

enum { BATCH = 2, CONTEXT = 70, HEADS = 2, WIDTH = 10 };
static double attention_objective(double *const *in, void *arg)
{
    static double y[BATCH * CONTEXT * WIDTH];
    ref_attention(y, in[0], BATCH, CONTEXT, WIDTH, HEADS);
    return dot(y, arg, BATCH * CONTEXT * WIDTH);
}

TEST(ops, attention_matches_the_reference_and_its_differences)
{
    enum { Y = BATCH * CONTEXT * WIDTH, QKV = 3 * Y };
    static float qkv[QKV], y[Y], dy[Y], dqkv[QKV], lse[BATCH * HEADS * CONTEXT];
    float *scratch = malloc(tr_attention_scratch(CONTEXT) * sizeof *scratch);
    fill(qkv, QKV, 1.5, 1);
    fill(dy, Y, 1, 2);
    double *wide = widen(qkv, QKV);
    static double yy[Y];
    FOR_EACH_BUILD(ops)
    {
        ops->attention_forward(y, lse, qkv, scratch, BATCH, CONTEXT, WIDTH, HEADS);
        ref_attention(yy, wide, BATCH, CONTEXT, WIDTH, HEADS);
        CHECK(difference(y, yy, Y) < 1e-6);
        ops->attention_backward(dqkv, dy, y, lse, qkv, scratch, BATCH, CONTEXT, WIDTH, HEADS);
        const struct input inputs[] = {{"qkv", qkv, dqkv, QKV}};
        check_gradients("attention", inputs, 1, attention_objective, dy);
    }
    free(wide);
    free(scratch);
}

static const unsigned char some_tokens[12] = {0, 255, 7, 7, 9, 13, 200, 255, 0, 1, 2, 3};

static double loss_objective(double *const *in, void *arg)
{
    (void)arg;
    return ref_loss(in[0], some_tokens, 12, 256);
}

TEST(ops, loss_matches_the_reference_and_its_differences)
{
    enum { N = 12 * 256 };
    static float logits[N], gradient[N];
    fill(logits, N, 4, 1);
    double *wide = widen(logits, N);
    FOR_EACH_BUILD(ops)
    {
        memcpy(gradient, logits, sizeof gradient);
        const double loss = ops->loss(gradient, some_tokens, 12, 256);
        CHECK(fabs(loss / ref_loss(wide, some_tokens, 12, 256) - 1) < 1e-6);
        const struct input inputs[] = {{"logits", logits, gradient, N}};
        check_gradients("loss", inputs, 1, loss_objective, NULL);
    }
    free(wide);
}

static double embed_objective(double *const *in, void *arg)
{
    double x[12 * 9];
    ref_embed(x, some_tokens, in[0], in[1], 2, 6, 9);
    return dot(x, arg, 12 * 9);
}

TEST(ops, embedding_matches_the_reference_and_its_differences)
{
    static float tokens[256 * 9], places[6 * 9], x[12 * 9], dx[12 * 9];
    static float dtokens[256 * 9], dplaces[6 * 9];
    fill(tokens, 256 * 9, 1, 1);
    fill(places, 6 * 9, 1, 2);
    fill(dx, 12 * 9, 1, 3);
    double *tt = widen(tokens, 256 * 9), *pp = widen(places, 6 * 9), xx[12 * 9];
    FOR_EACH_BUILD(ops)
    {
        ops->embed_forward(x, some_tokens, tokens, places, 2, 6, 9);
        ref_embed(xx, some_tokens, tt, pp, 2, 6, 9);
        CHECK(difference(x, xx, 12 * 9) < 1e-6);
        memset(dtokens, 0, sizeof dtokens);
        memset(dplaces, 0, sizeof dplaces);
        ops->embed_backward(dtokens, dplaces, dx, some_tokens, 2, 6, 9);
        const struct input inputs[] = {{"tokens", tokens, dtokens, 256 * 9},
                                       {"places", places, dplaces, 6 * 9}};
        check_gradients("embedding", inputs, 2, embed_objective, dx);
    }
    free(tt);
    free(pp);
}

TEST(ops, backward_adds_to_the_gradients_of_parameters)
{
    float x[ROWS * IN], w[OUT * IN], dy[ROWS * OUT], dx[ROWS * IN],
        once[OUT * IN] = {0}, twice[OUT * IN] = {0}, db[OUT] = {0};
    fill(x, ROWS * IN, 1, 1);
    fill(w, OUT * IN, 1, 2);
    fill(dy, ROWS * OUT, 1, 3);
    const struct tr_ops *ops = tr_ops_choose("");
    ops->linear_backward(dx, once, db, dy, x, w, ROWS, IN, OUT);
    for (int i = 0; i < 2; ++i) ops->linear_backward(dx, twice, db, dy, x, w, ROWS, IN, OUT);
    double *expected = widen(once, OUT * IN);
    for (int i = 0; i < OUT * IN; ++i) expected[i] *= 2;
    CHECK(difference(twice, expected, OUT * IN) < 1e-6);
    free(expected);
}

TEST(ops, sum_of_squares_is_taken_in_double)
{
    enum { N = 100003 };
    float *x = malloc(N * sizeof *x);
    fill(x, N, 1000, 1);
    double expected = 0;
    for (int i = 0; i < N; ++i) expected += (double)x[i] * (double)x[i];
    FOR_EACH_BUILD(ops) CHECK(fabs(ops->sum_of_squares(x, N) / expected - 1) < 1e-12);
    free(x);
}
