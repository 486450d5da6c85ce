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

/* The next of all algorithms, composed or not. */
static const struct tt_algorithm *any(int index)
{
    int nbasic = 0;
    while (each(nbasic)) nbasic++;
    return index < nbasic ? each(index) : each_pair(index - nbasic);
}

TEST(table, no_two_algorithms_have_the_same_id_and_each_is_found_by_it)
{
    enum { MOST = 512 };
    uint64_t ids[MOST];
    const struct tt_algorithm *algorithm, *all[MOST];
    int n = 0;
    for (; n < MOST && (algorithm = any(n)) != NULL; n++) {
        all[n] = algorithm;
        ids[n] = tt_algorithm_id(algorithm->collective, algorithm->name);
        CHECK(tt_algorithm_by_id(algorithm->collective, ids[n]) == algorithm);
        for (int i = 0; i < n; i++)
            CHECK_MESSAGE(ids[i] != ids[n], "%s:%s has the id of %s:%s",
                          tt_collective_name(algorithm->collective), algorithm->name,
                          tt_collective_name(all[i]->collective), all[i]->name);
    }
    CHECK(n > 200 && n < MOST);
    CHECK(tt_algorithm_by_id(TT_ALL_REDUCE, 1) == NULL);
    CHECK(tt_algorithm_by_id(TT_BROADCAST, tt_algorithm_id(TT_ALL_REDUCE, "ring")) == NULL);
}

/* Ranks of different builds compare ids, so these never change. */
TEST(table, ids_are_the_hash_of_collective_and_name)
{
    CHECK(tt_algorithm_id(TT_ALL_REDUCE, "ring") == 0xa5d28e27a143a33du);
    CHECK(tt_algorithm_id(TT_BARRIER, "meet/dissemination") == 0x55fd1659fc31e867u);
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
