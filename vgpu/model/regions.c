/* Sorted lists of regions: what a GPU can address, found by bisection. */
#include <vgpu/memory.h>

#include <stdlib.h>
#include <string.h>

/* The index of the first region that begins behind the address. */
static uint32_t behind(const struct vg_regions *regions, uint64_t address)
{
    uint32_t low = 0, high = regions->n;
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        if (regions->at[middle]->address <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

int vg_regions_add(struct vg_regions *regions, struct vg_region *region)
{
    const uint32_t i = behind(regions, region->address);
    if (region->nbytes > UINT64_MAX - region->address) return -1;
    if (i > 0) {
        const struct vg_region *before = regions->at[i - 1];
        if (before->address == region->address ||
            before->nbytes > region->address - before->address)
            return -1;
    }
    if (i < regions->n && region->nbytes > regions->at[i]->address - region->address) return -1;
    if (regions->n == regions->room) {
        const uint32_t room = regions->room == 0 ? 16 : 2 * regions->room;
        struct vg_region **at = realloc(regions->at, room * sizeof *at);
        if (at == NULL) return -1;
        regions->at = at;
        regions->room = room;
    }
    memmove(regions->at + i + 1, regions->at + i, (regions->n - i) * sizeof *regions->at);
    regions->at[i] = region;
    regions->n++;
    return 0;
}

void vg_regions_remove(struct vg_regions *regions, struct vg_region *region)
{
    const uint32_t i = behind(regions, region->address);
    if (i == 0 || regions->at[i - 1] != region) return;
    memmove(regions->at + i - 1, regions->at + i, (regions->n - i) * sizeof *regions->at);
    if (--regions->n == 0) {
        free(regions->at);
        *regions = (struct vg_regions){0};
    }
}

struct vg_region *vg_regions_find(const struct vg_regions *regions, uint64_t address)
{
    const uint32_t i = behind(regions, address);
    if (i == 0) return NULL;
    struct vg_region *region = regions->at[i - 1];
    return address - region->address < region->nbytes ? region : NULL;
}

struct vg_region *vg_regions_nearest(const struct vg_regions *regions, uint64_t address)
{
    const uint32_t i = behind(regions, address);
    if (i > 0 && i < regions->n) {
        struct vg_region *before = regions->at[i - 1], *after = regions->at[i];
        const uint64_t since = address - before->address;
        const uint64_t past = since < before->nbytes ? 0 : since - before->nbytes;
        return past <= after->address - address ? before : after;
    }
    if (i > 0) return regions->at[i - 1];
    return regions->n > 0 ? regions->at[0] : NULL;
}
