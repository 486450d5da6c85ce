/* The optimizer's step over this rank's shards.
 *
 * Collectives  none, unless the rule needs whole matrices (parallel/whole.c), or sums over whole
 *              tensors (ops/optimizer.h): then those of all tensors of the stage in one message. A
 *              sum over what each slice holds: over the shards, then over tp, where of ranks that
 *              hold the same the first counts. Then the largest over the replicas, and over both
 *              stages of a tied unit: these have the same sums, but perhaps other last bits, as
 *              their sums were added in other orders.
 * Volume       8 bytes a sum in each of the four all-reduces.
 * Order        the same on every rank: that of the units.
 * Test         tests/trainer/optim_test.c, and the grid. */
#include "optim.h"

#include "../calls.h"
#include "../parallel/whole.h"

/* A parameter of this rank's shards. */
struct part {
    const struct tr_param *param;
    const struct tr_held *held;
    struct tr_tensor_piece piece;
};

static struct part part_of(const struct tr_optimizer *how, const struct tr_store *store,
                           const struct tr_unit_state *state, int p, double scale)
{
    const struct tr_param *param = &store->params->items[p];
    const struct tr_held *held = &store->held[p];
    const size_t at = param->offset + held->first - state->first;
    const enum tr_type type = tr_store_gradient_type(store);
    struct part part = {.param = param,
                        .held = held,
                        .piece = {.subject = tr_param_subject(param),
                                  .count = held->count,
                                  .w = state->masters + at,
                                  .g = tr_at(state->gradient_shard, type, at),
                                  .type = type,
                                  .scale = scale,
                                  .decay = param->decay ? how->decay : 0}};
    for (int i = 0; i < held->nstates; ++i) {
        part.piece.states[i] = held->states[i];
        part.piece.shapes[i] = held->shapes[i];
    }
    part.piece.nslices =
        tr_layout_slices(&param->layout, param->shape, store->params->tp, store->params->tp_rank,
                         held->first, held->count, part.piece.slices);
    return part;
}

/* One step, and what is done with each part. */
struct step {
    const struct tr_optimizer *how;
    const struct tr_rule *rule;
    struct tr_store *store;
    double scale;
};

static void each_part(const struct step *step,
                      void (*visit)(const struct step *step, const struct part *part))
{
    const struct tr_store *store = step->store;
    for (int u = 0; u < store->nunits; ++u) {
        const struct tr_unit_state *state = &store->units[u];
        const struct tr_unit *unit = &store->params->units[state->unit];
        for (int p = unit->first_param; p < unit->first_param + unit->nparams; ++p) {
            if (!store->held[p].count) continue;
            const struct part part = part_of(step->how, store, state, p, step->scale);
            visit(step, &part);
        }
    }
}

/* ---- Sums over whole tensors ------------------------------------------------------------------
 */

static void measure(const struct step *step, const struct part *part)
{
    double *sums = step->store->sums + part->held->sums;
    step->rule->measure(step->how, &part->piece, sums);
    if (!tr_store_is_first_of_tp(step->store, part->param->section))
        tr_store_backend(step->store)->clear(sums, (size_t)part->held->nsums * sizeof *sums);
}

static tr_status reduce(const struct tr_store *store, const struct tr_group *group, double *sums,
                        size_t n, tuttiRedOp_t op)
{
    if (group->n == 1 || n == 0) return TR_OK;
    return tr_all_reduce(group, tr_store_backend(store)->stream, sums, n, tuttiFloat64, op,
                         "summing over whole tensors for the optimizer");
}

/* From the sums of this rank's pieces to those of whole tensors. */
static tr_status add_up(const struct tr_store *store)
{
    const struct tr_mesh *mesh = store->mesh;
    double *sums = store->sums;
    const size_t n = store->nsums;
    if (mesh->nranks == 1) return TR_OK;
    TR_TRY(reduce(store, store->shard, sums, n, tuttiSum));
    TR_TRY(reduce(store, tr_mesh_group(mesh, 1u << TR_TP), sums, n, tuttiSum));
    TR_TRY(reduce(store, store->replica, sums, n, tuttiMax));
    for (int u = 0; u < store->nunits; ++u) {
        const struct tr_unit *unit = &store->params->units[store->units[u].unit];
        if (unit->tied_stage < 0) continue;
        const struct tr_held *first = &store->held[unit->first_param],
                             *last = first + unit->nparams - 1;
        const size_t count = last->sums + (size_t)last->nsums - first->sums;
        TR_TRY(reduce(store, &mesh->tie, sums + first->sums, count, tuttiMax));
    }
    return TR_OK;
}

static void prepare(const struct step *step, const struct part *part)
{
    if (step->rule->whole(step->how, &part->piece.subject))
        step->rule->prepare(step->how, &part->piece);
}

static void update(const struct step *step, const struct part *part)
{
    step->rule->update(step->how, &part->piece, step->store->sums + part->held->sums);
}

tr_status tr_optimizer_step(const struct tr_optimizer *how, struct tr_store *store, double scale)
{
    const struct tr_backend *backend = tr_store_backend(store);
    const struct step step = {how, how->rule ? how->rule : backend->optimizers[how->kind], store,
                              scale};
    if (step.rule->measure) {
        backend->clear(store->sums, store->nsums * sizeof *store->sums);
        each_part(&step, measure);
        TR_TRY(add_up(store));
    }
    if (step.rule->whole) {
        each_part(&step, prepare);
        TR_TRY(tr_whole_transform(store->whole, store, how));
    }
    each_part(&step, update);
    return TR_OK;
}
