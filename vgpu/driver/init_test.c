/* cuInit: what it refuses, and that it can be called again after it failed. */
#include "testing.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
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
