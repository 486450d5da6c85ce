/* The buffers of a rank: memory of the host, or of the rank's GPU (--device cuda). */
#ifndef TT_PERF_BUFFERS_H
#define TT_PERF_BUFFERS_H

#include "common/ranks.h"

/* Allocates and registers, as the options say. On failure worker->error may say why; what was made
 * is freed by perf_buffers_close. */
tuttiResult_t perf_buffers_open(struct perf_worker *worker, struct perf_rank *rank);
void perf_buffers_close(struct perf_worker *worker, struct perf_rank *rank);

/* Sets every byte. */
tuttiResult_t perf_buffers_fill(const struct perf_worker *worker, const struct perf_rank *rank,
                                void *to, int byte, size_t nbytes);
/* What the host can write to in place of `to`, PERF_CHUNK_BYTES at most: `to` itself, or memory of
 * the worker's that perf_buffers_write copies to `to`. */
void *perf_buffers_staging(const struct perf_worker *worker, void *to);
tuttiResult_t perf_buffers_write(const struct perf_worker *worker, const struct perf_rank *rank,
                                 void *to, size_t nbytes);
/* What the host can read in place of `from`, PERF_CHUNK_BYTES at most: `from` itself, or a copy,
 * which stays until the worker's next call here. */
tuttiResult_t perf_buffers_read(const struct perf_worker *worker, const struct perf_rank *rank,
                                const void *from, size_t nbytes, const void **copy);

#endif
