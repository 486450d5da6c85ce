/* Groups that fail on one rank, in processes of one host and of two: the ranks that wait for it
 * hear of that while it makes no call, and before it ends its communicator. */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/sanitizers.h"
#include "shim.h"
#include "tutti.h"

enum { LATE_MS = 60000 }; /* far longer than a rank waits that is told */

struct shared {
    tuttiUniqueId id;
    _Atomic bool has_id, has_received, has_refused;
    _Atomic int nheard; /* ranks that know of the failure, without rank 1, which has it */
};

static int count_failed_checks; /* in the child: its checks are no test's */

static void expect(bool condition, const char *what)
{
    if (condition) return;
    fprintf(stderr, "%s: %s\n", what, tuttiGetLastError(NULL));
    count_failed_checks++;
}

static bool says(const char *part)
{
    return strstr(tuttiGetLastError(NULL), part) != NULL;
}

static void await_flag(const _Atomic bool *flag)
{
    while (!*flag) usleep(1000);
}

static void await_number(const _Atomic int *number, int least)
{
    while (*number < least) usleep(1000);
}

static void expect_failure(tuttiResult_t result, const char *what)
{
    expect(result == tuttiInvalidArgument && says("rank 1 (") && says("color -9"), what);
}

/* Of a call that waits for no other rank, since the communicator has failed. */
static void expect_failed(tuttiComm_t comm)
{
    int value = 1;
    expect_failure(tuttiAllReduce(&value, &value, 1, tuttiInt32, tuttiSum, comm, NULL),
                   "later call");
}

/* ranks: of this process, which is of this host. */
static void join(struct shared *shared, const char *host, const int *ranks, int n, int nranks,
                 tuttiComm_t *comms)
{
    tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
    config.timeoutMs = LATE_MS;
    setenv("TUTTI_HOST_ID", host, 1);
    if (ranks[0] == 0) {
        expect(!tuttiGetUniqueId(&shared->id), "id");
        shared->has_id = true;
    }
    await_flag(&shared->has_id);
    expect(!tuttiGroupStart(), "start");
    for (int i = 0; i < n; i++)
        expect(!tuttiCommInitRankConfig(&comms[i], nranks, shared->id, ranks[i], &config), "init");
    expect(!tuttiGroupEnd(), "init");
}

static void run_processes(int n, void (*run)(struct shared *shared, int process))
{
    enum { MOST = 4 };
    pid_t pids[MOST];
    if (tt_is_thread_sanitizer()) SKIP("ThreadSanitizer allows no threads after a fork");
    struct shared *shared =
        mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    REQUIRE(shared != MAP_FAILED);
    for (int i = 0; i < n; i++) {
        pids[i] = fork();
        REQUIRE(pids[i] >= 0);
        if (pids[i]) continue;
        alarm(2 * LATE_MS / 1000); /* one that waits for a process which has died */
        run(shared, i);
        _exit(count_failed_checks);
    }
    for (int i = 0; i < n; i++) {
        int status = -1;
        CHECK_EQ(waitpid(pids[i], &status, 0), pids[i]);
        CHECK_MESSAGE(status == 0, "process %d: status %x", i, (unsigned)status);
    }
    munmap(shared, sizeof *shared);
}

/* ---- Ranks that wait in the split ------------------------------------------------------------ */

/* A group with a split of each, of which the first one is refused. */
static void refuse(struct shared *shared, const tuttiComm_t *comms, int n)
{
    tuttiComm_t part = NULL;
    expect(!tuttiGroupStart(), "start");
    for (int i = 0; i < n; i++) {
        const tuttiResult_t result = tuttiCommSplit(comms[i], i ? 0 : -9, 0, &part, NULL);
        expect(result == (i ? tuttiSuccess : tuttiInvalidArgument), "split");
    }
    expect(tuttiGroupEnd() == tuttiInvalidArgument && says("color -9"), "end");
    expect(!part, "handle");
    shared->has_refused = true;
}

/* Three processes of a rank each, of which the second refuses. */
static void split(struct shared *shared, int rank, const char *host, bool is_late)
{
    tuttiComm_t comm, part = NULL;
    join(shared, host, &rank, 1, 3, &comm);
    if (rank == 1) {
        refuse(shared, &comm, 1);
    } else {
        if (is_late) await_flag(&shared->has_refused);
        expect_failure(tuttiCommSplit(comm, 0, 0, &part, NULL), "split");
        expect(!part, "handle");
        shared->nheard++;
    }
    expect_failed(comm);
    await_number(&shared->nheard, 2);
    expect(!tuttiCommDestroy(comm), "destroy");
}

static void split_on_one_host(struct shared *shared, int rank)
{
    split(shared, rank, "a", false);
}

static void split_on_two_hosts(struct shared *shared, int rank)
{
    split(shared, rank, rank == 1 ? "b" : "a", false);
}

static void split_late(struct shared *shared, int rank)
{
    split(shared, rank, rank == 1 ? "b" : "a", true);
}

TEST(group_hosts, a_split_that_one_process_refuses_fails_in_the_others)
{
    run_processes(3, split_on_one_host);
}

TEST(group_hosts, a_split_that_one_process_refuses_fails_on_a_host_without_a_connection)
{
    run_processes(3, split_on_two_hosts);
}

TEST(group_hosts, a_split_that_was_refused_before_fails_on_a_host_without_a_connection)
{
    run_processes(3, split_late);
}

/* ---- Ranks that wait for another rank of that host ------------------------------------------- */

/* Ranks 1 and 3 are one process on host b. Rank 2, on host a, is connected with rank 3 and waits
 * for a message of it. Rank 0 is on host a, too, and makes no call meanwhile. */
static void wait_for_a_neighbour(struct shared *shared, int process, bool by_group)
{
    static const int ranks[3][2] = {{0}, {1, 3}, {2}};
    tuttiComm_t comms[2];
    int value = 1;
    join(shared, process == 1 ? "b" : "a", ranks[process], process == 1 ? 2 : 1, 4, comms);
    if (process == 0) await_number(&shared->nheard, 1);
    if (process == 0) expect_failed(comms[0]);
    if (process == 1) {
        expect(!tuttiSend(&value, 1, tuttiInt32, 2, comms[1], NULL), "send");
        await_flag(&shared->has_received);
        refuse(shared, comms, by_group ? 2 : 1);
        if (!by_group) expect_failed(comms[1]);
        await_number(&shared->nheard, 2);
        expect(!tuttiCommDestroy(comms[1]), "destroy");
    }
    if (process == 2) {
        expect(!tuttiRecv(&value, 1, tuttiInt32, 3, comms[0], NULL), "receive");
        shared->has_received = true;
        expect_failure(tuttiRecv(&value, 1, tuttiInt32, 3, comms[0], NULL), "receive again");
    }
    if (process != 1) shared->nheard++;
    expect(!tuttiCommDestroy(comms[0]), "destroy");
}

static void fail_by_group(struct shared *shared, int process)
{
    wait_for_a_neighbour(shared, process, true);
}

static void fail_by_call(struct shared *shared, int process)
{
    wait_for_a_neighbour(shared, process, false);
}

TEST(group_hosts, who_waits_for_another_rank_of_the_group_hears_of_it_from_that_rank)
{
    run_processes(3, fail_by_group);
}

TEST(group_hosts, who_waits_for_another_rank_of_the_host_hears_of_it_at_that_ranks_next_call)
{
    run_processes(3, fail_by_call);
}
