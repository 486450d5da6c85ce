/* Barriers of a block: bar and barrier, .sync, .arrive and .red, numbers 0 to 15.
 *
 * A thread first waits for the lanes of its warp that have not exited; then the warp arrives, which
 * counts as 32 threads. With a count the barrier completes when so many threads have arrived,
 * without one when all warps that have not exited have. Source: PTX ISA 9.0, barrier.cta. */
#include "machine_internal.h"

#include <string.h>

static void release(struct vg_block *block, uint32_t number)
{
    struct vg_barrier *barrier = &block->barrier[number];
    uint64_t threads[VG_MAX_WARPS / 2] = {0};
    for (uint32_t w = 0; w < block->nwarps; w++) {
        struct vg_warp *warp = &block->warps[w];
        threads[w / 2] |= (uint64_t)barrier->waits[w] << (w % 2 * 32);
        if (barrier->waits[w] == 0) continue;
        warp->nwatch = 0; /* what is read from here on may be ordered after what was read before */
        for (uint32_t i = 0; i < warp->nparts; i++) {
            struct vg_fragment *f = &warp->part[i];
            if (f->state != VG_BLOCKED || f->barrier != number) continue;
            const struct vg_instr *in = vg_instr_of(f);
            if (in->op == VG_BAR_RED) {
                const struct vg_registers r = vg_fragment_registers(warp, f);
                const bool yes = in->mode == VG_REDUCE_AND ? barrier->all == 0 : barrier->any != 0;
                if (in->mode == VG_REDUCE_POPC) VG_FOR_LANES(lane, f->mask)
                r.frame[in->dst[0]][lane] = barrier->number;
                else r.predicates[in->dst[0]] =
                    (r.predicates[in->dst[0]] & ~f->mask) | (yes ? f->mask : 0);
            }
            f->state = VG_RUNS;
            f->idle = 0;
            f->pc++;
        }
        if (warp->list == VG_STUCK) vg_list_move(warp, VG_READY);
    }
    memset(barrier, 0, sizeof *barrier);
    block->run->moves++;
    vg_traffic_of(block)->barriers++;
    if (!block->run->machine->settings.model.off) vg_model_barrier(block->clock, number, threads);
}

static void release_complete(struct vg_block *block, uint32_t number)
{
    const struct vg_barrier *barrier = &block->barrier[number];
    if (barrier->nwarps == 0) return;
    bool all = true;
    for (uint32_t w = 0; w < block->nwarps; w++)
        all = all && (block->warps[w].live & ~(barrier->waits[w] | barrier->came[w])) == 0;
    if (barrier->count == 0 ? all : barrier->nwarps * VG_LANES >= barrier->count)
        release(block, number);
}

bool vg_barrier_check(struct vg_block *block)
{
    for (uint32_t number = 0; number < VG_BARRIERS; number++) release_complete(block, number);
    return block->run->fault == VG_FAULT_NONE;
}

/* Without a count a barrier is for all threads of the block. */
static bool same_count(const struct vg_block *block, uint32_t a, uint32_t b)
{
    const uint32_t all = block->nwarps * VG_LANES;
    return (a != 0 ? a : all) == (b != 0 ? b : all);
}

/* All lanes of the warp are at barriers: what is wrong with that, or NULL. */
static const char *wrong(const struct vg_warp *warp, const struct vg_fragment *fragment)
{
    const struct vg_block *block = warp->block;
    const struct vg_barrier *barrier = &block->barrier[fragment->barrier];
    const uint32_t already = barrier->waits[warp->number] | barrier->came[warp->number];
    for (uint32_t i = 0; i < warp->nparts; i++) {
        const struct vg_fragment *f = &warp->part[i];
        if (f->state != VG_GATHERS) continue;
        const bool aligned =
            ((vg_instr_of(f)->flags | vg_instr_of(fragment)->flags) & VG_ALIGNED) != 0;
        if (aligned && vg_instr_of(f) != vg_instr_of(fragment))
            return "divergent barrier: lanes of one warp wait at different bar instructions";
        if (!same_count(block, f->count, fragment->count))
            return "lanes of one warp name different counts of threads for one barrier";
    }
    if (already != 0) return "the warp arrives at the barrier twice before the barrier completes";
    if (barrier->nwarps != 0 && !same_count(block, barrier->count, fragment->count))
        return "warps name different counts of threads for one barrier";
    return NULL;
}

/* Whether all lanes of the warp that have not exited are at this barrier. */
static bool gathered(const struct vg_warp *warp, uint32_t number)
{
    uint32_t here = 0;
    for (uint32_t i = 0; i < warp->nparts; i++) {
        const struct vg_fragment *f = &warp->part[i];
        if (f->state == VG_GATHERS && f->members == 0 && f->barrier == number) here |= f->mask;
    }
    return (warp->live & ~here) == 0;
}

static void tell_arrival(const struct vg_warp *warp, uint32_t number, uint32_t lanes)
{
    uint64_t threads[VG_MAX_WARPS / 2] = {0};
    threads[warp->number / 2] = (uint64_t)lanes << (warp->number % 2 * 32);
    if (!warp->block->run->machine->settings.model.off)
        vg_model_arrive(warp->block->clock, number, threads);
}

static void arrive(struct vg_warp *warp, uint32_t number)
{
    struct vg_barrier *barrier = &warp->block->barrier[number];
    for (uint32_t i = 0; i < warp->nparts; i++) {
        struct vg_fragment *f = &warp->part[i];
        if (f->state != VG_GATHERS || f->members != 0 || f->barrier != number) continue;
        const struct vg_instr *in = vg_instr_of(f);
        if (f->count == 0 || barrier->nwarps == 0) barrier->count = f->count;
        if (in->op == VG_BAR_ARRIVE) {
            barrier->came[warp->number] |= f->mask;
            tell_arrival(warp, number, f->mask);
            f->state = VG_RUNS;
            f->pc++;
            continue;
        }
        if (in->op == VG_BAR_RED) {
            const struct vg_registers r = vg_fragment_registers(warp, f);
            const uint32_t p = r.predicates[in->src[2]];
            const uint32_t yes = f->mask & (in->flags & VG_SOURCE_NOT ? ~p : p);
            barrier->number += (uint32_t)__builtin_popcount(yes);
            barrier->any |= yes;
            barrier->all |= f->mask & ~yes; /* lanes that said no */
        }
        barrier->waits[warp->number] |= f->mask;
        f->state = VG_BLOCKED;
    }
    barrier->nwarps++;
}

enum vg_step vg_barrier(struct vg_warp *warp, struct vg_fragment *fragment,
                        const struct vg_instr *in, uint32_t lanes)
{
    struct vg_block *block = warp->block;
    const struct vg_registers r = vg_fragment_registers(warp, fragment);
    const uint32_t *numbers = vg_source(&r, in->src[0]);
    const uint32_t first = vg_first(lanes), number = numbers[first];
    const uint32_t count =
        in->src[1] == VG_NONE ? 0 : ((const uint32_t *)vg_source(&r, in->src[1]))[first];
    if (number >= VG_BARRIERS)
        return vg_fail(warp, first, in, VG_FAULT_BARRIER,
                       "barrier %u: a block has barriers 0 to 15", number);
    if (in->src[1] != VG_NONE && (count == 0 || count % VG_LANES != 0))
        return vg_fail(warp, first, in, VG_FAULT_BARRIER,
                       "barrier %u with %u threads: expected a multiple of 32 above 0", number,
                       count);
    if (in->op == VG_BAR_ARRIVE && count == 0)
        return vg_fail(warp, first, in, VG_FAULT_BARRIER,
                       "bar.arrive %u without a count of threads", number);
    if (count > block->nwarps * VG_LANES)
        return vg_fail(warp, first, in, VG_FAULT_BARRIER,
                       "barrier %u waits for %u threads, the block has %u", number, count,
                       block->nthreads);
    if (lanes != fragment->mask) {
        struct vg_fragment *others = vg_fragment_split(warp, fragment, fragment->mask & ~lanes);
        others->pc++;
    }
    uint32_t elsewhere = 0;
    VG_FOR_LANES(i, lanes)
    if (numbers[i] != number) elsewhere |= 1u << i;
    if (elsewhere != 0) vg_fragment_split(warp, fragment, elsewhere);
    fragment->state = VG_GATHERS;
    fragment->members = 0;
    fragment->barrier = number;
    fragment->count = count;
    fragment->idle = 0;
    if (!gathered(warp, number)) return VG_PICK;
    const char *why = wrong(warp, fragment);
    if (why != NULL)
        return vg_fail(warp, first, in, VG_FAULT_BARRIER, "barrier %u: %s", number, why);
    arrive(warp, number);
    block->run->moves++;
    release_complete(block, number);
    return VG_PICK;
}
