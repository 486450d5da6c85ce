/* The running memory model against the axioms, run by run. */
#ifndef VGPU_LITMUS_COMPARE_H
#define VGPU_LITMUS_COMPARE_H

#include <vgpu/litmus/run.h>

enum vl_verdict {
    VL_AGREES,
    VL_FORBIDDEN,      /* a run ended with what no allowed execution ends with */
    VL_FALSE_RACE,     /* a run in which no allowed execution has a race was reported */
    VL_MISSED_RACE,    /* a run in which all allowed executions have a race was not reported */
    VL_NEVER_REPORTED, /* some allowed execution has a race, no run was reported */
    VL_BROKEN,         /* the test cannot be enumerated or run */
    VL_VERDICTS
};
extern const char *const vl_verdicts[VL_VERDICTS];

struct vl_comparison {
    const struct vl_calls *calls; /* NULL: no mistake */
    unsigned runs, without;       /* without: enum vl_rule */
    bool reachable; /* reachable memory: races that the model does not report are not counted */
    bool strict;    /* they are in runs that looked, unless a host thread takes part */
};

/* Sums over tests. Executions are told apart by their outcomes only: an outcome that both racy and
 * other executions have says nothing about the report. */
struct vl_totals {
    unsigned tests, racy, mixed;
    uint64_t runs, with_race, without_race, either, undefined;
    uint64_t missed; /* the known difference (axioms.c, find_races): races that were not reported */
    uint64_t unjudged; /* the same in runs that may miss some */
    uint64_t allowed, shown, older;
};

struct vl_finding {
    uint64_t seed;
    struct vl_outcome outcome;
};

/* Compares until something differs. totals may be NULL. */
enum vl_verdict vl_compare(const struct vl_test *test, const struct vl_comparison *how,
                           struct vl_totals *totals, struct vl_finding *finding);

/* Takes away threads, operations and what they demand as long as the comparison gives the same
 * verdict. */
void vl_shrink(struct vl_test *test, const struct vl_comparison *how, enum vl_verdict verdict);

#endif
