/* The choice: what must never be chosen, and the points that were measured. */
#include <math.h>

#include "shim.h"
#include "each.h"

enum { KIB = 1 << 10, MIB = 1 << 20 };

static const struct tt_setting host = {
    .one_host = true, .meet_bytes = 64 * KIB, .slot_bytes = 64 * KIB};
static const struct tt_setting crowded_host = {
    .one_host = true, .oversubscribed = true, .meet_bytes = 64 * KIB, .slot_bytes = 64 * KIB};
static const struct tt_setting hosts = {.slot_bytes = 64 * KIB};
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

TEST(choose, more_ranks_than_cores_meet)
{
    for (int nranks = 3; nranks <= 16; nranks++)
        for (int i = 0; i < TT_NCOLLECTIVES; i++)
            CHECK_STR(choice((enum tt_collective)i, nranks, &crowded_host, 8)->name, "meet");
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
            const struct tt_algorithm *algorithm = tt_choose(&shape, &hosts, nbytes);
            CHECK_MESSAGE(tt_formula_of(algorithm, &shape).depth > 2, "%s:%s for %zu bytes",
                          tt_collective_name(shape.collective), algorithm->name, nbytes);
        }
}

TEST(choose, costs_grow_with_bytes_and_are_infinite_where_impossible)
{
    const struct tt_algorithm *algorithm;
    for (int i = 0; (algorithm = each(i)) != NULL; i++)
        for (int nranks = 1; nranks <= 65; nranks += 8) {
            const struct tt_shape shape = shape_of(algorithm, nranks, 0);
            const double little = tt_cost_us(algorithm, &shape, &host, 8);
            CHECK(little >= 0 && isfinite(little));
            CHECK(tt_cost_us(algorithm, &shape, &host, MIB) >= little);
            CHECK(tt_cost_us(algorithm, &shape, &crowded_host, 8) >= little);
            CHECK((isinf(tt_cost_us(algorithm, &shape, &hosts, 8)) != 0) ==
                  (algorithm->one_host && nranks > 1));
        }
}

static void count_line(void *arg, const char *line)
{
    CHECK(line[0] != '\0');
    ++*(int *)arg;
}

TEST(choose, describes_its_constants)
{
    int nlines = 0;
    tt_cost_describe(count_line, &nlines);
    CHECK(nlines >= 5);
}
