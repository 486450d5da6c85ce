/* Calls on GPUs captured into CUDA graphs (-G): a graph for each rank of a worker. */
#ifndef TT_PERF_GRAPHS_H
#define TT_PERF_GRAPHS_H

#include "common/ranks.h"

/* From now on the ranks' streams are captured. */
tuttiResult_t perf_graphs_begin(struct perf_worker *worker);
/* Ends the capture, also where `result`, that of the calls since, is an error. Returns the first
 * failure; without one there are graphs. */
tuttiResult_t perf_graphs_end(struct perf_worker *worker, tuttiResult_t result);
/* Launches the graph of every rank; does not wait. */
tuttiResult_t perf_graphs_launch(struct perf_worker *worker);
/* Frees the graphs there are; they are complete. */
void perf_graphs_free(struct perf_worker *worker);

#endif
