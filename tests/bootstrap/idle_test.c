/* Unique ids to which no rank comes, in a program that closes the descriptor with which the library
 * waits for ranks, and has an epoll instance of its own under the number. */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "base/sanitizers.h"
#include "bootstrap/bootstrap.h"
#include "own_epoll.h"
#include "shim.h"

enum { MOST_FD = 256, MOST_LOOKS = 100000, BREAK_US = 100 };

static bool is_epoll(int fd)
{
    char path[32], target[32] = "";
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    return readlink(path, target, sizeof target - 1) > 0 && strstr(target, "[eventpoll]");
}

/* The one that was not there before; -1: none. */
static int new_epoll(const bool *before)
{
    int fd = 0;
    while (fd < MOST_FD && (before[fd] || !is_epoll(fd))) fd++;
    return fd < MOST_FD ? fd : -1;
}

static int count_open(void)
{
    int n = 0;
    for (int fd = 0; fd < MOST_FD; fd++) {
        char path[32], target[8];
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        n += readlink(path, target, sizeof target) > 0;
    }
    return n;
}

/* Whether so many descriptors are open, soon. */
static bool has_open(int expected)
{
    for (int i = 0; i < MOST_LOOKS; i++) {
        if (count_open() == expected) return true;
        usleep(BREAK_US);
    }
    return false;
}

/* The thread waits on the library's instance until the end of an id wakes it. */
static int drop_ids(void)
{
    struct tt_unique_id ids[2];
    bool before[MOST_FD];
    for (int fd = 0; fd < MOST_FD; fd++) before[fd] = is_epoll(fd);
    if (tt_unique_id_create(&ids[0]) || tt_unique_id_create(&ids[1])) return 2;
    const int number = new_epoll(before);
    if (number < 0 || !own_epoll_put(number, 8)) return 3;
    const int nopen = count_open();
    for (int i = 0; i < 2; i++) {
        tt_unique_id_drop(&ids[i]);
        if (!has_open(nopen - 1 - i)) return 4 + i;
    }
    return own_epoll_take(number, 8) ? 0 : 6;
}

TEST(idle, an_epoll_instance_of_the_program_is_left_alone)
{
    int status = -1;
    if (tt_is_thread_sanitizer()) SKIP("ThreadSanitizer allows no threads after a fork");
    const pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        _exit(drop_ids());
    }
    REQUIRE(waitpid(child, &status, 0) == child);
    CHECK_EQ(status, 0);
}
