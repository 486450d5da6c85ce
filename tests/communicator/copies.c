/* Collectives that run as several copies side by side, against a serial reference; and how many
 * copies there are. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/config.h"
#include "integration/random_calls.h"
#include "integration/ranks.h"
#include "shim.h"

enum { NRANKS = 4, NCALLS = SANITIZED ? 60 : 250, COUNT = 4096 };

static const tuttiConfig_t config = CONFIG_WITHIN(60000, 20000, .commName = "copies");

/* Runs the body on communicators with so many channels and copies. */
static void with(int nranks, int channels, int copies,
                 void (*body)(int rank, tuttiComm_t comm, void *arg), void *arg)
{
    char text[16];
    snprintf(text, sizeof text, "%d", channels);
    setenv("TUTTI_CHANNELS", text, 1);
    snprintf(text, sizeof text, "%d", copies);
    setenv("TUTTI_COPIES", text, 1);
    tt_config_reload();
    as_threads(nranks, &config, body, arg);
    unsetenv("TUTTI_CHANNELS");
    unsetenv("TUTTI_COPIES");
    tt_config_reload();
}

static void run_random(int rank, tuttiComm_t comm, void *arg)
{
    const int nwrong = random_calls(comm, *(const uint64_t *)arg, NCALLS);
    CHECK_MESSAGE(nwrong == 0, "rank %d: %d calls went wrong", rank, nwrong);
}

/* Every collective, also with a count for each rank and in place. */
TEST(copies, of_random_collectives_match_the_reference)
{
    static const struct {
        int channels, copies;
    } cases[] = {{2, 2}, {7, 3}, {16, 16}};
    uint64_t seed = test_seed();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        printf("%d channels, %d copies\n", cases[i].channels, cases[i].copies);
        with(NRANKS, cases[i].channels, cases[i].copies, run_random, &seed);
    }
}

/* What each algorithm sends for one all-gather without copies. */
struct sent {
    const char *algorithm;
    size_t count;
    uint64_t messages, bytes;
    int copies; /* that are expected to send the same bytes in so many times the messages */
};

static void gather_once(int rank, tuttiComm_t comm, void *arg)
{
    static int in[COUNT], out[NRANKS][NRANKS * COUNT];
    struct sent *sent = arg;
    tuttiCounters_t before, after;
    CHECK_EQ(tuttiCommSetAlgorithm(comm, tuttiCollAllGather, sent->algorithm), tuttiSuccess);
    CHECK_EQ(tuttiBarrier(comm, NULL), tuttiSuccess);
    CHECK_EQ(tuttiCommCounters(comm, &before), tuttiSuccess);
    CHECK_EQ(tuttiAllGather(in, out[rank], sent->count, tuttiInt32, comm, NULL), tuttiSuccess);
    CHECK_EQ(tuttiCommCounters(comm, &after), tuttiSuccess);
    if (rank) return;
    const uint64_t bytes =
        after.bytesCopied + after.bytesDirect - before.bytesCopied - before.bytesDirect;
    const uint64_t messages = after.messages - before.messages;
    if (!sent->copies) {
        sent->messages = messages;
        sent->bytes = bytes;
        return;
    }
    CHECK_MESSAGE(messages == sent->messages * (uint64_t)sent->copies && bytes == sent->bytes,
                  "%s: %llu messages of %llu bytes together, expected %d times %llu of %llu",
                  sent->algorithm, (unsigned long long)messages, (unsigned long long)bytes,
                  sent->copies, (unsigned long long)sent->messages,
                  (unsigned long long)sent->bytes);
}

/* The block of a rank fits a message, and a place in a meeting. */
TEST(copies, are_as_many_as_asked_for_and_as_there_are_channels)
{
    static const char *const algorithms[] = {"ring", "parallel", "recursive", "meet"};
    for (int i = 0; i < 4; i++) {
        struct sent sent = {.algorithm = algorithms[i], .count = COUNT};
        with(NRANKS, 16, 1, gather_once, &sent);
        sent.copies = 5;
        with(NRANKS, 16, 5, gather_once, &sent);
        sent.copies = 16;
        with(NRANKS, 16, 16, gather_once, &sent);
        sent.copies = 3;
        with(NRANKS, 3, 16, gather_once, &sent);
    }
}

/* Such calls can be done express (executor/express.h). */
TEST(copies, are_not_made_of_calls_of_less_than_8_kib)
{
    for (int more = 0; more < 2; more++) {
        struct sent sent = {.algorithm = "parallel", .count = more ? 2048 : 2047};
        with(NRANKS, 16, 1, gather_once, &sent);
        sent.copies = more ? 5 : 1;
        with(NRANKS, 16, 5, gather_once, &sent);
    }
}

static void split_and_gather(int rank, tuttiComm_t comm, void *arg)
{
    tuttiComm_t child = NULL;
    REQUIRE(tuttiCommSplit(comm, rank % 2, rank, &child, NULL) == tuttiSuccess);
    gather_once(rank, child, arg);
    CHECK_EQ(tuttiCommDestroy(child), tuttiSuccess);
}

TEST(copies, are_as_many_in_a_communicator_that_was_split_off)
{
    struct sent sent = {.algorithm = "ring", .count = COUNT};
    with(NRANKS, 16, 1, split_and_gather, &sent);
    sent.copies = 5;
    with(NRANKS, 16, 5, split_and_gather, &sent);
    sent.copies = 3;
    with(NRANKS, 3, 16, split_and_gather, &sent);
}

static void all_reduce_one(int rank, tuttiComm_t comm, void *arg)
{
    (void)arg;
    const int one = 1 << rank;
    int sum = 0;
    tuttiCounters_t before, after;
    CHECK_EQ(tuttiCommSetAlgorithm(comm, tuttiCollAllReduce, "meet"), tuttiSuccess);
    CHECK_EQ(tuttiCommCounters(comm, &before), tuttiSuccess);
    CHECK_EQ(tuttiAllReduce(&one, &sum, 1, tuttiInt32, tuttiSum, comm, NULL), tuttiSuccess);
    CHECK_EQ(tuttiCommCounters(comm, &after), tuttiSuccess);
    CHECK_EQ(sum, 15);
    CHECK_EQ(after.messages - before.messages, 1);
}

TEST(copies, are_no_more_than_the_data_has_lines_for)
{
    with(NRANKS, 16, 16, all_reduce_one, NULL);
}
