/* Ranks that die during an init without a deadline, and whose end the root cannot tell the others.
 */
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/config.h"
#include "base/sanitizers.h"
#include "ranks.h"
#include "shim.h"

enum { MOST = 16, STEP_S = 60, MOST_STEPS = 10, PAUSES = 500 };

/* How far the clock of this process is ahead. The library takes this clock_gettime, since a name of
 * the program comes before that of libc. */
static _Atomic long ahead_s;

int clock_gettime(clockid_t clock, struct timespec *now)
{
    const int result = (int)syscall(SYS_clock_gettime, clock, now);
    now->tv_sec += ahead_s;
    return result;
}

static void *run_one(void *run)
{
    run_rank(run);
    return NULL;
}

static bool have_ended(struct rank_run *runs, int n)
{
    int nended = 0;
    for (int i = 0; i < n; i++) nended += atomic_load(&runs[i].ended);
    return nended == n;
}

/* All but the last of straggler->nranks ranks, and then the last one, which dies. Without a
 * deadline a rank looks at the clock when it says for whom it waits. */
static void lose_last(struct straggler *straggler, struct rank_run *runs, bool leaps)
{
    pthread_t threads[MOST];
    const int n = straggler->nranks - 1, before = count_descriptors();
    setenv("TUTTI_LATE_MS", "100", 1);
    tt_config_reload();
    for (int i = 0; i < n; i++) REQUIRE(!pthread_create(&threads[i], NULL, run_one, &runs[i]));
    /* The others come first: of so many the root holds no more. */
    for (int i = 0; i < PAUSES && count_descriptors() < before + n - 1; i++)
        nanosleep(&(struct timespec){.tv_nsec = 4000000}, NULL);
    straggle(straggler);
    CHECK(straggler->answered);
    for (int step = 0; step < MOST_STEPS && leaps && !have_ended(runs, n); step++) {
        nanosleep(&(struct timespec){.tv_nsec = 300000000}, NULL);
        ahead_s += STEP_S;
        for (int i = 0; i < PAUSES && !have_ended(runs, n); i++)
            nanosleep(&(struct timespec){.tv_nsec = 4000000}, NULL);
    }
    for (int i = 0; i < n; i++) pthread_join(threads[i], NULL);
    ahead_s = 0; /* waits of other tests are by the kernel's clock */
    unsetenv("TUTTI_LATE_MS");
    tt_config_reload();
}

static void set_up(struct rank_run *runs, const struct straggler *straggler)
{
    for (int rank = 0; rank < straggler->nranks - 1; rank++) {
        runs[rank] = rank_run_of(&straggler->id, rank, straggler->nranks);
        runs[rank].timeout_ms = 0;
    }
}

TEST(endless, a_child_that_dies_with_the_root_is_named)
{
    struct rank_run runs[MOST];
    struct straggler straggler = {.rank = 1, .nranks = 2};
    if (tt_is_thread_sanitizer()) SKIP("ThreadSanitizer allows no threads after a fork");
    straggler.root = fork_root(&straggler.id, 200);
    REQUIRE(straggler.root > 0);
    set_up(runs, &straggler);
    lose_last(&straggler, runs, true);
    expect_ranks(runs, 1, TT_ERR_REMOTE, "rank 0 lost rank 1 during init");
}

/* Rank 9 is a child of rank 1, which waits for it when rank 0 leaves. */
TEST(endless, a_parent_that_has_gone_is_named_by_a_rank_that_waits_for_its_children)
{
    struct rank_run runs[MOST];
    struct straggler straggler = {.rank = 9, .nranks = 10};
    if (tt_is_thread_sanitizer()) SKIP("ThreadSanitizer allows no threads after a fork");
    straggler.root = fork_root(&straggler.id, 200);
    REQUIRE(straggler.root > 0);
    set_up(runs, &straggler);
    runs[0].nallgathers = 0;
    lose_last(&straggler, runs, false);
    expect_ranks(runs, 1, TT_OK, NULL);
    expect_ranks(&runs[1], 8, TT_ERR_REMOTE, "rank 0 (pid ");
}

/* Rank 15 is a child of rank 1. Where it comes among the first, the root holds its connection. */
TEST(endless, a_child_that_comes_in_turns_and_dies_is_named)
{
    struct rank_run runs[MOST];
    struct straggler straggler = {.rank = 15, .nranks = 16, .kept = true};
    if (tt_is_thread_sanitizer()) SKIP("ThreadSanitizer allows no threads after a fork");
    for (int attempt = 0; attempt < 10 && straggler.kept; attempt++) {
        const pid_t root = fork_root(&straggler.id, 24);
        REQUIRE(root > 0);
        set_up(runs, &straggler);
        lose_last(&straggler, runs, true);
        kill(root, SIGKILL);
        waitpid(root, NULL, 0);
    }
    CHECK(!straggler.kept);
    expect_ranks(runs, 15, TT_ERR_REMOTE, "rank 1 lost rank 15 during init");
}
