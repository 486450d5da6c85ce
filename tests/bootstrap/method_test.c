/* Tests of the init methods env://, tcp://host:port and file:///path. */
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/config.h"
#include "net/handshake.h"
#include "net/interface.h"
#include "net/socket.h"
#include "ranks.h"
#include "shim.h"

/* A port that nobody else is given as long as this process lives. */
static int reserved_port(void)
{
    struct tt_address address;
    int fd;
    const struct sockaddr_in loopback = {.sin_family = AF_INET};
    tt_address_set(&address, (const struct sockaddr *)&loopback);
    return tt_socket_reserve(&fd, &address) == TT_OK ? tt_address_port(&address) : 0;
}

/* nprocesses processes, as threads; every process finds the id on its own. */
static void start(struct rank_run *runs, const char *method, int nprocesses)
{
    for (int i = 0; i < nprocesses; i++) runs[i] = rank_run_by(method, i, nprocesses);
    run_ranks(runs, nprocesses);
}

static void set_env(int port)
{
    char text[16];
    snprintf(text, sizeof text, "%d", port);
    setenv("MASTER_ADDR", "127.0.0.1", 1);
    setenv("MASTER_PORT", text, 1);
}

static void clear_env(void)
{
    unsetenv("MASTER_ADDR");
    unsetenv("MASTER_PORT");
    unsetenv("TUTTI_JOB_KEY");
    unsetenv("TORCHELASTIC_USE_AGENT_STORE");
    tt_config_reload();
}

TEST(method, env_makes_one_communicator_after_the_other)
{
    struct rank_run runs[5];
    set_env(reserved_port());
    for (int turn = 0; turn < 10; turn++) {
        start(runs, "env://", 5);
        expect_ranks(runs, 5, TT_OK, NULL);
    }
    clear_env();
}

TEST(method, env_with_a_job_key_and_a_torchrun_agent_at_the_port)
{
    struct rank_run runs[3];
    struct tt_address address;
    const struct sockaddr_in loopback = {.sin_family = AF_INET,
                                         .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int agent;
    tt_address_set(&address, (const struct sockaddr *)&loopback);
    REQUIRE(tt_socket_listen(&agent, &address, false) == TT_OK);
    set_env(tt_address_port(&address));
    setenv("TORCHELASTIC_USE_AGENT_STORE", "True", 1);
    setenv("TUTTI_JOB_KEY", "00112233445566778899aabbccddeeff00112233445566778899AABBCCDDEEFF", 1);
    tt_config_reload();
    start(runs, "env://", 3);
    expect_ranks(runs, 3, TT_OK, NULL);
    close(agent);
    clear_env();
}

/* How many warnings about a derived key a process of this program writes when it runs `test`. */
static int count_warnings(const char *test)
{
    char program[512] = "", command[1024], line[2048];
    int nwarnings = 0;
    bool passed = false;
    CHECK(readlink("/proc/self/exe", program, sizeof program - 1) > 0);
    snprintf(command, sizeof command, "TUTTI_LOG=WARN '%s' --gtest_filter=method.%s 2>&1", program,
             test);
    FILE *output = popen(command, "re");
    if (!output) return -1;
    while (fgets(line, sizeof line, output)) {
        nwarnings += strstr(line, " WARN ") && strstr(line, "derived from public values") &&
                     strstr(line, "TUTTI_JOB_KEY");
        passed |= strstr(line, "[  PASSED  ] 1 test") != NULL;
    }
    pclose(output);
    return passed ? nwarnings : -1;
}

TEST(method, a_key_that_others_can_derive_is_a_warning_once_a_process)
{
    clear_env();
    CHECK_EQ(count_warnings("env_makes_one_communicator_after_the_other"), 1);
    CHECK_EQ(count_warnings("tcp_serves_ipv4_names_and_ipv6"), 1);
}

TEST(method, a_key_that_nobody_can_derive_is_no_warning)
{
    CHECK_EQ(count_warnings("env_with_a_job_key_and_a_torchrun_agent_at_the_port"), 0);
    CHECK_EQ(count_warnings("file_is_private_removed_and_used_again"), 0);
    CHECK_EQ(count_warnings("env_of_one_process_needs_no_address"), 0);
}

TEST(method, a_job_key_that_is_no_key_is_refused)
{
    static const char *const keys[] = {
        "1234", "zz112233445566778899aabbccddeeff00112233445566778899AABBCCDDEEFF",
        "00112233445566778899aabbccddeeff00112233445566778899AABBCCDDEEFF00"};
    struct rank_run run;
    set_env(reserved_port());
    for (int i = 0; i < 3; i++) {
        setenv("TUTTI_JOB_KEY", keys[i], 1);
        tt_config_reload();
        start(&run, "tcp://127.0.0.1:9", 1);
        expect_ranks(&run, 1, TT_ERR_ARGUMENT, "TUTTI_JOB_KEY is not 64 hex digits");
    }
    clear_env();
}

TEST(method, env_of_one_process_needs_no_address)
{
    struct rank_run run;
    start(&run, "env://", 1);
    expect_ranks(&run, 1, TT_OK, NULL);
}

TEST(method, env_without_an_address_names_what_is_missing)
{
    struct rank_run runs[2];
    clear_env();
    start(runs, "env://", 2);
    expect_ranks(runs, 2, TT_ERR_ARGUMENT, "Set MASTER_ADDR and MASTER_PORT on every rank");
    setenv("MASTER_ADDR", "127.0.0.1", 1);
    start(runs, "env://", 2);
    expect_ranks(runs, 2, TT_ERR_ARGUMENT, "MASTER_ADDR is set but MASTER_PORT is not");
    unsetenv("MASTER_ADDR");
    setenv("MASTER_PORT", "29500", 1);
    start(runs, "env://", 2);
    expect_ranks(runs, 2, TT_ERR_ARGUMENT, "MASTER_PORT is set but MASTER_ADDR is not");
    setenv("MASTER_ADDR", "127.0.0.1", 1);
    setenv("MASTER_PORT", "70000", 1);
    start(runs, "env://", 2);
    expect_ranks(runs, 2, TT_ERR_ARGUMENT, "MASTER_PORT: '70000' is not a port");
    clear_env();
}

TEST(method, tcp_serves_ipv4_names_and_ipv6)
{
    static const char *const hosts[] = {"127.0.0.1", "localhost", "[::1]"};
    struct rank_run runs[3];
    char method[64];
    for (int i = 0; i < 3; i++) {
        if (i == 2 && access("/proc/net/if_inet6", R_OK) != 0) break;
        snprintf(method, sizeof method, "tcp://%s:%d", hosts[i], reserved_port());
        start(runs, method, 3);
        expect_ranks(runs, 3, TT_OK, NULL);
    }
}

TEST(method, urls_may_end_with_a_slash_and_have_upper_case_schemes)
{
    static const char *const forms[] = {"tcp://127.0.0.1:%d/", "TCP://127.0.0.1:%d",
                                        "Tcp://localhost:%d/"};
    struct rank_run runs[2];
    char method[64];
    for (int i = 0; i < 3; i++) {
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
        snprintf(method, sizeof method, forms[i], reserved_port());
#pragma GCC diagnostic pop
        start(runs, method, 2);
        expect_ranks(runs, 2, TT_OK, NULL);
    }
    clear_env();
    start(runs, "ENV://", 1);
    expect_ranks(runs, 1, TT_OK, NULL);
    start(runs, "tcp://127.0.0.1:29500//", 1);
    expect_ranks(runs, 1, TT_ERR_ARGUMENT, "is not a port");
}

TEST(method, a_master_address_may_have_brackets)
{
    struct rank_run runs[2];
    char port[16];
    if (access("/proc/net/if_inet6", R_OK) != 0) SKIP("there is no IPv6");
    snprintf(port, sizeof port, "%d", reserved_port());
    setenv("MASTER_ADDR", "[::1]", 1);
    setenv("MASTER_PORT", port, 1);
    start(runs, "env://", 2);
    expect_ranks(runs, 2, TT_OK, NULL);
    clear_env();
}

TEST(method, an_address_with_a_line_end_is_shown_as_it_is)
{
    struct rank_run runs[2];
    setenv("MASTER_ADDR", "no-such-host.invalid\r", 1);
    setenv("MASTER_PORT", "29500", 1);
    start(runs, "env://", 2);
    expect_ranks(runs, 2, TT_ERR_SYSTEM, "the host 'no-such-host.invalid\\r'");
    clear_env();
}

TEST(method, a_host_of_digits_only_is_refused_at_once)
{
    struct rank_run run;
    start(&run, "tcp://17:29500", 1);
    expect_ranks(&run, 1, TT_ERR_ARGUMENT, "the host '17'");
    expect_ranks(&run, 1, TT_ERR_ARGUMENT, "is taken for the address 0.0.0.17");
}

TEST(method, ranks_wait_for_a_root_that_is_not_up_yet)
{
    struct rank_run run;
    char method[64];
    const struct tt_unique_id none = {0};
    snprintf(method, sizeof method, "tcp://127.0.0.1:%d", reserved_port());
    run = rank_run_of(&none, 1, 2);
    run.method = method;
    run.process = 1;
    run.nprocesses = 2;
    run.timeout_ms = 100;
    run_ranks(&run, 1);
    expect_ranks(&run, 1, TT_ERR_TIMEOUT, "rank 1 found no root at 127.0.0.1:");
    CHECK(run.took_ns >= 100000000 && run.took_ns < 1500000000);
}

TEST(method, after_a_failed_attempt_the_address_serves_again)
{
    char method[64];
    const struct tt_unique_id none = {0};
    struct rank_run runs[3];
    snprintf(method, sizeof method, "tcp://127.0.0.1:%d", reserved_port());
    for (int turn = 0; turn < 3; turn++) {
        struct rank_run alone = rank_run_of(&none, turn, 3);
        alone.method = method;
        alone.process = turn;
        alone.nprocesses = 3;
        alone.timeout_ms = 20;
        run_ranks(&alone, 1);
        expect_ranks(&alone, 1, TT_ERR_TIMEOUT, NULL);
        start(runs, method, 3);
        expect_ranks(runs, 3, TT_OK, NULL);
    }
}

TEST(method, a_port_in_use_is_named_with_the_remedy)
{
    struct tt_address address;
    struct rank_run run;
    char method[64], text[64];
    const struct sockaddr_in loopback = {.sin_family = AF_INET,
                                         .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int holder;
    tt_address_set(&address, (const struct sockaddr *)&loopback);
    REQUIRE(tt_socket_listen(&holder, &address, false) == TT_OK);
    snprintf(method, sizeof method, "tcp://127.0.0.1:%d", tt_address_port(&address));
    snprintf(text, sizeof text, "port %d is taken; choose another", tt_address_port(&address));
    start(&run, method, 1);
    expect_ranks(&run, 1, TT_ERR_SYSTEM, text);
    close(holder);
}

/* The first of the ports of a Slurm step: others for each process that runs these tests. */
static int step_port(void)
{
    return 20000 + getpid() % 1000 * 10;
}

/* Holds a port of 127.0.0.1 as a connection does: nobody can listen there. The descriptor. */
static int hold(int port)
{
    const struct sockaddr_in in = {.sin_family = AF_INET,
                                   .sin_port = htons((uint16_t)port),
                                   .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const int s = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    /* For the bind only, which old connections of the port would prevent. */
    setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int));
    CHECK(bind(s, (const struct sockaddr *)&in, sizeof in) == 0);
    setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &(int){0}, sizeof(int));
    return s;
}

/* The ids of ranks 0 and 1 of a step of this Slurm job; of any job it is one with step_port(). */
static tt_status find_slurm_ids(struct tt_unique_id ids[2], const char *job)
{
    char step[16];
    tt_status status = TT_OK;
    snprintf(step, sizeof step, "%d", step_port() - 20000 + 10000 - 31 * atoi(job));
    setenv("SLURM_STEP_NODELIST", "localhost", 1);
    setenv("SLURM_JOB_ID", job, 1);
    setenv("SLURM_STEP_ID", step, 1);
    for (int rank = 0; rank < 2 && status == TT_OK; rank++) {
        const struct tt_launcher launcher = {.rank = rank,
                                             .nranks = 2,
                                             .local_nranks = 2,
                                             .sources = {TT_PLACE_FROM_SLURM},
                                             .found = "srun"};
        status = tt_unique_id_from_method(&ids[rank], "env://", &launcher, tt_deadline_ns(5000));
    }
    unsetenv("SLURM_STEP_NODELIST");
    unsetenv("SLURM_JOB_ID");
    unsetenv("SLURM_STEP_ID");
    return status;
}

static void join_both(const struct tt_unique_id ids[2])
{
    struct rank_run runs[2] = {rank_run_of(&ids[0], 0, 2), rank_run_of(&ids[1], 1, 2)};
    run_ranks(runs, 2);
    expect_ranks(runs, 2, TT_OK, NULL);
}

TEST(method, slurm_jobs_that_meet_on_one_port_take_two)
{
    struct tt_unique_id first[2], second[2];
    clear_env();
    REQUIRE(find_slurm_ids(first, "1") == TT_OK);
    REQUIRE(find_slurm_ids(second, "2") == TT_OK);
    join_both(second);
    join_both(first);
}

TEST(method, a_derived_port_that_a_connection_has_is_passed_over)
{
    enum { PORTS = 4 };
    struct tt_unique_id ids[2];
    int held[PORTS];
    char text[64];
    snprintf(text, sizeof text, "ports %d to %d are taken; choose another", step_port(),
             step_port() + PORTS - 1);
    clear_env();
    for (int n = 0; n < PORTS; n++) held[n] = hold(step_port() + n);
    CHECK_EQ(find_slurm_ids(ids, "3"), TT_ERR_SYSTEM);
    CHECK_MESSAGE(strstr(tt_last_error(), text), "%s", tt_last_error());
    for (int n = PORTS - 1; n >= 0; n--) {
        close(held[n]);
        REQUIRE(find_slurm_ids(ids, "3") == TT_OK);
        join_both(ids);
    }
}

TEST(method, a_rank_that_finds_no_root_at_any_port_says_who_listens)
{
    char text[64];
    struct tt_unique_id first[2], second[2];
    clear_env();
    REQUIRE(find_slurm_ids(first, "1") == TT_OK);
    REQUIRE(find_slurm_ids(second, "2") == TT_OK);
    second[1].base[0]++;
    struct rank_run lost = rank_run_of(&second[1], 1, 2);
    lost.timeout_ms = 1500;
    run_ranks(&lost, 1);
    snprintf(text, sizeof text, "found no root at 127.0.0.1 at ports %d to %d", step_port(),
             step_port() + 3);
    expect_ranks(&lost, 1, TT_ERR_TIMEOUT, text);
    expect_ranks(&lost, 1, TT_ERR_TIMEOUT, "another job may hold this port");
    second[1].base[0]--;
    join_both(second);
    join_both(first);
}

/* A program that has a port: it closes its first connection and never answers the next one. */
static void *close_one(void *listener)
{
    const int s = accept(*(const int *)listener, NULL, NULL);
    if (s >= 0) close(s);
    return NULL;
}

TEST(method, a_port_that_answers_no_more_does_not_hide_who_listens_at_the_next)
{
    pthread_t other;
    struct tt_unique_id ids[2];
    clear_env();
    int holder = hold(step_port());
    REQUIRE(find_slurm_ids(ids, "1") == TT_OK);
    setsockopt(holder, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int)); /* as hold() has it */
    CHECK(listen(holder, 4) == 0);
    ids[1].base[0]++;
    struct rank_run lost = rank_run_of(&ids[1], 1, 2);
    lost.timeout_ms = 1500; /* the second attempt at the first port takes what is left of it */
    CHECK(pthread_create(&other, NULL, close_one, &holder) == 0);
    run_ranks(&lost, 1);
    pthread_join(other, NULL);
    expect_ranks(&lost, 1, TT_ERR_TIMEOUT, "another job may hold this port");
    close(holder);
    ids[1].base[0]--;
    join_both(ids);
}

TEST(method, a_launchers_descriptor_that_is_not_there_is_named)
{
    struct tt_unique_id id;
    const struct tt_launcher launcher = {
        .rank = 1, .nranks = 2, .local_nranks = 2, .sources = {TT_PLACE_FROM_PMI}, .found = "PMI"};
    static const struct {
        const char *fd, *text;
    } cases[] = {{NULL, "PMI_FD is not set"},
                 {"12345", "PMI_FD=12345 is not open in this process"},
                 {"x", "PMI_FD=x is not open"}};
    clear_env();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (cases[i].fd) setenv("PMI_FD", cases[i].fd, 1);
        CHECK_EQ(tt_unique_id_from_method(&id, "env://", &launcher, tt_deadline_ns(100)),
                 TT_ERR_ARGUMENT);
        CHECK_MESSAGE(strstr(tt_last_error(), cases[i].text) &&
                          strstr(tt_last_error(), "Set MASTER_ADDR and MASTER_PORT"),
                      "%s", tt_last_error());
    }
    unsetenv("PMI_FD");
}

TEST(method, what_is_no_method_is_refused)
{
    static const struct {
        const char *method, *text;
    } cases[] = {{"udp://a:1", "is no init method"},
                 {"tcp://nowhere", "is not tcp://host:port"},
                 {"tcp://:5", "is not tcp://host:port"},
                 {"tcp://a:0", "is not a port"},
                 {"tcp://a:5x", "is not a port"},
                 {"file://relative", "is not file:///path"},
                 {"file:///no/such/folder/id", "cannot write '/no/such/folder/id."}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct rank_run run;
        start(&run, cases[i].method, 1);
        expect_ranks(&run, 1, i == 6 ? TT_ERR_SYSTEM : TT_ERR_ARGUMENT, cases[i].text);
    }
}

TEST(method, a_host_that_is_not_found_is_named)
{
    struct rank_run run;
    start(&run, "tcp://no-such-host.invalid:29500", 1);
    expect_ranks(&run, 1, TT_ERR_SYSTEM, "the host 'no-such-host.invalid'");
}

TEST(method, file_is_private_removed_and_used_again)
{
    char folder[] = "/tmp/tutti-test-XXXXXX", path[64], method[80];
    struct rank_run runs[4];
    REQUIRE(mkdtemp(folder) != NULL);
    snprintf(path, sizeof path, "%s/id", folder);
    snprintf(method, sizeof method, "file://%s", path);
    for (int turn = 0; turn < 5; turn++) {
        start(runs, method, 4);
        expect_ranks(runs, 4, TT_OK, NULL);
        CHECK(access(path, F_OK) != 0);
    }
    const struct tt_launcher launcher = {.rank = 0, .nranks = 2};
    struct tt_unique_id id;
    struct stat stat_of;
    CHECK(tt_unique_id_from_method(&id, method, &launcher, tt_deadline_ns(50)) == TT_OK);
    CHECK(stat(path, &stat_of) == 0 && (stat_of.st_mode & 0777) == 0600);
    const int64_t deadline_ns = tt_deadline_ns(5000);
    while (access(path, F_OK) == 0 && !tt_expired(deadline_ns)) usleep(1000);
    CHECK(access(path, F_OK) != 0); /* nobody came: the root took it away at its deadline */
    CHECK(rmdir(folder) == 0);
}

static void leave_file(const char *path, const void *bytes, size_t nbytes, mode_t mode)
{
    unlink(path);
    const int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    CHECK(write(fd, bytes, nbytes) == (ssize_t)nbytes);
    CHECK(fchmod(fd, mode) == 0);
    close(fd);
}

TEST(method, files_left_over_are_waited_past)
{
    char folder[] = "/tmp/tutti-test-XXXXXX", path[64], method[80];
    struct rank_run runs[3];
    struct tt_unique_id gone = {.key = {3}};
    struct tt_address address;
    const struct sockaddr_in loopback = {.sin_family = AF_INET,
                                         .sin_port = htons((uint16_t)reserved_port()),
                                         .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    REQUIRE(mkdtemp(folder) != NULL);
    snprintf(path, sizeof path, "%s/id", folder);
    snprintf(method, sizeof method, "file://%s", path);
    tt_address_set(&address, (const struct sockaddr *)&loopback);
    gone.magic = TT_ID_MAGIC;
    gone.version = TT_ID_VERSION;
    gone.address_bytes = address.nbytes;
    memcpy(gone.address, address.bytes, sizeof gone.address);
    static const char short_file[] = "abc";
    for (int i = 0; i < 2; i++) {
        leave_file(path, i ? (const void *)short_file : &gone, i ? 3 : sizeof gone, 0600);
        struct rank_run late = rank_run_of(&gone, 1, 2);
        late.method = method;
        late.process = 1;
        late.nprocesses = 2;
        late.timeout_ms = 60;
        run_ranks(&late, 1);
        expect_ranks(&late, 1, TT_ERR_TIMEOUT,
                     i ? "it holds no unique id" : "it is left over from a job that has gone");
        start(runs, method, 3);
        expect_ranks(runs, 3, TT_OK, NULL);
    }
    leave_file(path, &gone, sizeof gone, 0666);
    struct rank_run wary = rank_run_of(&gone, 1, 2);
    wary.method = method;
    wary.process = 1;
    wary.nprocesses = 2;
    wary.timeout_ms = 30;
    run_ranks(&wary, 1);
    expect_ranks(&wary, 1, TT_ERR_TIMEOUT, "another user owns it or may write it");
    unlink(path);
    CHECK(mkfifo(path, 0600) == 0); /* opening one must not wait for a writer */
    run_ranks(&wary, 1);
    expect_ranks(&wary, 1, TT_ERR_TIMEOUT, "it is no regular file");
    unlink(path);
    CHECK(rmdir(folder) == 0);
}

TEST(method, the_interface_asked_for_is_used_or_an_error)
{
    struct tt_address address;
    setenv("TUTTI_SOCKET_INTERFACE", "lo", 1);
    tt_config_reload();
    CHECK(tt_address_of_host(&address) == TT_OK && tt_address_is_loopback(&address));
    struct tt_unique_id id;
    struct rank_run runs[3];
    REQUIRE(tt_unique_id_create(&id) == TT_OK);
    for (int i = 0; i < 3; i++) runs[i] = rank_run_of(&id, i, 3);
    run_ranks(runs, 3);
    expect_ranks(runs, 3, TT_OK, NULL);
    setenv("TUTTI_SOCKET_INTERFACE", "ib7", 1);
    tt_config_reload();
    CHECK_EQ(tt_unique_id_create(&id), TT_ERR_ARGUMENT);
    CHECK(strstr(tt_last_error(), "TUTTI_SOCKET_INTERFACE=ib7") && strstr(tt_last_error(), "lo"));
    unsetenv("TUTTI_SOCKET_INTERFACE");
    tt_config_reload();
}
