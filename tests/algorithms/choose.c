/* The choice: what must never be chosen, and the points that were measured. */
#include <math.h>
#include <stdio.h>

#include "algorithms/costs.h"
#include "shim.h"
#include "each.h"
#include "h100.h"

enum { KIB = 1 << 10, MIB = 1 << 20 };

static const struct tt_setting host = {
    .one_host = true, .meet_bytes = 64 * KIB, .slot_bytes = 64 * KIB};
static const struct tt_setting crowded_host = {.one_host = true,
                                               .oversubscribed = true,
                                               .ranks_per_core = 4,
                                               .meet_bytes = 64 * KIB,
                                               .slot_bytes = 64 * KIB};
static const struct tt_setting hosts = {.slot_bytes = 64 * KIB};
static const struct tt_setting large_slots = {.slot_bytes = MIB};
static const struct tt_setting no_table = {.one_host = true, .slot_bytes = 64 * KIB};

static const struct tt_algorithm *choice(enum tt_collective collective, int nranks,
                                         const struct tt_setting *setting, size_t nbytes)
{
    const struct tt_shape shape = {.collective = collective, .nranks = nranks};
    return tt_choose(&shape, setting, nbytes);
}

TEST(choose, takes_no_meeting_where_none_is_possible)
{
    const struct tt_setting *const settings[] = {&hosts, &no_table};
    const size_t sizes[] = {0, 8, 4096, MIB, (size_t)1 << 32};
    for (int i = 0; i < TT_NCOLLECTIVES; i++)
        for (int nranks = 2; nranks <= 4096; nranks = nranks * 3 / 2 + 1)
            for (int k = 0; k < 10; k++) {
                const struct tt_algorithm *algorithm =
                    choice((enum tt_collective)i, nranks, settings[k / 5], sizes[k % 5]);
                REQUIRE(algorithm != NULL);
                CHECK_EQ(algorithm->collective, i);
                CHECK_MESSAGE(!algorithm->one_host, "%s:%s for %d ranks",
                              tt_collective_name(algorithm->collective), algorithm->name, nranks);
            }
}

TEST(choose, one_rank_has_something_for_every_collective)
{
    for (int i = 0; i < TT_NCOLLECTIVES; i++) {
        const struct tt_algorithm *algorithm = choice((enum tt_collective)i, 1, &hosts, MIB);
        REQUIRE(algorithm != NULL);
        CHECK_EQ(algorithm->collective, i);
    }
}

TEST(choose, little_data_on_a_host_meets)
{
    for (int nranks = 2; nranks <= 8; nranks++) {
        CHECK_STR(choice(TT_ALL_REDUCE, nranks, &host, 8)->name, "meet");
        CHECK_STR(choice(TT_BARRIER, nranks, &host, 0)->name, "meet");
    }
}

/* As a communicator sets it on a host with two cores, with the default sizes of slots. */
static struct tt_setting on_two_cores(int nranks)
{
    return (struct tt_setting){.one_host = true,
                               .oversubscribed = nranks > 2,
                               .ranks_per_core = nranks / 2.0,
                               .meet_bytes = 32 * KIB,
                               .slot_bytes = 128 * KIB};
}

static bool goes_one_way(const struct tt_algorithm *algorithm, int nranks)
{
    const struct tt_steps steps = {.algorithm = algorithm, .shape = shape_of(algorithm, nranks, 0)};
    struct tt_totals totals = {.one_way = false};
    CHECK(tt_count_totals(&steps, &totals) == TT_OK);
    return totals.one_way;
}

/* With a root no rank waits for an answer: many messages are sent in one turn on a core. */
TEST(choose, more_ranks_than_cores_meet_unless_all_goes_one_way)
{
    for (int nranks = 3; nranks <= 16; nranks++)
        for (int i = 0; i < TT_NCOLLECTIVES; i++) {
            const struct tt_setting setting = on_two_cores(nranks);
            const struct tt_algorithm *algorithm =
                choice((enum tt_collective)i, nranks, &setting, 8);
            CHECK_MESSAGE(tt_collective_has_root(algorithm->collective)
                              ? goes_one_way(algorithm, nranks)
                              : algorithm->one_host,
                          "%s:%s for %d ranks", tt_collective_name(algorithm->collective),
                          algorithm->name, nranks);
        }
}

/* With a core each a rank that folds its share of the data saves the root's time; on shared cores
 * the exchange that comes with it costs more. */
TEST(choose, ranks_that_share_cores_do_not_exchange_what_only_the_root_gets)
{
    const struct tt_setting shared = on_two_cores(8);
    struct tt_setting each_its_own = shared;
    each_its_own.oversubscribed = false;
    each_its_own.ranks_per_core = 1;
    CHECK(!goes_one_way(choice(TT_REDUCE, 8, &each_its_own, 256 * KIB), 8));
    CHECK(goes_one_way(choice(TT_REDUCE, 8, &shared, 256 * KIB), 8));
}

/* The algorithms within 1.15 of the fastest, in 5 to 10 runs of perf-tests/choice.sh on two cores.
 */
TEST(choose, takes_what_was_fast_on_two_cores)
{
    static const struct {
        enum tt_collective collective;
        int nranks;
        size_t nbytes;
        const char *fast;
    } points[] = {
        {TT_ALL_REDUCE, 2, 256, "meet"},
        {TT_ALL_REDUCE, 2, 64 * KIB, "parallel recursive_doubling"},
        {TT_ALL_REDUCE, 2, 512 * KIB, "ring pat parameter_server recursive_doubling two_shot"},
        {TT_REDUCE_SCATTER, 2, 256, "meet"},
        {TT_REDUCE_SCATTER, 2, 64 * KIB, "ring parallel recursive bruck pat"},
        {TT_ALL_TO_ALL, 2, 2 * KIB, "meet"},
        {TT_ALL_TO_ALL, 2, 64 * KIB, "direct pairwise"},
        {TT_BARRIER, 2, 0, "meet"},
        {TT_ALL_REDUCE, 4, 512, "meet naive parallel"},
        {TT_ALL_REDUCE, 8, 512, "meet"},
        {TT_ALL_REDUCE, 8, 32 * KIB, "meet"},
        {TT_ALL_REDUCE, 4, 64 * KIB,
         "meet two_shot recursive_doubling recursive_halving parameter_server"},
        {TT_ALL_REDUCE, 8, 64 * KIB, "meet tree"},
        {TT_ALL_REDUCE, 8, 512 * KIB, "meet two_shot ring tree parameter_server"},
        {TT_BROADCAST, 8, 4 * KIB, "binomial chain"},
        {TT_BROADCAST, 8, 8 * KIB, "direct binomial chain"},
        {TT_BROADCAST, 4, 512 * KIB, "meet chain scatter_allgather"},
        {TT_REDUCE, 8, 512, "direct chain"},
        {TT_REDUCE, 8, 256 * KIB, "direct binomial chain"},
        {TT_REDUCE, 4, 512 * KIB, "chain"},
        {TT_ALL_GATHER, 4, 512 * KIB, "meet"},
        {TT_ALL_GATHER, 8, 512 * KIB, "meet"},
        {TT_REDUCE_SCATTER, 8, 4 * KIB, "meet"},
        {TT_REDUCE_SCATTER, 8, 512 * KIB, "parallel ring"},
        {TT_ALL_TO_ALL, 4, 16 * KIB, "meet"},
        {TT_ALL_TO_ALL, 8, 8 * KIB, "meet"},
        {TT_ALL_TO_ALL, 8, 512 * KIB, "direct pairwise"},
        {TT_SCATTER, 4, 4 * KIB, "direct"},
        {TT_SCATTER, 8, 512 * KIB, "direct"},
        {TT_GATHER, 4, 512, "direct"},
        {TT_GATHER, 8, 64 * KIB, "direct"},
        {TT_BARRIER, 8, 0, "meet"},
    };
    for (size_t i = 0; i < sizeof points / sizeof *points; i++) {
        const struct tt_setting setting = on_two_cores(points[i].nranks);
        const char *name =
            choice(points[i].collective, points[i].nranks, &setting, points[i].nbytes)->name;
        char word[64], words[128];
        snprintf(word, sizeof word, " %s ", name);
        snprintf(words, sizeof words, " %s ", points[i].fast);
        CHECK_MESSAGE(strstr(words, word), "%s of %zu bytes, %d ranks: %s, fast are %s",
                      tt_collective_name(points[i].collective), points[i].nbytes, points[i].nranks,
                      name, points[i].fast);
    }
}

/* What other ranks do costs nothing where they have cores of their own, and more the more of them
 * share one. */
TEST(choose, costs_grow_with_the_ranks_on_a_core)
{
    const struct tt_algorithm *algorithm;
    for (int i = 0; (algorithm = each(i)) != NULL; i++)
        for (int nranks = 2; nranks <= 80; nranks = nranks * 3 / 2 + 1) {
            const struct tt_shape shape = shape_of(algorithm, nranks, 0);
            struct tt_setting setting = host;
            const double alone = tt_cost_us(algorithm, &shape, &setting, MIB);
            setting.ranks_per_core = 0.5;
            CHECK(tt_cost_us(algorithm, &shape, &setting, MIB) == alone);
            double last = 0;
            for (setting.ranks_per_core = 1.5; setting.ranks_per_core <= nranks;
                 setting.ranks_per_core *= 2) {
                const double cost = tt_cost_us(algorithm, &shape, &setting, MIB);
                CHECK_MESSAGE(isfinite(cost) && cost > last, "%s:%s for %d ranks, %.1f on a core",
                              tt_collective_name(algorithm->collective), algorithm->name, nranks,
                              setting.ranks_per_core);
                last = cost;
            }
        }
}

TEST(choose, much_data_between_two_ranks_goes_both_ways_at_once)
{
    CHECK_STR(choice(TT_ALL_REDUCE, 2, &host, 16 * MIB)->name, "ring");
    CHECK_STR(choice(TT_ALL_REDUCE, 2, &hosts, 16 * MIB)->name, "ring");
}

TEST(choose, many_ranks_do_not_all_talk_to_all)
{
    for (int i = 0; i < TT_NCOLLECTIVES; i++)
        for (size_t nbytes = 8; nbytes <= (size_t)1 << 34; nbytes *= 8) {
            const struct tt_shape shape = {.collective = (enum tt_collective)i, .nranks = 131072};
            const struct tt_algorithm *algorithm = tt_choose(&shape, &large_slots, nbytes);
            CHECK_MESSAGE(tt_formula_of(algorithm, &shape).depth > 2, "%s:%s for %zu bytes",
                          tt_collective_name(shape.collective), algorithm->name, nbytes);
        }
}

/* Calls that go one way overlap on a crowded host, so the answer of none is waited for. */
TEST(choose, costs_grow_with_bytes_and_are_infinite_where_impossible)
{
    const struct tt_algorithm *algorithm;
    for (int i = 0; (algorithm = each(i)) != NULL; i++)
        for (int nranks = 1; nranks <= 65; nranks += 8) {
            const struct tt_shape shape = shape_of(algorithm, nranks, 0);
            const double little = tt_cost_us(algorithm, &shape, &host, 8);
            CHECK(little >= 0 && isfinite(little));
            CHECK(tt_cost_us(algorithm, &shape, &host, MIB) >= little);
            if (!goes_one_way(algorithm, nranks))
                CHECK(tt_cost_us(algorithm, &shape, &crowded_host, 8) >= little);
            CHECK((isinf(tt_cost_us(algorithm, &shape, &hosts, 8)) != 0) ==
                  (algorithm->one_host && nranks > 1));
        }
}

/* Of each kind a message of the largest element, or, where the data is split, all of it. */
TEST(choose, takes_nothing_whose_messages_do_not_fit)
{
    static const size_t rooms[][2] = {{KIB, KIB}, {KIB, 32 * KIB}, {128 * KIB, KIB}};
    for (int c = 0; c < TT_NCOLLECTIVES; c++)
        for (int nranks = 2; nranks <= 16384; nranks = nranks * 3 / 2)
            for (int i = 0; i < 12; i++) {
                const struct tt_shape shape = {.collective = (enum tt_collective)c,
                                               .nranks = nranks};
                const struct tt_setting setting = {.one_host = true,
                                                   .oversubscribed = i % 2,
                                                   .ranks_per_core = i % 2 ? nranks / 2.0 : 1,
                                                   .slot_bytes = rooms[i / 4][0],
                                                   .meet_bytes = rooms[i / 4][1]};
                const size_t nbytes = i / 2 % 2 ? MIB : 8;
                const struct tt_algorithm *chosen = tt_choose(&shape, &setting, nbytes);
                const size_t room = chosen->one_host && setting.meet_bytes < setting.slot_bytes
                                        ? setting.meet_bytes
                                        : setting.slot_bytes;
                const size_t message = 8 * (size_t)tt_formula_of(chosen, &shape).message;
                CHECK_MESSAGE(
                    message <= room || (tt_collective_splits(shape.collective) && nbytes <= room),
                    "%s:%s for %d ranks: messages of %zu bytes, room for %zu",
                    tt_collective_name(shape.collective), chosen->name, nranks, message, room);
            }
}

/* ---- Between hosts -------------------------------------------------------------------------- */

static const struct tt_setting gigabit = {
    .meet_bytes = 64 * KIB, .slot_bytes = 64 * KIB, .net_mbit = 1000};

static const struct tt_setting crowded_hosts = {.oversubscribed = true,
                                                .ranks_per_core = 2,
                                                .meet_bytes = 64 * KIB,
                                                .slot_bytes = 64 * KIB,
                                                .net_mbit = 1000};

static const struct tt_algorithm *choice_on(const struct tt_hosts *placed,
                                            enum tt_collective collective, size_t nbytes)
{
    const struct tt_shape shape = {
        .collective = collective, .nranks = placed->nranks, .hosts = placed};
    return tt_choose(&shape, &gigabit, nbytes);
}

/* byte_long is measured on one host, where the receiver reads while the sender writes. */
TEST(choose, long_messages_between_hosts_cost_no_byte_long)
{
    struct tt_costs other = tt_shipped_costs;
    other.at[TT_COST_BYTE_LONG].value *= 10;
    struct tt_setting setting = hosts, inside = host;
    struct tt_hosts *placed = hosts_of("ab");
    struct tt_shape shape = {.collective = TT_ALL_REDUCE, .nranks = 2, .hosts = placed};
    const struct tt_algorithm *ring = tt_algorithm_find(TT_ALL_REDUCE, "ring");
    const double us = tt_cost_us(ring, &shape, &setting, MIB);
    setting.costs = &other;
    CHECK_MESSAGE(tt_cost_us(ring, &shape, &setting, MIB) == us, "%g us became %g", us,
                  tt_cost_us(ring, &shape, &setting, MIB));
    shape.hosts = NULL;
    const double us_inside = tt_cost_us(ring, &shape, &inside, MIB);
    inside.costs = &other;
    CHECK(tt_cost_us(ring, &shape, &inside, MIB) > us_inside);
    tt_hosts_destroy(placed);
}

TEST(choose, takes_what_can_be_on_the_hosts)
{
    const size_t sizes[] = {0, 8, 4096, MIB, (size_t)1 << 32};
    for (int p = 0; each_placement(p); p++) {
        struct tt_hosts *placed = hosts_of(each_placement(p));
        REQUIRE(placed != NULL);
        for (int i = 0; i < TT_NCOLLECTIVES; i++)
            for (int k = 0; k < 5; k++) {
                const struct tt_algorithm *algorithm =
                    choice_on(placed, (enum tt_collective)i, sizes[k]);
                const struct tt_shape shape = {
                    .collective = (enum tt_collective)i, .nranks = placed->nranks, .hosts = placed};
                const char *refusal = tt_refusal(algorithm, &shape);
                CHECK_MESSAGE(!refusal, "%s:%s on %s: %s", tt_collective_name(shape.collective),
                              algorithm->name, each_placement(p), refusal);
            }
        tt_hosts_destroy(placed);
    }
}

TEST(choose, little_data_takes_one_message_from_host_to_host)
{
    const char *const pairs_of_hosts[] = {"ab", "aabb", "abab", "abba", "aab", "aaaabbbb"};
    for (int p = 0; p < 6; p++) {
        struct tt_hosts *placed = hosts_of(pairs_of_hosts[p]);
        REQUIRE(placed != NULL);
        const struct tt_shape shape = {
            .collective = TT_ALL_REDUCE, .nranks = placed->nranks, .hosts = placed};
        const struct tt_steps steps = {.algorithm = choice_on(placed, TT_ALL_REDUCE, 8),
                                       .shape = shape};
        struct tt_traffic traffic = {.depth = UINT64_MAX};
        CHECK(tt_count_traffic(&steps, &traffic) == TT_OK);
        CHECK_MESSAGE(traffic.depth == 1 && traffic.messages == 1, "%s on %s",
                      steps.algorithm->name, pairs_of_hosts[p]);
        tt_hosts_destroy(placed);
    }
}

TEST(choose, much_data_leaves_a_host_no_more_often_than_it_must)
{
    const char *const even[] = {"aabb", "abab", "aabbcc", "aaaabbbb", "abcabc", "aaaabbbbccccdddd"};
    for (int p = 0; p < 6; p++) {
        struct tt_hosts *placed = hosts_of(even[p]);
        REQUIRE(placed != NULL);
        for (size_t nbytes = MIB; nbytes <= 256 * MIB; nbytes *= 16) {
            const struct tt_shape shape = {
                .collective = TT_ALL_REDUCE, .nranks = placed->nranks, .hosts = placed};
            const struct tt_steps steps = {.algorithm = choice_on(placed, TT_ALL_REDUCE, nbytes),
                                           .shape = shape};
            struct tt_traffic traffic = {.sent = UINT64_MAX};
            CHECK(tt_count_traffic(&steps, &traffic) == TT_OK);
            const double n = placed->nhosts, blocks = (double)tt_nblocks(steps.algorithm, &shape) *
                                                      tt_nchannels(steps.algorithm, &shape);
            CHECK_MESSAGE((double)traffic.sent / blocks <= 2 * (n - 1) / n + 1e-9, "%s on %s: %.3f",
                          steps.algorithm->name, even[p], (double)traffic.sent / blocks);
        }
        tt_hosts_destroy(placed);
    }
}

TEST(choose, with_one_rank_a_host_nothing_is_composed)
{
    struct tt_hosts *placed = hosts_of("abcdefgh");
    REQUIRE(placed != NULL);
    for (int i = 0; i < TT_NCOLLECTIVES; i++)
        for (size_t nbytes = 8; nbytes <= 64 * MIB; nbytes *= 64)
            CHECK(!choice_on(placed, (enum tt_collective)i, nbytes)->parts);
    tt_hosts_destroy(placed);
}

/* Hosts of one rank each can be on one machine, whose cores they share (TUTTI_HOST_ID). */
TEST(choose, costs_are_finite_where_hosts_share_a_machine)
{
    const char *const placements[] = {"abcd", "aabb", "abbbb"};
    const struct tt_algorithm *algorithm;
    for (int p = 0; p < 3; p++) {
        struct tt_hosts *placed = hosts_of(placements[p]);
        REQUIRE(placed != NULL);
        for (int pairs = 0; pairs < 2; pairs++)
            for (int i = 0; (algorithm = each_of(pairs, i)) != NULL; i++) {
                struct tt_shape shape = shape_of(algorithm, placed->nranks, 0);
                shape.hosts = placed;
                if (tt_refusal(algorithm, &shape) || algorithm->one_host) continue;
                const double cost = tt_cost_us(algorithm, &shape, &crowded_hosts, MIB);
                CHECK_MESSAGE(isfinite(cost) && cost > 0, "%s:%s on %s costs %f",
                              tt_collective_name(algorithm->collective), algorithm->name,
                              placements[p], cost);
            }
        tt_hosts_destroy(placed);
    }
}

/* Only what all ranks know alike goes into it, so all choose alike; and it ends with many ranks. */
TEST(choose, thousands_of_ranks_on_hundreds_of_hosts_get_a_hierarchy)
{
    enum { NHOSTS = 512, EACH = 8 };
    static uint64_t ids[NHOSTS * EACH];
    for (int r = 0; r < NHOSTS * EACH; r++) ids[r] = (uint64_t)(r / EACH);
    struct tt_hosts *placed = NULL;
    REQUIRE(tt_hosts_create(ids, NHOSTS * EACH, &placed) == TT_OK);
    for (size_t nbytes = 8; nbytes <= (size_t)1 << 30; nbytes *= 32)
        CHECK(choice_on(placed, TT_ALL_REDUCE, nbytes)->parts != NULL);
    tt_hosts_destroy(placed);
}

/* Else calls with changing roots would change their algorithm, and ranks that disagree about the
 * root their messages. */
TEST(choose, is_the_same_for_all_roots)
{
    for (int p = 0; each_placement(p); p++) {
        struct tt_hosts *placed = hosts_of(each_placement(p));
        REQUIRE(placed != NULL);
        const struct tt_setting *setting = p % 2 ? &crowded_hosts : &gigabit;
        for (int i = 0; i < TT_NCOLLECTIVES; i++) {
            struct tt_choices first, others;
            struct tt_shape shape = {
                .collective = (enum tt_collective)i, .nranks = placed->nranks, .hosts = placed};
            tt_choices_make(&first, &shape, setting);
            for (shape.root = 1; shape.root < shape.nranks; shape.root++) {
                tt_choices_make(&others, &shape, setting);
                bool same = others.number == first.number;
                for (int k = 0; same && k < first.number; k++)
                    same = others.at[k].most == first.at[k].most &&
                           others.at[k].algorithm == first.at[k].algorithm;
                CHECK_MESSAGE(same, "%s on %s, root %d", tt_collective_name(shape.collective),
                              each_placement(p), shape.root);
            }
        }
        tt_hosts_destroy(placed);
    }
}

TEST(choose, ranges_of_sizes_say_what_is_chosen_for_each)
{
    struct tt_hosts *placed = hosts_of("aaaabbbb");
    REQUIRE(placed != NULL);
    for (int several = 0; several < 2; several++)
        for (int i = 0; i < TT_NCOLLECTIVES; i++) {
            const struct tt_shape shape = {
                .collective = (enum tt_collective)i, .nranks = 8, .hosts = several ? placed : NULL};
            const struct tt_setting *setting = several ? &gigabit : &host;
            struct tt_choices choices = {.number = 0};
            tt_choices_make(&choices, &shape, setting);
            REQUIRE(choices.number > 0 && choices.number < TT_MOST_CHOICES);
            for (int k = 1; k < choices.number; k++) {
                CHECK(choices.at[k].most > choices.at[k - 1].most);
                CHECK(choices.at[k].algorithm != choices.at[k - 1].algorithm);
            }
            CHECK(choices.at[choices.number - 1].most == SIZE_MAX);
            for (size_t nbytes = 1; nbytes <= (size_t)1 << 40; nbytes *= 2)
                CHECK_STR(tt_choices_at(&choices, nbytes)->name,
                          tt_choose(&shape, setting, nbytes)->name);
            CHECK(tt_choices_at(&choices, 0) == tt_choices_at(&choices, 1));
            CHECK(tt_choices_at(&choices, SIZE_MAX) != NULL);
        }
    tt_hosts_destroy(placed);
}

static const struct tt_setting gpu = {.one_host = true,
                                      .meet_bytes = 128 * KIB,
                                      .slot_bytes = 128 * KIB,
                                      .on_device = true,
                                      .nparts = 8,
                                      .line_bytes = 32 * KIB};

/* Of the algorithms that were timed, the cheapest by the cost model is not half as slow again as
 * the fastest. */
static void check_choice(size_t row, int size)
{
    const struct tt_shape shape = {.collective = TT_ALL_REDUCE, .nranks = h100[row].nranks};
    const size_t nbytes = (size_t)256 << (3 * size);
    struct tt_setting setting = gpu;
    double least = INFINITY, best = INFINITY, chosen = INFINITY;
    setting.nparts = h100[row].nparts;
    for (int a = 0; a < NTIMED; a++) {
        const struct tt_algorithm *algorithm = tt_algorithm_find(TT_ALL_REDUCE, timed[a]);
        const double us = tt_cost_us(algorithm, &shape, &setting, nbytes);
        best = fmin(best, h100[row].us[a][size]);
        if (us < least) chosen = h100[row].us[a][size];
        least = fmin(least, us);
    }
    CHECK_MESSAGE(chosen <= 1.5 * best, "%d ranks, %d parts, %zu bytes: %.0f us, not %.0f",
                  h100[row].nranks, h100[row].nparts, nbytes, chosen, best);
}

TEST(choose, on_gpus_the_cheapest_is_among_the_fastest_of_an_h100)
{
    for (size_t row = 0; row < NH100; row++)
        for (int size = 0; size < NSIZES; size++) check_choice(row, size);
}

/* With more blocks bytes cost less, and waits as much: longer calls take the fewest steps. */
TEST(choose, on_gpus_by_the_blocks_that_there_are)
{
    static const int nparts[] = {2, 8, 32};
    for (int i = 0; i < 3; i++) {
        struct tt_setting setting = gpu;
        setting.nparts = nparts[i];
        for (size_t nbytes = 1 * KIB; nbytes <= 256 * MIB; nbytes *= 4) {
            const size_t a_block = nbytes / (size_t)nparts[i];
            const char *name = choice(TT_ALL_REDUCE, 8, &setting, nbytes)->name;
            CHECK_STR(name, a_block <= 32 * KIB    ? "parallel"
                            : a_block <= 128 * KIB ? "meet_two_shot"
                                                   : "two_shot");
        }
    }
}

/* Long calls cross between groups of GPUs as seldom as they can; without groups they do not. */
TEST(choose, on_gpus_in_groups_a_ring_takes_long_calls)
{
    struct tt_hosts *groups = hosts_of("aaaabbbb");
    REQUIRE(groups != NULL);
    groups->one_host = true;
    struct tt_shape shape = {.collective = TT_ALL_REDUCE, .nranks = 8};
    struct tt_setting setting = gpu;
    setting.nparts = 32;
    CHECK_STR(tt_choose(&shape, &setting, 256 * MIB)->name, "two_shot");
    shape.hosts = groups;
    CHECK_STR(tt_choose(&shape, &setting, 256 * MIB)->name, "ring");
    CHECK_STR(tt_choose(&shape, &setting, 8)->name, "parallel");
    tt_hosts_destroy(groups);
}

/* A tree has a channel for each half of the data: of as many blocks of threads half are its copies.
 * Its longest chain is three times its steps, and every dependence of the chain costs a step. */
TEST(choose, on_gpus_a_tree_is_no_two_steps)
{
    const struct tt_shape shape = {.collective = TT_ALL_REDUCE, .nranks = 8};
    struct tt_setting two = gpu, one_copy = gpu;
    two.nparts = 2;
    one_copy.nparts = 3; /* its third block has nothing to do */
    const struct tt_algorithm *tree = tt_algorithm_find(TT_ALL_REDUCE, "tree");
    const double step = tt_gpu_costs[TT_GPU_SLOTS].at[TT_COST_STEP].value;
    for (size_t nbytes = 8; nbytes <= 64 * MIB; nbytes *= 8) {
        const double us = tt_cost_us(tree, &shape, &two, nbytes);
        CHECK_MESSAGE(us > 6 * step, "%zu bytes: %g us", nbytes, us);
        CHECK(tt_cost_us(tree, &shape, &one_copy, nbytes) == us);
        CHECK(tt_cost_us(tree, &shape, &gpu, nbytes) <= us);
    }
}

/* A meeting on GPUs is a message to each rank; its kernel takes a number of ranks. */
TEST(choose, gpus_never_meet_with_many_ranks)
{
    for (int i = 0; i < TT_NCOLLECTIVES; i++)
        for (size_t nbytes = 8; nbytes <= 64 * MIB; nbytes *= 64)
            CHECK(!tt_meets(choice((enum tt_collective)i, 65, &gpu, nbytes)));
}

/* Lines carry half as much and wait less. */
TEST(choose, gpus_take_lines_for_short_messages)
{
    const struct tt_shape shape = {.collective = TT_ALL_REDUCE, .nranks = 8};
    const struct tt_algorithm *ring = tt_algorithm_find(TT_ALL_REDUCE, "ring");
    struct tt_setting no_lines = gpu;
    no_lines.line_bytes = 0;
    CHECK(tt_gpu_takes_lines(8) && !tt_gpu_takes_lines(64 * MIB));
    for (size_t nbytes = 8; nbytes <= 64 * MIB; nbytes *= 2) {
        const double with = tt_cost_us(ring, &shape, &gpu, nbytes);
        const double without = tt_cost_us(ring, &shape, &no_lines, nbytes);
        CHECK(with <= without);
        if (nbytes <= 64 * KIB) CHECK(with < without);
        if (nbytes >= 16 * MIB) CHECK(with == without);
        CHECK(tt_gpu_takes_lines(nbytes) || !tt_gpu_takes_lines(2 * nbytes));
    }
}

/* Ranks on CPUs of several kinds choose by the same constants: those that hold for any CPU. */
TEST(choose, by_constants_of_the_cpu)
{
    const struct tt_costs any = tt_costs_shipped(false), strings = tt_costs_shipped(true);
    CHECK_EQ(tt_costs_checksum(&any), tt_costs_checksum(&tt_shipped_costs));
    for (int i = 0; i < TT_NCOSTS; i++) {
        CHECK(!strings.at[i].name == !any.at[i].name);
        if (any.at[i].name) CHECK(!strcmp(strings.at[i].name, any.at[i].name));
        if (any.at[i].name) CHECK(strings.at[i].value > 0);
    }
    CHECK(strings.at[TT_COST_LINK].value < any.at[TT_COST_LINK].value);
}

static void count_line(void *arg, const char *line)
{
    CHECK(line[0] != '\0');
    ++*(int *)arg;
}

TEST(choose, describes_its_constants)
{
    int nlines = 0;
    tt_costs_describe(&tt_shipped_costs, &tt_shipped_costs, count_line, &nlines);
    CHECK(nlines >= 5);
}
