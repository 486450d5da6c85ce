/* Launches of a rank that have not ended: at most TT_MOST_LAUNCHES. */
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "base/clock.h"
#include "carrier/kernel/kernel.h"
#include "communicator/communicator.h"
#include "driven.h"
#include "driver/cuda.h"
#include "shim.h"

enum { MANY = TT_MOST_LAUNCHES + 100, PATIENCE_MS = 60000, CANCEL_US = 20000 };

static __typeof__(cuLaunchKernel) *real_launch;
static _Atomic int nlaunched;

static CUresult CUDAAPI count_and_launch(CUfunction function, unsigned gx, unsigned gy, unsigned gz,
                                         unsigned bx, unsigned by, unsigned bz, unsigned shared,
                                         CUstream stream, void **parameters, void **extra)
{
    atomic_fetch_add(&nlaunched, 1);
    return real_launch(function, gx, gy, gz, bx, by, bz, shared, stream, parameters, extra);
}

/* Issues groups of all ranks until one fails. */
struct issuer {
    struct driven *d;
    pthread_t thread;
    _Atomic bool stops; /* after the group that it issues */
    int nissued;
    tuttiResult_t result;
};

static void *issue_many(void *argument)
{
    struct issuer *issuer = argument;
    struct driven *d = issuer->d;
    for (; issuer->nissued < MANY && !issuer->result && !issuer->stops; issuer->nissued++) {
        CHECK_EQ(tuttiGroupStart(), tuttiSuccess);
        for (int r = 0; r < d->nranks; r++)
            CHECK_EQ(tuttiBroadcast(d->memory[0], d->memory[r], 1, tuttiInt32, 0, d->comms[r],
                                    d->streams[0]),
                     tuttiSuccess);
        issuer->result = tuttiGroupEnd();
    }
    return NULL;
}

/* The stream waits, and the issuer has as many launches as it may have. */
static bool begin_many(struct issuer *issuer, struct driven *d)
{
    if (!driven_begin(d, 2, 1)) return false;
    *issuer = (struct issuer){.d = d};
    struct tt_cuda *driver = (struct tt_cuda *)(uintptr_t)tt_cuda_load();
    real_launch = driver->LaunchKernel;
    driver->LaunchKernel = count_and_launch;
    atomic_store(&nlaunched, 0);
    gpu_block(0, d->device_streams[0]);
    CHECK(pthread_create(&issuer->thread, NULL, issue_many, issuer) == 0);
    const volatile bool *has_warned = &d->comms[0]->core.kernel->launches.has_warned;
    const int64_t deadline_ns = tt_deadline_ns(PATIENCE_MS);
    while (!*has_warned && !tt_expired(deadline_ns)) tt_test_pause();
    CHECK(*has_warned);
    CHECK_EQ(atomic_load(&nlaunched), TT_MOST_LAUNCHES);
    return true;
}

static void end_many(void)
{
    struct tt_cuda *driver = (struct tt_cuda *)(uintptr_t)tt_cuda_load();
    driver->LaunchKernel = real_launch;
}

TEST(device_launches, who_has_512_launches_that_have_not_ended_waits_and_then_goes_on)
{
    struct driven d;
    struct issuer issuer;
    int number = -1;
    if (!begin_many(&issuer, &d)) return;
    gpu_unblock();
    pthread_join(issuer.thread, NULL);
    CHECK_EQ(issuer.result, tuttiSuccess);
    CHECK_EQ(issuer.nissued, MANY);
    driven_synchronize(&d);
    gpu_read(0, &number, d.memory[1], sizeof number);
    CHECK_EQ(number, 0);
    end_many();
    driven_finish(&d);
}

/* cancels: the issuer's thread is cancelled first, which takes effect after its call. */
static void abort_while_one_waits_for_room(bool cancels)
{
    struct driven d;
    struct issuer issuer;
    if (!begin_many(&issuer, &d)) return;
    atomic_store(&issuer.stops, true);
    if (cancels) pthread_cancel(issuer.thread);
    if (cancels) usleep(CANCEL_US);
    CHECK_EQ(tuttiCommAbort(d.comms[0]), tuttiSuccess);
    pthread_join(issuer.thread, NULL);
    CHECK_EQ(issuer.nissued, TT_MOST_LAUNCHES);
    CHECK_EQ(tuttiCommAbort(d.comms[1]), tuttiSuccess);
    gpu_unblock();
    end_many();
    for (int r = 0; r < d.nranks; r++) {
        tuttiStreamDestroy(d.streams[r]);
        gpu_stream_destroy(d.gpus[r], d.device_streams[r]);
        gpu_free(d.memory[r]);
    }
    gpu_free_all();
}

TEST(device_launches, who_waits_for_room_is_released_by_an_abort)
{
    abort_while_one_waits_for_room(false);
}

TEST(device_launches, who_waits_for_room_and_is_cancelled_is_released_by_an_abort)
{
    abort_while_one_waits_for_room(true);
}
