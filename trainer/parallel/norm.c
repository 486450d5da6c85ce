/* Sums of squares by block, each by one of the ranks that hold the block. */
#include "norm.h"

#include <assert.h>

static_assert((int)TR_BLOCK == (int)TR_SQUARES_BLOCK, "one sum a block");

size_t tr_norm_blocks(const struct tr_params *params)
{
    size_t blocks = 0;
    for (int u = 0; u < params->nunits; ++u) blocks += params->units[u].total / TR_BLOCK;
    return blocks * (size_t)params->tp;
}

/* The sums of the blocks of a section that lie in this rank's shard, into those of the unit. What
 * pads the unit's end counts as the last section's. */
static void fill_section(const struct tr_store *store, const struct tr_unit_state *state,
                         enum tr_section section, double *sums)
{
    const struct tr_unit *unit = &store->params->units[state->unit];
    const size_t last = state->first + state->count;
    size_t first = unit->section[section],
           end = section == TR_REPLICATED ? unit->total : unit->section[section + 1];
    if (first < state->first) first = state->first;
    if (end > last) end = last;
    if (first < end)
        tr_store_backend(store)->sum_of_squares_blocks(
            sums + first / TR_BLOCK, state->gradient_shard + (first - state->first), end - first);
}

void tr_norm_fill(const struct tr_store *store, double *sums)
{
    const struct tr_params *params = store->params;
    params->backend->clear(sums, tr_norm_blocks(params) * sizeof *sums);
    size_t base = 0;
    for (int u = 0; u < params->nunits; ++u) {
        const struct tr_unit *unit = &params->units[u];
        const size_t blocks = unit->total / TR_BLOCK;
        const struct tr_unit_state *state = tr_store_unit(store, u);
        double *mine = sums + base + (size_t)params->tp_rank * blocks;
        base += blocks * (size_t)params->tp;
        /* Of two stages that hold a tied unit, the first answers. */
        if (!state || unit->stage != store->mesh->coord[TR_PP]) continue;
        if (state->replica->rank != 0) continue; /* another rank holds the same shard */
        for (int section = 0; section < TR_NUM_SECTIONS; ++section)
            if (tr_store_is_first_of_tp(store, (enum tr_section)section))
                fill_section(store, state, (enum tr_section)section, mine);
    }
}
