/* Lists the tensors of a checkpoint, and says what this rank has of each. */
#include "parts.h"

#include <stdio.h>
#include <stdlib.h>

enum { WEIGHT, MOST_PARTS = 1 + TR_MOST_STATES };

static bool has_part(const struct tr_store *store, int param, int part)
{
    return part <= store->held[param].nstates;
}

bool tr_part_is_cut(const struct tr_store *store, struct tr_part_id id)
{
    return id.part == WEIGHT || store->held[id.param].shapes[id.part - 1] == TR_STATE_TENSOR;
}

static struct tr_tensor tensor_of(const struct tr_store *store, struct tr_part_id id,
                                  char name[TR_PART_NAME])
{
    static const char *const suffixes[MOST_PARTS] = {"", ".m", ".v", ".s"};
    const struct tr_param *row = &store->params->items[id.param];
    snprintf(name, TR_PART_NAME, "%s%s", row->name, suffixes[id.part]);
    if (!tr_part_is_cut(store, id)) {
        const size_t count =
            tr_held_count(store->params, &store->held[id.param], id.param, id.part - 1);
        return (struct tr_tensor){
            .name = name, .ndim = 1, .shape = {(long)count, 1}, .count = count};
    }
    return (struct tr_tensor){.name = name,
                              .ndim = row->ndim,
                              .shape = {row->shape[0], row->shape[1]},
                              .count = row->count};
}

tr_status tr_parts_list(const struct tr_store *store, struct tr_parts *parts)
{
    const size_t most = (size_t)store->params->n * MOST_PARTS + 1;
    *parts = (struct tr_parts){.ids = calloc(most, sizeof *parts->ids),
                               .tensors = calloc(most, sizeof *parts->tensors),
                               .names = calloc(most, sizeof *parts->names)};
    if (!parts->ids || !parts->tensors || !parts->names) {
        tr_parts_free(parts);
        return tr_fail("out of memory for the list of a checkpoint's tensors");
    }
    for (int part = 0; part < MOST_PARTS; ++part)
        for (int param = 0; param < store->params->n; ++param) {
            const struct tr_part_id id = {param, part};
            if (!has_part(store, param, part)) continue;
            parts->ids[parts->n] = id;
            parts->tensors[parts->n] = tensor_of(store, id, parts->names[parts->n]);
            parts->n++;
        }
    return TR_OK;
}

void tr_parts_free(struct tr_parts *parts)
{
    free(parts->ids);
    free(parts->tensors);
    free(parts->names);
    *parts = (struct tr_parts){0};
}

struct tr_part_range tr_part_range(const struct tr_store *store, struct tr_part_id id)
{
    const struct tr_param *row = &store->params->items[id.param];
    const struct tr_held *held = &store->held[id.param];
    const struct tr_unit_state *state = tr_store_unit(store, row->unit);
    if (!state) return (struct tr_part_range){0};
    if (!tr_part_is_cut(store, id))
        return (struct tr_part_range){held->states[id.part - 1], 0,
                                      tr_held_count(store->params, held, id.param, id.part - 1)};
    const size_t first = row->offset + held->first;
    if (!held->count) return (struct tr_part_range){0};
    return (struct tr_part_range){id.part == WEIGHT ? state->masters + (first - state->first)
                                                    : held->states[id.part - 1],
                                  first, held->count};
}

bool tr_part_answers(const struct tr_engine *e, struct tr_part_id id)
{
    const struct tr_store *store = &e->store;
    const struct tr_param *param = &store->params->items[id.param];
    const struct tr_held *held = &store->held[id.param];
    if (store->params->units[param->unit].stage != e->mesh->coord[TR_PP]) return false;
    if (tr_store_unit(store, param->unit)->replica->rank != 0) return false;
    if (!tr_part_is_cut(store, id))
        return store->params->tp_rank == 0 && held->first == 0 && held->count > 0;
    const struct tr_replicas holders =
        tr_layout_replicas(&param->layout, param->shape, store->params->tp, store->params->tp_rank);
    return holders.first == store->params->tp_rank;
}
