/* Binds the processes that tutti-run starts to cores. */
#include "run.h"

#ifdef TUTTI_HAVE_HWLOC
#include <hwloc.h>
#include <hwloc/glibc-sched.h>

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

void run_bind_ranks(struct run *run)
{
    hwloc_topology_t topology = load();
    const int ncores = topology ? hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_CORE) : 0;
    const int nranks = run->options.nranks;
    /* More ranks than cores: the kernel spreads them better than we can. */
    for (int i = 0; i < nranks && nranks <= ncores; i++) {
        const hwloc_obj_t core = hwloc_get_obj_by_type(topology, HWLOC_OBJ_CORE, (unsigned)i);
        hwloc_cpuset_to_glibc_sched_affinity(topology, core->cpuset, &run->members[i].cpus,
                                             sizeof run->members[i].cpus);
    }
    if (nranks > ncores && run->options.bind_asked)
        run_say("%d ranks on %d core%s: not bound", nranks, ncores, ncores == 1 ? "" : "s");
    if (topology) hwloc_topology_destroy(topology);
}

int run_count_cores(void)
{
    hwloc_topology_t topology = load();
    const int ncores = topology ? hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_CORE) : 0;
    if (topology) hwloc_topology_destroy(topology);
    return ncores > 0 ? ncores : 1;
}

#else

void run_bind_ranks(struct run *run)
{
    if (run->options.bind_asked) run_say("built without hwloc: the ranks are not bound");
}

int run_count_cores(void)
{
    cpu_set_t allowed;
    CPU_ZERO(&allowed);
    return sched_getaffinity(0, sizeof allowed, &allowed) == 0 ? CPU_COUNT(&allowed) : 1;
}

#endif
