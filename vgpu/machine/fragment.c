/* Fragments of warps: splitting, meeting, calls and exits.
 *
 * A callee's registers lie behind its caller's. Frames of different functions cannot share units,
 * even for different lanes: a register of 64 bits keeps lane 20 where one of 32 bits keeps lanes 8
 * and 9 of its second unit. A call therefore goes behind every frame that it would overlap, unless
 * another fragment has made the same call, whose frame it shares. */
#include "machine_internal.h"

#include <stdlib.h>
#include <string.h>

enum { FRAME_LOCAL = 16 }; /* bytes of local memory that a call takes at least */

static struct vg_frame *frame_create(struct vg_machine *machine)
{
    struct vg_frame *frame = machine->free_frames;
    if (frame != NULL)
        machine->free_frames = frame->parent;
    else
        frame = malloc(sizeof *frame);
    if (frame != NULL) *frame = (struct vg_frame){.refs = 1};
    return frame;
}

static void frame_put(struct vg_machine *machine, struct vg_frame *frame)
{
    while (frame != NULL && --frame->refs == 0) {
        struct vg_frame *parent = frame->parent;
        frame->parent = machine->free_frames;
        machine->free_frames = frame;
        frame = parent;
    }
}

int vg_warp_begin(struct vg_warp *warp, struct vg_block *block, uint32_t number)
{
    struct vg_run *run = block->run;
    const struct vg_function *kernel = run->launch.kernel;
    const uint32_t left = block->nthreads - number * VG_LANES;
    *warp = (struct vg_warp){
        .block = block, .number = number, .live = left >= VG_LANES ? UINT32_MAX : (1u << left) - 1};
    warp->nunits = kernel->nunits + 2; /* a handler may touch the unit behind an unused operand */
    warp->npredicates = kernel->npredicates + 1;
    warp->units = calloc(warp->nunits, sizeof *warp->units);
    warp->predicates = calloc(warp->npredicates, sizeof *warp->predicates);
    struct vg_frame *frame = frame_create(run->machine);
    if (warp->units == NULL || warp->predicates == NULL || frame == NULL) {
        free(frame);
        return -1;
    }
    frame->function = kernel;
    for (uint32_t i = 0; i < VG_LANES; i++) warp->stack[i] = run->local_room;
    warp->nparts = 1;
    warp->part[0] = (struct vg_fragment){
        .mask = warp->live, .frame = frame, .tired = run->machine->settings.patience};
    return 0;
}

void vg_warp_end(struct vg_warp *warp)
{
    for (uint32_t i = 0; i < warp->nparts; i++)
        frame_put(warp->block->run->machine, warp->part[i].frame);
    free(warp->units);
    free(warp->predicates);
    free(warp->local);
    free(warp->watch);
    free(warp->async);
    free(warp->copies);
    free(warp->strict);
}

struct vg_fragment *vg_fragment_split(struct vg_warp *warp, struct vg_fragment *from,
                                      uint32_t lanes)
{
    struct vg_fragment *to = &warp->part[warp->nparts++];
    *to = *from;
    to->mask = lanes;
    from->mask &= ~lanes;
    to->frame->refs++;
    return to;
}

static void fragment_remove(struct vg_warp *warp, struct vg_fragment *fragment)
{
    frame_put(warp->block->run->machine, fragment->frame);
    *fragment = warp->part[--warp->nparts];
}

void vg_fragment_merge(struct vg_warp *warp)
{
    for (uint32_t i = 0; i < warp->nparts; i++) {
        struct vg_fragment *a = &warp->part[i];
        if (a->state != VG_RUNS || a->parts != 0) continue;
        for (uint32_t j = i + 1; j < warp->nparts;) {
            struct vg_fragment *b = &warp->part[j];
            if (b->state == VG_RUNS && b->parts == 0 && b->pc == a->pc && b->frame == a->frame) {
                a->mask |= b->mask;
                a->yielded = a->yielded && b->yielded;
                a->spun = a->spun < b->spun ? a->spun : b->spun;
                a->timed = a->timed || b->timed;
                if (b->idle < a->idle) a->idle = b->idle, a->tired = b->tired;
                fragment_remove(warp, b);
            } else {
                j++;
            }
        }
    }
}

/* Innermost frame first, then lowest position. Whoever has run too long or waits for something
 * lets the others run. */
struct vg_fragment *vg_fragment_pick(struct vg_warp *warp)
{
    struct vg_fragment *best = NULL;
    if (warp->nparts > 1) vg_fragment_merge(warp);
    for (uint32_t i = 0; i < warp->nparts; i++) {
        struct vg_fragment *f = &warp->part[i];
        if (f->state != VG_RUNS || f->yielded) continue;
        if (best == NULL || f->frame->depth > best->frame->depth ||
            (f->frame->depth == best->frame->depth && f->pc < best->pc))
            best = f;
    }
    return best;
}

uint32_t vg_fragment_limit(const struct vg_warp *warp, const struct vg_fragment *fragment)
{
    uint32_t limit = UINT32_MAX;
    for (uint32_t i = 0; i < warp->nparts; i++) {
        const struct vg_fragment *f = &warp->part[i];
        if (f->frame == fragment->frame && f->state == VG_RUNS && f->pc > fragment->pc &&
            f->pc < limit)
            limit = f->pc;
    }
    return limit;
}

struct vg_registers vg_fragment_registers(const struct vg_warp *warp,
                                          const struct vg_fragment *fragment)
{
    return (struct vg_registers){
        .frame = warp->units + fragment->frame->base,
        .constants = (const uint32_t(*)[VG_LANES])warp->block->run->launch.image->constants,
        .predicates = warp->predicates + fragment->frame->pbase,
        .carry = warp->carry,
    };
}

/* The frame of the same call that another fragment has made, or NULL. */
static struct vg_frame *same_call(const struct vg_warp *warp, const struct vg_frame *caller,
                                  const struct vg_function *function, uint32_t return_pc,
                                  uint32_t params)
{
    for (uint32_t i = 0; i < warp->nparts; i++)
        for (struct vg_frame *f = warp->part[i].frame; f != NULL; f = f->parent)
            if (f->parent == caller && f->function == function && f->return_pc == return_pc &&
                f->params == params)
                return f;
    return NULL;
}

/* The first unit behind the caller's frame where n units overlap no frame of a fragment. */
static uint32_t free_units(const struct vg_warp *warp, const struct vg_frame *caller, uint32_t n)
{
    uint32_t base = caller->base + caller->function->nunits;
    for (bool moved = true; moved;) {
        moved = false;
        for (uint32_t i = 0; i < warp->nparts; i++)
            for (const struct vg_frame *f = warp->part[i].frame; f != NULL; f = f->parent)
                if (f->base < base + n && base < f->base + f->function->nunits)
                    base = f->base + f->function->nunits, moved = true;
    }
    return base;
}

static bool grow(struct vg_warp *warp, uint32_t nunits, uint32_t npredicates)
{
    if (nunits > warp->nunits) {
        void *units = realloc(warp->units, 2 * (size_t)nunits * sizeof *warp->units);
        if (units == NULL) return false;
        warp->units = units;
        memset(warp->units + warp->nunits, 0,
               (2 * (size_t)nunits - warp->nunits) * sizeof *warp->units);
        warp->nunits = 2 * nunits;
    }
    if (npredicates > warp->npredicates) {
        void *predicates = realloc(warp->predicates, 2 * (size_t)npredicates * sizeof(uint32_t));
        if (predicates == NULL) return false;
        warp->predicates = predicates;
        memset(warp->predicates + warp->npredicates, 0,
               (2 * (size_t)npredicates - warp->npredicates) * sizeof(uint32_t));
        warp->npredicates = 2 * npredicates;
    }
    return true;
}

/* The function that the call of the lane names; NULL: none. */
static const struct vg_function *callee(struct vg_warp *warp, const struct vg_fragment *fragment,
                                        const struct vg_instr *in, uint32_t lane)
{
    const struct vg_module *module = warp->block->run->launch.image->module;
    uint64_t index = in->target;
    if (in->target == VG_INDIRECT) {
        const struct vg_registers r = vg_fragment_registers(warp, fragment);
        const uint64_t address = ((const uint64_t *)vg_source(&r, in->src[0]))[lane];
        if (address < VG_CODE_WINDOW || address % 16 != 0) return NULL;
        index = (address - VG_CODE_WINDOW) / 16;
    }
    return index < module->nfunctions && !module->functions[index].kernel
               ? &module->functions[index]
               : NULL;
}

/* Lets the lanes of the fragment that do not take part go on behind the instruction. */
static void skip_others(struct vg_warp *warp, struct vg_fragment *fragment, uint32_t lanes)
{
    if (lanes == fragment->mask) return;
    struct vg_fragment *others = vg_fragment_split(warp, fragment, fragment->mask & ~lanes);
    others->pc++;
}

enum vg_step vg_call(struct vg_warp *warp, struct vg_fragment *fragment, const struct vg_instr *in,
                     uint32_t lanes)
{
    struct vg_run *run = warp->block->run;
    const uint32_t first = vg_first(lanes);
    const struct vg_function *function = callee(warp, fragment, in, first);
    if (function == NULL || function->ninstrs == 0)
        return vg_fail(warp, first, in, VG_FAULT_INSTRUCTION,
                       "a call of an address that is no function of the module");
    if (function->unsupported != NULL)
        return vg_fail(warp, first, in, VG_FAULT_INSTRUCTION, "function %s: unsupported: %s",
                       function->name, function->unsupported);
    skip_others(warp, fragment, lanes);
    if (in->target == VG_INDIRECT) { /* the lanes that call another function stay here */
        uint32_t others = 0;
        VG_FOR_LANES(i, lanes)
        if (callee(warp, fragment, in, i) != function) others |= 1u << i;
        if (others != 0) vg_fragment_split(warp, fragment, others), lanes &= ~others;
    }
    struct vg_frame *caller = fragment->frame;
    const uint32_t params = caller->local + (uint32_t)in->imm;
    struct vg_frame *frame = same_call(warp, caller, function, fragment->pc + 1, params);
    if (frame != NULL) {
        frame->refs++;
        caller->refs--;
    } else {
        const uint32_t took = (caller->function->local_bytes + FRAME_LOCAL + 15) & ~15u;
        const uint32_t local = caller->local + took;
        uint32_t bound = run->local_room; /* alloca's pieces lie from there on */
        VG_FOR_LANES(i, lanes) bound = warp->stack[i] < bound ? warp->stack[i] : bound;
        if (local + function->local_bytes > bound)
            return vg_fail(warp, first, in, VG_FAULT_STACK,
                           "call %u deep of %s needs %u bytes of stack, the limit is %u: raise it "
                           "(cuCtxSetLimit, CU_LIMIT_STACK_SIZE) or recurse less",
                           caller->depth + 1, function->name, local + function->local_bytes, bound);
        const uint32_t base = free_units(warp, caller, function->nunits);
        const uint32_t pbase = caller->pbase + caller->function->npredicates;
        frame = frame_create(run->machine);
        if (frame == NULL ||
            !grow(warp, base + function->nunits + 2, pbase + function->npredicates + 1)) {
            free(frame);
            return vg_fail(warp, first, in, VG_FAULT_RESOURCES, "no memory for a call");
        }
        frame->parent = caller;
        frame->function = function;
        frame->base = base;
        frame->pbase = pbase;
        frame->local = local;
        frame->params = params;
        frame->return_pc = fragment->pc + 1;
        frame->depth = caller->depth + 1;
    }
    VG_FOR_LANES(i, lanes) frame->stack[i] = warp->stack[i];
    fragment->frame = frame;
    fragment->pc = 0;
    return VG_PICK;
}

enum vg_step vg_return(struct vg_warp *warp, struct vg_fragment *fragment, uint32_t lanes)
{
    struct vg_frame *frame = fragment->frame;
    if (frame->parent == NULL) return vg_exit(warp, fragment, lanes);
    skip_others(warp, fragment, lanes);
    VG_FOR_LANES(i, lanes) warp->stack[i] = frame->stack[i];
    fragment->pc = frame->return_pc;
    fragment->frame = frame->parent;
    fragment->frame->refs++;
    frame_put(warp->block->run->machine, frame);
    return VG_PICK;
}

enum vg_step vg_exit(struct vg_warp *warp, struct vg_fragment *fragment, uint32_t lanes)
{
    if (warp->nasync != 0 && !vg_async_finish(warp, lanes, true, 0)) return VG_FAILED;
    warp->live &= ~lanes;
    warp->block->run->moves++;
    if (lanes == fragment->mask) {
        fragment_remove(warp, fragment);
    } else {
        fragment->mask &= ~lanes;
        fragment->pc++;
    }
    /* What waits for lanes of this warp looks again: those that exited need not come. */
    for (uint32_t i = 0; i < warp->nparts; i++)
        if (warp->part[i].state == VG_GATHERS) warp->part[i].state = VG_RUNS;
    return vg_barrier_check(warp->block) ? VG_PICK : VG_FAILED;
}
