#include "schedule/cut.h"
#include "schedule/schedule.h"

/* The index-th of `nparts` balanced parts. */
static size_t balanced_part(size_t length, size_t align, size_t nparts, size_t index, size_t *begin)
{
    const struct tt_cut cut = tt_cut_make(length, align, (uint32_t)nparts);
    return tt_cut_part(&cut, (uint32_t)index, begin);
}

size_t tt_geometry_block(const struct tt_geometry *geometry, int block, size_t *begin)
{
    if (!geometry->split) {
        *begin = (size_t)block * geometry->count;
        return geometry->count;
    }
    return balanced_part(geometry->count, geometry->align, (size_t)geometry->nblocks, (size_t)block,
                         begin);
}

size_t tt_geometry_part(const struct tt_geometry *geometry, int block, int channel, size_t *begin)
{
    const size_t length = tt_geometry_block(geometry, block, begin);
    if (geometry->nchannels == 1) return length;
    size_t offset;
    const size_t part = balanced_part(length, geometry->align, (size_t)geometry->nchannels,
                                      (size_t)channel, &offset);
    *begin += offset;
    return part;
}

/* Parts have at most three lengths: of the first, of the last, and of those before the last. */
static size_t largest_part_of(const struct tt_geometry *geometry, int block)
{
    const int candidates[] = {0, geometry->nchannels - 2, geometry->nchannels - 1};
    size_t largest = 0, begin;
    for (int i = 0; i < 3; i++) {
        if (candidates[i] < 0) continue;
        const size_t part = tt_geometry_part(geometry, block, candidates[i], &begin);
        if (part > largest) largest = part;
    }
    return largest;
}

size_t tt_geometry_largest_part(const struct tt_geometry *geometry)
{
    const int candidates[] = {0, geometry->nblocks - 2, geometry->nblocks - 1};
    size_t largest = 0;
    for (int i = 0; i < 3; i++) {
        if (candidates[i] < 0) continue;
        const size_t part = largest_part_of(geometry, candidates[i]);
        if (part > largest) largest = part;
    }
    return largest;
}
