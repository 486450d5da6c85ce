/* Creates a communicator from ranks that can exchange small blocks. */
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/config.h"
#include "base/log.h"
#include "base/private_fd.h"
#include "communicator/device.h"
#include "communicator/staged_graphs.h"

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

/* One participant's status after a round of the creation. */
struct verdict {
    int32_t status;
    char text[252];
};

/* The slowest network that any rank has, in Mbit/s; 0: unknown. */
static uint32_t slowest_mbit(const struct tt_wires_info *infos, int nranks)
{
    uint32_t slowest = 0;
    for (int r = 0; r < nranks; r++) {
        const uint32_t mbit = infos[r].naddresses ? infos[r].addresses[0].mbit : 0;
        if (mbit && (!slowest || mbit < slowest)) slowest = mbit;
    }
    return slowest;
}

static tuttiComm_t blank(int rank, int nranks, const struct tt_comm_config *config)
{
    tuttiComm_t comm = calloc(1, sizeof *comm);
    if (!comm) return NULL;
    comm->magic = comm_magic;
    comm->rank = rank;
    comm->nranks = nranks;
    comm->process = getpid();
    comm->device = config->device;
    comm->gpu = config->gpu;
    comm->timeout_ms = config->timeout_ms;
    comm->init_timeout_ms = config->init_timeout_ms;
    snprintf(comm->name, sizeof comm->name, "%s", config->name);
    return comm;
}

/* A communicator in the making. */
struct making {
    const struct tt_exchange *exchange;
    const struct tt_comm_config *config;
    int rank, nranks;
    bool member;
    tt_status status; /* how far this rank has come */
    tuttiComm_t comm; /* NULL: there is nothing to free yet */
    struct tt_comm_links links;
    struct tt_peer_info mine;
    int fd_socket;                         /* -1: the fabric has it */
    struct tt_wires *wires;                /* until the fabric has them */
    struct tt_peer_info *everyone;         /* [nparticipants] */
    struct tt_wires_info *everyones_wires; /* [nparticipants]; NULL: all are on one host */
    struct verdict *verdicts;              /* [nparticipants] */
};

/* All participants learn of all failures; the first one's text becomes everyone's error. */
static tt_status agree(const struct making *making)
{
    const struct tt_exchange *exchange = making->exchange;
    struct verdict own = {.status = making->status}, *all = making->verdicts;
    if (own.status) snprintf(own.text, sizeof own.text, "%s", tt_last_error());
    /* Mostly all is well, which four bytes say. */
    int32_t *statuses = (int32_t *)(void *)all;
    bool well = true;
    TT_TRY(exchange->allgather(exchange->context, &own.status, statuses, sizeof own.status));
    for (int p = 0; p < exchange->nparticipants; p++) well = well && !statuses[p];
    if (well) return TT_OK;
    TT_TRY(exchange->allgather(exchange->context, &own, all, sizeof own));
    for (int p = 0; p < exchange->nparticipants; p++)
        if (all[p].status) {
            all[p].text[sizeof all[p].text - 1] = '\0';
            if (own.status) return own.status;
            return tt_fail(all[p].status, "rank %d could not join: %s", p, all[p].text);
        }
    return TT_OK;
}

static int participant(const struct making *making, int rank)
{
    return making->exchange->members ? making->exchange->members[rank] : rank;
}

/* Whether every participant has got as far as having something to say. */
static bool all_came(const struct making *making)
{
    for (int p = 0; p < making->exchange->nparticipants; p++)
        if (making->everyone[p].status) return false;
    return true;
}

/* Whether several hosts have ranks of this rank's new communicator, or, with `any` true, of all new
 * communicators together; the latter is the same for all participants. */
static bool several_hosts(const struct making *making, bool any)
{
    const int number = any ? making->exchange->nparticipants : making->nranks;
    uint64_t host_id = 0;
    for (int i = 0; i < number; i++) {
        const struct tt_peer_info *info = &making->everyone[any ? i : participant(making, i)];
        if (!info->pid) continue; /* a participant without a new communicator */
        if (host_id && info->host_id != host_id) return true;
        host_id = info->host_id;
    }
    return false;
}

static bool all_listen(const struct making *making)
{
    for (int p = 0; making->everyones_wires && p < making->exchange->nparticipants; p++)
        if (making->everyones_wires[p].status) return false;
    return true;
}

static tt_status prepare(struct making *making)
{
    making->comm = blank(making->rank, making->nranks, making->config);
    if (!making->comm) return tt_fail(TT_ERR_SYSTEM, "out of memory for a communicator");
    TT_TRY(tt_comm_links_init(&making->links, making->config));
    making->links.fabric.has_gpu = making->config->gpu >= 0;
    snprintf(making->comm->no_gpu, sizeof making->comm->no_gpu, "no rank of it has one");
    return tt_peer_info_init(&making->mine, &making->links.fabric, &making->fd_socket);
}

static tt_status exchange_peers(struct making *making)
{
    const struct tt_exchange *exchange = making->exchange;
    if (making->member) making->status = prepare(making);
    making->mine.status = making->status;
    return exchange->allgather(exchange->context, &making->mine, making->everyone,
                               sizeof making->mine);
}

/* Who knows the key that the participants share can make out this communicator's. */
static void derive_key(struct making *making)
{
    const uint64_t secret = making->everyone[participant(making, 0)].secret;
    crypto_generichash(making->comm->key, sizeof making->comm->key, (const uint8_t *)&secret,
                       sizeof secret, making->exchange->key, TT_KEY_BYTES);
    memcpy(making->links.wires.key, making->comm->key, sizeof making->links.wires.key);
}

/* Who has ranks on other hosts in its communicator says where it listens. */
static tt_status exchange_wires(struct making *making)
{
    const struct tt_exchange *exchange = making->exchange;
    struct tt_wires_info mine = {0};
    making->everyones_wires =
        calloc((size_t)exchange->nparticipants, sizeof *making->everyones_wires);
    if (!making->everyones_wires)
        return tt_fail(TT_ERR_SYSTEM, "out of memory for the addresses of %d ranks",
                       exchange->nparticipants);
    if (making->member && !making->status && several_hosts(making, false))
        making->status = tt_wires_open(&making->wires, &making->links.wires, &mine);
    mine.status = making->status;
    return exchange->allgather(exchange->context, &mine, making->everyones_wires, sizeof mine);
}

static const char *algorithm_name(enum tt_collective collective, uint64_t id)
{
    const struct tt_algorithm *algorithm = tt_algorithm_by_id(collective, id);
    return algorithm ? algorithm->name : NULL;
}

static tt_status begin(struct making *making)
{
    tuttiComm_t comm = making->comm;
    struct tt_peer_info *infos = malloc((size_t)comm->nranks * sizeof *infos);
    if (!infos) return tt_fail(TT_ERR_SYSTEM, "out of memory for peers");
    for (int r = 0; r < comm->nranks; r++) infos[r] = making->everyone[participant(making, r)];
    const int fd_socket = making->fd_socket;
    making->fd_socket = -1;
    const tt_status status = tt_fabric_begin(&comm->fabric, infos, comm->rank, comm->nranks,
                                             fd_socket, &making->links.fabric);
    free(infos);
    return status;
}

static tt_status start_wires(struct making *making)
{
    tuttiComm_t comm = making->comm;
    struct tt_wires_info *infos = malloc((size_t)comm->nranks * sizeof *infos);
    if (!infos) return tt_fail(TT_ERR_SYSTEM, "out of memory for peers");
    for (int r = 0; r < comm->nranks; r++)
        infos[r] = making->everyones_wires[participant(making, r)];
    comm->setting.net_mbit = slowest_mbit(infos, comm->nranks);
    const tt_status status = tt_fabric_start_wires(comm->fabric, making->wires, infos);
    free(infos);
    TT_TRY(status);
    comm->fabric->wires = making->wires;
    making->wires = NULL;
    return TT_OK;
}

static tt_status attach(struct making *making)
{
    tuttiComm_t comm = making->comm;
    TT_TRY(tt_fabric_attach(comm->fabric, making->exchange->deadline_ns));
    TT_TRY(tt_engine_init(&comm->engine, comm->fabric, comm->timeout_ms, comm->name));
    comm->engine.algorithm_name = algorithm_name;
    return making->wires ? start_wires(making) : TT_OK;
}

/* Whether any rank of any new communicator has a GPU; the same for all participants. */
static bool any_gpu(const struct making *making)
{
    for (int p = 0; p < making->exchange->nparticipants; p++)
        if (making->everyone[p].pid && making->everyone[p].has_gpu) return true;
    return false;
}

/* Whether kernels may run this communicator's calls; if not, no_gpu says why. */
static bool all_have_gpus(const struct making *making)
{
    tuttiComm_t comm = making->comm;
    if (!tt_config_int(TT_CONFIG_DEVICE_KERNELS)) {
        snprintf(comm->no_gpu, sizeof comm->no_gpu, "TUTTI_DEVICE_KERNELS is off on rank %d",
                 comm->rank);
        return false;
    }
    for (int r = 0; r < comm->nranks; r++)
        if (!making->everyone[participant(making, r)].has_gpu) {
            snprintf(comm->no_gpu, sizeof comm->no_gpu,
                     "rank %d has none (tuttiConfig_t's device, or a current context at init)", r);
            return false;
        }
    if (!several_hosts(making, false)) return true;
    snprintf(comm->no_gpu, sizeof comm->no_gpu, "its ranks are on several hosts");
    return false;
}

/* This rank's GPU cannot run kernels for the communicator. */
static void drop_kernels(const struct making *making, tt_status status)
{
    tuttiComm_t comm = making->comm;
    if (!status) return;
    snprintf(comm->no_gpu, sizeof comm->no_gpu, "%.*s", (int)sizeof comm->no_gpu - 1,
             tt_last_error());
    if (making->config->needs_gpu)
        TT_WARN("communicator %s: rank %d: kernels run no calls: %s", comm->name, comm->rank,
                tt_last_error());
    tt_comm_device_drop(comm);
}

/* After a round in which each rank may have dropped its kernels: all ranks have them, or none has.
 * mine: what this rank has if it has them, > 0; *least: the least that any rank has. */
static tt_status agree_on_gpus(struct making *making, int32_t mine, int32_t *least)
{
    const struct tt_exchange *exchange = making->exchange;
    *least = INT32_MAX;
    if (!making->comm || !making->comm->on_gpu) mine = 0;
    int32_t *all = calloc((size_t)exchange->nparticipants, sizeof *all);
    if (!all) making->status = tt_fail(TT_ERR_SYSTEM, "out of memory for the GPUs of the ranks");
    tt_status status = agree(making);
    if (!status) status = exchange->allgather(exchange->context, &mine, all, sizeof mine);
    for (int r = 0; !status && making->member && r < making->nranks; r++) {
        const int32_t has = all[participant(making, r)];
        if (has < *least) *least = has;
        if (has || !making->comm->on_gpu) continue;
        snprintf(making->comm->no_gpu, sizeof making->comm->no_gpu,
                 "kernels cannot run for rank %d (its log at INFO says why)", r);
        tt_comm_device_drop(making->comm);
    }
    free(all);
    return status;
}

/* Calls on the memory of this rank's GPU go through the host. A GPU that the config does not name
 * may be one that the program uses for itself: then a communicator for memory of the host does
 * without it. */
static tt_status do_without_kernels(struct making *making)
{
    tuttiComm_t comm = making->comm;
    if (comm->on_gpu) return TT_OK;
    if (comm->gpu < 0) {
        snprintf(comm->no_gpu, sizeof comm->no_gpu,
                 "this rank has none (tuttiConfig_t's device, or a current context at init)");
        return TT_OK;
    }
    const tt_status status = tt_comm_staged_open(comm);
    if (status && making->config->needs_gpu) return status;
    if (!status) {
        TT_INFO("communicator %s: rank %d: calls on memory of GPU %d go through memory of the "
                "host: %s",
                comm->name, comm->rank, comm->gpu, comm->no_gpu);
        return TT_OK;
    }
    snprintf(comm->no_gpu, sizeof comm->no_gpu, "%.*s", (int)sizeof comm->no_gpu - 1,
             tt_last_error());
    TT_INFO("communicator %s has no GPU: %s", comm->name, tt_last_error());
    return TT_OK;
}

static void take_gpu(struct making *making, const struct tt_device_offer *offers)
{
    bool must_fail;
    const tt_status status =
        tt_comm_device_connect(making->comm, making->config, offers, &must_fail);
    drop_kernels(making, status);
    if (must_fail && making->config->needs_gpu) making->status = status;
}

/* Each rank with a GPU sends the others how to reach its memory. */
static tt_status connect_gpus(struct making *making)
{
    const struct tt_exchange *exchange = making->exchange;
    const size_t n = (size_t)exchange->nparticipants;
    struct tt_device_offer mine = {.gpu = -1};
    struct tt_device_offer *all = calloc(n, sizeof *all), *ours = calloc(n, sizeof *ours);
    if (!all || !ours)
        making->status = tt_fail(TT_ERR_SYSTEM, "out of memory for the GPUs of %zu ranks", n);
    else if (making->member && all_have_gpus(making))
        drop_kernels(making, tt_comm_device_offer(making->comm, &making->links,
                                                  making->config->opener, &mine));
    int32_t least;
    tt_status status = agree_on_gpus(making, 1, &least);
    if (!status) status = exchange->allgather(exchange->context, &mine, all, sizeof mine);
    if (!status && making->member && making->comm->on_gpu) {
        for (int r = 0; r < making->nranks; r++) ours[r] = all[participant(making, r)];
        take_gpu(making, ours);
    }
    free(all);
    free(ours);
    const struct tt_comm_device *on = making->comm ? making->comm->on_gpu : NULL;
    if (!status) status = agree_on_gpus(making, on ? on->most_blocks : 0, &least);
    if (status) return status;
    if (making->member && making->comm->on_gpu) making->comm->on_gpu->most_blocks = least;
    if (making->member) making->status = do_without_kernels(making);
    return agree(making);
}

static void finish(struct making *making)
{
    tuttiComm_t comm = making->comm;
    const struct tt_fabric *fabric = comm->fabric;
    const struct tt_segment_header *header = fabric->segment->header;
    tt_fabric_finish(comm->fabric);
    comm->setting.one_host = fabric->hosts->nhosts == 1;
    comm->setting.oversubscribed = fabric->some_oversubscribed;
    comm->setting.ranks_per_core = fabric->ranks_per_core;
    comm->setting.meet_bytes = header->meet_bytes;
    comm->setting.slot_bytes = header->slot_bytes;
    comm->setting.in_rank_order = making->config->deterministic;
    memcpy(comm->forced, making->config->forced, sizeof comm->forced);
    TT_INFO("communicator %s: rank %d of %d, %d of %d on this host, %s", comm->name, comm->rank,
            comm->nranks, fabric->local, fabric->nlocal,
            fabric->oversubscribed ? "more ranks than cores: yielding"
                                   : "a core for each rank: spinning");
    tt_comm_log_order(comm);
}

/* The rounds of making: all participants go through the same ones, and fail in the same one. */
static tt_status assemble(struct making *making)
{
    TT_TRY(exchange_peers(making));
    const bool came = all_came(making);
    if (making->comm && came) derive_key(making);
    if (came && several_hosts(making, true)) TT_TRY(exchange_wires(making));
    if (making->member && !making->status && came && all_listen(making))
        making->status = begin(making);
    TT_TRY(agree(making));
    if (making->member) making->status = attach(making);
    TT_TRY(agree(making));
    if (any_gpu(making)) TT_TRY(connect_gpus(making));
    if (making->member) finish(making);
    return TT_OK;
}

tt_status tt_comm_assemble(tuttiComm_t *out, const struct tt_exchange *exchange, int rank,
                           int nranks, const struct tt_comm_config *config)
{
    const size_t n = (size_t)exchange->nparticipants;
    struct making making = {.exchange = exchange,
                            .config = config,
                            .rank = rank,
                            .nranks = nranks,
                            .member = rank >= 0,
                            .fd_socket = -1,
                            .everyone = calloc(n, sizeof *making.everyone),
                            .verdicts = calloc(n, sizeof *making.verdicts)};
    const tt_status status =
        making.everyone && making.verdicts
            ? assemble(&making)
            : tt_fail(TT_ERR_SYSTEM, "out of memory for the infos of %zu ranks", n);
    tt_wires_destroy(making.wires);
    if (making.fd_socket >= 0) tt_private_fd_close(making.fd_socket);
    sodium_memzero(making.links.wires.key, sizeof making.links.wires.key);
    if (making.everyone) sodium_memzero(making.everyone, n * sizeof *making.everyone);
    free(making.everyone);
    free(making.everyones_wires);
    free(making.verdicts);
    if (status) {
        tt_comm_free(making.comm);
        return status;
    }
    if (making.comm) tt_comm_remember(making.comm);
    *out = making.comm;
    return TT_OK;
}
