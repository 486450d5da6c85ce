/* NCCL's variables as settings: what each sets, what is noted, and which value holds. */
#include "base/nccl_settings.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "shim.h"

static char noted[8192]; /* "WARN text\n" or "INFO text\n" for each note */

static void take_note(enum tt_log_level level, const char *text)
{
    const size_t used = strlen(noted);
    snprintf(noted + used, sizeof noted - used, "%s %s\n", level == TT_LOG_WARN ? "WARN" : "INFO",
             text);
}

/* Lets the variables that are set now count. */
static void use(void)
{
    noted[0] = '\0';
    tt_config_reload_with_nccl(true);
    tt_nccl_take_notes(take_note);
}

/* Sets up to three variables, "NAME=VALUE", beside which no file counts. */
static void with(const char *first, const char *second, const char *third)
{
    const char *const variables[] = {"NCCL_CONF_FILE=/dev/null", first, second, third};
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++) {
        char name[64];
        if (!variables[i]) continue;
        const size_t length = strcspn(variables[i], "=");
        snprintf(name, sizeof name, "%.*s", (int)length, variables[i]);
        setenv(name, variables[i] + length + 1, 1);
    }
    use();
}

/* No variable is set any more, and none counts. */
static void without(void)
{
    for (int key = 0; key < TT_NCCL_COUNT; key++)
        unsetenv(tt_nccl_row((enum tt_nccl_key)key)->name);
    tt_config_reload_with_nccl(false);
}

TEST(nccl_settings, each_variable_that_is_honoured_sets_its_row)
{
    static const struct {
        const char *first, *second, *third;
        enum tt_config_key key;
        const char *value;
    } cases[] = {
        {"NCCL_SOCKET_IFNAME=^=docker0,eth", NULL, NULL, TT_CONFIG_SOCKET_INTERFACE,
         "^=docker0,eth"},
        {"NCCL_SOCKET_FAMILY=AF_INET", NULL, NULL, TT_CONFIG_SOCKET_FAMILY, "4"},
        {"NCCL_SOCKET_FAMILY=AF_INET6", NULL, NULL, TT_CONFIG_SOCKET_FAMILY, "6"},
        {"NCCL_NSOCKS_PERTHREAD=3", "NCCL_SOCKET_NTHREADS=2", NULL, TT_CONFIG_SOCKETS, "6"},
        {"NCCL_NSOCKS_PERTHREAD=8", "NCCL_SOCKET_NTHREADS=4", NULL, TT_CONFIG_SOCKETS, "16"},
        {"NCCL_IB_HCA==mlx5_0:1:0:0,mlx5_1::0:1,mlx5_2", NULL, NULL, TT_CONFIG_RDMA_DEVICE,
         "=mlx5_0:1,mlx5_1,mlx5_2"},
        {"NCCL_IB_HCA=^mlx5_3:2", NULL, NULL, TT_CONFIG_RDMA_DEVICE, "^mlx5_3:2"},
        {"NCCL_IB_GID_INDEX=3", NULL, NULL, TT_CONFIG_RDMA_GID_INDEX, "3"},
        {"NCCL_IB_SL=0x5", NULL, NULL, TT_CONFIG_RDMA_SERVICE_LEVEL, "5"},
        {"NCCL_IB_TC=106", NULL, NULL, TT_CONFIG_RDMA_TRAFFIC_CLASS, "106"},
        {"NCCL_IB_TIMEOUT=22", NULL, NULL, TT_CONFIG_RDMA_TIMEOUT, "22"},
        {"NCCL_IB_RETRY_CNT=7", NULL, NULL, TT_CONFIG_RDMA_RETRIES, "6"},
        {"NCCL_DMABUF_ENABLE=0", NULL, NULL, TT_CONFIG_RDMA_GPU, "0"},
        {"NCCL_NET_GDR_LEVEL=LOC", NULL, NULL, TT_CONFIG_RDMA_GPU, "0"},
        {"NCCL_NET=Socket", NULL, NULL, TT_CONFIG_TRANSPORT, "tcp"},
        {"NCCL_NET=ib", NULL, NULL, TT_CONFIG_TRANSPORT, "rdma"},
        {"NCCL_IB_DISABLE=1", NULL, NULL, TT_CONFIG_TRANSPORT, "tcp"},
        {"NCCL_P2P_DISABLE=1", NULL, NULL, TT_CONFIG_TRANSPORT, "shm"},
        {"NCCL_P2P_DISABLE=1", NULL, NULL, TT_CONFIG_DEVICE_KERNELS, "0"},
        {"NCCL_P2P_LEVEL=LOC", "NCCL_NET=Socket", NULL, TT_CONFIG_TRANSPORT, "shm,tcp"},
        {"NCCL_HOSTID=rack1", NULL, NULL, TT_CONFIG_HOST_ID, "rack1"},
        {"NCCL_MAX_CTAS=8", NULL, NULL, TT_CONFIG_DEVICE_CHANNELS, "8"},
        {"NCCL_MAX_CTAS=8", "NCCL_MAX_NCHANNELS=4", NULL, TT_CONFIG_DEVICE_CHANNELS, "4"},
        {"NCCL_MAX_CTAS=1", NULL, NULL, TT_CONFIG_DEVICE_CHANNELS, "2"},
        {"NCCL_MIN_CTAS=48", NULL, NULL, TT_CONFIG_DEVICE_CHANNELS, "48"},
        {"NCCL_MIN_NCHANNELS=8", NULL, NULL, TT_CONFIG_DEVICE_CHANNELS, "32"},
        {"NCCL_MAX_NRINGS=6", NULL, NULL, TT_CONFIG_DEVICE_CHANNELS, "6"},
        {"NCCL_MAX_NCHANNELS=8", "NCCL_MAX_NRINGS=6", NULL, TT_CONFIG_DEVICE_CHANNELS, "8"},
        {"NCCL_MIN_NRINGS=40", NULL, NULL, TT_CONFIG_DEVICE_CHANNELS, "40"},
        {"NCCL_MIN_NCHANNELS=36", "NCCL_MIN_NRINGS=40", NULL, TT_CONFIG_DEVICE_CHANNELS, "36"},
        {"NCCL_NTHREADS=256", NULL, NULL, TT_CONFIG_DEVICE_THREADS, "256"},
        {"NCCL_COMM_ID=node0:5000", NULL, NULL, TT_CONFIG_INIT_METHOD, "tcp://node0:5000"},
        {"NCCL_COMM_ID=[fd00::1]:5000", NULL, NULL, TT_CONFIG_INIT_METHOD, "tcp://[fd00::1]:5000"},
        {"NCCL_PSK=a secret of at least 32 characters", NULL, NULL, TT_CONFIG_ENCRYPT, "1"},
        {"NCCL_DEBUG=VERSION", NULL, NULL, TT_CONFIG_LOG, "NONE"},
        {"NCCL_DEBUG=warn", NULL, NULL, TT_CONFIG_LOG, "WARN"},
        {"NCCL_DEBUG=TRACE", NULL, NULL, TT_CONFIG_LOG, "INFO"},
        {"NCCL_DEBUG_FILE=/tmp/log.%h.%p", NULL, NULL, TT_CONFIG_LOG_FILE, "/tmp/log.%h.%p"},
        {"NCCL_DEBUG_SUBSYS=INIT,NET", NULL, NULL, TT_CONFIG_LOG_SUBSYSTEMS, "INIT,NET"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char source[128];
        with(cases[i].first, cases[i].second, cases[i].third);
        const char *value = tt_config_string(cases[i].key);
        CHECK_MESSAGE(!strcmp(value, cases[i].value), "%s gives %s=%s", cases[i].first,
                      tt_config_row(cases[i].key)->name, value);
        snprintf(source, sizeof source, "%.*s, environment", (int)strcspn(cases[i].first, "="),
                 cases[i].first);
        CHECK_MESSAGE(strstr(tt_config_source(cases[i].key), source), "%s comes from %s",
                      cases[i].first, tt_config_source(cases[i].key));
        CHECK(tt_config_is_nccl(cases[i].key));
        CHECK_MESSAGE(strncmp(noted, "WARN ", 5) != 0 && !strstr(noted, "\nWARN "), "%s: %s",
                      cases[i].first, noted);
        without();
        CHECK(!tt_config_is_nccl(cases[i].key));
    }
}

/* Both ways to share memory are off: each process is a host. */
TEST(nccl_settings, no_peer_to_peer_and_no_shared_memory_make_every_process_a_host)
{
    char first[256];
    with("NCCL_P2P_DISABLE=1", "NCCL_SHM_DISABLE=1", "NCCL_HOSTID=rack1");
    snprintf(first, sizeof first, "%s", tt_config_string(TT_CONFIG_HOST_ID));
    CHECK_MESSAGE(!strncmp(first, "rack1, process ", 15), "%s", first);
    use(); /* as another process would read them */
    CHECK(strcmp(first, tt_config_string(TT_CONFIG_HOST_ID)) != 0);
    without();
    with("NCCL_SHM_DISABLE=1", NULL, NULL);
    CHECK_STR(tt_config_string(TT_CONFIG_HOST_ID), "");
    CHECK_MESSAGE(strstr(noted, "NCCL_SHM_DISABLE has no effect without NCCL_P2P_DISABLE=1"), "%s",
                  noted);
    without();
}

TEST(nccl_settings, they_have_no_effect_where_nobody_asked_for_them)
{
    setenv("NCCL_SOCKET_IFNAME", "lo", 1);
    tt_config_reload();
    CHECK_STR(tt_config_string(TT_CONFIG_SOCKET_INTERFACE), "");
    CHECK_STR(tt_config_name(TT_CONFIG_SOCKET_INTERFACE), "TUTTI_SOCKET_INTERFACE");
    CHECK(!tt_config_with_nccl());
    use();
    CHECK_STR(tt_config_string(TT_CONFIG_SOCKET_INTERFACE), "lo");
    CHECK_STR(tt_config_name(TT_CONFIG_SOCKET_INTERFACE), "NCCL_SOCKET_IFNAME");
    CHECK(!tt_config_use_nccl() || tt_config_with_nccl());
    without();
    CHECK(!tt_config_use_nccl()); /* too late */
}

TEST(nccl_settings, a_setting_of_tutti_wins)
{
    setenv("TUTTI_SOCKET_INTERFACE", "eth", 1);
    with("NCCL_SOCKET_IFNAME=lo", "NCCL_IB_SL=3", NULL);
    CHECK_STR(tt_config_string(TT_CONFIG_SOCKET_INTERFACE), "eth");
    CHECK_STR(tt_config_source(TT_CONFIG_SOCKET_INTERFACE), "environment");
    CHECK_STR(tt_config_name(TT_CONFIG_SOCKET_INTERFACE), "TUTTI_SOCKET_INTERFACE");
    CHECK_EQ(tt_config_int(TT_CONFIG_RDMA_SERVICE_LEVEL), 3);
    CHECK_MESSAGE(strstr(noted, "INFO NCCL_SOCKET_IFNAME, environment has no effect: "
                                "TUTTI_SOCKET_INTERFACE=eth (environment) holds"),
                  "%s", noted);
    unsetenv("TUTTI_SOCKET_INTERFACE");
    char path[] = "/tmp/tutti-nccl-test-XXXXXX"; /* a file of tutti's wins too */
    const int fd = mkstemp(path);
    CHECK(fd >= 0 && dprintf(fd, "TUTTI_SOCKET_INTERFACE=ib\n") > 0);
    close(fd);
    setenv("TUTTI_CONF_FILE", path, 1);
    use();
    CHECK_STR(tt_config_string(TT_CONFIG_SOCKET_INTERFACE), "ib");
    CHECK_STR(tt_config_source(TT_CONFIG_SOCKET_INTERFACE), path);
    unlink(path);
    unsetenv("TUTTI_CONF_FILE");
    without();
}

TEST(nccl_settings, a_bad_value_is_noted_with_what_was_expected_and_the_default_holds)
{
    static const struct {
        const char *variable;
        enum tt_config_key key;
        const char *expected;
    } bad[] = {
        {"NCCL_DEBUG=LOUD", TT_CONFIG_LOG, "NONE, VERSION, WARN, INFO, ABORT or TRACE"},
        {"NCCL_SOCKET_FAMILY=4", TT_CONFIG_SOCKET_FAMILY, "AF_INET or AF_INET6"},
        {"NCCL_IB_SL=16", TT_CONFIG_RDMA_SERVICE_LEVEL, "a whole number from 0 to 15"},
        {"NCCL_IB_TC=fast", TT_CONFIG_RDMA_TRAFFIC_CLASS, "a whole number from 0 to 255"},
        {"NCCL_IB_GID_INDEX=-2", TT_CONFIG_RDMA_GID_INDEX, "a whole number from -1 to 255"},
        {"NCCL_IB_TIMEOUT=0", TT_CONFIG_RDMA_TIMEOUT, "a whole number from 1 to 31"},
        {"NCCL_NET=Carrier Pigeon", TT_CONFIG_TRANSPORT, "Socket or IB"},
        {"NCCL_IB_DISABLE=yes", TT_CONFIG_TRANSPORT, "0 or 1"},
        {"NCCL_P2P_LEVEL=FAR", TT_CONFIG_TRANSPORT, "LOC, NVL, PIX, PXB, PHB or SYS"},
        {"NCCL_MAX_CTAS=0", TT_CONFIG_DEVICE_CHANNELS, "a whole number from 1"},
        {"NCCL_NTHREADS=100", TT_CONFIG_DEVICE_THREADS, "a multiple of 32"},
        {"NCCL_ALGO=Rings", TT_CONFIG_ALGORITHM, "'Rings' is none of Ring, Tree, PAT"},
        {"NCCL_ALGO=alltoall:Ring", TT_CONFIG_ALGORITHM, "'alltoall' is none of AllReduce"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        with(bad[i].variable, NULL, NULL);
        const struct tt_config_row *row = tt_config_row(bad[i].key);
        CHECK_MESSAGE(!strncmp(noted, "WARN ", 5) && strstr(noted, bad[i].variable) &&
                          strstr(noted, bad[i].expected),
                      "%s was noted as: %s", bad[i].variable, noted);
        CHECK_MESSAGE(!strcmp(tt_config_string(bad[i].key), row->fallback), "%s gives %s",
                      bad[i].variable, tt_config_string(bad[i].key));
        CHECK_EQ(tt_config_check(), TT_OK); /* a bad value fails no init */
        const char *again = strstr(noted + 5, "WARN ");
        CHECK_MESSAGE(!again || !strstr(again, bad[i].expected), "noted twice: %s", noted);
        without();
    }
    with("NCCL_MIN_CTAS=9", "NCCL_MAX_CTAS=8", NULL);
    CHECK_EQ(tt_config_int(TT_CONFIG_DEVICE_CHANNELS), 32);
    CHECK(strstr(noted, "WARN NCCL_MIN_CTAS=9 is more than NCCL_MAX_CTAS=8"));
    without();
}

TEST(nccl_settings, a_meeting_point_that_is_none_fails_the_init)
{
    static const char *const bad[] = {"127.0.0.1",   "fd00::1:5000", "node0:0", "node0:99999",
                                      ":45000",      "nonsense",     "env://",  "[::1:45000",
                                      " node0:5000", "node0:0x100",  "node0:"};
    char text[300];
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        snprintf(text, sizeof text, "NCCL_COMM_ID=%s", bad[i]);
        with(text, NULL, NULL);
        CHECK_EQ(tt_config_check(), TT_ERR_ARGUMENT);
        CHECK_MESSAGE(strstr(tt_last_error(), text) &&
                          strstr(tt_last_error(), "is not host:port or [IPv6]:port"),
                      "%s gives: %s", text, tt_last_error());
        setenv("TUTTI_INIT_METHOD", "tcp://node0:5000", 1); /* wins */
        with(text, NULL, NULL);
        CHECK_EQ(tt_config_check(), TT_OK);
        unsetenv("TUTTI_INIT_METHOD");
        without();
    }
}

TEST(nccl_settings, algorithms_are_forced_where_one_is_left)
{
    static const struct {
        const char *value, *converted; /* "": the cost model chooses */
    } lists[] = {
        {"Ring",
         "all_reduce:ring;all_gather:ring;reduce_scatter:ring;broadcast:chain;reduce:chain"},
        {"TREE", "all_reduce:tree"},
        {"pat", "all_gather:pat;reduce_scatter:pat"},
        {"Ring,Tree", "all_gather:ring;reduce_scatter:ring;broadcast:chain;reduce:chain"},
        {"Ring,PAT", "all_reduce:ring;broadcast:chain;reduce:chain"},
        {"^Tree", "all_reduce:ring;broadcast:chain;reduce:chain"},
        {"^NVLS,NVLSTree", "broadcast:chain;reduce:chain"},
        {"ring;allreduce:tree",
         "all_reduce:tree;all_gather:ring;reduce_scatter:ring;broadcast:chain;reduce:chain"},
        {"AllReduce:Ring", "all_reduce:ring"},
        {"allreduce:^tree", "all_reduce:ring"},
        {"allgather:pat;broadcast:ring", "all_gather:pat;broadcast:chain"},
        {"broadcast:tree", ""},
        {"ring,collnetdirect;allreduce:tree,collnetdirect;broadcast:ring",
         "all_reduce:tree;all_gather:ring;reduce_scatter:ring;broadcast:chain;reduce:chain"},
    };
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        char variable[128];
        snprintf(variable, sizeof variable, "NCCL_ALGO=%s", lists[i].value);
        with(variable, NULL, NULL);
        CHECK_MESSAGE(!strcmp(tt_config_string(TT_CONFIG_ALGORITHM), lists[i].converted),
                      "%s gives %s", variable, tt_config_string(TT_CONFIG_ALGORITHM));
        without();
    }
    with("NCCL_ALGO=NVLS", NULL, NULL);
    CHECK_STR(tt_config_string(TT_CONFIG_ALGORITHM), "");
    CHECK_MESSAGE(strstr(noted, "WARN NCCL_ALGO=NVLS: tutti has no NVLS"), "%s", noted);
    without();
}

TEST(nccl_settings, only_plugins_and_what_tutti_lacks_are_warned_about)
{
    static const char *const warned[] = {"NCCL_NET_PLUGIN=aws-ofi", "NCCL_TUNER_PLUGIN=x.so",
                                         "NCCL_PROFILER_PLUGIN=x",  "NCCL_ENV_PLUGIN=x",
                                         "NCCL_NVLS_ENABLE=1",      "NCCL_COLLNET_ENABLE=1",
                                         "NCCL_MNNVL_ENABLE=1"};
    static const char *const told[] = {"NCCL_NVLS_ENABLE=0",   "NCCL_NVLS_ENABLE=2",
                                       "NCCL_NET_PLUGIN=none", "NCCL_BUFFSIZE=4096",
                                       "NCCL_COMM_BLOCKING=0", "NCCL_PROTO=Simple"};
    for (size_t i = 0; i < sizeof warned / sizeof *warned; i++) {
        char expected[128];
        with(warned[i], NULL, NULL);
        snprintf(expected, sizeof expected, "WARN %s (environment) has no effect: tutti ",
                 warned[i]);
        CHECK_MESSAGE(!strncmp(noted, expected, strlen(expected)), "%s: %s", warned[i], noted);
        without();
    }
    for (size_t i = 0; i < sizeof told / sizeof *told; i++) {
        char expected[128];
        with(told[i], NULL, NULL);
        snprintf(expected, sizeof expected, "INFO %s (environment) has no effect: ", told[i]);
        CHECK_MESSAGE(!strncmp(noted, expected, strlen(expected)), "%s: %s", told[i], noted);
        without();
    }
    setenv("NCCL_TURBO", "1", 1);
    setenv("NCCL_TESTS_DEVICE", "0", 1);
    with(NULL, NULL, NULL);
    CHECK_MESSAGE(!strncmp(noted, "INFO NCCL_TURBO has no effect", 29), "%s", noted);
    CHECK(!strstr(noted, "NCCL_TESTS"));
    unsetenv("NCCL_TURBO");
    unsetenv("NCCL_TESTS_DEVICE");
    without();
}

TEST(nccl_settings, a_secret_is_not_noted)
{
    with("NCCL_PSK=0123456789abcdef0123456789abcdef", NULL, NULL);
    CHECK_MESSAGE(strstr(noted, "NCCL_PSK set by environment to (secret)"), "%s", noted);
    CHECK(!strstr(noted, "0123456789abcdef"));
    without();
}

/* ---- Files ---------------------------------------------------------------------------------- */

/* Makes a file of the text at `path`, a template or a name. */
static bool make(char *path, const char *text, mode_t mode)
{
    FILE *file = fopen(path, "w");
    const bool made = file && fputs(text, file) >= 0 && fchmod(fileno(file), mode) == 0;
    return file && fclose(file) == 0 && made;
}

TEST(nccl_settings, the_environment_wins_over_the_named_file_and_its_first_line_over_others)
{
    char folder[] = "/tmp/tutti-nccl-XXXXXX", path[64];
    REQUIRE(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/nccl.conf", folder);
    CHECK(make(path,
               "# a comment\r\n\nNCCL_SOCKET_IFNAME==eth0\r\nNCCL_IB_SL=1\nNCCL_IB_SL=2\n"
               "NCCL_IB_TC=7\nNCCL_FAST=1\nnonsense\n",
               0644));
    setenv("NCCL_CONF_FILE", path, 1);
    setenv("NCCL_IB_TC", "9", 1);
    use();
    CHECK_STR(tt_config_string(TT_CONFIG_SOCKET_INTERFACE), "=eth0");
    CHECK(strstr(tt_config_source(TT_CONFIG_SOCKET_INTERFACE), path));
    CHECK_EQ(tt_config_int(TT_CONFIG_RDMA_SERVICE_LEVEL), 1);
    CHECK_EQ(tt_config_int(TT_CONFIG_RDMA_TRAFFIC_CLASS), 9);
    CHECK_MESSAGE(strstr(noted, "'NCCL_FAST=1' has no effect") &&
                      strstr(noted, "'nonsense' has no effect"),
                  "%s", noted);
    unlink(path);
    CHECK_EQ(rmdir(folder), 0);
    without();
}

TEST(nccl_settings, the_users_file_is_read_where_none_is_named)
{
    char home[] = "/tmp/tutti-nccl-XXXXXX", path[64], named[64];
    char *before = strdup(getenv("HOME") ? getenv("HOME") : "/");
    REQUIRE(mkdtemp(home));
    snprintf(path, sizeof path, "%s/.nccl.conf", home);
    snprintf(named, sizeof named, "%s/named", home);
    CHECK(make(path, "NCCL_IB_SL=4\nNCCL_IB_TC=5\n", 0600) && make(named, "NCCL_IB_SL=6\n", 0600));
    setenv("HOME", home, 1);
    use();
    CHECK_EQ(tt_config_int(TT_CONFIG_RDMA_SERVICE_LEVEL), 4);
    setenv("NCCL_CONF_FILE", named, 1);
    use();
    CHECK_EQ(tt_config_int(TT_CONFIG_RDMA_SERVICE_LEVEL), 6);
    CHECK_EQ(tt_config_int(TT_CONFIG_RDMA_TRAFFIC_CLASS), 0);
    setenv("HOME", before, 1);
    unlink(path);
    unlink(named);
    CHECK_EQ(rmdir(home), 0);
    free(before);
    without();
}

TEST(nccl_settings, a_file_that_is_missing_or_others_may_write_is_noted_and_fails_no_init)
{
    char folder[] = "/tmp/tutti-nccl-XXXXXX", path[64];
    REQUIRE(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/nccl.conf", folder);
    setenv("NCCL_CONF_FILE", path, 1);
    use();
    CHECK_MESSAGE(strstr(noted, "WARN NCCL_CONF_FILE=") &&
                      strstr(noted, "cannot be read: No such file or directory"),
                  "%s", noted);
    CHECK(make(path, "NCCL_IB_SL=4\n", 0666));
    use();
    CHECK_MESSAGE(strstr(noted, "WARN ") && strstr(noted, "chmod go-w"), "%s", noted);
    CHECK_EQ(tt_config_int(TT_CONFIG_RDMA_SERVICE_LEVEL), 0);
    CHECK_EQ(tt_config_check(), TT_OK);
    unlink(path);
    CHECK_EQ(rmdir(folder), 0);
    without();
}

/* Its second line, which has no end, takes more memory than the process has. */
TEST(nccl_settings, a_file_for_whose_line_there_is_no_memory_says_how_much_and_how_to_mend_that)
{
    char folder[] = "/tmp/tutti-nccl-XXXXXX", path[64];
    struct rlimit before, none = {0};
    if (tt_test_sanitized()) SKIP("a sanitizer needs address space of its own");
    REQUIRE(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/nccl.conf", folder);
    CHECK(make(path, "NCCL_IB_SL=4\n", 0644) && truncate(path, 1 << 26) == 0);
    setenv("NCCL_CONF_FILE", path, 1);
    REQUIRE(getrlimit(RLIMIT_AS, &before) == 0);
    none.rlim_max = before.rlim_max;
    REQUIRE(setrlimit(RLIMIT_AS, &none) == 0);
    use();
    REQUIRE(setrlimit(RLIMIT_AS, &before) == 0);
    const char *says = strstr(noted, "is not read from line 2 on: no memory for a line of ");
    size_t nbytes = 0;
    CHECK_MESSAGE(says && strstr(noted, path) && strstr(says, "shorten it, or give this process"),
                  "%s", noted);
    CHECK(says &&
          sscanf(says, "is not read from line 2 on: no memory for a line of %zu", &nbytes) &&
          nbytes > 0);
    CHECK_EQ(tt_config_int(TT_CONFIG_RDMA_SERVICE_LEVEL), 4);
    unlink(path);
    CHECK_EQ(rmdir(folder), 0);
    without();
}

/* ---- The tables ----------------------------------------------------------------------------- */

static bool lists(const char *list, const char *name)
{
    const char *at = strstr(list, name);
    while (at && ((at > list && at[-1] != ',') || (at[strlen(name)] && at[strlen(name)] != ',')))
        at = strstr(at + 1, name);
    return at != NULL;
}

TEST(nccl_settings, rows_and_variables_name_each_other)
{
    for (int key = 0; key < TT_NCCL_COUNT; key++) {
        const struct tt_nccl_row *row = tt_nccl_row((enum tt_nccl_key)key);
        int nrows = 0;
        for (int i = 0; i < TT_CONFIG_COUNT; i++)
            nrows += lists(tt_config_row((enum tt_config_key)i)->nccl, row->name);
        CHECK_MESSAGE((nrows > 0) == (row->effect == TT_NCCL_SETS), "%s sets %d rows", row->name,
                      nrows);
        CHECK_MESSAGE(row->text[0] && row->text[strlen(row->text) - 1] != '.', "%s: '%s'",
                      row->name, row->text);
        CHECK_EQ((int)tt_nccl_find(row->name, strlen(row->name)), key);
    }
    for (int i = 0; i < TT_CONFIG_COUNT; i++)
        for (const char *at = tt_config_row((enum tt_config_key)i)->nccl; *at;) {
            const size_t length = strcspn(at, ",");
            CHECK_MESSAGE(tt_nccl_find(at, length) != TT_NCCL_COUNT, "%.*s is no variable of NCCL",
                          (int)length, at);
            at += length + (at[length] == ',');
        }
}
