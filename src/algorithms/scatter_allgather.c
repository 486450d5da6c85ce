/* Broadcast as scatter and all-gather, and reduce as reduce-scatter and gather: the root sends each
 * rank its block (or receives it), and a ring moves the blocks between the other ranks. Each link
 * carries about as many bytes as the data has, and all links work at the same time.
 *
 *   broadcast:  r0 sends [1] to r1, [2] to r2, [3] to r3; then, along r0 -> r1 -> r2 -> r3, every
 *               rank sends its own block and each block that it receives:
 *               r1 gets [0] [3] [2] from r0,  r2 gets [1] [0] [3] from r1,  r3 gets [2] [1] [0]
 *   reduce:     every block's sum is sent round the ring r0 -> r1 -> r2 -> r3 -> r0 to its owner;
 *               r1, r2, r3 send their blocks to r0
 *
 *               steps   depth   sent     reduced   scratch   message
 *   broadcast   2n-1    n-1     2(n-1)   0         0         1         (blocks: 1/n of the data)
 *   reduce      2n-1    n       n        2(n-1)    0         1         (the same)
 *
 * Order of folding: as in ring.c.
 *
 * Source: Barnett et al.: Interprocessor collective communication library, SHPCC 1994. */
#include "algorithms/forms.h"
#include "algorithms/list.h"

static int place_of(const struct tt_shape *shape, int rank)
{
    return tt_mod((int64_t)rank - shape->root, shape->nranks);
}

static int nsteps(const struct tt_algorithm *self, const struct tt_shape *shape, int rank,
                  int channel)
{
    return rank == shape->root ? 2 * shape->nranks - 1 : shape->nranks;
}

/* The scatter, then the root's sends along the chain, then the copy of the own data, for which no
 * other rank waits. */
static void broadcast_root(const struct tt_shape *shape, int index, struct tt_step *step)
{
    const int n = shape->nranks, root = shape->root;
    if (index < n - 1) {
        step->send = ahead(shape, root, index + 1);
        step->local = tt_range(TT_INPUT, step->send.first, 1);
    } else if (index < 2 * (n - 1)) {
        step->send = ahead(shape, root, 1);
        step->local = circle(shape, TT_INPUT, (int64_t)root - (index - (n - 1)), 1);
    } else {
        step->local = tt_range(TT_INPUT, 0, n);
        step->dst = tt_range(TT_OUTPUT, 0, n);
    }
}

static void broadcast_step(const struct tt_algorithm *self, const struct tt_shape *shape, int rank,
                           int channel, int index, struct tt_step *step)
{
    const int n = shape->nranks;
    if (rank == shape->root) {
        broadcast_root(shape, index, step);
        return;
    }
    step->recv = index == 0 ? tt_peer(shape->root) : ahead(shape, rank, -1);
    step->dst = circle(shape, TT_OUTPUT, (int64_t)rank - index, 1);
    /* The next rank has the last block already, its own; the last rank of the chain sends
     * nothing. */
    if (index < n - 1 && place_of(shape, rank) < n - 1) step->send = ahead(shape, rank, 1);
}

static void reduce_step(const struct tt_algorithm *self, const struct tt_shape *shape, int rank,
                        int channel, int index, struct tt_step *step)
{
    if (alone(shape, step)) return;
    const int last = shape->nranks - 1;
    if (index > last) {
        step->recv = ahead(shape, rank, last - index);
        step->dst = tt_range(TT_OUTPUT, step->recv.first, 1);
        return;
    }
    step->local = circle(shape, TT_INPUT, (int64_t)rank - 1 - index, 1);
    if (index > 0) {
        step->op = TT_FOLD;
        step->recv = ahead(shape, rank, -1);
    }
    step->finish = index == last;
    if (index < last)
        step->send = ahead(shape, rank, 1);
    else if (rank == shape->root)
        step->dst = tt_range(TT_OUTPUT, rank, 1);
    else
        step->send = tt_peer(shape->root);
}

static struct tt_formula broadcast_formula(const struct tt_algorithm *self,
                                           const struct tt_shape *shape)
{
    const uint64_t n = (uint64_t)shape->nranks;
    if (n == 1) return formula_alone;
    return (struct tt_formula){
        .steps = 2 * n - 1, .depth = n - 1, .sent = 2 * (n - 1), .message = 1};
}

static struct tt_formula reduce_formula(const struct tt_algorithm *self,
                                        const struct tt_shape *shape)
{
    const uint64_t n = (uint64_t)shape->nranks;
    if (n == 1) return formula_alone;
    return (struct tt_formula){
        .steps = 2 * n - 1, .depth = n, .sent = n, .reduced = 2 * (n - 1), .message = 1};
}

const struct tt_algorithm tt_broadcast_scatter_allgather = {
    .name = "scatter_allgather",
    .summary = "root scatters blocks, a ring gathers them: large data",
    .collective = TT_BROADCAST,
    .direct_safe = true,
    .nblocks = one_block_each,
    .nsteps = nsteps,
    .step = broadcast_step,
    .formula = broadcast_formula,
};

const struct tt_algorithm tt_reduce_reduce_scatter_gather = {
    .name = "reduce_scatter_gather",
    .summary = "a ring reduces blocks, root gathers them: large data",
    .collective = TT_REDUCE,
    .direct_safe = true,
    .nblocks = one_block_each,
    .nsteps = nsteps,
    .step = reduce_step,
    .formula = reduce_formula,
};
