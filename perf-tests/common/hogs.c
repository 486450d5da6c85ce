/* Starts and ends the busy loops beside the ranks. */
#include "common/hogs.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* Ends with its parent. It holds no descriptor: nobody waits in vain for the end of a pipe. */
static _Noreturn void hog(pid_t parent, const cpu_set_t *processors)
{
    (void)prctl(PR_SET_NAME, "perf-hog");
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != parent) _exit(1);
    if (processors != NULL) (void)sched_setaffinity(0, sizeof(*processors), processors);
    (void)close_range(0, ~0U, 0);
    for (volatile unsigned long n = 0;; n++) {
    }
}

/* The first hog: begins a session, starts the others in it, and writes 0 or an errno to the pipe.
 */
static _Noreturn void lead(pid_t starter, int count, const cpu_set_t *processors, int report)
{
    const bool leads = setsid() >= 0;
    int error = leads ? 0 : errno;
    pid_t leader = getpid();
    for (int i = 1; i < count && error == 0; i++) {
        pid_t pid = fork();
        if (pid == 0) hog(leader, processors);
        if (pid < 0) error = errno;
    }
    if (write(report, &error, sizeof(error)) != sizeof(error) || error != 0) {
        if (leads) (void)kill(0, SIGKILL); /* the session, with this process */
        _exit(1);
    }
    hog(starter, processors);
}

static int read_report(int from)
{
    int error = 0;
    ssize_t got;
    do got = read(from, &error, sizeof(error));
    while (got < 0 && errno == EINTR);
    return got == sizeof(error) ? error : ECHILD;
}

bool perf_hogs_start(struct perf_hogs *hogs, int count)
{
    pid_t starter = getpid();
    cpu_set_t processors;
    bool known = sched_getaffinity(getppid(), sizeof(processors), &processors) == 0;
    int report[2];
    hogs->leader = 0;
    if (count == 0) return true;
    if (pipe2(report, O_CLOEXEC) != 0) return false;
    pid_t leader = fork();
    if (leader == 0) lead(starter, count, known ? &processors : NULL, report[1]);
    int error = leader < 0 ? errno : 0;
    (void)close(report[1]);
    if (leader > 0) error = read_report(report[0]);
    (void)close(report[0]);
    if (leader > 0) hogs->leader = leader;
    if (error == 0) return true;
    perf_hogs_end(hogs);
    errno = error;
    return false;
}

void perf_hogs_end(struct perf_hogs *hogs)
{
    if (hogs->leader == 0) return;
    (void)kill(-hogs->leader, SIGKILL);
    (void)waitpid(hogs->leader, NULL, 0);
    hogs->leader = 0;
}
