/* The ranks as a mesh of axes (layout.h), and what all of them must agree on. */
#ifndef TR_MESH_H
#define TR_MESH_H

#include <stdint.h>

#include "layout.h"
#include "status.h"
#include "tutti.h"

/* Owned by main; tr_mesh_fini ends the communicator. */
struct tr_mesh {
    tuttiComm_t world;
    int rank, nranks;
    int size[TR_NUM_AXES];  /* product: nranks */
    int coord[TR_NUM_AXES]; /* this rank's place */
};

/* Joins the ranks that the launcher started (one without a launcher) into a mesh along dp. */
TR_NODISCARD tr_status tr_mesh_init(struct tr_mesh *mesh);
/* Waits for the other ranks' last collective and leaves. Safe on a zeroed mesh. */
void tr_mesh_fini(struct tr_mesh *mesh);

/* Turns a failure of any rank into a failure of every rank, so that none waits for one that has
 * left. The lowest rank that failed gets TR_FAILED and tells; the others get TR_ELSEWHERE.
 * Collective. */
TR_NODISCARD tr_status tr_mesh_agree(const struct tr_mesh *mesh, tr_status mine);

/* For a failure that every rank detects alike: rank 0 keeps it and tells, the others get
 * TR_ELSEWHERE. Not collective. */
TR_NODISCARD tr_status tr_mesh_alike(const struct tr_mesh *mesh, tr_status mine);

/* Fails everywhere when `value` is not the same on all ranks; rank 0 tells. Collective. */
TR_NODISCARD tr_status tr_mesh_same(const struct tr_mesh *mesh, uint64_t value, const char *what);

/* TR_OK, or this rank's own failure that says what was being done and tutti's own story. */
TR_NODISCARD tr_status tr_mesh_check(const struct tr_mesh *mesh, tuttiResult_t result,
                                     const char *what);

#endif
