/* What the log says of ranks and processes that are stopped during an init without a deadline. */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/config.h"
#include "base/sanitizers.h"
#include "base/stderr.h"
#include "bootstrap/root.h"
#include "net/handshake.h"
#include "ranks.h"
#include "shim.h"

/* The log of the processes that this test starts, and the process that made the id. */
struct scene {
    int log;
    off_t read; /* what was written before has been looked at */
    struct tt_unique_id id;
    pid_t maker;
};

/* In a new process: its log goes to the scene's. */
static void write_log(const struct scene *scene)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    setenv("TUTTI_LATE_MS", "200", 1);
    setenv("TUTTI_LOG", "WARN", 1);
    tt_config_reload();
    dup2(scene->log, 2);
    tt_stderr_forget();
}

static void begin(struct scene *scene)
{
    int ends[2];
    *scene = (struct scene){.log = memfd_create("log", MFD_CLOEXEC)};
    REQUIRE(scene->log >= 0 && pipe(ends) == 0);
    scene->maker = fork();
    if (scene->maker == 0) {
        struct tt_unique_id made;
        write_log(scene);
        if (tt_unique_id_create(&made) != TT_OK ||
            write(ends[1], &made, sizeof made) != (ssize_t)sizeof made)
            _exit(1);
        for (;;) pause();
    }
    close(ends[1]);
    CHECK_EQ((int)read(ends[0], &scene->id, sizeof scene->id), (int)sizeof scene->id);
    close(ends[0]);
}

static void end_process(pid_t pid)
{
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

static void end(struct scene *scene)
{
    end_process(scene->maker);
    close(scene->log);
}

/* Waits until the log has the text; the next call looks at what follows. */
static void expect_log(struct scene *scene, const char *text)
{
    char log[8192];
    const int64_t patience_ns = tt_deadline_ns(20000);
    const char *found = NULL;
    do {
        const ssize_t n = pread(scene->log, log, sizeof log - 1, scene->read);
        log[n > 0 ? n : 0] = '\0';
        found = strstr(log, text);
        if (!found) tt_test_pause();
    } while (!found && !tt_expired(patience_ns));
    CHECK_MESSAGE(found, "'%s' is not in '%s'", text, log);
    scene->read = lseek(scene->log, 0, SEEK_END);
}

/* A process that is this rank of two, without a deadline; it ends with 0 when it ended with
 * `status`. It makes two allgathers, or none and stays. */
static pid_t fork_rank(const struct scene *scene, int rank, tt_status status, bool gathers)
{
    const pid_t pid = fork();
    if (pid) return pid;
    static struct rank_run never;
    struct rank_run run = rank_run_of(&scene->id, rank, 2);
    write_log(scene);
    run.timeout_ms = 0;
    if (!gathers) {
        run.nallgathers = 0;
        run.stay_for = &never;
    }
    run_rank(&run);
    if (run.status != status) fprintf(stderr, "status %d: %s\n", run.status, run.text);
    _exit(run.status == status ? 0 : 1);
}

/* Comes to the root as this rank of two, listening at `mine` (NULL: nowhere). The connection to the
 * root, which has answered. */
static int come(const struct scene *scene, int rank, const struct tt_address *mine)
{
    const int64_t deadline_ns = tt_deadline_ns(20000);
    struct tt_address address;
    struct tt_greeting greeting;
    struct tt_hello hello;
    struct tt_answer answer;
    char why[TT_WIRE_TEXT] = "";
    int fd = -1;
    CHECK_EQ(tt_id_address(&address, &scene->id), TT_OK);
    CHECK_EQ(tt_handshake_open(&fd, &greeting, &address, 0, deadline_ns, why), TT_ATTEMPT_OK);
    tt_hello_fill(&hello, TT_HELLO_JOIN, rank, 2);
    if (mine) hello.address = *mine;
    CHECK_EQ(tt_handshake_finish(fd, &greeting, &hello, &answer, scene->id.key, deadline_ns, why),
             TT_ATTEMPT_OK);
    return fd;
}

TEST(notice, a_rank_says_that_the_process_of_its_id_is_stopped_and_waits_on)
{
    if (tt_is_thread_sanitizer()) SKIP("ThreadSanitizer allows no threads after a fork");
    struct scene scene;
    pid_t pids[2];
    begin(&scene);
    kill(scene.maker, SIGSTOP);
    pids[0] = fork_rank(&scene, 0, TT_OK, true);
    expect_log(&scene, "which does not answer"); /* before the greeting */
    kill(scene.maker, SIGCONT);
    expect_log(&scene, "still waiting for rank 1 of 2");
    kill(scene.maker, SIGSTOP);
    expect_log(&scene, "which does not answer"); /* after the hello */
    kill(scene.maker, SIGCONT);
    pids[1] = fork_rank(&scene, 1, TT_OK, true);
    for (int rank = 0; rank < 2; rank++) expect_exit(pids[rank]);
    end(&scene);
}

TEST(notice, a_child_that_has_come_and_does_not_connect_is_named)
{
    if (tt_is_thread_sanitizer()) SKIP("ThreadSanitizer allows no threads after a fork");
    struct scene scene;
    begin(&scene);
    const pid_t pid = fork_rank(&scene, 0, TT_ERR_REMOTE, true);
    const int fd = come(&scene, 1, NULL);
    expect_log(&scene, "for rank 1 to connect to it; all ranks have come");
    expect_log(&scene, "for rank 1 to connect to it; all ranks have come");
    close(fd);
    expect_exit(pid);
    end(&scene);
}

TEST(notice, a_parent_that_accepts_no_connection_is_named)
{
    if (tt_is_thread_sanitizer()) SKIP("ThreadSanitizer allows no threads after a fork");
    struct scene scene;
    struct tt_address mine;
    int listener;
    begin(&scene);
    REQUIRE(tt_id_address(&mine, &scene.id) == TT_OK);
    tt_address_set_port(&mine, 0);
    REQUIRE(tt_socket_listen(&listener, &mine, false) == TT_OK);
    const pid_t pid = fork_rank(&scene, 1, TT_ERR_REMOTE, true);
    const int fd = come(&scene, 0, &mine);
    expect_log(&scene, "to accept its connection; all ranks have come");
    close(listener);
    close(fd);
    expect_exit(pid);
    end(&scene);
}

/* Rank `silent` makes no allgather. */
static void gather_without(int silent)
{
    struct scene scene;
    char text[64];
    begin(&scene);
    const pid_t stopped = fork_rank(&scene, silent, TT_OK, false);
    const pid_t pid = fork_rank(&scene, 1 - silent, TT_ERR_REMOTE, true);
    snprintf(text, sizeof text, " s for rank %d (pid %d on ", silent, (int)stopped);
    expect_log(&scene, text);
    end_process(stopped);
    expect_exit(pid);
    end(&scene);
}

TEST(notice, a_rank_that_stops_before_an_allgather_is_named)
{
    if (tt_is_thread_sanitizer()) SKIP("ThreadSanitizer allows no threads after a fork");
    gather_without(0);
    gather_without(1);
}
