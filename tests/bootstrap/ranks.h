/* Ranks as threads, for the bootstrap's tests. */
#ifndef TT_TESTS_BOOTSTRAP_RANKS_H
#define TT_TESTS_BOOTSTRAP_RANKS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/types.h>

#include "bootstrap/bootstrap.h"
#include "bootstrap/tree.h"

enum { MAX_TEST_RANKS = 1024, TEXT_BYTES = 1024 };

struct rank_run {
    struct tt_unique_id id;
    int rank, nranks;
    int64_t timeout_ms;        /* of create and each allgather */
    int64_t gather_timeout_ms; /* 0: as timeout_ms */
    int nallgathers;           /* 0: join only */
    size_t nbytes;             /* of each */
    int leave_before;          /* leaves silently before this allgather; -1: stays */
    bool try_again;            /* after a failure, and wants the same one */
    bool meets_deadline;       /* gathers until the deadline of the init, not one of its own */
    struct rank_run *stay_for; /* leaves only when this one, and nstay_for - 1 after it, have ended,
                                * itself aside */
    int nstay_for;
    const char *method; /* not NULL: the id is found by it, as this process of nprocesses */
    int process, nprocesses;
    /* results */
    atomic_bool ended;
    tt_status status; /* the first failure */
    char text[TEXT_BYTES];
    int64_t took_ns;
    struct tt_bootstrap_counts counts;
    int wrong; /* bytes that were not right */
};

/* Defaults: 20 s, two allgathers of 24 bytes. */
struct rank_run rank_run_of(const struct tt_unique_id *id, int rank, int nranks);

/* rank_run_of for process `rank` of nranks processes, which meet by the method. */
struct rank_run rank_run_by(const char *method, int rank, int nranks);

/* Runs one in this thread. */
void run_rank(struct rank_run *run);

/* Runs them all at once, each in a thread, and returns when all have ended. */
void run_ranks(struct rank_run *runs, int n);

/* Records a failure for every run that did not end as expected: status, and text contained in its
 * error. */
void expect_ranks(const struct rank_run *runs, int n, tt_status status, const char *text);

/* A connection to the id's root that has received the greeting. An id that has yet to meet its root
 * takes this one's sequence. False: nobody greets. */
bool open_greeted(struct tt_unique_id *id, int *fd, struct tt_greeting *greeting);

/* A rank that comes to the root like any other, and gets no further. */
struct straggler {
    struct tt_unique_id id;
    int rank, nranks;
    struct tt_report report;       /* its last frame, if its status is not 0 */
    const struct rank_run *behind; /* not NULL: it goes on only when this one has ended */
    pid_t root;                    /* not 0: the root's process, which dies with it */
    /* results */
    bool answered, kept;
};
void *straggle(void *straggler);

/* A process that has the root, and so many descriptors. */
pid_t fork_root(struct tt_unique_id *id, rlim_t ndescriptors);

/* Waits for a rank's process, and records a failure if it did not exit with 0. */
void expect_exit(pid_t pid);

/* A port of 127.0.0.1 at which nobody listens now. */
int free_port(void);

/* Open descriptors of this process, and a few that are always there. */
int count_descriptors(void);

#endif
