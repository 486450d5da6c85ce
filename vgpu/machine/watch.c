/* What the machine remembers of accesses: loads that a waiting thread repeats, and which bytes were
 * written. */
#include "machine_internal.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { POLLS = 2, LOOP = 1000, TIMED_LIMIT = 1 << 24 };

/* A hash of the registers of the fragment and its callers: a thread that waits comes back with the
 * same ones. */
static uint64_t state_of(const struct vg_warp *warp, const struct vg_fragment *fragment)
{
    const struct vg_frame *frame = fragment->frame;
    const uint32_t nunits = frame->base + frame->function->nunits;
    const uint32_t npredicates = frame->pbase + frame->function->npredicates;
    uint64_t sum = 1;
    for (uint32_t u = 0; u < nunits; u++)
        for (uint32_t i = 0; i < VG_LANES; i += 2) {
            uint64_t two;
            memcpy(&two, &warp->units[u][i], 8);
            sum = vg_hash(sum, two);
        }
    for (uint32_t p = 0; p < npredicates; p++) sum = vg_hash(sum, warp->predicates[p]);
    return sum;
}

/* The registers of one lane: where they differ, the states do. */
static uint64_t sketch_of(const struct vg_warp *warp, const struct vg_fragment *fragment)
{
    const struct vg_frame *frame = fragment->frame;
    const uint32_t nunits = frame->base + frame->function->nunits, lane = vg_first(fragment->mask);
    uint64_t sum = 0;
    for (uint32_t u = 0; u < nunits; u++) sum = (sum << 1 | sum >> 63) + warp->units[u][lane];
    return sum;
}

/* The value has changed. A thread that came back to a plain load with the same registers waited for
 * that, and nothing of its own can have ordered the two. */
static void polled(const struct vg_warp *warp, const struct vg_watch *watch)
{
    const struct vg_instr *in = watch->in;
    if (!watch->region->reachable || in->op != VG_LD || in->order != VG_WEAK) return;
    if (watch->same < POLLS || warp->nwatch == VG_WATCHED) return; /* else others are not watched */
    const struct vg_how how = {.nbytes = (uint8_t)vg_type_bytes(in->type),
                               .nc = (in->flags & VG_NC) != 0,
                               .where = (uint64_t)(uintptr_t)in};
    vg_model_polled(warp->block->clock, warp->number * VG_LANES + vg_first(watch->lanes),
                    watch->region, watch->address - watch->region->address, &how);
}

/* Spans begin at the 1st, 2nd, 4th, 8th ... look: a thread that goes round a few words, or counts
 * its looks and begins anew, comes back to the same registers within one. */
static void look(const struct vg_warp *warp, const struct vg_fragment *fragment,
                 struct vg_watch *watch)
{
    watch->looks++;
    const bool begins = (watch->looks & (watch->looks - 1)) == 0;
    if (watch->back && !begins) return;
    const uint64_t sketch = sketch_of(warp, fragment);
    if (sketch != watch->sketch && !begins) return;
    const uint64_t state = state_of(warp, fragment);
    watch->back = watch->back || state == watch->state;
    if (!begins) return;
    watch->same = watch->back ? watch->same + 1 : 0;
    watch->back = false;
    watch->state = state;
    watch->sketch = sketch;
}

void vg_watch_load(struct vg_warp *warp, struct vg_fragment *fragment, const struct vg_instr *in,
                   uint32_t lanes, const struct vg_region *region, uint64_t address, uint64_t sum)
{
    if (region->readonly && !region->reachable) return; /* constants */
    if (warp->watch == NULL) warp->watch = calloc(VG_WATCHED, sizeof *warp->watch);
    if (warp->watch == NULL) return;
    for (uint32_t i = 0; i < warp->nwatch; i++) {
        struct vg_watch *watch = &warp->watch[i];
        if (watch->in != in || watch->lanes != lanes || watch->address != address) continue;
        if (watch->sum != sum) {
            polled(warp, watch);
            vg_moved(warp, fragment);
            return;
        }
        look(warp, fragment, watch);
        return;
    }
    struct vg_watch *last = &warp->watch[VG_WATCHED - 1];
    if (warp->nwatch == VG_WATCHED) { /* one that others can write must not be missed */
        if (!region->reachable || last->region->reachable) return;
        warp->nwatch--;
    }
    warp->watch[warp->nwatch++] = (struct vg_watch){
        .in = in, .lanes = lanes, .sum = sum, .address = address, .region = region};
}

/* Compares the fragment's registers with those of an earlier look at the same place. The place is
 * taken anew at the 1st, 2nd, 4th, 8th ... look, so that it comes to lie in the loop. */
static bool comes_back(const struct vg_warp *warp, struct vg_fragment *fragment)
{
    fragment->looks++;
    const bool anew = (fragment->looks & (fragment->looks - 1)) == 0;
    if (!anew && fragment->pc != fragment->spin_pc) return false;
    const uint64_t state = vg_hash(state_of(warp, fragment), warp->carry);
    const bool same = fragment->pc == fragment->spin_pc && state == fragment->spin_state;
    if (anew) {
        fragment->spin_pc = fragment->pc;
        fragment->spin_state = state;
    }
    return same && fragment->looks > 1;
}

void vg_watch_no_spin(struct vg_fragment *fragment)
{
    fragment->spun = 0;
    fragment->looks = 0;
    fragment->timed = false;
}

bool vg_watch_spin(struct vg_warp *warp, struct vg_fragment *fragment, uint64_t steps)
{
    const uint32_t given = warp->block->run->machine->settings.spin_limit;
    fragment->spun += steps;
    if (fragment->spun < LOOP) return true;
    const uint64_t limit = given != 0 ? given : fragment->timed ? TIMED_LIMIT : UINT64_MAX;
    if (fragment->spun < limit && (fragment->timed || !comes_back(warp, fragment))) return true;
    vg_fail(warp, vg_first(fragment->mask), vg_instr_of(fragment), VG_FAULT_DEADLOCK,
            "hangs: %" PRIu64 " instructions without any effect%s", fragment->spun,
            fragment->timed          ? ", in which it looked at the time"
            : fragment->spun < limit ? ", and its registers are as they were before"
                                     : "");
    return false;
}

bool vg_defined(const struct vg_region *region, uint64_t offset, uint32_t nbytes)
{
    for (uint64_t i = offset; i < offset + nbytes; i++)
        if ((region->defined[i / 8] >> (i % 8) & 1) == 0) return false;
    return true;
}

void vg_define(struct vg_region *region, uint64_t offset, uint32_t nbytes)
{
    for (uint64_t i = offset; i < offset + nbytes; i++)
        region->defined[i / 8] |= (unsigned char)(1u << (i % 8));
}

enum vg_step vg_undefined(struct vg_warp *warp, uint32_t lane, const struct vg_instr *in,
                          const struct vg_region *region, uint64_t address, uint32_t nbytes)
{
    return vg_fail(warp, lane, in, VG_FAULT_UNDEFINED,
                   "reads %u bytes at 0x%" PRIx64 ", which nobody has written: offset %" PRIu64
                   " of %s (allocation %" PRIu64 ")",
                   nbytes, address, address - region->address, region->what, region->number);
}
