#include "run.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- The environment ------------------------------------------------------------------------ */

/* Binds without listening: with SO_REUSEADDR on both sides rank 0 can still listen at the port, but
 * nobody is given it as a free one meanwhile. */
static int hold_port(int *holder, int *port)
{
    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)*port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t nbytes = sizeof at;
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return errno;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int));
    if (bind(fd, (const struct sockaddr *)&at, sizeof at) != 0 ||
        getsockname(fd, (struct sockaddr *)&at, &nbytes) != 0) {
        const int error = errno;
        close(fd);
        return error;
    }
    *port = ntohs(at.sin_port);
    *holder = fd;
    return 0;
}

static void set_number(const char *name, int value)
{
    char text[16];
    snprintf(text, sizeof text, "%d", value);
    setenv(name, text, 1);
}

/* Random for every job: in the environment, so that ps does not show it to others. */
static int set_key(void)
{
    unsigned char key[(RUN_KEY_TEXT - 1) / 2];
    char text[RUN_KEY_TEXT];
    if (getrandom(key, sizeof key, 0) != (ssize_t)sizeof key) return -1;
    for (size_t i = 0; i < sizeof key; i++) snprintf(text + 2 * i, 3, "%02x", key[i]);
    return setenv("TUTTI_JOB_KEY", text, 1);
}

/* What is the same for all ranks. */
static int set_environment(struct run *run)
{
    int port = run->options.master_port;
    const int error = hold_port(&run->port_holder, &port);
    if (error) {
        if (port)
            run_say("port %d: %s; choose another with --master-port", port, strerror(error));
        else
            run_say("no port to be had on 127.0.0.1: %s", strerror(error));
        return 1;
    }
    if (set_key() != 0) {
        run_say("no random key to be had: %s", strerror(errno));
        return 1;
    }
    set_number("WORLD_SIZE", run->options.nranks);
    set_number("LOCAL_WORLD_SIZE", run->options.nranks);
    set_number("GROUP_RANK", 0);
    set_number("NODE_RANK", 0);
    setenv("MASTER_ADDR", "127.0.0.1", 1);
    set_number("MASTER_PORT", port);
    unsetenv("TORCHELASTIC_USE_AGENT_STORE"); /* of a torchrun around us: not its port */
    setenv("OMP_NUM_THREADS", "1", 0);
    return 0;
}

/* ---- A child -------------------------------------------------------------------------------- */

/* Between fork and exec. `outputs` are -1 where the rank writes straight to ours. */
static void become(const struct run *run, int index, pid_t parent, const int outputs[2])
{
    const struct rank *rank = &run->ranks[index];
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1); /* it died before we asked to be told */
    if (rank->own_group) setpgid(0, 0);
    if (CPU_COUNT(&rank->cpus)) sched_setaffinity(0, sizeof rank->cpus, &rank->cpus);
    if (index > 0) {
        const int null = open("/dev/null", O_RDONLY);
        if (null >= 0 && null != STDIN_FILENO) {
            dup2(null, STDIN_FILENO);
            close(null);
        }
    }
    for (int i = 0; i < 2; i++)
        if (outputs[i] >= 0) dup2(outputs[i], STDOUT_FILENO + i);
    signal(SIGPIPE, SIG_DFL);
    sigprocmask(SIG_SETMASK, &run->before, NULL);
    execvp(run->options.command[0], run->options.command);
    const int error = errno;
    if (write(run->complaints, &error, sizeof error) < 0) {
        /* The exit code says it too. */
    }
    _exit(error == ENOENT || error == ENOTDIR ? EXIT_NOT_FOUND : EXIT_NOT_RUNNABLE);
}

static int start_rank(struct run *run, int index)
{
    struct rank *rank = &run->ranks[index];
    int outputs[2] = {-1, -1};
    /* A rank that may read the terminal must stay in the terminal's foreground group. */
    rank->own_group = index > 0 || !isatty(STDIN_FILENO);
    int error = 0;
    for (int i = 0; i < 2 && run->options.tag_output && !error; i++)
        error = run_pump_open(&rank->pumps[i], STDOUT_FILENO + i, &outputs[i]);
    if (!error) {
        const pid_t parent = getpid();
        set_number("RANK", index);
        set_number("LOCAL_RANK", index);
        rank->pid = fork();
        if (rank->pid == 0) become(run, index, parent, outputs);
        if (rank->pid < 0) error = errno;
    }
    for (int i = 0; i < 2; i++)
        if (outputs[i] >= 0) close(outputs[i]);
    if (error) {
        rank->pid = 0;
        run_say("rank %d cannot be started: %s%s", index, strerror(error),
                error == EMFILE   ? " (raise the limit: ulimit -n)"
                : error == EAGAIN ? " (raise the limit: ulimit -u)"
                                  : "");
        return error;
    }
    /* The child does it too; whoever comes first, signals find the group from now on. */
    if (rank->own_group) setpgid(rank->pid, rank->pid);
    run->nalive++;
    return 0;
}

/* ---- All of them ---------------------------------------------------------------------------- */

static int open_signals(struct run *run)
{
    static const int heard[] = {SIGCHLD, SIGINT,  SIGTERM, SIGHUP, SIGQUIT,
                                SIGUSR1, SIGUSR2, SIGTSTP, SIGCONT};
    sigset_t set;
    sigemptyset(&set);
    for (size_t i = 0; i < sizeof heard / sizeof *heard; i++) sigaddset(&set, heard[i]);
    sigprocmask(SIG_BLOCK, &set, &run->before);
    signal(SIGPIPE, SIG_IGN);
    run->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    return run->signals < 0 ? errno : 0;
}

/* Ends the ranks that have been started, with what they started themselves. */
static void take_back(struct run *run)
{
    for (int i = 0; i < run->options.nranks; i++) {
        struct rank *rank = &run->ranks[i];
        if (rank->pid > 0) {
            kill(rank->own_group ? -rank->pid : rank->pid, SIGKILL);
            while (waitpid(rank->pid, NULL, 0) < 0 && errno == EINTR) {
            }
            rank->pid = 0;
        }
        for (int k = 0; k < 2; k++) run_pump_move(&rank->pumps[k], i, true);
    }
}

int run_launch(struct run *run)
{
    int ends[2];
    run->ranks = calloc((size_t)run->options.nranks, sizeof *run->ranks);
    if (!run->ranks || pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0 || open_signals(run) != 0) {
        run_say("cannot start: %s", strerror(errno));
        return 1;
    }
    for (int i = 0; i < run->options.nranks; i++)
        for (int k = 0; k < 2; k++) run->ranks[i].pumps[k].from = -1;
    if (set_environment(run) != 0) return 1;
    if (run->options.bind) run_bind_ranks(run);
    /* Orphans of a rank come to us, so that nothing of a failed job is left. */
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    run->complaints = ends[1];
    int error = 0;
    for (int i = 0; i < run->options.nranks && !error; i++) error = start_rank(run, i);
    close(ends[1]);
    run->complaints = ends[0];
    if (!error) return 0;
    take_back(run);
    return 1;
}
