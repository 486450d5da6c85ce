/* Scarce descriptors, no locked memory, little address space, and system calls that a sandbox
 * forbids: it works by another way or ends with a clear error, soon, on every rank. */
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ranks.h"
#include "shim.h"

enum { NRANKS = 4, WORKED = 0, FAILED = 3, WAIT_MS = 30000 };

static void limit(int resource, rlim_t value)
{
    const struct rlimit limit = {value, value};
    if (setrlimit((__rlimit_resource_t)resource, &limit)) _exit(126);
}

static rlim_t nofile;
static void few_descriptors(void)
{
    limit(RLIMIT_NOFILE, nofile);
}
static void no_locked_memory(void)
{
    limit(RLIMIT_MEMLOCK, 0);
}
static void small_address_space(void)
{
    limit(RLIMIT_AS, 96u << 20);
}
static rlim_t file_size;
static void small_files(void)
{
    limit(RLIMIT_FSIZE, file_size);
}
static void no_threads(void)
{
    limit(RLIMIT_STACK, 8u << 20);
    limit(RLIMIT_CORE, 0);
}

static int forbidden;
static void forbid_call(void)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)forbidden, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const struct sock_fprog program = {.len = sizeof code / sizeof *code, .filter = code};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
        _exit(126);
}

static struct job job; /* the last one */

/* Starts a hello job, whose ranks prepare themselves. */
static bool start_hello(struct job *into, void (*prepare)(void), const char *const *extra)
{
    static const char *const plain[] = {"TUTTI_INIT_TIMEOUT_MS=2500", "TUTTI_TIMEOUT_MS=2500",
                                        NULL};
    return job_start(into, NRANKS, (const char *const[]){"hello", NULL}, extra ? extra : plain,
                     prepare);
}

/* Every rank either works or says why not. Returns how many worked. */
static int wait_hello(struct job *from, const char *what)
{
    int nworked = 0;
    CHECK_MESSAGE(job_wait(from, WAIT_MS), "%s: some rank hung", what);
    for (int r = 0; r < NRANKS; r++) {
        const struct job_rank *rank = &from->ranks[r];
        const int code = WIFEXITED(rank->status) ? WEXITSTATUS(rank->status) : -1;
        const char *error = strstr(rank->text, "ERROR ");
        const bool explained = code == FAILED && error && strlen(error) > 60;
        nworked += code == WORKED;
        CHECK_MESSAGE(code == WORKED || explained, "%s: rank %d, status 0x%x, said:\n%s", what, r,
                      (unsigned)rank->status, rank->text);
    }
    return nworked;
}

static int hello(const char *what, void (*prepare)(void), const char *const *extra)
{
    if (start_hello(&job, prepare, extra)) return wait_hello(&job, what);
    CHECK_MESSAGE(false, "%s: the job did not start", what);
    return 0;
}

/* All at once: where one cannot join, its root stays for two seconds. */
TEST(limits, few_descriptors_work_or_say_so)
{
    enum { LEAST = 6, NJOBS = 10 };
    static struct job jobs[NJOBS];
    if (SANITIZED) SKIP("the sanitizer needs descriptors of its own");
    for (int i = 0; i < NJOBS; i++) {
        nofile = LEAST + 2 * (rlim_t)i;
        REQUIRE(start_hello(&jobs[i], few_descriptors, NULL));
    }
    for (int i = 0; i < NJOBS; i++) {
        char what[40];
        snprintf(what, sizeof what, "%d descriptors", LEAST + 2 * i);
        const int nworked = wait_hello(&jobs[i], what);
        printf("%s: %d of %d ranks worked\n", what, nworked, NRANKS);
        CHECK_MESSAGE(nworked == 0 || nworked == NRANKS, "%s: only %d ranks worked", what, nworked);
    }
}

/* Without any deadline. Which descriptor is the first that cannot be had differs by the number. */
TEST(limits, splits_until_a_rank_has_no_descriptor_left_end_with_its_error_on_all_ranks)
{
    enum { NJOBS = 6 };
    static struct job jobs[NJOBS];
    static const char *const endless[] = {"TUTTI_INIT_TIMEOUT_MS=0", "TUTTI_TIMEOUT_MS=0", NULL};
    for (int i = 0; i < NJOBS; i++) {
        char more[16];
        snprintf(more, sizeof more, "%d", 20 + i);
        REQUIRE(
            job_start(&jobs[i], 2, (const char *const[]){"split_out", more, NULL}, endless, NULL));
    }
    for (int i = 0; i < NJOBS; i++) {
        CHECK_MESSAGE(job_wait(&jobs[i], WAIT_MS), "%d descriptors more: some rank hung", 20 + i);
        for (int r = 0; r < 2; r++) {
            const struct job_rank *rank = &jobs[i].ranks[r];
            CHECK_MESSAGE(WIFEXITED(rank->status) && WEXITSTATUS(rank->status) == FAILED &&
                              strstr(rank->text, "ulimit -n"),
                          "%d descriptors more: rank %d, status 0x%x, said:\n%s", 20 + i, r,
                          (unsigned)rank->status, rank->text);
        }
    }
}

TEST(limits, no_locked_memory_is_no_obstacle)
{
    CHECK_EQ(hello("RLIMIT_MEMLOCK 0", no_locked_memory, NULL), NRANKS);
}

TEST(limits, a_small_address_space_works_or_says_so)
{
    if (SANITIZED) SKIP("the sanitizer's shadow takes address space");
    printf("96 MiB of addresses: %d of %d ranks worked\n",
           hello("RLIMIT_AS", small_address_space, NULL), NRANKS);
}

/* 16 slots of a link would take 100 MB. */
TEST(limits, links_have_fewer_slots_where_files_or_addresses_are_small)
{
    static const char *const info[] = {"TUTTI_LOG=INFO", NULL};
    file_size = 64u << 20;
    CHECK_EQ(hello("RLIMIT_FSIZE 64 MiB", small_files, info), NRANKS);
    CHECK_MESSAGE(strstr(job.ranks[0].text, "slots instead of 16, to save memory; TUTTI_SLOTS"),
                  "rank 0 said:\n%s", job.ranks[0].text);
}

/* Shared memory counts as a file. The kernel would end the process by SIGXFSZ. */
TEST(limits, small_files_are_an_error_on_all_ranks_that_names_the_limit)
{
    file_size = 65536;
    CHECK_EQ(hello("RLIMIT_FSIZE 64 KiB", small_files, NULL), 0);
    for (int r = 0; r < NRANKS; r++) {
        const char *error = strstr(job.ranks[r].text, "ERROR ");
        CHECK_MESSAGE(error && strstr(error, "ulimit -f") && strstr(error, "TUTTI_SLOTS"),
                      "rank %d said:\n%s", r, job.ranks[r].text);
    }
}

TEST(limits, memory_of_tutti_beyond_the_limit_of_files_is_an_error)
{
    static const char *const small[] = {"TUTTI_SLOT_BYTES=1K", "TUTTI_SLOTS=2",
                                        "TUTTI_MEET_BYTES=1K", NULL};
    file_size = 1 << 20; /* as much as these segments take, and less than hello's window */
    CHECK_EQ(hello("RLIMIT_FSIZE 1 MiB", small_files, small), NRANKS);
    for (int r = 0; r < NRANKS; r++)
        CHECK_MESSAGE(strstr(job.ranks[r].text, "no window memory: ") &&
                          strstr(job.ranks[r].text, "ulimit -f"),
                      "rank %d said:\n%s", r, job.ranks[r].text);
}

TEST(limits, an_ordinary_job_works)
{
    CHECK_EQ(hello("no limits", no_threads, NULL), NRANKS);
}

TEST(limits, without_process_vm_readv_another_way_is_taken)
{
    static const char *const forced[] = {"TUTTI_TRANSPORT=cma", "TUTTI_INIT_TIMEOUT_MS=8000",
                                         "TUTTI_TIMEOUT_MS=8000", NULL};
    forbidden = SYS_process_vm_readv;
    CHECK_EQ(hello("process_vm_readv forbidden", forbid_call, NULL), NRANKS);
    hello("process_vm_readv forbidden and demanded", forbid_call, forced);
}

TEST(limits, without_membarrier_ranks_sleep_for_a_short_time_and_are_not_woken)
{
    forbidden = SYS_membarrier;
    CHECK_EQ(hello("membarrier forbidden", forbid_call, NULL), NRANKS);
}

TEST(limits, forbidden_calls_end_in_a_clear_error_or_another_way)
{
    static const struct {
        int number;
        const char *name;
    } calls[] = {{SYS_memfd_create, "memfd_create"},
                 {SYS_pidfd_open, "pidfd_open"},
                 {SYS_sched_getaffinity, "sched_getaffinity"}};
    const size_t ncalls =
        sizeof calls / sizeof *calls - SANITIZED; /* threads of a sanitizer need the last one */
    for (size_t i = 0; i < ncalls; i++) {
        forbidden = calls[i].number;
        printf("%s forbidden: %d of %d ranks worked\n", calls[i].name,
               hello(calls[i].name, forbid_call, NULL), NRANKS);
    }
}

enum { FEW_RANKS = 6, OTHER_USER = 48213 };

/* Inits all ranks of a group without a deadline, when only some of their threads can be started. */
static void init_with_few_threads(void)
{
    const tuttiConfig_t config = CONFIG_WITHIN(0, 0);
    tuttiComm_t comms[FEW_RANKS] = {NULL};
    tuttiUniqueId id;
    if (tuttiGetUniqueId(&id) || setuid(OTHER_USER)) _exit(126);
    limit(RLIMIT_NPROC, FEW_RANKS); /* this thread, the unique id's, and four more */
    tuttiGroupStart();
    for (int r = 0; r < FEW_RANKS; r++)
        if (tuttiCommInitRankConfig(&comms[r], FEW_RANKS, id, r, &config)) _exit(125);
    if (tuttiGroupEnd() != tuttiSystemError) _exit(124);
    if (!strstr(tuttiGetLastError(NULL), "cannot start a thread for the init of rank")) _exit(123);
    for (int r = 0; r < FEW_RANKS; r++)
        if (comms[r]) _exit(122);
    _exit(WORKED);
}

TEST(limits, an_init_that_gets_too_few_threads_ends_at_once_on_all_ranks)
{
    if (geteuid()) SKIP("only root can become a user that has no other threads");
    if (SANITIZED) SKIP("the sanitizer has threads of its own");
    int status = 0;
    const pid_t child = fork();
    if (child == 0) init_with_few_threads();
    const int pidfd = child > 0 ? (int)syscall(SYS_pidfd_open, child, 0) : -1;
    REQUIRE(pidfd >= 0);
    struct pollfd ends = {.fd = pidfd, .events = POLLIN};
    if (poll(&ends, 1, WAIT_MS) == 0) kill(child, SIGKILL);
    CHECK_EQ(waitpid(child, &status, 0), child);
    CHECK_MESSAGE(WIFEXITED(status) && WEXITSTATUS(status) == WORKED,
                  "the child ended with status 0x%x", (unsigned)status);
    close(pidfd);
}

TEST(limits, memory_of_a_peer_that_a_rank_cannot_map_is_everybodys_error_with_its_cause)
{
    if (SANITIZED) SKIP("a sanitizer needs address space of its own");
    REQUIRE(job_start(&job, 3, (const char *const[]){"cramped", NULL}, NULL, NULL));
    CHECK_MESSAGE(job_wait(&job, WAIT_MS), "some rank did not end");
    for (int r = 0; r < 3; r++) {
        const char *error = strstr(job.ranks[r].text, "ERROR ");
        CHECK_MESSAGE(error && strstr(error, "rank 2 (host ") && strstr(error, "cannot map") &&
                          strstr(error, "ulimit -v"),
                      "rank %d: status 0x%x; it said:\n%s", r, (unsigned)job.ranks[r].status,
                      job.ranks[r].text);
    }
}
