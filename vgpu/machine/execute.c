/* Runs a warp: picks a fragment, runs its instructions, passes control on. */
#include "machine_internal.h"

#include <stddef.h>

enum { TURNS = 8 }; /* patience times this: what a fragment may run while others of its warp wait */

static enum vg_step branch(struct vg_warp *warp, struct vg_fragment *fragment, uint32_t target,
                           uint32_t lanes)
{
    if (lanes == fragment->mask) {
        fragment->pc = target;
        return VG_JUMPED;
    }
    struct vg_fragment *taken = vg_fragment_split(warp, fragment, lanes);
    taken->pc = target;
    fragment->pc++;
    return VG_PICK;
}

/* brx.idx: lanes with one index leave together. */
static enum vg_step branch_table(struct vg_warp *warp, struct vg_fragment *fragment,
                                 const struct vg_instr *in, uint32_t lanes)
{
    const struct vg_registers r = vg_fragment_registers(warp, fragment);
    const uint32_t *index = vg_source(&r, in->src[0]);
    const uint32_t *targets = warp->block->run->launch.image->module->targets + in->target;
    uint32_t same = 0;
    const uint32_t first = vg_first(lanes);
    const uint64_t ntargets = in->imm != 0 ? (uint64_t)in->imm : in->count;
    if (index[first] >= ntargets)
        return vg_fail(warp, first, in, VG_FAULT_INSTRUCTION,
                       "brx.idx with index %u, the table has %u targets", index[first],
                       (uint32_t)ntargets);
    VG_FOR_LANES(i, lanes)
    if (index[i] == index[first]) same |= 1u << i;
    /* The rest stays at this instruction and picks its own target next. */
    if (same == fragment->mask) {
        fragment->pc = targets[index[first]];
        return VG_JUMPED;
    }
    struct vg_fragment *taken = vg_fragment_split(warp, fragment, same);
    taken->pc = targets[index[first]];
    if (same == lanes) fragment->pc++;
    return VG_PICK;
}

static enum vg_step fence(struct vg_warp *warp, const struct vg_instr *in, uint32_t lanes)
{
    const struct vg_machine *machine = warp->block->run->machine;
    const enum vg_order order = in->order == VG_WEAK ? VG_SC : in->order; /* membar */
    vg_traffic_of(warp->block)->fences += (uint64_t)__builtin_popcount(lanes);
    if (!machine->settings.model.off) VG_FOR_LANES(i, lanes)
    vg_model_fence(warp->block->clock, warp->number * VG_LANES + i, order, in->scope);
    return VG_NEXT;
}

static enum vg_step fence_alias(const struct vg_warp *warp, uint32_t lanes)
{
    if (!warp->block->run->machine->settings.model.off) VG_FOR_LANES(i, lanes)
    vg_model_fence_alias(warp->block->clock, warp->number * VG_LANES + i);
    return VG_NEXT;
}

static enum vg_step sleep_a_while(struct vg_warp *warp, struct vg_fragment *fragment)
{
    warp->block->run->machine->ticks += 16;
    fragment->idle += 10;
    fragment->yielded = true;
    fragment->pc++;
    return VG_PICK;
}

/* Whether the instruction touches memory or meets other lanes or warps. */
static bool has_effect(const struct vg_instr *in)
{
    if (in->op == VG_LD) return in->space <= VG_SHARED;
    return in->op >= VG_ST && (in->op < VG_BRA || in->op > VG_NANOSLEEP) && in->op != VG_SPECIAL;
}

/* The machine's own instructions. */
static enum vg_step execute(struct vg_warp *warp, struct vg_fragment *fragment,
                            const struct vg_instr *in, uint32_t lanes)
{
    switch (in->op) {
    case VG_BRA:
        return branch(warp, fragment, in->target, lanes);
    case VG_BRX:
        return branch_table(warp, fragment, in, lanes);
    case VG_LD:
    case VG_ST:
    case VG_ATOM:
    case VG_RED:
        return vg_access(warp, fragment, in, lanes);
    case VG_CALL:
        return vg_call(warp, fragment, in, lanes);
    case VG_RET:
        return vg_return(warp, fragment, lanes);
    case VG_EXIT:
        return vg_exit(warp, fragment, lanes);
    case VG_FENCE:
        return fence(warp, in, lanes);
    case VG_FENCE_ALIAS:
        return fence_alias(warp, lanes);
    case VG_PREFETCH:
    case VG_NOP:
        return VG_NEXT;
    case VG_NANOSLEEP:
        return sleep_a_while(warp, fragment);
    case VG_BAR_SYNC:
    case VG_BAR_ARRIVE:
    case VG_BAR_RED:
        return vg_barrier(warp, fragment, in, lanes);
    case VG_WARP_SYNC:
    case VG_VOTE:
    case VG_MATCH_ANY:
    case VG_MATCH_ALL:
    case VG_REDUX:
    case VG_SHFL:
    case VG_ELECT:
        return vg_together(warp, fragment, in, lanes);
    case VG_SPECIAL:
    case VG_ACTIVEMASK:
        return vg_special(warp, fragment, in, lanes);
    case VG_CP_ASYNC:
    case VG_CP_ASYNC_COMMIT:
    case VG_CP_ASYNC_WAIT:
    case VG_CP_ASYNC_MBARRIER:
        return vg_async_copy(warp, fragment, in, lanes);
    case VG_MBARRIER_INIT:
    case VG_MBARRIER_INVAL:
    case VG_MBARRIER_ARRIVE:
    case VG_MBARRIER_ARRIVE_DROP:
    case VG_MBARRIER_TEST_WAIT:
    case VG_MBARRIER_TRY_WAIT:
    case VG_MBARRIER_PENDING:
    case VG_MBARRIER_EXPECT:
        return vg_mbarrier(warp, fragment, in, lanes);
    case VG_PRINTF:
    case VG_ASSERTFAIL:
        return vg_print(warp, fragment, in, lanes);
    case VG_TRAP:
        return vg_fail(warp, vg_first(lanes), in, VG_FAULT_TRAP, "trap");
    case VG_BRKPT:
        return vg_fail(warp, vg_first(lanes), in, VG_FAULT_TRAP, "brkpt");
    default:
        return vg_data(warp, fragment, in, lanes);
    }
}

/* Whether a fragment that has run so many instructions lets others run first. */
static bool yields(struct vg_warp *warp, struct vg_fragment *fragment)
{
    const uint32_t patience = warp->block->run->machine->settings.patience;
    if (fragment->idle >= fragment->tired) {
        fragment->tired = fragment->idle + patience;
        fragment->yielded = true;
    } else if (warp->nparts > 1 && fragment->turn > TURNS * patience) {
        fragment->yielded = true;
    }
    if (fragment->yielded) fragment->turn = 0;
    return fragment->yielded;
}

/* The fragment to run, or NULL. When all that could run have yielded, they begin again. */
static struct vg_fragment *first_pick(struct vg_warp *warp)
{
    struct vg_fragment *fragment = vg_fragment_pick(warp);
    if (fragment != NULL) return fragment;
    for (uint32_t i = 0; i < warp->nparts; i++) warp->part[i].yielded = false;
    return vg_fragment_pick(warp);
}

/* Runs one fragment until something else must be picked. Returns what was the last. */
static enum vg_step fragment_run(struct vg_warp *warp, struct vg_fragment *fragment,
                                 uint64_t *budget)
{
    struct vg_machine *machine = warp->block->run->machine;
    const struct vg_instr *code = fragment->frame->function->code;
    struct vg_registers r = vg_fragment_registers(warp, fragment);
    const uint32_t mask = fragment->mask, limit = vg_fragment_limit(warp, fragment);
    uint32_t pc = fragment->pc;
    uint64_t steps = 0;
    const uint64_t most = *budget;
    enum vg_step step = VG_NEXT;
    uint64_t before = 0; /* steps until the last that has an effect */
    while (steps < most) {
        const struct vg_instr *in = &code[pc];
        uint32_t lanes = mask;
        if (in->guard != VG_NONE) {
            const uint32_t guard = r.predicates[in->guard];
            lanes &= in->flags & VG_GUARD_NOT ? ~guard : guard;
        }
        steps++;
        fragment->idle++;
        fragment->turn++;
        if (lanes == 0) {
            pc++;
        } else if (in->compute != NULL) {
            in->compute(&r, in, lanes);
            pc++;
        } else {
            fragment->pc = pc;
            warp->carry = r.carry;
            machine->ticks++;
            if (has_effect(in)) {
                vg_watch_no_spin(fragment);
                before = steps;
            }
            step = execute(warp, fragment, in, lanes);
            if (step >= VG_PICK) break;
            pc = step == VG_NEXT ? pc + 1 : fragment->pc;
        }
        if (pc >= limit) break;
        if (fragment->idle >= fragment->tired) break;
    }
    if (step < VG_PICK) {
        fragment->pc = pc;
        warp->carry = r.carry;
    }
    machine->ticks += steps;
    const uint64_t ninstructions = steps * (uint32_t)__builtin_popcount(mask);
    machine->counts.instructions += ninstructions;
    vg_traffic_of(warp->block)->instructions += ninstructions;
    *budget -= steps;
    /* Behind other instructions that change fragments this one may be gone. */
    const bool here = step < VG_PICK || code[pc].op == VG_BRA || code[pc].op == VG_BRX ||
                      code[pc].op == VG_NANOSLEEP;
    if (here && step != VG_FAILED && !vg_watch_spin(warp, fragment, steps - before))
        return VG_FAILED;
    return step;
}

uint64_t vg_warp_run(struct vg_warp *warp, uint64_t budget)
{
    struct vg_run *run = warp->block->run;
    const uint64_t given = budget;
    struct vg_fragment *fragment = first_pick(warp);
    warp->mark = run->moves;
    for (; fragment != NULL && budget > 0; fragment = vg_fragment_pick(warp)) {
        if (yields(warp, fragment)) continue;
        const enum vg_step step = fragment_run(warp, fragment, &budget);
        if (step == VG_FAILED || run->fault != VG_FAULT_NONE) return given - budget;
        if (step == VG_PAUSE) break;
    }
    if (warp->live == 0) return given - budget;
    bool runs = false, ready = false;
    for (uint32_t i = 0; i < warp->nparts; i++) {
        runs = runs || warp->part[i].state == VG_RUNS;
        ready = ready || (warp->part[i].state == VG_RUNS && !warp->part[i].yielded);
    }
    if (warp->nasync != 0 && !vg_async_stir(warp, ready)) return given - budget;
    vg_list_move(warp, ready ? VG_READY : runs ? VG_TIRED : VG_STUCK);
    return given - budget;
}
