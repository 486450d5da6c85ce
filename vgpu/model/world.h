/* A model, a region and short names for accesses, for tests. */
#ifndef VGPU_MODEL_WORLD_H
#define VGPU_MODEL_WORLD_H

#include <string.h>

#include <shim.h>
#include <vgpu/model.h>

enum { WORLD_BYTES = 8192, WORLD_BLOCKS = 4, WORLD_THREADS = 64 };

struct world {
    struct vg_model *model;
    struct vg_region region;
    _Alignas(16) unsigned char bytes[WORLD_BYTES];
    struct vg_past *past;
    struct vg_grid_clock *grid;
    struct vg_block_clock *block[WORLD_BLOCKS];
    struct vg_race races[16];
    uint32_t nraces;
};

static inline void world_race(void *arg, const struct vg_race *race)
{
    struct world *world = arg;
    if (world->nraces < 16) world->races[world->nraces] = *race;
    world->nraces++;
}

static inline void world_blocks(struct world *world, uint64_t number, int device)
{
    world->grid =
        vg_model_grid_begin(world->model, number, device, WORLD_BLOCKS, WORLD_THREADS, world->past);
    for (uint32_t b = 0; b < WORLD_BLOCKS; b++)
        world->block[b] = vg_model_block_begin(world->grid, b);
}

static inline void world_ends(struct world *world)
{
    for (uint32_t b = 0; b < WORLD_BLOCKS; b++) vg_model_block_end(world->block[b]);
    vg_model_grid_end(world->grid, world->past);
}

/* A grid of four blocks of 64 threads on device 0 is running. */
static inline void world_begin(struct world *world, struct vg_model_settings settings)
{
    memset(world, 0, sizeof *world);
    settings.race = world_race;
    settings.arg = world;
    world->model = vg_model_create(&settings);
    world->past = vg_past_create();
    world->region = (struct vg_region){
        .address = 0x10000, .nbytes = WORLD_BYTES, .bytes = world->bytes, .what = "test"};
    world_blocks(world, 100, 0);
}

static inline void world_end(struct world *world)
{
    world_ends(world);
    vg_model_forget(world->model, &world->region);
    vg_model_destroy(world->model);
    vg_past_destroy(world->past);
}

static inline struct vg_how how_of(enum vg_order order, enum vg_scope scope, uint8_t nbytes,
                                   uint64_t where)
{
    return (struct vg_how){
        .nbytes = nbytes, .order = (uint8_t)order, .scope = (uint8_t)scope, .where = where};
}

#define WEAK(where) how_of(VG_WEAK, VG_SCOPE_NONE, 4, where)
#define RELAXED(scope, where) how_of(VG_RELAXED, scope, 4, where)
#define ACQUIRE(scope, where) how_of(VG_ACQUIRE, scope, 4, where)
#define RELEASE(scope, where) how_of(VG_RELEASE, scope, 4, where)

static inline uint64_t ld(struct vg_block_clock *block, uint32_t thread, struct world *world,
                          uint64_t offset, struct vg_how how)
{
    uint64_t value[2] = {0};
    vg_model_load(block, thread, &world->region, offset, &how, value);
    return value[0];
}

static inline void st(struct vg_block_clock *block, uint32_t thread, struct world *world,
                      uint64_t offset, struct vg_how how, uint64_t value)
{
    const uint64_t both[2] = {value, value};
    vg_model_store(block, thread, &world->region, offset, &how, both);
}

struct adding {
    uint64_t value;
    uint32_t nbytes;
};

static inline bool world_add(void *arg, const void *old, void *value)
{
    const struct adding *adding = arg;
    uint64_t word = 0;
    memcpy(&word, old, adding->nbytes);
    word += adding->value;
    memcpy(value, &word, adding->nbytes);
    return true;
}

static inline uint64_t add(struct vg_block_clock *block, uint32_t thread, struct world *world,
                           uint64_t offset, struct vg_how how, uint64_t value)
{
    uint64_t old[2] = {0};
    struct adding adding = {value, how.nbytes};
    vg_model_rmw(block, thread, &world->region, offset, &how, world_add, &adding, old);
    return old[0];
}

struct swapping {
    uint64_t expected, value;
    uint32_t nbytes;
};

static inline bool world_swap(void *arg, const void *old, void *value)
{
    const struct swapping *swapping = arg;
    if (memcmp(old, &swapping->expected, swapping->nbytes) != 0) return false;
    memcpy(value, &swapping->value, swapping->nbytes);
    return true;
}

static inline uint64_t swap(struct vg_block_clock *block, uint32_t thread, struct world *world,
                            uint64_t offset, struct vg_how how, uint64_t expected, uint64_t value)
{
    uint64_t old[2] = {0};
    struct swapping swapping = {expected, value, how.nbytes};
    vg_model_rmw(block, thread, &world->region, offset, &how, world_swap, &swapping, old);
    return old[0];
}

static inline void barrier(struct vg_block_clock *block)
{
    const uint64_t all = UINT64_MAX;
    vg_model_barrier(block, 0, &all);
}

#endif
