/* Every algorithm "X/Y" there is: for each collective the X that work inside hosts and the Y that
 * work between them. Meetings are only inside. */
#include "algorithms/hierarchy.h"
#include "algorithms/list.h"

/* One algorithm; its parts are the last arguments. safe: direct_safe, which is not only a matter of
 * the parts: a rank that gets its own block again inside would overwrite what it has sent to other
 * hosts. */
#define PAIR(of, safe, x, y, ...)                                                                  \
    {                                                                                              \
        .name = #x "/" #y, .summary = #x " inside each host, " #y " between hosts",                \
        .collective = of, .direct_safe = safe, .nchannels = tt_hierarchy_nchannels,                \
        .nblocks = tt_hierarchy_nblocks, .nscratch = tt_hierarchy_nscratch,                        \
        .nsteps = tt_hierarchy_nsteps, .step = tt_hierarchy_step, .formula = tt_hierarchy_formula, \
        .refusal = tt_hierarchy_refusal, .parts = &(const struct tt_parts)                         \
        {                                                                                          \
            __VA_ARGS__                                                                            \
        }                                                                                          \
    }

/* ---- all_reduce ----------------------------------------------------------------------------- */

#define ON_LANES(safe, x, y)                                                                       \
    PAIR(TT_ALL_REDUCE, safe, x, y, .split = &tt_reduce_scatter_##x,                               \
         .between = &tt_all_reduce_##y, .join = &tt_all_gather_##x)
#define BY_LEADERS(safe, x, y)                                                                     \
    PAIR(TT_ALL_REDUCE, safe, x, y, .up = &tt_reduce_##x, .between = &tt_all_reduce_##y,           \
         .down = &tt_broadcast_##x)
#define ON_LANES_OR_BY_LEADERS(safe, x, y)                                                         \
    PAIR(TT_ALL_REDUCE, safe, x, y, .split = &tt_reduce_scatter_##x, .join = &tt_all_gather_##x,   \
         .up = &tt_reduce_##x, .down = &tt_broadcast_##x, .between = &tt_all_reduce_##y)
/* Without trees: they take two channels, and a meeting has one. */
#define EACH_BUT_TREE(pair, safe, x)                                                               \
    pair(safe, x, naive), pair(safe, x, ring), pair(false, x, parallel), pair(safe, x, two_shot),  \
        pair(safe, x, recursive_halving), pair(false, x, recursive_doubling), pair(safe, x, pat),  \
        pair(safe, x, parameter_server)
#define EACH(pair, safe, x) EACH_BUT_TREE(pair, safe, x), pair(safe, x, tree)

static const struct tt_algorithm all_reduce[] = {EACH_BUT_TREE(ON_LANES_OR_BY_LEADERS, false, meet),
                                                 EACH(ON_LANES, true, ring),
                                                 EACH(ON_LANES, true, parallel),
                                                 EACH(ON_LANES, false, recursive),
                                                 EACH(ON_LANES, true, bruck),
                                                 EACH(ON_LANES, false, pat),
                                                 EACH(BY_LEADERS, true, direct),
                                                 EACH(BY_LEADERS, true, binomial),
                                                 EACH(BY_LEADERS, true, chain),
                                                 {.name = NULL}};

/* ---- The others ----------------------------------------------------------------------------- */

#define JOIN(safe, x, y)                                                                           \
    PAIR(TT_ALL_GATHER, safe, x, y, .between = &tt_all_gather_##y, .join = &tt_all_gather_##x)
#define SPLIT(safe, x, y)                                                                          \
    PAIR(TT_REDUCE_SCATTER, safe, x, y, .split = &tt_reduce_scatter_##x,                           \
         .between = &tt_reduce_scatter_##y)
#define EACH_SHARED(pair, safe, x)                                                                 \
    pair(safe, x, ring), pair(safe, x, parallel), pair(safe, x, recursive), pair(safe, x, bruck),  \
        pair(safe, x, pat)

static const struct tt_algorithm all_gather[] = {EACH_SHARED(JOIN, false, meet),
                                                 EACH_SHARED(JOIN, true, ring),
                                                 EACH_SHARED(JOIN, true, parallel),
                                                 EACH_SHARED(JOIN, true, recursive),
                                                 EACH_SHARED(JOIN, true, bruck),
                                                 EACH_SHARED(JOIN, true, pat),
                                                 {.name = NULL}};

static const struct tt_algorithm reduce_scatter[] = {EACH_SHARED(SPLIT, true, meet),
                                                     EACH_SHARED(SPLIT, true, ring),
                                                     EACH_SHARED(SPLIT, true, parallel),
                                                     EACH_SHARED(SPLIT, true, recursive),
                                                     EACH_SHARED(SPLIT, true, bruck),
                                                     EACH_SHARED(SPLIT, true, pat),
                                                     {.name = NULL}};

#define BROADCAST(safe, x, y)                                                                      \
    PAIR(TT_BROADCAST, safe, x, y, .between = &tt_broadcast_##y, .down = &tt_broadcast_##x)
#define EACH_BROADCAST(safe, x)                                                                    \
    BROADCAST(safe, x, direct), BROADCAST(safe, x, binomial), BROADCAST(safe, x, chain),           \
        BROADCAST(safe, x, scatter_allgather)

static const struct tt_algorithm broadcast[] = {EACH_BROADCAST(false, meet),
                                                EACH_BROADCAST(true, direct),
                                                EACH_BROADCAST(true, binomial),
                                                EACH_BROADCAST(true, chain),
                                                EACH_BROADCAST(true, scatter_allgather),
                                                {.name = NULL}};

#define REDUCE(x, y) PAIR(TT_REDUCE, true, x, y, .up = &tt_reduce_##x, .between = &tt_reduce_##y)
#define EACH_REDUCE(x)                                                                             \
    REDUCE(x, direct), REDUCE(x, binomial), REDUCE(x, chain), REDUCE(x, reduce_scatter_gather)

static const struct tt_algorithm reduce[] = {EACH_REDUCE(meet),
                                             EACH_REDUCE(direct),
                                             EACH_REDUCE(binomial),
                                             EACH_REDUCE(chain),
                                             EACH_REDUCE(reduce_scatter_gather),
                                             {.name = NULL}};

#define SCATTER(x, y)                                                                              \
    PAIR(TT_SCATTER, true, x, y, .between = &tt_scatter_##y, .down = &tt_scatter_##x)
#define GATHER(x, y) PAIR(TT_GATHER, true, x, y, .up = &tt_gather_##x, .between = &tt_gather_##y)
#define EACH_ROOTED(pair)                                                                          \
    pair(meet, direct), pair(meet, binomial), pair(direct, direct), pair(direct, binomial),        \
        pair(binomial, direct), pair(binomial, binomial)

static const struct tt_algorithm scatter[] = {EACH_ROOTED(SCATTER), {.name = NULL}};
static const struct tt_algorithm gather[] = {EACH_ROOTED(GATHER), {.name = NULL}};

#define BARRIER(x, y)                                                                              \
    PAIR(TT_BARRIER, true, x, y, .up = &tt_barrier_##x, .between = &tt_barrier_##y,                \
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
