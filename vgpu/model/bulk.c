/* Notes of weak accesses to many bytes at once: copies and fills.
 *
 * A page whose words all have the same accesses has one cell for all of them (struct vg_page). An
 * access of the whole page that is ordered after what the cell holds changes that cell alone.
 * Anything else gives each word a cell of its own; a write of the whole page that leaves all words
 * alike takes them back. */
#include "internal.h"

#include <stdlib.h>
#include <string.h>

enum { PAGE_BYTES = 4 * VG_PAGE_WORDS, WIDEST = 16 };

struct bulk {
    struct vg_block_clock *block;
    struct vg_region *region;
    const struct vg_how *how; /* by size: 1, 2, 4, 8, 16 at its own index */
    uint32_t thread;
    enum vg_action action;
};

static bool precedes(const struct bulk *bulk, const struct vg_access *access)
{
    const uint32_t other = vg_access_thread(access);
    return access->block == 0 || (access->block == bulk->block->serial && other == bulk->thread) ||
           vg_known(bulk->block, bulk->thread, access->block, other, access->epoch);
}

static bool is_nc(const struct vg_model *model, const struct vg_access *access)
{
    return model->kinds[access->kind].how.nc;
}

/* Whether all of the page's accesses come before this one, which is noted then. */
static bool note_whole(const struct bulk *bulk, struct vg_page *page)
{
    struct vg_model *model = bulk->block->model;
    if (page->cells != NULL) return false;
    if (page->whole == NULL) page->whole = vg_need(sizeof *page->whole);
    struct vg_cell *cell = page->whole;
    if (!precedes(bulk, &cell->write) || !precedes(bulk, &cell->read) || is_nc(model, &cell->read))
        return false;
    const struct vg_access mine = {.block = bulk->block->serial,
                                   .epoch = bulk->block->threads[bulk->thread].epoch,
                                   .bits = (uint16_t)(15u << 10 | bulk->thread),
                                   .kind = vg_kind_of(model, &bulk->how[WIDEST], bulk->action)};
    if (bulk->action == VG_READS)
        cell->read = mine;
    else
        *cell = (struct vg_cell){.write = mine};
    return true;
}

static void note_each(const struct bulk *bulk, uint64_t offset, uint64_t nbytes)
{
    for (const uint64_t end = offset + nbytes; offset < end;) {
        uint32_t size = WIDEST;
        while (offset % size != 0 || size > end - offset) size /= 2;
        if (!vg_note_simple(bulk->block, bulk->thread, bulk->region, offset, &bulk->how[size],
                            bulk->action))
            vg_note(bulk->block, bulk->thread, bulk->region, offset, &bulk->how[size],
                    bulk->action);
        offset += size;
    }
}

/* After a write of the whole page. */
static void take_back(struct vg_page *page, uint32_t nwords)
{
    const struct vg_cell *first = page->cells;
    if (first == NULL || first->more != NULL || first->read.block != 0) return;
    for (uint32_t i = 1; i < nwords; i++)
        if (memcmp(&first[i], first, sizeof *first) != 0) return;
    page->whole = vg_need(sizeof *page->whole);
    *page->whole = *first;
    free(page->cells);
    page->cells = NULL;
}

void vg_note_bulk(struct vg_block_clock *block, uint32_t thread, struct vg_region *region,
                  uint64_t offset, uint64_t nbytes, const struct vg_how *how, enum vg_action action)
{
    const struct bulk bulk = {block, region, how, thread, action};
    const uint64_t end = offset + nbytes;
    while (offset < end) {
        const uint64_t begin = offset / PAGE_BYTES * PAGE_BYTES;
        const uint64_t behind =
            begin + PAGE_BYTES < region->nbytes ? begin + PAGE_BYTES : region->nbytes;
        const uint64_t until = behind < end ? behind : end;
        const bool whole = offset == begin && until == behind && (behind - begin) % 4 == 0 &&
                           !vg_alias_noted(region, offset / PAGE_BYTES);
        struct vg_page *page = whole ? vg_page_of(region, offset / PAGE_BYTES) : NULL;
        if (!whole || !note_whole(&bulk, page)) {
            note_each(&bulk, offset, until - offset);
            if (whole && action == VG_WRITES) take_back(page, (uint32_t)(behind - begin) / 4);
        }
        offset = until;
    }
}
