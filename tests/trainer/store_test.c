/* The store of units on ranks as threads: with gradients that are known for each rank and
 * micro-batch, every mode on every mesh leaves the plain sum in the shard, gathers the weights that
 * one rank alone would compute, and issues exactly the collectives of the formulas. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../trainer/parallel/store.h"
#include "../shim.h"
#include "ranks.h"

enum { BLOCKS = 3, STEPS = 3, SEED = 5 };

/* ---- A model without a model: units of all sections, with odd sizes ---------------------------
 */

struct grid {
    int size[TR_NUM_AXES]; /* pp dp fsdp ring ulysses tp */
    int share;             /* ranks of tp that share a tensor */
    bool tied;             /* the head uses the embedding's unit */
};

static void add(struct tr_params *params, const char *name, long rows, long cols,
                struct tr_layout layout)
{
    tr_param_add(params, name, rows, cols, layout, 0, 1);
}

static void make_registry(struct tr_params *params, const struct grid *grid, int tp_rank,
                          int shards)
{
    static const struct tr_layout whole = {-1, 0, 0};
    const int pp = grid->size[TR_PP];
    char name[TR_NAME_BYTES];
    tr_params_init(params, grid->size[TR_TP], tp_rank, shards);
    tr_params_begin_unit(params, "embedding");
    add(params, "token", 257, 19, (struct tr_layout){0, 1, 257});
    tr_params_begin_unit(params, "place");
    add(params, "place", 9, 5, whole);
    for (int b = 0; b < BLOCKS; ++b) {
        snprintf(name, sizeof name, "block%d", b);
        tr_params_begin_unit(params, name);
        params->units[params->nunits - 1].stage = b * pp / BLOCKS;
        const char *const tensors[] = {"norm", "q", "k", "down", "bias"};
        const struct tr_layout layouts[] = {
            whole, {0, 3, 16}, {0, 6, grid->size[TR_TP] / grid->share}, {1, 1, 13}, whole};
        const long shapes[][2] = {
            {11, 0}, {48, 37}, {6 * grid->size[TR_TP] / grid->share, 7}, {7, 13}, {1100, 0}};
        for (int t = 0; t < 5; ++t) {
            snprintf(name, sizeof name, "block%d.%s", b, tensors[t]);
            add(params, name, shapes[t][0], shapes[t][1], layouts[t]);
        }
    }
    tr_params_begin_unit(params, "final");
    params->units[params->nunits - 1].stage = pp - 1;
    add(params, "norm", 11, 0, whole);
    if (!grid->tied) {
        tr_params_begin_unit(params, "head");
        params->units[params->nunits - 1].stage = pp - 1;
        add(params, "head", 257, 19, (struct tr_layout){0, 1, 257});
    } else if (pp > 1) {
        params->units[0].tied_stage = pp - 1;
    }
    tr_params_place(params);
}

/* ---- What each rank's backward adds, and what comes of it -------------------------------------
 */

struct mode {
    const char *name;
    enum tr_sharding sharding;
    bool reduce_last, keep_gathered, prefetch;
    size_t bucket_bytes;
};
static const struct mode modes[] = {
    {"DDP", TR_DDP, .bucket_bytes = 1 << 30},
    {"DDP, a bucket a tensor", TR_DDP, .bucket_bytes = 0},
    {"DDP, middling buckets", TR_DDP, .bucket_bytes = 12000},
    {"ZeRO-1", TR_ZERO1, .bucket_bytes = 0},
    {"ZeRO-2", TR_ZERO2, .bucket_bytes = 0},
    {"ZeRO-2, reduced last", TR_ZERO2, .reduce_last = true},
    {"FSDP", TR_ZERO3, .bucket_bytes = 0},
    {"FSDP, prefetch", TR_ZERO3, .prefetch = true},
    {"FSDP, prefetch, kept", TR_ZERO3, .prefetch = true, .keep_gathered = true},
    {"FSDP, prefetch, reduced last", TR_ZERO3, .prefetch = true, .reduce_last = true},
    {"FSDP, kept, reduced last", TR_ZERO3, .keep_gathered = true, .reduce_last = true},
};
enum { NMODES = sizeof modes / sizeof modes[0] };

static tr_axes shard_axes(enum tr_sharding sharding)
{
    return sharding == TR_DDP     ? 0
           : sharding == TR_ZERO3 ? TR_AXES_SEQUENCE | 1u << TR_FSDP
                                  : TR_AXES_SEQUENCE | 1u << TR_DP;
}

struct trial {
    const struct grid *grid;
    const struct mode *mode;
    struct tr_mesh *mesh;
    struct tr_params params;
    struct tr_store store;
    float *expected[BLOCKS + 4]; /* [nunits]: whole weights as one rank would have them */
    int micros, step;
    bool fractions; /* gradients that are no small integers: sums depend on their order */
};

/* Rank 1 has an empty second micro-batch. Nobody touches the units `place` and `block1` in the
 * first. */
static bool touches(int rank, int micro, int unit)
{
    return !(rank == 1 && micro == 1) && !(micro == 0 && (unit == 1 || unit == 3));
}

static float gradient(const struct trial *t, int rank, int micro, int unit, size_t i)
{
    if (!touches(rank, micro, unit)) return 0;
    const unsigned key = (((unsigned)rank * 8 + (unsigned)micro) * 16 + (unsigned)unit) * 8;
    const uint64_t hash = (i + 1) * (key + (unsigned)t->step + 1) * 0x9E3779B97F4A7C15u >> 32;
    return t->fractions ? (float)(hash % 100003) * 0x1p-15f : (float)(hash % 17) - 8;
}

static bool holds(const struct tr_unit *unit, int stage)
{
    return unit->stage == stage || unit->tied_stage == stage;
}

static enum tr_section section_at(const struct tr_unit *unit, size_t i)
{
    for (int s = TR_NUM_SECTIONS - 1; s > 0; --s)
        if (i >= unit->section[s] && i < unit->section[s + 1]) return (enum tr_section)s;
    return TR_CUT;
}

/* The sum over all ranks that hold an equal slice, from the definition. */
static float whole_sum(const struct trial *t, int unit, size_t i)
{
    const struct tr_mesh *mesh = t->mesh;
    const struct tr_unit *u = &t->params.units[unit];
    const enum tr_section section = section_at(u, i);
    float sum = 0;
    for (int rank = 0; rank < mesh->nranks; ++rank) {
        int at[TR_NUM_AXES];
        tr_mesh_coords(mesh->size, rank, at);
        const int tp = at[TR_TP], mine = mesh->coord[TR_TP], share = t->grid->share;
        const bool same = section == TR_CUT      ? tp == mine
                          : section == TR_SHARED ? tp / share == mine / share
                                                 : true;
        if (!same || !holds(u, at[TR_PP])) continue;
        for (int micro = 0; micro < t->micros; ++micro) sum += gradient(t, rank, micro, unit, i);
    }
    return sum;
}

/* ---- A step as the trainer does it ------------------------------------------------------------
 */

static tr_status use_weights(struct trial *t, int unit, int next, const char *when)
{
    TR_TRY(tr_store_acquire(&t->store, unit, next));
    const struct tr_unit_state *s = tr_store_unit(&t->store, unit);
    if (memcmp(s->weights, t->expected[unit], t->params.units[unit].total * sizeof(float)))
        tt_test_fail(__FILE__, __LINE__, "%s, step %d, rank %d: wrong weights of unit %s in %s",
                     t->mode->name, t->step, t->mesh->rank, t->params.units[unit].name, when);
    return TR_OK;
}

static int unit_at(const struct trial *t, int place)
{
    return place >= 0 && place < t->store.nunits ? t->store.units[place].unit : -1;
}

/* Whether one stage embeds and has the head, with one unit. */
static bool tied_here(const struct trial *t)
{
    return t->grid->tied && t->grid->size[TR_PP] == 1;
}

static tr_status forward(struct trial *t)
{
    const int n = t->store.nunits;
    if (tied_here(t)) { /* the embedding is used at both ends, together with others */
        TR_TRY(use_weights(t, 0, 1, "forward"));
        TR_TRY(use_weights(t, 1, 2, "forward"));
        tr_store_release(&t->store, 0);
        tr_store_release(&t->store, 1);
    }
    for (int place = tied_here(t) ? 2 : 0; place < n; ++place) {
        /* The last unit is the first of backward. */
        const int unit = unit_at(t, place), next = unit_at(t, place + 1 < n ? place + 1 : place);
        if (tied_here(t) && place == n - 1) TR_TRY(use_weights(t, 0, 0, "the head"));
        TR_TRY(use_weights(t, unit, next, "forward"));
        if (tied_here(t) && place == n - 1) tr_store_release(&t->store, 0);
        tr_store_release(&t->store, unit);
    }
    return TR_OK;
}

/* Adds a part of a micro-batch's gradient: half of the tied unit's comes from the head. */
static tr_status add_gradients(struct trial *t, int unit, int micro, int half)
{
    if (!touches(t->mesh->rank, micro, unit)) return TR_OK;
    TR_TRY(tr_store_gradients(&t->store, unit));
    float *g = tr_store_unit(&t->store, unit)->gradients;
    for (size_t i = 0; i < t->params.units[unit].total; ++i)
        if (half < 0 || (int)(i % 2) == half) g[i] += gradient(t, t->mesh->rank, micro, unit, i);
    return TR_OK;
}

static tr_status backward(struct trial *t, int micro)
{
    tr_store_micro(&t->store, micro == t->micros - 1);
    if (tied_here(t)) {
        TR_TRY(use_weights(t, 0, -1, "backward of the head"));
        TR_TRY(add_gradients(t, 0, micro, 0));
        tr_store_release(&t->store, 0);
    }
    for (int place = t->store.nunits - 1; place >= 0; --place) {
        const int unit = unit_at(t, place);
        TR_TRY(use_weights(t, unit, unit_at(t, place - 1), "backward"));
        TR_TRY(add_gradients(t, unit, micro, tied_here(t) && unit == 0 ? 1 : -1));
        const struct tr_unit *u = &t->params.units[unit];
        /* Not in the order of memory, and not all of them. */
        for (int p = 0; p + 1 < u->nparams; ++p)
            tr_store_ready(&t->store, u->first_param + (p + 2) % u->nparams);
        tr_store_release(&t->store, unit);
        TR_TRY(tr_store_complete(&t->store, unit));
    }
    return TR_OK;
}

/* Checks every shard, takes the gradient off the weights, and off what is expected. */
static void update(struct trial *t)
{
    for (int place = 0; place < t->store.nunits; ++place) {
        const struct tr_unit_state *s = &t->store.units[place];
        const size_t total = t->params.units[s->unit].total;
        for (size_t i = 0; i < total; ++i) {
            const float sum = whole_sum(t, s->unit, i);
            t->expected[s->unit][i] -= sum;
            if (i < s->first || i >= s->first + s->count) continue;
            if (s->gradient_shard[i - s->first] != sum && !t->fractions) {
                tt_test_fail(__FILE__, __LINE__,
                             "%s, step %d, rank %d: gradient %zu of unit %s is %g, expected %g",
                             t->mode->name, t->step, t->mesh->rank, i,
                             t->params.units[s->unit].name, (double)s->gradient_shard[i - s->first],
                             (double)sum);
                return;
            }
            s->weight_shard[i - s->first] -= sum;
        }
    }
}

/* ---- The formulas -----------------------------------------------------------------------------
 */

/* All-reduces over tp and between tied stages, per step. */
static void expect_sections(const struct trial *t, struct tr_traffic *reduced)
{
    for (int place = 0; place < t->store.nunits; ++place) {
        const struct tr_unit_state *s = &t->store.units[place];
        const struct tr_unit *u = &t->params.units[s->unit];
        size_t floats[TR_NUM_SECTIONS] = {0};
        for (size_t i = s->first; i < s->first + s->count; ++i) floats[section_at(u, i)]++;
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
    const uint64_t n = (uint64_t)tr_mesh_extent(t->mesh->size, shard_axes(t->mode->sharding));
    const bool fsdp = t->mode->sharding == TR_ZERO3;
    uint64_t bytes = 0;
    for (uint64_t u = 0; u < units; ++u) bytes += t->params.units[store->units[u].unit].total * 4;
    struct tr_traffic *reduced = &expected[TR_ALL_REDUCE];
    expect_sections(t, reduced);
    if (tr_mesh_extent(t->mesh->size, TR_AXES_DATA & ~shard_axes(t->mode->sharding)) > 1) {
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
    if (tied_here(t)) {
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

/* ---- Trials -----------------------------------------------------------------------------------
 */

static tr_status open_trial(struct trial *t)
{
    const struct mode *mode = t->mode;
    struct tr_store_options options = {.sharding = mode->sharding,
                                       .reduce_last = mode->reduce_last,
                                       .keep_gathered = mode->keep_gathered,
                                       .prefetch = mode->prefetch,
                                       .bucket_bytes = mode->bucket_bytes,
                                       .shard_axes = shard_axes(mode->sharding),
                                       .apart = {0, t->grid->tied ? -1 : BLOCKS + 3}};
    make_registry(&t->params, t->grid, t->mesh->coord[TR_TP],
                  tr_mesh_extent(t->mesh->size, options.shard_axes));
    for (int u = 0; u < t->params.nunits; ++u) {
        const size_t total = t->params.units[u].total;
        t->expected[u] = calloc(total, sizeof(float));
        tr_params_initialize(&t->params, u, t->expected[u], 0, total, SEED);
    }
    return tr_store_init(&t->store, t->mesh, &t->params, &options, SEED);
}

static void close_trial(struct trial *t)
{
    tr_store_fini(&t->store);
    for (int u = 0; u < t->params.nunits; ++u) free(t->expected[u]);
    tr_params_fini(&t->params);
}

static tr_status run_step(struct trial *t)
{
    struct tr_traffic before[TR_NUM_TRAFFIC];
    memcpy(before, t->store.traffic, sizeof before);
    tr_store_begin(&t->store);
    for (int micro = 0; micro < t->micros; ++micro) {
        TR_TRY(forward(t));
        TR_TRY(backward(t, micro));
    }
    TR_TRY(tr_store_finish(&t->store));
    update(t);
    TR_TRY(tr_store_publish(&t->store));
    check_traffic(t, before);
    return TR_OK;
}

/* Whether a mode can be on a mesh: ZeRO-1 and 2 shard over dp, FSDP over fsdp. */
static bool fits(const struct mode *mode, const struct grid *grid)
{
    return (mode->sharding != TR_ZERO1 && mode->sharding != TR_ZERO2) || grid->size[TR_FSDP] == 1;
}

static tr_status connect(struct tr_mesh *mesh, struct rank *self, const struct grid *grid)
{
    tr_axes sets[] = {TR_AXES_DATA, 0, 0, 0, 0};
    for (int z = TR_ZERO2, n = 1; z <= TR_ZERO3; ++z) {
        sets[n++] = shard_axes((enum tr_sharding)z);
        sets[n++] = TR_AXES_DATA & ~shard_axes((enum tr_sharding)z);
    }
    TR_TRY(tr_mesh_init(mesh, self->world));
    TR_TRY(tr_mesh_shape(mesh, grid->size));
    return tr_mesh_connect(mesh, sets, 5, grid->share, false);
}

static void every_mode(struct rank *self)
{
    const struct grid *grid = self->arg;
    struct tr_mesh mesh;
    tr_status status = connect(&mesh, self, grid);
    for (int m = 0; m < NMODES && status == TR_OK; ++m) {
        if (!fits(&modes[m], grid)) continue;
        struct trial t = {.grid = grid, .mode = &modes[m], .mesh = &mesh};
        status = open_trial(&t);
        for (t.step = 0; t.step < STEPS && status == TR_OK; ++t.step) {
            t.micros = 3 - t.step;
            status = run_step(&t);
        }
        if (status != TR_OK)
            tt_test_fail(__FILE__, __LINE__, "%s, rank %d: %s", modes[m].name, self->rank,
                         tr_error());
        close_trial(&t);
    }
    tr_mesh_fini(&mesh);
}

static void check_grid(struct grid grid)
{
    if (!grid.share) grid.share = 1;
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

/* ---- Bit for bit ------------------------------------------------------------------------------
 */

enum { MOST_UNITS = BLOCKS + 4 };

/* One step's gradients of this rank's stage, gathered whole through the weights. */
static tr_status one_step(const struct grid *grid, const struct mode *mode, int micros,
                          struct tr_mesh *mesh, uint64_t sums[MOST_UNITS])
{
    struct trial t = {
        .grid = grid, .mode = mode, .mesh = mesh, .micros = micros, .fractions = true};
    tr_status status = open_trial(&t);
    tr_store_begin(&t.store);
    for (int micro = 0; micro < micros && status == TR_OK; ++micro) status = backward(&t, micro);
    if (status == TR_OK) status = tr_store_finish(&t.store);
    for (int place = 0; place < t.store.nunits && status == TR_OK; ++place) {
        const struct tr_unit_state *s = &t.store.units[place];
        memcpy(s->weight_shard, s->gradient_shard, s->count * sizeof(float));
    }
    if (status == TR_OK) status = tr_store_publish(&t.store);
    for (int place = 0; place < t.store.nunits && status == TR_OK; ++place) {
        const struct tr_unit_state *s = &t.store.units[place];
        const struct tr_unit *u = &t.params.units[s->unit];
        status = tr_store_acquire(&t.store, s->unit, -1);
        sums[s->unit] = tr_checksum(s->weights, u->section[TR_NUM_SECTIONS] * sizeof(float));
        tr_store_release(&t.store, s->unit);
    }
    close_trial(&t);
    return status;
}

struct bits {
    struct grid grid;
    uint64_t sums[2][NMODES][MOST_UNITS]; /* rank 0's, at one micro-batch and at two */
};

static void gradients_of_every_mode(struct rank *self)
{
    struct bits *bits = (struct bits *)(uintptr_t)self->arg;
    struct tr_mesh mesh;
    tr_status status = connect(&mesh, self, &bits->grid);
    for (int micros = 1; micros <= 2; ++micros)
        for (int m = 0; m < NMODES && status == TR_OK; ++m) {
            uint64_t sums[MOST_UNITS] = {0};
            if (!fits(&modes[m], &bits->grid)) continue;
            status = one_step(&bits->grid, &modes[m], micros, &mesh, sums);
            if (self->rank == 0) memcpy(bits->sums[micros - 1][m], sums, sizeof sums);
        }
    CHECK_MESSAGE(status == TR_OK, "rank %d: %s", self->rank, tr_error());
    tr_mesh_fini(&mesh);
}

TEST(store, every_mode_has_the_bits_of_ddp_where_it_reduces_once)
{
    static struct bits bits[2] = {{.grid = {.size = {1, 2, 1, 1, 1, 1}, .share = 1}},
                                  {.grid = {.size = {1, 1, 2, 1, 1, 1}, .share = 1}}};
    for (int i = 0; i < 2; ++i) REQUIRE(run_ranks(2, gradients_of_every_mode, &bits[i]));
    for (int i = 0; i < 2; ++i)
        for (int micros = 1; micros <= 2; ++micros)
            for (int m = 0; m < NMODES; ++m) {
                const bool once =
                    micros == 1 || modes[m].reduce_last || modes[m].sharding < TR_ZERO2;
                if (!once || !fits(&modes[m], &bits[i].grid)) continue;
                CHECK_MESSAGE(!memcmp(bits[i].sums[micros - 1][m], bits[0].sums[micros - 1][0],
                                      sizeof bits[0].sums[0][0]),
                              "%s differs from DDP at %d micro-batches", modes[m].name, micros);
            }
}

/* ---- Mistakes ---------------------------------------------------------------------------------
 */

struct mistake {
    struct grid grid;
    int mode;
    tr_status (*make)(struct trial *t);
    const char *says;
};

static void make_mistake(struct rank *self)
{
    const struct mistake *mistake = self->arg;
    struct tr_mesh mesh;
    struct trial t = {
        .grid = &mistake->grid, .mode = &modes[mistake->mode], .mesh = &mesh, .micros = 1};
    CHECK(connect(&mesh, self, &mistake->grid) == TR_OK);
    CHECK_MESSAGE(open_trial(&t) == TR_OK, "%s", tr_error());
    tr_store_begin(&t.store);
    const tr_status status = mistake->make(&t);
    CHECK_MESSAGE(status == TR_FAILED && strstr(tr_error(), mistake->says),
                  "rank %d: status %d, \"%s\" instead of \"%s\"", self->rank, status, tr_error(),
                  mistake->says);
    close_trial(&t);
    tr_mesh_fini(&mesh);
}

static tr_status complete_in_forward_order(struct trial *t)
{
    tr_store_micro(&t->store, true);
    return tr_store_complete(&t->store, 0);
}

static tr_status complete_twice(struct trial *t)
{
    TR_TRY(backward(t, 0));
    return tr_store_complete(&t->store, 0);
}

static tr_status leave_a_unit_out(struct trial *t)
{
    tr_store_micro(&t->store, true);
    for (int place = t->store.nunits - 1; place > 0; --place)
        TR_TRY(tr_store_complete(&t->store, unit_at(t, place)));
    return tr_store_finish(&t->store);
}

static tr_status never_say_last(struct trial *t)
{
    t->micros = 2;
    TR_TRY(backward(t, 0));
    return tr_store_finish(&t->store);
}

static tr_status report_a_tensor_twice(struct trial *t)
{
    tr_store_micro(&t->store, true);
    TR_TRY(tr_store_gradients(&t->store, 0));
    tr_store_ready(&t->store, 0);
    tr_store_ready(&t->store, 0);
    for (int place = t->store.nunits - 1; place >= 0; --place)
        TR_TRY(tr_store_complete(&t->store, unit_at(t, place)));
    return tr_store_finish(&t->store);
}

static tr_status use_three_units_at_once(struct trial *t)
{
    TR_TRY(tr_store_acquire(&t->store, 0, -1));
    for (int u = 1; u < 4; ++u) TR_TRY(tr_store_acquire(&t->store, u, -1));
    return TR_OK;
}

static tr_status publish_while_in_use(struct trial *t)
{
    TR_TRY(tr_store_acquire(&t->store, 2, -1));
    return tr_store_publish(&t->store);
}

TEST(store, mistakes_in_the_order_of_calls_are_told)
{
    enum { DDP = 0, ZERO2 = 4, FSDP = 7 };
    const struct grid dp = {.size = {1, 2, 1, 1, 1, 1}, .share = 1};
    const struct grid fsdp = {.size = {1, 1, 2, 1, 1, 1}, .share = 1};
    const struct mistake mistakes[] = {
        {dp, DDP, complete_in_forward_order, "embedding is completed before unit head"},
        {dp, ZERO2, complete_in_forward_order, "embedding is completed before unit head"},
        {fsdp, FSDP, complete_twice, "embedding is completed after all units"},
        {fsdp, FSDP, leave_a_unit_out, "6 of 7 units"},
        {fsdp, FSDP, never_say_last, "not said to be the last"},
        {dp, DDP, report_a_tensor_twice, "gradient of token was reported complete twice"},
        {fsdp, FSDP, use_three_units_at_once, "in use by place, block0"},
        {fsdp, FSDP, publish_while_in_use, "block0 is in use"},
    };
    for (size_t i = 0; i < sizeof mistakes / sizeof mistakes[0]; ++i)
        CHECK(run_ranks(2, make_mistake, &mistakes[i]));
}
