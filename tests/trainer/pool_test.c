/* The pool of threads: each piece is computed once, whatever their number; calls follow each other,
 * nest, sleep and end. This program has the pool alone, so that ThreadSanitizer sees all of it. */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../../trainer/ops/pool.h"
#include "shim.h"

enum { MOST = 1000, ROOM = 100 };

/* What the pieces of a call write: plain memory, so that a missing order is a race. */
struct call {
    long counts[MOST];
    double sums[MOST];
};

static void count(const void *arg, long index)
{
    struct call *call = (struct call *)(uintptr_t)arg;
    call->counts[index]++;
    call->sums[index] += 1. / (double)(index + 1);
}

/* `turns` calls of n pieces; each piece was computed once a turn. */
static void check_calls(struct call *call, long n, long turns)
{
    memset(call, 0, sizeof *call);
    for (long turn = 0; turn < turns; ++turn) {
        tr_pool_run(count, call, n);
        for (long i = 0; i < n; ++i)
            if (call->counts[i] != turn + 1) {
                tt_test_fail(__FILE__, __LINE__, "piece %ld of %ld: computed %ld times, not %ld", i,
                             n, call->counts[i], turn + 1);
                return;
            }
    }
    for (long i = n; i < MOST; ++i) CHECK_EQ(call->counts[i], 0);
}

static void check_numbers(struct call *call)
{
    static const long odd[] = {0, 1, 2, 3, 5, 7, 31, 64, 129, 997};
    for (size_t i = 0; i < sizeof odd / sizeof *odd; ++i) check_calls(call, odd[i], 40);
}

TEST(pool, each_piece_is_computed_once)
{
    static struct call call;
    for (int n = 1; n <= 5; ++n) {
        REQUIRE(tr_pool_open(n, ROOM) == TR_OK);
        CHECK_EQ(tr_pool_threads(), n);
        check_numbers(&call);
        tr_pool_close();
        CHECK_EQ(tr_pool_threads(), 1);
        check_calls(&call, 3, 2); /* without a pool */
    }
}

/* Calls that follow each other at once, and calls before which the workers have gone to sleep. */
TEST(pool, workers_that_sleep_are_woken)
{
    static struct call call;
    REQUIRE(tr_pool_open(3, ROOM) == TR_OK);
    memset(&call, 0, sizeof call);
    for (int turn = 0; turn < 200; ++turn) {
        const struct timespec pause = {.tv_nsec = turn % 4 * 100000};
        if (pause.tv_nsec) nanosleep(&pause, NULL);
        tr_pool_run(count, &call, 2 + turn % 5);
    }
    CHECK_EQ(call.counts[0], 200);
    CHECK_EQ(call.counts[5], 40);
    tr_pool_close();
}

/* Pieces that take long: the caller and the workers run out of pieces and sleep meanwhile. */
static void take_long(const void *arg, long index)
{
    const struct timespec pause = {.tv_nsec = index % 3 * 1000000};
    nanosleep(&pause, NULL);
    count(arg, index);
}

TEST(pool, a_call_ends_when_its_last_piece_does)
{
    static struct call call;
    REQUIRE(tr_pool_open(4, ROOM) == TR_OK);
    memset(&call, 0, sizeof call);
    for (int turn = 0; turn < 20; ++turn) {
        tr_pool_run(take_long, &call, 7);
        for (int i = 0; i < 7; ++i) CHECK_EQ(call.counts[i], turn + 1);
    }
    tr_pool_close();
}

struct nest {
    struct call calls[8];
    int threads[8];
};

static void call_again(const void *arg, long index)
{
    struct nest *nest = (struct nest *)(uintptr_t)arg;
    nest->threads[index] = tr_pool_threads();
    tr_pool_run(count, &nest->calls[index], 50);
}

TEST(pool, a_call_inside_a_piece_runs_on_one_thread)
{
    static struct nest nest;
    REQUIRE(tr_pool_open(3, ROOM) == TR_OK);
    tr_pool_run(call_again, &nest, 8);
    for (int i = 0; i < 8; ++i) {
        CHECK_EQ(nest.threads[i], 1);
        for (int j = 0; j < 50; ++j) CHECK_EQ(nest.calls[i].counts[j], 1);
    }
    tr_pool_close();
}

struct rooms {
    float own[ROOM];
    float *taken[64];
    float last[64];
};

static void use_room(const void *arg, long index)
{
    struct rooms *rooms = (struct rooms *)(uintptr_t)arg;
    float *room = rooms->taken[index] = tr_pool_room(rooms->own);
    for (int i = 0; i < ROOM; ++i) room[i] = (float)(index + i);
    rooms->last[index] = room[ROOM - 1];
}

TEST(pool, each_thread_has_room_of_its_own)
{
    static struct rooms rooms;
    float *others[2] = {NULL, NULL};
    REQUIRE(tr_pool_open(3, ROOM) == TR_OK);
    for (int turn = 0; turn < 50; ++turn) {
        tr_pool_run(use_room, &rooms, 64);
        for (int i = 0; i < 64; ++i) {
            CHECK(rooms.last[i] == (float)(i + ROOM - 1));
            float *const taken = rooms.taken[i];
            if (taken == rooms.own || taken == others[0] || taken == others[1]) continue;
            REQUIRE(!others[0] || !others[1]);
            others[others[0] != NULL] = taken;
        }
    }
    tr_pool_close();
}

/* Ranks that are threads: each has a pool of its own. */
static void *train(void *arg)
{
    struct call *call = arg;
    if (tr_pool_open(2, ROOM) < 0) return NULL;
    check_calls(call, 9, 300);
    tr_pool_close();
    return arg;
}

TEST(pool, threads_have_pools_of_their_own)
{
    static struct call calls[3];
    pthread_t threads[3];
    for (int i = 0; i < 3; ++i) REQUIRE(!pthread_create(&threads[i], NULL, train, &calls[i]));
    for (int i = 0; i < 3; ++i) {
        void *result = NULL;
        pthread_join(threads[i], &result);
        CHECK(result == &calls[i]);
    }
}

static atomic_int on_others;
static pthread_t main_thread;

static void note(int number)
{
    (void)number;
    if (!pthread_equal(pthread_self(), main_thread)) atomic_fetch_add(&on_others, 1);
}

/* The handler of a signal that is sent to the process runs on a thread of the program's own. */
TEST(pool, workers_take_no_signals)
{
    static struct call call;
    sigset_t usr1, before;
    main_thread = pthread_self();
    REQUIRE(signal(SIGUSR1, note) != SIG_ERR);
    REQUIRE(tr_pool_open(3, ROOM) == TR_OK);
    sigemptyset(&usr1);
    sigaddset(&usr1, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &usr1, &before); /* a worker that does not block it would get it */
    CHECK_EQ(kill(getpid(), SIGUSR1), 0);
    check_calls(&call, 31, 20);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    CHECK_EQ(atomic_load(&on_others), 0);
    tr_pool_close();
    signal(SIGUSR1, SIG_DFL);
}

/* A child of fork has no workers: it computes alone, and ends. */
TEST(pool, a_forked_child_computes_alone)
{
    static struct call call;
    REQUIRE(tr_pool_open(3, ROOM) == TR_OK);
    check_calls(&call, 31, 5);
    const pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        memset(&call, 0, sizeof call);
        tr_pool_run(count, &call, 31);
        const bool right = tr_pool_threads() == 1 && call.counts[0] == 1 && call.counts[30] == 1;
        tr_pool_close();
        _exit(right ? 0 : 1);
    }
    int status = -1;
    CHECK_EQ(waitpid(child, &status, 0), child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    check_calls(&call, 31, 5); /* the parent's pool is as before */
    tr_pool_close();
}

/* A program that ends in the middle of a run does not end its pool. */
TEST(pool, a_program_ends_while_its_workers_sleep_or_look)
{
    const pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        static struct call call;
        if (tr_pool_open(3, ROOM) < 0) _exit(2);
        tr_pool_run(count, &call, 5);
        exit(0);
    }
    int status = -1;
    CHECK_EQ(waitpid(child, &status, 0), child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}
