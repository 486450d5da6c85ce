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

/* Pieces that wait for each other: `size` of them meet, for which as many threads must have one
 * each. After 30 seconds a piece waits no longer: threads do not come. */
enum { MOST_THREADS = 5, PATIENCE_S = 30 };

struct meeting {
    int size;
    long npieces; /* of the call; those beyond a multiple of size wait for nobody */
    pthread_mutex_t lock;
    pthread_cond_t arrived;
    long arrivals;
    bool late;
    /* of each piece */
    pthread_t threads[MOST];
    sigset_t blocked[MOST];
    float *rooms[MOST];
};

static void begin_meeting(struct meeting *meeting, int size, long npieces)
{
    *meeting = (struct meeting){.size = size, .npieces = npieces};
    pthread_mutex_init(&meeting->lock, NULL);
    pthread_cond_init(&meeting->arrived, NULL);
}

/* Returns when the arrivals are a multiple of `size`. */
static void meet(struct meeting *meeting)
{
    struct timespec end;
    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += PATIENCE_S;
    pthread_mutex_lock(&meeting->lock);
    const long all = (meeting->arrivals++ / meeting->size + 1) * meeting->size;
    pthread_cond_broadcast(&meeting->arrived);
    while (meeting->arrivals < all && !meeting->late)
        if (pthread_cond_timedwait(&meeting->arrived, &meeting->lock, &end)) {
            meeting->late = true;
            pthread_cond_broadcast(&meeting->arrived);
        }
    pthread_mutex_unlock(&meeting->lock);
}

static float own_room[ROOM];

static void meet_others(const void *arg, long index)
{
    struct meeting *meeting = (struct meeting *)(uintptr_t)arg;
    meeting->threads[index] = pthread_self();
    pthread_sigmask(SIG_BLOCK, NULL, &meeting->blocked[index]);
    meeting->rooms[index] = tr_pool_room(own_room);
    if (index < meeting->npieces - meeting->npieces % meeting->size) meet(meeting);
}

/* One call whose pieces meet, `size` at a time, on as many threads; false when they did not. */
static bool hold_meeting(struct meeting *meeting, int size, long npieces)
{
    begin_meeting(meeting, size, npieces);
    tr_pool_run(meet_others, meeting, npieces);
    CHECK_MESSAGE(!meeting->late, "%d of %ld pieces never ran at the same time", size, npieces);
    for (long i = 0; i < npieces - npieces % size && !meeting->late; ++i)
        for (long j = i - i % size; j < i; ++j)
            CHECK(!pthread_equal(meeting->threads[i], meeting->threads[j]));
    return !meeting->late;
}

/* Calls that follow each other at once, and calls before which the workers have gone to sleep. */
TEST(pool, all_threads_are_there_for_pieces_that_wait_for_each_other)
{
    static struct meeting meeting;
    for (int n = 2; n <= MOST_THREADS; ++n) {
        REQUIRE(tr_pool_open(n, ROOM) == TR_OK);
        bool met = true;
        for (int turn = 0; turn < 60 && met; ++turn) {
            const struct timespec pause = {.tv_nsec = turn % 4 * 300000};
            if (pause.tv_nsec) nanosleep(&pause, NULL);
            met = hold_meeting(&meeting, n, n * (1 + turn % 3) + turn % 2);
        }
        tr_pool_close();
        REQUIRE(met);
    }
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

/* Fills its thread's room, and has it as it left it when all have filled theirs. */
static void fill_room(const void *arg, long index)
{
    struct meeting *meeting = (struct meeting *)(uintptr_t)arg;
    meet_others(arg, index);
    float *room = meeting->rooms[index];
    for (int i = 0; i < ROOM; ++i) room[i] = (float)(index + i);
    meet(meeting);
    for (int i = 0; i < ROOM; ++i) CHECK(room[i] == (float)(index + i));
}

TEST(pool, each_thread_has_room_of_its_own)
{
    static struct meeting meeting;
    enum { THREADS = 3 };
    REQUIRE(tr_pool_open(THREADS, ROOM) == TR_OK);
    for (int turn = 0; turn < 20 && !meeting.late; ++turn) {
        begin_meeting(&meeting, THREADS, THREADS);
        tr_pool_run(fill_room, &meeting, THREADS);
        CHECK(!meeting.late);
        for (int i = 0; i < THREADS; ++i) {
            const bool own = pthread_equal(meeting.threads[i], pthread_self());
            CHECK(own == (meeting.rooms[i] == own_room));
            CHECK(own || (uintptr_t)meeting.rooms[i] % 64 == 0);
        }
    }
    tr_pool_close();
    CHECK(tr_pool_room(own_room) == own_room);
}

/* Ranks that are threads: each has a pool of its own. */
static void *train(void *arg)
{
    struct call *call = arg;
    struct meeting *meeting = malloc(sizeof *meeting);
    if (!meeting || tr_pool_open(2, ROOM) < 0) return NULL;
    check_calls(call, 9, 300);
    const bool met = hold_meeting(meeting, 2, 9);
    tr_pool_close();
    free(meeting);
    return met ? arg : NULL;
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

/* A thread with all signals blocked would not run the handler of its own faults. */
TEST(pool, workers_block_all_signals_but_those_of_their_faults)
{
    static const int of_faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP, SIGSYS};
    static struct meeting meeting;
    sigset_t before, after;
    pthread_sigmask(SIG_BLOCK, NULL, &before);
    REQUIRE(tr_pool_open(3, ROOM) == TR_OK);
    pthread_sigmask(SIG_BLOCK, NULL, &after);
    hold_meeting(&meeting, 3, 3);
    tr_pool_close();
    for (int number = 1; number < 32; ++number) {
        bool fault = number == SIGKILL || number == SIGSTOP; /* which nobody can block */
        for (size_t i = 0; i < sizeof of_faults / sizeof *of_faults; ++i)
            fault |= of_faults[i] == number;
        CHECK_EQ(sigismember(&after, number), sigismember(&before, number));
        for (int i = 0; i < 3; ++i) {
            const bool own = pthread_equal(meeting.threads[i], pthread_self());
            CHECK_EQ(sigismember(&meeting.blocked[i], number),
                     own ? sigismember(&before, number) : !fault);
        }
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
