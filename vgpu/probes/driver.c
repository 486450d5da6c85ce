/* Loads the driver API and holds what all probes need. */
#include "driver.h"

#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct driver cu;
CUcontext driver_context;

void die(const char *format, ...)
{
    va_list list;
    va_start(list, format);
    fflush(stdout);
    fputs("probe failed: ", stderr);
    vfprintf(stderr, format, list);
    fputc('\n', stderr);
    va_end(list);
    _exit(1);
}

const char *result_name(CUresult result)
{
    static char number[32];
    const char *name;
    if (cu.GetErrorName && cu.GetErrorName(result, &name) == CUDA_SUCCESS && name) return name;
    snprintf(number, sizeof number, "%d", (int)result);
    return number;
}

void check(CUresult result, const char *text, const char *file, int line)
{
    if (result != CUDA_SUCCESS) die("%s:%d: %s: %s", file, line, text, result_name(result));
}

void driver_load(void)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    if (!library) die("libcuda.so.1: %s", dlerror());
#define FIND(member, symbol) *(void **)&cu.member = dlsym(library, #symbol);
    DRIVER_CALLS(FIND)
#undef FIND
#define MISSING(member, symbol)                                                                    \
    if (!cu.member) fprintf(stderr, "libcuda.so.1 has no %s\n", #symbol);
    DRIVER_CALLS(MISSING)
#undef MISSING
}

void driver_open(bool with_context)
{
    CUdevice device;
    driver_load();
    CHECK(cu.Init(0));
    CHECK(cu.DeviceGet(&device, 0));
    if (!with_context) return;
    CHECK(cu.DevicePrimaryCtxRetain(&driver_context, device));
    CHECK(cu.CtxSetCurrent(driver_context));
}

static char *read_beside(const char *name)
{
    char path[4096];
    ssize_t length = readlink("/proc/self/exe", path, sizeof path - 256);
    if (length < 0) die("/proc/self/exe cannot be read");
    path[length] = 0;
    strcpy(strrchr(path, '/') + 1, name);
    FILE *file = fopen(path, "rb");
    if (!file) die("%s: not there; run make in the folder of the probes", path);
    fseek(file, 0, SEEK_END);
    const long size = ftell(file);
    rewind(file);
    char *data = calloc(1, (size_t)size + 1);
    if (!data || fread(data, 1, (size_t)size, file) != (size_t)size) die("%s: read failed", path);
    fclose(file);
    return data;
}

CUmodule load_module(const char *name)
{
    char *data = read_beside(name);
    CUmodule module;
    CHECK(cu.ModuleLoadDataEx(&module, data, 0, NULL, NULL));
    free(data);
    return module;
}

CUmodule load_ptx(const char *text)
{
    static char log[8192];
    CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
    void *values[] = {log, (void *)(uintptr_t)sizeof log};
    CUmodule module;
    const CUresult result = cu.ModuleLoadDataEx(&module, text, 2, options, values);
    if (result != CUDA_SUCCESS) die("%s: %s", result_name(result), log);
    return module;
}

CUfunction get_function(CUmodule module, const char *name)
{
    CUfunction function;
    check(cu.ModuleGetFunction(&function, module, name), name, __FILE__, __LINE__);
    return function;
}

CUdeviceptr device_alloc(size_t nbytes)
{
    CUdeviceptr memory;
    CHECK(cu.MemAlloc(&memory, nbytes));
    CHECK(cu.MemsetD8(memory, 0, nbytes));
    CHECK(cu.CtxSynchronize());
    return memory;
}

void *mapped_alloc(size_t nbytes)
{
    void *memory;
    CHECK(cu.MemHostAlloc(&memory, nbytes, CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_PORTABLE));
    memset(memory, 0, nbytes);
    return memory;
}

int attribute(CUdevice_attribute which)
{
    int value;
    CHECK(cu.DeviceGetAttribute(&value, which, 0));
    return value;
}

int nprocessors(void)
{
    return attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
}

double now_us(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e6 + (double)time.tv_nsec * 1e-3;
}

uint64_t mix64(uint64_t value)
{
    value += 0x9e3779b97f4a7c15u;
    value = (value ^ value >> 30) * 0xbf58476d1ce4e5b9u;
    value = (value ^ value >> 27) * 0x94d049bb133111ebu;
    return value ^ value >> 31;
}

int compare_doubles(const void *left, const void *right)
{
    const double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

double median(double *values, int count)
{
    qsort(values, (size_t)count, sizeof *values, compare_doubles);
    return values[count / 2];
}

void row_begin(const char *probe, const char *name)
{
    printf("{\"probe\": \"%s\", \"name\": \"%s\"", probe, name);
}

void row_text(const char *key, const char *value)
{
    printf(", \"%s\": \"", key);
    for (; *value; value++) putchar(*value == '"' || *value == '\\' ? '\'' : *value);
    putchar('"');
}

void row_number(const char *key, double value)
{
    printf(", \"%s\": %.10g", key, value);
}

void row_result(const char *key, CUresult result)
{
    row_text(key, result_name(result));
}

void row_end(void)
{
    puts("}");
    fflush(stdout);
}
