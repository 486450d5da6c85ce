/* Special registers, and the few instructions that move addresses. */
#include "machine_internal.h"

#include <string.h>

enum { HURRY = 4096 };
#define TIMER_START UINT64_C(1767225600000000000)

static uint32_t of_thread(const struct vg_warp *warp, uint32_t which, uint32_t lane)
{
    const uint32_t *size = warp->block->run->launch.block;
    const uint32_t thread = warp->number * VG_LANES + lane;
    switch (which) {
    case VG_TID_X:
        return thread % size[0];
    case VG_TID_Y:
        return thread / size[0] % size[1];
    case VG_TID_Z:
        return thread / size[0] / size[1];
    case VG_LANEID:
        return lane;
    case VG_LANEMASK_EQ:
        return 1u << lane;
    case VG_LANEMASK_LT:
        return (1u << lane) - 1;
    case VG_LANEMASK_LE:
        return (2u << lane) - 1;
    case VG_LANEMASK_GE:
        return ~((1u << lane) - 1);
    default:
        return ~((2u << lane) - 1);
    }
}

/* Registers that are the same in all lanes. */
static uint64_t of_warp(const struct vg_warp *warp, uint32_t which)
{
    const struct vg_block *block = warp->block;
    const struct vg_run *run = block->run;
    switch (which) {
    case VG_NTID_X:
    case VG_NTID_Y:
    case VG_NTID_Z:
        return run->launch.block[which - VG_NTID_X];
    case VG_CTAID_X:
    case VG_CTAID_Y:
    case VG_CTAID_Z:
        return block->at[which - VG_CTAID_X];
    case VG_NCTAID_X:
    case VG_NCTAID_Y:
    case VG_NCTAID_Z:
        return run->launch.grid[which - VG_NCTAID_X];
    case VG_WARPID:
        return warp->number;
    case VG_NWARPID:
        return run->launch.gpu->threads_per_sm / VG_LANES;
    case VG_SMID:
        return block->sm;
    case VG_NSMID:
        return run->launch.gpu->nsms;
    case VG_GRIDID:
        return run->launch.number;
    case VG_WORKSPACE_HI:
        return run->workspace.address >> 32;
    case VG_WORKSPACE_LO:
        return (uint32_t)run->workspace.address;
    case VG_DYNAMIC_SMEM_SIZE:
        return run->launch.dynamic_shared;
    case VG_TOTAL_SMEM_SIZE:
        return run->shared_bytes;
    default:
        return 0;
    }
}

/* Registers that change while a thread looks at them; false: it is none. */
static bool of_time(struct vg_machine *machine, uint32_t which, uint64_t *value)
{
    const uint64_t timer = TIMER_START + vg_timer(machine);
    switch (which) {
    case VG_CLOCK:
        *value = (uint32_t)machine->ticks;
        return true;
    case VG_CLOCK_HI:
        *value = machine->ticks >> 32;
        return true;
    case VG_CLOCK64:
        *value = machine->ticks;
        return true;
    case VG_GLOBALTIMER:
        *value = timer;
        return true;
    case VG_GLOBALTIMER_LO:
        *value = (uint32_t)timer;
        return true;
    case VG_GLOBALTIMER_HI:
        *value = timer >> 32;
        return true;
    default:
        return false;
    }
}

static void put(const struct vg_registers *r, const struct vg_instr *in, uint32_t lane,
                uint64_t value)
{
    if (vg_type_bytes(in->type) == 8)
        memcpy((char *)r->frame[in->dst[0]] + (size_t)lane * 8, &value, 8);
    else
        r->frame[in->dst[0]][lane] =
            vg_type_bytes(in->type) == 2 ? (uint16_t)value : (uint32_t)value;
}

enum vg_step vg_special(struct vg_warp *warp, struct vg_fragment *fragment,
                        const struct vg_instr *in, uint32_t lanes)
{
    const struct vg_registers r = vg_fragment_registers(warp, fragment);
    const uint32_t which = (uint32_t)in->imm;
    uint64_t value;
    if (in->op == VG_ACTIVEMASK) {
        VG_FOR_LANES(i, lanes) put(&r, in, i, lanes);
    } else if (of_time(warp->block->run->machine, which, &value)) {
        /* A thread that looks at the time does not wait for ever. */
        VG_FOR_LANES(i, lanes) put(&r, in, i, value);
        fragment->timed = true;
        if (fragment->spun > HURRY) /* for who only waits for a time, it comes soon */
            warp->block->run->machine->ticks += fragment->spun * (fragment->spun / HURRY);
        vg_moved(warp, fragment);
    } else if (which <= VG_TID_Z || which == VG_LANEID ||
               (which >= VG_LANEMASK_EQ && which <= VG_LANEMASK_GT)) {
        VG_FOR_LANES(i, lanes) put(&r, in, i, of_thread(warp, which, i));
    } else {
        value = of_warp(warp, which);
        VG_FOR_LANES(i, lanes) put(&r, in, i, value);
    }
    return VG_NEXT;
}

static uint64_t window_of(uint8_t space)
{
    return space == VG_SHARED        ? VG_SHARED_WINDOW
           : space == VG_LOCAL       ? VG_LOCAL_WINDOW
           : space == VG_PARAM_SPACE ? VG_PARAM_WINDOW
                                     : 0;
}

static uint64_t source(const struct vg_registers *r, const struct vg_instr *in, uint32_t lane)
{
    const void *unit = vg_source(r, in->src[0]);
    const bool narrow = in->op != VG_ISSPACEP && vg_type_bytes(in->type) < 8;
    return narrow ? ((const uint32_t *)unit)[lane] : ((const uint64_t *)unit)[lane];
}

/* alloca takes its bytes from the top of the thread's local memory downward. */
static enum vg_step alloca_bytes(struct vg_warp *warp, struct vg_fragment *fragment,
                                 const struct vg_registers *r, const struct vg_instr *in,
                                 uint32_t lanes)
{
    const uint32_t align = in->imm > 0 ? (uint32_t)in->imm : 8;
    const uint32_t used = fragment->frame->local + fragment->frame->function->local_bytes;
    VG_FOR_LANES(i, lanes)
    {
        const uint64_t size = source(r, in, i);
        if (size > warp->stack[i] || warp->stack[i] - size < used + align)
            return vg_fail(warp, i, in, VG_FAULT_STACK,
                           "alloca of %llu bytes, %u of the thread's %u bytes of stack are free",
                           (unsigned long long)size, warp->stack[i] - used,
                           warp->block->run->local_room);
        warp->stack[i] = (warp->stack[i] - (uint32_t)size) & ~(align - 1);
        put(r, in, i, warp->stack[i]);
    }
    return VG_NEXT;
}

enum vg_step vg_data(struct vg_warp *warp, struct vg_fragment *fragment, const struct vg_instr *in,
                     uint32_t lanes)
{
    const struct vg_registers r = vg_fragment_registers(warp, fragment);
    const uint64_t window = window_of(in->space);
    uint32_t yes = 0;
    switch (in->op) {
    case VG_ADDRESS_LOCAL:
        VG_FOR_LANES(i, lanes) put(&r, in, i, fragment->frame->local + (uint64_t)in->imm);
        return VG_NEXT;
    case VG_CVTA:
        VG_FOR_LANES(i, lanes) put(&r, in, i, source(&r, in, i) | window);
        return VG_NEXT;
    case VG_CVTA_TO:
        VG_FOR_LANES(i, lanes) put(&r, in, i, source(&r, in, i) & ~window);
        return VG_NEXT;
    case VG_ISSPACEP:
        VG_FOR_LANES(i, lanes)
        if ((source(&r, in, i) & VG_WINDOW_MASK) == window) yes |= 1u << i;
        r.predicates[in->dst[0]] = (r.predicates[in->dst[0]] & ~lanes) | yes;
        return VG_NEXT;
    case VG_ALLOCA:
        return alloca_bytes(warp, fragment, &r, in, lanes);
    case VG_STACKSAVE:
        VG_FOR_LANES(i, lanes) put(&r, in, i, warp->stack[i]);
        return VG_NEXT;
    case VG_STACKRESTORE:
        VG_FOR_LANES(i, lanes) warp->stack[i] = (uint32_t)source(&r, in, i);
        return VG_NEXT;
    default:
        return vg_fail(warp, vg_first(lanes), in, VG_FAULT_INSTRUCTION,
                       "the machine does not know this instruction (op %u, type %u, mode %u)",
                       in->op, in->type, in->mode);
    }
}
