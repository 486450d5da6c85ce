/* The picture of a plan (--plan --svg): mesh, pipeline and memory, in one SVG file that needs no
 * other one. */
#ifndef TR_PLAN_DRAW_H
#define TR_PLAN_DRAW_H

#include "setup.h"

/* What is drawn; all of it borrowed. */
struct tr_plan_picture {
    const struct tr_config *config;
    const struct tr_setup *setup;
    const struct tr_rehearsal *stages; /* [pp] */
    int nranks;
};

/* Writes the file of --svg. Errors: those of tr_svg_write, memory. */
TR_NODISCARD tr_status tr_plan_draw(const struct tr_plan_picture *picture);

#endif
