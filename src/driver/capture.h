/* Captures of streams into CUDA graphs, events that order graphs and streams, and what lives as
 * long as a graph. Needs no CUDA header. Threads and errors as driver/context.h.
 *
 * Graphs, nodes and events are the driver's handles as opaque pointers. */
#ifndef TT_DRIVER_CAPTURE_H
#define TT_DRIVER_CAPTURE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "driver/context.h"

/* Where the capture of a stream has got. */
struct tt_capture {
    uint64_t id;  /* no other capture of the process has it; 0: the stream is not being captured */
    void *graph;  /* which grows by nodes that anybody adds */
    void **after; /* [nafter]: what the next work of the stream would follow; room for one more */
    size_t nafter;
};

/* The id of the stream's capture; 0: it is not being captured. USAGE: as tt_capture_open; or the
 * stream is the legacy one, and a capture forbids its use. */
TT_NODISCARD tt_status tt_capture_find(struct tt_context *context, void *stream, uint64_t *id);
/* Freed by tt_capture_close. USAGE: the capture has failed already. */
TT_NODISCARD tt_status tt_capture_open(struct tt_context *context, void *stream,
                                       struct tt_capture *capture);
void tt_capture_close(struct tt_capture *capture);
/* The next work of the stream follows the node: too, or, where `alone`, in place of what it would
 * have followed. */
TT_NODISCARD tt_status tt_capture_follow(struct tt_context *context, void *stream, void *node,
                                         bool alone);
/* Calls gone(arg) when the graph, its copies and all that was instantiated from them are destroyed
 * and have ended; by any thread, in which no function of the driver may be called. On an error it
 * is never called. */
TT_NODISCARD tt_status tt_capture_keep(struct tt_context *context, void *graph,
                                       void (*gone)(void *arg), void *arg);

/* Nodes that wait for an event, or record it, each time their graph is launched: a wait is for the
 * record that was the event's last when the launch was called. */
TT_NODISCARD tt_status tt_capture_add_wait(struct tt_context *context, void *graph,
                                           void *const *after, size_t nafter, void *event,
                                           void **node);
TT_NODISCARD tt_status tt_capture_add_record(struct tt_context *context, void *graph,
                                             void *const *after, size_t nafter, void *event,
                                             void **node);

TT_NODISCARD tt_status tt_context_event_create(struct tt_context *context, void **event);
void tt_context_event_destroy(struct tt_context *context, void *event);
/* By a stream that is not being captured. */
TT_NODISCARD tt_status tt_context_event_record(struct tt_context *context, void *event,
                                               void *stream);
TT_NODISCARD tt_status tt_context_event_wait(struct tt_context *context, void *event, void *stream);
/* TT_OK when the event's last record has happened, or it has none; TT_IN_PROGRESS. Does not spoil
 * captures. */
TT_NODISCARD tt_status tt_context_event_query(struct tt_context *context, void *event);
/* Whether the driver has shut down, as it does when the process exits: then every call fails. */
bool tt_context_is_over(const struct tt_context *context);

#endif
