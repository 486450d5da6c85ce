/* Neither the number of threads nor the order of the pieces changes a bit of a step: not of the
 * loss, of the norm, of a weight. The sizes are such that most operations have several pieces, and
 * some have uneven ones. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine.h"
#include "memory.h"
#include "ops/pool.h"
#include "param.h"
#include "ranks.h"
#include "shim.h"
#include "shuffle.h"

enum { STEPS = 2 };

struct layout {
    const char *name;
    int size[TR_NUM_AXES];
    enum tr_model_kind kind;
    enum tr_sharding sharding;
    enum tr_optimizer_kind optimizer;
};

/* What a rank has after its steps. */
struct bits {
    double loss[STEPS], norm[STEPS];
    uint64_t weights;
};

struct run {
    const struct layout *layout;
    int nthreads;
    struct bits bits[MOST_RANKS];
};

static struct tr_engine_options options_of(const struct layout *layout)
{
    const bool llama = layout->kind == TR_LLAMA;
    return (struct tr_engine_options){.model = {.kind = layout->kind,
                                                .layers = 2,
                                                .heads = 4,
                                                .kv_heads = llama ? 2 : 4,
                                                .width = 104,
                                                .hidden = llama ? 288 : 416,
                                                .vocabulary = 259,
                                                .context = 96,
                                                .tied = !llama},
                                      .sharding = layout->sharding,
                                      .optimizer = {.kind = layout->optimizer, .momentum = 0.9},
                                      .schedule = TR_1F1B,
                                      .batch = 19,
                                      .micro_batch = 12,
                                      .bucket_bytes = 1 << 18,
                                      .seed = 1};
}

static void feed(void *arg, uint64_t number, long context, int32_t *ids, int32_t *targets,
                 float *weights)
{
    (void)arg;
    for (long i = 0; i < context; ++i) {
        const uint64_t at = number * 131 + (uint64_t)i;
        ids[i] = (int32_t)(at * at % 259);
        targets[i] = (int32_t)((at + 1) * (at + 1) % 259);
        weights[i] = (float)(at % 7 != 0);
    }
}

static tr_status take_steps(struct tr_engine *e, const struct layout *layout, struct bits *bits)
{
    const struct tr_feed source = {feed, NULL};
    for (int step = 0; step < STEPS; ++step) {
        const struct tr_optimizer how = {.kind = layout->optimizer,
                                         .lr = 0.01,
                                         .beta1 = 0.9,
                                         .beta2 = 0.99,
                                         .eps = 1e-8,
                                         .decay = 0.1,
                                         .trust_max = 10,
                                         .momentum = 0.9,
                                         .t = step + 1};
        struct tr_step_sums sums;
        TR_TRY(tr_engine_gradients(e, &source, 19 * (uint64_t)step, NULL, &sums));
        bits->loss[step] = sums.loss;
        bits->norm[step] = sums.norm;
        TR_TRY(tr_engine_update(e, &how, sums.scale));
    }
    for (int u = 0; u < e->store.nunits; ++u) {
        const struct tr_unit_state *s = &e->store.units[u];
        bits->weights =
            bits->weights * 31 + e->backend->checksum(s->masters, s->count * sizeof *s->masters);
    }
    return TR_OK;
}

static void body(struct rank *self)
{
    struct run *run = (struct run *)(uintptr_t)self->arg;
    const struct tr_engine_options options = options_of(run->layout);
    struct bits bits = {0};
    struct tr_mesh mesh;
    struct tr_engine e = {0};
    tr_process_tune();
    tr_status status = tr_pool_open(run->nthreads, TR_ATTENTION_ROOM);
    if (status == TR_OK) status = tr_mesh_init(&mesh, self->world);
    if (status == TR_OK) status = tr_mesh_shape(&mesh, run->layout->size);
    if (status == TR_OK) status = tr_engine_init(&e, &mesh, tr_backend_choose(""), &options);
    if (status == TR_OK) status = take_steps(&e, run->layout, &bits);
    CHECK_MESSAGE(status == TR_OK, "%s: %s", run->layout->name, tr_error());
    run->bits[self->rank] = bits;
    tr_engine_fini(&e);
    tr_mesh_fini(&mesh);
    tr_pool_close();
}

static void check_layout(const struct layout *layout)
{
    static const struct {
        int nthreads;
        uint64_t order;
    } ways[] = {{1, 0}, {2, 0}, {1, 1}, {3, 0}, {3, 2}};
    enum { WAYS = sizeof ways / sizeof *ways, OF_THREE = 3 };
    struct run runs[WAYS];
    int nranks = 1;
    /* A sanitizer sees all pieces and threads in the last two. */
    const int first = tt_test_sanitized() ? OF_THREE : 0;
    for (int axis = 0; axis < TR_NUM_AXES; ++axis) nranks *= layout->size[axis];
    for (int n = first; n < WAYS; ++n) {
        runs[n] = (struct run){.layout = layout, .nthreads = ways[n].nthreads};
        shuffle_pieces(ways[n].order);
        const bool ran = run_ranks(nranks, body, &runs[n]);
        shuffle_pieces(0);
        REQUIRE(ran);
        for (int rank = 0; rank < nranks; ++rank) {
            const struct bits *one = &runs[first].bits[rank], *bits = &runs[n].bits[rank];
            CHECK(isfinite(bits->loss[STEPS - 1]) && bits->loss[STEPS - 1] < bits->loss[0]);
            CHECK_MESSAGE(
                !memcmp(one, bits, sizeof *one),
                "%s, rank %d: %d threads, order %d: loss %.17g, norm %.17g; %d threads, order %d: "
                "%.17g, %.17g",
                layout->name, rank, ways[n].nthreads, (int)ways[n].order, bits->loss[1],
                bits->norm[1], ways[first].nthreads, (int)ways[first].order, one->loss[1],
                one->norm[1]);
        }
    }
}

TEST(bits, threads_and_the_order_of_pieces_change_none)
{
    static const struct layout layouts[] = {
        {"gpt2", {1, 1, 1, 1, 1, 1}, TR_GPT2, TR_DDP, TR_ADAMW},
        {"llama", {1, 1, 1, 1, 1, 1}, TR_LLAMA, TR_DDP, TR_SGD},
        {"dp 2", {1, 2, 1, 1, 1, 1}, TR_GPT2, TR_DDP, TR_ADAMW},
        {"zero 2", {1, 2, 1, 1, 1, 1}, TR_LLAMA, TR_ZERO2, TR_ADAMW},
        {"fsdp 2", {1, 1, 2, 1, 1, 1}, TR_GPT2, TR_ZERO3, TR_ADAMW},
        {"tp 2", {1, 1, 1, 1, 1, 2}, TR_LLAMA, TR_DDP, TR_ADAMW},
        {"ring 2", {1, 1, 1, 2, 1, 1}, TR_LLAMA, TR_DDP, TR_SGD},
        {"ulysses 2", {1, 1, 1, 1, 2, 1}, TR_GPT2, TR_DDP, TR_ADAMW},
        {"pp 2", {2, 1, 1, 1, 1, 1}, TR_GPT2, TR_DDP, TR_ADAMW},
        {"lamb, fsdp 2", {1, 1, 2, 1, 1, 1}, TR_LLAMA, TR_ZERO3, TR_LAMB},
        {"muon, dp 2", {1, 2, 1, 1, 1, 1}, TR_LLAMA, TR_ZERO1, TR_MUON},
    };
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; ++i)
        if (tt_test_share(3)) check_layout(&layouts[i]);
}

TEST(bits, the_first_number_that_is_not_finite_is_found_by_threads_in_any_order)
{
    enum { N = (3 << 18) + 77 };
    static const size_t places[] = {0,       1023,    1024,  300000, (1 << 18) - 1,
                                    1 << 18, 3 << 18, N - 1, N};
    const size_t n = sizeof places / sizeof *places;
    const struct tr_backend *backend = tr_backend_choose("");
    float *x = calloc(N + 1, sizeof *x);
    REQUIRE(x && tr_pool_open(3, TR_ATTENTION_ROOM) == TR_OK);
    const long given = pieces_given();
    for (size_t i = 0; i < n * n; ++i) {
        const size_t a = places[i / n], b = places[i % n];
        x[a] = NAN;
        x[b] = -INFINITY;
        shuffle_pieces(i);
        CHECK_EQ(backend->find_not_finite(x, N), a < b ? a : b);
        x[a] = x[b] = 0;
    }
    shuffle_pieces(0);
    CHECK(pieces_given() - given >= 4 * (long)(n * n));
    tr_pool_close();
    free(x);
}
