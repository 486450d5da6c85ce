/* Device memory for users. Other ranks get at it as at memory of contexts: by its address in this
 * process, by a handle of the driver's in others. */
#include "driver/device_memory.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/pause.h"
#include "base/process_lock.h"
#include "driver/context_internal.h"

/* How long an allocation waits for freed memory of its GPU that other processes still have open. */
enum { LENT_MS = 1000 };

struct tt_lent_memory {
    struct tt_lent_memory *next;
    struct tt_context *context; /* held */
    void *memory;
    size_t nbytes;
    int nlent;     /* guarded by lock */
    bool is_freed; /* guarded by lock: it is not in the list */
};

static struct tt_process_lock lock = TT_PROCESS_LOCK;
static struct tt_lent_memory *first; /* guarded by lock */
static int nfreed;                   /* that are lent; guarded by lock */
static _Atomic uint64_t changes;

static bool any_is_lent(void)
{
    tt_process_lock_shared(&lock);
    const bool any = nfreed;
    tt_process_unlock(&lock);
    return any;
}

/* In the context. What the library itself keeps and does not use goes back to the driver first. */
static tt_status allocate(struct tt_context *context, size_t nbytes, void **memory)
{
    const int64_t deadline_ns = tt_deadline_ns(LENT_MS);
    struct tt_pause pause = {0};
    CUdeviceptr made = 0;
    CUresult result = context->cu->MemAlloc(&made, nbytes);
    for (bool more = true; result == CUDA_ERROR_OUT_OF_MEMORY && more; tt_pause(&pause)) {
        more = any_is_lent() && !tt_expired(deadline_ns);
        tt_context_release_memory(context, false);
        result = context->cu->MemAlloc(&made, nbytes);
    }
    if (result != CUDA_SUCCESS) return tt_context_fail_allocation(context, result, nbytes);
    *memory = (void *)(uintptr_t)made;
    return TT_OK;
}

static tt_status fill(struct tt_lent_memory *user)
{
    CUstreamCaptureMode mode;
    TT_TRY(tt_context_enter_aside(user->context, &mode));
    const tt_status status = allocate(user->context, user->nbytes, &user->memory);
    tt_context_leave_aside(user->context, mode);
    return status;
}

static tt_status make(int gpu, size_t nbytes, struct tt_lent_memory *user)
{
    *user = (struct tt_lent_memory){.nbytes = nbytes};
    TT_TRY(tt_context_hold(gpu, &user->context));
    const tt_status status = fill(user);
    if (status) tt_context_drop(user->context);
    return status;
}

tt_status tt_driver_allocate(int gpu, size_t nbytes, void **memory)
{
    const size_t unit = TT_CONTEXT_SHARED;
    CUdevice device;
    TT_TRY(tt_cuda_device(gpu, &device));
    if (!nbytes) return tt_fail(TT_ERR_ARGUMENT, "0 bytes of memory of GPU %d: ask for more", gpu);
    if (nbytes > SIZE_MAX - unit)
        return tt_fail(TT_ERR_ARGUMENT, "%zu bytes of memory are more than can be had", nbytes);
    struct tt_lent_memory *user = malloc(sizeof *user);
    if (!user)
        return tt_fail(TT_ERR_SYSTEM, "out of memory for an entry of %zu bytes", sizeof *user);
    const tt_status status = make(gpu, (nbytes + unit - 1) / unit * unit, user);
    if (status) {
        free(user);
        return status;
    }
    *memory = user->memory;
    tt_process_lock(&lock);
    user->next = first;
    first = user;
    atomic_fetch_add_explicit(&changes, 1, memory_order_relaxed);
    tt_process_unlock(&lock);
    return TT_OK;
}

static struct tt_lent_memory **find_locked(const void *memory)
{
    struct tt_lent_memory **at = &first;
    while (*at && (*at)->memory != memory) at = &(*at)->next;
    return at;
}

bool tt_driver_find_memory(const void *memory, size_t *nbytes)
{
    tt_process_lock_shared(&lock);
    const struct tt_lent_memory *user = *find_locked(memory);
    if (user) *nbytes = user->nbytes;
    tt_process_unlock(&lock);
    return user;
}

/* Relaxed: threads that share memory have an order of their own. */
uint64_t tt_driver_memory_changes(void)
{
    return atomic_load_explicit(&changes, memory_order_relaxed);
}

struct tt_lent_memory *tt_driver_lend(const void *memory)
{
    tt_process_lock(&lock);
    struct tt_lent_memory *user = *find_locked(memory);
    if (user) user->nlent++;
    tt_process_unlock(&lock);
    return user;
}

bool tt_driver_is_freed(const struct tt_lent_memory *lent)
{
    tt_process_lock_shared(&lock);
    const bool is_freed = lent->is_freed;
    tt_process_unlock(&lock);
    return is_freed;
}

void tt_driver_take_back(struct tt_lent_memory *lent)
{
    if (!lent) return;
    tt_process_lock(&lock);
    const bool goes = --lent->nlent == 0 && lent->is_freed;
    nfreed -= goes;
    tt_process_unlock(&lock);
    if (!goes) return;
    tt_context_give(lent->context, lent->memory, lent->nbytes);
    tt_context_drop(lent->context);
    free(lent);
}

static tt_status give_back(struct tt_lent_memory *user)
{
    CUstreamCaptureMode mode;
    tt_status status = tt_context_enter_aside(user->context, &mode);
    if (!status) {
        const CUresult result = user->context->cu->MemFree((CUdeviceptr)(uintptr_t)user->memory);
        tt_context_leave_aside(user->context, mode);
        if (result != CUDA_SUCCESS) status = tt_cuda_fail(result, "cuMemFree");
    }
    tt_context_drop(user->context);
    free(user);
    return status;
}

tt_status tt_driver_free(void *memory)
{
    tt_process_lock(&lock);
    struct tt_lent_memory **at = find_locked(memory), *user = *at;
    if (user) *at = user->next;
    const bool is_lent = user && user->nlent;
    if (is_lent) user->is_freed = true;
    nfreed += is_lent;
    atomic_fetch_add_explicit(&changes, 1, memory_order_relaxed);
    tt_process_unlock(&lock);
    if (!user)
        return tt_fail(TT_ERR_ARGUMENT,
                       "%p was not given by tuttiDeviceMemAlloc, or was freed "
                       "already",
                       memory);
    return is_lent ? TT_OK : give_back(user);
}
