/* Whose memory a call may have on which stream, for every kind of memory that CUDA has. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "../driver/calls.h"
#include "on_streams.h"
#include "shim.h"

enum kind { DEVICE, ASYNC, VMM, MANAGED, PINNED, REGISTERED, PAGEABLE, NKINDS };
static const char *const names[NKINDS] = {
    "cuMemAlloc",     "cuMemAllocAsync",   "cuMemMap", "cuMemAllocManaged",
    "cuMemHostAlloc", "cuMemHostRegister", "malloc"};

enum { SHORT = 300, LONG = 40000, PAGE = 4096, GRANULE = 2 << 20 };

/* Memory of one kind, with room for LONG numbers. */
struct memory {
    enum kind kind;
    int *data;
    CUmemGenericAllocationHandle handle; /* of VMM */
};

static bool is_on_host(enum kind kind)
{
    return kind >= MANAGED; /* as the host may read and write it */
}

static void map(struct memory *memory, int gpu)
{
    CUdeviceptr at = 0;
    const CUmemLocation location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = gpu};
    const CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = location};
    const CUmemAccessDesc access = {.location = location,
                                    .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CALL(cuMemCreate, &memory->handle, GRANULE, &prop, 0);
    CALL(cuMemAddressReserve, &at, GRANULE, 0, 0, 0);
    CALL(cuMemMap, at, GRANULE, 0, memory->handle, 0);
    CALL(cuMemSetAccess, at, GRANULE, &access, 1);
    memory->data = (int *)(uintptr_t)at;
}

/* The GPU's context is the thread's current one. */
static void allocate(struct memory *memory, enum kind kind, int gpu)
{
    const size_t nbytes = (LONG * sizeof(int) + PAGE - 1) / PAGE * PAGE;
    CUdeviceptr at = 0;
    void *on_host = NULL;
    *memory = (struct memory){.kind = kind};
    if (kind == DEVICE) CALL(cuMemAlloc_v2, &at, nbytes);
    if (kind == ASYNC) CALL(cuMemAllocAsync, &at, nbytes, CU_STREAM_PER_THREAD);
    if (kind == ASYNC) CALL(cuStreamSynchronize, CU_STREAM_PER_THREAD);
    if (kind == MANAGED) CALL(cuMemAllocManaged, &at, nbytes, CU_MEM_ATTACH_GLOBAL);
    if (kind == PINNED) CALL(cuMemHostAlloc, &on_host, nbytes, 0);
    if (kind == REGISTERED || kind == PAGEABLE) on_host = aligned_alloc(PAGE, nbytes);
    if (kind == REGISTERED) CALL(cuMemHostRegister_v2, on_host, nbytes, 0);
    memory->data = on_host ? on_host : (int *)(uintptr_t)at;
    if (kind == VMM) map(memory, gpu);
}

static void release(struct memory *memory)
{
    const CUdeviceptr at = (CUdeviceptr)(uintptr_t)memory->data;
    if (memory->kind == DEVICE || memory->kind == MANAGED) CALL(cuMemFree_v2, at);
    if (memory->kind == ASYNC) CALL(cuMemFreeAsync, at, CU_STREAM_PER_THREAD);
    if (memory->kind == PINNED) CALL(cuMemFreeHost, memory->data);
    if (memory->kind == REGISTERED) CALL(cuMemHostUnregister, memory->data);
    if (memory->kind == REGISTERED || memory->kind == PAGEABLE) free(memory->data);
    if (memory->kind != VMM) return;
    CALL(cuMemUnmap, at, GRANULE);
    CALL(cuMemAddressFree, at, GRANULE);
    CALL(cuMemRelease, memory->handle);
}

static void fill(const struct gpu_rank *rank, const struct memory *memory, int value)
{
    int *data = malloc(LONG * sizeof *data);
    for (int i = 0; i < LONG; i++) data[i] = value;
    gpu_write(is_on_host(memory->kind) ? -1 : rank->gpu, memory->data, data, LONG * sizeof *data);
    free(data);
}

static void check(const struct gpu_rank *rank, const struct memory *memory, int expected, int n,
                  const char *how)
{
    int *data = malloc(LONG * sizeof *data), wrong = 0;
    gpu_read(is_on_host(memory->kind) ? -1 : rank->gpu, data, memory->data, LONG * sizeof *data);
    for (int i = 0; i < n; i++) wrong += data[i] != expected;
    CHECK_MESSAGE(!wrong, "rank %d: memory of %s %s: %d of %d are not %d; the last is %d",
                  rank->rank, names[memory->kind], how, wrong, n, expected, data[n - 1]);
    free(data);
}

/* All ranks add up their numbers, in place or not, all on memory of one kind. */
static tuttiResult_t sum(const struct gpu_rank *rank, const struct memory *in,
                         const struct memory *out, int n, tuttiStream_t stream)
{
    return tuttiAllReduce(in->data, out->data, (size_t)n, tuttiInt32, tuttiSum, rank->comm, stream);
}

static void try_sum(const struct gpu_rank *rank, const struct memory *in, const struct memory *out,
                    int n, tuttiStream_t stream, CUstream waits, const char *how)
{
    fill(rank, in, rank->rank + 1);
    if (out != in) fill(rank, out, 0);
    pthread_barrier_wait(rank->arg);
    CHECK_MESSAGE(sum(rank, in, out, n, stream) == tuttiSuccess, "rank %d: memory of %s %s: %s",
                  rank->rank, names[in->kind], how, tuttiGetLastError(rank->comm));
    if (waits) CALL(cuStreamSynchronize, waits);
    check(rank, out, 3, n, how);
}

static tuttiStream_t of_device(const struct gpu_rank *rank, CUstream handle)
{
    tuttiStream_t stream = NULL;
    check_success(rank, tuttiStreamOfDevice(&stream, rank->gpu, handle), "find a stream");
    return stream;
}

/* On a CUDA stream, on the default stream, and without a stream. */
static void every_kind(struct gpu_rank *rank)
{
    gpu_use(rank->gpu);
    CUstream own = gpu_stream(rank->gpu);
    for (enum kind kind = 0; kind < NKINDS; kind++) {
        struct memory in, out;
        const bool pageable = kind == PAGEABLE;
        allocate(&in, kind, rank->gpu);
        allocate(&out, kind, rank->gpu);
        for (int n = SHORT; n <= LONG; n += LONG - SHORT) {
            if (!pageable)
                try_sum(rank, &in, &out, n, of_device(rank, own), own, "on a CUDA stream");
            try_sum(rank, &in, &out, n, of_device(rank, NULL), pageable ? NULL : CU_STREAM_LEGACY,
                    "on the default stream");
            try_sum(rank, &in, &out, n, NULL, NULL, "without a stream");
            try_sum(rank, &in, &in, n, NULL, NULL, "in place");
        }
        pthread_barrier_wait(rank->arg); /* nobody's kernels run, for which frees would wait */
        release(&in);
        release(&out);
        pthread_barrier_wait(rank->arg);
    }
    gpu_stream_destroy(rank->gpu, own);
}

TEST(memory, calls_on_every_kind_are_right_on_every_stream)
{
    on_gpus_together(2, 2, NULL, every_kind);
}

/* These leave the communicator as it was. */
static void pageable(struct gpu_rank *rank)
{
    struct memory here, host;
    int on_stack[4] = {0};
    const struct memory stack = {.kind = PAGEABLE, .data = on_stack};
    int can = 0;
    CALL(cuDeviceGetAttribute, &can, CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS, rank->gpu);
    const char *text = can ? "could use pageable memory (GH200, HMM), but calls on a GPU do not"
                           : "is memory of the host that GPU";
    gpu_use(rank->gpu);
    CUstream own = gpu_stream(rank->gpu);
    allocate(&here, DEVICE, rank->gpu);
    allocate(&host, PAGEABLE, rank->gpu);
    const CUstream handles[] = {own, CU_STREAM_LEGACY, CU_STREAM_PER_THREAD};
    for (int i = 0; i < 3; i++) {
        const tuttiStream_t stream = of_device(rank, handles[i]);
        check_error(rank, sum(rank, &host, &host, 4, stream), tuttiInvalidArgument, text);
        check_error(rank, sum(rank, &stack, &stack, 4, stream), tuttiInvalidArgument, text);
    }
    const tuttiStream_t any = of_device(rank, NULL);
    check_error(rank, sum(rank, &here, &host, 4, any), tuttiInvalidArgument, "recvbuff");
    check_error(rank, sum(rank, &stack, &here, 4, any), tuttiInvalidArgument, "sendbuff");
    CHECK_EQ(sum(rank, &stack, &stack, 4, any), tuttiSuccess);
    CHECK_EQ(sum(rank, &here, &here, 4, any), tuttiSuccess);
    CALL(cuStreamSynchronize, NULL);
    pthread_barrier_wait(rank->arg);
    release(&here);
    release(&host);
    gpu_stream_destroy(rank->gpu, own);
}

TEST(memory, pageable_memory_on_a_cuda_stream_is_an_error_that_says_how_to_mend_it)
{
    on_gpus_together(2, 2, NULL, pageable);
}

static void of_another_gpu(struct gpu_rank *rank)
{
    struct memory here;
    char text[64];
    snprintf(text, sizeof text, "is memory of GPU %d, but rank %d", 1 - rank->gpu, rank->rank);
    gpu_use(rank->gpu);
    allocate(&here, DEVICE, rank->gpu);
    for (enum kind kind = DEVICE; kind <= VMM; kind++) {
        struct memory there;
        gpu_use(1 - rank->gpu);
        allocate(&there, kind, 1 - rank->gpu);
        gpu_use(rank->gpu);
        check_error(rank, sum(rank, &there, &here, 4, of_device(rank, NULL)), tuttiInvalidArgument,
                    text);
        check_error(rank, sum(rank, &here, &there, 4, NULL), tuttiInvalidArgument, text);
        gpu_use(1 - rank->gpu);
        release(&there);
    }
    gpu_use(rank->gpu);
    pthread_barrier_wait(rank->arg); /* frees on the other rank's GPU wait for its kernels */
    CHECK_EQ(sum(rank, &here, &here, 4, NULL), tuttiSuccess);
    pthread_barrier_wait(rank->arg);
    release(&here);
}

TEST(memory, of_another_gpu_is_an_error_that_names_it)
{
    on_gpus_together(2, 2, NULL, of_another_gpu);
}

/* Messages and calls with counts on pageable memory, with the handle of the default stream: they
 * are complete when the call, or the group, returns. */
static void messages(struct gpu_rank *rank)
{
    const int peer = 1 - rank->rank;
    const size_t ones[] = {1, 1}, first[] = {2, 0};
    int in[2] = {rank->rank + 1, rank->rank + 11}, out[2] = {0};
    gpu_use(rank->gpu);
    const tuttiStream_t any = of_device(rank, NULL);
    CHECK_EQ(tuttiGroupStart(), tuttiSuccess);
    CHECK_EQ(tuttiSend(in, 2, tuttiInt32, peer, rank->comm, any), tuttiSuccess);
    CHECK_EQ(tuttiRecv(out, 2, tuttiInt32, peer, rank->comm, any), tuttiSuccess);
    check_success(rank, tuttiGroupEnd(), "a group");
    CHECK(out[0] == peer + 1 && out[1] == peer + 11);
    check_success(rank,
                  tuttiAlltoAllV(in, ones, NULL, out, ones, NULL, tuttiInt32, rank->comm, any),
                  "all-to-all-v");
    CHECK(out[rank->rank] == in[rank->rank] && out[peer] == peer + 1 + 10 * rank->rank);
    /* Rank 1 has nothing, and says by a pointer whose memory it means. */
    check_success(
        rank,
        tuttiGatherV(in, rank->rank ? NULL : out, first, NULL, tuttiInt32, 0, rank->comm, any),
        "gather-v");
    if (rank->rank == 0) CHECK(out[0] == 1 && out[1] == 11);
}

TEST(memory, messages_and_counts_on_pageable_memory_are_complete_when_the_call_returns)
{
    on_gpus(2, 2, NULL, messages, NULL);
}

/* Rank 1 has neither data nor pointers, so its stream says that the call is on the GPU. */
static void nothing(struct gpu_rank *rank)
{
    const size_t first[] = {4, 0};
    int *data = make_ints(rank, 7, 4), *out = make_ints(rank, 0, 4);
    gpu_use(rank->gpu);
    const bool is_root = rank->rank == 0;
    check_success(rank,
                  tuttiGatherV(is_root ? data : NULL, is_root ? out : NULL, first, NULL, tuttiInt32,
                               0, rank->comm, of_device(rank, NULL)),
                  "gather-v");
    CALL(cuStreamSynchronize, NULL);
    if (is_root) check_ints(rank, out, 7, 4);
    gpu_free(data);
    gpu_free(out);
}

TEST(memory, a_rank_without_data_and_pointers_is_on_the_gpu_with_the_default_stream)
{
    on_gpus(2, 2, NULL, nothing, NULL);
}

/* A communicator that has no GPU takes all that the host can use, though the handle is a GPU's. */
static void without_a_gpu(struct gpu_rank *rank)
{
    tuttiStream_t any = NULL;
    gpu_use(0);
    CHECK_EQ(tuttiStreamOfDevice(&any, 0, NULL), tuttiSuccess);
    for (enum kind kind = MANAGED; kind < NKINDS; kind++) {
        struct memory memory;
        allocate(&memory, kind, 0);
        try_sum(rank, &memory, &memory, SHORT, any, NULL, "without a GPU");
        pthread_barrier_wait(rank->arg);
        release(&memory);
    }
    struct memory there;
    allocate(&there, DEVICE, 0);
    check_error(rank, sum(rank, &there, &there, 4, any), tuttiInvalidUsage, "has no GPU");
    release(&there);
}

TEST(memory, a_communicator_without_a_gpu_takes_all_that_the_host_can_use)
{
    pthread_barrier_t all;
    pthread_barrier_init(&all, NULL, 2);
    on_devices(2, (const int[]){-1, -1}, NULL, without_a_gpu, &all);
    pthread_barrier_destroy(&all);
}
