/* Jobs of rank processes: starts the ranks, waits until they are ready and until they have ended,
 * and collects what they print. */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ranks.h"
#include "shim.h"

/* A port that nobody else is given as long as *holder is open, and at which rank 0 can listen:
 * bound at all addresses, it is that of no connection. */
static int reserve_port(int *holder)
{
    struct sockaddr_in address = {.sin_family = AF_INET};
    socklen_t size = sizeof address;
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int port = -1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int));
    if (fd >= 0 && !bind(fd, (struct sockaddr *)&address, size) &&
        !getsockname(fd, (struct sockaddr *)&address, &size))
        port = ntohs(address.sin_port);
    *holder = fd;
    return port;
}

static void set_number(const char *name, int value)
{
    char text[16];
    snprintf(text, sizeof text, "%d", value);
    setenv(name, text, 1);
}

struct start {
    int rank, nranks, port, out;
    const char *hosts; /* NULL: one */
    const char *const *args, *const *extra;
    void (*prepare)(void);
};

static _Noreturn void become_rank(const struct start *start, int log)
{
    char *argv[8] = {TUTTI_BINARY_DIR "/tests/rank_program"};
    for (int i = 0; start->args[i] && i < 6; i++) argv[i + 1] = (char *)(uintptr_t)start->args[i];
    dup2(start->out, 1);
    dup2(log, 2);
    set_number("RANK", start->rank);
    set_number("LOCAL_RANK", start->rank);
    set_number("WORLD_SIZE", start->nranks);
    set_number("LOCAL_WORLD_SIZE", start->nranks);
    set_number("MASTER_PORT", start->port);
    setenv("MASTER_ADDR", "127.0.0.1", 1);
    for (int i = 0; start->extra && start->extra[i]; i++)
        putenv((char *)(uintptr_t)start->extra[i]);
    if (start->hosts) setenv("TUTTI_HOST_ID", (char[]){start->hosts[start->rank], '\0'}, 1);
    if (start->prepare) start->prepare();
    execv(argv[0], argv);
    dprintf(2, "cannot run %s: %s\n", argv[0], strerror(errno));
    _exit(127);
}

static bool start_all(struct job *job, struct start *start)
{
    *job = (struct job){.nranks = start->nranks};
    start->port = reserve_port(&job->holder);
    bool good = start->port > 0 && start->nranks <= MAX_JOB;
    for (int r = 0; good && r < start->nranks; r++) {
        struct job_rank *rank = &job->ranks[r];
        int out[2];
        if (pipe2(out, O_CLOEXEC)) return false;
        rank->ready = out[0];
        rank->log = memfd_create("log", MFD_CLOEXEC);
        fcntl(rank->log, F_SETFL, O_APPEND);
        start->rank = r;
        start->out = out[1];
        rank->pid = fork();
        if (rank->pid == 0) become_rank(start, rank->log);
        close(out[1]);
        rank->pidfd = (int)syscall(SYS_pidfd_open, rank->pid, 0);
        good = rank->pid > 0 && rank->pidfd >= 0 && rank->log >= 0;
    }
    return good;
}

bool job_start(struct job *job, int nranks, const char *const *args, const char *const *extra,
               void (*prepare)(void))
{
    struct start start = {.nranks = nranks, .args = args, .extra = extra, .prepare = prepare};
    return start_all(job, &start);
}

bool job_start_prepared(struct job *job, const char *hosts, const char *const *args,
                        const char *const *extra, void (*prepare)(void))
{
    struct start start = {.nranks = (int)strlen(hosts),
                          .hosts = hosts,
                          .args = args,
                          .extra = extra,
                          .prepare = prepare};
    return start_all(job, &start);
}

bool job_start_on(struct job *job, const char *hosts, const char *const *args,
                  const char *const *extra)
{
    return job_start_prepared(job, hosts, args, extra, NULL);
}

bool job_ready(struct job *job, int timeout_ms)
{
    const int64_t deadline = now_ms() + timeout_ms;
    for (int r = 0; r < job->nranks; r++) {
        char line[16];
        struct pollfd poll_fd = {.fd = job->ranks[r].ready, .events = POLLIN};
        const int64_t left = deadline - now_ms();
        if (left <= 0 || poll(&poll_fd, 1, (int)left) != 1) return false;
        if (read(job->ranks[r].ready, line, sizeof line) <= 0) return false;
    }
    return true;
}

static void collect(struct job_rank *rank)
{
    rank->ended_ms = now_ms();
    waitpid(rank->pid, &rank->status, 0);
    const ssize_t n = pread(rank->log, rank->text, MAX_TEXT - 1, 0);
    rank->text[n > 0 ? n : 0] = '\0';
    close(rank->pidfd);
    close(rank->ready);
    close(rank->log);
}

/* The ranks that still run, ready for poll. */
static int running(const struct job *job, struct pollfd *fds, int *ranks)
{
    int n = 0;
    for (int r = 0; r < job->nranks; r++)
        if (!job->ranks[r].ended_ms) {
            fds[n] = (struct pollfd){.fd = job->ranks[r].pidfd, .events = POLLIN};
            ranks[n++] = r;
        }
    return n;
}

bool job_wait(struct job *job, int timeout_ms)
{
    const int64_t deadline = now_ms() + timeout_ms;
    struct pollfd fds[MAX_JOB];
    int ranks[MAX_JOB], n;
    bool in_time = true;
    while ((n = running(job, fds, ranks)) > 0) {
        const int64_t left = in_time ? deadline - now_ms() : -1;
        if (in_time && left <= 0) {
            in_time = false;
            for (int i = 0; i < n; i++) kill(job->ranks[ranks[i]].pid, SIGKILL);
            continue;
        }
        if (poll(fds, (nfds_t)n, (int)left) < 0 && errno != EINTR) return false;
        for (int i = 0; i < n; i++)
            if (fds[i].revents) collect(&job->ranks[ranks[i]]);
    }
    close(job->holder);
    return in_time;
}

void job_check_exit(const struct job *job, int status)
{
    for (int r = 0; r < job->nranks; r++) {
        const struct job_rank *rank = &job->ranks[r];
        CHECK_MESSAGE(WIFEXITED(rank->status) && WEXITSTATUS(rank->status) == status,
                      "rank %d: expected exit %d, got status 0x%x; it said:\n%s", r, status,
                      (unsigned)rank->status, rank->text);
    }
}
