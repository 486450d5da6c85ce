/* Handles that another process opens: where a memfd of this process is found. */
#ifndef VGPU_DRIVER_IPC_H
#define VGPU_DRIVER_IPC_H

#include "memory_internal.h"

/* The 64 bytes of CUipcMemHandle and CUipcEventHandle. */
struct vd_ipc_handle {
    char magic[8];
    uint32_t kind; /* enum vd_share */
    int32_t pid, fd;
    uint32_t check; /* of all other fields: tells garbage */
    uint64_t began; /* when the process began, in ticks since the system did */
    uint64_t id[2], nbytes;
    uint64_t unused;
};
_Static_assert(sizeof(struct vd_ipc_handle) == CU_IPC_HANDLE_SIZE, "a handle has 64 bytes");

/* Shares the backing and writes its handle. */
CUresult vd_ipc_make(struct vd_backing *backing, enum vd_share kind, void *handle);
/* Opens what the handle of another process names; says on standard error what was wrong. */
CUresult vd_ipc_open(const void *handle, enum vd_share kind, const char *function,
                     struct vd_backing **backing);

#endif
