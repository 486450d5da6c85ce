/* The constants of the model of calls on GPUs (tutti-plan cost): those of every GPU, those of the
 * way between GPUs and other hosts, and those of each kind of link. Each has a value, a unit, and
 * where it comes from. */
#ifndef TUTTI_TOOLS_COST_CONSTANTS_H
#define TUTTI_TOOLS_COST_CONSTANTS_H

#include <stdbool.h>
#include <stddef.h>

#include "base/hosts.h"

enum cost_kind {
    COST_MEASURED,  /* by this project: on one H100 (docs/cuda-measured.md), what a processor takes
                     * on another machine (tests/carrier/bridge_times.c) */
    COST_FITTED,    /* to all-reduces that were measured there */
    COST_COUNTED,   /* in the code, by a test */
    COST_PUBLISHED, /* by others */
    COST_ESTIMATED  /* none of these */
};

struct cost_constant {
    const char *name; /* NULL: there is no such constant */
    double value;
    const char *unit;
    enum cost_kind kind;
    const char *source; /* what it is, and where the value comes from */
};

enum cost_key {
    /* of kernels: COST_CALL to COST_STORE */
    COST_CALL,
    COST_LAUNCH,
    COST_STEP,
    COST_MESSAGE,
    COST_MEETING,
    COST_FLAG,
    COST_ACQUIRE,
    COST_SLOTS_IN_FLIGHT,
    COST_LINES_IN_FLIGHT,
    COST_LOAD,
    COST_STORE,
    /* of bridges to other hosts: COST_HOST_FLAG to COST_PROXY_COPY */
    COST_HOST_FLAG,
    COST_HOST_LOAD,
    COST_HOST_FENCE,
    COST_HOST_MEMORY,
    COST_PROXY_FRAME,
    COST_PROXY_COPY,
    /* of staged calls: COST_COPY to COST_PINNED */
    COST_COPY,
    COST_WORDS,
    COST_PINNED,
    COST_NKEYS
};
extern const struct cost_constant cost_constants[COST_NKEYS];

/* Bandwidths are those of a GPU, or of a network device, in each direction. */
enum cost_link_key {
    COST_BANDWIDTH, /* of the link; between hosts of a network device */
    COST_LATENCY,   /* what a message takes longer than on one GPU; between hosts on the way */
    COST_FENCE,     /* the release behind what a step stores; between hosts what the network takes
                     * of a proxy for each frame that it sends or takes */
    COST_MEMORY,    /* a GPU's memory, loads and stores together; not between hosts */
    COST_BYTES_OUT, /* between hosts: bytes that the system copies for a proxy that sends */
    COST_BYTES_IN,  /* between hosts: bytes that the system copies for a proxy that takes */
    COST_FLUSH,     /* between hosts: until what a device has stored to a GPU can be read there */
    COST_NLINK_KEYS
};

struct cost_link {
    const char *name;       /* "nvlink4" */
    bool hosts;             /* between hosts */
    bool each;              /* between hosts: each GPU has a network device, else a host has one */
    bool direct;            /* between hosts: devices read and write memory of GPUs */
    bool shared;            /* no link: the ranks share one GPU */
    enum tt_bridge_way way; /* between hosts: by whose constants the library chooses */
    struct cost_constant at[COST_NLINK_KEYS];
};

/* The index-th link; NULL past the end. */
const struct cost_link *cost_link_at(int index);
/* NULL: there is no link of that name. */
const struct cost_link *cost_link_find(const char *name);

const char *cost_kind_name(enum cost_kind kind);

#endif
