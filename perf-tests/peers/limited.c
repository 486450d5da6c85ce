/* Runs a command for a limited time, beside busy loops, and leaves no process of it.
 *
 *   limited SECONDS HOGS COMMAND [ARGUMENT]...
 *
 * The exit status is that of the command, 128 + N when signal N ended it, 124 when the time was
 * over, 125 when it could not be run. SIGINT, SIGTERM, SIGHUP and the death of the parent end the
 * command too.
 *
 * Launchers of MPI start their ranks in process groups of their own, and a launcher that is killed
 * leaves its ranks behind. So this process takes in the orphans among its descendants
 * (PR_SET_CHILD_SUBREAPER): whatever the command started is in the end a child of this process,
 * which ends its children by pid until there is none. */
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "common/hogs.h"
#include "common/timing.h"

enum {
    TIME_OVER = 124,
    NOT_RUN = 125,
    MOST_SECONDS = 1000000,
    GRACE_SECONDS = 3, /* for a command that was told to end */
    SWEEP_SECONDS = 10 /* for processes that were killed */
};

/* The next of the signals, at most for this many seconds; 0 when none came. */
static int wait_for_signal(const sigset_t *signals, double seconds)
{
    if (seconds < 0) seconds = 0;
    struct timespec time = {(time_t)seconds, (long)(1e9 * (seconds - (double)(time_t)seconds))};
    int number = sigtimedwait(signals, NULL, &time);
    return number > 0 ? number : 0;
}

/* Waits until the command has ended, a signal comes that ends it, or the time is over. Returns 0
 * when the command has ended, and then *status is its status; else the exit status that says why it
 * has not. */
static int wait_for_command(pid_t command, const sigset_t *signals, double end, int *status)
{
    for (;;) {
        if (waitpid(command, status, WNOHANG) == command) return 0;
        int number = wait_for_signal(signals, end - perf_now());
        if (number != 0 && number != SIGCHLD) return 128 + number;
        if (number == 0 && perf_now() >= end) return TIME_OVER;
    }
}

static pid_t parent_of(const char *pid)
{
    char path[64], text[512];
    snprintf(path, sizeof path, "/proc/%.20s/stat", pid);
    FILE *file = fopen(path, "r");
    if (!file) return 0;
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    fclose(file);
    const char *name_end = strrchr(text, ')'); /* "pid (name) state parent" */
    return name_end && strlen(name_end) > 4 ? (pid_t)strtol(name_end + 4, NULL, 10) : 0;
}

/* Kills the children of this process, hogs too. Returns how many there are. */
static int kill_children(void)
{
    DIR *processes = opendir("/proc");
    if (!processes) return 0;
    int count = 0;
    for (const struct dirent *entry; (entry = readdir(processes)) != NULL;) {
        if (!isdigit((unsigned char)entry->d_name[0]) || parent_of(entry->d_name) != getpid())
            continue;
        (void)kill((pid_t)strtol(entry->d_name, NULL, 10), SIGKILL);
        count++;
    }
    closedir(processes);
    return count;
}

/* Children of a killed child become children of this process. */
static void sweep(const sigset_t *signals)
{
    const double end = perf_now() + SWEEP_SECONDS;
    while (kill_children() > 0) {
        if (perf_now() >= end) {
            fprintf(stderr, "limited: a process that was killed has not ended in %d seconds\n",
                    SWEEP_SECONDS);
            return;
        }
        (void)wait_for_signal(signals, 0.1);
        while (waitpid(-1, NULL, WNOHANG) > 0) {
        }
    }
}

/* In a process group of its own, which gets SIGTERM when the time is over. */
static pid_t start(char **command, const sigset_t *signals)
{
    const pid_t pid = fork();
    if (pid != 0) {
        if (pid > 0) (void)setpgid(pid, pid);
        return pid;
    }
    (void)setpgid(0, 0);
    (void)prctl(PR_SET_PDEATHSIG, SIGTERM);
    (void)sigprocmask(SIG_UNBLOCK, signals, NULL);
    execvp(command[0], command);
    fprintf(stderr, "limited: cannot run '%s': %s\n", command[0], strerror(errno));
    _exit(NOT_RUN);
}

static int run(int seconds, int nhogs, char **command)
{
    static struct perf_hogs hogs;
    sigset_t signals;
    sigemptyset(&signals);
    for (size_t i = 0; i < 4; i++)
        sigaddset(&signals, (const int[]){SIGCHLD, SIGINT, SIGTERM, SIGHUP}[i]);
    (void)sigprocmask(SIG_BLOCK, &signals, NULL);
    (void)prctl(PR_SET_PDEATHSIG, SIGTERM);
    (void)prctl(PR_SET_CHILD_SUBREAPER, 1);

    const pid_t pid = perf_hogs_start(&hogs, nhogs) ? start(command, &signals) : -1;
    if (pid < 0) {
        fprintf(stderr, "limited: cannot start '%s' and %d hogs: %s\n", command[0], nhogs,
                strerror(errno));
        sweep(&signals);
        return NOT_RUN;
    }
    int status = 0;
    const int why = wait_for_command(pid, &signals, perf_now() + seconds, &status);
    if (why != 0) {
        (void)kill(-pid, SIGTERM);
        (void)wait_for_command(pid, &signals, perf_now() + GRACE_SECONDS, &status);
    }
    sweep(&signals);
    if (why != 0) return why;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* A whole number from 0 to `most`; negative when the text is none. */
static int number_of(const char *text, int most)
{
    char *end;
    errno = 0;
    const long number = strtol(text, &end, 10);
    return end != text && *end == '\0' && errno == 0 && number >= 0 && number <= most ? (int)number
                                                                                      : -1;
}

int main(int argc, char **argv)
{
    const int seconds = argc > 3 ? number_of(argv[1], MOST_SECONDS) : -1;
    const int nhogs = argc > 3 ? number_of(argv[2], PERF_MOST_HOGS) : -1;
    if (seconds < 1 || nhogs < 0) {
        fprintf(stderr,
                "usage: limited SECONDS HOGS COMMAND [ARGUMENT]...\n"
                "SECONDS: 1 to %d, HOGS: 0 to %d\n",
                MOST_SECONDS, PERF_MOST_HOGS);
        return NOT_RUN;
    }
    return run(seconds, nhogs, argv + 3);
}
