/* The model of a call on GPUs of several hosts that goes through memory of the host (staged): the
 * input is copied to pinned memory, the CPU's threads carry the call out, the result is copied
 * back. Copies do not overlap the call.
 */
#ifndef TUTTI_TOOLS_COST_STAGED_H
#define TUTTI_TOOLS_COST_STAGED_H

#include "algorithms/algorithms.h"
#include "cost/constants.h"

/* A call. Plain data. */
struct cost_staged_call {
    enum tt_collective collective;
    const struct tt_algorithm *algorithm; /* NULL: chosen as the library does */
    const struct cost_link *link;
    const struct tt_hosts *hosts; /* borrowed */
    int nranks;
    size_t nbytes; /* of all data of the call */
};

struct cost_staged {
    const struct tt_algorithm *algorithm;
    double in_bytes, out_bytes; /* most that a rank copies */
    double in_us, out_us;       /* the copies */
    double words_us;            /* stream and host tell one another */
    double host_us;             /* the CPU's threads, without the network */
    double net_us;              /* messages between hosts */
    double us;                  /* the sum */
};

/* TT_ERR_USAGE: the algorithm cannot run on these hosts. */
TT_NODISCARD tt_status cost_staged(const struct cost_staged_call *call, struct cost_staged *out);

#endif
