/* One row of the table: timed, then checked, out of place and in place. */
#ifndef TT_PERF_BENCH_H
#define TT_PERF_BENCH_H

#include "common/ranks.h"

/* Borrowed pointers to the static tables. */
struct perf_row {
    const struct perf_type *type;
    const struct perf_op *op; /* NULL: nothing is reduced */
    int root;                 /* -1: there is none */
    struct perf_layout layout;
};

struct perf_blocks perf_row_blocks(const struct perf_worker *worker, const struct perf_row *row);

/* Calls the collective `iterations` times, untimed. */
tuttiResult_t perf_row_warm_up(struct perf_worker *worker, const struct perf_row *row,
                               int iterations);

/* Measures and checks the row, and reports it on rank 0. */
tuttiResult_t perf_row_run(struct perf_worker *worker, const struct perf_row *row);

#endif
