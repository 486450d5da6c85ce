/* Kernels have the priority of the CUDA streams whose calls they carry out, launched and in graphs.
 */
#include "driver/cuda.h"
#include "graphs.h"

enum { N = 300, URGENT = -2, MORE_URGENT = -3, NONE = 99 };

/* What the library asked of the driver in this thread last. */
static _Thread_local int launched = NONE, captured = NONE;
static __typeof__(cuLaunchKernelEx) *real_launch;
static __typeof__(cuGraphKernelNodeSetAttribute) *real_set;

static CUresult CUDAAPI launch(const CUlaunchConfig *config, CUfunction function, void **parameters,
                               void **extra)
{
    if (config->numAttrs == 1 && config->attrs[0].id == CU_LAUNCH_ATTRIBUTE_PRIORITY)
        launched = config->attrs[0].value.priority;
    return real_launch(config, function, parameters, extra);
}

static CUresult CUDAAPI set(CUgraphNode node, CUkernelNodeAttrID id,
                            const CUkernelNodeAttrValue *value)
{
    if (id == CU_LAUNCH_ATTRIBUTE_PRIORITY) captured = value->priority;
    return real_set(node, id, value);
}

static struct both make(const struct gpu_rank *rank, int priority)
{
    struct both made = {.cuda = NULL};
    gpu_use(rank->gpu);
    CALL(cuStreamCreateWithPriority, &made.cuda, CU_STREAM_NON_BLOCKING, priority);
    CHECK_EQ(tuttiStreamFromDevice(&made.tutti, rank->gpu, made.cuda), tuttiSuccess);
    return made;
}

static void sum(const struct gpu_rank *rank, float *memory, const struct both *stream)
{
    CHECK_EQ(tuttiAllReduce(memory, memory, N, tuttiFloat32, tuttiSum, rank->comm, stream->tutti),
             tuttiSuccess);
}

static void sum_in_a_graph(const struct gpu_rank *rank, float *memory, const struct both *stream)
{
    CUgraphExec graph = capture_sum(rank, stream, memory, N);
    replay(graph, stream->cuda);
    CALL(cuGraphExecDestroy, graph);
}

static void urgent_and_not(struct gpu_rank *rank)
{
    struct both plain = make(rank, 0), urgent = make(rank, URGENT), more = make(rank, MORE_URGENT);
    float *memory = (float *)gpu_memory(rank->gpu, N * sizeof *memory), data[N];
    for (int i = 0; i < N; i++) data[i] = 1;
    gpu_write(rank->gpu, memory, data, sizeof data);
    sum(rank, memory, &plain);
    sum_in_a_graph(rank, memory, &plain);
    CHECK_EQ(launched, NONE);
    CHECK_EQ(captured, NONE);
    sum(rank, memory, &urgent);
    CHECK_EQ(launched, URGENT);
    CHECK_EQ(tuttiStreamSynchronize(urgent.tutti), tuttiSuccess);
    sum_in_a_graph(rank, memory, &more);
    CHECK_EQ(captured, MORE_URGENT);
    CHECK_EQ(tuttiGroupStart(), tuttiSuccess);
    sum(rank, memory, &urgent);
    sum(rank, memory, &more);
    sum(rank, memory, &plain);
    CHECK_EQ(tuttiGroupEnd(), tuttiSuccess);
    CHECK_EQ(launched, MORE_URGENT);
    CHECK_EQ(tuttiStreamSynchronize(plain.tutti), tuttiSuccess);
    gpu_read(rank->gpu, data, memory, sizeof data);
    for (int i = 0; i < N; i++) CHECK(data[i] == 1 << 7);
    streams_destroy(rank, &plain, 1);
    streams_destroy(rank, &urgent, 1);
    streams_destroy(rank, &more, 1);
    gpu_free(memory);
}

TEST(device_priority, of_a_kernel_is_that_of_the_most_urgent_stream_of_its_calls)
{
    struct tt_cuda *driver = (struct tt_cuda *)(uintptr_t)tt_cuda_load();
    real_launch = driver->LaunchKernelEx;
    real_set = driver->GraphKernelNodeSetAttribute;
    driver->LaunchKernelEx = launch;
    driver->GraphKernelNodeSetAttribute = set;
    on_gpus(2, 1, NULL, urgent_and_not, NULL);
    driver->LaunchKernelEx = real_launch;
    driver->GraphKernelNodeSetAttribute = real_set;
}
