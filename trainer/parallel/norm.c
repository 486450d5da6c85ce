/* Sums of squares by block, each by one of the ranks that hold the block. */
#include <math.h>
#include <string.h>

#include "norm.h"

enum { PER_BLOCK = TR_BLOCK / TR_SQUARES_BLOCK };

size_t tr_norm_blocks(const struct tr_params *params)
{
    size_t blocks = 0;
    for (int u = 0; u < params->nunits; ++u) blocks += params->units[u].total / TR_BLOCK;
    return blocks * (size_t)params->tp;
}

/* Whether this rank is the first of those of tp that hold what lies at `at` of a unit. */
static bool first_of_tp(const struct tr_store *store, const struct tr_unit *unit, size_t at)
{
    const int rank = store->params->tp_rank;
    if (at >= unit->section[TR_REPLICATED]) return rank == 0;
    if (at >= unit->section[TR_SHARED]) return store->mesh->share.rank == 0;
    return true;
}

static double sum_block(const struct tr_ops *ops, const float *gradients)
{
    double parts[PER_BLOCK], sum = 0;
    ops->sum_of_squares_blocks(parts, gradients, TR_BLOCK);
    for (int i = 0; i < PER_BLOCK; ++i) sum += parts[i];
    return sum;
}

void tr_norm_fill(const struct tr_store *store, const struct tr_ops *ops, double *sums)
{
    const struct tr_params *params = store->params;
    memset(sums, 0, tr_norm_blocks(params) * sizeof *sums);
    if (store->replica->rank != 0) return; /* another rank holds the same shards */
    size_t base = 0;
    for (int u = 0; u < params->nunits; ++u) {
        const struct tr_unit *unit = &params->units[u];
        const size_t blocks = unit->total / TR_BLOCK;
        const struct tr_unit_state *state = tr_store_unit(store, u);
        double *mine = sums + base + (size_t)params->tp_rank * blocks;
        base += blocks * (size_t)params->tp;
        /* Of two stages that hold a tied unit, the first answers. */
        if (!state || unit->stage != store->mesh->coord[TR_PP]) continue;
        for (size_t at = 0; at < state->count; at += TR_BLOCK)
            if (first_of_tp(store, unit, state->first + at))
                mine[(state->first + at) / TR_BLOCK] = sum_block(ops, state->gradient_shard + at);
    }
}

double tr_norm_of(const double *sums, size_t nblocks)
{
    double sum = 0;
    for (size_t i = 0; i < nblocks; ++i) sum += sums[i];
    return sqrt(sum);
}
