/* A litmus test run on the memory model (model/), one interleaving a seed. */
#ifndef VGPU_LITMUS_RUN_H
#define VGPU_LITMUS_RUN_H

#include <vgpu/litmus/litmus.h>
#include <vgpu/model.h>

/* -1: no memory. races: how many the model reported. */
int vl_run(const struct vl_test *test, uint64_t seed, enum vg_reads reads, vl_outcome *outcome,
           unsigned *races);

#endif
