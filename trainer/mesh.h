/* The ranks as a mesh of axes, the communicators along it, and what all ranks must agree on. */
#ifndef TR_MESH_H
#define TR_MESH_H

#include <stdbool.h>
#include <stdint.h>

#include "status.h"
#include "tutti.h"

/* From the outermost (ranks far apart) to the innermost (neighbours). */
enum tr_axis { TR_PP, TR_DP, TR_FSDP, TR_RING, TR_ULYSSES, TR_TP, TR_NUM_AXES };
extern const char *const tr_axis_names[TR_NUM_AXES];

/* A set of axes: 1u << axis for each. */
typedef unsigned tr_axes;
enum {
    TR_AXES_ALL = (1u << TR_NUM_AXES) - 1,
    TR_AXES_SEQUENCE = 1u << TR_RING | 1u << TR_ULYSSES,
    TR_AXES_DATA = 1u << TR_DP | 1u << TR_FSDP | TR_AXES_SEQUENCE, /* ranks with tokens of their own
                                                                      and the same parameters */
};

/* Calls, and what NCCL calls their message: all elements that are reduced, scattered, gathered or
 * exchanged, in bytes. */
enum tr_traffic_kind {
    TR_ALL_REDUCE,
    TR_REDUCE_SCATTER,
    TR_ALL_GATHER,
    TR_ALL_TO_ALL,
    TR_SEND,
    TR_RECEIVE,
    TR_NUM_TRAFFIC
};
struct tr_traffic {
    uint64_t calls, bytes;
};
struct tr_tally {
    struct tr_traffic traffic[TR_NUM_TRAFFIC];
};

/* This rank's communicator along a set of axes: the ranks whose other coordinates are equal, in the
 * order of the mesh. One rank: no communicator, no stream. */
struct tr_group {
    tuttiComm_t comm;
    tuttiStream_t stream; /* of its own, for calls that run beside computation */
    int n, rank;
    struct tr_tally *tally; /* of a dry mesh, which owns it: what calls.h counts; NULL elsewhere */
    int *ranks; /* [n]: which of the mesh they are; NULL: the same numbers. Owned by the mesh */
};

/* Owned by whoever called tr_mesh_init; tr_mesh_fini ends what it made. */
struct tr_mesh {
    tuttiComm_t world;
    int rank, nranks;
    int size[TR_NUM_AXES];                    /* product: nranks */
    int coord[TR_NUM_AXES];                   /* this rank's place */
    struct tr_group groups[1 << TR_NUM_AXES]; /* [set of axes]; made by tr_mesh_group */
    struct tr_group share;    /* the ranks of tp that hold the same key and value heads */
    struct tr_group tie;      /* the first and the last stage */
    struct tr_tally *tallies; /* [1 << TR_NUM_AXES] and of share and tie, where the mesh is dry;
                                 NULL: it is not */
    bool deterministic;
    int nthreads; /* with which each rank computes; 0: not said */
};

/* The ranks of `world` (taken over; finalized by fini) as one dp axis. world NULL: joins the ranks
 * that the launcher started, one without a launcher. */
TR_NODISCARD tr_status tr_mesh_init(struct tr_mesh *mesh, tuttiComm_t world);

/* This rank of a mesh of these sizes without the other ranks: its groups have sizes and places, but
 * no communicators, and calls.h counts what would be called. Sets of axes that differ in axes of
 * one rank stay groups of their own, so that what is counted tells what it was for. */
TR_NODISCARD tr_status tr_mesh_dry(struct tr_mesh *mesh, const int size[TR_NUM_AXES], int rank);

/* The axes of more than one rank: " = fsdp 2 x tp 2"; "" where there are none. */
enum { TR_AXES_TEXT = 128 };
void tr_mesh_write_axes(const struct tr_mesh *mesh, char text[TR_AXES_TEXT]);

/* Gives the axes their sizes (product: nranks, else an error naming the sizes). Not collective. */
TR_NODISCARD tr_status tr_mesh_shape(struct tr_mesh *mesh, const int size[TR_NUM_AXES]);

/* The coordinates of `rank` on axes of these sizes, and back. */
void tr_mesh_coords(const int size[TR_NUM_AXES], int rank, int coord[TR_NUM_AXES]);
int tr_mesh_rank_at(const int size[TR_NUM_AXES], const int coord[TR_NUM_AXES]);
/* How many ranks lie along a set of axes. */
int tr_mesh_extent(const int size[TR_NUM_AXES], tr_axes axes);

/* Makes every communicator of the mesh: of all ranks, along each axis and each of `nsets` sets that
 * exceed one rank, `share` for kv heads that `share` ranks of tp hold together, `tie` when pp
 * exceeds 1. deterministic: their reductions add in the order of the ranks, whatever the size.
 * Collective. */
TR_NODISCARD tr_status tr_mesh_connect(struct tr_mesh *mesh, const tr_axes *sets, int nsets,
                                       int share, bool deterministic);

/* The group along `axes`, connected before. */
const struct tr_group *tr_mesh_group(const struct tr_mesh *mesh, tr_axes axes);

/* Waits for the other ranks' last collective and leaves. Safe on a zeroed mesh. */
void tr_mesh_fini(struct tr_mesh *mesh);

/* After a failure that other ranks may not know (TR_FAILED): fails the calls in which they wait for
 * this rank, and leaves. */
void tr_mesh_abort(struct tr_mesh *mesh);

/* Turns a failure of any rank into a failure of every rank, so that none waits for one that has
 * left. The lowest rank that failed gets TR_AGREED and tells; the others get TR_ELSEWHERE.
 * Collective. */
TR_NODISCARD tr_status tr_mesh_agree(const struct tr_mesh *mesh, tr_status mine);

/* For a failure that every rank detects alike: rank 0 gets TR_AGREED and tells, the others get
 * TR_ELSEWHERE. Not collective. */
TR_NODISCARD tr_status tr_mesh_alike(const struct tr_mesh *mesh, tr_status mine);

/* Fails everywhere when `value` is not the same on all ranks; rank 0 tells. Collective. */
TR_NODISCARD tr_status tr_mesh_same(const struct tr_mesh *mesh, uint64_t value, const char *what);

/* TR_OK, or this rank's own failure that says what was being done and tutti's own story. */
TR_NODISCARD tr_status tr_mesh_check(const struct tr_mesh *mesh, tuttiResult_t result,
                                     const char *what);

/* tr_mesh_check for a call on a group; after each rank of the group that tutti's story names comes
 * its number in the mesh. */
TR_NODISCARD tr_status tr_group_check(const struct tr_group *group, tuttiResult_t result,
                                      const char *what);

#endif
