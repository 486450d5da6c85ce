/* Copies that run beside their thread (cp.async) and barriers in shared memory (mbarrier).
 *
 * The memory model is told of a copy when it is issued. Its bytes move at any time, by the seed,
 * until its thread waits for its group or ends, or until an mbarrier that tracks it gets its
 * arrival. Such an arrival comes at any time behind the copies before it, at the latest when its
 * warp cannot go on. Nothing is ordered by a copy's bytes: only by the wait or the mbarrier.
 * Source: PTX ISA 9.0, 8.9.1.1 and 9.7.9.25.
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

/* The bytes of one copy, word by word. */
static bool move(struct vg_warp *warp, const struct vg_async *job)
{
    struct vg_block_clock *clock = warp->block->clock;
    uint64_t from = 0, to;
    struct vg_region *source = NULL;
    if (job->nread != 0)
        source = vg_thread_find(warp, job->lane, job->in, VG_GLOBAL, job->from, 1, false, &from);
    struct vg_region *target =
        vg_thread_find(warp, job->lane, job->in, VG_SHARED, job->to, job->nbytes, true, &to);
    if (target == NULL || (job->nread != 0 && source == NULL)) return false;
    if (job->nread != 0 && source->defined != NULL && !vg_defined(source, from, job->nread)) {
        vg_undefined(warp, job->lane, job->in, source, job->from, job->nread);
        return false;
    }
    for (uint32_t at = 0; at < job->nbytes; at += 4) {
        uint32_t word = 0;
        const uint32_t left = at < job->nread ? job->nread - at : 0;
        if (left >= 4)
            vg_model_copy_read(clock, source, from + at, 4, &word);
        else
            for (uint32_t k = 0; k < left; k++)
                vg_model_copy_read(clock, source, from + at + k, 1, (char *)&word + k);
        vg_model_copy_write(clock, target, to + at, 4, &word);
    }
    if (target->defined != NULL) vg_define(target, to, job->nbytes);
    return true;
}

static bool arrive_behind(struct vg_warp *warp, const struct vg_async *job);

/* An arrival follows the lane's copies before it. */
static bool perform(struct vg_warp *warp, uint32_t i)
{
    struct vg_async *job = &warp->async[i];
    bool done = true;
    for (uint32_t k = 0; job->arrives && done && k < i; k++)
        if (!warp->async[k].done && warp->async[k].lane == job->lane) done = perform(warp, k);
    job->done = true;
    if (!job->arrives) return done && move(warp, job);
    warp->block->run->moves++; /* others may wait for it */
    return done && arrive_behind(warp, job);
}

static void drop_done(struct vg_warp *warp)
{
    uint32_t left = 0;
    for (uint32_t i = 0; i < warp->nasync; i++)
        if (!warp->async[i].done) warp->async[left++] = warp->async[i];
    warp->nasync = left;
}

/* Performs what the lanes have issued: all, or the copies whose group has more than `keep`
 * committed ones behind it. */
bool vg_async_finish(struct vg_warp *warp, uint32_t lanes, bool all, uint32_t keep)
{
    bool done = true;
    for (uint32_t i = 0; i < warp->nasync && done; i++) {
        const struct vg_async *job = &warp->async[i];
        const bool waited = all || (!job->arrives && warp->group[job->lane] - job->group > keep);
        if (!job->done && waited && (lanes >> job->lane & 1) != 0) done = perform(warp, i);
    }
    drop_done(warp);
    return done;
}

/* Some of what the warp has issued is performed, by the seed. A warp that cannot go on performs its
 * arrivals: somebody may wait for them. */
bool vg_async_stir(struct vg_warp *warp, bool ready)
{
    bool done = true;
    for (uint32_t i = 0; i < warp->nasync && done; i++) {
        const struct vg_async *job = &warp->async[i];
        const bool now = vg_random(&warp->block->run->random) % 4 == 0;
        if (!job->done && (now || (job->arrives && !ready))) done = perform(warp, i);
    }
    drop_done(warp);
    return done;
}

/* --- groups --- */

/* The lanes' copies get new numbers from here on: those before can be waited for. */
static void commit(struct vg_warp *warp, uint32_t lanes)
{
    VG_FOR_LANES(i, lanes)
    {
        if (warp->copies != NULL) {
            struct vg_copies *copies = &warp->copies[i];
            copies->last[warp->group[i] % VG_GROUPS] = copies->number++;
        }
        warp->group[i]++;
    }
}

static bool wait(struct vg_warp *warp, uint32_t lanes, uint32_t keep)
{
    if (!vg_async_finish(warp, lanes, false, keep)) return false;
    if (warp->copies == NULL) return true;
    VG_FOR_LANES(i, lanes)
    {
        const struct vg_copies *copies = &warp->copies[i];
        if (warp->group[i] <= keep) continue;
        const uint32_t group = warp->group[i] - keep - 1;
        /* Of older groups the numbers are not kept: all that was committed counts as complete. */
        const uint32_t number =
            keep < VG_GROUPS ? copies->last[group % VG_GROUPS] : copies->number - 1;
        vg_model_copy_complete(warp->block->clock, warp->number * VG_LANES + i, number);
    }
    return true;
}

/* Room for a job of each lane. */
static bool make_room(struct vg_warp *warp)
{
    if (warp->copies == NULL) {
        warp->copies = calloc(VG_LANES, sizeof *warp->copies);
        if (warp->copies == NULL) return false;
        for (uint32_t i = 0; i < VG_LANES; i++) warp->copies[i].number = 1;
    }
    if (warp->nasync + VG_LANES <= warp->async_room) return true;
    const uint32_t room = 2 * warp->async_room + 2 * VG_LANES;
    void *async = realloc(warp->async, room * sizeof *warp->async);
    if (async == NULL) return false;
    warp->async = async;
    warp->async_room = room;
    return true;
}

/* --- issue --- */

/* The model is told of all that the copy will read and write. */
static bool announce(struct vg_warp *warp, const struct vg_async *job)
{
    struct vg_block_clock *clock = warp->block->clock;
    const uint32_t thread = warp->number * VG_LANES + job->lane;
    struct vg_how how = {.nbytes = (uint8_t)job->nbytes, .where = (uint64_t)(uintptr_t)job->in};
    uint64_t from, to;
    struct vg_region *source, *target = vg_thread_find(warp, job->lane, job->in, VG_SHARED, job->to,
                                                       job->nbytes, true, &to);
    if (target == NULL) return false;
    vg_model_copy_note(clock, thread, job->number, target, to, &how, true);
    if (job->nread == 0) return true;
    /* The last byte may lie outside, the first one inside. */
    source = vg_thread_find(warp, job->lane, job->in, VG_GLOBAL, job->from, 1, false, &from);
    if (source != NULL && source->nbytes - from < job->nread)
        source = vg_thread_find(warp, job->lane, job->in, VG_GLOBAL, job->from, job->nbytes, false,
                                &from);
    if (source == NULL) return false;
    for (uint32_t at = 0; at < job->nread; at += how.nbytes) {
        const uint32_t left = job->nread - at;
        how.nbytes = left == job->nbytes ? (uint8_t)left : left >= 4 ? 4 : 1;
        vg_model_copy_note(clock, thread, job->number, source, from + at, &how, false);
    }
    return true;
}

static enum vg_step issue(struct vg_warp *warp, const struct vg_registers *r,
                          const struct vg_instr *in, uint32_t lanes)
{
    if (!make_room(warp))
        return vg_fail(warp, vg_first(lanes), in, VG_FAULT_RESOURCES, "no memory for cp.async");
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
                                     .number = warp->copies[i].number,
                                     .nread = nread < in->count ? nread : in->count,
                                     .nbytes = in->count,
                                     .to = (shared & ~VG_WINDOW_MASK) + (uint64_t)in->imm,
                                     .from = from[i]};
        if (job.to % in->count != 0 || job.from % in->count != 0)
            return vg_fail(warp, i, in, VG_FAULT_MISALIGNED,
                           "cp.async of %u bytes from 0x%" PRIx64 " to shared 0x%" PRIx64
                           ": both must be multiples of %u",
                           in->count, job.from, job.to, in->count);
        if (!announce(warp, &job)) return VG_FAILED;
        if (vg_random(&warp->block->run->random) % 4 != 0)
            warp->async[warp->nasync++] = job;
        else if (!move(warp, &job))
            return VG_FAILED;
    }
    return VG_NEXT;
}

/* --- mbarriers --- */

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
    const bool arrives = in->op != VG_MBARRIER_EXPECT || in->mode == 1;
    const uint8_t otherwise = arrives ? VG_RELEASE : VG_RELAXED;
    const struct vg_how how = {.nbytes = 8,
                               .order = in->order == VG_WEAK ? otherwise : in->order,
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

static bool arrive_behind(struct vg_warp *warp, const struct vg_async *job)
{
    const struct vg_how how = {.nbytes = 8,
                               .order = VG_RELEASE,
                               .scope = VG_SCOPE_CTA,
                               .red = true,
                               .where = (uint64_t)(uintptr_t)job->in};
    struct change change = {.in = job->in, .count = 1};
    uint64_t old;
    vg_model_copy_arrive(warp->block->clock, warp->number * VG_LANES + job->lane, job->number,
                         &warp->block->shared, job->to, &how, arrival, &change, &old);
    if (change.overflow)
        vg_fail(warp, job->lane, job->in, VG_FAULT_BARRIER,
                "mbarrier at shared 0x%" PRIx64 ": the arrival of a cp.async is not expected",
                job->to);
    return !change.overflow;
}

static bool expect_one_more(void *arg, const void *old, void *value)
{
    uint64_t word;
    (void)arg;
    memcpy(&word, old, 8);
    word = (word & ~PENDING) | ((word + 1) & PENDING);
    memcpy(value, &word, 8);
    return true;
}

/* cp.async.mbarrier.arrive: without .noinc the mbarrier expects one arrival more. */
static enum vg_step track(struct vg_warp *warp, const struct vg_registers *r,
                          const struct vg_instr *in, uint32_t lanes)
{
    const struct vg_how how = {.nbytes = 8,
                               .order = VG_RELAXED,
                               .scope = VG_SCOPE_CTA,
                               .red = true,
                               .where = (uint64_t)(uintptr_t)in};
    if (!make_room(warp))
        return vg_fail(warp, vg_first(lanes), in, VG_FAULT_RESOURCES, "no memory for cp.async");
    VG_FOR_LANES(i, lanes)
    {
        uint64_t offset, old;
        struct vg_region *region =
            vg_thread_find(warp, i, in, VG_SHARED, address_of(r, in, i), 8, true, &offset);
        if (region == NULL) return VG_FAILED;
        if ((in->flags & VG_NO_COMPLETE) == 0)
            vg_model_rmw(warp->block->clock, warp->number * VG_LANES + i, region, offset, &how,
                         expect_one_more, NULL, &old);
        warp->async[warp->nasync++] = (struct vg_async){.in = in,
                                                        .lane = i,
                                                        .group = warp->group[i],
                                                        .number = warp->copies[i].number++,
                                                        .arrives = true,
                                                        .to = offset};
    }
    return VG_NEXT;
}

enum vg_step vg_async_copy(struct vg_warp *warp, struct vg_fragment *fragment,
                           const struct vg_instr *in, uint32_t lanes)
{
    const struct vg_registers r = vg_fragment_registers(warp, fragment);
    const bool all = (in->flags & VG_ALL_GROUPS) != 0;
    switch (in->op) {
    case VG_CP_ASYNC:
        return issue(warp, &r, in, lanes);
    case VG_CP_ASYNC_COMMIT:
        commit(warp, lanes);
        return VG_NEXT;
    case VG_CP_ASYNC_WAIT:
        if (all) commit(warp, lanes);
        vg_moved(warp, fragment);
        return wait(warp, lanes, all ? 0 : (uint32_t)in->imm) ? VG_NEXT : VG_FAILED;
    default:
        vg_moved(warp, fragment);
        return track(warp, &r, in, lanes);
    }
}

/* test_wait and try_wait: whether the phase of the state, or of the parity, is over. Only one that
 * says so acquires. */
static bool test(struct vg_warp *warp, struct vg_fragment *fragment, const struct vg_registers *r,
                 const struct vg_instr *in, uint32_t lanes)
{
    const struct vg_how how = {
        .nbytes = 8, .order = VG_RELAXED, .scope = VG_SCOPE_CTA, .where = (uint64_t)(uintptr_t)in};
    struct vg_block *block = warp->block;
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
        if ((word & PHASE) != phase && in->order != VG_RELAXED)
            vg_model_acquire(block->clock, warp->number * VG_LANES + i, &block->shared,
                             address & ~VG_WINDOW_MASK, VG_SCOPE_CTA);
        sum = (sum ^ word ^ i) * UINT64_C(0x9e3779b97f4a7c15);
    }
    vg_watch_load(warp, fragment, in, lanes, &block->shared, address_of(r, in, vg_first(lanes)),
                  sum);
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
