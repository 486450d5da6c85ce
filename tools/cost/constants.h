/* The constants of the model of calls on GPUs (tutti-plan cost): those of every GPU, and those of
 * each kind of link. Each has a value, a unit, and where it comes from. */
#ifndef TUTTI_TOOLS_COST_CONSTANTS_H
#define TUTTI_TOOLS_COST_CONSTANTS_H

#include <stdbool.h>
#include <stddef.h>

enum cost_kind {
    COST_MEASURED,  /* on one H100, by this project: docs/cuda-measured.md */
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
    /* of staged calls */
    COST_COPY,
    COST_WORDS,
    COST_NKEYS
};
extern const struct cost_constant cost_constants[COST_NKEYS];

/* Bandwidths are those of a GPU in each direction. */
enum cost_link_key {
    COST_BANDWIDTH, /* of the link; between hosts of a network device */
    COST_LATENCY,   /* what a message takes longer than on one GPU; between hosts a message */
    COST_FENCE,     /* the release behind what a step stores; between hosts the CPU's part */
    COST_MEMORY,    /* a GPU's memory, loads and stores together; between hosts a copy to or from
                     * memory of the host */
    COST_NLINK_KEYS
};

struct cost_link {
    const char *name; /* "nvlink4" */
    bool hosts;       /* between hosts: calls go through memory of the host */
    bool each;        /* between hosts: each GPU has a network device, else a host has one */
    bool shared;      /* no link: the ranks share one GPU */
    struct cost_constant at[COST_NLINK_KEYS];
};

/* The index-th link; NULL past the end. */
const struct cost_link *cost_link_at(int index);
/* NULL: there is no link of that name. */
const struct cost_link *cost_link_find(const char *name);

const char *cost_kind_name(enum cost_kind kind);

#endif
