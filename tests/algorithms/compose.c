/* Composed algorithms: which there are, and that each is made once. */
#include <pthread.h>
#include <string.h>

#include "shim.h"
#include "each.h"

enum { MOST_FOUND = 256 };

TEST(compose, every_combination_is_listed_once_and_found_by_name)
{
    static const int expected[TT_NCOLLECTIVES] = {
        [TT_ALL_REDUCE] = 80,     [TT_BROADCAST] = 20, [TT_REDUCE] = 30, [TT_ALL_GATHER] = 30,
        [TT_REDUCE_SCATTER] = 30, [TT_SCATTER] = 6,    [TT_GATHER] = 6,  [TT_BARRIER] = 2};
    int listed[TT_NCOLLECTIVES] = {0};
    const struct tt_algorithm *algorithm, *seen[MOST_FOUND];
    for (int i = 0; i < MOST_FOUND && (algorithm = each_pair(i)) != NULL; i++) {
        listed[algorithm->collective]++;
        CHECK(tt_algorithm_find(algorithm->collective, algorithm->name) == algorithm);
        for (int k = 0; k < i; k++) CHECK(seen[k] != algorithm);
        seen[i] = algorithm;
    }
    for (int i = 0; i < TT_NCOLLECTIVES; i++)
        CHECK_MESSAGE(listed[i] == expected[i], "%s: %d, expected %d",
                      tt_collective_name((enum tt_collective)i), listed[i], expected[i]);
}

TEST(compose, names_that_are_no_combination_are_not_found)
{
    static const char *const names[] = {"ring/",
                                        "/ring",
                                        "/",
                                        "ring/none",
                                        "none/ring",
                                        "ring/meet",
                                        "meet/tree",
                                        "tree/ring",
                                        "naive/ring",
                                        "ring/ring/ring",
                                        "ring / ring",
                                        "ring/ring ",
                                        "reduce_scatter_gather/ring"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        CHECK_MESSAGE(!tt_algorithm_find(TT_ALL_REDUCE, names[i]), "%s", names[i]);
    char longest[200];
    memset(longest, 'x', sizeof longest);
    memcpy(longest + 150, "/ring", 6);
    CHECK(!tt_algorithm_find(TT_ALL_REDUCE, longest));
    CHECK(!tt_algorithm_find(TT_ALL_TO_ALL, "direct/direct"));
    CHECK(!tt_algorithm_find(TT_NCOLLECTIVES, "ring/ring"));
}

TEST(compose, parts_are_what_the_name_says)
{
    const struct tt_algorithm *algorithm = tt_algorithm_find(TT_ALL_REDUCE, "meet/ring");
    REQUIRE(algorithm != NULL);
    CHECK(algorithm->parts->between == tt_algorithm_find(TT_ALL_REDUCE, "ring"));
    CHECK(algorithm->parts->split == tt_algorithm_find(TT_REDUCE_SCATTER, "meet"));
    CHECK(algorithm->parts->join == tt_algorithm_find(TT_ALL_GATHER, "meet"));
    CHECK(algorithm->parts->up == tt_algorithm_find(TT_REDUCE, "meet"));
    CHECK(algorithm->parts->down == tt_algorithm_find(TT_BROADCAST, "meet"));
    algorithm = tt_algorithm_find(TT_ALL_REDUCE, "chain/tree");
    REQUIRE(algorithm != NULL);
    CHECK(!algorithm->parts->split && !algorithm->parts->join);
    CHECK(algorithm->parts->up && algorithm->parts->down);
    CHECK_STR(algorithm->summary, "chain inside each host, tree between hosts");
}

enum { NTHREADS = 8 };

/* What one thread has found, in the order of each_pair. */
struct finder {
    pthread_t thread;
    const struct tt_algorithm *found[MOST_FOUND];
    int number;
};

static void *find_all(void *arg)
{
    struct finder *finder = arg;
    const struct tt_algorithm *algorithm;
    while (finder->number < MOST_FOUND && (algorithm = each_pair(finder->number)) != NULL)
        finder->found[finder->number++] = algorithm;
    return NULL;
}

TEST(compose, threads_that_ask_at_once_get_the_same)
{
    static struct finder finders[NTHREADS];
    for (int i = 0; i < NTHREADS; i++)
        REQUIRE(pthread_create(&finders[i].thread, NULL, find_all, &finders[i]) == 0);
    for (int i = 0; i < NTHREADS; i++) REQUIRE(pthread_join(finders[i].thread, NULL) == 0);
    for (int i = 0; i < NTHREADS; i++) {
        REQUIRE(finders[i].number == 204);
        CHECK(memcmp(finders[i].found, finders[0].found, sizeof finders[0].found) == 0);
    }
}
