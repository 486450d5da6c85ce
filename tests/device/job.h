/* One collective as the programs of all its ranks, for GPUs: made, bound, and run on the host in
 * plain C, one step after the other, as the reference for the kernel. */
#ifndef TT_TESTS_DEVICE_JOB_H
#define TT_TESTS_DEVICE_JOB_H

#include "algorithms/algorithms.h"
#include "datatype/datatype.h"
#include "device/call.h"
#include "program/lower.h"

enum { JOB_MOST_RANKS = 18 };

struct job {
    /* chosen by the test */
    const struct tt_algorithm *algorithm;
    int nranks, root, copies;
    uint32_t protocol;
    size_t count;
    const size_t *counts; /* of each block; NULL: all alike */
    size_t slot_bytes, line_bytes;
    struct tt_reduction reduction;
    /* filled by job_make */
    struct tt_program *programs[JOB_MOST_RANKS];
    struct tt_binding *bindings[JOB_MOST_RANKS];
    size_t input_bytes[JOB_MOST_RANKS], output_bytes[JOB_MOST_RANKS], scratch_bytes[JOB_MOST_RANKS];
};

/* False: the algorithm does not run on this shape, or its messages do not fit. */
bool job_make(struct job *job);
void job_clear(struct job *job);
/* inputs[rank] -> outputs[rank]. */
void job_simulate(const struct job *job, char *const *inputs, char *const *outputs);
/* Parts of every block: blocks of the kernel. */
uint32_t job_nparts(const struct job *job);

#endif
