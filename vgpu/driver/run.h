/* What the files that run items share: item.c, executor.c, state.c and the runners. */
#ifndef VGPU_DRIVER_RUN_H
#define VGPU_DRIVER_RUN_H

#include "driver.h"

/* ---- item.c ---- */

/* The item has ended: those that waited for it may begin; drops the executor's reference. */
void vd_item_end(struct vd_item *item, CUresult result);
/* All blocks of the launch have begun, or never will: ends what waits for that. */
void vd_item_begun(struct vd_item *item);
/* The item follows all that host threads know now. */
void vd_item_learn(struct vd_item *item);

/* ---- executor.c ---- */

/* Starts the executor's thread; after vd.settings were read. */
CUresult vd_executor_start(void);
/* Nothing that the item waits for is left: it is one of those that the executor picks from. */
void vd_executor_add(struct vd_item *item);
/* A host thread has called: runs a few steps by the seed while the order is that of the seed. */
void vd_executor_called(void);
/* Runs, or lets the executor's thread run, until the item has ended. */
void vd_executor_wait(struct vd_item *item);
/* The item has ended: wakes those that wait for it. */
void vd_executor_ended(const struct vd_item *item);
/* What waits may go on: memory or the set of items has changed from outside of a step. */
void vd_executor_changed(void);
/* Launches on the item's GPU that were submitted before it and have not ended. */
uint32_t vd_executor_launches_before(const struct vd_item *item);
/* Whether no item is left that has not ended. */
bool vd_executor_idle(void);
/* The process ends: runs what nobody has waited for, for at most `ms`, and less once all of it
 * waits for the host. Host functions do not begin any more. Whether all has ended. */
bool vd_executor_finish(uint32_t ms);
/* Whether the seed alone decides the order of all steps up to now. */
bool vd_executor_replays(void);
/* A call ends: failures of kernels that it has not seen are seen by all later calls. */
void vd_executor_left(void);

/* ---- state.c ---- */

/* Takes the lock; the executor gives it up between two steps. */
void vd_lock(void);
/* vd_lock for at most so many milliseconds. false: somebody else has the lock still. */
bool vd_lock_for(uint32_t ms);
/* Threads that wait for the lock; the executor lets them have it between steps. */
bool vd_callers_wait(void);
/* Gives the lock back and takes it again, so that callers get it in between. */
void vd_give_way(void);
uint64_t vd_now_ns(void);
/* A number that no other thread has or had. */
uint64_t vd_this_thread(void);

/* ---- hostfunc.c ---- */

CUresult vd_hostfunc_start(void); /* its thread */
void vd_hostfunc_stop(void);      /* when no host function was ever submitted */
/* Whether the calling thread runs a host function: it may not call the driver. */
bool vd_hostfunc_inside(void);
/* Host functions that have begun and not ended. */
bool vd_hostfunc_running(void);
/* Frees what the operation of a host function owns that was never called. */
void vd_hostfunc_drop(struct vd_op *op);

/* ---- event.c ---- */

CUresult vd_event_record(CUevent event, CUstream stream, unsigned flags, bool per_thread);

/* ---- launch.c ---- */

/* cuLaunchKernel and its like. started (may be NULL): a new item that ends when all blocks of the
 * launch have begun. */
CUresult vd_launch_submit(const struct vd_shape *shape, CUfunction function, CUstream handle,
                          bool per_thread, void **params, void **extra, struct vd_item *started);

/* Who waits where, for reports. */
void vd_launch_describe(const struct vd_item *item, char *text, size_t nbytes);

#endif
