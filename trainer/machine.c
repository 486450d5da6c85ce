/* Reads the host's memory, and the limit of the control group (versions 1 and 2). */
#include "machine.h"

#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static void read_host(const char *root, struct tr_machine *limits)
{
    char path[PATH_MAX], line[256];
    unsigned long long kib, sum = 0;
    snprintf(path, sizeof path, "%s/proc/meminfo", root);
    FILE *file = fopen(path, "r");
    if (!file) return;
    while (fgets(line, sizeof line, file))
        if (sscanf(line, "MemTotal: %llu kB", &kib) == 1 ||
            sscanf(line, "SwapTotal: %llu kB", &kib) == 1)
            sum += kib * 1024;
    fclose(file);
    if (sum) limits->host = sum;
}

/* The smallest limit of the group and those above it. A container may show its own group as the
 * root: groups that are not found are left out. */
static void read_groups(const char *base, char *group, const char *name, struct tr_machine *limits)
{
    for (;;) {
        char path[2 * PATH_MAX];
        unsigned long long bytes;
        snprintf(path, sizeof path, "%s%s/%s", base, group, name);
        FILE *file = fopen(path, "r");
        if (file && fscanf(file, "%llu", &bytes) == 1 && bytes < limits->group)
            limits->group = bytes; /* "max" is no number */
        if (file) fclose(file);
        char *slash = strrchr(group, '/');
        if (!slash) return;
        *slash = 0;
    }
}

void tr_machine_read(const char *root, struct tr_machine *limits)
{
    char path[PATH_MAX], line[PATH_MAX];
    *limits = (struct tr_machine){UINT64_MAX, UINT64_MAX};
    read_host(root, limits);
    snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
    FILE *file = fopen(path, "r");
    if (!file) return;
    while (fgets(line, sizeof line, file)) { /* number:controllers:/path */
        line[strcspn(line, "\n")] = 0;
        char *kinds = strchr(line, ':'), *group = kinds ? strchr(kinds + 1, ':') : NULL;
        if (!group) continue;
        *group++ = 0;
        const bool old = !strcmp(kinds + 1, "memory");
        if (!old && kinds[1]) continue;
        snprintf(path, sizeof path, "%s/sys/fs/cgroup%s", root, old ? "/memory" : "");
        read_groups(path, group, old ? "memory.limit_in_bytes" : "memory.max", limits);
    }
    fclose(file);
}
