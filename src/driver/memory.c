/* Memory of contexts. It is filled and copied on the context's own stream, which waits for no other
 * stream.
 *
 * The driver's functions that free memory return only when no kernel of the context runs, and a
 * kernel may wait for a rank that the calling thread has yet to serve. So memory that was freed is
 * kept and used again; the driver gets it back with the context's last user, or when it has no
 * other memory. Memory of other processes, which nobody can use again, is closed earlier: when a
 * communicator begins or ends, or a peer has taken back what it offered, and no work of the library
 * is on the GPU (tt_context_let_go). */
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/private_fd.h"
#include "base/process_lock.h"
#include "driver/context_internal.h"
#include "driver/driver.h"

enum kind {
    ON_DEVICE,
    ON_HOST,
    LASTING,
    OF_OTHERS,
    OF_USERS, /* freed by the user; other processes had it open then */
    NKINDS
};

/* One allocation of the driver's, or one opening of another process's memory. */
struct tt_held {
    struct tt_held *next;
    enum kind kind;
    void *memory;
    size_t nbytes;
    bool is_used;
};

/* Guards the lists of all contexts. */
static struct tt_process_lock lock = TT_PROCESS_LOCK;

/* ---- What the driver is asked for, in the context -------------------------------------------- */

static CUresult allocate_on_device(const struct tt_cuda *cu, void **memory, size_t nbytes)
{
    CUdeviceptr made = 0;
    const CUresult result = cu->MemAlloc(&made, nbytes);
    *memory = (void *)(uintptr_t)made;
    return result;
}

/* A forked child does not have it: else the system would give the parent other pages at its next
 * store, and the GPU would keep the old ones. */
static CUresult register_own(const struct tt_cuda *cu, void **memory, size_t nbytes)
{
    void *own = mmap(NULL, nbytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (own == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result =
        madvise(own, nbytes, MADV_DONTFORK) ? CUDA_ERROR_OPERATING_SYSTEM : CUDA_SUCCESS;
    if (result == CUDA_SUCCESS)
        result = cu->MemHostRegister(own, nbytes,
                                     CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP);
    if (result == CUDA_SUCCESS)
        *memory = own;
    else
        munmap(own, nbytes);
    return result;
}

static CUresult allocate(const struct tt_cuda *cu, enum kind kind, void **memory, size_t nbytes)
{
    if (kind == ON_DEVICE) return allocate_on_device(cu, memory, nbytes);
    if (kind == LASTING) return register_own(cu, memory, nbytes);
    return cu->MemHostAlloc(memory, nbytes, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP);
}

/* After a reset of the GPU nothing is registered any more. Where the driver refuses, the memory
 * stays mapped: the driver would take a later mapping at these addresses for the registered one. */
static CUresult unregister_own(const struct tt_cuda *cu, const struct tt_held *held)
{
    const CUresult result = cu->MemHostUnregister(held->memory);
    if (result != CUDA_SUCCESS && result != CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED) return result;
    munmap(held->memory, held->nbytes);
    return CUDA_SUCCESS;
}

static void give_back(const struct tt_cuda *cu, const struct tt_held *held)
{
    static const char *const calls[NKINDS] = {"cuMemFree", "cuMemFreeHost", "cuMemHostUnregister",
                                              "cuIpcCloseMemHandle", "cuMemFree"};
    const CUdeviceptr address = (CUdeviceptr)(uintptr_t)held->memory;
    const CUresult result = held->kind == ON_HOST     ? cu->MemFreeHost(held->memory)
                            : held->kind == LASTING   ? unregister_own(cu, held)
                            : held->kind == OF_OTHERS ? cu->IpcCloseMemHandle(address)
                                                      : cu->MemFree(address);
    if (result != CUDA_SUCCESS) tt_ignore(tt_cuda_fail(result, calls[held->kind]));
}

static tt_status fill(struct tt_context *context, enum kind kind, void *memory, size_t nbytes)
{
    if (kind == ON_HOST || kind == LASTING) {
        memset(memory, 0, nbytes);
        return TT_OK;
    }
    TT_CUDA_TRY(context->cu, MemsetD8Async, (CUdeviceptr)(uintptr_t)memory, 0, nbytes,
                context->stream);
    TT_CUDA_TRY(context->cu, StreamSynchronize, context->stream);
    return TT_OK;
}

static tt_status fail_on_host(CUresult result, size_t nbytes)
{
    if (result != CUDA_ERROR_OUT_OF_MEMORY) return tt_cuda_fail(result, "cuMemHostAlloc");
    return tt_fail(TT_ERR_SYSTEM, "out of memory for %zu bytes of pinned host memory", nbytes);
}

tt_status tt_context_fail_allocation(struct tt_context *context, CUresult result, size_t nbytes)
{
    size_t available = 0, total = 0;
    if (result != CUDA_ERROR_OUT_OF_MEMORY) return tt_cuda_fail(result, "cuMemAlloc");
    context->cu->MemGetInfo(&available, &total);
    return tt_fail(TT_ERR_SYSTEM,
                   "GPU %d is out of memory: %zu bytes were asked for, %zu of %zu are free",
                   context->gpu, nbytes, available, total);
}

/* ---- The list ------------------------------------------------------------------------------- */

static void enlist(struct tt_context *context, struct tt_held *held)
{
    tt_process_lock(&lock);
    held->next = context->held;
    context->held = held;
    tt_process_unlock(&lock);
}

/* Memory that nobody uses and that is not much larger; NULL: there is none. */
static struct tt_held *take(struct tt_context *context, enum kind kind, size_t nbytes)
{
    struct tt_held *best = NULL;
    tt_process_lock(&lock);
    for (struct tt_held *held = context->held; held; held = held->next)
        if (held->kind == kind && !held->is_used && held->nbytes >= nbytes &&
            held->nbytes / 2 <= nbytes && (!best || held->nbytes < best->nbytes))
            best = held;
    if (best) best->is_used = true;
    tt_process_unlock(&lock);
    return best;
}

static void put(struct tt_context *context, const void *memory)
{
    if (!memory) return;
    tt_process_lock(&lock);
    struct tt_held *held = context->held;
    while (held && (held->memory != memory || !held->is_used)) held = held->next;
    if (held) held->is_used = false;
    tt_process_unlock(&lock);
}

/* FOREIGN: UNUSED of these that is not the context's own. */
enum which { ALL, UNUSED, FOREIGN };

static bool is_kept(const struct tt_held *held, enum which which)
{
    return which != ALL && (held->is_used || (which == FOREIGN && held->kind != OF_OTHERS &&
                                              held->kind != OF_USERS));
}

/* Takes these off the context's list. */
static struct tt_held *unlist(struct tt_context *context, enum which which)
{
    struct tt_held *unlisted = NULL;
    tt_process_lock(&lock);
    context->nreleases++;
    for (struct tt_held **link = &context->held; *link;) {
        struct tt_held *held = *link;
        if (is_kept(held, which)) {
            link = &held->next;
            continue;
        }
        *link = held->next;
        held->next = unlisted;
        unlisted = held;
    }
    tt_process_unlock(&lock);
    return unlisted;
}

static void end_release(struct tt_context *context)
{
    tt_process_lock(&lock);
    context->nreleases--;
    tt_process_unlock(&lock);
}

/* In the context. May wait for kernels. */
static void release(struct tt_context *context, enum which which)
{
    struct tt_held *held = unlist(context, which), *next;
    for (; held; held = next) {
        next = held->next;
        give_back(context->cu, held);
        free(held);
    }
    end_release(context);
}

bool tt_context_release_foreign(struct tt_context *context,
                                bool (*goes_on)(struct tt_context *context))
{
    struct tt_held *held = unlist(context, FOREIGN), *next;
    for (; held && goes_on(context); held = next) {
        next = held->next;
        give_back(context->cu, held);
        free(held);
    }
    const bool all = !held;
    for (; held; held = next) {
        next = held->next;
        enlist(context, held);
    }
    end_release(context);
    return all;
}

void tt_context_forget_memory(struct tt_context *context, bool all)
{
    const bool is_reset = atomic_load_explicit(&context->is_reset, memory_order_relaxed);
    struct tt_held *held = unlist(context, all ? ALL : UNUSED), *next;
    for (; held; held = next) {
        next = held->next;
        if (held->kind == LASTING && is_reset) munmap(held->memory, held->nbytes);
        free(held);
    }
    end_release(context);
}

void tt_context_release_memory(struct tt_context *context, bool all)
{
    release(context, all ? ALL : UNUSED);
}

/* In the context. */
static tt_status make(struct tt_context *context, enum kind kind, size_t nbytes,
                      struct tt_held **out)
{
    struct tt_held *held = calloc(1, sizeof *held);
    if (!held)
        return tt_fail(TT_ERR_SYSTEM, "out of memory for an entry of %zu bytes", sizeof *held);
    *held = (struct tt_held){.kind = kind, .nbytes = nbytes, .is_used = true};
    CUresult result = allocate(context->cu, kind, &held->memory, nbytes);
    if (result == CUDA_ERROR_OUT_OF_MEMORY) {
        release(context, UNUSED);
        result = allocate(context->cu, kind, &held->memory, nbytes);
    }
    if (kind == LASTING && result != CUDA_SUCCESS) { /* not every system allows it */
        held->kind = ON_HOST;
        result = allocate(context->cu, ON_HOST, &held->memory, nbytes);
    }
    if (result != CUDA_SUCCESS) {
        free(held);
        return kind != ON_DEVICE ? fail_on_host(result, nbytes)
                                 : tt_context_fail_allocation(context, result, nbytes);
    }
    enlist(context, held);
    *out = held;
    return TT_OK;
}

static tt_status take_or_make(struct tt_context *context, enum kind kind, size_t nbytes,
                              bool zeroed, void **memory)
{
    CUstreamCaptureMode mode;
    struct tt_held *held = take(context, kind, nbytes);
    tt_status status = tt_context_enter_aside(context, &mode);
    if (!status) {
        if (!held) status = make(context, kind, nbytes, &held);
        if (!status && zeroed) status = fill(context, kind, held->memory, nbytes);
        tt_context_leave_aside(context, mode);
    }
    if (!status)
        *memory = held->memory;
    else if (held)
        put(context, held->memory);
    return status;
}

/* ---- Memory of the context ------------------------------------------------------------------ */

tt_status tt_context_allocate(struct tt_context *context, size_t nbytes, void **memory)
{
    return take_or_make(context, ON_DEVICE, nbytes, true, memory);
}

tt_status tt_context_allocate_unset(struct tt_context *context, size_t nbytes, void **memory)
{
    return take_or_make(context, ON_DEVICE, nbytes, false, memory);
}

void tt_context_free(struct tt_context *context, void *memory)
{
    put(context, memory);
}

tt_status tt_context_allocate_host(struct tt_context *context, size_t nbytes, void **memory)
{
    return take_or_make(context, ON_HOST, nbytes, true, memory);
}

static bool takes_own_memory(const struct tt_context *context)
{
    int same = 0;
    return context->cu->DeviceGetAttribute(
               &same, CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM,
               context->device) == CUDA_SUCCESS &&
           same;
}

tt_status tt_context_allocate_lasting(struct tt_context *context, size_t nbytes, void **memory)
{
    return take_or_make(context, takes_own_memory(context) ? LASTING : ON_HOST, nbytes, true,
                        memory);
}

void tt_context_free_host(struct tt_context *context, void *memory)
{
    put(context, memory);
}

tt_status tt_context_upload(struct tt_context *context, void *to, const void *from, size_t nbytes)
{
    CUstreamCaptureMode mode;
    if (nbytes == 0) return TT_OK;
    TT_TRY(tt_context_enter_aside(context, &mode));
    const char *call = "cuMemcpyHtoDAsync";
    CUresult result =
        context->cu->MemcpyHtoDAsync((CUdeviceptr)(uintptr_t)to, from, nbytes, context->stream);
    if (result == CUDA_SUCCESS) {
        call = "cuStreamSynchronize";
        result = context->cu->StreamSynchronize(context->stream);
    }
    tt_context_leave_aside(context, mode);
    return result == CUDA_SUCCESS ? TT_OK : tt_cuda_fail(result, call);
}

/* ---- Memory of other GPUs and processes ------------------------------------------------------ */

static CUresult enable_access(struct tt_context *context, CUdevice device)
{
    CUcontext other;
    tt_low_fd_hold();
    CUresult result = context->cu->DevicePrimaryCtxRetain(&other, device);
    (void)tt_low_fd_release(-1);
    if (result != CUDA_SUCCESS) return result;
    result = context->cu->CtxEnablePeerAccess(other, 0);
    context->cu->DevicePrimaryCtxRelease(device);
    return result == CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED ? CUDA_SUCCESS : result;
}

tt_status tt_context_check_peer(const struct tt_context *context, int gpu)
{
    if (gpu == context->gpu || tt_driver_peers(context->gpu, gpu)) return TT_OK;
    return tt_fail(
        TT_ERR_USAGE,
        "GPU %d cannot access the memory of GPU %d: the driver has no peer access between "
        "them",
        context->gpu, gpu);
}

tt_status tt_context_reach(struct tt_context *context, int gpu)
{
    CUdevice device;
    TT_TRY(tt_cuda_device(gpu, &device));
    if (gpu == context->gpu) return TT_OK;
    TT_TRY(tt_context_check_peer(context, gpu));
    TT_TRY(tt_context_enter(context));
    const CUresult result = enable_access(context, device);
    tt_context_leave(context);
    return result == CUDA_SUCCESS ? TT_OK : tt_cuda_fail(result, "cuCtxEnablePeerAccess");
}

tt_status tt_context_share(struct tt_context *context, void *memory,
                           uint8_t handle[TT_CONTEXT_HANDLE])
{
    CUipcMemHandle made;
    CUstreamCaptureMode mode;
    _Static_assert(sizeof made == TT_CONTEXT_HANDLE, "a handle is the driver's");
    TT_TRY(tt_context_enter_aside(context, &mode));
    const CUresult result = context->cu->IpcGetMemHandle(&made, (CUdeviceptr)(uintptr_t)memory);
    tt_context_leave_aside(context, mode);
    if (result != CUDA_SUCCESS) return tt_cuda_fail(result, "cuIpcGetMemHandle");
    memcpy(handle, &made, sizeof made);
    return TT_OK;
}

bool tt_context_has_foreign(const struct tt_context *context)
{
    tt_process_lock_shared(&lock);
    const struct tt_held *held = context->held;
    while (held && is_kept(held, FOREIGN)) held = held->next;
    const bool has = held || context->nreleases;
    tt_process_unlock(&lock);
    return has;
}

/* In the context. */
static tt_status open_shared(struct tt_context *context, const uint8_t handle[TT_CONTEXT_HANDLE],
                             void **memory)
{
    CUipcMemHandle theirs;
    CUdeviceptr opened = 0;
    memcpy(&theirs, handle, sizeof theirs);
    const unsigned flags = CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS;
    const CUresult result = context->cu->IpcOpenMemHandle(&opened, theirs, flags);
    /* It was closed, and the driver still has it. */
    if (result == CUDA_ERROR_ALREADY_MAPPED) return TT_IN_PROGRESS;
    if (result == CUDA_ERROR_PEER_ACCESS_UNSUPPORTED)
        return tt_fail(
            TT_ERR_USAGE,
            "GPU %d cannot access the memory of a GPU of another process: the driver has "
            "no peer access between them",
            context->gpu);
    if (result != CUDA_SUCCESS) return tt_cuda_fail(result, "cuIpcOpenMemHandle");
    *memory = (void *)(uintptr_t)opened;
    return TT_OK;
}

tt_status tt_context_try_open(struct tt_context *context, const uint8_t handle[TT_CONTEXT_HANDLE],
                              void **memory)
{
    struct tt_held *held = calloc(1, sizeof *held);
    if (!held)
        return tt_fail(TT_ERR_SYSTEM, "out of memory for an entry of %zu bytes", sizeof *held);
    *held = (struct tt_held){.kind = OF_OTHERS, .is_used = true};
    CUstreamCaptureMode mode;
    tt_status status = tt_context_enter_aside(context, &mode);
    if (!status) {
        status = open_shared(context, handle, &held->memory);
        tt_context_leave_aside(context, mode);
    }
    if (status) {
        free(held);
        return status;
    }
    *memory = held->memory;
    enlist(context, held);
    return TT_OK;
}

void tt_context_close_shared(struct tt_context *context, void *memory)
{
    put(context, memory);
}

/* Without memory for the entry it goes back with the process. */
void tt_context_give(struct tt_context *context, void *memory, size_t nbytes)
{
    struct tt_held *held = calloc(1, sizeof *held);
    if (!held) return;
    *held = (struct tt_held){.kind = OF_USERS, .memory = memory, .nbytes = nbytes};
    enlist(context, held);
}

tt_status tt_context_copy_before(struct tt_context *context, void *stream,
                                 const struct tt_context_copy *copies)
{
    if (!copies) return TT_OK;
    for (; copies; copies = copies->next)
        TT_TRY(tt_context_stream_copy(context, context->stream, copies->to, copies->from,
                                      copies->nbytes));
    return tt_context_stream_follow(context, stream, context->stream);
}
