/* The sources of a topology, for src/topology only: the kernel's files, XML files and hwloc. */
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

/* The CPUs on which any thread of this process may run: a bound thread does not shrink the set. */
void tt_cpus_allowed(struct tt_cpus *cpus);

/* Adds the CPUs of a list in the kernel's format, "0-3,8,10-11", as far as it parses. */
void tt_cpus_parse(const char *list, struct tt_cpus *cpus);

/* A new topology with npus entries, all zero but the caches, which are -1. NULL: no memory. */
struct tt_topology *tt_topology_new(int npus);

/* Sorts the PUs so that neighbours share most, replaces identities by indices in that order, and
 * counts them. */
void tt_topology_finish(struct tt_topology *topology);

/* Reads the allowed CPUs from the kernel's files below `root` ("/sys/devices/system"; tests have
 * their own). Where files are missing: one core a CPU, one package, one NUMA node. */
TT_NODISCARD tt_status tt_sysfs_load(const char *root, const struct tt_cpus *allowed,
                                     struct tt_topology **topology);

/* Reads a file of hwloc's XML, and gives its text too, which the caller frees. TT_ERR_ARGUMENT,
 * with the path and, where it has one, the line: the file cannot be read, is no regular file, or is
 * damaged. */
TT_NODISCARD tt_status tt_xml_load(const char *path, struct tt_topology **topology, char **text);

/* This machine's allowed CPUs as XML, which the caller frees. TT_ERR_SYSTEM without hwloc. */
bool tt_hwloc_present(void);
TT_NODISCARD tt_status tt_hwloc_xml(char **xml);

#endif
