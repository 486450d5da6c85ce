/* The info that all ranks exchange before they are connected, and checks of it. */
#ifndef TT_TRANSPORT_PEERS_H
#define TT_TRANSPORT_PEERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/hosts.h"
#include "base/status.h"
#include "transport/host/fdpass.h"

/* Settings of one rank's fabric. Plain data. */
struct tt_fabric_config {
    size_t nslots, slot_bytes, meet_bytes; /* the same on all ranks, as is nchannels */
    size_t slots_setting; /* TUTTI_SLOTS; 0: nslots is the default, and may become less */
    int nchannels;        /* of two ranks: TUTTI_CHANNELS and the one of point to point */
    bool allow_bridges;   /* TUTTI_DEVICE_BRIDGES */
    bool allow_kernels;   /* TUTTI_DEVICE_KERNELS; may differ between ranks */
    int nbridges;         /* 1: two ranks have one more channel, for bridges between GPUs; or 0. As
                           * tt_peers_may_bridge says of all ranks */
    int copies;           /* of a collective's program that run side by side; 0: as 1 */
    bool oversubscribed;  /* known from a parent communicator */
    bool allow_window, allow_cma;
    bool always_spin;    /* whatever the number of cores */
    bool deterministic;  /* of the communicator; the fabric only compares it */
    uint32_t costs;      /* checksum of the cost model's constants; the fabric only compares it */
    int gpu;             /* of this rank, -1: none; the fabric only tells the others */
    int compute_threads; /* of this rank */
    bool has_fast_rep_movsb; /* tt_has_fast_rep_movsb of this rank's CPU */
};

/* Plain data, travels through bootstrap. */
struct tt_peer_info {
    uint64_t host_id, machine_id;
    uint64_t process_id; /* random, one per process: equal means same address space */
    uint64_t secret; /* rank 0's is the communicator's, that of a host's first rank the host's */
    struct tt_fd_address fd_address;
    int32_t pid;
    int32_t status; /* of getting this far; not TT_OK: the rest does not count */
    uint32_t nslots, slots_setting, slot_bytes, meet_bytes, nchannels, copies, deterministic, costs;
    int32_t gpu;
    uint8_t allow_bridges, allow_kernels;
    uint8_t oversubscribed, always_spin, has_fast_rep_movsb; /* as in its config */
    uint64_t most_bytes; /* of a shared file that it may map, by its limits */
    uint64_t cpus[16];   /* CPUs this process may run on, one bit each */
    char host[64];
};

/* Fills this rank's info; opens the socket for passing descriptors. */
TT_NODISCARD tt_status tt_peer_info_init(struct tt_peer_info *info,
                                         const struct tt_fabric_config *config, int *fd_socket);

/* Rounds and meetings are cut, links numbered and algorithms chosen by these settings: TT_ERR_USAGE
 * names two ranks that differ. */
TT_NODISCARD tt_status tt_peers_check_settings(const struct tt_peer_info *infos, int nranks);

/* Whether kernels may reach ranks that have no GPU of their host: all ranks allow it, and there is
 * a rank with a GPU, and one without or on another host. The same answer on every rank. */
bool tt_peers_may_bridge(const struct tt_peer_info *infos, int nranks);

/* Ranks that say they share a host must share a machine: TT_ERR_USAGE names two that do not. */
TT_NODISCARD tt_status tt_peers_check_hosts(const struct tt_peer_info *infos,
                                            const struct tt_hosts *hosts);

/* The ranks on a host's machine, divided by the CPUs that they may run on; 1 where these are not
 * known. The same answer on every rank. */
double tt_peers_per_core(const struct tt_peer_info *infos, const struct tt_hosts *hosts, int host);

/* Whether a host's machine has more ranks than CPUs that they may run on; as the host's first rank
 * is set, where that says. The same answer on every rank. */
bool tt_peers_oversubscribed(const struct tt_peer_info *infos, const struct tt_hosts *hosts,
                             int host);

#endif
