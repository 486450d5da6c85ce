/* Streams, events, capture, graphs, and the forms for per-thread default streams. */
#include "testing.h"

extern __typeof__(cudaMemcpyAsync) cudaMemcpyAsync_ptsz;
extern __typeof__(cudaMemcpy) cudaMemcpy_ptds;
extern __typeof__(cudaStreamSynchronize) cudaStreamSynchronize_ptsz;
extern __typeof__(cudaStreamGetId) cudaStreamGetId_ptsz;

static void streams(void)
{
    uint32_t *memory = rt_words(1), value = 1;
    cudaStream_t low, high;
    cudaEvent_t begin, end;
    int least = 0, greatest = 0, priority = 9, device = -1;
    unsigned flags = 0;
    float ms = -1;
    FINE(cudaDeviceGetStreamPriorityRange(&least, &greatest));
    CHECK(greatest < least);
    FINE(cudaStreamCreateWithFlags(&low, cudaStreamNonBlocking));
    FINE(cudaStreamCreateWithPriority(&high, cudaStreamNonBlocking, greatest));
    FINE(cudaStreamGetPriority(high, &priority));
    CHECK_EQ(priority, greatest);
    FINE(cudaStreamGetFlags(low, &flags));
    CHECK_EQ(flags, cudaStreamNonBlocking);
    FINE(cudaStreamGetDevice(low, &device));
    CHECK_EQ(device, 0);
    FINE(cudaEventCreate(&begin));
    FINE(cudaEventCreate(&end));
    FINE(cudaEventRecord(begin, low));
    FINE(rt_launch(&rt_add, 1, 1, low, (void *[]){&memory, &value}));
    FINE(cudaEventRecord(end, low));
    FINE(cudaStreamWaitEvent(high, end, 0));
    FINE(rt_launch(&rt_add, 1, 1, high, (void *[]){&memory, &value}));
    FINE(cudaStreamSynchronize(high));
    FINE(cudaEventElapsedTime(&ms, begin, end));
    CHECK(ms >= 0);
    CHECK_EQ(rt_word(memory), 2);
    FINE(cudaEventDestroy(begin));
    FINE(cudaEventDestroy(end));
    FINE(cudaStreamDestroy(low));
    FINE(cudaStreamDestroy(high));
}

TEST(vgpu_runtime_streams, events_order_streams_and_time_them)
{
    rt_run(streams);
}

static void called(void *argument)
{
    *(int *)argument += 1;
}

static void called_back(cudaStream_t stream, cudaError_t status, void *argument)
{
    (void)stream;
    *(int *)argument += status == cudaSuccess ? 10 : 100;
}

static void host_functions(void)
{
    int calls = 0;
    FINE(cudaLaunchHostFunc(NULL, called, &calls));
    FINE(cudaStreamAddCallback(NULL, called_back, &calls, 0));
    FINE(cudaStreamSynchronize(cudaStreamLegacy));
    CHECK_EQ(calls, 11);
}

TEST(vgpu_runtime_streams, host_functions_run_in_the_order_of_the_stream)
{
    rt_run(host_functions);
}

static void captured(void)
{
    uint32_t *memory = rt_words(1), value = 2, result = 0;
    cudaStream_t stream;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    enum cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    unsigned long long id = 0;
    size_t nnodes = 0;
    FINE(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    FINE(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    FINE(rt_launch(&rt_add, 1, 1, stream, (void *[]){&memory, &value}));
    FINE(cudaStreamGetCaptureInfo(stream, &status, &id, &graph, NULL, NULL, &nnodes));
    CHECK(status == cudaStreamCaptureStatusActive && id != 0 && nnodes == 1);
    FINE(cudaStreamEndCapture(stream, &graph));
    FINE(cudaGraphInstantiate(&exec, graph, 0));
    for (int i = 0; i < 3; i++) FINE(cudaGraphLaunch(exec, stream));
    FINE(cudaMemcpyAsync(&result, memory, 4, cudaMemcpyDeviceToHost, stream));
    FINE(cudaStreamSynchronize(stream));
    CHECK_EQ(result, 6);
    FINE(cudaGraphExecDestroy(exec));
    FINE(cudaGraphDestroy(graph));
}

TEST(vgpu_runtime_streams, captured_work_is_launched_as_a_graph)
{
    rt_run(captured);
}

static void nodes(void)
{
    uint32_t *memory = rt_words(1), value = 5, result = 0;
    int calls = 0;
    cudaGraph_t graph;
    cudaGraphNode_t fill, add, copy, host;
    cudaGraphExec_t exec;
    enum cudaGraphNodeType type;
    struct cudaKernelNodeParams kernel = {.func = &rt_add,
                                          .gridDim = {1, 1, 1},
                                          .blockDim = {1, 1, 1},
                                          .kernelParams = (void *[]){&memory, &value}},
                                found;
    const struct cudaMemsetParams filling = {
        .dst = memory, .value = 1, .elementSize = 4, .width = 1, .height = 1};
    const struct cudaHostNodeParams calling = {.fn = called, .userData = &calls};
    FINE(cudaGraphCreate(&graph, 0));
    FINE(cudaGraphAddMemsetNode(&fill, graph, NULL, 0, &filling));
    FINE(cudaGraphAddKernelNode(&add, graph, &fill, 1, &kernel));
    FINE(cudaGraphAddMemcpyNode1D(&copy, graph, &add, 1, &result, memory, 4, cudaMemcpyDefault));
    FINE(cudaGraphAddHostNode(&host, graph, &copy, 1, &calling));
    FINE(cudaGraphNodeGetType(add, &type));
    CHECK_EQ(type, cudaGraphNodeTypeKernel);
    FINE(cudaGraphInstantiateWithFlags(&exec, graph, 0));
    FINE(cudaGraphLaunch(exec, NULL));
    FINE(cudaStreamSynchronize(NULL));
    CHECK(result == 6 && calls == 1);
    FINE(cudaGraphKernelNodeGetParams(add, &found)); /* its function can be given again */
    value = 7;
    found.kernelParams = kernel.kernelParams;
    FINE(cudaGraphExecKernelNodeSetParams(exec, add, &found));
    FINE(cudaGraphLaunch(exec, NULL));
    FINE(cudaStreamSynchronize(NULL));
    CHECK(result == 8 && calls == 2);
    kernel.func = &calls;
    CHECK_EQ(cudaGraphAddKernelNode(&add, graph, NULL, 0, &kernel), cudaErrorInvalidDeviceFunction);
    FINE(cudaGraphExecDestroy(exec));
    FINE(cudaGraphDestroy(graph));
}

TEST(vgpu_runtime_streams, a_graph_is_made_of_nodes)
{
    rt_run(nodes);
}

static void any_nodes(void)
{
    uint32_t *memory = rt_words(1), value = 5, result = 0;
    cudaGraph_t graph;
    cudaGraphNode_t fill, add, copy;
    cudaGraphExec_t exec;
    struct cudaGraphNodeParams params = {.type = cudaGraphNodeTypeMemset};
    params.memset = (struct cudaMemsetParamsV2){
        .dst = memory, .value = 2, .elementSize = 4, .width = 1, .height = 1};
    FINE(cudaGraphCreate(&graph, 0));
    FINE(cudaGraphAddNode(&fill, graph, NULL, NULL, 0, &params));
    params = (struct cudaGraphNodeParams){.type = cudaGraphNodeTypeKernel};
    params.kernel = (struct cudaKernelNodeParamsV2){.func = &rt_add,
                                                    .gridDim = {1, 1, 1},
                                                    .blockDim = {1, 1, 1},
                                                    .kernelParams = (void *[]){&memory, &value}};
    FINE(cudaGraphAddNode(&add, graph, &fill, NULL, 1, &params));
    params = (struct cudaGraphNodeParams){.type = cudaGraphNodeTypeMemcpy};
    params.memcpy.copyParams = (struct cudaMemcpy3DParms){.srcPtr = {memory, 4, 4, 1},
                                                          .dstPtr = {&result, 4, 4, 1},
                                                          .extent = {4, 1, 1},
                                                          .kind = cudaMemcpyDefault};
    FINE(cudaGraphAddNode(&copy, graph, &add, NULL, 1, &params));
    FINE(cudaGraphInstantiate(&exec, graph, 0));
    FINE(cudaGraphLaunch(exec, NULL));
    FINE(cudaStreamSynchronize(NULL));
    CHECK_EQ(result, 7);
    FINE(cudaGraphExecDestroy(exec));
    FINE(cudaGraphDestroy(graph));
}

TEST(vgpu_runtime_streams, nodes_of_any_kind_are_made_by_one_function)
{
    rt_run(any_nodes);
}

/* Work of the thread's own stream does not wait for the legacy one. */
static void per_thread(void)
{
    uint32_t *memory = rt_words(1), value = 3, result = 0;
    unsigned long long own = 0, legacy = 0;
    FINE(cudaStreamGetId_ptsz(NULL, &own));
    FINE(cudaStreamGetId(NULL, &legacy));
    CHECK(own != legacy);
    FINE(__cudaLaunchKernel_ptsz((cudaKernel_t)(void *)&rt_add, (dim3){1, 1, 1}, (dim3){1, 1, 1},
                                 (void *[]){&memory, &value}, 0, NULL));
    FINE(cudaMemcpyAsync_ptsz(&result, memory, 4, cudaMemcpyDeviceToHost, NULL));
    FINE(cudaStreamSynchronize_ptsz(NULL));
    CHECK_EQ(result, 3);
    result = 0;
    FINE(cudaMemcpy_ptds(&result, memory, 4, cudaMemcpyDeviceToHost));
    CHECK_EQ(result, 3);
}

TEST(vgpu_runtime_streams, the_forms_for_per_thread_streams_take_the_threads_own_one)
{
    rt_run(per_thread);
}
