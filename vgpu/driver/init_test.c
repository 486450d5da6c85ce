/* cuInit: what it refuses, and that it can be called again after it failed. */
#include "testing.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char path[] = "/tmp/vgpu-init-XXXXXX"; /* a file of suppressions */

static void expect_devices(int n)
{
    int count = -1;
    OK(cuInit(0));
    OK(cuDeviceGetCount(&count));
    CHECK_EQ(count, n);
}

static void init_after_no_device(void)
{
    CHECK_EQ(cuInit(0), CUDA_ERROR_NO_DEVICE);
    CHECK_EQ(cuDeviceGetCount(&(int){0}), CUDA_ERROR_NOT_INITIALIZED);
    setenv("VGPU_DEVICES", "2", 1);
    expect_devices(2);
}

static unsigned occurrences(const char *text, const char *what)
{
    unsigned n = 0;
    while ((text = strstr(text, what)) != NULL) {
        text++;
        n++;
    }
    return n;
}

/* The file of suppressions was read before, and is read again. */
TEST(vgpu_init, finds_devices_after_it_found_none)
{
    char text[4096], setting[64];
    const int file = mkstemp(path);
    CHECK(file >= 0 && write(file, "race * *\n", 9) == 9);
    close(file);
    snprintf(setting, sizeof setting, "VGPU_SUPPRESS=%s", path);
    CHECK_EQ(vt_run_unopened((const char *[]){setting, "VGPU_DEVICES=0", NULL},
                             init_after_no_device, text, sizeof text),
             0);
    CHECK_MESSAGE(occurrences(text, "used 0 times") == 1, "%s", text);
    unlink(path);
}

static void set_threads(rlim_t most)
{
    struct rlimit limit;
    CHECK_EQ(getrlimit(RLIMIT_NPROC, &limit), 0);
    limit.rlim_cur = most < limit.rlim_max ? most : limit.rlim_max;
    CHECK_EQ(setrlimit(RLIMIT_NPROC, &limit), 0);
}

/* The limit does not hold for the superuser. */
static void init_without_threads(void)
{
    if (geteuid() == 0) CHECK_EQ(setresuid(65534, 65534, 65534), 0);
    set_threads(0);
    for (int i = 0; i < 3; i++) CHECK_EQ(cuInit(0), CUDA_ERROR_OPERATING_SYSTEM);
    set_threads(RLIM_INFINITY);
    expect_devices(3);
    CHECK(vt_open(1));
    CUdeviceptr memory = vt_device(64);
    uint32_t value = 7;
    OK(vt_launch(vt.put, 1, NULL, (void *[]){&memory, &value}));
    CHECK_EQ(vt_read(memory, 0), 7);
}

TEST(vgpu_init, works_after_threads_could_not_be_made)
{
    char text[4096];
    CHECK_MESSAGE(vt_run_unopened((const char *[]){"VGPU_DEVICES=3", NULL}, init_without_threads,
                                  text, sizeof text) == 0,
                  "%s", text);
}

/* Says that it has a context of GPU 0, and keeps it. */
static void hold_first(int to)
{
    CUcontext context;
    OK(cuInit(0));
    OK(cuDevicePrimaryCtxRetain(&context, 0));
    if (write(to, "", 1) == 1) pause();
    _exit(1);
}

static void use_what_is_left(void)
{
    CUcontext context;
    int pipes[2], mode = 0;
    char byte;
    CHECK_EQ(pipe(pipes), 0);
    const pid_t child = fork();
    if (child == 0) hold_first(pipes[1]);
    CHECK_EQ(read(pipes[0], &byte, 1), 1);
    OK(cuInit(0));
    OK(cuDeviceGetAttribute(&mode, CU_DEVICE_ATTRIBUTE_COMPUTE_MODE, 0));
    CHECK_EQ(mode, CU_COMPUTEMODE_EXCLUSIVE_PROCESS);
    CHECK_EQ(cuDevicePrimaryCtxRetain(&context, 0), CUDA_ERROR_DEVICE_UNAVAILABLE);
    OK(cuDevicePrimaryCtxRetain(&context, 1));
    CHECK_EQ(kill(child, SIGKILL), 0);
    CHECK_EQ(waitpid(child, NULL, 0), child);
    OK(cuDevicePrimaryCtxRetain(&context, 0));
}

TEST(vgpu_init, an_exclusive_gpu_takes_one_process_at_a_time)
{
    char file[] = "/tmp/vgpu-exclusive-XXXXXX", setting[64];
    close(mkstemp(file));
    snprintf(setting, sizeof setting, "VGPU_EXCLUSIVE=%s", file);
    char text[4096];
    CHECK_MESSAGE(vt_run_unopened((const char *[]){setting, "VGPU_DEVICES=2", NULL},
                                  use_what_is_left, text, sizeof text) == 0,
                  "%s", text);
    unlink(file);
}
