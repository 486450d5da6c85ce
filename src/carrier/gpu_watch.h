/* Finds lost GPUs. A thread that watches deadlines, deaths and aborts must not call the driver,
 * which may wait inside any call for kernels that wait for that thread. So a thread of its own asks
 * the driver, when somebody wants to know: it may hang there, and harms nobody. One thread a
 * process and GPU, which begins with the first user and ends with the last one.
 *
 * A lost GPU is found within 2 ms of the first question, if the driver answers; else never, and the
 * deadline of the call ends it.
 *
 * The thread also has tasks: what else must call the driver from time to time, though the call may
 * wait for kernels. Meanwhile nobody asks whether the GPU is lost. */
#ifndef TT_CARRIER_GPU_WATCH_H
#define TT_CARRIER_GPU_WATCH_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

struct tt_context;
struct tt_engine;
struct tt_fabric;
struct tt_work;
struct tt_gpu_watch;

/* SYSTEM: no thread can be started. */
TT_NODISCARD tt_status tt_gpu_watch_get(struct tt_context *context, struct tt_gpu_watch **watch);
/* NULL is allowed. The last one waits until the thread has come back from the driver: then the
 * program may reset the GPU, whose context the watch does not use any more. So put belongs among
 * calls of the driver, which may wait as long. */
void tt_gpu_watch_put(struct tt_gpu_watch *watch);
/* Never waits. Asks the driver, if nobody has for a while; TT_OK, or DEVICE with the driver's text:
 * what it answered last. */
TT_NODISCARD tt_status tt_gpu_watch_look(struct tt_gpu_watch *watch);
/* tt_gpu_watch_look for a call, or, where `work` is NULL, for what `otherwise` says: where the GPU
 * is lost, all ranks' error names this rank, the GPU, in what that was found, and the driver's
 * text.
 */
TT_NODISCARD tt_status tt_gpu_watch_check(struct tt_gpu_watch *watch, struct tt_fabric *fabric,
                                          const struct tt_work *work, const char *otherwise);
/* tt_gpu_watch_check for what `otherwise` says, by a thread that has not entered the engine. */
TT_NODISCARD tt_status tt_gpu_watch_check_outside(struct tt_gpu_watch *watch,
                                                  struct tt_engine *engine, const char *otherwise);

/* Part of a struct of the owner. Guarded by the watch's lock. */
struct tt_gpu_task {
    /* In the watch's thread, without its lock; may call the driver. Returns after how many ns to do
     * it again; INT64_MAX: when it is told. */
    int64_t (*run)(struct tt_gpu_task *task);
    int64_t next_ns;
    struct tt_gpu_task *next;
};
/* Runs the task at once, and again as it says. */
void tt_gpu_watch_begin_task(struct tt_gpu_watch *watch, struct tt_gpu_task *task);
/* Runs it again, at once. */
void tt_gpu_watch_tell(struct tt_gpu_watch *watch, struct tt_gpu_task *task);
/* Afterwards nobody runs it; waits while it runs. */
void tt_gpu_watch_end_task(struct tt_gpu_watch *watch, struct tt_gpu_task *task);

#endif
