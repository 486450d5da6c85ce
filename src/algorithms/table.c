/* The table of all algorithms. */
#include "algorithms/algorithms.h"

#include <stdio.h>
#include <string.h>

#include "algorithms/hierarchy.h"
#include "algorithms/list.h"

enum { MOST_ALGORITHMS = 16 };

/* A new algorithm is added here and in list.h. Rows end with NULL. compose.c composes them by their
 * names. */
static const struct tt_algorithm *const table[TT_NCOLLECTIVES][MOST_ALGORITHMS] = {
    [TT_ALL_REDUCE] = {&tt_all_reduce_naive, &tt_all_reduce_ring, &tt_all_reduce_parallel,
                       &tt_all_reduce_two_shot, &tt_all_reduce_recursive_halving,
                       &tt_all_reduce_recursive_doubling, &tt_all_reduce_tree, &tt_all_reduce_pat,
                       &tt_all_reduce_parameter_server, &tt_all_reduce_meet,
                       &tt_all_reduce_meet_two_shot},
    [TT_BROADCAST] = {&tt_broadcast_direct, &tt_broadcast_binomial, &tt_broadcast_chain,
                      &tt_broadcast_scatter_allgather, &tt_broadcast_meet},
    [TT_REDUCE] = {&tt_reduce_direct, &tt_reduce_binomial, &tt_reduce_chain,
                   &tt_reduce_reduce_scatter_gather, &tt_reduce_two_shot, &tt_reduce_meet},
    [TT_ALL_GATHER] = {&tt_all_gather_ring, &tt_all_gather_parallel, &tt_all_gather_recursive,
                       &tt_all_gather_bruck, &tt_all_gather_pat, &tt_all_gather_meet},
    [TT_REDUCE_SCATTER] = {&tt_reduce_scatter_ring, &tt_reduce_scatter_parallel,
                           &tt_reduce_scatter_recursive, &tt_reduce_scatter_bruck,
                           &tt_reduce_scatter_pat, &tt_reduce_scatter_meet},
    [TT_ALL_TO_ALL] = {&tt_all_to_all_direct, &tt_all_to_all_pairwise, &tt_all_to_all_bruck,
                       &tt_all_to_all_meet},
    [TT_SCATTER] = {&tt_scatter_direct, &tt_scatter_binomial, &tt_scatter_meet},
    [TT_GATHER] = {&tt_gather_direct, &tt_gather_binomial, &tt_gather_meet},
    [TT_BARRIER] = {&tt_barrier_dissemination, &tt_barrier_meet},
};

const struct tt_algorithm *tt_basic_at(int collective, int index)
{
    if ((unsigned)collective >= TT_NCOLLECTIVES || (unsigned)index >= MOST_ALGORITHMS) return NULL;
    return table[collective][index];
}

const struct tt_algorithm *tt_basic_find(int collective, const char *name)
{
    const struct tt_algorithm *algorithm;
    for (int i = 0; (algorithm = tt_basic_at(collective, i)) != NULL; i++)
        if (strcmp(algorithm->name, name) == 0) return algorithm;
    return NULL;
}

const struct tt_algorithm *tt_algorithm_at(enum tt_collective collective, int index)
{
    if ((unsigned)collective >= TT_NCOLLECTIVES || index < 0) return NULL;
    int number = 0;
    while (tt_basic_at((int)collective, number)) number++;
    return index < number ? table[collective][index] : tt_composed_at(collective, index - number);
}

const struct tt_algorithm *tt_algorithm_find(enum tt_collective collective, const char *name)
{
    if ((unsigned)collective >= TT_NCOLLECTIVES) return NULL;
    const struct tt_algorithm *basic = tt_basic_find((int)collective, name);
    return basic ? basic : tt_composed_find(collective, name);
}

const struct tt_algorithm *tt_algorithm_by_id(enum tt_collective collective, uint64_t id)
{
    const struct tt_algorithm *algorithm;
    for (int i = 0; (algorithm = tt_algorithm_at(collective, i)) != NULL; i++)
        if (tt_algorithm_id(collective, algorithm->name) == id) return algorithm;
    return NULL;
}

void tt_algorithm_names(enum tt_collective collective, char *text, size_t size)
{
    const struct tt_algorithm *algorithm;
    size_t used = 0;
    if (size > 0) text[0] = '\0';
    for (int i = 0; (algorithm = tt_algorithm_at(collective, i)) != NULL && used < size; i++) {
        const char *before = i == 0             ? ""
                             : algorithm->parts ? ", and for several hosts X/Y as in "
                                                : ", ";
        const int length = snprintf(text + used, size - used, "%s%s", before, algorithm->name);
        used += length > 0 ? (size_t)length : 0;
        if (algorithm->parts) return;
    }
}
