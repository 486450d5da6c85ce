/* A GPU's primary context as this process uses it: device memory, pinned memory, streams. Needs no
 * CUDA header. Every function may be called by any thread, and leaves the thread's current context
 * as it was.
 *
 * Errors: DEVICE, with the driver's text, unless said otherwise; USAGE in a child made by fork
 * after its parent used CUDA. Built without CUDA's header, tt_context_open always fails. */
#ifndef TT_DRIVER_CONTEXT_H
#define TT_DRIVER_CONTEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

struct tt_context;

/* Retains the primary context of the GPU. The same GPU gives the same pointer; each open needs a
 * close. ARGUMENT: there is no such GPU. */
TT_NODISCARD tt_status tt_context_open(int gpu, struct tt_context **context);
/* The last one gives all memory back to the driver and releases the context; it may wait until no
 * kernel of the context runs. NULL is allowed. */
void tt_context_close(struct tt_context *context);
/* As open and close, for who has no memory of tt_context_allocate and tt_context_allocate_host:
 * where only such users are left, that memory goes back to the driver too. */
TT_NODISCARD tt_status tt_context_hold(int gpu, struct tt_context **context);
void tt_context_drop(struct tt_context *context);
int tt_context_gpu(const struct tt_context *context);

/* Whether the program has reset the GPU (cudaDeviceReset) since the context's first user of now
 * opened it: asks the driver, and warns. A driver without cuCtxGetId does not tell where the
 * program has used the GPU again meanwhile. From then on tt_context_enter fails with USAGE, so that
 * nothing that is gone is given to the driver, until all who have memory have closed it. */
bool tt_context_is_reset(struct tt_context *context);
/* Makes the context the thread's current one until tt_context_leave, for calls of the driver. */
TT_NODISCARD tt_status tt_context_enter(struct tt_context *context);
void tt_context_leave(struct tt_context *context);

/* Device memory, 512-byte aligned, zeroed: the zeros are there when the call returns. SYSTEM: out
 * of memory; the text says how much was asked for and how much is free. tt_context_free keeps the
 * memory for later calls, so that it never waits for kernels. NULL is allowed. */
TT_NODISCARD tt_status tt_context_allocate(struct tt_context *context, size_t nbytes,
                                           void **memory);
/* tt_context_allocate with any bytes in the memory: nothing of the GPU is waited for. */
TT_NODISCARD tt_status tt_context_allocate_unset(struct tt_context *context, size_t nbytes,
                                                 void **memory);
void tt_context_free(struct tt_context *context, void *memory);
/* Pinned, zeroed host memory that the kernels of every GPU of this process use at the same address.
 */
TT_NODISCARD tt_status tt_context_allocate_host(struct tt_context *context, size_t nbytes,
                                                void **memory);
/* As tt_context_allocate_host. The host may read the memory until it is freed, also after the
 * program has reset the GPU (cudaDeviceReset), which frees other pinned memory: where the driver
 * registers memory of the process. */
TT_NODISCARD tt_status tt_context_allocate_lasting(struct tt_context *context, size_t nbytes,
                                                   void **memory);
/* Memory of tt_context_allocate_host or tt_context_allocate_lasting. NULL is allowed. */
void tt_context_free_host(struct tt_context *context, void *memory);
/* Copies from pageable host memory to device memory; the bytes are there when the call returns.
 * Does not wait for kernels that run, but for work that waits in the hardware queue in front. */
TT_NODISCARD tt_status tt_context_upload(struct tt_context *context, void *to, const void *from,
                                         size_t nbytes);

/* Whether kernels of the context can be given memory of the other GPU at all. Makes no context of
 * that GPU, which may be another process's alone. USAGE: they cannot; names both. */
TT_NODISCARD tt_status tt_context_check_peer(const struct tt_context *context, int gpu);
/* Kernels of the context can use, from now on, all device memory that this process has on the other
 * GPU by tt_context_allocate or cuMemAlloc; not that of memory pools. USAGE: the GPUs cannot access
 * each other's memory; names both. */
TT_NODISCARD tt_status tt_context_reach(struct tt_context *context, int gpu);
/* What other processes need to open device memory of tt_context_allocate. They can use all that
 * lies in the same 2 MiB: give it a multiple of these. */
enum { TT_CONTEXT_HANDLE = 64, TT_CONTEXT_SHARED = 2 << 20 };
TT_NODISCARD tt_status tt_context_share(struct tt_context *context, void *memory,
                                        uint8_t handle[TT_CONTEXT_HANDLE]);
/* Opens memory of another process; each open needs a close. The memory stays open until
 * a tt_context_let_go that finds no work, or the context's last close. may_wait: for kernels;
 * else TT_IN_PROGRESS: tt_context_let_go must come first. USAGE: its GPU's memory cannot be
 * accessed from the context's. */
TT_NODISCARD tt_status tt_context_open_shared(struct tt_context *context,
                                              const uint8_t handle[TT_CONTEXT_HANDLE],
                                              bool may_wait, void **memory);
void tt_context_close_shared(struct tt_context *context, void *memory);
/* Whose work on the GPU may wait for a thread of this process, perhaps for the calling one. Owned
 * by its creator. */
struct tt_context_user {
    bool (*has_work)(const struct tt_context_user *user); /* any thread; calls none of these */
    struct tt_context_user *next;
};
void tt_context_list_user(struct tt_context *context, struct tt_context_user *user);
/* Not listed is allowed. */
void tt_context_unlist_user(struct tt_context *context, const struct tt_context_user *user);
/* Around the calls of the driver by which work of a user begins; has_work knows of it before the
 * end. Waits while a thread closes memory in the context (tt_context_let_go). */
void tt_context_begin_work(struct tt_context *context);
void tt_context_end_work(struct tt_context *context);
/* Gives up the memory of other processes that was closed, and that of users that was freed while it
 * was lent (driver/device_memory.h), before the last close of the context, unless a user has work,
 * or a thread begins some. Waits for other kernels of the context. Whether all that there was when
 * it began is given up. */
bool tt_context_let_go(struct tt_context *context);
/* As tt_context_let_go, by a thread for which nobody waits: work begins after a while although the
 * thread still waits for other kernels. */
bool tt_context_let_go_aside(struct tt_context *context);

/* Exports the whole host pages that hold [memory, memory + nbytes), with what else lies in them, so
 * that other devices can use them in place (dma-buf): *fd, close-on-exec, which the caller closes;
 * its byte 0 is that at *base, an address of the GPU; it has *exported bytes. The pages stay
 * allocated as long as a descriptor or a device has them, also after their memory was freed.
 * ARGUMENT: the range is not in one allocation of device memory of the context's GPU, or the driver
 * does not export this memory. USAGE: nor any other. The text says why. What other devices write
 * there the GPU sees once they have read there afterwards. */
TT_NODISCARD tt_status tt_context_export(struct tt_context *context, const void *memory,
                                         size_t nbytes, int *fd, char **base, size_t *exported);
/* A stream: the user's CUstream as an opaque pointer (NULL: the legacy default stream; 2: that of
 * the thread), or one made here, which does not wait for the legacy stream. */
TT_NODISCARD tt_status tt_context_stream_create(struct tt_context *context, void **stream);
void tt_context_stream_destroy(struct tt_context *context, void *stream);
/* Waits until all work of the stream is done. */
TT_NODISCARD tt_status tt_context_stream_synchronize(struct tt_context *context, void *stream);
/* TT_OK when all work of the stream is done, TT_IN_PROGRESS, or an error, also of a kernel that
 * failed earlier in the context. */
TT_NODISCARD tt_status tt_context_stream_query(struct tt_context *context, void *stream);
/* The legacy default stream. */
bool tt_context_is_legacy(const void *stream);
/* That, or the per-thread one: nobody makes or destroys them. */
bool tt_context_is_default(const void *stream);
/* Whether the stream is being captured into a graph; the legacy stream: whether a capture forbids
 * its use. */
TT_NODISCARD tt_status tt_context_stream_capturing(struct tt_context *context, void *stream,
                                                   bool *capturing);
/* What CUDA says of a stream. Plain data. */
struct tt_stream_facts {
    int priority;         /* CUDA's, the lower the more urgent; 0: that of ordinary streams */
    bool is_legacy;       /* the legacy default stream, by either of its handles */
    bool is_each_threads; /* the per-thread default stream: another one in each thread */
    bool blocks;          /* it and the legacy default stream wait for one another */
};
/* *id: a number that no other stream of this process has or had, of a stream that is none of the
 * default ones. One call of the driver where the thread has a current context, any GPU's. gpu: the
 * stream's. What is no stream need not be found: the driver may read through it. */
TT_NODISCARD tt_status tt_stream_find_id(int gpu, void *stream, uint64_t *id);
/* ARGUMENT: the stream is none of this context, or one of a green context. The default streams are
 * of any. */
TT_NODISCARD tt_status tt_context_check_stream(struct tt_context *context, void *stream,
                                               struct tt_stream_facts *facts);
/* Later work of `after` waits for what `before` has now. The host waits only for captures that
 * forbid the legacy stream (tt_cuda_is_to_repeat), as in all that follows here. */
TT_NODISCARD tt_status tt_context_stream_follow(struct tt_context *context, void *after,
                                                void *before);
/* tt_context_stream_follow without that wait, for calls that have no turn yet. USAGE: a capture
 * forbids `before`: nothing has changed, but that the capture is spoilt. */
TT_NODISCARD tt_status tt_context_stream_follow_now(struct tt_context *context, void *after,
                                                    void *before);
/* Queues in the stream a copy between any memory of GPUs and pinned memory. */
TT_NODISCARD tt_status tt_context_stream_copy(struct tt_context *context, void *stream, void *to,
                                              const void *from, size_t nbytes);
/* A copy to memory of the GPU, and the next one. */
struct tt_context_copy {
    struct tt_context_copy *next;
    void *to;
    const void *from;
    size_t nbytes;
};
/* Each as tt_context_stream_copy, one after the other, on the context's own stream, which `stream`
 * then follows: no kernel of a rank is in front of the copies, so they hold up no queue of copies,
 * which other streams share. copies: the first; NULL: none. */
TT_NODISCARD tt_status tt_context_copy_before(struct tt_context *context, void *stream,
                                              const struct tt_context_copy *copies);
/* Queues in the stream the store of a value to a word of tt_context_allocate_host. A thread that
 * sees the value sees all that the stream has done before. */
TT_NODISCARD tt_status tt_context_stream_store(struct tt_context *context, void *stream,
                                               uint32_t *word, uint32_t value);
/* Later work of the stream waits until the word is at least the value, modulo 2^32, and sees what
 * was written before that value. No host waits. */
TT_NODISCARD tt_status tt_context_stream_await(struct tt_context *context, void *stream,
                                               const uint32_t *word, uint32_t value);

#endif
