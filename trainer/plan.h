/* What a run would do, printed without running it (--plan). */
#ifndef TR_PLAN_H
#define TR_PLAN_H

#include "config.h"

/* Prints mesh, layouts, the pipeline's schedule, memory of each rank by kind, and bytes of each
 * collective and step, for `nranks` ranks, and draws the picture of --svg. Errors are those of a
 * run, and of a picture that cannot be written. */
TR_NODISCARD tr_status tr_plan_print(const struct tr_config *config, int nranks, FILE *out);

#endif
