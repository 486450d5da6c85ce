/* The way of a copy or fill from its function into a stream. */
#ifndef VGPU_DRIVER_COPIES_H
#define VGPU_DRIVER_COPIES_H

#include "memory_internal.h"

/* What an address of a copy may be: memory that CUDA knows, or plain host memory as well. */
enum vd_side { VD_DEVICE, VD_ANY };

struct vd_way {
    CUstream stream;
    bool per_thread; /* NULL is the thread's own stream */
    bool async;      /* the function's name ends in Async */
    /* of cuMemcpyPeer and cuMemcpy3DPeer: both */
    CUcontext to_context, from_context;
};

/* Enters the driver, checks and enqueues the copy, and waits for it where its function does. */
CUresult vd_copy_run(const struct vd_copy *copy, enum vd_side to, enum vd_side from,
                     const struct vd_way *way);
/* Both are contexts. */
bool vd_contexts_exist(CUcontext one, CUcontext other);

#endif
