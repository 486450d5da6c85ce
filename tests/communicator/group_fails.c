/* Groups that fail on one rank: no other rank waits for its splits, nor for calls beside an init
 * that failed. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "shim.h"
#include "tutti.h"

enum { N = 4, LATE_MS = 60000 }; /* far longer than a rank waits that is told */

static bool says(const char *part)
{
    return strstr(tuttiGetLastError(NULL), part) != NULL;
}

static void make(tuttiComm_t *comms, int n)
{
    REQUIRE(tuttiCommInitAll(comms, n, NULL) == tuttiSuccess);
    for (int r = 0; r < n; r++) CHECK_EQ(tuttiCommSetTimeout(comms[r], LATE_MS), tuttiSuccess);
}

static void end_all(const tuttiComm_t *comms, int n)
{
    for (int i = 0; i < n; i++) CHECK_EQ(tuttiCommDestroy(comms[i]), tuttiSuccess);
}

static void start_thread(pthread_t *thread, void *(*body)(void *), void *argument)
{
    REQUIRE(pthread_create(thread, NULL, body, argument) == 0);
}

static void check_fails(tuttiComm_t comm, tuttiResult_t expected, const char *rank,
                        const char *reason)
{
    int value = 1;
    CHECK_EQ(tuttiAllReduce(&value, &value, 1, tuttiInt32, tuttiSum, comm, NULL), expected);
    CHECK_MESSAGE(says(rank) && says(reason), "%s", tuttiGetLastError(NULL));
}

static void check_works(const tuttiComm_t *comms, int n)
{
    int values[N] = {1, 1, 1, 1};
    CHECK_EQ(tuttiGroupStart(), tuttiSuccess);
    for (int i = 0; i < n; i++)
        CHECK_EQ(tuttiAllReduce(&values[i], &values[i], 1, tuttiInt32, tuttiSum, comms[i], NULL),
                 tuttiSuccess);
    CHECK_EQ(tuttiGroupEnd(), tuttiSuccess);
    for (int i = 0; i < n; i++) CHECK_EQ(values[i], n);
}

/* ---- Splits that one rank refuses ------------------------------------------------------------ */

struct refusal {
    const char *name, *text;
    void (*issue)(tuttiComm_t comm, tuttiComm_t *part); /* a split of comm, and a failure */
};

static void refuse_color(tuttiComm_t comm, tuttiComm_t *part)
{
    CHECK_EQ(tuttiCommSplit(comm, -9, 0, part, NULL), tuttiInvalidArgument);
}

static void refuse_config(tuttiComm_t comm, tuttiComm_t *part)
{
    const tuttiConfig_t config = {.size = 1};
    CHECK_EQ(tuttiCommSplit(comm, 0, 0, part, &config), tuttiInvalidArgument);
}

static void refuse_place(tuttiComm_t comm, tuttiComm_t *part)
{
    *part = NULL;
    CHECK_EQ(tuttiCommSplit(comm, 0, 0, NULL, NULL), tuttiInvalidArgument);
}

static void refuse_above(tuttiComm_t comm, tuttiComm_t *part)
{
    *part = NULL;
    CHECK_EQ(tuttiCommSplitRefuse(comm, tuttiInvalidArgument, "refused above"),
             tuttiInvalidArgument);
}

static void refuse_other_call(tuttiComm_t comm, tuttiComm_t *part)
{
    CHECK_EQ(tuttiCommSplit(comm, 0, 0, part, NULL), tuttiSuccess);
    CHECK_EQ(tuttiBroadcast(NULL, NULL, 1, tuttiInt32, N + 3, comm, NULL), tuttiInvalidArgument);
}

static void refuse_init(tuttiComm_t comm, tuttiComm_t *part)
{
    tuttiUniqueId id;
    tuttiComm_t made;
    REQUIRE(tuttiGetUniqueId(&id) == tuttiSuccess);
    CHECK_EQ(tuttiCommSplit(comm, 0, 0, part, NULL), tuttiSuccess);
    CHECK_EQ(tuttiCommInitRank(&made, -3, id, 0), tuttiInvalidArgument);
    CHECK_EQ(tuttiDropUniqueId(&id), tuttiSuccess);
}

static void refuse_group(tuttiComm_t comm, tuttiComm_t *part)
{
    CHECK_EQ(tuttiCommSplit(comm, 0, 0, part, NULL), tuttiSuccess);
    CHECK_EQ(tuttiGroupFail(tuttiInvalidArgument, "a library refuses"), tuttiInvalidArgument);
}

static const struct refusal refusals[] = {
    {"color", "color -9", refuse_color},          {"config", "config", refuse_config},
    {"place", "newcomm is NULL", refuse_place},   {"above", "refused above", refuse_above},
    {"other call", "root 7", refuse_other_call},  {"init", "nranks -3", refuse_init},
    {"group", "a library refuses", refuse_group},
};
enum { NREFUSALS = sizeof refusals / sizeof refusals[0] };

/* The other ranks, whose split waits for that of rank 1. */
struct waiter {
    tuttiComm_t comm;
    bool in_group;
    tuttiResult_t result;
    char text[512];
};

static void *split_well(void *argument)
{
    struct waiter *self = argument;
    tuttiComm_t part = NULL;
    int value = 1;
    if (self->in_group) {
        CHECK_EQ(tuttiGroupStart(), tuttiSuccess);
        /* Errors where rank 1 has failed the parent already; the group's end has the first. */
        (void)tuttiAllReduce(&value, &value, 1, tuttiInt32, tuttiSum, self->comm, NULL);
        (void)tuttiCommSplit(self->comm, 0, 0, &part, NULL);
        self->result = tuttiGroupEnd();
    } else {
        self->result = tuttiCommSplit(self->comm, 0, 0, &part, NULL);
    }
    CHECK(!part);
    snprintf(self->text, sizeof self->text, "%s", tuttiGetLastError(NULL));
    return NULL;
}

static void check_waiter(const struct waiter *waiter, tuttiResult_t expected, const char *rank,
                         const char *reason)
{
    CHECK_EQ(waiter->result, expected);
    CHECK_MESSAGE(strstr(waiter->text, rank) && strstr(waiter->text, reason), "%s", waiter->text);
    check_fails(waiter->comm, expected, rank, reason);
}

static void refuse(const struct refusal *refusal, tuttiComm_t comm)
{
    tuttiComm_t part = NULL;
    CHECK_EQ(tuttiGroupStart(), tuttiSuccess);
    refusal->issue(comm, &part);
    CHECK_EQ(tuttiGroupEnd(), tuttiInvalidArgument);
    CHECK_MESSAGE(says(refusal->text) && !says("does not take part"), "%s: %s", refusal->name,
                  tuttiGetLastError(NULL));
    CHECK(!part);
}

TEST(group_fails, a_split_of_a_group_that_one_thread_refuses_fails_on_the_other)
{
    for (int i = 0; i < 2 * NREFUSALS; i++) {
        const struct refusal *refusal = &refusals[i / 2];
        tuttiComm_t comms[2];
        pthread_t thread;
        make(comms, 2);
        struct waiter other = {.comm = comms[0], .in_group = i % 2};
        start_thread(&thread, split_well, &other);
        refuse(refusal, comms[1]);
        pthread_join(thread, NULL);
        check_waiter(&other, tuttiInvalidArgument, "rank 1 (", refusal->text);
        check_fails(comms[1], tuttiInvalidArgument, "rank 1 (", refusal->text);
        end_all(comms, 2);
    }
}

/* The ranks from 1 on are this thread's, and its loop ends at the error of rank 2: rank 3 does not
 * come. */
TEST(group_fails, a_loop_over_ranks_that_ends_at_a_refused_split_waits_for_none_of_its_own)
{
    for (int first = 0; first < 2; first++) {
        tuttiComm_t comms[N], parts[N] = {NULL};
        pthread_t thread;
        make(comms, N);
        struct waiter other = {.comm = comms[0]};
        if (first) start_thread(&thread, split_well, &other);
        CHECK_EQ(tuttiGroupStart(), tuttiSuccess);
        for (int r = first; r < N; r++)
            if (tuttiCommSplit(comms[r], r == 2 ? -9 : 0, 0, &parts[r], NULL)) break;
        CHECK_EQ(tuttiGroupEnd(), tuttiInvalidArgument);
        CHECK_MESSAGE(says("color -9"), "%s", tuttiGetLastError(NULL));
        if (first) {
            pthread_join(thread, NULL);
            check_waiter(&other, tuttiInvalidArgument, "rank 2 (", "color -9");
        }
        for (int r = first; r < N; r++) {
            CHECK(!parts[r]);
            check_fails(comms[r], tuttiInvalidArgument, "rank 2 (", "color -9");
        }
        end_all(comms, N);
    }
}

/* No other thread waits: the ranks go on. */
TEST(group_fails, splits_of_all_ranks_in_one_group_that_fails_leave_the_parents_alone)
{
    tuttiComm_t comms[N], others[N], parts[2 * N];
    make(comms, N);
    make(others, N);
    CHECK_EQ(tuttiGroupStart(), tuttiSuccess);
    for (int r = 0; r < N; r++) {
        CHECK_EQ(tuttiCommSplit(comms[r], 0, 0, &parts[r], NULL), tuttiSuccess);
        CHECK_EQ(tuttiCommSplit(others[r], 0, 0, &parts[N + r], NULL), tuttiSuccess);
        CHECK_EQ(tuttiCommSplit(comms[r], r == 3 ? -9 : 0, 0, &parts[r], NULL),
                 r == 3 ? tuttiInvalidArgument : tuttiSuccess);
    }
    CHECK_EQ(tuttiGroupEnd(), tuttiInvalidArgument);
    check_works(comms, N);
    check_works(others, N);
    end_all(comms, N);
    end_all(others, N);
}

static void *leave_group_open(void *argument)
{
    static tuttiComm_t part;
    CHECK_EQ(tuttiGroupStart(), tuttiSuccess);
    CHECK_EQ(tuttiCommSplit(argument, 0, 0, &part, NULL), tuttiSuccess);
    return NULL;
}

TEST(group_fails, a_thread_that_ends_with_an_open_group_fails_its_splits_and_ends)
{
    tuttiComm_t comms[2];
    pthread_t threads[2];
    make(comms, 2);
    struct waiter other = {.comm = comms[0]};
    start_thread(&threads[0], split_well, &other);
    start_thread(&threads[1], leave_group_open, comms[1]);
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    check_waiter(&other, tuttiInvalidUsage, "rank 1 (", "a thread ended between tuttiGroupStart");
    end_all(comms, 2);
}

/* Its open group has a split of a parent with other ranks that do not come at all. */
TEST(group_fails, a_thread_that_ends_with_an_open_group_waits_for_no_rank)
{
    tuttiComm_t comms[2];
    pthread_t thread;
    make(comms, 2);
    start_thread(&thread, leave_group_open, comms[1]);
    pthread_join(thread, NULL);
    end_all(comms, 2);
}

/* ---- Splits behind one that fails ------------------------------------------------------------ */

/* The last rank: refuses its first split, which fails on all, and makes the second one. */
static void *split_twice(void *argument)
{
    struct waiter *self = argument;
    tuttiComm_t part = NULL;
    CHECK_EQ(tuttiCommSplit(self->comm, -9, 0, &part, NULL), tuttiInvalidArgument);
    self->result = tuttiCommSplit(self->comm, 0, 0, &part, NULL);
    CHECK(!part);
    snprintf(self->text, sizeof self->text, "%s", tuttiGetLastError(NULL));
    return NULL;
}

/* Two splits each in one group; config: of the first one of rank 0. */
static void split_twice_in_a_group(const tuttiComm_t *comms, int n, const tuttiConfig_t *config,
                                   tuttiResult_t expected, const char *text)
{
    tuttiComm_t parts[2][N] = {{NULL}};
    CHECK_EQ(tuttiGroupStart(), tuttiSuccess);
    for (int i = 0; i < 2; i++)
        for (int r = 0; r < n; r++)
            CHECK_EQ(tuttiCommSplit(comms[r], 0, 0, &parts[i][r], i + r ? NULL : config),
                     tuttiSuccess);
    CHECK_EQ(tuttiGroupEnd(), expected);
    CHECK_MESSAGE(says(text), "%s", tuttiGetLastError(NULL));
    for (int r = 0; r < n; r++) CHECK(!parts[0][r] && !parts[1][r]);
}

TEST(group_fails, a_split_behind_one_of_its_group_that_fails_fails_on_all_ranks)
{
    for (int n = 1; n < N; n += 2) {
        tuttiComm_t comms[N];
        pthread_t thread;
        make(comms, n + 1);
        struct waiter last = {.comm = comms[n]};
        start_thread(&thread, split_twice, &last);
        split_twice_in_a_group(comms, n, NULL, tuttiInvalidArgument, "color -9");
        pthread_join(thread, NULL);
        check_waiter(&last, tuttiInvalidArgument, "does not take part", "color -9");
        for (int r = 0; r < n; r++)
            check_fails(comms[r], tuttiInvalidArgument, "does not take part", "color -9");
        end_all(comms, n + 1);
    }
}

/* Each rank leaves its second split out. */
TEST(group_fails, splits_of_all_ranks_behind_ones_that_fail_leave_the_parent_alone)
{
    tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
    tuttiComm_t comms[N];
    make(comms, N);
    config.deterministic = 1;
    split_twice_in_a_group(comms, N, &config, tuttiInvalidUsage, "TUTTI_DETERMINISTIC");
    check_works(comms, N);
    end_all(comms, N);
}

/* ---- Calls beside inits that fail ------------------------------------------------------------ */

static void *reduce(void *argument)
{
    check_fails(argument, tuttiRemoteError, "rank 0 (", "rank 1 of 2 did not come within");
    CHECK_MESSAGE(says("issues no calls of a group whose init failed"), "%s",
                  tuttiGetLastError(NULL));
    return NULL;
}

/* A group with the call of each of these, and an init whose rank 1 does not come. */
static void fail_init_beside(const tuttiComm_t *comms, int n)
{
    tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
    tuttiComm_t made;
    tuttiUniqueId id;
    int values[N] = {0};
    config.initTimeoutMs = 100;
    REQUIRE(tuttiGetUniqueId(&id) == tuttiSuccess);
    CHECK_EQ(tuttiGroupStart(), tuttiSuccess);
    for (int i = 0; i < n; i++)
        CHECK_EQ(tuttiAllReduce(&values[i], &values[i], 1, tuttiInt32, tuttiSum, comms[i], NULL),
                 tuttiSuccess);
    CHECK_EQ(tuttiCommInitRankConfig(&made, 2, id, 0, &config), tuttiSuccess);
    CHECK_EQ(tuttiGroupEnd(), tuttiTimeout);
    CHECK_MESSAGE(!says("issues no calls"), "%s", tuttiGetLastError(NULL));
}

TEST(group_fails, an_init_that_fails_fails_the_communicators_of_the_calls_of_its_group)
{
    tuttiComm_t pairs[4];
    pthread_t threads[2];
    for (int i = 0; i < 2; i++) {
        make(pairs + 2 * i, 2);
        start_thread(&threads[i], reduce, pairs[2 * i + 1]);
    }
    fail_init_beside((tuttiComm_t[2]){pairs[0], pairs[2]}, 2);
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    end_all(pairs, 4);
}

TEST(group_fails, an_init_that_fails_leaves_calls_of_all_ranks_in_its_group_alone)
{
    tuttiComm_t comms[N];
    make(comms, N);
    fail_init_beside(comms, N);
    check_works(comms, N);
    end_all(comms, N);
}
