/* Prints a topology line by line. */
#include <stdio.h>

#include "base/output.h"
#include "topology/backend.h"
#include "topology/topology.h"

static const char *format_bytes(char *text, size_t size, size_t nbytes)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    int unit = 0;
    double number = (double)nbytes;
    while (number >= 1024 && unit < 4) number /= 1024, unit++;
    if (nbytes == 0)
        snprintf(text, size, "unknown");
    else
        snprintf(text, size, "%.4g %s", number, units[unit]);
    return text;
}

static const char *plural(int number)
{
    return number == 1 ? "" : "s";
}

/* The kernel's numbers of PUs [first, end), as short as they go: 0-3,8. */
static void format_cpus(char *text, size_t size, const struct tt_topology *topology, int first,
                        int end)
{
    struct tt_cpus cpus = {0};
    size_t used = 0;
    text[0] = '\0';
    for (int i = first; i < end; i++) tt_cpus_add(&cpus, topology->pus[i].os_index);
    for (int cpu = 0; cpu < TT_CPUS_MAX && used + 32 < size; cpu++) {
        if (!tt_cpus_has(&cpus, cpu)) continue;
        const int from = cpu;
        while (tt_cpus_has(&cpus, cpu + 1)) cpu++;
        used += (size_t)snprintf(text + used, size - used, "%s%d", used ? "," : "", from);
        if (cpu > from) used += (size_t)snprintf(text + used, size - used, "-%d", cpu);
    }
}

static int shares_l3(const struct tt_pu *a, const struct tt_pu *b)
{
    return a->package == b->package && a->numa == b->numa && a->l3 == b->l3;
}

static void describe_group(const struct tt_output *output, const struct tt_topology *topology,
                           int first, int end)
{
    const struct tt_pu *pu = &topology->pus[first];
    char cpus[512], l3[32] = "", cores[32];
    format_cpus(cpus, sizeof cpus, topology, first, end);
    if (pu->l3 >= 0) snprintf(l3, sizeof l3, ", L3 %d", pu->l3);
    const int last_core = topology->pus[end - 1].core;
    if (last_core == pu->core)
        snprintf(cores, sizeof cores, "core %d", pu->core);
    else
        snprintf(cores, sizeof cores, "cores %d-%d", pu->core, last_core);
    tt_say(output, "  package %d, NUMA node %d%s: %s, CPU%s %s", pu->package, pu->numa, l3, cores,
           plural(end - first), cpus);
}

void tt_topology_describe(const struct tt_topology *topology,
                          void (*emit)(void *arg, const char *line), void *arg)
{
    const struct tt_output output = {emit, arg};
    char l1[32], l2[32], l3[32], memory[32];
    tt_say(&output, "source: %s", topology->source);
    tt_say(&output, "processor: %s", topology->cpu_model[0] ? topology->cpu_model : "unknown");
    tt_say(&output, "%d package%s, %d NUMA node%s, %d core%s, %d CPU%s", topology->npackages,
           plural(topology->npackages), topology->nnumas, plural(topology->nnumas),
           topology->ncores, plural(topology->ncores), topology->npus, plural(topology->npus));
    tt_say(&output, "caches: L1 %s, L2 %s, L3 %s; memory: %s",
           format_bytes(l1, sizeof l1, topology->l1_bytes),
           format_bytes(l2, sizeof l2, topology->l2_bytes),
           format_bytes(l3, sizeof l3, topology->l3_bytes),
           format_bytes(memory, sizeof memory, topology->memory_bytes));
    for (int first = 0, end = 0; first < topology->npus; first = end) {
        while (end < topology->npus && shares_l3(&topology->pus[first], &topology->pus[end])) end++;
        describe_group(&output, topology, first, end);
    }
}
