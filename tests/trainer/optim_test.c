/* Tests of the optimizers' step over shards, the learning rate, clipping and balanced slices. */
#include <math.h>
#include <string.h>

#include "floats.h"
#include "optim/optim.h"
#include "ops/share.h"
#include "parallel/whole.h"
#include "reference.h"
#include "setup.h"
#include "shim.h"

/* A vector and a matrix in one unit, of which the store has a shard from `first` on. */
enum { N = 53, FLOATS = 1024, STEPS = 20 };

struct bench {
    struct tr_mesh mesh;
    struct tr_params params;
    struct tr_unit_state state;
    struct tr_held held[2];
    struct tr_store store;
    double sums[8];
    float w[FLOATS], g[FLOATS], m[FLOATS], v[FLOATS];
    double ww[FLOATS], mm[FLOATS], vv[FLOATS];
};

static bool setup(struct bench *b, size_t first, size_t count)
{
    static const struct tr_layout whole = {-1, 0, 0};
    memset(b, 0, sizeof *b);
    tr_params_init(&b->params, tr_backend_choose(""), 1, 0, 1);
    tr_params_begin_unit(&b->params, "unit");
    if (tr_param_add(&b->params, "vector", N, 0, whole, 0, 0) != 0 ||
        tr_param_add(&b->params, "matrix", N, 1, whole, 0, 0) != 1)
        return false;
    tr_params_place(&b->params);
    b->state = (struct tr_unit_state){
        .first = first, .count = count, .masters = b->w, .gradient_shard = data_of(b->g)};
    b->mesh.nranks = 1;
    b->store = (struct tr_store){.mesh = &b->mesh,
                                 .params = &b->params,
                                 .units = &b->state,
                                 .nunits = 1,
                                 .held = b->held,
                                 .sums = b->sums};
    fill(b->w, FLOATS, 1, 1);
    for (int i = 0; i < FLOATS; ++i) b->ww[i] = (double)b->w[i];
    return true;
}

/* Gives the optimizer its states, which lie as the weights do. */
static void hold(struct bench *b, const struct tr_optimizer *how)
{
    const struct tr_rule *rule = tr_optimizer_rule(how);
    for (int p = 0; p < 2; ++p) {
        const struct tr_param *param = &b->params.items[p];
        const struct tr_subject subject = tr_param_subject(param);
        const struct tr_extract part = tr_param_within(param, b->state.first, b->state.count);
        struct tr_held *held = &b->held[p];
        const size_t at = param->offset + part.first - b->state.first;
        *held = (struct tr_held){.first = part.first, .count = part.count};
        held->nstates = rule->states(how, &subject, held->shapes);
        held->nsums = rule->nsums ? rule->nsums(how, &subject) : 0;
        held->sums = b->store.nsums;
        b->store.nsums += (size_t)held->nsums;
        for (int i = 0; i < held->nstates; ++i) held->states[i] = (i ? b->v : b->m) + at;
    }
}

/* Calls visit for each float of the shard that belongs to parameter 0 or 1. */
static void each(struct bench *b, const struct tr_optimizer *how, double scale,
                 void (*visit)(struct bench *b, size_t at, bool decays,
                               const struct tr_optimizer *how, double scale))
{
    for (int p = 0; p < 2; ++p)
        for (size_t k = 0; k < N; ++k) {
            const size_t at = b->params.items[p].offset + k;
            if (at >= b->state.first && at < b->state.first + b->state.count)
                visit(b, at - b->state.first, p == 1, how, scale);
        }
}

static void adamw(struct bench *b, size_t i, bool decays, const struct tr_optimizer *how,
                  double scale)
{
    const double g = (double)b->g[i] * scale, t = (double)how->t;
    b->mm[i] = how->beta1 * b->mm[i] + (1 - how->beta1) * g;
    b->vv[i] = how->beta2 * b->vv[i] + (1 - how->beta2) * g * g;
    const double mean = b->mm[i] / (1 - pow(how->beta1, t));
    const double square = b->vv[i] / (1 - pow(how->beta2, t));
    b->ww[i] -= how->lr * (mean / (sqrt(square) + how->eps) + (decays ? how->decay : 0) * b->ww[i]);
}

static void sgd(struct bench *b, size_t i, bool decays, const struct tr_optimizer *how,
                double scale)
{
    b->mm[i] = how->momentum * b->mm[i] + (double)b->g[i] * scale;
    b->ww[i] -= how->lr * (b->mm[i] + (decays ? how->decay : 0) * b->ww[i]);
}

static void check_optimizer(enum tr_optimizer_kind kind, double momentum, size_t first,
                            size_t count)
{
    struct tr_config config;
    tr_config_init(&config);
    config.optimizer = kind;
    config.momentum = momentum;
    struct bench b;
    REQUIRE(setup(&b, first, count));
    const struct tr_optimizer before = tr_setup_optimizer(&config, 1, 0.5);
    hold(&b, &before);
    const int states = b.held[0].nstates;
    CHECK_EQ(states, kind == TR_ADAMW ? 2 : momentum != 0);
    CHECK(before.kind == kind && before.beta1 == config.beta1 && before.decay == config.decay);
    for (int t = 1; t <= STEPS; ++t) {
        const struct tr_optimizer how = tr_setup_optimizer(&config, t, 0.01 * t);
        fill(b.g, FLOATS, 1, (uint64_t)(100 + t));
        CHECK(tr_optimizer_step(&how, &b.store, 0.5) == TR_OK);
        each(&b, &how, 0.5, kind == TR_SGD ? sgd : adamw);
    }
    /* Floats that belong to no parameter have not changed. */
    CHECK(difference(b.w, b.ww, FLOATS) < 1e-5);
    if (states) CHECK(difference(b.m, b.mm, FLOATS) < 1e-5);
    CHECK(difference(b.v, b.vv, FLOATS) < 1e-5);
    tr_params_fini(&b.params);
}

TEST(optim, adamw_matches_its_formula_in_double)
{
    check_optimizer(TR_ADAMW, 0.9, 0, FLOATS);
}

TEST(optim, sgd_matches_its_formula_in_double)
{
    check_optimizer(TR_SGD, 0.9, 0, FLOATS);
    check_optimizer(TR_SGD, 0, 0, FLOATS); /* without momentum it keeps nothing */
}

/* u of AdamW's m and v, then weights by the ratio of the norms of each tensor. */
static void lamb(struct bench *b, const struct tr_optimizer *how, double scale, double trusts[2])
{
    for (int p = 0; p < 2; ++p) {
        const size_t first = b->params.items[p].offset;
        double u[N], weights = 0, updates = 0;
        for (size_t k = 0; k < N; ++k) {
            const size_t i = first + k;
            const double g = (double)b->g[i] * scale, t = (double)how->t;
            b->mm[i] = how->beta1 * b->mm[i] + (1 - how->beta1) * g;
            b->vv[i] = how->beta2 * b->vv[i] + (1 - how->beta2) * g * g;
            u[k] = b->mm[i] / (1 - pow(how->beta1, t)) /
                       (sqrt(b->vv[i] / (1 - pow(how->beta2, t))) + how->eps) +
                   (p == 1 ? how->decay : 0) * b->ww[i];
            weights += b->ww[i] * b->ww[i];
            updates += u[k] * u[k];
        }
        trusts[p] = weights > 0 && updates > 0 ? sqrt(weights / updates) : 1;
        if (weights > 0 && updates > 0)
            trusts[p] = fmin(fmax(trusts[p], how->trust_min), how->trust_max);
        for (size_t k = 0; k < N; ++k) b->ww[first + k] -= how->lr * trusts[p] * u[k];
    }
}

TEST(optim, lamb_matches_its_formula_in_double)
{
    struct tr_config config;
    tr_config_init(&config);
    config.optimizer = TR_LAMB;
    struct bench b;
    REQUIRE(setup(&b, 0, FLOATS));
    for (size_t i = 0; i < N; ++i) b.w[i] = 0, b.ww[i] = 0; /* the vector's norm is 0: trust is 1 */
    bool least = false, between = false, most = false;
    for (int t = 1; t <= STEPS; ++t) {
        struct tr_optimizer how = tr_setup_optimizer(&config, t, 0.005 * t);
        if (t == 1) hold(&b, &how);
        how.trust_min = t % 5 == 0 ? 0.9 : 0.01;
        how.trust_max = t % 5 == 1 ? 0.3 : 10;
        fill(b.g, FLOATS, 1, (uint64_t)(100 + t));
        CHECK(tr_optimizer_step(&how, &b.store, 0.5) == TR_OK);
        double trusts[2];
        lamb(&b, &how, 0.5, trusts);
        for (int p = 0; p < 2; ++p) {
            least |= trusts[p] == how.trust_min;
            most |= trusts[p] == how.trust_max;
            between |= trusts[p] > how.trust_min && trusts[p] < how.trust_max;
        }
    }
    CHECK(least && between && most);
    CHECK(difference(b.w, b.ww, FLOATS) < 1e-5);
    tr_params_fini(&b.params);
}

/* Vectors are AdamW's, and a matrix that is no block's, too. */
TEST(optim, muon_keeps_one_state_of_a_hidden_matrix_and_two_of_others)
{
    const struct tr_optimizer muon = {.kind = TR_MUON, .momentum = 0.9}, none = {.kind = TR_MUON};
    const struct tr_subject hidden = {.ndim = 2, .shape = {3, 4}, .hidden = true},
                            other = {.ndim = 2, .shape = {3, 4}};
    const struct tr_rule *rule = tr_optimizer_rule(&muon);
    enum tr_state_shape shapes[TR_MOST_STATES];
    CHECK_EQ(rule->states(&muon, &hidden, shapes), 1);
    CHECK_EQ(rule->states(&none, &hidden, shapes), 0);
    CHECK_EQ(rule->states(&muon, &other, shapes), 2);
    CHECK(rule->whole(&muon, &hidden) && !rule->whole(&muon, &other));
}

/* Singular values of a direction come close to 1, whatever its shape and length. */
TEST(optim, muon_moves_singular_values_close_to_one)
{
    const struct tr_optimizer muon = {.kind = TR_MUON};
    const struct tr_rule *rule = tr_optimizer_rule(&muon);
    static float x[6 * 9], scratch[6 * 9 + 2 * 9 * 9];
    static const long shapes[][2] = {{6, 9}, {9, 6}, {1, 7}, {7, 1}, {6, 6}};
    for (int shape = 0; shape < 5; ++shape) {
        const long rows = shapes[shape][0], cols = shapes[shape][1];
        const long least = rows < cols ? rows : cols;
        fill(x, (long)(rows * cols), 1000, (uint64_t)(shape + 1));
        for (long i = 0; i < least; ++i) x[i * cols + i] += 3000; /* none is small */
        CHECK(rule->scratch(rows, cols) <= sizeof scratch / sizeof *scratch);
        rule->transform(data_of(x), scratch, rows, cols);
        double squares = 0; /* the sum of the squares of the singular values */
        for (long i = 0; i < rows * cols; ++i) squares += (double)x[i] * (double)x[i];
        CHECK_MESSAGE(squares > 0.4 * (double)least && squares < 1.5 * (double)least,
                      "%ld x %ld: %g", rows, cols, squares);
    }
    memset(x, 0, sizeof x);
    rule->transform(data_of(x), scratch, 6, 9);
    for (int i = 0; i < 6 * 9; ++i) CHECK(x[i] == 0);
}

/* The most expensive first, each to the owner with the least so far. */
TEST(optim, owners_of_matrices_have_equal_work)
{
    static const double costs[] = {1, 8, 3, 3, 2, 8, 1};
    static const int owners[] = {0, 0, 2, 2, 2, 1, 1}, turns[] = {1, 0, 0, 1, 2, 0, 1};
    int owner[7], turn[7];
    REQUIRE(tr_whole_assign(costs, 7, 3, owner, turn));
    for (int i = 0; i < 7; ++i) CHECK(owner[i] == owners[i] && turn[i] == turns[i]);
}

/* Fewer matrices than owners, as many, and more. */
TEST(optim, owners_of_matrices_are_those_with_least_so_far)
{
    enum { MATRICES = 40 };
    static const int nowners[] = {1, 3, MATRICES - 1, MATRICES, MATRICES + 1, 2 * MATRICES};
    for (size_t k = 0; k < sizeof nowners / sizeof *nowners; ++k) {
        double costs[MATRICES], loads[2 * MATRICES] = {0};
        int owner[MATRICES], turn[MATRICES], counts[2 * MATRICES] = {0};
        bool dealt[MATRICES] = {0};
        for (int i = 0; i < MATRICES; ++i) costs[i] = 1 + i * 17 % 11;
        REQUIRE(tr_whole_assign(costs, MATRICES, nowners[k], owner, turn));
        for (int done = 0; done < MATRICES; ++done) {
            int next = -1, least = 0;
            for (int i = 0; i < MATRICES; ++i)
                if (!dealt[i] && (next < 0 || costs[i] > costs[next])) next = i;
            for (int o = 1; o < nowners[k]; ++o)
                if (loads[o] < loads[least]) least = o;
            CHECK_EQ(owner[next], least);
            CHECK_EQ(turn[next], counts[least]);
            dealt[next] = true;
            counts[least]++;
            loads[least] += costs[next];
        }
    }
}

TEST(optim, a_shard_that_begins_inside_a_tensor_is_updated_alike)
{
    check_optimizer(TR_ADAMW, 0.9, 20, 70);
    check_optimizer(TR_SGD, 0.9, 60, 10);
}

/* What an update of a part finds in the states: that of the tensor's shape is its part's, the
 * others are whole. */
static void add_states(const struct tr_optimizer *how, const struct tr_tensor_piece *piece,
                       const double *sums)
{
    (void)how;
    (void)sums;
    for (size_t i = 0; i < piece->count; ++i)
        piece->w[i] = piece->states[0][i] + piece->states[1][1] + piece->states[2][0];
}

TEST(optim, threads_share_an_update_whose_states_have_other_shapes)
{
    enum { COUNT = 2 * TR_PIECE_FLOATS + 7 };
    static float w[COUNT], g[COUNT], m[COUNT];
    float rows[2] = {0, 0.25f}, scalar = 0.5f;
    const struct tr_optimizer how = {.kind = TR_SGD};
    const struct tr_tensor_piece piece = {
        .subject = {.ndim = 2, .shape = {2, COUNT / 2}},
        .count = COUNT,
        .w = w,
        .g = data_of(g),
        .states = {m, rows, &scalar},
        .shapes = {TR_STATE_TENSOR, TR_STATE_ROWS, TR_STATE_SCALAR}};
    for (int i = 0; i < COUNT; ++i) m[i] = (float)i;
    for (int nthreads = 1; nthreads <= 3; ++nthreads) {
        memset(w, 0, sizeof w);
        REQUIRE(tr_pool_open(nthreads, 1) == TR_OK);
        tr_share(add_states, &how, &piece, NULL);
        tr_pool_close();
        for (int i = 0; i < COUNT; ++i) REQUIRE(w[i] == (float)i + 0.75f);
    }
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
