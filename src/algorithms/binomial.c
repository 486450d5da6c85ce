/* Binomial tree: in each round every rank that has the data sends it to one more rank, so the
 * number of ranks that have it doubles.
 *
 * Ranks are numbered from the root. The children of number o are o + 1, o + 2, o + 4, ..., with
 * distances smaller than o's lowest bit. The subtree of o is a range of numbers that begins with o,
 * so a rank sends or collects one range of blocks, whichever rank is the root.
 *
 *   broadcast, scatter          reduce, gather: the same with all arrows reversed
 *   r0 --+--> r2 ---> r3
 *         \-> r1
 *
 * With L = ceil(log2 n) and M = max(n - 2^(L-1), 2^(L-2)), the largest part below the root:
 *               steps   depth       sent   reduced   scratch            message
 *   broadcast   L       floor log   L      0         0                  1       (the whole data)
 *   reduce      L       floor log   1      2L        1 (n < 7: 0)       1       (the same)
 *   scatter     L+1     floor log   n-1    0         M (n < 4: 0)       M       (one rank's)
 *   gather      L+1     floor log   M      0         M (n < 4: 0)       M       (the same)
 *   where floor log = floor(log2 n): a message takes as many links as its target's number has ones.
 *
 * Order of folding: a rank's own share, then its children, nearest first.
 *
 * Source: Thakur, Rabenseifner, Gropp: Optimization of collective communication operations in
 * MPICH, IJHPCA 2005. */
#include "algorithms/forms.h"
#include "algorithms/list.h"

/* A rank's place in the tree. */
struct place {
    int size;      /* ranks of its subtree, itself included */
    int nchildren; /* the i-th is 2^i ahead */
    int parent;    /* a rank; -1 at the root */
};

static struct place place_of(const struct tt_shape *shape, int rank)
{
    const int n = shape->nranks, number = tt_mod((int64_t)rank - shape->root, n);
    const int low = number & -number;
    const int size = number == 0 ? n : least(low, n - number);
    return (struct place){.size = size,
                          .nchildren = ceil_log2(size),
                          .parent = number == 0 ? -1 : tt_mod((int64_t)rank - low, n)};
}

/* Ranks in the subtree of the i-th child of a place of `size`. */
static int child_size(int size, int i)
{
    return least(1 << i, size - (1 << i));
}

static int rooted_nsteps(const struct tt_algorithm *self, const struct tt_shape *shape, int rank,
                         int channel)
{
    const int nchildren = place_of(shape, rank).nchildren;
    return nchildren > 0 ? nchildren : 1;
}

/* Sends to the farthest child first: its subtree is the largest. */
static void broadcast_step(const struct tt_algorithm *self, const struct tt_shape *shape, int rank,
                           int channel, int index, struct tt_step *step)
{
    const struct place place = place_of(shape, rank);
    if (index > 0)
        step->local = tt_range(TT_OUTPUT, 0, 1);
    else if (place.parent < 0)
        step->local = tt_range(TT_INPUT, 0, 1);
    else
        step->recv = tt_peer(place.parent);
    if (index == 0) step->dst = tt_range(TT_OUTPUT, 0, 1);
    if (place.nchildren > 0) step->send = ahead(shape, rank, 1 << (place.nchildren - 1 - index));
}

static struct tt_span sum_so_far(const struct place *place)
{
    struct tt_span span = tt_range(place->parent < 0 ? TT_OUTPUT : TT_SCRATCH, 0, 1);
    return span;
}

/* Receives from the nearest child first: its subtree is the smallest. */
static void reduce_step(const struct tt_algorithm *self, const struct tt_shape *shape, int rank,
                        int channel, int index, struct tt_step *step)
{
    if (alone(shape, step)) return;
    const struct place place = place_of(shape, rank);
    const bool last = index + 1 >= place.nchildren;
    step->local = index == 0 ? tt_range(TT_INPUT, 0, 1) : sum_so_far(&place);
    if (place.nchildren > 0) {
        step->op = TT_FOLD;
        step->recv = ahead(shape, rank, 1 << index);
    }
    if (last && place.parent >= 0)
        step->send = tt_peer(place.parent);
    else
        step->dst = sum_so_far(&place);
    step->finish = last && place.parent < 0;
}

static int reduce_nscratch(const struct tt_algorithm *self, const struct tt_shape *shape, int rank)
{
    const struct place place = place_of(shape, rank);
    return place.parent >= 0 && place.nchildren > 1 ? 1 : 0;
}

/* Scatter and gather: leaves and the root need no scratch. */
static int blocks_nscratch(const struct tt_algorithm *self, const struct tt_shape *shape, int rank)
{
    const struct place place = place_of(shape, rank);
    return place.parent >= 0 && place.size > 1 ? place.size : 0;
}

static int blocks_nsteps(const struct tt_algorithm *self, const struct tt_shape *shape, int rank,
                         int channel)
{
    const struct place place = place_of(shape, rank);
    return 1 + place.nchildren + (blocks_nscratch(self, shape, rank) > 0 ? 1 : 0);
}

/* The blocks of the i-th child's subtree, where this rank keeps them. */
static struct tt_span child_blocks(const struct tt_shape *shape, int rank,
                                   enum tt_buffer root_keeps, const struct place *place, int i)
{
    const int first = 1 << i, number = child_size(place->size, i);
    if (place->parent < 0) return circle(shape, root_keeps, (int64_t)rank + first, number);
    return circle_at(shape, (int64_t)rank + first, number, first);
}

/* Receives the blocks of its subtree, sends each child its part, farthest child first, and keeps
 * its own block. */
static void scatter_step(const struct tt_algorithm *self, const struct tt_shape *shape, int rank,
                         int channel, int index, struct tt_step *step)
{
    const struct place place = place_of(shape, rank);
    const bool root = place.parent < 0;
    const int sent = root ? index : index - 1;
    if (sent < 0) {
        step->recv = tt_peer(place.parent);
        step->dst =
            place.size == 1 ? tt_range(TT_OUTPUT, rank, 1) : circle_at(shape, rank, place.size, 0);
    } else if (sent < place.nchildren) {
        const int child = place.nchildren - 1 - sent;
        step->local = child_blocks(shape, rank, TT_INPUT, &place, child);
        step->send = ahead(shape, rank, 1 << child);
    } else {
        step->local = root ? tt_range(TT_INPUT, rank, 1) : circle_at(shape, rank, 1, 0);
        step->dst = tt_range(TT_OUTPUT, rank, 1);
    }
}

/* Collects its own block and those of its subtree, nearest child first, and sends them to the
 * parent. */
static void gather_step(const struct tt_algorithm *self, const struct tt_shape *shape, int rank,
                        int channel, int index, struct tt_step *step)
{
    const struct place place = place_of(shape, rank);
    const bool root = place.parent < 0;
    if (place.size == 1 && !root) {
        step->local = tt_range(TT_INPUT, rank, 1);
        step->send = tt_peer(place.parent);
    } else if (index == 0) {
        step->local = tt_range(TT_INPUT, rank, 1);
        step->dst = root ? tt_range(TT_OUTPUT, rank, 1) : circle_at(shape, rank, 1, 0);
    } else if (index <= place.nchildren) {
        step->recv = ahead(shape, rank, 1 << (index - 1));
        step->dst = child_blocks(shape, rank, TT_OUTPUT, &place, index - 1);
    } else {
        step->local = circle_at(shape, rank, place.size, 0);
        step->send = tt_peer(place.parent);
    }
}

static struct tt_formula broadcast_formula(const struct tt_algorithm *self,
                                           const struct tt_shape *shape)
{
    const int n = shape->nranks;
    if (n == 1) return formula_alone;
    const uint64_t levels = (uint64_t)ceil_log2(n);
    return (struct tt_formula){
        .steps = levels, .depth = (uint64_t)floor_log2(n), .sent = levels, .message = 1};
}

static struct tt_formula reduce_formula(const struct tt_algorithm *self,
                                        const struct tt_shape *shape)
{
    const int n = shape->nranks;
    if (n == 1) return formula_alone;
    const uint64_t levels = (uint64_t)ceil_log2(n);
    return (struct tt_formula){.steps = levels,
                               .depth = (uint64_t)floor_log2(n),
                               .sent = 1,
                               .reduced = 2 * levels,
                               .scratch = n < 7 ? 0 : 1,
                               .message = 1};
}

/* M: either number 2^(L-1), cut short by n, or number 2^(L-2), which is whole. */
static struct tt_formula blocks_formula(const struct tt_algorithm *self,
                                        const struct tt_shape *shape)
{
    const int n = shape->nranks;
    if (n == 1) return formula_alone;
    const int top = 1 << floor_log2(n - 1);
    const uint64_t largest = most((uint64_t)(n - top), (uint64_t)(top / 2));
    return (struct tt_formula){
        .steps = (uint64_t)ceil_log2(n) + 1,
        .depth = (uint64_t)floor_log2(n),
        .sent = shape->collective == TT_SCATTER ? (uint64_t)n - 1 : largest,
        .scratch = n < 4 ? 0 : largest,
        .message = largest,
    };
}

const struct tt_algorithm tt_broadcast_binomial = {
    .name = "binomial",
    .summary = "a binomial tree from root: log n messages",
    .collective = TT_BROADCAST,
    .direct_safe = true,
    .nsteps = rooted_nsteps,
    .step = broadcast_step,
    .formula = broadcast_formula,
};

const struct tt_algorithm tt_reduce_binomial = {
    .name = "binomial",
    .summary = "a binomial tree to root: log n messages",
    .collective = TT_REDUCE,
    .direct_safe = true,
    .nscratch = reduce_nscratch,
    .nsteps = rooted_nsteps,
    .step = reduce_step,
    .formula = reduce_formula,
};

const struct tt_algorithm tt_scatter_binomial = {
    .name = "binomial",
    .summary = "a binomial tree from root, each message for all below",
    .collective = TT_SCATTER,
    .direct_safe = true,
    .nscratch = blocks_nscratch,
    .nsteps = blocks_nsteps,
    .step = scatter_step,
    .formula = blocks_formula,
};

const struct tt_algorithm tt_gather_binomial = {
    .name = "binomial",
    .summary = "a binomial tree to root, each message from all below",
    .collective = TT_GATHER,
    .direct_safe = true,
    .nscratch = blocks_nscratch,
    .nsteps = blocks_nsteps,
    .step = gather_step,
    .formula = blocks_formula,
};
