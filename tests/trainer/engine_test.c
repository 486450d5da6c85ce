/* The engine on one rank and on few: every parallelism once, beside the grid, which has them all.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "grid.h"
#include "ops/dry.h"
#include "ranks.h"
#include "shim.h"

static void body(struct rank *self)
{
    const struct grid_case *test = self->arg;
    struct tr_mesh mesh;
    tr_process_tune();
    char report[512];
    CHECK_EQ(TR_OK, tr_mesh_init(&mesh, self->world));
    grid_run(test, &mesh, report, sizeof report);
    if (self->rank == 0) CHECK_STR(report, "");
    tr_mesh_fini(&mesh);
}

static void run_case(struct grid_case test)
{
    int n = 1;
    for (int axis = 0; axis < TR_NUM_AXES; ++axis) n *= test.size[axis];
    for (int kind = 0; kind < 2; ++kind) {
        const enum tr_sharding sharding = test.options.sharding;
        const bool last = test.options.reduce_last;
        test.options = grid_small_options(kind ? TR_LLAMA : TR_GPT2);
        test.options.sharding = sharding;
        test.options.reduce_last = last;
        test.optimizer = kind ? TR_SGD : TR_ADAMW;
        CHECK(run_ranks(n, body, &test));
    }
}

TEST(engine, one_rank_matches_the_oracle)
{
    run_case((struct grid_case){.size = {1, 1, 1, 1, 1, 1}, .options = {.sharding = TR_DDP}});
}

TEST(engine, dp)
{
    run_case((struct grid_case){.size = {1, 2, 1, 1, 1, 1}, .options = {.sharding = TR_DDP}});
}

TEST(engine, zero1)
{
    run_case((struct grid_case){.size = {1, 2, 1, 1, 1, 1}, .options = {.sharding = TR_ZERO1}});
}

TEST(engine, zero2)
{
    run_case((struct grid_case){.size = {1, 2, 1, 1, 1, 1}, .options = {.sharding = TR_ZERO2}});
}

TEST(engine, fsdp)
{
    run_case((struct grid_case){.size = {1, 1, 2, 1, 1, 1}, .options = {.sharding = TR_ZERO3}});
}

TEST(engine, hybrid)
{
    run_case((struct grid_case){.size = {1, 2, 2, 1, 1, 1}, .options = {.sharding = TR_ZERO3}});
}

TEST(engine, pp)
{
    run_case((struct grid_case){.size = {2, 1, 1, 1, 1, 1}, .options = {.sharding = TR_DDP}});
}

TEST(engine, pp_dp)
{
    run_case((struct grid_case){.size = {3, 2, 1, 1, 1, 1}, .options = {.sharding = TR_DDP}});
}

TEST(engine, pp_fsdp)
{
    run_case((struct grid_case){.size = {2, 1, 2, 1, 1, 1}, .options = {.sharding = TR_ZERO3}});
}

TEST(engine, tp)
{
    run_case((struct grid_case){.size = {1, 1, 1, 1, 1, 2}, .options = {.sharding = TR_DDP}});
}

TEST(engine, ring)
{
    run_case((struct grid_case){.size = {1, 1, 1, 2, 1, 1}, .options = {.sharding = TR_DDP}});
}

TEST(engine, ulysses)
{
    run_case((struct grid_case){.size = {1, 1, 1, 1, 2, 1}, .options = {.sharding = TR_DDP}});
}

static void refuse_too_many(struct rank *self)
{
    struct tr_mesh mesh;
    struct tr_engine engine;
    struct tr_engine_options many = grid_small_options(TR_GPT2);
    many.batch = (1L << 32) + 2; /* 2, if cut to an int */
    many.micro_batch = 1;
    CHECK_EQ(TR_OK, tr_mesh_init(&mesh, self->world));
    CHECK(tr_engine_init(&engine, &mesh, tr_backend_choose(""), &many) < 0);
    CHECK(strstr(tr_error(), "micro-batches") != NULL);
    tr_engine_fini(&engine);
    tr_mesh_fini(&mesh);
}

TEST(engine, more_micro_batches_than_an_int_counts_are_refused)
{
    CHECK(run_ranks(1, refuse_too_many, NULL));
}

static void refuse_wrapped_mesh(struct rank *self)
{
    struct tr_mesh mesh;
    CHECK_EQ(TR_OK, tr_mesh_init(&mesh, self->world));
    const int wraps[TR_NUM_AXES] = {641, 6700417, 1, 1, 1, 1}; /* 2^32 + 1 */
    const int negative[TR_NUM_AXES] = {-1, -1, 1, 1, 1, 1}, none[TR_NUM_AXES] = {0, 1, 1, 1, 1, 1};
    CHECK(tr_mesh_shape(&mesh, wraps) < 0);
    CHECK(tr_mesh_shape(&mesh, negative) < 0);
    CHECK(tr_mesh_shape(&mesh, none) < 0);
    CHECK_EQ(1, mesh.size[TR_PP]);
    tr_mesh_fini(&mesh);
}

TEST(engine, a_mesh_whose_product_overflows_is_refused)
{
    CHECK(run_ranks(1, refuse_wrapped_mesh, NULL));
}

/* ---- Too few and too many tokens --------------------------------------------------------------
 */

static void no_token_counts(void *arg, uint64_t number, long context, int32_t *ids,
                            int32_t *targets, float *weights)
{
    (void)arg;
    for (long i = 0; i < context; ++i) {
        ids[i] = (int32_t)((number + (uint64_t)i) % 61);
        targets[i] = 0;
        weights[i] = 0;
    }
}

static void learn_from_nothing(struct rank *self)
{
    const struct tr_feed feed = {no_token_counts, NULL};
    const struct tr_engine_options o = grid_small_options(TR_GPT2);
    struct tr_mesh mesh;
    struct tr_engine e = {0};
    struct tr_step_sums sums;
    double loss = 0;
    CHECK_EQ(TR_OK, tr_mesh_init(&mesh, self->world));
    tr_status status = tr_engine_init(&e, &mesh, tr_backend_choose(""), &o);
    for (int step = 0; status == TR_OK && step < 2; ++step) {
        status = tr_engine_gradients(&e, &feed, 0, NULL, &sums);
        CHECK(sums.loss == 0 && sums.norm == 0 && sums.tokens == 0 && sums.scale == 0);
        const struct tr_optimizer how = {
            .kind = TR_ADAMW, .lr = 0.1, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .t = step + 1};
        const struct tr_unit_state *unit = &e.store.units[0];
        const float before = unit->weight_shard[0];
        if (status == TR_OK) status = tr_engine_update(&e, &how, sums.scale);
        CHECK(unit->weight_shard[0] == before); /* also no NaN */
    }
    if (status == TR_OK) status = tr_engine_loss(&e, &feed, 0, 8, &loss);
    CHECK(isnan(loss));
    CHECK_MESSAGE(status == TR_OK, "%s", tr_error());
    tr_engine_fini(&e);
    tr_mesh_fini(&mesh);
}

TEST(engine, a_step_in_which_no_token_counts_has_loss_and_gradient_zero)
{
    run_case((struct grid_case){
        .size = {1, 1, 1, 1, 1, 1}, .options = {.sharding = TR_DDP}, .mask = GRID_NEVER});
    run_case((struct grid_case){
        .size = {1, 2, 1, 1, 1, 1}, .options = {.sharding = TR_ZERO2}, .mask = GRID_NONE});
    CHECK(run_ranks(2, learn_from_nothing, NULL));
}

static void ask_for_logits(struct rank *self)
{
    const struct tr_engine_options o = grid_small_options(TR_GPT2);
    struct tr_mesh mesh;
    struct tr_engine e = {0};
    int32_t ids[20] = {0};
    float logits[61];
    CHECK_EQ(TR_OK, tr_mesh_init(&mesh, self->world));
    CHECK_EQ(TR_OK, tr_engine_init(&e, &mesh, tr_backend_choose(""), &o));
    CHECK_EQ(TR_OK, tr_engine_logits(&e, ids, 16, logits));
    static const long wrong[] = {17, 20, 0, -1};
    for (int i = 0; i < 4; ++i) {
        CHECK_EQ(tr_engine_logits(&e, ids, wrong[i], logits),
                 self->rank == 0 ? TR_AGREED : TR_ELSEWHERE);
        CHECK_MESSAGE(strstr(tr_error(), "takes 1 to 16"), "\"%s\"", tr_error());
    }
    CHECK_EQ(TR_OK, tr_engine_logits(&e, ids, 1, logits));
    tr_engine_fini(&e);
    tr_mesh_fini(&mesh);
}

TEST(engine, logits_of_more_tokens_than_the_context_are_refused_on_every_rank)
{
    CHECK(run_ranks(2, ask_for_logits, NULL));
}

/* An evaluation makes its calls where the step does (calls.h): on a dry mesh they are counted. */
TEST(engine, a_dry_mesh_counts_the_calls_of_an_evaluation)
{
    static const int size[TR_NUM_AXES] = {2, 1, 1, 1, 1, 2};
    const struct tr_engine_options o = grid_small_options(TR_GPT2);
    const struct tr_feed feed = {0};
    struct tr_dry dry;
    struct tr_mesh mesh;
    struct tr_engine e = {0};
    int32_t ids[16] = {0};
    float logits[GRID_SMALL_VOCABULARY];
    double loss;
    tr_dry_backend(&dry);
    REQUIRE(tr_mesh_dry(&mesh, size, 0) == TR_OK);
    REQUIRE(tr_engine_init(&e, &mesh, &dry.backend, &o) == TR_OK);
    const struct tr_traffic *all =
        &tr_mesh_group(&mesh, TR_AXES_ALL)->tally->traffic[TR_ALL_REDUCE];
    const struct tr_traffic before = *all;
    CHECK_EQ(TR_OK, tr_engine_loss(&e, &feed, 0, 8, &loss));
    CHECK_EQ(all->calls - before.calls, 1u);
    CHECK_EQ(all->bytes - before.bytes, 2 * sizeof(double));
    CHECK_EQ(TR_OK, tr_engine_logits(&e, ids, 16, logits));
    CHECK_EQ(all->calls - before.calls, 2u);
    CHECK_EQ(all->bytes - before.bytes, 2 * sizeof(double) + sizeof logits);
    tr_engine_fini(&e);
    tr_mesh_fini(&mesh);
}

/* ---- Errors ---------------------------------------------------------------------------------- */

/* Rank 3 leaves the communicator that it has with rank 2. */
static void lose_rank_three(struct rank *self)
{
    static const int size[TR_NUM_AXES] = {2, 1, 1, 1, 1, 2};
    struct tr_mesh mesh;
    CHECK_EQ(TR_OK, tr_mesh_init(&mesh, self->world));
    CHECK_EQ(TR_OK, tr_mesh_shape(&mesh, size));
    CHECK_EQ(TR_OK, tr_mesh_connect(&mesh, NULL, 0, 1, false));
    struct tr_group *tp = &mesh.groups[1u << TR_TP];
    if (self->rank == 3) {
        CHECK_EQ(tuttiCommAbort(tp->comm), tuttiSuccess);
        tp->comm = NULL;
    }
    if (self->rank == 2) {
        int32_t one = 1;
        const tuttiResult_t result =
            tuttiAllReduce(&one, &one, 1, tuttiInt32, tuttiSum, tp->comm, NULL);
        CHECK_EQ(TR_FAILED, tr_group_check(tp, result, "counting"));
        CHECK_MESSAGE(strstr(tr_error(), "counting: ") == tr_error() &&
                          strstr(tr_error(), ": rank 1 = rank 3 of the run (host "),
                      "\"%s\"", tr_error());
    }
    tr_mesh_fini(&mesh);
}

TEST(mesh, an_error_of_a_group_has_the_numbers_of_the_run)
{
    CHECK(run_ranks(4, lose_rank_three, NULL));
}
