/* What is where: cores, caches, NUMA nodes of a host, from the kernel or hwloc's XML; plain data.
 */
#ifndef TT_TOPOLOGY_TOPOLOGY_H
#define TT_TOPOLOGY_TOPOLOGY_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* One processing unit this process may run on. */
struct tt_pu {
    int os_index;            /* the kernel's CPU number */
    int core, package, numa; /* logical indices; two PUs of one core share `core` */
    int l2, l3;              /* index of the cache instance above it, -1: none */
};

/* Owned by its creator, freed by tt_topology_destroy. Immutable after load. */
struct tt_topology {
    int npus, ncores, npackages, nnumas;
    struct tt_pu *pus;                   /* [npus], in logical order: neighbours share most */
    size_t l1_bytes, l2_bytes, l3_bytes; /* of one instance; 0 unknown */
    size_t memory_bytes;
    char cpu_model[128];
    char source[256]; /* "this machine" or the XML file's path */
};

/* From this machine, restricted to the CPUs allowed to this process, or from an hwloc XML file when
 * xml_path is not NULL/"". What the kernel does not tell is taken as one core a CPU, one package,
 * one NUMA node. TT_ERR_ARGUMENT names a file that is missing or no hwloc XML; TT_ERR_SYSTEM: a
 * file without hwloc at build time. */
TT_NODISCARD tt_status tt_topology_create(const char *xml_path, struct tt_topology **topology);
void tt_topology_destroy(struct tt_topology *topology);

/* The topology in force, of TUTTI_TOPOLOGY_FILE or this machine: made at the first call, shared,
 * never freed. Thread-safe. */
TT_NODISCARD tt_status tt_topology_local(const struct tt_topology **topology);

/* XML text of this topology (hwloc's format), malloc'ed, freed by the caller with free().
 * TT_ERR_SYSTEM without hwloc. */
TT_NODISCARD tt_status tt_topology_xml(const char *xml_path, char **xml);

/* The topology in words, line by line. */
void tt_topology_describe(const struct tt_topology *topology,
                          void (*emit)(void *arg, const char *line), void *arg);

/* Identity of this host: hash of boot id, network and process namespace, or of TUTTI_HOST_ID. Equal
 * exactly for processes that can share memory, reach each other's abstract sockets and name each
 * other by pid. */
uint64_t tt_host_id(void);
/* Identity of the running kernel: hosts of one machine (containers) share its cores. */
uint64_t tt_machine_id(void);
/* Identity of the network namespace: equal means that the same loopback address leads here. */
uint64_t tt_network_id(void);

#endif
