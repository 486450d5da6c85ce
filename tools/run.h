/* tutti-run: the parts of the launcher. One thread; one struct run, owned by main. */
#ifndef TUTTI_TOOLS_RUN_H
#define TUTTI_TOOLS_RUN_H

#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum { RUN_MAX_RANKS = 4096, RUN_KEY_TEXT = 65 };
enum { EXIT_USAGE = 2, EXIT_TIMEOUT = 124, EXIT_NOT_RUNNABLE = 126, EXIT_NOT_FOUND = 127 };

struct options {
    int nranks;
    bool bind, bind_asked; /* one core a rank; asked for by name */
    bool tag_output;
    int master_port;      /* 0: pick one */
    int64_t timeout_ms;   /* of the whole job; 0: none */
    int64_t grace_ms;     /* between SIGTERM and SIGKILL */
    char *const *command; /* program and arguments, NULL at the end */
};

/* One stream of one rank on its way to ours, line by line. */
struct pump {
    int from; /* -1: none, or ended */
    int to;
    size_t nbytes;
    bool midline; /* part of the present line is out already */
    char *buffer;
};

struct rank {
    pid_t pid;      /* 0: ended and reaped */
    bool own_group; /* a process group of its own, numbered as the pid */
    cpu_set_t cpus; /* empty: not bound */
    struct pump pumps[2];
};

struct run {
    struct options options;
    struct rank *ranks;
    int nalive;
    int complaints;  /* pipe on which a child says why exec failed */
    int signals;     /* signalfd */
    sigset_t before; /* signal mask for the children */
    int port_holder; /* keeps MASTER_PORT ours until the job ends */
    int exit_code;
    bool failing;                         /* a rank has died; the others are being ended */
    int asked_signal;                     /* the last ending signal passed on; 0: none */
    int64_t term_ns, kill_ns, timeout_ns; /* what happens next; INT64_MAX: never */
};

int64_t run_now_ns(void);
/* "tutti-run: ..." on stderr. */
void run_say(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* run_options.c: fills options; ends the process for --help, --version and usage errors. */
void run_options_parse(struct options *options, int argc, char **argv);

/* run_bind.c: how many cores this process may use, and one for each rank when they suffice. */
int run_count_cores(void);
void run_bind_ranks(struct run *run);

/* run_launch.c: environment and start of all ranks. 0, or the exit code after saying why not. */
int run_launch(struct run *run);

/* run_pump.c */
int run_pump_open(struct pump *pump, int to, int *child_end);
/* Moves what one read gives; `last` moves all that is there, newline or not, and ends. */
void run_pump_move(struct pump *pump, int rank, bool last);

/* run_supervise.c: until the last rank has ended; returns the exit code. */
int run_supervise(struct run *run);

#endif
