/* Reads which processors the process may run on (its affinity, which cpusets narrow, too), which of
 * them share a core, and the quotas of its control groups. */
#include "cores.h"

#include <limits.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "machine.h"
#include "param.h"

/* The first processor of those that share a core with this one. */
static size_t first_of_core(const char *root, size_t processor)
{
    char path[PATH_MAX];
    size_t first = processor;
    snprintf(path, sizeof path, "%s/sys/devices/system/cpu/cpu%zu/topology/thread_siblings_list",
             root, processor);
    FILE *file = fopen(path, "r");
    if (!file) return processor;
    if (fscanf(file, "%zu", &first) != 1 || first >= CPU_SETSIZE) first = processor;
    fclose(file);
    return first;
}

static int count_cores(const char *root, const cpu_set_t *allowed)
{
    cpu_set_t cores;
    CPU_ZERO(&cores);
    for (size_t processor = 0; processor < CPU_SETSIZE; ++processor)
        if (CPU_ISSET(processor, allowed)) CPU_SET(first_of_core(root, processor), &cores);
    return CPU_COUNT(&cores);
}

/* A number in a file of a folder, and the one after it; false where there is none. */
static bool read_numbers(const char *folder, const char *name, double *number, double *next)
{
    char path[2 * PATH_MAX + 32];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "r");
    if (!file) return false;
    const int n = fscanf(file, "%lf %lf", number, next); /* "max" is no number */
    fclose(file);
    return n > 0;
}

/* Keeps the group's quota where it is the least. */
static void take_quota(const char *folder, bool old, void *arg)
{
    struct tr_cores *cores = arg;
    double quota, period = 0, none;
    struct stat st;
    if (!read_numbers(folder, old ? "cpu.cfs_quota_us" : "cpu.max", &quota, &period)) return;
    if (old && !read_numbers(folder, "cpu.cfs_period_us", &period, &none)) return;
    if (quota <= 0 || period <= 0 || stat(folder, &st) < 0) return; /* version 1 says -1 */
    if (cores->group && quota / period >= cores->quota) return;
    cores->group = st.st_ino;
    cores->quota = quota / period;
}

void tr_cores_read(const char *root, struct tr_cores *cores)
{
    cpu_set_t allowed;
    *cores = (struct tr_cores){.count = 1};
    /* Fails where there are more processors than the set holds. */
    if (sched_getaffinity(0, sizeof allowed, &allowed) == 0) {
        cores->count = count_cores(root, &allowed);
        cores->set = tr_checksum(&allowed, sizeof allowed);
    }
    tr_machine_groups(root, "cpu", take_quota, cores);
}
