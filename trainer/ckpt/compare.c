/* Checks what is to be saved: numbers are finite, and ranks hold the same where they should. */
#include "ckpt.h"
#include "parts.h"

/* ---- Numbers that are not finite ------------------------------------------------------------- */

static tr_status check_range(const struct tr_engine *e, const struct tr_parts *parts, int i,
                             int64_t step)
{
    const struct tr_part_range range = tr_part_range(&e->store, parts->ids[i]);
    const size_t at = e->backend->find_not_finite(range.floats, range.count);
    if (at == range.count) return TR_OK;
    float number;
    e->backend->read(&number, range.floats + at, sizeof number);
    return tr_fail("after step %lld %s has the number %g: no checkpoint is written, earlier ones "
                   "are kept; resume from one of them with a smaller --lr",
                   (long long)step, parts->names[i], (double)number);
}

/* Each rank looks at its own shards. */
static tr_status check_finite(const struct tr_engine *e, int64_t step)
{
    struct tr_parts parts;
    TR_TRY(tr_parts_list(&e->store, &parts));
    tr_status status = TR_OK;
    for (int i = 0; i < parts.n && status == TR_OK; ++i) status = check_range(e, &parts, i, step);
    tr_parts_free(&parts);
    return status;
}

/* ---- What ranks hold in common --------------------------------------------------------------- */

/* Whether `sum` is the same on all ranks of the group. */
static tr_status same_on(const struct tr_group *group, uint64_t sum, bool *same)
{
    static const char what[] = "comparing weights";
    uint64_t ends[2] = {sum, ~sum}; /* the smallest, and the largest turned over */
    if (group->n == 1) return TR_OK;
    TR_TRY(tr_group_check(
        group, tuttiAllReduce(ends, ends, 2, tuttiUint64, tuttiMin, group->comm, NULL), what));
    if (ends[0] != ~ends[1]) *same = false;
    return TR_OK;
}

/* Goes on with the checksum of what the ranks of a group hold in common. */
static uint64_t mix(const struct tr_group *group, const struct tr_store *store, uint64_t sum,
                    const void *range, size_t nbytes)
{
    if (group->n == 1) return 0;
    return (sum << 1 | sum >> 63) ^ tr_store_backend(store)->checksum(range, nbytes);
}

static uint64_t mix_masters(const struct tr_group *group, const struct tr_store *store,
                            uint64_t sum, const float *masters, size_t count)
{
    return mix(group, store, sum, masters, count * sizeof *masters);
}

/* A checksum of what lies in one section of this rank's shards. */
static uint64_t sum_section(const struct tr_group *group, const struct tr_store *store,
                            enum tr_section section)
{
    uint64_t sum = 0;
    for (int u = 0; u < store->nunits; ++u) {
        const struct tr_unit_state *s = &store->units[u];
        const struct tr_unit *unit = &store->params->units[s->unit];
        size_t first = unit->section[section], end = unit->section[section + 1];
        if (first < s->first) first = s->first;
        if (end > s->first + s->count) end = s->first + s->count;
        if (first < end)
            sum = mix_masters(group, store, sum, s->masters + (first - s->first), end - first);
    }
    return sum;
}

/* Compares what ranks hold in common, by checksums: shards over the replicas, whole weights over
 * the shards' group, what tp does not cut over tp, tied units over both stages. */
static tr_status compare(struct tr_engine *e, bool *same)
{
    struct tr_store *store = &e->store;
    uint64_t shards = 0, wholes = 0, ties = 0;
    for (int u = 0; u < store->nunits; ++u) {
        const struct tr_unit_state *s = &store->units[u];
        const struct tr_unit *unit = &store->params->units[s->unit];
        shards = mix_masters(store->replica, store, shards, s->masters, s->count);
        if (unit->tied_stage >= 0)
            ties = mix_masters(&e->mesh->tie, store, ties, s->masters, s->count);
        if (!store->whole_weights || store->shard->n == 1) continue;
        TR_TRY(tr_store_acquire(store, s->unit, -1));
        wholes = mix(store->shard, store, wholes, s->weights,
                     unit->total * tr_type_bytes(tr_store_weight_type(store)));
        tr_store_release(store, s->unit);
    }
    *same = true;
    TR_TRY(same_on(store->replica, shards, same));
    TR_TRY(same_on(store->shard, wholes, same));
    const struct tr_group *tp = tr_mesh_group(e->mesh, 1u << TR_TP), *share = &e->mesh->share;
    TR_TRY(same_on(tp, sum_section(tp, store, TR_REPLICATED), same));
    TR_TRY(same_on(share, sum_section(share, store, TR_SHARED), same));
    return same_on(&e->mesh->tie, ties, same);
}

tr_status tr_ckpt_check(struct tr_engine *e, int64_t step)
{
    bool same;
    TR_TRY(tr_mesh_agree(e->mesh, check_finite(e, step)));
    TR_TRY(compare(e, &same));
    tr_status status = TR_OK;
    if (!same)
        status = tr_fail("rank %d has other weights than the ranks that hold the same part of the "
                         "model: memory was corrupted, or processors compute differently",
                         e->mesh->rank);
    return tr_mesh_agree(e->mesh, status);
}
