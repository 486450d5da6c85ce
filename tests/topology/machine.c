/* This machine, invented /sys trees, and the identity of a host. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/config.h"
#include "fixtures.h"

/* Writes root/<path> with its folders. */
static void put(const char *root, const char *path, const char *text)
{
    char full[512];
    snprintf(full, sizeof full, "%s/%s", root, path);
    for (char *slash = strchr(full + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        (void)mkdir(full, 0755);
        *slash = '/';
    }
    FILE *file = fopen(full, "w");
    if (!file) {
        tt_test_fail(__FILE__, __LINE__, "cannot write %s", full);
        return;
    }
    fprintf(file, "%s\n", text);
    fclose(file);
}

static void put_cpu(const char *root, int cpu, const char *path, const char *text)
{
    char name[256];
    snprintf(name, sizeof name, "cpu/cpu%d/%s", cpu, path);
    put(root, name, text);
}

static void remove_tree(const char *root)
{
    char command[600];
    snprintf(command, sizeof command, "rm -rf '%s'", root);
    CHECK_EQ(system(command), 0);
}

/* Two packages of two cores of two threads; threads are numbered n and n+4; one L3 a package. */
static void put_small_server(const char *root)
{
    static const char *const threads[] = {"0,4", "1,5", "2,6", "3,7"};
    put(root, "node/online", "0-1");
    put(root, "node/node0/cpulist", "0-1,4-5");
    put(root, "node/node1/cpulist", "2-3,6-7");
    for (int cpu = 0; cpu < 8; cpu++) {
        const char *package = cpu % 4 < 2 ? "0-1,4-5" : "2-3,6-7";
        put_cpu(root, cpu, "topology/thread_siblings_list", threads[cpu % 4]);
        put_cpu(root, cpu, "topology/core_siblings_list", package);
        static const char *const levels[] = {"1", "1", "2", "3"};
        static const char *const types[] = {"Data", "Instruction", "Unified", "Unified"};
        static const char *const sizes[] = {"48K", "32K", "2048K", "36M"};
        for (int index = 0; index < 4; index++) {
            char path[64];
            snprintf(path, sizeof path, "cache/index%d/level", index);
            put_cpu(root, cpu, path, levels[index]);
            snprintf(path, sizeof path, "cache/index%d/type", index);
            put_cpu(root, cpu, path, types[index]);
            snprintf(path, sizeof path, "cache/index%d/size", index);
            put_cpu(root, cpu, path, sizes[index]);
            snprintf(path, sizeof path, "cache/index%d/shared_cpu_list", index);
            put_cpu(root, cpu, path, index == 3 ? package : threads[cpu % 4]);
        }
    }
}

static struct tt_cpus cpus_of(const char *list)
{
    struct tt_cpus cpus = {0};
    tt_cpus_parse(list, &cpus);
    return cpus;
}

TEST(sysfs, server_with_threads_far_apart_is_put_in_order)
{
    char root[] = "/tmp/tutti-sysfs-XXXXXX";
    REQUIRE(mkdtemp(root));
    put_small_server(root);
    const struct tt_cpus all = cpus_of("0-7");
    struct tt_topology *t = NULL;
    REQUIRE(tt_sysfs_load(root, &all, &t) == TT_OK);
    CHECK_EQ(t->npus, 8);
    CHECK_EQ(t->ncores, 4);
    CHECK_EQ(t->npackages, 2);
    CHECK_EQ(t->nnumas, 2);
    CHECK_EQ(t->l1_bytes, 48 << 10);
    CHECK_EQ(t->l2_bytes, 2 << 20);
    CHECK_EQ(t->l3_bytes, 36 << 20);
    static const int order[] = {0, 4, 1, 5, 2, 6, 3, 7};
    for (int i = 0; i < 8; i++) {
        CHECK_EQ(t->pus[i].os_index, order[i]);
        CHECK_EQ(t->pus[i].core, i / 2);
        CHECK_EQ(t->pus[i].l2, i / 2);
        CHECK_EQ(t->pus[i].l3, i / 4);
        CHECK_EQ(t->pus[i].numa, i / 4);
        CHECK_EQ(t->pus[i].package, i / 4);
    }
    tt_topology_destroy(t);
    remove_tree(root);
}

TEST(sysfs, only_the_allowed_cpus_count)
{
    char root[] = "/tmp/tutti-sysfs-XXXXXX";
    REQUIRE(mkdtemp(root));
    put_small_server(root);
    const struct tt_cpus some = cpus_of("3,6-7");
    struct tt_topology *t = NULL;
    REQUIRE(tt_sysfs_load(root, &some, &t) == TT_OK);
    CHECK_EQ(t->npus, 3);
    CHECK_EQ(t->ncores, 2);
    CHECK_EQ(t->npackages, 1);
    CHECK_EQ(t->pus[0].os_index, 6);
    CHECK_EQ(t->pus[1].os_index, 3);
    CHECK_EQ(t->pus[2].os_index, 7);
    CHECK_EQ(t->pus[0].l3, 0);
    tt_topology_destroy(t);
    remove_tree(root);
}

TEST(sysfs, without_any_files_every_cpu_is_a_core)
{
    const struct tt_cpus some = cpus_of("1,5,9");
    struct tt_topology *t = NULL;
    REQUIRE(tt_sysfs_load("/nonexistent", &some, &t) == TT_OK);
    CHECK_EQ(t->ncores, 3);
    CHECK_EQ(t->npackages, 1);
    CHECK_EQ(t->nnumas, 1);
    CHECK_EQ(t->pus[2].os_index, 9);
    CHECK_EQ(t->pus[2].l3, -1);
    CHECK_EQ(t->l3_bytes, 0);
    CHECK_EQ(t->pus[2].numa, t->pus[0].numa);
    tt_topology_destroy(t);
}

TEST(sysfs, no_allowed_cpu_is_an_error)
{
    const struct tt_cpus none = {0};
    struct tt_topology *t = NULL;
    CHECK_EQ(tt_sysfs_load("/nonexistent", &none, &t), TT_ERR_SYSTEM);
    CHECK(!t);
}

TEST(sysfs, cpu_lists_parse_and_odd_ones_do_no_harm)
{
    struct tt_cpus cpus = cpus_of("0-2,7");
    for (int cpu = 0; cpu < 10; cpu++) CHECK_EQ(tt_cpus_has(&cpus, cpu), cpu <= 2 || cpu == 7);
    static const char *const odd[] = {"", "x", "-", "-5", "3-1", "5,", "1-99999999999", ",,"};
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) cpus = cpus_of(odd[i]);
    CHECK(!tt_cpus_has(&cpus, -1));
    CHECK(!tt_cpus_has(&cpus, TT_CPUS_MAX));
}

static void *allowed_of_bound_thread(void *argument)
{
    struct tt_cpus one = {0}, *result = argument;
    for (int cpu = 0; cpu < TT_CPUS_MAX; cpu++)
        if (tt_cpus_has(result, cpu)) {
            tt_cpus_add(&one, cpu);
            break;
        }
    CHECK_EQ(sched_setaffinity(0, sizeof one, one.bits), 0);
    tt_cpus_allowed(result);
    return NULL;
}

TEST(topology, one_bound_thread_does_not_shrink_the_machine)
{
    struct tt_cpus before, after;
    tt_cpus_allowed(&before);
    after = before;
    pthread_t thread;
    REQUIRE(pthread_create(&thread, NULL, allowed_of_bound_thread, &after) == 0);
    pthread_join(thread, NULL);
    CHECK(memcmp(&before, &after, sizeof before) == 0);
}

TEST(topology, this_machine_has_the_cpus_allowed_to_the_process)
{
    struct tt_cpus allowed;
    tt_cpus_allowed(&allowed);
    struct tt_topology *t = NULL;
    REQUIRE(tt_topology_create(NULL, &t) == TT_OK);
    CHECK_EQ(t->npus, CPU_COUNT_S(sizeof allowed, allowed.bits));
    CHECK_STR(t->source, "this machine");
    CHECK(t->ncores >= 1 && t->ncores <= t->npus);
    for (int i = 0; i < t->npus; i++) CHECK(tt_cpus_has(&allowed, t->pus[i].os_index));
    tt_topology_destroy(t);
    tt_topology_destroy(NULL);
}

TEST(topology, the_shared_topology_is_made_once)
{
    const struct tt_topology *a = NULL, *b = NULL;
    REQUIRE(tt_topology_local(&a) == TT_OK && tt_topology_local(&b) == TT_OK);
    CHECK(a == b && a->npus > 0);
}

struct lines {
    int count;
    char text[4096];
};

static void collect(void *arg, const char *line)
{
    struct lines *lines = arg;
    const size_t used = strlen(lines->text);
    snprintf(lines->text + used, sizeof lines->text - used, "%s\n", line);
    lines->count++;
}

TEST(topology, the_description_counts_and_groups_by_l3)
{
    REQUIRE_HWLOC;
    struct tt_topology *t = load_machine("dual_socket");
    REQUIRE(t);
    struct lines lines = {0};
    tt_topology_describe(t, collect, &lines);
    CHECK_EQ(lines.count, 4 + 2);
    CHECK(strstr(lines.text, "2 packages, 2 NUMA nodes, 32 cores, 64 CPUs"));
    CHECK(strstr(lines.text, "L1 48 KiB, L2 2 MiB, L3 36 MiB; memory: 256 GiB"));
    CHECK(strstr(lines.text, "package 1, NUMA node 1, L3 1: cores 16-31, CPUs 16-31,48-63"));
    tt_topology_destroy(t);
}

static uint64_t host_id_as(const char *name)
{
    if (name)
        setenv("TUTTI_HOST_ID", name, 1);
    else
        unsetenv("TUTTI_HOST_ID");
    tt_config_reload();
    return tt_host_id();
}

TEST(host_id, is_stable_and_follows_the_config)
{
    const uint64_t here = host_id_as(NULL);
    CHECK(here == tt_host_id());
    const uint64_t one = host_id_as("one"), two = host_id_as("two");
    CHECK(one != two && one != here);
    CHECK(one == host_id_as("one"));
    CHECK(here == host_id_as(NULL));
}

TEST(host_id, eight_hosts_of_a_cluster_differ)
{
    uint64_t ids[8];
    for (int host = 0; host < 8; host++) {
        char name[32];
        snprintf(name, sizeof name, "node%d", host);
        ids[host] = host_id_as(name);
        for (int other = 0; other < host; other++) CHECK(ids[other] != ids[host]);
    }
    (void)host_id_as(NULL);
}
