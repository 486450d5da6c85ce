/* The store of units on ranks as threads: every mode on every mesh leaves the plain sum in the
 * shard, gathers the weights that one rank alone would compute, and issues exactly the collectives
 * of the formulas. */
#include <string.h>

#include "../shim.h"
#include "trial.h"

enum { STEPS = 3 };

/* ---- The formulas ---- */

/* All-reduces over tp and between tied stages, per step. */
static void expect_sections(const struct trial *t, struct tr_traffic *reduced)
{
    for (int place = 0; place < t->store.nunits; ++place) {
        const struct tr_unit_state *s = &t->store.units[place];
        const struct tr_unit *u = &t->params.units[s->unit];
        size_t floats[TR_NUM_SECTIONS] = {0};
        for (size_t i = s->first; i < s->first + s->count; ++i) floats[trial_section_at(u, i)]++;
        for (int section = TR_SHARED; section < TR_NUM_SECTIONS; ++section) {
            if (t->mesh->size[TR_TP] == 1) continue;
            reduced->calls += floats[section] > 0;
            reduced->bytes += floats[section] * 4;
        }
        reduced->calls += u->tied_stage >= 0;
        reduced->bytes += u->tied_stage >= 0 ? s->count * 4 : 0;
    }
}

static int buckets_of(const struct trial *t)
{
    int tensors = 0;
    for (int place = 0; place < t->store.nunits; ++place)
        tensors += t->params.units[t->store.units[place].unit].nparams;
    return t->mode->bucket_bytes == 0 ? tensors : 1;
}

static void expect_traffic(const struct trial *t, struct tr_traffic expected[TR_NUM_TRAFFIC])
{
    const struct tr_store *store = &t->store;
    const uint64_t units = (uint64_t)store->nunits, micros = (uint64_t)t->micros;
    const uint64_t n = (uint64_t)tr_mesh_extent(t->mesh->size, trial_shard_axes(t->mode->sharding));
    const bool fsdp = t->mode->sharding == TR_ZERO3;
    uint64_t bytes = 0;
    for (uint64_t u = 0; u < units; ++u) bytes += t->params.units[store->units[u].unit].total * 4;
    struct tr_traffic *reduced = &expected[TR_ALL_REDUCE];
    expect_sections(t, reduced);
    if (tr_mesh_extent(t->mesh->size, TR_AXES_DATA & ~trial_shard_axes(t->mode->sharding)) > 1) {
        reduced->calls += n > 1 ? units : (uint64_t)buckets_of(t);
        reduced->bytes += bytes / n;
    }
    if (n == 1) return;
    const bool once = t->mode->sharding == TR_ZERO1 || t->mode->reduce_last;
    const uint64_t reductions = once ? 1 : micros;
    expected[TR_REDUCE_SCATTER] = (struct tr_traffic){reductions * units, reductions * bytes};
    expected[TR_ALL_GATHER] = (struct tr_traffic){units, bytes};
    if (!fsdp || t->mode->keep_gathered) return;
    /* Twice a micro-batch, but the last unit of forward is kept for backward. A tied embedding: at
     * both ends of forward; the head's is kept for backward. */
    const uint64_t last = t->params.units[store->units[units - 1].unit].total * 4;
    expected[TR_ALL_GATHER] =
        (struct tr_traffic){micros * (2 * units - 1), micros * (2 * bytes - last)};
    if (trial_tied_here(t)) {
        expected[TR_ALL_GATHER].calls += micros;
        expected[TR_ALL_GATHER].bytes += micros * t->params.units[0].total * 4;
    }
}

static void check_traffic(const struct trial *t, const struct tr_traffic before[TR_NUM_TRAFFIC])
{
    static const char *const names[] = {"all-reduce", "reduce-scatter", "all-gather"};
    struct tr_traffic expected[TR_NUM_TRAFFIC] = {0};
    expect_traffic(t, expected);
    for (int kind = 0; kind < TR_NUM_TRAFFIC; ++kind) {
        const struct tr_traffic *now = &t->store.traffic[kind];
        const uint64_t calls = now->calls - before[kind].calls;
        const uint64_t bytes = now->bytes - before[kind].bytes;
        const bool any = t->mode->bucket_bytes == 12000 && kind == TR_ALL_REDUCE;
        CHECK_MESSAGE((calls == expected[kind].calls || any) && bytes == expected[kind].bytes,
                      "%s: %llu %s of %llu bytes, expected %llu of %llu", t->mode->name,
                      (unsigned long long)calls, names[kind], (unsigned long long)bytes,
                      (unsigned long long)expected[kind].calls,
                      (unsigned long long)expected[kind].bytes);
    }
}

/* ---- Memory ---- */

/* Bytes of AdamW's two states of the tensors in this rank's shard, without what pads the unit, each
 * on cache lines of its own. */
static size_t states_of(const struct trial *t, const struct tr_unit_state *s)
{
    const struct tr_unit *unit = &t->params.units[s->unit];
    size_t bytes = 0;
    for (int p = unit->first_param; p < unit->first_param + unit->nparams; ++p) {
        const struct tr_param *param = &t->params.items[p];
        size_t count = 0;
        for (size_t i = 0; i < (size_t)(param->local[0] * param->local[1]); ++i)
            count += param->offset + i >= s->first && param->offset + i < s->first + s->count;
        bytes += 2 * ((count * 4 + 63) / 64 * 64);
    }
    return bytes;
}

/* Bytes of a stage's units, of the slots that they need, and of this rank's shards. */
static void check_memory(const struct trial *t)
{
    const struct tr_store *store = &t->store;
    const size_t n = (size_t)store->shard->n;
    size_t all = 0, apart = 0, largest = 0, others = 0, states = 0;
    for (int place = 0; place < store->nunits; ++place) {
        const int unit = store->units[place].unit;
        const size_t bytes = t->params.units[unit].total * 4;
        const bool end = unit == 0 || unit == BLOCKS + 3;
        all += bytes;
        if (end && bytes > apart) apart = bytes;
        if (!end && bytes > largest) largest = bytes;
        others += !end;
        states += states_of(t, &store->units[place]);
    }
    const size_t slots = apart + (others < 2 ? others : 2) * largest;
    const bool gathers = t->mode->sharding == TR_ZERO3 && n > 1 && !t->mode->keep_gathered;
    const bool whole = t->mode->sharding < TR_ZERO2 || t->mode->reduce_last || n == 1;
    CHECK_EQ(store->weights.used, gathers ? all / n : all);
    CHECK_EQ(store->gathered.used, gathers ? slots : 0);
    CHECK_EQ(store->gradients.used, whole ? all : all / n + slots);
    CHECK_EQ(store->optimizer.used, states);
}

/* ---- Trials ---- */

static tr_status run_step(struct trial *t)
{
    struct tr_traffic before[TR_NUM_TRAFFIC];
    memcpy(before, t->store.traffic, sizeof before);
    tr_store_begin(&t->store);
    for (int micro = 0; micro < t->micros; ++micro) {
        TR_TRY(trial_forward(t));
        TR_TRY(trial_backward(t, micro));
    }
    TR_TRY(tr_store_finish(&t->store));
    trial_update(t);
    TR_TRY(tr_store_publish(&t->store));
    check_traffic(t, before);
    return TR_OK;
}

static void every_mode(struct rank *self)
{
    const struct grid *grid = self->arg;
    struct tr_mesh mesh;
    tr_status status = trial_connect(&mesh, self, grid);
    for (int m = 0; m < NMODES && status == TR_OK; ++m) {
        if (!(grid->modes >> m & 1)) continue;
        struct trial t = {.grid = grid, .mode = &trial_modes[m], .mesh = &mesh};
        status = trial_open(&t);
        if (status == TR_OK) check_memory(&t);
        for (t.step = 0; t.step < STEPS && status == TR_OK; ++t.step) {
            t.micros = 3 - t.step;
            status = run_step(&t);
        }
        if (status != TR_OK)
            tt_test_fail(__FILE__, __LINE__, "%s, rank %d: %s", trial_modes[m].name, self->rank,
                         tr_error());
        trial_close(&t);
    }
    tr_mesh_fini(&mesh);
}

/* Under a sanitizer a third of the modes each time. */
static void check_grid(struct grid grid)
{
    if (!grid.share) grid.share = 1;
    for (int m = 0; m < NMODES; ++m)
        if (trial_fits(&trial_modes[m], &grid) && tt_test_share(3)) grid.modes |= 1u << m;
    const int n = tr_mesh_extent(grid.size, (1u << TR_NUM_AXES) - 1);
    CHECK_MESSAGE(run_ranks(n, every_mode, &grid), "no %d ranks", n);
    if (tt_test_failed())
        tt_test_fail(__FILE__, __LINE__, "pp %d dp %d fsdp %d ring %d ulysses %d tp %d%s",
                     grid.size[0], grid.size[1], grid.size[2], grid.size[3], grid.size[4],
                     grid.size[5], grid.tied ? " tied" : "");
}

TEST(store, one_rank_communicates_nothing_in_any_mode)
{
    check_grid((struct grid){.size = {1, 1, 1, 1, 1, 1}});
    check_grid((struct grid){.size = {1, 1, 1, 1, 1, 1}, .tied = true});
}

TEST(store, every_mode_sums_over_the_data_axes)
{
    check_grid((struct grid){.size = {1, 2, 1, 1, 1, 1}});
    check_grid((struct grid){.size = {1, 3, 1, 1, 1, 1}, .tied = true});
    check_grid((struct grid){.size = {1, 1, 2, 1, 1, 1}, .tied = true});
    check_grid((struct grid){.size = {1, 1, 3, 1, 1, 1}});
    check_grid((struct grid){.size = {1, 1, 1, 2, 2, 1}});
    check_grid((struct grid){.size = {1, 1, 1, 3, 1, 1}, .tied = true});
    check_grid((struct grid){.size = {1, 1, 1, 1, 2, 1}});
    check_grid((struct grid){.size = {1, 4, 1, 1, 1, 1}});
    check_grid((struct grid){.size = {1, 1, 8, 1, 1, 1}});
}

TEST(store, hybrid_sharding_sums_shards_over_the_replicas)
{
    check_grid((struct grid){.size = {1, 2, 2, 1, 1, 1}, .tied = true});
    check_grid((struct grid){.size = {1, 2, 2, 1, 2, 1}});
    check_grid((struct grid){.size = {1, 2, 1, 2, 1, 1}});
}

TEST(store, tensors_that_ranks_of_tp_hold_together_are_summed_over_tp)
{
    check_grid((struct grid){.size = {1, 1, 1, 1, 1, 2}});
    check_grid((struct grid){.size = {1, 1, 1, 1, 1, 4}, .share = 2});
    check_grid((struct grid){.size = {1, 2, 1, 1, 1, 4}, .share = 2, .tied = true});
    check_grid((struct grid){.size = {1, 1, 2, 1, 1, 2}});
    check_grid((struct grid){.size = {1, 2, 2, 1, 1, 2}});
}

TEST(store, both_stages_of_a_tied_unit_get_its_whole_gradient)
{
    check_grid((struct grid){.size = {2, 1, 1, 1, 1, 1}, .tied = true});
    check_grid((struct grid){.size = {3, 1, 1, 1, 1, 1}, .tied = true});
    check_grid((struct grid){.size = {2, 2, 1, 1, 1, 1}, .tied = true});
    check_grid((struct grid){.size = {2, 1, 2, 1, 1, 2}, .tied = true});
    check_grid((struct grid){.size = {2, 2, 2, 1, 1, 1}});
}

/* One rank of the first stage needs more memory than there is, the second stage does not. */
static void fail_on_one_stage(struct rank *self)
{
    const struct grid *grid = self->arg;
    struct tr_mesh mesh;
    CHECK_EQ(TR_OK, trial_connect(&mesh, self, grid));
    const struct tr_store_options options = {.sharding = TR_ZERO1,
                                             .shard_axes = trial_shard_axes(TR_ZERO1)};
    struct tr_params params;
    tr_params_init(&params, tr_backend_choose(""), 1, 0, 2);
    for (int stage = 0; stage < 2; ++stage) {
        tr_params_begin_unit(&params, stage ? "small" : "huge");
        params.units[stage].stage = stage;
        const struct tr_layout whole = {-1, 0, 0};
        tr_param_add(&params, stage ? "small" : "huge", stage ? 1 : 1L << 50, 0, whole, 0, 1);
    }
    tr_params_place(&params);
    struct tr_store store;
    const tr_status status = tr_store_init(&store, &mesh, &params, &options, SEED);
    if (status >= 0)
        tt_test_fail(__FILE__, __LINE__, "rank %d goes on though another one failed", self->rank);
    tr_store_fini(&store);
    tr_params_fini(&params);
    tr_mesh_fini(&mesh);
}

TEST(store, a_rank_without_memory_fails_every_rank)
{
    const struct grid grid = {.size = {2, 2, 1, 1, 1, 1}, .share = 1};
    CHECK(run_ranks(4, fail_on_one_stage, &grid));
}
