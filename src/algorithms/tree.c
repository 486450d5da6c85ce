/* Double binary tree: each rank adds its children's sums to its own and sends the sum to its
 * parent; the result is sent from the root to the leaves. In one tree half of the ranks are leaves,
 * which only send one message and receive one. So there are two trees, each for half of the data
 * (one channel each), and a rank that is a leaf in one tree has children in the other.
 *
 * The tree is in rank order. The child of rank 0, the root, is the highest power of two. The
 * children of any other rank are the nearest ranks below and above it with one trailing zero bit
 * less. When n is even the second tree is the mirror image of the first; when n is odd it is the
 * first one shifted by one rank.
 *
 *   channel 0    r0             channel 1    r3
 *                 \                         /
 *                  r2                     r1
 *                 /  \                   /  \
 *               r1    r3               r0    r2
 *
 * With L = ceil(log2 n):
 *                steps   depth   sent                reduced              scratch   message
 *   all_reduce   2       2L      4 (n=2: 2, n=3: 3)  n odd: 4, else 3     0         1
 *                                                    (n=2: 2)
 *   (blocks: half of the data; each channel takes half of every block)
 *
 * Order of folding: a rank's own share, its child on the left, its child on the right.
 *
 * Source: Sanders, Speck, Traeff: Two-tree algorithms for full bandwidth broadcast, reduction and
 * scan, Parallel Computing 2009; NCCL uses it so. */
#include "algorithms/forms.h"
#include "algorithms/list.h"

/* A rank's place in the tree, in the tree's own numbering. */
struct place {
    int parent;      /* -1: this is the root */
    int left, right; /* children; 0: none */
};

/* The largest power of two that divides i > 0. */
static int lowest_bit(int i)
{
    return i & -i;
}

static struct place place_of(int n, int i)
{
    if (i == 0) return (struct place){.parent = -1, .left = n > 1 ? 1 << floor_log2(n - 1) : 0};
    const int low = lowest_bit(i), above = (i ^ low) | low << 1;
    struct place place = {.parent = above < n ? above : i ^ low};
    if (low == 1) return place;
    place.left = i - low / 2;
    if (i + 1 < n) {
        /* The subtree on the right may lack ranks: its top is the highest that there is. */
        const int reach = 1 << floor_log2(n - 1 - i);
        place.right = i + least(low / 2, reach);
    }
    return place;
}

/* From rank to number in the tree and back: a mirror image is its own inverse, a shift by one rank
 * is undone by a shift back. */
static int number_of(const struct tt_shape *shape, int rank, int channel)
{
    const int n = shape->nranks;
    if (channel == 0) return rank;
    return n % 2 == 0 ? n - 1 - rank : tt_mod((int64_t)rank - 1, n);
}

static int rank_of(const struct tt_shape *shape, int number, int channel)
{
    const int n = shape->nranks;
    if (channel == 0) return number;
    return n % 2 == 0 ? n - 1 - number : tt_mod((int64_t)number + 1, n);
}

static int two_trees(const struct tt_algorithm *self, const struct tt_shape *shape)
{
    return shape->nranks > 1 ? 2 : 1;
}

static int nsteps(const struct tt_algorithm *self, const struct tt_shape *shape, int rank,
                  int channel)
{
    return number_of(shape, rank, channel) == 0 ? 1 : 2;
}

static struct tt_peers children(const struct tt_shape *shape, const struct place *place,
                                int channel)
{
    if (place->left == 0) return (struct tt_peers){.number = 0};
    const int left = rank_of(shape, place->left, channel);
    if (place->right == 0) return tt_peer(left);
    const int right = rank_of(shape, place->right, channel);
    return (struct tt_peers){.first = left, .number = 2, .stride = right - left};
}

static void all_reduce_step(const struct tt_algorithm *self, const struct tt_shape *shape, int rank,
                            int channel, int index, struct tt_step *step)
{
    if (alone(shape, step)) return;
    const struct place place = place_of(shape->nranks, number_of(shape, rank, channel));
    const struct tt_peers below = children(shape, &place, channel);
    const bool root = place.parent < 0;
    if (index == 0) {
        step->recv = below;
        step->op = below.number > 0 ? TT_FOLD : TT_COPY;
        step->local = tt_range(TT_INPUT, 0, 1);
    } else {
        step->recv = tt_peer(rank_of(shape, place.parent, channel));
    }
    if (index == 0 && !root) {
        step->send = tt_peer(rank_of(shape, place.parent, channel));
    } else {
        step->dst = tt_range(TT_OUTPUT, 0, 1);
        step->send = below;
    }
    step->finish = root;
}

static struct tt_formula formula(const struct tt_algorithm *self, const struct tt_shape *shape)
{
    const int n = shape->nranks;
    if (n == 1) return formula_alone;
    return (struct tt_formula){
        .steps = 2,
        .depth = 2 * (uint64_t)ceil_log2(n),
        .sent = (uint64_t)least(n, 4),
        .reduced = n == 2  ? 2
                   : n % 2 ? 4
                           : 3,
        .message = 1,
    };
}

const struct tt_algorithm tt_all_reduce_tree = {
    .name = "tree",
    .summary = "two binary trees, each for half of the data",
    .collective = TT_ALL_REDUCE,
    .direct_safe = true,
    .nchannels = two_trees,
    .nsteps = nsteps,
    .step = all_reduce_step,
    .formula = formula,
};
