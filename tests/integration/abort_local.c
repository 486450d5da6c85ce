/* An abort, or the end of a process, concerns only who waits for the rank: what the rank has done
 * its part of succeeds elsewhere, and what needs more of it fails at once with its name. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ranks.h"
#include "shim.h"

enum { ROUNDS = SANITIZED ? 100 : 1000, MOST = 4, SOON_MS = SANITIZED ? 5000 : 1000 };

/* One rank as a thread. */
struct part {
    pthread_t thread;
    tuttiComm_t comm;
    int rank, nranks;
    size_t count;
};

static void start(struct part *parts, int nranks, void *(*body)(void *), size_t count)
{
    tuttiComm_t comms[MOST];
    REQUIRE(tuttiCommInitAll(comms, nranks, NULL) == tuttiSuccess);
    for (int r = 0; r < nranks; r++) {
        parts[r] = (struct part){.comm = comms[r], .rank = r, .nranks = nranks, .count = count};
        REQUIRE(pthread_create(&parts[r].thread, NULL, body, &parts[r]) == 0);
    }
}

static void check_async(tuttiComm_t comm, tuttiResult_t expected)
{
    tuttiResult_t result = tuttiNumResults;
    CHECK_EQ(tuttiCommGetAsyncError(comm, &result), tuttiSuccess);
    CHECK_EQ(result, expected);
}

/* The call needs a rank that has aborted. */
static void check_named(const struct part *part, tuttiResult_t result, int aborter,
                        int64_t began_ms)
{
    char name[24];
    const char *text = tuttiGetLastError(part->comm);
    snprintf(name, sizeof name, "rank %d", aborter);
    CHECK_MESSAGE(result == tuttiRemoteError, "rank %d got %s: %s", part->rank,
                  tuttiGetErrorString(result), text);
    CHECK_MESSAGE(strstr(text, name) && strstr(text, "aborted"), "rank %d's error: %s", part->rank,
                  text);
    CHECK_MESSAGE(now_ms() - began_ms < SOON_MS, "rank %d waited %lld ms", part->rank,
                  (long long)(now_ms() - began_ms));
    check_async(part->comm, tuttiRemoteError);
}

/* ---- After the call ------------------------------------------------------------------------- */

static void *reduce_and_abort(void *argument)
{
    const struct part *part = argument;
    const int sum = part->nranks * (part->nranks + 1) / 2;
    int *data = malloc(part->count * sizeof *data);
    for (size_t i = 0; i < part->count; i++) data[i] = part->rank + 1;
    const tuttiResult_t result =
        tuttiAllReduce(data, data, part->count, tuttiInt32, tuttiSum, part->comm, NULL);
    CHECK_MESSAGE(result == tuttiSuccess, "rank %d: %s", part->rank, tuttiGetLastError(part->comm));
    check_async(part->comm, tuttiSuccess);
    CHECK_EQ(tuttiCommAbort(part->comm), tuttiSuccess);
    for (size_t i = 0; i < part->count && !tt_test_failed(); i++) CHECK_EQ(data[i], sum);
    free(data);
    return NULL;
}

/* Short messages, slots, and memory that is read in place. */
static const size_t counts[] = {2, 3000, 100000};

static void abort_after_reducing(int nranks)
{
    for (int i = 0; i < ROUNDS && !tt_test_failed(); i++) {
        struct part parts[MOST];
        start(parts, nranks, reduce_and_abort, counts[i % 3]);
        for (int r = 0; r < nranks; r++) pthread_join(parts[r].thread, NULL);
    }
}

TEST(abort_local, two_ranks_abort_as_soon_as_they_have_reduced)
{
    abort_after_reducing(2);
}

TEST(abort_local, four_ranks_abort_as_soon_as_they_have_reduced)
{
    abort_after_reducing(4);
}

/* rank_program ends well on these hosts. settings: NULL, or of two more variables. */
static void check_job_with(const char *hosts, const char *const *args, const char *const *settings)
{
    static struct job job;
    const char *const extra[] = {"TUTTI_TIMEOUT_MS=30000", settings ? settings[0] : NULL,
                                 settings ? settings[1] : NULL, NULL};
    REQUIRE(job_start_on(&job, hosts, args, extra));
    CHECK_MESSAGE(job_wait(&job, 240000), "%s on %s: some rank did not end", args[0], hosts);
    job_check_exit(&job, 0);
}

static void check_job(const char *hosts, const char *const *args)
{
    check_job_with(hosts, args, NULL);
}

static void abort_processes(const char *hosts, int rounds)
{
    char text[12];
    snprintf(text, sizeof text, "%d", SANITIZED ? rounds / 10 : rounds);
    check_job(hosts, (const char *const[]){"abort_done", text, NULL});
}

TEST(abort_local, processes_abort_as_soon_as_they_have_reduced)
{
    abort_processes("aa", 1000);
    abort_processes("aaaa", 300);
}

TEST(abort_local, processes_of_two_hosts_abort_as_soon_as_they_have_reduced)
{
    abort_processes("ab", 1000);
    abort_processes("aabb", 200);
}

/* ---- After a split -------------------------------------------------------------------------- */

static void *split_and_abort(void *argument)
{
    const struct part *part = argument;
    tuttiComm_t child = NULL;
    int sum = 1;
    const tuttiResult_t result = tuttiCommSplit(part->comm, 0, 0, &child, NULL);
    CHECK_MESSAGE(result == tuttiSuccess, "rank %d: %s", part->rank, tuttiGetLastError(part->comm));
    CHECK_EQ(tuttiCommAbort(part->comm), tuttiSuccess);
    if (!child) return NULL;
    CHECK_EQ(tuttiAllReduce(&sum, &sum, 1, tuttiInt32, tuttiSum, child, NULL), tuttiSuccess);
    CHECK_EQ(sum, part->nranks);
    CHECK_EQ(tuttiCommDestroy(child), tuttiSuccess);
    return NULL;
}

TEST(abort_local, the_parent_is_aborted_as_soon_as_it_was_split)
{
    for (int i = 0; i < ROUNDS && !tt_test_failed(); i++) {
        struct part parts[MOST];
        const int nranks = 2 + i % 3;
        start(parts, nranks, split_and_abort, 1);
        for (int r = 0; r < nranks; r++) pthread_join(parts[r].thread, NULL);
    }
}

TEST(abort_local, processes_abort_the_parent_as_soon_as_it_was_split)
{
    const char *rounds = SANITIZED ? "20" : "200";
    check_job("aa", (const char *const[]){"abort_parent", rounds, NULL});
    check_job("aaaa", (const char *const[]){"abort_parent", rounds, NULL});
}

TEST(abort_local, processes_of_two_hosts_abort_the_parent_as_soon_as_it_was_split)
{
    const char *rounds = SANITIZED ? "20" : "200";
    check_job("ab", (const char *const[]){"abort_parent", rounds, NULL});
    check_job("aabb", (const char *const[]){"abort_parent", rounds, NULL});
}

/* ---- Who needs nobody ----------------------------------------------------------------------- */

/* Rank 1 calls what needs the last rank, when rank 0 has done all that does not: the communicator
 * then fails for both. */
static void need_the_last(const struct part *part, int last)
{
    int data = 1;
    const int64_t began_ms = now_ms();
    tuttiResult_t async = tuttiSuccess;
    if (part->rank == 0) {
        (void)tuttiSend(&data, 1, tuttiInt32, 1, part->comm, NULL);
        while (!async && !tt_test_failed())
            CHECK_EQ(tuttiCommGetAsyncError(part->comm, &async), tuttiSuccess);
        check_named(part, async, last, began_ms);
        return;
    }
    CHECK_EQ(tuttiRecv(&data, 1, tuttiInt32, 0, part->comm, NULL), tuttiSuccess);
    check_named(part, tuttiAllReduce(&data, &data, 1, tuttiInt32, tuttiSum, part->comm, NULL), last,
                began_ms);
}

/* The last rank aborts; the others do without it, until a call needs it. */
static void *do_without_the_last(void *argument)
{
    struct part *part = argument;
    const int last = part->nranks - 1, peer = 1 - part->rank;
    int mine = part->rank, theirs = -1;
    CHECK_EQ(tuttiBarrier(part->comm, NULL), tuttiSuccess);
    if (part->rank == last) {
        CHECK_EQ(tuttiCommAbort(part->comm), tuttiSuccess);
        part->comm = NULL;
        return NULL;
    }
    for (int i = 0; i < 100; i++) {
        CHECK_EQ(tuttiGroupStart(), tuttiSuccess);
        CHECK_EQ(tuttiSend(&mine, 1, tuttiInt32, peer, part->comm, NULL), tuttiSuccess);
        CHECK_EQ(tuttiRecv(&theirs, 1, tuttiInt32, peer, part->comm, NULL), tuttiSuccess);
        CHECK_MESSAGE(tuttiGroupEnd() == tuttiSuccess, "%s", tuttiGetLastError(part->comm));
        CHECK_EQ(theirs, peer);
        check_async(part->comm, tuttiSuccess);
    }
    need_the_last(part, last);
    CHECK_EQ(tuttiCommDestroy(part->comm), tuttiSuccess);
    return NULL;
}

TEST(abort_local, ranks_that_do_not_need_the_aborted_one_go_on)
{
    for (int i = 0; i < 20 && !tt_test_failed(); i++) {
        struct part parts[MOST];
        start(parts, 3, do_without_the_last, 1);
        for (int r = 0; r < 3; r++) pthread_join(parts[r].thread, NULL);
    }
}

TEST(abort_local, a_process_that_is_gone_is_no_error_until_a_call_needs_it)
{
    static const char *const layouts[] = {"aaa", "aab", "abc"};
    static const char *const ways[] = {"exits", "vanishes", "aborts"};
    for (int i = 0; i < 9 && !tt_test_failed(); i++)
        check_job(layouts[i / 3], (const char *const[]){"gone", ways[i % 3], NULL});
}

/* ---- Messages ------------------------------------------------------------------------------- */

enum { MESSAGES = 5, NBYTES = 4096 };

static void *send_and_abort(void *argument)
{
    struct part *part = argument;
    char data[NBYTES];
    for (int i = 0; i < MESSAGES; i++) {
        memset(data, i + 1, sizeof data);
        CHECK_EQ(tuttiSend(data, NBYTES, tuttiUint8, 0, part->comm, NULL), tuttiSuccess);
    }
    CHECK_EQ(tuttiCommAbort(part->comm), tuttiSuccess);
    return NULL;
}

TEST(abort_local, messages_that_were_sent_before_the_abort_are_received)
{
    char data[NBYTES];
    tuttiComm_t comms[2];
    REQUIRE(tuttiCommInitAll(comms, 2, NULL) == tuttiSuccess);
    struct part sender = {.comm = comms[1], .rank = 1}, receiver = {.comm = comms[0]};
    REQUIRE(pthread_create(&sender.thread, NULL, send_and_abort, &sender) == 0);
    pthread_join(sender.thread, NULL);
    for (int i = 0; i < MESSAGES; i++) {
        CHECK_EQ(tuttiRecv(data, NBYTES, tuttiUint8, 1, comms[0], NULL), tuttiSuccess);
        CHECK(data[0] == i + 1 && data[NBYTES - 1] == i + 1);
        check_async(comms[0], tuttiSuccess);
    }
    const int64_t began_ms = now_ms();
    check_named(&receiver, tuttiRecv(data, NBYTES, tuttiUint8, 1, comms[0], NULL), 1, began_ms);
    CHECK_EQ(tuttiCommDestroy(comms[0]), tuttiSuccess);
}

enum { LONG_BYTES = 1 << 20 };

/* The message is read in the sender's memory, which is freed when the call has returned. */
static void *send_long(void *argument)
{
    const struct part *part = argument;
    const int begun = 1;
    char *data = malloc(LONG_BYTES);
    memset(data, 1, LONG_BYTES);
    CHECK_EQ(tuttiGroupStart(), tuttiSuccess);
    CHECK_EQ(tuttiSend(&begun, 1, tuttiInt32, 0, part->comm, NULL), tuttiSuccess);
    CHECK_EQ(tuttiSend(data, LONG_BYTES, tuttiUint8, 0, part->comm, NULL), tuttiSuccess);
    CHECK_EQ(tuttiGroupEnd(), tuttiRemoteError);
    memset(data, 2, LONG_BYTES);
    free(data);
    return NULL;
}

TEST(abort_local, a_message_in_memory_of_a_rank_that_aborts_is_not_read)
{
    static char data[LONG_BYTES];
    for (int i = 0; i < 50 && !tt_test_failed(); i++) {
        tuttiComm_t comms[2];
        int begun = 0;
        REQUIRE(tuttiCommInitAll(comms, 2, NULL) == tuttiSuccess);
        struct part sender = {.comm = comms[1], .rank = 1}, receiver = {.comm = comms[0]};
        REQUIRE(pthread_create(&sender.thread, NULL, send_long, &sender) == 0);
        CHECK_EQ(tuttiRecv(&begun, 1, tuttiInt32, 1, comms[0], NULL), tuttiSuccess);
        for (volatile int turns = 0; turns < i * 2000; turns++) continue;
        CHECK_EQ(tuttiCommAbort(comms[1]), tuttiSuccess);
        pthread_join(sender.thread, NULL);
        const int64_t began_ms = now_ms();
        check_named(&receiver, tuttiRecv(data, LONG_BYTES, tuttiUint8, 1, comms[0], NULL), 1,
                    began_ms);
        CHECK_EQ(tuttiCommDestroy(comms[0]), tuttiSuccess);
    }
}

TEST(abort_local, memory_of_a_rank_that_aborts_may_be_gone)
{
    check_job_with("aa", (const char *const[]){"aborting", "unmapped", NULL},
                   (const char *const[]){"TUTTI_TRANSPORT=shm,cma", NULL});
}

/* ---- Other hosts ----------------------------------------------------------------------------- */

TEST(abort_local, other_hosts_learn_of_an_abort_whose_streams_still_wait)
{
    check_job("ab", (const char *const[]){"aborting", "connected", NULL});
    check_job("ab", (const char *const[]){"aborting", "unconnected", NULL});
}

TEST(abort_local, what_was_sent_to_other_hosts_before_the_abort_is_received_late_too)
{
    check_job_with("ab", (const char *const[]){"aborting", "unread", NULL},
                   (const char *const[]){"TUTTI_SLOTS=64", "TUTTI_SLOT_BYTES=32K"});
}

/* ---- Threads that are cancelled -------------------------------------------------------------- */

TEST(abort_local, a_thread_that_was_cancelled_in_a_call_keeps_nothing)
{
    check_job("aa", (const char *const[]){"aborting", "call_cancelled", NULL});
    check_job("ab", (const char *const[]){"aborting", "call_cancelled", NULL});
    check_job("aa", (const char *const[]){"aborting", "late_call_cancelled", NULL});
}

TEST(abort_local, a_watchdog_that_was_cancelled_keeps_nothing)
{
    check_job("aa", (const char *const[]){"aborting", "watchdog_cancelled", NULL});
    check_job("ab", (const char *const[]){"aborting", "watchdog_cancelled", NULL});
}

/* ---- Groups ---------------------------------------------------------------------------------- */

/* The call of the first communicator waits in the stream behind one of the second. */
TEST(abort_local, aborts_of_a_group_do_not_wait_for_one_another)
{
    tuttiComm_t first[2], second[2];
    tuttiStream_t stream;
    int data = 1;
    REQUIRE(tuttiCommInitAll(first, 2, NULL) == tuttiSuccess);
    REQUIRE(tuttiCommInitAll(second, 2, NULL) == tuttiSuccess);
    REQUIRE(tuttiStreamCreate(&stream) == tuttiSuccess);
    CHECK_EQ(tuttiRecv(&data, 1, tuttiInt32, 1, second[0], stream), tuttiSuccess);
    CHECK_EQ(tuttiRecv(&data, 1, tuttiInt32, 1, first[0], stream), tuttiSuccess);
    const int64_t began_ms = now_ms();
    CHECK_EQ(tuttiGroupStart(), tuttiSuccess);
    CHECK_EQ(tuttiCommAbort(first[0]), tuttiSuccess);
    CHECK_EQ(tuttiCommAbort(second[0]), tuttiSuccess);
    CHECK_EQ(tuttiGroupEnd(), tuttiSuccess);
    CHECK_MESSAGE(now_ms() - began_ms < SOON_MS, "the aborts took %lld ms",
                  (long long)(now_ms() - began_ms));
    CHECK_EQ(tuttiStreamSynchronize(stream), tuttiRemoteError);
    CHECK_EQ(tuttiStreamDestroy(stream), tuttiSuccess);
    CHECK_EQ(tuttiCommDestroy(first[1]), tuttiSuccess);
    CHECK_EQ(tuttiCommDestroy(second[1]), tuttiSuccess);
}

/* A communicator that another thread ends, and one that is made at its address. */
struct replacement {
    tuttiComm_t ended, made[64];
    int nmade;
};

static void *end_and_make(void *argument)
{
    struct replacement *replacement = argument;
    const int most = (int)(sizeof replacement->made / sizeof *replacement->made);
    CHECK_EQ(tuttiCommDestroy(replacement->ended), tuttiSuccess);
    while (replacement->nmade < most) {
        tuttiComm_t *made = &replacement->made[replacement->nmade++];
        CHECK_EQ(tuttiCommInitAll(made, 1, NULL), tuttiSuccess);
        if (*made == replacement->ended || tt_test_failed()) return NULL;
    }
    return NULL;
}

TEST(abort_local, a_group_ends_no_communicator_that_was_made_at_the_address_of_another)
{
    struct replacement replacement = {.nmade = 0};
    pthread_t thread;
    tuttiResult_t async;
    REQUIRE(tuttiCommInitAll(&replacement.ended, 1, NULL) == tuttiSuccess);
    CHECK_EQ(tuttiGroupStart(), tuttiSuccess);
    CHECK_EQ(tuttiCommAbort(replacement.ended), tuttiSuccess);
    REQUIRE(pthread_create(&thread, NULL, end_and_make, &replacement) == 0);
    pthread_join(thread, NULL);
    CHECK_EQ(tuttiGroupEnd(), tuttiInvalidArgument);
    for (int i = 0; i < replacement.nmade; i++) {
        CHECK_EQ(tuttiCommGetAsyncError(replacement.made[i], &async), tuttiSuccess);
        CHECK_EQ(tuttiCommDestroy(replacement.made[i]), tuttiSuccess);
    }
}

/* ---- A watchdog ----------------------------------------------------------------------------- */

enum { CALLS = 200 };

struct watched {
    pthread_t caller, watchdog;
    tuttiComm_t comm;
    _Atomic bool *is_inside; /* rank 0, in the group that never ends */
    tuttiResult_t result;
    int rank;
};

static void call_often(tuttiComm_t comm)
{
    for (int i = 0; i < CALLS; i++) {
        int data = 1;
        CHECK_EQ(tuttiAllReduce(&data, &data, 1, tuttiInt32, tuttiSum, comm, NULL), tuttiSuccess);
        CHECK_EQ(data, 2);
    }
}

/* Rank 0 tells rank 1 that it is in the group, whose last message never comes. */
static void *call_and_hang(void *argument)
{
    struct watched *watched = argument;
    int begun = 1, never = 0;
    call_often(watched->comm);
    if (watched->rank == 1) {
        CHECK_EQ(tuttiRecv(&begun, 1, tuttiInt32, 0, watched->comm, NULL), tuttiSuccess);
        *watched->is_inside = true;
        watched->result = tuttiRecv(&never, 1, tuttiInt32, 0, watched->comm, NULL);
        return NULL;
    }
    CHECK_EQ(tuttiGroupStart(), tuttiSuccess);
    CHECK_EQ(tuttiSend(&begun, 1, tuttiInt32, 1, watched->comm, NULL), tuttiSuccess);
    CHECK_EQ(tuttiRecv(&never, 1, tuttiInt32, 1, watched->comm, NULL), tuttiSuccess);
    watched->result = tuttiGroupEnd();
    return NULL;
}

/* Asks all the time, and aborts what hangs. */
static void *ask_and_abort(void *argument)
{
    const struct watched *watched = argument;
    while (!*watched->is_inside && !tt_test_failed()) check_async(watched->comm, tuttiSuccess);
    CHECK_EQ(tuttiCommAbort(watched->comm), tuttiSuccess);
    return NULL;
}

TEST(abort_local, a_watchdog_asks_beside_the_caller_and_aborts_what_hangs)
{
    for (int i = 0; i < 20 && !tt_test_failed(); i++) {
        _Atomic bool is_inside = false;
        struct watched all[2];
        tuttiComm_t comms[2];
        REQUIRE(tuttiCommInitAll(comms, 2, NULL) == tuttiSuccess);
        for (int r = 0; r < 2; r++)
            all[r] = (struct watched){.comm = comms[r], .is_inside = &is_inside, .rank = r};
        for (int r = 0; r < 2; r++)
            REQUIRE(pthread_create(&all[r].caller, NULL, call_and_hang, &all[r]) == 0);
        REQUIRE(pthread_create(&all[0].watchdog, NULL, ask_and_abort, &all[0]) == 0);
        pthread_join(all[0].watchdog, NULL);
        for (int r = 0; r < 2; r++) pthread_join(all[r].caller, NULL);
        for (int r = 0; r < 2; r++) CHECK_EQ(all[r].result, tuttiRemoteError);
        CHECK(strstr(tuttiGetLastError(comms[1]), "rank 0"));
        CHECK_EQ(tuttiCommDestroy(comms[1]), tuttiSuccess);
    }
}
