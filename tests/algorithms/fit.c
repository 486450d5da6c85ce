/* The fit of the cost model's constants: from times that the model itself predicts with other
 * constants, it must find constants that choose as those do. */
#include "algorithms/fit.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "each.h"
#include "shim.h"

enum { MOST = 2048, NSETTINGS = 3 };
static const int numbers[NSETTINGS] = {2, 4, 8};
static const size_t sizes[] = {8, 512, 4096, 32768, 131072, 524288};
static struct tt_setting settings[NSETTINGS];
static struct tt_timing timings[MOST];
static int ntimings;

static double noise(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (double)(*state >> 11) / (double)(1ull << 53) - 0.5;
}

/* The times of all algorithms on two cores, as the model predicts them, off by at most `share`. */
static void make_times(const struct tt_costs *costs, double share)
{
    uint64_t state = 7;
    ntimings = 0;
    for (int s = 0; s < NSETTINGS; s++) {
        settings[s] = (struct tt_setting){.one_host = true,
                                          .oversubscribed = numbers[s] > 2,
                                          .ranks_per_core = numbers[s] / 2.0,
                                          .meet_bytes = 32 << 10,
                                          .slot_bytes = 128 << 10,
                                          .costs = costs};
        for (int c = 0; c < TT_NCOLLECTIVES; c++)
            for (size_t i = 0; i < (c == TT_BARRIER ? 1 : sizeof sizes / sizeof *sizes); i++) {
                const struct tt_algorithm *algorithm;
                for (int a = 0; (algorithm = tt_algorithm_at((enum tt_collective)c, a)); a++) {
                    const struct tt_shape shape = {.collective = (enum tt_collective)c,
                                                   .nranks = numbers[s]};
                    if (tt_refusal(algorithm, &shape)) continue;
                    const double us = tt_cost_us(algorithm, &shape, &settings[s], sizes[i]);
                    REQUIRE(ntimings < MOST);
                    timings[ntimings++] =
                        (struct tt_timing){algorithm, numbers[s], &settings[s], sizes[i],
                                           us * (1 + share * noise(&state))};
                }
            }
    }
}

/* A machine with slow links, quick meetings and slow memory. */
static struct tt_costs another_machine(void)
{
    struct tt_costs costs = tt_shipped_costs;
    costs.at[TT_COST_LINK].value *= 4;
    costs.at[TT_COST_LINK_ONE_WAY].value *= 3;
    costs.at[TT_COST_MEETING].value *= 0.5;
    costs.at[TT_COST_TURN_LINK].value *= 0.4;
    costs.at[TT_COST_TURN_MEETING].value *= 5;
    costs.at[TT_COST_BYTE_SENT].value *= 3;
    costs.at[TT_COST_BYTE_PUT].value *= 0.6;
    costs.at[TT_COST_BYTE_REDUCED].value *= 6;
    return costs;
}

static void check_recovers(double share, double most_mean, double most_worst)
{
    const struct tt_costs machine = another_machine();
    struct tt_fit *fit;
    make_times(&machine, share);
    REQUIRE(tt_fit_create(timings, ntimings, &fit) == TT_OK);
    const struct tt_fit_rating before = tt_fit_rate(fit, &tt_shipped_costs);
    const struct tt_costs found = tt_fit_search(fit, &tt_shipped_costs, INT64_MAX);
    const struct tt_fit_rating after = tt_fit_rate(fit, &found);
    printf("%d times: mean %.3f, worst %.2f with the shipped constants, %.3f, %.2f fitted\n",
           ntimings, before.mean, before.worst, after.mean, after.worst);
    CHECK(before.mean > 1.1 && before.worst > 1.5);
    CHECK_MESSAGE(after.mean < most_mean, "mean %.3f", after.mean);
    CHECK_MESSAGE(after.worst < most_worst, "worst %.3f: %s:%s of %zu bytes, %d ranks", after.worst,
                  tt_collective_name(timings[after.worst_at].algorithm->collective),
                  timings[after.worst_at].algorithm->name, timings[after.worst_at].nbytes,
                  timings[after.worst_at].nranks);
    tt_fit_destroy(fit);
}

TEST(fit, finds_constants_that_choose_as_the_machine_does)
{
    check_recovers(0, 1.002, 1.05);
}

TEST(fit, times_that_are_off_by_a_tenth_hardly_matter)
{
    check_recovers(0.2, 1.03, 1.25);
}

TEST(fit, keeps_constants_that_fit_already_and_those_that_no_time_depends_on)
{
    struct tt_fit *fit;
    make_times(&tt_shipped_costs, 0);
    REQUIRE(tt_fit_create(timings, ntimings, &fit) == TT_OK);
    struct tt_costs found = tt_fit_search(fit, &tt_shipped_costs, INT64_MAX);
    for (int i = 0; i < TT_NCOSTS; i++)
        if (tt_shipped_costs.at[i].name)
            CHECK_MESSAGE(fabs(log(found.at[i].value / tt_shipped_costs.at[i].value)) < 0.5,
                          "%s moved to %g", found.at[i].name, found.at[i].value);
    CHECK(tt_fit_rate(fit, &found).worst < 1.02); /* the simpler one of two that are that near */
    tt_fit_destroy(fit);

    /* With a core for each rank nobody waits for a turn on one. */
    const struct tt_costs machine = another_machine();
    make_times(&machine, 0);
    int n = 0;
    while (n < ntimings && timings[n].nranks == 2) n++;
    REQUIRE(tt_fit_create(timings, n, &fit) == TT_OK);
    found = tt_fit_search(fit, &tt_shipped_costs, INT64_MAX);
    CHECK(found.at[TT_COST_LINK].value != tt_shipped_costs.at[TT_COST_LINK].value);
    static const int unused[] = {TT_COST_TURN_LINK, TT_COST_TURN_MEETING, TT_COST_NET_LINK,
                                 TT_COST_NET_MESSAGE, TT_COST_NET_BYTE};
    for (size_t i = 0; i < sizeof unused / sizeof *unused; i++)
        CHECK(found.at[unused[i]].value == tt_shipped_costs.at[unused[i]].value);
    tt_fit_destroy(fit);
}

TEST(fit, constants_stay_within_their_bounds)
{
    struct tt_fit *fit;
    make_times(&tt_shipped_costs, 0);
    for (int i = 0; i < ntimings; i++) timings[i].us *= 1e4;
    REQUIRE(tt_fit_create(timings, ntimings, &fit) == TT_OK);
    const struct tt_costs found = tt_fit_search(fit, &tt_shipped_costs, INT64_MAX);
    for (int i = 0; i < TT_NCOSTS; i++)
        CHECK(found.at[i].value <= 20.001 * tt_shipped_costs.at[i].value);
    CHECK(found.at[TT_COST_LINK].value > 10 * tt_shipped_costs.at[TT_COST_LINK].value);
    tt_fit_destroy(fit);
}

TEST(fit, a_deadline_that_has_passed_leaves_the_constants)
{
    const struct tt_costs machine = another_machine();
    struct tt_fit *fit;
    make_times(&machine, 0);
    REQUIRE(tt_fit_create(timings, ntimings, &fit) == TT_OK);
    const struct tt_costs found = tt_fit_search(fit, &tt_shipped_costs, 0);
    CHECK(tt_costs_checksum(&found) == tt_costs_checksum(&tt_shipped_costs));
    tt_fit_destroy(fit);
}

TEST(fit, refuses_times_that_are_none)
{
    struct tt_fit *fit = NULL;
    make_times(&tt_shipped_costs, 0);
    CHECK(tt_fit_create(timings, 0, &fit) == TT_ERR_ARGUMENT);
    timings[3].us = 0;
    CHECK(tt_fit_create(timings, ntimings, &fit) == TT_ERR_ARGUMENT);
    timings[3].us = NAN;
    CHECK(tt_fit_create(timings, ntimings, &fit) == TT_ERR_ARGUMENT);
    CHECK(strstr(tt_last_error(), "it must be above 0"));
    CHECK(!fit);
}
