/* tutti-run: the parts of the launcher. One thread a process; one struct run, owned by main. */
#ifndef TUTTI_TOOLS_RUN_H
#define TUTTI_TOOLS_RUN_H

#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum { RUN_MAX_RANKS = 4096, RUN_KEY_TEXT = 65, RUN_JOB_BYTES = 1 << 20 };
enum { EXIT_USAGE = 2, EXIT_TIMEOUT = 124, EXIT_NOT_RUNNABLE = 126, EXIT_NOT_FOUND = 127 };

struct options {
    int nranks;
    bool bind, bind_asked; /* one core a rank; asked for by name */
    bool tag_output;
    int master_port;      /* 0: pick one */
    int64_t timeout_ms;   /* of the whole job; 0: none */
    int64_t grace_ms;     /* between SIGTERM and SIGKILL */
    char *const *command; /* program and arguments, NULL at the end */
    /* Several hosts */
    const char *hosts, *hostfile; /* NULL: this one */
    const char *rsh;              /* the command that reaches a host, in words */
    const char *master_addr;      /* NULL: find one */
    const char **exported;        /* of -x; owned */
    int nexported;
    /* Of a server, started by the tutti-run that the user started (run_serve.c) */
    bool serve, announce; /* says first where the ranks will meet */
    int first_rank;
};

/* One stream of one rank on its way to ours, line by line. */
struct pump {
    int from; /* -1: none, or ended */
    int to;
    size_t nbytes;
    bool midline; /* part of the present line is out already */
    char *buffer;
};

/* What has been done about what a rank left behind. */
enum run_left { RUN_LEFT_ALONE, RUN_LEFT_ASKED /* SIGTERM */, RUN_LEFT_KILLED, RUN_LEFT_GIVEN_UP };

/* What we look after: a rank, or the connection to a host, on which a tutti-run looks after ranks.
 */
struct member {
    const char *name; /* of the host; NULL: a rank */
    char *const *command;
    pid_t pid;      /* 0: ended, and nothing of it is waited for */
    bool ended;     /* its process was reaped */
    int status;     /* of that, as waitpid gives it */
    bool by_signal; /* it ended because of a signal that asks for an end */
    enum run_left left;
    int64_t judge_ns; /* then its end is judged at the latest */
    int64_t due_ns;   /* of the next step of `left`; 0: nothing is left */
    bool own_group;   /* a process group of its own, numbered as the pid; else the front's */
    cpu_set_t cpus;   /* empty: not bound */
    int control;      /* to a host: closing it ends the ranks there; -1: none */
    struct pump pumps[2];
};

/* A host of --hosts. */
struct host {
    char *name;
    int nranks; /* 0: not said */
};

/* All hosts and their ranks. */
struct placement {
    struct host *hosts; /* names lie in `text` */
    char *text;
    int nhosts, nranks;
    char program[4096]; /* this one, quoted for a shell if need be */
};

struct run {
    struct options options;
    struct member *members;
    int nmembers, nalive;
    char *job;         /* of a server: what it was told; owned */
    int control;       /* of a server: from the tutti-run that started us; -1: none */
    char **commands;   /* of several hosts; owned */
    int complaints[2]; /* pipe on which a child says why exec failed */
    int signals;       /* signalfd */
    int written;       /* of run_output_open */
    int front;         /* ends when the front has died; -1: this is the front */
    pid_t group;       /* the front's process group, which the terminal signals */
    sigset_t heard;    /* what signals and sigwaitinfo give */
    sigset_t before;   /* signal mask for the children */
    int port_holder;   /* keeps MASTER_PORT ours until the job ends */
    int exit_code;
    bool failing;   /* a rank has died; the others are being ended */
    bool abandoned; /* nobody is left to whom we matter: all is killed */
    bool timed_out;
    bool blind;        /* poll is refused: nothing can be waited for */
    sigset_t passed;   /* signals that were passed on */
    int64_t passed_ns; /* the last that may end a shell; 0: none */
    int asked_signal;  /* the first ending one; 0: none */
    int64_t asked_ns;
    int64_t term_ns, kill_ns, timeout_ns, notice_ns; /* what happens next; INT64_MAX: never */
};

enum {
    /* Between the death of a rank and the SIGTERM of the others, which detect the death themselves
     * and report more about it. */
    RUN_REPORT_MS = 2000,
    RUN_NOTICE_MS = 10000, /* between two lines that say who has yet to end */
};

int64_t run_now_ns(void);
static inline int64_t run_after_ms(int64_t ms)
{
    return run_now_ns() + ms * 1000000;
}
/* "tutti-run: ..." on stderr; a server adds its host's name. */
void run_say_where(const char *host);
void run_say(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* run_options.c: fills options; ends the process for --help, --version and usage errors. */
void run_options_parse(struct options *options, int argc, char **argv);

/* run_bind.c: how many cores this process may use, and one for each rank when they suffice. */
int run_count_cores(void);
void run_bind_ranks(struct run *run);

/* run_front.c: opens run->signals and forks. True in the supervisor; in the front false when all is
 * over, with the exit code. */
bool run_divide(struct run *run, int *code);
/* Kills all descendants and waits until they have ended. */
void run_sweep(void);
/* Signals (0: only looks) what ranks have in process groups of their own that nobody else tells,
 * but not what has made a session, nor what a debugger holds: of ranks that have ended, or of all.
 * SIGKILL is for all of them. Whether there is any. */
bool run_signal_apart(const struct run *run, int signal, bool also_of_members);
/* To the rank that was started as `pid`, and to what it has started and left in its process group.
 * False: nothing of that is there. */
bool run_signal_rank(const struct run *run, const struct member *member, pid_t pid, int signal);
/* Whether what the rank has left behind is there; signal: what it gets, 0: nothing. */
bool run_signal_left(const struct run *run, const struct member *member, int signal);

/* run_launch.c: environment and start of all ranks. 0, or the exit code after saying why not. */
int run_launch(struct run *run);
int run_prepare(struct run *run, int nmembers);
/* Starts a member with this stdin (-1: none). 0 or an errno value, said. */
int run_start_member(struct run *run, int index, int input);
/* Kills what has been started, and its descendants. */
void run_take_back(struct run *run);
int run_make_key(void);
/* Blocks the signals that are heard, all but those that the process was started to ignore, and
 * opens run->signals for them. 0 or an errno value. */
int run_open_signals(struct run *run);

/* run_placement.c: the hosts of --hosts or --hostfile and their ranks. As run_launch. */
int run_place_ranks(struct placement *placement, const struct options *options);

/* run_hosts.c: a tutti-run --serve on each host. As run_launch. */
int run_launch_hosts(struct run *run);

/* run_serve.c: what the tutti-run that started us says: options, environment and folder. */
int run_receive_job(struct run *run);
/* The address of this host that the others should use. Static. */
const char *run_own_address(void);

/* run_output.c: our standard output and error (fd 1 and 2), written by threads.
 * Opens; *written is readable when a write has ended. 0 or an errno value. */
int run_output_open(int *written);
/* Takes the bytes, whether there is room or not; never waits. Before run_output_open it writes
 * itself. False: nobody reads this any more. */
bool run_output_put(int fd, const char *bytes, size_t nbytes);
/* Whether more should be read from ranks for it. */
bool run_output_room(int fd);
/* Why not all bytes could be written there: an errno value, EPIPE where the reader has gone; 0: all
 * were. */
int run_output_error(int fd);
/* Whether anything is not yet written. */
bool run_output_waits(void);

/* run_pump.c */
int run_pump_open(struct pump *pump, int to, int *child_end);
/* What to poll for input: -1 while the output is full. */
int run_pump_input(const struct pump *pump);
/* Moves what one read gives, each line with its rank in front (-1: as it is); `last` moves all that
 * is there, newline or not, and ends. */
void run_pump_move(struct pump *pump, int rank, bool last);

/* run_report.c */
static inline bool run_is_ending(int signal)
{
    return signal == SIGINT || signal == SIGTERM || signal == SIGHUP || signal == SIGQUIT;
}
/* The exit code of a status of waitpid, as a shell has it. */
int run_code_of(int status);
/* The rank of a member; -1: hosts have put ranks in front of the lines themselves. */
int run_tag_of(const struct run *run, int index);
/* Says how the member that was started as `pid` has ended. */
void run_report(const struct run *run, int index, pid_t pid, int status);

/* run_ends.c: takes note of the processes that have ended. Of the ranks that are over, the first
 * failure decides the exit code; of several in one go a signal comes first: the others have
 * probably died of it. A rank of which something has time stays until that has ended. */
void run_reap(struct run *run);
/* Moves what a member has written; `last`: all of it. */
void run_drain(struct run *run, int index, bool last);

/* run_supervise.c: until the last member has ended; returns the exit code. */
int run_supervise(struct run *run);
/* Until our output is written; a signal, the timeout or an end that was asked for cuts it short.
 * Output that could not be written is an error. */
void run_flush(struct run *run);

#endif
