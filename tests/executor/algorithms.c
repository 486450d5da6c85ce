#include <string.h>

#include "algorithms/algorithms.h"
#include "executor/calls.h"
#include "shim.h"

/* Whether there is an index-th algorithm that one host can run, for the reduction. */
static bool fits(enum tt_collective collective, int index, const struct tt_reduction *reduction)
{
    const struct tt_algorithm *algorithm = tt_algorithm_at(collective, index);
    return algorithm && !algorithm->parts &&
           (reduction->op == TT_SUM || tt_collective_reduces(collective));
}

static void try_all(const struct tt_fabric_config *config, int nranks, const size_t *counts,
                    int ncounts, const struct tt_reduction *reduction)
{
    struct ranks ranks;
    REQUIRE(ranks_open(&ranks, nranks, config));
    unsigned seed = 1;
    for (int c = 0; c < TT_NCOLLECTIVES; c++)
        for (int a = 0; fits((enum tt_collective)c, a, reduction); a++)
            for (int k = 0; k < ncounts; k++)
                for (int in_place = 0; in_place < 2 && !tt_test_failed(); in_place++) {
                    const bool rooted = tt_collective_has_root((enum tt_collective)c);
                    const struct trial trial = {.algorithm =
                                                    tt_algorithm_at((enum tt_collective)c, a),
                                                .nranks = nranks,
                                                .root = rooted ? (int)(seed % (unsigned)nranks) : 0,
                                                .count = c == TT_BARRIER ? 0 : counts[k],
                                                .in_place = in_place && c != TT_ALL_TO_ALL,
                                                .reduction = *reduction,
                                                .seed = seed};
                    seed++;
                    run_trial(&ranks, &trial);
                }
    ranks_close(&ranks);
}

static struct tt_reduction sum_of(enum tt_type type, int nranks)
{
    return (struct tt_reduction){.type = type, .op = TT_SUM, .nranks = nranks};
}

TEST(algorithms, give_the_collectives_definition_in_any_order_of_turns)
{
    const struct tt_fabric_config config = together_config();
    for (int n = 1; n <= TOGETHER_MAX; n++) {
        const size_t counts[] = {0, 1, (size_t)n - 1, (size_t)n + 1, 1000, 5003};
        const struct tt_reduction reduction = sum_of(TT_INT32, n);
        try_all(&config, n, counts, 6, &reduction);
    }
}

TEST(algorithms, work_with_two_slots_and_the_last_arriver_doing_the_work)
{
    struct tt_fabric_config config = together_config();
    config.nslots = 2;
    config.oversubscribed = true;
    for (int n = 2; n <= TOGETHER_MAX; n += 3) {
        const size_t counts[] = {1, 33, 4001};
        const struct tt_reduction reduction = sum_of(TT_FLOAT32, n);
        try_all(&config, n, counts, 3, &reduction);
    }
}

TEST(algorithms, send_by_reference_without_losing_anything)
{
    struct tt_fabric_config config = together_config();
    config.slot_bytes = 16384;
    for (int n = 2; n <= 5; n++) {
        const size_t counts[] = {(size_t)n * 4096, 20011};
        const struct tt_reduction reduction = sum_of(TT_INT32, n);
        try_all(&config, n, counts, 2, &reduction);
    }
}

TEST(algorithms, average_and_scale_every_contribution_once)
{
    const struct tt_fabric_config config = together_config();
    for (int n = 1; n <= 8; n *= 2) { /* averages of small integers by powers of two are exact */
        const size_t counts[] = {3, 2049};
        struct tt_reduction reduction = {.type = TT_FLOAT32, .op = TT_AVG, .nranks = n};
        try_all(&config, n, counts, 2, &reduction);
        const float scalar = 0.5f;
        reduction.op = TT_PREMUL_SUM;
        memcpy(reduction.scalar, &scalar, sizeof scalar);
        try_all(&config, n, counts, 2, &reduction);
    }
}
