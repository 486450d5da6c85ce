/* Gets the place of rank 0 (address, port, secret) through the launcher: PMI, PMIx or Slurm's
 * variables. */
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/config.h"
#include "base/log.h"
#include "base/process_lock.h"
#include "bootstrap/place.h"
#include "bootstrap/pmi.h"
#include "bootstrap/pmix.h"
#include "bootstrap/slurm.h"
#include "net/interface.h"
#include "net/socket.h"

enum { SHARED_TEXT = 256, WHY = 512 }; /* the first fits the values of every PMI */

/* ---- What rank 0 passes on: "address,port,secret in hex" ------------------------------------ */

static tt_status write_place(char *text, size_t size)
{
    struct tt_address address;
    char host[TT_ADDRESS_TEXT], hex[2 * TT_PLACE_SECRET + 1];
    uint8_t secret[TT_PLACE_SECRET];
    int reserved; /* stays open as long as the process: each communicator's root listens there */
    TT_TRY(tt_address_of_host(&address));
    TT_TRY(tt_socket_reserve(&reserved, &address));
    randombytes_buf(secret, sizeof secret);
    sodium_bin2hex(hex, sizeof hex, secret, sizeof secret);
    snprintf(text, size, "%s,%d,%s", tt_address_host(&address, host), tt_address_port(&address),
             hex);
    sodium_memzero(secret, sizeof secret);
    sodium_memzero(hex, sizeof hex);
    return TT_OK;
}

static tt_status read_place(struct tt_place *place, char *text)
{
    struct tt_place found = {.has_secret = true};
    char *rest = text;
    const char *host = strsep(&rest, ","), *port = strsep(&rest, ",");
    size_t nbytes = 0;
    const bool right = rest && strlen(host) < sizeof found.host &&
                       sodium_hex2bin(found.secret, sizeof found.secret, rest, strlen(rest), NULL,
                                      &nbytes, NULL) == 0 &&
                       nbytes == sizeof found.secret;
    if (right) {
        strcpy(found.host, host);
        found.port = atoi(port);
        found.nports = 1;
        memcpy(place, &found, sizeof *place);
    }
    sodium_memzero(&found, sizeof found);
    return right
               ? TT_OK
               : tt_fail(TT_ERR_REMOTE, "rank 0 could not say where it is; its own error says why");
}

/* ---- The sources ---------------------------------------------------------------------------- */

static int find_mpi(struct dl_phdr_info *info, size_t size, void *name)
{
    (void)size;
    const char *slash = strrchr(info->dlpi_name, '/');
    const char *base = slash ? slash + 1 : info->dlpi_name;
    if (strncmp(base, "libmpi", strlen("libmpi")) != 0) return 0;
    snprintf(name, WHY / 2, "%s", base);
    return 1;
}

/* The descriptor of PMI_FD; -1: it cannot be used, and why. */
static int find_pmi(char why[WHY])
{
    char library[WHY / 2];
    const char *text = tt_environment("PMI_FD");
    char *end = NULL;
    const long fd = text ? strtol(text, &end, 10) : -1;
    if (!text)
        snprintf(why, WHY, "PMI_FD is not set");
    else if (end == text || *end || fd < 0 || fd > INT32_MAX || fcntl((int)fd, F_GETFD) < 0)
        snprintf(why, WHY, "PMI_FD=%s is not open in this process", text);
    else if (dl_iterate_phdr(find_mpi, library))
        snprintf(why, WHY,
                 "PMI_FD belongs to the MPI library of this process (%s): give "
                 "tuttiGetUniqueId's id to all ranks with MPI_Bcast, for tuttiCommInitRank",
                 library);
    else
        return (int)fd;
    return -1;
}

/* TT_IN_PROGRESS: this source is not available, and why. */
static tt_status share(char *text, size_t size, const struct tt_launcher *launcher,
                       enum tt_place_source source, int64_t deadline_ns, char why[WHY])
{
    if (source == TT_PLACE_FROM_PMI) {
        const int fd = find_pmi(why);
        return fd < 0 ? TT_IN_PROGRESS : tt_pmi_share(fd, launcher->rank, text, size, deadline_ns);
    }
    char library[WHY / 2];
    const struct tt_pmix *pmix = NULL;
    if (tt_environment("PMIX_NAMESPACE"))
        pmix = tt_pmix_load(why, WHY);
    else
        snprintf(why, WHY, "PMIX_NAMESPACE is not set");
    if (!pmix) return TT_IN_PROGRESS;
    const bool keep = dl_iterate_phdr(find_mpi, library) != 0;
    return tt_pmix_share(pmix, launcher->rank, text, size, keep, deadline_ns);
}

/* A launcher gathers values once a process: the place is kept for later communicators. */
static tt_status shared_place(struct tt_place *place, const struct tt_launcher *launcher,
                              enum tt_place_source source, int64_t deadline_ns, char why[WHY])
{
    static struct tt_process_lock lock = TT_PROCESS_LOCK;
    static struct tt_place kept;                  /* guarded by lock; of this process's job */
    static enum { UNKNOWN, KNOWN, FAILED } state; /* guarded by lock */
    char text[SHARED_TEXT] = "none";
    tt_process_lock(&lock);
    tt_status status = TT_OK, mine = TT_OK;
    if (state == FAILED)
        status = tt_fail(TT_ERR_USAGE, "the launcher has failed before in this process to pass on "
                                       "where rank 0 listens: it does so once only; start the job "
                                       "again");
    if (state == UNKNOWN) {
        /* Rank 0 passes a text on in any case: the other ranks wait for one. */
        if (launcher->rank == 0) mine = write_place(text, sizeof text);
        status = share(text, sizeof text, launcher, source, deadline_ns, why);
        if (status == TT_OK) status = mine != TT_OK ? mine : read_place(&kept, text);
        if (status != TT_IN_PROGRESS) state = status == TT_OK ? KNOWN : FAILED;
    }
    if (status == TT_OK) *place = kept;
    tt_process_unlock(&lock);
    sodium_memzero(text, sizeof text);
    return status;
}

tt_status tt_place_of_launcher(struct tt_place *place, const struct tt_launcher *launcher,
                               int64_t deadline_ns)
{
    char why[WHY] = "it has no means of its own";
    for (size_t i = 0; i < sizeof launcher->sources / sizeof *launcher->sources; i++) {
        const enum tt_place_source source = launcher->sources[i];
        if (source == TT_PLACE_FROM_NONE) break;
        if (source == TT_PLACE_FROM_SLURM) {
            if (tt_environment("SLURM_STEP_NODELIST")) return tt_slurm_place(place, launcher);
            continue;
        }
        const tt_status status = shared_place(place, launcher, source, deadline_ns, why);
        if (status != TT_IN_PROGRESS) return status;
        TT_INFO("bootstrap: %s: %s", launcher->found, why);
    }
    return tt_fail(TT_ERR_ARGUMENT,
                   "the ranks of this job (found: %s) cannot find each other: %s. Set MASTER_ADDR "
                   "and MASTER_PORT on every rank, or TUTTI_INIT_METHOD to tcp://host:port or "
                   "file:///path",
                   launcher->found, why);
}
