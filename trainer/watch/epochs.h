/* Epochs: how many steps they take, and a line at the end of each. */
#ifndef TR_EPOCHS_H
#define TR_EPOCHS_H

#include <stdint.h>

/* Owned by the trainer. windows: sequences of an epoch. */
struct tr_epochs {
    uint64_t windows;
    uint64_t ended; /* by the last step: the number of the epoch, from 1; 0: it ended none */
    double loss;    /* sum of the losses of the epoch's steps, those since --resume */
    int64_t nsteps; /* with a finite loss */
};

/* Steps of `batch` sequences that complete `epochs` when `samples` sequences are taken. */
int64_t tr_epochs_left(double epochs, uint64_t windows, uint64_t samples, int64_t batch);

/* Adds a step that took the sequences from before up to after. A step that is longer than an epoch
 * ends none. */
void tr_epochs_step(struct tr_epochs *epochs, uint64_t before, uint64_t after, double loss);

/* A line when the last step, number `step`, has ended an epoch. */
void tr_epochs_print(const struct tr_epochs *epochs, int64_t step);

#endif
