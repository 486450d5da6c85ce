/* The whole model against the reference: its loss, and the gradient of every parameter tensor. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "model/gpt.h"
#include "reference.h"
#include "shim.h"

enum { BATCH = 2, CONTEXT = 6 };
static const unsigned char tokens[BATCH * CONTEXT] = "hello world";
static const unsigned char targets[BATCH * CONTEXT] = "ello world!";

/* A small model with weights large enough that every gradient counts. */
struct bench {
    struct tr_gpt gpt;
    struct tr_arena memory;
    struct tr_acts acts;
    float *weights, *gradients;
    int order[64]; /* parameters in the order backward finished them */
    int nready;
};

static void ready(void *arg, int param)
{
    struct bench *b = arg;
    b->order[b->nready++] = param;
}

static bool setup(struct bench *b)
{
    memset(b, 0, sizeof *b);
    const struct tr_gpt_size size = {2, 2, 12, CONTEXT};
    if (tr_gpt_init(&b->gpt, size, tr_ops_choose("")) < 0) return false;
    struct tr_arena count = {0};
    tr_gpt_take_acts(&b->gpt, &count, BATCH, &b->acts);
    if (tr_arena_create(&b->memory, "test", count.used, false) < 0) return false;
    tr_gpt_take_acts(&b->gpt, &b->memory, BATCH, &b->acts);
    b->weights = calloc(b->gpt.params.total, sizeof(float));
    b->gradients = calloc(b->gpt.params.total, sizeof(float));
    for (int p = 0; p < b->gpt.params.n; ++p)
        fill(b->weights + b->gpt.params.items[p].offset, (long)b->gpt.params.items[p].count, 0.6f,
             (uint64_t)p + 1);
    return true;
}

static void teardown(struct bench *b)
{
    free(b->weights);
    free(b->gradients);
    tr_arena_fini(&b->memory);
    tr_gpt_fini(&b->gpt);
}

static double run(struct bench *b)
{
    tr_gpt_forward(&b->gpt, b->weights, &b->acts, tokens, BATCH, CONTEXT);
    const double loss = b->gpt.ops->loss(b->acts.logits, targets, BATCH * CONTEXT, TR_VOCABULARY);
    const struct tr_ready_hook hook = {.ready = ready, .arg = b};
    tr_gpt_backward(&b->gpt, b->weights, b->gradients, &b->acts, tokens, BATCH, CONTEXT, &hook);
    return loss;
}

TEST(model, loss_and_every_gradient_match_the_reference)
{
    struct bench b;
    REQUIRE(setup(&b));
    const double loss = run(&b);
    double *w = widen(b.weights, (long)b.gpt.params.total);
    const double expected = ref_gpt_loss(&b.gpt, w, tokens, targets, BATCH, CONTEXT);
    CHECK_MESSAGE(fabs(loss / expected - 1) < 1e-6, "loss %.9g, expected %.9g", loss, expected);
    for (int p = 0; p < b.gpt.params.n; ++p) {
        const struct tr_param *param = &b.gpt.params.items[p];
        const size_t stride = param->count / 24 + 1;
        double most = 0, largest = 1e-30;
        for (size_t i = 0; i < param->count; i += stride) {
            const size_t at = param->offset + i;
            const double h = 1e-5, x = w[at];
            w[at] = x + h;
            const double above = ref_gpt_loss(&b.gpt, w, tokens, targets, BATCH, CONTEXT);
            w[at] = x - h;
            const double below = ref_gpt_loss(&b.gpt, w, tokens, targets, BATCH, CONTEXT);
            w[at] = x;
            const double numeric = (above - below) / (2 * h);
            most = fmax(most, fabs(numeric - (double)b.gradients[at]));
            largest = fmax(largest, fabs(numeric));
        }
        CHECK_MESSAGE(most < 5e-5 * fmax(largest, 0.01), "%s: off by %g, its largest is %g",
                      param->name, most, largest);
    }
    free(w);
    teardown(&b);
}

TEST(model, backward_reports_each_gradient_once_when_it_is_complete)
{
    struct bench b;
    REQUIRE(setup(&b));
    run(&b);
    REQUIRE(b.nready == b.gpt.params.n);
    bool seen[64] = {false};
    for (int i = 0; i < b.nready; ++i) {
        CHECK(!seen[b.order[i]]);
        seen[b.order[i]] = true;
    }
    CHECK_EQ(b.order[0], b.gpt.params.n - 1);
    CHECK_EQ(b.order[b.nready - 1], 0);
    teardown(&b);
}

TEST(model, a_shorter_context_gives_the_same_logits)
{
    struct bench b;
    REQUIRE(setup(&b));
    float last[TR_VOCABULARY];
    tr_gpt_forward(&b.gpt, b.weights, &b.acts, tokens, 1, CONTEXT);
    memcpy(last, b.acts.logits + 2 * TR_VOCABULARY, sizeof last);
    tr_gpt_forward(&b.gpt, b.weights, &b.acts, tokens, 1, 3);
    double *expected = widen(last, TR_VOCABULARY);
    CHECK(difference(b.acts.logits + 2 * TR_VOCABULARY, expected, TR_VOCABULARY) < 1e-5);
    free(expected);
    teardown(&b);
}

TEST(model, initial_weights_do_not_depend_on_the_rest_of_the_model)
{
    struct tr_gpt small, large;
    REQUIRE(tr_gpt_init(&small, (struct tr_gpt_size){1, 2, 8, 4}, tr_ops_choose("")) == TR_OK);
    REQUIRE(tr_gpt_init(&large, (struct tr_gpt_size){1, 2, 8, 64}, tr_ops_choose("")) == TR_OK);
    float *a = calloc(small.params.total, 4), *b = calloc(large.params.total, 4);
    tr_params_initialize(&small.params, a, 7);
    tr_params_initialize(&large.params, b, 7);
    const struct tr_param *pa = &small.params.items[small.head_w],
                          *pb = &large.params.items[large.head_w];
    CHECK(!memcmp(a + pa->offset, b + pb->offset, pa->count * sizeof *a));
    tr_params_initialize(&large.params, b, 8);
    CHECK(memcmp(a + pa->offset, b + pb->offset, pa->count * sizeof *a) != 0);
    free(a);
    free(b);
    tr_gpt_fini(&small);
    tr_gpt_fini(&large);
}

TEST(model, decay_is_for_matrices_but_not_embeddings)
{
    struct bench b;
    REQUIRE(setup(&b));
    for (int p = 0; p < b.gpt.params.n; ++p) {
        const struct tr_param *param = &b.gpt.params.items[p];
        const bool embedding = p == b.gpt.token_table || p == b.gpt.place_table;
        CHECK_EQ(param->decay, param->ndim == 2 && !embedding);
    }
    teardown(&b);
}

TEST(model, sampling_repeats_itself_and_takes_the_likeliest_when_cold)
{
    struct bench b;
    REQUIRE(setup(&b));
    unsigned char one[20], two[20];
    tr_gpt_sample(&b.gpt, b.weights, &b.acts, "ab", one, 20, 1, 5);
    tr_gpt_sample(&b.gpt, b.weights, &b.acts, "ab", two, 20, 1, 5);
    CHECK(!memcmp(one, two, 20));
    tr_gpt_sample(&b.gpt, b.weights, &b.acts, "ab", one, 20, 0, 5);
    tr_gpt_sample(&b.gpt, b.weights, &b.acts, "ab", two, 20, 0, 6);
    CHECK(!memcmp(one, two, 20));
    teardown(&b);
}

TEST(model, activations_take_the_memory_that_the_documentation_says)
{
    struct tr_gpt gpt;
    const struct tr_gpt_size size = {3, 4, 32, 16};
    REQUIRE(tr_gpt_init(&gpt, size, tr_ops_choose("")) == TR_OK);
    struct tr_arena count = {0};
    struct tr_acts acts;
    tr_gpt_take_acts(&gpt, &count, 5, &acts);
    const size_t rows = 5 * 16, layers = 3, width = 32, heads = 4;
    const size_t floats = rows * (layers * (16 * width + heads + 4) + 8 * width + 258) + 128 * 16;
    const size_t table = (layers * sizeof(struct tr_block_acts) + 63) / 64 * 64;
    CHECK_EQ(count.used, floats * sizeof(float) + table);
    tr_gpt_fini(&gpt);
}
