/* The oracle's analytic gradients against finite differences of its loss, and what a sum of
 * weighted token losses must satisfy. */
#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "oracle.h"
#include "shim.h"

enum { BATCH = 3, LENGTH = 6, TOKENS = BATCH * LENGTH };

/* How the tokens of a bench are weighted. */
enum mask { EVERY_TOKEN, SOME_TOKENS, NO_TOKEN };

struct bench {
    struct oracle model;
    double *weights, *gradients;
    int32_t ids[TOKENS], targets[TOKENS];
    double token_weights[TOKENS];
    struct oracle_batch batch;
};

/* A pseudorandom number in [0, n), from a linear congruential generator. */
static long draw(uint64_t *state, long n)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (long)((*state >> 33) % (uint64_t)n);
}

/* SOME_TOKENS: unequal weights; the first sequence has masked tokens in the middle and at its end,
 * the second has no token that counts. */
static void set_mask(struct bench *b, enum mask mask)
{
    static const double some[TOKENS] = {1, 0, 0.25, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 0, 1, 0.5};
    for (long i = 0; i < TOKENS; ++i)
        b->token_weights[i] = mask == EVERY_TOKEN ? 1 : mask == SOME_TOKENS ? some[i] : 0;
}

static bool setup(struct bench *b, const struct oracle_shape *shape, enum mask mask)
{
    memset(b, 0, sizeof *b);
    if (!oracle_init(&b->model, *shape)) return false;
    b->weights = calloc((size_t)b->model.total, sizeof(double));
    b->gradients = calloc((size_t)b->model.total, sizeof(double));
    oracle_fill(&b->model, b->weights, 9);
    uint64_t state = 1;
    for (long i = 0; i < TOKENS; ++i) b->ids[i] = (int32_t)draw(&state, shape->vocabulary);
    for (long i = 0; i < TOKENS; ++i) b->targets[i] = (int32_t)draw(&state, shape->vocabulary);
    set_mask(b, mask);
    b->batch = (struct oracle_batch){b->ids, b->targets, b->token_weights, BATCH, LENGTH};
    return true;
}

static void teardown(struct bench *b)
{
    free(b->weights);
    free(b->gradients);
    oracle_fini(&b->model);
}

static double loss_at(struct bench *b, long i, double weight)
{
    const double before = b->weights[i];
    b->weights[i] = weight;
    const double loss = oracle_loss(&b->model, b->weights, NULL, &b->batch);
    b->weights[i] = before;
    return loss;
}

/* The central difference with four points: its error is h^4 / 30 times the fifth derivative, and
 * 1e-16 * loss / h of rounding. */
static double numeric_gradient(struct bench *b, long i)
{
    const double h = 1e-3, w = b->weights[i];
    const double near = loss_at(b, i, w + h) - loss_at(b, i, w - h);
    const double far = loss_at(b, i, w + 2 * h) - loss_at(b, i, w - 2 * h);
    return (8 * near - far) / (12 * h);
}

static double largest_of(const double *x, long n)
{
    double most = 0;
    for (long i = 0; i < n; ++i) most = fmax(most, fabs(x[i]));
    return most;
}

/* In GPT-2 a bias of the keys adds the same number to all scores of a query, which softmax ignores:
 * its gradient is 0. */
static bool is_ignored(const struct bench *b, const struct oracle_param *param)
{
    return b->model.shape.kind == ORACLE_GPT2 && strstr(param->name, "attention.k.bias");
}

/* Tolerance: 1e-7 of the tensor's largest gradient and 1e-9 of the model's, a hundredth of what the
 * gradient grid allows; the differences themselves are exact to about 1e-9. */
static void check_tensor(struct bench *b, const struct oracle_param *param, const char *what)
{
    enum { ALL_UP_TO = 48, SAMPLES = 12 };
    const double of_model = largest_of(b->gradients, b->model.total);
    const double of_tensor = largest_of(b->gradients + param->offset, param->count);
    const bool all = param->count <= ALL_UP_TO;
    uint64_t state = (uint64_t)param->offset;
    for (long n = 0; n < (all ? param->count : SAMPLES); ++n) {
        const long i = param->offset + (all ? n : draw(&state, param->count));
        const double numeric = numeric_gradient(b, i);
        CHECK_MESSAGE(fabs(numeric - b->gradients[i]) <= 1e-7 * of_tensor + 1e-9 * of_model,
                      "%s: %s[%ld]: gradient %.12g, by differences %.12g; its largest is %g", what,
                      param->name, i - param->offset, b->gradients[i], numeric, of_tensor);
    }
    if (is_ignored(b, param))
        CHECK_MESSAGE(of_tensor < 1e-12 * of_model, "%s: %s: gradient %g, expected 0", what,
                      param->name, of_tensor);
    else
        CHECK_MESSAGE(of_tensor > 1e-3 * of_model, "%s: %s: largest gradient %g of %g: not used?",
                      what, param->name, of_tensor, of_model);
}

static void check_gradients(const struct oracle_shape *shape, enum mask mask)
{
    struct bench b;
    char what[128];
    snprintf(what, sizeof what, "layers %ld heads %ld/%ld width %ld/%ld vocabulary %ld %s mask %d",
             shape->layers, shape->heads, shape->kv_heads, shape->width, shape->hidden,
             shape->vocabulary, shape->tied ? "tied" : "untied", mask);
    REQUIRE(setup(&b, shape, mask));
    const double loss = oracle_loss(&b.model, b.weights, b.gradients, &b.batch);
    CHECK_MESSAGE(isfinite(loss) && loss > 0, "%s: loss %g", what, loss);
    for (int p = 0; p < b.model.nparams; ++p) check_tensor(&b, &b.model.params[p], what);
    teardown(&b);
}

/* layers, heads, kv heads, width, hidden, vocabulary, context, tied, theta */
#define GPT2(...)                                                                                  \
    {                                                                                              \
        ORACLE_GPT2, __VA_ARGS__, 0, ORACLE_GELU                                                   \
    }
#define LLAMA(...)                                                                                 \
    {                                                                                              \
        ORACLE_LLAMA, __VA_ARGS__, 10000, ORACLE_GELU                                              \
    }
static const struct oracle_shape gpt2[] = {
    GPT2(1, 2, 2, 8, 12, 11, 6, true), GPT2(1, 2, 2, 8, 12, 11, 6, false),
    GPT2(3, 4, 2, 12, 10, 7, 9, true), GPT2(2, 4, 1, 12, 16, 257, 6, false),
    GPT2(1, 7, 7, 14, 9, 3, 6, false), GPT2(2, 7, 1, 21, 10, 5, 7, true),
};
static const struct oracle_shape llama[] = {
    LLAMA(1, 2, 2, 8, 12, 11, 6, false), LLAMA(1, 2, 2, 8, 12, 11, 6, true),
    LLAMA(3, 4, 2, 16, 10, 7, 6, false), LLAMA(2, 4, 1, 8, 16, 257, 6, true),
    LLAMA(1, 7, 7, 14, 9, 3, 6, true),   LLAMA(2, 7, 1, 28, 10, 5, 6, false),
};
enum { SHAPES = sizeof gpt2 / sizeof gpt2[0] };
static_assert(SHAPES == sizeof llama / sizeof llama[0], "as many of both");

TEST(oracle_gradient, of_every_parameter_of_gpt2_is_the_slope_of_the_loss)
{
    for (int i = 0; i < SHAPES; ++i) {
        check_gradients(&gpt2[i], EVERY_TOKEN);
        check_gradients(&gpt2[i], SOME_TOKENS);
    }
}

TEST(oracle_gradient, of_every_parameter_of_llama_is_the_slope_of_the_loss)
{
    for (int i = 0; i < SHAPES; ++i) {
        check_gradients(&llama[i], EVERY_TOKEN);
        check_gradients(&llama[i], SOME_TOKENS);
    }
}

TEST(oracle_gradient, of_every_activation_is_the_slope_of_the_loss)
{
    struct oracle_shape shape = gpt2[0];
    for (int i = ORACLE_GELU; i <= ORACLE_RELU2; ++i) {
        shape.activation = (enum oracle_activation)i;
        check_gradients(&shape, SOME_TOKENS);
    }
}

TEST(oracle_gradient, without_a_token_that_counts_is_zero_like_the_loss)
{
    for (int i = 0; i < 2; ++i) {
        struct bench b;
        REQUIRE(setup(&b, i ? &llama[2] : &gpt2[2], NO_TOKEN));
        CHECK(oracle_loss(&b.model, b.weights, b.gradients, &b.batch) == 0);
        CHECK(largest_of(b.gradients, b.model.total) == 0);
        teardown(&b);
    }
}

TEST(oracle_gradient, adds_to_what_the_array_holds)
{
    struct bench b;
    REQUIRE(setup(&b, &gpt2[2], SOME_TOKENS));
    oracle_loss(&b.model, b.weights, b.gradients, &b.batch);
    double *twice = calloc((size_t)b.model.total, sizeof *twice);
    for (int i = 0; i < 2; ++i) oracle_loss(&b.model, b.weights, twice, &b.batch);
    for (long i = 0; i < b.model.total; ++i)
        CHECK(fabs(twice[i] - 2 * b.gradients[i]) <= 1e-12 * fabs(b.gradients[i]) + 1e-13);
    free(twice);
    teardown(&b);
}

/* Masking a token removes its loss and nothing else: its key and value stay. */
TEST(oracle_gradient, and_loss_are_sums_over_the_tokens_one_by_one)
{
    for (int kind = 0; kind < 2; ++kind) {
        struct bench b;
        REQUIRE(setup(&b, kind ? &llama[2] : &gpt2[2], EVERY_TOKEN));
        const double loss = oracle_loss(&b.model, b.weights, b.gradients, &b.batch);
        double *sum = calloc((size_t)b.model.total, sizeof *sum), losses = 0;
        for (long i = 0; i < TOKENS; ++i) {
            set_mask(&b, NO_TOKEN);
            b.token_weights[i] = 1;
            losses += oracle_loss(&b.model, b.weights, sum, &b.batch);
        }
        CHECK_MESSAGE(fabs(loss - losses) < 1e-12 * loss, "%.17g, not %.17g", losses, loss);
        const double most = largest_of(b.gradients, b.model.total);
        for (long i = 0; i < b.model.total; ++i)
            CHECK(fabs(sum[i] - b.gradients[i]) < 1e-12 * most);
        free(sum);
        teardown(&b);
    }
}

TEST(oracle_gradient, of_a_tied_table_is_that_of_the_table_plus_that_of_the_head)
{
    for (int kind = 0; kind < 2; ++kind) {
        struct oracle_shape shape = kind ? llama[2] : gpt2[2];
        struct bench tied, untied;
        shape.tied = true;
        REQUIRE(setup(&tied, &shape, SOME_TOKENS));
        shape.tied = false;
        REQUIRE(setup(&untied, &shape, SOME_TOKENS));
        const struct oracle_param *table = oracle_find(&untied.model, "token.weight"),
                                  *head = oracle_find(&untied.model, "head.weight");
        CHECK(!oracle_find(&tied.model, "head.weight"));
        memcpy(untied.weights + head->offset, untied.weights + table->offset,
               (size_t)table->count * sizeof(double));
        const double a = oracle_loss(&tied.model, tied.weights, tied.gradients, &tied.batch);
        const double b =
            oracle_loss(&untied.model, untied.weights, untied.gradients, &untied.batch);
        CHECK(fabs(a - b) < 1e-12 * a);
        for (long i = 0; i < table->count; ++i)
            CHECK(fabs(tied.gradients[table->offset + i] - untied.gradients[table->offset + i] -
                       untied.gradients[head->offset + i]) < 1e-12);
        teardown(&tied);
        teardown(&untied);
    }
}

/* Finite differences cannot see a part that is missing forward and backward alike. The expected
 * values come from the definitions written in JAX 0.10 (float64, jax.nn functions, its own
 * derivatives). */
TEST(oracle_gradient, and_loss_are_those_that_jax_computes)
{
    static const struct {
        struct oracle_shape shape;
        double loss, norm;
    } cases[] = {
        {GPT2(2, 4, 4, 16, 20, 31, 9, true), 108.992998613093, 72.578248632512},
        {GPT2(3, 7, 1, 21, 20, 11, 9, false), 77.231403403058, 97.423443397403},
        {LLAMA(2, 4, 2, 16, 20, 31, 9, false), 109.112589360487, 99.154833091575},
        {LLAMA(3, 7, 7, 28, 11, 13, 9, true), 74.782081877265, 114.296089655825},
    };
    for (int c = 0; c < 4; ++c) {
        struct oracle model;
        REQUIRE(oracle_init(&model, cases[c].shape));
        double *weights = calloc((size_t)model.total, sizeof *weights),
               *gradients = calloc((size_t)model.total, sizeof *gradients);
        oracle_fill(&model, weights, (uint64_t)c);
        int32_t ids[18], targets[18];
        double token_weights[18];
        for (int i = 0; i < 18; ++i) {
            ids[i] = (int32_t)((i * 5 + c) % model.shape.vocabulary);
            targets[i] = (int32_t)((i * 7 + 1) % model.shape.vocabulary);
            token_weights[i] = i % 4 == 3 ? 0 : 1 + i % 3;
        }
        const struct oracle_batch batch = {ids, targets, token_weights, 2, 9};
        const double loss = oracle_loss(&model, weights, gradients, &batch);
        const double norm = oracle_norm(&model, gradients, 1);
        CHECK_MESSAGE(fabs(loss - cases[c].loss) < 1e-10, "case %d: loss %.12f", c, loss);
        CHECK_MESSAGE(fabs(norm - cases[c].norm) < 1e-10, "case %d: norm %.12f", c, norm);
        free(weights);
        free(gradients);
        oracle_fini(&model);
    }
}
