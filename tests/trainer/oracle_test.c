/* The oracle's operations, models and optimizers against values worked out by hand. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "oracle.h"
#include "oracle_ops.h"
#include "shim.h"

static void check_near(double value, double expected, const char *what)
{
    CHECK_MESSAGE(fabs(value - expected) <= 1e-12 * fmax(1, fabs(expected)),
                  "%s is %.15g, expected %.15g", what, value, expected);
}
#define NEAR(value, expected) check_near(value, expected, #value)

TEST(oracle, linear_multiplies_by_the_transposed_weights_and_adds_the_bias)
{
    const double x[2][3] = {{1, 2, 3}, {4, 5, 6}};
    const double w[2][3] = {{1, 0, -1}, {2, 10, 100}}, b[2] = {0.5, 7};
    double y[2][2];
    oracle_linear(&y[0][0], &x[0][0], &w[0][0], b, 2, 3, 2);
    NEAR(y[0][0], -1.5);
    NEAR(y[0][1], 329);
    NEAR(y[1][0], -1.5);
    NEAR(y[1][1], 665);
}

/* x = (3, 1): mean 2, variance 1, mean of squares 5. */
TEST(oracle, norms_divide_by_the_root_of_variance_or_mean_square_plus_epsilon)
{
    const double x[2] = {3, 1}, gamma[2] = {10, 100}, beta[2] = {1, 2};
    double y[2];
    oracle_layer_norm(y, x, gamma, beta, 1, 2);
    NEAR(y[0], 10 / sqrt(1.00001) + 1);
    NEAR(y[1], -100 / sqrt(1.00001) + 2);
    oracle_rms_norm(y, x, gamma, 1, 2);
    NEAR(y[0], 30 / sqrt(5.00001));
    NEAR(y[1], 100 / sqrt(5.00001));
}

/* tanh(sqrt(2 / pi) * 1.044715) = 0.682384, and 1 / (1 + e^-1) = 0.731059. */
TEST(oracle, gelu_and_silu_have_their_known_values)
{
    CHECK(fabs(oracle_gelu(1) - 0.8411919906) < 1e-9);
    CHECK(fabs(oracle_gelu(-1) + 0.1588080094) < 1e-9);
    CHECK(fabs(oracle_silu(1) - 0.7310585786) < 1e-9);
    CHECK(fabs(oracle_silu(-1) + 0.2689414214) < 1e-9);
    NEAR(oracle_gelu(0), 0);
    NEAR(oracle_silu(0), 0);
}

/* Two heads of four: the pairs are (0, 2) and (1, 3), which turn by row and by row / 100. */
TEST(oracle, rope_turns_the_two_halves_of_a_head_against_each_other)
{
    double x[3][2][4];
    for (int r = 0; r < 3; ++r)
        for (int h = 0; h < 2; ++h) memcpy(x[r][h], (double[]){1, 2, 3, 4}, sizeof x[r][h]);
    oracle_rope(&x[0][0][0], 3, 2, 4, 10000, +1);
    for (int r = 0; r < 3; ++r) {
        for (int h = 0; h < 2; ++h) {
            NEAR(x[r][h][0], 1 * cos(r) - 3 * sin(r));
            NEAR(x[r][h][1], 2 * cos(r / 100.0) - 4 * sin(r / 100.0));
            NEAR(x[r][h][2], 1 * sin(r) + 3 * cos(r));
            NEAR(x[r][h][3], 2 * sin(r / 100.0) + 4 * cos(r / 100.0));
        }
    }
    oracle_rope(&x[0][0][0], 3, 2, 4, 10000, -1);
    for (int i = 0; i < 4; ++i) NEAR(x[2][1][i], i + 1);
}

/* Four query heads of one element on two kv heads: heads 0 and 1 use kv head 0. Row 0 sees itself
 * only, so its output is the value of the kv head; row 1 weighs both values by e^(q k). */
TEST(oracle, attention_weighs_the_values_of_the_group_by_softmax)
{
    const struct oracle_attention a = {.rows = 2, .heads = 4, .kv_heads = 2, .size = 1};
    const double q[2][4] = {{1, 1, 1, 1}, {2, 0, 1, -1}};
    const double k[2][2] = {{0.5, 3}, {-1, 1}}, v[2][2] = {{3, 7}, {5, 11}};
    double out[2][4], p[4][2][2];
    oracle_attend(&out[0][0], &p[0][0][0], &q[0][0], &k[0][0], &v[0][0], &a);
    const double first[4] = {3, 3, 7, 7};
    for (int h = 0; h < 4; ++h) {
        NEAR(out[0][h], first[h]);
        NEAR(p[h][0][0], 1);
        NEAR(p[h][0][1], 0);
    }
    NEAR(out[1][0], (3 * exp(1) + 5 * exp(-2)) / (exp(1) + exp(-2)));
    NEAR(out[1][1], 4);
    NEAR(out[1][2], (7 * exp(3) + 11 * exp(1)) / (exp(3) + exp(1)));
    NEAR(out[1][3], (7 * exp(-3) + 11 * exp(-1)) / (exp(-3) + exp(-1)));
}

/* q . k is 8 and 4, divided by sqrt(4): the weights are e^4 and e^2. */
TEST(oracle, attention_divides_the_scores_by_the_root_of_the_head_size)
{
    const struct oracle_attention a = {.rows = 2, .heads = 1, .kv_heads = 1, .size = 4};
    const double q[2][4] = {{0}, {1, 1, 1, 1}}, k[2][4] = {{2, 2, 2, 2}, {1, 1, 1, 1}};
    const double v[2][4] = {{1, 0, 2, 0}, {0, 1, 0, -2}};
    double out[2][4], p[2][2];
    oracle_attend(&out[0][0], &p[0][0], &q[0][0], &k[0][0], &v[0][0], &a);
    const double first = exp(4) / (exp(4) + exp(2));
    NEAR(p[1][0], first);
    NEAR(out[1][0], first);
    NEAR(out[1][1], 1 - first);
    NEAR(out[1][2], 2 * first);
    NEAR(out[1][3], -2 * (1 - first));
}

/* Logits log 1, log 2, log 5: probabilities 1/8, 2/8, 5/8. */
TEST(oracle, cross_entropy_is_the_weighted_logarithm_of_the_probability)
{
    double logits[3] = {log(1) + 1000, log(2) + 1000, log(5) + 1000};
    NEAR(oracle_cross_entropy(logits, 3, 1, 0.5), 0.5 * log(4));
    NEAR(logits[0], 0.5 / 8);
    NEAR(logits[1], 0.5 * (2.0 / 8 - 1));
    NEAR(logits[2], 0.5 * 5 / 8);
}

/* Sets a parameter's elements; all others are left alone. */
static void set(const struct oracle *model, double *weights, const char *name, const double *values)
{
    const struct oracle_param *param = oracle_find(model, name);
    memcpy(weights + param->offset, values, (size_t)param->count * sizeof *values);
}

/* Blocks whose matrices are zero add nothing. Row 0 is (2, 0) + (1, 1) = (3, 1), row 1 is (2, 0) +
 * (-3, 1) = (-1, 1): both have variance 1, so the norm gives +-c. Tied logits: 2 times that. */
TEST(oracle, gpt2_without_blocks_adds_the_places_and_reads_the_table_as_head)
{
    struct oracle model;
    REQUIRE(oracle_init(
        &model, (struct oracle_shape){ORACLE_GPT2, 2, 1, 1, 2, 3, 2, 2, true, 0, ORACLE_GELU}));
    double *w = calloc((size_t)model.total, sizeof *w);
    set(&model, w, "token.weight", (double[]){2, 0, 0, 2});
    set(&model, w, "place.weight", (double[]){1, 1, -3, 1});
    set(&model, w, "norm.weight", (double[]){1, 1});
    const struct oracle_batch batch = {(int32_t[]){0, 0}, (int32_t[]){1, 1}, (double[]){1, 10}, 1,
                                       2};
    const double c = 1 / sqrt(1.00001);
    NEAR(oracle_loss(&model, w, NULL, &batch), log(1 + exp(4 * c)) + 10 * log(1 + exp(-4 * c)));
    set(&model, w, "norm.bias", (double[]){0.5, -0.25});
    NEAR(oracle_loss(&model, w, NULL, &batch),
         log(1 + exp(4 * c + 1.5)) + 10 * log(1 + exp(-4 * c + 1.5)));
    free(w);
    oracle_fini(&model);
}

/* The only row is (3, 1); its root of the mean square is sqrt 5. */
TEST(oracle, llama_without_blocks_reads_a_head_of_its_own)
{
    struct oracle model;
    REQUIRE(oracle_init(&model, (struct oracle_shape){ORACLE_LLAMA, 2, 1, 1, 2, 3, 2, 2, false,
                                                      10000, ORACLE_GELU}));
    double *w = calloc((size_t)model.total, sizeof *w);
    set(&model, w, "token.weight", (double[]){3, 1, 0, 0});
    set(&model, w, "norm.weight", (double[]){1, 2});
    set(&model, w, "head.weight", (double[]){1, 0, 0, 5});
    const struct oracle_batch batch = {(int32_t[]){0}, (int32_t[]){0}, (double[]){1}, 1, 1};
    NEAR(oracle_loss(&model, w, NULL, &batch), log(1 + exp((10 - 3) / sqrt(5.00001))));
    free(w);
    oracle_fini(&model);
}

TEST(oracle, zero_weights_find_every_token_equally_likely)
{
    for (int kind = 0; kind < 2; ++kind) {
        struct oracle model;
        REQUIRE(
            oracle_init(&model, (struct oracle_shape){kind ? ORACLE_LLAMA : ORACLE_GPT2, 1, 2, 1, 4,
                                                      3, 13, 3, kind, 10000, ORACLE_GELU}));
        double *w = calloc((size_t)model.total, sizeof *w);
        const struct oracle_batch batch = {(int32_t[]){1, 2, 3}, (int32_t[]){2, 3, 12},
                                           (double[]){1, 0, 0.5}, 1, 3};
        NEAR(oracle_loss(&model, w, NULL, &batch), 1.5 * log(13));
        free(w);
        oracle_fini(&model);
    }
}

TEST(oracle, lists_parameters_in_the_order_of_the_forward_pass)
{
    static const char *const names[] = {"token.weight",
                                        "blocks.0.norm1.weight",
                                        "blocks.0.attention.q.weight",
                                        "blocks.0.attention.k.weight",
                                        "blocks.0.attention.v.weight",
                                        "blocks.0.attention.proj.weight",
                                        "blocks.0.norm2.weight",
                                        "blocks.0.mlp.gate.weight",
                                        "blocks.0.mlp.up.weight",
                                        "blocks.0.mlp.down.weight",
                                        "norm.weight",
                                        "head.weight"};
    static const long shapes[][2] = {{11, 12}, {12, 0}, {12, 12}, {6, 12}, {6, 12}, {12, 12},
                                     {12, 0},  {5, 12}, {5, 12},  {12, 5}, {12, 0}, {11, 12}};
    struct oracle model;
    REQUIRE(oracle_init(&model, (struct oracle_shape){ORACLE_LLAMA, 1, 6, 3, 12, 5, 11, 8, false,
                                                      10000, ORACLE_GELU}));
    REQUIRE(model.nparams == 12);
    long offset = 0;
    for (int p = 0; p < model.nparams; ++p) {
        CHECK_STR(model.params[p].name, names[p]);
        CHECK_EQ(model.params[p].rows, shapes[p][0]);
        CHECK_EQ(model.params[p].cols, shapes[p][1]);
        CHECK_EQ(model.params[p].offset, offset);
        CHECK_EQ(model.params[p].decay, p != 0 && shapes[p][1] != 0);
        offset += shapes[p][0] * (shapes[p][1] ? shapes[p][1] : 1);
    }
    CHECK_EQ(model.total, offset);
    oracle_fini(&model);
    REQUIRE(oracle_init(
        &model, (struct oracle_shape){ORACLE_GPT2, 3, 6, 6, 12, 5, 11, 8, true, 0, ORACLE_GELU}));
    CHECK_EQ(model.nparams, 2 + 3 * 16 + 2);
    CHECK(!oracle_find(&model, "place.weight")->decay);
    CHECK_EQ(oracle_find(&model, "place.weight")->rows, 8);
    CHECK_EQ(oracle_find(&model, "blocks.2.mlp.up.bias")->rows, 5);
    CHECK(!oracle_find(&model, "blocks.0.mlp.gate.weight"));
    oracle_fini(&model);
}

TEST(oracle, refuses_shapes_that_are_no_model)
{
    const struct oracle_shape good = {ORACLE_LLAMA, 1, 4,     2,     16,         5,
                                      11,           8, false, 10000, ORACLE_GELU};
    struct oracle_shape bad[5] = {good, good, good, good, good};
    bad[0].heads = 3;
    bad[1].kv_heads = 3;
    bad[2].width = 12;
    bad[3].layers = 0;
    bad[4].theta = 0;
    struct oracle model;
    for (int i = 0; i < 5; ++i) CHECK(!oracle_init(&model, bad[i]));
    CHECK(oracle_init(&model, good));
    oracle_fini(&model);
}

/* Two parameters of one element: the first decays, the second does not. */
static struct oracle two_scalars(struct oracle_param params[2])
{
    params[0] = (struct oracle_param){"matrix", 1, 1, 1, 0, true};
    params[1] = (struct oracle_param){"vector", 1, 0, 1, 1, false};
    return (struct oracle){.params = params, .nparams = 2, .total = 2};
}

/* beta1 1/2, beta2 3/4, no epsilon. Step 1, gradient 2 * 1/2 = 1: m 1/2 (corrected 1), v 1/4
 * (corrected 1): the step is lr * 1. Step 2, gradient -3: m 1/4 - 3/2 = -5/4 (corrected by 3/4:
 * -5/3), v 3/16 + 9/4 = 39/16 (corrected by 7/16: 39/7). */
TEST(oracle, adamw_takes_two_steps_as_worked_out_by_hand)
{
    struct oracle_param params[2];
    const struct oracle model = two_scalars(params);
    struct oracle_adamw adamw = {
        .lr = 0.1, .beta1 = 0.5, .beta2 = 0.75, .decay = 0.5, .scale = 0.5};
    double w[2] = {2, 2}, m[2] = {0}, v[2] = {0};
    oracle_adamw_step(&model, w, (double[]){2, 2}, m, v, 1, &adamw);
    NEAR(w[0], 2 - 0.1 * 0.5 * 2 - 0.1);
    NEAR(w[1], 1.9);
    adamw.lr = 1;
    oracle_adamw_step(&model, w, (double[]){-6, -6}, m, v, 2, &adamw);
    NEAR(m[0], -5.0 / 4);
    NEAR(v[0], 39.0 / 16);
    NEAR(w[0], 1.8 - 0.5 * 1.8 + 5.0 / 3 / sqrt(39.0 / 7));
    NEAR(w[1], 1.9 + 5.0 / 3 / sqrt(39.0 / 7));
}

/* Epsilon is added to the root, after the correction: 1 / (1 + 1). */
TEST(oracle, adamw_adds_epsilon_to_the_corrected_root)
{
    struct oracle_param params[2];
    const struct oracle model = two_scalars(params);
    const struct oracle_adamw adamw = {1, 0.5, 0.75, .eps = 1, .decay = 0, .scale = 1};
    double w[2] = {0, 0}, m[2] = {0}, v[2] = {0};
    oracle_adamw_step(&model, w, (double[]){1, -1}, m, v, 1, &adamw);
    NEAR(w[0], -0.5);
    NEAR(w[1], 0.5);
}

/* momentum 1/2, lr 1/10. Step 1: m = 1. Step 2: m = 1/2 - 3. */
TEST(oracle, sgd_takes_two_steps_as_worked_out_by_hand)
{
    struct oracle_param params[2];
    const struct oracle model = two_scalars(params);
    const struct oracle_sgd sgd = {.lr = 0.1, .momentum = 0.5, .decay = 0.5, .scale = 0.5};
    double w[2] = {2, 2}, m[2] = {0};
    oracle_sgd_step(&model, w, (double[]){2, 2}, m, &sgd);
    NEAR(w[0], 1.8);
    NEAR(w[1], 1.9);
    oracle_sgd_step(&model, w, (double[]){-6, -6}, m, &sgd);
    NEAR(m[0], -2.5);
    NEAR(w[0], 1.8 - 0.1 * 0.5 * 1.8 + 0.25);
    NEAR(w[1], 2.15);
}

TEST(oracle, clipping_shortens_only_gradients_that_are_too_long)
{
    struct oracle_param params[2];
    const struct oracle model = two_scalars(params);
    NEAR(oracle_norm(&model, (double[]){-6, 8}, 0.5), 5);
    NEAR(oracle_clip(5, 6), 1);
    NEAR(oracle_clip(5, 0), 1);
    NEAR(oracle_clip(5, 2), 2 / 5.000001);
}
