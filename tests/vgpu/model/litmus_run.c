/* Reads and runs the small programs of litmus_run.h. */
#include "litmus_run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <shim.h>

enum { MOST_THREADS = 8, MOST_OPS = 16, LOCATIONS = 4, REGISTERS = 8 };
enum kind { LOAD, STORE, ADD, EXCHANGE, FENCE, BARRIER, WARP };

struct op {
    enum kind kind;
    struct vg_how how;
    uint32_t location, reg, value;
};

struct program {
    uint32_t nthreads;
    uint32_t n[MOST_THREADS];
    struct op at[MOST_THREADS][MOST_OPS];
};

struct running {
    const struct program *program;
    struct vg_model *model;
    struct vg_block_clock *block[MOST_THREADS];
    uint32_t thread[MOST_THREADS], at[MOST_THREADS];
    bool waits[MOST_THREADS];
    struct vg_region region;
    uint32_t words[LOCATIONS], registers[REGISTERS];
    uint64_t random;
};

static uint32_t below(uint64_t *state, uint32_t n)
{
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)((*state >> 33) % n);
}

static enum vg_order order_of(const char *text)
{
    static const struct {
        const char *name;
        enum vg_order order;
    } orders[] = {{".weak", VG_WEAK},   {".rlx", VG_RELAXED}, {".acq", VG_ACQUIRE},
                  {".rel", VG_RELEASE}, {".ar", VG_ACQ_REL},  {".sc", VG_SC}};
    for (size_t i = 0; i < sizeof orders / sizeof *orders; i++)
        if (strstr(text, orders[i].name) != NULL) return orders[i].order;
    return VG_WEAK;
}

static enum vg_scope scope_of(const char *text, enum vg_scope scope)
{
    if (strstr(text, ".cta") != NULL) return VG_SCOPE_CTA;
    if (strstr(text, ".gpu") != NULL) return VG_SCOPE_GPU;
    if (strstr(text, ".sys") != NULL) return VG_SCOPE_SYS;
    return strchr(text, '@') != NULL ? scope : VG_SCOPE_NONE;
}

static bool read_op(const char *text, enum vg_scope scope, struct op *op)
{
    char name[32], location = 'x', first[16] = "0", second[16] = "h";
    if (sscanf(text, " %31s %c %15s %15s", name, &location, first, second) < 1) return false;
    *op = (struct op){.how = {.nbytes = 4,
                              .order = (uint8_t)order_of(name),
                              .scope = (uint8_t)scope_of(name, scope),
                              .red = strncmp(name, "red", 3) == 0}};
    op->location = location == 'w' ? 3 : (uint32_t)(location - 'x');
    static const char *const names[] = {"ld", "st", "add", "xchg", "fence", "bar", "warp"};
    int kind = strncmp(name, "red", 3) == 0 ? ADD : -1;
    for (int i = 0; i < 7; i++)
        if (strncmp(name, names[i], strlen(names[i])) == 0) kind = i;
    if (kind < 0 || op->location >= LOCATIONS) return false;
    op->kind = (enum kind)kind;
    if (op->kind == LOAD) {
        op->reg = (uint32_t)(first[0] - 'a');
    } else {
        op->value = (uint32_t)atoi(first);
        op->reg = (uint32_t)(second[0] - 'a');
    }
    return op->reg < REGISTERS;
}

static bool read_program(const char *text, enum vg_scope scope, struct program *program)
{
    char copy[512], *threads = copy, *thread, *ops, *op;
    memset(program, 0, sizeof *program);
    if (strlen(text) >= sizeof copy) return false;
    strcpy(copy, text);
    while ((thread = strsep(&threads, "|")) != NULL) {
        const uint32_t t = program->nthreads++;
        if (t >= MOST_THREADS) return false;
        for (ops = thread; (op = strsep(&ops, ";")) != NULL;) {
            struct op *into = &program->at[t][program->n[t]];
            if (program->n[t]++ == MOST_OPS || !read_op(op, scope, into)) return false;
            into->how.where = 100 * (t + 1) + program->n[t];
        }
    }
    return true;
}

static bool change(void *arg, const void *old, void *value)
{
    const struct op *op = arg;
    uint32_t word;
    memcpy(&word, old, 4);
    word = op->kind == ADD ? word + op->value : op->value;
    memcpy(value, &word, 4);
    return true;
}

/* Threads that wait at the barrier of their block go on when the last has come. */
static void meet(struct running *running, uint32_t t)
{
    const struct program *program = running->program;
    uint64_t threads = 0;
    running->waits[t] = true;
    for (uint32_t i = 0; i < program->nthreads; i++) {
        if (running->block[i] != running->block[t]) continue;
        if (!running->waits[i]) return;
        threads |= UINT64_C(1) << running->thread[i];
    }
    if (program->at[t][running->at[t] - 1].kind == WARP)
        vg_model_warp(running->block[t], 0, (uint32_t)threads);
    else
        vg_model_barrier(running->block[t], 0, &threads);
    for (uint32_t i = 0; i < program->nthreads; i++)
        if (running->block[i] == running->block[t]) running->waits[i] = false;
}

static void do_op(struct running *running, uint32_t t)
{
    const struct op *op = &running->program->at[t][running->at[t]++];
    struct vg_block_clock *block = running->block[t];
    const uint32_t thread = running->thread[t];
    uint32_t *reg = &running->registers[op->reg];
    const uint64_t offset = 4 * op->location;
    switch (op->kind) {
    case LOAD:
        vg_model_load(block, thread, &running->region, offset, &op->how, reg);
        break;
    case STORE:
        vg_model_store(block, thread, &running->region, offset, &op->how, &op->value);
        break;
    case ADD:
    case EXCHANGE: {
        struct op copy = *op;
        vg_model_rmw(block, thread, &running->region, offset, &op->how, change, &copy, reg);
        break;
    }
    case FENCE:
        vg_model_fence(block, thread, op->how.order, op->how.scope);
        break;
    case BARRIER:
    case WARP:
        meet(running, t);
        break;
    }
}

static void run_threads(struct running *running)
{
    const struct program *program = running->program;
    while (true) {
        uint32_t ready[MOST_THREADS], n = 0;
        for (uint32_t t = 0; t < program->nthreads; t++)
            if (running->at[t] < program->n[t] && !running->waits[t]) ready[n++] = t;
        if (n == 0) return;
        do_op(running, ready[below(&running->random, n)]);
    }
}

static void run_once(struct running *running, enum litmus_where where)
{
    struct vg_grid_clock *grids[MOST_THREADS];
    const uint32_t n = running->program->nthreads;
    const uint32_t ngrids = where == DEVICES ? n : 1;
    for (uint32_t g = 0; g < ngrids; g++)
        grids[g] = vg_model_grid_begin(running->model, g, (int)g, n, n, NULL);
    for (uint32_t t = 0; t < n; t++) {
        running->thread[t] = where == ONE_BLOCK ? t : 0;
        if (t > 0 && where == ONE_BLOCK)
            running->block[t] = running->block[0];
        else
            running->block[t] = vg_model_block_begin(grids[where == DEVICES ? t : 0], t);
    }
    run_threads(running);
    for (uint32_t t = 0; t < n; t++)
        if (t == 0 || where != ONE_BLOCK) vg_model_block_end(running->block[t]);
    for (uint32_t g = 0; g < ngrids; g++) vg_model_grid_end(grids[g], NULL);
}

static bool shows(const struct running *running, const char *outcome)
{
    char name;
    int value, length;
    for (const char *at = outcome; sscanf(at, " %c=%d%n", &name, &value, &length) == 2;
         at += length) {
        const uint32_t actual = name >= 'w' ? running->words[name == 'w' ? 3 : name - 'x']
                                            : running->registers[name - 'a'];
        if (actual != (uint32_t)value) return false;
    }
    return true;
}

static void note_race(void *arg, const struct vg_race *race)
{
    struct litmus_result *result = arg;
    result->last = *race;
}

void litmus_run(const struct litmus_run *run, struct litmus_result *result)
{
    static struct program program;
    memset(result, 0, sizeof *result);
    if (!read_program(run->program, run->scope, &program)) {
        CHECK_MESSAGE(false, "cannot read the program: %s", run->program);
        return;
    }
    for (uint64_t seed = 1; seed <= run->seeds; seed++) {
        struct running running = {.program = &program, .random = seed * 977};
        running.model = vg_model_create(&(struct vg_model_settings){
            .seed = seed, .reads = run->reads, .race = note_race, .arg = result});
        running.region = (struct vg_region){.address = 0x1000,
                                            .nbytes = sizeof running.words,
                                            .bytes = (unsigned char *)running.words};
        run_once(&running, run->where);
        struct vg_model_counts counts;
        vg_model_count(running.model, &counts);
        result->raced += counts.races > 0;
        result->older += counts.older;
        result->seen += shows(&running, run->outcome);
        vg_model_forget(running.model, &running.region);
        vg_model_destroy(running.model);
    }
}
