/* Draws the curves of runs as SVG. */
#ifndef TR_PLOT_DRAW_H
#define TR_PLOT_DRAW_H

#include <stdio.h>

#include "plot.h"

/* Writes the picture to `out`, whose error indicator says whether all of it was written. */
void tr_plot_draw(const struct tr_plot *plot, FILE *out);

#endif
