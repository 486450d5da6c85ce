/* Spikes: steps whose loss is far above the mean of the losses before, or is not finite. */
#ifndef TR_SPIKES_H
#define TR_SPIKES_H

#include <stdbool.h>
#include <stdint.h>

/* TR_SPIKE_LOSSES: losses that a loss is compared with, at most. TR_SPIKE_LEAST: finite ones below
 * which only a loss that is not finite is a spike. TR_SPIKE_BROKEN: successive steps with a loss
 * that is not finite after which skipping updates is hopeless. */
enum { TR_SPIKE_LOSSES = 128, TR_SPIKE_LEAST = 64, TR_SPIKE_BROKEN = 8 };

/* The losses of the last steps and the count of skipped updates, which are the same on all ranks
 * and part of a checkpoint. Owned by the trainer; all zero at the start. */
struct tr_spikes {
    double losses[TR_SPIKE_LOSSES]; /* the oldest first; NaN: of a step that was not finite */
    uint64_t count;                 /* of them */
    int64_t skipped;                /* updates of the whole run that were left out */
};

/* What a loss was compared with. */
struct tr_spike {
    bool is_spike;
    double mean, deviation; /* of the finite losses before; NaN: fewer than TR_SPIKE_LEAST */
};

/* Whether a step is a spike: loss or norm is not finite, or the loss is above the mean by more than
 * `deviations` standard deviations and by more than 1 % of the mean. deviations 0: only what is not
 * finite is a spike. The loss joins the others, a spike's too, so that a loss that has risen for
 * good is no spike for long. */
struct tr_spike tr_spikes_step(struct tr_spikes *spikes, double loss, double norm,
                               double deviations);

/* How many of the last steps in a row were not finite. */
int tr_spikes_broken(const struct tr_spikes *spikes);

/* Line for people about the spike of step `step`. */
void tr_spikes_print(const struct tr_spike *spike, int64_t step, double loss, double norm,
                     bool skipped);

#endif
