/* Watching processes: how many descriptors that takes, and what is seen without any. */
#include "transport/host/watch.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "shim.h"

static int next_descriptor(void)
{
    const int next = fcntl(0, F_DUPFD_CLOEXEC, 0);
    close(next);
    return next;
}

static void set_limit(rlim_t number)
{
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = number;
    setrlimit(RLIMIT_NOFILE, &limit);
}

static pid_t fork_sleeper(void)
{
    const pid_t pid = fork();
    if (pid == 0)
        for (;;) pause();
    return pid;
}

/* Whether its death is seen, within 20 s, before its parent has taken note of it. */
static bool sees_death(struct tt_pid_watch *watch, pid_t pid)
{
    const int64_t deadline_ns = tt_deadline_ns(20000);
    kill(pid, SIGKILL);
    while (!tt_pid_watch_is_dead(watch) && !tt_expired(deadline_ns)) usleep(1000);
    const bool seen = tt_pid_watch_is_dead(watch);
    waitpid(pid, NULL, 0);
    return seen && tt_pid_watch_is_dead(watch);
}

TEST(watch, many_watches_of_one_process_take_one_descriptor)
{
    enum { MANY = 100 };
    struct tt_pid_watch *watches[MANY], *other;
    const pid_t pid = fork_sleeper();
    const int before = next_descriptor();
    for (int i = 0; i < MANY; i++) REQUIRE((watches[i] = tt_pid_watch_get(pid, 5)));
    CHECK(next_descriptor() <= before + 1);
    REQUIRE((other = tt_pid_watch_get(pid, 6))); /* an earlier process had the same pid */
    CHECK(other != watches[0]);
    tt_pid_watch_put(other);
    for (int i = 1; i < MANY; i++) tt_pid_watch_put(watches[i]);
    CHECK(!tt_pid_watch_is_dead(watches[0]));
    CHECK(sees_death(watches[0], pid));
    tt_pid_watch_put(watches[0]);
    CHECK_EQ(next_descriptor(), before);
}

TEST(watch, a_death_is_seen_where_no_descriptor_is_left)
{
    struct rlimit before;
    REQUIRE(getrlimit(RLIMIT_NOFILE, &before) == 0);
    for (int late = 0; late < 2; late++) { /* late: the descriptors come back before the death */
        const pid_t pid = fork_sleeper();
        set_limit((rlim_t)next_descriptor());
        struct tt_pid_watch *watch = tt_pid_watch_get(pid, 7);
        const bool lived = watch && !tt_pid_watch_is_dead(watch);
        if (late) set_limit(before.rlim_cur);
        const bool seen = watch && !tt_pid_watch_is_dead(watch) && sees_death(watch, pid);
        set_limit(before.rlim_cur);
        CHECK_MESSAGE(lived && seen, "late %d: lived %d, seen %d", late, lived, seen);
        tt_pid_watch_put(watch);
    }
}

/* It keeps its pid, its pidfd and its start time. */
TEST(watch, a_process_that_becomes_another_program_is_dead)
{
    int ends[2];
    char byte;
    REQUIRE(pipe(ends) == 0);
    const pid_t pid = fork();
    if (pid == 0) {
        if (read(ends[0], &byte, 1) == 1) execl("/bin/sleep", "sleep", "1000", (char *)NULL);
        _exit(1);
    }
    const int64_t deadline_ns = tt_deadline_ns(20000);
    struct tt_pid_watch *watch = tt_pid_watch_get(pid, 10);
    REQUIRE(watch);
    usleep(600000); /* it is looked at again */
    CHECK(!tt_pid_watch_is_dead(watch) && !tt_pid_watch_is_another(watch));
    CHECK(write(ends[1], "x", 1) == 1);
    while (!tt_pid_watch_is_dead(watch) && !tt_expired(deadline_ns)) usleep(1000);
    CHECK(tt_pid_watch_is_dead(watch) && tt_pid_watch_is_another(watch));
    CHECK(sees_death(watch, pid));
    tt_pid_watch_put(watch);
    close(ends[0]);
    close(ends[1]);
}

/* closefrom(3) of the program: the number is closed, or that of a file which can always be read. */
TEST(watch, a_descriptor_that_the_program_closes_is_no_death)
{
    for (int reused = 0; reused < 2; reused++) {
        const pid_t pid = fork_sleeper();
        const int number = next_descriptor();
        struct tt_pid_watch *watch = tt_pid_watch_get(pid, 9);
        REQUIRE(watch && next_descriptor() != number);
        close(number);
        if (reused) REQUIRE(open("/dev/zero", O_RDONLY | O_CLOEXEC) == number);
        CHECK_MESSAGE(!tt_pid_watch_is_dead(watch), "reused %d", reused);
        CHECK(sees_death(watch, pid));
        tt_pid_watch_put(watch);
        CHECK_EQ(fcntl(number, F_GETFD) >= 0, reused);
        if (reused) close(number);
    }
}

TEST(watch, descriptors_that_run_out_later_do_not_matter)
{
    struct rlimit before;
    REQUIRE(getrlimit(RLIMIT_NOFILE, &before) == 0);
    const pid_t pid = fork_sleeper();
    struct tt_pid_watch *watch = tt_pid_watch_get(pid, 8);
    set_limit((rlim_t)next_descriptor());
    const bool lived = watch && !tt_pid_watch_is_dead(watch),
               seen = watch && sees_death(watch, pid);
    set_limit(before.rlim_cur);
    CHECK(lived && seen);
    tt_pid_watch_put(watch);
}

static void *wait_for_death(void *unused)
{
    for (;;) pause();
    return unused;
}

/* Its main thread ends, another one goes on: what such a process shows looks like a zombie's. */
static pid_t fork_headless(void)
{
    int ends[2];
    char byte;
    if (pipe(ends)) return -1;
    const pid_t pid = fork();
    if (pid == 0) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, wait_for_death, NULL) || write(ends[1], "x", 1) != 1)
            _exit(1);
        syscall(SYS_exit, 0); /* not pthread_exit, which unwinds the test program */
    }
    if (read(ends[0], &byte, 1) != 1) return -1;
    close(ends[0]);
    close(ends[1]);
    return pid;
}

TEST(watch, a_process_lives_on_after_its_main_thread)
{
    struct rlimit before;
    REQUIRE(getrlimit(RLIMIT_NOFILE, &before) == 0);
    const pid_t pid = fork_headless();
    REQUIRE(pid > 0);
    set_limit((rlim_t)next_descriptor());
    struct tt_pid_watch *watch = tt_pid_watch_get(pid, 9);
    bool lived = watch;
    for (int i = 0; i < 100 && lived; i++) {
        lived = !tt_pid_watch_is_dead(watch);
        usleep(500); /* it may still be ending */
    }
    const bool seen = watch && sees_death(watch, pid);
    set_limit(before.rlim_cur);
    CHECK_MESSAGE(lived && seen, "lived %d, seen %d", lived, seen);
    tt_pid_watch_put(watch);
}
