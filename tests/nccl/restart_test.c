/* Which processes may make a communicator at the address of NCCL_COMM_ID: any, whatever other
 * processes, or they themselves, have made there before. */
#include <arpa/inet.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "nccl.h"
#include "shim.h"

enum { MOST_PROCESSES = 4, MOST_COMMS = 8, PATIENCE_S = 100, PAIRS = 200 };

/* ---- A process ------------------------------------------------------------------------------ */

enum what { JOIN, JOIN_IN_PAIRS, JOIN_AT_LAST, ABORT };

struct command {
    enum what what;
    int rank, nranks;
};

struct answer {
    int is_right;
    char text[512];
};

/* Owned by the test. Its commands and answers go through fd. */
struct process {
    pid_t pid;
    int fd;
};

static ncclComm_t comms[MOST_COMMS];
static int ncomms;

static bool fail(struct answer *answer, const char *what)
{
    snprintf(answer->text, sizeof answer->text, "%s: %s", what, ncclGetLastError(NULL));
    return false;
}

static bool init(struct answer *answer, const struct command *command)
{
    ncclUniqueId id;
    if (ncclGetUniqueId(&id) != ncclSuccess) return fail(answer, "id");
    if (ncclCommInitRank(&comms[ncomms], command->nranks, id, command->rank) != ncclSuccess)
        return fail(answer, "init");
    ncomms++;
    return true;
}

/* All ranks of the last communicator have come with their own numbers. */
static bool use(struct answer *answer, const struct command *command)
{
    int x = 1 << command->rank;
    if (ncclAllReduce(&x, &x, 1, ncclInt, ncclSum, comms[ncomms - 1], NULL) != ncclSuccess)
        return fail(answer, "all-reduce");
    if (x == (1 << command->nranks) - 1) return true;
    snprintf(answer->text, sizeof answer->text, "the sum is %d", x);
    return false;
}

static bool end_last(struct answer *answer)
{
    return ncclCommDestroy(comms[--ncomms]) == ncclSuccess || fail(answer, "destroy");
}

/* The second init begins as soon as the first one has returned. */
static bool join_in_pairs(struct answer *answer, const struct command *command)
{
    for (int i = 0; i < PAIRS; i++) {
        if (!init(answer, command) || !init(answer, command)) return false;
        for (int comm = 0; comm < 2; comm++)
            if (!use(answer, command) || !end_last(answer)) return false;
    }
    return true;
}

/* Tries until all have come together. */
static bool join_at_last(struct answer *answer, const struct command *command)
{
    while (!init(answer, command)) {
    }
    return use(answer, command);
}

/* Another process has gone: its communicators are of no use. */
static bool abort_all(struct answer *answer)
{
    while (ncomms)
        if (ncclCommAbort(comms[--ncomms]) != ncclSuccess) return fail(answer, "abort");
    return true;
}

static bool obey(struct answer *answer, const struct command *command)
{
    switch (command->what) {
    case JOIN:
        return init(answer, command) && use(answer, command);
    case JOIN_IN_PAIRS:
        return join_in_pairs(answer, command);
    case JOIN_AT_LAST:
        return join_at_last(answer, command);
    case ABORT:
        return abort_all(answer);
    }
    return false;
}

static void live(int fd)
{
    struct command command;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    alarm(PATIENCE_S);
    while (read(fd, &command, sizeof command) == (ssize_t)sizeof command) {
        struct answer answer = {0};
        answer.is_right = obey(&answer, &command);
        if (write(fd, &answer, sizeof answer) != (ssize_t)sizeof answer) break;
    }
    _exit(0);
}

/* ---- The test's side ------------------------------------------------------------------------ */

/* This process never calls the library, so a child made by fork is like a new program. */
static bool start(struct process *process)
{
    int ends[2];
    fflush(stdout);
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) return false;
    process->pid = fork();
    if (process->pid == 0) {
        close(ends[0]);
        live(ends[1]);
    }
    close(ends[1]);
    process->fd = ends[0];
    return process->pid > 0;
}

static void end(struct process *process)
{
    kill(process->pid, SIGKILL);
    waitpid(process->pid, NULL, 0);
    close(process->fd);
}

static void tell(const struct process *process, struct command command)
{
    CHECK(send(process->fd, &command, sizeof command, MSG_NOSIGNAL) == (ssize_t)sizeof command);
}

/* Whether the process has done what it was told last. */
static bool has_done(const struct process *process, const char *what)
{
    struct answer answer = {0};
    if (read(process->fd, &answer, sizeof answer) != (ssize_t)sizeof answer)
        snprintf(answer.text, sizeof answer.text, "it has ended");
    CHECK_MESSAGE(answer.is_right, "%s: process %d: %s", what, (int)process->pid, answer.text);
    return answer.is_right;
}

/* The processes do that together; the first is rank 0. The last is told first. */
static bool together(enum what what, int nranks, struct process *const ranks[])
{
    bool is_right = true;
    for (int rank = nranks - 1; rank >= 0; rank--)
        tell(ranks[rank], (struct command){.what = what, .rank = rank, .nranks = nranks});
    for (int rank = 0; rank < nranks; rank++) is_right &= has_done(ranks[rank], "init");
    return is_right;
}

#define join_all(...)                                                                              \
    together(JOIN, (int)(sizeof((struct process *[]){__VA_ARGS__}) / sizeof(struct process *)),    \
             (struct process *const[]){__VA_ARGS__})

/* An address of its own for each test, at which the library can listen. The socket that is bound to
 * it, and never listens, keeps the kernel from giving its port to a connection. */
static bool choose_address(void)
{
    static int fd = -1;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t nbytes = sizeof address;
    char text[64];
    if (fd >= 0) close(fd);
    fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const bool is_bound = bind(fd, (struct sockaddr *)&address, nbytes) == 0 &&
                          getsockname(fd, (struct sockaddr *)&address, &nbytes) == 0 &&
                          setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int)) == 0;
    snprintf(text, sizeof text, "127.0.0.1:%d", ntohs(address.sin_port));
    return is_bound && setenv("NCCL_COMM_ID", text, 1) == 0;
}

static bool begin(struct process *processes, int n)
{
    bool is_right = choose_address();
    for (int i = 0; i < n; i++) is_right &= start(&processes[i]);
    return is_right;
}

static void end_all(struct process *processes, int n)
{
    for (int i = 0; i < n; i++) end(&processes[i]);
}

/* Two processes make three communicators; then one is killed, and starts anew. */
static void restart(int which)
{
    struct process p[2];
    REQUIRE(begin(p, 2));
    for (int i = 0; i < 3; i++) CHECK(join_all(&p[0], &p[1]));
    end(&p[which]);
    tell(&p[!which], (struct command){.what = ABORT});
    CHECK(has_done(&p[!which], "abort"));
    REQUIRE(start(&p[which]));
    for (int i = 0; i < 2; i++) CHECK(join_all(&p[0], &p[1]));
    end_all(p, 2);
}

TEST(nccl_restart, a_rank_that_was_started_anew_joins_the_others)
{
    restart(1);
}

TEST(nccl_restart, the_others_join_a_rank_0_that_was_started_anew)
{
    restart(0);
}

/* Rank 1 may have come to rank 0 when it dies; then the init fails. */
TEST(nccl_restart, a_rank_that_died_in_an_init_and_was_started_anew_joins_the_others)
{
    struct process p[3];
    REQUIRE(begin(p, 3));
    CHECK(join_all(&p[0], &p[1], &p[2]));
    for (int rank = 0; rank < 2; rank++)
        tell(&p[rank], (struct command){.what = JOIN_AT_LAST, .rank = rank, .nranks = 3});
    end(&p[1]);
    REQUIRE(start(&p[1]));
    for (int rank = 1; rank < 3; rank++)
        tell(&p[rank], (struct command){.what = JOIN_AT_LAST, .rank = rank, .nranks = 3});
    for (int rank = 0; rank < 3; rank++) CHECK(has_done(&p[rank], "init"));
    end_all(p, 3);
}

TEST(nccl_restart, another_set_of_processes_meets_where_the_first_one_did)
{
    struct process p[3], more[3];
    REQUIRE(begin(p, 3));
    for (int i = 0; i < 2; i++) CHECK(join_all(&p[0], &p[1], &p[2]));
    end_all(p, 3);
    for (int i = 0; i < 3; i++) REQUIRE(start(&more[i]));
    for (int i = 0; i < 2; i++) CHECK(join_all(&more[0], &more[1], &more[2]));
    end_all(more, 3);
}

TEST(nccl_restart, another_process_takes_a_rank_of_the_next_communicator)
{
    struct process p[3];
    REQUIRE(begin(p, 3));
    CHECK(join_all(&p[0], &p[1]));
    CHECK(join_all(&p[0], &p[2]));
    CHECK(join_all(&p[0], &p[1]));
    CHECK(join_all(&p[1], &p[2]));
    CHECK(join_all(&p[0], &p[2]));
    end_all(p, 3);
}

TEST(nccl_restart, numbers_of_ranks_and_ranks_change)
{
    struct process p[4];
    REQUIRE(begin(p, 4));
    CHECK(join_all(&p[0], &p[1]));
    CHECK(join_all(&p[0], &p[1], &p[2]));
    CHECK(join_all(&p[1], &p[0]));
    CHECK(join_all(&p[2], &p[0], &p[1]));
    CHECK(join_all(&p[3]));
    CHECK(join_all(&p[3], &p[2], &p[1], &p[0]));
    CHECK(join_all(&p[0], &p[1]));
    end_all(p, 4);
}

TEST(nccl_restart, a_rank_begins_the_next_init_while_the_last_one_ends)
{
    struct process p[2];
    REQUIRE(begin(p, 2));
    CHECK(together(JOIN_IN_PAIRS, 2, (struct process *const[]){&p[0], &p[1]}));
    end_all(p, 2);
}
