/* cuIpc*MemHandle: device memory for other processes.
 *
 * A handle names a memfd of the process that made it: its pid, when that process began, the
 * descriptor's number and the memory's random id. Another process opens /proc/PID/fd/N, for which
 * it needs the same rights as for ptrace (the same user, usually), and compares the id with the
 * label in the memfd. Nothing has a name in a file system, so nothing is left when processes are
 * killed. Who has opened the memory keeps it when its owner frees it or dies. A handle whose owner
 * has died or freed the memory can no longer be opened: CUDA_ERROR_INVALID_HANDLE. */
#include "ipc.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char handle_magic[8] = "vgpuipc1";

static uint32_t sum_of(struct vd_ipc_handle handle)
{
    uint32_t sum = 2166136261u;
    handle.check = 0;
    for (size_t i = 0; i < sizeof handle; i++)
        sum = (sum ^ ((const unsigned char *)&handle)[i]) * 16777619u;
    return sum;
}

/* When the process began; 0: there is none, or it has ended. */
static uint64_t began_at(int pid)
{
    char path[64], text[1024];
    uint64_t ticks = 0;
    char state = 'Z';
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    FILE *file = fopen(path, "re");
    if (file == NULL) return 0;
    const size_t n = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[n] = 0;
    const char *rest = strrchr(text, ')'); /* the name before may hold anything */
    if (rest == NULL ||
        sscanf(rest,
               ") %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d "
               "%*d %" SCNu64,
               &state, &ticks) != 2)
        return 0;
    return state == 'Z' || state == 'X' ? 0 : ticks;
}

CUresult vd_ipc_make(struct vd_backing *backing, enum vd_share kind, void *to)
{
    const CUresult result = vd_backing_share(backing, kind);
    if (result != CUDA_SUCCESS) return result;
    struct vd_ipc_handle handle = {.kind = kind,
                                   .pid = getpid(),
                                   .fd = backing->fd,
                                   .began = began_at(getpid()),
                                   .id = {backing->id[0], backing->id[1]},
                                   .nbytes = backing->nbytes};
    memcpy(handle.magic, handle_magic, sizeof handle.magic);
    handle.check = sum_of(handle);
    memcpy(to, &handle, sizeof handle);
    return CUDA_SUCCESS;
}

/* The memfd that the handle names; -1 and why. The name is looked at first: opening something else,
 * a device for instance, could do harm. */
static int open_file(const struct vd_ipc_handle *handle, const char **why, CUresult *result)
{
    static const char name[] = "/memfd:tutti vgpu memory";
    char path[64], target[64];
    *result = CUDA_ERROR_INVALID_HANDLE;
    *why = "the process that made the handle has ended, or is in another PID namespace";
    if (began_at(handle->pid) != handle->began) return -1;
    snprintf(path, sizeof path, "/proc/%d/fd/%d", handle->pid, handle->fd);
    const ssize_t n = readlink(path, target, sizeof target);
    if (n < 0 && errno != ENOENT) {
        *result = CUDA_ERROR_MAP_FAILED;
        *why =
            "this process has no right to open descriptors of the one that made the handle: they "
            "need the same user, and no stricter limits than ptrace's";
        return -1;
    }
    *why = "the memory was freed";
    if (n < (ssize_t)(sizeof name - 1) || memcmp(target, name, sizeof name - 1) != 0) return -1;
    const int fd = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) *why = strerror(errno);
    return fd;
}

CUresult vd_ipc_open(const void *from, enum vd_share kind, const char *function,
                     struct vd_backing **backing)
{
    struct vd_ipc_handle handle;
    const char *why = "the bytes are not a handle that this driver has made";
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    memcpy(&handle, from, sizeof handle);
    if (memcmp(handle.magic, handle_magic, sizeof handle.magic) != 0 || handle.pid <= 0 ||
        handle.fd < 0 || handle.check != sum_of(handle))
        goto failed;
    why = "the handle is of another kind: of memory, or of an event";
    if (handle.kind != (uint32_t)kind) goto failed;
    if (handle.pid == getpid() && handle.began == began_at(getpid()))
        return CUDA_ERROR_INVALID_CONTEXT;
    const int fd = open_file(&handle, &why, &result);
    if (fd < 0) goto failed;
    result = vd_backing_open(fd, kind, handle.id, backing, &why);
    close(fd);
    if (result == CUDA_SUCCESS) return result;
failed:
    vd_say("%s: %s (process %d, descriptor %d)", function, why, (int)handle.pid, (int)handle.fd);
    return result;
}

CUresult cuIpcGetMemHandle(CUipcMemHandle *pHandle, CUdeviceptr dptr)
{
    struct CUctx_st *context;
    VD_ENTER();
    CUresult result = vd_context(&context);
    if (result != CUDA_SUCCESS) return vd_leave(result);
    struct vd_memory *memory = vd_memory_find(dptr);
    if (pHandle == NULL || memory == NULL || memory->kind != VD_MEMORY_DEVICE || memory->async ||
        memory->backing == NULL)
        return vd_leave(CUDA_ERROR_INVALID_VALUE);
    result = vd_ipc_make(memory->backing, VD_SHARE_IPC, pHandle);
    if (result == CUDA_SUCCESS) vd_memory_reachable(memory);
    return vd_leave(result);
}

/* Memory that the context has opened already. */
static struct vd_memory *find_opened(const struct CUctx_st *context,
                                     const struct vd_backing *backing)
{
    for (struct vd_memory *m = vd.memories; m != NULL; m = m->next)
        if (m->kind == VD_MEMORY_IPC && m->context == context && m->backing == backing) return m;
    return NULL;
}

/* Takes the reference to the backing. */
static CUresult publish(struct CUctx_st *context, struct vd_backing *backing,
                        struct vd_memory **memory)
{
    const uint64_t address = vd_address_take(backing->nbytes, VD_GRANULE);
    struct vd_memory *made = address == 0 ? NULL
                                          : vd_memory_new(VD_MEMORY_IPC, address, backing->nbytes,
                                                          "memory of another process");
    if (made == NULL) {
        vd_backing_put(backing);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    made->context = context;
    made->device = made->region.device = backing->device;
    made->backing = backing;
    made->region.bytes = backing->bytes;
    made->region.reachable = true;
    made->opened = 1;
    const CUresult result = vd_memory_publish(made);
    if (result != CUDA_SUCCESS) {
        vd_address_give(address, backing->nbytes);
        vd_memory_drop(made);
        return result;
    }
    *memory = made;
    return CUDA_SUCCESS;
}

CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *pdptr, CUipcMemHandle handle, unsigned int Flags)
{
    struct CUctx_st *context;
    struct vd_backing *backing;
    VD_ENTER();
    CUresult result = vd_context(&context);
    if (result != CUDA_SUCCESS) return vd_leave(result);
    if (pdptr == NULL || (Flags & ~(unsigned)CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) != 0)
        return vd_leave(CUDA_ERROR_INVALID_VALUE);
    result = vd_ipc_open(&handle, VD_SHARE_IPC, __func__, &backing);
    if (result != CUDA_SUCCESS) return vd_leave(result);
    const int device = context->device->gpu.number;
    const bool is_peer =
        backing->device == VD_HIDDEN ? vd.settings.peers : context->device->peers[backing->device];
    if (device != backing->device && !is_peer) {
        vd_say("%s: GPU %d has no peer access to GPU %d of the machine, where the memory lies",
               __func__, device, backing->identity);
        vd_backing_put(backing);
        return vd_leave(CUDA_ERROR_PEER_ACCESS_UNSUPPORTED);
    }
    struct vd_memory *memory = find_opened(context, backing);
    if (memory != NULL) {
        memory->opened++;
        vd_backing_put(backing);
    } else {
        result = publish(context, backing, &memory);
    }
    if (result == CUDA_SUCCESS) *pdptr = memory->address;
    return vd_leave(result);
}

CUresult cuIpcCloseMemHandle(CUdeviceptr dptr)
{
    struct CUctx_st *context;
    VD_ENTER();
    CUresult result = vd_context(&context);
    if (result != CUDA_SUCCESS) return vd_leave(result);
    struct vd_memory *memory = vd_memory_find(dptr);
    if (memory == NULL || memory->kind != VD_MEMORY_IPC || memory->address != dptr ||
        memory->opened == 0)
        return vd_leave(CUDA_ERROR_INVALID_VALUE);
    if (--memory->opened > 0) return vd_leave(CUDA_SUCCESS);
    result = vd_context_wait(memory->context);
    /* Another thread may have opened it again, or ended the context, meanwhile. */
    memory = vd_memory_find(dptr);
    if (memory != NULL && memory->kind == VD_MEMORY_IPC && memory->opened == 0)
        vd_memory_release(memory);
    return vd_leave(result);
}
