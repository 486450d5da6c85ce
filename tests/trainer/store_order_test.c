/* The order in the store: of sums (bit for bit), and of calls (mistakes are told, failures kept).
 */
#include <string.h>

#include "../shim.h"
#include "trial.h"

/* ---- Bit for bit ---- */

/* One step's gradients of this rank's stage, gathered whole through the weights. */
static tr_status one_step(const struct grid *grid, const struct mode *mode, int micros,
                          struct tr_mesh *mesh, uint64_t sums[MOST_UNITS])
{
    struct trial t = {
        .grid = grid, .mode = mode, .mesh = mesh, .micros = micros, .fractions = true};
    tr_status status = trial_open(&t);
    tr_store_begin(&t.store);
    for (int micro = 0; micro < micros && status == TR_OK; ++micro)
        status = trial_backward(&t, micro);
    if (status == TR_OK) status = tr_store_finish(&t.store);
    for (int place = 0; place < t.store.nunits && status == TR_OK; ++place) {
        const struct tr_unit_state *s = &t.store.units[place];
        memcpy(s->masters, s->gradient_shard, s->count * sizeof(float));
    }
    if (status == TR_OK) status = tr_store_publish(&t.store);
    for (int place = 0; place < t.store.nunits && status == TR_OK; ++place) {
        const struct tr_unit_state *s = &t.store.units[place];
        const struct tr_unit *u = &t.params.units[s->unit];
        status = tr_store_acquire(&t.store, s->unit, -1);
        sums[s->unit] = tr_checksum(s->weights, u->section[TR_NUM_SECTIONS] * sizeof(float));
        tr_store_release(&t.store, s->unit);
    }
    trial_close(&t);
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
    tr_status status = trial_connect(&mesh, self, &bits->grid);
    for (int micros = 1; micros <= 2; ++micros)
        for (int m = 0; m < NMODES && status == TR_OK; ++m) {
            uint64_t sums[MOST_UNITS] = {0};
            if (!trial_fits(&trial_modes[m], &bits->grid)) continue;
            status = one_step(&bits->grid, &trial_modes[m], micros, &mesh, sums);
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
                    micros == 1 || trial_modes[m].reduce_last || trial_modes[m].sharding < TR_ZERO2;
                if (!once || !trial_fits(&trial_modes[m], &bits[i].grid)) continue;
                CHECK_MESSAGE(!memcmp(bits[i].sums[micros - 1][m], bits[0].sums[micros - 1][0],
                                      sizeof bits[0].sums[0][0]),
                              "%s differs from DDP at %d micro-batches", trial_modes[m].name,
                              micros);
            }
}

/* ---- Mistakes ---- */

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
        .grid = &mistake->grid, .mode = &trial_modes[mistake->mode], .mesh = &mesh, .micros = 1};
    CHECK(trial_connect(&mesh, self, &mistake->grid) == TR_OK);
    CHECK_MESSAGE(trial_open(&t) == TR_OK, "%s", tr_error());
    tr_store_begin(&t.store);
    const tr_status status = mistake->make(&t);
    CHECK_MESSAGE(status == TR_FAILED && strstr(tr_error(), mistake->says),
                  "rank %d: status %d, \"%s\" instead of \"%s\"", self->rank, status, tr_error(),
                  mistake->says);
    trial_close(&t);
    tr_mesh_fini(&mesh);
}

static tr_status complete_in_forward_order(struct trial *t)
{
    tr_store_micro(&t->store, true);
    return tr_store_complete(&t->store, 0);
}

static tr_status complete_twice(struct trial *t)
{
    TR_TRY(trial_backward(t, 0));
    return tr_store_complete(&t->store, 0);
}

static tr_status leave_a_unit_out(struct trial *t)
{
    tr_store_micro(&t->store, true);
    for (int place = t->store.nunits - 1; place > 0; --place)
        TR_TRY(tr_store_complete(&t->store, trial_unit_at(t, place)));
    return tr_store_finish(&t->store);
}

static tr_status never_say_last(struct trial *t)
{
    t->micros = 2;
    TR_TRY(trial_backward(t, 0));
    return tr_store_finish(&t->store);
}

static tr_status report_a_tensor_twice(struct trial *t)
{
    tr_store_micro(&t->store, true);
    TR_TRY(tr_store_gradients(&t->store, 0));
    tr_store_ready(&t->store, 0);
    tr_store_ready(&t->store, 0);
    for (int place = t->store.nunits - 1; place >= 0; --place)
        TR_TRY(tr_store_complete(&t->store, trial_unit_at(t, place)));
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

/* ---- Failures ---- */

/* A backward pass whose hook names every tensor, so that only the hook launches reductions. */
static tr_status name_every_tensor(struct trial *t)
{
    tr_store_micro(&t->store, true);
    for (int place = t->store.nunits - 1; place >= 0; --place) {
        const struct tr_unit *unit = &t->params.units[trial_unit_at(t, place)];
        for (int p = 0; p < unit->nparams; ++p) tr_store_ready(&t->store, unit->first_param + p);
        TR_TRY(tr_store_complete(&t->store, trial_unit_at(t, place)));
    }
    return TR_OK;
}

/* Rank 1 leaves: what rank 0 launches from the hook fails, and finish tells. */
static void lose_a_rank(struct rank *self)
{
    const struct grid grid = {.size = {1, 2, 1, 1, 1, 1}, .share = 1};
    struct tr_mesh mesh;
    struct trial t = {.grid = &grid, .mode = &trial_modes[1], .mesh = &mesh, .micros = 1};
    CHECK(trial_connect(&mesh, self, &grid) == TR_OK);
    CHECK_MESSAGE(trial_open(&t) == TR_OK, "%s", tr_error());
    tr_store_begin(&t.store);
    if (self->rank == 1) {
        struct tr_group *group = &mesh.groups[1u << TR_DP];
        tuttiCommAbort(group->comm);
        group->comm = NULL;
    } else {
        CHECK_MESSAGE(name_every_tensor(&t) == TR_OK, "%s", tr_error());
        CHECK(tr_store_finish(&t.store) == TR_FAILED);
        CHECK_MESSAGE(strstr(tr_error(), "rank 1"), "\"%s\" does not name the rank", tr_error());
    }
    trial_close(&t);
    tr_mesh_fini(&mesh);
}

TEST(store, a_reduction_that_fails_under_the_hook_is_told_by_finish)
{
    CHECK(run_ranks(2, lose_a_rank, NULL));
}
