/* How ranks end: of a signal, by themselves, and with something of them left. */
#include <sys/wait.h>

#include "run.h"

enum {
    LEFT_MS = 10000, /* for what a shell left behind, before it gets SIGTERM */
    TRAP_MS = 5000,  /* for a trap to exit, behind a signal that asks for no end */
    HEAR_MS = 500,   /* for the signal by which a shell has ended to reach us, too */
};

void run_drain(struct run *run, int index, bool last)
{
    /* Twice: part of a line in the buffer leaves no room for all that a pipe holds. */
    for (int k = 0; k < 4; k++)
        run_pump_move(&run->members[index].pumps[k % 2], run_tag_of(run, index), last);
}

/* The signal that the status or the code of a trap names, if that asks for an end; 0: none. */
static int asked_by(int status)
{
    const int by = run_code_of(status) - 128;
    return run_is_ending(by) || by == SIGUSR1 ? by : 0;
}

/* Whether a process that ends now has ended because of a signal that asks for an end: of the signal
 * itself, which may have reached it before us, or of a trap, which may exit with any code. */
static bool is_by_signal(const struct run *run, int status)
{
    if (asked_by(status)) return true;
    if (WIFSIGNALED(status)) return sigismember(&run->passed, WTERMSIG(status)) == 1;
    return run->asked_signal || sigismember(&run->passed, SIGUSR1) == 1 ||
           (run->passed_ns && run_now_ns() < run->passed_ns + (int64_t)TRAP_MS * 1000000);
}

/* A signal also ends a shell, say, which runs the rank's program and does not wait for it: the
 * program has the time that the signal gives it, or the grace. */
static bool has_time(const struct run *run, const struct member *member)
{
    return !run->abandoned && (run->kill_ns < INT64_MAX || member->by_signal);
}

/* What a shell ran in a process group of its own (timeout does that) has not got the signal that
 * the shell has ended by, unless that was passed on: a second one could break off what the first
 * one has begun. */
static void tell_orphans(const struct run *run, const struct member *member)
{
    const int by = asked_by(member->status);
    const bool is_told = !by || sigismember(&run->passed, by) == 1 || run->kill_ns < INT64_MAX;
    if (!is_told && !member->name) run_signal_apart(run, by, false);
}

static void judge(const struct run *run, struct member *member)
{
    if (member->by_signal || !is_by_signal(run, member->status)) return;
    member->by_signal = true;
    tell_orphans(run, member);
}

/* Whether the end of this rank is judged again: something of the rank is left, and the signal that
 * has ended its process may not have reached us yet. *orphans: -1, or what run_signal_apart has
 * said. */
static bool is_early(const struct run *run, const struct member *member, int *orphans)
{
    if (member->by_signal || member->name || run->abandoned || run_now_ns() >= member->judge_ns)
        return false;
    if (run_signal_rank(run, member, member->pid, 0)) return true;
    if (*orphans < 0) *orphans = run_signal_apart(run, 0, false);
    return *orphans;
}

/* Notes whose process has ended. */
static void note_ends(struct run *run)
{
    int status;
    pid_t pid;
    while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
        int i = 0;
        while (i < run->nmembers && run->members[i].pid != pid) i++;
        if (i == run->nmembers || run->members[i].ended) continue; /* an orphan of a rank */
        run->members[i].ended = true;
        run->members[i].status = status;
        run->members[i].judge_ns = run_after_ms(HEAR_MS);
    }
}

void run_reap(struct run *run)
{
    int worst = -1, worst_status = 0, orphans = -1;
    pid_t worst_pid = 0;
    note_ends(run);
    for (int i = 0; i < run->nmembers; i++) {
        struct member *member = &run->members[i];
        const pid_t pid = member->pid;
        const int status = member->status;
        if (!pid || !member->ended) continue;
        judge(run, member);
        if (is_early(run, member, &orphans)) continue;
        if (has_time(run, member) && !member->name && member->left != RUN_LEFT_GIVEN_UP &&
            run_signal_left(run, member, 0)) {
            if (!member->due_ns)
                member->due_ns = run->kill_ns < INT64_MAX ? INT64_MAX : run_after_ms(LEFT_MS);
            if (run->notice_ns == INT64_MAX) run->notice_ns = run_after_ms(RUN_NOTICE_MS);
            continue;
        }
        member->pid = 0;
        run->nalive--;
        if (status == 0) continue;
        if (worst < 0 || (WIFSIGNALED(status) && !WIFSIGNALED(worst_status)))
            worst = i, worst_status = status, worst_pid = pid;
        /* What the dead left running is part of the failed job. */
        run_signal_rank(run, member, pid, SIGKILL);
    }
    if (worst < 0 || run->failing) return;
    run_drain(run, worst, false); /* the output of the dead rank comes before our line */
    run_report(run, worst, worst_pid, worst_status);
    run->failing = true;
    if (!run->exit_code) run->exit_code = run_code_of(worst_status);
    run->term_ns = run_after_ms(RUN_REPORT_MS);
}
