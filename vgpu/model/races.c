/* Reports of races: both parties, each pair of places once, and what would order them. */
#include "internal.h"

#include <stdlib.h>
#include <string.h>

/* Whether the pair is new; then it is in the table. */
static bool is_new(struct vg_model *model, uint64_t key)
{
    if (2 * model->nraces >= model->races_room) {
        const uint32_t room = model->races_room == 0 ? 64 : 2 * model->races_room;
        uint64_t *old = model->races, *races = vg_need(room * sizeof *races);
        const uint32_t n = model->races_room;
        model->races = races;
        model->races_room = room;
        model->nraces = 0;
        for (uint32_t i = 0; i < n; i++)
            if (old[i] != 0) is_new(model, old[i]);
        free(old);
    }
    uint64_t slot = (key * UINT64_C(0x9e3779b97f4a7c15) >> 20) % model->races_room;
    for (; model->races[slot] != 0; slot = (slot + 1) % model->races_room)
        if (model->races[slot] == key) return false;
    model->races[slot] = key;
    model->nraces++;
    return true;
}

static struct vg_party party_of(const struct vg_model *model, const struct vg_region *region,
                                uint64_t word, const struct vg_access *access)
{
    const struct vg_grid_record *record = vg_record_of(model, access->block);
    const struct vg_kind *kind = &model->kinds[access->kind];
    const uint32_t first = (uint32_t)__builtin_ctz(vg_access_mask(access) | 16);
    const uint64_t offset = word * 4 + first;
    const uint64_t size = kind->how.nbytes > 0 ? kind->how.nbytes : 4;
    return (struct vg_party){.grid = record != NULL ? record->number : 0,
                             .block = record != NULL ? access->block - record->first : 0,
                             .thread = vg_access_thread(access),
                             .where = kind->how.where,
                             .write = kind->action != VG_READS,
                             .atomic = kind->action == VG_CHANGES,
                             .nc = kind->how.nc,
                             .copy = record != NULL && record->copies,
                             .order = kind->how.order,
                             .scope = kind->how.scope,
                             .nbytes = kind->how.nbytes,
                             .address = region->address + offset / size * size};
}

static bool weak(const struct vg_party *party)
{
    return party->order == VG_WEAK || party->nc;
}

/* A sentence for a pair of different grids. */
static const char *mend_grids(const struct vg_grid_record *a, const struct vg_grid_record *b)
{
    if (a == NULL || b == NULL || a->device == b->device)
        return "Order the two kernels (the same stream, or an event that one stream records and "
               "the other waits for), or release after the first access and acquire before the "
               "second at scope .gpu.";
    return "Order the two kernels by an event, or release after the first access and acquire "
           "before the second at scope .sys: the threads are on different devices.";
}

static const char *mend(const struct vg_model *model, const struct vg_party *a,
                        const struct vg_party *b, uint32_t first, uint32_t second)
{
    const struct vg_grid_record *of_a = vg_record_of(model, first),
                                *of_b = vg_record_of(model, second);
    if (a->nc || b->nc)
        return "Use a plain load: ld.global.nc (__ldg, const __restrict__) may only read memory "
               "that nobody writes while the kernel runs.";
    if (!weak(a) && !weak(b) && a->nbytes != b->nbytes)
        return "Access these bytes with one size everywhere: atomic accesses of different sizes "
               "do not order each other.";
    if (!weak(a) && !weak(b))
        return of_a != NULL && of_b != NULL && of_a->device != of_b->device
                   ? "Give both accesses scope .sys: each scope must include the other's thread."
                   : "Give both accesses scope .gpu or wider: each scope must include the other's "
                     "thread.";
    if ((a->copy || b->copy) && a->grid == b->grid)
        return "Wait for the copy (cp.async.wait_group, cp.async.wait_all, or an mbarrier that "
               "tracks "
               "it) before its bytes are used again; other threads must meet the thread that "
               "waited "
               "(bar.sync).";
    if (of_a != of_b) return mend_grids(of_a, of_b);
    if (weak(a) != weak(b) && a->nbytes == b->nbytes)
        return "Make the plain access a relaxed one as well with a scope that includes the other "
               "thread, or order the two by a barrier or by release and acquire.";
    if (first != second)
        return "Release after the first access and acquire before the second at scope .gpu "
               "(__threadfence before the flag is set and after it is read), or end the kernel "
               "between them: a barrier of a block does not order different blocks.";
    if (a->thread / VG_LANES == b->thread / VG_LANES)
        return "Put __syncwarp (bar.warp.sync) or __syncthreads (bar.sync) between the two "
               "accesses: lanes of a warp do not run in step.";
    return "Put __syncthreads (bar.sync) between the two accesses.";
}

static const char mend_alias[] =
    "Put fence.proxy.alias between the two accesses (release and acquire, or a barrier, must order "
    "it with both), let the first kernel end before the second begins, or use one address: this "
    "memory was mapped at two.";

void vg_report(struct vg_block_clock *block, struct vg_region *region,
               const struct vg_region *alias, uint64_t word, const struct vg_access *first,
               const struct vg_access *second)
{
    struct vg_model *model = block->model;
    const struct vg_party a = party_of(model, alias != NULL ? alias : region, word, first);
    const struct vg_party b = party_of(model, region, word, second);
    const uint64_t low = a.where < b.where ? a.where : b.where;
    const uint64_t high = a.where < b.where ? b.where : a.where;
    const uint64_t key = (low * UINT64_C(0xd1342543de82ef95) + high + 1) ^ (low >> 29);
    if (!is_new(model, key != 0 ? key : 1)) return;
    model->counts.races++;
    if (model->settings.race == NULL) return;
    const struct vg_race race = {
        .first = a,
        .second = b,
        .region = region,
        .alias = alias != NULL,
        .mend = alias != NULL ? mend_alias : mend(model, &a, &b, first->block, second->block)};
    model->settings.race(model->settings.arg, &race);
}

void vg_model_polled(struct vg_block_clock *block, uint32_t thread, const struct vg_region *region,
                     uint64_t offset, const struct vg_how *how)
{
    struct vg_model *model = block->model;
    const uint64_t key = how->where * UINT64_C(0xd1342543de82ef95) ^ UINT64_MAX;
    if (model->settings.off || !is_new(model, key != 0 ? key : 1)) return;
    model->counts.races++;
    if (model->settings.race == NULL) return;
    const struct vg_access access = {.block = block->serial,
                                     .bits = (uint16_t)(1u << (10 + offset % 4) | thread),
                                     .kind = vg_kind_of(model, how, VG_READS)};
    const struct vg_race race = {
        .second = party_of(model, region, offset / 4, &access),
        .region = region,
        .mend = "Wait by ld.relaxed.sys or ld.acquire.sys (cuda::atomic_ref, or volatile): a plain "
                "load races with the writer, and a compiler may load once and for all.",
        .polled = true};
    model->settings.race(model->settings.arg, &race);
}
