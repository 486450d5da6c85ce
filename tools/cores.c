/* Finds the cores of this machine with hwloc, where there is one. */
#include "cores.h"

#include <stdlib.h>

#ifdef TUTTI_HAVE_HWLOC
#include <hwloc.h>
#include <hwloc/glibc-sched.h>
#include <stddef.h>

/* Cores only, from the operating system only: 2 ms instead of 7. */
static hwloc_topology_t load(void)
{
    hwloc_topology_t topology;
    if (hwloc_topology_init(&topology) != 0) return NULL;
    hwloc_topology_set_all_types_filter(topology, HWLOC_TYPE_FILTER_KEEP_NONE);
    hwloc_topology_set_type_filter(topology, HWLOC_OBJ_CORE, HWLOC_TYPE_FILTER_KEEP_ALL);
#if HWLOC_API_VERSION >= 0x00020100
    hwloc_topology_set_components(topology, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, "x86");
#endif
    if (hwloc_topology_load(topology) == 0) return topology;
    hwloc_topology_destroy(topology);
    return NULL;
}

int cores_find(cpu_set_t *cores, int most)
{
    hwloc_topology_t topology = load();
    if (!topology) return 0;
    const int ncores = hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_CORE);
    for (int i = 0; i < ncores && i < most; i++) {
        const hwloc_obj_t core = hwloc_get_obj_by_type(topology, HWLOC_OBJ_CORE, (unsigned)i);
        hwloc_cpuset_to_glibc_sched_affinity(topology, core->cpuset, &cores[i], sizeof cores[i]);
    }
    hwloc_topology_destroy(topology);
    return ncores > 0 ? ncores : 0;
}

#else

int cores_find(cpu_set_t *cores, int most)
{
    (void)cores, (void)most;
    return 0;
}

#endif

int cores_find_allowed(cpu_set_t *cores, int most)
{
    cpu_set_t allowed;
    const int ncores = cores_find(NULL, 0);
    cpu_set_t *all = calloc((size_t)ncores + 1, sizeof *all);
    int number = 0;
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0 || !all ||
        cores_find(all, ncores) != ncores) {
        free(all);
        return 0;
    }
    for (int i = 0; i < ncores; i++) {
        CPU_AND(&all[i], &all[i], &allowed);
        if (CPU_COUNT(&all[i]) == 0) continue;
        if (number < most) cores[number] = all[i];
        number++;
    }
    free(all);
    return number;
}
