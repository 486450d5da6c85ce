/* The driver's lock and its beginning. */
#include "counts.h"
#include "report.h"
#include "run.h"
#include "settings.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum { YIELDS = 200 };

struct vd_driver vd = {.lock = PTHREAD_MUTEX_INITIALIZER, .work = PTHREAD_COND_INITIALIZER};

static atomic_uint waiting;   /* threads that wait for the lock */
static atomic_ullong entered; /* how often it was taken by them */
static bool forked;           /* the child of a process that had called cuInit */

uint64_t vd_now_ns(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

/* Not its address: a thread gets the memory of one that has ended. */
uint64_t vd_this_thread(void)
{
    static atomic_ullong threads;
    static _Thread_local uint64_t number;
    if (number == 0) number = atomic_fetch_add_explicit(&threads, 1, memory_order_relaxed) + 1;
    return number;
}

void vd_lock(void)
{
    atomic_fetch_add_explicit(&waiting, 1, memory_order_relaxed);
    pthread_mutex_lock(&vd.lock);
    atomic_fetch_sub_explicit(&waiting, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&entered, 1, memory_order_relaxed);
}

bool vd_lock_for(uint32_t ms)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += ms / 1000;
    until.tv_nsec += (long)(ms % 1000) * 1000000;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    atomic_fetch_add_explicit(&waiting, 1, memory_order_relaxed);
    const bool locked = pthread_mutex_timedlock(&vd.lock, &until) == 0;
    atomic_fetch_sub_explicit(&waiting, 1, memory_order_relaxed);
    if (locked) atomic_fetch_add_explicit(&entered, 1, memory_order_relaxed);
    return locked;
}

CUresult vd_enter(void)
{
    vd_lock();
    if (!vd.initialized) return CUDA_ERROR_NOT_INITIALIZED;
    if (vd_hostfunc_inside()) return CUDA_ERROR_NOT_PERMITTED;
    vd_executor_called();
    return CUDA_SUCCESS;
}

CUresult vd_leave(CUresult result)
{
    vd_executor_left();
    pthread_mutex_unlock(&vd.lock);
    return result;
}

bool vd_callers_wait(void)
{
    return atomic_load_explicit(&waiting, memory_order_relaxed) != 0;
}

/* A mutex may be taken again at once by the thread that gave it back, so this one lets another
 * thread be first, for a bounded time. */
void vd_give_way(void)
{
    if (!vd_callers_wait()) return;
    const unsigned long long before = atomic_load_explicit(&entered, memory_order_relaxed);
    pthread_mutex_unlock(&vd.lock);
    for (int i = 0; i < YIELDS && vd_callers_wait(); i++) {
        if (atomic_load_explicit(&entered, memory_order_relaxed) != before) break;
        sched_yield();
    }
    pthread_mutex_lock(&vd.lock);
}

static void print(void *arg, const char *text, uint64_t nbytes)
{
    (void)arg;
    fwrite(text, 1, nbytes, stdout);
    fflush(stdout);
}

static void note_race(void *arg, const struct vg_race *race, const char *text)
{
    (void)arg;
    (void)race;
    vd_report("race", text);
}

static void lock_before_fork(void)
{
    vd_lock();
}

static void unlock_after_fork(void)
{
    pthread_mutex_unlock(&vd.lock);
}

/* The executor's threads are not there in the child. As with the real driver the child of a
 * process that had called cuInit cannot use it. */
static void begin_child(void)
{
    forked = vd.initialized;
    vd.initialized = false;
    atomic_store(&waiting, 0);
    pthread_mutex_init(&vd.lock, NULL);
}

static CUresult create_machine(void)
{
    const struct vd_settings *s = &vd.settings;
    const struct vg_machine_settings settings = {
        .seed = s->seed,
        .shuffled_blocks = s->shuffled_blocks,
        .strict_vectors = s->strict_vectors,
        .check_undefined = s->check_undefined,
        .patience = s->patience,
        .quantum = s->quantum,
        .spin_limit = s->spin_limit,
        .print = print,
        .race = note_race,
        .model = {.reads = s->reads, .off = !s->model, .depth = s->depth, .late = s->late}};
    vd.machine = vg_machine_create(&settings);
    vd.host_past = vg_past_create();
    return vd.machine != NULL && vd.host_past != NULL ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

/* cuInit may be called again after it failed, with other settings: nothing of the failed call is
 * left. */
CUresult vd_start(void)
{
    if (vd.initialized) return CUDA_SUCCESS;
    if (forked) return CUDA_ERROR_NOT_INITIALIZED;
    char error[512];
    if (vd_settings_read(&vd.settings, error) || vd_report_start(error) || vd_counts_start(error)) {
        fprintf(stderr, "vgpu: ERROR: %s\n", error);
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = create_machine();
    if (result == CUDA_SUCCESS) result = vd_devices_start();
    if (result != CUDA_SUCCESS) goto destroy_machine;
    result = vd_hostfunc_start();
    if (result != CUDA_SUCCESS) goto destroy_machine;
    result = vd_executor_start();
    if (result != CUDA_SUCCESS) goto stop_host_functions;
    pthread_atfork(lock_before_fork, unlock_after_fork, begin_child);
    vd.initialized = true;
    return CUDA_SUCCESS;

stop_host_functions:
    vd_hostfunc_stop();
destroy_machine:
    vd.ndevices = 0;
    vg_past_destroy(vd.host_past);
    vg_machine_destroy(vd.machine);
    vd.machine = NULL;
    vd.host_past = NULL;
    vd_report_stop();
    return result;
}
