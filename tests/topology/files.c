/* Topologies from XML files. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fixtures.h"

TEST(topology, dual_socket_server_is_read_from_xml)
{
    REQUIRE_HWLOC;
    struct tt_topology *t = load_machine("dual_socket");
    REQUIRE(t);
    CHECK_EQ(t->npackages, 2);
    CHECK_EQ(t->nnumas, 2);
    CHECK_EQ(t->ncores, 32);
    CHECK_EQ(t->npus, 64);
    CHECK_EQ(t->l1_bytes, 48 << 10);
    CHECK_EQ(t->l2_bytes, 2 << 20);
    CHECK_EQ(t->l3_bytes, 36 << 20);
    CHECK_EQ(t->memory_bytes, 256ll << 30);
    CHECK_STR(t->cpu_model, "Dual-socket server CPU");
    CHECK(strstr(t->source, "dual_socket.xml"));
    tt_topology_destroy(t);
}

TEST(topology, hyperthreads_far_apart_in_number_are_neighbours)
{
    REQUIRE_HWLOC;
    struct tt_topology *t = load_machine("dual_socket");
    REQUIRE(t);
    CHECK_EQ(t->pus[0].os_index, 0);
    CHECK_EQ(t->pus[1].os_index, 32);
    CHECK_EQ(t->pus[0].core, t->pus[1].core);
    CHECK_EQ(t->pus[2].core, 1);
    tt_topology_destroy(t);
}

/* Whether two PUs share a core, a cache, a NUMA node, a package: "core,l2,l3,numa,package". */
static const char *shared_by(const struct tt_topology *t, int pu_a, int pu_b)
{
    static char text[64];
    const struct tt_pu *a = &t->pus[pu_a], *b = &t->pus[pu_b];
    snprintf(text, sizeof text, "%s%s%s%s%s", a->core == b->core ? "core," : "",
             a->l2 >= 0 && a->l2 == b->l2 ? "l2," : "", a->l3 >= 0 && a->l3 == b->l3 ? "l3," : "",
             a->numa == b->numa ? "numa," : "", a->package == b->package ? "package," : "");
    return text;
}

TEST(topology, cpus_share_what_the_file_says)
{
    REQUIRE_HWLOC;
    struct tt_topology *t = load_machine("dual_socket");
    REQUIRE(t);
    CHECK_STR(shared_by(t, 0, 1), "core,l2,l3,numa,package,");
    CHECK_STR(shared_by(t, 1, 2), "l3,numa,package,");
    CHECK_STR(shared_by(t, 0, 63), "");
    tt_topology_destroy(t);

    t = load_machine("dgx");
    REQUIRE(t);
    CHECK_EQ(t->nnumas, 8);
    CHECK_EQ(t->ncores, 64);
    CHECK_STR(shared_by(t, 0, 1), "l3,numa,package,");
    CHECK_STR(shared_by(t, 0, 4), "numa,package,");
    CHECK_STR(shared_by(t, 0, 8), "package,");
    CHECK_STR(shared_by(t, 0, 32), "");
    tt_topology_destroy(t);
}

TEST(topology, missing_file_is_an_argument_error_that_names_it)
{
    REQUIRE_HWLOC;
    struct tt_topology *t = NULL;
    CHECK_EQ(tt_topology_create("/nonexistent/machine.xml", &t), TT_ERR_ARGUMENT);
    CHECK(!t);
    CHECK(strstr(tt_last_error(), "/nonexistent/machine.xml"));
    CHECK(strstr(tt_last_error(), "No such file"));
}

TEST(topology, file_that_is_no_xml_is_an_argument_error_that_names_it)
{
    REQUIRE_HWLOC;
    static const char *const contents[] = {
        "", "hello", "<html/>", "<?xml version=\"1.0\"?>\n<topology",
        "<?xml version=\"1.0\"?>\n<topology version=\"2.0\"/>\n"};
    for (size_t i = 0; i < sizeof contents / sizeof *contents; i++) {
        char path[] = "/tmp/tutti-topology-XXXXXX";
        const int fd = mkstemp(path);
        REQUIRE(fd >= 0);
        const size_t length = strlen(contents[i]);
        CHECK_EQ(write(fd, contents[i], length), length);
        close(fd);
        struct tt_topology *t = NULL;
        CHECK_MESSAGE(tt_topology_create(path, &t) == TT_ERR_ARGUMENT, "accepted '%s'",
                      contents[i]);
        CHECK(strstr(tt_last_error(), path));
        char *xml = NULL;
        CHECK_EQ(tt_topology_xml(path, &xml), TT_ERR_ARGUMENT);
        CHECK(!xml);
        unlink(path);
    }
}

static void check_same(const struct tt_topology *a, const struct tt_topology *b)
{
    CHECK_EQ(a->npus, b->npus);
    CHECK_EQ(a->ncores, b->ncores);
    CHECK_EQ(a->npackages, b->npackages);
    CHECK_EQ(a->nnumas, b->nnumas);
    for (int i = 0; i < a->npus && i < b->npus; i++)
        CHECK_MESSAGE(memcmp(&a->pus[i], &b->pus[i], sizeof a->pus[i]) == 0,
                      "PU %d differs: CPU %d and CPU %d", i, a->pus[i].os_index,
                      b->pus[i].os_index);
}

/* Writes the XML of `path` (NULL: this machine) to a file and loads that. */
static struct tt_topology *round_trip(const char *path)
{
    char *xml = NULL;
    struct tt_topology *t = NULL;
    char copy[] = "/tmp/tutti-topology-XXXXXX";
    const int fd = mkstemp(copy);
    if (fd < 0) return NULL;
    if (tt_topology_xml(path, &xml) == TT_OK) {
        const size_t length = strlen(xml);
        CHECK_EQ(write(fd, xml, length), length);
        if (tt_topology_create(copy, &t) != TT_OK)
            tt_test_fail(__FILE__, __LINE__, "%s", tt_last_error());
    }
    free(xml);
    close(fd);
    unlink(copy);
    return t;
}

TEST(topology, xml_written_and_read_again_is_the_same_machine)
{
    REQUIRE_HWLOC;
    char path[512];
    snprintf(path, sizeof path, "%s/tests/topology/xml/dgx.xml", TUTTI_SOURCE_DIR);
    struct tt_topology *original = load_machine("dgx"), *again = round_trip(path);
    REQUIRE(original && again);
    check_same(original, again);
    tt_topology_destroy(original);
    tt_topology_destroy(again);
}

TEST(topology, this_machine_survives_a_round_trip_through_xml)
{
    REQUIRE_HWLOC;
    struct tt_topology *original = NULL;
    REQUIRE(tt_topology_create(NULL, &original) == TT_OK);
    struct tt_topology *again = round_trip(NULL);
    REQUIRE(again);
    check_same(original, again);
    tt_topology_destroy(original);
    tt_topology_destroy(again);
}

TEST(topology, the_kernels_files_and_hwloc_agree_on_this_machine)
{
    REQUIRE_HWLOC;
    struct tt_topology *ours = NULL, *hwlocs = NULL;
    REQUIRE(tt_topology_create("", &ours) == TT_OK);
    REQUIRE(tt_hwloc_load(NULL, &hwlocs) == TT_OK);
    check_same(ours, hwlocs);
    CHECK_EQ(ours->l1_bytes, hwlocs->l1_bytes);
    CHECK_EQ(ours->l2_bytes, hwlocs->l2_bytes);
    CHECK_EQ(ours->l3_bytes, hwlocs->l3_bytes);
    tt_topology_destroy(ours);
    tt_topology_destroy(hwlocs);
}
