/* Which GPU a rank has whose config says TUTTI_DEVICE_CURRENT. Each body runs in a process of its
 * own, in which nobody has loaded CUDA's driver before. */
#include <cuda.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "driver/calls.h"
#include "driver/driver.h"
#include "shim.h"
#include "tutti.h"

/* ngpus: of the virtual ones. */
static void apart(const char *ngpus, void (*body)(void))
{
    int status = -1;
    fflush(NULL);
    const pid_t child = fork();
    if (child == 0) {
        setenv("VGPU_DEVICES", ngpus, 1);
        CHECK(!tt_driver_is_in_use());
        body();
        fflush(NULL);
        _exit(tt_test_failed());
    }
    REQUIRE(child > 0 && waitpid(child, &status, 0) == child);
    CHECK_EQ(status, 0);
}

static void use_gpu(int gpu)
{
    CUcontext context = NULL;
    CALL(cuInit, 0);
    CALL(cuDevicePrimaryCtxRetain, &context, gpu);
    CALL(cuCtxSetCurrent, context);
}

static void fresh_thread(void)
{
    CHECK_EQ(tt_driver_default(), 0);
    CHECK(tt_driver_is_in_use());
    CHECK_EQ(tt_driver_current(), -1);
}

TEST(choice, a_fresh_thread_has_gpu_0_though_nobody_has_loaded_the_driver)
{
    apart("2", fresh_thread);
}

static void *ask(void *gpu)
{
    *(int *)gpu = tt_driver_default();
    return NULL;
}

static void current_context(void)
{
    pthread_t thread;
    int other = -2;
    use_gpu(1);
    CHECK_EQ(tt_driver_default(), 1);
    CHECK(pthread_create(&thread, NULL, ask, &other) == 0 && pthread_join(thread, NULL) == 0);
    CHECK_EQ(other, 0);
    CALL(cuCtxSetCurrent, NULL);
    CHECK_EQ(tt_driver_default(), 0);
}

TEST(choice, a_thread_with_a_current_context_has_its_gpu_and_other_threads_do_not)
{
    apart("2", current_context);
}

static void no_gpu(void)
{
    CHECK_EQ(tt_driver_default(), -1);
}

TEST(choice, a_driver_without_gpus_gives_none)
{
    apart("0", no_gpu);
}

/* ---- The config ----------------------------------------------------------------------------- */

static tuttiComm_t make(int device, int expected)
{
    tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
    tuttiComm_t comm = NULL;
    tuttiUniqueId id;
    int told = -3;
    config.device = device;
    CHECK_EQ(tuttiGetUniqueId(&id), tuttiSuccess);
    CHECK_MESSAGE(tuttiCommInitRankConfig(&comm, 1, id, 0, &config) == tuttiSuccess, "%s",
                  tuttiGetLastError(NULL));
    CHECK_EQ(tuttiCommDevice(comm, &told), tuttiSuccess);
    CHECK_EQ(told, expected);
    return comm;
}

/* NULL streams: the call is complete when it returns. */
static void check_sum(tuttiComm_t comm, int *data)
{
    CHECK_MESSAGE(tuttiAllReduce(data, data, 4, tuttiInt, tuttiSum, comm, NULL) == tuttiSuccess,
                  "%s", tuttiGetLastError(comm));
}

static void in_a_config(void)
{
    CUdeviceptr memory = 0;
    int on_host[4] = {0};
    tuttiComm_t comm = make(TUTTI_DEVICE_CURRENT, 0);
    use_gpu(0);
    CALL(cuMemAlloc_v2, &memory, 16);
    check_sum(comm, (int *)(uintptr_t)memory);
    check_sum(comm, on_host);
    CALL(cuMemFree_v2, memory);
    CHECK_EQ(tuttiCommDestroy(comm), tuttiSuccess);
    use_gpu(1);
    comm = make(TUTTI_DEVICE_CURRENT, 1);
    CALL(cuMemAlloc_v2, &memory, 16);
    check_sum(comm, (int *)(uintptr_t)memory);
    CALL(cuMemFree_v2, memory);
    tuttiComm_t split = NULL; /* has its parent's GPU, whatever the context is */
    int told = -3;
    use_gpu(0);
    CHECK_EQ(tuttiCommSplit(comm, 0, 0, &split, NULL), tuttiSuccess);
    CHECK_EQ(tuttiCommDevice(split, &told), tuttiSuccess);
    CHECK_EQ(told, 1);
    CHECK_EQ(tuttiCommDestroy(split), tuttiSuccess);
    CHECK_EQ(tuttiCommDestroy(comm), tuttiSuccess);
}

TEST(choice, a_communicator_takes_memory_of_that_gpu_and_of_the_host)
{
    apart("2", in_a_config);
}

static void without_gpus(void)
{
    int on_host[4] = {0};
    tuttiComm_t comm = make(TUTTI_DEVICE_CURRENT, -1), comms[2];
    check_sum(comm, on_host);
    CHECK_EQ(tuttiCommDestroy(comm), tuttiSuccess);
    char *memory = NULL;
    REQUIRE(tuttiDeviceMemAlloc((void **)&memory, 100, TUTTI_DEVICE_CURRENT) == tuttiSuccess);
    memory[99] = 1;
    CHECK_EQ(tuttiMemFree(memory), tuttiSuccess);
    REQUIRE(tuttiCommInitAll(comms, 2, (const int[]){TUTTI_DEVICE_CURRENT, 5}) == tuttiSuccess);
    for (int r = 0, told; r < 2; r++) {
        CHECK_EQ(tuttiCommDevice(comms[r], &told), tuttiSuccess);
        CHECK_EQ(told, r ? 5 : -1);
        CHECK_EQ(tuttiCommDestroy(comms[r]), tuttiSuccess);
    }
}

TEST(choice, a_communicator_without_gpus_takes_memory_of_the_host)
{
    apart("0", without_gpus);
}

static void for_all(void)
{
    tuttiComm_t comms[2];
    use_gpu(1);
    REQUIRE(tuttiCommInitAll(comms, 2, (const int[]){TUTTI_DEVICE_CURRENT, 0}) == tuttiSuccess);
    for (int r = 0, told; r < 2; r++) {
        CHECK_EQ(tuttiCommDevice(comms[r], &told), tuttiSuccess);
        CHECK_EQ(told, 1 - r);
    }
    for (int r = 0; r < 2; r++) CHECK_EQ(tuttiCommDestroy(comms[r]), tuttiSuccess);
}

static void without_kernels(void)
{
    char path[] = "/tmp/tutti-choice-XXXXXX", text[4096] = "";
    const int file = mkstemp(path);
    setenv("TUTTI_DEVICE_KERNELS", "1", 1);
    setenv("TUTTI_DEVICE_SLOTS", "3", 1); /* which no kernel takes */
    setenv("TUTTI_LOG_FILE", path, 1);
    tuttiComm_t comm = make(TUTTI_DEVICE_CURRENT, 0);
    CHECK_EQ(tuttiCommDestroy(comm), tuttiSuccess);
    CHECK(read(file, text, sizeof text - 1) >= 0);
    CHECK_MESSAGE(strstr(text, "WARN") && strstr(text, "kernels run no calls: "), "%s", text);
    close(file);
    unlink(path);
}

TEST(choice, the_log_warns_where_kernels_run_no_calls_on_the_current_gpu)
{
    apart("1", without_kernels);
}

TEST(choice, a_list_of_devices_may_name_the_current_one)
{
    apart("2", for_all);
}

/* Another process, which has GPU 1 for itself until it is killed. */
static pid_t take_gpu_1(void)
{
    int ready[2];
    char byte = 0;
    CHECK(pipe(ready) == 0);
    const pid_t taker = fork();
    if (taker == 0) {
        use_gpu(1);
        if (write(ready[1], &byte, 1) != 1) _exit(1);
        for (;;) pause();
    }
    close(ready[1]);
    CHECK(taker > 0 && read(ready[0], &byte, 1) == 1);
    close(ready[0]);
    return taker;
}

static void check_unusable(tuttiResult_t result)
{
    const char *text = tuttiGetLastError(NULL);
    CHECK_EQ(result, tuttiUnhandledDeviceError);
    CHECK_MESSAGE(strstr(text, "GPU 1, which the init of communicator world names, cannot be used: "
                               "cuDevicePrimaryCtxRetain failed: CUDA_ERROR_DEVICE_UNAVAILABLE"),
                  "%s", text);
}

/* Every rank of a list, alone or with others, and a rank of a config. */
static void unusable(void)
{
    char path[] = "/tmp/tutti-choice-XXXXXX";
    const int file = mkstemp(path);
    tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
    tuttiComm_t comms[2] = {NULL, NULL};
    tuttiUniqueId id;
    setenv("VGPU_EXCLUSIVE", path, 1);
    const pid_t taker = take_gpu_1();
    check_unusable(tuttiCommInitAll(comms, 2, (const int[]){0, 1}));
    check_unusable(tuttiCommInitAll(comms, 2, (const int[]){1, 0}));
    check_unusable(tuttiCommInitAll(comms, 1, (const int[]){1}));
    config.device = 1;
    CHECK_EQ(tuttiGetUniqueId(&id), tuttiSuccess);
    check_unusable(tuttiCommInitRankConfig(&comms[0], 1, id, 0, &config));
    CHECK(kill(taker, SIGKILL) == 0 && waitpid(taker, NULL, 0) == taker);
    CHECK_EQ(tuttiCommInitAll(comms, 2, (const int[]){0, 1}), tuttiSuccess);
    for (int r = 0; r < 2; r++) CHECK_EQ(tuttiCommDestroy(comms[r]), tuttiSuccess);
    close(file);
    unlink(path);
}

TEST(choice, a_gpu_that_a_list_or_a_config_names_and_another_process_has_is_an_error)
{
    apart("2", unusable);
}

static void wrong(void)
{
    tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
    tuttiComm_t comm;
    tuttiUniqueId id;
    config.device = -3;
    CHECK_EQ(tuttiGetUniqueId(&id), tuttiSuccess);
    CHECK_EQ(tuttiCommInitRankConfig(&comm, 1, id, 0, &config), tuttiInvalidArgument);
    CHECK(strstr(tuttiGetLastError(NULL), "device is -3: give the number of a GPU, -1 for none, "
                                          "or TUTTI_DEVICE_CURRENT (-2)"));
    /* An undefined device loads nothing. */
    CHECK_EQ(tuttiCommDestroy(make(TUTTI_CONFIG_UNDEF_INT, 0)), tuttiSuccess);
    CHECK(!tt_driver_is_in_use());
}

TEST(choice, another_negative_number_is_an_error_and_an_undefined_one_loads_no_driver)
{
    apart("2", wrong);
}
