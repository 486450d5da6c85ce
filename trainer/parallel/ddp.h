/* clang-format off */
/* Data parallelism: every rank has all weights and a part of the batch.
 *
 * Collectives  forward none; backward one all-reduce (sum) a bucket, on a stream of its own,
 *              launched as soon as the last gradient of the bucket is complete, so that it runs
 *              beside the rest of backward.
 * Volume       2 (n-1)/n * 4 P bytes sent a rank and step, whatever the number of micro-batches.
 * Memory       weights, gradients and optimizer state whole on every rank; no copies: a bucket is
 *              a range of the gradient arena.
 * Limits       every rank needs at least one sequence a step.
 * Order        buckets are launched in one fixed order (from the last parameter to the first) on
 *              every rank; one that is complete early waits its turn, so ranks cannot launch
 *              differently.
 * Test         tests/trainer/run_test.c: losses for 1 to 5 ranks, every gradient for 3;
 *              tests/trainer/optim_test.c: the plan of the buckets. */
/* clang-format on */
#ifndef TR_DDP_H
#define TR_DDP_H

#include "../mesh.h"
#include "../model/gpt.h"

struct tr_bucket {
    size_t offset, count;     /* floats of the gradient arena */
    int first_param, nparams; /* in registry order */
    int waiting;              /* gradients that are not complete yet */
    tuttiEvent_t begin, end;  /* around its all-reduce */
};

/* Owner: the training thread. Owns stream, events and arrays. */
struct tr_ddp {
    const struct tr_mesh *mesh;
    const struct tr_params *params;
    float *gradients;
    struct tr_bucket *buckets; /* in order of launch */
    int nbuckets, launched;
    int *bucket_of; /* [params->n] */
    tuttiStream_t stream;
    tr_status status;                      /* first failure of a launch from within backward */
    double reduce_seconds, waited_seconds; /* sums over the steps so far */
};

/* Plans the buckets: at least bucket_bytes each, cut between tensors. Takes the tensors whose
 * gradient is Partial over dp; a mesh of one rank along dp has no buckets and launches nothing. */
TR_NODISCARD tr_status tr_ddp_init(struct tr_ddp *ddp, const struct tr_mesh *mesh,
                                   const struct tr_params *params, float *gradients,
                                   size_t bucket_bytes);
void tr_ddp_fini(struct tr_ddp *ddp);

/* Before the last backward pass of a step. */
void tr_ddp_begin(struct tr_ddp *ddp);
/* The hook for that pass. */
void tr_ddp_ready(void *arg, int param);
/* Sums statistics[count] over the ranks behind the buckets, and waits for everything. */
TR_NODISCARD tr_status tr_ddp_finish(struct tr_ddp *ddp, double *statistics, size_t count);

#endif
