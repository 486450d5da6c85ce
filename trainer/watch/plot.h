/* The picture of runs: curves over the steps, in one SVG file that needs no other one. */
#ifndef TR_PLOT_H
#define TR_PLOT_H

#include <stdbool.h>
#include <stdint.h>

#include "../status.h"
#include "curve.h"

enum { TR_PLOT_RUNS = 8, TR_PLOT_TEXT = 256 };

/* What is drawn of a run; the value at a step. */
enum tr_plot_curve {
    TR_PLOT_LOSS,     /* nats a token */
    TR_PLOT_HELD_OUT, /* loss of the held-out part, nats a token */
    TR_PLOT_LR,
    TR_PLOT_NORM,  /* of the gradient, before clipping */
    TR_PLOT_SPEED, /* tokens/s of all ranks, within steps */
    TR_PLOT_SHARE, /* of the products' peak that a step reaches */
    TR_PLOT_CURVES
};

struct tr_plot_run {
    char name[TR_PLOT_TEXT]; /* in the legend of a picture with several runs */
    struct tr_curve curves[TR_PLOT_CURVES];
};

/* Owned by the trainer, or by whoever draws logs. All zeros is one that is closed: nothing is
 * kept. */
struct tr_plot {
    const char *path; /* borrowed; NULL: closed */
    char title[TR_PLOT_TEXT];
    struct tr_plot_run *runs[TR_PLOT_RUNS];
    int nruns;
    double written; /* clock of the last picture; 0: none yet */
};

/* path: of the picture, must outlive the plot; "" or NULL opens nothing. */
void tr_plot_open(struct tr_plot *plot, const char *path);
void tr_plot_close(struct tr_plot *plot);

/* A further run, at most TR_PLOT_RUNS; fails when there are as many, or no memory. */
TR_NODISCARD tr_status tr_plot_begin_run(struct tr_plot *plot, const char *name);

/* Adds a value of the run that was begun last; does nothing on a plot that is closed. A loss whose
 * step is not behind the last one takes all values from this step on away first: the run goes on
 * from a checkpoint. */
void tr_plot_add(struct tr_plot *plot, enum tr_plot_curve curve, int64_t step, double value);

/* Adds what a file of --log has to the run that was begun last. A last line that is not whole, as
 * of a run that was killed, is passed over. Fails, with the line, where a line is no JSON object.
 */
TR_NODISCARD tr_status tr_plot_read_log(struct tr_plot *plot, const char *log);

/* Writes the picture under another name, which then replaces the file at `path`. Fails where that
 * is not possible. */
TR_NODISCARD tr_status tr_plot_write(const struct tr_plot *plot);

/* Writes the picture where the last one is some seconds old, or, last, in any case. A picture that
 * cannot be written closes the plot, said once, and does not end the training. */
void tr_plot_refresh(struct tr_plot *plot, bool last);

#endif
