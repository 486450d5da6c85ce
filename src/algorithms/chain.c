/* Chain: each rank sends the data to the next rank of a chain that begins at the root (reduce: ends
 * at the root). One message takes n-1 links, but every rank sends only once. Executors cut large
 * data into rounds, and all links carry rounds at the same time.
 *
 *   broadcast:  r0 --> r1 --> r2 --> r3
 *   reduce:     r0 <-- r1 <-- r2 <-- r3     (each adds its share to the sum)
 *
 *               steps   depth   sent   reduced   scratch   message
 *   broadcast   1       n-1     1      0         0         1         (blocks: the whole data)
 *   reduce      1       n-1     1      2         0         1         (the same)
 *
 * Order of folding: root + (next + (... + last)). */
#include "algorithms/forms.h"
#include "algorithms/list.h"

static int one_step(const struct tt_algorithm *self, const struct tt_shape *shape, int rank,
                    int channel)
{
    return 1;
}

/* Place in the chain, 0 at the root. */
static int place_of(const struct tt_shape *shape, int rank)
{
    return tt_mod((int64_t)rank - shape->root, shape->nranks);
}

static void broadcast_step(const struct tt_algorithm *self, const struct tt_shape *shape, int rank,
                           int channel, int index, struct tt_step *step)
{
    const int place = place_of(shape, rank);
    if (place == 0)
        step->local = tt_range(TT_INPUT, 0, 1);
    else
        step->recv = ahead(shape, rank, -1);
    step->dst = tt_range(TT_OUTPUT, 0, 1);
    if (place < shape->nranks - 1) step->send = ahead(shape, rank, 1);
}

static void reduce_step(const struct tt_algorithm *self, const struct tt_shape *shape, int rank,
                        int channel, int index, struct tt_step *step)
{
    if (alone(shape, step)) return;
    const int place = place_of(shape, rank);
    step->local = tt_range(TT_INPUT, 0, 1);
    if (place < shape->nranks - 1) {
        step->op = TT_FOLD;
        step->recv = ahead(shape, rank, 1);
    }
    if (place > 0) {
        step->send = ahead(shape, rank, -1);
    } else {
        step->dst = tt_range(TT_OUTPUT, 0, 1);
        step->finish = true;
    }
}

static struct tt_formula broadcast_formula(const struct tt_algorithm *self,
                                           const struct tt_shape *shape)
{
    const uint64_t n = (uint64_t)shape->nranks;
    if (n == 1) return formula_alone;
    return (struct tt_formula){.steps = 1, .depth = n - 1, .sent = 1, .message = 1};
}

static struct tt_formula reduce_formula(const struct tt_algorithm *self,
                                        const struct tt_shape *shape)
{
    const uint64_t n = (uint64_t)shape->nranks;
    if (n == 1) return formula_alone;
    return (struct tt_formula){.steps = 1, .depth = n - 1, .sent = 1, .reduced = 2, .message = 1};
}

const struct tt_algorithm tt_broadcast_chain = {
    .name = "chain",
    .summary = "a chain from root: every rank sends once, rounds follow each other",
    .collective = TT_BROADCAST,
    .direct_safe = true,
    .nsteps = one_step,
    .step = broadcast_step,
    .formula = broadcast_formula,
};

const struct tt_algorithm tt_reduce_chain = {
    .name = "chain",
    .summary = "a chain to root: every rank adds its share and sends once",
    .collective = TT_REDUCE,
    .direct_safe = true,
    .nsteps = one_step,
    .step = reduce_step,
    .formula = reduce_formula,
};
