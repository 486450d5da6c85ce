/* Checks that the settings and hosts of all ranks agree, and counts the cores that they share. */
#include "transport/peers.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/clock.h"
#include "topology/topology.h"

static uint64_t process_id;
static pthread_once_t process_once = PTHREAD_ONCE_INIT;

static void draw_process_id(void)
{
    if (getrandom(&process_id, sizeof process_id, 0) != sizeof process_id)
        process_id = (uint64_t)tt_now_ns() << 20 ^ (uint64_t)getpid();
}

/* Half of the address space is left to the rest of the process. */
static uint64_t most_bytes(void)
{
    struct rlimit space = {.rlim_cur = RLIM_INFINITY}, file = {.rlim_cur = RLIM_INFINITY};
    (void)getrlimit(RLIMIT_AS, &space);
    (void)getrlimit(RLIMIT_FSIZE, &file);
    const uint64_t most = space.rlim_cur == RLIM_INFINITY ? UINT64_MAX : space.rlim_cur / 2;
    return file.rlim_cur != RLIM_INFINITY && file.rlim_cur < most ? file.rlim_cur : most;
}

tt_status tt_peer_info_init(struct tt_peer_info *info, const struct tt_fabric_config *config,
                            int *fd_socket)
{
    pthread_once(&process_once, draw_process_id);
    struct tt_peer_info mine = {.host_id = tt_host_id(),
                                .machine_id = tt_machine_id(),
                                .process_id = process_id ^ (uint64_t)getpid(),
                                .pid = getpid(),
                                .nslots = (uint32_t)config->nslots,
                                .slots_setting = (uint32_t)config->slots_setting,
                                .slot_bytes = (uint32_t)config->slot_bytes,
                                .meet_bytes = (uint32_t)config->meet_bytes,
                                .nchannels = (uint32_t)config->nchannels,
                                .allow_bridges = config->allow_bridges,
                                .allow_kernels = config->allow_kernels,
                                .copies = (uint32_t)config->copies,
                                .deterministic = config->deterministic,
                                .costs = config->costs,
                                .gpu = config->gpu,
                                .most_bytes = most_bytes(),
                                .oversubscribed = config->oversubscribed,
                                .always_spin = config->always_spin,
                                .has_fast_rep_movsb = config->has_fast_rep_movsb};
    if (getrandom(&mine.secret, sizeof mine.secret, 0) != sizeof mine.secret)
        return tt_fail_errno(errno, "getrandom failed");
    if (gethostname(mine.host, sizeof mine.host - 1)) snprintf(mine.host, sizeof mine.host, "?");
    cpu_set_t set;
    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof set, &set) == 0)
        for (size_t cpu = 0; cpu < 1024; cpu++)
            if (CPU_ISSET(cpu, &set)) mine.cpus[cpu / 64] |= 1ull << (cpu % 64);
    TT_TRY(tt_fdpass_open(fd_socket, &mine.fd_address));
    *info = mine;
    return TT_OK;
}

static tt_status check_setting(const char *name, const struct tt_peer_info *infos, int rank,
                               uint32_t value, uint32_t first)
{
    if (value == first) return TT_OK;
    return tt_fail(TT_ERR_USAGE,
                   "rank 0 (host %s, pid %d) has %s=%u, rank %d (host %s, pid %d) has %u: give all "
                   "ranks the same",
                   infos[0].host, infos[0].pid, name, first, rank, infos[rank].host,
                   infos[rank].pid, value);
}

/* Ranks with other constants would choose other algorithms. */
static tt_status check_costs(const struct tt_peer_info *infos, int rank)
{
    if (infos[rank].costs == infos[0].costs) return TT_OK;
    return tt_fail(
        TT_ERR_USAGE,
        "rank 0 (host %s, pid %d) and rank %d (host %s, pid %d) have different constants "
        "of the cost model: TUTTI_COST_FILE must name files with the same values on all "
        "ranks, or none",
        infos[0].host, infos[0].pid, rank, infos[rank].host, infos[rank].pid);
}

tt_status tt_peers_check_settings(const struct tt_peer_info *infos, int nranks)
{
    for (int r = 1; r < nranks; r++) {
        TT_TRY(
            check_setting("TUTTI_SLOTS", infos, r, infos[r].slots_setting, infos[0].slots_setting));
        TT_TRY(
            check_setting("TUTTI_SLOT_BYTES", infos, r, infos[r].slot_bytes, infos[0].slot_bytes));
        TT_TRY(
            check_setting("TUTTI_MEET_BYTES", infos, r, infos[r].meet_bytes, infos[0].meet_bytes));
        TT_TRY(check_setting("TUTTI_DEVICE_BRIDGES", infos, r, infos[r].allow_bridges,
                             infos[0].allow_bridges));
        TT_TRY(check_setting("TUTTI_CHANNELS", infos, r, infos[r].nchannels - 1,
                             infos[0].nchannels - 1));
        TT_TRY(check_setting("TUTTI_COPIES", infos, r, infos[r].copies, infos[0].copies));
        TT_TRY(check_setting("TUTTI_DETERMINISTIC", infos, r, infos[r].deterministic,
                             infos[0].deterministic));
        TT_TRY(check_costs(infos, r));
    }
    return TT_OK;
}

bool tt_peers_may_bridge(const struct tt_peer_info *infos, int nranks)
{
    bool has_gpu = false, has_others = false;
    for (int r = 0; r < nranks; r++) {
        const struct tt_peer_info *info = &infos[r];
        if (!info->allow_bridges || !info->allow_kernels) return false;
        has_gpu |= info->gpu >= 0;
        has_others |= info->gpu < 0 || info->host_id != infos[0].host_id;
    }
    return has_gpu && has_others;
}

tt_status tt_peers_check_hosts(const struct tt_peer_info *infos, const struct tt_hosts *hosts)
{
    for (int r = 0; r < hosts->nranks; r++) {
        const int first = tt_hosts_inside(hosts, hosts->host_of[r]).ranks[0];
        if (infos[r].machine_id == infos[first].machine_id) continue;
        return tt_fail(TT_ERR_USAGE,
                       "rank %d (host %s, pid %d) and rank %d (host %s, pid %d) have the same host "
                       "identity on different machines: give each machine a TUTTI_HOST_ID of its "
                       "own, or none",
                       first, infos[first].host, infos[first].pid, r, infos[r].host, infos[r].pid);
    }
    return TT_OK;
}

bool tt_peers_oversubscribed(const struct tt_peer_info *infos, const struct tt_hosts *hosts,
                             int host)
{
    const struct tt_peer_info *first = &infos[tt_hosts_inside(hosts, host).ranks[0]];
    if (first->always_spin || first->oversubscribed) return !first->always_spin;
    return tt_peers_per_core(infos, hosts, host) > 1;
}

double tt_peers_per_core(const struct tt_peer_info *infos, const struct tt_hosts *hosts, int host)
{
    const struct tt_peer_info *first = &infos[tt_hosts_inside(hosts, host).ranks[0]];
    int ncpus = 0, sharing = 0;
    uint64_t cpus[16] = {0};
    for (int r = 0; r < hosts->nranks; r++) {
        if (infos[r].machine_id != first->machine_id) continue;
        sharing++;
        for (int word = 0; word < 16; word++) cpus[word] |= infos[r].cpus[word];
    }
    for (int word = 0; word < 16; word++) ncpus += __builtin_popcountll(cpus[word]);
    return ncpus > 0 ? (double)sharing / ncpus : 1;
}
