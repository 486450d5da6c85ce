/* Checks of a row's results. */
#ifndef TT_PERF_CHECK_H
#define TT_PERF_CHECK_H

#include "common/bench.h"

/* Fills the buffers at `offset` (bytes, after the guard) with what the check with worker->seed
 * sends. */
tuttiResult_t perf_check_prepare(struct perf_worker *worker, const struct perf_row *row,
                                 bool in_place, size_t offset);

/* Counts elements that are wrong on this worker's ranks: in the result, in the bytes around it, and
 * in what was sent out of place, which must be unchanged. */
tuttiResult_t perf_check_count(struct perf_worker *worker, const struct perf_row *row,
                               bool in_place, size_t offset, int64_t *wrong);

/* For collectives that move nothing: runs `launch` with one rank late, and counts ranks here that
 * left before the last had come. Compares clocks, so it wants all ranks on one host. */
tuttiResult_t perf_check_barrier(struct perf_worker *worker, const struct perf_row *row,
                                 tuttiResult_t (*launch)(struct perf_worker *,
                                                         const struct perf_row *),
                                 int64_t *wrong);

#endif
