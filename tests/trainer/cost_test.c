/* The cost of a step: values worked out by hand, and what an engine really calls and remembers. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "ckpt/ckpt.h"
#include "cost.h"
#include "engine.h"
#include "ranks.h"
#include "rehearse.h"
#include "setup.h"
#include "shim.h"

/* Blocks of 4 h^2 + 2 h f + 13 h = 49,984 parameters: 16,384 of attention, 32,768 of the MLP, 832
 * of norms and biases; a table of 16,384, places of 2,048, a last norm of 128. */
static struct tr_cost_sizes sizes_by_hand(void)
{
    return (struct tr_cost_sizes){.architecture = &tr_gpt2,
                                  .tied = true,
                                  .layers = 2,
                                  .heads = 4,
                                  .kv_heads = 4,
                                  .width = 64,
                                  .hidden = 256,
                                  .vocabulary = 256,
                                  .context = 32,
                                  .pp = 1,
                                  .dp = 1,
                                  .fsdp = 1,
                                  .ring = 1,
                                  .ulysses = 1,
                                  .tp = 1,
                                  .batch = 4,
                                  .micro_batch = 4,
                                  .bucket_bytes = 1 << 30};
}

static struct tr_cost cost_by_hand(const struct tr_cost_sizes *sizes)
{
    struct tr_cost cost;
    const struct tr_cost_rank rank = {.stage_layers = (int)sizes->layers / sizes->pp,
                                      .samples = sizes->batch / sizes->dp / sizes->fsdp};
    tr_cost_of(sizes, &rank, &cost);
    return cost;
}

static void check(const struct tr_cost *cost, enum tr_partners group, enum tr_traffic_kind call,
                  uint64_t calls, uint64_t bytes)
{
    const struct tr_traffic *t = &cost->traffic[group][call];
    CHECK_MESSAGE(t->calls == calls && t->bytes == bytes,
                  "%s of %s: %llu calls of %llu bytes, expected %llu of %llu",
                  tr_traffic_names[call], tr_partner_names[group], (unsigned long long)t->calls,
                  (unsigned long long)t->bytes, (unsigned long long)calls,
                  (unsigned long long)bytes);
}

TEST(cost, parameters_worked_out_by_hand)
{
    struct tr_cost_sizes s = sizes_by_hand();
    CHECK_EQ(tr_cost_parameters(&s), 2 * 49984 + 16384 + 2048 + 128);
    s.architecture = &tr_llama;
    s.tied = false;
    s.kv_heads = 2;
    /* 2 h^2 + 2 h h/2 + 3 h f + 2 h a block, two tables, one norm */
    CHECK_EQ(tr_cost_parameters(&s), 2 * (8192 + 4096 + 49152 + 128) + 2 * 16384 + 64);
}

TEST(cost, data_parallelism_worked_out_by_hand)
{
    struct tr_cost_sizes s = sizes_by_hand();
    s.dp = 2;
    /* Units of 16384, 2048, 49 * 1024 twice, and 1024 floats: 119,808 */
    struct tr_cost cost = cost_by_hand(&s);
    check(&cost, TR_WITH_REPLICAS, TR_ALL_REDUCE, 1, 479232);
    CHECK_EQ(cost.memory.optimizer, 2 * 4 * (2 * 49984 + 16384 + 2048 + 128));
    s.zero = 1;
    /* With two shards of 1024-float blocks: 16384, 2048, 25 * 2048 twice, 2048: 122,880 */
    cost = cost_by_hand(&s);
    check(&cost, TR_WITH_SHARDS, TR_REDUCE_SCATTER, 5, 491520);
    check(&cost, TR_WITH_SHARDS, TR_ALL_GATHER, 5, 491520);
    /* The first halves, of the last one 128 floats that are no padding */
    CHECK_EQ(cost.memory.optimizer, 2 * 4 * (8192 + 1024 + 2 * 25600 + 128));
    CHECK_EQ(cost.memory.gradients, 491520);
}

/* Five sequences in micro-batches of 2, 2 and 1; then 2 of a rank whose neighbour has 3, in
 * micro-batches of 1, 1 and none. A micro-batch gathers the rows six times a layer, for the
 * embedding once and for the head twice. */
TEST(cost, uneven_micro_batches_worked_out_by_hand)
{
    struct tr_cost_sizes s = sizes_by_hand();
    s.tp = 2;
    s.batch = 5;
    s.micro_batch = 2;
    struct tr_cost cost = cost_by_hand(&s);
    check(&cost, TR_WITH_TP, TR_ALL_GATHER, 3 * 15, 15 * 5 * 32 * 64 * 4);
    s.dp = 2;
    s.micro_batch = 1;
    cost = cost_by_hand(&s);
    check(&cost, TR_WITH_TP, TR_ALL_GATHER, 3 * 15, 15 * 2 * 32 * 64 * 4);
}

TEST(cost, fsdp_with_two_micro_batches_worked_out_by_hand)
{
    struct tr_cost_sizes s = sizes_by_hand();
    s.fsdp = 2;
    s.zero = 3;
    s.micro_batch = 1;
    const struct tr_cost cost = cost_by_hand(&s);
    /* Each micro-batch: the table for the embedding and for the head, places, each block forward
     * and backward, the last norm: 2 * 16384 + 2048 + 4 * 51200 + 2048 floats */
    check(&cost, TR_WITH_SHARDS, TR_ALL_GATHER, 16, 2 * 4 * 241664);
    check(&cost, TR_WITH_SHARDS, TR_REDUCE_SCATTER, 10, 2 * 491520);
    CHECK_EQ(cost.memory.weights, 491520 / 2);
    /* Two buffers of a block, one of the table */
    CHECK_EQ(cost.memory.gathered, 4 * (2 * 51200 + 16384));
}

TEST(cost, gpipe_gathers_the_head_once_a_micro_batch)
{
    struct tr_cost_sizes s = sizes_by_hand();
    s.tied = false;
    s.fsdp = 2;
    s.zero = 3;
    s.micro_batch = 1;
    s.gpipe = true;
    const struct tr_cost cost = cost_by_hand(&s);
    /* As 1F1B: the table, places, each block forward and backward, the head with its norm */
    check(&cost, TR_WITH_SHARDS, TR_ALL_GATHER, 14, 2 * 4 * (16384 + 2048 + 4 * 51200 + 18432));
}

TEST(cost, tensor_parallelism_worked_out_by_hand)
{
    struct tr_cost_sizes s = sizes_by_hand();
    s.tp = 2;
    const struct tr_cost cost = cost_by_hand(&s);
    /* 128 rows of 64 floats */
    check(&cost, TR_WITH_TP, TR_ALL_GATHER, 6 * 2 + 3, 15 * 32768);
    check(&cost, TR_WITH_TP, TR_REDUCE_SCATTER, 4 * 2 + 2, 10 * 32768);
    /* The loss: a float and two floats a row; gradients of places, of 6 h of each block, of 2 h */
    check(&cost, TR_WITH_TP, TR_ALL_REDUCE, 2 + 4, 1536 + 8192 + 2 * 1536 + 512);
}

TEST(cost, pipelines_and_cut_sequences_worked_out_by_hand)
{
    struct tr_cost_sizes s = sizes_by_hand();
    s.pp = 2;
    s.micro_batch = 1;
    struct tr_cost cost = cost_by_hand(&s);
    check(&cost, TR_WITH_PP, TR_SEND, 4, 4 * 8192); /* 32 rows of 64 floats */
    check(&cost, TR_WITH_TIE, TR_ALL_REDUCE, 1, 65536);
    s = sizes_by_hand();
    s.ring = 2;
    cost = cost_by_hand(&s);
    /* Blocks of keys and values: 2 * 4 * 16 * 64 floats; a layer sends 1 + 1 + 2 */
    check(&cost, TR_WITH_RING, TR_SEND, 8, 8 * 32768);
    s = sizes_by_hand();
    s.ulysses = 2;
    cost = cost_by_hand(&s);
    /* 64 rows: q, k and v forth and their gradients back, out back and its gradient forth */
    check(&cost, TR_WITH_ULYSSES, TR_ALL_TO_ALL, 8, 4 * 49152 + 4 * 16384);
}

/* ---- An engine ---------------------------------------------------------------------------------
 */

struct layout {
    int size[TR_NUM_AXES];
    enum tr_sharding sharding;
    bool llama, tied, gpipe, reduce_last, reshard_always;
    long batch, context;
    enum tr_optimizer_kind optimizer;
};

static struct tr_optimizer optimizer_of(const struct layout *l)
{
    return (struct tr_optimizer){.kind = l->optimizer,
                                 .lr = 0.01,
                                 .beta1 = 0.9,
                                 .beta2 = 0.95,
                                 .eps = 0.01,
                                 .trust_max = 10,
                                 .momentum = 0.9};
}

static struct tr_setup setup_of(const struct layout *l)
{
    struct tr_setup setup = {.engine = {.model = {.kind = l->llama ? TR_LLAMA : TR_GPT2,
                                                  .layers = 3,
                                                  .heads = 4,
                                                  .kv_heads = l->llama ? 2 : 4,
                                                  .width = 48,
                                                  .hidden = 100,
                                                  .vocabulary = 257,
                                                  .context = l->context,
                                                  .tied = l->tied},
                                        .sharding = l->sharding,
                                        .optimizer = optimizer_of(l),
                                        .schedule = l->gpipe ? TR_GPIPE : TR_1F1B,
                                        .zigzag = true,
                                        .reduce_last = l->reduce_last,
                                        .reshard_always = l->reshard_always,
                                        .batch = l->batch,
                                        .micro_batch = 2,
                                        .bucket_bytes = 8192,
                                        .seed = 1},
                             .snapshot = true};
    memcpy(setup.size, l->size, sizeof setup.size);
    return setup;
}

static void sample(void *arg, uint64_t number, long context, int32_t *ids, int32_t *targets,
                   float *weights)
{
    (void)arg;
    for (long i = 0; i < context; ++i) {
        ids[i] = (int32_t)((number + (uint64_t)i) % 200);
        targets[i] = ids[i] + 1;
        weights[i] = 1;
    }
}

static tuttiComm_t comm_of(const struct tr_engine *e, int group)
{
    const struct tr_mesh *mesh = e->mesh;
    switch (group) {
    case TR_WITH_SHARDS:
        return e->store.shard->comm;
    case TR_WITH_REPLICAS:
        return e->store.replica->comm;
    case TR_WITH_TP:
        return tr_mesh_group(mesh, 1u << TR_TP)->comm;
    case TR_WITH_SHARE:
        return mesh->share.comm;
    case TR_WITH_TIE:
        return mesh->tie.comm;
    case TR_WITH_STAGE:
        return tr_mesh_group(mesh, TR_AXES_DATA | 1u << TR_TP)->comm;
    case TR_WITH_PP:
        return tr_mesh_group(mesh, 1u << TR_PP)->comm;
    case TR_WITH_RING:
        return tr_mesh_group(mesh, 1u << TR_RING)->comm;
    case TR_WITH_ULYSSES:
        return tr_mesh_group(mesh, 1u << TR_ULYSSES)->comm;
    default:
        return tr_mesh_group(mesh, TR_AXES_ALL)->comm;
    }
}

static void read_counters(const struct tr_engine *e, int group,
                          tuttiCallCount_t counts[TR_NUM_TRAFFIC])
{
    static const tuttiCollective_t kinds[] = {tuttiCollAllReduce, tuttiCollReduceScatter,
                                              tuttiCollAllGather, tuttiCollAllToAll};
    tuttiCallCounters_t counters = TUTTI_CALL_COUNTERS_INITIALIZER;
    if (comm_of(e, group)) tuttiCommCallCounters(comm_of(e, group), &counters);
    for (int i = 0; i < 4; ++i) counts[i] = counters.collectives[kinds[i]];
    counts[TR_SEND] = counters.send;
    counts[TR_RECEIVE] = counters.recv;
}

/* Groups of the same ranks share a communicator: their costs add up. */
static struct tr_traffic expected_of(const struct tr_engine *e, const struct tr_cost *cost,
                                     int group, int call)
{
    struct tr_traffic sum = {0};
    for (int other = 0; other < TR_NUM_PARTNERS; ++other)
        if (comm_of(e, other) == comm_of(e, group)) {
            sum.calls += cost->traffic[other][call].calls;
            sum.bytes += cost->traffic[other][call].bytes;
        }
    return sum;
}

static void compare_memory(const struct tr_engine *e, const struct tr_memory *m)
{
    size_t snapshot;
    CHECK_MESSAGE(tr_ckpt_snapshot_bytes(e, &snapshot) == TR_OK, "%s", tr_error());
    const struct {
        const char *name;
        size_t used;
        uint64_t expected;
    } kinds[] = {{"weights", e->store.weights.used, m->weights},
                 {"gradients", e->store.gradients.used, m->gradients},
                 {"optimizer", e->store.optimizer.used, m->optimizer},
                 {"gathered", e->store.gathered.used, m->gathered},
                 {"activations", e->activations.used, m->activations},
                 {"snapshot", snapshot, m->snapshot}};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; ++i)
        CHECK_MESSAGE(fabs((double)kinds[i].used - (double)kinds[i].expected) <=
                          0.05 * (double)kinds[i].expected,
                      "%s: %zu bytes, expected %llu", kinds[i].name, kinds[i].used,
                      (unsigned long long)kinds[i].expected);
}

static tr_status step(struct tr_engine *e, int number)
{
    const struct tr_feed feed = {sample, NULL};
    struct tr_optimizer how = e->options.optimizer;
    how.t = number + 1;
    struct tr_step_sums sums;
    TR_TRY(tr_engine_gradients(e, &feed, (uint64_t)(number * e->options.batch), NULL, &sums));
    return tr_engine_update(e, &how, 1 / sums.tokens);
}

/* A rehearsal calls what the formulas say, and takes exactly the memory of the run. */
static void compare_rehearsal(const struct tr_engine *e, const struct tr_setup *setup,
                              const struct tr_cost *cost, const char *name)
{
    struct tr_rehearsal r;
    const tr_status status = tr_rehearse(setup->size, &setup->engine, e->mesh->rank, &r);
    CHECK_MESSAGE(status == TR_OK, "%s: %s", name, tr_error());
    if (status != TR_OK) return;
    for (int group = 0; group < TR_NUM_PARTNERS; ++group)
        for (int call = 0; call < TR_NUM_TRAFFIC; ++call) {
            const struct tr_traffic *t = &r.step[group].traffic[call];
            const struct tr_traffic *x = &cost->traffic[group][call];
            const bool alone = group == TR_WITH_ALL && e->mesh->nranks == 1;
            CHECK_MESSAGE(alone ? t->calls == 0 : t->calls == x->calls && t->bytes == x->bytes,
                          "%s: rank %d rehearses %s of %s: %llu calls of %llu bytes, expected %llu "
                          "of %llu",
                          name, e->mesh->rank, tr_traffic_names[call], tr_partner_names[group],
                          (unsigned long long)t->calls, (unsigned long long)t->bytes,
                          (unsigned long long)x->calls, (unsigned long long)x->bytes);
        }
    CHECK_EQ(r.memory.weights, e->store.weights.used);
    CHECK_EQ(r.memory.gradients, e->store.gradients.used);
    CHECK_EQ(r.memory.optimizer, e->store.optimizer.used);
    CHECK_EQ(r.memory.gathered, e->store.gathered.used);
    CHECK_EQ(r.memory.activations, e->activations.used);
    CHECK_EQ(r.parameters, e->model.params.count);
}

static void compare(struct tr_engine *e, const struct tr_cost *cost, const char *name)
{
    tuttiCallCount_t before[TR_NUM_PARTNERS][TR_NUM_TRAFFIC], after[TR_NUM_TRAFFIC];
    for (int g = 0; g < TR_NUM_PARTNERS; ++g) read_counters(e, g, before[g]);
    CHECK_MESSAGE(step(e, 1) == TR_OK, "%s: %s", name, tr_error());
    for (int g = 0; g < TR_NUM_PARTNERS; ++g) {
        read_counters(e, g, after);
        for (int call = 0; call < TR_NUM_TRAFFIC; ++call) {
            const struct tr_traffic x = expected_of(e, cost, g, call);
            const uint64_t calls = after[call].calls - before[g][call].calls,
                           bytes = after[call].bytes - before[g][call].bytes;
            if (!comm_of(e, g)) continue;
            CHECK_MESSAGE(calls == x.calls && bytes == x.bytes,
                          "%s: rank %d: %s of %s: %llu calls of %llu bytes, expected %llu of %llu",
                          name, e->mesh->rank, tr_traffic_names[call], tr_partner_names[g],
                          (unsigned long long)calls, (unsigned long long)bytes,
                          (unsigned long long)x.calls, (unsigned long long)x.bytes);
        }
    }
}

/* No figure exceeds the bound by which sizes are refused. */
static void check_bound(const struct tr_setup *setup, const struct tr_cost *cost, const char *name)
{
    const struct tr_memory *m = &cost->memory;
    const double bound = tr_engine_bound(&setup->engine, setup->size);
    CHECK_MESSAGE((double)(m->weights + m->gradients + m->optimizer + m->gathered) <= bound &&
                      (double)m->activations <= bound,
                  "%s: the memory exceeds %g", name, bound);
    for (int group = 0; group < TR_NUM_PARTNERS; ++group)
        for (int call = 0; call < TR_NUM_TRAFFIC; ++call)
            CHECK_MESSAGE((double)cost->traffic[group][call].bytes <= bound,
                          "%s: %s of %s exceed %g", name, tr_traffic_names[call],
                          tr_partner_names[group], bound);
}

static void body(struct rank *self)
{
    const struct layout *l = self->arg;
    const struct tr_setup setup = setup_of(l);
    const struct tr_cost_sizes sizes = tr_cost_sizes_of(&setup.engine, setup.size);
    struct tr_mesh mesh;
    struct tr_engine e = {0};
    struct tr_cost cost;
    char name[128];
    snprintf(name, sizeof name, "%s %s pp %d dp %d fsdp %d ring %d ulysses %d tp %d zero %d",
             l->llama ? "llama" : "gpt2", tr_optimizer_rule(&setup.engine.optimizer)->name,
             l->size[0], l->size[1], l->size[2], l->size[3], l->size[4], l->size[5],
             (int)l->sharding);
    tr_process_tune();
    CHECK(tr_mesh_init(&mesh, self->world) == TR_OK);
    tr_status status = tr_mesh_shape(&mesh, l->size);
    if (status == TR_OK) status = tr_engine_init(&e, &mesh, tr_backend_choose(""), &setup.engine);
    if (status == TR_OK) status = step(&e, 0);
    CHECK_MESSAGE(status == TR_OK, "%s: %s", name, tr_error());
    if (status == TR_OK) {
        const struct tr_cost_rank rank = {.stage = mesh.coord[TR_PP],
                                          .stage_layers = e.nlayers,
                                          .stage_rank = mesh.rank % (mesh.nranks / l->size[TR_PP]),
                                          .shard = e.store.shard->rank,
                                          .samples = e.samples,
                                          .ulysses_rank = mesh.coord[TR_ULYSSES],
                                          .saves = e.store.replica->rank == 0};
        tr_cost_of(&sizes, &rank, &cost);
        check_bound(&setup, &cost, name);
        compare(&e, &cost, name);
        compare_memory(&e, &cost.memory);
        compare_rehearsal(&e, &setup, &cost, name);
        CHECK_EQ(tr_cost_parameters(&sizes), e.model.params.count);
    }
    tr_engine_fini(&e);
    tr_mesh_fini(&mesh);
}

TEST(cost, an_engine_calls_and_remembers_what_the_formulas_say)
{
    static const struct layout layouts[] = {
        {{1, 1, 1, 1, 1, 1}, TR_DDP, false, true, false, false, false, 8, 64, TR_ADAMW},
        {{1, 2, 1, 1, 1, 1}, TR_DDP, false, true, false, false, false, 7, 64, TR_ADAMW},
        {{1, 2, 1, 1, 1, 1}, TR_ZERO1, true, false, false, false, false, 8, 64, TR_ADAMW},
        {{1, 2, 1, 1, 1, 1}, TR_ZERO2, false, true, false, false, false, 8, 64, TR_ADAMW},
        {{1, 2, 1, 1, 1, 1}, TR_ZERO2, false, true, false, true, false, 8, 64, TR_ADAMW},
        {{1, 1, 2, 1, 1, 1}, TR_ZERO3, false, true, false, false, false, 8, 64, TR_ADAMW},
        {{1, 1, 2, 1, 1, 1}, TR_ZERO3, true, false, false, true, false, 8, 64, TR_ADAMW},
        {{1, 1, 2, 1, 1, 1}, TR_ZERO3, true, false, true, false, false, 8, 64, TR_ADAMW},
        {{1, 1, 2, 1, 1, 1}, TR_ZERO3, false, true, true, false, false, 8, 64, TR_ADAMW},
        {{1, 1, 2, 1, 1, 1}, TR_ZERO3, false, false, true, false, false, 16, 32, TR_ADAMW},
        {{1, 2, 2, 1, 1, 1}, TR_ZERO3, false, false, false, false, false, 8, 64, TR_ADAMW},
        {{1, 1, 1, 1, 1, 2}, TR_DDP, false, true, false, false, false, 8, 61, TR_ADAMW},
        {{1, 1, 1, 1, 1, 4}, TR_DDP, true, false, false, false, false, 8, 64, TR_ADAMW},
        {{1, 1, 2, 1, 1, 4}, TR_ZERO3, true, false, false, false, false, 8, 64, TR_ADAMW},
        {{2, 1, 1, 1, 1, 1}, TR_DDP, false, true, false, false, false, 8, 64, TR_ADAMW},
        {{2, 1, 2, 1, 1, 1}, TR_ZERO3, false, true, false, false, false, 8, 64, TR_ADAMW},
        {{2, 1, 2, 1, 1, 1}, TR_ZERO3, false, true, false, false, true, 8, 64, TR_ADAMW},
        {{2, 1, 2, 1, 1, 1}, TR_ZERO3, true, false, true, false, true, 8, 64, TR_ADAMW},
        {{1, 1, 1, 3, 1, 1}, TR_DDP, false, true, false, false, false, 8, 60, TR_ADAMW},
        {{1, 1, 1, 1, 3, 1}, TR_ZERO1, true, true, false, false, false, 8, 60, TR_ADAMW},
        {{1, 1, 1, 2, 2, 1}, TR_ZERO2, true, false, false, false, false, 8, 64, TR_ADAMW},
        {{2, 1, 1, 1, 2, 2}, TR_DDP, true, true, false, false, false, 8, 64, TR_ADAMW},
        {{2, 1, 2, 1, 1, 2}, TR_ZERO3, false, true, false, false, true, 8, 64, TR_ADAMW},
        {{1, 1, 2, 1, 1, 1}, TR_ZERO3, false, true, false, false, false, 47, 16, TR_ADAMW},
    };
    for (size_t i = 0; i < sizeof layouts / sizeof layouts[0]; ++i) {
        int n = 1;
        for (int axis = 0; axis < TR_NUM_AXES; ++axis) n *= layouts[i].size[axis];
        struct layout layout = layouts[i];
        layout.optimizer = (enum tr_optimizer_kind)(i % TR_NUM_OPTIMIZERS);
        CHECK(run_ranks(n, body, &layout));
    }
}

/* Heads of one float: the sums of attention are as many as its queries. */
static void remember_narrow_heads(struct rank *self)
{
    const int size[TR_NUM_AXES] = {1, 1, 1, 1, self->nranks, 1};
    struct tr_setup setup = {.engine = {.model = {.kind = TR_GPT2,
                                                  .layers = 12,
                                                  .heads = 64,
                                                  .kv_heads = 64,
                                                  .width = 64,
                                                  .hidden = 1,
                                                  .vocabulary = 5,
                                                  .context = 64,
                                                  .tied = true},
                                        .schedule = TR_1F1B,
                                        .batch = 4,
                                        .micro_batch = 4},
                             .snapshot = true};
    memcpy(setup.size, size, sizeof size);
    const struct tr_cost_sizes sizes = tr_cost_sizes_of(&setup.engine, setup.size);
    const struct tr_cost_rank rank = {
        .stage_layers = 12, .samples = 4, .ulysses_rank = self->rank, .saves = self->rank == 0};
    struct tr_mesh mesh;
    struct tr_engine e = {0};
    struct tr_cost cost;
    CHECK(tr_mesh_init(&mesh, self->world) == TR_OK);
    tr_status status = tr_mesh_shape(&mesh, size);
    if (status == TR_OK) status = tr_engine_init(&e, &mesh, tr_backend_choose(""), &setup.engine);
    CHECK_MESSAGE(status == TR_OK, "%s", tr_error());
    tr_cost_of(&sizes, &rank, &cost);
    if (status == TR_OK) compare_memory(&e, &cost.memory);
    /* A block: input, norms and middle of 64 floats, means and deviations, 4 h of q, k, v and out,
     * two floats of the MLP. Ulysses: q, k, v and out once more, and the sums of its heads. */
    const int rows = 4 * 64 / self->nranks, more = self->nranks > 1 ? 4 * 64 : 0;
    const uint64_t block = (uint64_t)(rows * (4 * 64 + 4 + 4 * 64 + 2 + 64 + more));
    const uint64_t blocks = 12 * block * sizeof(float), used = e.activations.used;
    CHECK_MESSAGE(used > blocks && used - blocks < blocks / 8, "%llu bytes, of blocks %llu",
                  (unsigned long long)used, (unsigned long long)blocks);
    tr_engine_fini(&e);
    tr_mesh_fini(&mesh);
}

TEST(cost, a_block_keeps_the_sums_of_attention_once_with_ulysses_too)
{
    CHECK(run_ranks(1, remember_narrow_heads, NULL));
    CHECK(run_ranks(2, remember_narrow_heads, NULL));
}
