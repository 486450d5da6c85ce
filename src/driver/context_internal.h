/* What context.c, export.c, let_go.c and memory.c share. Compiled only where the build found CUDA's
 * header. */
#ifndef TT_DRIVER_CONTEXT_INTERNAL_H
#define TT_DRIVER_CONTEXT_INTERNAL_H

#include "driver/context.h"
#include "driver/cuda.h"

enum { TT_MOST_EVENTS = 16 };

struct tt_held;

/* Freed with its last user. */
struct tt_context {
    _Atomic bool is_reset; /* tt_context_is_reset */
    /* immutable once listed */
    const struct tt_cuda *cu;
    int gpu;
    CUdevice device;
    bool exports; /* the driver exports memory of the GPU as a dma-buf */
    /* guarded by the lock of context.c */
    int nusers, nholders; /* opens and holds that are not closed and dropped */
    struct tt_context *next;
    /* Immutable while there is a user. After the last one the program may reset the GPU
     * (cudaDeviceReset), also while streams are kept, which hold the context. */
    CUcontext handle;
    unsigned long long id; /* of the handle's context, as another may get the handle; 0: unknown */
    /* Immutable while there is a user; else NULL */
    CUstream stream; /* for fills and copies */
    int nevents;     /* that nobody uses at present */
    CUevent events[TT_MOST_EVENTS];
    /* guarded by the lock of memory.c */
    struct tt_held *held; /* memory that this process has from the driver */
    int nreleases;        /* threads that give back some of it, which is not in the list any more */
    /* guarded by the lock of users in let_go.c */
    struct tt_context_user *users;
    /* guarded by the lock of work in let_go.c */
    int nbeginning;    /* threads that begin work */
    bool is_closing;   /* a thread closes memory of others */
    int64_t passes_ns; /* of that: from when on work begins all the same */
};

/* Holds the context as tt_context_hold does, if it is open. */
bool tt_context_find(int gpu, struct tt_context **context);

/* As tt_context_enter, and the calls that follow do not spoil the capture of a stream, which the
 * driver would otherwise prevent by an error. */
TT_NODISCARD tt_status tt_context_enter_aside(struct tt_context *context,
                                              CUstreamCaptureMode *mode);
void tt_context_leave_aside(struct tt_context *context, CUstreamCaptureMode mode);

/* Whether the driver exports memory of the GPU as a dma-buf. */
bool tt_context_ask_exports(const struct tt_cuda *cu, CUdevice device);

/* In the context: cuMemAlloc has failed. Returns TT_ERR_SYSTEM where there is no memory. */
tt_status tt_context_fail_allocation(struct tt_context *context, CUresult result, size_t nbytes);

/* Leaves memory of cuMemAlloc, which nobody uses, to the context: tt_context_let_go and
 * tt_context_release_memory give it back to the driver. */
void tt_context_give(struct tt_context *context, void *memory, size_t nbytes);

/* In the context: gives memory back to the driver: all of it, or what nobody uses. */
void tt_context_release_memory(struct tt_context *context, bool all);
/* Opens memory of another process. IN_PROGRESS: it was closed, and the driver still has it. */
TT_NODISCARD tt_status tt_context_try_open(struct tt_context *context,
                                           const uint8_t handle[TT_CONTEXT_HANDLE], void **memory);
/* In the context: closes memory of other processes that nobody uses, and gives back what was lent
 * to them, one after the other while goes_on. False: some is left. */
bool tt_context_release_foreign(struct tt_context *context,
                                bool (*goes_on)(struct tt_context *context));
/* Whether there is any; what another thread gives back at present counts. */
bool tt_context_has_foreign(const struct tt_context *context);
/* As tt_context_release_memory, where the context cannot be entered: the driver has ended it with
 * all that it had, or refuses, and then memory that is registered stays mapped. */
void tt_context_forget_memory(struct tt_context *context, bool all);

#endif
