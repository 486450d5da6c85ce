/* A topology's memory, and its CPUs in order. */
#include <stdlib.h>

#include "topology/backend.h"
#include "topology/topology.h"

struct tt_topology *tt_topology_new(int npus)
{
    struct tt_topology *topology = calloc(1, sizeof *topology);
    if (!topology) return NULL;
    topology->npus = npus;
    topology->pus = calloc((size_t)npus, sizeof *topology->pus);
    if (!topology->pus) {
        free(topology);
        return NULL;
    }
    for (int i = 0; i < npus; i++) topology->pus[i].l2 = topology->pus[i].l3 = -1;
    return topology;
}

void tt_topology_destroy(struct tt_topology *topology)
{
    if (!topology) return;
    free(topology->pus);
    free(topology);
}

static int by_place(const void *left, const void *right)
{
    const struct tt_pu *a = left, *b = right;
    const int pairs[][2] = {{a->package, b->package}, {a->numa, b->numa},
                            {a->l3, b->l3},           {a->l2, b->l2},
                            {a->core, b->core},       {a->os_index, b->os_index}};
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        if (pairs[i][0] != pairs[i][1]) return pairs[i][0] < pairs[i][1] ? -1 : 1;
    return 0;
}

static int *member(struct tt_pu *pu, size_t offset)
{
    return (int *)(void *)((char *)pu + offset);
}

/* Replaces identities by indices in the order of first appearance. Equal identities need not be
 * adjacent (a NUMA node of two packages). Returns the number of different ones. */
static int renumber(struct tt_topology *topology, size_t offset)
{
    int next = 0;
    for (int i = 0; i < topology->npus; i++) {
        int *id = member(&topology->pus[i], offset);
        if (*id < 0) continue;
        const int old = *id;
        const int last = next;
        for (int k = i; k < topology->npus; k++) {
            int *other = member(&topology->pus[k], offset);
            if (*other == old)
                *other = -2 - last; /* marks as renumbered; the loop below removes the mark */
        }
        next++;
    }
    for (int i = 0; i < topology->npus; i++) {
        int *id = member(&topology->pus[i], offset);
        if (*id <= -2) *id = -2 - *id;
    }
    return next;
}

void tt_topology_finish(struct tt_topology *topology)
{
    qsort(topology->pus, (size_t)topology->npus, sizeof *topology->pus, by_place);
    topology->ncores = renumber(topology, offsetof(struct tt_pu, core));
    topology->npackages = renumber(topology, offsetof(struct tt_pu, package));
    topology->nnumas = renumber(topology, offsetof(struct tt_pu, numa));
    (void)renumber(topology, offsetof(struct tt_pu, l2));
    (void)renumber(topology, offsetof(struct tt_pu, l3));
}
