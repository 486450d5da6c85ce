/* Topologies from XML files. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fixtures.h"

TEST(topology, dual_socket_server_is_read_from_xml)
{
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
    struct tt_topology *t = NULL;
    CHECK_EQ(tt_topology_create("/nonexistent/machine.xml", &t), TT_ERR_ARGUMENT);
    CHECK(!t);
    CHECK(strstr(tt_last_error(), "/nonexistent/machine.xml"));
    CHECK(strstr(tt_last_error(), "No such file"));
}

/* Writes the bytes to a new file, whose path goes into `path`, and loads it. */
static tt_status load_bytes(const char *bytes, size_t nbytes, struct tt_topology **t, char path[64])
{
    strcpy(path, "/tmp/tutti-topology-XXXXXX");
    const int fd = mkstemp(path);
    CHECK_EQ(write(fd, bytes, nbytes), (ssize_t)nbytes);
    close(fd);
    *t = NULL;
    const tt_status status = tt_topology_create(path, t);
    unlink(path);
    return status;
}

#define HEAD "<?xml version=\"1.0\"?>\n<topology version=\"2.0\">\n"
#define PU "<object type=\"PU\" os_index=\"0\"/>"

TEST(topology, a_damaged_file_is_an_argument_error_that_names_it_and_the_line)
{
    static const struct {
        const char *text, *why;
    } cases[] = {
        {"", "line 1: it has no element"},
        {"hello", "line 1: it has no element"},
        {"<html/>", "line 1: it begins with <html>, not with <topology>"},
        {"<?xml version=\"1.0\"?>\n<topology", "line 2: <topology> does not end"},
        {HEAD, "line 3: the file ends inside <topology>"},
        {"<topology version=\"2.0\"/>\n", "line 1: it has no processing unit"},
        {HEAD PU, "line 3: the file ends inside <topology>"},
        {HEAD PU "</object></topology>", "line 3: </object> ends <topology>"},
        {HEAD "<object type=\"PU\" os_index=0/></topology>",
         "line 3: the value of 'os_index' has no quotes"},
        {HEAD "<object type=\"PU\" os_in\"dex=\"0\"/>",
         "line 3: an attribute of <object> has no value"},
        {HEAD "<object type=\"PU\"\n os_index=\"0/>",
         "line 4: the value of 'os_index' does not end"},
        {HEAD "<object type=\"PU\"0\"x\"/>", "line 3: <object> does not end"},
        {HEAD "<object os_index=\"0\"/>", "line 3: an <object> has no type"},
        {HEAD "<object type=\"PU\"/>", "line 3: a PU has no os_index from 0 to 8191"},
        {HEAD "<object type=\"PU\" os_index=\"8192\"/>", "a PU has no os_index from 0 to 8191"},
        {HEAD "<object type=\"PU\" os_index=\"-1\"/>", "a PU has no os_index from 0 to 8191"},
        {HEAD "<object type=\"NUMANode\" os_index=\"x\"/>", "a NUMANode has no os_index"},
        {HEAD PU "\n" PU, "line 4: PU 0 is there twice"},
        {HEAD "<object type=\"Machine\" allowed_cpuset=\"0x0000000g\">",
         "the allowed_cpuset '0x0000000g' is no set"},
        {HEAD "<object type=\"Machine\" allowed_cpuset=\"0x00000002\">" PU "</object></topology>",
         "it has no processing unit that is allowed"},
        {HEAD "<!-- " PU, "the file ends inside <topology>"},
        {HEAD "< >", "a tag has no name"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct tt_topology *t;
        char path[64];
        const tt_status status = load_bytes(cases[i].text, strlen(cases[i].text), &t, path);
        CHECK_MESSAGE(status == TT_ERR_ARGUMENT && !t && strstr(tt_last_error(), path) &&
                          strstr(tt_last_error(), cases[i].why),
                      "'%s': expected %s, got %s", cases[i].text, cases[i].why,
                      status ? tt_last_error() : "success");
        tt_topology_destroy(t);
    }
}

TEST(topology, elements_that_lie_too_deep_are_an_error)
{
    struct tt_topology *t;
    char path[64], text[4096] = HEAD;
    for (int i = 0; i < 100; i++) strcat(text, "<object type=\"Group\">");
    CHECK_EQ(load_bytes(text, strlen(text), &t, path), TT_ERR_ARGUMENT);
    CHECK(strstr(tt_last_error(), "elements lie more than 64 deep in one another"));
}

TEST(topology, what_is_no_regular_file_is_not_read)
{
    struct tt_topology *t = NULL;
    char path[] = "/tmp/tutti-topology-XXXXXX", pipe[64];
    REQUIRE(mkdtemp(path));
    snprintf(pipe, sizeof pipe, "%s/pipe", path);
    REQUIRE(mkfifo(pipe, 0600) == 0);
    CHECK_EQ(tt_topology_create(pipe, &t), TT_ERR_ARGUMENT);
    CHECK(strstr(tt_last_error(), pipe) && strstr(tt_last_error(), "it is a pipe"));
    CHECK_EQ(tt_topology_create(path, &t), TT_ERR_ARGUMENT);
    CHECK(strstr(tt_last_error(), "it is a folder"));
    CHECK_EQ(tt_topology_create("/dev/zero", &t), TT_ERR_ARGUMENT);
    CHECK(strstr(tt_last_error(), "it is a device"));
    unlink(pipe);
    rmdir(path);
}

/* A file like lstopo's with all that is read from it. */
static const char small[] = HEAD
    "<!-- <object type=\"PU\" os_index=\"9\"/> -->\n"
    "<object type='Machine' allowed_cpuset=\"0xf...f,0x00000001,,0x00000007\">\n"
    " <info name=\"CPUModel\" value=\"of the machine\"/>\n"
    " <object type=\"NUMANode\" os_index=\"4\" local_memory=\"1000\"/>\n"
    " <object type=\"NUMANode\" os_index=\"2\" local_memory=\"500\"/>\n"
    " <object type=\"Package\"><info name=\"CPUModel\" value=\"A &amp; B&lt;1&gt;\"/>\n"
    "  <object type=\"L3Cache\" cache_size=\"3000\"><object type=\"L2Cache\" cache_size=\"2000\">\n"
    "   <object type=\"L1iCache\" cache_size=\"9\"/><object type=\"L1Cache\" "
    "cache_size=\"1000\"/>\n"
    "   <object type=\"Core\"><object type=\"PU\" os_index=\"2\" nodeset=\"0x00000010\"/>\n"
    "    <object type=\"PU\" os_index=\"3\" nodeset=\"0x00000010\"/></object>\n"
    "  </object></object></object>\n"
    " <object type=\"Package\"><info name=\"CPUModel\" value=\"C\"/>\n"
    "  <object type=\"PU\" os_index=\"64\" nodeset=\"0x00000014\"/>\n"
    "  <object type=\"PU\" os_index=\"65\"/><object type=\"PU\" os_index=\"96\"/>\n"
    " </object></object>\n"
    "<support name=\"discovery.pu\"/></topology>\n";

TEST(topology, all_that_is_used_of_a_file_is_read)
{
    struct tt_topology *t;
    char path[64];
    if (load_bytes(small, strlen(small), &t, path) != TT_OK)
        tt_test_fail(__FILE__, __LINE__, "%s", tt_last_error());
    REQUIRE(t);
    REQUIRE(t->npus == 3); /* 3 and 65 are not allowed */
    CHECK_EQ(t->pus[0].os_index, 2);
    CHECK_EQ(t->pus[1].os_index, 96); /* of the first node, for want of a nodeset */
    CHECK_EQ(t->pus[2].os_index, 64); /* of node 2, the first in its nodeset */
    CHECK_EQ(t->npackages, 2);
    CHECK_EQ(t->nnumas, 2);
    CHECK_EQ(t->ncores, 3);
    CHECK_EQ(t->pus[0].l2, 0);
    CHECK_EQ(t->pus[1].l2, -1);
    CHECK(t->pus[0].numa == t->pus[1].numa && t->pus[0].numa != t->pus[2].numa);
    CHECK_EQ(t->l1_bytes, 1000);
    CHECK_EQ(t->l2_bytes, 2000);
    CHECK_EQ(t->l3_bytes, 3000);
    CHECK_EQ(t->memory_bytes, 1500);
    CHECK_STR(t->cpu_model, "A & B<1>");
    tt_topology_destroy(t);
}

TEST(topology, files_of_version_1_are_read)
{
    static const char text[] =
        "<topology><object type=\"Machine\" local_memory=\"10\">"
        "<object type=\"NUMANode\" os_index=\"0\" local_memory=\"100\"><object type=\"Socket\">"
        "<object type=\"Cache\" depth=\"2\" cache_size=\"5\" cache_type=\"0\">"
        "<object type=\"Cache\" depth=\"1\" cache_size=\"7\" cache_type=\"2\">"
        "<object type=\"Cache\" depth=\"1\" cache_size=\"3\" cache_type=\"1\">"
        "<object type=\"Core\"><object type=\"PU\" os_index=\"0\"/></object>"
        "</object></object></object></object></object>"
        "<object type=\"NUMANode\" os_index=\"1\"><object type=\"PU\" os_index=\"1\"/></object>"
        "</object></topology>";
    struct tt_topology *t;
    char path[64];
    REQUIRE(load_bytes(text, strlen(text), &t, path) == TT_OK);
    CHECK_EQ(t->npus, 2);
    CHECK_EQ(t->nnumas, 2);
    CHECK_EQ(t->l1_bytes, 3);
    CHECK_EQ(t->l2_bytes, 5);
    CHECK_EQ(t->memory_bytes, 110);
    tt_topology_destroy(t);
}

/* Every byte of a file damaged in several ways, and the file cut everywhere: an error or a
 * topology, never a crash. */
TEST(topology, no_damage_crashes)
{
    static const char others[] = {'"', '<', '>', '/', '0', 'x', '\0', (char)0xff};
    const size_t nbytes = strlen(small);
    char bytes[sizeof small], path[64];
    int nread = 0, nrefused = 0;
    const int kept = dup(STDERR_FILENO), null = open("/dev/null", O_WRONLY | O_CLOEXEC);
    dup2(null, STDERR_FILENO); /* not 6,000 lines in the log */
    for (size_t at = 0; at < nbytes; at++)
        for (size_t k = 0; k <= sizeof others; k++) {
            struct tt_topology *t;
            memcpy(bytes, small, sizeof small);
            if (k < sizeof others) bytes[at] = others[k];
            const tt_status status = load_bytes(bytes, k < sizeof others ? nbytes : at, &t, path);
            CHECK(status == TT_ERR_ARGUMENT || (status == TT_OK && t->npus > 0));
            nread += status == TT_OK;
            nrefused += status != TT_OK;
            if (!status) tt_topology_destroy(t);
        }
    dup2(kept, STDERR_FILENO);
    close(kept);
    close(null);
    printf("%d damaged files were read, %d refused\n", nread, nrefused);
    CHECK(nread > 100 && nrefused > 1000);
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
    struct tt_topology *ours = NULL;
    REQUIRE(tt_topology_create("", &ours) == TT_OK);
    struct tt_topology *hwlocs = round_trip(NULL);
    REQUIRE(hwlocs);
    check_same(ours, hwlocs);
    CHECK_EQ(ours->l1_bytes, hwlocs->l1_bytes);
    CHECK_EQ(ours->l2_bytes, hwlocs->l2_bytes);
    CHECK_EQ(ours->l3_bytes, hwlocs->l3_bytes);
    CHECK_STR(ours->cpu_model, hwlocs->cpu_model);
    tt_topology_destroy(ours);
    tt_topology_destroy(hwlocs);
}
