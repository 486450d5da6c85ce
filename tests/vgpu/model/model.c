/* The memory model's face: for now it only moves bytes. */
#include <vgpu/model.h>

#include <stdlib.h>
#include <string.h>

struct vg_model {
    struct vg_model_settings settings;
    struct vg_model_counts counts;
};
struct vg_past {
    uint64_t unused;
};
struct vg_grid_clock {
    struct vg_model *model;
};
struct vg_block_clock {
    struct vg_grid_clock *grid;
};

struct vg_model *vg_model_create(const struct vg_model_settings *settings)
{
    struct vg_model *model = calloc(1, sizeof *model);
    if (model != NULL) model->settings = *settings;
    return model;
}

void vg_model_destroy(struct vg_model *model)
{
    free(model);
}

struct vg_past *vg_past_create(void)
{
    return calloc(1, sizeof(struct vg_past));
}

void vg_past_destroy(struct vg_past *past)
{
    free(past);
}

void vg_past_join(struct vg_past *past, const struct vg_past *other)
{
    past->unused = other->unused;
}

struct vg_grid_clock *vg_model_grid_begin(struct vg_model *model, uint64_t number, int device,
                                          uint64_t nblocks, uint32_t nthreads,
                                          const struct vg_past *before)
{
    (void)number, (void)device, (void)nblocks, (void)nthreads, (void)before;
    struct vg_grid_clock *grid = calloc(1, sizeof *grid);
    if (grid != NULL) grid->model = model;
    return grid;
}

void vg_model_grid_end(struct vg_grid_clock *grid, struct vg_past *after)
{
    (void)after;
    free(grid);
}

struct vg_block_clock *vg_model_block_begin(struct vg_grid_clock *grid, uint64_t block)
{
    (void)block;
    struct vg_block_clock *clock = calloc(1, sizeof *clock);
    if (clock != NULL) clock->grid = grid;
    return clock;
}

void vg_model_block_end(struct vg_block_clock *block)
{
    free(block);
}

void vg_model_load(struct vg_block_clock *block, uint32_t thread, struct vg_region *region,
                   uint64_t offset, const struct vg_how *how, void *value)
{
    (void)thread;
    block->grid->model->counts.loads++;
    memcpy(value, region->bytes + offset, how->nbytes);
}

void vg_model_store(struct vg_block_clock *block, uint32_t thread, struct vg_region *region,
                    uint64_t offset, const struct vg_how *how, const void *value)
{
    (void)thread;
    block->grid->model->counts.stores++;
    memcpy(region->bytes + offset, value, how->nbytes);
}

void vg_model_rmw(struct vg_block_clock *block, uint32_t thread, struct vg_region *region,
                  uint64_t offset, const struct vg_how *how, vg_change *change, void *arg,
                  void *old)
{
    unsigned char value[16];
    (void)thread;
    block->grid->model->counts.rmws++;
    memcpy(old, region->bytes + offset, how->nbytes);
    memcpy(value, old, how->nbytes);
    if (change(arg, old, value)) memcpy(region->bytes + offset, value, how->nbytes);
}

void vg_model_fence(struct vg_block_clock *block, uint32_t thread, enum vg_order order,
                    enum vg_scope scope)
{
    (void)thread, (void)order, (void)scope;
    block->grid->model->counts.fences++;
}

void vg_model_barrier(struct vg_block_clock *block, const uint64_t *threads,
                      const uint64_t *arrived)
{
    (void)block, (void)threads, (void)arrived;
}

void vg_model_warp(struct vg_block_clock *block, uint32_t warp, uint32_t lanes)
{
    (void)block, (void)warp, (void)lanes;
}

void vg_model_forget(struct vg_model *model, struct vg_region *region)
{
    (void)model, (void)region;
}

void vg_model_flush(struct vg_model *model, int device)
{
    (void)model, (void)device;
}

void vg_model_count(const struct vg_model *model, struct vg_model_counts *counts)
{
    *counts = model->counts;
}
