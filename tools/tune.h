/* tutti-plan tune: the parts that measure. */
#ifndef TUTTI_TOOLS_TUNE_H
#define TUTTI_TOOLS_TUNE_H

#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "fit/fit.h"
#include "plan_options.h"

enum { TUNE_MOST_RANKS = 64, TUNE_MOST_POINTS = 4096 };

/* An algorithm of a collective at a size. */
struct tune_point {
    tuttiCollective_t collective;
    const char *algorithm;
    size_t count;   /* elements, as the collective takes them */
    size_t nbytes;  /* of all blocks together */
    double us;      /* the least of all repetitions but the first; 0: not measured */
    double next_us; /* the least but one; 0: there are not two */
    double first_us;
};

/* What the ranks do next. */
struct tune_task {
    int point; /* -1: nothing, they end */
    int ncalls;
};

/* Memory that the parent shares with the ranks, all of which it starts. */
struct tune_job {
    /* immutable after the ranks have started */
    int nranks;
    int64_t end_ns; /* when measuring ends */
    int npoints;
    int id_pipe[2]; /* rank 0 sends the unique id to the others */
    bool is_bound;  /* each rank to a core */
    sigset_t mask;  /* signals that are blocked in the ranks */
    cpu_set_t cores[TUNE_MOST_RANKS];
    /* owner: the rank */
    cpu_set_t allowed[TUNE_MOST_RANKS]; /* CPUs on which the rank may run */
    double us[TUNE_MOST_RANKS];         /* of the last repetition */
    int64_t ran_ns[TUNE_MOST_RANKS];    /* processor time of all repetitions */
    /* owner: rank 0. Between barriers, which order it */
    int64_t took_ns; /* all repetitions */
    struct tune_task task;
    struct tune_point points[TUNE_MOST_POINTS];
};

/* tune_measure.c: what a rank does, in a process of its own. The exit code, after saying on stderr
 * what failed. */
int tune_rank(struct tune_job *job, int rank);

/* What was measured of all numbers of ranks. A *group* is the algorithms of a collective at a size.
 */
struct tune_times {
    struct fit_time *times; /* with room for TUNE_MOST_POINTS for each number of ranks */
    int ntimes, ngroups;
    int nunsteady; /* groups left out: repetitions of a fast algorithm differ much */
    int nmissing;  /* groups left out: there was no time for them */
    double had_s,
        ran_s;  /* of the cores that the ranks may use: seconds, and those that ranks ran */
    int signal; /* that asked to end; 0: none */
};

/* tune_ranks.c: measures nranks ranks for so many nanoseconds, and appends the times of steady
 * groups. No process is left. PLAN_DONE, or PLAN_WRONG after saying on stderr what failed. */
int tune_ranks(int nranks, int64_t ns, struct tune_times *all);
/* Whether point `index` belongs to the group that begins at point `first`. */
bool tune_in_group(const struct tune_job *job, int first, int index);
/* Algorithms of a group that take longer than so many times the fastest one need no good time: they
 * are hardly chosen. */
static const double TUNE_SLOW = 2.5;

int64_t tune_now_ns(void);

/* tune.c: the command. */
int tune_run(const struct plan_options *options);

#endif
