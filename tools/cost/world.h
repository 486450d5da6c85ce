/* The state of a walk: programs, blocks of threads, links. What one step does is in step.c. */
#ifndef TUTTI_TOOLS_COST_WORLD_H
#define TUTTI_TOOLS_COST_WORLD_H

#include "cost/walk.h"
#include "program/program.h"

enum { COST_ELEMENT = 4, COST_MOST_SLOTS = 64 };

/* A link of one channel, as a ring of its last messages. */
struct cost_wire {
    unsigned long long sent, taken, told; /* told: taken, and the sender can know it */
    double arrives[COST_MOST_SLOTS], nbytes[COST_MOST_SLOTS];
    double released[COST_MOST_SLOTS]; /* when the sender can know it */
};

/* One block of threads. */
struct cost_block {
    const struct tt_program *program;
    uint32_t step;
    size_t round;
    double now;
    struct cost_step *steps;
    unsigned long long meetings; /* begun */
    double met[2];               /* when what it put in can be read, of the last two meetings */
    bool has_put;
};

/* All ranks; owned by cost_walk. */
struct cost_world {
    const struct cost_call *call;
    struct tt_binding binding;
    struct cost_walk *walk;
    struct tt_program **programs; /* [nranks] */
    struct cost_block *blocks;    /* [nranks * nchannels] */
    struct cost_wire *wires;      /* [nranks * nranks * nchannels]: from, to, channel */
    double *port;                 /* [nranks]: when the link into the GPU is free */
    double *sent, *taken;         /* [nranks] bytes over the link */
    int nranks, nchannels;
    double copies;
};

static inline struct cost_block *cost_block_of(const struct cost_world *world, int rank,
                                               int channel)
{
    return &world->blocks[rank * world->nchannels + channel];
}

static inline double cost_of_link(const struct cost_world *world, enum cost_link_key key)
{
    return world->call->link->at[key].value;
}

/* Whether the block has walked all steps of all rounds. */
bool cost_is_done(const struct cost_world *world, const struct cost_block *block, int channel);
/* One step of one block, or half of a meeting. False: it has ended, or has to wait for what another
 * block has not done yet. */
bool cost_go_on(const struct cost_world *world, int rank, int channel);

#endif
