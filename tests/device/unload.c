/* unload LIBRARY: a program that loads the library itself, captures a call into a CUDA graph,
 * unloads the library, and only then destroys the graph: the driver then calls a function of the
 * library. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "../driver/calls.h"
#include "tutti.h"

enum { COUNT = 100 };

static void *library;

static void check(tuttiResult_t result, const char *what)
{
    if (!result) return;
    fprintf(stderr, "%s: result %d\n", what, (int)result);
    exit(2);
}

/* Calls the library's function of this name. */
#define TUTTI(name, ...)                                                                           \
    do {                                                                                           \
        __typeof__(name) *call_;                                                                   \
        void *symbol_ = dlsym(library, #name);                                                     \
        memcpy(&call_, &symbol_, sizeof call_);                                                    \
        check(symbol_ ? call_(__VA_ARGS__) : tuttiInternalError, #name);                           \
    } while (0)

static tuttiComm_t create(void)
{
    tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
    tuttiUniqueId id;
    tuttiComm_t comm = NULL;
    config.device = 0;
    TUTTI(tuttiGetUniqueId, &id);
    TUTTI(tuttiCommInitRankConfig, &comm, 1, id, 0, &config);
    return comm;
}

static CUgraphExec capture(tuttiComm_t comm, CUstream stream)
{
    tuttiStream_t made = NULL;
    CUdeviceptr memory = 0;
    CUgraph graph = NULL;
    CUgraphExec exec = NULL;
    CALL(cuMemAlloc_v2, &memory, COUNT * sizeof(int));
    TUTTI(tuttiStreamFromDevice, &made, 0, stream);
    CALL(cuStreamBeginCapture_v2, stream, CU_STREAM_CAPTURE_MODE_RELAXED);
    TUTTI(tuttiAllReduce, (void *)memory, (void *)memory, COUNT, tuttiInt32, tuttiSum, comm, made);
    CALL(cuStreamEndCapture, stream, &graph);
    CALL(cuGraphInstantiateWithFlags, &exec, graph, 0);
    CALL(cuGraphDestroy, graph);
    TUTTI(tuttiStreamDestroy, made);
    return exec;
}

int main(int argc, char **argv)
{
    CUcontext context = NULL;
    CUstream stream = NULL;
    library = argc == 2 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
    if (!library) {
        fprintf(stderr, "usage: unload LIBRARY: %s\n", argc == 2 ? dlerror() : "which?");
        return 1;
    }
    CALL(cuInit, 0);
    CALL(cuDevicePrimaryCtxRetain, &context, 0);
    CALL(cuCtxPushCurrent_v2, context);
    CALL(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    const tuttiComm_t comm = create();
    CUgraphExec exec = capture(comm, stream);
    CALL(cuGraphLaunch, exec, stream);
    CALL(cuStreamSynchronize, stream);
    TUTTI(tuttiCommDestroy, comm);
    dlclose(library);
    CALL(cuGraphLaunch, exec, stream);
    CALL(cuStreamSynchronize, stream);
    CALL(cuGraphExecDestroy, exec);
    usleep(50000); /* a thread of the driver may call the function */
    return 0;
}
