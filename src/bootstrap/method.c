#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/config.h"
#include "base/log.h"
#include "bootstrap/bootstrap.h"
#include "net/handshake.h"
#include "net/interface.h"
#include "bootstrap/root.h"
#include "bootstrap/uses.h"

enum { HOST_BYTES = 256, MAX_PAUSE_MS = 20, PROBE_MS = 5000 };

struct place {
    char host[HOST_BYTES];
    int port;
};

/* ---- env:// and tcp:// ---------------------------------------------------------------------- */

static tt_status parse_port(int *port, const char *text, const char *of)
{
    char *end;
    errno = 0;
    const long value = strtol(text, &end, 10);
    if (end == text || *end || errno || value < 1 || value > 65535)
        return tt_fail(TT_ERR_ARGUMENT, "%s: '%s' is not a port; it must be 1 to 65535", of, text);
    *port = (int)value;
    return TT_OK;
}

/* "host:port" or "[v6]:port" */
static tt_status parse_tcp(struct place *place, const char *method)
{
    const char *host = method + strlen("tcp://");
    const char *colon = strrchr(host, ':');
    size_t nbytes = colon ? (size_t)(colon - host) : 0;
    if (nbytes > 2 && host[0] == '[' && host[nbytes - 1] == ']') host++, nbytes -= 2;
    if (!colon || nbytes == 0 || nbytes >= sizeof place->host)
        return tt_fail(TT_ERR_ARGUMENT, "'%s' is not tcp://host:port", method);
    TT_TRY(parse_port(&place->port, colon + 1, method));
    memcpy(place->host, host, nbytes);
    place->host[nbytes] = '\0';
    return TT_OK;
}

static tt_status parse_env(struct place *place)
{
    const char *host = tt_environment("MASTER_ADDR"), *port = tt_environment("MASTER_PORT");
    if (!host || !host[0] || !port)
        return tt_fail(TT_ERR_ARGUMENT,
                       "env:// needs %s, which is not set: start with tutti-run or torchrun, set "
                       "it on every rank, or use tcp://host:port or file:///path",
                       !host || !host[0] ? "MASTER_ADDR" : "MASTER_PORT");
    if (strlen(host) >= sizeof place->host)
        return tt_fail(TT_ERR_ARGUMENT, "MASTER_ADDR has %zu characters, at most %zu", strlen(host),
                       sizeof place->host - 1);
    TT_TRY(parse_port(&place->port, port, "MASTER_PORT"));
    strcpy(place->host, host);
    /* torchrun's agent then listens at MASTER_PORT itself, so we take the next one. */
    const char *agent = tt_environment("TORCHELASTIC_USE_AGENT_STORE");
    if (agent && !strcmp(agent, "True")) place->port += place->port < 65535 ? 1 : -1;
    return TT_OK;
}

/* IPv4 where there is a choice, so that all ranks choose alike. */
static tt_status resolve(struct tt_address *address, bool *local, const struct place *place)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    struct addrinfo *list = NULL;
    const int error = getaddrinfo(place->host, NULL, &hints, &list);
    if (error)
        return tt_fail(TT_ERR_SYSTEM, "the host '%s' (MASTER_ADDR or tcp://) cannot be found: %s",
                       place->host, gai_strerror(error));
    const struct addrinfo *best = NULL;
    for (const struct addrinfo *entry = list; entry; entry = entry->ai_next) {
        if (entry->ai_family == AF_INET && (!best || best->ai_family != AF_INET))
            best = entry;
        else if (entry->ai_family == AF_INET6 && !best)
            best = entry;
    }
    if (best) tt_address_set(address, best->ai_addr);
    freeaddrinfo(list);
    if (!best)
        return tt_fail(TT_ERR_SYSTEM, "the host '%s' has neither an IPv4 nor an IPv6 address",
                       place->host);
    tt_address_set_port(address, place->port);
    /* A host's own name may stand for 127.0.1.1 in /etc/hosts and yet mean all its interfaces. */
    *local = tt_address_is_loopback(address) &&
             (!strcmp(place->host, "localhost") ||
              strspn(place->host, "0123456789.:") == strlen(place->host));
    return TT_OK;
}

static tt_status derive_key(uint8_t key[32], const struct place *place, uint32_t sequence)
{
    const char *secret = tt_config_string(TT_CONFIG_JOB_KEY);
    uint8_t job[32] = {0};
    size_t nbytes = 0;
    const char *end = secret;
    if (secret[0] &&
        (sodium_hex2bin(job, sizeof job, secret, strlen(secret), NULL, &nbytes, &end) ||
         nbytes != sizeof job || *end))
        return tt_fail(TT_ERR_ARGUMENT,
                       "TUTTI_JOB_KEY is not 64 hex digits (it has %zu characters); make one with: "
                       "openssl rand -hex 32",
                       strlen(secret));
    if (!secret[0])
        TT_INFO_ONCE("bootstrap: TUTTI_JOB_KEY is not set: the key is derived from %s:%d, which "
                     "guards against accidents, not against other users of the network",
                     place->host, place->port);
    crypto_generichash_state state;
    const uint8_t wire_sequence[4] = {(uint8_t)sequence, (uint8_t)(sequence >> 8),
                                      (uint8_t)(sequence >> 16), (uint8_t)(sequence >> 24)};
    const uint8_t wire_port[2] = {(uint8_t)place->port, (uint8_t)(place->port >> 8)};
    crypto_generichash_init(&state, job, sizeof job, 32);
    crypto_generichash_update(&state, wire_sequence, sizeof wire_sequence);
    crypto_generichash_update(&state, wire_port, sizeof wire_port);
    if (!secret[0])
        crypto_generichash_update(&state, (const uint8_t *)place->host, strlen(place->host));
    crypto_generichash_final(&state, key, 32);
    sodium_memzero(job, sizeof job);
    sodium_memzero(&state, sizeof state);
    return TT_OK;
}

static tt_status from_place(struct tt_unique_id *id, const struct place *place,
                            const struct tt_launcher *launcher, int64_t deadline_ns)
{
    const struct tt_user user = {.host = place->host,
                                 .port = place->port,
                                 .rank = launcher->rank,
                                 .nranks = launcher->nranks};
    struct tt_unique_id made = {0};
    struct tt_address address;
    bool local = false;
    TT_TRY(resolve(&address, &local, place));
    TT_TRY(tt_uses_find(&made.use, &made.sequence, &user));
    made.flags = (uint32_t)(TT_ID_AWAIT | (local ? TT_ID_LOCAL : 0));
    TT_TRY(derive_key(made.key, place, made.sequence));
    tt_id_fill(&made, &address);
    if (launcher->rank == 0) {
        int listener;
        TT_TRY(tt_socket_listen(&listener, &address, !local));
        TT_TRY(tt_root_start(listener, &made, NULL, deadline_ns));
    }
    *id = made;
    return TT_OK;
}

/* ---- file:// -------------------------------------------------------------------------------- */

/* Written aside and renamed: whoever sees the file sees all of it. */
static tt_status publish(const char *path, const struct tt_unique_id *id)
{
    char aside[4096];
    const int n = snprintf(aside, sizeof aside, "%s.%d.new", path, (int)getpid());
    if (n < 0 || n >= (int)sizeof aside)
        return tt_fail(TT_ERR_ARGUMENT, "the path '%.64s...' is too long", path);
    unlink(aside);
    const int fd = open(aside, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0) return tt_fail_errno(errno, "cannot write '%s' (file://)", aside);
    const ssize_t wrote = write(fd, id, sizeof *id);
    int error = wrote == (ssize_t)sizeof *id ? 0 : wrote < 0 ? errno : ENOSPC;
    if (close(fd) != 0 && !error) error = errno;
    if (!error && rename(aside, path) != 0) error = errno;
    if (!error) return TT_OK;
    unlink(aside);
    return tt_fail_errno(error, "cannot write the unique id to '%s' (file://)", path);
}

static tt_status make_file(struct tt_unique_id *id, const char *path, int64_t deadline_ns)
{
    int listener;
    struct tt_address address;
    TT_TRY(tt_address_of_host(&address));
    const bool local = tt_address_is_loopback(&address);
    TT_TRY(tt_socket_listen(&listener, &address, !local));
    struct tt_unique_id made = {.flags = local ? TT_ID_LOCAL : 0};
    randombytes_buf(made.key, sizeof made.key);
    tt_id_fill(&made, &address);
    tt_status status = publish(path, &made);
    if (status != TT_OK) {
        close(listener);
        return status;
    }
    status = tt_root_start(listener, &made, path, deadline_ns);
    if (status == TT_OK)
        *id = made;
    else
        unlink(path);
    return status;
}

/* How far the file is from being useful, in words; NULL: *id is a live root's. */
static const char *look(struct tt_unique_id *id, const char *path, int64_t deadline_ns)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0) return errno == ENOENT ? "it does not exist" : "it cannot be opened";
    struct stat stat;
    struct tt_unique_id found;
    const char *complaint = NULL;
    if (fstat(fd, &stat) != 0 || !S_ISREG(stat.st_mode))
        complaint = "it is no regular file";
    else if ((stat.st_uid != geteuid() && stat.st_uid != 0) || stat.st_mode & (S_IWGRP | S_IWOTH))
        complaint = "another user owns it or may write it";
    else if (read(fd, &found, sizeof found) != (ssize_t)sizeof found || found.magic != TT_ID_MAGIC)
        complaint = "it holds no unique id";
    close(fd);
    if (complaint) return complaint;
    const struct tt_address address = {.nbytes = found.address_bytes};
    struct tt_address whole = address;
    memcpy(whole.bytes, found.address, sizeof whole.bytes);
    if (found.version != TT_ID_VERSION || !tt_address_valid(&whole))
        return "its unique id is of another version of tutti";
    const int64_t patience_ns = tt_deadline_ns(PROBE_MS);
    if (!tt_root_alive(&found, patience_ns < deadline_ns ? patience_ns : deadline_ns))
        return "it is left over from a job that has gone";
    *id = found;
    return NULL;
}

static tt_status await_file(struct tt_unique_id *id, const char *path, int64_t deadline_ns)
{
    struct timespec pause = {.tv_nsec = 1000000};
    for (;;) {
        const char *complaint = look(id, path, deadline_ns);
        if (!complaint) return TT_OK;
        if (tt_expired(deadline_ns))
            return tt_fail(TT_ERR_TIMEOUT,
                           "rank 0's unique id did not appear in '%s' before the init deadline "
                           "(TUTTI_INIT_TIMEOUT_MS): %s",
                           path, complaint);
        nanosleep(&pause, NULL);
        if (pause.tv_nsec < MAX_PAUSE_MS * 1000000) pause.tv_nsec *= 2;
    }
}

/* ---- The methods ---------------------------------------------------------------------------- */

tt_status tt_unique_id_from_method(struct tt_unique_id *id, const char *method,
                                   const struct tt_launcher *launcher, int64_t deadline_ns)
{
    static const char env[] = "env://", tcp[] = "tcp://", file[] = "file://";
    struct place place;
    if (sodium_init() < 0) return tt_fail(TT_ERR_SYSTEM, "libsodium cannot get random numbers");
    if (!method || !method[0]) method = tt_config_string(TT_CONFIG_INIT_METHOD);
    if (!strncmp(method, file, strlen(file))) {
        const char *path = method + strlen(file);
        if (path[0] != '/' || !path[1])
            return tt_fail(TT_ERR_ARGUMENT, "'%s' is not file:///path (with an absolute path)",
                           method);
        return launcher->rank == 0 ? make_file(id, path, deadline_ns)
                                   : await_file(id, path, deadline_ns);
    }
    if (!strcmp(method, env)) {
        /* All ranks in this process: nobody has to be found. */
        if (launcher->nranks == 1) return tt_unique_id_create(id);
        TT_TRY(parse_env(&place));
    } else if (!strncmp(method, tcp, strlen(tcp))) {
        TT_TRY(parse_tcp(&place, method));
    } else {
        return tt_fail(TT_ERR_ARGUMENT,
                       "'%s' is no init method: env://, tcp://host:port or file:///path", method);
    }
    return from_place(id, &place, launcher, deadline_ns);
}
