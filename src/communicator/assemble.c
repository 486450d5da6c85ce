/* Making a communicator out of ranks that can exchange small blocks, and unmaking it. */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/config.h"
#include "base/log.h"
#include "communicator/communicator.h"

static const uint64_t comm_magic = 0x7475747469636f6dull;

tt_status tt_comm_check_handle(tuttiComm_t comm)
{
    if (!comm) return tt_fail(TT_ERR_ARGUMENT, "the communicator is NULL");
    if (comm->magic != comm_magic)
        return tt_fail(TT_ERR_ARGUMENT, "%p is no communicator: never made, or destroyed already",
                       (void *)comm);
    return TT_OK;
}

tt_status tt_comm_check(tuttiComm_t comm)
{
    TT_TRY(tt_comm_check_handle(comm));
    if (comm->finalized)
        return tt_fail(TT_ERR_USAGE, "communicator %s was finalized: only destroy may follow",
                       comm->name);
    return tt_fabric_check(comm->fabric);
}

static int64_t int_or(int value, int64_t otherwise)
{
    return value == TUTTI_CONFIG_UNDEF_INT ? otherwise : value;
}

static tt_status check_timeout(const char *name, int value)
{
    if (value >= 0 || value == TUTTI_CONFIG_UNDEF_INT) return TT_OK;
    return tt_fail(TT_ERR_ARGUMENT, "%s %d is negative: give milliseconds, 0 for none", name,
                   value);
}

/* An older caller's struct is shorter: what it lacks is undefined. */
static tt_status read_struct(tuttiConfig_t *full, const tuttiConfig_t *config)
{
    static const tuttiConfig_t undefined = TUTTI_CONFIG_INITIALIZER;
    *full = undefined;
    if (!config) return TT_OK;
    const size_t least = offsetof(tuttiConfig_t, timeoutMs);
    if (config->magic != TUTTI_CONFIG_MAGIC || config->size < least)
        return tt_fail(TT_ERR_ARGUMENT,
                       "the config is not from TUTTI_CONFIG_INITIALIZER (size %zu, magic %#llx)",
                       config->size, (unsigned long long)config->magic);
    memcpy(full, config, config->size < sizeof *full ? config->size : sizeof *full);
    TT_TRY(check_timeout("timeoutMs", full->timeoutMs));
    return check_timeout("initTimeoutMs", full->initTimeoutMs);
}

tt_status tt_comm_config_init(struct tt_comm_config *settings, const tuttiConfig_t *config,
                              const struct tuttiComm *parent)
{
    tuttiConfig_t full;
    TT_TRY(read_struct(&full, config));
    struct tt_comm_config fresh = {.oversubscribed = parent && parent->fabric->oversubscribed};
    fresh.timeout_ms =
        int_or(full.timeoutMs, parent ? parent->timeout_ms : tt_config_int(TT_CONFIG_TIMEOUT_MS));
    fresh.init_timeout_ms =
        int_or(full.initTimeoutMs,
               parent ? parent->init_timeout_ms : tt_config_int(TT_CONFIG_INIT_TIMEOUT_MS));
    snprintf(fresh.name, sizeof fresh.name, "%s",
             full.commName ? full.commName
             : parent      ? "split"
                           : "world");
    const char *algorithm = full.algorithm ? full.algorithm : tt_config_string(TT_CONFIG_ALGORITHM);
    if (parent && !full.algorithm)
        memcpy(fresh.forced, parent->forced, sizeof fresh.forced);
    else
        TT_TRY(tt_parse_algorithms(algorithm, fresh.forced));
    *settings = fresh;
    return TT_OK;
}

/* Clamped: a value out of range is mended, and said. */
static size_t bounded(enum tt_config_key key, size_t least, size_t most, size_t unit)
{
    const int64_t value = tt_config_int(key);
    size_t good = value < (int64_t)least ? least : value > (int64_t)most ? most : (size_t)value;
    good = (good + unit - 1) / unit * unit;
    if ((int64_t)good != value)
        TT_WARN("%s=%lld is not in %zu..%zu or no multiple of %zu: using %zu",
                tt_config_row(key)->name, (long long)value, least, most, unit, good);
    return good;
}

static bool lists(const char *list, const char *word)
{
    const size_t length = strlen(word);
    for (const char *at = list; *at; at += strcspn(at, ","), at += *at == ',')
        if (strcspn(at, ",") == length && !strncmp(at, word, length)) return true;
    return false;
}

/* Every word of TUTTI_TRANSPORT must be one there is. */
static tt_status check_transports(const char *list)
{
    for (const char *at = list; *at; at += strcspn(at, ","), at += *at == ',') {
        const size_t length = strcspn(at, ",");
        char word[32];
        snprintf(word, sizeof word, "%.*s", length < 31 ? (int)length : 31, at);
        if (!length || !lists("shm,window,cma", word))
            return tt_fail(TT_ERR_ARGUMENT, "TUTTI_TRANSPORT=%s: '%s' is none of shm, window, cma",
                           list, word);
    }
    return TT_OK;
}

static tt_status fabric_config(struct tt_fabric_config *out, const struct tt_comm_config *config)
{
    const char *transports = tt_config_string(TT_CONFIG_TRANSPORT);
    const bool any = !transports[0];
    TT_TRY(check_transports(transports));
    struct tt_fabric_config fabric = {
        .nslots = bounded(TT_CONFIG_SLOTS, 2, 64, 1),
        .slot_bytes = bounded(TT_CONFIG_SLOT_BYTES, 1024, 4 << 20, TT_LINE),
        .meet_bytes = bounded(TT_CONFIG_MEET_BYTES, 1024, 1 << 20, TT_LINE),
        .oversubscribed = config->oversubscribed,
        .allow_window = any || lists(transports, "window"),
        .allow_cma = any || lists(transports, "cma"),
        .force_cma = !any && lists(transports, "cma"),
    };
    const char *wait = tt_config_string(TT_CONFIG_WAIT);
    if (!strcmp(wait, "yield"))
        fabric.oversubscribed = true;
    else if (strcmp(wait, "auto") && strcmp(wait, "spin"))
        return tt_fail(TT_ERR_ARGUMENT, "TUTTI_WAIT=%s is none of auto, spin, yield", wait);
    fabric.always_spin = !strcmp(wait, "spin");
    *out = fabric;
    return TT_OK;
}

/* One participant's word on how a step of the making went. */
struct verdict {
    int32_t status;
    char text[252];
};

/* All participants learn of all failures; the first one's text becomes everyone's error. */
static tt_status agree(const struct tt_exchange *exchange, tt_status mine, struct verdict *all)
{
    struct verdict own = {.status = mine};
    if (mine) snprintf(own.text, sizeof own.text, "%s", tt_last_error());
    TT_TRY(exchange->allgather(exchange->context, &own, all, sizeof own));
    for (int p = 0; p < exchange->nparticipants; p++)
        if (all[p].status) {
            all[p].text[sizeof all[p].text - 1] = '\0';
            if (!mine) return tt_fail(all[p].status, "rank %d could not join: %s", p, all[p].text);
            return mine;
        }
    return TT_OK;
}

static tt_status finish(tuttiComm_t comm, const struct tt_comm_config *config)
{
    tt_fabric_finish(comm->fabric);
    comm->setting = (struct tt_setting){.one_host = comm->fabric->hosts->nhosts == 1,
                                        .oversubscribed = comm->fabric->some_oversubscribed,
                                        .meet_bytes = comm->fabric->segment->header->meet_bytes,
                                        .slot_bytes = comm->fabric->segment->header->slot_bytes};
    memcpy(comm->forced, config->forced, sizeof comm->forced);
    TT_INFO("communicator %s: rank %d of %d, %s", comm->name, comm->rank, comm->nranks,
            comm->fabric->oversubscribed ? "more ranks than cores: yielding"
                                         : "a core for each rank: spinning");
    return TT_OK;
}

static tt_status make_part(tuttiComm_t comm, const struct tt_exchange *exchange,
                           const struct tt_peer_info *everyone, int fd_socket,
                           const struct tt_fabric_config *config)
{
    struct tt_peer_info *infos = malloc((size_t)comm->nranks * sizeof *infos);
    if (!infos) {
        close(fd_socket);
        return tt_fail(TT_ERR_SYSTEM, "out of memory for peers");
    }
    for (int r = 0; r < comm->nranks; r++)
        infos[r] = everyone[exchange->members ? exchange->members[r] : r];
    const tt_status status =
        tt_fabric_begin(&comm->fabric, infos, comm->rank, comm->nranks, fd_socket, config);
    free(infos);
    return status ? status
                  : tt_engine_init(&comm->engine, comm->fabric, comm->timeout_ms, comm->name);
}

static tuttiComm_t blank(int rank, int nranks, const struct tt_comm_config *config)
{
    tuttiComm_t comm = calloc(1, sizeof *comm);
    if (!comm) return NULL;
    comm->magic = comm_magic;
    comm->rank = rank;
    comm->nranks = nranks;
    comm->device = config->device;
    comm->timeout_ms = config->timeout_ms;
    comm->init_timeout_ms = config->init_timeout_ms;
    snprintf(comm->name, sizeof comm->name, "%s", config->name);
    return comm;
}

/* Whether every participant has got as far as having something to say. */
static bool all_came(const struct tt_exchange *exchange, const struct tt_peer_info *everyone)
{
    for (int p = 0; p < exchange->nparticipants; p++)
        if (everyone[p].status) return false;
    return true;
}

/* The three rounds of making; *out is set as soon as there is something to free. */
static tt_status assemble(tuttiComm_t *out, const struct tt_exchange *exchange, int rank,
                          int nranks, const struct tt_comm_config *config,
                          struct tt_peer_info *everyone, struct verdict *verdicts)
{
    const int64_t deadline_ns = tt_deadline_ns(config->init_timeout_ms);
    const bool member = rank >= 0;
    struct tt_peer_info mine = {0};
    struct tt_fabric_config settings;
    int fd_socket = -1;
    tt_status status = member ? fabric_config(&settings, config) : TT_OK;
    if (member && !status) status = tt_peer_info_init(&mine, &settings, &fd_socket);
    mine.status = status;
    tt_status exchanged = exchange->allgather(exchange->context, &mine, everyone, sizeof mine);
    if (exchanged) {
        if (fd_socket >= 0) close(fd_socket);
        return exchanged;
    }
    tuttiComm_t comm = member ? blank(rank, nranks, config) : NULL;
    *out = comm;
    if (member && !comm && !status)
        status = tt_fail(TT_ERR_SYSTEM, "out of memory for a communicator");
    if (!status && member && all_came(exchange, everyone)) {
        status = make_part(comm, exchange, everyone, fd_socket, &settings);
    } else if (fd_socket >= 0) {
        close(fd_socket);
    }
    TT_TRY(agree(exchange, status, verdicts));
    status = member ? tt_fabric_attach(comm->fabric, deadline_ns) : TT_OK;
    TT_TRY(agree(exchange, status, verdicts));
    return member ? finish(comm, config) : TT_OK;
}

tt_status tt_comm_assemble(tuttiComm_t *out, const struct tt_exchange *exchange, int rank,
                           int nranks, const struct tt_comm_config *config)
{
    const size_t n = (size_t)exchange->nparticipants;
    struct tt_peer_info *everyone = calloc(n, sizeof *everyone);
    struct verdict *verdicts = calloc(n, sizeof *verdicts);
    tuttiComm_t comm = NULL;
    tt_status status = everyone && verdicts
                           ? assemble(&comm, exchange, rank, nranks, config, everyone, verdicts)
                           : tt_fail(TT_ERR_SYSTEM, "out of memory for the infos of %zu ranks", n);
    free(everyone);
    free(verdicts);
    if (status) {
        tt_comm_free(comm);
        return status;
    }
    *out = comm;
    return TT_OK;
}

void tt_comm_drain(tuttiComm_t comm)
{
    while (!tt_engine_idle(&comm->engine)) {
        sched_yield();
        usleep(50);
    }
}

void tt_comm_free(tuttiComm_t comm)
{
    if (!comm) return;
    tt_comm_deregister_all(comm);
    while (comm->cache) {
        struct tt_cached *next = comm->cache->next;
        tt_schedule_destroy(comm->cache->schedule);
        free(comm->cache);
        comm->cache = next;
    }
    if (comm->engine.fabric) tt_engine_fini(&comm->engine);
    tt_fabric_destroy(comm->fabric);
    comm->magic = 0;
    free(comm);
}
