/* Splits and ends of communicators inside a group: they run with the group. */
#include <pthread.h>
#include <string.h>
#include <sys/resource.h>

#include "shim.h"
#include "tutti.h"

enum { N = 4 };

static void init_all(tuttiComm_t comms[N])
{
    REQUIRE(tuttiCommInitAll(comms, N, NULL) == tuttiSuccess);
}

static void end_all(const tuttiComm_t *comms, int n)
{
    for (int i = 0; i < n; i++) CHECK_EQ(tuttiCommDestroy(comms[i]), tuttiSuccess);
}

static void end_group(void)
{
    CHECK_MESSAGE(tuttiGroupEnd() == tuttiSuccess, "%s", tuttiGetLastError(NULL));
}

static bool is_gone(tuttiComm_t comm)
{
    int count;
    return tuttiCommCount(comm, &count) == tuttiInvalidArgument;
}

/* All-reduces 1 on each; there are `nranks` ranks in each one's communicator. */
static void check_work(const tuttiComm_t *comms, int n, int nranks)
{
    int data[2 * N];
    CHECK_EQ(tuttiGroupStart(), tuttiSuccess);
    for (int i = 0; i < n; i++) {
        data[i] = 1;
        CHECK_EQ(tuttiAllReduce(&data[i], &data[i], 1, tuttiInt32, tuttiSum, comms[i], NULL),
                 tuttiSuccess);
    }
    end_group();
    for (int i = 0; i < n; i++) CHECK_EQ(data[i], nranks);
}

TEST(group_ends, one_thread_splits_several_ranks)
{
    tuttiComm_t comms[N], parts[N];
    init_all(comms);
    CHECK_EQ(tuttiGroupStart(), tuttiSuccess);
    for (int r = 0; r < N; r++)
        CHECK_EQ(tuttiCommSplit(comms[r], r % 2, -r, &parts[r], NULL), tuttiSuccess);
    end_group();
    for (int r = 0; r < N; r++) {
        int rank = -1;
        CHECK_EQ(tuttiCommUserRank(parts[r], &rank), tuttiSuccess);
        CHECK_EQ(rank, r < 2); /* the greater rank has the lesser key */
    }
    check_work(parts, N, 2);
    check_work(comms, N, N);
    end_all(parts, N);
    end_all(comms, N);
}

TEST(group_ends, splits_of_one_parent_and_inits_go_together)
{
    tuttiComm_t comms[N], halves[N], others[N], made[2];
    tuttiUniqueId id;
    init_all(comms);
    REQUIRE(tuttiGetUniqueId(&id) == tuttiSuccess);
    CHECK_EQ(tuttiGroupStart(), tuttiSuccess);
    for (int r = 0; r < N; r++)
        CHECK_EQ(tuttiCommSplit(comms[r], r / 2, 0, &halves[r], NULL), tuttiSuccess);
    for (int r = 0; r < 2; r++) CHECK_EQ(tuttiCommInitRank(&made[r], 2, id, r), tuttiSuccess);
    for (int r = 0; r < N; r++)
        CHECK_EQ(tuttiCommSplit(comms[r], r ? 7 : TUTTI_SPLIT_NOCOLOR, 0, &others[r], NULL),
                 tuttiSuccess);
    end_group();
    CHECK(!others[0]);
    check_work(halves, N, 2);
    check_work(others + 1, N - 1, N - 1);
    check_work(made, 2, 2);
    end_all(halves, N);
    end_all(others + 1, N - 1);
    end_all(made, 2);
    end_all(comms, N);
}

/* A call of the group fails: nothing of it is made. */
TEST(group_ends, a_split_with_a_wrong_color_fails_the_group)
{
    tuttiComm_t comms[N], parts[N];
    init_all(comms);
    CHECK_EQ(tuttiGroupStart(), tuttiSuccess);
    for (int r = 0; r < N; r++)
        CHECK_EQ(tuttiCommSplit(comms[r], r == 2 ? -9 : 0, 0, &parts[r], NULL),
                 r == 2 ? tuttiInvalidArgument : tuttiSuccess);
    CHECK_EQ(tuttiGroupEnd(), tuttiInvalidArgument);
    CHECK_MESSAGE(strstr(tuttiGetLastError(NULL), "color -9"), "%s", tuttiGetLastError(NULL));
    for (int r = 0; r < N; r++) CHECK(!parts[r]);
    check_work(comms, N, N);
    end_all(comms, N);
}

TEST(group_ends, communicators_are_finalized_and_destroyed_with_the_group)
{
    tuttiComm_t comms[N];
    int data[N];
    init_all(comms);
    CHECK_EQ(tuttiGroupStart(), tuttiSuccess);
    for (int r = 0; r < N; r++) {
        data[r] = r;
        CHECK_EQ(tuttiAllReduce(&data[r], &data[r], 1, tuttiInt32, tuttiSum, comms[r], NULL),
                 tuttiSuccess);
        CHECK_EQ(tuttiCommFinalize(comms[r]), tuttiSuccess);
        CHECK_EQ(tuttiCommDestroy(comms[r]), tuttiSuccess);
        CHECK(!is_gone(comms[r]));
    }
    end_group();
    for (int r = 0; r < N; r++) {
        CHECK_EQ(data[r], N * (N - 1) / 2);
        CHECK(is_gone(comms[r]));
    }
}

/* As ncclCommFinalize: a group is a matter of one thread, and waits for no other rank. */
TEST(group_ends, a_local_finalize_waits_for_no_other_rank)
{
    tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
    tuttiComm_t comms[N], parts[N];
    init_all(comms);
    config.timeoutMs = 5000;
    CHECK_EQ(tuttiGroupStart(), tuttiSuccess);
    for (int r = 0; r < N; r++)
        CHECK_EQ(tuttiCommSplit(comms[r], 0, r, &parts[r], &config), tuttiSuccess);
    end_group();
    CHECK_EQ(tuttiGroupStart(), tuttiSuccess);
    CHECK_EQ(tuttiCommFinalizeLocal(parts[1]), tuttiSuccess);
    end_group();
    CHECK_EQ(tuttiBarrier(parts[1], NULL), tuttiInvalidUsage);
    end_all(parts, N);
    end_all(comms, N);
}

TEST(group_ends, a_communicator_is_split_finalized_and_destroyed_in_one_group)
{
    tuttiComm_t comms[N], parts[N];
    init_all(comms);
    CHECK_EQ(tuttiGroupStart(), tuttiSuccess);
    for (int r = 0; r < N; r++) {
        CHECK_EQ(tuttiCommSplit(comms[r], r % 2, r, &parts[r], NULL), tuttiSuccess);
        CHECK_EQ(tuttiCommFinalizeLocal(comms[r]), tuttiSuccess);
        CHECK_EQ(tuttiCommDestroy(comms[r]), tuttiSuccess);
    }
    end_group();
    for (int r = 0; r < N; r++) CHECK(is_gone(comms[r]));
    check_work(parts, N, N / 2);
    end_all(parts, N);
}

static void end_in_a_group_that_fails(tuttiComm_t comms[N], tuttiResult_t (*end)(tuttiComm_t))
{
    init_all(comms);
    CHECK_EQ(tuttiGroupStart(), tuttiSuccess);
    for (int r = 0; r < N; r++) CHECK_EQ(end(comms[r]), tuttiSuccess);
    CHECK_EQ(tuttiBroadcast(NULL, NULL, 1, tuttiInt32, N + 3, comms[0], NULL),
             tuttiInvalidArgument);
    CHECK_EQ(tuttiGroupEnd(), tuttiInvalidArgument);
    CHECK_MESSAGE(strstr(tuttiGetLastError(NULL), "tuttiBroadcast"), "%s", tuttiGetLastError(NULL));
}

TEST(group_ends, a_group_that_fails_finalizes_nothing)
{
    tuttiResult_t (*const ends[])(tuttiComm_t) = {tuttiCommFinalizeLocal, tuttiCommFinalize};
    tuttiComm_t comms[N];
    for (int i = 0; i < 2; i++) {
        end_in_a_group_that_fails(comms, ends[i]);
        check_work(comms, N, N);
        end_all(comms, N);
    }
}

TEST(group_ends, communicators_are_aborted_with_the_group)
{
    tuttiComm_t comms[N];
    tuttiStream_t streams[N];
    int data[N];
    init_all(comms);
    CHECK_EQ(tuttiGroupStart(), tuttiSuccess);
    for (int r = 0; r < N; r++) {
        data[r] = 1;
        REQUIRE(tuttiStreamCreate(&streams[r]) == tuttiSuccess);
        if (r) /* rank 0 never comes */
            CHECK_EQ(
                tuttiAllReduce(&data[r], &data[r], 1, tuttiInt32, tuttiSum, comms[r], streams[r]),
                tuttiSuccess);
        CHECK_EQ(tuttiCommAbort(comms[r]), tuttiSuccess);
    }
    end_group();
    for (int r = 0; r < N; r++) {
        CHECK(is_gone(comms[r]));
        CHECK_EQ(tuttiStreamSynchronize(streams[r]), r ? tuttiRemoteError : tuttiSuccess);
        CHECK_EQ(tuttiStreamDestroy(streams[r]), tuttiSuccess);
    }
}

TEST(group_ends, a_group_that_fails_ends_its_communicators_all_the_same)
{
    tuttiComm_t comms[N];
    end_in_a_group_that_fails(comms, tuttiCommDestroy);
    for (int r = 0; r < N; r++) CHECK(is_gone(comms[r]));
}

TEST(group_ends, a_communicator_that_is_destroyed_twice_in_a_group_is_an_error)
{
    tuttiComm_t comms[N];
    init_all(comms);
    CHECK_EQ(tuttiGroupStart(), tuttiSuccess);
    for (int r = 0; r < N; r++) CHECK_EQ(tuttiCommDestroy(comms[r]), tuttiSuccess);
    CHECK_EQ(tuttiCommDestroy(comms[1]), tuttiSuccess);
    CHECK_EQ(tuttiGroupEnd(), tuttiInvalidArgument);
    for (int r = 0; r < N; r++) CHECK(is_gone(comms[r]));
}

/* ---- Ended by another thread, before the group ends ------------------------------------------ */

static void *destroy_it(void *argument)
{
    CHECK_EQ(tuttiCommDestroy(argument), tuttiSuccess);
    return NULL;
}

static void *abort_it(void *argument)
{
    CHECK_EQ(tuttiCommAbort(argument), tuttiSuccess);
    return NULL;
}

static void end_in_a_thread(tuttiComm_t comm, void *(*end)(void *))
{
    pthread_t thread;
    REQUIRE(pthread_create(&thread, NULL, end, comm) == 0);
    pthread_join(thread, NULL);
}

/* The group holds calls of all kinds on two ranks; then one of them goes. */
static void end_before_the_group(void *(*end)(void *))
{
    const size_t counts[N] = {1, 1, 1, 1};
    tuttiComm_t comms[N];
    int data[2][N] = {{1}, {1}};
    init_all(comms);
    CHECK_EQ(tuttiGroupStart(), tuttiSuccess);
    for (int r = 0; r < 2; r++) {
        CHECK_EQ(tuttiAllReduce(data[r], data[r], 1, tuttiInt32, tuttiSum, comms[r], NULL),
                 tuttiSuccess);
        CHECK_EQ(tuttiSend(data[r], 1, tuttiInt32, 3, comms[r], NULL), tuttiSuccess);
        CHECK_EQ(tuttiAllGatherV(&data[r][r], data[r], counts, NULL, tuttiInt32, comms[r], NULL),
                 tuttiSuccess);
    }
    end_in_a_thread(comms[0], end);
    CHECK_EQ(tuttiGroupEnd(), tuttiInvalidArgument);
    CHECK_MESSAGE(strstr(tuttiGetLastError(NULL), "ended before the group") != NULL, "%s",
                  tuttiGetLastError(NULL));
    end_all(comms + 1, N - 1);
}

TEST(group_ends, calls_of_a_communicator_that_another_thread_has_destroyed_are_an_error)
{
    end_before_the_group(destroy_it);
}

TEST(group_ends, calls_of_a_communicator_that_another_thread_has_aborted_are_an_error)
{
    end_before_the_group(abort_it);
}

TEST(group_ends, a_split_of_a_communicator_that_another_thread_has_destroyed_is_an_error)
{
    tuttiComm_t comm, part;
    REQUIRE(tuttiCommInitAll(&comm, 1, NULL) == tuttiSuccess);
    CHECK_EQ(tuttiGroupStart(), tuttiSuccess);
    CHECK_EQ(tuttiCommSplit(comm, 0, 0, &part, NULL), tuttiSuccess);
    end_in_a_thread(comm, destroy_it);
    CHECK_EQ(tuttiGroupEnd(), tuttiInvalidArgument);
}

/* What one rank of two does and gets. result: for which it refuses; 0: it splits. */
struct refusal {
    tuttiComm_t comm;
    int color;
    tuttiResult_t result, expected;
    const char *text;
};

static void *split_or_refuse(void *argument)
{
    const struct refusal *self = argument;
    tuttiComm_t part = NULL;
    const tuttiResult_t result = self->result
                                     ? tuttiCommSplitRefuse(self->comm, self->result, self->text)
                                     : tuttiCommSplit(self->comm, self->color, 0, &part, NULL);
    CHECK_EQ(result, self->expected);
    CHECK_MESSAGE(strstr(tuttiGetLastError(NULL), self->text) != NULL, "%s",
                  tuttiGetLastError(NULL));
    CHECK(!part);
    return NULL;
}

static void split_both(struct refusal rank0, struct refusal rank1)
{
    pthread_t thread;
    REQUIRE(pthread_create(&thread, NULL, split_or_refuse, &rank0) == 0);
    (void)split_or_refuse(&rank1);
    pthread_join(thread, NULL);
}

TEST(group_ends, the_other_ranks_get_the_text_of_a_split_that_one_refuses)
{
    const tuttiResult_t no = tuttiInvalidArgument, too_late = tuttiTimeout;
    static const char color[] = "rank 1 could not take part in the split: color -3: expected 0",
                      late[] = "rank 1 could not take part in the split: over: too late";
    tuttiComm_t comms[2];
    REQUIRE(tuttiCommInitAll(comms, 2, NULL) == tuttiSuccess);
    split_both((struct refusal){comms[0], 0, 0, no, color},
               (struct refusal){comms[1], -3, 0, no, "tuttiCommSplit: color -3: expected 0"});
    split_both((struct refusal){comms[0], 0, 0, too_late, late},
               (struct refusal){comms[1], 0, too_late, too_late, "over: too late"});
    split_both((struct refusal){comms[0], 0, too_late, too_late, "over: too late"},
               (struct refusal){comms[1], 0, no, no, "another reason"});
    check_work(comms, 2, 2);
    CHECK_EQ(tuttiGroupStart(), tuttiSuccess);
    CHECK_EQ(tuttiCommSplitRefuse(comms[0], tuttiSystemError, "over: no room"), tuttiSystemError);
    CHECK_EQ(tuttiGroupEnd(), tuttiSystemError);
    CHECK_EQ(strcmp(tuttiGetLastError(NULL), "over: no room"), 0);
    end_all(comms, 2);
}

/* ---- What fails before it is tried ----------------------------------------------------------- */

TEST(group_ends, more_inits_than_the_process_can_have_threads_are_refused_at_once)
{
    enum { MOST = 20, TOO_MANY = 33 };
    struct rlimit before, few;
    tuttiComm_t comms[TOO_MANY];
    tuttiUniqueId id;
    REQUIRE(getrlimit(RLIMIT_NPROC, &before) == 0);
    few = before;
    few.rlim_cur = MOST;
    REQUIRE(tuttiGetUniqueId(&id) == tuttiSuccess);
    REQUIRE(setrlimit(RLIMIT_NPROC, &few) == 0);
    const tuttiResult_t all = tuttiCommInitAll(comms, TOO_MANY, NULL);
    CHECK(strstr(tuttiGetLastError(NULL), "at most 20 threads (ulimit -u)") != NULL);
    CHECK_EQ(tuttiGroupStart(), tuttiSuccess);
    tuttiResult_t one = tuttiSuccess;
    for (int r = 0; r < TOO_MANY && !one; r++) one = tuttiCommInitRank(&comms[r], TOO_MANY, id, r);
    CHECK_EQ(tuttiGroupEnd(), tuttiInvalidUsage);
    CHECK(strstr(tuttiGetLastError(NULL), "at most 20 threads (ulimit -u)") != NULL);
    CHECK_EQ(setrlimit(RLIMIT_NPROC, &before), 0);
    CHECK_EQ(all, tuttiInvalidUsage);
    CHECK_EQ(one, tuttiInvalidUsage);
    /* An id that nobody uses keeps a thread. */
    CHECK_EQ(tuttiCommInitRank(&comms[0], 1, id, 0), tuttiSuccess);
    CHECK_EQ(tuttiCommDestroy(comms[0]), tuttiSuccess);
}

TEST(group_ends, a_group_that_was_failed_issues_nothing)
{
    tuttiComm_t comm;
    int value = 7, out = 0;
    REQUIRE(tuttiCommInitAll(&comm, 1, NULL) == tuttiSuccess);
    CHECK_EQ(tuttiGroupFail(tuttiRemoteError, NULL), tuttiRemoteError); /* none is open */
    CHECK_EQ(tuttiGroupStart(), tuttiSuccess);
    CHECK_EQ(tuttiAllReduce(&value, &out, 1, tuttiInt32, tuttiSum, comm, NULL), tuttiSuccess);
    CHECK_EQ(tuttiGroupFail(tuttiSuccess, "none"), tuttiSuccess);
    CHECK_EQ(tuttiGroupFail(tuttiRefuse(tuttiSystemError, "50% refused"), "100% refused"),
             tuttiSystemError);
    CHECK_EQ(tuttiGroupFail(tuttiRefuse(tuttiTimeout, "too late"), NULL), tuttiTimeout);
    CHECK_EQ(tuttiGroupEnd(), tuttiSystemError);
    CHECK_EQ(strcmp(tuttiGetLastError(NULL), "100% refused"), 0);
    CHECK_EQ(out, 0);
    CHECK_EQ(tuttiCommDestroy(comm), tuttiSuccess);
}

/* Sends `nsends` and receives `nreceives` messages of a rank to itself in one group. */
static tuttiResult_t to_itself(tuttiComm_t comm, int nsends, int nreceives)
{
    static int sent[8], received[8];
    CHECK_EQ(tuttiGroupStart(), tuttiSuccess);
    for (int i = 0; i < nreceives; i++)
        CHECK_EQ(tuttiRecv(&received[i], 1, tuttiInt32, 0, comm, NULL), tuttiSuccess);
    for (int i = 0; i < nsends; i++) {
        sent[i] = i + 1;
        received[i] = 0;
        CHECK_EQ(tuttiSend(&sent[i], 1, tuttiInt32, 0, comm, NULL), tuttiSuccess);
    }
    const tuttiResult_t result = tuttiGroupEnd();
    for (int i = 0; !result && i < nreceives; i++) CHECK_EQ(received[i], i + 1);
    return result;
}

static bool says(const char *part)
{
    return strstr(tuttiGetLastError(NULL), part) != NULL;
}

TEST(group_ends, a_message_to_oneself_without_its_partner_is_refused)
{
    tuttiComm_t comms[2];
    int value = 1, other = 0;
    for (int i = 0; i < 2; i++) REQUIRE(tuttiCommInitAll(&comms[i], 1, NULL) == tuttiSuccess);
    CHECK_EQ(to_itself(comms[0], 1, 0), tuttiInvalidUsage);
    CHECK(says("sends 1 messages to itself in the group and receives 0"));
    CHECK_EQ(to_itself(comms[0], 2, 5), tuttiInvalidUsage);
    CHECK(says("sends 2 messages to itself in the group and receives 5"));
    CHECK_EQ(to_itself(comms[0], 8, 8), tuttiSuccess);
    CHECK_EQ(tuttiGroupStart(),
             tuttiSuccess); /* of two communicators, which have no partner each */
    CHECK_EQ(tuttiSend(&value, 1, tuttiInt32, 0, comms[0], NULL), tuttiSuccess);
    CHECK_EQ(tuttiRecv(&other, 1, tuttiInt32, 0, comms[1], NULL), tuttiSuccess);
    CHECK_EQ(tuttiGroupEnd(), tuttiInvalidUsage);
    for (int i = 0; i < 2; i++) {
        CHECK_EQ(to_itself(comms[i], 1, 1),
                 tuttiSuccess); /* the refused calls have left no message */
        CHECK_EQ(tuttiCommDestroy(comms[i]), tuttiSuccess);
    }
}
