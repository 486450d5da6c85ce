/* Says how a rank has ended. */
#include "run.h"

#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

int run_code_of(int status)
{
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

int run_tag_of(const struct run *run, int index)
{
    return run->members[index].name ? -1 : run->options.first_rank + index;
}

/* Why exec failed, if it did; -1: it did not. */
static int exec_error(const struct run *run)
{
    int error;
    return read(run->complaints[0], &error, sizeof error) == (ssize_t)sizeof error ? error : -1;
}

void run_report(const struct run *run, int index, pid_t pid, int status)
{
    const int error = exec_error(run);
    const struct member *member = &run->members[index];
    const int signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    if (error >= 0)
        run_say("cannot run '%s': %s", member->command[0], strerror(error));
    else if (member->name)
        run_say("host %s: %s ended with code %d", member->name, member->command[0],
                run_code_of(status));
    else if (signal && (sigismember(&run->passed, signal) == 1 ||
                        (run->asked_signal && run_is_ending(signal))))
        run_say("ended by SIG%s", sigabbrev_np(signal));
    else if (signal)
        run_say("rank %d (pid %d) was killed by signal %d (%s)%s", run_tag_of(run, index), (int)pid,
                signal, strsignal(signal), WCOREDUMP(status) ? ", core dumped" : "");
    else
        run_say("rank %d (pid %d) exited with code %d", run_tag_of(run, index), (int)pid,
                WEXITSTATUS(status));
}
