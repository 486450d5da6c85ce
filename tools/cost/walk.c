/* Walks the programs of all ranks on one block of threads for each channel; all copies of a program
 * do the same at the same time, so what they share, links and memory, is divided among them. */
#include "cost/walk.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/config.h"
#include "program/lower.h"
#include "transport/device/device_room.h"
#include "transport/device/layout.h"

enum { ELEMENT = 4, MOST_SLOTS = 64 };
/* As in src/carrier/kernel: shorter messages are copied where the receiver could read them. */
enum { REFERENCE_BYTES = 8192 };

/* A link of one channel, as a ring of its last messages. */
struct wire {
    unsigned long long sent, taken;
    double arrives[MOST_SLOTS], nbytes[MOST_SLOTS];
    double released[MOST_SLOTS]; /* when the slot was */
};

/* One block of threads. */
struct block {
    const struct tt_program *program;
    uint32_t step;
    size_t round;
    double now;
    struct cost_step *steps;
    unsigned long long meetings; /* begun */
    double met[2];               /* when what it put in can be read, of the last two meetings */
    bool has_put;
};

struct world {
    const struct cost_call *call;
    struct tt_binding binding;
    struct cost_walk *walk;
    struct tt_program **programs; /* [nranks] */
    struct block *blocks;         /* [nranks * nchannels] */
    struct wire *wires;           /* [nranks * nranks * nchannels]: from, to, channel */
    double *port;                 /* [nranks]: when the link into the GPU is free */
    double *sent, *taken;         /* [nranks] bytes over the link */
    int nranks, nchannels;
    double copies;
};

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

static double of_link(const struct world *world, enum cost_link_key key)
{
    return world->call->link->at[key].value;
}

static struct wire *wire_of(const struct world *world, int from, int to, int channel)
{
    return &world->wires[((size_t)from * (size_t)world->nranks + (size_t)to) *
                             (size_t)world->nchannels +
                         (size_t)channel];
}

static struct block *block_of(const struct world *world, int rank, int channel)
{
    return &world->blocks[rank * world->nchannels + channel];
}

/* ---- What a step moves ---------------------------------------------------------------------- */

static double span_bytes(const struct world *world, const struct block *block, int channel,
                         const struct tt_program_span *span)
{
    return (double)tt_span_count(block->program, &world->binding, span, channel, block->round) *
           ELEMENT;
}

/* As the kernel decides: one piece that stays unchanged until the call ends. */
static bool refers(const struct world *world, const struct block *block,
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
              !(i == 0 && (step->nrecv || step->finish)) && nbytes >= REFERENCE_BYTES;
    }
    return may;
}

/* nbytes: of the step's result. */
static struct moves moves_of(const struct world *world, const struct block *block,
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
static double link_us(const struct world *world, double nbytes)
{
    if (world->call->link->shared) return 0;
    return world->copies * nbytes / (of_link(world, COST_BANDWIDTH) * 1e3);
}

static double data_us(const struct world *world, const struct moves *moves, enum cost_limit *by)
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
                                                        (of_link(world, COST_MEMORY) * 1e3)};
    *by = COST_BY_BLOCK;
    for (int i = 1; i < COST_NLIMITS; i++)
        if (us[i] > us[*by]) *by = (enum cost_limit)i;
    return us[*by];
}

/* Counts it, and moves the block's time on. */
static void spend(const struct world *world, struct block *block, double begin,
                  const struct moves *moves)
{
    struct cost_step *step = &block->steps[block->step];
    enum cost_limit by;
    const double data = data_us(world, moves, &by);
    const double fixed = moves->steps * constant(COST_STEP) +
                         moves->messages * constant(COST_MESSAGE) +
                         moves->meetings * constant(COST_MEETING);
    const double told = moves->fence ? of_link(world, COST_FENCE) : 0;
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

static double hop_us(const struct world *world)
{
    return constant(COST_FLAG) + (world->walk->lines ? 0 : constant(COST_ACQUIRE)) +
           of_link(world, COST_LATENCY);
}

/* ---- Messages ------------------------------------------------------------------------------- */

/* When the step can begin; INFINITY: what it waits for has not happened yet. */
static double ready_at(const struct world *world, int rank, int channel,
                       const struct tt_program_step *step)
{
    const struct tt_program_link *links = tt_program_links(block_of(world, rank, channel)->program);
    double ready = block_of(world, rank, channel)->now;
    for (uint32_t i = 0; i < step->nrecv; i++) {
        const struct wire *wire = wire_of(world, links[step->recv + i].peer, rank, channel);
        if (wire->taken == wire->sent) return INFINITY;
        ready = fmax(ready, wire->arrives[wire->taken % (unsigned)world->walk->nslots]);
    }
    for (uint32_t i = 0; i < step->nsend; i++) {
        const struct wire *wire = wire_of(world, rank, links[step->send + i].peer, channel);
        const unsigned nslots = (unsigned)world->walk->nslots;
        if (wire->sent - wire->taken >= nslots) return INFINITY;
        if (wire->sent >= nslots) ready = fmax(ready, wire->released[wire->sent % nslots]);
    }
    return ready;
}

/* Bytes of a step's result: those of its spans, else of the message that it sends on. */
static double result_bytes(const struct world *world, int rank, int channel,
                           const struct tt_program_step *step)
{
    const struct block *block = block_of(world, rank, channel);
    if (step->dst.number) return span_bytes(world, block, channel, &step->dst);
    if (step->local.number) return span_bytes(world, block, channel, &step->local);
    if (!step->nrecv) return 0;
    const int from = tt_program_links(block->program)[step->recv].peer;
    const struct wire *wire = wire_of(world, from, rank, channel);
    return wire->nbytes[wire->taken % (unsigned)world->walk->nslots];
}

static void send(const struct world *world, int rank, int to, int channel, double nbytes,
                 double remote, double begin)
{
    struct wire *wire = wire_of(world, rank, to, channel);
    const size_t at = wire->sent % (unsigned)world->walk->nslots;
    const double now = block_of(world, rank, channel)->now;
    world->port[to] = fmax(world->port[to], begin) + link_us(world, remote);
    world->sent[rank] += world->copies * remote;
    world->taken[to] += world->copies * remote;
    wire->nbytes[at] = nbytes;
    wire->arrives[at] = fmax(now, world->port[to]) + hop_us(world);
    wire->sent++;
}

/* False: it has to wait. */
static bool do_messages(const struct world *world, int rank, int channel,
                        const struct tt_program_step *step)
{
    struct block *block = block_of(world, rank, channel);
    const struct tt_program_link *links = tt_program_links(block->program);
    const double begin = ready_at(world, rank, channel, step);
    if (isinf(begin)) return false;
    const double nbytes = result_bytes(world, rank, channel, step);
    struct moves moves = moves_of(world, block, step, nbytes);
    /* What is read is told with the next fence, or after every second message. */
    moves.fence = step->nsend && !world->walk->lines;
    for (uint32_t i = 0; i < step->nrecv && !moves.fence; i++)
        moves.fence = wire_of(world, links[step->recv + i].peer, rank, channel)->taken % 2;
    spend(world, block, begin, &moves);
    for (uint32_t i = 0; i < step->nrecv; i++) {
        struct wire *wire = wire_of(world, links[step->recv + i].peer, rank, channel);
        wire->released[wire->taken++ % (unsigned)world->walk->nslots] =
            block->now + of_link(world, COST_LATENCY);
    }
    for (uint32_t i = 0; i < step->nsend; i++)
        send(world, rank, links[step->send + i].peer, channel, nbytes,
             moves.remote / (double)step->nsend, begin);
    return true;
}

/* ---- Meetings ------------------------------------------------------------------------------- */

/* A rank puts into its own place, in lines into those of all others. */
static void put(const struct world *world, int rank, int channel,
                const struct tt_program_step *step)
{
    struct block *block = block_of(world, rank, channel);
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
    world->sent[rank] += world->copies * out;
    for (int to = 0; to < world->nranks && lines; to++)
        if (to != rank) world->taken[to] += world->copies * out / others;
    block->met[block->meetings++ % 2] = block->now + hop_us(world);
    block->has_put = true;
}

static void take(const struct world *world, int rank, int channel,
                 const struct tt_program_step *step, double begin)
{
    struct block *block = block_of(world, rank, channel);
    const int n = world->nranks;
    const bool lines = world->walk->lines, fold = step->op == TT_FOLD;
    const double nbytes = span_bytes(world, block, channel, &step->dst);
    const double loaded = (lines ? 2 : 1) * nbytes * (fold ? n : 1);
    const double away = loaded * (n - 1) / n;
    const struct moves moves = {.loaded = loaded,
                                .stored = nbytes,
                                .remote = lines ? 0 : away,
                                .arrived = lines ? away : 0,
                                .in_flight =
                                    constant(lines ? COST_LINES_IN_FLIGHT : COST_SLOTS_IN_FLIGHT),
                                .messages = (unsigned)n - 1,
                                .meetings = 1,
                                .fence = true};
    spend(world, block, begin, &moves);
    if (!lines) world->taken[rank] += world->copies * away;
    block->has_put = false;
}

/* False: a rank has not put in yet. */
static bool end_meeting(const struct world *world, int rank, int channel,
                        const struct tt_program_step *step)
{
    const struct block *block = block_of(world, rank, channel);
    const unsigned long long number = block->meetings;
    double begin = block->now;
    for (int r = 0; r < world->nranks; r++) {
        const struct block *other = block_of(world, r, channel);
        if (other->meetings < number) return false;
        if (r != rank) begin = fmax(begin, other->met[(number - 1) % 2]);
    }
    take(world, rank, channel, step, begin);
    return true;
}

/* ---- The walk ------------------------------------------------------------------------------- */

static bool is_done(const struct world *world, const struct block *block, int channel)
{
    return block->round == world->binding.nrounds ||
           !tt_program_channel(block->program, channel)->nsteps;
}

/* One step of one block, or half of a meeting. False: it has ended, or has to wait. */
static bool go_on(const struct world *world, int rank, int channel)
{
    struct block *block = block_of(world, rank, channel);
    if (is_done(world, block, channel)) return false;
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

static bool has_ended(const struct world *world)
{
    for (int rank = 0; rank < world->nranks; rank++)
        for (int c = 0; c < world->nchannels; c++)
            if (!is_done(world, block_of(world, rank, c), c)) return false;
    return true;
}

/* Every block in turn, a step each. */
static tt_status run(const struct world *world)
{
    for (bool moved = true; moved;) {
        moved = false;
        for (int rank = 0; rank < world->nranks; rank++)
            for (int c = 0; c < world->nchannels; c++) moved |= go_on(world, rank, c);
    }
    if (has_ended(world)) return TT_OK;
    return tt_fail(TT_ERR_INTERNAL, "%s over %d ranks does not end in the model",
                   world->call->algorithm->name, world->nranks);
}

/* Keeps what the block that ended last has done. */
static void keep_last(struct world *world)
{
    struct cost_walk *walk = world->walk;
    const struct block *last = &world->blocks[0];
    for (int i = 1; i < world->nranks * world->nchannels; i++)
        if (world->blocks[i].now > last->now) last = &world->blocks[i];
    const int at = (int)(last - world->blocks);
    walk->rank = at / world->nchannels;
    walk->channel = at % world->nchannels;
    walk->nsteps = (int)tt_program_channel(last->program, walk->channel)->nsteps;
    walk->steps = last->steps;
    world->blocks[at].steps = NULL;
    for (int i = 0; i < walk->nsteps; i++) {
        const struct cost_step *step = &walk->steps[i];
        walk->steps_us += step->wait_us + step->fixed_us + step->fence_us + step->data_us;
    }
    walk->call_us = constant(COST_CALL);
    if (world->call->link->shared) walk->call_us += (world->nranks - 1) * constant(COST_LAUNCH);
    walk->us = walk->call_us + walk->steps_us;
    for (int rank = 0; rank < world->nranks && !world->call->link->shared; rank++)
        walk->link_us = fmax(walk->link_us, fmax(world->sent[rank], world->taken[rank]) /
                                                (of_link(world, COST_BANDWIDTH) * 1e3));
}

/* ---- Binding -------------------------------------------------------------------------------- */

static struct tt_device_shape links_of(int nranks, int nblocks)
{
    struct tt_device_shape shape = {
        .nranks = (uint32_t)nranks,
        .nchannels = (uint32_t)nblocks + 1,
        .nslots = (uint32_t)tt_config_int(TT_CONFIG_DEVICE_SLOTS),
        .slot_bytes = (uint32_t)tt_config_int(TT_CONFIG_DEVICE_SLOT_BYTES),
        .line_bytes = (uint32_t)tt_config_int(TT_CONFIG_DEVICE_LINE_BYTES)};
    tt_device_fit(&shape, TT_DEVICE_BUDGET);
    return shape;
}

struct tt_setting cost_setting(int nranks, int nblocks)
{
    const struct tt_device_shape links = links_of(nranks, nblocks);
    return (struct tt_setting){.one_host = true,
                               .on_device = true,
                               .nparts = nblocks,
                               .slot_bytes = links.slot_bytes,
                               .meet_bytes = links.slot_bytes,
                               .line_bytes = links.line_bytes};
}

size_t cost_count(const struct tt_algorithm *algorithm, int nranks, size_t nbytes)
{
    const size_t times = (size_t)tt_collective_counts(algorithm->collective, nranks);
    if (!times) return 0;
    const size_t count = nbytes / ELEMENT / times;
    return count ? count : 1;
}

double cost_bus_factor(enum tt_collective collective, int nranks)
{
    const double n = nranks, away = (n - 1) / n;
    if (!tt_collective_splits(collective)) return away;
    return tt_collective_has_root(collective) ? 1 : 2 * away;
}

/* As the library decides (protocol_of in src/carrier/kernel/call.c). */
static bool takes_lines(const struct world *world)
{
    const struct tt_program *program = world->programs[0];
    const size_t lines =
        (world->binding.piece * ELEMENT + TT_LINE_DATA - 1) / TT_LINE_DATA * TT_LINE_BYTES;
    const size_t nbytes = (size_t)program->message * lines;
    return program->nblocks && world->binding.nrounds == 1 && nbytes <= world->walk->line_bytes &&
           tt_gpu_takes_lines(nbytes / 2);
}

static tt_status bind(struct world *world)
{
    const struct cost_call *call = world->call;
    const struct tt_shape shape = {
        .collective = call->algorithm->collective, .nranks = call->nranks, .root = call->root};
    for (int rank = 0; rank < call->nranks; rank++)
        TT_TRY(tt_program_create(call->algorithm, &shape, rank, &world->programs[rank]));
    const struct tt_device_shape links = links_of(call->nranks, call->nblocks);
    world->nchannels = world->programs[0]->nchannels;
    const int copies = call->nblocks / world->nchannels;
    const struct tt_limits limits = {.slot_bytes = links.slot_bytes,
                                     .meet_bytes = links.slot_bytes,
                                     .copies = copies ? copies : 1,
                                     .of_gpus = true};
    TT_TRY(tt_program_bind(world->programs[0],
                           cost_count(call->algorithm, call->nranks, call->nbytes), ELEMENT,
                           &limits, &world->binding));
    world->copies = world->binding.copies;
    *world->walk = (struct cost_walk){.nblocks = world->binding.copies * world->nchannels,
                                      .nslots = (int)links.nslots,
                                      .slot_bytes = links.slot_bytes,
                                      .line_bytes = links.line_bytes,
                                      .nrounds = world->binding.nrounds,
                                      .piece = world->binding.piece * ELEMENT};
    world->walk->lines = takes_lines(world);
    return TT_OK;
}

static tt_status make_blocks(struct world *world)
{
    const size_t n = (size_t)world->nranks, channels = (size_t)world->nchannels;
    world->blocks = calloc(n * channels, sizeof *world->blocks);
    world->wires = calloc(n * n * channels, sizeof *world->wires);
    if (!world->blocks || !world->wires)
        return tt_fail(TT_ERR_SYSTEM, "out of memory for %zu ranks", n);
    for (int i = 0; i < world->nranks * world->nchannels; i++) {
        struct block *block = &world->blocks[i];
        const int channel = i % world->nchannels;
        block->program = world->programs[i / world->nchannels];
        const uint32_t nsteps = tt_program_channel(block->program, channel)->nsteps;
        block->steps = calloc(nsteps + 1, sizeof *block->steps);
        if (!block->steps) return tt_fail(TT_ERR_SYSTEM, "out of memory for %u steps", nsteps);
        for (uint32_t s = 0; s < nsteps; s++)
            block->steps[s] = (struct cost_step){.channel = channel, .index = (int)s};
    }
    return TT_OK;
}

static void free_world(struct world *world)
{
    for (int i = 0; world->blocks && i < world->nranks * world->nchannels; i++)
        free(world->blocks[i].steps);
    for (int i = 0; world->programs && i < world->nranks; i++) free(world->programs[i]);
    free(world->programs);
    free(world->blocks);
    free(world->wires);
    free(world->port);
    free(world->sent);
    free(world->taken);
}

/* A setting that no communicator takes. */
static tt_status check_settings(const struct cost_call *call)
{
    const int64_t nslots = tt_config_int(TT_CONFIG_DEVICE_SLOTS);
    if (nslots < 2 || nslots > MOST_SLOTS || (nslots & (nslots - 1)))
        return tt_fail(TT_ERR_ARGUMENT, "TUTTI_DEVICE_SLOTS=%lld is no power of two from 2 to %d",
                       (long long)nslots, MOST_SLOTS);
    if (call->nthreads < 32 || call->nthreads > 512)
        return tt_fail(TT_ERR_ARGUMENT, "TUTTI_DEVICE_THREADS=%d is no number from 32 to 512",
                       call->nthreads);
    return TT_OK;
}

static tt_status walk_all(struct world *world)
{
    const size_t n = (size_t)world->nranks;
    TT_TRY(check_settings(world->call));
    world->programs = calloc(n, sizeof *world->programs);
    world->port = calloc(n, sizeof *world->port);
    world->sent = calloc(n, sizeof *world->sent);
    world->taken = calloc(n, sizeof *world->taken);
    if (!world->programs || !world->port || !world->sent || !world->taken)
        return tt_fail(TT_ERR_SYSTEM, "out of memory for %zu ranks", n);
    TT_TRY(bind(world));
    TT_TRY(make_blocks(world));
    TT_TRY(run(world));
    keep_last(world);
    return TT_OK;
}

tt_status cost_walk(const struct cost_call *call, struct cost_walk *walk)
{
    struct world world = {.call = call, .walk = walk, .nranks = call->nranks};
    const tt_status status = walk_all(&world);
    free_world(&world);
    return status;
}

void cost_walk_free(struct cost_walk *walk)
{
    free(walk->steps);
    walk->steps = NULL;
}
