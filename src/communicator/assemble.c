/* Creates a communicator from ranks that can gather small blocks. */
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/config.h"
#include "base/log.h"
#include "base/private_fd.h"
#include "communicator/calling.h"
#include "communicator/making.h"
#include "driver/driver.h"

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
    static _Atomic uint64_t nmade;
    tuttiComm_t comm = tt_comm_blank();
    if (!comm || tt_handle_add(comm, TT_HANDLE_COMM)) {
        tt_comm_free_blank(comm);
        return NULL;
    }
    comm->core.rank = rank;
    comm->core.nranks = nranks;
    comm->number = atomic_fetch_add_explicit(&nmade, 1, memory_order_relaxed) + 1;
    comm->process = getpid();
    comm->device = config->device;
    comm->overlaps = config->overlaps;
    comm->host_pages_stay = config->host_pages_stay;
    comm->core.gpu = config->gpu;
    comm->init_timeout_ms = config->init_timeout_ms;
    comm->compute_threads = config->compute_threads;
    snprintf(comm->core.name, sizeof comm->core.name, "%s", config->name);
    return comm;
}

static tt_status give_up(const struct tt_participants *participants, tt_status status)
{
    if (participants->give_up) participants->give_up(participants->context, status);
    return status;
}

/* Whether every participant has got as far as having something to say. */
static bool all_came(const struct tt_making *making)
{
    for (int p = 0; p < making->participants->nparticipants; p++)
        if (making->everyone[p].status) return false;
    return true;
}

static bool all_listen(const struct tt_making *making)
{
    for (int p = 0; making->everyones_wires && p < making->participants->nparticipants; p++)
        if (making->everyones_wires[p].status) return false;
    return true;
}

static tt_status prepare(struct tt_making *making)
{
    making->comm = blank(making->rank, making->nranks, making->config);
    if (!making->comm) return tt_fail(TT_ERR_SYSTEM, "out of memory for a communicator");
    TT_TRY(tt_comm_links_init(&making->links, making->config));
    making->links.fabric.gpu = making->config->gpu;
    snprintf(making->comm->core.no_kernels, sizeof making->comm->core.no_kernels,
             "no rank of it has one");
    return tt_peer_info_init(&making->mine, &making->links.fabric, &making->fd_socket);
}

static tt_status gather_peers(struct tt_making *making)
{
    const struct tt_participants *participants = making->participants;
    if (making->member) making->status = prepare(making);
    making->mine.status = making->status;
    return participants->allgather(participants->context, &making->mine, making->everyone,
                                   sizeof making->mine);
}

/* Who knows the key that the participants share can make out this communicator's. */
static void derive_key(struct tt_making *making)
{
    const uint64_t secret = making->everyone[tt_making_participant(making, 0)].secret;
    crypto_generichash(making->comm->key, sizeof making->comm->key, (const uint8_t *)&secret,
                       sizeof secret, making->participants->key, TT_KEY_BYTES);
    memcpy(making->links.wires.key, making->comm->key, sizeof making->links.wires.key);
}

/* Who has ranks on other hosts in its communicator says where it listens. */
static tt_status gather_wires(struct tt_making *making)
{
    const struct tt_participants *participants = making->participants;
    struct tt_wires_info mine = {0};
    making->everyones_wires =
        calloc((size_t)participants->nparticipants, sizeof *making->everyones_wires);
    if (!making->everyones_wires)
        return give_up(participants,
                       tt_fail(TT_ERR_SYSTEM, "out of memory for the addresses of %d ranks",
                               participants->nparticipants));
    if (making->member && !making->status && tt_making_several_hosts(making, false)) {
        tt_driver_pcie_path(making->comm->core.gpu, making->links.wires.gpu_path);
        making->status = tt_wires_open(&making->wires, &making->links.wires, &mine);
    }
    mine.status = making->status;
    return participants->allgather(participants->context, &mine, making->everyones_wires,
                                   sizeof mine);
}

static const char *algorithm_name(enum tt_collective collective, uint64_t id)
{
    const struct tt_algorithm *algorithm = tt_algorithm_by_id(collective, id);
    return algorithm ? algorithm->name : NULL;
}

static tt_status begin(struct tt_making *making)
{
    tuttiComm_t comm = making->comm;
    struct tt_peer_info *infos = malloc((size_t)comm->core.nranks * sizeof *infos);
    if (!infos) return tt_fail(TT_ERR_SYSTEM, "out of memory for peers");
    for (int r = 0; r < comm->core.nranks; r++)
        infos[r] = making->everyone[tt_making_participant(making, r)];
    making->links.fabric.nbridges = tt_peers_may_bridge(infos, comm->core.nranks);
    const int fd_socket = making->fd_socket;
    making->fd_socket = -1;
    const tt_status status = tt_fabric_begin(&comm->core.fabric, infos, comm->core.rank,
                                             comm->core.nranks, fd_socket, &making->links.fabric);
    free(infos);
    return status;
}

static tt_status start_wires(struct tt_making *making)
{
    tuttiComm_t comm = making->comm;
    struct tt_wires_info *infos = malloc((size_t)comm->core.nranks * sizeof *infos);
    if (!infos) return tt_fail(TT_ERR_SYSTEM, "out of memory for peers");
    for (int r = 0; r < comm->core.nranks; r++)
        infos[r] = making->everyones_wires[tt_making_participant(making, r)];
    comm->setting.net_mbit = slowest_mbit(infos, comm->core.nranks);
    const tt_status status = tt_fabric_start_wires(comm->core.fabric, making->wires, infos);
    free(infos);
    TT_TRY(status);
    comm->core.fabric->wires = making->wires;
    making->wires = NULL;
    return TT_OK;
}

static tt_status attach(struct tt_making *making)
{
    tuttiComm_t comm = making->comm;
    TT_TRY(tt_fabric_attach(comm->core.fabric, making->participants->deadline_ns));
    TT_TRY(tt_engine_init(&comm->core.engine, comm->core.fabric, making->config->timeout_ms,
                          comm->core.name));
    comm->core.engine.algorithm_name = algorithm_name;
    comm->core.engine.late_ms = making->config->late_ms;
    return making->wires ? start_wires(making) : TT_OK;
}

static void finish(struct tt_making *making)
{
    tuttiComm_t comm = making->comm;
    const struct tt_fabric *fabric = comm->core.fabric;
    const struct tt_segment_header *header = fabric->segment->header;
    tt_fabric_finish(comm->core.fabric);
    comm->costs = making->links.costs;
    if (fabric->all_have_fast_rep_movsb && !making->links.costs_are_given)
        comm->costs = tt_costs_shipped(true);
    comm->setting.costs = &comm->costs;
    comm->setting.one_host = fabric->hosts->nhosts == 1;
    comm->setting.oversubscribed = fabric->some_oversubscribed;
    comm->setting.ranks_per_core = fabric->ranks_per_core;
    comm->setting.meet_bytes = header->meet_bytes;
    comm->setting.slot_bytes = header->slot_bytes;
    comm->setting.in_rank_order = making->config->deterministic;
    memcpy(comm->forced, making->config->forced, sizeof comm->forced);
    TT_INFO("communicator %s: rank %d of %d, %d of %d on this host, %s", comm->core.name,
            comm->core.rank, comm->core.nranks, fabric->local, fabric->nlocal,
            fabric->oversubscribed ? "more ranks than cores: yielding"
                                   : "a core for each rank: spinning");
    tt_comm_log_order(comm);
    tt_comm_log_complete(comm);
}

/* The rounds of making: all participants go through the same ones, and fail in the same one. */
static tt_status assemble(struct tt_making *making)
{
    TT_TRY(gather_peers(making));
    const bool came = all_came(making);
    if (making->comm && came) derive_key(making);
    if (came && tt_making_several_hosts(making, true)) TT_TRY(gather_wires(making));
    if (making->member && !making->status && came && all_listen(making))
        making->status = begin(making);
    TT_TRY(tt_making_agree(making));
    if (making->member) making->status = attach(making);
    TT_TRY(tt_making_agree(making));
    TT_TRY(tt_making_connect_gpus(making));
    if (making->member) finish(making);
    return TT_OK;
}

tt_status tt_comm_assemble(tuttiComm_t *out, const struct tt_participants *participants, int rank,
                           int nranks, const struct tt_comm_config *config)
{
    const size_t n = (size_t)participants->nparticipants;
    tt_comm_log_begin(config, rank);
    struct tt_making making = {.participants = participants,
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
            : give_up(participants,
                      tt_fail(TT_ERR_SYSTEM, "out of memory for the infos of %zu ranks", n));
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
