/* Streams and events, ordered as CUDA's. A stream of the host is a FIFO of tasks served by one
 * worker thread. A stream of a GPU is CUDA's; struct tt_stream counts the calls launched on it. */
#ifndef TT_EXECUTOR_STREAM_H
#define TT_EXECUTOR_STREAM_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "driver/context.h"

struct tt_stream;
struct tt_event;

/* What a stream runs in order. Part of a struct of its creator, who leaves that to the stream: run
 * frees it. */
struct tt_task {
    tt_status (*run)(struct tt_task *task);
    struct tt_task *next; /* guarded by the stream's lock */
};

TT_NODISCARD tt_status tt_stream_create(struct tt_stream **stream);
/* USAGE: this process is a child made by fork, and its parent made the stream: nothing runs it
 * here. */
TT_NODISCARD tt_status tt_stream_check(const struct tt_stream *stream);
/* Whether the calling thread runs the tasks of a stream. */
bool tt_stream_is_served_here(void);
/* USAGE: the calling thread runs the stream's tasks, so it would wait for itself in `function`. */
TT_NODISCARD tt_status tt_stream_check_outside(const struct tt_stream *stream,
                                               const char *function);
/* Runs what is queued, then frees. Not from one of its own tasks. NULL is allowed. */
void tt_stream_destroy(struct tt_stream *stream);
/* A stream of a GPU: device_stream is a CUstream, or NULL: the legacy default stream; it stays the
 * caller's, and must live as long. Errors as tt_context_open. */
TT_NODISCARD tt_status tt_stream_from_device(struct tt_stream **stream, int gpu,
                                             void *device_stream);
/* The GPU's context; NULL: the stream is the host's, or NULL. */
struct tt_context *tt_stream_context(const struct tt_stream *stream);
void *tt_stream_device_stream(const struct tt_stream *stream);
/* As CUDA has it: the lower the more urgent; 0: ordinary, which streams of the host and NULL are.
 */
int tt_stream_priority(const struct tt_stream *stream);
/* A stream of a GPU: one more call was launched on it; a call has ended (its text is this thread's
 * last error). */
void tt_stream_begin(struct tt_stream *stream);
void tt_stream_end(struct tt_stream *stream, tt_status status);
/* Queues task->run(task) in a stream of the host. Any thread. */
void tt_stream_push(struct tt_stream *stream, struct tt_task *task);
/* While nothing is queued, the worker of a stream of the host calls idle(arg) again after so many
 * ns as idle returned; 0: at once. idle NULL: no longer, but a call that has begun goes on. */
void tt_stream_watch(struct tt_stream *stream, int64_t (*idle)(void *arg), void *arg);
/* Waits until everything queued before is done; the first error since the last synchronize, with
 * its text. Not from one of its own tasks. */
TT_NODISCARD tt_status tt_stream_synchronize(struct tt_stream *stream);
/* TT_OK idle, TT_IN_PROGRESS, or the first error. */
TT_NODISCARD tt_status tt_stream_query(struct tt_stream *stream);

TT_NODISCARD tt_status tt_event_create(struct tt_event **event);
/* What was recorded or waits goes on as if the event were there. NULL is allowed. */
void tt_event_destroy(struct tt_event *event);
/* A new record, in place of the last one: it happens when all tasks queued so far are done; stream
 * NULL: now. Tasks and threads that wait for an earlier record go on waiting for that one. */
TT_NODISCARD tt_status tt_event_record(struct tt_event *event, struct tt_stream *stream);
/* As tt_stream_check_outside, of the stream in which the event's last record waits, if it does. */
TT_NODISCARD tt_status tt_event_check_outside(struct tt_event *event, const char *function);
/* Waits for the record that is the last now; an event never recorded has happened. */
void tt_event_synchronize(struct tt_event *event);
TT_NODISCARD tt_status tt_event_query(struct tt_event *event);
/* Later tasks of the stream wait for the record that is the event's last now. */
TT_NODISCARD tt_status tt_stream_wait_event(struct tt_stream *stream, struct tt_event *event);
/* When the last record happened (CLOCK_MONOTONIC ns). TT_ERR_USAGE: never recorded; TT_IN_PROGRESS:
 * not yet. */
TT_NODISCARD tt_status tt_event_time(struct tt_event *event, int64_t *time_ns);

#endif
