/* GPUs opened, closed and given kernels to run, on two virtual GPUs. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "device/device.h"
#include "shim.h"

static struct tt_device *open_gpu(int gpu)
{
    struct tt_device *device = NULL;
    CHECK_EQ(tt_device_open(gpu, &device), TT_OK);
    return device;
}

TEST(launch, a_gpu_is_one_device_for_all_who_open_it)
{
    struct tt_device *first = open_gpu(0), *second = open_gpu(0), *other = open_gpu(1);
    CHECK(first == second && first != other);
    CHECK_EQ(tt_context_gpu(tt_device_context(first)), 0);
    CHECK_EQ(tt_context_gpu(tt_device_context(other)), 1);
    tt_device_close(first);
    CHECK(tt_device_capacity(second) > 0);
    tt_device_close(second);
    tt_device_close(other);
    tt_device_close(NULL);
    first = open_gpu(0);
    CHECK(first && tt_device_capacity(first) > 0);
    tt_device_close(first);
}

TEST(launch, a_gpu_that_does_not_exist_is_an_error_that_names_it)
{
    struct tt_device *device = NULL;
    CHECK_EQ(tt_device_open(2, &device), TT_ERR_ARGUMENT);
    CHECK(strstr(tt_last_error(), "GPU 2 does not exist") != NULL);
    CHECK(device == NULL);
}
