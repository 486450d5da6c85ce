/* The seams of a model on one rank: nothing is gathered, attention is local, the vocabulary whole.
 */
#ifndef TR_LOCAL_H
#define TR_LOCAL_H

#include "../memory.h"
#include "seams.h"

struct tr_local {
    const struct tr_ops *ops;
    float *scratch; /* tr_local_scratch floats */
};

size_t tr_local_scratch(const struct tr_attend *shape);

/* Fills in the seams; `local` must live as long. */
void tr_local_seams(struct tr_seams *seams, struct tr_local *local);

#endif
