/* Lanes of a warp together: shuffles, votes, match, redux, elect and bar.warp.sync.
 *
 * Each names the lanes that take part. A lane waits until every named lane that has not exited has
 * come to an instruction of the same kind with the same mask, which need not be the same
 * instruction. Source: PTX ISA 9.0, shfl.sync, vote.sync, match.sync, redux.sync, bar.warp.sync. */
#include "machine_internal.h"

#include <string.h>

/* Fragments that meet, and what their lanes bring. */
struct meeting {
    struct vg_warp *warp;
    uint32_t n;
    struct vg_fragment *part[VG_LANES];
    const struct vg_instr *in[VG_LANES];
    uint32_t lanes[VG_LANES];
    uint32_t all;
    uint32_t a[VG_LANES], b[VG_LANES], c[VG_LANES], result[VG_LANES];
    uint64_t wide[VG_LANES];
    uint32_t predicate; /* in, then out */
};

static uint16_t mask_operand(const struct vg_instr *in)
{
    return in->op == VG_SHFL ? in->src[3]
                             : in->src[in->op == VG_ELECT || in->op == VG_WARP_SYNC ? 0 : 1];
}

static void bring(struct meeting *m, uint32_t k)
{
    const struct vg_instr *in = m->in[k];
    const struct vg_registers r = vg_fragment_registers(m->warp, m->part[k]);
    const uint32_t lanes = m->lanes[k];
    if (in->op == VG_VOTE) {
        const uint32_t p = r.predicates[in->src[0]];
        m->predicate |= lanes & (in->flags & VG_SOURCE_NOT ? ~p : p);
        return;
    }
    if (in->op == VG_ELECT || in->op == VG_WARP_SYNC) return;
    const void *a = vg_source(&r, in->src[0]);
    VG_FOR_LANES(i, lanes)
    {
        if (vg_type_bytes(in->type) == 8)
            m->wide[i] = ((const uint64_t *)a)[i];
        else
            m->wide[i] = m->a[i] = ((const uint32_t *)a)[i];
    }
    if (in->op != VG_SHFL) return;
    const uint32_t *b = vg_source(&r, in->src[1]), *c = vg_source(&r, in->src[2]);
    VG_FOR_LANES(i, lanes) m->b[i] = b[i], m->c[i] = c[i];
}

/* shfl: the formulas of the manual. A lane that does not take part gives no defined value: a
 * pattern that stands out. */
static void shuffle(struct meeting *m)
{
    VG_FOR_LANES(i, m->all)
    {
        const uint32_t b = m->b[i] & 31, c = m->c[i] & 31, segment = m->c[i] >> 8 & 31;
        const int32_t top = (int32_t)((i & segment) | (c & ~segment));
        const int32_t bottom = (int32_t)(i & segment);
        int32_t from;
        bool valid;
        switch (m->in[0]->mode) {
        case VG_SHFL_UP:
            from = (int32_t)i - (int32_t)b, valid = from >= top;
            break;
        case VG_SHFL_DOWN:
            from = (int32_t)(i + b), valid = from <= top;
            break;
        case VG_SHFL_BFLY:
            from = (int32_t)(i ^ b), valid = from <= top;
            break;
        default:
            from = bottom | (int32_t)(b & ~segment), valid = from <= top;
        }
        if (!valid) from = (int32_t)i;
        m->result[i] = m->all >> from & 1 ? m->a[from] : 0xbadbad00u + (uint32_t)from;
        if (valid) m->predicate |= 1u << i;
    }
}

static void vote(struct meeting *m)
{
    const uint32_t yes = m->predicate & m->all;
    bool result = false;
    switch (m->in[0]->mode) {
    case VG_VOTE_ALL:
        result = yes == m->all;
        break;
    case VG_VOTE_ANY:
        result = yes != 0;
        break;
    case VG_VOTE_UNI:
        result = yes == 0 || yes == m->all;
        break;
    default:
        VG_FOR_LANES(i, m->all) m->result[i] = yes;
        return;
    }
    m->predicate = result ? UINT32_MAX : 0;
}

static void match(struct meeting *m)
{
    bool same = true;
    const uint64_t first = m->wide[vg_first(m->all)];
    VG_FOR_LANES(i, m->all)
    {
        m->result[i] = 0;
        same = same && m->wide[i] == first;
        for (uint32_t j = 0; j < VG_LANES; j++)
            if ((m->all >> j & 1) != 0 && m->wide[j] == m->wide[i]) m->result[i] |= 1u << j;
    }
    if (m->in[0]->op == VG_MATCH_ANY) return;
    VG_FOR_LANES(i, m->all) m->result[i] = same ? m->all : 0;
    m->predicate = same ? UINT32_MAX : 0;
}

static void reduce(struct meeting *m)
{
    const bool is_signed = m->in[0]->type == VG_S32;
    uint32_t x = m->a[vg_first(m->all)];
    VG_FOR_LANES(i, m->all & (m->all - 1))
    {
        const uint32_t y = m->a[i];
        const bool less = is_signed ? (int32_t)x < (int32_t)y : x < y;
        switch (m->in[0]->mode) {
        case VG_REDUCE_AND:
            x &= y;
            break;
        case VG_REDUCE_OR:
            x |= y;
            break;
        case VG_REDUCE_XOR:
            x ^= y;
            break;
        case VG_REDUCE_MIN:
            x = less ? x : y;
            break;
        case VG_REDUCE_MAX:
            x = less ? y : x;
            break;
        default:
            x += y;
        }
    }
    VG_FOR_LANES(i, m->all) m->result[i] = x;
}

static void elect(struct meeting *m)
{
    const uint32_t leader = vg_first(m->all);
    VG_FOR_LANES(i, m->all) m->result[i] = leader;
    m->predicate = 1u << leader;
}

static void set_predicate(const struct vg_registers *r, uint16_t operand, uint32_t lanes,
                          uint32_t value)
{
    if (operand == VG_NONE) return;
    r->predicates[operand] = (r->predicates[operand] & ~lanes) | (value & lanes);
}

static void take(struct meeting *m, uint32_t k)
{
    const struct vg_instr *in = m->in[k];
    const struct vg_registers r = vg_fragment_registers(m->warp, m->part[k]);
    const uint32_t lanes = m->lanes[k];
    if (in->op == VG_WARP_SYNC) return;
    if (in->op == VG_VOTE && in->mode != VG_VOTE_BALLOT) {
        set_predicate(&r, in->dst[0], lanes, m->predicate);
        return;
    }
    if (in->dst[0] != VG_NONE) VG_FOR_LANES(i, lanes) r.frame[in->dst[0]][i] = m->result[i];
    if (in->op == VG_SHFL || in->op == VG_MATCH_ALL || in->op == VG_ELECT)
        set_predicate(&r, in->dst[1], lanes, m->predicate);
}

static void meet(struct meeting *m)
{
    for (uint32_t k = 0; k < m->n; k++) bring(m, k);
    switch (m->in[0]->op) {
    case VG_SHFL:
        shuffle(m);
        break;
    case VG_VOTE:
        vote(m);
        break;
    case VG_MATCH_ANY:
    case VG_MATCH_ALL:
        match(m);
        break;
    case VG_REDUX:
        reduce(m);
        break;
    case VG_ELECT:
        elect(m);
        break;
    default:
        break;
    }
    for (uint32_t k = 0; k < m->n; k++) take(m, k);
    const struct vg_block *block = m->warp->block;
    if (m->in[0]->op == VG_WARP_SYNC && !block->run->machine->settings.model.off)
        vg_model_warp(block->clock, m->warp->number, m->all);
}

/* The lanes of the mask, if all that have not exited are here or wait elsewhere. */
static bool complete(struct meeting *m, struct vg_fragment *fragment, const struct vg_instr *in,
                     uint32_t lanes, uint32_t members)
{
    struct vg_warp *warp = m->warp;
    m->n = 1;
    m->part[0] = fragment;
    m->in[0] = in;
    m->all = m->lanes[0] = lanes;
    m->predicate = 0;
    for (uint32_t i = 0; i < warp->nparts; i++) {
        struct vg_fragment *f = &warp->part[i];
        if (f == fragment || f->state != VG_GATHERS || f->members != members) continue;
        const struct vg_instr *other = vg_instr_of(f);
        if (other->op != in->op || other->mode != in->mode || other->type != in->type) continue;
        m->part[m->n] = f;
        m->in[m->n] = other;
        m->lanes[m->n++] = f->mask;
        m->all |= f->mask;
    }
    return (members & warp->live & ~m->all) == 0;
}

enum vg_step vg_together(struct vg_warp *warp, struct vg_fragment *fragment,
                         const struct vg_instr *in, uint32_t lanes)
{
    struct meeting m = {.warp = warp};
    const struct vg_registers r = vg_fragment_registers(warp, fragment);
    uint32_t masks[VG_LANES];
    memcpy(masks, vg_source(&r, mask_operand(in)), sizeof masks);
    uint32_t left = lanes, waiting = 0;
    bool others = false;
    while (left != 0) {
        const uint32_t first = vg_first(left), members = masks[first];
        uint32_t group = 0;
        VG_FOR_LANES(i, left)
        if (masks[i] == members) group |= 1u << i;
        left &= ~group;
        if ((group & ~members) != 0)
            return vg_fail(warp, vg_first(group & ~members), in, VG_FAULT_BARRIER,
                           "the lane is not in its own mask of lanes 0x%08x", members);
        if (!complete(&m, fragment, in, group, members)) {
            waiting |= group;
            continue;
        }
        meet(&m);
        for (uint32_t k = 1; k < m.n; k++) {
            m.part[k]->state = VG_RUNS;
            m.part[k]->pc++;
            others = true;
        }
    }
    if (waiting == 0 && !others) return VG_NEXT;
    /* Lanes that wait leave the fragment, a fragment for each mask; the others go on. */
    while (waiting != 0) {
        const uint32_t members = masks[vg_first(waiting)];
        uint32_t group = 0;
        VG_FOR_LANES(i, waiting)
        if (masks[i] == members) group |= 1u << i;
        waiting &= ~group;
        struct vg_fragment *f =
            group == fragment->mask ? fragment : vg_fragment_split(warp, fragment, group);
        f->state = VG_GATHERS;
        f->members = members;
    }
    if (fragment->state == VG_RUNS) fragment->pc++;
    return VG_PICK;
}
