/* The axioms of PTX ISA 9.0, 8.10 ("Axioms"), over the relations of 8.9, each named as there.
 *
 * All accesses have one size, so overlap is equality of locations, and there is one proxy. Stored
 * values are constants: no execution needs the axiom No-Thin-Air to exclude it. */
#include <vgpu/litmus/axioms.h>

static bool is_strong(const struct vl_event *event)
{
    return event->op && (event->kind == VL_FENCE || event->op->order != VG_WEAK);
}

/* Whether the event's scope includes the thread. */
static bool includes(const struct vl_test *test, const struct vl_event *event, unsigned thread)
{
    const struct vl_thread *mine = &test->threads[event->thread], *other = &test->threads[thread];
    switch (event->op->scope) {
    case VG_SCOPE_CTA:
    case VG_SCOPE_CLUSTER:
        return mine->device == other->device && mine->block == other->block;
    case VG_SCOPE_GPU:
        return mine->device == other->device;
    default:
        return true;
    }
}

/* 8.6.1: related in program order, or both strong with scopes that include each other; the same
 * location if both access memory. */
static bool morally_strong(const struct vl_execution *e, unsigned a, unsigned b)
{
    const struct vl_event *x = &e->events[a], *y = &e->events[b];
    if (!x->op || !y->op || x->kind == VL_BARRIER || y->kind == VL_BARRIER) return false;
    if (x->kind != VL_FENCE && y->kind != VL_FENCE && x->location != y->location) return false;
    if (x->thread == y->thread) return true;
    return is_strong(x) && is_strong(y) && includes(e->test, x, y->thread) &&
           includes(e->test, y, x->thread);
}

static void add_event(struct vl_execution *e, unsigned thread, unsigned index)
{
    const struct vl_op *op = &e->test->threads[thread].ops[index];
    e->events[e->nevents++] = (struct vl_event){
        .kind = op->kind,
        .thread = thread,
        .index = index,
        .op = op,
        .location = op->kind == VL_FENCE || op->kind == VL_BARRIER ? VL_LOCATIONS : op->location,
        .reads = op->kind == VL_LOAD || op->kind == VL_EXCHANGE,
        .writes = op->kind == VL_STORE || op->kind == VL_EXCHANGE,
    };
}

int vl_execution_init(struct vl_execution *e, const struct vl_test *test)
{
    *e = (struct vl_execution){.test = test};
    for (unsigned l = 0; l < test->nlocations; l++)
        e->events[e->nevents++] = (struct vl_event){
            .kind = VL_STORE, .thread = VL_THREADS, .location = l, .writes = true};
    for (unsigned t = 0; t < test->nthreads; t++)
        for (unsigned k = 0; k < test->threads[t].nops; k++) {
            if (e->nevents == VL_EVENTS) return -1;
            add_event(e, t, k);
        }
    for (unsigned a = 0; a < e->nevents; a++)
        for (unsigned b = 0; b < e->nevents; b++) {
            const struct vl_event *x = &e->events[a], *y = &e->events[b];
            const bool initial = !x->op && y->op; /* initial writes come before all else */
            if (initial || (x->op && x->thread == y->thread && x->index < y->index))
                vl_add(&e->program, a, b);
            if (a != b && morally_strong(e, a, b)) vl_add(&e->strong, a, b);
        }
    return 0;
}

static bool releases(const struct vl_event *event)
{
    if (!event->op || event->kind == VL_BARRIER) return false;
    if (event->kind == VL_FENCE) return true;
    return event->writes && (event->op->order == VG_RELEASE || event->op->order == VG_ACQ_REL);
}

static bool acquires(const struct vl_event *event)
{
    if (!event->op || event->kind == VL_BARRIER) return false;
    if (event->kind == VL_FENCE) return true;
    return event->reads && (event->op->order == VG_ACQUIRE || event->op->order == VG_ACQ_REL);
}

/* 8.8: a release on M; a release on M, or a releasing fence, and later in program order a strong
 * write on M. */
static bool release_pattern(const struct vl_execution *e, unsigned first, unsigned write)
{
    const struct vl_event *f = &e->events[first], *w = &e->events[write];
    if (!releases(f) || !w->writes || !is_strong(w)) return false;
    if (first == write) return f->kind != VL_FENCE;
    if (f->thread != w->thread || f->index >= w->index) return false;
    return f->kind == VL_FENCE || f->location == w->location;
}

static bool acquire_pattern(const struct vl_execution *e, unsigned read, unsigned last)
{
    const struct vl_event *r = &e->events[read], *l = &e->events[last];
    if (!acquires(l) || !r->reads || !is_strong(r)) return false;
    if (read == last) return l->kind != VL_FENCE;
    if (l->thread != r->thread || r->index >= l->index) return false;
    return l->kind == VL_FENCE || l->location == r->location;
}

/* 8.9.2: a write before a read through reads-from of morally strong pairs, and through atomics. */
static struct vl_relation observation(const struct vl_execution *e)
{
    struct vl_relation r = {{0}};
    for (unsigned b = 0; b < e->nevents; b++)
        if (e->events[b].reads && vl_has(&e->strong, e->reads_from[b], b))
            vl_add(&r, e->reads_from[b], b);
    for (unsigned z = 0; z < e->nevents; z++)
        for (unsigned a = 0; a < e->nevents; a++)
            if (e->events[z].kind == VL_EXCHANGE && vl_has(&r, a, z)) r.of[a] |= r.of[z];
    return r;
}

static bool both_sc(const struct vl_event *x, const struct vl_event *y)
{
    return x->kind == VL_FENCE && y->kind == VL_FENCE && x->op->order == VG_SC &&
           y->op->order == VG_SC;
}

/* Barriers of one block meet in the order in which each thread comes to them. */
static unsigned barrier_number(const struct vl_execution *e, const struct vl_event *event)
{
    unsigned n = 0;
    for (unsigned k = 0; k < event->index; k++)
        n += e->test->threads[event->thread].ops[k].kind == VL_BARRIER;
    return n;
}

static bool meet(const struct vl_execution *e, const struct vl_event *x, const struct vl_event *y)
{
    if (x->kind != VL_BARRIER || y->kind != VL_BARRIER || x->thread == y->thread) return false;
    const struct vl_thread *s = &e->test->threads[x->thread], *t = &e->test->threads[y->thread];
    return s->device == t->device && s->block == t->block &&
           barrier_number(e, x) == barrier_number(e, y);
}

/* 8.9.4: which operation synchronizes with which. A barrier is two events in one: what is before it
 * in one thread is before what is behind it in the other, so the relation goes from each event
 * before x to each event behind y. */
static void add_barriers(const struct vl_execution *e, struct vl_relation *r)
{
    for (unsigned x = 0; x < e->nevents; x++)
        for (unsigned y = 0; y < e->nevents; y++) {
            if (!meet(e, &e->events[x], &e->events[y])) continue;
            for (unsigned a = 0; a < e->nevents; a++)
                if (vl_has(&e->program, a, x) && e->events[a].op) r->of[a] |= e->program.of[y];
        }
}

static struct vl_relation synchronization(const struct vl_execution *e,
                                          const struct vl_relation *observed)
{
    struct vl_relation r = {{0}};
    for (unsigned x = 0; x < e->nevents; x++)
        for (unsigned y = 0; y < e->nevents; y++) {
            if (!vl_has(&e->strong, x, y)) continue;
            if (both_sc(&e->events[x], &e->events[y]) && e->fence_rank[x] < e->fence_rank[y])
                vl_add(&r, x, y);
            if (e->events[x].thread == e->events[y].thread) continue;
            for (unsigned w = 0; w < e->nevents; w++) {
                if (!release_pattern(e, x, w)) continue;
                for (uint32_t left = observed->of[w]; left; left &= left - 1)
                    if (acquire_pattern(e, (unsigned)__builtin_ctz(left), y)) vl_add(&r, x, y);
            }
        }
    add_barriers(e, &r);
    return r;
}

/* 8.9.5: base causality, and observation followed by base causality. */
static struct vl_relation causality(const struct vl_execution *e)
{
    const struct vl_relation observed = observation(e);
    struct vl_relation base = synchronization(e, &observed);
    vl_unite(&base, &e->program);
    vl_close(&base);
    const struct vl_relation through = vl_compose(&observed, &base);
    vl_unite(&base, &through);
    return base;
}

/* 8.9.6: writes of a location that are morally strong or related by causality; false: the axiom
 * Coherence fails. */
static bool coherence(const struct vl_execution *e, const struct vl_relation *cause,
                      struct vl_relation *order)
{
    *order = (struct vl_relation){{0}};
    for (unsigned a = 0; a < e->nevents; a++)
        for (unsigned b = 0; b < e->nevents; b++) {
            const struct vl_event *x = &e->events[a], *y = &e->events[b];
            if (a == b || !x->writes || !y->writes || x->location != y->location) continue;
            if (vl_has(cause, a, b) && e->rank[a] > e->rank[b]) return false;
            const bool related =
                vl_has(&e->strong, a, b) || vl_has(cause, a, b) || vl_has(cause, b, a);
            if (related && e->rank[a] < e->rank[b]) vl_add(order, a, b);
        }
    vl_close(order);
    return true;
}

static struct vl_relation reads_from(const struct vl_execution *e)
{
    struct vl_relation r = {{0}};
    for (unsigned b = 0; b < e->nevents; b++)
        if (e->events[b].reads) vl_add(&r, e->reads_from[b], b);
    return r;
}

/* 8.9.7: a read is before the writes that follow, in coherence order, the one that it reads. */
static struct vl_relation from_read(const struct vl_execution *e, const struct vl_relation *order)
{
    struct vl_relation r = {{0}};
    for (unsigned a = 0; a < e->nevents; a++)
        if (e->events[a].reads) r.of[a] = order->of[e->reads_from[a]] & ~(UINT32_C(1) << a);
    return r;
}

/* 8.10.2 */
static bool fence_sc_holds(const struct vl_execution *e, const struct vl_relation *cause)
{
    for (unsigned a = 0; a < e->nevents; a++)
        for (unsigned b = 0; b < e->nevents; b++)
            if (both_sc(&e->events[a], &e->events[b]) && vl_has(&e->strong, a, b) &&
                vl_has(cause, a, b) && e->fence_rank[a] > e->fence_rank[b])
                return false;
    return true;
}

/* 8.10.3: no morally strong write comes between an atomic's read and its write. */
static bool atomicity_holds(const struct vl_execution *e, const struct vl_relation *order)
{
    for (unsigned a = 0; a < e->nevents; a++) {
        if (e->events[a].kind != VL_EXCHANGE) continue;
        for (unsigned w = 0; w < e->nevents; w++)
            if (w != a && e->events[w].writes && vl_has(&e->strong, w, a) &&
                vl_has(order, e->reads_from[a], w) && vl_has(order, w, a))
                return false;
    }
    return true;
}

/* 8.10.5: sequential consistency per location. */
static bool per_location_holds(const struct vl_execution *e,
                               const struct vl_relation *communication)
{
    struct vl_relation r = {{0}};
    for (unsigned a = 0; a < e->nevents; a++)
        for (unsigned b = 0; b < e->nevents; b++) {
            if (e->events[a].location != e->events[b].location ||
                e->events[a].location == VL_LOCATIONS)
                continue;
            const bool strong = vl_has(&e->strong, a, b) && vl_has(communication, a, b);
            if (vl_has(&e->program, a, b) || strong) vl_add(&r, a, b);
        }
    return vl_acyclic(r);
}

static bool has_race(const struct vl_execution *e, const struct vl_relation *cause)
{
    for (unsigned a = 0; a < e->nevents; a++)
        for (unsigned b = a + 1; b < e->nevents; b++) {
            const struct vl_event *x = &e->events[a], *y = &e->events[b];
            const bool conflict = x->location == y->location && x->location != VL_LOCATIONS &&
                                  (x->writes || y->writes);
            if (conflict && !vl_has(&e->strong, a, b) && !vl_has(cause, a, b) &&
                !vl_has(cause, b, a))
                return true;
        }
    return false;
}

bool vl_execution_allowed(const struct vl_execution *e, bool *racy)
{
    const struct vl_relation cause = causality(e);
    struct vl_relation order;
    if (!vl_irreflexive(&cause) || !coherence(e, &cause, &order)) return false;
    if (!fence_sc_holds(e, &cause) || !atomicity_holds(e, &order)) return false;
    const struct vl_relation rf = reads_from(e), fr = from_read(e, &order);
    struct vl_relation communication = order;
    vl_unite(&communication, &rf);
    vl_unite(&communication, &fr);
    if (!per_location_holds(e, &communication)) return false;
    struct vl_relation reading = rf; /* 8.10.6: causality */
    vl_unite(&reading, &fr);
    const struct vl_relation contradiction = vl_compose(&reading, &cause);
    if (!vl_irreflexive(&contradiction)) return false;
    *racy = has_race(e, &cause);
    return true;
}
