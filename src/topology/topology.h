/* The topology of a host: its CPUs, cores, caches and NUMA nodes, read from the kernel or from
 * hwloc's XML. Plain data. */
#ifndef TT_TOPOLOGY_TOPOLOGY_H
#define TT_TOPOLOGY_TOPOLOGY_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* One processing unit this process may run on. */
struct tt_pu {
    int os_index;            /* the kernel's CPU number */
    int core, package, numa; /* logical indices; two PUs of one core share `core` */
    int l2, l3;              /* index of the cache instance that the PU uses, -1: none */
};

/* Owned by its creator, freed by tt_topology_destroy. Immutable after load. */
struct tt_topology {
    int npus, ncores, npackages, nnumas;
    struct tt_pu *pus;                   /* [npus], so ordered that neighbours share most */
    size_t l1_bytes, l2_bytes, l3_bytes; /* of one instance; 0 unknown */
    size_t memory_bytes;
    char cpu_model[128];
    char source[256]; /* "this machine" or the XML file's path */
};

/* Reads the topology of this machine, restricted to the CPUs allowed to this process, or of an
 * hwloc XML file when xml_path is not NULL or "". Where the kernel's files are missing, every CPU
 * is a core, and there is one package and one NUMA node. TT_ERR_ARGUMENT names a file that is
 * missing, no regular file or no hwloc XML. */
TT_NODISCARD tt_status tt_topology_create(const char *xml_path, struct tt_topology **topology);
void tt_topology_destroy(struct tt_topology *topology);

/* The topology in use, of TUTTI_TOPOLOGY_FILE or of this machine: read at the first call, shared,
 * never freed. Thread-safe. Errors as tt_topology_create. */
TT_NODISCARD tt_status tt_topology_local(const struct tt_topology **topology);

/* The XML text (hwloc's format) of this machine or of the file, allocated with malloc; the caller
 * frees it. TT_ERR_SYSTEM: that of this machine, without hwloc. */
TT_NODISCARD tt_status tt_topology_xml(const char *xml_path, char **xml);

/* Describes the topology line by line. */
void tt_topology_describe(const struct tt_topology *topology,
                          void (*emit)(void *arg, const char *line), void *arg);

/* The identity of this host: a hash of boot id, network and process namespace, or of TUTTI_HOST_ID.
 * Equal for two processes exactly if they can share memory, reach each other's abstract sockets and
 * name each other by pid. */
uint64_t tt_host_id(void);
/* The identity of the running kernel: hosts of one machine (containers) share its cores. */
uint64_t tt_machine_id(void);
/* The identity of the network namespace: processes with equal ones reach each other over loopback.
 */
uint64_t tt_network_id(void);

#endif
