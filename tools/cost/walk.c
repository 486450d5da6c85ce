/* Walks the programs of all ranks, event by event. On one host there is one block of threads for
 * each channel; all copies of a program do the same at the same time. What they share, links and
 * memory, is divided among them. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/config.h"
#include "cost/world.h"
#include "program/lower.h"
#include "transport/device/device_room.h"
#include "transport/device/layout.h"

/* ---- The walk ------------------------------------------------------------------------------- */

static tt_status run(struct cost_world *world)
{
    struct cost_event event;
    for (int r = 0; r < world->nranks; r++)
        for (int c = 0; c < world->nchannels; c++) {
            world->nrunning += !cost_is_done(world, cost_block_of(world, r, c), c);
            cost_wake(world, r, c, 0);
        }
    while (world->nrunning && cost_events_pop(&world->events, &event)) {
        if (event.kind == COST_GO_ON)
            cost_go_on(world, event.rank, event.channel, event.at);
        else
            cost_bridge_go_on(world, &event);
    }
    if (world->events.out_of_memory)
        return tt_fail(TT_ERR_SYSTEM, "out of memory for the events of %d ranks", world->nranks);
    if (!world->nrunning) return TT_OK;
    return tt_fail(TT_ERR_INTERNAL, "%s over %d ranks does not end in the model",
                   world->call->algorithm->name, world->nranks);
}

static double most_of(double a, double b, double c)
{
    return fmax(a, fmax(b, c));
}

/* What was busy until the call ended: a proxy may have work left, which it does without a pause. */
static void keep_busy(const struct cost_world *world)
{
    struct cost_walk *walk = world->walk;
    for (int r = 0; r < world->nranks; r++) {
        const struct cost_rank *rank = &world->ranks[r];
        walk->busy[r] = rank->busy;
        walk->busy[r].proxy_us -= fmax(0, rank->proxy - walk->steps_us);
        walk->proxy_us = fmax(walk->proxy_us, walk->busy[r].proxy_us);
        walk->net_us = most_of(walk->net_us, rank->busy.net_out_us, rank->busy.net_in_us);
        if (!world->call->link->shared)
            walk->link_us = fmax(walk->link_us, fmax(rank->sent, rank->taken) /
                                                    (cost_of_link(world, COST_BANDWIDTH) * 1e3));
    }
}

/* Keeps what the block that ended last has done. */
static void keep_last(const struct cost_world *world)
{
    struct cost_walk *walk = world->walk;
    const struct cost_block *last = &world->blocks[0];
    for (int i = 1; i < world->nranks * world->nchannels; i++)
        if (world->blocks[i].now > last->now) last = &world->blocks[i];
    const int at = (int)(last - world->blocks);
    walk->rank = at / world->nchannels;
    walk->channel = at % world->nchannels;
    walk->channel %= last->program->nchannels;
    walk->nsteps = (int)tt_program_channel(last->program, walk->channel)->nsteps;
    walk->steps = last->steps;
    world->blocks[at].steps = NULL;
    for (int i = 0; i < walk->nsteps; i++) {
        const struct cost_step *step = &walk->steps[i];
        walk->fences += step->fences;
        walk->steps_us += step->wait_us + step->fixed_us + step->fence_us + step->data_us;
    }
    walk->call_us = cost_constants[COST_CALL].value;
    if (world->call->link->shared)
        walk->call_us += (world->nranks - 1) * cost_constants[COST_LAUNCH].value;
    walk->us = walk->call_us + walk->steps_us;
}

/* ---- Binding -------------------------------------------------------------------------------- */

static struct tt_device_shape links_of(int nranks, int nblocks, const struct tt_hosts *hosts)
{
    struct tt_device_shape shape = {
        .nranks = (uint32_t)nranks,
        .nlocal = hosts ? (uint32_t)hosts->most : 0,
        .nchannels = (uint32_t)nblocks + 1,
        .nslots = (uint32_t)tt_config_int(TT_CONFIG_DEVICE_SLOTS),
        .slot_bytes = (uint32_t)tt_config_int(TT_CONFIG_DEVICE_SLOT_BYTES),
        .line_bytes = (uint32_t)tt_config_int(TT_CONFIG_DEVICE_LINE_BYTES)};
    tt_device_fit(&shape, TT_DEVICE_BUDGET);
    return shape;
}

/* Over bridges nothing goes as lines. */
struct tt_setting cost_setting(int nranks, int nblocks, const struct cost_link *between,
                               const struct tt_hosts *hosts)
{
    const struct tt_device_shape links = links_of(nranks, nblocks, hosts);
    struct tt_setting setting = {.one_host = !hosts,
                                 .on_device = true,
                                 .nparts = nblocks,
                                 .slot_bytes = links.slot_bytes,
                                 .meet_bytes = links.slot_bytes,
                                 .line_bytes = hosts ? 0 : links.line_bytes};
    if (!between) return setting;
    setting.net_mbit = (uint32_t)(between->at[COST_BANDWIDTH].value * 8e3);
    setting.bridges = between->way;
    return setting;
}

/* Side by side, as the library binds a call of so many bytes (src/communicator/select.c). */
static int copies_of(const struct cost_call *call, const struct tt_shape *shape, int nchannels,
                     size_t nbytes)
{
    const int most = call->nblocks > nchannels ? call->nblocks / nchannels : 1;
    if (!call->hosts || call->takes_all) return most;
    struct tt_copies copies;
    const struct tt_setting setting =
        cost_setting(call->nranks, call->nblocks, call->between, call->hosts);
    tt_copies_make(&copies, call->algorithm, shape, &setting);
    return tt_copies_at(&copies, nbytes);
}

size_t cost_count(const struct tt_algorithm *algorithm, int nranks, size_t nbytes)
{
    const size_t times = (size_t)tt_collective_counts(algorithm->collective, nranks);
    if (!times) return 0;
    const size_t count = nbytes / COST_ELEMENT / times;
    return count ? count : 1;
}

double cost_bus_factor(enum tt_collective collective, int nranks)
{
    const double n = nranks, away = (n - 1) / n;
    if (!tt_collective_splits(collective)) return away;
    return tt_collective_has_root(collective) ? 1 : 2 * away;
}

/* As the library decides (protocol_of in src/carrier/kernel/call.c). */
static bool takes_lines(const struct cost_world *world)
{
    const struct tt_program *program = world->programs[0];
    const size_t lines =
        (world->binding.piece * COST_ELEMENT + TT_LINE_DATA - 1) / TT_LINE_DATA * TT_LINE_BYTES;
    const size_t nbytes = (size_t)program->message * lines;
    return !world->call->hosts && program->nblocks && world->binding.nrounds == 1 &&
           nbytes <= world->walk->line_bytes && tt_gpu_takes_lines(nbytes / 2);
}

static tt_status bind(struct cost_world *world)
{
    const struct cost_call *call = world->call;
    const struct tt_shape shape = {.collective = call->algorithm->collective,
                                   .nranks = call->nranks,
                                   .root = call->root,
                                   .hosts = call->hosts};
    for (int rank = 0; rank < call->nranks; rank++)
        TT_TRY(tt_program_create(call->algorithm, &shape, rank, &world->programs[rank]));
    const struct tt_device_shape links = links_of(call->nranks, call->nblocks, call->hosts);
    const int nchannels = world->programs[0]->nchannels;
    const size_t count = cost_count(call->algorithm, call->nranks, call->nbytes);
    const size_t times = (size_t)tt_collective_counts(call->algorithm->collective, call->nranks);
    const struct tt_limits limits = {
        .slot_bytes = links.slot_bytes,
        .meet_bytes = links.slot_bytes,
        .copies = copies_of(call, &shape, nchannels, count * times * COST_ELEMENT),
        .of_gpus = true};
    TT_TRY(tt_program_bind(world->programs[0], count, COST_ELEMENT, &limits, &world->binding));
    const int nblocks = world->binding.copies * nchannels;
    world->nshares = world->binding.copies;
    world->nchannels = call->hosts ? nblocks : nchannels;
    world->nalike = call->hosts ? 1 : world->nshares;
    *world->walk = (struct cost_walk){.nblocks = nblocks,
                                      .nslots = (int)links.nslots,
                                      .slot_bytes = links.slot_bytes,
                                      .line_bytes = links.line_bytes,
                                      .nrounds = world->binding.nrounds,
                                      .piece = world->binding.piece * COST_ELEMENT};
    world->walk->lines = takes_lines(world);
    return TT_OK;
}

static tt_status make_blocks(struct cost_world *world)
{
    const size_t n = (size_t)world->nranks, channels = (size_t)world->nchannels;
    world->blocks = calloc(n * channels, sizeof *world->blocks);
    world->wires = calloc(n * n * channels, sizeof *world->wires);
    world->slots = calloc(n * n * channels * (size_t)world->walk->nslots, sizeof *world->slots);
    world->walk->busy = calloc(n, sizeof *world->walk->busy);
    if (!world->blocks || !world->wires || !world->slots || !world->walk->busy)
        return tt_fail(TT_ERR_SYSTEM, "out of memory for %zu ranks", n);
    for (int i = 0; i < world->nranks * world->nchannels; i++) {
        struct cost_block *block = &world->blocks[i];
        block->program = world->programs[i / world->nchannels];
        const int channel = i % world->nchannels % block->program->nchannels;
        const uint32_t nsteps = tt_program_channel(block->program, channel)->nsteps;
        block->steps = calloc(nsteps + 1, sizeof *block->steps);
        if (!block->steps) return tt_fail(TT_ERR_SYSTEM, "out of memory for %u steps", nsteps);
        for (uint32_t s = 0; s < nsteps; s++)
            block->steps[s] = (struct cost_step){.channel = channel, .index = (int)s};
    }
    return TT_OK;
}

static void free_world(struct cost_world *world)
{
    for (int i = 0; world->blocks && i < world->nranks * world->nchannels; i++)
        free(world->blocks[i].steps);
    for (int i = 0; world->programs && i < world->nranks; i++) free(world->programs[i]);
    free(world->programs);
    free(world->blocks);
    free(world->wires);
    free(world->slots);
    free(world->ranks);
    cost_events_fini(&world->events);
}

/* A setting that no communicator takes. */
static tt_status check_settings(const struct cost_call *call)
{
    const int64_t nslots = tt_config_int(TT_CONFIG_DEVICE_SLOTS);
    if (nslots < 2 || nslots > COST_MOST_SLOTS || (nslots & (nslots - 1)))
        return tt_fail(TT_ERR_ARGUMENT, "TUTTI_DEVICE_SLOTS=%lld is no power of two from 2 to %d",
                       (long long)nslots, COST_MOST_SLOTS);
    if (call->nthreads < 32 || call->nthreads > 512)
        return tt_fail(TT_ERR_ARGUMENT, "TUTTI_DEVICE_THREADS=%d is no number from 32 to 512",
                       call->nthreads);
    return TT_OK;
}

static tt_status walk_all(struct cost_world *world)
{
    const size_t n = (size_t)world->nranks;
    TT_TRY(check_settings(world->call));
    world->programs = calloc(n, sizeof *world->programs);
    world->ranks = calloc(n, sizeof *world->ranks);
    if (!world->programs || !world->ranks)
        return tt_fail(TT_ERR_SYSTEM, "out of memory for %zu ranks", n);
    TT_TRY(bind(world));
    TT_TRY(make_blocks(world));
    TT_TRY(run(world));
    keep_last(world);
    keep_busy(world);
    return TT_OK;
}

tt_status cost_walk(const struct cost_call *call, struct cost_walk *walk)
{
    struct cost_world world = {.call = call, .walk = walk, .nranks = call->nranks};
    *walk = (struct cost_walk){.nblocks = 0};
    const tt_status status = walk_all(&world);
    free_world(&world);
    if (status) cost_walk_free(walk);
    return status;
}

void cost_walk_free(struct cost_walk *walk)
{
    free(walk->steps);
    free(walk->busy);
    walk->steps = NULL;
    walk->busy = NULL;
}
