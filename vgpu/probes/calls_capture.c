/* The conformance table: capture of streams into graphs. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "calls.h"

static CUstream new_stream(unsigned flags)
{
    CUstream stream;
    CHECK(cu.StreamCreate(&stream, flags));
    return stream;
}

/* Ends the capture and forgets the graph. */
static void end_capture(const char *at, CUstream stream)
{
    CUgraph graph = NULL;
    SAY(at, cu.StreamEndCapture(stream, &graph));
    say_value(at, "a graph is given", graph != NULL);
    if (graph) cu.GraphDestroy(graph);
}

struct unsafe {
    const char *at;
    CUresult result;
};

static void *other_thread(void *argument)
{
    struct unsafe *unsafe = argument;
    CUdeviceptr memory;
    cu.CtxSetCurrent(driver_context);
    unsafe->result = cu.MemAlloc(&memory, 16);
    return NULL;
}

/* Calls that are unsafe in a capture: is the call refused, and is the capture spoilt? */
static void unsafe_calls(const char *name, CUstreamCaptureMode mode, CUfunction nothing)
{
    enum { NCALLS = 13 };
    static const char *const calls[NCALLS] = {"cuMemAlloc",
                                              "cuMemFree",
                                              "cuMemHostAlloc",
                                              "cuStreamQuery of another",
                                              "cuEventQuery of an event outside",
                                              "cuCtxSynchronize",
                                              "cuMemcpyHtoD",
                                              "cuMemAlloc in another thread",
                                              "cuGraphInstantiate",
                                              "cuGraphLaunch on another",
                                              "cuGraphExecDestroy",
                                              "cuStreamSynchronize of another",
                                              "cuModuleLoadData"};
    for (int i = 0; i < NCALLS; i++) {
        CUstream stream = new_stream(CU_STREAM_NON_BLOCKING), other = new_stream(1);
        CUdeviceptr memory = device_alloc(4096), more;
        CUevent event;
        CUgraph before;
        CUgraphExec exec, made;
        void *host;
        unsigned word = 1;
        CUmodule module;
        CUresult result = CUDA_SUCCESS;
        CUstreamCaptureStatus status;
        char at[96];
        pthread_t thread;
        struct unsafe unsafe = {0};
        CHECK(cu.EventCreate(&event, 0));
        CHECK(cu.StreamBeginCapture(other, mode));
        CHECK(launch_one(nothing, other, NULL));
        CHECK(cu.StreamEndCapture(other, &before));
        CHECK(cu.GraphInstantiate(&exec, before, 0));
        CHECK(cu.StreamBeginCapture(stream, mode));
        switch (i) {
        case 0:
            result = cu.MemAlloc(&more, 16);
            break;
        case 1:
            result = cu.MemFree(memory);
            break;
        case 2:
            result = cu.MemHostAlloc(&host, 16, 0);
            break;
        case 3:
            result = cu.StreamQuery(other);
            break;
        case 4:
            result = cu.EventQuery(event);
            break;
        case 5:
            result = cu.CtxSynchronize();
            break;
        case 6:
            result = cu.MemcpyHtoD(memory, &word, 4);
            break;
        case 7:
            pthread_create(&thread, NULL, other_thread, &unsafe);
            pthread_join(thread, NULL);
            result = unsafe.result;
            break;
        case 8:
            result = cu.GraphInstantiate(&made, before, 0);
            break;
        case 9:
            result = cu.GraphLaunch(exec, other);
            break;
        case 10:
            result = cu.GraphExecDestroy(exec);
            break;
        case 11:
            result = cu.StreamSynchronize(other);
            break;
        default:
            result = cu.ModuleLoadDataEx(&module, ".version 8.0\n.target sm_75\n.address_size 64\n",
                                         0, NULL, NULL);
        }
        snprintf(at, sizeof at, "capture, mode %s", name);
        say(at, calls[i], result);
        CHECK(cu.StreamIsCapturing(stream, &status));
        say_value(at, calls[i], status);
        CUgraph graph = NULL;
        snprintf(at, sizeof at, "capture, mode %s, then cuStreamEndCapture", name);
        say(at, calls[i], cu.StreamEndCapture(stream, &graph));
    }
}

void capture_modes(void)
{
    driver_open(true);
    CUfunction nothing = kernel_of("nothing");
    unsafe_calls("global", CU_STREAM_CAPTURE_MODE_GLOBAL, nothing);
    unsafe_calls("thread-local", CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, nothing);
    unsafe_calls("relaxed", CU_STREAM_CAPTURE_MODE_RELAXED, nothing);
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    CUdeviceptr memory;
    const char *at = "global capture, thread exchanged to relaxed";
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    CHECK(cu.StreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    SAY(at, cu.ThreadExchangeStreamCaptureMode(&mode));
    say_value(at, "mode before", mode);
    SAY(at, cu.MemAlloc(&memory, 16));
    end_capture(at, stream);
}

void capture_events(void)
{
    CUevent event, outside, never;
    CUstreamCaptureStatus status;
    driver_open(true);
    CUfunction nothing = kernel_of("nothing");
    CHECK(cu.EventCreate(&event, CU_EVENT_DISABLE_TIMING));
    CHECK(cu.EventCreate(&outside, CU_EVENT_DISABLE_TIMING));
    CHECK(cu.EventCreate(&never, 0));

    const char *at = "fork and join";
    CUstream first = new_stream(1), second = new_stream(1);
    CHECK(cu.StreamBeginCapture(first, CU_STREAM_CAPTURE_MODE_GLOBAL));
    SAY(at, launch_one(nothing, first, NULL));
    SAY(at, cu.EventRecord(event, first));
    SAY(at, cu.EventQuery(event));
    CHECK(cu.StreamIsCapturing(second, &status));
    say_value(at, "the other stream captures before it waits", status);
    at = "fork and join, second time";
    cu.StreamEndCapture(first, &(CUgraph){0});
    first = new_stream(1), second = new_stream(1);
    CHECK(cu.StreamBeginCapture(first, CU_STREAM_CAPTURE_MODE_GLOBAL));
    SAY(at, cu.EventRecord(event, first));
    SAY(at, cu.StreamWaitEvent(second, event, 0));
    CHECK(cu.StreamIsCapturing(second, &status));
    say_value(at, "the other stream captures", status);
    SAY(at, launch_one(nothing, second, NULL));
    SAY(at, cu.EventRecord(event, second));
    SAY(at, cu.StreamWaitEvent(first, event, 0));
    end_capture(at, first);
    CHECK(cu.StreamIsCapturing(second, &status));
    say_value(at, "the other stream captures after the end", status);

    at = "fork without join";
    first = new_stream(1), second = new_stream(1);
    CHECK(cu.StreamBeginCapture(first, CU_STREAM_CAPTURE_MODE_GLOBAL));
    CHECK(cu.EventRecord(event, first));
    CHECK(cu.StreamWaitEvent(second, event, 0));
    SAY(at, launch_one(nothing, second, NULL));
    end_capture(at, first);
    SAY(at, cu.StreamQuery(second));

    at = "ended on the stream that joined";
    first = new_stream(1), second = new_stream(1);
    CHECK(cu.StreamBeginCapture(first, CU_STREAM_CAPTURE_MODE_GLOBAL));
    CHECK(cu.EventRecord(event, first));
    CHECK(cu.StreamWaitEvent(second, event, 0));
    end_capture(at, second);
    end_capture(at, first);

    at = "event recorded outside of the capture";
    first = new_stream(1), second = new_stream(1);
    CHECK(cu.EventRecord(outside, second));
    CHECK(cu.StreamBeginCapture(first, CU_STREAM_CAPTURE_MODE_GLOBAL));
    SAY(at, cu.StreamWaitEvent(first, outside, 0));
    end_capture(at, first);

    at = "event never recorded, waited on in a capture";
    first = new_stream(1);
    CHECK(cu.StreamBeginCapture(first, CU_STREAM_CAPTURE_MODE_GLOBAL));
    SAY(at, cu.StreamWaitEvent(first, never, 0));
    end_capture(at, first);

    at = "event of another capture";
    first = new_stream(1), second = new_stream(1);
    CHECK(cu.StreamBeginCapture(first, CU_STREAM_CAPTURE_MODE_GLOBAL));
    CHECK(cu.StreamBeginCapture(second, CU_STREAM_CAPTURE_MODE_GLOBAL));
    CHECK(cu.EventRecord(event, first));
    SAY(at, cu.StreamWaitEvent(second, event, 0));
    end_capture(at, first);
    end_capture(at, second);

    at = "event of a capture that has ended";
    first = new_stream(1), second = new_stream(1);
    CHECK(cu.StreamBeginCapture(first, CU_STREAM_CAPTURE_MODE_GLOBAL));
    CHECK(cu.EventRecord(event, first));
    end_capture(at, first);
    SAY(at, cu.StreamWaitEvent(second, event, 0));
    SAY(at, cu.EventQuery(event));
    SAY(at, cu.EventSynchronize(event));
    SAY(at, cu.EventRecord(event, second));
    SAY("recorded again outside", cu.EventSynchronize(event));

    at = "capturing event used by the host";
    first = new_stream(1);
    CHECK(cu.StreamBeginCapture(first, CU_STREAM_CAPTURE_MODE_RELAXED));
    CHECK(cu.EventRecord(event, first));
    SAY(at, cu.EventSynchronize(event));
    end_capture(at, first);
}

void capture_misuse(void)
{
    CUstreamCaptureStatus status;
    CUgraph graph;
    CUdeviceptr memory, pinned_copy;
    unsigned word = 1;
    driver_open(true);
    CUfunction nothing = kernel_of("nothing");
    memory = device_alloc(4096);
    unsigned *pinned = mapped_alloc(4096);
    (void)pinned_copy;
    SAY("legacy stream", cu.StreamBeginCapture(NULL, CU_STREAM_CAPTURE_MODE_GLOBAL));
    SAY("legacy stream", cu.StreamBeginCapture(CU_STREAM_LEGACY, CU_STREAM_CAPTURE_MODE_GLOBAL));
    SAY("per-thread stream",
        cu.StreamBeginCapture(CU_STREAM_PER_THREAD, CU_STREAM_CAPTURE_MODE_GLOBAL));
    end_capture("per-thread stream", CU_STREAM_PER_THREAD);
    CUstream stream = new_stream(1);
    SAY("not capturing", cu.StreamEndCapture(stream, &graph));
    SAY("bad mode", cu.StreamBeginCapture(stream, (CUstreamCaptureMode)9));
    SAY("first", cu.StreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    SAY("second", cu.StreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    SAY("capturing", cu.StreamQuery(stream));
    CHECK(cu.StreamIsCapturing(stream, &status));
    say_value("after cuStreamQuery of the capturing stream", "status", status);
    SAY("spoilt", launch_one(nothing, stream, NULL));
    SAY("spoilt", cu.StreamIsCapturing(stream, &status));
    end_capture("spoilt", stream);
    SAY("after a spoilt capture", launch_one(nothing, stream, NULL));
    SAY("after a spoilt capture", cu.StreamSynchronize(stream));

    struct {
        const char *name;
        unsigned flags;
    } kinds[] = {{"blocking stream", 0}, {"non-blocking stream", CU_STREAM_NON_BLOCKING}};
    for (int kind = 0; kind < 2; kind++) {
        char at[96];
        for (int use = 0; use < 5; use++) {
            stream = new_stream(kinds[kind].flags);
            snprintf(at, sizeof at, "%s captures, legacy stream used", kinds[kind].name);
            CHECK(cu.StreamBeginCapture(stream, use == 4 ? CU_STREAM_CAPTURE_MODE_RELAXED
                                                         : CU_STREAM_CAPTURE_MODE_GLOBAL));
            switch (use) {
            case 0:
                SAY(at, launch_one(nothing, NULL, NULL));
                break;
            case 1:
                SAY(at, cu.MemcpyHtoD(memory, &word, 4));
                break;
            case 2:
                SAY(at, cu.StreamIsCapturing(NULL, &status));
                break;
            case 3:
                SAY(at, cu.StreamSynchronize(NULL));
                break;
            default:
                strcat(at, ", relaxed");
                SAY(at, launch_one(nothing, NULL, NULL));
            }
            CHECK(cu.StreamIsCapturing(stream, &status));
            say_value(at, "status of the capturing stream", status);
            end_capture(at, stream);
        }
    }
    stream = new_stream(1);
    CHECK(cu.StreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    SAY("capturing", cu.StreamSynchronize(stream));
    end_capture("synchronised while capturing", stream);
    stream = new_stream(1);
    CHECK(cu.StreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    SAY("capturing", cu.MemcpyHtoDAsync(memory, &word, 4, stream));
    end_capture("copy from pageable memory", stream);
    stream = new_stream(1);
    CHECK(cu.StreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    SAY("capturing", cu.StreamDestroy(stream));
    SAY("a capturing stream was destroyed", cu.MemFree(memory));
    stream = new_stream(1);
    CHECK(cu.StreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    SAY("capturing", cu.MemcpyHtoDAsync((uintptr_t)pinned, pinned + 4, 4, stream));
    SAY("capturing", cu.StreamWaitValue32(stream, (uintptr_t)pinned, 0, 0));
    SAY("capturing", cu.StreamWriteValue32(stream, (uintptr_t)pinned, 1, 0));
    end_capture("stream memory operations", stream);
}

static void CUDA_CB on_host(void *argument)
{
    (void)argument;
}

void capture_nodes(void)
{
    const char *at = "node types in order of capture";
    CUgraph graph;
    CUgraphNode nodes[32];
    size_t count = 32;
    CUevent event;
    driver_open(true);
    CUfunction nothing = kernel_of("nothing");
    CUdeviceptr memory = device_alloc(4096), fresh;
    unsigned *pinned = mapped_alloc(4096);
    CHECK(cu.EventCreate(&event, CU_EVENT_DISABLE_TIMING));
    CUstream stream = new_stream(1), other = new_stream(1);
    CHECK(cu.StreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    SAY(at, launch_one(nothing, stream, NULL));
    SAY(at, cu.MemcpyHtoDAsync(memory, pinned, 64, stream));
    SAY(at, cu.MemsetD32Async(memory, 1, 16, stream));
    SAY(at, cu.LaunchHostFunc(stream, on_host, NULL));
    SAY(at, cu.MemAllocAsync(&fresh, 4096, stream));
    SAY(at, cu.MemFreeAsync(fresh, stream));
    SAY(at, cu.StreamWriteValue32(stream, memory, 1, 0));
    SAY(at, cu.StreamWaitValue32(stream, memory, 1, 0));
    SAY(at, cu.EventRecord(event, stream));
    SAY(at, cu.StreamWaitEvent(other, event, 0));
    SAY(at, launch_one(nothing, other, NULL));
    SAY(at, cu.EventRecord(event, other));
    SAY(at, cu.StreamWaitEvent(stream, event, 0));
    SAY(at, cu.LaunchCooperativeKernel(nothing, 1, 1, 1, 1, 1, 1, 0, stream, NULL));
    SAY(at, cu.StreamEndCapture(stream, &graph));
    SAY(at, cu.GraphGetNodes(graph, nodes, &count));
    say_value(at, "nodes", (long long)count);
    for (size_t i = 0; i < count; i++) {
        CUgraphNodeType type;
        CHECK(cu.GraphNodeGetType(nodes[i], &type));
        say_value(at, "type of node", type);
    }
}

void graph_launches(void)
{
    const char *at = "graphs";
    CUgraph graph;
    CUgraphExec exec, empty;
    CUstream stream, other;
    unsigned *word, value = 1;
    driver_open(true);
    stream = new_stream(1);
    other = new_stream(1);
    word = mapped_alloc(64);
    unsigned *started = word + 1;
    CHECK(cu.StreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    SAY("nothing captured", cu.StreamEndCapture(stream, &graph));
    SAY("nothing captured", cu.GraphInstantiate(&empty, graph, 0));
    SAY("nothing captured", cu.GraphLaunch(empty, stream));
    SAY("nothing captured", cu.StreamSynchronize(stream));
    CHECK(cu.StreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    CHECK(launch_one(kernel_of("await"), stream, (void *[]){&word, &value, &started}));
    CHECK(cu.StreamEndCapture(stream, &graph));
    SAY(at, cu.GraphInstantiate(&exec, graph, 0));
    SAY("graph destroyed before its first launch", cu.GraphDestroy(graph));
    SAY(at, cu.GraphLaunch(exec, stream));
    SAY("the graph runs", cu.GraphLaunch(exec, other));
    SAY("the graph runs", cu.StreamQuery(stream));
    SAY("the graph runs", cu.StreamQuery(other));
    SAY("the graph runs", cu.GraphExecDestroy(exec));
    *(volatile unsigned *)word = 1;
    SAY("destroyed while it ran", cu.StreamSynchronize(stream));
    SAY("destroyed while it ran", cu.StreamSynchronize(other));
    SAY("graph NULL", cu.GraphInstantiate(&exec, NULL, 0));
    SAY("graph NULL", cu.GraphLaunch(NULL, stream));
    SAY("graph launched into a capture", cu.StreamBeginCapture(other, 0));
    SAY("graph launched into a capture", cu.GraphLaunch(empty, other));
    end_capture("graph launched into a capture", other);
}
