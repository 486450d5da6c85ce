/* Reads the topology of this machine from the kernel's files. hwloc would take 25 ms in every
 * process, for its plugins for GL and OpenCL; reading the files takes less than 1 ms. */
#include "topology/backend.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/open.h"
#include "base/private_fd.h"
#include "base/status.h"

void tt_cpus_parse(const char *list, struct tt_cpus *cpus)
{
    while (*list) {
        char *end;
        const long first = strtol(list, &end, 10);
        if (end == list) return;
        long last = first;
        if (*end == '-') last = strtol(end + 1, &end, 10);
        if (last >= TT_CPUS_MAX) last = TT_CPUS_MAX - 1;
        for (long cpu = first; cpu >= 0 && cpu <= last; cpu++) tt_cpus_add(cpus, (int)cpu);
        if (*end != ',') return;
        list = end + 1;
    }
}

void tt_cpus_allowed(struct tt_cpus *cpus)
{
    memset(cpus, 0, sizeof *cpus);
    tt_low_fd_hold();
    DIR *tasks = opendir("/proc/self/task");
    (void)tt_low_fd_release(-1);
    struct dirent *entry;
    while (tasks && (entry = readdir(tasks))) {
        struct tt_cpus one = {0};
        const int tid = atoi(entry->d_name);
        if (tid <= 0 || sched_getaffinity(tid, sizeof one, one.bits) != 0) continue;
        CPU_OR_S(sizeof one, cpus->bits, cpus->bits, one.bits);
    }
    if (tasks) closedir(tasks);
    if (CPU_COUNT_S(sizeof *cpus, cpus->bits) == 0)
        (void)sched_getaffinity(0, sizeof *cpus, cpus->bits); /* no /proc */
}

/* The file's text without its newline; "" when it cannot be read. */
static void read_text(char *text, size_t size, const char *path)
{
    (void)tt_read_text(path, text, size);
    text[strcspn(text, "\n")] = '\0';
}

/* One kind of sharing (a cache, a package): its file below cpu<N>/, and its member of struct tt_pu.
 */
struct sharing {
    const char *file;
    size_t offset; /* of the index in struct tt_pu */
};

/* Gives all CPUs of one instance the number of its first CPU. Reads each instance's list once. */
static void read_sharing(const char *root, struct tt_topology *topology, struct sharing sharing)
{
    struct tt_cpus done = {0};
    for (int i = 0; i < topology->npus; i++) {
        const int cpu = topology->pus[i].os_index;
        if (tt_cpus_has(&done, cpu)) continue;
        char path[512], list[4096];
        snprintf(path, sizeof path, "%s/cpu/cpu%d/%s", root, cpu, sharing.file);
        read_text(list, sizeof list, path);
        struct tt_cpus members = {0};
        tt_cpus_parse(list, &members);
        if (!tt_cpus_has(&members, cpu)) continue; /* the file is missing */
        int first = 0; /* allowed or not, which keeps the machine's order */
        while (!tt_cpus_has(&members, first)) first++;
        for (int k = i; k < topology->npus; k++) {
            if (!tt_cpus_has(&members, topology->pus[k].os_index)) continue;
            *(int *)(void *)((char *)&topology->pus[k] + sharing.offset) = first;
            tt_cpus_add(&done, topology->pus[k].os_index);
        }
    }
}

static size_t parse_cache_size(const char *text)
{
    char *end;
    const unsigned long long number = strtoull(text, &end, 10);
    const int shift = *end == 'K' ? 10 : *end == 'M' ? 20 : *end == 'G' ? 30 : 0;
    return (size_t)number << shift;
}

/* Finds out from the first CPU which index<N> is which level; all CPUs have the same order. */
static void read_caches(const char *root, struct tt_topology *topology)
{
    for (int index = 0; index < 8; index++) {
        char base[384], path[512], text[64];
        snprintf(base, sizeof base, "%s/cpu/cpu%d/cache/index%d", root, topology->pus[0].os_index,
                 index);
        snprintf(path, sizeof path, "%s/level", base);
        read_text(text, sizeof text, path);
        const int level = atoi(text);
        if (level == 0) return;
        snprintf(path, sizeof path, "%s/type", base);
        read_text(text, sizeof text, path);
        if (strcmp(text, "Instruction") == 0) continue;
        snprintf(path, sizeof path, "%s/size", base);
        read_text(text, sizeof text, path);
        if (level == 1) topology->l1_bytes = parse_cache_size(text);
        if (level != 2 && level != 3) continue;
        *(level == 2 ? &topology->l2_bytes : &topology->l3_bytes) = parse_cache_size(text);
        snprintf(path, sizeof path, "cache/index%d/shared_cpu_list", index);
        read_sharing(root, topology,
                     (struct sharing){path, level == 2 ? offsetof(struct tt_pu, l2)
                                                       : offsetof(struct tt_pu, l3)});
    }
}

static void read_numa_nodes(const char *root, struct tt_topology *topology)
{
    char path[512], list[4096];
    struct tt_cpus nodes = {0};
    snprintf(path, sizeof path, "%s/node/online", root);
    read_text(list, sizeof list, path);
    tt_cpus_parse(list, &nodes);
    for (int node = 0; node < TT_CPUS_MAX; node++) {
        if (!tt_cpus_has(&nodes, node)) continue;
        struct tt_cpus members = {0};
        snprintf(path, sizeof path, "%s/node/node%d/cpulist", root, node);
        read_text(list, sizeof list, path);
        tt_cpus_parse(list, &members);
        for (int i = 0; i < topology->npus; i++)
            if (tt_cpus_has(&members, topology->pus[i].os_index)) topology->pus[i].numa = node;
    }
}

static void read_cpu_model(char *model, size_t size)
{
    FILE *file = tt_open_stream("/proc/cpuinfo");
    char line[256];
    while (file && fgets(line, sizeof line, file)) {
        const char *colon = strchr(line, ':');
        if (!colon || strncmp(line, "model name", 10) != 0) continue;
        line[strcspn(line, "\n")] = '\0';
        snprintf(model, size, "%.*s", (int)size - 1, colon + 1 + strspn(colon + 1, " "));
        break;
    }
    if (file) fclose(file);
}

tt_status tt_sysfs_load(const char *root, const struct tt_cpus *allowed,
                        struct tt_topology **topology)
{
    const int npus = CPU_COUNT_S(sizeof *allowed, allowed->bits);
    if (npus == 0)
        return tt_fail(TT_ERR_SYSTEM, "no CPU is allowed to this process; check taskset, the "
                                      "cpuset cgroup and that sched_getaffinity is permitted");
    struct tt_topology *new = tt_topology_new(npus);
    if (!new) return tt_fail(TT_ERR_SYSTEM, "no memory for the topology of %d CPUs", npus);
    for (int cpu = 0, i = 0; cpu < TT_CPUS_MAX; cpu++) {
        if (!tt_cpus_has(allowed, cpu)) continue;
        new->pus[i].core = new->pus[i].os_index = cpu;
        i++;
    }
    read_sharing(root, new,
                 (struct sharing){"topology/thread_siblings_list", offsetof(struct tt_pu, core)});
    read_sharing(root, new,
                 (struct sharing){"topology/core_siblings_list", offsetof(struct tt_pu, package)});
    read_caches(root, new);
    read_numa_nodes(root, new);
    read_cpu_model(new->cpu_model, sizeof new->cpu_model);
    const long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    if (pages > 0 && page > 0) new->memory_bytes = (size_t)pages *(size_t)page;
    snprintf(new->source, sizeof new->source, "this machine");
    tt_topology_finish(new);
    *topology = new;
    return TT_OK;
}
