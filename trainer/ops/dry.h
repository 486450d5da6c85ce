/* A backend that computes nothing and takes no memory, for runs that only count (rehearse.h). */
#ifndef TR_DRY_H
#define TR_DRY_H

#include "backend.h"

struct tr_dry {
    struct tr_backend backend;
    struct tr_rule rules[TR_NUM_OPTIMIZERS];
};

/* A backend of these types, whatever they are. It points into *dry, which must stay where it is. */
void tr_dry_backend(struct tr_dry *dry, const struct tr_types *types);

#endif
