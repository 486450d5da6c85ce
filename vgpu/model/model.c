/* The memory model's grids, blocks and threads, and the table of access kinds.
 *
 * PTX ISA 9.0, chapter 8, and where each rule is implemented:
 *   8.2.1  overlap                       notes.c: words of four bytes and a mask of bytes
 *   8.5    scope                         internal.h (vg_reach), vg_scope_includes
 *   8.7    morally strong                notes.c (races), history.c (observation)
 *   8.7.1  data races                    notes.c, races.c
 *   8.8    release and acquire patterns  order.c (vg_release, vg_acquire)
 *   8.9.1.1 asynchronous operations      notes.c, access.c (vg_model_copy_*): copies have serial
 *                                        numbers of their own
 *   8.9.2  observation order             history.c: releases that a read-modify-write hands on
 *   8.9.3  Fence-SC order                order.c: the order in which the fences run
 *   8.9.4  synchronizes, barriers        order.c; kernels and streams: here (struct vg_past)
 *   8.9.5  base causality                clock.h; "observation, then base causality": the readers
 *                                        of an entry in history.c
 *   8.9.6  coherence order               history.c: the order of a history's entries
 *   8.10.3 atomicity                     history.c: nothing enters before a read-modify-write
 *   8.10.5 and 8.10.6                    history.c: the oldest entry that a read may return
 * Not shown although allowed: load buffering (a load returns a value that exists when the load
 * runs), older values of weak accesses (their races are reported), read-modify-writes that are not
 * whole because their scopes are too narrow (reported as well). A cluster has one block.
 * Not modelled: proxies and aliases (8.2.2, 8.6); ld.global.nc is checked for races instead. */
#include "internal.h"

#include <stdlib.h>
#include <string.h>

enum { SLOTS_A_KIND = 4, MOST_KINDS = UINT16_MAX, MOST_RECORDS = 1 << 16 };

struct vg_model *vg_model_create(const struct vg_model_settings *settings)
{
    struct vg_model *model = calloc(1, sizeof *model);
    if (model == NULL) return NULL;
    model->settings = *settings;
    if (model->settings.depth == 0) model->settings.depth = 8;
    if (model->settings.depth < 2) model->settings.depth = 2;
    if (model->settings.depth > 16) model->settings.depth = 16;
    if (model->settings.late == 0) model->settings.late = 10000;
    model->random = settings->seed * UINT64_C(0xd1342543de82ef95) + 1;
    model->deadline = UINT64_MAX;
    model->next = 1;
    model->kinds_room = 64;
    model->nkinds = 1;
    model->kinds = vg_need(model->kinds_room * sizeof *model->kinds);
    model->kind_slots = vg_need(SLOTS_A_KIND * model->kinds_room * sizeof *model->kind_slots);
    return model;
}

void vg_model_destroy(struct vg_model *model)
{
    if (model == NULL) return;
    for (uint32_t i = 0; i < model->ndevices; i++) {
        vg_clock_put(model->sc_device[i][0]);
        vg_clock_put(model->sc_device[i][1]);
        vg_buffer_free(model->buffers[i]);
    }
    vg_clock_put(model->sc_all);
    vg_clock_put(model->published);
    vg_alias_fences_free(model->alias_fences);
    free(model->sc_device);
    free(model->buffers);
    free(model->races);
    free(model->kind_slots);
    free(model->kinds);
    free(model->grids);
    free(model);
}

void vg_need_device(struct vg_model *model, int device)
{
    const uint32_t n = (uint32_t)(device + 2);
    if (n <= model->ndevices) return;
    struct vg_clock *(*sc)[2] = vg_need(n * sizeof *sc);
    struct vg_buffer **buffers = vg_need(n * sizeof *buffers);
    for (uint32_t i = 0; i < model->ndevices; i++) {
        memcpy(sc[i], model->sc_device[i], sizeof sc[i]);
        buffers[i] = model->buffers[i];
    }
    free(model->sc_device);
    free(model->buffers);
    model->sc_device = sc;
    model->buffers = buffers;
    model->ndevices = n;
}

struct vg_past *vg_past_create(void)
{
    return calloc(1, sizeof(struct vg_past));
}

void vg_past_destroy(struct vg_past *past)
{
    if (past == NULL) return;
    vg_clock_put(past->known);
    free(past);
}

void vg_past_join(struct vg_past *past, const struct vg_past *other)
{
    if (other != NULL) vg_clock_join(&past->known, other->known);
}

/* Grids that ended long ago lose their records: what they did counts as known to everybody. */
static void forget_grids(struct vg_model *model)
{
    const uint32_t old = model->ngrids / 2;
    uint32_t n = 0;
    for (uint32_t i = 0; i < model->ngrids; i++)
        if (i >= old || model->grids[i].runs) model->grids[n++] = model->grids[i];
    model->ngrids = n;
    model->forgotten_below = model->grids[0].first;
}

static void remember(struct vg_model *model, const struct vg_grid_record *record)
{
    if (model->ngrids >= MOST_RECORDS && model->ngrids == model->grids_room) forget_grids(model);
    if (model->ngrids == model->grids_room) {
        const uint32_t room = model->grids_room == 0 ? 64 : 2 * model->grids_room;
        struct vg_grid_record *grids = vg_need(room * sizeof *grids);
        if (model->ngrids > 0) memcpy(grids, model->grids, model->ngrids * sizeof *grids);
        free(model->grids);
        model->grids = grids;
        model->grids_room = room;
    }
    model->grids[model->ngrids++] = *record;
}

const struct vg_grid_record *vg_record_of(const struct vg_model *model, uint32_t serial)
{
    uint32_t low = 0, high = model->ngrids;
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        if (model->grids[middle].first <= serial)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == 0 || serial - model->grids[low - 1].first >= model->grids[low - 1].nblocks)
        return NULL;
    return &model->grids[low - 1];
}

uint32_t vg_copies_of(const struct vg_block_clock *block)
{
    struct vg_grid_clock *grid = block->grid;
    struct vg_model *model = block->model;
    if (grid->copies == 0) {
        if (grid->nblocks >= VG_HOST - model->next) return 0;
        struct vg_grid_record record = *vg_record_of(model, grid->first);
        grid->copies = record.first = model->next;
        record.copies = true;
        model->next += grid->nblocks;
        remember(model, &record);
        vg_clock_end(&grid->done, grid->copies, grid->nblocks);
    }
    return grid->copies + (block->serial - grid->first);
}

static void has_ended(struct vg_model *model, uint32_t first)
{
    for (uint32_t i = model->ngrids; i > 0; i--) {
        if (model->grids[i - 1].first != first) continue;
        model->grids[i - 1].runs = false;
        return;
    }
}

struct vg_grid_clock *vg_model_grid_begin(struct vg_model *model, uint64_t number, int device,
                                          uint64_t nblocks, uint32_t nthreads,
                                          const struct vg_past *before)
{
    if (nblocks >= VG_HOST - model->next || nthreads > VG_BLOCK_THREADS || device < -1) return NULL;
    struct vg_grid_clock *grid = calloc(1, sizeof *grid);
    if (grid == NULL) return NULL;
    vg_need_device(model, device);
    *grid = (struct vg_grid_clock){.model = model,
                                   .device = device,
                                   .first = model->next,
                                   .nblocks = (uint32_t)nblocks,
                                   .nthreads = nthreads};
    model->next += grid->nblocks;
    remember(model, &(struct vg_grid_record){.number = number,
                                             .first = grid->first,
                                             .nblocks = grid->nblocks,
                                             .device = device,
                                             .runs = true});
    if (before != NULL) grid->before = vg_clock_get(before->known);
    vg_clock_end(&grid->before, 0, 1); /* serial number 0 is nobody */
    grid->known_below = vg_clock_ended_below(grid->before);
    if (grid->known_below < model->forgotten_below) grid->known_below = model->forgotten_below;
    /* What is known behind the grid. Its own blocks have ended then, which needs no detail. */
    grid->done = vg_clock_get(grid->before);
    vg_clock_end(&grid->done, grid->first, grid->nblocks);
    vg_buffer_renew(model, device);
    return grid;
}

void vg_model_grid_end(struct vg_grid_clock *grid, struct vg_past *after)
{
    if (grid == NULL) return;
    vg_buffer_flush(grid->model, grid->device);
    has_ended(grid->model, grid->first);
    if (grid->copies != 0) has_ended(grid->model, grid->copies);
    if (after != NULL) vg_clock_join(&after->known, grid->done);
    vg_clock_put(grid->before);
    vg_clock_put(grid->done);
    free(grid);
}

struct vg_block_clock *vg_model_block_begin(struct vg_grid_clock *grid, uint64_t number)
{
    if (number >= grid->nblocks) return NULL;
    struct vg_block_clock *block =
        calloc(1, sizeof *block + grid->nthreads * sizeof *block->threads);
    if (block == NULL) return NULL;
    block->grid = grid;
    block->model = grid->model;
    block->serial = grid->first + (uint32_t)number;
    for (uint32_t i = 0; i < grid->nthreads; i++) {
        block->threads[i].known = vg_clock_get(grid->before);
        block->threads[i].epoch = 1;
    }
    return block;
}

void vg_model_block_end(struct vg_block_clock *block)
{
    if (block == NULL) return;
    struct vg_grid_clock *grid = block->grid;
    const struct vg_clock *last = NULL;
    for (uint32_t i = 0; i < grid->nthreads; i++) {
        struct vg_thread *thread = &block->threads[i];
        if (thread->known != last) vg_clock_join(&grid->done, thread->known);
        last = thread->known;
    }
    for (uint32_t i = 0; i < grid->nthreads; i++) {
        struct vg_thread *thread = &block->threads[i];
        vg_clock_put(thread->known);
        for (int r = 0; r < VG_REACHES; r++) vg_clock_put(thread->fence[r].known);
        vg_pending_clear(&thread->pending);
        vg_spots_free(grid->model, thread->spots);
    }
    vg_clock_put(block->sc[0]);
    vg_clock_put(block->sc[1]);
    for (int number = 0; number < VG_BLOCK_BARRIERS; number++) vg_clock_put(block->arrived[number]);
    free(block);
}

bool vg_scope_includes(const struct vg_block_clock *block, unsigned scope, uint32_t serial)
{
    if (serial == block->serial || scope == VG_SCOPE_SYS) return true;
    if (scope != VG_SCOPE_GPU) return false;
    if (serial - block->grid->first < block->grid->nblocks) return true;
    const struct vg_grid_record *record = vg_record_of(block->model, serial);
    return record == NULL || record->device == block->grid->device;
}

void vg_model_published(const struct vg_model *model, struct vg_past *past)
{
    vg_clock_join(&past->known, model->published);
}

void vg_model_host_knows(struct vg_model *model, const struct vg_past *past)
{
    vg_clock_join(&model->published, past->known);
}

static bool same_how(const struct vg_how *a, const struct vg_how *b)
{
    return a->where == b->where && a->nbytes == b->nbytes && a->order == b->order &&
           a->scope == b->scope && a->nc == b->nc && a->red == b->red && a->engine == b->engine;
}

/* The slot of the kind, or the free one where it belongs. */
static uint32_t kind_slot(const struct vg_model *model, const struct vg_how *how,
                          enum vg_action action)
{
    const uint64_t mixed = (how->where * 31 + (uint64_t)how->nbytes * 7 + (uint64_t)how->order * 3 +
                            how->scope * UINT64_C(1021) + (uint64_t)action * 5 + how->nc) *
                           UINT64_C(0x9e3779b97f4a7c15);
    const uint32_t nslots = SLOTS_A_KIND * model->kinds_room;
    uint32_t slot = (uint32_t)(mixed >> 40) % nslots;
    for (; model->kind_slots[slot] != 0; slot = (slot + 1) % nslots) {
        const struct vg_kind *kind = &model->kinds[model->kind_slots[slot]];
        if (kind->action == action && same_how(&kind->how, how)) return slot;
    }
    return slot;
}

static void grow_kinds(struct vg_model *model)
{
    struct vg_kind *kinds = vg_need(2 * model->kinds_room * sizeof *kinds);
    memcpy(kinds, model->kinds, model->nkinds * sizeof *kinds);
    free(model->kinds);
    free(model->kind_slots);
    model->kinds = kinds;
    model->kinds_room *= 2;
    model->kind_slots = vg_need(SLOTS_A_KIND * model->kinds_room * sizeof *model->kind_slots);
    for (uint32_t i = 1; i < model->nkinds; i++) {
        const uint32_t slot = kind_slot(model, &kinds[i].how, (enum vg_action)kinds[i].action);
        model->kind_slots[slot] = (uint16_t)i;
    }
}

static uint16_t find_kind(struct vg_model *model, const struct vg_how *how, enum vg_action action)
{
    uint32_t slot = kind_slot(model, how, action);
    if (model->kind_slots[slot] != 0) return model->kind_slots[slot];
    struct vg_how named = *how;
    if (model->nkinds >= MOST_KINDS - 2048) { /* further places share the name of no place */
        named.where = UINT64_MAX;
        slot = kind_slot(model, &named, action);
        if (model->kind_slots[slot] != 0) return model->kind_slots[slot];
    } else if (model->nkinds == model->kinds_room) {
        grow_kinds(model);
        slot = kind_slot(model, how, action);
    }
    model->kinds[model->nkinds] = (struct vg_kind){named, (uint8_t)action};
    model->kind_slots[slot] = (uint16_t)model->nkinds;
    return (uint16_t)model->nkinds++;
}

uint16_t vg_kind_of(struct vg_model *model, const struct vg_how *how, enum vg_action action)
{
    struct vg_seen_how *seen = vg_seen(model, how);
    if (seen->how != how || memcmp(&seen->copy, how, sizeof *how) != 0) {
        memset(seen, 0, sizeof *seen);
        seen->how = how;
        memcpy(&seen->copy, how, sizeof *how);
    }
    if (seen->kind[action] == 0) seen->kind[action] = find_kind(model, how, action);
    return seen->kind[action];
}

void vg_model_count(const struct vg_model *model, struct vg_model_counts *counts)
{
    *counts = model->counts;
}
