/* Every algorithm "X/Y" there is: for each collective the X that work inside hosts and the Y that
 * work between them. Meetings are only inside. */
#include "algorithms/hierarchy.h"
#include "algorithms/list.h"

/* One algorithm; its parts are the last arguments. */
#define PAIR(of, x, y, ...)                                                                        \
    {                                                                                              \
        .name = #x "/" #y, .summary = #x " inside each host, " #y " between hosts",                \
        .collective = of, .nchannels = tt_hierarchy_nchannels, .nblocks = tt_hierarchy_nblocks,    \
        .nscratch = tt_hierarchy_nscratch, .nsteps = tt_hierarchy_nsteps,                          \
        .step = tt_hierarchy_step, .formula = tt_hierarchy_formula,                                \
        .refusal = tt_hierarchy_refusal, .parts = &(const struct tt_parts)                         \
        {                                                                                          \
            __VA_ARGS__                                                                            \
        }                                                                                          \
    }

/* ---- all_reduce ----------------------------------------------------------------------------- */

#define ON_LANES(x, y)                                                                             \
    PAIR(TT_ALL_REDUCE, x, y, .split = &tt_reduce_scatter_##x, .between = &tt_all_reduce_##y,      \
         .join = &tt_all_gather_##x)
#define BY_LEADERS(x, y)                                                                           \
    PAIR(TT_ALL_REDUCE, x, y, .up = &tt_reduce_##x, .between = &tt_all_reduce_##y,                 \
         .down = &tt_broadcast_##x)
#define ON_LANES_OR_BY_LEADERS(x, y)                                                               \
    PAIR(TT_ALL_REDUCE, x, y, .split = &tt_reduce_scatter_##x, .join = &tt_all_gather_##x,         \
         .up = &tt_reduce_##x, .down = &tt_broadcast_##x, .between = &tt_all_reduce_##y)
#define EACH_ALL_REDUCE(pair, x)                                                                   \
    pair(x, naive), pair(x, ring), pair(x, parallel), pair(x, two_shot),                           \
        pair(x, recursive_halving), pair(x, recursive_doubling), pair(x, tree), pair(x, pat),      \
        pair(x, parameter_server)

static const struct tt_algorithm all_reduce[] = {EACH_ALL_REDUCE(ON_LANES_OR_BY_LEADERS, meet),
                                                 EACH_ALL_REDUCE(ON_LANES, ring),
                                                 EACH_ALL_REDUCE(ON_LANES, parallel),
                                                 EACH_ALL_REDUCE(ON_LANES, recursive),
                                                 EACH_ALL_REDUCE(ON_LANES, bruck),
                                                 EACH_ALL_REDUCE(ON_LANES, pat),
                                                 EACH_ALL_REDUCE(BY_LEADERS, direct),
                                                 EACH_ALL_REDUCE(BY_LEADERS, binomial),
                                                 EACH_ALL_REDUCE(BY_LEADERS, chain),
                                                 {.name = NULL}};

/* ---- The others ----------------------------------------------------------------------------- */

#define JOIN(x, y)                                                                                 \
    PAIR(TT_ALL_GATHER, x, y, .between = &tt_all_gather_##y, .join = &tt_all_gather_##x)
#define SPLIT(x, y)                                                                                \
    PAIR(TT_REDUCE_SCATTER, x, y, .split = &tt_reduce_scatter_##x,                                 \
         .between = &tt_reduce_scatter_##y)
#define EACH_SHARED(pair, x)                                                                       \
    pair(x, ring), pair(x, parallel), pair(x, recursive), pair(x, bruck), pair(x, pat)

static const struct tt_algorithm all_gather[] = {EACH_SHARED(JOIN, meet),
                                                 EACH_SHARED(JOIN, ring),
                                                 EACH_SHARED(JOIN, parallel),
                                                 EACH_SHARED(JOIN, recursive),
                                                 EACH_SHARED(JOIN, bruck),
                                                 EACH_SHARED(JOIN, pat),
                                                 {.name = NULL}};

static const struct tt_algorithm reduce_scatter[] = {EACH_SHARED(SPLIT, meet),
                                                     EACH_SHARED(SPLIT, ring),
                                                     EACH_SHARED(SPLIT, parallel),
                                                     EACH_SHARED(SPLIT, recursive),
                                                     EACH_SHARED(SPLIT, bruck),
                                                     EACH_SHARED(SPLIT, pat),
                                                     {.name = NULL}};

#define BROADCAST(x, y)                                                                            \
    PAIR(TT_BROADCAST, x, y, .between = &tt_broadcast_##y, .down = &tt_broadcast_##x)
#define EACH_BROADCAST(x)                                                                          \
    BROADCAST(x, direct), BROADCAST(x, binomial), BROADCAST(x, chain),                             \
        BROADCAST(x, scatter_allgather)

static const struct tt_algorithm broadcast[] = {EACH_BROADCAST(meet),
                                                EACH_BROADCAST(direct),
                                                EACH_BROADCAST(binomial),
                                                EACH_BROADCAST(chain),
                                                EACH_BROADCAST(scatter_allgather),
                                                {.name = NULL}};

#define REDUCE(x, y) PAIR(TT_REDUCE, x, y, .up = &tt_reduce_##x, .between = &tt_reduce_##y)
#define EACH_REDUCE(x)                                                                             \
    REDUCE(x, direct), REDUCE(x, binomial), REDUCE(x, chain), REDUCE(x, reduce_scatter_gather)

static const struct tt_algorithm reduce[] = {EACH_REDUCE(meet),
                                             EACH_REDUCE(direct),
                                             EACH_REDUCE(binomial),
                                             EACH_REDUCE(chain),
                                             EACH_REDUCE(reduce_scatter_gather),
                                             {.name = NULL}};

#define SCATTER(x, y) PAIR(TT_SCATTER, x, y, .between = &tt_scatter_##y, .down = &tt_scatter_##x)
#define GATHER(x, y) PAIR(TT_GATHER, x, y, .up = &tt_gather_##x, .between = &tt_gather_##y)
#define EACH_ROOTED(pair)                                                                          \
    pair(meet, direct), pair(meet, binomial), pair(direct, direct), pair(direct, binomial),        \
        pair(binomial, direct), pair(binomial, binomial)

static const struct tt_algorithm scatter[] = {EACH_ROOTED(SCATTER), {.name = NULL}};
static const struct tt_algorithm gather[] = {EACH_ROOTED(GATHER), {.name = NULL}};

#define BARRIER(x, y)                                                                              \
    PAIR(TT_BARRIER, x, y, .up = &tt_barrier_##x, .between = &tt_barrier_##y,                      \
         .down = &tt_barrier_##x)

static const struct tt_algorithm barrier[] = {
    BARRIER(meet, dissemination), BARRIER(dissemination, dissemination), {.name = NULL}};

/* ---- By collective -------------------------------------------------------------------------- */

static const struct tt_algorithm *const pairs[TT_NCOLLECTIVES] = {
    [TT_ALL_REDUCE] = all_reduce, [TT_BROADCAST] = broadcast, [TT_REDUCE] = reduce,
    [TT_ALL_GATHER] = all_gather, [TT_SCATTER] = scatter,     [TT_REDUCE_SCATTER] = reduce_scatter,
    [TT_GATHER] = gather,         [TT_BARRIER] = barrier,
};

const struct tt_algorithm *tt_pair_at(enum tt_collective collective, int index)
{
    const struct tt_algorithm *of = pairs[collective];
    if (!of) return NULL;
    for (int i = 0; of[i].name; i++)
        if (i == index) return &of[i];
    return NULL;
}
