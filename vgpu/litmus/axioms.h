/* One candidate execution of a litmus test, and whether the axioms allow it. */
#ifndef VGPU_LITMUS_AXIOMS_H
#define VGPU_LITMUS_AXIOMS_H

#include <vgpu/litmus/litmus.h>
#include <vgpu/litmus/relations.h>

enum { VL_PIECES = 24, VL_PATTERNS = 64 };

enum vl_role { VL_INITIAL, VL_ACCESS, VL_FENCES, VL_COMES, VL_LEAVES };

struct vl_event {
    enum vl_role role; /* a barrier is two events: a thread comes to it, and leaves it */
    unsigned thread, index;
    const struct vl_op *op; /* NULL: an initial write */
    uint32_t pieces;        /* what it accesses */
    bool reads, may_write;
};

struct vl_piece { /* bytes that no access of the test divides */
    uint8_t location, first, nbytes;
};

/* The two ends of a release pattern (first, its write) or an acquire pattern (its read, last). */
struct vl_pattern {
    uint8_t first, last;
};

struct vl_execution {
    const struct vl_test *test;
    unsigned without; /* enum vl_rule */
    struct vl_piece pieces[VL_PIECES];
    struct vl_event events[VL_EVENTS]; /* event k < npieces is the initial write of piece k */
    unsigned npieces, nevents, nreleases, nacquires;
    uint64_t at[VL_LOCATIONS];         /* the location's accesses, initial writes too */
    struct vl_relation program, fixed; /* fixed: program order, barriers, order of grids */
    struct vl_relation strong;         /* morally strong pairs */
    struct vl_pattern releases[VL_PATTERNS], acquires[VL_PATTERNS];

    /* the candidate */
    uint8_t source[VL_EVENTS][VL_PIECES]; /* the write that a read reads from */
    uint8_t fence_rank[VL_EVENTS];        /* Fence-SC order */
    uint8_t rank[VL_EVENTS]; /* a linear order of a location's writes that coherence follows */

    /* what follows from it */
    uint8_t value[VL_EVENTS][VL_PIECES]; /* written */
    uint64_t writers;                    /* events that write: a swap that fails does not */
    struct vl_relation observed, cause;
    bool racy, mixed;
    bool sure; /* a race that the running model must report */
};

/* events.c: what does not depend on the candidate. -1: too many events. */
int vl_execution_init(struct vl_execution *e, const struct vl_test *test, unsigned without);
/* Whether an nc load and a write are of grids that may run at the same time. */
bool vl_outside(const struct vl_execution *e, unsigned a, unsigned b);

/* Values and writers from the sources. False: a value out of thin air, or a source that writes
 * nothing. */
bool vl_execution_values(struct vl_execution *e);
/* Causality, races, and the axioms that coherence order has no part in; needs values and
 * fence_rank. */
bool vl_execution_order(struct vl_execution *e);
/* The axioms about one location; needs the ranks of its writes. */
bool vl_execution_location(const struct vl_execution *e, unsigned location);

#endif
