/* All candidate executions of a litmus test: every source of every read, every order of the
 * fence.sc, and, for each location by itself, every order of its writes; those that the axioms
 * allow give the outcomes. */
#include <stdlib.h>
#include <string.h>

#include <vgpu/litmus/axioms.h>

enum { FINALS = 64, SLOTS = 64 };

struct search {
    struct vl_execution e;
    struct vl_allowed *allowed;
    bool failed;
    unsigned nslots;
    struct {
        uint8_t event, piece;
    } slots[SLOTS]; /* what has a source */
    unsigned fences[VL_EVENTS], nfences;
    uint8_t finals[VL_LOCATIONS][FINALS][VL_BYTES]; /* how the location may end */
    unsigned nfinals[VL_LOCATIONS];
};

/* --- the set of outcomes --- */

static uint64_t hash(const struct vl_outcome *outcome)
{
    uint64_t h = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < sizeof *outcome; i += 8) {
        uint64_t word;
        memcpy(&word, (const uint8_t *)outcome + i, 8);
        h = (h ^ word) * UINT64_C(0x9e3779b97f4a7c15);
        h ^= h >> 29;
    }
    return h;
}

/* Slots hold one more than the index; as many again are free. */
static unsigned *slot_of(const struct vl_allowed *a, const struct vl_outcome *outcome)
{
    const unsigned nslots = 2 * a->room;
    unsigned slot = (unsigned)(hash(outcome) % nslots);
    while (a->slots[slot] &&
           memcmp(&a->outcomes[a->slots[slot] - 1].outcome, outcome, sizeof *outcome) != 0)
        slot = (slot + 1) % nslots;
    return &a->slots[slot];
}

static int grow(struct vl_allowed *a)
{
    struct vl_allowed more = *a;
    more.room = a->room ? 2 * a->room : 64;
    more.outcomes = realloc(a->outcomes, more.room * sizeof *more.outcomes);
    if (!more.outcomes) return -1;
    a->outcomes = more.outcomes;
    more.slots = calloc(2 * (size_t)more.room, sizeof *more.slots);
    if (!more.slots) return -1;
    free(a->slots);
    *a = more;
    for (unsigned k = 0; k < a->noutcomes; k++) *slot_of(a, &a->outcomes[k].outcome) = k + 1;
    return 0;
}

static void add_outcome(struct search *s, const struct vl_outcome *outcome)
{
    struct vl_allowed *a = s->allowed;
    if (a->noutcomes == a->room && grow(a)) {
        s->failed = true;
        return;
    }
    unsigned *slot = slot_of(a, outcome);
    if (!*slot) {
        a->outcomes[a->noutcomes++] = (struct vl_seen){.outcome = *outcome};
        *slot = a->noutcomes;
    }
    struct vl_seen *seen = &a->outcomes[*slot - 1];
    seen->racy |= s->e.racy;
    seen->clean |= !s->e.racy;
    seen->unsure |= !s->e.sure;
}

const struct vl_seen *vl_find(const struct vl_allowed *allowed, const struct vl_outcome *outcome)
{
    const unsigned found = allowed->room ? *slot_of(allowed, outcome) : 0;
    return found ? &allowed->outcomes[found - 1] : NULL;
}

void vl_allowed_free(struct vl_allowed *allowed)
{
    free(allowed->outcomes);
    free(allowed->slots);
    *allowed = (struct vl_allowed){0};
}

/* --- one execution --- */

static void add_registers(const struct vl_execution *e, struct vl_outcome *outcome)
{
    for (unsigned k = e->npieces; k < e->nevents; k++) {
        const struct vl_event *event = &e->events[k];
        if (!event->reads || event->op->reg == VL_REGISTERS) continue;
        VL_EACH(p, event->pieces)
        memset(&outcome->at[event->op->reg][e->pieces[p].first - event->op->first],
               e->value[e->source[k][p]][p], e->pieces[p].nbytes);
    }
}

/* Every end of each location with every one of the others. */
static void add_outcomes(struct search *s, unsigned location, struct vl_outcome *outcome)
{
    if (location == s->e.test->nlocations) {
        s->allowed->executions++;
        add_outcome(s, outcome);
        return;
    }
    for (unsigned k = 0; k < s->nfinals[location]; k++) {
        memcpy(outcome->at[VL_REGISTERS + location], s->finals[location][k], VL_BYTES);
        add_outcomes(s, location + 1, outcome);
    }
}

/* The last write of each piece is the one of the highest rank. */
static void add_final(struct search *s, unsigned location)
{
    const struct vl_execution *e = &s->e;
    uint8_t last[VL_BYTES] = {0};
    for (unsigned p = 0; p < e->npieces; p++) {
        if (e->pieces[p].location != location) continue;
        unsigned highest = p;
        VL_EACH(w, e->at[location] & e->writers)
        if (e->events[w].pieces >> p & 1 && e->rank[w] > e->rank[highest]) highest = (unsigned)w;
        memset(last + e->pieces[p].first, e->value[highest][p], e->pieces[p].nbytes);
    }
    for (unsigned k = 0; k < s->nfinals[location]; k++)
        if (!memcmp(s->finals[location][k], last, VL_BYTES)) return;
    if (s->nfinals[location] == FINALS)
        s->failed = true;
    else
        memcpy(s->finals[location][s->nfinals[location]++], last, VL_BYTES);
}

/* Ranks the writes that are left in every order that causality leaves. */
static void order_writes(struct search *s, unsigned location, uint64_t left, unsigned rank)
{
    struct vl_execution *e = &s->e;
    if (!left) {
        if (vl_execution_location(e, location)) add_final(s, location);
        return;
    }
    VL_EACH(w, left)
    {
        bool next = true;
        VL_EACH(v, left)
        if (e->events[v].pieces & e->events[w].pieces &&
            vl_has(&e->cause, (unsigned)v, (unsigned)w))
            next = false;
        if (!next && !(e->without & VL_COHERENCE)) continue;
        e->rank[w] = (uint8_t)rank;
        order_writes(s, location, left & ~(UINT64_C(1) << w), rank + 1);
    }
}

static void judge(struct search *s)
{
    struct vl_execution *e = &s->e;
    if (!vl_execution_order(e)) return;
    const uint64_t initial = (UINT64_C(1) << e->npieces) - 1;
    for (unsigned l = 0; l < e->test->nlocations; l++) {
        s->nfinals[l] = 0;
        order_writes(s, l, e->at[l] & e->writers & ~initial, 1);
        if (!s->nfinals[l]) return;
    }
    struct vl_outcome outcome = {{{0}}};
    add_registers(e, &outcome);
    s->allowed->racy |= e->racy;
    s->allowed->sure |= e->sure;
    s->allowed->mixed |= e->mixed;
    add_outcomes(s, 0, &outcome);
}

static void order_fences(struct search *s, unsigned done)
{
    if (done == s->nfences) judge(s);
    for (unsigned k = 0; k < s->nfences; k++) {
        if (s->e.fence_rank[s->fences[k]]) continue;
        s->e.fence_rank[s->fences[k]] = (uint8_t)(done + 1);
        order_fences(s, done + 1);
        s->e.fence_rank[s->fences[k]] = 0;
    }
}

/* Whether the axioms exclude the source in every execution: it is later than the read, or a later
 * write of the piece is before the read. */
static bool excluded(const struct vl_execution *e, unsigned write, unsigned read, unsigned piece)
{
    if (e->without || e->events[read].op->nc) return write == read;
    if (write == read || vl_has(&e->fixed, read, write)) return true;
    VL_EACH(w, e->fixed.of[write])
    if (e->events[w].may_write && e->events[w].op->kind != VL_SWAP &&
        e->events[w].pieces >> piece & 1 && vl_has(&e->fixed, (unsigned)w, read))
        return true;
    return false;
}

static void choose_sources(struct search *s, unsigned slot)
{
    struct vl_execution *e = &s->e;
    if (slot == s->nslots) {
        if (vl_execution_values(e)) order_fences(s, 0);
        return;
    }
    const unsigned read = s->slots[slot].event, piece = s->slots[slot].piece;
    for (unsigned w = 0; w < e->nevents && !s->failed; w++) {
        if (!e->events[w].may_write || !(e->events[w].pieces >> piece & 1) ||
            excluded(e, w, read, piece))
            continue;
        e->source[read][piece] = (uint8_t)w;
        choose_sources(s, slot + 1);
    }
}

int vl_enumerate(const struct vl_test *test, unsigned without, struct vl_allowed *allowed)
{
    struct search s = {.allowed = allowed};
    *allowed = (struct vl_allowed){0};
    if (vl_execution_init(&s.e, test, without)) return -1;
    for (unsigned k = s.e.npieces; k < s.e.nevents; k++) {
        const struct vl_event *event = &s.e.events[k];
        if (event->role == VL_FENCES && event->op->order == VG_SC) s.fences[s.nfences++] = k;
        if (!event->reads) continue;
        VL_EACH(p, event->pieces)
        {
            if (s.nslots == SLOTS) return -1;
            s.slots[s.nslots].event = (uint8_t)k;
            s.slots[s.nslots++].piece = (uint8_t)p;
        }
    }
    choose_sources(&s, 0);
    if (s.failed) vl_allowed_free(allowed);
    return s.failed ? -1 : 0;
}
