/* Which ranks are neighbours in the mesh: those of one host, so that tp and ulysses, the innermost
 * axes, stay inside hosts where they can. */
#ifndef TR_PLACE_H
#define TR_PLACE_H

#include "machine.h"
#include "mesh.h"

/* Renumbers the ranks of `mesh`, which is not connected yet, host by host, unless they are already
 * (then nothing changes). Rank 0 stays rank 0, and says what was done. Collective. */
TR_NODISCARD tr_status tr_place_ranks(struct tr_mesh *mesh);

/* Rank 0 says which of tp and ulysses reach over hosts. The mesh has its shape. Collective. */
TR_NODISCARD tr_status tr_place_report(const struct tr_mesh *mesh);

/* The needs of the ranks of this rank's host, (*needs)[*nneeds], which the caller frees; [*own] is
 * this rank's. Collective. */
TR_NODISCARD tr_status tr_place_needs(const struct tr_mesh *mesh, const struct tr_need *need,
                                      struct tr_need **needs, int *nneeds, int *own);

/* Whether blocks of `n` ranks, from rank 0 on, each lie on one host; *first is the first rank of
 * the first block that does not. host[nranks]: equal numbers for the ranks of one host. */
bool tr_place_fits(const int *host, int nranks, int n, int *first);

/* The order of ranks host by host, hosts in the order of their first ranks: order[i] is the rank
 * that becomes rank i. False when that is the order they have. */
bool tr_place_order(const int *host, int nranks, int *order);

#endif
