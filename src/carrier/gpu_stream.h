/* Streams of GPUs: a CUDA stream of the user, and the count of the calls launched on it. */
#ifndef TT_CARRIER_GPU_STREAM_H
#define TT_CARRIER_GPU_STREAM_H

#include "driver/context.h"
#include "executor/stream.h"

struct tt_gpu_stream {
    struct tt_stream base; /* first: its address is the stream's */
    /* immutable after create */
    struct tt_context *context;
    void *handle; /* CUstream; NULL: the legacy default stream */
    bool is_kept; /* made by tt_gpu_stream_find */
    /* Written anew, with the lock of the streams that are kept, where another CUDA stream has come
     * to the address (tt_gpu_stream_find) and all calls on the stream have ended */
    struct tt_stream_facts facts;
    uint64_t number; /* > 0; no other stream of the process has or had it */
    uint64_t id;     /* tt_stream_find_id's; 0: a default stream, or not kept */
    /* guarded by the lock of the streams that are kept */
    struct tt_gpu_stream *next;
};

/* device_stream is a CUstream, or NULL: the legacy default stream; it stays the caller's, and must
 * live as long. Errors as tt_context_open. */
TT_NODISCARD tt_status tt_gpu_stream_create(struct tt_stream **stream, int gpu,
                                            void *device_stream);
/* The stream of a CUDA stream, made at the first call with it and kept: nobody destroys it. It is
 * made anew, in the same memory where its calls have ended, when another CUDA stream has come to
 * the address. made(stream) is called before any other thread can find a stream in new memory.
 * Later calls take no memory, make at most one call of the driver where the thread has a current
 * context, and take no lock where the thread has used the stream lately. Errors as
 * tt_gpu_stream_create. */
TT_NODISCARD tt_status tt_gpu_stream_find(struct tt_stream **stream, int gpu, void *device_stream,
                                          tt_status (*made)(const void *stream));
/* NULL: the stream is NULL, or one of the host. */
const struct tt_gpu_stream *tt_gpu_stream_of(const struct tt_stream *stream);
/* The CUDA stream of a call, whose stream is not the host's; NULL: the legacy default stream. */
static inline void *tt_gpu_stream_handle(const struct tt_stream *stream)
{
    return stream ? ((const struct tt_gpu_stream *)stream)->handle : NULL;
}
static inline int tt_gpu_stream_priority(const struct tt_stream *stream)
{
    return stream ? ((const struct tt_gpu_stream *)stream)->facts.priority : 0;
}
/* Which capture the CUDA stream of a call is in; *capture is left as it is where it is in none.
 * USAGE: a capture that has failed, or that forbids the legacy stream, which NULL stands for. */
TT_NODISCARD tt_status tt_gpu_stream_find_capture(struct tt_context *context,
                                                  const struct tt_stream *stream,
                                                  uint64_t *capture);
/* Whether work on one stream may wait for work that was put on the other one. NULL: the legacy
 * default stream. */
bool tt_gpu_streams_wait(const struct tt_stream *a, const struct tt_stream *b);

#endif
