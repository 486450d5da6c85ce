/* Two processes look after the ranks of a host, so that nothing is left when one of them is killed:
 *
 *   tutti-run, the front --- tutti-run, the supervisor --+-- rank 0 --- what it starts
 *                                                        '-- rank 1
 *
 * The user knows the front by its pid. It passes the signals that it gets on to the supervisor, and
 * ends with the supervisor's exit code. The supervisor starts the ranks and does the rest. It reads
 * from a pipe whose other end only the front holds, so the end of that pipe is the death of the
 * front; then it kills all its descendants and ends. When the supervisor is killed, the kernel
 * kills the ranks (PR_SET_PDEATHSIG), and the front kills what they have left.
 *
 * Both are subreapers: a process whose parent has died becomes the child of the supervisor or,
 * after it, of the front. So no descendant is lost, also if it has made a session of its own. */
#include "run.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    SWEEP_MS = 10000, /* for killed processes to end: one that waits for a disk ends later */
    LOOK_MS = 20      /* before the descendants are looked up again */
};

/* ---- The end of all descendants -------------------------------------------------------------- */

/* state: as in ps, where the process is there. */
static pid_t read_stat(pid_t pid, char *state)
{
    char path[64], text[512];
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    const ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (fd >= 0) close(fd);
    if (n <= 0) return -1;
    text[n] = '\0';
    const char *name_end = strrchr(text, ')'); /* a name may hold blanks and brackets */
    int parent;
    return name_end && sscanf(name_end + 1, " %c %d", state, &parent) == 2 ? parent : -1;
}

static pid_t parent_of(pid_t pid)
{
    char state;
    return read_stat(pid, &state);
}

static bool is_debugged(pid_t pid)
{
    char state = 0;
    return read_stat(pid, &state) > 0 && state == 't';
}

/* The next process of /proc; 0: there is none. */
static pid_t next_process(DIR *proc)
{
    for (const struct dirent *entry; (entry = readdir(proc));)
        if (isdigit((unsigned char)entry->d_name[0])) return (pid_t)atoi(entry->d_name);
    return 0;
}

static void kill_children(void)
{
    const pid_t own = getpid();
    DIR *proc = opendir("/proc");
    if (!proc) return;
    for (pid_t pid; (pid = next_process(proc));)
        if (parent_of(pid) == own) kill(pid, SIGKILL); /* not reaped: the pid is still its own */
    closedir(proc);
}

/* The child of ours that the process is or descends from; 0: there is none. */
static pid_t child_above(pid_t pid)
{
    const pid_t own = getpid();
    pid_t parent;
    while (pid > 1 && (parent = parent_of(pid)) != own) pid = parent;
    return pid > 1 ? pid : 0;
}

/* To all descendants but `rank` in the front's process group, which other programs may share.
 * False: there are none. */
static bool signal_foreground(const struct run *run, pid_t rank, int signal)
{
    bool any = false;
    DIR *proc = opendir("/proc");
    if (!proc) return false;
    for (pid_t pid; (pid = next_process(proc));)
        if (pid != rank && getpgid(pid) == run->group && child_above(pid))
            any = kill(pid, signal) == 0 || any;
    closedir(proc);
    return any;
}

static bool is_member(const struct run *run, pid_t pid)
{
    int i = 0;
    while (i < run->nmembers && run->members[i].pid != pid) i++;
    return i < run->nmembers;
}

/* The last part of the path of the program that the process runs; "": it ends, or is another
 * user's. */
static void name_program(pid_t pid, char name[64])
{
    char link[64], path[512];
    snprintf(link, sizeof link, "/proc/%d/exe", (int)pid);
    const ssize_t n = readlink(link, path, sizeof path - 1);
    path[n < 0 ? 0 : n] = '\0';
    const char *slash = strrchr(path, '/');
    snprintf(name, 64, "%.63s", slash ? slash + 1 : path);
}

static bool is_program(pid_t pid, const char *const *names)
{
    char name[64];
    name_program(pid, name);
    while (*names && strcmp(*names, name) != 0) names++;
    return *names;
}

/* timeout(1) makes itself a process group, and passes on the signals that end it. */
static bool is_timeout(pid_t pid)
{
    return is_program(pid, (const char *const[]){"timeout", NULL});
}

/* True for a process that ends, too, since that tells nobody any more. */
static bool is_shell(pid_t pid)
{
    return is_program(pid, (const char *const[]){"", "sh", "dash", "bash", "ash", "busybox", "ksh",
                                                 "zsh", "fish", NULL});
}

/* Whether nobody but us tells the process group: a shell has made it, which tells its jobs nothing,
 * or timeout, or it has lost its leader or that one its parent. Who else makes a group (tutti-run,
 * mpirun, tini) passes signals on to it, and a program may take a second one for another one. */
static bool is_ours_to_tell(const struct run *run, pid_t group)
{
    enum { DEEPEST = 64 }; /* groups may be each other's: a parent may join that of its child */
    for (int depth = 0; group > 1 && depth < DEEPEST; depth++) {
        if (is_member(run, group) || group == run->group || group == getpgrp()) return true;
        const pid_t parent = parent_of(group);
        if (parent == getpid() || parent < 0) return true;
        if (parent <= 1 || (!is_shell(parent) && !is_timeout(group))) return false;
        group = getpgid(parent);
    }
    return false;
}

bool run_signal_apart(const struct run *run, int signal, bool also_of_members)
{
    bool any = false;
    const pid_t session = getsid(0);
    DIR *proc = opendir("/proc");
    if (!proc) return false;
    for (pid_t pid; (pid = next_process(proc));) {
        const pid_t group = getpgid(pid);
        if (group <= 1 || getsid(pid) != session || is_member(run, pid) || is_member(run, group) ||
            group == run->group || group == getpgrp())
            continue;
        const pid_t child = child_above(pid);
        const bool is_lost = child == pid; /* its parent has ended */
        if (!child || (!also_of_members && is_member(run, child)) || is_debugged(pid)) continue;
        if (signal && signal != SIGKILL && !is_lost && !is_ours_to_tell(run, group)) continue;
        if (run_is_ending(signal) && pid != group && is_timeout(group)) continue;
        any = kill(pid, signal) == 0 || any;
    }
    closedir(proc);
    return any;
}

bool run_signal_rank(const struct run *run, const struct member *member, pid_t pid, int signal)
{
    if (member->own_group) return kill(-pid, signal) == 0;
    const bool is_there = !member->ended && kill(pid, signal) == 0;
    return signal_foreground(run, pid, signal) || is_there;
}

bool run_signal_left(const struct run *run, const struct member *member, int signal)
{
    const bool any = run_signal_rank(run, member, member->pid, signal);
    return (any && !signal) || run_signal_apart(run, signal, false) || any;
}

void run_sweep(void)
{
    const int64_t until_ns = run_now_ns() + (int64_t)SWEEP_MS * 1000000;
    sigset_t ends;
    sigemptyset(&ends);
    sigaddset(&ends, SIGCHLD);
    for (;;) {
        pid_t pid;
        while ((pid = waitpid(-1, NULL, WNOHANG)) > 0) {
        }
        if (pid < 0 || run_now_ns() > until_ns) return;
        kill_children(); /* their children become ours, and are killed in the next round */
        sigtimedwait(&ends, NULL, &(struct timespec){.tv_nsec = LOOK_MS * 1000000});
    }
}

/* ---- Front and supervisor -------------------------------------------------------------------- */

static int end_of(pid_t supervisor, int status)
{
    if (WIFEXITED(status)) return WEXITSTATUS(status);
    const int signal = WTERMSIG(status);
    run_sweep();
    run_say("the supervisor of the ranks (pid %d) was killed by signal %d (%s): the ranks are "
            "killed",
            (int)supervisor, signal, strsignal(signal));
    return 128 + signal;
}

/* Passes signals on until the supervisor has ended; returns the exit code. */
static int attend(const struct run *run, pid_t supervisor)
{
    siginfo_t info;
    int status;
    while (waitpid(supervisor, &status, WNOHANG) != supervisor) {
        const int signal = sigwaitinfo(&run->heard, &info);
        if (signal < 0 && errno != EINTR) { /* refused: then it ends with the supervisor alone */
            waitpid(supervisor, &status, 0);
            break;
        }
        if (signal < 0 || signal == SIGCHLD) continue;
        if (signal == SIGTSTP && info.si_code == SI_KERNEL && getsid(0) == getpid()) {
            /* No shell would continue us: the rank that the terminal has stopped goes on. */
            sigqueue(supervisor, SIGCONT, (union sigval){.sival_int = false});
            continue;
        }
        /* A terminal that goes away signals the leader of the session, and not its group. */
        const bool is_to_group = info.si_code == SI_KERNEL && signal != SIGHUP;
        const union sigval from_terminal = {.sival_int = is_to_group};
        sigqueue(supervisor, signal, from_terminal);
        if (signal == SIGTSTP) raise(SIGSTOP); /* SIGCONT wakes us, and is passed on in turn */
    }
    return end_of(supervisor, status);
}

static void become_supervisor(struct run *run, const int life[2])
{
    close(life[1]);
    run->front = life[0];
    prctl(PR_SET_CHILD_SUBREAPER, 1); /* fork does not pass it on */
    /* The terminal signals the front only. A write to the terminal must not stop us. */
    setpgid(0, 0);
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTTOU);
    sigprocmask(SIG_BLOCK, &set, NULL);
}

bool run_divide(struct run *run, int *code)
{
    int life[2];
    *code = 1;
    run->group = getpgrp();
    if (run_open_signals(run) != 0 || pipe2(life, O_CLOEXEC) != 0) {
        run_say("cannot start: %s", strerror(errno));
        return false;
    }
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    const pid_t supervisor = fork();
    if (supervisor < 0) run_say("cannot start: %s", strerror(errno));
    if (supervisor == 0) become_supervisor(run, life);
    if (supervisor > 0) {
        close(life[0]);
        *code = attend(run, supervisor);
    }
    return supervisor == 0;
}
