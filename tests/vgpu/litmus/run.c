/* See run.h. Threads take turns by the seed, an operation at a time; a barrier waits for all
 * threads of its block. */
#include <vgpu/litmus/run.h>

#include <string.h>

enum { DEVICES = 2, BLOCKS = 2, PLACES = 128 };

struct running {
    const struct vl_test *test;
    struct vg_block_clock *blocks[DEVICES][BLOCKS];
    struct vg_region region;
    unsigned next[VL_THREADS];
    bool waits[VL_THREADS];
    uint64_t state;
    vl_outcome outcome;
    unsigned races;
};

static void count_race(void *arg, const struct vg_race *race)
{
    (void)race;
    ((struct running *)arg)->races++;
}

static uint32_t roll(struct running *r, uint32_t n)
{
    r->state = r->state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(r->state >> 33) % n;
}

static bool exchange(void *arg, const void *old, void *value)
{
    (void)old;
    memcpy(value, arg, 4);
    return true;
}

/* When all threads of the block wait, they go on. */
static void meet(struct running *r, unsigned device, unsigned block)
{
    uint64_t threads[PLACES / 64] = {0};
    for (unsigned t = 0; t < r->test->nthreads; t++) {
        const struct vl_thread *thread = &r->test->threads[t];
        if (thread->device != device || thread->block != block) continue;
        if (!r->waits[t]) return;
        threads[thread->place / 64] |= UINT64_C(1) << thread->place % 64;
    }
    vg_model_barrier(r->blocks[device][block], 0, threads);
    for (unsigned t = 0; t < r->test->nthreads; t++) {
        const struct vl_thread *thread = &r->test->threads[t];
        if (thread->device == device && thread->block == block) r->waits[t] = false;
    }
}

static void step(struct running *r, unsigned t)
{
    const struct vl_thread *thread = &r->test->threads[t];
    const struct vl_op *op = &thread->ops[r->next[t]++];
    struct vg_block_clock *block = r->blocks[thread->device][thread->block];
    const struct vg_how how = {
        .nbytes = 4,
        .order = (uint8_t)op->order,
        .scope = (uint8_t)(op->order == VG_WEAK ? VG_SCOPE_NONE : op->scope),
        .where = t * 16 + r->next[t],
    };
    const uint64_t offset = op->location * 64u;
    uint32_t value = op->value, old = 0;
    switch (op->kind) {
    case VL_LOAD:
        vg_model_load(block, thread->place, &r->region, offset, &how, &old);
        break;
    case VL_STORE:
        vg_model_store(block, thread->place, &r->region, offset, &how, &value);
        break;
    case VL_EXCHANGE:
        vg_model_rmw(block, thread->place, &r->region, offset, &how, exchange, &value, &old);
        break;
    case VL_FENCE:
        vg_model_fence(block, thread->place, op->order, op->scope);
        break;
    case VL_BARRIER:
        r->waits[t] = true;
        meet(r, thread->device, thread->block);
        break;
    }
    if (op->kind == VL_LOAD || op->kind == VL_EXCHANGE)
        r->outcome = vl_put(r->outcome, op->reg, old);
}

static void run_threads(struct running *r)
{
    for (;;) {
        unsigned ready[VL_THREADS], n = 0;
        for (unsigned t = 0; t < r->test->nthreads; t++)
            if (!r->waits[t] && r->next[t] < r->test->threads[t].nops) ready[n++] = t;
        if (!n) return;
        step(r, ready[roll(r, n)]);
    }
}

int vl_run(const struct vl_test *test, uint64_t seed, enum vg_reads reads, vl_outcome *outcome,
           unsigned *races)
{
    unsigned char bytes[VL_LOCATIONS * 64] = {0};
    struct running r = {.test = test, .state = seed * UINT64_C(0x9e3779b97f4a7c15) + 1};
    r.region = (struct vg_region){
        .address = 1 << 20, .nbytes = sizeof bytes, .bytes = bytes, .what = "litmus"};
    const struct vg_model_settings settings = {
        .seed = seed, .reads = reads, .race = count_race, .arg = &r};
    struct vg_model *model = vg_model_create(&settings);
    struct vg_past *past = vg_past_create(), *after = vg_past_create();
    struct vg_grid_clock *grids[DEVICES] = {NULL};
    int status = model && past && after ? 0 : -1;
    for (unsigned d = 0; d < DEVICES && !status; d++) {
        grids[d] = vg_model_grid_begin(model, d + 1, (int)d, BLOCKS, PLACES, past);
        if (!grids[d]) status = -1;
        for (unsigned b = 0; b < BLOCKS && !status; b++)
            if (!(r.blocks[d][b] = vg_model_block_begin(grids[d], b))) status = -1;
    }
    if (!status) run_threads(&r);
    for (unsigned d = 0; d < DEVICES; d++) {
        for (unsigned b = 0; b < BLOCKS; b++)
            if (r.blocks[d][b]) vg_model_block_end(r.blocks[d][b]);
        if (grids[d]) vg_model_grid_end(grids[d], after);
    }
    for (unsigned l = 0; l < test->nlocations; l++) {
        uint32_t last;
        memcpy(&last, bytes + l * 64, 4);
        r.outcome = vl_put(r.outcome, VL_REGISTERS + l, last);
    }
    if (model) vg_model_forget(model, &r.region);
    vg_past_destroy(past);
    vg_past_destroy(after);
    vg_model_destroy(model);
    *outcome = r.outcome;
    *races = r.races;
    return status;
}
