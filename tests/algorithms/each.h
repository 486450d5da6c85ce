/* Every algorithm of every collective, one after another: those for one host, and those for
 * several. */
#ifndef TT_TESTS_ALGORITHMS_EACH_H
#define TT_TESTS_ALGORITHMS_EACH_H

#include "algorithms/algorithms.h"
#include "placed.h"

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

/* Places that a composition must cope with: a letter a rank, equal letters are one host. */
static const char *const placements[] = {
    "ab",
    "aabb",
    "abab",
    "abba",
    "aabbcc",
    "abcabc",
    "aab",
    "abb",
    "aaabcccc",
    "aababcc",
    "aaabbb",
    "aaaabbbb",
    "aabbccdd",
    "abcacb",
    "aaaabbbbccccc",
    "aaabbbcccddd",
    "aabbccddeeff",
    "abcdeabcde",
    "aaaabbbbccccdddd",
    "abacad",
};

static inline struct tt_shape shape_of(const struct tt_algorithm *algorithm, int nranks, int root)
{
    return (struct tt_shape){.collective = algorithm->collective, .nranks = nranks, .root = root};
}

#endif
