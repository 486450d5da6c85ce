/* The peak of matrix products, with which the speed of steps is compared. */
#ifndef TR_PEAK_H
#define TR_PEAK_H

#include "mesh.h"
#include "ops/backend.h"

/* *flops = floating point operations a second of matrix products alone, all ranks together, which
 * measure at the same time: each the best of some products. Takes some 50 to 90 ms; with `wanted`
 * false on rank 0 no time, and *flops is 0; so it is where a rank has no memory for that.
 * Collective. */
TR_NODISCARD tr_status tr_peak_measure(const struct tr_backend *backend, const struct tr_mesh *mesh,
                                       bool wanted, double *flops);

#endif
