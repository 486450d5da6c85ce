/* Compares the loss of each step with the mean and the standard deviation of the losses before. */
#include "spikes.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Mean and standard deviation of the finite losses; NaN where there are too few. */
static struct tr_spike measure(const struct tr_spikes *spikes)
{
    struct tr_spike spike = {.mean = NAN, .deviation = NAN};
    double sum = 0, squares = 0;
    int n = 0;
    for (uint64_t i = 0; i < spikes->count; ++i)
        if (isfinite(spikes->losses[i])) sum += spikes->losses[i], ++n;
    if (n < TR_SPIKE_LEAST) return spike;
    spike.mean = sum / n;
    for (uint64_t i = 0; i < spikes->count; ++i) {
        const double off = spikes->losses[i] - spike.mean;
        if (isfinite(off)) squares += off * off;
    }
    spike.deviation = sqrt(squares / n);
    return spike;
}

static void append(struct tr_spikes *spikes, double loss)
{
    if (spikes->count == TR_SPIKE_LOSSES)
        memmove(spikes->losses, spikes->losses + 1, --spikes->count * sizeof *spikes->losses);
    spikes->losses[spikes->count++] = loss;
}

struct tr_spike tr_spikes_step(struct tr_spikes *spikes, double loss, double norm,
                               double deviations)
{
    struct tr_spike spike = measure(spikes);
    const bool is_finite = isfinite(loss) && isfinite(norm);
    const double above = loss - spike.mean;
    /* Comparisons with NaN are false. */
    const bool is_far =
        deviations > 0 && above > deviations * spike.deviation && above > 0.01 * fabs(spike.mean);
    spike.is_spike = !is_finite || is_far;
    append(spikes, is_finite ? loss : NAN);
    return spike;
}

int tr_spikes_broken(const struct tr_spikes *spikes)
{
    int n = 0;
    for (uint64_t i = spikes->count; i > 0 && isnan(spikes->losses[i - 1]); --i) ++n;
    return n;
}

void tr_spikes_print(const struct tr_spike *spike, int64_t step, double loss, double norm,
                     bool skipped)
{
    printf("step %6lld  spike: ", (long long)step);
    if (isfinite(loss) && isfinite(norm))
        printf("loss %.4f, %.1f standard deviations above the mean of the losses before, %.4f",
               loss, (loss - spike->mean) / spike->deviation, spike->mean);
    else
        printf("loss %.4f, norm %.3f", loss, norm);
    printf("%s\n", skipped ? "; its update is skipped" : "");
    fflush(stdout);
}
