/* How much memory there is for a run, to compare with what its formulas say before any is taken;
 * and the processors. */
#ifndef TR_MACHINE_H
#define TR_MACHINE_H

#include <stdbool.h>
#include <stdint.h>

#include "cores.h"
#include "status.h"

/* Control groups of one process that are looked at: the nearest that have a limit. */
enum { TR_MOST_GROUPS = 8 };

/* A control group: what all processes in it, and in the groups below it, may use together. */
struct tr_limit {
    uint64_t id; /* the same for every process of the host; 0: none */
    uint64_t limit;
};

struct tr_machine {
    uint64_t host; /* bytes of memory and swap; UINT64_MAX where the system does not say */
    struct tr_limit groups[TR_MOST_GROUPS];
    int ngroups;
    struct tr_cores cores;
};

/* Calls visit(folder, old, arg) for the folder of each control group of this process that has the
 * controller (memory, cpu), and of the groups above it. A container may show its own group as the
 * root: some of the folders may not be there. old: version 1, else 2. */
typedef void tr_visit_group(const char *folder, bool old, void *arg);
void tr_machine_groups(const char *root, const char *controller, tr_visit_group *visit, void *arg);

/* Reads them below `root`: "" but in tests. */
void tr_machine_read(const char *root, struct tr_machine *limits);

/* What one rank needs, in which groups it is, and which processors it may use (cores.h). */
struct tr_need {
    uint64_t nbytes, groups[TR_MOST_GROUPS];
    uint64_t set, group;
};

struct tr_need tr_machine_need(const struct tr_machine *limits, uint64_t nbytes);

/* Compares what the ranks of a host need with its memory, and what those in a control group need
 * with the group's limit. needs[nneeds] are of the ranks of this host, needs[own] of this one,
 * which is called `rank` in the error. */
TR_NODISCARD tr_status tr_machine_check(const struct tr_machine *limits, int rank,
                                        const struct tr_need *needs, int nneeds, int own);

/* How many threads the rank `own` of the ranks needs[nneeds] of a host takes: the cores that it may
 * use, divided by the ranks that may use the same ones, and at least one. */
int tr_machine_threads(const struct tr_machine *limits, const struct tr_need *needs, int nneeds,
                       int own);

#endif
