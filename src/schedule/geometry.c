/* Cuts the elements of a block into channels, rounds and pieces. */
#include "schedule/cut.h"
#include "schedule/schedule.h"

enum { CACHE_LINE = 64 };

struct tt_geometry tt_geometry_of(enum tt_collective collective, size_t count, size_t element,
                                  int nblocks, int nchannels)
{
    return (struct tt_geometry){.count = count,
                                .nblocks = nblocks,
                                .nchannels = nchannels,
                                .align = CACHE_LINE / element,
                                .split = tt_collective_splits(collective)};
}

/* The index-th of `nparts` balanced parts. */
static size_t balanced_part(size_t length, size_t align, size_t nparts, size_t index, size_t *begin)
{
    const struct tt_cut cut = tt_cut_make(length, align, (uint32_t)nparts);
    return tt_cut_part(&cut, (uint32_t)index, begin);
}

size_t tt_geometry_block(const struct tt_geometry *geometry, int block, size_t *begin)
{
    if (geometry->counts) {
        *begin = 0;
        for (int b = 0; b < block; b++) *begin += geometry->counts[b];
        return geometry->counts[block];
    }
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

/* The parts of a block have at most three lengths: those of the first, the last, and the one before
 * the last. */
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

/* Longer blocks have longer parts. */
static int longest_block(const struct tt_geometry *geometry)
{
    int longest = 0;
    for (int b = 1; b < geometry->nblocks; b++)
        if (geometry->counts[b] > geometry->counts[longest]) longest = b;
    return longest;
}

size_t tt_geometry_largest_part(const struct tt_geometry *geometry)
{
    if (geometry->counts) return largest_part_of(geometry, longest_block(geometry));
    const int candidates[] = {0, geometry->nblocks - 2, geometry->nblocks - 1};
    size_t largest = 0;
    for (int i = 0; i < 3; i++) {
        if (candidates[i] < 0) continue;
        const size_t part = largest_part_of(geometry, candidates[i]);
        if (part > largest) largest = part;
    }
    return largest;
}

/* An upper bound of the elements of a message, where blocks may differ in length: the elements of
 * all blocks. */
static size_t most_at_once(const struct tt_geometry *geometry)
{
    size_t total = 0;
    if (geometry->split) return geometry->count;
    if (!geometry->counts) return SIZE_MAX;
    for (int b = 0; b < geometry->nblocks; b++) total += geometry->counts[b];
    return total;
}

size_t tt_geometry_least_room(const struct tt_geometry *geometry, size_t element, size_t message)
{
    const size_t nblocks = message > 0 ? message : 1, most = most_at_once(geometry);
    return element * (most < nblocks ? most : nblocks);
}

struct tt_rounds tt_geometry_rounds(const struct tt_geometry *geometry, size_t element,
                                    size_t message, size_t room)
{
    const size_t largest = tt_geometry_largest_part(geometry);
    const size_t elements = room / element, fit = elements / (message > 0 ? message : 1);
    if (largest <= fit || most_at_once(geometry) <= elements)
        return (struct tt_rounds){.piece = largest, .number = 1};
    if (fit == 0) return (struct tt_rounds){.number = 0};
    const size_t piece = fit < geometry->align ? fit : fit / geometry->align * geometry->align;
    return (struct tt_rounds){.piece = piece, .number = (largest + piece - 1) / piece};
}
