/* Walks the programs of all ranks on one block of threads for each channel; all copies of a program
 * do the same at the same time, so what they share, links and memory, is divided among them. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/config.h"
#include "cost/world.h"
#include "program/lower.h"
#include "transport/device/device_room.h"
#include "transport/device/layout.h"

/* ---- The walk ------------------------------------------------------------------------------- */

static bool has_ended(const struct cost_world *world)
{
    for (int rank = 0; rank < world->nranks; rank++)
        for (int c = 0; c < world->nchannels; c++)
            if (!cost_is_done(world, cost_block_of(world, rank, c), c)) return false;
    return true;
}

/* Every block in turn, a step each. */
static tt_status run(const struct cost_world *world)
{
    for (bool moved = true; moved;) {
        moved = false;
        for (int rank = 0; rank < world->nranks; rank++)
            for (int c = 0; c < world->nchannels; c++) moved |= cost_go_on(world, rank, c);
    }
    if (has_ended(world)) return TT_OK;
    return tt_fail(TT_ERR_INTERNAL, "%s over %d ranks does not end in the model",
                   world->call->algorithm->name, world->nranks);
}

/* Keeps what the block that ended last has done. */
static void keep_last(struct cost_world *world)
{
    struct cost_walk *walk = world->walk;
    const struct cost_block *last = &world->blocks[0];
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
        walk->fences += step->fences;
        walk->steps_us += step->wait_us + step->fixed_us + step->fence_us + step->data_us;
    }
    walk->call_us = cost_constants[COST_CALL].value;
    if (world->call->link->shared)
        walk->call_us += (world->nranks - 1) * cost_constants[COST_LAUNCH].value;
    walk->us = walk->call_us + walk->steps_us;
    for (int rank = 0; rank < world->nranks && !world->call->link->shared; rank++)
        walk->link_us = fmax(walk->link_us, fmax(world->sent[rank], world->taken[rank]) /
                                                (cost_of_link(world, COST_BANDWIDTH) * 1e3));
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
    return program->nblocks && world->binding.nrounds == 1 && nbytes <= world->walk->line_bytes &&
           tt_gpu_takes_lines(nbytes / 2);
}

static tt_status bind(struct cost_world *world)
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
                           cost_count(call->algorithm, call->nranks, call->nbytes), COST_ELEMENT,
                           &limits, &world->binding));
    world->copies = world->binding.copies;
    *world->walk = (struct cost_walk){.nblocks = world->binding.copies * world->nchannels,
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
    if (!world->blocks || !world->wires)
        return tt_fail(TT_ERR_SYSTEM, "out of memory for %zu ranks", n);
    for (int i = 0; i < world->nranks * world->nchannels; i++) {
        struct cost_block *block = &world->blocks[i];
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

static void free_world(struct cost_world *world)
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
    struct cost_world world = {.call = call, .walk = walk, .nranks = call->nranks};
    const tt_status status = walk_all(&world);
    free_world(&world);
    return status;
}

void cost_walk_free(struct cost_walk *walk)
{
    free(walk->steps);
    walk->steps = NULL;
}
