/* Aborts at random moments, while streams work on the communicator and on others. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "ranks.h"
#include "shim.h"

enum { ROUNDS = SANITIZED ? 30 : 60 };

static const tuttiConfig_t config = CONFIG_WITHIN(20000, 20000);

/* Both ranks of a communicator in this process. */
static bool make_pair(tuttiComm_t pair[2])
{
    tuttiUniqueId id;
    CHECK_EQ(tuttiGetUniqueId(&id), tuttiSuccess);
    CHECK_EQ(tuttiGroupStart(), tuttiSuccess);
    for (int r = 0; r < 2; r++)
        CHECK_EQ(tuttiCommInitRankConfig(&pair[r], 2, id, r, &config), tuttiSuccess);
    CHECK_EQ(tuttiGroupEnd(), tuttiSuccess);
    return !tt_test_failed();
}

/* Passes up to 2^19 turns, so that what follows comes at another moment each time. */
static void dawdle(uint64_t *random)
{
    const int turns = random_below(random, 1 << random_below(random, 20));
    for (volatile int i = 0; i < turns; i++) continue;
}

/* Rank 0 of two communicators, whose group waits for rank 1 of both. */
struct waiter {
    tuttiComm_t aborted, other;
    bool collective; /* what waits in the first one; else a message */
    tuttiResult_t result;
    int got;
    char text[256];
};

static void *wait_for_both(void *argument)
{
    struct waiter *waiter = argument;
    int never = 0, begun = 1;
    CHECK_EQ(tuttiGroupStart(), tuttiSuccess);
    CHECK_EQ(waiter->collective
                 ? tuttiAllReduce(&never, &never, 1, tuttiInt32, tuttiSum, waiter->aborted, NULL)
                 : tuttiRecv(&never, 1, tuttiInt32, 1, waiter->aborted, NULL),
             tuttiSuccess);
    CHECK_EQ(tuttiRecv(&waiter->got, 1, tuttiInt32, 1, waiter->other, NULL), tuttiSuccess);
    CHECK_EQ(tuttiSend(&begun, 1, tuttiInt32, 1, waiter->aborted, NULL), tuttiSuccess);
    waiter->result = tuttiGroupEnd();
    snprintf(waiter->text, sizeof waiter->text, "%s", tuttiGetLastError(NULL));
    return NULL;
}

/* A group waits over two communicators; the first one is aborted, then the other gets what it waits
 * for. */
static void abort_one_of_two(uint64_t *random, bool collective)
{
    tuttiComm_t aborted[2], other[2];
    int begun = 0, sent = 7;
    pthread_t thread;
    REQUIRE(make_pair(aborted) && make_pair(other));
    struct waiter waiter = {.aborted = aborted[0], .other = other[0], .collective = collective};
    REQUIRE(pthread_create(&thread, NULL, wait_for_both, &waiter) == 0);
    CHECK_EQ(tuttiRecv(&begun, 1, tuttiInt32, 0, aborted[1], NULL), tuttiSuccess);
    dawdle(random);
    CHECK_EQ(tuttiCommAbort(aborted[0]), tuttiSuccess);
    dawdle(random);
    CHECK_EQ(tuttiSend(&sent, 1, tuttiInt32, 0, other[1], NULL), tuttiSuccess);
    pthread_join(thread, NULL);
    CHECK_EQ(waiter.result, tuttiRemoteError);
    CHECK_MESSAGE(strstr(waiter.text, "abort"), "%s", waiter.text);
    CHECK_EQ(waiter.got, sent);
    CHECK_EQ(tuttiCommDestroy(aborted[1]), tuttiSuccess);
    for (int r = 0; r < 2; r++) CHECK_EQ(tuttiCommDestroy(other[r]), tuttiSuccess);
}

TEST(abort, leaves_a_group_waiting_for_another_communicator)
{
    uint64_t random = test_seed();
    for (int i = 0; i < ROUNDS && !tt_test_failed(); i++) abort_one_of_two(&random, false);
}

TEST(abort, leaves_a_group_whose_collective_it_ended_waiting_for_another_communicator)
{
    uint64_t random = test_seed();
    for (int i = 0; i < ROUNDS && !tt_test_failed(); i++) abort_one_of_two(&random, true);
}

/* Rank 0 of two communicators: what can be done at once of its group is done when the others may
 * abort. */
static void *send_then_wait_for_both(void *argument)
{
    struct waiter *waiter = argument;
    int never = 0, begun = 1;
    CHECK_EQ(tuttiGroupStart(), tuttiSuccess);
    CHECK_EQ(tuttiSend(&begun, 1, tuttiInt32, 1, waiter->aborted, NULL), tuttiSuccess);
    CHECK_EQ(tuttiRecv(&waiter->got, 1, tuttiInt32, 1, waiter->other, NULL), tuttiSuccess);
    CHECK_EQ(tuttiRecv(&never, 1, tuttiInt32, 1, waiter->aborted, NULL), tuttiSuccess);
    waiter->result = tuttiGroupEnd();
    return NULL;
}

/* The message of a group is there, and the rest of the group has not begun. */
static void abort_between_calls(tuttiComm_t other[2])
{
    tuttiComm_t aborted[2];
    int begun = 0, sent = 7;
    pthread_t thread;
    REQUIRE(make_pair(aborted));
    struct waiter waiter = {.aborted = aborted[0], .other = other[0]};
    REQUIRE(pthread_create(&thread, NULL, send_then_wait_for_both, &waiter) == 0);
    CHECK_EQ(tuttiRecv(&begun, 1, tuttiInt32, 0, aborted[1], NULL), tuttiSuccess);
    CHECK_EQ(tuttiCommAbort(aborted[0]), tuttiSuccess);
    CHECK_EQ(tuttiSend(&sent, 1, tuttiInt32, 0, other[1], NULL), tuttiSuccess);
    pthread_join(thread, NULL);
    CHECK_EQ(waiter.result, tuttiRemoteError);
    CHECK_EQ(waiter.got, sent);
    CHECK_EQ(tuttiCommDestroy(aborted[1]), tuttiSuccess);
}

TEST(abort, waits_for_a_group_of_which_one_call_is_over_and_the_next_has_not_begun)
{
    tuttiComm_t other[2];
    REQUIRE(make_pair(other));
    for (int i = 0; i < 2 * ROUNDS && !tt_test_failed(); i++) abort_between_calls(other);
    for (int r = 0; r < 2; r++) CHECK_EQ(tuttiCommDestroy(other[r]), tuttiSuccess);
}

/* A group that calls one communicator and makes rank 0 of two others. */
struct maker {
    tuttiComm_t called, made[2];
    tuttiUniqueId ids[2];
    tuttiResult_t result;
    _Atomic bool is_aborted;
};

static void *call_and_make(void *argument)
{
    struct maker *maker = argument;
    int data = 1;
    CHECK_EQ(tuttiGroupStart(), tuttiSuccess);
    CHECK_EQ(tuttiAllReduce(&data, &data, 1, tuttiInt32, tuttiSum, maker->called, NULL),
             tuttiSuccess);
    for (int i = 0; i < 2; i++)
        CHECK_EQ(tuttiCommInitRankConfig(&maker->made[i], 2, maker->ids[i], 0, &config),
                 tuttiSuccess);
    maker->result = tuttiGroupEnd();
    return NULL;
}

static void *abort_the_called(void *argument)
{
    struct maker *maker = argument;
    CHECK_EQ(tuttiCommAbort(maker->called), tuttiSuccess);
    maker->is_aborted = true;
    return NULL;
}

TEST(abort, waits_for_a_group_that_makes_communicators_before_it_calls_this_one)
{
    tuttiComm_t pair[2], others[2];
    struct maker maker = {.called = NULL};
    pthread_t group, aborts;
    REQUIRE(make_pair(pair));
    maker.called = pair[0];
    for (int i = 0; i < 2; i++) REQUIRE(tuttiGetUniqueId(&maker.ids[i]) == tuttiSuccess);
    REQUIRE(pthread_create(&group, NULL, call_and_make, &maker) == 0);
    /* once one of the two is made, the group ends and waits for the other one */
    CHECK_EQ(tuttiCommInitRankConfig(&others[0], 2, maker.ids[0], 1, &config), tuttiSuccess);
    REQUIRE(pthread_create(&aborts, NULL, abort_the_called, &maker) == 0);
    for (int i = 0; i < 50 && !maker.is_aborted; i++) usleep(1000);
    CHECK(!maker.is_aborted);
    CHECK_EQ(tuttiCommInitRankConfig(&others[1], 2, maker.ids[1], 1, &config), tuttiSuccess);
    pthread_join(group, NULL);
    pthread_join(aborts, NULL);
    CHECK_EQ(maker.result, tuttiRemoteError);
    CHECK_EQ(tuttiCommDestroy(pair[1]), tuttiSuccess);
    for (int i = 0; i < 2; i++) {
        CHECK_EQ(tuttiCommDestroy(maker.made[i]), tuttiSuccess);
        CHECK_EQ(tuttiCommDestroy(others[i]), tuttiSuccess);
    }
}

/* Several batches in two streams, of which some have not begun when the communicator is aborted. */
static void abort_with_batches(uint64_t *random, tuttiStream_t streams[2])
{
    enum { BATCHES = 6 };
    tuttiComm_t pair[2];
    int data[BATCHES] = {0};
    REQUIRE(make_pair(pair));
    for (int i = 0; i < BATCHES; i++)
        CHECK_EQ(tuttiAllReduce(&data[i], &data[i], 1, tuttiInt32, tuttiSum, pair[0],
                                streams[random_below(random, 2)]),
                 tuttiSuccess);
    dawdle(random);
    CHECK_EQ(tuttiCommAbort(pair[0]), tuttiSuccess);
    for (int s = 0; s < 2; s++) {
        const tuttiResult_t result = tuttiStreamSynchronize(streams[s]);
        CHECK(result == tuttiRemoteError ||
              result == tuttiSuccess); /* a stream may have got none */
    }
    CHECK_EQ(tuttiCommDestroy(pair[1]), tuttiSuccess);
}

TEST(abort, ends_the_batches_that_streams_have_not_begun)
{
    uint64_t random = test_seed();
    tuttiStream_t streams[2];
    for (int s = 0; s < 2; s++) REQUIRE(tuttiStreamCreate(&streams[s]) == tuttiSuccess);
    for (int i = 0; i < ROUNDS && !tt_test_failed(); i++) abort_with_batches(&random, streams);
    for (int s = 0; s < 2; s++) CHECK_EQ(tuttiStreamDestroy(streams[s]), tuttiSuccess);
}

/* Destroying waits for what the streams have to do. */
static void destroy_with_batches(uint64_t *random, tuttiStream_t streams[2])
{
    tuttiComm_t pair[2];
    int data[2] = {1, 2};
    REQUIRE(make_pair(pair));
    for (int r = 0; r < 2; r++)
        CHECK_EQ(tuttiAllReduce(&data[r], &data[r], 1, tuttiInt32, tuttiSum, pair[r], streams[r]),
                 tuttiSuccess);
    dawdle(random);
    for (int r = 0; r < 2; r++) CHECK_EQ(tuttiCommDestroy(pair[r]), tuttiSuccess);
    for (int r = 0; r < 2; r++) CHECK_EQ(data[r], 3);
    for (int r = 0; r < 2; r++) CHECK_EQ(tuttiStreamSynchronize(streams[r]), tuttiSuccess);
}

TEST(abort, destroying_instead_completes_what_streams_have_not_begun)
{
    uint64_t random = test_seed();
    tuttiStream_t streams[2];
    for (int s = 0; s < 2; s++) REQUIRE(tuttiStreamCreate(&streams[s]) == tuttiSuccess);
    for (int i = 0; i < ROUNDS && !tt_test_failed(); i++) destroy_with_batches(&random, streams);
    for (int s = 0; s < 2; s++) CHECK_EQ(tuttiStreamDestroy(streams[s]), tuttiSuccess);
}
