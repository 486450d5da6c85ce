/* Several hosts: a tutti-run --serve on each, reached through ssh, looks after the ranks there.
 *
 *   tutti-run --+-- ssh a -- sshd -- tutti-run --serve --+-- rank 0
 *               |                                        '-- rank 1
 *               '-- ssh b -- sshd -- tutti-run --serve ----- rank 2
 *
 * What a server needs to know, the job's key too, goes through its stdin, where ps does not show
 * it. When that ends, for whatever reason, it kills its ranks. */
#include "run.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "tutti.h"

extern char **environ;

/* ---- The program there ---------------------------------------------------------------------- */

/* Our own path, which is taken to be the same there. */
static int find_program(struct placement *placement)
{
    char path[2048];
    const ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);
    if (n < 0) {
        run_say("cannot tell where tutti-run is: %s", strerror(errno));
        return 1;
    }
    path[n] = '\0';
    bool plain = true;
    for (ssize_t i = 0; i < n; i++)
        plain &= isalnum((unsigned char)path[i]) || strchr("/._+-", path[i]);
    if (strchr(path, '\'')) {
        run_say("tutti-run lies in a folder whose name has a quote: %s", path);
        return 1;
    }
    snprintf(placement->program, sizeof placement->program, plain ? "%s" : "'%s'", path);
    return 0;
}

/* ---- What a server is told ------------------------------------------------------------------ */

static void put_text(FILE *out, const char *text)
{
    fwrite(text, strlen(text) + 1, 1, out);
}

static void put_number(FILE *out, const char *name, int value)
{
    fprintf(out, "%s=%d%c", name, value, '\0');
}

static void put_environment(FILE *out, const struct run *run, const struct placement *placement,
                            int index)
{
    for (char **at = environ; *at; at++)
        if (!strncmp(*at, "TUTTI_", 6)) put_text(out, *at);
    for (int i = 0; i < run->options.nexported; i++) {
        const char *name = run->options.exported[i];
        const char *value = strchr(name, '=') ? NULL : getenv(name);
        if (strchr(name, '='))
            put_text(out, name);
        else if (value)
            fprintf(out, "%s=%s%c", name, value, '\0');
    }
    static const char *const passed[] = {"MASTER_ADDR", "MASTER_PORT", "OMP_NUM_THREADS"};
    for (size_t i = index > 0 ? 0 : 2; i < sizeof passed / sizeof *passed; i++)
        if (getenv(passed[i])) fprintf(out, "%s=%s%c", passed[i], getenv(passed[i]), '\0');
    put_number(out, "WORLD_SIZE", placement->nranks);
    put_number(out, "GROUP_RANK", index);
    put_number(out, "NODE_RANK", index);
    put_text(out, "");
}

static void put_arguments(FILE *out, const struct options *options,
                          const struct placement *placement, int index)
{
    int first = 0;
    for (int i = 0; i < index; i++) first += placement->hosts[i].nranks;
    put_text(out, "tutti-run");
    fprintf(out, "-n%d%c--first-rank=%d%c", placement->hosts[index].nranks, '\0', first, '\0');
    fprintf(out, "--grace=%g%c", (double)options->grace_ms / 1000, '\0');
    if (!options->bind || options->bind_asked)
        fprintf(out, "--bind=%s%c", options->bind ? "core" : "none", '\0');
    if (options->tag_output) put_text(out, "--tag-output");
    if (index == 0) put_text(out, "--announce");
    if (index == 0 && options->master_port)
        fprintf(out, "--master-port=%d%c", options->master_port, '\0');
    if (index == 0 && options->master_addr)
        fprintf(out, "--master-addr=%s%c", options->master_addr, '\0');
    put_text(out, "--");
    for (char *const *word = options->command; *word; word++) put_text(out, *word);
}

/* At once, into the pipe: nobody may be reading yet. */
static int tell(int fd, const struct run *run, const struct placement *placement, int index)
{
    char *job = NULL, *whole = NULL, folder[4096];
    size_t nbytes = 0;
    FILE *out = getcwd(folder, sizeof folder) ? open_memstream(&job, &nbytes) : NULL;
    if (out) {
        put_text(out, folder);
        put_environment(out, run, placement, index);
        put_arguments(out, &run->options, placement, index);
        if (fclose(out) != 0) nbytes = 0;
    }
    char head[64];
    const int head_bytes = snprintf(head, sizeof head, "tutti-run %d.%d.%d %zu\n", TUTTI_MAJOR,
                                    TUTTI_MINOR, TUTTI_PATCH, nbytes);
    const size_t total = (size_t)head_bytes + nbytes;
    if (nbytes) whole = malloc(total);
    bool told = false;
    if (whole) {
        memcpy(whole, head, (size_t)head_bytes);
        memcpy(whole + head_bytes, job, nbytes);
        if (total > 65536) fcntl(fd, F_SETPIPE_SZ, RUN_JOB_BYTES);
        told = write(fd, whole, total) == (ssize_t)total;
        explicit_bzero(whole, total);
        explicit_bzero(job, nbytes);
    }
    if (!told)
        run_say("cannot tell host %s its part: folder, variables and command have %zu bytes",
                placement->hosts[index].name, nbytes);
    free(whole);
    free(job);
    return told ? 0 : 1;
}

/* ---- Starting ------------------------------------------------------------------------------- */

static int start_host(struct run *run, const struct placement *placement, int index)
{
    struct member *member = &run->members[index];
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) {
        run_say("host %s: %s", member->name, strerror(errno));
        return 1;
    }
    fcntl(ends[1], F_SETFL, O_NONBLOCK);
    member->control = ends[1];
    int code = tell(ends[1], run, placement, index);
    if (!code) code = run_start_member(run, index, ends[0]) ? 1 : 0;
    close(ends[0]);
    return code;
}

/* Takes the announcement out of what the first host has sent; what a login shell says goes on. */
static bool find_master(struct pump *pump)
{
    char address[256], port[8];
    char *newline;
    while ((newline = memchr(pump->buffer, '\n', pump->nbytes))) {
        *newline = '\0';
        const bool found = sscanf(pump->buffer, "tutti-run master %255s %7s", address, port) == 2;
        *newline = '\n';
        const size_t used = (size_t)(newline + 1 - pump->buffer);
        if (!found) (void)run_output_put(STDOUT_FILENO, pump->buffer, used);
        memmove(pump->buffer, newline + 1, pump->nbytes - used);
        pump->nbytes -= used;
        if (!found) continue;
        setenv("MASTER_ADDR", address, 1);
        setenv("MASTER_PORT", port, 1);
        return true;
    }
    return false;
}

/* Until the first host has said where the ranks will meet. 0, or the exit code. */
static int await_master(struct run *run)
{
    struct member *first = &run->members[0];
    struct pump *pump = &first->pumps[0];
    const int64_t until_ns =
        run->options.timeout_ms ? run_now_ns() + run->options.timeout_ms * 1000000 : INT64_MAX;
    while (!find_master(pump)) {
        struct pollfd entries[] = {{.fd = pump->from, .events = POLLIN},
                                   {.fd = run_pump_input(&first->pumps[1]), .events = POLLIN},
                                   {.fd = run->signals, .events = POLLIN},
                                   {.fd = run->front, .events = POLLIN},
                                   {.fd = run->written, .events = POLLIN}};
        struct signalfd_siginfo info;
        const int64_t left_ms = until_ns == INT64_MAX ? -1 : (until_ns - run_now_ns()) / 1000000;
        if (until_ns != INT64_MAX && left_ms <= 0) {
            run_say("timeout: host %s did not answer", first->name);
            run->timed_out = true;
            return EXIT_TIMEOUT;
        }
        if (poll(entries, 5, (int)left_ms) < 0) {
            if (errno == EINTR) continue;
            run_say("cannot wait (poll): %s", strerror(errno));
            return 1;
        }
        if (entries[3].revents) return 128 + SIGKILL; /* the front has died */
        if (entries[4].revents) eventfd_read(run->written, &(eventfd_t){0});
        if (entries[1].revents) run_pump_move(&first->pumps[1], -1, false);
        if (entries[0].revents) {
            const ssize_t n = read(pump->from, pump->buffer + pump->nbytes, 4096);
            if (n > 0) pump->nbytes += (size_t)n;
            if (n == 0 || pump->nbytes > 32768) {
                run_pump_move(&first->pumps[1], -1, true);
                return -1; /* its end says why */
            }
        }
        if (entries[2].revents && read(run->signals, &info, sizeof info) == sizeof info &&
            (info.ssi_signo == SIGINT || info.ssi_signo == SIGTERM || info.ssi_signo == SIGHUP ||
             info.ssi_signo == SIGQUIT)) {
            run->asked_signal = (int)info.ssi_signo;
            return 128 + run->asked_signal;
        }
    }
    return 0;
}

/* rsh's words, the host, our path, --serve. */
static int make_commands(struct run *run, const struct placement *placement)
{
    size_t nwords = 0;
    char *rest = run->job = strdup(run->options.rsh);
    const size_t most = strlen(run->options.rsh) + 4;
    run->commands = calloc(most * (size_t)placement->nhosts, sizeof *run->commands);
    if (!rest || !run->commands) return 1;
    for (char *word; (word = strsep(&rest, " "));)
        if (*word) run->commands[nwords++] = word;
    if (!nwords) {
        run_say("--rsh names no command");
        return EXIT_USAGE;
    }
    for (int i = 0; i < placement->nhosts; i++) {
        char **command = run->commands + (size_t)i * most;
        if (i > 0) memcpy(command, run->commands, nwords * sizeof *command);
        command[nwords] = placement->hosts[i].name;
        command[nwords + 1] = (char *)placement->program;
        command[nwords + 2] = (char *)"--serve";
        command[nwords + 3] = NULL;
        run->members[i].name = placement->hosts[i].name;
        run->members[i].command = command;
    }
    return 0;
}

static int start_all(struct run *run, const struct placement *placement)
{
    int code = start_host(run, placement, 0);
    if (!code) code = await_master(run);
    if (code < 0) return 0;
    for (int i = 1; i < placement->nhosts && !code; i++) code = start_host(run, placement, i);
    return code;
}

int run_launch_hosts(struct run *run)
{
    /* Lives as long as the members, which borrow from it. */
    static struct placement placement;
    int code = run_place_ranks(&placement, &run->options);
    if (!code) code = find_program(&placement);
    if (!code) code = run_prepare(run, placement.nhosts);
    if (!code) code = make_commands(run, &placement);
    if (!code && run_make_key() != 0) {
        run_say("no random key to be had: %s", strerror(errno));
        code = 1;
    }
    if (!code) {
        code = start_all(run, &placement);
        if (code) run_take_back(run);
    }
    return code;
}
