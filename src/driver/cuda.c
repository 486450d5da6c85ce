/* Loads libcuda.so.1, checks that it is new enough, and finds its functions. */
#include "driver/cuda.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/open.h"
#include "base/private_fd.h"
#include "driver/driver.h"

/* The oldest driver that has all functions that are not optional, and takes the kernels' PTX
 * (cmake/older-kernels.cmake). */
enum { OLDEST = 12040 };

static const struct {
    const char *name;
    size_t offset;
    bool is_optional;
} entries[] = {
#define X(member, symbol) {#symbol, offsetof(struct tt_cuda, member), false},
#define OPTIONAL(member, symbol) {#symbol, offsetof(struct tt_cuda, member), true},
#include "driver/cuda_table.h"
#undef OPTIONAL
#undef X
};

static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct tt_cuda table;
static int ngpus;
static pid_t user; /* the process that has called cuInit; 0: none */
static char reason[TT_DRIVER_TEXT];

static bool find_functions(void *library)
{
    for (size_t i = 0; i < sizeof entries / sizeof *entries; i++) {
        void *symbol = dlsym(library, entries[i].name);
        if (!symbol && !entries[i].is_optional) {
            snprintf(reason, sizeof reason,
                     "libcuda.so.1 has no %s: it is incomplete, or no driver for CUDA %d.%d",
                     entries[i].name, OLDEST / 1000, OLDEST % 1000 / 10);
            return false;
        }
        memcpy((char *)&table + entries[i].offset, &symbol, sizeof symbol);
    }
    return true;
}

/* cuDriverGetVersion works before cuInit, and in drivers that lack later functions. */
static bool new_enough(void *library)
{
    __typeof__(cuDriverGetVersion) *get_version;
    void *symbol = dlsym(library, "cuDriverGetVersion");
    int version = 0;
    memcpy(&get_version, &symbol, sizeof symbol);
    if (!symbol || get_version(&version) != CUDA_SUCCESS) {
        snprintf(reason, sizeof reason, "libcuda.so.1 does not say its version: it is no driver");
        return false;
    }
    if (version >= OLDEST) return true;
    snprintf(reason, sizeof reason,
             "libcuda.so.1 is a driver for CUDA %d.%d; tutti needs one for CUDA %d.%d or later "
             "(update NVIDIA's driver)",
             version / 1000, version % 1000 / 10, OLDEST / 1000, OLDEST % 1000 / 10);
    return false;
}

static const char *name_of(CUresult result)
{
    const char *name = NULL;
    return table.GetErrorName(result, &name) == CUDA_SUCCESS && name ? name : "an unknown error";
}

static const char *text_of(CUresult result)
{
    const char *text = NULL;
    return table.GetErrorString(result, &text) == CUDA_SUCCESS && text ? text : "no text";
}

/* NULL, or the first call that failed. */
static const char *initialize(CUresult *result)
{
    user = getpid();
    tt_low_fd_hold();
    *result = table.Init(0);
    (void)tt_low_fd_release(-1);
    if (*result != CUDA_SUCCESS) return "cuInit";
    *result = table.DeviceGetCount(&ngpus);
    return *result == CUDA_SUCCESS ? NULL : "cuDeviceGetCount";
}

static void load(void)
{
    void *library = tt_open_library("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        snprintf(reason, sizeof reason, "%s", dlerror());
        return;
    }
    /* Never unloaded: the driver keeps threads and state. */
    if (!new_enough(library) || !find_functions(library)) return;
    CUresult result;
    const char *call = initialize(&result);
    if (call)
        snprintf(reason, sizeof reason, "%s: %s (%s)", call, name_of(result), text_of(result));
    else if (ngpus == 0)
        snprintf(reason, sizeof reason, "CUDA's driver has no GPU for this process");
    if (call || ngpus < 0) ngpus = 0;
}

static void load_and_say(void)
{
    load();
    if (ngpus == 0) TT_INFO("no GPU: %s", reason);
}

const struct tt_cuda *tt_cuda_load(void)
{
    pthread_once(&once, load_and_say);
    return ngpus > 0 ? &table : NULL;
}

int tt_driver_ngpus(const char **why)
{
    (void)tt_cuda_load();
    if (why) *why = reason;
    return ngpus;
}

bool tt_driver_is_in_use(void)
{
    void *library = tt_open_library("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    if (library) dlclose(library);
    return library;
}

/* Whatever a forked child calls, the driver says only that it is not initialized. */
tt_status tt_cuda_fail_at(const char *file, int line, CUresult result, const char *call)
{
    const pid_t own = getpid();
    if (result == CUDA_ERROR_NOT_INITIALIZED && user != own)
        return tt_fail_at(file, line, TT_ERR_USAGE,
                          "%s failed: process %d used CUDA before it forked; its child %d cannot "
                          "use CUDA (fork before the first use of a GPU, or start the child by "
                          "exec)",
                          call, (int)user, (int)own);
    if (result == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT)
        return tt_fail_at(file, line, TT_ERR_USAGE,
                          "%s failed: a thread captures a blocking CUDA stream into a graph, and "
                          "until it ends that, CUDA forbids the legacy default stream (%s), and "
                          "with it calls whose stream is NULL: pass a stream that does not block "
                          "(tuttiStreamFromDevice), or capture one (cudaStreamNonBlocking)",
                          call, name_of(result));
    return tt_fail_at(file, line, TT_ERR_DEVICE, "%s failed: %s (%s)", call, name_of(result),
                      text_of(result));
}
