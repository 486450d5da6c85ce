/* Runs a function on several ranks, each a thread. */
#include "ranks.h"

#include <dirent.h>
#include <pthread.h>
#include <signal.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "bootstrap/root.h"
#include "net/handshake.h"
#include "net/socket.h"
#include "shim.h"

struct rank_run rank_run_of(const struct tt_unique_id *id, int rank, int nranks)
{
    return (struct rank_run){.id = *id,
                             .rank = rank,
                             .nranks = nranks,
                             .timeout_ms = 20000,
                             .nallgathers = 2,
                             .nbytes = 24,
                             .leave_before = -1};
}

struct rank_run rank_run_by(const char *method, int rank, int nranks)
{
    const struct tt_unique_id none = {0};
    struct rank_run run = rank_run_of(&none, rank, nranks);
    run.method = method;
    run.process = rank;
    run.nprocesses = nranks;
    return run;
}

static unsigned char pattern(int rank, size_t at, int turn)
{
    return (unsigned char)(rank * 31 + (int)at * 7 + turn);
}

static tt_status gather(struct rank_run *run, struct tt_bootstrap *bootstrap, int turn)
{
    const int64_t timeout_ms = run->gather_timeout_ms ? run->gather_timeout_ms : run->timeout_ms;
    const int64_t deadline_ns =
        run->meets_deadline ? tt_bootstrap_deadline(bootstrap) : tt_deadline_ns(timeout_ms);
    unsigned char *mine = malloc(run->nbytes + 1);
    unsigned char *all = calloc((size_t)run->nranks, run->nbytes + 1);
    for (size_t i = 0; i < run->nbytes; i++) mine[i] = pattern(run->rank, i, turn);
    const tt_status status = tt_bootstrap_allgather(bootstrap, mine, all, run->nbytes, deadline_ns);
    for (int rank = 0; status == TT_OK && rank < run->nranks; rank++)
        for (size_t i = 0; i < run->nbytes; i++)
            run->wrong += all[(size_t)rank * run->nbytes + i] != pattern(rank, i, turn);
    free(mine);
    free(all);
    return status;
}

static tt_status join(struct rank_run *run, struct tt_bootstrap **bootstrap)
{
    const int64_t deadline_ns = tt_deadline_ns(run->timeout_ms);
    if (run->method) {
        const struct tt_launcher launcher = {
            .rank = run->process, .nranks = run->nprocesses, .local_nranks = run->nprocesses};
        TT_TRY(tt_unique_id_from_method(&run->id, run->method, &launcher, deadline_ns));
    }
    return tt_bootstrap_create(bootstrap, &run->id, run->rank, run->nranks, deadline_ns);
}

void run_rank(struct rank_run *run)
{
    struct tt_bootstrap *bootstrap = NULL;
    const int64_t start = tt_now_ns();
    run->status = join(run, &bootstrap);
    for (int turn = 0; run->status == TT_OK && turn < run->nallgathers; turn++) {
        if (turn == run->leave_before) break;
        run->status = gather(run, bootstrap, turn);
    }
    if (run->status != TT_OK) snprintf(run->text, sizeof run->text, "%s", tt_last_error());
    if (run->try_again && bootstrap && gather(run, bootstrap, 9) != run->status) run->wrong = -1;
    for (int i = 0; run->stay_for && (i < 1 || i < run->nstay_for); i++)
        while (&run->stay_for[i] != run && !atomic_load(&run->stay_for[i].ended)) tt_test_pause();
    if (bootstrap) run->counts = tt_bootstrap_counts(bootstrap);
    tt_bootstrap_destroy(bootstrap);
    run->took_ns = tt_now_ns() - start;
    atomic_store(&run->ended, true);
}

static void *body(void *argument)
{
    run_rank(argument);
    return NULL;
}

void run_ranks(struct rank_run *runs, int n)
{
    pthread_t threads[MAX_TEST_RANKS];
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 512 * 1024);
    int started = 0;
    while (started < n && !pthread_create(&threads[started], &attributes, body, &runs[started]))
        started++;
    CHECK_EQ(started, n);
    for (int i = 0; i < started; i++) pthread_join(threads[i], NULL);
    pthread_attr_destroy(&attributes);
}

void expect_ranks(const struct rank_run *runs, int n, tt_status status, const char *text)
{
    for (int i = 0; i < n; i++) {
        CHECK_MESSAGE(runs[i].status == status, "rank %d: status %d, expected %d: %s", runs[i].rank,
                      runs[i].status, status, runs[i].text);
        CHECK_MESSAGE(runs[i].wrong == 0, "rank %d: %d wrong bytes", runs[i].rank, runs[i].wrong);
        if (text)
            CHECK_MESSAGE(strstr(runs[i].text, text), "rank %d: '%s' is not in '%s'", runs[i].rank,
                          text, runs[i].text);
    }
}

/* One that the kernel gives to nobody: a connection of another test must not get the port. */
int free_port(void)
{
    enum { FIRST = 10000, PORTS = 20000, ATTEMPTS = 100 };
    const struct sockaddr_in loopback = {.sin_family = AF_INET,
                                         .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    for (int i = 0; i < ATTEMPTS; i++) {
        struct tt_address address;
        int listener;
        tt_address_set(&address, (const struct sockaddr *)&loopback);
        tt_address_set_port(&address, FIRST + (int)randombytes_uniform(PORTS));
        if (tt_socket_listen(&listener, &address, false) != TT_OK) continue;
        close(listener);
        return tt_address_port(&address);
    }
    return 0;
}

int count_descriptors(void)
{
    DIR *folder = opendir("/proc/self/fd");
    int n = 0;
    while (folder && readdir(folder)) n++;
    if (folder) closedir(folder);
    return n;
}

pid_t fork_root(struct tt_unique_id *id, rlim_t ndescriptors)
{
    int ends[2];
    if (pipe(ends) != 0) return -1;
    const pid_t pid = fork();
    if (pid == 0) {
        const struct rlimit limit = {.rlim_cur = ndescriptors, .rlim_max = ndescriptors};
        struct tt_unique_id made;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        setrlimit(RLIMIT_NOFILE, &limit);
        if (tt_unique_id_create(&made) != TT_OK ||
            write(ends[1], &made, sizeof made) != (ssize_t)sizeof made)
            _exit(1);
        close(ends[1]);
        for (;;) pause();
    }
    close(ends[1]);
    const bool made = read(ends[0], id, sizeof *id) == (ssize_t)sizeof *id;
    close(ends[0]);
    return made ? pid : -1;
}

bool open_greeted(struct tt_unique_id *id, int *fd, struct tt_greeting *greeting)
{
    struct tt_address address;
    char why[TT_WIRE_TEXT];
    const int64_t until_ns = tt_deadline_ns(20000);
    const uint64_t *sequence = id->flags & TT_ID_UNMET ? NULL : &id->sequence;
    if (tt_id_address(&address, id) != TT_OK ||
        tt_handshake_connect(fd, &address, until_ns, why) != TT_ATTEMPT_OK ||
        tt_handshake_meet(*fd, greeting, &address, sequence, until_ns, why) != TT_ATTEMPT_OK)
        return false;
    if (!sequence) tt_id_set_sequence(id, greeting->sequence);
    return true;
}

/* One connection to the root. False: it does not answer. */
static bool visit(struct straggler *straggler, struct tt_answer *answer, int *fd)
{
    struct tt_greeting greeting;
    struct tt_hello hello;
    char why[TT_WIRE_TEXT];
    struct tt_unique_id *id = &straggler->id;
    const int64_t deadline_ns = tt_deadline_ns(20000);
    if (!open_greeted(id, fd, &greeting)) return false;
    tt_hello_fill(&hello, TT_HELLO_JOIN, straggler->rank, straggler->nranks);
    return tt_handshake_finish(*fd, &greeting, &hello, answer, id->key, deadline_ns, why) ==
           TT_ATTEMPT_OK;
}

void *straggle(void *argument)
{
    struct straggler *straggler = argument;
    struct tt_answer answer = {0};
    int fd;
    if (!visit(straggler, &answer, &fd)) return NULL;
    while (answer.status == TT_IN_PROGRESS) {
        close(fd);
        tt_test_pause();
        if (!visit(straggler, &answer, &fd)) return NULL;
    }
    straggler->answered = answer.status == TT_OK;
    straggler->kept = answer.keeps;
    while (straggler->behind && !atomic_load(&straggler->behind->ended)) tt_test_pause();
    if (straggler->report.status)
        (void)tt_socket_send_now(fd, &straggler->report, sizeof straggler->report);
    if (straggler->root) {
        kill(straggler->root, SIGKILL);
        waitpid(straggler->root, NULL, 0);
    }
    close(fd);
    return NULL;
}

void expect_exit(pid_t pid)
{
    int status;
    REQUIRE(waitpid(pid, &status, 0) == pid);
    CHECK_MESSAGE(status == 0, "a rank's process ended with status %#x", (unsigned)status);
}
