/* Tests of the rule by which a step is a spike (trainer/watch/spikes.c). */
#include <math.h>
#include <string.h>

#include "shim.h"
#include "watch/spikes.h"

static bool is_spike(struct tr_spikes *spikes, double loss)
{
    return tr_spikes_step(spikes, loss, 1, 6).is_spike;
}

/* Losses about 2, of standard deviation 0.1. */
static void warm_up(struct tr_spikes *spikes, int n)
{
    for (int i = 0; i < n; ++i) CHECK(!is_spike(spikes, i % 2 ? 1.9 : 2.1));
}

TEST(spikes, a_loss_is_far_above_the_mean_from_so_many_deviations_on)
{
    struct tr_spikes spikes = {0}, copy;
    warm_up(&spikes, TR_SPIKE_LOSSES + 10);
    copy = spikes;
    CHECK(!is_spike(&copy, 2.59));
    copy = spikes;
    const struct tr_spike spike = tr_spikes_step(&copy, 2.61, 1, 6);
    CHECK(spike.is_spike && fabs(spike.mean - 2) < 1e-9 && fabs(spike.deviation - 0.1) < 1e-9);
    copy = spikes;
    CHECK(!tr_spikes_step(&copy, 2.61, 1, 7).is_spike);
    copy = spikes;
    CHECK(!tr_spikes_step(&copy, 1e9, 1, 0).is_spike);
    copy = spikes;
    CHECK(!is_spike(&copy, -1e9));
}

TEST(spikes, few_losses_are_compared_with_nothing)
{
    struct tr_spikes spikes = {0};
    warm_up(&spikes, TR_SPIKE_LEAST - 1);
    CHECK(!is_spike(&spikes, 100));
    memset(&spikes, 0, sizeof spikes);
    warm_up(&spikes, TR_SPIKE_LEAST);
    CHECK(is_spike(&spikes, 100));
}

TEST(spikes, losses_that_hardly_differ_make_no_spike_of_rounding)
{
    struct tr_spikes spikes = {0};
    for (int i = 0; i < TR_SPIKE_LOSSES; ++i) CHECK(!is_spike(&spikes, 2));
    CHECK(!is_spike(&spikes, 2.0001));
    CHECK(is_spike(&spikes, 2.1));
}

TEST(spikes, a_loss_that_has_risen_for_good_is_no_spike_for_long)
{
    struct tr_spikes spikes = {0};
    int n = 0;
    warm_up(&spikes, TR_SPIKE_LOSSES);
    while (n < TR_SPIKE_LOSSES && is_spike(&spikes, 50)) ++n;
    CHECK_MESSAGE(n > 0 && n < 8, "%d spikes", n);
}

TEST(spikes, what_is_not_finite_is_one_and_enters_no_mean)
{
    struct tr_spikes spikes = {0};
    CHECK(is_spike(&spikes, NAN));
    CHECK(tr_spikes_step(&spikes, 2, HUGE_VAL, 0).is_spike);
    CHECK_EQ(tr_spikes_broken(&spikes), 2);
    warm_up(&spikes, TR_SPIKE_LEAST);
    CHECK_EQ(tr_spikes_broken(&spikes), 0);
    CHECK(is_spike(&spikes, -HUGE_VAL));
    CHECK_EQ(tr_spikes_broken(&spikes), 1);
    const struct tr_spike spike = tr_spikes_step(&spikes, 2.1, 1, 6);
    CHECK(!spike.is_spike && fabs(spike.mean - 2) < 1e-9);
}
