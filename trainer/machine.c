/* Reads the host's memory, and the limits of the control groups (versions 1 and 2), and compares
 * them with what the ranks need. cores.c has the processors. */
#include "machine.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

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

/* Whether a list "this,that" names the controller. */
static bool names(const char *list, const char *controller)
{
    const size_t length = strlen(controller);
    for (;; ++list) {
        if (!strncmp(list, controller, length) && (!list[length] || list[length] == ','))
            return true;
        list = strchr(list, ',');
        if (!list) return false;
    }
}

/* The folders of the group and of those above it. */
static void visit_groups(const char *base, char *group, bool old, tr_visit_group *visit, void *arg)
{
    for (;;) {
        char folder[2 * PATH_MAX];
        snprintf(folder, sizeof folder, "%s%s", base, group);
        visit(folder, old, arg);
        char *slash = strrchr(group, '/');
        if (!slash) return;
        *slash = 0;
    }
}

void tr_machine_groups(const char *root, const char *controller, tr_visit_group *visit, void *arg)
{
    char path[PATH_MAX], line[PATH_MAX];
    snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
    FILE *file = fopen(path, "r");
    if (!file) return;
    while (fgets(line, sizeof line, file)) { /* number:controllers:/path */
        line[strcspn(line, "\n")] = 0;
        char *list = strchr(line, ':'), *group = list ? strchr(list + 1, ':') : NULL;
        if (!group) continue;
        *group++ = 0;
        const bool old = *++list != 0;
        if (old && !names(list, controller)) continue;
        snprintf(path, sizeof path, "%s/sys/fs/cgroup%s%s", root, old ? "/" : "",
                 old ? controller : "");
        visit_groups(path, group, old, visit, arg);
    }
    fclose(file);
}

/* A group is known by the number of its folder, which is the same in every container that shows it.
 */
static void add_group(const char *folder, bool old, void *arg)
{
    struct tr_machine *limits = arg;
    char path[2 * PATH_MAX + 32];
    unsigned long long bytes;
    struct stat st;
    snprintf(path, sizeof path, "%s/%s", folder, old ? "memory.limit_in_bytes" : "memory.max");
    FILE *file = fopen(path, "r");
    if (!file) return;
    const bool limited = fscanf(file, "%llu", &bytes) == 1; /* "max" is no number */
    fclose(file);
    if (!limited || limits->ngroups == TR_MOST_GROUPS || stat(folder, &st) < 0) return;
    limits->groups[limits->ngroups++] = (struct tr_limit){.id = st.st_ino, .limit = bytes};
}

void tr_machine_read(const char *root, struct tr_machine *limits)
{
    *limits = (struct tr_machine){.host = UINT64_MAX};
    read_host(root, limits);
    tr_machine_groups(root, "memory", add_group, limits);
    tr_cores_read(root, &limits->cores);
}

struct tr_need tr_machine_need(const struct tr_machine *limits, uint64_t nbytes)
{
    struct tr_need need = {
        .nbytes = nbytes, .set = limits->cores.set, .group = limits->cores.group};
    for (int i = 0; i < limits->ngroups; ++i) need.groups[i] = limits->groups[i].id;
    return need;
}

static bool is_in(const struct tr_need *need, uint64_t group)
{
    int i = 0;
    while (i < TR_MOST_GROUPS && need->groups[i] != group) ++i;
    return i < TR_MOST_GROUPS;
}

/* What `nranks` ranks need together. */
struct sum {
    uint64_t nbytes;
    int nranks;
};

/* The ranks in a group; 0: all of the host. */
static struct sum sum_of(const struct tr_need *needs, int nneeds, uint64_t group)
{
    struct sum sum = {0};
    for (int i = 0; i < nneeds; ++i) {
        if (group && !is_in(&needs[i], group)) continue;
        sum.nbytes += needs[i].nbytes;
        ++sum.nranks;
    }
    return sum;
}

static tr_status too_much(int rank, uint64_t mine, const struct sum *all, const char *where,
                          uint64_t limit)
{
    const double gib = 1 << 30;
    char others[96] = "";
    if (all->nranks > 1)
        snprintf(others, sizeof others, ", of %d ranks %s %.1f GiB", all->nranks, where,
                 (double)all->nbytes / gib);
    return tr_fail("rank %d needs %.1f GiB of memory%s, and there are %.1f GiB %s; a smaller "
                   "--micro-batch needs less for activations, more ranks with --fsdp or --tp less "
                   "for all (--plan shows how much)",
                   rank, (double)mine / gib, others, (double)limit / gib, where);
}

tr_status tr_machine_check(const struct tr_machine *limits, int rank, const struct tr_need *needs,
                           int nneeds, int own)
{
    for (int i = 0; i < limits->ngroups; ++i) {
        const struct sum sum = sum_of(needs, nneeds, limits->groups[i].id);
        if (sum.nbytes > limits->groups[i].limit)
            return too_much(rank, needs[own].nbytes, &sum, "in its control group",
                            limits->groups[i].limit);
    }
    const struct sum sum = sum_of(needs, nneeds, 0);
    if (sum.nbytes <= limits->host) return TR_OK;
    return too_much(rank, needs[own].nbytes, &sum, "on its host", limits->host);
}

int tr_machine_threads(const struct tr_machine *limits, const struct tr_need *needs, int nneeds,
                       int own)
{
    const struct tr_cores *cores = &limits->cores;
    int of_set = 0, of_group = 0;
    for (int i = 0; i < nneeds; ++i) {
        of_set += needs[i].set == needs[own].set;
        of_group += needs[i].group == needs[own].group;
    }
    int threads = cores->count / of_set;
    if (cores->group && cores->quota / of_group < threads) threads = (int)(cores->quota / of_group);
    return threads > 1 ? threads : 1;
}
