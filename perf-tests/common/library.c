/* The table of tutti's functions. */
#include "common/library.h"

tuttiResult_t perf_group_end(const struct perf_library *library, tuttiResult_t result)
{
    tuttiResult_t ended = library->group_end();
    return result != tuttiSuccess ? result : ended;
}

static int no_version(void)
{
    return 0;
}

static const char *no_text(void)
{
    return NULL;
}

static tuttiResult_t wait_for(tuttiComm_t comm, const struct perf_gpu *gpu, tuttiStream_t stream)
{
    (void)comm, (void)gpu;
    return stream == NULL ? tuttiSuccess : tuttiStreamSynchronize(stream);
}

const struct perf_library perf_tutti = {
    .ntypes = tuttiNumTypes,
    .nops = tuttiFirstDynamicRedOp,
    .nccl_version = no_version,
    .title = no_text,
    .path = no_text,
    .get_id = tuttiGetUniqueId,
    .init_rank = tuttiCommInitRankConfig,
    .destroy = tuttiCommDestroy,
    .abort = tuttiCommAbort,
    .last_error = tuttiGetLastError,
    .register_memory = tuttiCommRegister,
    .deregister_memory = tuttiCommDeregister,
    .make_op = tuttiRedOpCreatePreMulSum,
    .destroy_op = tuttiRedOpDestroy,
    .stream_of_gpu = tuttiStreamFromDevice,
    .destroy_stream = tuttiStreamDestroy,
    .wait = wait_for,
    .group_start = tuttiGroupStart,
    .group_end = tuttiGroupEnd,
    .all_reduce = tuttiAllReduce,
    .broadcast = tuttiBroadcast,
    .reduce = tuttiReduce,
    .all_gather = tuttiAllGather,
    .reduce_scatter = tuttiReduceScatter,
    .all_to_all = tuttiAlltoAll,
    .gather = tuttiGather,
    .scatter = tuttiScatter,
    .send = tuttiSend,
    .recv = tuttiRecv,
    .barrier = tuttiBarrier,
    .all_gatherv = tuttiAllGatherV,
    .reduce_scatterv = tuttiReduceScatterV,
    .all_to_allv = tuttiAlltoAllV,
    .gatherv = tuttiGatherV,
    .scatterv = tuttiScatterV,
    .get_algorithm = tuttiCommGetAlgorithm,
    .counters = tuttiCommCounters,
};
