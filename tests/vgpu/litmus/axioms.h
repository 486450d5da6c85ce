/* One candidate execution of a litmus test, and whether the axioms allow it. */
#ifndef VGPU_LITMUS_AXIOMS_H
#define VGPU_LITMUS_AXIOMS_H

#include <vgpu/litmus/litmus.h>
#include <vgpu/litmus/relations.h>

struct vl_event {
    enum vl_kind kind;
    unsigned thread;        /* VL_THREADS: an initial write */
    unsigned index;         /* in its thread */
    const struct vl_op *op; /* NULL: an initial write */
    unsigned location;
    bool reads, writes;
};

struct vl_execution {
    const struct vl_test *test;
    struct vl_event
        events[VL_EVENTS]; /* the initial writes come first: event k writes location k */
    unsigned nevents;
    struct vl_relation program, strong; /* program order; morally strong pairs */
    uint8_t reads_from[VL_EVENTS];      /* of each reading event, the write */
    uint8_t
        rank[VL_EVENTS]; /* a linear order of a location's writes, which coherence must follow */
    uint8_t fence_rank[VL_EVENTS]; /* Fence-SC order */
};

/* Events, program order, moral strength: what does not depend on the candidate. -1: too many
 * events. */
int vl_execution_init(struct vl_execution *e, const struct vl_test *test);
/* Whether the axioms hold; *racy: whether two conflicting events race. */
bool vl_execution_allowed(const struct vl_execution *e, bool *racy);

#endif
