/* Whole matrices, one after the other: each has an owner among the ranks of its stage. A turn deals
 * with one matrix of each owner.
 *
 *     matrix a, owner 0         rank 0 |== rank 1 |== rank 2 |==     parts, in gradient_shard
 *     gather                    rank 0 |=======                      rank 1 owns b meanwhile, ...
 *     transform                 rank 0 |#######
 *     give back                 rank 0 |## rank 1 |## rank 2 |##
 *
 * Collectives  none, but messages in two groups a turn on the communicator of the stage's ranks
 *              (the data axes and tp): to the owner from each rank that holds a part, one of those
 *              that hold the same (of the owner's replica, and the first along tp); back to every
 *              rank that holds a part. A rank that is its own owner copies.
 * Volume       with n ranks of which r hold the same: each matrix once to its owner and r times
 *              back; a rank sends and receives about 4 P / n + 4 P r / n bytes a step.
 * Memory       one matrix and the rule's scratch; parts travel from and to gradient_shard.
 * Limits       an owner computes alone: fewer matrices than ranks leave ranks idle.
 * Order        the same turns on every rank, messages between two ranks at most one a group.
 * Test         the grid with optimizer=muon; tests/trainer/optim_test.c. */
#include "whole.h"

#include <stdlib.h>

#include "../calls.h"

struct item {
    int param, owner, turn;
};

/* A part of a matrix that the ranks tp .. tp + nholders - 1 of tp hold in shard `shard`: elements
 * of the stored tensor, and where they lie in the owner's staging memory. */
struct slab {
    int tp, nholders, shard;
    size_t first, count, at;
};

struct tr_whole {
    const struct tr_group *group; /* the ranks of the stage */
    int tp, shards;
    struct item *items;
    int n, nturns;
    struct slab *slabs; /* [tp * shards]: of the matrix at hand */
    int nslabs;
    size_t most_x, most_staging; /* bytes of the largest matrix; of its parts, and of scratch */
    struct tr_data *x;           /* gradients */
    void *staging;               /* gradients, or floats of the rule's scratch */
};

/* A rank's place among those of its stage, in the order of the mesh, where shards are innermost of
 * the data axes. */
struct place {
    int tp, shard, replica;
};

static struct place place_of(const struct tr_whole *w, int rank)
{
    const int data = rank / w->tp;
    return (struct place){rank % w->tp, data % w->shards, data / w->shards};
}

static int rank_at(const struct tr_whole *w, int replica, int shard, int tp)
{
    return (replica * w->shards + shard) * w->tp + tp;
}

/* ---- Who owns what ------------------------------------------------------------------------------
 */

double tr_whole_cost(long rows, long cols)
{
    const double least = (double)(rows < cols ? rows : cols);
    return (double)rows * (double)cols * least;
}

bool tr_whole_assign(const double *costs, int n, int nowners, int *owner, int *turn)
{
    double *loads = calloc((size_t)nowners, sizeof *loads);
    int *counts = calloc((size_t)nowners, sizeof *counts);
    if (!loads || !counts) {
        free(loads);
        free(counts);
        return false;
    }
    for (int i = 0; i < n; ++i) owner[i] = -1;
    for (int done = 0; done < n; ++done) {
        int next = -1, least = 0;
        for (int i = 0; i < n; ++i)
            if (owner[i] < 0 && (next < 0 || costs[i] > costs[next])) next = i;
        if (done < nowners) least = done; /* the first without a matrix */
        for (int o = 0; done >= nowners && o < nowners; ++o)
            if (loads[o] < loads[least]) least = o;
        owner[next] = least;
        turn[next] = counts[least]++;
        loads[least] += costs[next];
    }
    free(loads);
    free(counts);
    return true;
}

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* The parts of a matrix, those of the first holders along tp. */
static void list_slabs(struct tr_whole *w, const struct tr_store *store,
                       const struct tr_param *param)
{
    const size_t each = store->params->units[param->unit].total / (size_t)w->shards;
    const size_t end = param->offset + (size_t)(param->local[0] * param->local[1]);
    const int first = (int)(param->offset / each), last = (int)((end - 1) / each);
    size_t at = 0;
    w->nslabs = 0;
    for (int tp = 0; tp < w->tp;) {
        const int holders = tr_layout_replicas(&param->layout, param->shape, w->tp, tp).count;
        for (int shard = first; shard <= last; ++shard) {
            const struct tr_extract part = tr_param_within(param, each * (size_t)shard, each);
            w->slabs[w->nslabs++] = (struct slab){tp, holders, shard, part.first, part.count, at};
            at += part.count;
        }
        tp += holders;
    }
}

/* The elements of all slabs of a matrix. */
static size_t count_staged(const struct tr_whole *w, const struct tr_param *param)
{
    size_t n = 0;
    for (int tp = 0; tp < w->tp;) {
        n += (size_t)(param->local[0] * param->local[1]);
        tp += tr_layout_replicas(&param->layout, param->shape, w->tp, tp).count;
    }
    return n;
}

/* The matrices of this stage, and the largest sizes. */
static void list_items(struct tr_whole *w, const struct tr_store *store, const struct tr_rule *rule,
                       double *costs)
{
    for (int u = 0; u < store->nunits; ++u) {
        const struct tr_unit *unit = &store->params->units[store->units[u].unit];
        for (int p = unit->first_param; p < unit->first_param + unit->nparams; ++p) {
            const struct tr_param *param = &store->params->items[p];
            const struct tr_subject subject = tr_param_subject(param);
            if (!rule->whole(&store->options.optimizer, &subject)) continue;
            const long rows = param->shape[0], cols = param->shape[1];
            costs[w->n] = tr_whole_cost(rows, cols);
            w->items[w->n++].param = p;
            const size_t bytes = tr_type_bytes(tr_store_gradient_type(store));
            w->most_x = larger(w->most_x, param->count * bytes);
            w->most_staging = larger(w->most_staging, count_staged(w, param) * bytes);
            w->most_staging = larger(w->most_staging, rule->scratch(rows, cols) * sizeof(float));
        }
    }
}

static tr_status fill(struct tr_whole *w, const struct tr_store *store, const struct tr_rule *rule)
{
    const size_t n = (size_t)store->params->n + 1;
    w->items = calloc(n, sizeof *w->items);
    w->slabs = calloc((size_t)w->tp * (size_t)w->shards, sizeof *w->slabs);
    double *costs = calloc(n, sizeof *costs);
    int *owner = calloc(n, sizeof *owner), *turn = calloc(n, sizeof *turn);
    bool filled = w->items && w->slabs && costs && owner && turn;
    if (filled) {
        list_items(w, store, rule, costs);
        filled = tr_whole_assign(costs, w->n, w->group->n, owner, turn);
    }
    for (int i = 0; filled && i < w->n; ++i) {
        w->items[i].owner = owner[i];
        w->items[i].turn = turn[i];
        if (turn[i] >= w->nturns) w->nturns = turn[i] + 1;
    }
    free(costs);
    free(owner);
    free(turn);
    return filled ? TR_OK : tr_fail("out of memory for the owners of matrices");
}

tr_status tr_whole_create(struct tr_whole **whole, const struct tr_store *store)
{
    const struct tr_rule *rule = tr_optimizer_rule(&store->options.optimizer);
    const tr_axes axes = TR_AXES_DATA | 1u << TR_TP;
    const struct tr_mesh *mesh = store->mesh;
    *whole = NULL;
    if (!rule->whole) return TR_OK;
    struct tr_whole *w = *whole = calloc(1, sizeof *w);
    if (!w) return tr_fail("out of memory for the owners of matrices");
    w->group = tr_mesh_group(mesh, axes);
    w->tp = store->params->tp;
    w->shards = store->shard->n;
    if (w->group->n != tr_mesh_extent(mesh->size, axes))
        return tr_fail("the mesh has no communicator for the %d ranks of a stage; give the set %#x "
                       "to tr_mesh_connect",
                       tr_mesh_extent(mesh->size, axes), axes);
    return fill(w, store, rule);
}

void tr_whole_destroy(struct tr_whole *w)
{
    if (!w) return;
    free(w->items);
    free(w->slabs);
    free(w);
}

void tr_whole_carve(struct tr_whole *w, struct tr_arena *arena)
{
    if (!w || !w->n) return;
    w->x = tr_arena_take(arena, w->most_x, 1);
    w->staging = tr_arena_take(arena, w->most_staging, 1);
}

/* ---- A turn -------------------------------------------------------------------------------------
 */

static const char what[] = "exchanging matrices for the optimizer";

static tr_status transfer(const struct tr_whole *w, const struct tr_store *store, bool send,
                          struct tr_data *at, size_t count, int peer)
{
    const tuttiDataType_t type = tr_type_datatype(tr_store_gradient_type(store));
    const struct tr_group *group = w->group;
    tuttiStream_t stream = tr_store_backend(store)->stream;
    return send ? tr_send(group, stream, at, count, type, peer, what)
                : tr_receive(group, stream, at, count, type, peer, what);
}

/* This rank's part of a matrix. */
static struct tr_data *part_of(const struct tr_store *store, const struct item *item, size_t *count)
{
    const struct tr_param *param = &store->params->items[item->param];
    const struct tr_held *held = &store->held[item->param];
    const struct tr_unit_state *state = tr_store_unit(store, param->unit);
    *count = held->count;
    if (!held->count) return NULL;
    return tr_at(state->gradient_shard, tr_store_gradient_type(store),
                 param->offset + held->first - state->first);
}

/* Where a slab lies in the staging memory. */
static struct tr_data *staged(const struct tr_whole *w, const struct tr_store *store,
                              const struct slab *slab)
{
    return tr_at(w->staging, tr_store_gradient_type(store), slab->at);
}

static void copy(const struct tr_store *store, struct tr_data *to, const struct tr_data *from,
                 size_t count)
{
    tr_store_backend(store)->copy_rows(to, 0, from, 0, 1, (long)count,
                                       tr_store_gradient_type(store));
}

/* The owner takes the parts of its own replica. */
static tr_status collect(struct tr_whole *w, const struct tr_store *store, const struct item *item)
{
    const struct place mine = place_of(w, w->group->rank);
    size_t count;
    struct tr_data *part = part_of(store, item, &count);
    list_slabs(w, store, &store->params->items[item->param]);
    for (int i = 0; i < w->nslabs; ++i) {
        const struct slab *slab = &w->slabs[i];
        const int from = rank_at(w, mine.replica, slab->shard, slab->tp);
        if (from == w->group->rank)
            copy(store, staged(w, store, slab), part, count);
        else
            TR_TRY(transfer(w, store, false, staged(w, store, slab), slab->count, from));
    }
    return TR_OK;
}

static tr_status gather(struct tr_whole *w, const struct tr_store *store, const struct item *item)
{
    if (item->owner == w->group->rank) return collect(w, store, item);
    const struct tr_param *param = &store->params->items[item->param];
    const struct place mine = place_of(w, w->group->rank);
    size_t count;
    struct tr_data *part = part_of(store, item, &count);
    if (!count || mine.replica != place_of(w, item->owner).replica ||
        tr_layout_replicas(&param->layout, param->shape, w->tp, mine.tp).first != mine.tp)
        return TR_OK;
    return transfer(w, store, true, part, count, item->owner);
}

/* The owner gives every rank the part that it holds. */
static tr_status hand_out(struct tr_whole *w, const struct tr_store *store, const struct item *item)
{
    const int replicas = w->group->n / w->tp / w->shards;
    size_t count;
    struct tr_data *part = part_of(store, item, &count);
    for (int i = 0; i < w->nslabs; ++i) {
        const struct slab *slab = &w->slabs[i];
        struct tr_data *at = staged(w, store, slab);
        for (int replica = 0; replica < replicas; ++replica)
            for (int tp = slab->tp; tp < slab->tp + slab->nholders; ++tp) {
                const int to = rank_at(w, replica, slab->shard, tp);
                if (to == w->group->rank)
                    copy(store, part, at, count);
                else
                    TR_TRY(transfer(w, store, true, at, slab->count, to));
            }
    }
    return TR_OK;
}

static tr_status give_back(struct tr_whole *w, const struct tr_store *store,
                           const struct item *item)
{
    size_t count;
    struct tr_data *part = part_of(store, item, &count);
    if (item->owner == w->group->rank) return hand_out(w, store, item);
    return count ? transfer(w, store, false, part, count, item->owner) : TR_OK;
}

/* Between the parts, each of rows that lie close together, and the whole matrix. */
static void place_slabs(struct tr_whole *w, const struct tr_store *store,
                        const struct tr_param *param, bool in)
{
    const struct tr_backend *backend = tr_store_backend(store);
    const enum tr_type type = tr_store_gradient_type(store);
    for (int i = 0; i < w->nslabs; ++i) {
        const struct slab *slab = &w->slabs[i];
        struct tr_slice slices[TR_MOST_SLICES];
        const int n = tr_layout_slices(&param->layout, param->shape, w->tp, slab->tp, slab->first,
                                       slab->count, slices);
        struct tr_data *at = staged(w, store, slab);
        for (int s = 0; s < n; ++s) {
            const struct tr_slice *slice = &slices[s];
            struct tr_data *whole =
                tr_at(w->x, type, (size_t)(slice->row * param->shape[1] + slice->col));
            if (in)
                backend->copy_rows(whole, param->shape[1], at, slice->cols, slice->rows,
                                   slice->cols, type);
            else
                backend->copy_rows(at, slice->cols, whole, param->shape[1], slice->rows,
                                   slice->cols, type);
            at = tr_at(at, type, (size_t)(slice->rows * slice->cols));
        }
    }
}

static void compute(struct tr_whole *w, const struct tr_store *store, const struct item *item,
                    const struct tr_rule *rule)
{
    const struct tr_param *param = &store->params->items[item->param];
    if (item->owner != w->group->rank) return;
    place_slabs(w, store, param, true);
    rule->transform(w->x, w->staging, param->shape[0], param->shape[1]);
    /* What pads the parts is zero. */
    tr_store_backend(store)->clear(w->staging, w->most_staging);
    place_slabs(w, store, param, false);
}

static tr_status exchange(struct tr_whole *w, const struct tr_store *store, int turn,
                          tr_status (*visit)(struct tr_whole *, const struct tr_store *,
                                             const struct item *))
{
    const bool alone = w->group->n == 1;
    if (!alone) TR_TRY(tr_calls_begin(w->group, what));
    tr_status status = TR_OK;
    for (int i = 0; i < w->n && status == TR_OK; ++i)
        if (w->items[i].turn == turn) status = visit(w, store, &w->items[i]);
    const tr_status ended = alone ? TR_OK : tr_calls_end(w->group, what);
    return status == TR_OK ? ended : status;
}

tr_status tr_whole_transform(struct tr_whole *w, const struct tr_store *store,
                             const struct tr_optimizer *how)
{
    const struct tr_rule *rule =
        how->rule ? how->rule : tr_store_backend(store)->optimizers[how->kind];
    for (int turn = 0; w && turn < w->nturns; ++turn) {
        TR_TRY(exchange(w, store, turn, gather));
        for (int i = 0; i < w->n; ++i)
            if (w->items[i].turn == turn) compute(w, store, &w->items[i], rule);
        TR_TRY(exchange(w, store, turn, give_back));
    }
    return TR_OK;
}
