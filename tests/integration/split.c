/* Communicators from communicators, in any order of ending, and aborts while others wait. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "ranks.h"
#include "shim.h"

enum { NRANKS = 5 };

/* The sum over comm of each member's world rank, and comm's size. */
static void check_members(tuttiComm_t comm, int world_rank, int expected_sum, int expected_count,
                          int expected_rank)
{
    int sum = world_rank, count = 0, rank = -1;
    CHECK_EQ(tuttiAllReduce(&sum, &sum, 1, tuttiInt32, tuttiSum, comm, NULL), tuttiSuccess);
    CHECK_EQ(tuttiCommCount(comm, &count), tuttiSuccess);
    CHECK_EQ(tuttiCommUserRank(comm, &rank), tuttiSuccess);
    CHECK_EQ(sum, expected_sum);
    CHECK_EQ(count, expected_count);
    CHECK_EQ(rank, expected_rank);
}

static void split_by_color(int rank, tuttiComm_t comm, void *arg)
{
    (void)arg;
    tuttiComm_t half, reversed, odd;
    /* Even ranks 0, 2, 4 and odd ranks 1, 3. */
    REQUIRE(tuttiCommSplit(comm, rank % 2, 0, &half, NULL) == tuttiSuccess);
    check_members(half, rank, rank % 2 ? 4 : 6, rank % 2 ? 2 : 3, rank / 2);
    /* All in one, the other way round. */
    REQUIRE(tuttiCommSplit(comm, 7, -rank, &reversed, NULL) == tuttiSuccess);
    check_members(reversed, rank, 10, NRANKS, NRANKS - 1 - rank);
    /* A split of a split, in which rank 4 takes no part. */
    int half_rank;
    CHECK_EQ(tuttiCommUserRank(half, &half_rank), tuttiSuccess);
    const int color = rank == 4 ? TUTTI_SPLIT_NOCOLOR : 0;
    REQUIRE(tuttiCommSplit(half, color, half_rank, &odd, NULL) == tuttiSuccess);
    if (rank == 4)
        CHECK(odd == NULL);
    else
        check_members(odd, rank, rank % 2 ? 4 : 2, 2, half_rank);
    /* All communicators work still, and end in different orders on different ranks. */
    check_members(comm, rank, 10, NRANKS, rank);
    check_members(half, rank, rank % 2 ? 4 : 6, rank % 2 ? 2 : 3, half_rank);
    tuttiComm_t ends[3] = {half, reversed, odd};
    for (int i = 0; i < 3; i++) CHECK_EQ(tuttiCommDestroy(ends[(i + rank) % 3]), tuttiSuccess);
}

TEST(split, colors_and_keys_make_the_groups)
{
    as_threads(NRANKS, NULL, split_by_color, NULL);
}

static void make_child(int rank, tuttiComm_t comm, void *arg)
{
    tuttiComm_t *children = arg;
    CHECK_EQ(tuttiCommSplit(comm, 0, -rank, &children[rank], NULL), tuttiSuccess);
}

TEST(split, a_child_outlives_its_parent)
{
    tuttiComm_t children[3] = {NULL};
    int data[3] = {1, 2, 3};
    as_threads(3, NULL, make_child, children); /* the parents have ended when this returns */
    REQUIRE(tuttiGroupStart() == tuttiSuccess);
    for (int r = 0; r < 3; r++)
        CHECK_EQ(tuttiBroadcast(&data[r], &data[r], 1, tuttiInt32, 0, children[r], NULL),
                 tuttiSuccess);
    REQUIRE(tuttiGroupEnd() == tuttiSuccess);
    for (int r = 0; r < 3; r++) CHECK_EQ(data[r], 3); /* rank 2 is the child's rank 0 */
    for (int r = 2; r >= 0; r--) CHECK_EQ(tuttiCommDestroy(children[r]), tuttiSuccess);
}

static void finalize(int rank, tuttiComm_t comm, void *arg)
{
    (void)arg;
    int data = rank;
    CHECK_EQ(tuttiAllReduce(&data, &data, 1, tuttiInt32, tuttiSum, comm, NULL), tuttiSuccess);
    CHECK_EQ(tuttiCommFinalize(comm), tuttiSuccess);
    CHECK_EQ(tuttiAllReduce(&data, &data, 1, tuttiInt32, tuttiSum, comm, NULL), tuttiInvalidUsage);
}

TEST(split, only_destroy_may_follow_finalize)
{
    as_threads(NRANKS, NULL, finalize, NULL);
}

struct abortable {
    tuttiComm_t comm;
    pthread_barrier_t *ready;
    int rank, aborter;
};

static void *wait_for_abort(void *argument)
{
    const struct abortable *a = argument;
    int data = a->rank;
    pthread_barrier_wait(a->ready);
    if (a->rank == a->aborter) {
        CHECK_EQ(tuttiCommAbort(a->comm), tuttiSuccess);
        return NULL;
    }
    char name[16];
    snprintf(name, sizeof name, "rank %d", a->aborter);
    const tuttiResult_t result =
        tuttiAllReduce(&data, &data, 1, tuttiInt32, tuttiSum, a->comm, NULL);
    const char *text = tuttiGetLastError(a->comm);
    CHECK_MESSAGE(result == tuttiRemoteError, "rank %d got %s: %s", a->rank,
                  tuttiGetErrorString(result), text);
    CHECK_MESSAGE(strstr(text, name), "rank %d's error names not %s: %s", a->rank, name, text);
    CHECK_EQ(tuttiCommDestroy(a->comm), tuttiSuccess);
    return NULL;
}

TEST(split, an_abort_frees_those_who_wait)
{
    enum { N = 4 };
    const tuttiConfig_t config = CONFIG_WITHIN(20000, 20000);
    for (int aborter = 0; aborter < N; aborter += 3) {
        tuttiComm_t comms[N];
        tuttiUniqueId id;
        pthread_t threads[N];
        struct abortable arguments[N];
        pthread_barrier_t ready;
        pthread_barrier_init(&ready, NULL, N);
        REQUIRE(tuttiGetUniqueId(&id) == tuttiSuccess);
        REQUIRE(tuttiGroupStart() == tuttiSuccess);
        for (int r = 0; r < N; r++)
            CHECK_EQ(tuttiCommInitRankConfig(&comms[r], N, id, r, &config), tuttiSuccess);
        REQUIRE(tuttiGroupEnd() == tuttiSuccess);
        for (int r = 0; r < N; r++) {
            arguments[r] = (struct abortable){comms[r], &ready, r, aborter};
            REQUIRE(pthread_create(&threads[r], NULL, wait_for_abort, &arguments[r]) == 0);
        }
        for (int r = 0; r < N; r++) pthread_join(threads[r], NULL);
        pthread_barrier_destroy(&ready);
    }
}

/* The rank's collective waits on a stream for a rank that never comes. */
TEST(split, an_abort_ends_what_this_rank_has_in_flight)
{
    tuttiComm_t comms[2];
    tuttiStream_t stream;
    int data = 0;
    REQUIRE(tuttiCommInitAll(comms, 2, NULL) == tuttiSuccess);
    REQUIRE(tuttiStreamCreate(&stream) == tuttiSuccess);
    CHECK_EQ(tuttiAllReduce(&data, &data, 1, tuttiInt32, tuttiSum, comms[0], stream), tuttiSuccess);
    CHECK_EQ(tuttiCommAbort(comms[0]), tuttiSuccess);
    CHECK_EQ(tuttiStreamSynchronize(stream), tuttiRemoteError);
    CHECK_EQ(tuttiStreamDestroy(stream), tuttiSuccess);
    CHECK_EQ(tuttiBarrier(comms[1], NULL), tuttiRemoteError);
    CHECK_EQ(tuttiCommDestroy(comms[1]), tuttiSuccess);
}
