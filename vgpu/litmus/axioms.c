/* The axioms of PTX ISA 9.0, 8.10 ("Axioms"), over the relations of 8.9, each named as there.
 *
 * Accesses may overlap in part, so reads-from is told for each piece of a location (axioms.h).
 * ld.global.nc is outside the chapter (8.1): what it reads while its grid, or one that is not
 * ordered with its grid, writes there is not constrained, and counts as a race. */
#include <vgpu/litmus/axioms.h>

static bool writes(const struct vl_execution *e, unsigned event)
{
    return e->writers >> event & 1;
}

/* 8.10.4, No-Thin-Air: the value of an add or a swap is known when that of its source is. */
bool vl_execution_values(struct vl_execution *e)
{
    uint64_t known = 0;
    e->writers = 0;
    for (bool more = true; more;) {
        more = false;
        for (unsigned k = 0; k < e->nevents; k++) {
            const struct vl_event *event = &e->events[k];
            bool ready = !(known >> k & 1), fails = false;
            for (unsigned p = 0; p < e->npieces && ready; p++) {
                if (!(event->pieces >> p & 1) || !event->reads) continue;
                const unsigned from = e->source[k][p];
                if (event->op->kind == VL_ADD || event->op->kind == VL_SWAP)
                    ready = known >> from & 1;
                fails |= event->op->kind == VL_SWAP && e->value[from][p] != event->op->expected;
            }
            if (!ready) continue;
            more = true;
            known |= UINT64_C(1) << k;
            if (event->may_write && !fails) e->writers |= UINT64_C(1) << k;
            for (unsigned p = 0; p < e->npieces; p++) {
                e->value[k][p] = event->op ? event->op->value : 0;
                if (event->op && event->op->kind == VL_ADD && event->pieces >> p & 1)
                    e->value[k][p] = (uint8_t)(e->value[k][p] + e->value[e->source[k][p]][p]);
            }
        }
    }
    for (unsigned k = 0; k < e->nevents; k++) {
        if (!(known >> k & 1)) return false;
        for (unsigned p = 0; p < e->npieces; p++)
            if (e->events[k].reads && e->events[k].pieces >> p & 1 && !writes(e, e->source[k][p]))
                return false;
    }
    return true;
}

/* 8.9.2: a write before a read through reads-from of morally strong pairs, and through atomics. */
static void find_observed(struct vl_execution *e)
{
    struct vl_relation *r = &e->observed;
    vl_clear(r, e->nevents);
    for (unsigned b = e->npieces; b < e->nevents; b++)
        for (unsigned p = 0; e->events[b].reads && p < e->npieces; p++)
            if (e->events[b].pieces >> p & 1 && vl_has(&e->strong, e->source[b][p], b))
                vl_add(r, e->source[b][p], b);
    for (unsigned z = e->npieces; z < e->nevents && !(e->without & VL_THROUGH_ATOMICS); z++)
        for (unsigned a = 0; a < e->nevents; a++)
            if (e->events[z].role == VL_ACCESS && vl_is_atomic(e->events[z].op) && vl_has(r, a, z))
                r->of[a] |= r->of[z];
}

static bool is_sc(const struct vl_event *event)
{
    return event->role == VL_FENCES && event->op->order == VG_SC;
}

/* 8.9.4: fence.sc, and release patterns with acquire patterns. */
static void add_synchronization(const struct vl_execution *e, struct vl_relation *r)
{
    for (unsigned x = e->npieces; x < e->nevents; x++)
        for (unsigned y = e->npieces; is_sc(&e->events[x]) && y < e->nevents; y++)
            if (!(e->without & VL_FENCE_SC) && is_sc(&e->events[y]) && vl_has(&e->strong, x, y) &&
                e->fence_rank[x] < e->fence_rank[y])
                vl_add(r, x, y);
    for (unsigned i = 0; i < e->nreleases; i++)
        for (unsigned j = 0; j < e->nacquires; j++) {
            const struct vl_pattern x = e->releases[i], y = e->acquires[j];
            if (e->events[x.first].thread == e->events[y.last].thread ||
                !vl_has(&e->observed, x.last, y.first) || !vl_has(&e->strong, x.first, y.last))
                continue;
            vl_add(r, x.first, y.last);
        }
}

/* 8.9.5: base causality, and observation followed by base causality. */
static void find_cause(struct vl_execution *e)
{
    struct vl_relation base = e->fixed;
    add_synchronization(e, &base);
    vl_close(&base);
    e->cause = base;
    for (unsigned a = 0; a < e->nevents && !(e->without & VL_OBSERVED_FIRST); a++)
        e->cause.of[a] |= vl_through(&e->observed, a, &base);
}

/* 8.7.1: a race, whatever causality says. */
static bool conflict(const struct vl_execution *e, unsigned a, unsigned b)
{
    return e->events[a].pieces & e->events[b].pieces && (writes(e, a) || writes(e, b)) &&
           !vl_has(&e->strong, a, b);
}

static bool either_way(const struct vl_relation *r, unsigned a, unsigned b)
{
    return vl_has(r, a, b) || vl_has(r, b, a);
}

/* Causality between accesses of one location, closed. Causality itself is not: it holds observation
 * before base causality, not between. In "st x 1; st x 2" and, in a thread that reads 2, "ld x;
 * ld.weak x" the weak load races with st x 1. No value tells, for st x 2 is between, and the
 * running model does not report all of these. */
static void find_chains(const struct vl_execution *e, struct vl_relation *chains)
{
    vl_clear(chains, e->nevents);
    for (unsigned l = 0; l < e->test->nlocations; l++)
        VL_EACH(a, e->at[l]) chains->of[a] = e->cause.of[a] & e->at[l];
    vl_close(chains);
}

static void find_races(struct vl_execution *e)
{
    struct vl_relation chains;
    find_chains(e, &chains);
    e->racy = e->mixed = e->sure = false;
    for (unsigned a = e->npieces; a < e->nevents; a++)
        for (unsigned b = a + 1; b < e->nevents; b++) {
            if (!conflict(e, a, b)) continue;
            const bool outside = vl_outside(e, a, b);
            if (either_way(&e->cause, a, b) && !outside) continue;
            e->racy = true;
            e->mixed |= !outside && e->events[a].pieces != e->events[b].pieces;
            e->sure |= outside || !either_way(&chains, a, b);
        }
}

/* 8.10.2: Fence-SC order does not contradict causality. */
static bool fence_sc_holds(const struct vl_execution *e)
{
    for (unsigned a = e->npieces; a < e->nevents; a++)
        for (unsigned b = e->npieces; is_sc(&e->events[a]) && b < e->nevents; b++)
            if (is_sc(&e->events[b]) && vl_has(&e->strong, a, b) && vl_has(&e->cause, a, b) &&
                e->fence_rank[a] > e->fence_rank[b])
                return false;
    return true;
}

/* 8.10.6, first part: a read does not read from a write that it precedes in causality. */
static bool no_read_from_later(const struct vl_execution *e)
{
    for (unsigned r = e->npieces; r < e->nevents; r++)
        for (unsigned p = 0; e->events[r].reads && p < e->npieces; p++)
            if (e->events[r].pieces >> p & 1 && vl_has(&e->cause, r, e->source[r][p]) &&
                !vl_outside(e, r, e->source[r][p]))
                return false;
    return true;
}

bool vl_execution_order(struct vl_execution *e)
{
    find_observed(e);
    find_cause(e);
    if (!vl_irreflexive(&e->cause)) return false;
    if (!(e->without & VL_FENCE_SC) && !fence_sc_holds(e)) return false;
    if (!(e->without & VL_CAUSALITY) && !no_read_from_later(e)) return false;
    find_races(e);
    return true;
}

/* 8.9.6 and 8.10.1: writes that are morally strong or related by causality; false: coherence
 * contradicts causality. */
static bool find_coherence(const struct vl_execution *e, uint64_t at, struct vl_relation *order)
{
    vl_clear(order, e->nevents);
    VL_EACH(a, at & e->writers)
    VL_EACH(b, at & e->writers)
    {
        if (a == b || !(e->events[a].pieces & e->events[b].pieces)) continue;
        const bool caused = vl_has(&e->cause, (unsigned)a, (unsigned)b);
        const bool first = e->rank[a] < e->rank[b];
        if (caused && !first && !(e->without & VL_COHERENCE)) return false;
        if (first && (caused || vl_has(&e->cause, (unsigned)b, (unsigned)a) ||
                      vl_has(&e->strong, (unsigned)a, (unsigned)b)))
            vl_add(order, (unsigned)a, (unsigned)b);
    }
    vl_close(order);
    return true;
}

/* Whether b, a read, reads a piece that the write w has from a write that precedes w. */
static bool reads_before(const struct vl_execution *e, unsigned b, unsigned w,
                         const struct vl_relation *order)
{
    const uint32_t both = e->events[b].pieces & e->events[w].pieces;
    VL_EACH(p, both)
    if (vl_has(order, e->source[b][p], w)) return true;
    return false;
}

static bool reads_from(const struct vl_execution *e, unsigned w, unsigned b)
{
    VL_EACH(p, e->events[b].pieces)
    if (e->source[b][p] == w) return true;
    return false;
}

/* 8.10.3: a read does not see a part of a morally strong write, and no morally strong write comes
 * between an atomic's read and its write. */
static bool atomicity_holds(const struct vl_execution *e, unsigned b, unsigned w,
                            const struct vl_relation *order)
{
    if (b == w || !vl_has(&e->strong, w, b) || !reads_before(e, b, w, order)) return true;
    if (!(e->without & VL_SINGLE_COPY) && reads_from(e, w, b)) return false;
    return e->without & VL_ATOMICITY || !writes(e, b) || !vl_has(order, w, b);
}

/* 8.9.7, without the pairs of which ld.global.nc is one and nothing is promised. */
static void find_communication(const struct vl_execution *e, uint64_t at,
                               const struct vl_relation *order, struct vl_relation *from_read,
                               struct vl_relation *all)
{
    *all = *order;
    vl_clear(from_read, e->nevents);
    VL_EACH(b, at)
    {
        if (!e->events[b].reads) continue;
        VL_EACH(w, at & e->writers)
        {
            if (w == b || vl_outside(e, (unsigned)w, (unsigned)b)) continue;
            if (reads_from(e, (unsigned)w, (unsigned)b)) vl_add(all, (unsigned)w, (unsigned)b);
            if (reads_before(e, (unsigned)b, (unsigned)w, order))
                vl_add(from_read, (unsigned)b, (unsigned)w);
        }
    }
    vl_unite(all, from_read);
}

/* 8.10.5: program order between overlapping accesses, with morally strong communication. */
static bool per_location_holds(const struct vl_execution *e, uint64_t at,
                               const struct vl_relation *communication)
{
    struct vl_relation r;
    vl_clear(&r, e->nevents);
    VL_EACH(a, at)
    VL_EACH(b, at)
    {
        if (!(e->events[a].pieces & e->events[b].pieces)) continue;
        if (e->events[a].op && e->events[b].op && (e->events[a].op->nc || e->events[b].op->nc))
            continue;
        if (vl_has(&e->program, (unsigned)a, (unsigned)b) ||
            (vl_has(&e->strong, (unsigned)a, (unsigned)b) &&
             vl_has(communication, (unsigned)a, (unsigned)b)))
            vl_add(&r, (unsigned)a, (unsigned)b);
    }
    vl_close(&r);
    return vl_irreflexive(&r);
}

bool vl_execution_location(const struct vl_execution *e, unsigned location)
{
    const uint64_t at = e->at[location];
    struct vl_relation order, from_read, communication;
    if (!find_coherence(e, at, &order) || !vl_irreflexive(&order)) return false;
    VL_EACH(b, at)
    VL_EACH(w, at & e->writers)
    if (e->events[b].reads && !atomicity_holds(e, (unsigned)b, (unsigned)w, &order)) return false;
    find_communication(e, at, &order, &from_read, &communication);
    if (!(e->without & VL_PER_LOCATION) && !per_location_holds(e, at, &communication)) return false;
    VL_EACH(b, at) /* 8.10.6, second part */
    VL_EACH(w, from_read.of[b])
    if (!(e->without & VL_CAUSALITY) && vl_has(&e->cause, (unsigned)w, (unsigned)b)) return false;
    return true;
}
