/* A litmus test run on the memory model (model/), one interleaving a seed. */
#ifndef VGPU_LITMUS_RUN_H
#define VGPU_LITMUS_RUN_H

#include <vgpu/litmus/litmus.h>
#include <vgpu/model.h>

/* Mistakes that are planted between the runner and the model; NULL: none. */
struct vl_calls {
    void (*alter)(struct vl_op *op); /* what the model is told */
    struct vg_grid_clock *(*grid_begin)(struct vg_model *, uint64_t number, int device,
                                        uint64_t nblocks, uint32_t nthreads,
                                        const struct vg_past *before);
    void (*load)(struct vg_block_clock *, uint32_t thread, struct vg_region *, uint64_t offset,
                 const struct vg_how *, void *value);
    void (*rmw)(struct vg_block_clock *, uint32_t thread, struct vg_region *, uint64_t offset,
                const struct vg_how *, vg_change *, void *arg, void *old);
    void (*arrive)(struct vg_block_clock *, uint32_t number, const uint64_t *threads);
    void (*barrier)(struct vg_block_clock *, uint32_t number, const uint64_t *threads);
    void (*warp)(struct vg_block_clock *, uint32_t warp, uint32_t lanes);
};

struct vl_run {
    const struct vl_calls *calls; /* NULL: no mistake */
    uint64_t seed;
    enum vg_reads reads;
    uint32_t depth, late; /* of struct vg_model_settings */
    bool reachable;       /* the memory is reachable memory */
    bool looked; /* a grid that ends before all others has read what the test accesses: then the
                  * model knows what the host has not written */
};

struct vl_result {
    struct vl_outcome outcome;
    unsigned races; /* that the model reported */
    uint64_t older; /* loads that returned an older value */
};

/* -1: no memory; -2: a thread waits for ever, which is a defect of the test. */
int vl_run(const struct vl_test *test, const struct vl_run *run, struct vl_result *result);

#endif
