/* Parses the method (env://, tcp://, file://, ...) and finds rank, size and unique id by it. */
#include <errno.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "base/config.h"
#include "base/log.h"
#include "base/private_fd.h"
#include "bootstrap/bootstrap.h"
#include "net/handshake.h"
#include "net/resolve.h"
#include "bootstrap/file.h"
#include "bootstrap/place.h"
#include "bootstrap/root.h"

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

/* The host of nbytes, in brackets or not: those of an IPv6 address in a URL. False: it does not
 * fit.
 */
static bool take_host(struct tt_place *place, const char *host, size_t nbytes)
{
    if (nbytes > 2 && host[0] == '[' && host[nbytes - 1] == ']') host++, nbytes -= 2;
    if (nbytes == 0 || nbytes >= sizeof place->host) return false;
    memcpy(place->host, host, nbytes);
    place->host[nbytes] = '\0';
    return true;
}

/* "host:port" or "[v6]:port", with or without a slash at its end */
static tt_status parse_tcp(struct tt_place *place, const char *method)
{
    const char *host = method + strlen("tcp://");
    const char *colon = strrchr(host, ':');
    char port[16];
    *place = (struct tt_place){.nports = 1};
    if (!colon || !take_host(place, host, (size_t)(colon - host)))
        return tt_fail(TT_ERR_ARGUMENT, "'%s' is not tcp://host:port", method);
    size_t length = strlen(colon + 1);
    if (length && colon[length] == '/') length--;
    snprintf(port, sizeof port, "%.*s", (int)length, colon + 1);
    return parse_port(&place->port, port, method);
}

static tt_status parse_env(struct tt_place *place)
{
    const char *host = tt_environment("MASTER_ADDR"), *port = tt_environment("MASTER_PORT");
    if (!host || !host[0] || !port)
        return tt_fail(TT_ERR_ARGUMENT,
                       "%s is set but %s is not: set both on every rank, or use tcp://host:port or "
                       "file:///path",
                       port ? "MASTER_PORT" : "MASTER_ADDR", port ? "MASTER_ADDR" : "MASTER_PORT");
    *place = (struct tt_place){.nports = 1};
    if (!take_host(place, host, strlen(host)))
        return tt_fail(TT_ERR_ARGUMENT, "MASTER_ADDR has %zu characters, at most %zu", strlen(host),
                       sizeof place->host - 1);
    TT_TRY(parse_port(&place->port, port, "MASTER_PORT"));
    /* torchrun's agent then listens at MASTER_PORT itself, so rank 0 takes one of the next. */
    const char *agent = tt_environment("TORCHELASTIC_USE_AGENT_STORE");
    if (!agent || strcmp(agent, "True") != 0) return TT_OK;
    place->nports = TT_PLACE_PORTS;
    place->port += place->port + TT_PLACE_PORTS <= 65535 ? 1 : -TT_PLACE_PORTS;
    return TT_OK;
}

static tt_status resolve(struct tt_address *address, bool *local, const struct tt_place *place,
                         int64_t deadline_ns)
{
    const char *given =
        tt_unique_id_is_set() ? "NCCL_COMM_ID, MASTER_ADDR or tcp://" : "MASTER_ADDR or tcp://";
    TT_TRY(tt_resolve_host(address, place->host, given, deadline_ns));
    tt_address_set_port(address, place->port);
    *local = tt_address_is_loopback(address) &&
             (!strcmp(place->host, "localhost") ||
              strspn(place->host, "0123456789.:") == strlen(place->host));
    return TT_OK;
}

static bool is_own_name(const char *name)
{
    char own[TT_PLACE_HOST] = "";
    if (gethostname(own, sizeof own - 1) != 0) return false;
    const size_t length = strcspn(own, ".");
    return length == strcspn(name, ".") && !strncasecmp(own, name, length);
}

/* A host's own name may stand for 127.0.1.1 in /etc/hosts and yet mean all its interfaces; that of
 * another host must not. */
static tt_status check_loopback(const struct tt_address *address, bool local,
                                const struct tt_place *place, const struct tt_launcher *launcher)
{
    char text[TT_ADDRESS_TEXT];
    if (!tt_address_is_loopback(address) || launcher->local_nranks >= launcher->nranks)
        return TT_OK;
    if (local && launcher->local_rank == 0)
        TT_WARN("bootstrap: '%s' means every host itself, but only %d of %d ranks are on this one: "
                "no others can join; MASTER_ADDR must be an address of rank 0's host",
                place->host, launcher->local_nranks, launcher->nranks);
    if (local || launcher->rank == 0 || is_own_name(place->host)) return TT_OK;
    return tt_fail(TT_ERR_USAGE,
                   "'%s', the host of rank 0, resolves to %s on the host of rank %d, which is that "
                   "host itself: correct /etc/hosts, or give an address (MASTER_ADDR, tcp://)",
                   place->host, tt_address_host(address, text), launcher->rank);
}

/* The secret of TUTTI_JOB_KEY, else the place's, else none: *known says which. */
static tt_status find_secret(uint8_t secret[TT_PLACE_SECRET], bool *known,
                             const struct tt_place *place)
{
    const char *text = tt_config_string(TT_CONFIG_JOB_KEY), *end = text;
    size_t nbytes = 0;
    *known = text[0] || place->has_secret;
    if (!*known) TT_TRY(tt_config_check()); /* a file that was not read may hold the key */
    memcpy(secret, place->secret, TT_PLACE_SECRET);
    if (text[0] &&
        (sodium_hex2bin(secret, TT_PLACE_SECRET, text, strlen(text), NULL, &nbytes, &end) ||
         nbytes != TT_PLACE_SECRET || *end))
        return tt_fail(TT_ERR_ARGUMENT,
                       "TUTTI_JOB_KEY is not 64 hex digits (it has %zu characters); make one with: "
                       "openssl rand -hex 32",
                       strlen(text));
    return TT_OK;
}

/* Process 0 warns for the job. */
static void say_public(const struct tt_place *place, const struct tt_launcher *launcher)
{
    const char *of = place->job[0] ? " and " : "";
    if (launcher->rank == 0)
        TT_WARN_ONCE("bootstrap: the job's key is derived from public values (%s:%d%s%s): whoever "
                     "knows them can join the job or pose as one of its ranks, even with "
                     "TUTTI_ENCRYPT=1. Set TUTTI_JOB_KEY to a secret, the same on all ranks "
                     "(openssl rand -hex 32), or TUTTI_INIT_METHOD to file:///path",
                     place->host, place->port, of, place->job);
    else
        TT_INFO_ONCE("bootstrap: the job's key is derived from public values (%s:%d%s%s): see the "
                     "warning of rank 0",
                     place->host, place->port, of, place->job);
}

static tt_status derive_base(uint8_t base[32], const struct tt_place *place,
                             const struct tt_launcher *launcher)
{
    uint8_t secret[TT_PLACE_SECRET];
    bool known;
    const tt_status status = find_secret(secret, &known, place);
    if (status != TT_OK) {
        sodium_memzero(secret, sizeof secret);
        return status;
    }
    if (!known) say_public(place, launcher);
    crypto_generichash_state state;
    const uint8_t wire_port[2] = {(uint8_t)place->port, (uint8_t)(place->port >> 8)};
    crypto_generichash_init(&state, secret, sizeof secret, 32);
    crypto_generichash_update(&state, wire_port, sizeof wire_port);
    if (!known) {
        crypto_generichash_update(&state, (const uint8_t *)place->host, strlen(place->host));
        crypto_generichash_update(&state, (const uint8_t *)place->job, strlen(place->job));
    }
    crypto_generichash_final(&state, base, 32);
    sodium_memzero(secret, sizeof secret);
    sodium_memzero(&state, sizeof state);
    return TT_OK;
}

static tt_status from_place(struct tt_unique_id *id, const struct tt_place *place,
                            const struct tt_launcher *launcher, int64_t deadline_ns)
{
    struct tt_unique_id made = {0};
    struct tt_address address;
    uint64_t sequence;
    bool local = false;
    int listener;
    TT_TRY(resolve(&address, &local, place, deadline_ns));
    TT_TRY(check_loopback(&address, local, place, launcher));
    made.flags = (uint32_t)(TT_ID_AWAIT | TT_ID_UNMET | (local ? TT_ID_LOCAL : 0));
    if (launcher->rank == 0) {
        tt_root_make_way(&address, place->nports);
        TT_TRY(tt_socket_listen_first(&listener, &address, place->nports, !local));
    } else {
        made.nports = (uint32_t)place->nports;
    }
    tt_id_fill(&made, &address);
    tt_status status = derive_base(made.base, place, launcher);
    if (launcher->rank == 0 && status == TT_OK) {
        randombytes_buf(&sequence, sizeof sequence);
        tt_id_set_sequence(&made, sequence);
        status = tt_root_start(listener, &made, NULL, deadline_ns);
    } else if (launcher->rank == 0) {
        tt_private_fd_close(listener);
    }
    if (status == TT_OK) memcpy(id, &made, sizeof *id);
    sodium_memzero(&made, sizeof made);
    return status;
}

/* MASTER_ADDR and MASTER_PORT, or what the launcher offers. */
static tt_status from_environment(struct tt_unique_id *id, const struct tt_launcher *launcher,
                                  int64_t deadline_ns)
{
    struct tt_place place;
    const bool given = tt_environment("MASTER_ADDR") || tt_environment("MASTER_PORT");
    /* All ranks in this process: nobody has to be found. */
    if (launcher->nranks == 1) return tt_unique_id_create(id);
    TT_TRY(given ? parse_env(&place) : tt_place_of_launcher(&place, launcher, deadline_ns));
    const tt_status status = from_place(id, &place, launcher, deadline_ns);
    sodium_memzero(&place, sizeof place);
    return status;
}

/* ---- NCCL_COMM_ID --------------------------------------------------------------------------- */

bool tt_unique_id_is_set(void)
{
    return tt_config_is_nccl(TT_CONFIG_INIT_METHOD);
}

void tt_unique_id_set(struct tt_unique_id *id)
{
    *id = (struct tt_unique_id){
        .magic = TT_ID_MAGIC, .version = TT_ID_VERSION, .flags = TT_ID_BY_SETTING};
}

tt_status tt_unique_id_settle(struct tt_unique_id *id, int rank, int nranks, int64_t deadline_ns)
{
    /* Where the ranks are is not known yet: none of them is taken for a stranger. */
    const struct tt_launcher launcher = {.rank = rank, .nranks = nranks, .local_nranks = nranks};
    tt_root_withdraw(id, rank, nranks);
    if (id->magic != TT_ID_MAGIC || !(id->flags & TT_ID_BY_SETTING)) return TT_OK;
    if (!tt_unique_id_is_set())
        return tt_fail(TT_ERR_USAGE,
                       "the unique id was made where NCCL_COMM_ID is set, but it is "
                       "not set for rank %d: set it on all ranks, or on none",
                       rank);
    return tt_unique_id_from_method(id, tt_config_string(TT_CONFIG_INIT_METHOD), &launcher,
                                    deadline_ns);
}

/* ---- The methods ---------------------------------------------------------------------------- */

tt_status tt_unique_id_from_method(struct tt_unique_id *id, const char *method,
                                   const struct tt_launcher *launcher, int64_t deadline_ns)
{
    static const char env[] = "env://", tcp[] = "tcp://", file[] = "file://";
    struct tt_place place;
    TT_TRY(tt_handshake_prepare());
    if (!method || !method[0]) method = tt_config_string(TT_CONFIG_INIT_METHOD);
    if (!strcasecmp(method, env)) return from_environment(id, launcher, deadline_ns);
    if (!strncasecmp(method, file, strlen(file))) {
        const char *path = method + strlen(file);
        if (path[0] != '/' || !path[1])
            return tt_fail(TT_ERR_ARGUMENT, "'%s' is not file:///path (with an absolute path)",
                           method);
        return launcher->rank == 0 ? tt_file_make(id, path, deadline_ns)
                                   : tt_file_await(id, path, launcher->rank, deadline_ns);
    }
    if (strncasecmp(method, tcp, strlen(tcp)) != 0)
        return tt_fail(TT_ERR_ARGUMENT,
                       "'%s' is no init method: env://, tcp://host:port or file:///path", method);
    TT_TRY(parse_tcp(&place, method));
    return from_place(id, &place, launcher, deadline_ns);
}
