/* What goes wrong in a job of ranks on GPUs: drawn from a seed, the same in all its processes. */
#ifndef TT_TESTS_DEVICE_FAULTS_H
#define TT_TESTS_DEVICE_FAULTS_H

#include <stdbool.h>
#include <stdint.h>

enum fault {
    KILLED,        /* kill -9 at any time */
    ABORTED,       /* by another thread, while a call is on its way */
    AWAY,          /* the rank never calls: the deadline */
    ABANDONED,     /* the same, and it has captured its call into a graph that never runs */
    OTHER_COUNT,   /* the rank's call differs from the others' in its count, */
    OTHER_TYPE,    /* its type, */
    OTHER_OP,      /* its operation, */
    OTHER_ROOT,    /* its root, */
    OTHER_KIND,    /* its collective, */
    OTHER_CHOICE,  /* its algorithm */
    DESTROYED,     /* the rank destroys its communicator */
    OUT_OF_MEMORY, /* the rank's GPU has no memory left */
    NO_LAUNCH,     /* a kernel of the user has spoilt the GPU's context */
    LOST,          /* a kernel of the user spoils it while the rank's kernel runs */
    SILENT,        /* no packet leaves or reaches the rank's host any more: no FIN, no RST */
    NFAULTS
};

/* What a job does; equal in all its processes. */
struct plan {
    uint64_t seed;
    enum fault fault;
    bool threads; /* the ranks are threads of one process */
    int nranks, ngpus;
    int faulty;   /* the rank */
    int at;       /* the number of the call */
    bool replays; /* that call is captured, and replayed again and again */
    int delay_us;
};

/* Whether every second rank has no GPU, from rank 1 on: TT_FAULT_MIXED. */
bool fault_mixes(void);
/* Hosts on which the ranks are, in turn: TT_FAULT_HOSTS, else 1. */
int fault_hosts(void);
/* Whether the hosts are those of tests/hosts/with-hosts, whose network can go: TT_FAULT_NETWORK.
 * Without that no job has SILENT. */
bool fault_has_network(void);
/* The host of a rank. */
int fault_host_of(int rank);
/* Whether the fault is a kernel of the user that spoils the GPU. */
bool fault_spoils_gpu(enum fault fault);
struct plan plan_of(uint64_t seed);
const char *fault_name(enum fault fault);

/* One rank (of the launcher's environment), or all ranks as threads. The exit status of the
 * process: 0, or, as printed on stderr, SAYS_WRONG or WRONG_RESULT. */
enum { SAYS_WRONG = 3, WRONG_RESULT = 4 };
int run_plan(const struct plan *plan);

#endif
