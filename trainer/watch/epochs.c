/* Counts the epochs of a run. */
#include "epochs.h"

#include <math.h>
#include <stdio.h>

int64_t tr_epochs_left(double epochs, uint64_t windows, uint64_t samples, int64_t batch)
{
    /* Rounded: 0.1 epochs of 30 sequences are 3, not a bit more; at least 1. */
    const double all = fmax(ceil(epochs * (double)windows - 1e-6), 1), left = all - (double)samples;
    return left > 0 ? (int64_t)ceil(left / (double)batch) : 0;
}

void tr_epochs_step(struct tr_epochs *epochs, uint64_t before, uint64_t after, double loss)
{
    if (epochs->ended) epochs->loss = 0, epochs->nsteps = 0;
    if (isfinite(loss)) epochs->loss += loss, epochs->nsteps++;
    const uint64_t done = after / epochs->windows;
    epochs->ended = done > before / epochs->windows && after - before <= epochs->windows ? done : 0;
}

void tr_epochs_print(const struct tr_epochs *epochs, int64_t step)
{
    if (!epochs->ended) return;
    printf("epoch %llu ends with step %lld: ", (unsigned long long)epochs->ended, (long long)step);
    if (epochs->nsteps)
        printf("mean loss %.4f of %lld step%s\n", epochs->loss / (double)epochs->nsteps,
               (long long)epochs->nsteps, epochs->nsteps == 1 ? "" : "s");
    else
        printf("no loss of its steps is a number\n");
    fflush(stdout);
}
