/* The host's side of the probe `lowered`: one collective, its programs, its reference. */
#ifndef GPU_PROBES_LOWERED_HOST_H
#define GPU_PROBES_LOWERED_HOST_H

#include "lowered.h"
#include "schedule/collective.h"

/* One run. Filled by lowered.c. */
struct job {
    enum tt_collective collective;
    const char *algorithm;
    int nranks, protocol, copies;
    bool fast; /* the kernel's mode */
    size_t count, slot_bytes;
    struct tt_program *programs[MOST_PEERS];
    struct tt_binding bindings[MOST_PEERS];
    size_t input_bytes[MOST_PEERS], output_bytes[MOST_PEERS], scratch_bytes[MOST_PEERS];
};

/* Makes the programs and bindings; ends the process on failure. job_clear frees the programs. */
void job_make(struct job *job);
void job_clear(struct job *job);

/* Runs the programs on the host, one step after the other: inputs[rank] -> outputs[rank]. This is
 * the order of the host's executor, in plain C. */
void job_simulate(const struct job *job, float *const *inputs, float *const *outputs);

#endif
