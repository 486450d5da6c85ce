/* All candidate executions of a litmus test: every source of every read, every order of each
 * location's writes, every order of the fence.sc; those that the axioms allow give the outcomes. */
#include <stdlib.h>

#include <vgpu/litmus/axioms.h>

struct search {
    struct vl_execution e;
    struct vl_allowed *allowed;
    unsigned room;
    bool failed;
    unsigned fences[VL_EVENTS], nfences;
    unsigned writes[VL_LOCATIONS][VL_EVENTS], nwrites[VL_LOCATIONS]; /* without the initial one */
};

static void add_outcome(struct search *s, vl_outcome outcome)
{
    struct vl_allowed *a = s->allowed;
    for (unsigned k = 0; k < a->noutcomes; k++)
        if (a->outcomes[k] == outcome) return;
    if (a->noutcomes == s->room) {
        const unsigned room = s->room ? 2 * s->room : 64;
        vl_outcome *more = realloc(a->outcomes, room * sizeof *more);
        if (!more) {
            s->failed = true;
            return;
        }
        a->outcomes = more;
        s->room = room;
    }
    a->outcomes[a->noutcomes++] = outcome;
}

static unsigned value_of(const struct vl_execution *e, unsigned write)
{
    return e->events[write].op ? e->events[write].op->value : 0;
}

/* The candidate is complete. The last write of each location is the one of the highest rank. */
static void judge(struct search *s)
{
    const struct vl_execution *e = &s->e;
    bool racy = false;
    if (!vl_execution_allowed(e, &racy)) return;
    vl_outcome outcome = 0;
    for (unsigned k = 0; k < e->nevents; k++)
        if (e->events[k].reads)
            outcome = vl_put(outcome, e->events[k].op->reg, value_of(e, e->reads_from[k]));
    for (unsigned l = 0; l < e->test->nlocations; l++) {
        unsigned last = l;
        for (unsigned k = 0; k < s->nwrites[l]; k++)
            if (e->rank[s->writes[l][k]] > e->rank[last]) last = s->writes[l][k];
        outcome = vl_put(outcome, VL_REGISTERS + l, value_of(e, last));
    }
    s->allowed->racy |= racy;
    s->allowed->executions++;
    add_outcome(s, outcome);
}

/* Gives ranks 1, 2, ... to the n events in every order, then goes on. */
static void permute(struct search *s, unsigned *events, unsigned n, unsigned done, uint8_t *rank,
                    void (*next)(struct search *, unsigned), unsigned argument)
{
    if (done == n) {
        next(s, argument);
        return;
    }
    for (unsigned k = 0; k < n; k++) {
        if (rank[events[k]]) continue;
        rank[events[k]] = (uint8_t)(done + 1);
        permute(s, events, n, done + 1, rank, next, argument);
        rank[events[k]] = 0;
    }
}

static void order_writes(struct search *s, unsigned location);

static void order_fences(struct search *s, unsigned unused)
{
    (void)unused;
    judge(s);
}

static void order_writes(struct search *s, unsigned location)
{
    if (location == s->e.test->nlocations)
        permute(s, s->fences, s->nfences, 0, s->e.fence_rank, order_fences, 0);
    else
        permute(s, s->writes[location], s->nwrites[location], 0, s->e.rank, order_writes,
                location + 1);
}

/* Gives the reads from this event on their sources. */
static void choose_sources(struct search *s, unsigned event)
{
    struct vl_execution *e = &s->e;
    while (event < e->nevents && !e->events[event].reads) event++;
    if (event == e->nevents) {
        order_writes(s, 0);
        return;
    }
    for (unsigned w = 0; w < e->nevents && !s->failed; w++) {
        if (!e->events[w].writes || w == event ||
            e->events[w].location != e->events[event].location)
            continue;
        e->reads_from[event] = (uint8_t)w;
        choose_sources(s, event + 1);
    }
}

static int compare(const void *a, const void *b)
{
    const vl_outcome x = *(const vl_outcome *)a, y = *(const vl_outcome *)b;
    return x < y ? -1 : x > y;
}

int vl_enumerate(const struct vl_test *test, struct vl_allowed *allowed)
{
    struct search s = {.allowed = allowed};
    *allowed = (struct vl_allowed){0};
    if (vl_execution_init(&s.e, test)) return -1;
    for (unsigned k = test->nlocations; k < s.e.nevents; k++) {
        const struct vl_event *event = &s.e.events[k];
        if (event->kind == VL_FENCE && event->op->order == VG_SC) s.fences[s.nfences++] = k;
        if (event->writes) s.writes[event->location][s.nwrites[event->location]++] = k;
    }
    choose_sources(&s, 0);
    if (s.failed) {
        vl_allowed_free(allowed);
        return -1;
    }
    if (allowed->noutcomes)
        qsort(allowed->outcomes, allowed->noutcomes, sizeof *allowed->outcomes, compare);
    return 0;
}

void vl_allowed_free(struct vl_allowed *allowed)
{
    free(allowed->outcomes);
    *allowed = (struct vl_allowed){0};
}

bool vl_is_allowed(const struct vl_allowed *allowed, vl_outcome outcome)
{
    return allowed->noutcomes && bsearch(&outcome, allowed->outcomes, allowed->noutcomes,
                                         sizeof outcome, compare) != NULL;
}
