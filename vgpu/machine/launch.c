/* Machines, launches and the blocks that are resident. */
#include "machine_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PATIENCE = 1000, QUANTUM = 2000, STACK = 1024, MAX_THREADS = 1024, RESERVED = 1024 };
#define WORKSPACES (UINT64_C(1) << 55)

struct vg_machine *vg_machine_create(const struct vg_machine_settings *settings)
{
    struct vg_machine *machine = calloc(1, sizeof *machine);
    if (machine == NULL) return NULL;
    machine->settings = *settings;
    struct vg_machine_settings *s = &machine->settings;
    if (s->patience == 0) s->patience = PATIENCE;
    if (s->quantum == 0) s->quantum = QUANTUM;
    s->model.seed = s->seed;
    s->model.race = vg_report_race;
    s->model.arg = machine;
    machine->model = vg_model_create(&s->model);
    if (machine->model == NULL) {
        free(machine);
        return NULL;
    }
    return machine;
}

void vg_machine_destroy(struct vg_machine *machine)
{
    if (machine == NULL) return;
    while (machine->free_frames != NULL) {
        struct vg_frame *next = machine->free_frames->parent;
        free(machine->free_frames);
        machine->free_frames = next;
    }
    vg_model_destroy(machine->model);
    for (uint32_t i = 0; i < machine->ngpus; i++) free(machine->gpus[i].at);
    free(machine->gpus);
    free(machine->records);
    free(machine);
}

struct vg_model *vg_machine_model(struct vg_machine *machine)
{
    return machine->model;
}

void vg_machine_count(const struct vg_machine *machine, struct vg_machine_counts *counts)
{
    *counts = machine->counts;
}

void vg_machine_traffic(const struct vg_machine *machine, int gpu, struct vgpu_traffic *traffic)
{
    *traffic = (struct vgpu_traffic){0};
    if (gpu >= 0 && (uint32_t)gpu < machine->ngpus) *traffic = machine->gpus[gpu].traffic;
}

/* UINT32_MAX: more than 32 bits count. */
static uint32_t shared_bytes(const struct vg_function *kernel, uint32_t dynamic)
{
    const uint64_t aligned = ((uint64_t)kernel->shared_bytes + 15) & ~UINT64_C(15);
    const uint64_t all = dynamic == 0 ? kernel->shared_bytes : aligned + dynamic;
    return all > UINT32_MAX ? UINT32_MAX : (uint32_t)all;
}

/* What a block takes of its SM: from 8.0 on the system keeps 1 KiB of shared memory a block. */
static uint32_t shared_taken(const struct vg_gpu *gpu, uint32_t nbytes)
{
    const uint32_t kept = gpu->capability >= 80 ? RESERVED : 0;
    return nbytes > UINT32_MAX - kept ? UINT32_MAX : nbytes + kept;
}

uint32_t vg_occupancy(const struct vg_gpu *gpu, const struct vg_function *kernel, uint32_t nthreads,
                      uint32_t dynamic_shared)
{
    const uint32_t threads = (nthreads + VG_LANES - 1) / VG_LANES * VG_LANES;
    const uint32_t shared = shared_taken(gpu, shared_bytes(kernel, dynamic_shared));
    if (threads == 0) return 0;
    uint32_t n = gpu->threads_per_sm / threads;
    if (n > gpu->blocks_per_sm) n = gpu->blocks_per_sm;
    if (shared != 0 && n > gpu->shared_per_sm / shared) n = gpu->shared_per_sm / shared;
    return n;
}

static enum vg_refusal check_shape(const struct vg_launch *launch, uint64_t threads,
                                   uint64_t blocks, char error[512])
{
    const struct vg_function *kernel = launch->kernel;
    const uint32_t *grid = launch->grid, *block = launch->block, *required = kernel->required;
    const uint32_t most = kernel->max_threads != 0 && kernel->max_threads < MAX_THREADS
                              ? kernel->max_threads
                              : MAX_THREADS;
    if (blocks == 0 || threads == 0 || grid[0] > INT32_MAX || grid[1] > 65535 || grid[2] > 65535) {
        snprintf(error, 512, "kernel %s: a grid of %ux%ux%u blocks of %ux%ux%u threads",
                 kernel->name, grid[0], grid[1], grid[2], block[0], block[1], block[2]);
        return VG_REFUSED_SHAPE;
    }
    if (block[0] > most || block[1] > most || block[2] > 64 || threads > most) {
        snprintf(error, 512, "kernel %s: %ux%ux%u threads a block, the limit is %u", kernel->name,
                 block[0], block[1], block[2], most);
        return block[0] > MAX_THREADS || block[1] > MAX_THREADS || block[2] > 64 ||
                       threads > MAX_THREADS
                   ? VG_REFUSED_SHAPE
                   : VG_REFUSED_THREADS;
    }
    if (required[0] != 0 &&
        (required[0] != block[0] || (required[1] != 0 && required[1] != block[1]) ||
         (required[2] != 0 && required[2] != block[2]))) {
        snprintf(error, 512, "kernel %s: %ux%ux%u threads a block, .reqntid says %ux%ux%u",
                 kernel->name, block[0], block[1], block[2], required[0], required[1], required[2]);
        return VG_REFUSED_SHAPE;
    }
    return VG_ACCEPTED;
}

enum vg_refusal vg_launch_check(const struct vg_launch *launch, char error[512])
{
    const struct vg_function *kernel = launch->kernel;
    const struct vg_gpu *gpu = launch->gpu;
    const uint64_t threads = (uint64_t)launch->block[0] * launch->block[1] * launch->block[2];
    const uint64_t blocks = (uint64_t)launch->grid[0] * launch->grid[1] * launch->grid[2];
    const uint32_t shared = shared_bytes(kernel, launch->dynamic_shared);
    if (kernel->unsupported != NULL) {
        snprintf(error, 512, "kernel %s cannot run: unsupported: %s", kernel->name,
                 kernel->unsupported);
        return VG_REFUSED_INSTRUCTION;
    }
    const enum vg_refusal shape = check_shape(launch, threads, blocks, error);
    if (shape != VG_ACCEPTED) return shape;
    if (shared > gpu->shared_per_block) {
        snprintf(error, 512,
                 "kernel %s: %u bytes of shared memory (%u static, %u dynamic), the limit of a "
                 "block is %u",
                 kernel->name, shared, kernel->shared_bytes, launch->dynamic_shared,
                 gpu->shared_per_block);
        return VG_REFUSED_SHARED;
    }
    const uint32_t fit =
        vg_occupancy(gpu, kernel, (uint32_t)threads, launch->dynamic_shared) * gpu->nsms;
    if (fit == 0) {
        snprintf(error, 512, "kernel %s: no SM has room for a block of %u threads and %u bytes",
                 kernel->name, (uint32_t)threads, shared);
        return VG_REFUSED_SHARED;
    }
    if (launch->cooperative && blocks > fit) {
        snprintf(error, 512,
                 "kernel %s: a cooperative grid of %llu blocks, %u can be resident at once",
                 kernel->name, (unsigned long long)blocks, fit);
        return VG_REFUSED_COOPERATIVE;
    }
    return VG_ACCEPTED;
}

static bool record(struct vg_machine *machine, const struct vg_launch *launch)
{
    if (machine->nrecords == machine->records_room) {
        const uint32_t room = machine->records_room == 0 ? 64 : 2 * machine->records_room;
        void *records = realloc(machine->records, room * sizeof *machine->records);
        if (records == NULL) return false;
        machine->records = records;
        machine->records_room = room;
    }
    struct vg_record *r = &machine->records[machine->nrecords++];
    *r = (struct vg_record){
        .number = launch->number, .image = launch->image, .kernel = launch->kernel};
    memcpy(r->grid, launch->grid, sizeof r->grid);
    memcpy(r->block, launch->block, sizeof r->block);
    return true;
}

/* The SMs of the GPU, which all runs on it share. NULL: no memory. */
static struct vg_sm *sms_of(struct vg_machine *machine, const struct vg_gpu *gpu)
{
    const uint32_t number = (uint32_t)gpu->number;
    if (number >= machine->ngpus) {
        struct vg_sms *gpus = realloc(machine->gpus, (number + 1) * sizeof *gpus);
        if (gpus == NULL) return NULL;
        memset(gpus + machine->ngpus, 0, (number + 1 - machine->ngpus) * sizeof *gpus);
        machine->gpus = gpus;
        machine->ngpus = number + 1;
    }
    struct vg_sms *sms = &machine->gpus[number];
    if (sms->at == NULL) {
        sms->at = calloc(gpu->nsms, sizeof *sms->at);
        sms->n = gpu->nsms;
    }
    return gpu->nsms <= sms->n ? sms->at : NULL;
}

static bool allocate(struct vg_run *run)
{
    const struct vg_launch *launch = &run->launch;
    const uint64_t most =
        (uint64_t)launch->gpu->nsms *
        vg_occupancy(launch->gpu, launch->kernel, run->nthreads, launch->dynamic_shared);
    run->room = (uint32_t)(most < run->nblocks ? most : run->nblocks);
    const size_t warps = (size_t)run->room * ((run->nthreads + VG_LANES - 1) / VG_LANES);
    run->resident = calloc(run->room, sizeof *run->resident);
    run->sms = sms_of(run->machine, launch->gpu);
    run->params = calloc(1, launch->kernel->param_bytes + 16u);
    for (int i = 0; i < VG_LISTS; i++) {
        run->list[i].at = calloc(warps, sizeof *run->list[i].at);
        if (run->list[i].at == NULL) return false;
    }
    return run->resident != NULL && run->sms != NULL && run->params != NULL;
}

/* Where the barrier of cooperative groups' grid_group lies. NVIDIA's driver gives such memory to
 * each cooperative grid; the manual does not say so. Addresses behind all that a driver gives. */
static bool workspace_begin(struct vg_run *run)
{
    const struct vg_launch *launch = &run->launch;
    if (!launch->cooperative || launch->gpu->regions == NULL) return true;
    run->workspace =
        (struct vg_region){.address = WORKSPACES + launch->number * sizeof run->workspace_bytes,
                           .nbytes = sizeof run->workspace_bytes,
                           .bytes = (unsigned char *)run->workspace_bytes,
                           .device = launch->gpu->number,
                           .what = "the workspace of a cooperative grid",
                           .number = launch->number};
    if (vg_regions_add(launch->gpu->regions, &run->workspace) == 0) return true;
    run->workspace.address = 0;
    return false;
}

static void workspace_end(struct vg_run *run)
{
    if (run->workspace.address == 0) return;
    vg_regions_remove(run->launch.gpu->regions, &run->workspace);
    vg_model_forget(run->machine->model, &run->workspace);
}

static void release(struct vg_run *run)
{
    workspace_end(run);
    for (int i = 0; i < VG_LISTS; i++) free(run->list[i].at);
    free(run->resident);
    free(run->params);
    free(run);
}

int vg_run_begin(struct vg_machine *machine, const struct vg_launch *launch, struct vg_run **run,
                 char error[512])
{
    if (vg_launch_check(launch, error) != VG_ACCEPTED) return -1;
    struct vg_run *made = calloc(1, sizeof *made);
    if (made == NULL) goto no_memory;
    const uint32_t *grid = launch->grid;
    made->machine = machine;
    made->launch = *launch;
    made->nblocks = (uint64_t)grid[0] * grid[1] * grid[2];
    made->nthreads = launch->block[0] * launch->block[1] * launch->block[2];
    made->shared_bytes = shared_bytes(launch->kernel, launch->dynamic_shared);
    const uint32_t stack = launch->local_limit == 0 ? STACK : launch->local_limit;
    made->local_room = (launch->kernel->local_bytes + stack + 15) & ~15u;
    made->random = machine->settings.seed * UINT64_C(0x2545f4914f6cdd1d) + launch->number;
    if (!allocate(made) || !workspace_begin(made) || !record(machine, launch)) goto no_memory;
    if (launch->kernel->param_bytes != 0)
        memcpy(made->params, launch->params, launch->kernel->param_bytes);
    made->clock = vg_model_grid_begin(machine->model, launch->number, launch->gpu->number,
                                      made->nblocks, made->nthreads, launch->before);
    if (made->clock == NULL) goto no_memory;
    made->launch.params = made->params;
    machine->counts.launches++;
    machine->gpus[launch->gpu->number].traffic.launches++;
    *run = made;
    return 0;
no_memory:
    if (made != NULL) release(made);
    snprintf(error, 512, "no memory for a launch of kernel %s", launch->kernel->name);
    return -1;
}

/* The i-th block to start: by index, or by a permutation that the seed chooses. */
static uint64_t next_block(struct vg_run *run)
{
    const uint64_t seed = run->machine->settings.seed * 2 + 1;
    if (!run->machine->settings.shuffled_blocks) return run->started;
    uint64_t mask = 1;
    while (mask < run->nblocks) mask *= 2;
    mask--;
    uint64_t x;
    do { /* odd factors, sums and xor with a shift are permutations of 0 .. mask */
        x = run->tried++;
        for (int i = 0; i < 3; i++) {
            x = (x * (seed * UINT64_C(0x9e3779b97f4a7c15) | 1) + seed + run->launch.number) & mask;
            x ^= x >> 3 | x >> 7;
        }
        x &= mask;
    } while (x >= run->nblocks);
    return x;
}

static uint32_t threads_taken(const struct vg_run *run)
{
    return (run->nthreads + VG_LANES - 1) / VG_LANES * VG_LANES;
}

static void take_room(const struct vg_run *run, struct vg_sm *sm)
{
    sm->threads += threads_taken(run);
    sm->blocks++;
    sm->shared += shared_taken(run->launch.gpu, run->shared_bytes);
}

/* False: no memory. vg_block_end gives back what a block has that is resident. */
static bool block_begin(struct vg_run *run, uint64_t index, uint32_t sm)
{
    struct vg_block *block = calloc(1, sizeof *block);
    if (block == NULL) return false;
    take_room(run, &run->sms[sm]);
    const uint32_t *grid = run->launch.grid;
    block->run = run;
    block->index = index;
    block->at[0] = (uint32_t)(index % grid[0]);
    block->at[1] = (uint32_t)(index / grid[0] % grid[1]);
    block->at[2] = (uint32_t)(index / grid[0] / grid[1]);
    block->sm = sm;
    block->nthreads = run->nthreads;
    block->nwarps = block->live_warps = (run->nthreads + VG_LANES - 1) / VG_LANES;
    block->warps = calloc(block->nwarps, sizeof *block->warps);
    for (uint32_t w = 0; block->warps != NULL && w < block->nwarps; w++) {
        block->warps[w].block = block;
        block->warps[w].list = VG_LISTS;
    }
    snprintf(block->what, sizeof block->what, "shared memory of block %llu",
             (unsigned long long)index);
    block->shared = (struct vg_region){.address = VG_SHARED_WINDOW,
                                       .nbytes = run->shared_bytes,
                                       .bytes = calloc(1, run->shared_bytes + 16u),
                                       .device = run->launch.gpu->number,
                                       .what = block->what,
                                       .number = index};
    block->reserved = (struct vg_region){.address = VG_SHARED_WINDOW + VG_RESERVED_SHARED,
                                         .nbytes = VG_RESERVED_BYTES,
                                         .bytes = (unsigned char *)block->reserved_bytes,
                                         .device = run->launch.gpu->number,
                                         .what = "shared memory that the system keeps of a block",
                                         .number = index};
    if (run->machine->settings.check_undefined)
        block->shared.defined = calloc(1, run->shared_bytes / 8 + 1u);
    block->clock = vg_model_block_begin(run->clock, index);
    if (run->nresident == 0) run->machine->nruns++;
    block->slot = run->nresident;
    run->resident[run->nresident++] = block;
    if (block->warps == NULL || block->shared.bytes == NULL || block->clock == NULL) return false;
    if (run->machine->settings.check_undefined && block->shared.defined == NULL) return false;
    for (uint32_t w = 0; w < block->nwarps; w++) {
        if (vg_warp_begin(&block->warps[w], block, w) != 0) return false;
        block->warps[w].list = VG_LISTS;
        vg_list_move(&block->warps[w], VG_READY);
    }
    return true;
}

/* How many more blocks of the run the SM has room for. */
static uint32_t room_on(const struct vg_run *run, const struct vg_sm *sm)
{
    const struct vg_gpu *gpu = run->launch.gpu;
    const uint32_t shared = shared_taken(gpu, run->shared_bytes);
    uint32_t n = (gpu->threads_per_sm - sm->threads) / threads_taken(run);
    if (n > gpu->blocks_per_sm - sm->blocks) n = gpu->blocks_per_sm - sm->blocks;
    if (shared != 0 && n > (gpu->shared_per_sm - sm->shared) / shared)
        n = (gpu->shared_per_sm - sm->shared) / shared;
    return n;
}

static bool all_have_room(const struct vg_run *run)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < run->launch.gpu->nsms; i++) n += room_on(run, &run->sms[i]);
    return n >= run->nblocks;
}

bool vg_block_admit(struct vg_run *run)
{
    const struct vg_gpu *gpu = run->launch.gpu;
    if (run->launch.cooperative && run->started == 0 && !all_have_room(run)) return true;
    while (run->started < run->nblocks && run->nresident < run->room) {
        struct vg_sm *best = NULL;
        for (uint32_t i = 0; i < gpu->nsms; i++) {
            struct vg_sm *sm = &run->sms[i];
            if (room_on(run, sm) != 0 && (best == NULL || sm->blocks < best->blocks)) best = sm;
        }
        if (best == NULL) return true;
        if (!block_begin(run, next_block(run), (uint32_t)(best - run->sms))) {
            run->fault = VG_FAULT_RESOURCES;
            snprintf(run->text, sizeof run->text, "kernel %s: no memory for block %llu",
                     run->launch.kernel->name, (unsigned long long)run->started);
            return false;
        }
        run->started++;
        run->moves++;
    }
    return true;
}

void vg_block_end(struct vg_block *block)
{
    struct vg_run *run = block->run;
    struct vg_sm *sm = &run->sms[block->sm];
    sm->threads -= threads_taken(run);
    sm->blocks--;
    sm->shared -= shared_taken(run->launch.gpu, run->shared_bytes);
    for (uint32_t w = 0; block->warps != NULL && w < block->nwarps; w++) {
        vg_list_move(&block->warps[w], VG_LISTS);
        vg_warp_end(&block->warps[w]);
    }
    vg_model_forget(run->machine->model, &block->shared);
    vg_model_forget(run->machine->model, &block->reserved);
    if (block->clock != NULL) vg_model_block_end(block->clock);
    run->resident[block->slot] = run->resident[--run->nresident];
    if (run->nresident == 0) run->machine->nruns--;
    run->resident[block->slot]->slot = block->slot;
    free(block->warps);
    free(block->shared.bytes);
    free(block->shared.defined);
    free(block);
}

void vg_run_end(struct vg_run *run, struct vg_past *after)
{
    if (run == NULL) return;
    while (run->nresident != 0) vg_block_end(run->resident[run->nresident - 1]);
    vg_model_grid_end(run->clock, after);
    release(run);
}
