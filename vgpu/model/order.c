/* What orders threads: fences, barriers, release and acquire patterns (8.8, 8.9.3, 8.9.4).
 *
 * A release gives away what its thread knows, its own accesses up to the epoch included, and ends
 * the epoch: later accesses are not part of what was given away. An acquire joins what was given
 * away to what the thread knows. */
#include "internal.h"

#include <stdlib.h>
#include <string.h>

/* Slots: a thread may always have FEW, all threads together about MOST. */
enum { FEW_SPOTS = 64, MOST_SPOTS = 1 << 20 };

static void learn_itself(struct vg_clock **clock, const struct vg_block_clock *block,
                         uint32_t thread, uint32_t epoch)
{
    vg_clock_learn(clock, block->serial, thread, VG_PART_THREAD, epoch);
}

/* --- locations of release and acquire operations --- */

void vg_pending_clear(struct vg_pending *pending)
{
    for (int r = 0; r < VG_REACHES; r++) vg_clock_put(pending->clock[r]);
    for (uint32_t i = 0; i < pending->n; i++) vg_releases_put(pending->lists[i]);
    memset(pending, 0, sizeof *pending);
}

static void pending_settle(struct vg_pending *pending, const struct vg_block_clock *block)
{
    for (uint32_t i = 0; i < pending->n; i++) {
        for (int r = VG_REACHES - 1; r >= 0; r--)
            vg_clock_join(&pending->clock[r], vg_releases_find(pending->lists[i], (enum vg_reach)r,
                                                               block->serial, block->grid->device));
        vg_clock_join(&pending->clock[VG_REACH_CTA], vg_releases_any(pending->lists[i]));
        vg_releases_put(pending->lists[i]);
    }
    pending->n = 0;
}

static void pending_add(struct vg_pending *pending, const struct vg_block_clock *block,
                        struct vg_releases *list)
{
    for (uint32_t i = 0; i < pending->n; i++)
        if (pending->lists[i] == list) return;
    if (pending->n == sizeof pending->lists / sizeof *pending->lists)
        pending_settle(pending, block);
    pending->lists[pending->n++] = vg_releases_get(list);
}

/* The thread knows what pends for an acquire of the reach. */
static void pending_take(struct vg_pending *pending, struct vg_block_clock *block,
                         struct vg_thread *self, enum vg_reach reach)
{
    pending_settle(pending, block);
    for (int r = (int)reach; r >= 0; r--) {
        vg_clock_join(&self->known, pending->clock[r]);
        vg_clock_replace(&pending->clock[r], NULL);
    }
}

static void spot_clear(struct vg_spot *spot)
{
    for (int r = 0; r < VG_REACHES; r++) vg_clock_put(spot->released[r]);
    vg_pending_clear(&spot->pending);
    memset(spot, 0, sizeof *spot);
}

void vg_spots_free(struct vg_model *model, struct vg_spots *spots)
{
    if (spots == NULL) return;
    for (uint32_t i = 0; i < spots->room; i++) spot_clear(&spots->at[i]);
    model->nspots -= spots->room;
    free(spots);
}

/* The location's slot, or the free one where it belongs. */
static struct vg_spot *slot_of(struct vg_spots *spots, uint64_t location)
{
    uint32_t i = (uint32_t)(location * UINT64_C(0x9e3779b97f4a7c15) >> 40) & (spots->room - 1);
    while (spots->at[i].location != 0 && spots->at[i].location != location)
        i = (i + 1) & (spots->room - 1);
    return &spots->at[i];
}

static struct vg_spot *spot_find(struct vg_thread *self, uint64_t location)
{
    struct vg_spot *spot = self->spots != NULL ? slot_of(self->spots, location) : NULL;
    return spot != NULL && spot->location != 0 ? spot : NULL;
}

static bool says_nothing(const struct vg_spot *spot)
{
    bool nothing = !spot->failed && spot->pending.n == 0;
    for (int r = 0; r < VG_REACHES; r++)
        nothing = nothing && spot->released[r] == NULL && spot->pending.clock[r] == NULL;
    return nothing;
}

static void fence_settle(struct vg_released *fence, const struct vg_block_clock *block,
                         uint32_t thread)
{
    if (fence->epoch == 0) return;
    learn_itself(&fence->known, block, thread, fence->epoch);
    fence->epoch = 0;
}

/* What was released at the location counts as released by a fence, what was observed as acquired:
 * that orders more than the manual does, never less. */
static void spot_settle(struct vg_block_clock *block, uint32_t thread, struct vg_spot *spot)
{
    struct vg_thread *self = &block->threads[thread];
    for (int r = 0; r < VG_REACHES; r++) {
        fence_settle(&self->fence[r], block, thread);
        vg_clock_join(&self->fence[r].known, spot->released[r]);
    }
    pending_take(&spot->pending, block, self, VG_REACH_SYS);
    if (spot->failed) vg_buffer_flush(block->model, block->grid->device);
    spot_clear(spot);
}

/* A wider table without the slots that say nothing. When all threads together have too many, this
 * one settles its own. */
static void make_room(struct vg_block_clock *block, uint32_t thread)
{
    struct vg_thread *self = &block->threads[thread];
    struct vg_spots *old = self->spots;
    uint32_t n = 0, room = 4;
    for (uint32_t i = 0; old != NULL && i < old->room; i++) n += !says_nothing(&old->at[i]);
    while (room < 4 * (n + 1)) room *= 2;
    const bool too_many = room > FEW_SPOTS && block->model->nspots + room > MOST_SPOTS;
    if (too_many) room = 4;
    struct vg_spots *spots = vg_need(sizeof *spots + room * sizeof *spots->at);
    spots->room = room;
    block->model->nspots += room;
    for (uint32_t i = 0; old != NULL && i < old->room; i++) {
        struct vg_spot *spot = &old->at[i];
        if (says_nothing(spot)) continue;
        if (too_many) {
            spot_settle(block, thread, spot);
            continue;
        }
        *slot_of(spots, spot->location) = *spot;
        memset(spot, 0, sizeof *spot);
        spots->n++;
    }
    vg_spots_free(block->model, old);
    self->spots = spots;
}

static struct vg_spot *spot_make(struct vg_block_clock *block, uint32_t thread, uint64_t location)
{
    struct vg_thread *self = &block->threads[thread];
    struct vg_spot *spot = spot_find(self, location);
    if (spot != NULL) return spot;
    if (self->spots == NULL || 2 * (self->spots->n + 1) > self->spots->room)
        make_room(block, thread);
    self->spots->n++;
    spot = slot_of(self->spots, location);
    spot->location = location;
    return spot;
}

/* --- release and acquire patterns --- */

static bool releases(unsigned order)
{
    return order == VG_RELEASE || order == VG_ACQ_REL || order == VG_SC;
}

static bool acquires(unsigned order)
{
    return order == VG_ACQUIRE || order == VG_ACQ_REL || order == VG_SC;
}

void vg_release(struct vg_block_clock *block, uint32_t thread, const struct vg_how *how,
                uint64_t location, struct vg_clock *released[VG_REACHES])
{
    struct vg_thread *self = &block->threads[thread];
    struct vg_spot *spot = spot_find(self, location);
    if (block->copied != NULL) { /* no program order before it */
        for (int r = 0; r < VG_REACHES; r++)
            released[r] = r <= (int)vg_reach(how->scope) ? vg_clock_get(block->copied) : NULL;
        return;
    }
    for (int r = 0; r < VG_REACHES; r++) {
        fence_settle(&self->fence[r], block, thread);
        released[r] = vg_clock_get(self->fence[r].known);
        if (spot != NULL) vg_clock_join(&released[r], spot->released[r]);
    }
    if (!releases(how->order)) return;
    learn_itself(&self->known, block, thread, self->epoch);
    spot = spot_make(block, thread, location);
    for (int r = 0; r <= (int)vg_reach(how->scope); r++) {
        vg_clock_replace(&released[r], self->known);
        vg_clock_replace(&spot->released[r], self->known);
    }
    self->epoch++;
}

void vg_release_begin(struct vg_block_clock *block, uint32_t thread, const struct vg_how *how,
                      uint64_t location)
{
    struct vg_clock *released[VG_REACHES];
    if (!releases(how->order)) return;
    vg_release(block, thread, how, location, released);
    for (int r = 0; r < VG_REACHES; r++) vg_clock_put(released[r]);
    if (how->scope == VG_SCOPE_SYS) spot_make(block, thread, location)->failed = true;
}

void vg_release_flush(struct vg_block_clock *block, uint32_t thread, uint64_t location)
{
    struct vg_spot *spot = spot_find(&block->threads[thread], location);
    if (spot == NULL || !spot->failed) return;
    spot->failed = false;
    vg_buffer_flush(block->model, block->grid->device);
}

void vg_acquire(struct vg_block_clock *block, uint32_t thread, const struct vg_how *how,
                uint64_t location, struct vg_releases *carried)
{
    struct vg_thread *self = &block->threads[thread];
    const enum vg_reach reach = vg_reach(how->scope);
    const bool takes = acquires(how->order);
    if (takes) vg_clock_join(&self->known, vg_releases_any(carried));
    bool left = carried != NULL && !takes; /* something that only a later fence may take */
    for (int r = VG_REACH_SYS; r >= 0 && takes && carried != NULL; r--) {
        struct vg_clock *clock =
            vg_releases_find(carried, (enum vg_reach)r, block->serial, block->grid->device);
        if (r <= (int)reach)
            vg_clock_join(&self->known, clock);
        else
            left = left || clock != NULL;
    }
    if (left && !how->red) {
        pending_add(&self->pending, block, carried);
        pending_add(&spot_make(block, thread, location)->pending, block, carried);
    }
    struct vg_spot *spot = takes ? spot_find(self, location) : NULL;
    if (spot != NULL) pending_take(&spot->pending, block, self, reach);
}

void vg_model_acquire(struct vg_block_clock *block, uint32_t thread, const struct vg_region *region,
                      uint64_t offset, enum vg_scope scope)
{
    struct vg_thread *self = &block->threads[thread];
    if (block->model->settings.off) return;
    if (scope == VG_SCOPE_SYS) vg_buffer_renew(block->model, block->grid->device);
    struct vg_spot *spot = spot_find(self, (uint64_t)(uintptr_t)(region->bytes + offset));
    if (spot != NULL) pending_take(&spot->pending, block, self, vg_reach(scope));
}

/* --- fences --- */

static void fence_acquire(struct vg_block_clock *block, struct vg_thread *self, enum vg_reach reach)
{
    pending_take(&self->pending, block, self, reach);
    for (uint32_t i = 0; self->spots != NULL && i < self->spots->room; i++)
        pending_take(&self->spots->at[i].pending, block, self, reach);
}

/* Fence-SC order is the order in which the fences run. Each group of threads (block, device, all)
 * has two clocks: of its fences of exactly that scope, and of those of wider scopes. A fence is
 * morally strong with those of no wider scope in its groups, and with those of wider scopes in the
 * group of its own scope. */
static void sc_acquire(struct vg_block_clock *block, struct vg_thread *self, enum vg_reach reach)
{
    struct vg_clock *const *device = block->model->sc_device[block->grid->device + 1];
    vg_clock_join(&self->known, block->sc[0]);
    if (reach == VG_REACH_CTA) vg_clock_join(&self->known, block->sc[1]);
    if (reach >= VG_REACH_GPU) vg_clock_join(&self->known, device[0]);
    if (reach == VG_REACH_GPU) vg_clock_join(&self->known, device[1]);
    if (reach == VG_REACH_SYS) vg_clock_join(&self->known, block->model->sc_all);
}

/* The thread has acquired all that these clocks say, so its own takes their place. */
static void sc_release(struct vg_block_clock *block, const struct vg_thread *self,
                       enum vg_reach reach)
{
    struct vg_clock **device = block->model->sc_device[block->grid->device + 1];
    vg_clock_replace(&block->sc[reach > VG_REACH_CTA], self->known);
    if (reach >= VG_REACH_GPU) vg_clock_replace(&device[reach > VG_REACH_GPU], self->known);
    if (reach == VG_REACH_SYS) vg_clock_replace(&block->model->sc_all, self->known);
}

void vg_model_fence(struct vg_block_clock *block, uint32_t thread, enum vg_order order,
                    enum vg_scope scope)
{
    struct vg_model *model = block->model;
    struct vg_thread *self = &block->threads[thread];
    const enum vg_reach reach = vg_reach(scope);
    model->counts.fences++;
    if (releases(order) && reach == VG_REACH_SYS) vg_buffer_flush(model, block->grid->device);
    if (acquires(order) && reach == VG_REACH_SYS) vg_buffer_renew(model, block->grid->device);
    if (model->settings.off) return;
    if (acquires(order)) fence_acquire(block, self, reach);
    if (order == VG_SC) {
        sc_acquire(block, self, reach);
        learn_itself(&self->known, block, thread, self->epoch);
        sc_release(block, self, reach);
    }
    if (!releases(order)) return;
    for (int r = 0; r <= (int)reach; r++) {
        vg_clock_replace(&self->fence[r].known, self->known);
        self->fence[r].epoch = order == VG_SC ? 0 : self->epoch;
    }
    self->epoch++;
}

/* --- barriers --- */

static bool has(const uint64_t *threads, uint32_t i)
{
    return (threads[i / 64] >> (i % 64) & 1) != 0;
}

/* All threads of the set know each other's accesses up to their epochs, and what has arrived. */
static void meet(struct vg_block_clock *block, uint32_t first, uint32_t end,
                 const uint64_t *threads, struct vg_clock *arrived)
{
    struct vg_clock *known = NULL;
    const struct vg_clock *last = NULL;
    uint32_t top = 0, n = 0;
    if (arrived != NULL) vg_clock_join(&known, arrived);
    for (uint32_t i = first; i < end; i++) {
        if (!has(threads, i)) continue;
        const struct vg_thread *self = &block->threads[i];
        if (self->known != last) vg_clock_join(&known, self->known);
        last = self->known;
        if (self->epoch > top) top = self->epoch;
        n++;
    }
    const uint32_t nthreads = block->grid->nthreads;
    if (n == nthreads) {
        vg_clock_learn(&known, block->serial, 0, VG_PART_BLOCK, top);
        block->floor = top;
    }
    for (uint32_t warp = first; n < nthreads && warp < end; warp += VG_LANES) {
        const uint32_t behind = warp + VG_LANES < nthreads ? warp + VG_LANES : nthreads;
        uint32_t in_warp = 0;
        for (uint32_t i = warp; i < behind; i++) in_warp += has(threads, i);
        if (in_warp > 0 && in_warp == behind - warp) {
            vg_clock_learn(&known, block->serial, warp, VG_PART_WARP, top);
            continue;
        }
        for (uint32_t i = warp; in_warp > 0 && i < behind; i++)
            if (has(threads, i)) learn_itself(&known, block, i, block->threads[i].epoch);
    }
    for (uint32_t i = first; i < end; i++) {
        struct vg_thread *self = &block->threads[i];
        if (!has(threads, i)) continue;
        self->epoch = top + 1;
        vg_clock_replace(&self->known, known);
    }
    vg_clock_put(known);
}

void vg_model_arrive(struct vg_block_clock *block, uint32_t number, const uint64_t *threads)
{
    if (block->model->settings.off) return;
    for (uint32_t i = 0; i < block->grid->nthreads; i++) {
        struct vg_thread *self = &block->threads[i];
        if (!has(threads, i)) continue;
        vg_clock_join(&block->arrived[number], self->known);
        learn_itself(&block->arrived[number], block, i, self->epoch);
        self->epoch++;
    }
}

void vg_model_barrier(struct vg_block_clock *block, uint32_t number, const uint64_t *threads)
{
    if (block->model->settings.off) return;
    meet(block, 0, block->grid->nthreads, threads, block->arrived[number]);
    vg_clock_put(block->arrived[number]);
    block->arrived[number] = NULL;
}

void vg_model_warp(struct vg_block_clock *block, uint32_t warp, uint32_t lanes)
{
    if (block->model->settings.off) return;
    const uint32_t first = warp * VG_LANES, nthreads = block->grid->nthreads;
    const uint32_t end = first + VG_LANES < nthreads ? first + VG_LANES : nthreads;
    uint64_t threads[VG_BLOCK_THREADS / 64] = {0};
    threads[first / 64] = (uint64_t)lanes << (first % 64);
    meet(block, first, end, threads, NULL);
}
