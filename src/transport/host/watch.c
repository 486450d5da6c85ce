/* Watches the processes of this host: one pidfd for each, shared by all communicators. A process
 * that calls exec() keeps its pid, its pidfd and its start time, but not its layout in memory. */
#include "transport/host/watch.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/open.h"
#include "base/private_fd.h"
#include "base/process_lock.h"
#include "base/thread.h"
#include "net/scarce.h"

/* Where the kernel has put the program of a process: it draws the places anew at each exec(). 0:
 * not to be seen, as by another user, or of a process that is ending. */
struct layout {
    uint64_t code, code_end, stack;
};

/* A look at the layout opens a file in /proc; one at the pidfd costs a tenth of that. */
#define LAYOUT_NS INT64_C(500000000)

struct tt_pid_watch {
    pid_t pid, watcher; /* watcher: this process; a child made by fork has none of these watches */
    uint64_t process_id;
    uint64_t start; /* when it began, in ticks since boot; 0: not known */
    struct layout layout;
    int64_t layout_ns; /* when the layout was looked at last */
    bool shows_itself; /* its folder in /proc can be read */
    bool is_another;   /* it has become another program */
    bool said_blind;
    int pidfd; /* -1: not to be had yet */
    int users;
    struct tt_pid_watch *next;
};

static struct tt_process_lock lock = TT_PROCESS_LOCK;
static struct tt_pid_watch *watches; /* guarded by lock, as what is in them */

/* What /proc/PID/stat says. */
struct process {
    char state;
    long nthreads;
    uint64_t start;
    struct layout layout;
};

/* 0, or an errno value. */
static int read_stat(pid_t pid, struct process *process)
{
    char path[32], text[1024];
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    if (tt_read_text(path, text, sizeof text) < 0) return errno;
    const char *end = strrchr(text, ')'); /* of its name, which may hold anything */
    unsigned long long start, code, code_end, stack;
    if (!end ||
        sscanf(end,
               ") %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %ld %*d "
               "%llu %*u %*d %*u %llu %llu %llu",
               &process->state, &process->nthreads, &start, &code, &code_end, &stack) != 6)
        return EINVAL;
    process->start = start;
    process->layout = (struct layout){code, code_end, stack};
    return 0;
}

/* Of a process as /proc shows it; 0: it does not. Needs no descriptor. */
static int count_threads(pid_t pid)
{
    char path[32];
    struct stat tasks;
    snprintf(path, sizeof path, "/proc/%d/task", (int)pid);
    return stat(path, &tasks) == 0 ? (int)tasks.st_nlink - 2 : 0; /* less "." and ".." */
}

/* Without any descriptor. A process that has ended has no working directory, nor has one whose main
 * thread has ended while others run. */
static bool is_gone_by_path(pid_t pid)
{
    char path[32], link[8];
    snprintf(path, sizeof path, "/proc/%d/cwd", (int)pid);
    const bool ended = readlink(path, link, sizeof link) < 0 && (errno == ENOENT || errno == ESRCH);
    return ended && count_threads(pid) <= 1;
}

static bool is_gone_by_proc(const struct tt_pid_watch *watch)
{
    struct process now;
    if (kill(watch->pid, 0) != 0 && errno == ESRCH) return true;
    if (!watch->shows_itself) return false;
    const int error = read_stat(watch->pid, &now);
    if (tt_is_scarcity(error)) return is_gone_by_path(watch->pid);
    if (error == ENOENT || error == ESRCH) return true;
    if (error) return false;
    const bool ended = now.state == 'X' || (now.state == 'Z' && now.nthreads <= 1);
    return ended || (watch->start && now.start != watch->start);
}

/* It may be another process by now when this comes late: then the pidfd is not kept. */
static void open_pidfd_locked(struct tt_pid_watch *watch)
{
    struct process now;
    tt_private_fd_begin();
    const int pidfd = tt_private_fd_end((int)syscall(SYS_pidfd_open, watch->pid, 0));
    if (pidfd < 0 && !watch->shows_itself && !watch->said_blind)
        TT_WARN("cannot watch process %d (pidfd_open: %m; /proc does not show it either): its end "
                "is seen when its parent has noticed it, or by the deadline",
                (int)watch->pid);
    if (pidfd < 0) watch->said_blind = true;
    if (pidfd >= 0 && watch->start &&
        (read_stat(watch->pid, &now) != 0 || now.start != watch->start))
        tt_private_fd_close(pidfd);
    else
        watch->pidfd = pidfd;
}

static struct tt_pid_watch *create_locked(pid_t pid, uint64_t process_id)
{
    struct tt_pid_watch *watch = calloc(1, sizeof *watch);
    struct process now;
    if (!watch) return NULL;
    *watch = (struct tt_pid_watch){
        .pid = pid, .watcher = getpid(), .process_id = process_id, .pidfd = -1, .next = watches};
    if (read_stat(pid, &now) == 0) {
        watch->start = now.start;
        watch->layout = now.layout;
    }
    watch->layout_ns = tt_now_ns();
    watch->shows_itself = count_threads(pid) > 0;
    open_pidfd_locked(watch);
    watches = watch;
    return watch;
}

struct tt_pid_watch *tt_pid_watch_get(pid_t pid, uint64_t process_id)
{
    tt_process_lock(&lock);
    struct tt_pid_watch *watch = watches;
    while (watch &&
           (watch->pid != pid || watch->process_id != process_id || watch->watcher != getpid()))
        watch = watch->next;
    if (!watch) watch = create_locked(pid, process_id);
    if (watch) watch->users++;
    tt_process_unlock(&lock);
    return watch;
}

void tt_pid_watch_put(struct tt_pid_watch *watch)
{
    if (!watch) return;
    tt_process_lock(&lock);
    if (--watch->users == 0) {
        struct tt_pid_watch **link = &watches;
        while (*link != watch) link = &(*link)->next;
        *link = watch->next;
        if (watch->pidfd >= 0) tt_private_fd_close(watch->pidfd);
        free(watch);
    }
    tt_process_unlock(&lock);
}

/* The process has called exec(). Where a layout cannot be seen, nothing is known. */
static bool has_become_another_locked(struct tt_pid_watch *watch)
{
    struct process now;
    const struct layout *was = &watch->layout, *is = &now.layout;
    const int64_t now_ns = tt_now_ns();
    if (watch->is_another || !was->stack || now_ns - watch->layout_ns < LAYOUT_NS)
        return watch->is_another;
    watch->layout_ns = now_ns;
    watch->is_another =
        read_stat(watch->pid, &now) == 0 && is->stack && now.start == watch->start &&
        (is->code != was->code || is->code_end != was->code_end || is->stack != was->stack);
    return watch->is_another;
}

bool tt_pid_watch_is_another(struct tt_pid_watch *watch)
{
    tt_process_lock(&lock);
    const bool is_another = watch->is_another;
    tt_process_unlock(&lock);
    return is_another;
}

bool tt_pid_watch_is_dead(struct tt_pid_watch *watch)
{
    TT_CANCELS_WAIT; /* poll and open are where a thread can be cancelled */
    tt_process_lock(&lock);
    if (watch->pidfd < 0) open_pidfd_locked(watch);
    struct pollfd poll_fd = {.fd = watch->pidfd, .events = POLLIN};
    bool dead = watch->pidfd >= 0 ? poll(&poll_fd, 1, 0) > 0 : is_gone_by_proc(watch);
    if (dead && watch->pidfd >= 0 && tt_private_fd_is_lost(watch->pidfd)) {
        tt_private_fd_close(watch->pidfd); /* it is the program's file now, or none */
        watch->pidfd = -1;
        dead = is_gone_by_proc(watch);
    }
    dead = dead || has_become_another_locked(watch);
    tt_process_unlock(&lock);
    return dead;
}
