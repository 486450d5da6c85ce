/* libnccl.so.2 on the memory of GPUs: bare CUDA streams, memory of the library, and the rule by
 * which a communicator gets its GPU. On virtual GPUs, or on those that are there. */
#include <pthread.h>
#include <stdint.h>
#include <string.h>

#include "driver/calls.h"
#include "nccl.h"
#include "shim.h"

enum { NGPUS = 2, COUNT = 1000 };

/* A rank on each GPU. */
struct ranks {
    ncclComm_t comms[NGPUS];
    CUcontext contexts[NGPUS];
    CUstream streams[NGPUS];
    CUdeviceptr data[NGPUS];
};

static void use_gpu(struct ranks *ranks, int gpu)
{
    CALL(cuCtxSetCurrent, ranks->contexts[gpu]);
}

static void setup(struct ranks *ranks)
{
    CALL(cuInit, 0);
    for (int i = 0; i < NGPUS; i++) {
        CUdevice device;
        void *data = NULL;
        CALL(cuDeviceGet, &device, i);
        CALL(cuDevicePrimaryCtxRetain, &ranks->contexts[i], device);
        use_gpu(ranks, i);
        CALL(cuStreamCreate, &ranks->streams[i], CU_STREAM_NON_BLOCKING);
        CHECK(ncclMemAlloc(&data, COUNT * sizeof(int)) == ncclSuccess);
        ranks->data[i] = (CUdeviceptr)(uintptr_t)data;
    }
    REQUIRE(ncclCommInitAll(ranks->comms, NGPUS, NULL) == ncclSuccess);
}

static void free_memory(struct ranks *ranks)
{
    for (int i = 0; i < NGPUS; i++) {
        use_gpu(ranks, i);
        CHECK(ncclMemFree((void *)(uintptr_t)ranks->data[i]) == ncclSuccess);
        if (ranks->streams[i]) CALL(cuStreamDestroy_v2, ranks->streams[i]);
    }
}

static void teardown(struct ranks *ranks)
{
    for (int i = 0; i < NGPUS; i++) CHECK(ncclCommDestroy(ranks->comms[i]) == ncclSuccess);
    free_memory(ranks);
}

/* All-reduces i + 1 on GPU i, on these streams. */
static void all_reduce(struct ranks *ranks, const CUstream *streams)
{
    int values[COUNT];
    for (int i = 0; i < NGPUS; i++) {
        use_gpu(ranks, i);
        CALL(cuMemsetD32_v2, ranks->data[i], (unsigned)i + 1, COUNT);
        CALL(cuCtxSynchronize);
    }
    REQUIRE(ncclGroupStart() == ncclSuccess);
    for (int i = 0; i < NGPUS; i++) {
        void *data = (void *)(uintptr_t)ranks->data[i];
        CHECK(ncclAllReduce(data, data, COUNT, ncclInt, ncclSum, ranks->comms[i],
                            (cudaStream_t)streams[i]) == ncclSuccess);
    }
    CHECK(ncclGroupEnd() == ncclSuccess);
    for (int i = 0; i < NGPUS; i++) {
        use_gpu(ranks, i);
        CALL(cuStreamSynchronize, streams[i]);
        CALL(cuMemcpyDtoH_v2, values, ranks->data[i], sizeof values);
        CHECK(values[0] == 3 && values[COUNT - 1] == 3);
    }
}

TEST(nccl_gpus, take_device_memory_on_any_stream)
{
    struct ranks ranks = {0};
    setup(&ranks);
    all_reduce(&ranks, ranks.streams);
    all_reduce(&ranks, (const CUstream[NGPUS]){NULL});
    all_reduce(&ranks, (const CUstream[NGPUS]){CU_STREAM_PER_THREAD, CU_STREAM_LEGACY});
    /* A handle may come back after its stream was destroyed. */
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < NGPUS; i++) {
            use_gpu(&ranks, i);
            CALL(cuStreamDestroy_v2, ranks.streams[i]);
            CALL(cuStreamCreate, &ranks.streams[i], CU_STREAM_NON_BLOCKING);
        }
        all_reduce(&ranks, ranks.streams);
    }
    teardown(&ranks);
}

TEST(nccl_gpus, a_communicator_takes_memory_of_the_host_too)
{
    struct ranks ranks = {0};
    setup(&ranks);
    int values[NGPUS] = {1, 2};
    REQUIRE(ncclGroupStart() == ncclSuccess);
    for (int i = 0; i < NGPUS; i++)
        CHECK(ncclAllReduce(&values[i], &values[i], 1, ncclInt, ncclSum, ranks.comms[i], NULL) ==
              ncclSuccess);
    CHECK(ncclGroupEnd() == ncclSuccess);
    CHECK(values[0] == 3 && values[1] == 3);
    all_reduce(&ranks, ranks.streams);
    teardown(&ranks);
}

/* A fresh thread has no current context: CUDA's runtime would take GPU 0. */
TEST(nccl_gpus, are_chosen_as_the_runtime_does)
{
    for (int gpu = -1; gpu < NGPUS; gpu++) {
        ncclUniqueId id;
        ncclComm_t comm;
        CUcontext context = NULL;
        CUdevice device;
        int found = -1;
        CALL(cuInit, 0);
        if (gpu >= 0) {
            CALL(cuDeviceGet, &device, gpu);
            CALL(cuDevicePrimaryCtxRetain, &context, device);
        }
        CALL(cuCtxSetCurrent, context);
        REQUIRE(ncclGetUniqueId(&id) == ncclSuccess);
        REQUIRE(ncclCommInitRank(&comm, 1, id, 0) == ncclSuccess);
        CHECK(ncclCommCuDevice(comm, &found) == ncclSuccess);
        CHECK_EQ(found, gpu < 0 ? 0 : gpu);
        CHECK(ncclCommDestroy(comm) == ncclSuccess);
    }
}

TEST(nccl_gpus, a_stream_that_is_none_is_an_error_of_the_call)
{
    struct ranks ranks = {0};
    setup(&ranks);
    use_gpu(&ranks, 0);
    CUstream gone = NULL;
    CALL(cuStreamCreate, &gone, CU_STREAM_NON_BLOCKING);
    CALL(cuStreamDestroy_v2, gone);
    void *data = (void *)(uintptr_t)ranks.data[0];
    CHECK(ncclAllReduce(data, data, COUNT, ncclInt, ncclSum, ranks.comms[0], (cudaStream_t)gone) ==
          ncclInvalidArgument);
    CHECK(strstr(ncclGetLastError(NULL), "is no CUDA stream"));
    all_reduce(&ranks, ranks.streams);
    teardown(&ranks);
}

/* One rank of two as a thread. */
struct part {
    pthread_t thread;
    CUcontext context;
    ncclComm_t parent;
};

static void *split_and_abort(void *argument)
{
    const struct part *part = argument;
    ncclComm_t child = NULL;
    CALL(cuCtxSetCurrent, part->context);
    CHECK_MESSAGE(ncclCommSplit(part->parent, 0, 0, &child, NULL) == ncclSuccess, "%s",
                  ncclGetLastError(NULL));
    CHECK(ncclCommAbort(part->parent) == ncclSuccess);
    if (child) CHECK(ncclCommDestroy(child) == ncclSuccess);
    return NULL;
}

TEST(nccl_gpus, a_parent_may_be_aborted_as_soon_as_it_was_split)
{
    for (int i = 0; i < 20 && !tt_test_failed(); i++) {
        struct ranks ranks = {0};
        struct part parts[NGPUS];
        setup(&ranks);
        all_reduce(&ranks, ranks.streams);
        for (int r = 0; r < NGPUS; r++) {
            parts[r] = (struct part){.context = ranks.contexts[r], .parent = ranks.comms[r]};
            REQUIRE(pthread_create(&parts[r].thread, NULL, split_and_abort, &parts[r]) == 0);
        }
        for (int r = 0; r < NGPUS; r++) pthread_join(parts[r].thread, NULL);
        free_memory(&ranks);
    }
}
