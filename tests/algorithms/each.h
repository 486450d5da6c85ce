/* Every algorithm of every collective, one after another. */
#ifndef TT_TESTS_ALGORITHMS_EACH_H
#define TT_TESTS_ALGORITHMS_EACH_H

#include "algorithms/algorithms.h"

/* The index-th of all algorithms; NULL past the end. */
static inline const struct tt_algorithm *each(int index)
{
    for (int i = 0; i < TT_NCOLLECTIVES; i++) {
        const struct tt_algorithm *algorithm;
        for (int k = 0; (algorithm = tt_algorithm_at((enum tt_collective)i, k)) != NULL; k++)
            if (index-- == 0) return algorithm;
    }
    return NULL;
}

static inline struct tt_shape shape_of(const struct tt_algorithm *algorithm, int nranks, int root)
{
    return (struct tt_shape){.collective = algorithm->collective, .nranks = nranks, .root = root};
}

#endif
