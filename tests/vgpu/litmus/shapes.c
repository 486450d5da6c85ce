/* The litmus tests with names, in all orders, scopes and placements, and generated ones. */
#include <stdio.h>
#include <string.h>

#include <vgpu/litmus/litmus.h>

/* W location value, R location register, X location value register (exchange); threads between
 * bars. The names are those of "Herding Cats" (Alglave, Maranget, Tautschnig, 2014). */
static const struct {
    const char *name, *text;
} shapes[] = {
    {"MP", "Wx1 Wy1|Ry0 Rx1"},
    {"SB", "Wx1 Ry0|Wy1 Rx1"},
    {"LB", "Rx0 Wy1|Ry1 Wx1"},
    {"R", "Wx1 Wy1|Wy2 Rx0"},
    {"S", "Wx1 Wy1|Ry0 Wx2"},
    {"2+2W", "Wx1 Wy2|Wy1 Wx2"},
    {"WRC", "Wx1|Rx0 Wy1|Ry1 Rx2"},
    {"RWC", "Wx1|Rx0 Ry1|Wy1 Rx2"},
    {"WWC", "Wx1|Rx0 Wy1|Ry1 Wx2"},
    {"WRW+WR", "Wx1|Rx0 Wy1|Wy2 Rx1"},
    {"ISA2", "Wx1 Wy1|Ry0 Wz1|Rz1 Rx2"},
    {"Z6.3", "Wx1 Wy1|Wy2 Wz1|Rz0 Rx1"},
    {"3.SB", "Wx1 Ry0|Wy1 Rz1|Wz1 Rx2"},
    {"IRIW", "Wx1|Rx0 Ry1|Wy1|Ry2 Rx3"},
    {"CoRR", "Wx1|Rx0 Rx1"},
    {"CoRR2", "Wx1|Wx2|Rx0 Rx1|Rx2 Rx3"},
    {"CoWR", "Wx1 Rx0|Wx2"},
    {"CoRW", "Rx0 Wx1"},
    {"CoRW2", "Rx0 Wx1|Wx2"},
    {"CoWW", "Wx1 Wx2"},
    {"MP+chain", "Wx1 Wy1|Xy20|Ry1 Rx2"},
    {"SB+X", "Xx10 Ry1|Xy12 Rx3"},
    {"atomicity", "Xx10|Xx21"},
    {"MP+later", "Wx1 Wy1 Wy2|Ry0 Rx1"},
};
enum { SHAPES = sizeof shapes / sizeof *shapes, MODES = 5, SCOPES = 3, PLACES = 3 };

static const char *const modes[MODES] = {"weak", "relaxed", "release/acquire", "fence.acq_rel",
                                         "fence.sc"};
static const char *const scopes[SCOPES] = {"cta", "gpu", "sys"};
static const enum vg_scope scope_of[SCOPES] = {VG_SCOPE_CTA, VG_SCOPE_GPU, VG_SCOPE_SYS};
static const char *const places[PLACES] = {"one block", "two blocks", "two GPUs"};

unsigned vl_named_count(void)
{
    return SHAPES * MODES * SCOPES * PLACES;
}

static void add(struct vl_thread *thread, struct vl_op op)
{
    if (thread->nops < VL_OPS) thread->ops[thread->nops++] = op;
}

static enum vg_order order_in(unsigned mode, enum vl_kind kind)
{
    if (mode == 0) return kind == VL_EXCHANGE ? VG_RELAXED : VG_WEAK;
    if (mode != 2) return VG_RELAXED;
    return kind == VL_LOAD ? VG_ACQUIRE : kind == VL_STORE ? VG_RELEASE : VG_ACQ_REL;
}

static void add_access(struct vl_test *test, struct vl_thread *thread, const char *text,
                       unsigned mode, enum vg_scope scope)
{
    struct vl_op op = {.location = (uint8_t)(text[1] - 'x'), .scope = scope};
    op.kind = *text == 'W' ? VL_STORE : *text == 'R' ? VL_LOAD : VL_EXCHANGE;
    if (op.kind != VL_LOAD) op.value = (uint8_t)(text[2] - '0');
    if (op.kind != VL_STORE) op.reg = (uint8_t)(text[op.kind == VL_LOAD ? 2 : 3] - '0');
    op.order = order_in(mode, op.kind);
    if (mode >= 3 && thread->nops)
        add(thread, (struct vl_op){
                        .kind = VL_FENCE, .order = mode == 3 ? VG_ACQ_REL : VG_SC, .scope = scope});
    add(thread, op);
    if (op.kind != VL_STORE && op.reg >= test->nregisters) test->nregisters = op.reg + 1u;
    if (op.location >= test->nlocations) test->nlocations = op.location + 1u;
}

void vl_named(unsigned index, struct vl_test *test)
{
    const unsigned place = index % PLACES, scope = index / PLACES % SCOPES,
                   mode = index / PLACES / SCOPES % MODES;
    const unsigned shape = index / PLACES / SCOPES / MODES;
    *test = (struct vl_test){.nthreads = 1};
    snprintf(test->name, sizeof test->name, "%s %s.%s, %s", shapes[shape].name, modes[mode],
             scopes[scope], places[place]);
    for (const char *text = shapes[shape].text; *text;) {
        if (*text == '|')
            test->nthreads++, text++;
        else if (*text == ' ')
            text++;
        else {
            add_access(test, &test->threads[test->nthreads - 1], text, mode, scope_of[scope]);
            text += *text == 'X' ? 4 : 3;
        }
    }
    for (unsigned t = 0; t < test->nthreads; t++) {
        struct vl_thread *thread = &test->threads[t];
        thread->device = place == 2 ? t & 1 : 0;
        thread->block = place == 1 ? t & 1 : 0;
        thread->place = t * 32 / (t & 1 ? 2 : 1); /* some share a warp */
    }
}

/* ---- generated ---- */

static uint32_t next(uint64_t *state, uint32_t n)
{
    *state += UINT64_C(0x9e3779b97f4a7c15);
    uint64_t z = *state;
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return (uint32_t)((z ^ z >> 31) >> 32) % n;
}

struct budget {
    unsigned reads, writes, fences, barriers;
};

static enum vg_scope random_scope(uint64_t *state)
{
    return scope_of[next(state, SCOPES)];
}

static enum vl_kind random_kind(uint64_t *state, const struct budget *left,
                                const struct vl_thread *thread)
{
    static const enum vl_kind often[] = {VL_LOAD,  VL_LOAD,     VL_LOAD,  VL_STORE, VL_STORE,
                                         VL_STORE, VL_EXCHANGE, VL_FENCE, VL_FENCE};
    for (;;) {
        const enum vl_kind kind = often[next(state, sizeof often / sizeof *often)];
        const bool reads = kind == VL_LOAD || kind == VL_EXCHANGE,
                   writes = kind == VL_STORE || kind == VL_EXCHANGE;
        if ((reads && !left->reads) || (writes && !left->writes)) {
            if (!left->reads && !left->writes) return VL_FENCE;
            continue;
        }
        if (kind == VL_FENCE && thread->nops == 0) continue;
        return kind;
    }
}

static struct vl_op random_op(uint64_t *state, struct vl_test *test, struct vl_thread *thread,
                              struct budget *left, uint8_t *values)
{
    struct vl_op op = {.kind = random_kind(state, left, thread), .scope = random_scope(state)};
    if (op.kind == VL_FENCE) {
        const bool sc = left->fences && next(state, 2);
        if (sc) left->fences--;
        op.order = sc ? VG_SC : VG_ACQ_REL;
        return op;
    }
    op.location = (uint8_t)next(state, test->nlocations);
    if (op.kind != VL_LOAD) op.value = ++values[op.location], left->writes--;
    if (op.kind != VL_STORE) op.reg = (uint8_t)test->nregisters++, left->reads--;
    const unsigned weight = next(state, 6);
    if (op.kind == VL_EXCHANGE)
        op.order = weight < 2    ? VG_RELAXED
                   : weight == 2 ? VG_ACQUIRE
                   : weight == 3 ? VG_RELEASE
                                 : VG_ACQ_REL;
    else
        op.order = weight == 0          ? VG_WEAK
                   : weight < 4         ? VG_RELAXED
                   : op.kind == VL_LOAD ? VG_ACQUIRE
                                        : VG_RELEASE;
    return op;
}

/* A barrier for all threads of block 0 of device 0, at the same number of barriers in each. */
static void add_barrier(struct vl_test *test)
{
    for (unsigned t = 0; t < test->nthreads; t++)
        if (test->threads[t].device == 0 && test->threads[t].block == 0)
            add(&test->threads[t], (struct vl_op){.kind = VL_BARRIER, .scope = VG_SCOPE_CTA});
}

void vl_generate(uint64_t seed, struct vl_test *test)
{
    uint64_t state = seed * 0x1000003;
    struct budget left = {.reads = 4, .writes = 4, .fences = 2};
    uint8_t values[VL_LOCATIONS] = {0};
    *test = (struct vl_test){.nthreads = 2 + next(&state, 3), .nlocations = 1 + next(&state, 3)};
    if (test->nlocations == 1 && next(&state, 2)) test->nlocations = 2;
    snprintf(test->name, sizeof test->name, "generated %llu", (unsigned long long)seed);
    const unsigned place = next(&state, 4), half = next(&state, 4) == 0;
    for (unsigned t = 0; t < test->nthreads; t++) {
        struct vl_thread *thread = &test->threads[t];
        thread->device = place == 3 ? next(&state, 2) : 0;
        thread->block = place == 0 ? 0 : next(&state, 2);
        thread->place = t * 32 / (t & 1 ? 2 : 1);
    }
    for (unsigned round = 0; round < 3; round++) {
        for (unsigned t = 0; t < test->nthreads; t++) {
            struct vl_thread *thread = &test->threads[t];
            if ((left.reads || left.writes) && thread->nops + 2 < VL_OPS + (round ? 1u : 0u))
                add(thread, random_op(&state, test, thread, &left, values));
        }
        if (round == 0 && half) add_barrier(test);
    }
}

void vl_print(const struct vl_test *test, char *text, uint64_t nbytes)
{
    static const char *const orders[] = {"weak", "relaxed", "acquire", "release", "acq_rel", "sc"};
    static const char *const names[] = {"", "cta", "cluster", "gpu", "sys"};
    uint64_t n = (uint64_t)snprintf(text, nbytes, "%s", test->name);
    for (unsigned t = 0; t < test->nthreads && n < nbytes; t++) {
        const struct vl_thread *thread = &test->threads[t];
        n += (uint64_t)snprintf(text + n, nbytes - n,
                                "\n  GPU %u, block %u, thread %u:", thread->device, thread->block,
                                thread->place);
        for (unsigned k = 0; k < thread->nops && n < nbytes; k++) {
            const struct vl_op *op = &thread->ops[k];
            char what[32] = "bar.sync";
            if (op->kind == VL_FENCE)
                snprintf(what, sizeof what, "fence.%s.%s", orders[op->order], names[op->scope]);
            if (op->kind == VL_LOAD)
                snprintf(what, sizeof what, "r%u = ld.%s", op->reg, orders[op->order]);
            if (op->kind == VL_STORE) snprintf(what, sizeof what, "st.%s", orders[op->order]);
            if (op->kind == VL_EXCHANGE)
                snprintf(what, sizeof what, "r%u = exch.%s", op->reg, orders[op->order]);
            n += (uint64_t)snprintf(text + n, nbytes - n, "%s %s", k ? ";" : "", what);
            if (op->kind > VL_EXCHANGE || n >= nbytes) continue;
            n += (uint64_t)snprintf(text + n, nbytes - n, ".%s %c",
                                    op->order == VG_WEAK ? "" : names[op->scope],
                                    'x' + op->location);
            if (op->kind != VL_LOAD && n < nbytes)
                n += (uint64_t)snprintf(text + n, nbytes - n, " %u", op->value);
        }
    }
}
