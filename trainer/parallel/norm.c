/* Sums of squares of what this rank answers for. */
#include "norm.h"

#include <assert.h>
#include <math.h>

static_assert((int)TR_BLOCK == (int)TR_SQUARES_BLOCK, "shards consist of whole blocks");

/* Adds what lies of a section in this rank's shard. What pads the unit's end counts as the last
 * section's. */
static void add_section(const struct tr_store *store, const struct tr_unit_state *state,
                        enum tr_section section, double *sum)
{
    const struct tr_unit *unit = &store->params->units[state->unit];
    const size_t last = state->first + state->count;
    size_t first = unit->section[section],
           end = section == TR_REPLICATED ? unit->total : unit->section[section + 1];
    if (first < state->first) first = state->first;
    if (end > last) end = last;
    if (first < end)
        tr_store_backend(store)->add_squares(
            sum, tr_at(state->gradient_shard, tr_store_gradient_type(store), first - state->first),
            end - first);
}

void tr_norm_add(const struct tr_store *store, double sum[TR_SUM_DIGITS])
{
    for (int u = 0; u < store->params->nunits; ++u) {
        const struct tr_unit_state *state = tr_store_unit(store, u);
        /* Of two stages that hold a tied unit, the first answers. */
        if (!state || store->params->units[u].stage != store->mesh->coord[TR_PP]) continue;
        if (state->replica->rank != 0) continue; /* another rank holds the same shard */
        for (int section = 0; section < TR_NUM_SECTIONS; ++section)
            if (tr_store_is_first_of_tp(store, (enum tr_section)section))
                add_section(store, state, (enum tr_section)section, sum);
    }
}

double tr_norm_squares(const double sum[TR_SUM_DIGITS])
{
    uint64_t carry = 0;
    double squares = 0;
    if (!isfinite(sum[TR_SUM_DIGITS - 1])) return sum[TR_SUM_DIGITS - 1];
    for (int d = 0; d < TR_SUM_DIGITS; ++d) {
        const uint64_t digit = (uint64_t)sum[d] + carry;
        const bool is_last = d == TR_SUM_DIGITS - 1;
        squares += ldexp((double)(is_last ? digit : (uint32_t)digit), 32 * d + TR_SUM_LOWEST);
        carry = digit >> 32;
    }
    return squares;
}
