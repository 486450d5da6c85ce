/* Recursive doubling: partners 1, 2, 4, ... apart exchange their sums and add them, so after the
 * k-th exchange each rank has the sum of a group of 2^k ranks. No algorithm without meetings has
 * fewer dependent messages; but each message carries all of the data.
 *
 *   1 apart:  r0 <--> r1     r2 <--> r3          sums of 2
 *   2 apart:  r0 <--> r2     r1 <--> r3          sums of 4
 *
 * Any n: of the n = p + x ranks (p the largest power of two) rank p + e first sends its data to
 * rank e, and receives the result from rank e at the end. The fold of one exchange and the send of
 * the next are one step.
 *
 * With L = log2 p; where x > 0 the second line adds to the first:
 *                steps   depth   sent   reduced   scratch   message
 *   all_reduce   L+1     L       L      2L        0         1         (blocks: the whole data)
 *   if x > 0     +0      +m      +1     +2
 *   where m = 2 if x > p/2, else 1: then no chain from one extra rank to another has all L rounds
 *
 * Order of folding: the lower rank's sum first on both partners, so both get the same bits.
 *
 * Source: Thakur, Rabenseifner, Gropp: Optimization of collective communication operations in
 * MPICH, IJHPCA 2005. */
#include "algorithms/forms.h"
#include "algorithms/list.h"

static int nsteps(const struct tt_algorithm *self, const struct tt_shape *shape, int rank,
                  int channel)
{
    const int levels = floor_log2(shape->nranks);
    return rank < 1 << levels ? levels + 1 : 2;
}

static void all_reduce_step(const struct tt_algorithm *self, const struct tt_shape *shape, int rank,
                            int channel, int index, struct tt_step *step)
{
    if (alone(shape, step)) return;
    const int levels = floor_log2(shape->nranks), p = 1 << levels;
    const bool twice = rank < shape->nranks - p;
    const bool extra = rank >= p;
    if (index > 0) step->dst = tt_range(TT_OUTPUT, 0, 1);
    if (extra && index > 0) {
        step->recv = tt_peer(rank - p);
        return;
    }
    step->local = tt_range(index > 1 || (index == 1 && twice) ? TT_OUTPUT : TT_INPUT, 0, 1);
    if (extra) {
        step->send = tt_peer(rank - p);
        return;
    }
    if (index == 0 && twice) {
        step->recv = tt_peer(rank + p);
        step->dst = tt_range(TT_OUTPUT, 0, 1);
    } else if (index > 0) {
        const int partner = rank ^ 1 << (index - 1);
        step->recv = tt_peer(partner);
        step->own_at = partner < rank; /* the lower rank's share comes first */
    }
    step->op = step->recv.number > 0 ? TT_FOLD : TT_COPY;
    step->finish = index == levels;
    if (index < levels)
        step->send = tt_peer(rank ^ 1 << index);
    else if (twice)
        step->send = tt_peer(rank + p);
}

static struct tt_formula formula(const struct tt_algorithm *self, const struct tt_shape *shape)
{
    if (shape->nranks == 1) return formula_alone;
    const uint64_t levels = (uint64_t)floor_log2(shape->nranks);
    const int extra = shape->nranks - (1 << levels);
    return (struct tt_formula){
        .steps = levels + 1,
        .depth = levels + (extra > 0 ? 1 : 0) + (2 * extra > 1 << levels ? 1 : 0),
        .sent = levels + (extra > 0 ? 1 : 0),
        .reduced = 2 * levels + (extra > 0 ? 2 : 0),
        .message = 1,
    };
}

/* Not direct_safe: a sum is overwritten while the partner may still read it. */
const struct tt_algorithm tt_all_reduce_recursive_doubling = {
    .name = "recursive_doubling",
    .summary = "partners 1, 2, 4, ... apart exchange and fold everything",
    .collective = TT_ALL_REDUCE,
    .nsteps = nsteps,
    .step = all_reduce_step,
    .formula = formula,
};
