/* Tests of AdamW, the learning rate, clipping and layouts. */
#include <math.h>
#include <string.h>

#include "optim/optim.h"
#include "parallel/ddp.h"
#include "reference.h"
#include "shim.h"

TEST(optim, adamw_matches_its_formula_in_double)
{
    enum { N = 53, STEPS = 20 };
    struct tr_config config;
    tr_config_init(&config);
    struct tr_params params = {0};
    REQUIRE(tr_param_add(&params, "vector", N, 0, 0, 0) == 0);
    REQUIRE(tr_param_add(&params, "matrix", N, 1, 0, 0) == 1);
    float w[128] = {0}, g[128] = {0}, m[128] = {0}, v[128] = {0};
    double ww[128], mm[128] = {0}, vv[128] = {0};
    fill(w, 128, 1, 1);
    for (int i = 0; i < 128; ++i) ww[i] = (double)w[i];
    for (int t = 1; t <= STEPS; ++t) {
        const double lr = 0.01 * t, scale = 0.5;
        fill(g, 128, 1, (uint64_t)(100 + t));
        tr_adamw_step(tr_ops_choose(""), &params, &config, w, g, m, v, t, lr, scale);
        for (int p = 0; p < 2; ++p) {
            for (size_t k = 0; k < N; ++k) {
                const size_t i = params.items[p].offset + k;
                const double gradient = (double)g[i] * scale;
                mm[i] = config.beta1 * mm[i] + (1 - config.beta1) * gradient;
                vv[i] = config.beta2 * vv[i] + (1 - config.beta2) * gradient * gradient;
                const double mean = mm[i] / (1 - pow(config.beta1, t));
                const double square = vv[i] / (1 - pow(config.beta2, t));
                ww[i] -= lr * (mean / (sqrt(square) + config.eps) + (p ? config.decay : 0) * ww[i]);
            }
        }
    }
    for (int p = 0; p < 2; ++p) {
        const size_t at = params.items[p].offset;
        CHECK(difference(w + at, ww + at, N) < 1e-5);
        CHECK(difference(m + at, mm + at, N) < 1e-5);
        CHECK(difference(v + at, vv + at, N) < 1e-5);
    }
    tr_params_fini(&params);
}

TEST(optim, schedule_rises_then_falls_to_the_last_rate)
{
    struct tr_config config;
    tr_config_init(&config);
    config.lr = 1;
    config.min_lr = 0.1;
    config.warmup = 10;
    CHECK(fabs(tr_rate_of(&config, 0, 0) - 0.1) < 1e-12);
    CHECK(fabs(tr_rate_of(&config, 9, 0) - 1) < 1e-12);
    CHECK(fabs(tr_rate_of(&config, 10, tr_rate_progress(&config, 10, 110, 0)) - 1) < 1e-12);
    CHECK(fabs(tr_rate_of(&config, 60, tr_rate_progress(&config, 60, 110, 0)) - 0.55) <
          1e-12);
    CHECK(fabs(tr_rate_of(&config, 110, tr_rate_progress(&config, 110, 110, 0)) - 0.1) <
          1e-12);
    double before = 2;
    for (int64_t step = 10; step <= 110; ++step) {
        const double lr =
            tr_rate_of(&config, step, tr_rate_progress(&config, step, 110, 0));
        CHECK(lr < before);
        before = lr;
    }
}

TEST(optim, a_time_budget_takes_the_schedule_to_its_end)
{
    struct tr_config config;
    tr_config_init(&config);
    config.seconds = 10;
    CHECK(tr_rate_progress(&config, 100, 0, 5) == 0.5);
    CHECK(tr_rate_progress(&config, 100, 0, 50) == 1);
    CHECK(tr_rate_progress(&config, 100, 0, 0) == 0);
}

TEST(optim, clipping_shortens_only_what_is_too_long)
{
    CHECK(tr_clip_coefficient(0.5, 1) == 1);
    CHECK(tr_clip_coefficient(50, 0) == 1);
    CHECK(fabs(tr_clip_coefficient(4, 1) - 0.25) < 1e-6);
}

TEST(layout, slices_are_balanced_and_cover_everything)
{
    for (long n = 1; n < 40; ++n) {
        for (int parts = 1; parts <= 9; ++parts) {
            long next = 0;
            for (int part = 0; part < parts; ++part) {
                long first, count;
                tr_layout_slice(n, parts, part, &first, &count);
                CHECK_EQ(first, next);
                CHECK(count == n / parts || count == n / parts + 1);
                next += count;
            }
            CHECK_EQ(next, n);
        }
    }
}

TEST(layout, the_gradient_of_a_replicated_weight_is_partial_where_the_batch_is_cut)
{
    const struct tr_layout weight = {0}, gradient = tr_layout_gradient(weight, tr_layout_batch);
    for (int axis = 0; axis < TR_NUM_AXES; ++axis)
        CHECK(
            tr_layout_is(&gradient, (enum tr_axis)axis, axis == TR_DP ? TR_PARTIAL : TR_REPLICATE));
}

TEST(ddp, buckets_cover_every_gradient_once_from_the_last_to_the_first)
{
    struct tr_gpt gpt;
    REQUIRE(tr_gpt_init(&gpt, (struct tr_gpt_size){3, 2, 16, 8}, tr_ops_choose("")) == TR_OK);
    struct tr_mesh mesh = {.nranks = 2};
    for (int axis = 0; axis < TR_NUM_AXES; ++axis) mesh.size[axis] = axis == TR_DP ? 2 : 1;
    for (size_t bytes = 1; bytes < 1 << 20; bytes *= 4) {
        struct tr_ddp ddp;
        REQUIRE(tr_ddp_init(&ddp, &mesh, &gpt.params, NULL, bytes) == TR_OK);
        size_t end = gpt.params.total;
        int nparams = 0;
        for (int b = 0; b < ddp.nbuckets; ++b) {
            const struct tr_bucket *bucket = &ddp.buckets[b];
            CHECK_EQ(bucket->offset + bucket->count, end);
            CHECK(bucket->count * 4 >= bytes || b == ddp.nbuckets - 1);
            end = bucket->offset;
            nparams += bucket->nparams;
        }
        CHECK_EQ(end, 0);
        CHECK_EQ(nparams, gpt.params.n);
        tr_ddp_fini(&ddp);
    }
    tr_gpt_fini(&gpt);
}

TEST(ddp, one_rank_has_no_buckets)
{
    struct tr_gpt gpt;
    REQUIRE(tr_gpt_init(&gpt, (struct tr_gpt_size){1, 2, 16, 8}, tr_ops_choose("")) == TR_OK);
    struct tr_mesh mesh = {.nranks = 1};
    for (int axis = 0; axis < TR_NUM_AXES; ++axis) mesh.size[axis] = 1;
    struct tr_ddp ddp;
    REQUIRE(tr_ddp_init(&ddp, &mesh, &gpt.params, NULL, 4096) == TR_OK);
    CHECK_EQ(ddp.nbuckets, 0);
    tr_ddp_fini(&ddp);
    tr_gpt_fini(&gpt);
}
