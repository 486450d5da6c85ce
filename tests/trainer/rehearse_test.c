/* Rehearsals of whole pipelines, as --plan makes them: what they count is what the formulas of
 * cost.h say, with few engines, within the bound by which sizes are refused. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cost.h"
#include "rehearse.h"
#include "shim.h"

struct layout {
    int size[TR_NUM_AXES];
    struct tr_engine_options options;
};

/* The next of a row of numbers that look random, one of `n`. */
static long draw(uint64_t *state, long n)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (long)((*state >> 33) % (uint64_t)n);
}

static long pick(uint64_t *state, const long *values, long n)
{
    return values[draw(state, n)];
}
#define PICK(state, ...)                                                                           \
    pick(state, (const long[]){__VA_ARGS__}, sizeof((const long[]){__VA_ARGS__}) / sizeof(long))

static struct layout draw_layout(uint64_t *state)
{
    struct layout l = {.size = {[TR_PP] = (int)PICK(state, 1, 1, 2, 3, 4, 9),
                                [TR_DP] = (int)PICK(state, 1, 1, 2, 3),
                                [TR_FSDP] = (int)PICK(state, 1, 1, 2, 4),
                                [TR_RING] = (int)PICK(state, 1, 1, 2, 3),
                                [TR_ULYSSES] = (int)PICK(state, 1, 1, 2, 3),
                                [TR_TP] = (int)PICK(state, 1, 1, 2, 4, 8)}};
    const long heads = PICK(state, 8, 16, 24), width = heads * PICK(state, 2, 6, 16);
    const enum tr_sharding sharding =
        l.size[TR_FSDP] > 1 ? TR_ZERO3 : (enum tr_sharding)draw(state, 4);
    l.options = (struct tr_engine_options){
        .model = {.kind = (enum tr_model_kind)draw(state, TR_NUM_MODELS),
                  .layers = l.size[TR_PP] + draw(state, 20),
                  .heads = heads,
                  .kv_heads = PICK(state, heads, heads / 2, 1, 2),
                  .width = width,
                  .hidden = PICK(state, 4 * width, 100),
                  .vocabulary = PICK(state, 256, 257, 5003),
                  .context = PICK(state, 8, 61, 128),
                  .tied = draw(state, 2) == 1},
        .sharding = sharding,
        .optimizer = {.kind = (enum tr_optimizer_kind)draw(state, TR_NUM_OPTIMIZERS),
                      .momentum = 0.9},
        .schedule = draw(state, 2) ? TR_1F1B : TR_GPIPE,
        .zigzag = true,
        .reduce_last = sharding >= TR_ZERO2 && draw(state, 4) == 0,
        .reshard_always = sharding == TR_ZERO3 && draw(state, 2) == 1,
        .batch = PICK(state, 1, 7, 16, 47, 256, 1000),
        .micro_batch = PICK(state, 1, 2, 3, 8),
        .bucket_bytes = (size_t)PICK(state, 1024, 65536)};
    return l;
}

static void write_name(const struct layout *l, int stage, char name[256])
{
    const struct tr_engine_options *o = &l->options;
    const int *size = l->size;
    snprintf(
        name, 256,
        "pp %d dp %d fsdp %d ring %d ulysses %d tp %d, %s, %s, sharding %d%s%s%s, batch %ld in "
        "%ld, %ld layers: stage %d",
        size[TR_PP], size[TR_DP], size[TR_FSDP], size[TR_RING], size[TR_ULYSSES], size[TR_TP],
        tr_architectures[o->model.kind]->title, tr_optimizer_rule(&o->optimizer)->name,
        (int)o->sharding, o->reduce_last ? " reduce last" : "",
        o->reshard_always ? " reshard always" : "", o->schedule == TR_GPIPE ? " gpipe" : "",
        o->batch, o->micro_batch, o->model.layers, stage);
}

static void compare_traffic(const struct tr_rehearsal *r, const struct tr_cost *cost, bool alone,
                            const char *name)
{
    for (int with = 0; with < TR_NUM_PARTNERS; ++with)
        for (int kind = 0; kind < TR_NUM_TRAFFIC; ++kind) {
            const struct tr_traffic *t = &r->step[with].traffic[kind];
            struct tr_traffic x = cost->traffic[with][kind];
            if (alone) x = (struct tr_traffic){0};
            CHECK_MESSAGE(t->calls == x.calls && t->bytes == x.bytes,
                          "%s: %s of %s: %llu calls of %llu bytes, expected %llu of %llu", name,
                          tr_traffic_names[kind], tr_partner_names[with],
                          (unsigned long long)t->calls, (unsigned long long)t->bytes,
                          (unsigned long long)x.calls, (unsigned long long)x.bytes);
        }
}

/* Whether the formula's bytes are exceeded by less than what rounds `ntensors` up to cache lines.
 */
static bool is_rounded(uint64_t bytes, uint64_t expected, long ntensors)
{
    return bytes >= expected && bytes - expected < 64 * (uint64_t)ntensors;
}

static void compare_memory(const struct tr_rehearsal *r, const struct tr_memory *m, int nlayers,
                           const char *name)
{
    enum { OF_A_BLOCK = 16, OF_A_SET = 6, ONCE = 20 };
    CHECK_MESSAGE(r->memory.weights == m->weights && r->memory.gradients == m->gradients &&
                      r->memory.gathered == m->gathered && r->memory.optimizer == m->optimizer &&
                      r->memory.snapshot == m->snapshot,
                  "%s: %llu, %llu, %llu, %llu and %llu bytes, expected %llu, %llu, %llu, %llu and "
                  "%llu",
                  name, (unsigned long long)r->memory.weights,
                  (unsigned long long)r->memory.gradients, (unsigned long long)r->memory.gathered,
                  (unsigned long long)r->memory.optimizer, (unsigned long long)r->memory.snapshot,
                  (unsigned long long)m->weights, (unsigned long long)m->gradients,
                  (unsigned long long)m->gathered, (unsigned long long)m->optimizer,
                  (unsigned long long)m->snapshot);
    CHECK_MESSAGE(is_rounded(r->memory.activations, m->activations,
                             (long)r->nsets * (nlayers * OF_A_BLOCK + OF_A_SET) + ONCE),
                  "%s: %llu bytes of activations in %d sets, expected %llu", name,
                  (unsigned long long)r->memory.activations, r->nsets,
                  (unsigned long long)m->activations);
}

/* No figure exceeds the bound. */
static void check_bound(const struct layout *l, const struct tr_rehearsal *r, const char *name)
{
    const double bound = tr_engine_bound(&l->options, l->size);
    const struct tr_memory *m = &r->memory;
    CHECK_MESSAGE((double)(tr_memory_sum(m) - m->activations) <= bound &&
                      (double)m->activations <= bound,
                  "%s: the memory exceeds %g", name, bound);
    for (int with = 0; with < TR_NUM_PARTNERS; ++with)
        for (int kind = 0; kind < TR_NUM_TRAFFIC; ++kind)
            CHECK_MESSAGE((double)r->step[with].traffic[kind].bytes <= bound,
                          "%s: %s of %s exceed %g", name, tr_traffic_names[kind],
                          tr_partner_names[with], bound);
}

/* Rehearses the stages of a layout and compares each; gives the engines' kinds, 0 on failure. */
static int check_stages(const struct layout *l)
{
    const struct tr_engine_options *o = &l->options;
    const int nstages = l->size[TR_PP], nranks = tr_mesh_extent(l->size, TR_AXES_ALL);
    struct tr_rehearsal *stages = calloc((size_t)nstages, sizeof *stages);
    const struct tr_cost_sizes sizes = tr_cost_sizes_of(o, l->size);
    char name[256];
    int *first, nkinds = 0;
    write_name(l, 0, name);
    tr_status status = tr_engine_stages(&o->model, nstages, &first);
    if (status == TR_OK) status = tr_rehearse_stages(l->size, o, first, stages, &nkinds);
    CHECK_MESSAGE(status == TR_OK, "%s: %s", name, tr_error());
    for (int s = 0; status == TR_OK && s < nstages; ++s) {
        const struct tr_cost_rank rank = tr_cost_rank_of(o, l->size, first, s * (nranks / nstages));
        struct tr_cost cost;
        tr_cost_of(&sizes, &rank, &cost);
        write_name(l, s, name);
        compare_traffic(&stages[s], &cost, nranks == 1, name);
        compare_memory(&stages[s], &cost.memory, rank.stage_layers, name);
        check_bound(l, &stages[s], name);
        CHECK_EQ(stages[s].parameters, tr_cost_parameters(&sizes));
    }
    free(stages);
    free(first);
    return status == TR_OK ? nkinds : 0;
}

TEST(rehearse, the_stages_of_every_layout_call_and_take_what_the_formulas_say)
{
    uint64_t state = 1;
    int ncompared = 0;
    for (int i = 0; i < 300; ++i) {
        const struct layout l = draw_layout(&state);
        if (!tt_test_share(10)) continue;
        if (tr_model_check(&l.options.model, l.size[TR_TP]) < 0) continue;
        const int nkinds = check_stages(&l);
        CHECK_MESSAGE(nkinds >= 1 && nkinds <= 4, "%d kinds of %d stages", nkinds, l.size[TR_PP]);
        ++ncompared;
    }
    CHECK(ncompared >= 20);
}

/* Layouts of thousands of ranks, micro-batches and layers, which would take minutes and gigabytes
 * if ranks, micro-batches and stages were rehearsed one by one. */
static const struct tr_model_size large = {.kind = TR_GPT2,
                                           .layers = 96,
                                           .heads = 96,
                                           .kv_heads = 96,
                                           .width = 12288,
                                           .hidden = 49152,
                                           .vocabulary = 50257,
                                           .context = 2048,
                                           .tied = true};
static const struct tr_model_size deep = {.kind = TR_LLAMA,
                                          .layers = 1000,
                                          .heads = 4,
                                          .kv_heads = 2,
                                          .width = 48,
                                          .hidden = 128,
                                          .vocabulary = 256,
                                          .context = 16};

TEST(rehearse, large_runs_are_few_kinds_of_stages)
{
    const struct {
        struct tr_model_size model;
        int pp, dp, fsdp, ring, tp;
        enum tr_schedule_kind schedule;
        long batch;
        int nkinds;
    } runs[] = {
        {large, 1, 4096, 1, 1, 1, TR_1F1B, 4096, 1},
        {large, 16, 32, 1, 1, 8, TR_1F1B, 1536, 3},
        {large, 5, 1, 64, 1, 8, TR_1F1B, 65536, 4},
        {large, 8, 8, 1, 8, 8, TR_GPIPE, 4096, 3},
        {deep, 1000, 4, 1, 1, 1, TR_1F1B, 1048576, 3},
        {deep, 1000, 1, 4, 1, 1, TR_GPIPE, 1048576, 3},
        {deep, 2, 1, 4, 1, 2, TR_GPIPE, 1048576, 2},
    };
    for (size_t i = 0; i < sizeof runs / sizeof runs[0]; ++i) {
        const struct layout l = {.size = {[TR_PP] = runs[i].pp,
                                          [TR_DP] = runs[i].dp,
                                          [TR_FSDP] = runs[i].fsdp,
                                          [TR_RING] = runs[i].ring,
                                          [TR_ULYSSES] = 1,
                                          [TR_TP] = runs[i].tp},
                                 .options = {.model = runs[i].model,
                                             .sharding = runs[i].fsdp > 1 ? TR_ZERO3 : TR_DDP,
                                             .reshard_always = runs[i].fsdp > 1,
                                             .schedule = runs[i].schedule,
                                             .zigzag = true,
                                             .batch = runs[i].batch,
                                             .micro_batch = 1,
                                             .bucket_bytes = 1 << 20}};
        CHECK_EQ(check_stages(&l), runs[i].nkinds);
    }
}
