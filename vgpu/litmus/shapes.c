/* The litmus tests with names, in all orders, scopes and placements. */
#include <stdio.h>

#include <vgpu/litmus/litmus.h>

/* W location value, R location register, X location value register (exchange), A location value
 * register (add), D location value (red); threads between bars. The names are those of "Herding
 * Cats" (Alglave, Maranget, Tautschnig, 2014). */
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
    {"MP+add", "Wx1 Wy1|Ay20|Ry1 Rx2"},
    {"MP+red", "Wx1 Wy1|Dy2|Ry0 Rx1"},
    {"MP by red", "Wx1 Dy1|Ry0 Rx1"},
    {"MP to red", "Wx1 Wy1|Dy2 Rx0|Ry1"},
    {"SB+A", "Ax10 Ry1|Ay12 Rx3"},
    {"counter", "Ax10|Ax21|Ax42"},
    {"S+X", "Wx1 Wy1|Xy20 Wx2"},
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
    const bool atomic = kind == VL_EXCHANGE || kind == VL_ADD;
    if (mode == 0) return atomic ? VG_RELAXED : VG_WEAK;
    if (mode != 2) return VG_RELAXED;
    return kind == VL_LOAD ? VG_ACQUIRE : kind == VL_STORE ? VG_RELEASE : VG_ACQ_REL;
}

static void add_access(struct vl_test *test, struct vl_thread *thread, const char *text,
                       unsigned mode, enum vg_scope scope)
{
    struct vl_op op = {.location = (uint8_t)(text[1] - 'x'), .nbytes = 4, .scope = scope};
    op.kind = *text == 'W'   ? VL_STORE
              : *text == 'R' ? VL_LOAD
              : *text == 'X' ? VL_EXCHANGE
                             : VL_ADD;
    if (op.kind != VL_LOAD) op.value = (uint8_t)(text[2] - '0');
    if (op.kind != VL_STORE) op.reg = (uint8_t)(text[op.kind == VL_LOAD ? 2 : 3] - '0');
    op.order = order_in(mode, op.kind);
    if (*text == 'D') { /* a red has no acquire */
        op.reg = VL_REGISTERS;
        if (op.order == VG_ACQ_REL) op.order = VG_RELEASE;
    }
    if (mode >= 3 && thread->nops)
        add(thread, (struct vl_op){
                        .kind = VL_FENCE, .order = mode == 3 ? VG_ACQ_REL : VG_SC, .scope = scope});
    add(thread, op);
    if (op.kind != VL_STORE && *text != 'D' && op.reg >= test->nregisters)
        test->nregisters = op.reg + 1u;
    if (op.location >= test->nlocations) test->nlocations = op.location + 1u;
}

void vl_named(unsigned index, struct vl_test *test)
{
    const unsigned place = index % PLACES, scope = index / PLACES % SCOPES,
                   mode = index / PLACES / SCOPES % MODES;
    const unsigned shape = index / PLACES / SCOPES / MODES;
    *test = (struct vl_test){.nthreads = 1, .ngrids = place == 2 ? 2 : 1, .grids[1].device = 1};
    snprintf(test->name, sizeof test->name, "%s %s.%s, %s", shapes[shape].name, modes[mode],
             scopes[scope], places[place]);
    for (const char *text = shapes[shape].text; *text;) {
        if (*text == '|')
            test->nthreads++, text++;
        else if (*text == ' ')
            text++;
        else {
            add_access(test, &test->threads[test->nthreads - 1], text, mode, scope_of[scope]);
            text += *text == 'X' || *text == 'A' ? 4 : 3;
        }
    }
    for (unsigned t = 0; t < test->nthreads; t++) {
        struct vl_thread *thread = &test->threads[t];
        thread->grid = place == 2 ? t & 1 : 0;
        thread->block = place == 1 ? t & 1 : 0;
        thread->place = t * 32 / (t & 1 ? 2 : 1); /* some share a warp */
    }
}
