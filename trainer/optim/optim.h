/* From summed gradients to new weights. */
#ifndef TR_OPTIM_H
#define TR_OPTIM_H

#include "../parallel/store.h"

/* What to multiply by so that a gradient of this norm is at most `most` long; 1 when most is 0. */
double tr_clip_coefficient(double norm, double most);

/* Updates this rank's shard of every unit by the optimizer that the store has states for. `scale`
 * multiplies the gradients, which are used up. Collective where the rule needs sums over whole
 * tensors, or whole matrices. */
TR_NODISCARD tr_status tr_optimizer_step(const struct tr_optimizer *how, struct tr_store *store,
                                         double scale);

#endif
