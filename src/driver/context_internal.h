/* What context.c and memory.c share. Compiled only where the build found CUDA's header. */
#ifndef TT_DRIVER_CONTEXT_INTERNAL_H
#define TT_DRIVER_CONTEXT_INTERNAL_H

#include "driver/context.h"
#include "driver/cuda.h"

enum { TT_MOST_EVENTS = 16 };

struct tt_held;

/* Freed with its last user. */
struct tt_context {
    /* immutable once listed */
    const struct tt_cuda *cu;
    int gpu;
    CUdevice device;
    CUcontext handle;
    CUstream stream; /* for fills and copies */
    /* guarded by the lock of context.c */
    int nusers;
    struct tt_context *next;
    int nevents; /* that nobody uses at present */
    CUevent events[TT_MOST_EVENTS];
    /* guarded by the lock of memory.c */
    struct tt_held *held; /* memory that this process has from the driver */
};

/* As tt_context_enter, and the calls that follow do not spoil the capture of a stream, which the
 * driver would otherwise prevent by an error. */
TT_NODISCARD tt_status tt_context_enter_aside(struct tt_context *context,
                                              CUstreamCaptureMode *mode);
void tt_context_leave_aside(struct tt_context *context, CUstreamCaptureMode mode);

/* In the context, which has no user any more: gives the memory back to the driver. */
void tt_context_release_memory(struct tt_context *context);

#endif
