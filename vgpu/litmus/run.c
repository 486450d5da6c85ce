/* See run.h. Threads take turns by the seed, an operation at a time. A grid begins when those
 * before it have ended. A host thread reads and writes the bytes. */
#include <vgpu/litmus/run.h>

#include <string.h>

enum { BLOCKS = 4, PLACES = 70, STRIDE = 64, NUMBERS = 32 };

struct grid {
    struct vg_grid_clock *clock;
    struct vg_block_clock *blocks[BLOCKS];
    struct vg_past *before, *after;
    bool begun, ended;
    bool lent[BLOCKS]; /* idle threads have met some of the block: add_idle */
};

struct running {
    const struct vl_test *test;
    const struct vl_run *run;
    struct vl_calls calls; /* all set but alter */
    struct vg_model *model;
    struct grid grids[VL_GRIDS];
    struct vg_region region;
    struct vg_past *looked; /* NULL: nobody has looked */
    unsigned next[VL_THREADS];
    unsigned came[VL_THREADS]; /* a bit a barrier: it has come there, which is not complete */
    bool waits[VL_THREADS];
    uint64_t state;
    struct vl_result *result;
};

static void count_race(void *arg, const struct vg_race *race)
{
    (void)race;
    ((struct running *)arg)->result->races++;
}

static uint32_t roll(struct running *r, uint32_t n)
{
    r->state = r->state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(r->state >> 33) % n;
}

/* --- barriers --- */

static bool takes_part(const struct running *r, unsigned t, unsigned number, enum vl_kind kind)
{
    const struct vl_thread *thread = &r->test->threads[t];
    for (unsigned k = 0; k < thread->nops; k++)
        if (thread->ops[k].kind == kind && thread->ops[k].number == number) return true;
    return false;
}

/* The threads of the block that name the barrier. */
static unsigned members(const struct running *r, unsigned t, unsigned number, enum vl_kind kind)
{
    unsigned all = 0;
    for (unsigned u = 0; u < r->test->nthreads; u++)
        if (r->test->threads[u].grid == r->test->threads[t].grid &&
            r->test->threads[u].block == r->test->threads[t].block &&
            takes_part(r, u, number, kind))
            all |= 1u << u;
    return all;
}

static void set(uint64_t *threads, unsigned place)
{
    threads[place / 64] |= UINT64_C(1) << place % 64;
}

/* By the seed, threads that do nothing but meet are there as well: all of the block, or, once,
 * those of the warps of those who meet. Twice they would carry what some know to others. */
static void add_idle(struct running *r, unsigned t, uint64_t *threads, bool whole)
{
    const struct vl_thread *mine = &r->test->threads[t];
    bool *lent = &r->grids[mine->grid].lent[mine->block];
    const unsigned kind = roll(r, 3);
    if (kind == 0 || (kind == 1 && !whole) || (kind == 2 && *lent)) return;
    *lent |= kind == 2;
    for (unsigned place = 0; place < PLACES; place++) {
        bool idle = true, wanted = kind == 1;
        for (unsigned u = 0; u < r->test->nthreads; u++) {
            const struct vl_thread *other = &r->test->threads[u];
            if (other->grid != mine->grid || other->block != mine->block) continue;
            idle &= other->place != place;
            wanted |= kind == 2 && other->place / VG_LANES == place / VG_LANES &&
                      threads[other->place / 64] >> other->place % 64 & 1;
        }
        if (idle && wanted) set(threads, place);
    }
}

/* When all who name the barrier have come, those who wait go on. */
static void meet(struct running *r, unsigned t, unsigned number)
{
    const unsigned wait = members(r, t, number, VL_BARRIER),
                   all = wait | members(r, t, number, VL_ARRIVE);
    const struct vl_thread *thread = &r->test->threads[t];
    struct vg_block_clock *block = r->grids[thread->grid].blocks[thread->block];
    uint64_t threads[(PLACES + 63) / 64] = {0};
    unsigned in_block = 0;
    for (unsigned u = 0; u < r->test->nthreads && u < VL_THREADS; u++) { /* bound: GCC asks */
        in_block |= (unsigned)(r->test->threads[u].grid == thread->grid &&
                               r->test->threads[u].block == thread->block)
                    << u;
        if (!(all >> u & 1)) continue;
        if (!(r->came[u] >> number & 1)) return;
        if (wait >> u & 1) set(threads, r->test->threads[u].place);
    }
    for (unsigned u = 0; u < r->test->nthreads; u++) {
        if (!(all >> u & 1)) continue;
        r->came[u] &= ~(1u << number);
        if (wait >> u & 1) r->waits[u] = false;
    }
    add_idle(r, t, threads, wait == in_block);
    if (number < VL_WARP)
        r->calls.barrier(block, number, threads);
    else
        r->calls.warp(block, thread->place / VG_LANES,
                      (uint32_t)(threads[thread->place / 64] >> thread->place / VG_LANES % 2 * 32));
}

static void come(struct running *r, unsigned t, const struct vl_op *op)
{
    const struct vl_thread *thread = &r->test->threads[t];
    uint64_t threads[(PLACES + 63) / 64] = {0};
    r->came[t] |= 1u << op->number;
    if (op->kind == VL_ARRIVE) {
        set(threads, thread->place);
        r->calls.arrive(r->grids[thread->grid].blocks[thread->block], op->number, threads);
    } else {
        r->waits[t] = true;
    }
    meet(r, t, op->number);
}

/* --- accesses --- */

static bool change(void *arg, const void *old, void *value)
{
    const struct vl_op *op = arg;
    uint8_t bytes[VL_BYTES];
    memcpy(bytes, old, op->nbytes);
    for (unsigned k = 0; k < op->nbytes; k++) {
        if (op->kind == VL_SWAP && bytes[k] != op->expected) return false;
        bytes[k] = (uint8_t)(op->value + (op->kind == VL_ADD ? bytes[k] : 0));
    }
    memcpy(value, bytes, op->nbytes);
    return true;
}

static void access_from_host(struct running *r, const struct vl_op *op, uint8_t *old)
{
    uint8_t *at = r->region.bytes + op->location * STRIDE + op->first;
    if (vl_reads(op)) memcpy(old, at, op->nbytes);
    if (op->kind == VL_STORE) memset(at, op->value, op->nbytes);
    if (vl_is_atomic(op)) change((void *)(uintptr_t)op, old, at);
}

static void access_from_device(struct running *r, unsigned t, struct vl_op *op, uint8_t *old)
{
    const struct vl_thread *thread = &r->test->threads[t];
    struct vg_block_clock *block = r->grids[thread->grid].blocks[thread->block];
    const struct vg_how how = {
        .nbytes = op->nbytes,
        .order = (uint8_t)op->order,
        .scope = (uint8_t)(op->order == VG_WEAK ? VG_SCOPE_NONE : op->scope),
        .nc = op->nc,
        .red = vl_is_atomic(op) && op->reg == VL_REGISTERS,
        .where = t * 32 + r->next[t],
    };
    const uint64_t offset = op->location * (uint64_t)STRIDE + op->first;
    uint8_t value[VL_BYTES];
    memset(value, op->value, sizeof value);
    if (op->kind == VL_LOAD)
        r->calls.load(block, thread->place, &r->region, offset, &how, old);
    else if (op->kind == VL_STORE)
        vg_model_store(block, thread->place, &r->region, offset, &how, value);
    else
        r->calls.rmw(block, thread->place, &r->region, offset, &how, change, op, old);
}

static void step(struct running *r, unsigned t)
{
    const struct vl_thread *thread = &r->test->threads[t];
    const struct vl_op op = thread->ops[r->next[t]++];
    struct vl_op told = op;
    struct vg_block_clock *block = r->grids[thread->grid].blocks[thread->block];
    const bool host = r->test->grids[thread->grid].device == VL_HOST;
    uint8_t old[VL_BYTES] = {0};
    if (r->calls.alter) r->calls.alter(&told);
    if (op.kind >= VL_BARRIER)
        come(r, t, &op);
    else if (op.kind == VL_FENCE && !host)
        vg_model_fence(block, thread->place, told.order, told.scope);
    else if (vl_accesses(&op) && host)
        access_from_host(r, &op, old);
    else if (vl_accesses(&op))
        access_from_device(r, t, &told, old);
    if (vl_reads(&op) && op.reg < VL_REGISTERS)
        memcpy(r->result->outcome.at[op.reg], old, op.nbytes);
}

/* --- grids --- */

static int begin_grid(struct running *r, unsigned g)
{
    struct grid *grid = &r->grids[g];
    const int device = r->test->grids[g].device;
    grid->begun = true;
    if (device == VL_HOST) return 0;
    grid->before = vg_past_create();
    grid->after = vg_past_create();
    if (!grid->before || !grid->after) return -1;
    for (unsigned h = 0; h < r->test->ngrids; h++)
        if (r->test->grids[g].before >> h & 1) vg_past_join(grid->before, r->grids[h].after);
    vg_past_join(grid->before, r->looked);
    grid->clock = r->calls.grid_begin(r->model, g + 1, device, BLOCKS, PLACES, grid->before);
    if (!grid->clock) return -1;
    for (unsigned t = 0; t < r->test->nthreads; t++) {
        const struct vl_thread *thread = &r->test->threads[t];
        if (thread->grid != g || grid->blocks[thread->block]) continue;
        grid->blocks[thread->block] = vg_model_block_begin(grid->clock, thread->block);
        if (!grid->blocks[thread->block]) return -1;
    }
    return 0;
}

static void end_grid(struct running *r, unsigned g)
{
    struct grid *grid = &r->grids[g];
    for (unsigned b = 0; b < BLOCKS; b++)
        if (grid->blocks[b]) vg_model_block_end(grid->blocks[b]);
    if (grid->clock) vg_model_grid_end(grid->clock, grid->after);
    grid->ended = true;
}

/* A grid reads all that the test accesses. */
static int look(struct running *r)
{
    struct vg_grid_clock *grid = vg_model_grid_begin(r->model, VL_GRIDS + 1, 0, 1, 1, NULL);
    struct vg_block_clock *block = grid ? vg_model_block_begin(grid, 0) : NULL;
    r->looked = vg_past_create();
    if (!block || !r->looked) return -1;
    for (unsigned t = 0; t < r->test->nthreads; t++)
        for (unsigned k = 0; k < r->test->threads[t].nops; k++) {
            const struct vl_op *op = &r->test->threads[t].ops[k];
            const struct vg_how how = {
                .nbytes = op->nbytes, .order = VG_RELAXED, .scope = VG_SCOPE_SYS};
            uint8_t value[VL_BYTES];
            if (vl_accesses(op))
                vg_model_load(block, 0, &r->region, op->location * (uint64_t)STRIDE + op->first,
                              &how, value);
        }
    vg_model_block_end(block);
    vg_model_grid_end(grid, r->looked);
    return 0;
}

/* Begins and ends what can begin and end: how many of them, or -1. */
static int turn_grids(struct running *r)
{
    int turned = 0;
    for (unsigned g = 0; g < r->test->ngrids; g++) {
        bool ready = !r->grids[g].begun, done = r->grids[g].begun && !r->grids[g].ended;
        for (unsigned h = 0; h < r->test->ngrids; h++)
            if (r->test->grids[g].before >> h & 1) ready &= r->grids[h].ended;
        for (unsigned t = 0; t < r->test->nthreads; t++)
            if (r->test->threads[t].grid == g)
                done &= r->next[t] == r->test->threads[t].nops && !r->waits[t];
        if (ready && begin_grid(r, g)) return -1;
        if (done) end_grid(r, g);
        turned += ready + done;
    }
    return turned;
}

static int run_threads(struct running *r)
{
    for (;;) {
        unsigned ready[VL_THREADS], n = 0, left = 0;
        const int turned = turn_grids(r);
        if (turned < 0) return -1;
        for (unsigned g = 0; g < r->test->ngrids; g++) left += !r->grids[g].ended;
        for (unsigned t = 0; t < r->test->nthreads; t++)
            if (r->grids[r->test->threads[t].grid].begun && !r->waits[t] &&
                r->next[t] < r->test->threads[t].nops)
                ready[n++] = t;
        if (!left) return 0;
        if (n)
            step(r, ready[roll(r, n)]);
        else if (!turned)
            return -2;
    }
}

static struct vl_calls calls_of(const struct vl_calls *planted)
{
    struct vl_calls calls = {.alter = NULL};
    if (planted) calls = *planted;
    if (!calls.grid_begin) calls.grid_begin = vg_model_grid_begin;
    if (!calls.load) calls.load = vg_model_load;
    if (!calls.rmw) calls.rmw = vg_model_rmw;
    if (!calls.arrive) calls.arrive = vg_model_arrive;
    if (!calls.barrier) calls.barrier = vg_model_barrier;
    if (!calls.warp) calls.warp = vg_model_warp;
    return calls;
}

int vl_run(const struct vl_test *test, const struct vl_run *run, struct vl_result *result)
{
    _Alignas(16) unsigned char bytes[VL_LOCATIONS * STRIDE] = {0};
    struct running r = {.test = test,
                        .run = run,
                        .calls = calls_of(run->calls),
                        .state = run->seed * UINT64_C(0x9e3779b97f4a7c15) + 1,
                        .result = result};
    *result = (struct vl_result){.races = 0};
    r.region = (struct vg_region){.address = 1 << 20,
                                  .nbytes = sizeof bytes,
                                  .bytes = bytes,
                                  .reachable = run->reachable,
                                  .what = "litmus"};
    r.model = vg_model_create(&(struct vg_model_settings){.seed = run->seed,
                                                          .reads = run->reads,
                                                          .depth = run->depth,
                                                          .late = run->late,
                                                          .race = count_race,
                                                          .arg = &r});
    if (!r.model) return -1;
    const int status = run->looked && look(&r) ? -1 : run_threads(&r);
    for (unsigned g = 0; g < VL_GRIDS; g++) {
        if (r.grids[g].begun && !r.grids[g].ended) end_grid(&r, g);
        vg_past_destroy(r.grids[g].before);
        vg_past_destroy(r.grids[g].after);
    }
    vg_past_destroy(r.looked);
    struct vg_model_counts counts;
    vg_model_count(r.model, &counts);
    result->older = counts.older;
    vg_model_forget(r.model, &r.region);
    vg_model_destroy(r.model);
    for (unsigned l = 0; l < test->nlocations; l++)
        memcpy(result->outcome.at[VL_REGISTERS + l], bytes + l * STRIDE, VL_BYTES);
    return status;
}
