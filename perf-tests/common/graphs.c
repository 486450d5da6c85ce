/* Captures the calls of a worker's ranks into CUDA graphs and launches these. */
#include "common/graphs.h"

tuttiResult_t perf_graphs_begin(struct perf_worker *worker)
{
    for (int i = 0; i < worker->nranks; i++) {
        tuttiResult_t result = perf_gpu_capture_begin(&worker->ranks[i].gpu);
        if (result == tuttiSuccess) continue;
        while (--i >= 0) (void)perf_gpu_capture_end(&worker->ranks[i].gpu, NULL);
        return result;
    }
    return tuttiSuccess;
}

tuttiResult_t perf_graphs_end(struct perf_worker *worker, tuttiResult_t result)
{
    for (int i = 0; i < worker->nranks; i++) {
        struct perf_rank *rank = &worker->ranks[i];
        bool wanted = result == tuttiSuccess;
        tuttiResult_t ended = perf_gpu_capture_end(&rank->gpu, wanted ? &rank->graph : NULL);
        if (wanted) result = ended;
    }
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
