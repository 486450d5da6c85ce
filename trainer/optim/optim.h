/* From summed gradients to new weights. */
#ifndef TR_OPTIM_H
#define TR_OPTIM_H

#include "../parallel/store.h"

/* What to multiply by so that a gradient of this norm is at most `most` long; 1 when most is 0. */
double tr_clip_coefficient(double norm, double most);

enum tr_optimizer_kind { TR_ADAMW, TR_SGD };

/* clang-format off */
/* AdamW (Loshchilov, Hutter, "Decoupled weight decay regularization", ICLR 2019), step number t
 * from 1:
 *     g' = scale g
 *     m  = b1 m + (1 - b1) g'
 *     v  = b2 v + (1 - b2) g'^2
 *     w -= lr (m / (1 - b1^t) / (sqrt(v / (1 - b2^t)) + eps) + decay w)
 * SGD:
 *     m  = momentum m + g'
 *     w -= lr (m + decay w)
 * States, which a step leaves for the next: AdamW m and v; SGD m, and none when momentum is 0.
 * decay applies to the tensors that the registry marks. */
/* clang-format on */
struct tr_optimizer {
    enum tr_optimizer_kind kind;
    double lr, beta1, beta2, eps, decay, momentum;
    int64_t t;
};

/* How many states it keeps of each weight. */
int tr_optimizer_states(const struct tr_optimizer *how);

/* Updates this rank's shard of every unit. */
void tr_optimizer_step(const struct tr_optimizer *how, const struct tr_store *store, double scale);

#endif
