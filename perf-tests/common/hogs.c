/* Starts and ends the busy loops beside the ranks. */
#include "common/hogs.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* The body of a hog. It holds no descriptor: nobody waits in vain for the end of a pipe. */
static _Noreturn void hog(pid_t starter, const cpu_set_t *processors)
{
    (void)prctl(PR_SET_NAME, "perf-hog");
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != starter) _exit(1);
    if (processors != NULL) (void)sched_setaffinity(0, sizeof(*processors), processors);
    (void)close_range(0, ~0U, 0);
    for (volatile unsigned long n = 0;; n++) {
    }
}

bool perf_hogs_start(struct perf_hogs *hogs, int count)
{
    const pid_t starter = getpid();
    cpu_set_t processors;
    bool known = sched_getaffinity(getppid(), sizeof(processors), &processors) == 0;
    for (hogs->count = 0; hogs->count < count; hogs->count++) {
        pid_t pid = fork();
        if (pid == 0) hog(starter, known ? &processors : NULL);
        if (pid < 0) {
            int error = errno;
            perf_hogs_end(hogs);
            errno = error;
            return false;
        }
        hogs->pids[hogs->count] = pid;
    }
    return true;
}

void perf_hogs_end(struct perf_hogs *hogs)
{
    for (int i = 0; i < hogs->count; i++) (void)kill(hogs->pids[i], SIGKILL);
    for (int i = 0; i < hogs->count; i++) (void)waitpid(hogs->pids[i], NULL, 0);
    hogs->count = 0;
}
