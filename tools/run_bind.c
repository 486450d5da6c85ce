/* Binds the processes that tutti-run starts to cores. */
#include <stdlib.h>

#include "cores.h"
#include "run.h"

void run_bind_ranks(struct run *run)
{
    const int nranks = run->options.nranks;
    cpu_set_t *cores = calloc((size_t)nranks, sizeof *cores);
    const int ncores = cores ? cores_find(cores, nranks) : 0;
    /* More ranks than cores: the kernel spreads them better than we can. */
    for (int i = 0; i < nranks && nranks <= ncores; i++) run->members[i].cpus = cores[i];
    if (run->options.bind_asked && ncores == 0)
        run_say("the cores are not known (built without hwloc?): the ranks are not bound");
    else if (run->options.bind_asked && nranks > ncores)
        run_say("%d ranks on %d core%s: not bound", nranks, ncores, ncores == 1 ? "" : "s");
    free(cores);
}

int run_count_cores(void)
{
    cpu_set_t allowed;
    const int ncores = cores_find(NULL, 0);
    if (ncores > 0) return ncores;
    CPU_ZERO(&allowed);
    return sched_getaffinity(0, sizeof allowed, &allowed) == 0 ? CPU_COUNT(&allowed) : 1;
}
