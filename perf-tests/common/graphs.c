/* Captures the calls of a worker's ranks into CUDA graphs and launches these. */
#include "common/graphs.h"

/* Ends the captures of the first nranks ranks. `result`: of what was captured; after an error the
 * captures are ended, and the graphs stay NULL. */
static tuttiResult_t end_captures(struct perf_worker *worker, int nranks, tuttiResult_t result)
{
    for (int i = 0; i < nranks; i++) {
        struct perf_rank *rank = &worker->ranks[i];
        tuttiResult_t ended = perf_gpu_capture_end(&rank->gpu, &rank->captured);
        if (result == tuttiSuccess) result = ended;
    }
    return result;
}

static void free_captured(struct perf_worker *worker)
{
    for (int i = 0; i < worker->nranks; i++) {
        perf_gpu_captured_free(&worker->ranks[i].gpu, worker->ranks[i].captured);
        worker->ranks[i].captured = NULL;
    }
}

tuttiResult_t perf_graphs_begin(struct perf_worker *worker)
{
    for (int i = 0; i < worker->nranks; i++) {
        tuttiResult_t result = perf_gpu_capture_begin(&worker->ranks[i].gpu);
        if (result == tuttiSuccess) continue;
        (void)end_captures(worker, i, result);
        free_captured(worker);
        return result;
    }
    return tuttiSuccess;
}

tuttiResult_t perf_graphs_end(struct perf_worker *worker, tuttiResult_t result)
{
    result = end_captures(worker, worker->nranks, result);
    for (int i = 0; i < worker->nranks && result == tuttiSuccess; i++) {
        struct perf_rank *rank = &worker->ranks[i];
        result = perf_gpu_graph_make(&rank->gpu, rank->captured, &rank->graph);
    }
    free_captured(worker);
    return result;
}

tuttiResult_t perf_graphs_launch(struct perf_worker *worker)
{
    for (int i = 0; i < worker->nranks; i++) {
        PERF_TRY(perf_gpu_graph_launch(&worker->ranks[i].gpu, worker->ranks[i].graph));
    }
    return tuttiSuccess;
}

void perf_graphs_free(struct perf_worker *worker)
{
    for (int i = 0; i < worker->nranks; i++) {
        perf_gpu_graph_destroy(&worker->ranks[i].gpu, worker->ranks[i].graph);
        worker->ranks[i].graph = NULL;
    }
}
