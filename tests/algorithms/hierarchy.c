/* Algorithms made of two others: proved, and counted. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "shim.h"
#include "each.h"

#define CHECK_NEAR(value, expected)                                                                \
    CHECK_MESSAGE(fabs((value) - (expected)) < 1e-9, "%s is %.6f, expected %.6f", #value, value,   \
                  (double)(expected))

/* For all roots; false when a proof finds it not direct_safe. */
static bool prove_roots(const struct tt_steps *steps, const char *placement)
{
    const size_t counts[] = {37, 0, 1};
    struct tt_steps rooted = *steps;
    const bool has_root = tt_collective_has_root(steps->shape.collective);
    bool direct_safe = true;
    for (int root = 0; root < (has_root ? steps->shape.nranks : 1); root++)
        for (int k = 0; k < 3; k++) {
            struct tt_verify_report report = {.text = ""};
            rooted.shape.root = root;
            CHECK_MESSAGE(tt_verify(&rooted, counts[k], &report) == TT_OK,
                          "%s:%s on %s, root %d, count %zu: %s",
                          tt_collective_name(steps->shape.collective), steps->algorithm->name,
                          placement, root, counts[k], report.text);
            direct_safe = direct_safe && report.direct_safe;
            CHECK_MESSAGE(report.post_safe, "%s:%s on %s, root %d: %s",
                          tt_collective_name(steps->shape.collective), steps->algorithm->name,
                          placement, root, report.post);
            if (report.any_count) break;
        }
    return direct_safe;
}

TEST(hierarchy, every_pair_is_proved_on_every_placement_and_direct_safe_as_it_says)
{
    const struct tt_algorithm *algorithm;
    for (int i = 0; (algorithm = each_pair(i)) != NULL && !tt_test_failed(); i++) {
        bool direct_safe = true;
        int nplacements = 0;
        for (int p = 0; each_placement(p); p++) {
            struct placed placed;
            if (!place(&placed, algorithm, each_placement(p))) continue;
            direct_safe &= prove_roots(&placed.steps, each_placement(p));
            nplacements++;
            tt_hosts_destroy(placed.hosts);
        }
        CHECK_MESSAGE(nplacements > 0 && direct_safe == algorithm->direct_safe,
                      "%s:%s on %d placements says direct_safe %d, is %d",
                      tt_collective_name(algorithm->collective), algorithm->name, nplacements,
                      algorithm->direct_safe, direct_safe);
    }
}

/* ---- Numbers -------------------------------------------------------------------------------- */

struct number {
    const char *name;
    uint64_t counted, formula;
};

static void list_numbers(const struct tt_steps *steps, struct number numbers[6])
{
    struct tt_formula counted = {.steps = UINT64_MAX};
    const struct tt_formula formula = tt_formula_of(steps->algorithm, &steps->shape);
    CHECK(tt_count(steps, &counted) == TT_OK);
    const struct number all[6] = {{"message", counted.message, formula.message},
                                  {"steps", counted.steps, formula.steps},
                                  {"depth", counted.depth, formula.depth},
                                  {"sent", counted.sent, formula.sent},
                                  {"reduced", counted.reduced, formula.reduced},
                                  {"scratch", counted.scratch, formula.scratch}};
    memcpy(numbers, all, sizeof all);
}

static bool begins(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

/* Where all ranks do alike inside a host, as they do on lanes with these, the sums are exact. */
static bool is_exact(const struct tt_steps *steps)
{
    const char *name = steps->algorithm->name;
    const struct tt_parts *parts = steps->algorithm->parts;
    return tt_hosts_even(steps->shape.hosts) && (parts->split || parts->join) &&
           (begins(name, "meet/") || begins(name, "ring/") || begins(name, "parallel/"));
}

TEST(hierarchy, formulas_are_exact_for_messages_and_on_lanes_and_bounds_elsewhere)
{
    const struct tt_algorithm *algorithm;
    struct placed placed;
    int nexact = 0;
    for (int i = 0; (algorithm = each_pair(i)) != NULL; i++)
        for (int p = 0; each_placement(p); p++) {
            if (!place(&placed, algorithm, each_placement(p))) continue;
            struct number numbers[6];
            list_numbers(&placed.steps, numbers);
            const bool exact = is_exact(&placed.steps);
            for (int k = 0; k < 6; k++)
                CHECK_MESSAGE(exact || k == 0 ? numbers[k].counted == numbers[k].formula
                                              : numbers[k].counted <= numbers[k].formula,
                              "%s:%s on %s: %s is %" PRIu64 ", by formula %" PRIu64,
                              tt_collective_name(algorithm->collective), algorithm->name,
                              each_placement(p), numbers[k].name, numbers[k].counted,
                              numbers[k].formula);
            nexact += exact;
            tt_hosts_destroy(placed.hosts);
        }
    CHECK(nexact > 100);
}

/* ---- What leaves the hosts ------------------------------------------------------------------ */

/* How often the data leaves the busiest host. */
static double off_host(const char *name, const char *placement)
{
    struct placed placed;
    struct tt_traffic traffic = {.sent = 0};
    if (!place(&placed, tt_algorithm_find(TT_ALL_REDUCE, name), placement)) return -1;
    CHECK(tt_count_traffic(&placed.steps, &traffic) == TT_OK);
    const double blocks = (double)tt_nblocks(placed.steps.algorithm, &placed.steps.shape) *
                          tt_nchannels(placed.steps.algorithm, &placed.steps.shape);
    tt_hosts_destroy(placed.hosts);
    return (double)traffic.sent / blocks;
}

TEST(hierarchy, an_all_reduce_sends_what_a_ring_of_hosts_would_off_host_and_a_ring_of_ranks_more)
{
    static const struct {
        const char *placement;
        double nhosts, nranks;
    } cases[] = {{"aabb", 2, 4},
                 {"aaaabbbb", 2, 8},
                 {"aabbcc", 3, 6},
                 {"aaabbbcccddd", 4, 12},
                 {"aaaabbbbccccdddd", 4, 16}};
    for (int i = 0; i < 5; i++) {
        const double n = cases[i].nhosts, all = cases[i].nranks;
        CHECK_NEAR(off_host("ring/ring", cases[i].placement), 2 * (n - 1) / n);
        CHECK_NEAR(off_host("meet/ring", cases[i].placement), 2 * (n - 1) / n);
        CHECK_NEAR(off_host("ring", cases[i].placement), 2 * (all - 1) / all);
    }
    CHECK_NEAR(off_host("ring/ring", "abab"), 1);
    CHECK_NEAR(off_host("ring", "abab"), 2 * 2 * 3.0 / 4);
}

/* A chain of an algorithm X/Y is between hosts as often as one of Y. */
TEST(hierarchy, chains_between_hosts_are_those_of_the_algorithm_between)
{
    const struct tt_algorithm *algorithm;
    struct placed placed;
    for (int i = 0; (algorithm = each_pair(i)) != NULL; i++)
        for (int p = 0; each_placement(p); p++) {
            if (!place(&placed, algorithm, each_placement(p))) continue;
            const struct tt_algorithm *between = algorithm->parts->between;
            const struct tt_steps alone = {
                .algorithm = between,
                .shape = {.collective = between->collective, .nranks = placed.hosts->nhosts}};
            struct tt_traffic whole, part;
            CHECK(tt_count_traffic(&placed.steps, &whole) == TT_OK);
            CHECK(tt_count_traffic(&alone, &part) == TT_OK);
            CHECK_MESSAGE(whole.depth == part.depth, "%s:%s on %s: %" PRIu64 ", %s has %" PRIu64,
                          tt_collective_name(algorithm->collective), algorithm->name,
                          each_placement(p), whole.depth, between->name, part.depth);
            tt_hosts_destroy(placed.hosts);
        }
}

/* ---- Names ---------------------------------------------------------------------------------- */

TEST(hierarchy, an_algorithm_says_where_it_cannot_be)
{
    static const struct {
        const char *name, *placement, *says;
    } cases[] = {
        {"ring/ring", "aab", "equally many"},
        {"meet/ring", "aaa", "several hosts"},
        {"meet", "aabb", "on one host"},
        {"meet/ring", "aab", NULL},
        {"binomial/ring", "aab", NULL},
        {"ring/ring", "abba", NULL},
        {"ring", "aabb", NULL},
        {"ring/ring", "ab", NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct tt_hosts *hosts = hosts_of(cases[i].placement);
        REQUIRE(hosts != NULL);
        const struct tt_shape shape = {
            .collective = TT_ALL_REDUCE, .nranks = hosts->nranks, .hosts = hosts};
        const struct tt_algorithm *algorithm = tt_algorithm_find(TT_ALL_REDUCE, cases[i].name);
        REQUIRE(algorithm != NULL);
        const char *says = tt_refusal(algorithm, &shape);
        CHECK_MESSAGE(!says == !cases[i].says && (!says || strstr(says, cases[i].says)),
                      "%s on %s: %s", cases[i].name, cases[i].placement, says ? says : "fits");
        struct tt_schedule *schedule = NULL;
        CHECK_EQ(tt_schedule_create(algorithm, &shape, 0, &schedule), says ? TT_ERR_USAGE : TT_OK);
        tt_schedule_destroy(schedule);
        tt_hosts_destroy(hosts);
    }
}
