/* The cores of this machine, to each of which a rank may be bound. */
#ifndef TUTTI_TOOLS_CORES_H
#define TUTTI_TOOLS_CORES_H

#include <sched.h>

/* Fills the CPUs of the first `most` cores, as the operating system numbers them. Returns how many
 * cores there are; 0: they are not known, because this was built without hwloc. */
int cores_find(cpu_set_t *cores, int most);

/* As cores_find, but of the cores and CPUs on which this process may run. */
int cores_find_allowed(cpu_set_t *cores, int most);

#endif
