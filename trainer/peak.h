/* The peak of matrix products, with which the speed of steps is compared. */
#ifndef TR_PEAK_H
#define TR_PEAK_H

#include "config.h"
#include "mesh.h"
#include "ops/backend.h"

/* The product that is timed: [rows, depth] by a transposed [columns, depth]. */
struct tr_peak_product {
    long rows, columns, depth;
};

/* For a rank of so many threads: a product whose tiles they share evenly. */
struct tr_peak_product tr_peak_product(int nthreads);
/* What tr_peak_measure takes of memory, and gives back before the first step. */
size_t tr_peak_bytes(int nthreads);
/* Whether a run of these options measures the peak. */
bool tr_peak_is_wanted(const struct tr_config *config);

/* *flops = floating point operations a second of matrix products alone, all ranks together, in
 * rounds that all of them begin and end at the same time: those of the best round, by the rank that
 * took longest, so that ranks which share cores reach together what the cores do. Takes some 50 to
 * 90 ms, and longer where ranks share cores; with `wanted` false on rank 0 no time, and *flops is
 * 0; so it is where a rank has no memory for that. Collective. */
TR_NODISCARD tr_status tr_peak_measure(const struct tr_backend *backend, const struct tr_mesh *mesh,
                                       bool wanted, double *flops);

#endif
