/* The state of a walk: programs, blocks of threads, links. What one step does is in step.c, what
 * becomes of messages between hosts in bridge.c. */
#ifndef TUTTI_TOOLS_COST_WORLD_H
#define TUTTI_TOOLS_COST_WORLD_H

#include "base/hosts.h"
#include "cost/events.h"
#include "cost/walk.h"
#include "program/program.h"

enum { COST_ELEMENT = 4, COST_MOST_SLOTS = 64 };

/* A link of one channel: messages so far. */
struct cost_wire {
    unsigned long long sent, taken;
    unsigned long long said; /* taken, and the receiver's kernel has released them */
    unsigned long long told; /* of them, those whose `released` is known */
};

/* One of the link's last messages. */
struct cost_slot {
    double arrives; /* when the receiver can begin with it; INFINITY: not known yet */
    double nbytes;
    double released; /* when the sender can know that it is */
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

/* What the blocks of a rank share. Times: when it is free. */
struct cost_rank {
    double link_in;           /* the link into the GPU from GPUs of its host */
    double sent, taken;       /* bytes over that link */
    double host_out, host_in; /* PCIe between the GPU and memory of the host */
    double proxy;
    double net_out, net_in; /* the network device; of the host's first rank where a host has one */
    struct cost_busy busy;
};

/* All ranks; owned by cost_walk. On one host a block stands for all blocks of its rank and channel,
 * which do the same at the same time. On several hosts, each block is there: the proxies take their
 * messages one after the other. */
struct cost_world {
    const struct cost_call *call;
    struct tt_binding binding;
    struct cost_walk *walk;
    struct tt_program **programs; /* [nranks] */
    struct cost_block *blocks;    /* [nranks * nchannels] */
    struct cost_wire *wires;      /* [nranks * nranks * nchannels]: from, to, channel */
    struct cost_slot *slots;      /* [wires * walk->nslots] */
    struct cost_rank *ranks;      /* [nranks] */
    struct cost_events events;
    int nranks;
    int nrunning;   /* blocks that have steps left */
    int nchannels;  /* of the program, on several hosts times the copies */
    double nalike;  /* blocks for which each block stands */
    double nshares; /* blocks among which a link and a memory are divided */
};

static inline struct cost_block *cost_block_of(const struct cost_world *world, int rank,
                                               int channel)
{
    return &world->blocks[rank * world->nchannels + channel];
}

static inline size_t cost_wire_at(const struct cost_world *world, int from, int to, int channel)
{
    return ((size_t)from * (size_t)world->nranks + (size_t)to) * (size_t)world->nchannels +
           (size_t)channel;
}

static inline struct cost_wire *cost_wire_of(const struct cost_world *world, int from, int to,
                                             int channel)
{
    return &world->wires[cost_wire_at(world, from, to, channel)];
}

static inline struct cost_slot *cost_slot_of(const struct cost_world *world, int from, int to,
                                             int channel, unsigned long long number)
{
    const size_t nslots = (size_t)world->walk->nslots;
    return &world->slots[cost_wire_at(world, from, to, channel) * nslots + number % nslots];
}

static inline double cost_of_link(const struct cost_world *world, enum cost_link_key key)
{
    return world->call->link->at[key].value;
}

/* Whether messages between the ranks go over a bridge. */
static inline bool cost_is_bridged(const struct cost_world *world, int a, int b)
{
    const struct tt_hosts *hosts = world->call->hosts;
    return hosts && hosts->host_of[a] != hosts->host_of[b];
}

/* The block may be able to go on then. */
static inline void cost_wake(struct cost_world *world, int rank, int channel, double at)
{
    const struct cost_event event = {
        .at = at, .kind = COST_GO_ON, .rank = rank, .channel = channel};
    cost_events_push(&world->events, &event);
}

/* Whether the block has walked all steps of all rounds. */
bool cost_is_done(const struct cost_world *world, const struct cost_block *block, int channel);
/* What the block does at the time, if it can do anything: a step, or half of a meeting. */
void cost_go_on(struct cost_world *world, int rank, int channel, double at);

/* The kernel has published a message in the slot, or released `number` messages in all. */
void cost_bridge_publish(struct cost_world *world, int from, int to, int channel,
                         unsigned long long number, double at);
void cost_bridge_release(struct cost_world *world, int from, int to, int channel,
                         unsigned long long number, double at);
/* Any event but COST_GO_ON. */
void cost_bridge_go_on(struct cost_world *world, const struct cost_event *event);

#endif
