/* The calls of a training step on a group of the mesh: what the step, the store and the seams ask
 * of other ranks goes through here. A group of a dry mesh (tr_mesh_dry) has no other ranks: its
 * calls are counted, and nothing is read, written or waited for.
 *
 * `what` says in an error what was being done. Counts are of elements of `type`. */
#ifndef TR_CALLS_H
#define TR_CALLS_H

#include "mesh.h"

/* x[n] = its sum (or what op says) over the ranks */
TR_NODISCARD tr_status tr_all_reduce(const struct tr_group *group, tuttiStream_t stream, void *x,
                                     size_t n, tuttiDataType_t type, tuttiRedOp_t op,
                                     const char *what);
/* to[n] = this rank's part of the sum of from[ranks, n] over the ranks */
TR_NODISCARD tr_status tr_reduce_scatter(const struct tr_group *group, tuttiStream_t stream,
                                         const void *from, void *to, size_t n, tuttiDataType_t type,
                                         const char *what);
/* to[ranks, n] = from[n] of every rank */
TR_NODISCARD tr_status tr_all_gather(const struct tr_group *group, tuttiStream_t stream,
                                     const void *from, void *to, size_t n, tuttiDataType_t type,
                                     const char *what);
/* The messages between every two ranks: how many elements, and where each begins. */
struct tr_parcels {
    const size_t *counts, *displs; /* [ranks] */
};
TR_NODISCARD tr_status tr_all_to_all(const struct tr_group *group, tuttiStream_t stream,
                                     const void *from, const struct tr_parcels *sent, void *to,
                                     const struct tr_parcels *received, tuttiDataType_t type,
                                     const char *what);
TR_NODISCARD tr_status tr_send(const struct tr_group *group, tuttiStream_t stream, const void *from,
                               size_t n, tuttiDataType_t type, int peer, const char *what);
TR_NODISCARD tr_status tr_receive(const struct tr_group *group, tuttiStream_t stream, void *to,
                                  size_t n, tuttiDataType_t type, int peer, const char *what);

/* Calls between them are issued together, on whatever groups; an error is told as `group`'s. The
 * end comes also after a call in between that failed. */
TR_NODISCARD tr_status tr_calls_begin(const struct tr_group *group, const char *what);
TR_NODISCARD tr_status tr_calls_end(const struct tr_group *group, const char *what);

/* Waits until the group's stream is idle. */
TR_NODISCARD tr_status tr_calls_wait(const struct tr_group *group, const char *what);
/* The group's stream records an event, or waits for one. */
TR_NODISCARD tr_status tr_calls_record(const struct tr_group *group, tuttiEvent_t event);
TR_NODISCARD tr_status tr_calls_follow(const struct tr_group *group, tuttiEvent_t event,
                                       const char *what);

#endif
