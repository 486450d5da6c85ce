/* Threads that open GPUs at the same time, while the driver holds one of them up. */
#include <pthread.h>
#include <semaphore.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#include "device/device.h"
#include "driver/cuda.h"
#include "shim.h"

/* A thread that is held for so long is let go, so that the test ends. */
enum { MOST_SECONDS = 20 };

static struct tt_cuda real;
static _Thread_local bool is_held; /* this thread waits in cuModuleLoadDataEx */
static sem_t in_driver, let_go;
static bool is_refused, has_given_up;

/* As where a kernel of the program runs on the GPU. */
static CUresult CUDAAPI load(CUmodule *module, const void *image, unsigned noptions,
                             CUjit_option *options, void **values)
{
    struct timespec until;
    if (!is_held) return real.ModuleLoadDataEx(module, image, noptions, options, values);
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += MOST_SECONDS;
    sem_post(&in_driver);
    has_given_up = sem_timedwait(&let_go, &until) != 0;
    return is_refused ? CUDA_ERROR_UNKNOWN
                      : real.ModuleLoadDataEx(module, image, noptions, options, values);
}

static struct tt_cuda *table(void)
{
    return (struct tt_cuda *)(uintptr_t)tt_cuda_load();
}

/* A thread that opens GPU 0. */
struct opener {
    pthread_t thread;
    bool is_held;
    tt_status status;
    struct tt_device *device;
};

static void *open_first(void *argument)
{
    struct opener *opener = argument;
    is_held = opener->is_held;
    opener->status = tt_device_open(0, &opener->device);
    return NULL;
}

static void start(struct opener *opener, bool held)
{
    *opener = (struct opener){.is_held = held};
    CHECK_EQ(pthread_create(&opener->thread, NULL, open_first, opener), 0);
}

/* Two threads open GPU 0, the first of which is held, and may be refused, while this one opens and
 * closes GPU 1. */
static void open_both(bool refused, struct opener *first, struct opener *second)
{
    struct tt_device *other = NULL;
    sem_init(&in_driver, 0, 0);
    sem_init(&let_go, 0, 0);
    is_refused = refused;
    real = *table();
    table()->ModuleLoadDataEx = load;
    start(first, true);
    while (sem_wait(&in_driver)) continue;
    start(second, false);
    CHECK_EQ(tt_device_open(1, &other), TT_OK);
    tt_device_close(other);
    sem_post(&let_go);
    pthread_join(first->thread, NULL);
    pthread_join(second->thread, NULL);
    table()->ModuleLoadDataEx = real.ModuleLoadDataEx;
    CHECK(!has_given_up);
}

TEST(open, a_thread_that_loads_the_kernels_holds_up_no_other_gpu)
{
    struct opener first, second;
    open_both(false, &first, &second);
    CHECK_EQ(first.status, TT_OK);
    CHECK_EQ(second.status, TT_OK);
    CHECK(first.device && first.device == second.device);
    tt_device_close(first.device);
    tt_device_close(second.device);
}

TEST(open, who_waits_for_kernels_that_could_not_be_loaded_loads_them)
{
    struct opener first, second;
    open_both(true, &first, &second);
    CHECK_EQ(first.status, TT_ERR_DEVICE);
    CHECK(!first.device);
    CHECK_EQ(second.status, TT_OK);
    CHECK(second.device);
    tt_device_close(second.device);
}
