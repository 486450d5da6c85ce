/* One training run of two steps on a mesh, compared with the oracle: loss, norm, every gradient,
 * every weight after each step, and equal bits on all ranks that hold the same. */
#ifndef TT_TESTS_TRAINER_GRID_H
#define TT_TESTS_TRAINER_GRID_H

#include "../../trainer/engine.h"
#include "oracle.h"

/* Which tokens count: GRID_NONE has none in the first step, GRID_NEVER none in both. */
enum grid_mask { GRID_ALL, GRID_RANDOM, GRID_ONE, GRID_FIRST_HALF, GRID_NONE, GRID_NEVER };

struct grid_case {
    const char *name;
    int size[TR_NUM_AXES];
    struct tr_engine_options options;
    enum grid_mask mask;
    enum tr_optimizer_kind optimizer;
    int fails; /* this rank of the mesh, counted from 1, fails in its first backward pass; 0: none
                */
};

/* What the two steps came to, the same on all ranks. */
struct grid_result {
    double loss[2], norm[2];
    uint64_t weights; /* a checksum of all weights at the end */
};

/* Runs a case on the ranks of `mesh` (as many as its axes multiply to), and says in `report` what
 * differed first, "" when nothing did. Collective; the report is the same on all ranks, unless one
 * has failed: then each has a report of its own, and the mesh is aborted. */
struct grid_result grid_run(const struct grid_case *test, struct tr_mesh *mesh, char *report,
                            size_t report_bytes);

/* A small model of each kind, on one rank: what a test does not set itself. */
enum { GRID_SMALL_CONTEXT = 16, GRID_SMALL_VOCABULARY = 61 };
struct tr_engine_options grid_small_options(enum tr_model_kind kind);

#endif
