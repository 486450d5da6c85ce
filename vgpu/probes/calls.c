/* The conformance table: what each call of the driver API returns in each situation. A virtual
 * libcuda.so.1 must give the same rows. Every situation runs in a process of its own, which may
 * crash or hang: that too is a row. `calls NAME` runs one situation. */
#include "calls.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

CUresult say(const char *situation, const char *call, CUresult result)
{
    char name[512]; /* "cu.MemFree(...)" is printed as cuMemFree(...) */
    if (!strncmp(call, "cu.", 3)) {
        snprintf(name, sizeof name, "cu%s", call + 3);
        call = name;
    }
    row_begin("calls", situation);
    row_text("call", call);
    row_result("result", result);
    row_end();
    return result;
}

void say_value(const char *situation, const char *what, long long value)
{
    row_begin("calls", situation);
    row_text("value_of", what);
    row_number("value", (double)value);
    row_end();
}

void say_text(const char *situation, const char *what, const char *text)
{
    row_begin("calls", situation);
    row_text("value_of", what);
    row_text("value", text);
    row_end();
}

CUfunction kernel_of(const char *name)
{
    static CUmodule module;
    if (!module) module = load_module("calls.fatbin");
    return get_function(module, name);
}

CUresult launch_one(CUfunction function, CUstream stream, void **arguments)
{
    return cu.LaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, arguments, NULL);
}

void start_waiting(CUstream stream, volatile unsigned *word)
{
    volatile unsigned *started = mapped_alloc(4);
    unsigned one = 1;
    *word = 0;
    CHECK(launch_one(kernel_of("await"), stream, (void *[]){&word, &one, &started}));
    while (!*started) usleep(50);
}

static void before_init(void)
{
    const char *at = "before cuInit";
    int value;
    CUdevice device;
    CUcontext context;
    CUdeviceptr memory;
    driver_load();
    SAY(at, cu.DeviceGetCount(&value));
    SAY(at, cu.DeviceGet(&device, 0));
    SAY(at, cu.DriverGetVersion(&value));
    SAY(at, cu.CtxGetCurrent(&context));
    SAY(at, cu.DevicePrimaryCtxRetain(&context, 0));
    SAY(at, cu.MemAlloc(&memory, 16));
    SAY(at, cu.PointerGetAttribute(&value, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, 4096));
    const char *text;
    SAY(at, cu.GetErrorName(CUDA_ERROR_INVALID_VALUE, &text));
    SAY(at, cu.GetErrorName((CUresult)123456, &text));
    driver_open(false);
    SAY("after cuInit", cu.Init(0));
    SAY("after cuInit", cu.Init(1));
    SAY("after cuInit", cu.DeviceGet(&device, 99));
    SAY("after cuInit", cu.DeviceGet(&device, -1));
    SAY("after cuInit", cu.DeviceGetAttribute(&value, (CUdevice_attribute)100000, 0));
    SAY("after cuInit", cu.DeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_WARP_SIZE, 99));
    SAY("after cuInit", cu.DeviceGetAttribute(NULL, CU_DEVICE_ATTRIBUTE_WARP_SIZE, 0));
}

/* Every attribute of the device, by its number in cuda.h. */
static void device_attributes(void)
{
    driver_open(false);
    for (int i = 1; i < CU_DEVICE_ATTRIBUTE_MAX + 3; i++) {
        int value = 0;
        char call[64];
        const CUresult result = cu.DeviceGetAttribute(&value, (CUdevice_attribute)i, 0);
        snprintf(call, sizeof call, "cuDeviceGetAttribute(%d)", i);
        if (result == CUDA_SUCCESS)
            say_value("device attributes", call, value);
        else
            say("device attributes", call, result);
    }
}

static void proc_addresses(void)
{
    static const struct {
        const char *symbol;
        int version;
    } cases[] = {{"cuMemAlloc", 13000},
                 {"cuMemAlloc", 3000},
                 {"cuMemAlloc_v2", 13000},
                 {"cuAbsent", 13000},
                 {"cuGraphInstantiate", 11000},
                 {"cuGraphInstantiate", 12000},
                 {"cuMemAlloc", 99000},
                 {"cuMemAlloc", 0},
                 {"cuStreamSynchronize", 13000},
                 {"cuGetProcAddress", 13000},
                 {"", 13000}};
    driver_open(false);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (cuuint64_t flags = 0; flags < 3; flags++) {
            void *address = NULL;
            char call[96];
            CUdriverProcAddressQueryResult found = (CUdriverProcAddressQueryResult)77;
            snprintf(call, sizeof call, "cuGetProcAddress(%s, %d, flags %d)", cases[i].symbol,
                     cases[i].version, (int)flags);
            say("cuGetProcAddress", call,
                cu.GetProcAddress(cases[i].symbol, &address, cases[i].version, flags, &found));
            say_value("cuGetProcAddress, the query's result", call, (int)found);
            say_value("cuGetProcAddress, an address is given", call, address != NULL);
        }
    void *first, *second;
    cu.GetProcAddress("cuStreamSynchronize", &first, 13000, 0, NULL);
    cu.GetProcAddress("cuStreamSynchronize", &second, 13000,
                      CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, NULL);
    say_value("cuGetProcAddress", "per-thread form is another function", first != second);
    cu.GetProcAddress("cuMemAlloc", &first, 13000, 0, NULL);
    say_value("cuGetProcAddress", "cuMemAlloc is cuMemAlloc_v2", first == (void *)cu.MemAlloc);
}

static void no_context(void)
{
    const char *at = "no current context";
    CUdeviceptr memory;
    CUstream stream;
    CUevent event;
    CUcontext context = (CUcontext)1;
    CUdevice device;
    size_t size, total;
    void *host;
    unsigned flags;
    int active;
    driver_open(false);
    SAY(at, cu.CtxGetCurrent(&context));
    say_value(at, "context is NULL", !context);
    SAY(at, cu.CtxGetDevice(&device));
    SAY(at, cu.CtxPopCurrent(&context));
    SAY(at, cu.CtxSynchronize());
    SAY(at, cu.MemAlloc(&memory, 16));
    SAY(at, cu.MemFree(0));
    SAY(at, cu.MemHostAlloc(&host, 16, 0));
    SAY(at, cu.MemGetInfo(&size, &total));
    SAY(at, cu.StreamCreate(&stream, 0));
    SAY(at, cu.EventCreate(&event, 0));
    SAY(at, cu.StreamSynchronize(NULL));
    SAY(at, cu.PointerGetAttribute(&flags, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, 4096));
    SAY(at, cu.DevicePrimaryCtxGetState(0, &flags, &active));
    say_value(at, "primary context active", active);
    SAY(at, cu.DevicePrimaryCtxRelease(0));
    SAY("set current", cu.CtxSetCurrent(NULL));
    SAY("set current", cu.CtxPushCurrent(NULL));
}

static void primary_context(void)
{
    const char *at = "primary context";
    CUcontext first, second, current;
    CUdeviceptr memory;
    unsigned flags;
    int active;
    driver_open(false);
    SAY(at, cu.DevicePrimaryCtxRetain(&first, 0));
    SAY(at, cu.DevicePrimaryCtxRetain(&second, 0));
    say_value(at, "both retains give the same context", first == second);
    SAY(at, cu.CtxGetCurrent(&current));
    say_value(at, "retaining makes current", current == first);
    SAY(at, cu.CtxSetCurrent(first));
    SAY(at, cu.MemAlloc(&memory, 4096));
    SAY(at, cu.CtxDestroy(first));
    SAY(at, cu.DevicePrimaryCtxRelease(0));
    SAY(at, cu.DevicePrimaryCtxGetState(0, &flags, &active));
    say_value(at, "active after one of two releases", active);
    SAY(at, cu.MemsetD8(memory, 0, 16));
    SAY(at, cu.DevicePrimaryCtxRelease(0));
    SAY(at, cu.DevicePrimaryCtxGetState(0, &flags, &active));
    say_value(at, "active after the last release", active);
    SAY("current context was released", cu.CtxGetCurrent(&current));
    say_value("current context was released", "still current", current == first);
    SAY("current context was released", cu.CtxGetDevice(&(CUdevice){0}));
    SAY("current context was released", cu.MemsetD8(memory, 0, 16));
    SAY("current context was released", cu.MemAlloc(&memory, 16));
    SAY("current context was released", cu.CtxSynchronize());
    SAY(at, cu.DevicePrimaryCtxRelease(0));
    SAY("retained again", cu.DevicePrimaryCtxRetain(&second, 0));
    say_value("retained again", "the same handle as before", first == second);
    SAY("retained again", cu.CtxSetCurrent(second));
    SAY("retained again", cu.MemAlloc(&memory, 16));
    SAY("retained again", cu.DevicePrimaryCtxReset(0));
    SAY("after reset", cu.MemAlloc(&memory, 16));
    SAY("after reset", cu.DevicePrimaryCtxRelease(0));
}

static void streams_and_events(void)
{
    CUstream stream, other;
    CUevent event, second, untimed;
    float ms;
    int least, greatest;
    unsigned *word;
    driver_open(true);
    word = mapped_alloc(4);
    CHECK(cu.StreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(cu.StreamCreate(&other, CU_STREAM_NON_BLOCKING));
    CHECK(cu.EventCreate(&event, 0));
    CHECK(cu.EventCreate(&second, 0));
    CHECK(cu.EventCreate(&untimed, CU_EVENT_DISABLE_TIMING));
    SAY("event never recorded", cu.EventQuery(event));
    SAY("event never recorded", cu.EventSynchronize(event));
    SAY("event never recorded", cu.EventElapsedTime(&ms, event, second));
    SAY("event never recorded", cu.StreamWaitEvent(stream, event, 0));
    SAY("stream is idle", cu.StreamQuery(stream));
    start_waiting(stream, word);
    SAY("kernel runs", cu.StreamQuery(stream));
    SAY("kernel runs", cu.StreamQuery(other));
    SAY("kernel runs in a non-blocking stream", cu.StreamQuery(NULL));
    SAY("kernel runs", cu.EventRecord(event, stream));
    SAY("kernel runs", cu.EventQuery(event));
    SAY("kernel runs", cu.EventElapsedTime(&ms, event, event));
    SAY("kernel runs", cu.StreamDestroy(stream));
    *word = 1;
    SAY("kernel's stream was destroyed", cu.EventSynchronize(event));
    SAY("events recorded", cu.EventRecord(untimed, other));
    SAY("events recorded", cu.EventRecord(second, other));
    SAY("events recorded", cu.EventSynchronize(second));
    SAY("events recorded", cu.EventElapsedTime(&ms, event, second));
    SAY("one event without timing", cu.EventElapsedTime(&ms, untimed, second));
    SAY("flags", cu.StreamCreate(&stream, 77));
    SAY("flags", cu.EventCreate(&event, 0x100));
    SAY("flags", cu.EventCreate(&event, CU_EVENT_INTERPROCESS));
    SAY("priority", cu.CtxGetStreamPriorityRange(&least, &greatest));
    say_value("priority", "least", least);
    say_value("priority", "greatest", greatest);
    SAY("priority out of range", cu.StreamCreateWithPriority(&stream, 0, -100));
    SAY("handle NULL", cu.EventRecord(NULL, other));
    SAY("handle NULL", cu.EventQuery(NULL));
    SAY("handle NULL", cu.StreamDestroy(NULL));
    SAY("handle NULL", cu.EventDestroy(NULL));
    SAY("legacy stream", cu.StreamSynchronize(CU_STREAM_LEGACY));
    SAY("per-thread stream", cu.StreamSynchronize(CU_STREAM_PER_THREAD));
    SAY("legacy stream", cu.StreamDestroy(CU_STREAM_LEGACY));
    SAY("stream destroyed twice", cu.StreamDestroy(other));
}

static void launches(void)
{
    CUfunction function, shared, wide;
    CUdeviceptr memory;
    int blocks;
    driver_open(true);
    function = kernel_of("put");
    shared = kernel_of("large_shared");
    wide = kernel_of("threads1024");
    memory = device_alloc(1 << 20);
    unsigned value = 5;
    void *arguments[] = {&memory, &value};
#define LAUNCH(f, gx, gy, bx, by, bytes, args)                                                     \
    cu.LaunchKernel(f, gx, gy, 1, bx, by, 1, bytes, NULL, args, NULL)
    SAY("grid of 0 blocks", LAUNCH(function, 0, 1, 1, 1, 0, arguments));
    SAY("block of 0 threads", LAUNCH(function, 1, 1, 0, 1, 0, arguments));
    SAY("block of 1025 threads", LAUNCH(function, 1, 1, 1025, 1, 0, arguments));
    SAY("block of 32 x 33 threads", LAUNCH(function, 1, 1, 32, 33, 0, arguments));
    SAY("grid of 2^31 - 1 blocks", LAUNCH(kernel_of("nothing"), 0x7fffffff, 1, 1, 1, 0, NULL));
    SAY("grid of 2^31 blocks", LAUNCH(kernel_of("nothing"), 0x80000000u, 1, 1, 1, 0, NULL));
    SAY("grid y of 65536", LAUNCH(function, 1, 65536, 1, 1, 0, arguments));
    SAY("48 KiB dynamic", LAUNCH(shared, 1, 1, 32, 1, 48 << 10, arguments));
    SAY("48 KiB + 1 dynamic", LAUNCH(shared, 1, 1, 32, 1, (48 << 10) + 1, arguments));
    SAY("limit raised",
        cu.FuncSetAttribute(shared, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 200 << 10));
    SAY("limit raised", LAUNCH(shared, 1, 1, 32, 1, 200 << 10, arguments));
    SAY("limit raised too far",
        cu.FuncSetAttribute(shared, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 300 << 10));
    SAY("function NULL", LAUNCH(NULL, 1, 1, 1, 1, 0, arguments));
    SAY("arguments NULL", LAUNCH(function, 1, 1, 1, 1, 0, NULL));
    SAY("occupancy", cu.OccupancyMaxActiveBlocksPerMultiprocessor(&blocks, wide, 1024, 0));
    say_value("occupancy", "blocks of 1024", blocks);
    const unsigned full = (unsigned)(blocks * nprocessors());
    SAY("cooperative, all resident",
        cu.LaunchCooperativeKernel(wide, full, 1, 1, 1024, 1, 1, 0, NULL, arguments));
    SAY("cooperative, one block too many",
        cu.LaunchCooperativeKernel(wide, full + 1, 1, 1, 1024, 1, 1, 0, NULL, arguments));
    SAY("after refused launches", cu.CtxSynchronize());
    CUmodule module;
    CUfunction found;
    SAY("module text is empty", cu.ModuleLoadDataEx(&module, "", 0, NULL, NULL));
    SAY("module text is garbage", cu.ModuleLoadDataEx(&module, "hello", 0, NULL, NULL));
    SAY("PTX with a syntax error",
        cu.ModuleLoadDataEx(&module, ".version 8.0\n.target sm_75\n.address_size 64\nfoo", 0, NULL,
                            NULL));
    SAY("PTX of a later version",
        cu.ModuleLoadDataEx(&module, ".version 99.0\n.target sm_75\n.address_size 64\n", 0, NULL,
                            NULL));
    SAY("PTX of a later architecture",
        cu.ModuleLoadDataEx(&module, ".version 8.8\n.target sm_120\n.address_size 64\n", 0, NULL,
                            NULL));
    SAY("PTX without kernels",
        cu.ModuleLoadDataEx(&module, ".version 8.0\n.target sm_75\n.address_size 64\n", 0, NULL,
                            NULL));
    SAY("name that is not there", cu.ModuleGetFunction(&found, module, "absent"));
    SAY("module unloaded", cu.ModuleUnload(module));
    SAY("module NULL", cu.ModuleUnload(NULL));
}

/* What calls say after a kernel failed. */
static void after_fault(const char *situation, const char *name, int index, size_t offset)
{
    CUdeviceptr memory, more;
    CUstream stream;
    CUevent event;
    unsigned word = 0;
    CUcontext context;
    char at[64];
    snprintf(at, sizeof at, "after %s", situation);
    driver_open(true);
    memory = device_alloc(1 << 20);
    CHECK(cu.StreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(cu.EventCreate(&event, 0));
    CUfunction function = kernel_of(name), nothing = kernel_of("nothing");
    CUdeviceptr bad = memory + offset;
    int number = index;
    void *arguments[] = {&bad, &number};
    if (!strcmp(name, "fault_assert")) arguments[0] = &number;
    SAY(at, launch_one(function, stream, arguments));
    SAY(at, cu.EventRecord(event, stream));
    SAY(at, cu.StreamSynchronize(stream));
    SAY(at, cu.StreamSynchronize(stream));
    SAY(at, cu.StreamQuery(stream));
    SAY(at, cu.EventQuery(event));
    SAY(at, cu.EventSynchronize(event));
    SAY(at, cu.CtxSynchronize());
    SAY(at, cu.MemAlloc(&more, 16));
    SAY(at, cu.MemcpyDtoH(&word, memory, 4));
    SAY(at, launch_one(nothing, NULL, NULL));
    SAY(at, cu.PointerGetAttribute(&word, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, memory));
    SAY(at, cu.MemFree(memory));
    SAY(at, cu.StreamDestroy(stream));
    SAY(at, cu.EventDestroy(event));
    SAY(at, cu.CtxGetCurrent(&context));
    SAY(at, cu.CtxSetCurrent(context));
    SAY(at, cu.DevicePrimaryCtxRelease(0));
    SAY(at, cu.DevicePrimaryCtxRetain(&context, 0));
    SAY(at, cu.CtxSetCurrent(context));
    SAY(at, cu.MemAlloc(&more, 16));
    SAY(at, cu.DevicePrimaryCtxReset(0));
    SAY("after fault and reset", cu.DevicePrimaryCtxRetain(&context, 0));
    SAY("after fault and reset", cu.CtxSetCurrent(context));
    SAY("after fault and reset", cu.MemAlloc(&more, 16));
}

static void fault_trap(void)
{
    after_fault(__func__, "fault_trap", 0, 0);
}
static void fault_assert(void)
{
    after_fault(__func__, "fault_assert", 0, 0);
}
static void fault_exit(void)
{
    after_fault(__func__, "fault_exit", 0, 0);
}
static void fault_address(void)
{
    after_fault(__func__, "fault_address", 0, (size_t)1 << 40);
}
static void fault_near(void)
{
    after_fault(__func__, "fault_address", 0, 1 << 20);
}
static void fault_misaligned(void)
{
    after_fault(__func__, "fault_misaligned", 0, 0);
}
static void fault_local(void)
{
    after_fault(__func__, "fault_local", 1 << 20, 0);
}
static void fault_stack(void)
{
    after_fault(__func__, "fault_stack", 1 << 20, 0);
}

struct situation {
    const char *name;
    void (*run)(void);
};

static const struct situation situations[] = {
    {"init", before_init},
    {"device_attributes", device_attributes},
    {"proc_addresses", proc_addresses},
    {"no_context", no_context},
    {"primary_context", primary_context},
    {"streams_and_events", streams_and_events},
    {"launches", launches},
    {"pointer_attributes", pointer_attributes},
    {"memory_errors", memory_errors},
    {"virtual_memory", virtual_memory},
    {"pointer_costs", pointer_costs},
    {"capture_modes", capture_modes},
    {"capture_events", capture_events},
    {"capture_misuse", capture_misuse},
    {"capture_nodes", capture_nodes},
    {"graph_launches", graph_launches},
    {"fault_trap", fault_trap},
    {"fault_assert", fault_assert},
    {"fault_exit", fault_exit},
    {"fault_address", fault_address},
    {"fault_near", fault_near},
    {"fault_misaligned", fault_misaligned},
    {"fault_local", fault_local},
    {"fault_stack", fault_stack},
};

int main(int argc, char **argv)
{
    for (size_t i = 0; i < sizeof situations / sizeof *situations; i++) {
        if (argc > 1 && strcmp(argv[1], situations[i].name)) continue;
        fflush(stdout);
        const pid_t child = fork();
        if (child == 0) {
            alarm(20);
            situations[i].run();
            fflush(stdout);
            _exit(0);
        }
        int status = 0;
        waitpid(child, &status, 0);
        if (status) {
            row_begin("calls", situations[i].name);
            row_text("call", "the process of this situation");
            row_text("result", WIFSIGNALED(status) ? strsignal(WTERMSIG(status)) : "ended early");
            row_end();
        }
    }
    return 0;
}
