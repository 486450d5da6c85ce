/* A server: the tutti-run on another host, started through ssh by the one that the user started.
 *
 *   stdin:  "tutti-run VERSION NBYTES\n", the job, then one byte a signal; its end ends the ranks
 *   stdout: with --announce first "tutti-run master ADDRESS PORT\n", then what the ranks write
 *
 * The job is texts with a zero after each: the folder, NAME=VALUE ..., "", arguments of tutti-run.
 */
#include "run.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tutti.h"

static bool read_all(void *into, size_t nbytes)
{
    for (size_t done = 0; done < nbytes;) {
        const ssize_t n = read(STDIN_FILENO, (char *)into + done, nbytes - done);
        if (n == 0 || (n < 0 && errno != EINTR)) return false;
        if (n > 0) done += (size_t)n;
    }
    return true;
}

/* The job's bytes with a zero more after them; NULL after saying why. */
static char *read_job(size_t *nbytes)
{
    char line[64];
    int major, minor, patch;
    size_t at = 0;
    while (at + 1 < sizeof line && read_all(&line[at], 1) && line[at] != '\n') at++;
    line[at] = '\0';
    if (sscanf(line, "tutti-run %d.%d.%d %zu", &major, &minor, &patch, nbytes) != 4 ||
        *nbytes > RUN_JOB_BYTES) {
        run_say("--serve is for tutti-run itself (see --hosts)");
        return NULL;
    }
    if (major != TUTTI_MAJOR || minor != TUTTI_MINOR) {
        run_say("this is version %d.%d, the one that started it has %d.%d: use one on all hosts",
                TUTTI_MAJOR, TUTTI_MINOR, major, minor);
        return NULL;
    }
    char *job = calloc(*nbytes + 1, 1);
    if (job && read_all(job, *nbytes)) return job;
    run_say("%s", job ? "the connection ended before the job was told" : "no memory");
    free(job);
    return NULL;
}

int run_receive_job(struct run *run)
{
    char host[64] = "?";
    size_t nbytes;
    (void)gethostname(host, sizeof host - 1);
    run_say_where(host);
    char *job = run->job = read_job(&nbytes);
    if (!job) return EXIT_USAGE;
    if (chdir(job) != 0) {
        run_say("cannot change to the folder '%s': %s", job, strerror(errno));
        return 1;
    }
    char *at = job + strlen(job) + 1, *const end = job + nbytes;
    for (; at < end && *at; at += strlen(at) + 1) {
        char *value = strchr(at, '=');
        if (!value) continue;
        *value = '\0';
        setenv(at, value + 1, 1);
        at = value + 1;
    }
    int argc = 0;
    for (const char *word = ++at; word < end; word += strlen(word) + 1) argc++;
    run->commands = calloc((size_t)argc + 1, sizeof *run->commands);
    if (!run->commands) return 1;
    for (int i = 0; i < argc; i++, at += strlen(at) + 1) run->commands[i] = at;
    run_options_parse(&run->options, argc, run->commands);
    run->options.serve = true;
    run->control = STDIN_FILENO;
    return 0;
}

/* ---- Where the others find this host -------------------------------------------------------- */

static bool is_loopback(const char *address)
{
    return !strncmp(address, "127.", 4) || !strcmp(address, "::1");
}

/* The first that is up and neither loopback nor the host's end of a container's network. */
static bool find_interface(char text[INET6_ADDRSTRLEN])
{
    static const char *const others[] = {"docker", "veth", "br-",  "virbr",  "cni",
                                         "podman", "lxc",  "cali", "cilium", "flannel"};
    struct ifaddrs *list;
    bool found = false;
    if (getifaddrs(&list) != 0) return false;
    for (const struct ifaddrs *at = list; at && !found; at = at->ifa_next) {
        const unsigned wanted = IFF_UP | IFF_RUNNING;
        bool other = !at->ifa_addr || at->ifa_addr->sa_family != AF_INET ||
                     (at->ifa_flags & wanted) != wanted || at->ifa_flags & IFF_LOOPBACK;
        for (size_t i = 0; i < sizeof others / sizeof *others && !other; i++)
            other = !strncmp(at->ifa_name, others[i], strlen(others[i]));
        if (other) continue;
        const struct sockaddr_in *in = (const struct sockaddr_in *)(const void *)at->ifa_addr;
        found = inet_ntop(AF_INET, &in->sin_addr, text, INET6_ADDRSTRLEN);
    }
    freeifaddrs(list);
    return found;
}

/* Whether it is an address of this host. */
static bool is_own(const char *address)
{
    struct ifaddrs *list;
    char text[INET6_ADDRSTRLEN];
    bool own = false;
    if (getifaddrs(&list) != 0) return false;
    for (const struct ifaddrs *at = list; at && !own; at = at->ifa_next) {
        if (!at->ifa_addr) continue;
        const bool v4 = at->ifa_addr->sa_family == AF_INET;
        if (!v4 && at->ifa_addr->sa_family != AF_INET6) continue;
        const void *bytes =
            v4 ? (const void *)&((const struct sockaddr_in *)(const void *)at->ifa_addr)->sin_addr
               : &((const struct sockaddr_in6 *)(const void *)at->ifa_addr)->sin6_addr;
        own =
            inet_ntop(at->ifa_addr->sa_family, bytes, text, sizeof text) && !strcmp(text, address);
    }
    freeifaddrs(list);
    return own;
}

const char *run_own_address(void)
{
    static char text[INET6_ADDRSTRLEN];
    /* "client port server port": the address at which ssh has reached this host. */
    const char *ssh = getenv("SSH_CONNECTION");
    if (ssh && sscanf(ssh, "%*s %*s %45s", text) == 1 && !is_loopback(text) && is_own(text))
        return text;
    return find_interface(text) ? text : "127.0.0.1";
}
