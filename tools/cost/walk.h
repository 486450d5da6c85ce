/* The model of a call that kernels carry out, on one host or over bridges on several: the programs
 * of all ranks, bound as the library binds them, walked step by step with the times of constants.h.
 * No GPU is needed, and none is asked. */
#ifndef TUTTI_TOOLS_COST_WALK_H
#define TUTTI_TOOLS_COST_WALK_H

#include "algorithms/algorithms.h"
#include "cost/constants.h"

/* A call. Plain data. */
struct cost_call {
    const struct tt_algorithm *algorithm;
    const struct cost_link *link;    /* inside a host */
    const struct cost_link *between; /* between hosts; NULL: there is one host */
    const struct tt_hosts *hosts;    /* borrowed; NULL: there is one */
    int nranks, root;
    int nblocks;    /* of threads that a rank may have in a call */
    bool takes_all; /* all of them, also between hosts where the library would take fewer */
    int nthreads;
    size_t nbytes; /* of all data of the call, float32 */
};

/* What bounds how long a step moves data. */
enum cost_limit {
    COST_BY_BLOCK,
    COST_BY_LINK,
    COST_BY_MEMORY,
    COST_BY_HOST, /* PCIe to memory of the host */
    COST_NLIMITS
};

/* What is busy for messages to other hosts, and for how long. */
struct cost_busy {
    double proxy_us;              /* the rank's proxy */
    double net_out_us, net_in_us; /* the network device; of the host's first rank where a host has
                                   * one */
    double net_bytes;             /* that the rank sends to other hosts */
};

/* One step of a rank, over all rounds, on one of its blocks of threads; bytes are of all blocks of
 * the rank that run this channel. */
struct cost_step {
    int channel, index;
    unsigned long long messages; /* sent and taken, of a block */
    unsigned long long fences;
    double wait_us;  /* for messages, and for slots to be free */
    double fixed_us; /* step and messages */
    double fence_us;
    double data_us;
    double limit_us[COST_NLIMITS]; /* of data_us, by what it is bounded */
    double loaded, stored;         /* bytes, by the rank: also into slots of others */
    double over_link; /* bytes that the rank stores into, or loads from, other GPUs of its host */
    double over_net;  /* bytes that it stores for other hosts */
};

/* The rank and channel that end last. */
struct cost_walk {
    int rank, channel;
    int nblocks; /* of threads, that the call has on each rank */
    int nslots;  /* of a link */
    size_t slot_bytes, line_bytes;
    size_t nrounds, piece; /* piece: bytes of a block of the data that a round takes */
    bool lines;
    struct cost_step *steps;
    int nsteps;
    unsigned long long fences; /* of all steps */
    double call_us;            /* what a call takes beside its steps */
    double steps_us;           /* the sum of what the steps take */
    double us;                 /* of the call: both */
    double link_us;  /* least time: the most bytes that any rank sends or takes, over the link */
    double net_us;   /* least time: of the network device that has most to send or take */
    double proxy_us; /* of the proxy that has most to do */
    struct cost_busy *busy; /* [nranks] */
};

/* The slots and lines that links between so many ranks have, and what the choice depends on.
 * between, hosts: as in struct cost_call. */
struct tt_setting cost_setting(int nranks, int nblocks, const struct cost_link *between,
                               const struct tt_hosts *hosts);
/* How many bytes a call of float32 with `nbytes` has in the end: a whole number of elements for
 * each of the blocks. */
size_t cost_count(const struct tt_algorithm *algorithm, int nranks, size_t nbytes);
/* Bus bandwidth / algorithm bandwidth, as nccl-tests defines it. */
double cost_bus_factor(enum tt_collective collective, int nranks);

/* Walks the call. Free with cost_walk_free. TT_ERR_USAGE: the algorithm cannot run so. */
TT_NODISCARD tt_status cost_walk(const struct cost_call *call, struct cost_walk *walk);
void cost_walk_free(struct cost_walk *walk);

#endif
