/* Finds the topology of this machine or of an XML file, and the distance between two CPUs. */
#include "topology/topology.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/config.h"
#include "base/process_lock.h"
#include "topology/backend.h"

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

/* Identities, of which equal ones need not be adjacent (a NUMA node of two packages), become the
 * order of first appearance. Returns how many there are. */
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
            if (*other == old) *other = -2 - last; /* marks what is done; undone below */
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

tt_status tt_topology_create(const char *xml_path, struct tt_topology **topology)
{
    if (xml_path && xml_path[0]) return tt_hwloc_load(xml_path, topology);
    struct tt_cpus allowed;
    tt_cpus_allowed(&allowed);
    return tt_sysfs_load("/sys/devices/system", &allowed, topology);
}

tt_status tt_topology_local(const struct tt_topology **topology)
{
    static struct tt_process_lock lock = TT_PROCESS_LOCK;
    static struct tt_topology *shared; /* guarded by lock; lives as long as the process */
    tt_status status = TT_OK;
    tt_process_lock(&lock);
    if (!shared) status = tt_topology_create(tt_config_string(TT_CONFIG_TOPOLOGY_FILE), &shared);
    if (status == TT_OK) *topology = shared;
    tt_process_unlock(&lock);
    return status;
}

tt_status tt_topology_xml(const char *xml_path, char **xml)
{
    return tt_hwloc_xml(xml_path, xml);
}

enum tt_distance tt_topology_distance(const struct tt_topology *topology, int pu_a, int pu_b)
{
    const struct tt_pu *a = &topology->pus[pu_a], *b = &topology->pus[pu_b];
    if (pu_a == pu_b) return TT_SAME_PU;
    if (a->core == b->core) return TT_SAME_CORE;
    if (a->l2 >= 0 && a->l2 == b->l2) return TT_SAME_L2;
    if (a->l3 >= 0 && a->l3 == b->l3) return TT_SAME_L3;
    if (a->numa == b->numa) return TT_SAME_NUMA;
    if (a->package == b->package) return TT_SAME_PACKAGE;
    return TT_SAME_HOST;
}

const char *tt_distance_name(enum tt_distance distance)
{
    static const char *const names[] = {"same PU",        "same core",    "same L2",  "same L3",
                                        "same NUMA node", "same package", "same host"};
    return (size_t)distance < sizeof names / sizeof *names ? names[distance] : "?";
}

static int ascending(const void *left, const void *right)
{
    const int a = *(const int *)left, b = *(const int *)right;
    return (a > b) - (a < b);
}

/* How many PUs of its core come before this one. */
static int thread_of_core(const struct tt_topology *topology, int pu)
{
    int first = pu;
    while (first > 0 && topology->pus[first - 1].core == topology->pus[pu].core) first--;
    return pu - first;
}

/* Takes cores' first threads, then second ones, and so on; a layer that is not needed whole is
 * taken at even distances, so that few ranks get caches and memory controllers of their own.
 * The ranks then follow the machine's order, which keeps neighbours close. */
void tt_topology_place(const struct tt_topology *topology, int nlocal, int *pus_of_rank)
{
    const int wanted = nlocal < topology->npus ? nlocal : topology->npus;
    int taken = 0;
    for (int thread = 0; taken < wanted; thread++) {
        int size = 0;
        for (int pu = 0; pu < topology->npus; pu++) size += thread_of_core(topology, pu) == thread;
        const int take = wanted - taken < size ? wanted - taken : size;
        int seen = 0;
        for (int pu = 0; pu < topology->npus; pu++) {
            if (thread_of_core(topology, pu) != thread) continue;
            const int64_t before = (int64_t)seen * take / size,
                          after = (int64_t)(seen + 1) * take / size;
            if (after > before) pus_of_rank[taken++] = pu;
            seen++;
        }
    }
    qsort(pus_of_rank, (size_t)wanted, sizeof *pus_of_rank, ascending);
    for (int rank = wanted; rank < nlocal; rank++) pus_of_rank[rank] = pus_of_rank[rank % wanted];
}
