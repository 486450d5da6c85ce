/* What a child made by fork does with its parent's communicators, and that it can have its own. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/config.h"
#include "base/sanitizers.h"
#include "communicator/communicator.h"
#include "program/first_use.h"
#include "shim.h"
#include "topology/topology.h"
#include "transport/host/watch.h"

static bool both_reduce(const tuttiComm_t *comms)
{
    int data[2] = {3, 4};
    if (tuttiGroupStart() != tuttiSuccess) return false;
    for (int r = 0; r < 2; r++)
        if (tuttiAllReduce(&data[r], &data[r], 1, tuttiInt32, tuttiSum, comms[r], NULL))
            return false;
    return tuttiGroupEnd() == tuttiSuccess && data[0] == 7 && data[1] == 7;
}

/* A child ends one of two communicators that were used before; the parent goes on. */
static void end_in_child(tuttiResult_t (*end)(tuttiComm_t), bool in_call)
{
    tuttiComm_t comms[2];
    int how = -1;
    REQUIRE(tuttiCommInitAll(comms, 2, NULL) == tuttiSuccess);
    REQUIRE(both_reduce(comms));
    if (in_call)
        tt_engine_enter(&comms[0]->core.engine); /* as another thread of the parent would */
    const pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        alarm(20);
        _exit(end(comms[0]) == tuttiSuccess ? 0 : 1);
    }
    REQUIRE(waitpid(child, &how, 0) == child);
    if (in_call) tt_engine_leave(&comms[0]->core.engine);
    CHECK_MESSAGE(WIFEXITED(how) && WEXITSTATUS(how) == 0, "the child ended with status %#x", how);
    CHECK_EQ(atomic_load(&comms[0]->core.fabric->record->state), TT_RANK_HERE);
    CHECK_EQ(tt_fabric_check(comms[0]->core.fabric), TT_OK);
    CHECK(both_reduce(comms));
    for (int r = 0; r < 2; r++) CHECK_EQ(tuttiCommDestroy(comms[r]), tuttiSuccess);
}

TEST(fork, a_child_that_destroys_a_communicator_leaves_its_parents_as_it_is)
{
    end_in_child(tuttiCommDestroy, false);
}

TEST(fork, a_child_that_aborts_a_communicator_leaves_its_parents_as_it_is)
{
    end_in_child(tuttiCommAbort, false);
}

TEST(fork, a_child_that_ends_a_communicator_waits_for_no_call_of_its_parent)
{
    end_in_child(tuttiCommAbort, true);
}

/* ---- Calls ---------------------------------------------------------------------------------- */

static bool is_refused(tuttiResult_t result)
{
    return result == tuttiInvalidUsage &&
           strstr(tuttiGetLastError(NULL), "make one after the fork");
}

/* Every function that makes a call, on a communicator of the parent that has just been used. */
static int call_in_child(tuttiComm_t comm)
{
    const size_t counts[2] = {1, 1};
    int data[2] = {1, 2}, other[2], nranks = 0;
    tuttiComm_t part;
    alarm(20);
    if (!is_refused(tuttiAllReduce(data, data, 1, tuttiInt32, tuttiSum, comm, NULL))) return 1;
    if (tuttiCommCount(comm, &nranks) || nranks != 2) return 2; /* asking is no call */
    if (!is_refused(tuttiAllReduce(data, data, 1, tuttiInt32, tuttiSum, comm, NULL))) return 3;
    if (!is_refused(tuttiSend(data, 1, tuttiInt32, 1, comm, NULL))) return 4;
    if (!is_refused(
            tuttiAlltoAllV(data, counts, NULL, other, counts, NULL, tuttiInt32, comm, NULL)))
        return 5;
    if (!is_refused(tuttiCommSplit(comm, 0, 0, &part, NULL))) return 6;
    if (!is_refused(tuttiCommFinalize(comm))) return 7;
    return tuttiCommDestroy(comm) ? 8 : 0;
}

static void check_child(pid_t child)
{
    int how = -1;
    REQUIRE(child > 0);
    REQUIRE(waitpid(child, &how, 0) == child);
    CHECK_MESSAGE(WIFEXITED(how) && WEXITSTATUS(how) == 0, "the child ended with status %#x", how);
}

TEST(fork, a_child_that_calls_on_a_communicator_of_its_parent_gets_an_error_at_once)
{
    tuttiComm_t comms[2];
    REQUIRE(tuttiCommInitAll(comms, 2, NULL) == tuttiSuccess);
    REQUIRE(both_reduce(comms));
    const pid_t child = fork();
    if (child == 0) _exit(call_in_child(comms[0]));
    check_child(child);
    CHECK(both_reduce(comms));
    for (int r = 0; r < 2; r++) CHECK_EQ(tuttiCommDestroy(comms[r]), tuttiSuccess);
}

static void ignore(void *unused, const char *line)
{
    (void)unused, (void)line;
}

/* Every function that only asks. */
static int ask_in_child(tuttiComm_t comm)
{
    tuttiResult_t state = tuttiInternalError;
    tuttiCounters_t counters;
    tuttiCallCounters_t calls = TUTTI_CALL_COUNTERS_INITIALIZER;
    const char *algorithm = NULL;
    int number = 0;
    alarm(20);
    if (tuttiCommGetAsyncError(comm, &state) || state) return 1;
    if (tuttiCommCounters(comm, &counters) || counters.collectives != 1 || counters.memoryBytes)
        return 2;
    if (tuttiCommCallCounters(comm, &calls)) return 3;
    if (tuttiCommGetAlgorithm(comm, tuttiCollAllReduce, 8, &algorithm)) return 4;
    if (tuttiCommDevice(comm, &number) || tuttiCommUserRank(comm, &number) || number) return 5;
    if (tuttiCommSetTimeout(comm, 1000)) return 6;
    if (tuttiDescribe(tuttiDescribeCosts, comm, ignore, NULL)) return 7;
    if (!is_refused(tuttiDescribe(tuttiDescribeLinks, comm, ignore, NULL))) return 8;
    return 0;
}

TEST(fork, a_child_that_asks_waits_for_no_call_of_its_parent)
{
    tuttiComm_t comms[2];
    REQUIRE(tuttiCommInitAll(comms, 2, NULL) == tuttiSuccess);
    REQUIRE(both_reduce(comms));
    tt_engine_enter(&comms[0]->core.engine); /* as another thread of the parent would */
    const pid_t child = fork();
    if (child == 0) _exit(ask_in_child(comms[0]));
    tt_engine_leave(&comms[0]->core.engine);
    check_child(child);
    CHECK(both_reduce(comms));
    for (int r = 0; r < 2; r++) CHECK_EQ(tuttiCommDestroy(comms[r]), tuttiSuccess);
}

static int use_event_in_child(tuttiEvent_t event)
{
    tuttiStream_t own;
    float ms;
    alarm(20);
    if (tuttiEventRecord(event, NULL) != tuttiInvalidUsage) return 1;
    if (tuttiEventQuery(event) != tuttiInvalidUsage) return 2;
    if (tuttiEventSynchronize(event) != tuttiInvalidUsage) return 3;
    if (tuttiEventSynchronizeFor(event, 1) != tuttiInvalidUsage) return 4;
    if (tuttiEventElapsedTime(&ms, event, event) != tuttiInvalidUsage) return 5;
    if (tuttiStreamCreate(&own)) return 6;
    if (tuttiStreamWaitEvent(own, event) != tuttiInvalidUsage) return 7;
    if (!strstr(tuttiGetLastError(NULL), "it can only be destroyed here")) return 8;
    if (tuttiStreamDestroy(own)) return 9;
    return tuttiEventDestroy(event) ? 10 : 0;
}

TEST(fork, an_event_of_the_parent_can_only_be_destroyed)
{
    tuttiEvent_t event;
    REQUIRE(tuttiEventCreate(&event) == tuttiSuccess);
    const pid_t child = fork();
    if (child == 0) _exit(use_event_in_child(event));
    check_child(child);
    CHECK_EQ(tuttiEventQuery(event), tuttiSuccess);
    CHECK_EQ(tuttiEventDestroy(event), tuttiSuccess);
}

TEST(fork, a_child_that_ends_a_group_of_its_parent_gets_an_error_at_once)
{
    tuttiComm_t comms[2];
    int data[2] = {3, 4};
    REQUIRE(tuttiCommInitAll(comms, 2, NULL) == tuttiSuccess);
    REQUIRE(tuttiGroupStart() == tuttiSuccess);
    for (int r = 0; r < 2; r++)
        CHECK_EQ(tuttiAllReduce(&data[r], &data[r], 1, tuttiInt32, tuttiSum, comms[r], NULL),
                 tuttiSuccess);
    const pid_t child = fork();
    if (child == 0) {
        alarm(20);
        _exit(is_refused(tuttiGroupEnd()) ? 0 : 1);
    }
    check_child(child);
    CHECK_EQ(tuttiGroupEnd(), tuttiSuccess);
    CHECK(data[0] == 7 && data[1] == 7);
    for (int r = 0; r < 2; r++) CHECK_EQ(tuttiCommDestroy(comms[r]), tuttiSuccess);
}

/* ---- A process whose init fails ---------------------------------------------------------------
 */

/* More ranks than a process can have threads. The process of rank 0 then ends, and its root does
 * not answer the other one before that knows why. */
static void fail_rank_0(const char *method)
{
    enum { TOO_MANY = 1 << 18 };
    tuttiComm_t *comms = calloc(TOO_MANY, sizeof *comms);
    setenv("RANK", "0", 1);
    setenv("WORLD_SIZE", "2", 1);
    const tuttiResult_t result = tuttiCommInitEnvMulti(comms, TOO_MANY, method, NULL);
    exit(result == tuttiInvalidUsage ? 0 : 1);
}

static void expect_error_of_rank_0(const char *method)
{
    tuttiComm_t comm = NULL;
    fflush(NULL); /* the child's exit would print it again */
    const pid_t child = fork();
    if (child == 0) fail_rank_0(method);
    setenv("RANK", "1", 1);
    setenv("WORLD_SIZE", "2", 1);
    CHECK_EQ(tuttiCommInitEnv(&comm, method, NULL), tuttiInvalidUsage);
    const char *error = tuttiGetLastError(NULL);
    CHECK_MESSAGE(strstr(error, "rank 0 (pid ") && strstr(error, "cannot join: 262144 ranks are"),
                  "%s", error);
    check_child(child);
    unsetenv("RANK");
    unsetenv("WORLD_SIZE");
}

TEST(fork, a_process_hears_why_that_of_rank_0_failed)
{
    if (tt_is_thread_sanitizer()) SKIP("ThreadSanitizer allows no threads after a fork");
    char folder[] = "/tmp/tutti-test-XXXXXX", method[80];
    setenv("TUTTI_INIT_TIMEOUT_MS", "5000", 1);
    tt_config_reload();
    REQUIRE(mkdtemp(folder) != NULL);
    snprintf(method, sizeof method, "file://%s/id", folder);
    expect_error_of_rank_0(method);
    CHECK(rmdir(folder) == 0);
    expect_error_of_rank_0("tcp://127.0.0.1:23149");
    unsetenv("TUTTI_INIT_TIMEOUT_MS");
    tt_config_reload();
}

/* ---- Locks that a thread of the parent holds ------------------------------------------------ */

/* Each takes a lock of the process for a moment; false: it went wrong. */
static bool watch_a_process(void)
{
    struct tt_pid_watch *watch = tt_pid_watch_get(getpid(), 1);
    tt_pid_watch_put(watch);
    return watch != NULL;
}

static bool make_a_window(void)
{
    void *memory = NULL;
    return tuttiMemAlloc(&memory, 1 << 16) == tuttiSuccess && tuttiMemFree(memory) == tuttiSuccess;
}

static bool register_memory(void)
{
    void *memory = NULL, *adopted = NULL;
    if (posix_memalign(&memory, 4096, 1 << 16)) return false;
    const bool good = tt_window_adopt(memory, 1 << 16, &adopted) == TT_OK;
    tt_window_release(adopted);
    free(memory);
    return good;
}

static bool find_a_composed_algorithm(void)
{
    return tt_algorithm_find(TT_ALL_REDUCE, "ring/ring") != NULL;
}

static bool list_algorithms(void)
{
    return tuttiAlgorithmName(tuttiCollAllReduce, 20) != NULL;
}

static bool count_proofs(void)
{
    return tt_first_use_proofs() < UINT64_MAX;
}

static bool look_at_the_topology(void)
{
    const struct tt_topology *topology;
    return tt_topology_local(&topology) == TT_OK;
}

static bool forget_a_communicator(void)
{
    tt_comm_forget(NULL);
    return true;
}

struct taker {
    bool (*take)(void);
    _Atomic bool stop;
};

static void *take_again_and_again(void *argument)
{
    struct taker *taker = argument;
    while (!atomic_load_explicit(&taker->stop, memory_order_relaxed))
        if (!taker->take()) return argument;
    return NULL;
}

/* Takes the lock, and makes and uses a communicator of its own. */
static bool goes_on_alone(bool (*take)(void))
{
    tuttiComm_t comms[2];
    return take() && tuttiCommInitAll(comms, 2, NULL) == tuttiSuccess && both_reduce(comms) &&
           tuttiCommDestroy(comms[0]) == tuttiSuccess && tuttiCommDestroy(comms[1]) == tuttiSuccess;
}

static void fork_while_taken(const char *what, bool (*take)(void))
{
    enum { NFORKS = 60 };
    struct taker taker = {.take = take};
    pthread_t thread;
    void *failed = NULL;
    int how = 0;
    REQUIRE(take());
    REQUIRE(pthread_create(&thread, NULL, take_again_and_again, &taker) == 0);
    for (int i = 0; i < NFORKS && how == 0; i++) {
        const pid_t child = fork();
        REQUIRE(child >= 0);
        if (child == 0) {
            alarm(20);
            _exit(goes_on_alone(take) ? 0 : 1);
        }
        REQUIRE(waitpid(child, &how, 0) == child);
        CHECK_MESSAGE(WIFEXITED(how) && WEXITSTATUS(how) == 0, "%s: child %d ended with %#x", what,
                      i, how);
    }
    atomic_store(&taker.stop, true);
    pthread_join(thread, &failed);
    CHECK_MESSAGE(!failed, "%s: the parent's thread failed: %s", what, tuttiGetLastError(NULL));
}

TEST(fork, a_child_makes_its_communicators_whatever_locks_other_threads_of_its_parent_held)
{
#if defined __SANITIZE_THREAD__
    SKIP("ThreadSanitizer allows no threads after a fork");
#elif defined __SANITIZE_ADDRESS__
    SKIP("AddressSanitizer's malloc keeps the locks that other threads held at a fork");
#endif
    static const struct {
        const char *what;
        bool (*take)(void);
    } locks[] = {{"watches", watch_a_process},
                 {"windows", make_a_window},
                 {"registrations", register_memory},
                 {"composed algorithms", find_a_composed_algorithm},
                 {"lists of algorithms", list_algorithms},
                 {"proofs", count_proofs},
                 {"topology", look_at_the_topology},
                 {"communicators that are alive", forget_a_communicator}};
    for (size_t i = 0; i < sizeof locks / sizeof *locks; i++)
        fork_while_taken(locks[i].what, locks[i].take);
}
