/* Events of streams of the host. Each record of an event is a thing of its own, for which tasks and
 * threads wait: a later record does not change what they wait for. */
#ifndef TT_EXECUTOR_EVENT_H
#define TT_EXECUTOR_EVENT_H

#include "executor/stream.h"

struct tt_event;

TT_NODISCARD tt_status tt_event_create(struct tt_event **event);
/* Whether a parent of this process made it: only to be destroyed. A thread that this process does
 * not have may hold its lock. */
bool tt_event_is_inherited(const struct tt_event *event);
/* What was recorded or waits goes on as if the event were there. NULL is allowed. */
void tt_event_destroy(struct tt_event *event);
/* A new record, in place of the last one: it happens when all tasks queued so far are done; stream
 * NULL: now. Tasks and threads that wait for an earlier record go on waiting for that one. No
 * memory of the heap is taken once the event has had as many records at once that had not happened.
 */
TT_NODISCARD tt_status tt_event_record(struct tt_event *event, struct tt_stream *stream);
/* USAGE: the event's last record waits in a stream whose task the calling thread runs: that thread
 * would wait for itself in `function`. */
TT_NODISCARD tt_status tt_event_check_outside(struct tt_event *event, const char *function);
/* Waits for the record that is the last now; an event never recorded has happened. may_run: the
 * calling thread may run tasks of the stream in which that record waits. */
void tt_event_synchronize(struct tt_event *event, bool may_run);
/* As tt_event_synchronize, at most until then: TT_IN_PROGRESS where it has not happened. The
 * calling thread runs no task. */
TT_NODISCARD tt_status tt_event_synchronize_until(struct tt_event *event, int64_t until_ns);
TT_NODISCARD tt_status tt_event_query(struct tt_event *event);
/* Later tasks of the stream wait for the record that is the event's last now. */
TT_NODISCARD tt_status tt_stream_wait_event(struct tt_stream *stream, struct tt_event *event);
/* When the last record happened (CLOCK_MONOTONIC ns). TT_ERR_USAGE: never recorded; TT_IN_PROGRESS:
 * not yet. */
TT_NODISCARD tt_status tt_event_time(struct tt_event *event, int64_t *time_ns);

#endif
