/* Several ranks in one process: which calls return while a kernel waits, which launches run beside
 * it, and how many. A kernel that waits ends after 300 ms by itself, so nothing hangs for ever. */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "driver.h"

enum { NANOSECONDS = 300000000, RELAXED_SYS = 3, SIZE = 8 << 20 };

static CUmodule waits, calls, sides;
static atomic_uint *word, *started;
static unsigned *turns;
static CUstream waiting, other, blocking;
static int from_helper; /* a pipe */

/* A kernel that waits for *word, at most 300 ms, begins to run on the stream. */
static void begin_wait(CUstream stream)
{
    int kind = RELAXED_SYS;
    unsigned long long stay = NANOSECONDS;
    atomic_store(word, 0);
    atomic_store(started, 0);
    CHECK(cu.LaunchKernel(get_function(waits, "wait_for_change"), 1, 1, 1, 1, 1, 1, 0, stream,
                          (void *[]){&word, &kind, &stay, &started, &turns}, NULL));
    while (!atomic_load(started)) {
    }
}

/* Ends it; *turns says whether it saw the word or its time was over. */
static void end_wait(CUstream stream)
{
    atomic_store(word, 1);
    CHECK(cu.StreamSynchronize(stream));
}

/* What the calls need. */
static struct {
    CUdeviceptr memory, fresh, reserved, mapped;
    CUmemGenericAllocationHandle handle;
    CUmemAccessDesc access;
    CUmemAllocationProp prop;
    void *host, *registered;
    CUstream stream;
    CUevent event;
    CUmodule module;
    CUgraph graph;
    CUgraphExec exec;
    CUfunction function;
    CUdeviceptr async;
    unsigned value;
} with;

#define ROW(name, call)                                                                            \
    do {                                                                                           \
        begin_wait(waiting);                                                                       \
        const double begin = now_us();                                                             \
        const CUresult result = (call);                                                            \
        const double us = now_us() - begin;                                                        \
        const bool runs = cu.StreamQuery(waiting) == CUDA_ERROR_NOT_READY;                         \
        end_wait(waiting);                                                                         \
        row_begin("blocking", name);                                                               \
        row_text("call", #call);                                                                   \
        row_result("result", result);                                                              \
        row_text("returns", runs ? "while the kernel waits" : "after the kernel has ended");       \
        row_number("us", us);                                                                      \
        row_end();                                                                                 \
    } while (0)

static void memory_calls(const char *name)
{
    CHECK(cu.MemGetAllocationGranularity(&(size_t){0}, &with.prop, 0));
    ROW(name, cu.MemAlloc(&with.memory, SIZE));
    ROW(name, cu.MemsetD8(with.memory, 0, 16));
    ROW(name, cu.MemcpyHtoD(with.memory, &with.value, 4));
    ROW(name, cu.MemcpyDtoH(&with.value, with.memory, 4));
    ROW(name, cu.MemcpyHtoDAsync(with.memory, &with.value, 4, other));
    ROW(name, cu.MemcpyDtoHAsync(&with.value, with.memory, 4, other));
    ROW(name, cu.MemcpyDtoDAsync(with.memory, with.memory + 64, 16, other));
    ROW(name, cu.MemsetD32Async(with.memory, 0, 4, other));
    ROW(name, cu.StreamSynchronize(other));
    ROW(name, cu.MemFree(with.memory));
    ROW(name, cu.MemHostAlloc(&with.host, SIZE, CU_MEMHOSTALLOC_DEVICEMAP));
    ROW(name, cu.MemFreeHost(with.host));
    ROW(name, cu.MemHostRegister(with.registered, SIZE, CU_MEMHOSTREGISTER_DEVICEMAP));
    ROW(name, cu.MemHostUnregister(with.registered));
    ROW(name, cu.MemCreate(&with.handle, SIZE, &with.prop, 0));
    ROW(name, cu.MemAddressReserve(&with.mapped, SIZE, 0, 0, 0));
    ROW(name, cu.MemMap(with.mapped, SIZE, 0, with.handle, 0));
    ROW(name, cu.MemSetAccess(with.mapped, SIZE, &with.access, 1));
    ROW(name, cu.MemUnmap(with.mapped, SIZE));
    ROW(name, cu.MemAddressFree(with.mapped, SIZE));
    ROW(name, cu.MemRelease(with.handle));
    ROW(name, cu.MemAllocAsync(&with.async, SIZE, other));
    ROW(name, cu.MemFreeAsync(with.async, other));
    ROW(name, cu.MemGetInfo(&(size_t){0}, &(size_t){0}));
    ROW(name, cu.PointerGetAttribute(&with.value, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, with.reserved));
}

static CUresult load_calls(void)
{
    with.module = load_module("calls.fatbin");
    return CUDA_SUCCESS;
}

static CUresult first_launch(const char *kernel)
{
    CUfunction function = get_function(with.module, kernel);
    return cu.LaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, other, NULL, NULL);
}

static CUresult assemble(void)
{
    static int number;
    char text[256];
    snprintf(text, sizeof text,
             ".version 8.0\n.target sm_75\n.address_size 64\n.visible .entry k%d() { ret; }\n",
             number++);
    return cu.ModuleLoadDataEx(&with.module, text, 0, NULL, NULL);
}

static void CUDA_CB on_host(void *argument)
{
    (void)argument;
}

static void other_calls(const char *name)
{
    ROW(name, cu.StreamCreate(&with.stream, CU_STREAM_NON_BLOCKING));
    ROW(name, cu.StreamDestroy(with.stream));
    ROW(name, cu.EventCreate(&with.event, 0));
    ROW(name, cu.EventRecord(with.event, other));
    ROW(name, cu.EventSynchronize(with.event));
    ROW(name, cu.EventDestroy(with.event));
    ROW(name, assemble());
    ROW(name, cu.ModuleUnload(with.module));
    ROW(name, load_calls());
    ROW(name, first_launch("nothing"));
    ROW(name, first_launch("fault_exit"));
    ROW(name, cu.ModuleUnload(with.module));
    ROW(name, cu.LaunchHostFunc(other, on_host, NULL));
    ROW(name, cu.StreamSynchronize(other));
    ROW(name, cu.StreamBeginCapture(other, CU_STREAM_CAPTURE_MODE_RELAXED));
    CHECK(cu.LaunchKernel(with.function, 1, 1, 1, 1, 1, 1, 0, other, NULL, NULL));
    ROW(name, cu.StreamEndCapture(other, &with.graph));
    ROW(name, cu.GraphInstantiate(&with.exec, with.graph, 0));
    ROW(name, cu.GraphLaunch(with.exec, other));
    ROW(name, cu.StreamSynchronize(other));
    ROW(name, cu.GraphExecDestroy(with.exec));
    ROW(name, cu.LaunchKernel(with.function, 1, 1, 1, 1, 1, 1, 0, other, NULL, NULL));
    ROW(name, cu.LaunchCooperativeKernel(with.function, 1, 1, 1, 1, 1, 1, 0, other, NULL));
    ROW(name, cu.StreamSynchronize(other));
    ROW(name, cu.LaunchKernel(with.function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
    ROW(name, cu.StreamSynchronize(NULL));
    ROW(name, cu.LaunchKernel(with.function, 1, 1, 1, 1, 1, 1, 0, blocking, NULL, NULL));
    ROW(name, cu.StreamSynchronize(blocking));
    ROW(name,
        cu.FuncSetAttribute(with.function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 65536));
    ROW(name, cu.CtxSynchronize());
}

/* Two kernels count in turn, each on a stream of its own. */
static void two_kernels(const char *name, CUstream first, CUstream second, int manner)
{
    CUdeviceptr words = device_alloc(4096), mine[2] = {words, words + 256};
    CUstream streams[2] = {first, second};
    CUgraphExec graphs[2];
    unsigned *done = mapped_alloc(64), nturns = 200;
    unsigned long long stay = 200000000, *none = NULL;
    CUfunction function = get_function(sides, "one_side");
    for (unsigned side = 0; side < 2; side++) {
        unsigned *mine_done = done + side;
        void *arguments[] = {&mine[side], &mine[!side], &side, &nturns, &stay, &mine_done, &none};
        if (manner == 1) {
            CHECK(cu.LaunchCooperativeKernel(function, 1, 1, 1, 1, 1, 1, 0, streams[side],
                                             arguments));
        } else if (manner == 2) {
            CUgraph graph;
            CHECK(cu.StreamBeginCapture(streams[side], CU_STREAM_CAPTURE_MODE_RELAXED));
            CHECK(cu.LaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, streams[side], arguments, NULL));
            CHECK(cu.StreamEndCapture(streams[side], &graph));
            CHECK(cu.GraphInstantiate(&graphs[side], graph, 0));
        } else {
            CHECK(cu.LaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, streams[side], arguments, NULL));
        }
    }
    for (int side = 0; manner == 2 && side < 2; side++)
        CHECK(cu.GraphLaunch(graphs[side], streams[side]));
    CHECK(cu.CtxSynchronize());
    row_begin("blocking", "two kernels that wait for each other");
    row_text("streams", name);
    row_number("turns_of_200", done[0]);
    row_end();
}

/* Whether the first use of kernels returns while another kernel waits, in a process of its own.
 * warm: the kernel that waits has run before. */
static void first_use(const char *loading, bool warm)
{
    unsigned one = 1;
    setenv("CUDA_MODULE_LOADING", loading, 1);
    driver_open(true);
    waits = load_module("visible.fatbin");
    calls = load_module("calls.fatbin");
    word = mapped_alloc(4096);
    started = mapped_alloc(4096);
    turns = mapped_alloc(4096);
    CUdeviceptr memory = device_alloc(4096);
    CHECK(cu.StreamCreate(&waiting, CU_STREAM_NON_BLOCKING));
    CHECK(cu.StreamCreate(&other, CU_STREAM_NON_BLOCKING));
    char name[128];
    snprintf(name, sizeof name, "first use of kernels, CUDA_MODULE_LOADING=%s, %s", loading,
             warm ? "the kernel that waits has run before"
                  : "the kernel that waits is the first kernel");
    if (warm) {
        begin_wait(waiting);
        end_wait(waiting);
    }
    CUfunction function;
    void *arguments[] = {&memory, &one};
    if (warm) {
        ROW(name, cu.ModuleGetFunction(&function, calls, "put"));
        ROW(name, cu.LaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, other, arguments, NULL));
        ROW(name, cu.StreamSynchronize(other));
        return;
    }
    begin_wait(waiting); /* one wait for all calls */
    const double begin = now_us();
    CHECK(cu.ModuleGetFunction(&function, calls, "put"));
    const double found = now_us();
    CHECK(cu.LaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, other, arguments, NULL));
    const double launched = now_us();
    CHECK(cu.StreamSynchronize(other));
    const double ended = now_us();
    end_wait(waiting);
    row_begin("blocking", name);
    row_number("us_of_cuModuleGetFunction", found - begin);
    row_number("us_of_cuLaunchKernel", launched - found);
    row_number("us_of_cuStreamSynchronize", ended - launched);
    row_end();
}

/* n kernels of one block, each in its own stream; all wait for the last one's word. Both kernels
 * have run before if `warm`, else they are fetched before but never ran. */
static void many_kernels(int n, const char *connections, bool warm)
{
    CUstream streams[160];
    if (connections) setenv("CUDA_DEVICE_MAX_CONNECTIONS", connections, 1);
    driver_open(true);
    CUfunction wait = get_function(load_module("visible.fatbin"), "wait_for_change");
    CUfunction put = get_function(load_module("calls.fatbin"), "put");
    unsigned *seen = mapped_alloc(160 * 4), *ignored = mapped_alloc(64);
    CUdeviceptr device_word = device_alloc(64);
    int kind = RELAXED_SYS, count = 0;
    unsigned long long stay = NANOSECONDS;
    unsigned one = 1;
    double begin = 0;
    for (int i = 0; i < n; i++) CHECK(cu.StreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
    for (int turn = !warm; turn < 2; turn++) { /* in the first, all see the word at once */
        CHECK(cu.MemsetD8(device_word, turn == 0, 4));
        CHECK(cu.CtxSynchronize());
        begin = now_us();
        for (int i = 0; i < n; i++) {
            unsigned *mine = seen + i;
            void *waits_for[] = {&device_word, &kind, &stay, &ignored, &mine};
            void *puts[] = {&device_word, &one};
            CHECK(cu.LaunchKernel(i + 1 < n ? wait : put, 1, 1, 1, 1, 1, 1, 0, streams[i],
                                  i + 1 < n ? waits_for : puts, NULL));
        }
        CHECK(cu.CtxSynchronize());
    }
    for (int i = 0; i + 1 < n; i++) count += seen[i] != 0;
    row_begin("blocking", "kernels in streams of their own that all wait for the last");
    row_text("CUDA_DEVICE_MAX_CONNECTIONS", connections ? connections : "not set");
    row_text("kernels_ran_before", warm ? "yes" : "no");
    row_number("kernels", n);
    row_number("waited_in_vain", n - 1 - count);
    row_number("us", now_us() - begin);
    row_end();
}

/* Another process's memory is opened while a kernel waits here. */
static void open_memory(const char *name)
{
    CUipcMemHandle handle;
    CUdeviceptr opened;
    CUmemGenericAllocationHandle imported;
    int fd = -1;
    if (read(from_helper, &handle, sizeof handle) != (ssize_t)sizeof handle)
        die("the helper gave no handle");
    ROW(name, cu.IpcOpenMemHandle(&opened, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    ROW(name, cu.IpcCloseMemHandle(opened));
    ROW(name, cu.IpcGetMemHandle(&handle, with.reserved));
    CHECK(cu.MemCreate(&with.handle, SIZE, &with.prop, 0));
    ROW(name, cu.MemExportToShareableHandle(&fd, with.handle,
                                            CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    ROW(name, cu.MemImportFromShareableHandle(&imported, (void *)(intptr_t)fd,
                                              CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    CUcontext context;
    ROW(name, cu.DevicePrimaryCtxRetain(&context, 0));
    ROW(name, cu.DevicePrimaryCtxRelease(0));
}

static void help(int to, int until)
{
    char byte;
    CUipcMemHandle handle;
    driver_open(true);
    CHECK(cu.IpcGetMemHandle(&handle, device_alloc(SIZE)));
    if (write(to, &handle, sizeof handle) != (ssize_t)sizeof handle) die("the pipe is closed");
    if (read(until, &byte, 1) < 0) die("the pipe cannot be read");
}

static void one_process(void)
{
    driver_open(true);
    waits = load_module("visible.fatbin");
    sides = load_module("speed.fatbin");
    calls = load_module("calls.fatbin");
    word = mapped_alloc(4096);
    started = mapped_alloc(4096);
    turns = mapped_alloc(4096);
    CHECK(cu.StreamCreate(&waiting, CU_STREAM_NON_BLOCKING));
    CHECK(cu.StreamCreate(&other, CU_STREAM_NON_BLOCKING));
    CHECK(cu.StreamCreate(&blocking, CU_STREAM_DEFAULT));
    with.prop =
        (CUmemAllocationProp){.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                              .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                              .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
    with.access = (CUmemAccessDesc){.location = with.prop.location,
                                    .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    with.registered = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    with.reserved = device_alloc(4096);
    with.function = get_function(calls, "nothing");
    CUmoduleLoadingMode mode;
    CHECK(cu.ModuleGetLoadingMode(&mode));
    row_begin("blocking", "module loading mode");
    row_text("mode", mode == CU_MODULE_LAZY_LOADING ? "lazy" : "eager");
    row_end();
    begin_wait(waiting);
    end_wait(waiting);
    memory_calls("a kernel waits in a non-blocking stream");
    other_calls("a kernel waits in a non-blocking stream");
    open_memory("a kernel waits in a non-blocking stream");
    waiting = blocking;
    CHECK(cu.StreamCreate(&blocking, CU_STREAM_DEFAULT));
    ROW("a kernel waits in a blocking stream",
        cu.LaunchKernel(with.function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
    ROW("a kernel waits in a blocking stream", cu.StreamSynchronize(NULL));
    ROW("a kernel waits in a blocking stream", cu.MemcpyHtoD(with.reserved, &with.value, 4));
    CUstream more;
    CHECK(cu.StreamCreate(&more, CU_STREAM_NON_BLOCKING));
    two_kernels("two non-blocking streams", other, more, 0);
    two_kernels("two non-blocking streams, cooperative launches", other, more, 1);
    two_kernels("two non-blocking streams, graphs", other, more, 2);
    two_kernels("two blocking streams", waiting, blocking, 0);
    two_kernels("legacy stream and a blocking one", NULL, blocking, 0);
    two_kernels("legacy stream and a non-blocking one", NULL, other, 0);
}

static void with_helper(void)
{
    int handles[2], end[2];
    if (pipe(handles) || pipe(end)) die("no pipe");
    if (fork() == 0) {
        close(end[1]);
        help(handles[1], end[0]);
        _exit(0);
    }
    close(end[0]);
    from_helper = handles[0];
    one_process();
    close(end[1]);
    wait(NULL);
}

int main(void)
{
    static const char *const connections[] = {NULL, "1", "8", "32"};
    for (int i = -5; i < 5 * 8; i++) {
        fflush(stdout);
        const pid_t child = fork();
        if (!child) {
            alarm(60);
            if (i == -5)
                with_helper();
            else if (i < 0)
                first_use(i < -2 ? "LAZY" : "EAGER", i % 2);
            else
                many_kernels(i % 8 == 7 ? 160 : 2 << i % 8, connections[i / 8 % 4], i < 32);
            fflush(stdout);
            _exit(0);
        }
        int status;
        waitpid(child, &status, 0);
        if (status) fprintf(stderr, "part %d of the probe failed\n", i);
    }
    return 0;
}
