/* How an init of libnccl.so.2 waits and fails, on memory of the host: no deadline unless one is
 * given, and a handle that is NULL after each failure. */
#include <arpa/inet.h>
#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "nccl.h"
#include "pair.h"
#include "shim.h"

/* What a handle is before a function that fails. */
#define OLD ((ncclComm_t)0x7)

static const struct timespec PAUSE = {.tv_nsec = 2000000};
enum { MOST_PAUSES = 10000 };

/* ---- A test in a process of its own --------------------------------------------------------- */

/* Whether this is the process of one test alone; else the test runs in one, with `setting`, which
 * is read once. */
static bool is_alone(const char *name, const char *setting)
{
    char path[512] = "", command[1024];
    if (getenv("TEST_IS_ALONE")) return true;
    CHECK(readlink("/proc/self/exe", path, sizeof path - 1) > 0);
    snprintf(command, sizeof command, "env TEST_IS_ALONE=1 %s '%s' --gtest_filter=*.%s", setting,
             path, name);
    CHECK(system(command) == 0);
    return false;
}

/* ---- The clock ------------------------------------------------------------------------------ */

/* How far the clock of this process is ahead. The library takes this clock_gettime, since a name of
 * the program comes before that of libc. */
static _Atomic long ahead_s, ahead_ms;

__attribute__((visibility("default"))) int clock_gettime(clockid_t clock, struct timespec *now);
int clock_gettime(clockid_t clock, struct timespec *now)
{
    const int result = (int)syscall(SYS_clock_gettime, clock, now);
    now->tv_nsec += ahead_ms % 1000 * 1000000;
    now->tv_sec += ahead_s + ahead_ms / 1000 + now->tv_nsec / 1000000000;
    now->tv_nsec %= 1000000000;
    return result;
}

/* ---- Deadlines ------------------------------------------------------------------------------ */

struct rank {
    ncclUniqueId id;
    ncclComm_t comm;
    ncclResult_t result;
    int rank, nranks; /* 0: of 2 ranks */
    _Atomic pid_t tid;
    char error[512];
};

static void *init_rank(void *argument)
{
    struct rank *self = argument;
    self->tid = gettid();
    self->result =
        ncclCommInitRank(&self->comm, self->nranks ? self->nranks : 2, self->id, self->rank);
    snprintf(self->error, sizeof self->error, "%s", ncclGetLastError(NULL));
    return NULL;
}

/* Whether the kernel says that a thread of this process is in poll or in ppoll for at least so many
 * seconds. */
static bool waits(pid_t tid, int least_s)
{
    char path[64], text[256] = "";
    unsigned long arguments[3] = {0};
    long number = -1;
    snprintf(path, sizeof path, "/proc/self/task/%d/syscall", (int)tid);
    FILE *file = fopen(path, "re");
    if (!file) return false;
    const bool is_read = fgets(text, sizeof text, file) != NULL;
    fclose(file);
    if (!is_read ||
        sscanf(text, "%ld %lx %lx %lx", &number, &arguments[0], &arguments[1], &arguments[2]) != 4)
        return false;
#ifdef SYS_poll
    if (number == SYS_poll) return (int)arguments[2] < 0 || (int)arguments[2] >= 1000 * least_s;
#endif
    const struct timespec *timeout = (const struct timespec *)arguments[2];
    return number == SYS_ppoll && (!timeout || timeout->tv_sec >= least_s);
}

static bool comes_to_wait(const struct rank *rank, int least_s)
{
    bool is_waiting = false;
    for (int i = 0; i < MOST_PAUSES && !is_waiting; i++) {
        nanosleep(&PAUSE, NULL);
        is_waiting = rank->tid && waits(rank->tid, least_s);
    }
    return is_waiting;
}

/* After an hour a rank waits for another hour, when the log says for whom. */
TEST(nccl_init, waits_for_a_rank_without_a_deadline)
{
    if (!is_alone("waits_for_a_rank_without_a_deadline", "TUTTI_LATE_MS=100")) return;
    struct rank ranks[2] = {{.rank = 0}, {.rank = 1}};
    pthread_t threads[2];
    REQUIRE(ncclGetUniqueId(&ranks[0].id) == ncclSuccess);
    ranks[1].id = ranks[0].id;
    pthread_create(&threads[0], NULL, init_rank, &ranks[0]);
    /* The first waits are for the handshake, in which the clock must be right. */
    for (int i = 0; i < 20; i++) CHECK(comes_to_wait(&ranks[0], 0));
    ahead_s += 3600;
    CHECK(comes_to_wait(&ranks[0], 3000));
    pthread_create(&threads[1], NULL, init_rank, &ranks[1]);
    for (int i = 0; i < 2; i++) {
        pthread_join(threads[i], NULL);
        CHECK(ranks[i].result == ncclSuccess);
        CHECK(ncclCommDestroy(ranks[i].comm) == ncclSuccess);
    }
}

/* The second id makes the thread that waits for the ranks of all ids look at the clock. */
TEST(nccl_init, takes_an_id_that_is_old)
{
    ncclUniqueId old, id;
    ncclComm_t comm;
    if (!is_alone("takes_an_id_that_is_old", ""))
        return; /* other waits need a clock that is right */
    REQUIRE(ncclGetUniqueId(&old) == ncclSuccess);
    REQUIRE(ncclGetUniqueId(&id) == ncclSuccess);
    ahead_s += 3600;
    REQUIRE(ncclCommInitRank(&comm, 1, id, 0) == ncclSuccess);
    CHECK(ncclCommDestroy(comm) == ncclSuccess);
    for (int i = 0; i < 100; i++) nanosleep(&PAUSE, NULL);
    CHECK(ncclCommInitRank(&comm, 1, old, 0) == ncclSuccess);
    CHECK(ncclCommDestroy(comm) == ncclSuccess);
}

TEST(nccl_init, ends_at_the_deadline_that_is_given)
{
    if (!is_alone("ends_at_the_deadline_that_is_given", "TUTTI_INIT_TIMEOUT_MS=500")) return;
    ncclUniqueId id;
    ncclComm_t comm = OLD;
    REQUIRE(ncclGetUniqueId(&id) == ncclSuccess);
    CHECK(ncclCommInitRank(&comm, 2, id, 0) == ncclTimeout);
    CHECK(says("rank 1 of 2 did not come within "));
    CHECK(says("(TUTTI_INIT_TIMEOUT_MS)"));
    CHECK(!comm);
}

/* ---- Ids ------------------------------------------------------------------------------------ */

enum { RANKS = 4, IDS = 4 };

static int count_descriptors(void)
{
    int n = 0;
    DIR *folder = opendir("/proc/self/fd");
    while (folder && readdir(folder)) n++;
    if (folder) closedir(folder);
    return n;
}

static void init_by_several_ids(ncclUniqueId ids[IDS])
{
    ncclComm_t comms[RANKS];
    REQUIRE(ncclGroupStart() == ncclSuccess);
    for (int i = 0; i < RANKS; i++)
        CHECK(ncclCommInitRankScalable(&comms[i], RANKS, i, IDS, ids, NULL) == ncclSuccess);
    REQUIRE(ncclGroupEnd() == ncclSuccess);
    for (int i = 0; i < RANKS; i++) CHECK(ncclCommDestroy(comms[i]) == ncclSuccess);
}

TEST(nccl_init, by_several_ids_keeps_no_descriptor_of_any)
{
    ncclUniqueId ids[IDS], kept;
    ncclComm_t comm;
    int before = 0, after = 0;
    REQUIRE(ncclGetUniqueId(&kept) == ncclSuccess);
    for (int round = 0; round < 12; round++) {
        for (int i = 0; i < IDS; i++) REQUIRE(ncclGetUniqueId(&ids[i]) == ncclSuccess);
        if (round == 6) ids[3] = ids[0]; /* the first one stays, also where it comes again */
        init_by_several_ids(ids);
        if (round == 1) before = count_descriptors();
    }
    for (int i = 0; i < MOST_PAUSES / 5; i++) {
        after = count_descriptors();
        if (after <= before + 1) break; /* the id that round 6 has replaced */
        nanosleep(&PAUSE, NULL);
    }
    CHECK_MESSAGE(after <= before + 1, "%d descriptors became %d", before, after);
    CHECK(ncclCommInitRank(&comm, 1, kept, 0) == ncclSuccess); /* no init had it */
    CHECK(ncclCommDestroy(comm) == ncclSuccess);
}

TEST(nccl_init, of_all_that_is_refused_keeps_no_descriptor)
{
    enum { TOO_MANY = (1 << 20) + 1 };
    ncclUniqueId kept; /* so that the thread and the descriptor that all ids share stay */
    ncclComm_t *comms = calloc(TOO_MANY, sizeof *comms);
    REQUIRE(comms);
    REQUIRE(ncclGetUniqueId(&kept) == ncclSuccess);
    const int before = count_descriptors();
    int after = 0;
    for (int i = 0; i < 4; i++)
        CHECK(ncclCommInitAll(comms, TOO_MANY, NULL) == ncclInvalidArgument);
    for (int i = 0; i < MOST_PAUSES / 5; i++) {
        after = count_descriptors();
        if (after <= before) break;
        nanosleep(&PAUSE, NULL);
    }
    CHECK_MESSAGE(after <= before, "%d descriptors became %d", before, after);
    CHECK(ncclCommInitRank(&comms[0], 1, kept, 0) == ncclSuccess);
    CHECK(ncclCommDestroy(comms[0]) == ncclSuccess);
    free(comms);
}

/* Waits until the process has few descriptors again. */
static void expect_descriptors(int most)
{
    int now = count_descriptors();
    for (int i = 0; i < MOST_PAUSES / 5 && now > most; i++) {
        nanosleep(&PAUSE, NULL);
        now = count_descriptors();
    }
    CHECK_MESSAGE(now <= most, "%d descriptors became %d", most, now);
}

static void fail_group(ncclUniqueId *id)
{
    float x = 1;
    ncclComm_t comms[2];
    REQUIRE(ncclGroupStart() == ncclSuccess);
    if (id)
        CHECK(ncclCommInitRank(&comms[0], 2, *id, 0) == ncclSuccess);
    else
        CHECK(ncclCommInitAll(comms, 2, NULL) == ncclSuccess);
    CHECK(ncclAllReduce(&x, &x, 1, ncclFloat, ncclSum, NULL, NULL) == ncclInvalidArgument);
    CHECK(ncclGroupEnd() == ncclInvalidArgument);
}

TEST(nccl_init, of_all_in_a_group_that_fails_keeps_no_descriptor)
{
    ncclUniqueId kept;
    ncclComm_t comm;
    REQUIRE(ncclGetUniqueId(&kept) == ncclSuccess);
    const int before = count_descriptors();
    for (int i = 0; i < 8; i++) fail_group(NULL);
    expect_descriptors(before);
    fail_group(&kept); /* the caller's: it may be used again */
    CHECK(ncclCommInitRank(&comm, 1, kept, 0) == ncclSuccess);
    CHECK(ncclCommDestroy(comm) == ncclSuccess);
}

TEST(nccl_init, at_an_address_works_after_a_group_that_failed)
{
    if (!is_alone("at_an_address_works_after_a_group_that_failed", "NCCL_COMM_ID=127.0.0.1:23147"))
        return;
    struct rank ranks[2] = {{.rank = 0}, {.rank = 1}};
    pthread_t threads[2];
    for (int i = 0; i < 2; i++) REQUIRE(ncclGetUniqueId(&ranks[i].id) == ncclSuccess);
    fail_group(&ranks[0].id);
    fail_group(NULL);
    for (int i = 0; i < 2; i++) pthread_create(&threads[i], NULL, init_rank, &ranks[i]);
    for (int i = 0; i < 2; i++) {
        pthread_join(threads[i], NULL);
        CHECK(ranks[i].result == ncclSuccess);
        CHECK(ncclCommDestroy(ranks[i].comm) == ncclSuccess);
    }
}

/* ---- Rank 0 fails after the others have come ------------------------------------------------ */

enum { MEETING_PORT = 23148 };
static struct rank meeting[RANKS];
static int nmeeting, nbinds;

/* The library takes this bind. Before rank 0 binds the port again it waits for the others. */
__attribute__((visibility("default"))) int bind(int fd, __CONST_SOCKADDR_ARG address,
                                                socklen_t nbytes)
{
    const bool is_meeting = address.__sockaddr_in__->sin_port == htons(MEETING_PORT);
    if (is_meeting && nbinds++ == 1)
        for (int rank = 1; rank < nmeeting; rank++)
            for (int i = 0; i < 20; i++) CHECK(comes_to_wait(&meeting[rank], 5));
    return (int)syscall(SYS_bind, fd, address.__sockaddr__, nbytes);
}

/* Rank 0's second init of the group cannot listen at the address of the first one. */
static void fail_rank_0(void)
{
    ncclComm_t comms[2];
    nbinds = 0;
    REQUIRE(ncclGroupStart() == ncclSuccess);
    for (int i = 0; i < 2; i++)
        CHECK(ncclCommInitRank(&comms[i], nmeeting, meeting[0].id, 0) == ncclSuccess);
    CHECK(ncclGroupEnd() == ncclSystemError);
    CHECK(says("cannot listen at 127.0.0.1:23148"));
}

static void meet(int nranks, bool fails)
{
    pthread_t threads[RANKS];
    nmeeting = nranks;
    nbinds = 2;
    for (int rank = 0; rank < nranks; rank++) {
        meeting[rank] = (struct rank){.rank = rank, .nranks = nranks};
        REQUIRE(ncclGetUniqueId(&meeting[rank].id) == ncclSuccess);
    }
    for (int rank = 1; rank < nranks; rank++)
        pthread_create(&threads[rank], NULL, init_rank, &meeting[rank]);
    if (fails)
        fail_rank_0();
    else
        (void)init_rank(&meeting[0]);
    for (int rank = 1; rank < nranks; rank++) pthread_join(threads[rank], NULL);
    for (int rank = fails; rank < nranks; rank++) {
        const struct rank *self = &meeting[rank];
        const bool is_right =
            fails ? self->result == ncclSystemError && strstr(self->error, "rank 0 (pid ") &&
                        strstr(self->error, "cannot join: cannot listen at 127.0.0.1:23148")
                  : self->result == ncclSuccess;
        CHECK_MESSAGE(is_right, "rank %d of %d: result %d: %s", rank, nranks, (int)self->result,
                      self->error);
        if (!self->result) CHECK(ncclCommDestroy(self->comm) == ncclSuccess);
    }
}

TEST(nccl_init, at_an_address_that_rank_0_leaves_with_an_error_ends_and_works_again)
{
    if (!is_alone("at_an_address_that_rank_0_leaves_with_an_error_ends_and_works_again",
                  "NCCL_COMM_ID=127.0.0.1:23148 TUTTI_INIT_TIMEOUT_MS=5000"))
        return;
    for (int nranks = 2; nranks <= RANKS; nranks++) {
        meet(nranks, true);
        meet(nranks, false);
    }
}

TEST(nccl_init, says_at_once_that_the_meeting_point_is_none)
{
    if (!is_alone("says_at_once_that_the_meeting_point_is_none", "NCCL_COMM_ID=127.0.0.1")) return;
    ncclUniqueId id;
    ncclComm_t comms[2] = {OLD, OLD};
    CHECK(ncclGetUniqueId(&id) == ncclInvalidArgument);
    CHECK(says("NCCL_COMM_ID=127.0.0.1 (environment) is not host:port or [IPv6]:port"));
    CHECK(ncclCommInitAll(comms, 2, NULL) == ncclInvalidArgument);
    CHECK(says("NCCL_COMM_ID=127.0.0.1"));
    CHECK(!comms[0] && !comms[1]);
}

TEST(nccl_init, names_the_variable_whose_host_is_unknown)
{
    if (!is_alone("names_the_variable_whose_host_is_unknown", "NCCL_COMM_ID=no.such.invalid:5000"))
        return;
    ncclUniqueId id;
    ncclComm_t comm;
    REQUIRE(ncclGetUniqueId(&id) == ncclSuccess);
    CHECK(ncclCommInitRank(&comm, 2, id, 0) != ncclSuccess);
    CHECK(says("NCCL_COMM_ID"));
}

TEST(nccl_init, without_an_interface_has_nccls_result)
{
    if (!is_alone("without_an_interface_has_nccls_result", "NCCL_SOCKET_IFNAME=nonesuch0")) return;
    ncclUniqueId id;
    CHECK(ncclGetUniqueId(&id) == ncclInvalidUsage);
    CHECK(says("NCCL_SOCKET_IFNAME=nonesuch0 leaves no interface"));
}

/* ---- Few descriptors ------------------------------------------------------------------------ */

enum { MOST_FEW = 3, MOST_LINES = 24, LONGEST_MS = 20000 };

struct few {
    ncclComm_t comms[MOST_FEW];
    int nranks;
    ncclResult_t result;
    char error[1024];
    _Atomic bool has_ended;
};

static void *init_few(void *argument)
{
    struct few *self = argument;
    self->result = ncclCommInitAll(self->comms, self->nranks, NULL);
    snprintf(self->error, sizeof self->error, "%s", ncclGetLastError(NULL));
    self->has_ended = true;
    return NULL;
}

/* Runs an init. When it has not ended soon, the clock runs 20 times as fast. Returns for how long
 * it ran by that clock. */
static long run_few(struct few *few)
{
    enum { STEP_MS = 20, SOON_STEPS = 10, FASTER = 20 };
    const struct timespec step = {.tv_nsec = STEP_MS * 1000000};
    pthread_t thread;
    long ran_ms = 0;
    pthread_create(&thread, NULL, init_few, few);
    for (int i = 0; i < MOST_PAUSES && !few->has_ended; i++) {
        nanosleep(&step, NULL);
        const long more_ms = i < SOON_STEPS ? 0 : (FASTER - 1) * STEP_MS;
        ahead_ms += more_ms;
        ran_ms += STEP_MS + more_ms;
    }
    if (!few->has_ended) { /* its memory is in use */
        CHECK_MESSAGE(false, "the init of %d ranks hangs", few->nranks);
        exit(1);
    }
    pthread_join(thread, NULL);
    return ran_ms;
}

/* Lines that the log has got since the last call. */
static int count_lines(int log)
{
    char text[16384];
    int nlines = 0;
    const ssize_t nbytes = read(log, text, sizeof text);
    for (ssize_t i = 0; i < nbytes; i++) nlines += text[i] == '\n';
    return nlines;
}

static void init_with(int nmore, int nranks, int log)
{
    struct few few = {.nranks = nranks};
    struct rlimit before, limit;
    const int lowest = fcntl(0, F_DUPFD_CLOEXEC, 3);
    REQUIRE(lowest >= 0 && getrlimit(RLIMIT_NOFILE, &before) == 0);
    close(lowest);
    limit = before;
    limit.rlim_cur = (rlim_t)(lowest + nmore);
    REQUIRE(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    const long ran_ms = run_few(&few);
    REQUIRE(setrlimit(RLIMIT_NOFILE, &before) == 0);
    const int nlines = count_lines(log);
    printf("%d descriptors, %d ranks: %d after %ld ms, %d lines: %s\n", nmore, nranks,
           (int)few.result, ran_ms, nlines, few.result ? few.error : "");
    CHECK(!few.result || strstr(few.error, "ulimit -n"));
    CHECK(nlines <= MOST_LINES);
    CHECK(ran_ms < LONGEST_MS);
    for (int i = 0; i < nranks; i++) CHECK(!few.comms[i] == (few.result != ncclSuccess));
    for (int i = 0; i < nranks && !few.result; i++)
        CHECK(ncclCommDestroy(few.comms[i]) == ncclSuccess);
}

TEST(nccl_init, with_few_descriptors_works_or_ends_soon_with_an_error_that_names_the_limit)
{
#if defined __SANITIZE_THREAD__ || defined __SANITIZE_ADDRESS__
    SKIP("a sanitizer has descriptors of its own");
#endif
    if (!is_alone("with_few_descriptors_works_or_ends_soon_with_an_error_that_names_the_limit", ""))
        return;
    static const int more[] = {2, 3, 5, 6, 9, 11};
    const int at = memfd_create("log", MFD_CLOEXEC);
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", at);
    const int log = open(path, O_RDONLY | O_CLOEXEC); /* with a position of its own */
    REQUIRE(log >= 0 && dup2(at, 2) == 2);
    for (size_t i = 0; i < sizeof more / sizeof *more; i++)
        for (int nranks = 1; nranks <= MOST_FEW; nranks++) init_with(more[i], nranks, log);
}

/* ---- Handles -------------------------------------------------------------------------------- */

TEST(nccl_init, that_is_refused_leaves_null)
{
    ncclUniqueId id;
    ncclComm_t comm = OLD;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    REQUIRE(ncclGetUniqueId(&id) == ncclSuccess);
    CHECK(ncclCommInitRank(&comm, 2, id, 5) == ncclInvalidArgument);
    CHECK(!comm);
    comm = OLD;
    config.blocking = 7;
    CHECK(ncclCommInitRankConfig(&comm, 1, id, 0, &config) == ncclInvalidArgument);
    CHECK(!comm);
    comm = OLD;
    CHECK(ncclCommInitRankScalable(&comm, 1, 0, 2, &id, NULL) == ncclInvalidArgument);
    CHECK(!comm);
    CHECK(ncclCommInitRank(NULL, 1, id, 0) == ncclInvalidArgument);
    CHECK(ncclCommInitRankScalable(NULL, 1, 0, 2, &id, NULL) == ncclInvalidArgument);
}

TEST(nccl_init, of_all_that_is_refused_leaves_null_in_every_place)
{
    const int devices[2] = {0, -3};
    ncclComm_t comms[3] = {OLD, OLD, OLD};
    CHECK(ncclCommInitAll(comms, 2, devices) == ncclInvalidArgument);
    CHECK(!comms[0] && !comms[1]);
    CHECK(comms[2] == OLD);
}

TEST(nccl_init, in_a_group_that_fails_leaves_null_in_every_place)
{
    ncclUniqueId id;
    ncclComm_t comms[2] = {OLD, OLD};
    REQUIRE(ncclGetUniqueId(&id) == ncclSuccess);
    REQUIRE(ncclGroupStart() == ncclSuccess);
    CHECK(ncclCommInitRank(&comms[0], 2, id, 0) == ncclSuccess);
    CHECK(ncclCommInitRank(&comms[1], 2, id, 9) == ncclInvalidArgument);
    CHECK(ncclGroupEnd() == ncclInvalidArgument);
    CHECK(!comms[0] && !comms[1]);
}

TEST(nccl_init, a_split_that_fails_leaves_null_in_every_place)
{
    ncclComm_t alone, comms[2], parts[2] = {OLD, OLD};
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.splitShare = 2;
    REQUIRE(ncclCommInitAll(&alone, 1, NULL) == ncclSuccess);
    CHECK(ncclCommSplit(alone, 0, 0, &parts[0], &config) == ncclInvalidArgument);
    CHECK(!parts[0]);
    CHECK(ncclCommDestroy(alone) == ncclSuccess);
    make_pair(comms);
    parts[0] = OLD;
    CHECK(ncclCommSplit(NULL, 0, 0, &parts[0], NULL) == ncclInvalidArgument);
    CHECK(!parts[0]);
    parts[0] = OLD;
    REQUIRE(ncclGroupStart() == ncclSuccess);
    CHECK(ncclCommSplit(comms[0], 0, 0, &parts[0], NULL) == ncclSuccess);
    CHECK(ncclCommSplit(comms[1], -9, 0, &parts[1], NULL) == ncclInvalidArgument);
    CHECK(ncclGroupEnd() == ncclInvalidArgument);
    CHECK(!parts[0] && !parts[1]);
    destroy_pair(comms);
}

TEST(nccl_init, a_split_after_an_abort_leaves_null)
{
    ncclComm_t comms[2], part = OLD;
    make_pair(comms);
    CHECK(ncclCommAbort(comms[1]) == ncclSuccess);
    for (int i = 0; i < 2; i++) { /* the second one finds a communicator that has failed */
        part = OLD;
        CHECK(ncclCommSplit(comms[0], 0, 0, &part, NULL) == ncclRemoteError);
        CHECK(!part);
    }
    CHECK(ncclCommAbort(comms[0]) == ncclSuccess);
}

/* The child is rank 1, and ends. */
TEST(nccl_init, a_split_whose_peer_has_died_leaves_null)
{
    if (!is_alone("a_split_whose_peer_has_died_leaves_null", "")) return; /* no threads at fork */
    int pipes[2], status;
    struct rank own = {.rank = 0}, child = {.rank = 1};
    ncclComm_t part = OLD;
    REQUIRE(pipe(pipes) == 0);
    const pid_t pid = fork();
    REQUIRE(pid >= 0);
    if (pid == 0) {
        if (read(pipes[0], &child.id, sizeof child.id) != (ssize_t)sizeof child.id) _exit(1);
        (void)init_rank(&child);
        _exit(child.result != ncclSuccess);
    }
    REQUIRE(ncclGetUniqueId(&own.id) == ncclSuccess);
    CHECK(write(pipes[1], &own.id, sizeof own.id) == (ssize_t)sizeof own.id);
    (void)init_rank(&own);
    REQUIRE(own.result == ncclSuccess);
    CHECK(waitpid(pid, &status, 0) == pid && status == 0);
    CHECK(ncclCommSplit(own.comm, 0, 0, &part, NULL) == ncclRemoteError);
    CHECK(!part);
    CHECK(ncclCommAbort(own.comm) == ncclSuccess);
    close(pipes[0]);
    close(pipes[1]);
}
