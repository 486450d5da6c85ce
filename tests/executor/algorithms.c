/* Tests of the executor: every algorithm gives its collective's definition in any order of turns.
 */
#include <string.h>

#include "algorithms/algorithms.h"
#include "executor/calls.h"
#include "shim.h"

/* One algorithm with all counts, in place and not. */
static void try_counts(struct ranks *ranks, const struct tt_algorithm *algorithm,
                       const size_t *counts, int ncounts, const struct tt_reduction *reduction)
{
    static unsigned seed = 1;
    const enum tt_collective c = algorithm->collective;
    const int nranks = ranks->all.nranks;
    for (int k = 0; k < ncounts; k++)
        for (int in_place = 0; in_place < 2 && !tt_test_failed(); in_place++) {
            const struct trial trial = {
                .algorithm = algorithm,
                .nranks = nranks,
                .root = tt_collective_has_root(c) ? (int)(seed % (unsigned)nranks) : 0,
                .count = c == TT_BARRIER ? 0 : counts[k],
                .in_place = in_place && c != TT_ALL_TO_ALL,
                .reduction = *reduction,
                .seed = seed};
            seed++;
            run_trial(ranks, &trial);
        }
}

/* All algorithms that can work on these hosts; under a sanitizer a third of them each time. */
static void try_every(struct ranks *ranks, const size_t *counts, int ncounts,
                      const struct tt_reduction *reduction)
{
    const struct tt_algorithm *algorithm;
    for (int c = 0; c < TT_NCOLLECTIVES; c++) {
        const struct tt_shape shape = {.collective = (enum tt_collective)c,
                                       .nranks = ranks->all.nranks,
                                       .hosts = ranks->all.fabrics[0]->hosts};
        if (reduction->op != TT_SUM && !tt_collective_reduces(shape.collective)) continue;
        for (int a = 0; (algorithm = tt_algorithm_at(shape.collective, a)); a++)
            if (!tt_refusal(algorithm, &shape) && tt_test_share(3))
                try_counts(ranks, algorithm, counts, ncounts, reduction);
    }
}

static void try_all(const struct tt_fabric_config *config, int nranks, const size_t *counts,
                    int ncounts, const struct tt_reduction *reduction)
{
    struct ranks ranks;
    REQUIRE(ranks_open(&ranks, nranks, config));
    try_every(&ranks, counts, ncounts, reduction);
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

/* Short messages may share a slot that is given back late: two others must be left. */
TEST(algorithms, work_with_two_slots_when_long_messages_follow_short_ones)
{
    struct tt_fabric_config config = together_config();
    config.nslots = 2;
    for (int n = 2; n <= 5; n++) {
        const size_t counts[] = {1, 49, 3003, 49, 775, 3003};
        const struct tt_reduction reduction = sum_of(TT_INT32, n);
        try_all(&config, n, counts, 6, &reduction);
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

TEST(algorithms, give_the_collectives_definition_on_several_hosts)
{
    static const struct {
        int nranks;
        uint64_t host_of[TOGETHER_MAX];
    } layouts[] = {
        {2, {1, 2}},       {3, {1, 2, 3}},       {4, {1, 1, 2, 2}},      {4, {1, 2, 1, 2}},
        {4, {1, 1, 1, 2}}, {5, {2, 1, 1, 3, 1}}, {6, {1, 1, 2, 2, 3, 3}}};
    struct tt_fabric_config config = together_config();
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
        struct ranks ranks;
        const int n = layouts[i].nranks;
        config.oversubscribed = i % 2;
        config.nslots = i % 2 ? 2 : 4;
        REQUIRE(ranks_open_on(&ranks, n, layouts[i].host_of, &config));
        const size_t counts[] = {0, 1, (size_t)n + 1, 4003};
        struct tt_reduction reduction = sum_of(i % 2 ? TT_FLOAT32 : TT_INT32, n);
        try_every(&ranks, counts, 4, &reduction);
        if (n == 2 || n == 4) { /* averages of small integers by powers of two are exact */
            reduction = (struct tt_reduction){.type = TT_FLOAT32, .op = TT_AVG, .nranks = n};
            try_every(&ranks, counts, 4, &reduction);
        }
        ranks_close(&ranks);
    }
}

TEST(algorithms, run_from_copies_of_programs_and_bindings_on_one_host)
{
    const struct tt_fabric_config config = together_config();
    static const int sizes[] = {1, 2, 3, 5, 8};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        struct ranks ranks;
        const size_t counts[] = {1, (size_t)sizes[i] + 1, 5003};
        const struct tt_reduction reduction = sum_of(TT_INT32, sizes[i]);
        REQUIRE(ranks_open(&ranks, sizes[i], &config));
        ranks.from_copies = true;
        try_every(&ranks, counts, 3, &reduction);
        ranks_close(&ranks);
    }
}

TEST(algorithms, run_from_copies_of_programs_and_bindings_on_two_hosts)
{
    static const uint64_t layouts[][5] = {{1, 1, 2, 2}, {1, 2, 1, 2}, {1, 1, 2, 1, 2}};
    const struct tt_fabric_config config = together_config();
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
        struct ranks ranks;
        const int n = i < 2 ? 4 : 5;
        const size_t counts[] = {(size_t)n + 1, 4003};
        const struct tt_reduction reduction = sum_of(TT_INT32, n);
        REQUIRE(ranks_open_on(&ranks, n, layouts[i], &config));
        ranks.from_copies = true;
        try_every(&ranks, counts, 2, &reduction);
        ranks_close(&ranks);
    }
}

/* Every algorithm on one host, with data for all copies and for fewer. */
static void run_copies(const struct tt_fabric_config *config, int nranks, int copies)
{
    const size_t n = (size_t)nranks, counts[] = {0, 1, 16 * n + 1, 3003, 16 * n * 16 + 7};
    const struct tt_reduction reduction = sum_of(TT_INT32, nranks);
    struct ranks ranks;
    REQUIRE(ranks_open(&ranks, nranks, config));
    ranks.from_copies = copies % 2;
    try_every(&ranks, counts, 5, &reduction);
    CHECK_EQ(ranks.most_copies, copies);
    ranks_close(&ranks);
}

TEST(algorithms, run_as_several_copies_on_channels_of_their_own)
{
    static const int sizes[] = {2, 3, 5, 8};
    struct tt_fabric_config config = together_config();
    config.nchannels = 1 + 8;
    for (config.copies = 1; config.copies <= 8; config.copies++) {
        config.nslots = config.copies % 2 ? 2 : 4;
        config.oversubscribed = config.copies % 3 == 0;
        run_copies(&config, sizes[config.copies % 4], config.copies);
    }
    config.nchannels = TT_MAX_COLLECTIVE_CHANNELS + 1;
    config.copies = 100;
    config.oversubscribed = false;
    run_copies(&config, 3, TT_MAX_COLLECTIVE_CHANNELS);
}

TEST(algorithms, of_pre_multiplied_sums_run_as_several_copies)
{
    struct tt_fabric_config config = together_config();
    config.copies = 2;
    const size_t counts[] = {2049};
    const float scalar = 0.5f;
    struct tt_reduction reduction = {.type = TT_FLOAT32, .op = TT_PREMUL_SUM, .nranks = 4};
    memcpy(reduction.scalar, &scalar, sizeof scalar);
    try_all(&config, 4, counts, 1, &reduction);
}

TEST(algorithms, run_as_several_copies_between_hosts)
{
    static const uint64_t layouts[][5] = {{1, 2}, {1, 1, 2, 2}, {1, 2, 1, 2}, {1, 1, 2, 1, 2}};
    static const int sizes[] = {2, 4, 4, 5};
    for (int i = 0; i < 4; i++) {
        struct tt_fabric_config config = together_config();
        struct ranks ranks;
        const int n = sizes[i];
        const size_t counts[] = {(size_t)n + 1, 4003};
        const struct tt_reduction reduction = sum_of(TT_INT32, n);
        config.nchannels = 1 + 5;
        config.copies = i + 2;
        config.oversubscribed = i == 2;
        REQUIRE(ranks_open_on(&ranks, n, layouts[i], &config));
        try_every(&ranks, counts, 2, &reduction);
        CHECK_EQ(ranks.most_copies, i + 2);
        ranks_close(&ranks);
    }
}

TEST(algorithms, send_by_reference_and_post_as_several_copies)
{
    struct tt_fabric_config config = together_config();
    config.slot_bytes = 16384;
    config.nchannels = 1 + 6;
    config.copies = 3;
    for (int n = 2; n <= 5; n++) {
        const size_t counts[] = {(size_t)n * 4096, 40011};
        const struct tt_reduction reduction = sum_of(TT_INT32, n);
        try_all(&config, n, counts, 2, &reduction);
    }
}
