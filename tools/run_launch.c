/* Starts the processes of one host for tutti-run. */
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
 * nobody is given it as a free one meanwhile. `at` is a sockaddr_in6, or a sockaddr_in, which is
 * smaller and has the port at the same place. */
static int hold_at(int *holder, int *port, struct sockaddr_in6 at)
{
    socklen_t nbytes = at.sin6_family == AF_INET ? sizeof(struct sockaddr_in) : sizeof at;
    at.sin6_port = htons((uint16_t)*port);
    const int fd = socket(at.sin6_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return errno;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int));
    if (at.sin6_family == AF_INET6)
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &(int){0}, sizeof(int));
    if (bind(fd, (const struct sockaddr *)&at, nbytes) != 0 ||
        getsockname(fd, (struct sockaddr *)&at, &nbytes) != 0) {
        const int error = errno;
        close(fd);
        return error;
    }
    *port = ntohs(at.sin6_port);
    *holder = fd;
    return 0;
}
_Static_assert(offsetof(struct sockaddr_in, sin_port) == offsetof(struct sockaddr_in6, sin6_port),
               "one place for both families");

/* A port that the kernel picks is bound at all addresses of both families, where rank 0 will
 * listen: bound at `address` alone, it could be the port of an outgoing connection from another
 * one. */
static int hold_port(int *holder, int *port, const char *address)
{
    struct sockaddr_in6 at = {0};
    struct sockaddr_in *in = (struct sockaddr_in *)&at;
    const bool v4 = inet_pton(AF_INET, address, &in->sin_addr) == 1;
    if (!v4 && inet_pton(AF_INET6, address, &at.sin6_addr) != 1) return EINVAL;
    at.sin6_family = v4 ? AF_INET : AF_INET6;
    if (*port) return hold_at(holder, port, at);
    const int error = hold_at(holder, port, (struct sockaddr_in6){.sin6_family = AF_INET6});
    if (!v4 || (error != EAFNOSUPPORT && error != EADDRNOTAVAIL)) return error;
    in->sin_addr.s_addr = htonl(INADDR_ANY);
    return hold_at(holder, port, at);
}

static void set_number(const char *name, int value)
{
    char text[16];
    snprintf(text, sizeof text, "%d", value);
    setenv(name, text, 1);
}

/* Random for every job: in the environment, so that ps does not show it to others. */
int run_make_key(void)
{
    unsigned char key[(RUN_KEY_TEXT - 1) / 2];
    char text[RUN_KEY_TEXT];
    if (getrandom(key, sizeof key, 0) != (ssize_t)sizeof key) return -1;
    for (size_t i = 0; i < sizeof key; i++) snprintf(text + 2 * i, 3, "%02x", key[i]);
    return setenv("TUTTI_JOB_KEY", text, 1);
}

/* Where rank 0 will listen: nobody else is given that port until the job ends. */
static int set_master(struct run *run)
{
    const struct options *options = &run->options;
    const char *address = options->announce ? run_own_address() : "127.0.0.1";
    int port = options->master_port;
    const int error = hold_port(&run->port_holder, &port, address);
    if (error) {
        if (port)
            run_say("port %d: %s; choose another with --master-port", port, strerror(error));
        else
            run_say("no port to be had on %s: %s", address, strerror(error));
        return 1;
    }
    if (options->announce && options->master_addr) address = options->master_addr;
    setenv("MASTER_ADDR", address, 1);
    set_number("MASTER_PORT", port);
    if (!options->announce) return 0;
    printf("tutti-run master %s %d\n", address, port);
    return fflush(stdout) == 0 ? 0 : 1;
}

/* What is the same for all ranks of this host. A server has been told what is the same for all. */
static int set_environment(struct run *run)
{
    const bool alone = !run->options.serve;
    if ((alone || run->options.announce) && set_master(run) != 0) return 1;
    if (alone && run_make_key() != 0) {
        run_say("no random key to be had: %s", strerror(errno));
        return 1;
    }
    if (alone) {
        set_number("WORLD_SIZE", run->options.nranks);
        set_number("GROUP_RANK", 0);
        set_number("NODE_RANK", 0);
    }
    set_number("LOCAL_WORLD_SIZE", run->options.nranks);
    unsetenv("TORCHELASTIC_USE_AGENT_STORE"); /* of a torchrun around us: not its port */
    setenv("OMP_NUM_THREADS", "1", 0);
    return 0;
}

/* ---- A child -------------------------------------------------------------------------------- */

/* Between fork and exec. `outputs` are -1 where the child writes straight to ours. */
static void become(const struct run *run, int index, pid_t parent, int input, const int outputs[2])
{
    const struct member *member = &run->members[index];
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1); /* it died before we asked to be told */
    setpgid(0, member->own_group ? 0 : run->group);
    if (CPU_COUNT(&member->cpus)) sched_setaffinity(0, sizeof member->cpus, &member->cpus);
    const int null = input < 0 ? open("/dev/null", O_RDONLY) : input;
    if (null >= 0 && null != STDIN_FILENO) {
        dup2(null, STDIN_FILENO);
        if (input < 0) close(null);
    }
    for (int i = 0; i < 2; i++)
        if (outputs[i] >= 0) dup2(outputs[i], STDOUT_FILENO + i);
    signal(SIGPIPE, SIG_DFL);
    /* A rank of the foreground's job may write to the terminal, whatever process group it is in. */
    if (member->own_group) signal(SIGTTOU, SIG_IGN);
    sigprocmask(SIG_SETMASK, &run->before, NULL);
    execvp(member->command[0], member->command);
    const int error = errno;
    if (write(run->complaints[1], &error, sizeof error) < 0) {
        /* The exit code says it too. */
    }
    _exit(error == ENOENT || error == ENOTDIR ? EXIT_NOT_FOUND : EXIT_NOT_RUNNABLE);
}

int run_start_member(struct run *run, int index, int input)
{
    struct member *member = &run->members[index];
    int outputs[2] = {-1, -1};
    /* A rank that may read the terminal must stay in the terminal's foreground group. */
    member->own_group = input != STDIN_FILENO || !isatty(STDIN_FILENO);
    int error = 0;
    for (int i = 0; i < 2 && (run->options.tag_output || member->name) && !error; i++)
        error = run_pump_open(&member->pumps[i], STDOUT_FILENO + i, &outputs[i]);
    if (!error) {
        const pid_t parent = getpid();
        member->pid = fork();
        if (member->pid == 0) become(run, index, parent, input, outputs);
        if (member->pid < 0) error = errno;
    }
    for (int i = 0; i < 2; i++)
        if (outputs[i] >= 0) close(outputs[i]);
    if (error) {
        member->pid = 0;
        run_say("%s %d cannot be started: %s%s", member->name ? "host" : "rank",
                run->options.first_rank + index, strerror(error),
                error == EMFILE   ? " (raise the limit: ulimit -n)"
                : error == EAGAIN ? " (raise the limit: ulimit -u)"
                                  : "");
        return error;
    }
    /* The child does it too; whoever comes first, signals find the group from now on. */
    setpgid(member->pid, member->own_group ? member->pid : run->group);
    run->nalive++;
    return 0;
}

static int start_rank(struct run *run, int index)
{
    run->members[index].command = run->options.command;
    set_number("RANK", run->options.first_rank + index);
    set_number("LOCAL_RANK", index);
    return run_start_member(run, index, index > 0 || run->options.serve ? -1 : STDIN_FILENO);
}

/* ---- All of them ---------------------------------------------------------------------------- */

int run_open_signals(struct run *run)
{
    static const int heard[] = {SIGCHLD, SIGINT,  SIGTERM, SIGHUP, SIGQUIT,
                                SIGUSR1, SIGUSR2, SIGTSTP, SIGCONT};
    sigemptyset(&run->heard);
    for (size_t i = 0; i < sizeof heard / sizeof *heard; i++) {
        struct sigaction action;
        /* nohup has SIGHUP ignored, a script's & has SIGINT: by the ranks, too. */
        const bool is_ignored =
            sigaction(heard[i], NULL, &action) == 0 && action.sa_handler == SIG_IGN;
        if (heard[i] == SIGCHLD || !is_ignored) sigaddset(&run->heard, heard[i]);
    }
    sigprocmask(SIG_BLOCK, &run->heard, &run->before);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGCHLD, SIG_DFL); /* where it is ignored, children end without a status */
    run->signals = signalfd(-1, &run->heard, SFD_CLOEXEC | SFD_NONBLOCK);
    return run->signals < 0 ? errno : 0;
}

void run_take_back(struct run *run)
{
    for (int i = 0; i < run->nmembers; i++) {
        struct member *member = &run->members[i];
        if (member->control >= 0) close(member->control);
        if (member->pid > 0) {
            kill(member->own_group ? -member->pid : member->pid, SIGKILL);
            while (waitpid(member->pid, NULL, 0) < 0 && errno == EINTR) {
            }
            member->pid = 0;
        }
        for (int k = 0; k < 2; k++)
            run_pump_move(&member->pumps[k], member->name ? -1 : run->options.first_rank + i, true);
    }
    run_sweep();
}

int run_prepare(struct run *run, int nmembers)
{
    run->members = calloc((size_t)nmembers, sizeof *run->members);
    if (!run->members || pipe2(run->complaints, O_CLOEXEC | O_NONBLOCK) != 0) {
        run_say("cannot start: %s", strerror(errno));
        return 1;
    }
    const int error = run_output_open(&run->written);
    if (error) {
        run_say("cannot start: %s", strerror(error));
        return 1;
    }
    run->nmembers = nmembers;
    for (int i = 0; i < nmembers; i++) {
        run->members[i].control = -1;
        for (int k = 0; k < 2; k++) run->members[i].pumps[k].from = -1;
    }
    return 0;
}

int run_launch(struct run *run)
{
    int error = 0;
    if (run_prepare(run, run->options.nranks) != 0 || set_environment(run) != 0) return 1;
    if (run->options.bind) run_bind_ranks(run);
    for (int i = 0; i < run->nmembers && !error; i++) error = start_rank(run, i);
    if (!error) return 0;
    run_take_back(run);
    return 1;
}
