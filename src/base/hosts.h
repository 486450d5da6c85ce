/* Which rank is on which host, and the groups that follow from it: the ranks of a host, and the
 * lanes, which take one rank of every host. Plain data. */
#ifndef TT_BASE_HOSTS_H
#define TT_BASE_HOSTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* Some ranks in an order. ranks NULL: no group. Borrowed from a tt_hosts. */
struct tt_group {
    const int32_t *ranks; /* [number] */
    int32_t number;
    bool replaces; /* place `at` is rank `by`, not ranks[at] */
    int32_t at, by;
};

static inline int tt_group_rank(const struct tt_group *group, int place)
{
    return group->replaces && place == group->at ? group->by : group->ranks[place];
}

/* Owned by its creator; immutable; freed by tt_hosts_destroy. Hosts are numbered in the order of
 * their first ranks. */
struct tt_hosts {
    int nranks, nhosts;
    int least, most;   /* ranks of the smallest and of the largest host */
    int32_t *host_of;  /* [nranks] */
    int32_t *local_of; /* [nranks]: place among the ranks of its host, which are in rank order */
    int32_t *begin;    /* [nhosts + 1]: where a host's ranks begin in `ranks` */
    int32_t *ranks;    /* [nranks]: the ranks host by host */
    int32_t *lanes;    /* [least * nhosts]: lanes[l * nhosts + h] = the l-th rank of host h. With
                        * as many ranks on every host this too is an order of all ranks */
    bool one_host;     /* the "hosts" are groups of one host (tt_hosts_by_distance) */
};

/* How kernels of GPUs reach ranks of other hosts: by bridges, whose messages lie in memory of the
 * host, or, OF_GPUS, in that of GPUs, where RDMA devices use it. */
enum tt_bridge_way {
    TT_NO_BRIDGES,
    TT_BRIDGES_BY_TCP,
    TT_BRIDGES_BY_RDMA,
    TT_BRIDGES_OF_GPUS,
    TT_NBRIDGE_WAYS
};

/* From every rank's host identity: equal means same host. TT_ERR_SYSTEM without memory. */
TT_NODISCARD tt_status tt_hosts_create(const uint64_t *ids, int nranks, struct tt_hosts **hosts);
/* Groups of one host that are far from one another: distances[a * nranks + b], of which the larger
 * of both directions counts; 0: not known. Ranks of different groups are as far from one another as
 * any. *groups: NULL where there is one group, or each rank would be one, or nothing is known of a
 * pair. Errors as tt_hosts_create. */
TT_NODISCARD tt_status tt_hosts_by_distance(const uint8_t *distances, int nranks,
                                            struct tt_hosts **groups);
void tt_hosts_destroy(struct tt_hosts *hosts);
/* Bytes of memory held. */
size_t tt_hosts_bytes(const struct tt_hosts *hosts);

static inline int tt_hosts_size(const struct tt_hosts *hosts, int host)
{
    return hosts->begin[host + 1] - hosts->begin[host];
}

/* The hosts; NULL where they are groups of one host. */
static inline const struct tt_hosts *tt_hosts_apart(const struct tt_hosts *hosts)
{
    return hosts && hosts->one_host ? NULL : hosts;
}

/* The ranks of a host, in rank order. */
static inline struct tt_group tt_hosts_inside(const struct tt_hosts *hosts, int host)
{
    return (struct tt_group){.ranks = hosts->ranks + hosts->begin[host],
                             .number = tt_hosts_size(hosts, host)};
}

/* The rank number lane of every host, 0 <= lane < least, in the order of hosts. */
static inline struct tt_group tt_hosts_lane(const struct tt_hosts *hosts, int lane)
{
    return (struct tt_group){.ranks = hosts->lanes + (int64_t)lane * hosts->nhosts,
                             .number = hosts->nhosts};
}

/* Whether every host has the same number of ranks. */
static inline bool tt_hosts_even(const struct tt_hosts *hosts)
{
    return hosts->least == hosts->most;
}

#endif
