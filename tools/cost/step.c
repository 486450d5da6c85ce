/* One step of one block of threads: what it moves, how long that takes, and what it tells others.
 */
#include <math.h>

#include "cost/world.h"
#include "transport/device/end.h"

/* What a step, or a half of a meeting, does on one block of threads; in bytes. */
struct moves {
    double loaded, stored; /* by the block */
    double remote;         /* of both, what goes over the link */
    double arrived;        /* that others have stored into this GPU's memory for the step */
    double in_flight;      /* of a thread */
    unsigned steps;        /* 0: the step was counted before */
    unsigned messages;     /* sent and taken */
    unsigned meetings;
    bool fence;
};

static double constant(enum cost_key key)
{
    return cost_constants[key].value;
}

static struct cost_wire *wire_of(const struct cost_world *world, int from, int to, int channel)
{
    return &world->wires[((size_t)from * (size_t)world->nranks + (size_t)to) *
                             (size_t)world->nchannels +
                         (size_t)channel];
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

/* nbytes: of the step's result. */
static struct moves moves_of(const struct cost_world *world, const struct cost_block *block,
                             const struct tt_program_step *step, double nbytes)
{
    const bool lines = world->walk->lines;
    const double message = lines ? 2 * nbytes : nbytes;
    const bool slots = step->nsend && !refers(world, block, step, nbytes);
    const double out = slots ? step->nsend * message : 0;
    const double kept = step->dst.number ? nbytes : 0;
    struct moves moves = {.stored = out + kept,
                          .remote = out,
                          .arrived = step->nrecv * message,
                          .in_flight =
                              constant(lines ? COST_LINES_IN_FLIGHT : COST_SLOTS_IN_FLIGHT),
                          .steps = 1,
                          .messages = step->nrecv + step->nsend};
    if (moves.stored > 0 || lines)
        moves.loaded = step->nrecv * message + (step->local.number ? nbytes : 0);
    return moves;
}

/* ---- Times ---------------------------------------------------------------------------------- */

/* Of all copies together, over the link into or out of a GPU. */
static double link_us(const struct cost_world *world, double nbytes)
{
    if (world->call->link->shared) return 0;
    return world->copies * nbytes / (cost_of_link(world, COST_BANDWIDTH) * 1e3);
}

static double data_us(const struct cost_world *world, const struct moves *moves,
                      enum cost_limit *by)
{
    const double unit = moves->in_flight * world->call->nthreads;
    const bool shared = world->call->link->shared;
    /* What others store here counts too; what goes to them is stored there. */
    const double memory =
        moves->loaded + moves->stored + (shared ? 0 : moves->arrived - moves->remote);
    const double us[COST_NLIMITS] = {[COST_BY_BLOCK] = moves->loaded / unit * constant(COST_LOAD) +
                                                       moves->stored / unit * constant(COST_STORE),
                                     [COST_BY_LINK] = link_us(world, moves->remote),
                                     [COST_BY_MEMORY] = world->copies * memory *
                                                        (shared ? world->nranks : 1) /
                                                        (cost_of_link(world, COST_MEMORY) * 1e3)};
    *by = COST_BY_BLOCK;
    for (int i = 1; i < COST_NLIMITS; i++)
        if (us[i] > us[*by]) *by = (enum cost_limit)i;
    return us[*by];
}

/* Counts it, and moves the block's time on. */
static void spend(const struct cost_world *world, struct cost_block *block, double begin,
                  const struct moves *moves)
{
    struct cost_step *step = &block->steps[block->step];
    enum cost_limit by;
    const double data = data_us(world, moves, &by);
    const double fixed = moves->steps * constant(COST_STEP) +
                         moves->messages * constant(COST_MESSAGE) +
                         moves->meetings * constant(COST_MEETING);
    const double told = moves->fence ? cost_of_link(world, COST_FENCE) : 0;
    step->wait_us += begin - block->now;
    step->fixed_us += fixed;
    step->data_us += data;
    step->limit_us[by] += data;
    step->fence_us += told;
    step->fences += moves->fence;
    step->messages += moves->messages;
    step->loaded += world->copies * moves->loaded;
    step->stored += world->copies * moves->stored;
    step->over_link += world->call->link->shared ? 0 : world->copies * moves->remote;
    block->now = begin + fixed + data + told;
}

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
    const struct tt_program_link *links =
        tt_program_links(cost_block_of(world, rank, channel)->program);
    double ready = cost_block_of(world, rank, channel)->now;
    for (uint32_t i = 0; i < step->nrecv; i++) {
        const struct cost_wire *wire = wire_of(world, links[step->recv + i].peer, rank, channel);
        if (wire->taken == wire->sent) return INFINITY;
        ready = fmax(ready, wire->arrives[wire->taken % (unsigned)world->walk->nslots]);
    }
    for (uint32_t i = 0; i < step->nsend; i++) {
        const struct cost_wire *wire = wire_of(world, rank, links[step->send + i].peer, channel);
        const unsigned nslots = (unsigned)world->walk->nslots;
        if (wire->sent - wire->told >= nslots) return INFINITY;
        if (wire->sent >= nslots) ready = fmax(ready, wire->released[wire->sent % nslots]);
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
    const struct cost_wire *wire = wire_of(world, from, rank, channel);
    return wire->nbytes[wire->taken % (unsigned)world->walk->nslots];
}

static void send(const struct cost_world *world, int rank, int to, int channel, double nbytes,
                 double remote, double begin)
{
    struct cost_wire *wire = wire_of(world, rank, to, channel);
    const size_t at = wire->sent % (unsigned)world->walk->nslots;
    const double now = cost_block_of(world, rank, channel)->now;
    world->port[to] = fmax(world->port[to], begin) + link_us(world, remote);
    world->sent[rank] += world->copies * remote;
    world->taken[to] += world->copies * remote;
    wire->nbytes[at] = nbytes;
    wire->arrives[at] = fmax(now, world->port[to]) + hop_us(world);
    wire->sent++;
}

/* Whether the block has to tell what it has read; a fence behind what it has sent tells that too.
 */
static bool has_read_enough(const struct cost_world *world, int rank, int channel)
{
    const unsigned most = world->walk->nslots > 2 ? 2 : 1;
    for (int from = 0; from < world->nranks; from++) {
        const struct cost_wire *wire = wire_of(world, from, rank, channel);
        if (wire->taken - wire->told >= most) return true;
    }
    return false;
}

static void tell_what_was_read(const struct cost_world *world, int rank, int channel)
{
    const double at = cost_block_of(world, rank, channel)->now + cost_of_link(world, COST_LATENCY);
    for (int from = 0; from < world->nranks; from++) {
        struct cost_wire *wire = wire_of(world, from, rank, channel);
        while (wire->told < wire->taken)
            wire->released[wire->told++ % (unsigned)world->walk->nslots] = at;
    }
}

/* False: it has to wait. */
static bool do_messages(const struct cost_world *world, int rank, int channel,
                        const struct tt_program_step *step)
{
    struct cost_block *block = cost_block_of(world, rank, channel);
    const struct tt_program_link *links = tt_program_links(block->program);
    const double begin = ready_at(world, rank, channel, step);
    if (isinf(begin)) return false;
    const double nbytes = result_bytes(world, rank, channel, step);
    struct moves moves = moves_of(world, block, step, nbytes);
    for (uint32_t i = 0; i < step->nrecv; i++)
        wire_of(world, links[step->recv + i].peer, rank, channel)->taken++;
    moves.fence = (step->nsend && !world->walk->lines) || has_read_enough(world, rank, channel);
    spend(world, block, begin, &moves);
    if (moves.fence) tell_what_was_read(world, rank, channel);
    for (uint32_t i = 0; i < step->nsend; i++)
        send(world, rank, links[step->send + i].peer, channel, nbytes,
             moves.remote / (double)step->nsend, begin);
    return true;
}

/* ---- Meetings ------------------------------------------------------------------------------- */

/* A rank puts into its own place, in lines into those of all others. */
static void put(const struct cost_world *world, int rank, int channel,
                const struct tt_program_step *step)
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
    spend(world, block, block->now, &moves);
    if (moves.fence) tell_what_was_read(world, rank, channel);
    world->sent[rank] += world->copies * out;
    for (int to = 0; to < world->nranks && lines; to++)
        if (to != rank) world->taken[to] += world->copies * out / others;
    block->met[block->meetings++ % 2] = block->now + hop_us(world);
    block->has_put = true;
}

static void take(const struct cost_world *world, int rank, int channel,
                 const struct tt_program_step *step, double begin)
{
    struct cost_block *block = cost_block_of(world, rank, channel);
    const int n = world->nranks;
    const bool lines = world->walk->lines, fold = step->op == TT_FOLD;
    const double nbytes = span_bytes(world, block, channel, &step->dst);
    const double loaded = (lines ? 2 : 1) * nbytes * (fold ? n : 1);
    const double away = loaded * (n - 1) / n;
    for (int from = 0; from < n; from++)
        if (from != rank) wire_of(world, from, rank, channel)->taken++;
    const struct moves moves = {.loaded = loaded,
                                .stored = nbytes,
                                .remote = lines ? 0 : away,
                                .arrived = lines ? away : 0,
                                .in_flight =
                                    constant(lines ? COST_LINES_IN_FLIGHT : COST_SLOTS_IN_FLIGHT),
                                .messages = (unsigned)n - 1,
                                .meetings = 1,
                                .fence = has_read_enough(world, rank, channel)};
    spend(world, block, begin, &moves);
    if (moves.fence) tell_what_was_read(world, rank, channel);
    if (!lines) world->taken[rank] += world->copies * away;
    block->has_put = false;
}

/* False: a rank has not put in yet. */
static bool end_meeting(const struct cost_world *world, int rank, int channel,
                        const struct tt_program_step *step)
{
    const struct cost_block *block = cost_block_of(world, rank, channel);
    const unsigned long long number = block->meetings;
    double begin = block->now;
    for (int r = 0; r < world->nranks; r++) {
        const struct cost_block *other = cost_block_of(world, r, channel);
        if (other->meetings < number) return false;
        if (r != rank) begin = fmax(begin, other->met[(number - 1) % 2]);
    }
    take(world, rank, channel, step, begin);
    return true;
}

/* ---- Steps ---------------------------------------------------------------------------------- */

bool cost_is_done(const struct cost_world *world, const struct cost_block *block, int channel)
{
    return block->round == world->binding.nrounds ||
           !tt_program_channel(block->program, channel)->nsteps;
}

bool cost_go_on(const struct cost_world *world, int rank, int channel)
{
    struct cost_block *block = cost_block_of(world, rank, channel);
    if (cost_is_done(world, block, channel)) return false;
    const struct tt_program_step *step = tt_program_step(block->program, channel, block->step);
    if (step->kind == TT_STEP_MEET && !block->has_put) {
        put(world, rank, channel, step);
        return true;
    }
    if (!(step->kind == TT_STEP_MEET ? end_meeting : do_messages)(world, rank, channel, step))
        return false;
    if (++block->step == tt_program_channel(block->program, channel)->nsteps) {
        block->step = 0;
        block->round++;
    }
    return true;
}
