/* Memory, copies, fills, and memory of other processes. */
#include "testing.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static enum cudaMemoryType type_of(const void *pointer, struct cudaPointerAttributes *attributes)
{
    memset(attributes, 0xff, sizeof *attributes);
    FINE(cudaPointerGetAttributes(attributes, pointer));
    return attributes->type;
}

static void pointers(void)
{
    struct cudaPointerAttributes found;
    void *host = NULL, *managed = NULL, *device, *on_device = NULL;
    char plain[4], *registered = aligned_alloc(4096, 4096);
    unsigned flags = 0;
    device = rt_words(4);
    CHECK_EQ(type_of(device, &found), cudaMemoryTypeDevice);
    CHECK(found.device == 0 && found.devicePointer == device && found.hostPointer == NULL);
    FINE(cudaHostAlloc(&host, 64, cudaHostAllocPortable | cudaHostAllocMapped));
    CHECK_EQ(type_of(host, &found), cudaMemoryTypeHost);
    CHECK(found.hostPointer == host && found.devicePointer != NULL);
    FINE(cudaHostGetFlags(&flags, host));
    CHECK((flags & cudaHostAllocPortable) != 0);
    FINE(cudaHostGetDevicePointer(&on_device, host, 0));
    CHECK(on_device == found.devicePointer);
    FINE(cudaMallocManaged(&managed, 64, cudaMemAttachGlobal));
    CHECK_EQ(type_of(managed, &found), cudaMemoryTypeManaged);
    CHECK_EQ(type_of(plain, &found), cudaMemoryTypeUnregistered);
    CHECK(found.device == cudaInvalidDeviceId && found.devicePointer == NULL &&
          found.hostPointer == plain);
    FINE(cudaHostRegister(registered, 4096, cudaHostRegisterDefault));
    CHECK_EQ(type_of(registered, &found), cudaMemoryTypeHost);
    CHECK_EQ(cudaHostRegister(registered, 4096, cudaHostRegisterDefault),
             cudaErrorHostMemoryAlreadyRegistered);
    FINE(cudaHostUnregister(registered));
    CHECK_EQ(type_of(registered, &found), cudaMemoryTypeUnregistered);
    FINE(cudaFree(managed));
    FINE(cudaFreeHost(host));
    FINE(cudaFree(device));
    free(registered);
}

TEST(vgpu_runtime_memory, a_pointer_is_the_memory_that_it_points_to)
{
    rt_run(pointers);
}

static void in_order(void)
{
    void *memory = NULL;
    uint32_t value = 4, result = 0;
    cudaStream_t stream;
    cudaMemPool_t pool;
    FINE(cudaStreamCreate(&stream));
    FINE(cudaMallocAsync(&memory, 4, stream));
    FINE(cudaMemsetAsync(memory, 0, 4, stream));
    FINE(rt_launch(&rt_add, 1, 1, stream, (void *[]){&memory, &value}));
    FINE(cudaMemcpyAsync(&result, memory, 4, cudaMemcpyDeviceToHost, stream));
    FINE(cudaFreeAsync(memory, stream));
    FINE(cudaStreamSynchronize(stream));
    CHECK_EQ(result, 4);
    FINE(cudaDeviceGetDefaultMemPool(&pool, 0));
    FINE(cudaMallocFromPoolAsync(&memory, 4, pool, stream));
    FINE(cudaFreeAsync(memory, stream));
    FINE(cudaStreamDestroy(stream));
}

TEST(vgpu_runtime_memory, allocations_are_in_the_order_of_their_stream)
{
    rt_run(in_order);
}

static void rows(void)
{
    enum { WIDTH = 5, HEIGHT = 3, DEPTH = 2 };
    unsigned char from[DEPTH][HEIGHT][WIDTH], to[DEPTH][HEIGHT][WIDTH] = {{{0}}};
    struct cudaPitchedPtr device;
    void *memory = NULL;
    size_t pitch = 0;
    for (size_t i = 0; i < sizeof from; i++) (&from[0][0][0])[i] = (unsigned char)i;
    FINE(cudaMallocPitch(&memory, &pitch, WIDTH, HEIGHT));
    CHECK(pitch >= WIDTH);
    FINE(cudaMemcpy2D(memory, pitch, from, WIDTH, WIDTH, HEIGHT, cudaMemcpyHostToDevice));
    FINE(cudaMemset2D((char *)memory + pitch, pitch, 77, 2, 2));
    FINE(cudaMemcpy2D(to, WIDTH, memory, pitch, WIDTH, HEIGHT, cudaMemcpyDeviceToHost));
    CHECK(to[0][0][4] == 4 && to[0][1][0] == 77 && to[0][2][1] == 77 && to[0][2][2] == 12);
    FINE(cudaMalloc3D(&device, (struct cudaExtent){WIDTH, HEIGHT, DEPTH}));
    struct cudaMemcpy3DParms copy = {.srcPtr = {from, WIDTH, WIDTH, HEIGHT},
                                     .dstPtr = device,
                                     .extent = {WIDTH, HEIGHT, DEPTH},
                                     .kind = cudaMemcpyHostToDevice};
    FINE(cudaMemcpy3D(&copy));
    FINE(cudaMemset3D(device, 99, (struct cudaExtent){1, 2, DEPTH}));
    copy = (struct cudaMemcpy3DParms){.srcPtr = device,
                                      .dstPtr = {to, WIDTH, WIDTH, HEIGHT},
                                      .extent = {WIDTH, HEIGHT, DEPTH},
                                      .kind = cudaMemcpyDeviceToHost};
    FINE(cudaMemcpy3D(&copy));
    CHECK(to[0][0][0] == 99 && to[1][1][0] == 99 && to[1][2][0] == 25 && to[1][2][4] == 29);
    FINE(cudaFree(device.ptr));
    FINE(cudaFree(memory));
}

TEST(vgpu_runtime_memory, rows_and_slices_are_copied_and_filled)
{
    rt_run(rows);
}

static void peers(void)
{
    uint32_t *first = rt_words(2), *second, value = 6;
    int can = 0;
    FINE(cudaDeviceCanAccessPeer(&can, 0, 1));
    CHECK_EQ(can, 1);
    FINE(cudaSetDevice(1));
    second = rt_words(2);
    FINE(cudaMemcpy(second, &value, 4, cudaMemcpyHostToDevice));
    FINE(cudaMemcpyPeer(first, 0, second, 1, 4));
    FINE(cudaSetDevice(0));
    CHECK_EQ(rt_word(first), 6);
    FINE(cudaDeviceEnablePeerAccess(1, 0));
    CHECK_EQ(cudaDeviceEnablePeerAccess(1, 0), cudaErrorPeerAccessAlreadyEnabled);
    FINE(rt_launch(&rt_add, 1, 1, NULL, (void *[]){&second, &value}));
    CHECK_EQ(rt_word(second), 12);
    FINE(cudaDeviceDisablePeerAccess(1));
    CHECK_EQ(cudaDeviceDisablePeerAccess(1), cudaErrorPeerAccessNotEnabled);
}

TEST(vgpu_runtime_memory, a_device_reaches_the_memory_of_another)
{
    rt_run(peers);
}

/* The process that opens the memory of the other one. */
static void open_memory(int from)
{
    cudaIpcMemHandle_t handle;
    void *memory = NULL;
    uint32_t value = 5;
    CHECK_EQ(read(from, &handle, sizeof handle), sizeof handle);
    FINE(cudaIpcOpenMemHandle(&memory, handle, cudaIpcMemLazyEnablePeerAccess));
    FINE(rt_launch(&rt_add, 1, 1, NULL, (void *[]){&memory, &value}));
    CHECK_EQ(rt_word(memory), 8);
    FINE(cudaIpcCloseMemHandle(memory));
}

static void two_processes(void)
{
    cudaIpcMemHandle_t handle;
    uint32_t *memory, value = 3;
    int ends[2], status = -1;
    CHECK_EQ(pipe(ends), 0);
    const pid_t other = fork(); /* before either process uses a GPU */
    if (other == 0) {
        close(ends[1]);
        open_memory(ends[0]);
        fflush(NULL);
        _exit(tt_test_failed());
    }
    memory = rt_words(1);
    FINE(rt_launch(&rt_add, 1, 1, NULL, (void *[]){&memory, &value}));
    FINE(cudaDeviceSynchronize());
    FINE(cudaIpcGetMemHandle(&handle, memory));
    CHECK_EQ(write(ends[1], &handle, sizeof handle), sizeof handle);
    CHECK_EQ(waitpid(other, &status, 0), other);
    CHECK_EQ(status, 0);
    CHECK_EQ(rt_word(memory), 8);
}

TEST(vgpu_runtime_memory, another_process_writes_memory_by_its_handle)
{
    rt_run(two_processes);
}
