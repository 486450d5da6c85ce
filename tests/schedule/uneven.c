/* Algorithms for a count for each rank: proved for any counts, and run with random ones. */
#include "algorithms/each.h"
#include "integration/ranks.h"
#include "interpreter.h"
#include "shim.h"

static bool rooted(const struct tt_algorithm *algorithm)
{
    return tt_collective_has_root(algorithm->collective);
}

static void prove_uneven(const struct tt_algorithm *algorithm, int nranks, int root,
                         const size_t *counts)
{
    const struct tt_steps steps = {.algorithm = algorithm,
                                   .shape = shape_of(algorithm, nranks, root)};
    struct tt_verify_report report = {.text = ""};
    const tt_status status = tt_verify_uneven(&steps, counts, &report);
    CHECK_MESSAGE(status == TT_OK, "%s:%s, %d ranks, root %d, %s counts: %s",
                  tt_collective_name(algorithm->collective), algorithm->name, nranks, root,
                  counts ? "random" : "any", report.text);
    CHECK_EQ(report.direct_safe, algorithm->direct_safe);
}

TEST(uneven, those_for_a_count_for_each_rank_are_proved_for_any_counts_and_every_root)
{
    const struct tt_algorithm *algorithm;
    for (int i = 0; (algorithm = each(i)) != NULL && !tt_test_failed(); i++)
        for (int nranks = 1; nranks <= 17 && algorithm->uneven; nranks++)
            for (int root = 0; root < (rooted(algorithm) ? nranks : 1); root++)
                prove_uneven(algorithm, nranks, root, NULL);
}

TEST(uneven, those_for_a_count_for_each_rank_are_proved_and_run_with_random_counts)
{
    const struct tt_algorithm *algorithm;
    uint64_t seed = test_seed();
    for (int i = 0; (algorithm = each(i)) != NULL && !tt_test_failed(); i++)
        for (int trial = 0; trial < 24 && algorithm->uneven; trial++) {
            size_t counts[MOST_RANKS];
            const int nranks = 1 + random_below(&seed, MOST_RANKS);
            const int root = rooted(algorithm) ? random_below(&seed, nranks) : 0;
            for (int r = 0; r < nranks; r++)
                counts[r] = (size_t)(random_below(&seed, 3) ? random_below(&seed, 30) : 0);
            prove_uneven(algorithm, nranks, root, counts);
            const struct tt_steps steps = {.algorithm = algorithm,
                                           .shape = shape_of(algorithm, nranks, root)};
            const struct run run = {.counts = counts,
                                    .in_place = trial % 2,
                                    .direct = algorithm->direct_safe && trial / 2 % 2,
                                    .seed = next_random(&seed)};
            const char *wrong = interpret(&steps, &run);
            CHECK_MESSAGE(!wrong, "%s:%s, %d ranks, root %d: %s",
                          tt_collective_name(algorithm->collective), algorithm->name, nranks, root,
                          wrong);
        }
}

TEST(uneven, a_count_for_each_rank_has_an_algorithm_wherever_ranks_are)
{
    static const enum tt_collective with_counts[] = {TT_ALL_GATHER, TT_REDUCE_SCATTER, TT_GATHER,
                                                     TT_SCATTER};
    for (int c = 0; c < 4; c++) {
        const struct tt_algorithm *algorithm;
        int nanywhere = 0;
        for (int i = 0; (algorithm = tt_algorithm_at(with_counts[c], i)) != NULL; i++)
            nanywhere += algorithm->uneven && !algorithm->one_host && !algorithm->refusal;
        CHECK(nanywhere > 0);
    }
    const struct tt_steps steps = {.algorithm = tt_algorithm_at(TT_ALL_REDUCE, 0),
                                   .shape = {.collective = TT_ALL_REDUCE, .nranks = 2}};
    struct tt_verify_report report;
    CHECK_EQ(tt_verify_uneven(&steps, NULL, &report), TT_ERR_ARGUMENT);
}
