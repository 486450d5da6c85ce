/* What the files of the virtual libcuda.so.1 share: one driver a process, its objects, and the
 * items of work between which the executor chooses.
 *
 * Everything here is guarded by one lock. An exported function takes the lock by VD_ENTER and gives
 * it back by vd_leave. The executor (executor.c) runs one step of one item at a time, in a thread
 * that calls the driver or in a thread of its own, and always with the lock. So memory model and
 * machine are only used under the lock.
 *
 * Work is a graph of items. An item is an operation (struct vd_op) with the items that must end
 * before it begins. Order in a stream, the legacy stream's order with others, events and the edges
 * of a launched graph are all such edges (item.c); items between which there is no edge run in an
 * order that the seed chooses, and at the same time. */
#ifndef VGPU_DRIVER_H
#define VGPU_DRIVER_H

#pragma GCC visibility push(default)
#include <cuda.h>
#pragma GCC visibility pop
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <vgpu/machine.h>

/* ---- objects: what a handle points to (object.c) ---- */

enum vd_kind {
    VD_CONTEXT = 1,
    VD_MODULE,
    VD_FUNCTION,
    VD_LIBRARY,
    VD_KERNEL,
    VD_STREAM,
    VD_EVENT,
    VD_GRAPH,
    VD_NODE,
    VD_EXEC
};

/* The beginning of every object. Live objects are in one table, so that a handle that was
 * destroyed, or never was one, is told from a live one without reading through it. */
struct vd_object {
    enum vd_kind kind;
    uint64_t number; /* counted over all objects: for reports */
};

void vd_object_add(void *object, enum vd_kind kind);
void vd_object_remove(void *object);
bool vd_object_is(const void *handle, enum vd_kind kind);

/* ---- operations and items (item.c) ---- */

enum vd_what {
    VD_NOTHING, /* joins edges */
    VD_LAUNCH,  /* launch.c */
    VD_COPY,    /* copy.c */
    VD_FILL,    /* copy.c */
    VD_HOST,    /* hostfunc.c: runs on a thread of its own, without the lock */
    VD_WRITE,   /* streamvalue.c: cuStreamWriteValue */
    VD_AWAIT,   /* streamvalue.c: cuStreamWaitValue */
    VD_ALLOC,   /* pool.c: cuMemAllocAsync of a graph; the memory may be used from here on */
    VD_FREE     /* pool.c: cuMemFreeAsync */
};

struct vd_launch {
    struct CUfunc_st *function;
    uint32_t grid[3], block[3], dynamic_shared;
    bool cooperative;
    void *params; /* function's param_bytes bytes, owned by the operation; NULL: none */
};

/* Rows of `width` bytes at `to` and `from`, `height` of them, their beginnings pitch bytes apart,
 * in `depth` slices (0: one). Addresses are those of the unified address space: of a device or of
 * the host. A copy from pageable host memory owns a snapshot of the rows, one behind another, which
 * is freed with the operation. */
struct vd_copy {
    uint64_t to, from;
    uint64_t width, height, to_pitch, from_pitch;
    uint64_t depth, to_slice, from_slice;
    void *snapshot;
};

struct vd_fill {
    uint64_t to, width, height, pitch; /* width in elements */
    uint32_t value;
    uint8_t nbytes; /* of an element: 1, 2, 4 */
};

struct vd_value { /* VD_WRITE, VD_AWAIT */
    uint64_t address, value;
    uint8_t nbytes; /* 4, 8 */
    uint32_t flags; /* CUstreamWriteValue_flags or CUstreamWaitValue_flags */
    bool raise;     /* VD_WRITE: nothing where the word, of 8 bytes, is greater */
};

struct vd_op {
    enum vd_what what;
    bool passes; /* holds up no hardware queue (queue.c), whatever it waits for */
    union {
        struct vd_launch launch;
        struct vd_copy copy;
        struct vd_fill fill;
        struct vd_value value;
        struct {
            CUhostFn function;
            void *arg;
            bool always; /* after a failure too */
        } host;
        uint64_t address; /* VD_ALLOC, VD_FREE */
    };
};

/* A deep copy (parameters, snapshot). false: no memory. */
bool vd_op_clone(struct vd_op *to, const struct vd_op *from);
void vd_op_clear(struct vd_op *op);

enum vd_state { VD_HELD, VD_READY, VD_RUNNING, VD_ENDED };

struct vd_item {
    struct vd_op op;
    struct CUctx_st *context;
    enum vd_state state;
    uint32_t refs;
    uint64_t number;       /* in order of submission: launches and copies in reports */
    uint32_t waits;        /* items before it that have not ended */
    struct vd_item **next; /* that wait for it; a reference each */
    uint32_t nnext, next_room;
    struct vg_past
        *past;       /* before it began: what it begins after; when it has ended: with itself */
    CUresult result; /* when ENDED */
    uint64_t begun_ns, ended_ns;
    /* while it runs */
    struct vg_run *run;          /* of a launch */
    struct vd_item *started;     /* ends when all blocks of the launch have begun; or NULL */
    struct vg_grid_clock *clock; /* of a copy, fill or value: a grid of one thread */
    struct vg_block_clock *block;
    uint64_t done;  /* bytes or elements that a copy or fill has done */
    bool waiting;   /* its last step could not move */
    uint64_t round; /* executor.c: when it looked last */
    bool idle;      /* its last step let it go on, but changed nothing that others could see */
    bool outside;   /* what it waits for may come from the host or another process */
    /* queue.c */
    struct vd_queue *queue; /* in which it counts until it has ended; NULL: in none */
    struct vd_item *behind; /* the next one in the queue: a reference */
    bool queued;            /* it has not been issued */
};

/* A new item with one reference, not submitted; *op is moved into it. NULL: no memory. */
struct vd_item *vd_item_new(struct CUctx_st *context, struct vd_op *op);
/* after begins when before has ended; nothing when before is NULL or has ended (its past is
 * joined). Both not yet submitted, or after not. */
int vd_item_after(struct vd_item *after, struct vd_item *before);
/* All edges are there: the executor may begin it. The executor keeps a reference until it ends. */
void vd_item_submit(struct vd_item *item);
void vd_item_put(struct vd_item *item);
/* The host has waited for what this past knows, or a host function after it runs. */
void vd_host_knows(const struct vg_past *past);
struct vd_item *vd_item_get(struct vd_item *item);
/* Waits, with the lock given back meanwhile, until the item has ended, and adds what it knows to
 * the host's past. Its result. */
CUresult vd_item_wait(struct vd_item *item);

/* What the executor calls for each kind of operation. Step: VG_DONE, VG_MOVED, VG_WAITING or
 * VG_FAULTED, with *text the fault. A step takes at most about a millisecond. */
struct vd_runner {
    CUresult (*begin)(struct vd_item *item, char error[512]);
    enum vg_progress (*step)(struct vd_item *item, CUresult *fault, const char **text);
    void (*end)(struct vd_item *item);
};
extern const struct vd_runner vd_launch_runner, vd_copy_runner, vd_fill_runner, vd_host_runner,
    vd_write_runner, vd_await_runner, vd_alloc_runner, vd_free_runner;

/* ---- streams and events (stream.c, event.c) ---- */

struct CUstream_st {
    struct vd_object object;
    struct CUctx_st *context;
    unsigned flags; /* CU_STREAM_NON_BLOCKING */
    int priority;
    uint32_t queue;             /* while it has work: its hardware queue (queue.c) */
    struct vd_item *last;       /* the item submitted last, or NULL */
    struct vd_capture *capture; /* capture.c; NULL: the stream does not capture */
    struct CUstream_st *next;   /* of the context */
    /* by CUstreamAttrID: given back only */
    CUstreamAttrValue attributes[CU_LAUNCH_ATTRIBUTE_NVLINK_UTIL_CENTRIC_SCHEDULING + 1];
};

struct CUevent_st {
    struct vd_object object;
    struct CUctx_st *context;
    unsigned flags;
    struct vd_item *record;        /* of the last record, or NULL */
    struct vd_capture *capture;    /* recorded last in this capture, or NULL */
    struct CUgraphNode_st **nodes; /* then: the nodes after which it stands */
    uint32_t nnodes;
    struct vd_shared_event *shared; /* ipc_event.c: CU_EVENT_INTERPROCESS; else NULL */
};

/* NULL, CU_STREAM_LEGACY and CU_STREAM_PER_THREAD are resolved; per_thread: the function's name
 * ends in _ptsz. 0, or the error: no such stream, a stream of another context, a context with a
 * sticky error. */
CUresult vd_stream_resolve(CUstream handle, bool per_thread, struct CUstream_st **stream);
/* The one way in which work enters a stream: captured as a node, or made an item with the stream's
 * edges and submitted. *op is moved. *item (may be NULL): the item with a reference, or NULL when
 * it was captured. */
CUresult vd_stream_enqueue(struct CUstream_st *stream, struct vd_op *op, struct vd_item **item);
/* vd_stream_enqueue for an operation that follows all work of these contexts and the stream's, and
 * that all later work of their streams follows (cuMemcpyPeer). Not for a stream that captures. */
CUresult vd_stream_enqueue_alone(struct CUstream_st *stream, struct vd_op *op,
                                 struct CUctx_st *const contexts[2]);
/* Gives item (not submitted) the stream's edges, submits it and makes it the stream's last: for
 * launches of graphs, whose ends are several items. */
CUresult vd_stream_append(struct CUstream_st *stream, struct vd_item *first, struct vd_item *last);

/* The streams of a context begin and end: legacy stream, list. */
CUresult vd_streams_init(struct CUctx_st *context);
void vd_streams_fini(struct CUctx_st *context);
/* Waits until all work of the context has ended, as cuCtxSynchronize does, and as calls do that
 * return only when kernels have ended (cuMemFree, cuModuleUnload, ...). Its error if one failed. */
CUresult vd_context_wait(struct CUctx_st *context);
/* Waits as vd_context_wait does, and holds the driver's lock meanwhile (held.c). */
CUresult vd_context_wait_alone(struct CUctx_st *context);
bool vd_stream_has_work(const struct CUstream_st *stream);

/* Makes a launch of checked shape with its own copy of the arguments, in both forms of
 * cuLaunchKernel. */
struct vd_shape {
    uint32_t grid[3], block[3], dynamic_shared;
    bool cooperative;
};
CUresult vd_launch_make(struct vd_op *op, struct CUctx_st *context, CUfunction function,
                        const struct vd_shape *shape, void **params, void **extra);

/* ---- capture (capture.c) ---- */

/* Adds the operation to the graph that the stream captures. */
CUresult vd_capture_add(struct CUstream_st *stream, struct vd_op *op);
CUresult vd_capture_record(struct CUstream_st *stream, struct CUevent_st *event);
CUresult vd_capture_wait(struct CUstream_st *stream, struct CUevent_st *event);
/* A call that CUDA calls unsafe during capture (cuMemAlloc, cuStreamQuery of another stream, ...)
 * begins: the error by mode and threads, with the captures spoilt, or success. */
CUresult vd_capture_unsafe(void);
/* The legacy stream is used, or waited for, while a blocking stream of the context captures. */
CUresult vd_capture_implicit(struct CUctx_st *context);
/* cuStreamQuery and cuStreamSynchronize of the stream begin: the error, with the captures spoilt,
 * or success. Asks vd_capture_implicit and vd_capture_unsafe itself. */
CUresult vd_capture_waited(struct CUstream_st *stream);
/* cuCtxSynchronize begins: it spoils every capture of the context. */
CUresult vd_capture_synchronize(struct CUctx_st *context);
/* cuEventQuery, cuEventSynchronize and cuEventElapsedTime of the event begin: an event that was
 * recorded last in a capture is an error. Asks vd_capture_unsafe itself. */
CUresult vd_capture_event(struct CUevent_st *event);
/* CU_EVENT_RECORD_EXTERNAL and CU_EVENT_WAIT_EXTERNAL in a stream that captures: a node. */
CUresult vd_capture_external(struct CUstream_st *stream, struct CUevent_st *event, bool wait);
/* The event is recorded outside of a capture, or destroyed: frees its nodes. */
void vd_capture_forget(struct CUevent_st *event);
/* The stream is destroyed. A capture that began in it ends; any other one is spoilt. */
void vd_capture_leave(struct CUstream_st *stream);

/* ---- devices, contexts, modules (device.c, context.c, module.c, library.c) ---- */

enum { VD_DEVICES = 16, VD_LIMITS = 16, VD_MOST_QUEUES = 32 };

/* A hardware queue (queue.c). */
struct vd_queue {
    struct vd_item *last; /* that entered it: a reference; NULL: none ever */
    uint32_t nitems;      /* that have not ended */
    uint32_t nlaunches;   /* that are not issued */
    struct vd_item *room; /* ends when the next launch is issued; NULL: nobody waits for that */
};

struct vd_device {
    struct vg_gpu gpu;
    struct vg_regions regions; /* gpu.regions points here */
    int identity; /* gpu.number is its place among those that CUDA_VISIBLE_DEVICES leaves */
    uint64_t memory, used;    /* bytes */
    struct CUctx_st *primary; /* one for the process, once it was retained */
    unsigned retained, flags;
    unsigned ncontexts;                     /* that are not destroyed */
    bool peers[VD_DEVICES];                 /* VGPU_PEERS: hardware that could */
    int group;                              /* VGPU_TOPOLOGY */
    uint32_t broken;                        /* VGPU_PEER_BROKEN: a bit each GPU of the machine */
    uint64_t flushes;                       /* calls of cuFlushGPUDirectRDMAWrites */
    struct vd_queue queues[VD_MOST_QUEUES]; /* VGPU_QUEUES of them */
};

struct CUctx_st {
    struct vd_object object;
    struct vd_device *device;
    CUresult sticky; /* of a kernel that failed: every later call returns it */
    CUresult failed; /* the same, from the failure on: what work that has not ended gets */
    struct CUstream_st legacy, *streams; /* all streams of the context but the legacy one */
    struct vd_item *alone; /* the last cuMemcpyPeer, which streams that are made later follow */
    struct vg_past *gone;  /* of destroyed blocking streams: the legacy stream goes on after it */
    struct vg_past *gone_apart; /* of other destroyed streams: who waits for the context knows it */
    bool peers[VD_DEVICES];     /* enabled by cuCtxEnablePeerAccess */
    struct CUmod_st *modules;
    struct CUctx_st *next;   /* of all there were */
    bool primary, destroyed; /* never freed: other threads may have it as their current one */
    unsigned long long id;   /* cuCtxGetId: another one each time that it begins */
    unsigned flags;
    uint64_t limits[VD_LIMITS]; /* by CUlimit; that of the stack is the launches' local_limit */
    int cache, shared_config;   /* CUfunc_cache, CUsharedconfig: given back, nothing else */
};

struct CUfunc_st {
    struct vd_object object;
    struct CUmod_st *module;
    const struct vg_function *kernel;
    int max_dynamic_shared, carveout;
    bool asked;            /* a handle was given */
    struct vd_item *after; /* what the first launch waits for, by lazy loading; or NULL */
};

struct CUmod_st {
    struct vd_object object;
    struct CUctx_st *context;
    struct vg_module *module;
    struct vg_image *image;
    struct CUfunc_st *functions; /* one a kernel, in the module's order */
    uint32_t nfunctions;
    struct vd_item *first; /* the first launch of one of its kernels, until it has ended */
    bool launched;
    uint32_t nlaunches; /* that were submitted and have not ended */
    bool unloaded;
    struct CUmod_st *next;
};

/* The function behind a handle of cuLaunchKernel and its like, which may be a CUkernel: then that
 * of the context, loaded if need be. NULL: there is no such function; *result says why. */
struct CUfunc_st *vd_function(CUfunction handle, struct CUctx_st *context, CUresult *result);
/* A launch is about to be submitted: gives it the edge that lazy loading makes. */
void vd_function_submit(struct vd_item *launch);
/* A launch that was submitted has ended. */
void vd_function_ended(const struct vd_item *launch);
/* Kernels of the device can, or can no longer, address the variables of the other one's modules. */
void vd_modules_peer(int device, int other, bool sees);
/* The calling thread's current context; NULL and the error. A context that was destroyed, or has a
 * sticky error, is an error. */
CUresult vd_context(struct CUctx_st **context);

/* ---- memory (address.c, backing.c, memory.c, pool.c, vmm.c, ipc.c, host.c, pointer.c) ---- */

enum vd_memory_kind {
    VD_MEMORY_DEVICE, /* cuMemAlloc, cuMemAllocAsync, a variable of a module */
    VD_MEMORY_VMM,    /* a mapping of a handle */
    VD_MEMORY_IPC,    /* opened from another process */
    VD_MEMORY_HOST,   /* cuMemHostAlloc */
    VD_MEMORY_REGISTERED,
    VD_MEMORY_MANAGED
};

/* A range of the unified address space. region.what and .number say whose it is. Device memory's
 * addresses lie in a reservation that the host cannot read; its bytes lie elsewhere. */
struct vd_memory {
    struct vg_region region;  /* of registered memory: widened to multiples of 16 bytes */
    uint64_t address, nbytes; /* as the program knows it */
    enum vd_memory_kind kind;
    struct CUctx_st *context; /* NULL: of none (VMM, async) */
    int device;               /* that it lies on; of host memory: where it was made */
    unsigned flags;
    uint32_t devices; /* a bit each device whose kernels can address it */
    bool async;       /* cuMemAllocAsync */
    bool graph;       /* of an allocation node: keeps its address while it is freed */
    bool freeing;     /* cuMemFreeAsync was called */
    bool sync_memops;
    uint32_t opened; /* cuIpcOpenMemHandle less cuIpcCloseMemHandle */
    int host_access; /* of a VMM mapping of host memory: what the host may do, by PROT_* */
    uint64_t buffer_id;
    struct vd_backing *backing; /* where the bytes lie; NULL: in the program's own memory */
    void *owner;                /* the VMM handle, the IPC record: by kind */
    struct vd_memory *next;
};

/* The memory that holds the address, or NULL: the address is the host's own, or nobody's. */
struct vd_memory *vd_memory_find(uint64_t address);
/* For vg_image_create's place: an address of nbytes on the device, aligned to 256 at least. */
uint64_t vd_address_take(uint64_t nbytes, uint64_t align);
void vd_address_give(uint64_t address, uint64_t nbytes);
/* Makes the memory known to all devices that can address it (its own; peers that have access; all,
 * for host memory). */
CUresult vd_memory_publish(struct vd_memory *memory);
void vd_memory_withdraw(struct vd_memory *memory);
void vd_peer_enabled(struct CUctx_st *context, struct vd_device *peer);
/* The context is destroyed: its memory is freed. Nothing of it runs any more. */
void vd_context_memory_free(struct CUctx_st *context);

/* What an event of CU_EVENT_INTERPROCESS shares with other processes (ipc_event.c); event.c calls
 * these for an event whose `shared` is not NULL, and create for a new one of that flag. Recording
 * and waiting are operations of a stream: to write, and to await, a word that all can address. */
CUresult vd_shared_event_create(struct CUevent_st *event);
void vd_shared_event_record(struct CUevent_st *event, struct vd_op *op);
void vd_shared_event_wait(struct CUevent_st *event, struct vd_op *op);
bool vd_shared_event_ended(const struct CUevent_st *event);
void vd_shared_event_sleep(struct CUevent_st *event); /* until it has ended; without the lock */
void vd_shared_event_destroy(struct CUevent_st *event);

/* ---- the driver (state.c, settings.c, report.c, executor.c) ---- */

enum vd_driver_lock { VD_LOCK_OFF, VD_LOCK_ON, VD_LOCK_STRICT };

enum vd_dmabuf { VD_DMABUF_ON, VD_DMABUF_UNORDERED, VD_DMABUF_UNFLUSHED, VD_DMABUF_OFF };

struct vd_settings { /* VGPU_*: settings.c has the table, vgpu-info prints it */
    uint64_t seed;
    int devices;
    uint32_t sms, capability;
    uint32_t sm_limit; /* 0: none */
    uint64_t memory;
    bool shuffled_blocks, strict_vectors, check_undefined, model;
    bool peers;
    bool pageable;
    bool leaks;        /* memory that is not freed when the process ends is reported */
    bool reports_fail; /* exit status 86 of a process that made a report */
    enum vg_reads reads;
    enum vd_dmabuf dmabuf;
    enum vd_driver_lock driver_lock;
    uint32_t queues, launches; /* of a process and GPU; that one of them has room for */
    uint32_t depth, late, patience, quantum, spin_limit, stall_ms, idle_ms, exit_ms;
    const char *report;    /* file of JSON, a line a report; NULL: none */
    const char *suppress;  /* file of suppressions; NULL: none */
    const char *counts;    /* file of struct vgpu_counts; NULL: none */
    const char *topology;  /* groups of GPUs; NULL: one */
    const char *broken;    /* pairs of GPUs; NULL: none */
    const char *exclusive; /* file that processes lock: a GPU takes one of them; NULL: all */
    int driver_version;
};

struct vd_driver {
    pthread_mutex_t lock;
    pthread_cond_t work; /* the executor has something to do */
    bool initialized;
    struct vd_settings settings;
    struct vg_machine *machine;
    struct vd_device devices[VD_DEVICES];
    int ndevices;
    struct vd_memory *memories;
    struct vg_past *host_past; /* what the host has waited for: later items begin after it */
    uint64_t objects, items, allocations;
};
extern struct vd_driver vd;

/* Takes the lock, counts the call for the executor's order, and returns CUDA_ERROR_NOT_INITIALIZED
 * before cuInit. */
CUresult vd_enter(void);
CUresult vd_leave(CUresult result);
#define VD_ENTER()                                                                                 \
    do {                                                                                           \
        const CUresult entered_ = vd_enter();                                                      \
        if (entered_ != CUDA_SUCCESS) return vd_leave(entered_);                                   \
    } while (0)
/* VD_ENTER for calls that need the lock which others hold while they wait for kernels (held.c). */
#define VD_ENTER_LOCKED()                                                                          \
    do {                                                                                           \
        VD_ENTER();                                                                                \
        vd_driver_await();                                                                         \
    } while (0)
void vd_driver_await(void);

/* Says on standard error that the function cannot do this. CUDA_ERROR_NOT_SUPPORTED. */
CUresult vd_unsupported(const char *function, const char *what);

/* Declares the variant of a call that a program compiled for per-thread default streams uses: the
 * name with _ptsz or _ptds. */
#define VD_PER_THREAD(variant, call)                                                               \
    extern __attribute__((visibility("default"))) __typeof__(call) variant

/* The name that programs of before a call's version 2 use. */
#define VD_ALIAS(name, call)                                                                       \
    extern __attribute__((visibility("default"), alias(#call))) __typeof__(call) name

/* Reads the settings (settings.c), makes machine, devices (device.c) and threads: what cuInit does.
 * Called with the lock. */
CUresult vd_start(void);
CUresult vd_devices_start(void);
/* A context of the device begins, or has ended. VGPU_EXCLUSIVE: CUDA_ERROR_DEVICE_UNAVAILABLE where
 * another process has one. */
CUresult vd_device_enter(struct vd_device *device);
void vd_device_exit(struct vd_device *device);

/* A report: printed on standard error, and to VGPU_REPORT as JSON; with the seed. kind: "race",
 * "fault", "deadlock", "stall", "leak". Suppressions find kernels and places in the text. */
void vd_report(const char *kind, const char *text);

#endif
