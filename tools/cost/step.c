/* One step of one block of threads: what it moves, how long that takes, and what it tells others.
 */
#include <math.h>

#include "cost/world.h"
#include "transport/device/end.h"

/* What a step, or a half of a meeting, does on one block of threads; in bytes. */
struct moves {
    double loaded, stored;     /* by the block */
    double remote;             /* of both, what goes over the link to GPUs of the host */
    double to_host, from_host; /* of stored, and of loaded, what is in pinned memory */
    double to_net;             /* that it stores for other hosts, wherever */
    double arrived;            /* that others have stored into this GPU's memory for the step */
    double in_flight;          /* of a thread */
    unsigned steps;            /* 0: the step was counted before */
    unsigned messages;         /* sent and taken */
    unsigned meetings;
    bool fence;
    bool of_host; /* the fence is only behind what is of other hosts */
};

static double constant(enum cost_key key)
{
    return cost_constants[key].value;
}

/* ---- What a step moves ---------------------------------------------------------------------- */

static double span_bytes(const struct cost_world *world, const struct cost_block *block,
                         int channel, const struct tt_program_span *span)
{
    return (double)tt_span_count(block->program, &world->binding, span, channel, block->round) *
           COST_ELEMENT;
}

/* As the kernel decides: one piece that stays unchanged until the call ends. */
static bool refers(const struct cost_world *world, const struct cost_block *block,
                   const struct tt_program_step *step, double nbytes)
{
    bool may = false;
    if (!world->call->link->shared || world->walk->lines || !block->program->direct_safe)
        return false;
    for (int i = 0; i < 2; i++) {
        const struct tt_program_span *span = i ? &step->dst : &step->local;
        if (!span->number) continue;
        may = step->nsend && span->buffer != TT_SCRATCH &&
              (span->number == 1 || tt_span_is_whole(&world->binding, span)) &&
              !(i == 0 && (step->nrecv || step->finish)) && nbytes >= TT_REFERENCE_BYTES;
    }
    return may;
}

/* How many of the links lead to other hosts. */
static unsigned count_bridged(const struct cost_world *world, const struct cost_block *block,
                              uint32_t first, uint32_t n)
{
    const struct tt_program_link *links = tt_program_links(block->program) + first;
    unsigned number = 0;
    for (uint32_t i = 0; i < n; i++)
        number += cost_is_bridged(world, block->program->rank, links[i].peer);
    return number;
}

/* Of what is for other hosts, and from there, the kernels' slots are in pinned memory, or, where
 * network devices reach the GPU, in its own. nbytes: of the step's result. */
static struct moves moves_of(const struct cost_world *world, const struct cost_block *block,
                             const struct tt_program_step *step, double nbytes)
{
    const bool lines = world->walk->lines;
    const bool pinned = world->call->between && !world->call->between->direct;
    const double message = lines ? 2 * nbytes : nbytes;
    const bool slots = step->nsend && !refers(world, block, step, nbytes);
    const double out = slots ? step->nsend * message : 0;
    const double kept = step->dst.number ? nbytes : 0;
    const unsigned nout = count_bridged(world, block, step->send, step->nsend);
    const unsigned nin = count_bridged(world, block, step->recv, step->nrecv);
    struct moves moves = {.stored = out + kept,
                          .remote = slots ? (step->nsend - nout) * message : 0,
                          .to_net = nout * nbytes,
                          .arrived = (step->nrecv - (pinned ? nin : 0)) * message,
                          .in_flight =
                              constant(lines ? COST_LINES_IN_FLIGHT : COST_SLOTS_IN_FLIGHT),
                          .steps = 1,
                          .messages = step->nrecv + step->nsend};
    moves.of_host = nin + nout > 0 && nin + nout == moves.messages;
    if (moves.stored > 0 || lines)
        moves.loaded = step->nrecv * message + (step->local.number ? nbytes : 0);
    if (pinned) moves.to_host = nout * nbytes;
    if (pinned && moves.loaded > 0) moves.from_host = nin * nbytes;
    return moves;
}

/* ---- Times ---------------------------------------------------------------------------------- */

/* Over the link into or out of a GPU. nblocks: of the blocks that use it at the same time. */
static double link_us(const struct cost_world *world, double nbytes, double nblocks)
{
    if (world->call->link->shared) return 0;
    return nblocks * nbytes / (cost_of_link(world, COST_BANDWIDTH) * 1e3);
}

/* Through PCIe, behind what other blocks of the rank have begun to move before. */
static double host_us(const struct cost_world *world, int rank, const struct moves *moves,
                      double begin)
{
    const double bytes_us = constant(COST_HOST_MEMORY) * 1e3;
    struct cost_rank *of = &world->ranks[rank];
    double end = begin;
    if (moves->to_host > 0)
        end = of->host_out = fmax(of->host_out, begin) + moves->to_host / bytes_us;
    if (moves->from_host > 0) {
        of->host_in = fmax(of->host_in, begin) + moves->from_host / bytes_us;
        end = fmax(end, of->host_in);
    }
    return end - begin;
}

static double data_us(const struct cost_world *world, int rank, const struct moves *moves,
                      double begin, enum cost_limit *by)
{
    const double unit = moves->in_flight * world->call->nthreads;
    const bool shared = world->call->link->shared;
    const double loaded = moves->loaded - moves->from_host;
    /* What others store here counts too; what goes to them is stored there. */
    const double memory =
        loaded + moves->stored - moves->to_host + (shared ? 0 : moves->arrived - moves->remote);
    const double us[COST_NLIMITS] = {
        [COST_BY_BLOCK] = loaded / unit * constant(COST_LOAD) +
                          moves->from_host / unit * constant(COST_HOST_LOAD) +
                          moves->stored / unit * constant(COST_STORE),
        [COST_BY_LINK] = link_us(world, moves->remote, world->nshares),
        [COST_BY_MEMORY] = world->nshares * memory * (shared ? world->nranks : 1) /
                           (cost_of_link(world, COST_MEMORY) * 1e3),
        [COST_BY_HOST] = host_us(world, rank, moves, begin)};
    *by = COST_BY_BLOCK;
    for (int i = 1; i < COST_NLIMITS; i++)
        if (us[i] > us[*by]) *by = (enum cost_limit)i;
    return us[*by];
}

/* Counts it, and moves the block's time on. */
static void spend(const struct cost_world *world, int rank, struct cost_block *block, double begin,
                  const struct moves *moves)
{
    struct cost_step *step = &block->steps[block->step];
    enum cost_limit by;
    const double fixed = moves->steps * constant(COST_STEP) +
                         moves->messages * constant(COST_MESSAGE) +
                         moves->meetings * constant(COST_MEETING);
    const double data = data_us(world, rank, moves, begin + fixed, &by);
    const double fence =
        moves->of_host ? constant(COST_HOST_FENCE) : cost_of_link(world, COST_FENCE);
    const double told = moves->fence ? fence : 0;
    step->wait_us += begin - block->now;
    step->fixed_us += fixed;
    step->data_us += data;
    step->limit_us[by] += data;
    step->fence_us += told;
    step->fences += moves->fence;
    step->messages += moves->messages;
    step->loaded += world->nshares * moves->loaded;
    step->stored += world->nshares * moves->stored;
    step->over_link += world->call->link->shared ? 0 : world->nshares * moves->remote;
    step->over_net += world->nshares * moves->to_net;
    block->now = begin + fixed + data + told;
}

/* Inside a host. */
static double hop_us(const struct cost_world *world)
{
    return constant(COST_FLAG) + (world->walk->lines ? 0 : constant(COST_ACQUIRE)) +
           cost_of_link(world, COST_LATENCY);
}

/* ---- Messages ------------------------------------------------------------------------------- */

/* When the step can begin; INFINITY: what it waits for has not happened yet. */
static double ready_at(const struct cost_world *world, int rank, int channel,
                       const struct tt_program_step *step)
{
    const struct cost_block *block = cost_block_of(world, rank, channel);
    const struct tt_program_link *links = tt_program_links(block->program);
    const unsigned nslots = (unsigned)world->walk->nslots;
    double ready = block->now;
    for (uint32_t i = 0; i < step->nrecv; i++) {
        const int from = links[step->recv + i].peer;
        const struct cost_wire *wire = cost_wire_of(world, from, rank, channel);
        if (wire->taken == wire->sent) return INFINITY;
        ready = fmax(ready, cost_slot_of(world, from, rank, channel, wire->taken)->arrives);
    }
    for (uint32_t i = 0; i < step->nsend; i++) {
        const int to = links[step->send + i].peer;
        const struct cost_wire *wire = cost_wire_of(world, rank, to, channel);
        if (wire->sent - wire->told >= nslots) return INFINITY;
        if (wire->sent >= nslots)
            ready = fmax(ready, cost_slot_of(world, rank, to, channel, wire->sent)->released);
    }
    return ready;
}

/* Bytes of a step's result: those of its spans, else of the message that it sends on. */
static double result_bytes(const struct cost_world *world, int rank, int channel,
                           const struct tt_program_step *step)
{
    const struct cost_block *block = cost_block_of(world, rank, channel);
    if (step->dst.number) return span_bytes(world, block, channel, &step->dst);
    if (step->local.number) return span_bytes(world, block, channel, &step->local);
    if (!step->nrecv) return 0;
    const int from = tt_program_links(block->program)[step->recv].peer;
    const struct cost_wire *wire = cost_wire_of(world, from, rank, channel);
    return cost_slot_of(world, from, rank, channel, wire->taken)->nbytes;
}

/* remote: bytes of the message that go over the link. */
static void send(struct cost_world *world, int rank, int to, int channel, double nbytes,
                 double remote, double begin)
{
    struct cost_wire *wire = cost_wire_of(world, rank, to, channel);
    struct cost_slot *slot = cost_slot_of(world, rank, to, channel, wire->sent);
    const double now = cost_block_of(world, rank, channel)->now;
    struct cost_rank *sender = &world->ranks[rank], *receiver = &world->ranks[to];
    slot->nbytes = nbytes;
    if (cost_is_bridged(world, rank, to)) {
        cost_bridge_publish(world, rank, to, channel, wire->sent++, now);
        return;
    }
    receiver->link_in = fmax(receiver->link_in, begin) + link_us(world, remote, world->nalike);
    sender->sent += world->nalike * remote;
    receiver->taken += world->nalike * remote;
    slot->arrives = fmax(now, receiver->link_in) + hop_us(world);
    wire->sent++;
    cost_wake(world, to, channel, slot->arrives);
}

/* Whether the block has to tell what it has read; a fence behind what it has sent tells that too.
 */
static bool has_read_enough(const struct cost_world *world, int rank, int channel)
{
    const unsigned most = world->walk->nslots > 2 ? 2 : 1;
    for (int from = 0; from < world->nranks; from++) {
        const struct cost_wire *wire = cost_wire_of(world, from, rank, channel);
        if (wire->taken - wire->said >= most) return true;
    }
    return false;
}

static void tell_what_was_read(struct cost_world *world, int rank, int channel)
{
    const double now = cost_block_of(world, rank, channel)->now;
    const double at = now + cost_of_link(world, COST_LATENCY);
    for (int from = 0; from < world->nranks; from++) {
        struct cost_wire *wire = cost_wire_of(world, from, rank, channel);
        if (wire->said == wire->taken) continue;
        wire->said = wire->taken;
        if (cost_is_bridged(world, from, rank)) {
            cost_bridge_release(world, from, rank, channel, wire->said, now);
            continue;
        }
        while (wire->told < wire->said)
            cost_slot_of(world, from, rank, channel, wire->told++)->released = at;
        cost_wake(world, from, channel, at);
    }
}

/* False: it has to wait. */
static bool do_messages(struct cost_world *world, int rank, int channel,
                        const struct tt_program_step *step, double at)
{
    struct cost_block *block = cost_block_of(world, rank, channel);
    const struct tt_program_link *links = tt_program_links(block->program);
    const double begin = ready_at(world, rank, channel, step);
    if (begin > at) return false;
    const double nbytes = result_bytes(world, rank, channel, step);
    struct moves moves = moves_of(world, block, step, nbytes);
    const unsigned nout = count_bridged(world, block, step->send, step->nsend);
    for (uint32_t i = 0; i < step->nrecv; i++)
        cost_wire_of(world, links[step->recv + i].peer, rank, channel)->taken++;
    moves.fence = (step->nsend && !world->walk->lines) || has_read_enough(world, rank, channel);
    spend(world, rank, block, begin, &moves);
    if (moves.fence) tell_what_was_read(world, rank, channel);
    for (uint32_t i = 0; i < step->nsend; i++)
        send(world, rank, links[step->send + i].peer, channel, nbytes,
             step->nsend > nout ? moves.remote / (step->nsend - nout) : 0, begin);
    return true;
}

/* ---- Meetings ------------------------------------------------------------------------------- */

/* A rank puts into its own place, in lines into those of all others. */
static void put(struct cost_world *world, int rank, int channel, const struct tt_program_step *step)
{
    struct cost_block *block = cost_block_of(world, rank, channel);
    const unsigned others = (unsigned)world->nranks - 1;
    const bool lines = world->walk->lines;
    const double nbytes = span_bytes(world, block, channel, &step->local);
    const double out = lines ? 2 * nbytes * others : 0;
    const struct moves moves = {.loaded = nbytes,
                                .stored = lines ? out : nbytes,
                                .remote = out,
                                .in_flight = constant(COST_SLOTS_IN_FLIGHT),
                                .steps = 1,
                                .messages = others,
                                .fence = !lines};
    spend(world, rank, block, block->now, &moves);
    if (moves.fence) tell_what_was_read(world, rank, channel);
    world->ranks[rank].sent += world->nalike * out;
    for (int to = 0; to < world->nranks && lines; to++)
        if (to != rank) world->ranks[to].taken += world->nalike * out / others;
    const double met = block->now + hop_us(world);
    block->met[block->meetings++ % 2] = met;
    block->has_put = true;
    for (int to = 0; to < world->nranks; to++) cost_wake(world, to, channel, met);
}

static void take(struct cost_world *world, int rank, int channel,
                 const struct tt_program_step *step, double begin)
{
    struct cost_block *block = cost_block_of(world, rank, channel);
    const int n = world->nranks;
    const bool lines = world->walk->lines, fold = step->op == TT_FOLD;
    const double nbytes = span_bytes(world, block, channel, &step->dst);
    const double loaded = (lines ? 2 : 1) * nbytes * (fold ? n : 1);
    const double away = loaded * (n - 1) / n;
    for (int from = 0; from < n; from++)
        if (from != rank) cost_wire_of(world, from, rank, channel)->taken++;
    const struct moves moves = {.loaded = loaded,
                                .stored = nbytes,
                                .remote = lines ? 0 : away,
                                .arrived = lines ? away : 0,
                                .in_flight =
                                    constant(lines ? COST_LINES_IN_FLIGHT : COST_SLOTS_IN_FLIGHT),
                                .messages = (unsigned)n - 1,
                                .meetings = 1,
                                .fence = has_read_enough(world, rank, channel)};
    spend(world, rank, block, begin, &moves);
    if (moves.fence) tell_what_was_read(world, rank, channel);
    if (!lines) world->ranks[rank].taken += world->nalike * away;
    block->has_put = false;
}

/* False: a rank has not put in yet. */
static bool end_meeting(struct cost_world *world, int rank, int channel,
                        const struct tt_program_step *step, double at)
{
    const struct cost_block *block = cost_block_of(world, rank, channel);
    const unsigned long long number = block->meetings;
    double begin = block->now;
    for (int r = 0; r < world->nranks; r++) {
        const struct cost_block *other = cost_block_of(world, r, channel);
        if (other->meetings < number) return false;
        if (r != rank) begin = fmax(begin, other->met[(number - 1) % 2]);
    }
    if (begin > at) return false;
    take(world, rank, channel, step, begin);
    return true;
}

/* ---- Steps ---------------------------------------------------------------------------------- */

static uint32_t steps_of(const struct tt_program *program, int channel)
{
    return tt_program_channel(program, channel % program->nchannels)->nsteps;
}

bool cost_is_done(const struct cost_world *world, const struct cost_block *block, int channel)
{
    return block->round == world->binding.nrounds || !steps_of(block->program, channel);
}

/* False: it has to wait. *ends: the step has ended, and not only half of it. */
static bool do_step(struct cost_world *world, int rank, int channel, double at, bool *ends)
{
    const struct cost_block *block = cost_block_of(world, rank, channel);
    const struct tt_program_step *step =
        tt_program_step(block->program, channel % block->program->nchannels, block->step);
    *ends = step->kind != TT_STEP_MEET || block->has_put;
    if (step->kind != TT_STEP_MEET) return do_messages(world, rank, channel, step, at);
    if (*ends) return end_meeting(world, rank, channel, step, at);
    put(world, rank, channel, step);
    return true;
}

void cost_go_on(struct cost_world *world, int rank, int channel, double at)
{
    struct cost_block *block = cost_block_of(world, rank, channel);
    bool ends;
    if (block->now > at || cost_is_done(world, block, channel)) return;
    if (!do_step(world, rank, channel, at, &ends)) return;
    cost_wake(world, rank, channel, block->now);
    if (!ends || ++block->step < steps_of(block->program, channel)) return;
    block->step = 0;
    block->round++;
    world->nrunning -= cost_is_done(world, block, channel);
}
