/* Copies that run beside their thread (cp.async) and barriers in shared memory (mbarrier).
 *
 * A copy is done as late as the manual allows: when its thread waits for it, by a wait for its
 * group, by an mbarrier that it arrives at, or at the thread's end. Whoever reads without waiting
 * finds the old bytes.
 *
 * An mbarrier is a word of 64 bits: bits 0 to 19 the arrivals that are still expected in this
 * phase, 20 to 39 those of the next phase, 40 to 60 the bytes of copies that are expected (with a
 * sign), 63 the phase. */
#include "machine_internal.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define PENDING UINT64_C(0xfffff)
#define EXPECTED_SHIFT 20
#define BYTES_SHIFT 40
#define BYTES_MASK UINT64_C(0x1fffff)
#define PHASE (UINT64_C(1) << 63)

/* A whole word, or the bytes that are left of what is read. */
static bool load_part(struct vg_warp *warp, const struct vg_async *job, uint32_t at, uint32_t left,
                      const struct vg_how *how, uint32_t *word)
{
    const uint64_t from = job->from + at;
    struct vg_how one = *how;
    if (left >= how->nbytes)
        return vg_thread_load(warp, job->lane, job->in, VG_GLOBAL, from, how, word);
    one.nbytes = 1;
    for (uint32_t k = 0; k < left; k++)
        if (!vg_thread_load(warp, job->lane, job->in, VG_GLOBAL, from + k, &one, (char *)word + k))
            return false;
    return true;
}

static bool copy(struct vg_warp *warp, const struct vg_async *job)
{
    const struct vg_how how = {.nbytes = job->nbytes >= 4 ? 4 : (uint8_t)job->nbytes,
                               .where = (uint64_t)(uintptr_t)job->in};
    for (uint32_t at = 0; at < job->nbytes; at += how.nbytes) {
        uint32_t word = 0;
        const uint32_t left = at < job->nread ? job->nread - at : 0;
        if (left != 0 && !load_part(warp, job, at, left, &how, &word)) return false;
        if (!vg_thread_store(warp, job->lane, job->in, VG_SHARED, job->to + at, &how, &word))
            return false;
    }
    return true;
}

/* Does the copies of the lanes: all, or those whose group has more than `keep` committed ones
 * behind it. */
bool vg_async_finish(struct vg_warp *warp, uint32_t lanes, bool all, uint32_t keep)
{
    uint32_t left = 0;
    bool done = true;
    for (uint32_t i = 0; i < warp->nasync; i++) {
        const struct vg_async *job = &warp->async[i];
        const bool waited = all || warp->group[job->lane] - job->group > keep;
        if (waited && (lanes >> job->lane & 1) != 0)
            done = done && copy(warp, job);
        else
            warp->async[left++] = *job;
    }
    warp->nasync = left;
    return done;
}

static enum vg_step issue(struct vg_warp *warp, const struct vg_registers *r,
                          const struct vg_instr *in, uint32_t lanes)
{
    if (warp->nasync + VG_LANES > warp->async_room) {
        const uint32_t room = 2 * warp->async_room + 2 * VG_LANES;
        void *async = realloc(warp->async, room * sizeof *warp->async);
        if (async == NULL)
            return vg_fail(warp, vg_first(lanes), in, VG_FAULT_RESOURCES, "no memory for cp.async");
        warp->async = async;
        warp->async_room = room;
    }
    const void *to = vg_source(r, in->src[0]);
    const uint64_t *from = vg_source(r, in->src[1]);
    VG_FOR_LANES(i, lanes)
    {
        uint32_t nread = in->count;
        if (in->src[2] != VG_NONE && in->mode == 1)
            nread = (r->predicates[in->src[2]] >> i & 1) != 0 ? 0 : in->count;
        else if (in->src[2] != VG_NONE)
            nread = ((const uint32_t *)vg_source(r, in->src[2]))[i];
        const uint64_t shared =
            in->type2 == VG_B32 ? ((const uint32_t *)to)[i] : ((const uint64_t *)to)[i];
        const struct vg_async job = {.in = in,
                                     .lane = i,
                                     .group = warp->group[i],
                                     .nread = nread < in->count ? nread : in->count,
                                     .nbytes = in->count,
                                     .to = (shared & ~VG_WINDOW_MASK) + (uint64_t)in->imm,
                                     .from = from[i]};
        if (job.to % in->count != 0 || job.from % in->count != 0)
            return vg_fail(warp, i, in, VG_FAULT_MISALIGNED,
                           "cp.async of %u bytes from 0x%" PRIx64 " to shared 0x%" PRIx64
                           ": both must be multiples of %u",
                           in->count, job.from, job.to, in->count);
        warp->async[warp->nasync++] = job;
    }
    return VG_NEXT;
}

struct change {
    const struct vg_instr *in;
    uint32_t count;
    int64_t nbytes;
    bool drop;
    bool overflow;
};

/* Arrives; the last arrival begins the next phase. */
static bool arrival(void *arg, const void *old, void *value)
{
    struct change *change = arg;
    uint64_t word;
    memcpy(&word, old, 8);
    uint64_t pending = word & PENDING, expected = word >> EXPECTED_SHIFT & PENDING;
    uint64_t nbytes = ((word >> BYTES_SHIFT) + (uint64_t)change->nbytes) & BYTES_MASK;
    uint64_t phase = word & PHASE;
    change->overflow = change->count > pending;
    if (change->overflow) return false;
    pending -= change->count;
    if (change->drop) expected -= change->count;
    if (pending == 0 && nbytes == 0) {
        pending = expected;
        phase ^= PHASE;
    }
    word = pending | expected << EXPECTED_SHIFT | nbytes << BYTES_SHIFT | phase;
    memcpy(value, &word, 8);
    return true;
}

static uint64_t address_of(const struct vg_registers *r, const struct vg_instr *in, uint32_t lane)
{
    const uint64_t imm = (uint64_t)in->imm;
    if (in->src[0] == VG_NONE) return imm;
    const void *base = vg_source(r, in->src[0]);
    return (in->type2 == VG_B32 ? ((const uint32_t *)base)[lane] : ((const uint64_t *)base)[lane]) +
           imm;
}

static bool arrive(struct vg_warp *warp, uint32_t lane, const struct vg_registers *r,
                   const struct vg_instr *in, struct change *change, uint64_t *old)
{
    const struct vg_how how = {.nbytes = 8,
                               .order = in->order == VG_WEAK ? VG_RELEASE : in->order,
                               .scope = VG_SCOPE_CTA,
                               .where = (uint64_t)(uintptr_t)in};
    uint64_t offset;
    struct vg_region *region =
        vg_thread_find(warp, lane, in, VG_SHARED, address_of(r, in, lane), 8, true, &offset);
    if (region == NULL) return false;
    vg_model_rmw(warp->block->clock, warp->number * VG_LANES + lane, region, offset, &how, arrival,
                 change, old);
    if (change->overflow)
        vg_fail(warp, lane, in, VG_FAULT_BARRIER,
                "mbarrier at shared 0x%" PRIx64 ": %u arrive, %" PRIu64 " are still expected",
                offset, change->count, *old & PENDING);
    return !change->overflow;
}

enum vg_step vg_async_copy(struct vg_warp *warp, struct vg_fragment *fragment,
                           const struct vg_instr *in, uint32_t lanes)
{
    const struct vg_registers r = vg_fragment_registers(warp, fragment);
    switch (in->op) {
    case VG_CP_ASYNC:
        return issue(warp, &r, in, lanes);
    case VG_CP_ASYNC_COMMIT:
        VG_FOR_LANES(i, lanes) warp->group[i]++;
        return VG_NEXT;
    case VG_CP_ASYNC_WAIT:
        vg_moved(warp, fragment);
        return vg_async_finish(warp, lanes, (in->flags & VG_ALL_GROUPS) != 0, (uint32_t)in->imm)
                   ? VG_NEXT
                   : VG_FAILED;
    default:
        break;
    }
    /* cp.async.mbarrier.arrive: without .noinc the arrival is not one of those expected. */
    if (!vg_async_finish(warp, lanes, true, 0)) return VG_FAILED;
    if ((in->flags & VG_NO_COMPLETE) != 0) {
        VG_FOR_LANES(i, lanes)
        {
            struct change change = {.in = in, .count = 1};
            uint64_t old;
            if (!arrive(warp, i, &r, in, &change, &old)) return VG_FAILED;
        }
    }
    vg_moved(warp, fragment);
    return VG_NEXT;
}

/* test_wait and try_wait: whether the phase of the state, or of the parity, is over. */
static bool test(struct vg_warp *warp, struct vg_fragment *fragment, const struct vg_registers *r,
                 const struct vg_instr *in, uint32_t lanes)
{
    const struct vg_how how = {.nbytes = 8,
                               .order = in->order == VG_WEAK ? VG_ACQUIRE : in->order,
                               .scope = VG_SCOPE_CTA,
                               .where = (uint64_t)(uintptr_t)in};
    uint32_t over = 0;
    uint64_t sum = 0;
    VG_FOR_LANES(i, lanes)
    {
        uint64_t word, phase;
        const uint64_t address = address_of(r, in, i);
        if (!vg_thread_load(warp, i, in, VG_SHARED, address, &how, &word)) return false;
        if (in->flags & VG_PARITY)
            phase = ((const uint32_t *)vg_source(r, in->src[1]))[i] & 1 ? PHASE : 0;
        else
            phase = ((const uint64_t *)vg_source(r, in->src[1]))[i] & PHASE;
        if ((word & PHASE) != phase) over |= 1u << i;
        sum = (sum ^ word ^ i) * UINT64_C(0x9e3779b97f4a7c15);
    }
    vg_watch_load(warp, fragment, in, lanes, &warp->block->shared,
                  address_of(r, in, vg_first(lanes)), sum);
    r->predicates[in->dst[0]] = (r->predicates[in->dst[0]] & ~lanes) | over;
    if (in->op == VG_MBARRIER_TRY_WAIT && over != lanes) fragment->idle += 10;
    return true;
}

enum vg_step vg_mbarrier(struct vg_warp *warp, struct vg_fragment *fragment,
                         const struct vg_instr *in, uint32_t lanes)
{
    const struct vg_registers r = vg_fragment_registers(warp, fragment);
    const struct vg_how how = {.nbytes = 8, .order = VG_WEAK, .where = (uint64_t)(uintptr_t)in};
    if (in->op == VG_MBARRIER_TEST_WAIT || in->op == VG_MBARRIER_TRY_WAIT)
        return test(warp, fragment, &r, in, lanes) ? VG_NEXT : VG_FAILED;
    const uint32_t *counts =
        in->op != VG_MBARRIER_PENDING && in->src[1] != VG_NONE ? vg_source(&r, in->src[1]) : NULL;
    VG_FOR_LANES(i, lanes)
    {
        const uint32_t count = counts == NULL ? 1 : counts[i];
        uint64_t word = count | (uint64_t)count << EXPECTED_SHIFT;
        struct change change = {.in = in, .count = count};
        if (in->op == VG_MBARRIER_PENDING) {
            r.frame[in->dst[0]][i] =
                (uint32_t)(((const uint64_t *)vg_source(&r, in->src[0]))[i] & PENDING);
            continue;
        }
        if (in->op == VG_MBARRIER_INIT || in->op == VG_MBARRIER_INVAL) {
            if (in->op == VG_MBARRIER_INVAL) word = 0;
            if (!vg_thread_store(warp, i, in, VG_SHARED, address_of(&r, in, i), &how, &word))
                return VG_FAILED;
            continue;
        }
        change.drop = in->op == VG_MBARRIER_ARRIVE_DROP;
        if (in->op == VG_MBARRIER_EXPECT) {
            change.nbytes = count;
            change.count = in->mode == 1; /* arrive.expect_tx */
        }
        if (!arrive(warp, i, &r, in, &change, &word)) return VG_FAILED;
        if (in->dst[0] != VG_NONE) memcpy((char *)r.frame[in->dst[0]] + (size_t)i * 8, &word, 8);
    }
    vg_moved(warp, fragment);
    return VG_NEXT;
}
