/* Inside src/topology: where the facts come from. The public face is topology.h. */
#ifndef TT_TOPOLOGY_BACKEND_H
#define TT_TOPOLOGY_BACKEND_H

#include <sched.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"
#include "topology/topology.h"

/* A set of CPU numbers, larger than one cpu_set_t. Plain data. */
enum { TT_CPUS_MAX = 8192 };
struct tt_cpus {
    cpu_set_t bits[TT_CPUS_MAX / CPU_SETSIZE];
};

static inline bool tt_cpus_has(const struct tt_cpus *cpus, int cpu)
{
    return cpu >= 0 && cpu < TT_CPUS_MAX && CPU_ISSET_S((size_t)cpu, sizeof *cpus, cpus->bits);
}

static inline void tt_cpus_add(struct tt_cpus *cpus, int cpu)
{
    if (cpu >= 0 && cpu < TT_CPUS_MAX) CPU_SET_S((size_t)cpu, sizeof *cpus, cpus->bits);
}

/* The CPUs that any thread of this process may run on: one bound thread does not shrink the set. */
void tt_cpus_allowed(struct tt_cpus *cpus);

/* The kernel's list format, "0-3,8,10-11"; adds to `cpus` what parses. */
void tt_cpus_parse(const char *list, struct tt_cpus *cpus);

/* A new topology with room for npus, all zero but the caches, which are -1. NULL: no memory. */
struct tt_topology *tt_topology_new(int npus);

/* Sorts the PUs so that neighbours share most, replaces identities by indices in that order,
 * counts. */
void tt_topology_finish(struct tt_topology *topology);

/* The allowed CPUs as the kernel tells below `root` ("/sys/devices/system"; tests have their own).
 * What the kernel does not tell is taken as: one core a CPU, one package, one NUMA node. */
TT_NODISCARD tt_status tt_sysfs_load(const char *root, const struct tt_cpus *allowed,
                                     struct tt_topology **topology);

/* Through hwloc: this machine's allowed CPUs (xml_path NULL or "") or an XML file. */
bool tt_hwloc_present(void);
TT_NODISCARD tt_status tt_hwloc_load(const char *xml_path, struct tt_topology **topology);
TT_NODISCARD tt_status tt_hwloc_xml(const char *xml_path, char **xml);

#endif
