/* More ranks than a mask has bits, and numbers of ranks that only near-linear work can manage. */
#include <string.h>

#include "algorithms/algorithms.h"
#include "schedule/schedule.h"
#include "shim.h"

static struct tt_steps family(enum tt_collective collective, const char *name, int nranks)
{
    const struct tt_algorithm *algorithm = tt_algorithm_find(collective, name);
    return (struct tt_steps){.algorithm = algorithm,
                             .shape = {.collective = collective, .nranks = nranks}};
}

TEST(many_ranks, a_ring_of_1024_is_proved)
{
    const struct tt_steps steps = family(TT_REDUCE_SCATTER, "ring", 1024);
    struct tt_verify_report report;
    const tt_status status = tt_verify(&steps, 5000, &report);
    CHECK_MESSAGE(status == TT_OK, "%s", report.text);
    CHECK_EQ(report.nmessages, 1024 * 1023);
}

TEST(many_ranks, collectives_around_the_width_of_a_mask_are_proved)
{
    for (int nranks = 63; nranks <= 66; nranks++) {
        for (int collective = 0; collective < TT_NCOLLECTIVES; collective++) {
            const struct tt_algorithm *algorithm;
            for (int i = 0; (algorithm = tt_algorithm_at((enum tt_collective)collective, i)) &&
                            !algorithm->parts;
                 i++) {
                const struct tt_steps steps =
                    family((enum tt_collective)collective, algorithm->name, nranks);
                struct tt_verify_report report;
                const tt_status status = tt_verify(&steps, 1000, &report);
                CHECK_MESSAGE(status == TT_OK, "%s:%s over %d: %s",
                              tt_collective_name(steps.shape.collective), algorithm->name, nranks,
                              report.text);
            }
        }
    }
}

/* One rank's step passes on what it gets without adding its own. */
struct change {
    const struct tt_steps *steps;
    int rank, index;
};

static int nsteps(void *arg, int rank, int channel)
{
    const struct change *change = arg;
    return tt_nsteps(change->steps->algorithm, &change->steps->shape, rank, channel);
}

static void get_step(void *arg, int rank, int channel, int index, struct tt_step *step)
{
    const struct change *change = arg;
    tt_step(change->steps->algorithm, &change->steps->shape, rank, channel, index, step);
    if (rank == change->rank && index == change->index) {
        step->local.number = 0;
        step->op = TT_COPY;
    }
}

TEST(many_ranks, a_missing_contribution_is_seen_in_the_sum_of_100)
{
    const struct tt_steps ring = family(TT_REDUCE_SCATTER, "ring", 100);
    struct change change = {.steps = &ring, .rank = 7, .index = 50};
    const struct tt_steps steps = {.algorithm = ring.algorithm,
                                   .shape = ring.shape,
                                   .nsteps = nsteps,
                                   .step = get_step,
                                   .arg = &change};
    struct tt_verify_report report;
    CHECK_EQ(tt_verify(&steps, 10, &report), TT_ERR_USAGE);
    CHECK_MESSAGE(strstr(report.text, "holds 99 contributions of 100 ranks"), "%s", report.text);
}

/* All send to rank 0, but rank 2 passes on what rank 1 sends it too. */
static int twice_nsteps(void *arg, int rank, int channel)
{
    (void)arg, (void)rank, (void)channel;
    return 1;
}

static void twice_step(void *arg, int rank, int channel, int index, struct tt_step *step)
{
    const int nranks = *(const int *)arg;
    (void)channel, (void)index;
    if (rank != 2) step->local = tt_range(TT_INPUT, 0, 1);
    if (rank != 0) step->send = tt_peer(0);
    if (rank == 1) step->send = (struct tt_peers){.first = 2, .number = 2, .stride = -2};
    if (rank == 2) step->recv = tt_peer(1);
    if (rank == 0) {
        step->recv = (struct tt_peers){.first = 1, .number = nranks - 1, .stride = 1};
        step->op = TT_FOLD;
        step->finish = true;
        step->dst = tt_range(TT_OUTPUT, 0, 1);
    }
}

TEST(many_ranks, one_contribution_twice_in_place_of_another_is_seen_in_the_sum_of_100)
{
    int nranks = 100;
    const struct tt_algorithm algorithm = {.name = "by hand", .collective = TT_REDUCE};
    const struct tt_steps steps = {.algorithm = &algorithm,
                                   .shape = {.collective = TT_REDUCE, .nranks = nranks},
                                   .nsteps = twice_nsteps,
                                   .step = twice_step,
                                   .arg = &nranks};
    struct tt_verify_report report;
    CHECK_EQ(tt_verify(&steps, 10, &report), TT_ERR_USAGE);
    CHECK_MESSAGE(strstr(report.text, "holds one contribution twice and lacks another"), "%s",
                  report.text);
}

TEST(many_ranks, counting_a_tree_of_4096)
{
    const struct tt_steps steps = family(TT_BROADCAST, "binomial", 4096);
    struct tt_formula counted;
    REQUIRE(tt_count(&steps, &counted) == TT_OK);
    CHECK_EQ(counted.depth, 12);
}

TEST(many_ranks, what_would_not_fit_into_memory_is_refused_at_once)
{
    const struct tt_steps steps = family(TT_ALL_REDUCE, "ring", 1 << 20);
    struct tt_verify_report report;
    CHECK_EQ(tt_verify(&steps, 10, &report), TT_ERR_SYSTEM);
    CHECK_MESSAGE(strstr(tt_last_error(), "more than half of this machine's"), "%s",
                  tt_last_error());
}
