/* A GPU as this process uses it: the kernels and their launches. Needs no CUDA
 * header. Every function may be called by any thread, and leaves the thread's current context as it
 * was. Without CUDA's header or nvcc at build time, tt_device_open fails and says so.
 *
 * Errors: DEVICE, with the driver's text, unless said otherwise. */
#ifndef TT_DEVICE_DEVICE_H
#define TT_DEVICE_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "device/call.h"
#include "device/shares.h"
#include "driver/context.h"

struct tt_device;

/* Retains the primary context of the GPU and loads the kernels, all of them, before anything runs
 * (a kernel that is loaded while another one waits may never start). The same GPU gives the same
 * pointer; each open needs a close. Waits for kernels that run on that GPU, and for threads that
 * open it, but for nothing of other GPUs. ARGUMENT: there is no such GPU. USAGE: this build has no
 * kernels, or none for this GPU. */
TT_NODISCARD tt_status tt_device_open(int gpu, struct tt_device **device);
/* The last one unloads the kernels and releases the context. NULL is allowed. */
void tt_device_close(struct tt_device *device);

struct tt_context *tt_device_context(const struct tt_device *device);
/* Blocks of the kernel that can be resident at the same time on the whole GPU, with the most shared
 * memory that a call may need. */
int tt_device_capacity(const struct tt_device *device);
/* What ranks of this process have of it. */
struct tt_shares *tt_device_shares(struct tt_device *device);

/* Launches the batch's calls on the stream as one kernel: the blocks of all runs, of
 * TT_DEVICE_THREADS threads each. The batch is copied. USAGE: more blocks than tt_device_capacity()
 * (they might wait for one another for ever). */
TT_NODISCARD tt_status tt_device_launch(struct tt_device *device, void *stream,
                                        const struct tt_device_batch *batch);
/* Launches on the stream a kernel that stores, or loads, the words. The probes are memory of
 * tt_context_allocate_host. */
TT_NODISCARD tt_status tt_device_launch_probes(struct tt_device *device, void *stream,
                                               struct tt_device_probe *probes, size_t nprobes,
                                               bool loads);
/* Adds the launch of the batch's calls as a node of a CUDA graph, which follows the nodes
 * after[0..nafter). Errors as tt_device_launch. */
TT_NODISCARD tt_status tt_device_add_node(struct tt_device *device, void *graph, void *const *after,
                                          size_t nafter, const struct tt_device_batch *batch,
                                          void **node);
/* From now on the node has no call. While a stream is being captured into its graph, CUDA does not
 * allow to destroy it. */
TT_NODISCARD tt_status tt_device_empty_node(struct tt_device *device, void *node);

#endif
