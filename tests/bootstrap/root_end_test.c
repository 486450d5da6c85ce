/* The end of a root at an address that the ranks know without an id: what becomes of connections
 * that it has accepted, and what its log says. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/stderr.h"
#include "bootstrap/root.h"
#include "net/handshake.h"
#include "net/socket.h"
#include "ranks.h"
#include "shim.h"

/* A root serves connections for a second when its ranks have gone: a test whose thread was away for
 * so long tries again. */
enum { PATIENCE_MS = 20000, ATTEMPTS = 10 };

/* A process with both ranks of a communicator, and so with its root, and a connection to that. */
struct scene {
    int log, go, said; /* its log; to it, one byte begins the init; from it */
    pid_t process;
    struct tt_unique_id id; /* as rank 1 knows it */
    struct tt_greeting greeting;
    int fd;
};

static void find_ids(struct rank_run runs[2], const char *method)
{
    for (int rank = 0; rank < 2; rank++) {
        const struct tt_launcher launcher = {.rank = rank, .nranks = 2, .local_nranks = 2};
        runs[rank] = rank_run_by(method, rank, 2);
        if (tt_unique_id_from_method(&runs[rank].id, method, &launcher,
                                     tt_deadline_ns(PATIENCE_MS)) != TT_OK)
            _exit(1);
        runs[rank].method = NULL;
    }
}

/* Makes the communicator, and says so; then ends, or waits to be ended. */
static void be_process(const struct scene *scene, const char *method, int go, int said, bool ends)
{
    struct rank_run runs[2];
    char byte = 0;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    dup2(scene->log, 2);
    tt_stderr_forget();
    find_ids(runs, method);
    if (write(said, &runs[1].id, sizeof runs[1].id) != (ssize_t)sizeof runs[1].id ||
        read(go, &byte, 1) != 1)
        _exit(1);
    run_ranks(runs, 2);
    if (runs[0].status || runs[1].status || write(said, &byte, 1) != 1) _exit(1);
    if (ends) exit(0);
    for (;;) pause();
}

static bool begin(struct scene *scene, bool ends)
{
    int go[2], said[2];
    char method[64];
    snprintf(method, sizeof method, "tcp://127.0.0.1:%d", free_port());
    *scene = (struct scene){.log = memfd_create("log", MFD_CLOEXEC), .fd = -1};
    if (pipe(go) || pipe(said)) return false;
    scene->process = fork();
    if (scene->process == 0) be_process(scene, method, go[0], said[1], ends);
    close(go[0]);
    close(said[1]);
    scene->go = go[1];
    scene->said = said[0];
    return read(said[0], &scene->id, sizeof scene->id) == (ssize_t)sizeof scene->id &&
           open_greeted(&scene->id, &scene->fd, &scene->greeting);
}

/* Returns when the communicator has been made. */
static bool let_join(const struct scene *scene)
{
    char byte = 0;
    return write(scene->go, &byte, 1) == 1 && read(scene->said, &byte, 1) == 1;
}

static void end(const struct scene *scene)
{
    if (scene->process > 0) {
        kill(scene->process, SIGKILL);
        waitpid(scene->process, NULL, 0);
    }
    if (scene->fd >= 0) close(scene->fd);
    close(scene->log);
    close(scene->go);
    close(scene->said);
}

static bool has_logged(const struct scene *scene, const char *text)
{
    char log[16384];
    const ssize_t n = pread(scene->log, log, sizeof log - 1, 0);
    log[n > 0 ? n : 0] = '\0';
    return strstr(log, text);
}

static bool await_log(const struct scene *scene, const char *text, int64_t until_ns)
{
    while (!has_logged(scene, text) && !tt_expired(until_ns)) tt_test_pause();
    return has_logged(scene, text);
}

/* Whether the root says what the init has cost before it hears that the connection is a stranger's.
 */
static bool says_cost_first(void)
{
    static const char junk[sizeof(struct tt_hello)] = "not the hello of a rank";
    struct scene scene;
    bool is_first = false;
    if (begin(&scene, false) && let_join(&scene)) {
        CHECK(await_log(&scene, "found their places within", tt_deadline_ns(PATIENCE_MS)));
        tt_ignore(tt_socket_send_now(scene.fd, junk, sizeof junk));
        char byte; /* which does not come: the root closes the connection */
        CHECK(tt_socket_receive(scene.fd, &byte, 1, tt_deadline_ns(PATIENCE_MS)) != 0);
        is_first = has_logged(&scene, "closed: it does not speak");
    }
    end(&scene);
    return is_first;
}

TEST(root_end, the_cost_of_an_init_leaves_out_the_wait_for_other_connections)
{
    bool is_first = false;
    for (int i = 0; i < ATTEMPTS && !is_first && !tt_test_failed(); i++)
        is_first = says_cost_first();
    CHECK(is_first);
}

static bool has_ended(const struct scene *scene)
{
    siginfo_t info = {.si_pid = 0};
    return waitid(P_PID, (id_t)scene->process, &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
           info.si_pid;
}

static bool is_sent_on_at_exit(void)
{
    struct tt_hello hello;
    struct tt_answer answer = {0};
    struct scene scene;
    char why[TT_WIRE_TEXT];
    bool is_sent_on = false;
    if (begin(&scene, true) && let_join(&scene)) {
        /* Most likely the process is at its end by then. */
        for (int i = 0; i < 500 && !has_ended(&scene); i++) tt_test_pause();
        tt_hello_fill(&hello, TT_HELLO_JOIN, 1, 2);
        is_sent_on = tt_handshake_finish(scene.fd, &scene.greeting, &hello, &answer, scene.id.key,
                                         tt_deadline_ns(PATIENCE_MS), why) == TT_ATTEMPT_OK &&
                     answer.status == TT_IN_PROGRESS && answer.failed;
    }
    if (!is_sent_on) scene.fd = -1; /* closed */
    end(&scene);
    return is_sent_on;
}

TEST(root_end, a_process_that_ends_answers_those_who_await_the_next_root)
{
    bool is_sent_on = false;
    for (int i = 0; i < ATTEMPTS && !is_sent_on; i++) is_sent_on = is_sent_on_at_exit();
    CHECK(is_sent_on);
}
