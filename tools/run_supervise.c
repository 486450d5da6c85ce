/* What happens while the ranks run: their output, our signals, their ends. */
#include "run.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    LAST_WORDS_MS = 2000, /* survivors see the death themselves and can say more about it */
    ORPHANS_MS = 200,     /* for what has got SIGKILL to end */
};

static int64_t after_ms(int64_t ms)
{
    return run_now_ns() + ms * 1000000;
}

/* ---- Signals -------------------------------------------------------------------------------- */

static void send_to_all(struct run *run, int signal, bool also_ours)
{
    for (int i = 0; i < run->options.nranks; i++) {
        const struct rank *rank = &run->ranks[i];
        if (!rank->pid || (!rank->own_group && !also_ours)) continue;
        kill(rank->own_group ? -rank->pid : rank->pid, signal);
    }
}

static bool is_ending(int signal)
{
    return signal == SIGINT || signal == SIGTERM || signal == SIGHUP || signal == SIGQUIT;
}

static void pass_on(struct run *run, const struct signalfd_siginfo *info)
{
    const int signal = (int)info->ssi_signo;
    /* The terminal has signalled its foreground group itself, and with it a rank that is in ours.
     */
    const bool from_terminal = info->ssi_code == SI_KERNEL;
    if (is_ending(signal) && run->asked_signal) {
        run_say("asked twice: killing the ranks");
        send_to_all(run, SIGKILL, true);
        return;
    }
    if (is_ending(signal)) run->asked_signal = signal;
    send_to_all(run, signal, !from_terminal);
    if (signal == SIGTSTP) raise(SIGSTOP); /* SIGCONT wakes us, and is passed on in its turn */
}

/* ---- Deaths --------------------------------------------------------------------------------- */

static int code_of(int status)
{
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

/* Why exec failed, if it did; -1: it did not. */
static int exec_error(const struct run *run)
{
    int error;
    return read(run->complaints, &error, sizeof error) == (ssize_t)sizeof error ? error : -1;
}

static void report(const struct run *run, int index, pid_t pid, int status)
{
    const int error = exec_error(run);
    const int signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    if (error >= 0)
        run_say("cannot run '%s': %s", run->options.command[0], strerror(error));
    else if (signal && signal == run->asked_signal)
        run_say("ended by SIG%s", sigabbrev_np(signal));
    else if (signal)
        run_say("rank %d (pid %d) was killed by signal %d (%s)%s", index, (int)pid, signal,
                strsignal(signal), WCOREDUMP(status) ? ", core dumped" : "");
    else
        run_say("rank %d (pid %d) exited with code %d", index, (int)pid, WEXITSTATUS(status));
}

static void drain(struct run *run, int index, bool last)
{
    /* Twice: part of a line in the buffer leaves no room for all that a pipe holds. */
    for (int k = 0; k < 4; k++) run_pump_move(&run->ranks[index].pumps[k % 2], index, last);
}

/* Reaps who has ended. The first failure decides the exit code; of several in one go a signal comes
 * first: the others have probably died of it. */
static void reap(struct run *run)
{
    int worst = -1, worst_status = 0, status;
    pid_t pid, worst_pid = 0;
    while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
        int i = 0;
        while (i < run->options.nranks && run->ranks[i].pid != pid) i++;
        if (i == run->options.nranks) continue; /* an orphan of a rank */
        run->ranks[i].pid = 0;
        run->nalive--;
        if (status == 0) continue;
        if (worst < 0 || (WIFSIGNALED(status) && !WIFSIGNALED(worst_status)))
            worst = i, worst_status = status, worst_pid = pid;
        /* What the dead left running is part of the failed job. */
        if (run->ranks[i].own_group) kill(-pid, SIGKILL);
    }
    if (worst < 0 || run->failing) return;
    drain(run, worst, false); /* its last words before ours */
    report(run, worst, worst_pid, worst_status);
    run->failing = true;
    if (!run->exit_code) run->exit_code = code_of(worst_status);
    run->term_ns = after_ms(LAST_WORDS_MS);
}

/* ---- Deadlines ------------------------------------------------------------------------------ */

static void name_alive(const struct run *run, char *text, size_t size)
{
    size_t used = 0;
    for (int i = 0; i < run->options.nranks && used + 1 < size; i++)
        if (run->ranks[i].pid)
            used += (size_t)snprintf(text + used, size - used, "%s%d", used ? ", " : "", i);
}

static void do_what_is_due(struct run *run)
{
    char names[128];
    const int64_t now = run_now_ns();
    if (!run->nalive) return;
    name_alive(run, names, sizeof names);
    if (now >= run->timeout_ns) {
        run_say("timeout after %g s: still running: rank %s",
                (double)run->options.timeout_ms / 1000, names);
        run->timeout_ns = INT64_MAX;
        if (!run->exit_code) run->exit_code = EXIT_TIMEOUT;
        run->failing = true;
        run->term_ns = now;
    }
    if (now >= run->kill_ns) {
        run_say("killing rank %s (SIGKILL)", names);
        send_to_all(run, SIGKILL, true);
        run->kill_ns = INT64_MAX;
    }
    if (now >= run->term_ns) {
        run_say("ending rank %s (SIGTERM)", names);
        send_to_all(run, SIGTERM, true);
        send_to_all(run, SIGCONT, true); /* a stopped one could not end */
        run->term_ns = INT64_MAX;
        run->kill_ns = after_ms(run->options.grace_ms);
    }
}

static int wait_ms(const struct run *run)
{
    int64_t next = run->term_ns < run->kill_ns ? run->term_ns : run->kill_ns;
    if (run->timeout_ns < next) next = run->timeout_ns;
    if (next == INT64_MAX) return -1;
    const int64_t left = (next - run_now_ns() + 999999) / 1000000;
    return left < 0 ? 0 : left > 1000000 ? 1000000 : (int)left;
}

/* ---- The loop ------------------------------------------------------------------------------- */

/* The signalfd first, then every rank's two streams. */
static void fill(const struct run *run, struct pollfd *entries)
{
    entries[0] = (struct pollfd){.fd = run->signals, .events = POLLIN};
    for (int i = 0; i < run->options.nranks; i++)
        for (int k = 0; k < 2; k++)
            entries[1 + 2 * i + k] =
                (struct pollfd){.fd = run->ranks[i].pumps[k].from, .events = POLLIN};
}

static void hear_signals(struct run *run)
{
    struct signalfd_siginfo info;
    while (read(run->signals, &info, sizeof info) == (ssize_t)sizeof info) {
        if (info.ssi_signo == SIGCHLD)
            reap(run);
        else
            pass_on(run, &info);
    }
}

/* Those that were killed with their rank; not those that made themselves independent. */
static void reap_orphans(const struct run *run)
{
    const int64_t until_ns = after_ms(ORPHANS_MS);
    while (waitpid(-1, NULL, WNOHANG) >= 0 && run_now_ns() < until_ns) {
        struct pollfd entry = {.fd = run->signals, .events = POLLIN};
        struct signalfd_siginfo info;
        poll(&entry, 1, ORPHANS_MS);
        while (read(run->signals, &info, sizeof info) > 0) {
        }
    }
}

int run_supervise(struct run *run)
{
    const int nstreams = run->options.tag_output ? 2 * run->options.nranks : 0;
    struct pollfd *entries = calloc(1 + 2 * (size_t)run->options.nranks, sizeof *entries);
    if (!entries) {
        run_say("no memory for %d ranks", run->options.nranks);
        send_to_all(run, SIGKILL, true);
        return 1;
    }
    run->term_ns = run->kill_ns = run->timeout_ns = INT64_MAX;
    if (run->options.timeout_ms) run->timeout_ns = after_ms(run->options.timeout_ms);
    while (run->nalive) {
        fill(run, entries);
        const int n = poll(entries, 1 + (nfds_t)nstreams, wait_ms(run));
        if (n > 0)
            for (int i = 0; i < nstreams; i++)
                if (entries[1 + i].revents)
                    run_pump_move(&run->ranks[i / 2].pumps[i % 2], i / 2, false);
        if (n > 0 && entries[0].revents) hear_signals(run);
        do_what_is_due(run);
    }
    for (int i = 0; i < run->options.nranks; i++) drain(run, i, true);
    if (run->failing) reap_orphans(run);
    free(entries);
    return run->exit_code;
}
