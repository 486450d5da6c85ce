/* What happens while the ranks run: their output, our signals, their ends. */
#include "run.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
    ORPHANS_MS = 200,     /* for what has got SIGKILL to end */
    KILLED_MS = 2000,     /* for what has got SIGKILL and was left behind */
    CONNECTION_MS = 2000, /* for a connection to a host to end after SIGTERM */
    AGAIN_MS = 2000,      /* between two signals that mean two things */
};

/* ---- Signals -------------------------------------------------------------------------------- */

/* What does not end then is not waited for: a disk may hold it, or it has ended and its parent does
 * not look at it. */
static void note_killed(struct member *member)
{
    member->left = RUN_LEFT_KILLED;
    member->due_ns = run_after_ms(KILLED_MS);
}

static void send_signal(const struct run *run, struct member *member, int signal)
{
    const unsigned char byte = (unsigned char)signal;
    if (!member->pid) return;
    if (member->control < 0) {
        run_signal_rank(run, member, member->pid, signal);
        if (member->ended && signal == SIGKILL) note_killed(member);
    } else if (signal == SIGKILL) {
        close(member->control); /* which ends the ranks there, also where SIGTERM does nothing */
        member->control = -1;
        kill(-member->pid, SIGTERM);
    } else if (write(member->control, &byte, 1) < 0) { /* its end will tell why */
    }
}

/* What shells run in process groups of their own is signalled, too: a shell that waits for such a
 * program, with a trap or because it was SIGINT, does not end and tells it nothing. Not SIGTSTP:
 * for a shell a job that stops is done. */
static void send_to_all(struct run *run, int signal, bool also_ours)
{
    for (int i = 0; i < run->nmembers; i++)
        if (run->members[i].own_group || also_ours) send_signal(run, &run->members[i], signal);
    if (signal != SIGTSTP && run->nmembers && !run->members[0].name)
        run_signal_apart(run, signal, true);
}

static void note_asked(struct run *run, int signal)
{
    /* Who has sent SIGHUP is gone, and who sends another one later is somebody else. */
    const bool is_first = !run->asked_signal || (run->asked_signal == SIGHUP && signal != SIGHUP);
    sigaddset(&run->passed, signal);
    if (signal != SIGTSTP && signal != SIGCONT) run->passed_ns = run_now_ns();
    if (!run_is_ending(signal) || !is_first) return;
    run->asked_signal = signal;
    run->asked_ns = run_now_ns();
    run->notice_ns = run_after_ms(RUN_NOTICE_MS);
}

/* Who started the job has gone, and so shall all of it. */
static void abandon(struct run *run)
{
    run->abandoned = run->failing = true;
    if (!run->exit_code) run->exit_code = 128 + SIGKILL;
    send_to_all(run, SIGKILL, true);
    run->term_ns = run->timeout_ns = INT64_MAX;
    run->kill_ns = run->nalive && run->members[0].name ? run_after_ms(CONNECTION_MS) : INT64_MAX;
}

/* From the tutti-run that started us: one byte a signal; its end is that tutti-run's death. */
static void obey(struct run *run)
{
    unsigned char signal = SIGKILL;
    const ssize_t n = read(run->control, &signal, 1);
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) return;
    if (n == 1) {
        note_asked(run, signal);
        send_to_all(run, signal, true);
        return;
    }
    run->control = -1;
    abandon(run);
}

/* Whether a signal means that the ranks are to end at once: it comes a while after the one before
 * it, since a launcher and a terminal may both deliver one; and a launcher's SIGTERM after a SIGINT
 * does not mean that, nor a SIGHUP: a shell and the kernel send one each when a terminal goes. */
static bool is_asked_again(const struct run *run, int signal)
{
    return run->asked_signal && signal != SIGHUP &&
           (signal == SIGINT || signal == run->asked_signal) &&
           run_now_ns() >= run->asked_ns + (int64_t)AGAIN_MS * 1000000;
}

static void pass_on(struct run *run, const struct signalfd_siginfo *info)
{
    const int signal = (int)info->ssi_signo;
    /* The terminal has signalled its foreground group itself, and with it a rank that is in the
     * front's. */
    const bool from_terminal = info->ssi_code == SI_QUEUE && info->ssi_int;
    if (run_is_ending(signal) && is_asked_again(run, signal)) {
        run_say("asked twice: killing the ranks");
        send_to_all(run, SIGKILL, true);
        return;
    }
    note_asked(run, signal);
    send_to_all(run, signal, !from_terminal);
}

/* ---- Deadlines ------------------------------------------------------------------------------ */

/* A shell of this rank has ended, and what that ran has not. */
static bool is_left_behind(const struct member *member)
{
    return member->pid && member->ended;
}

/* "rank 1, 2", "host a, b" */
static void name_alive(const struct run *run, char *text, size_t size)
{
    size_t used = 0;
    for (int i = 0; i < run->nmembers && used + 1 < size; i++) {
        const struct member *member = &run->members[i];
        if (!member->pid) continue;
        const char *before = used ? ", " : member->name ? "host " : "rank ";
        const int n = member->name
                          ? snprintf(text + used, size - used, "%s%s", before, member->name)
                          : snprintf(text + used, size - used, "%s%d", before, run_tag_of(run, i));
        used += (size_t)n;
    }
}

/* A shell has a program that it starts with '&' ignore SIGINT. */
static void end_left_behind(struct run *run, int index)
{
    struct member *member = &run->members[index];
    const int rank = run_tag_of(run, index);
    if (!is_left_behind(member) || !member->due_ns || run_now_ns() < member->due_ns) return;
    if (member->left == RUN_LEFT_KILLED) {
        run_say("what rank %d left behind does not end: not waiting for it", rank);
        member->left = RUN_LEFT_GIVEN_UP;
        return;
    }
    const int signal = member->left == RUN_LEFT_ALONE ? SIGTERM : SIGKILL;
    run_say("ending what rank %d left behind (SIG%s)", rank, sigabbrev_np(signal));
    member->left = RUN_LEFT_ASKED;
    member->due_ns = run_after_ms(run->options.grace_ms);
    run_signal_apart(run, signal, false);
    send_signal(run, member, signal);
    send_signal(run, member, SIGCONT);
}

static void do_what_is_due(struct run *run)
{
    char names[128];
    const int64_t now = run_now_ns();
    if (!run->nalive) return;
    name_alive(run, names, sizeof names);
    if (now >= run->timeout_ns) {
        run_say("timeout after %g s: still running: %s", (double)run->options.timeout_ms / 1000,
                names);
        run->timeout_ns = INT64_MAX;
        run->timed_out = true;
        if (!run->exit_code) run->exit_code = EXIT_TIMEOUT;
        run->failing = true;
        run->term_ns = now;
    }
    if (now >= run->kill_ns) {
        run_say("killing %s (SIGKILL)", names);
        send_to_all(run, SIGKILL, true);
        /* The first one only ends a connection in order: it may be deaf to that. */
        run->kill_ns = run->members[0].name ? run_after_ms(CONNECTION_MS) : INT64_MAX;
        run->notice_ns = INT64_MAX;
    }
    for (int i = 0; i < run->nmembers; i++) end_left_behind(run, i);
    if (now >= run->term_ns) {
        run_say("ending %s (SIGTERM; SIGKILL in %g s)", names,
                (double)run->options.grace_ms / 1000);
        send_to_all(run, SIGTERM, true);
        send_to_all(run, SIGCONT, true); /* a stopped one could not end */
        run->term_ns = INT64_MAX;
        run->kill_ns = run_after_ms(run->options.grace_ms);
        run->notice_ns = run_after_ms(RUN_NOTICE_MS);
    }
    if (now >= run->notice_ns) {
        if (run->kill_ns < INT64_MAX)
            run_say("SIGKILL for %s in %.0f s", names, (double)(run->kill_ns - now) / 1e9);
        else
            run_say("waiting for %s to end; SIGINT once more ends them at once", names);
        run->notice_ns = run_after_ms(RUN_NOTICE_MS);
    }
}

static int wait_ms(const struct run *run)
{
    enum { LOOK_MS = 1000 }; /* at what is left behind: its end may be told to others */
    bool looks = false;
    int64_t next = run->term_ns < run->kill_ns ? run->term_ns : run->kill_ns;
    for (int i = 0; i < run->nmembers; i++) {
        const struct member *member = &run->members[i];
        if (!is_left_behind(member)) continue;
        looks = true;
        const int64_t due_ns = member->due_ns ? member->due_ns : member->judge_ns;
        if (due_ns < next) next = due_ns;
    }
    if (run->timeout_ns < next) next = run->timeout_ns;
    if (run->notice_ns < next) next = run->notice_ns;
    if (next == INT64_MAX) return looks ? LOOK_MS : -1;
    const int64_t left = (next - run_now_ns() + 999999) / 1000000, most = looks ? LOOK_MS : 1000000;
    return left < 0 ? 0 : left > most ? (int)most : (int)left;
}

/* ---- The loop ------------------------------------------------------------------------------- */

/* What is looked at besides every member's two streams. */
enum { SIGNALS, CONTROL, FRONT, WRITTEN, FIRST };

static void fill_own(const struct run *run, struct pollfd *entries)
{
    entries[SIGNALS] = (struct pollfd){.fd = run->signals, .events = POLLIN};
    entries[CONTROL] = (struct pollfd){.fd = run->control, .events = POLLIN};
    entries[FRONT] = (struct pollfd){.fd = run->front, .events = POLLIN};
    entries[WRITTEN] = (struct pollfd){.fd = run->written, .events = POLLIN};
}

static void fill(const struct run *run, struct pollfd *entries)
{
    fill_own(run, entries);
    for (int i = 0; i < run->nmembers; i++)
        for (int k = 0; k < 2; k++)
            entries[FIRST + 2 * i + k] =
                (struct pollfd){.fd = run_pump_input(&run->members[i].pumps[k]), .events = POLLIN};
}

/* As poll, without EINTR; -1: it is refused, which has been said. */
static int wait_for(struct run *run, struct pollfd *entries, nfds_t n, int timeout_ms)
{
    const int ready = poll(entries, n, timeout_ms);
    if (ready >= 0) return ready;
    if (errno == EINTR) return 0;
    if (!run->blind) run_say("cannot wait (poll): %s", strerror(errno));
    run->blind = true;
    return -1;
}

static void hear_signals(struct run *run)
{
    struct signalfd_siginfo info;
    while (read(run->signals, &info, sizeof info) == (ssize_t)sizeof info)
        if (info.ssi_signo == SIGCHLD)
            run_reap(run);
        else
            pass_on(run, &info);
}

static void hear(struct run *run, const struct pollfd *entries)
{
    if (entries[SIGNALS].revents) hear_signals(run);
    if (entries[CONTROL].revents) obey(run);
    if (entries[FRONT].revents) {
        run->front = -1;
        abandon(run);
    }
    if (entries[WRITTEN].revents) eventfd_read(run->written, &(eventfd_t){0});
}

/* Processes that were killed with their rank; not those that made themselves independent. */
static void reap_orphans(const struct run *run)
{
    const int64_t until_ns = run_after_ms(ORPHANS_MS);
    while (waitpid(-1, NULL, WNOHANG) >= 0 && run_now_ns() < until_ns) {
        struct pollfd entry = {.fd = run->signals, .events = POLLIN};
        struct signalfd_siginfo info;
        poll(&entry, 1, ORPHANS_MS);
        while (read(run->signals, &info, sizeof info) > 0) {
        }
    }
}

/* Without poll: looks again and again, for a while. */
static void flush_blindly(void)
{
    const int64_t until_ns = run_after_ms(RUN_REPORT_MS);
    while (run_output_waits() && run_now_ns() < until_ns)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

/* False: it was cut short. */
static bool flush(struct run *run)
{
    while (run_output_waits() && !run->blind && !run->abandoned && !run->asked_signal) {
        struct pollfd entries[FIRST];
        if (run_now_ns() >= run->timeout_ns) return false;
        fill_own(run, entries);
        if (wait_for(run, entries, FIRST, wait_ms(run)) > 0) hear(run, entries);
    }
    if (run->blind) flush_blindly();
    return true;
}

/* Says which of our outputs is lost in part, and makes that the exit code. A reader who has gone
 * knows: then the code is that of a program which SIGPIPE has ended. */
static void judge_output(struct run *run)
{
    static const char *const names[] = {"output", "error"};
    for (int i = 0; i < 2; i++) {
        const int error = run_output_error(STDOUT_FILENO + i);
        if (error && error != EPIPE)
            run_say("standard %s cannot be written (%s): what the ranks wrote is lost in part",
                    names[i], strerror(error));
        if (error && !run->exit_code) run->exit_code = error == EPIPE ? 128 + SIGPIPE : 1;
    }
}

void run_flush(struct run *run)
{
    /* A reader who has stalled gets little time when the job was to end. */
    const int asked_signal = run->asked_signal;
    if (asked_signal || run->timed_out) run->timeout_ns = run_after_ms(RUN_REPORT_MS);
    if (!run->timeout_ns) run->timeout_ns = INT64_MAX; /* nothing was supervised */
    run->term_ns = run->kill_ns = run->notice_ns = INT64_MAX;
    run->asked_signal = 0;
    bool whole = flush(run);
    if (whole) judge_output(run);
    if (whole) whole = flush(run); /* what that has said */
    if (!whole && !run->exit_code)
        run->exit_code = asked_signal ? 128 + asked_signal : EXIT_TIMEOUT;
    if (run->asked_signal && !run->exit_code) run->exit_code = 128 + run->asked_signal;
}

/* Without poll neither signals nor deadlines are heard: better no job than one that cannot be
 * ended.
 */
static void end_blindly(struct run *run)
{
    send_to_all(run, SIGKILL, true);
    run->abandoned = true;
    if (!run->exit_code) run->exit_code = 1;
}

int run_supervise(struct run *run)
{
    const bool streams = run->options.tag_output || run->members[0].name;
    const int nstreams = streams ? 2 * run->nmembers : 0;
    struct pollfd *entries = calloc(FIRST + 2 * (size_t)run->nmembers, sizeof *entries);
    if (!entries) {
        run_say("no memory for %d ranks", run->nmembers);
        send_to_all(run, SIGKILL, true);
        return 1;
    }
    run->term_ns = run->kill_ns = run->timeout_ns = run->notice_ns = INT64_MAX;
    if (run->options.timeout_ms) run->timeout_ns = run_after_ms(run->options.timeout_ms);
    run_reap(run); /* who ended while the others were being started */
    while (run->nalive) {
        fill(run, entries);
        const int n = wait_for(run, entries, FIRST + (nfds_t)nstreams, wait_ms(run));
        if (n < 0) {
            end_blindly(run);
            break;
        }
        if (n > 0)
            for (int i = 0; i < nstreams; i++)
                if (entries[FIRST + i].revents)
                    run_pump_move(&run->members[i / 2].pumps[i % 2], run_tag_of(run, i / 2), false);
        if (n > 0) hear(run, entries);
        run_reap(run);
        do_what_is_due(run);
    }
    for (int i = 0; i < run->nmembers; i++) run_drain(run, i, true);
    if (run->abandoned) {
        run_sweep();
    } else if (run->failing) {
        run_signal_apart(run, SIGKILL, true);
        reap_orphans(run);
    }
    free(entries);
    return run->exit_code;
}
