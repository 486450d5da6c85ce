/* Every algorithm of every collective, one after another: those for one host, and those for
 * several. */
#ifndef TT_TESTS_ALGORITHMS_EACH_H
#define TT_TESTS_ALGORITHMS_EACH_H

#include <string.h>

#include "algorithms/algorithms.h"
#include "placed.h"
#include "program/covered.h"

/* The index-th of all algorithms that are made of two others, or of those that are not; NULL past
 * the end. */
static inline const struct tt_algorithm *each_of(bool pairs, int index)
{
    for (int i = 0; i < TT_NCOLLECTIVES; i++) {
        const struct tt_algorithm *algorithm;
        for (int k = 0; (algorithm = tt_algorithm_at((enum tt_collective)i, k)) != NULL; k++)
            if (pairs == (algorithm->parts != NULL) && index-- == 0) return algorithm;
    }
    return NULL;
}

static inline const struct tt_algorithm *each(int index)
{
    return each_of(false, index);
}

static inline const struct tt_algorithm *each_pair(int index)
{
    return each_of(true, index);
}

/* The index-th of the placements that ./check proves, as far as they are small: a letter a rank,
 * equal letters are one host. NULL past the end. */
static inline const char *each_placement(int index)
{
    enum { MOST_RANKS_EACH = 16 };
    const char *placement = tt_covered_placement(index); /* fewer ranks come first */
    return placement && strlen(placement) <= MOST_RANKS_EACH ? placement : NULL;
}

static inline struct tt_shape shape_of(const struct tt_algorithm *algorithm, int nranks, int root)
{
    return (struct tt_shape){.collective = algorithm->collective, .nranks = nranks, .root = root};
}

#endif
