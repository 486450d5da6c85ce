/* The table, and what holds for every algorithm in it. */
#include <string.h>

#include "shim.h"
#include "each.h"

TEST(table, finds_what_it_lists)
{
    const struct tt_algorithm *algorithm;
    for (int i = 0; (algorithm = each(i)) != NULL; i++) {
        CHECK(tt_algorithm_find(algorithm->collective, algorithm->name) == algorithm);
        CHECK(algorithm->summary && algorithm->nsteps && algorithm->step && algorithm->formula);
        char names[512];
        tt_algorithm_names(algorithm->collective, names, sizeof names);
        CHECK(algorithm->parts || strstr(names, algorithm->name) != NULL);
    }
    CHECK(tt_algorithm_find(TT_ALL_REDUCE, "none") == NULL);
    CHECK(tt_algorithm_at(TT_ALL_REDUCE, -1) == NULL);
    CHECK(tt_algorithm_at(TT_ALL_REDUCE, 1000) == NULL);
    CHECK(tt_algorithm_at(TT_NCOLLECTIVES, 0) == NULL);
}

TEST(table, has_one_without_meetings_for_every_collective)
{
    for (int i = 0; i < TT_NCOLLECTIVES; i++) {
        bool found = false;
        const struct tt_algorithm *algorithm;
        for (int k = 0; (algorithm = tt_algorithm_at((enum tt_collective)i, k)) != NULL; k++) {
            CHECK_EQ(algorithm->collective, i);
            found = found || !algorithm->one_host;
        }
        CHECK_MESSAGE(found, "%s", tt_collective_name((enum tt_collective)i));
    }
}

TEST(table, names_fit_small_buffers)
{
    char text[8];
    tt_algorithm_names(TT_ALL_REDUCE, text, sizeof text);
    CHECK_EQ(strlen(text), sizeof text - 1);
    char none = 'x';
    tt_algorithm_names(TT_ALL_REDUCE, &none, 0);
    CHECK_EQ(none, 'x');
}

/* A few steps of a few ranks; nobody would wait for all of them. */
static void look_at(const struct tt_algorithm *algorithm, const struct tt_shape *shape, int rank)
{
    const int nblocks = tt_nblocks(algorithm, shape);
    for (int channel = 0; channel < tt_nchannels(algorithm, shape); channel++) {
        const int nsteps = tt_nsteps(algorithm, shape, rank, channel);
        for (int64_t k = 0; k < 8 && nsteps > 0; k++) {
            struct tt_step step = {.kind = TT_STEP_LINK};
            tt_step(algorithm, shape, rank, channel, (int)(k * (nsteps - 1) / 7), &step);
            const char *wrong =
                tt_step_check(&step, shape, nblocks, tt_nscratch(algorithm, shape, rank), rank);
            CHECK_MESSAGE(!wrong, "%s:%s rank %d: %s", tt_collective_name(shape->collective),
                          algorithm->name, rank, wrong);
        }
    }
}

TEST(table, steps_are_well_formed_for_131072_ranks_and_one_less)
{
    const struct tt_algorithm *algorithm;
    for (int i = 0; (algorithm = each(i)) != NULL; i++)
        for (int nranks = 131071; nranks <= 131072; nranks++) {
            const int ranks[] = {0, 1, 65535, 65536, 131070};
            const struct tt_shape shape = shape_of(algorithm, nranks, 0);
            for (int k = 0; k < 5; k++) look_at(algorithm, &shape, ranks[k]);
            CHECK(tt_formula_of(algorithm, &shape).steps > 0);
        }
}

TEST(table, a_ring_of_131072_ranks_closes)
{
    const struct tt_algorithm *ring = tt_algorithm_find(TT_ALL_REDUCE, "ring");
    const struct tt_shape shape = shape_of(ring, 131072, 0);
    CHECK_EQ(tt_nsteps(ring, &shape, 77, 0), 2 * 131072 - 1);
    struct tt_step sent = {.kind = TT_STEP_LINK}, taken = {.kind = TT_STEP_LINK};
    tt_step(ring, &shape, 131071, 0, 1000, &sent);
    tt_step(ring, &shape, 0, 0, 1001, &taken);
    CHECK_EQ(sent.send.first, 0);
    CHECK_EQ(taken.recv.first, 131071);
    CHECK_EQ(sent.local.first, taken.local.first);
}
