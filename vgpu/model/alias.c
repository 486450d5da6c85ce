/* Several addresses of one memory: virtual aliases (8.6).
 *
 * Accesses at two addresses of one memory use two proxies. They are never morally strong (8.7), and
 * causality orders them only when a fence.proxy.alias links them (8.9.5), or when the grid of the
 * later one began after the earlier one's had ended (CUDA Programming Guide, Virtual Aliasing
 * Support).
 *
 * The regions of one memory are in a ring. Each has notes of its own, so an access is compared with
 * the notes of the others. Of the fences the latest ones are kept, each with what its thread knew.
 * What older ones knew counts as linked for everybody: that orders more than the manual does. */
#include "internal.h"

#include <stdlib.h>

enum { MOST_FENCES = 256 };

struct alias_fence {
    struct vg_clock *known; /* accesses that precede the fence */
    uint32_t block, epoch;
    uint16_t thread;
};

struct vg_alias_fences {
    struct vg_clock *older; /* what the fences knew that are not kept */
    uint32_t n, next;       /* next: where the next fence goes */
    struct alias_fence at[MOST_FENCES];
};

void vg_model_alias(struct vg_region *region, struct vg_region *other)
{
    if (other->alias == NULL) other->alias = other;
    region->alias = other->alias;
    other->alias = region;
}

void vg_alias_leave(struct vg_region *region)
{
    struct vg_region *before = region->alias;
    if (before == NULL) return;
    while (before->alias != region) before = before->alias;
    before->alias = before == region->alias ? NULL : region->alias;
    region->alias = NULL;
}

void vg_alias_fences_free(struct vg_alias_fences *fences)
{
    if (fences == NULL) return;
    for (uint32_t i = 0; i < fences->n; i++) vg_clock_put(fences->at[i].known);
    vg_clock_put(fences->older);
    free(fences);
}

void vg_model_fence_alias(struct vg_block_clock *block, uint32_t thread)
{
    struct vg_model *model = block->model;
    struct vg_thread *self = &block->threads[thread];
    model->counts.fences++;
    vg_buffer_flush(model, block->grid->device);
    vg_buffer_renew(model, block->grid->device);
    if (model->settings.off) return;
    if (model->alias_fences == NULL) model->alias_fences = vg_need(sizeof *model->alias_fences);
    struct vg_alias_fences *fences = model->alias_fences;
    struct alias_fence *fence = &fences->at[fences->next];
    if (fences->n == MOST_FENCES) {
        vg_clock_join(&fences->older, fence->known);
        vg_clock_put(fence->known);
    } else {
        fences->n++;
    }
    fences->next = (fences->next + 1) % MOST_FENCES;
    *fence = (struct alias_fence){.known = vg_clock_get(self->known),
                                  .block = block->serial,
                                  .epoch = self->epoch,
                                  .thread = (uint16_t)thread};
    vg_clock_learn(&fence->known, block->serial, thread, VG_PART_THREAD, self->epoch);
    self->epoch++; /* who knows the next epoch's accesses knows the fence */
}

bool vg_alias_linked(const struct vg_block_clock *block, uint32_t thread,
                     const struct vg_access *other)
{
    const struct vg_alias_fences *fences = block->model->alias_fences;
    const uint32_t its = vg_access_thread(other);
    if (other->block < block->grid->known_below ||
        vg_clock_epoch(block->grid->before, other->block, its) >= other->epoch)
        return true;
    if (fences == NULL) return false;
    if (vg_clock_epoch(fences->older, other->block, its) >= other->epoch) return true;
    for (uint32_t i = 0; i < fences->n; i++) {
        const struct alias_fence *fence = &fences->at[i];
        if (vg_clock_epoch(fence->known, other->block, its) >= other->epoch &&
            vg_known(block, thread, fence->block, fence->thread, fence->epoch))
            return true;
    }
    return false;
}

const struct vg_cell *vg_alias_cell(const struct vg_region *region, uint64_t word)
{
    if (region->notes == NULL) return NULL;
    const struct vg_page *page = &region->notes->pages[word / VG_PAGE_WORDS];
    return page->cells != NULL ? &page->cells[word % VG_PAGE_WORDS] : page->whole;
}

bool vg_alias_noted(const struct vg_region *region, uint64_t page)
{
    for (const struct vg_region *other = region->alias; other != NULL && other != region;
         other = other->alias)
        if (vg_alias_cell(other, page * VG_PAGE_WORDS) != NULL) return true;
    return false;
}
