/* The events of a litmus test, program order, moral strength, and the patterns of 8.8. */
#include <string.h>

#include <vgpu/litmus/axioms.h>

/* Divides the bytes of each location where an access begins or ends. */
static int find_pieces(struct vl_execution *e)
{
    const struct vl_test *test = e->test;
    for (unsigned l = 0; l < test->nlocations; l++) {
        uint32_t edges = 1;
        for (unsigned t = 0; t < test->nthreads; t++)
            for (unsigned k = 0; k < test->threads[t].nops; k++) {
                const struct vl_op *op = &test->threads[t].ops[k];
                if (vl_accesses(op) && op->location == l)
                    edges |= 1u << op->first | 1u << (op->first + op->nbytes);
            }
        for (unsigned byte = 0; byte < VL_BYTES; byte++) {
            if (edges >> byte & 1) {
                if (e->npieces == VL_PIECES) return -1;
                e->pieces[e->npieces++] = (struct vl_piece){(uint8_t)l, (uint8_t)byte, 0};
            }
            e->pieces[e->npieces - 1].nbytes++;
        }
    }
    return 0;
}

static uint32_t pieces_of(const struct vl_execution *e, const struct vl_op *op)
{
    uint32_t pieces = 0;
    for (unsigned p = 0; p < e->npieces; p++)
        if (e->pieces[p].location == op->location && e->pieces[p].first >= op->first &&
            e->pieces[p].first < op->first + op->nbytes)
            pieces |= 1u << p;
    return pieces;
}

static void add_event(struct vl_execution *e, unsigned thread, unsigned index, enum vl_role role)
{
    const struct vl_op *op = &e->test->threads[thread].ops[index];
    struct vl_event *event = &e->events[e->nevents];
    *event = (struct vl_event){.role = role, .thread = thread, .index = index, .op = op};
    if (role == VL_ACCESS) {
        event->pieces = pieces_of(e, op);
        event->reads = vl_reads(op);
        event->may_write = vl_writes(op);
        e->at[op->location] |= UINT64_C(1) << e->nevents;
    }
    e->nevents++;
}

static int add_events(struct vl_execution *e)
{
    const struct vl_test *test = e->test;
    for (unsigned p = 0; p < e->npieces; p++) {
        e->events[p] = (struct vl_event){
            .role = VL_INITIAL, .thread = VL_THREADS, .pieces = 1u << p, .may_write = true};
        e->at[e->pieces[p].location] |= UINT64_C(1) << p;
    }
    e->nevents = e->npieces;
    for (unsigned t = 0; t < test->nthreads; t++)
        for (unsigned k = 0; k < test->threads[t].nops; k++) {
            const struct vl_op *op = &test->threads[t].ops[k];
            if (e->nevents + 2 > VL_EVENTS) return -1;
            if (op->kind == VL_BARRIER || op->kind == VL_ARRIVE) {
                add_event(e, t, k, VL_COMES);
                if (op->kind == VL_BARRIER) add_event(e, t, k, VL_LEAVES);
            } else {
                add_event(e, t, k, op->kind == VL_FENCE ? VL_FENCES : VL_ACCESS);
            }
        }
    return 0;
}

/* --- order that does not depend on the execution --- */

static unsigned ended_before(const struct vl_test *test, unsigned grid)
{
    unsigned all = test->grids[grid].before;
    for (unsigned round = 0; round < test->ngrids; round++)
        for (unsigned g = 0; g < test->ngrids; g++)
            if (all >> g & 1) all |= test->grids[g].before;
    return all;
}

static bool grid_before(const struct vl_test *test, unsigned a, unsigned b)
{
    return ended_before(test, test->threads[b].grid) >> test->threads[a].grid & 1;
}

bool vl_outside(const struct vl_execution *e, unsigned a, unsigned b)
{
    const struct vl_event *x = &e->events[a], *y = &e->events[b];
    if (!x->op || !y->op || (!x->op->nc && !y->op->nc)) return false;
    return !grid_before(e->test, x->thread, y->thread) &&
           !grid_before(e->test, y->thread, x->thread);
}

/* How often the thread has come to the barrier before. */
static unsigned visit(const struct vl_execution *e, const struct vl_event *event)
{
    const struct vl_op *ops = e->test->threads[event->thread].ops;
    unsigned n = 0;
    for (unsigned k = 0; k < event->index; k++)
        n += ops[k].kind >= VL_BARRIER && ops[k].number == event->op->number;
    return n;
}

static bool same_block(const struct vl_test *test, unsigned s, unsigned t)
{
    return test->threads[s].grid == test->threads[t].grid &&
           test->threads[s].block == test->threads[t].block;
}

/* 8.9.4: bar.sync and bar.arrive synchronize with the bar.sync of the same barrier. */
static bool meets(const struct vl_execution *e, const struct vl_event *x, const struct vl_event *y)
{
    return x->role == VL_COMES && y->role == VL_LEAVES && x->thread != y->thread &&
           same_block(e->test, x->thread, y->thread) && x->op->number == y->op->number &&
           visit(e, x) == visit(e, y);
}

static bool fixed_before(const struct vl_execution *e, unsigned a, unsigned b)
{
    const struct vl_event *x = &e->events[a], *y = &e->events[b];
    if (!x->op || !y->op) return false;
    if (!(e->without & VL_BARRIERS) && meets(e, x, y)) return true;
    return !(e->without & VL_STREAMS) && grid_before(e->test, x->thread, y->thread);
}

/* --- moral strength --- */

static bool is_strong(const struct vl_event *event)
{
    return event->role == VL_FENCES ||
           (event->role == VL_ACCESS && event->op->order != VG_WEAK && !event->op->nc);
}

/* 8.5: whether the event's scope includes the thread. */
static bool includes(const struct vl_execution *e, const struct vl_event *event, unsigned thread)
{
    const struct vl_test *test = e->test;
    const int mine = test->grids[test->threads[event->thread].grid].device,
              its = test->grids[test->threads[thread].grid].device;
    if (e->without & VL_SCOPES || event->op->scope == VG_SCOPE_SYS) return true;
    if (event->op->scope == VG_SCOPE_GPU) return mine == its;
    return same_block(test, event->thread, thread);
}

/* 8.7: related in program order, or both strong with scopes that include each other; by the same
 * proxy, which ld.global.nc does not use; the same bytes if both access memory. */
static bool morally_strong(const struct vl_execution *e, unsigned a, unsigned b)
{
    const struct vl_event *x = &e->events[a], *y = &e->events[b];
    if (!x->op || !y->op || x->role > VL_FENCES || y->role > VL_FENCES) return false;
    if (x->op->nc || y->op->nc) return false;
    if (x->role == VL_ACCESS && y->role == VL_ACCESS && x->pieces != y->pieces) return false;
    if (x->thread == y->thread) return true;
    return is_strong(x) && is_strong(y) && includes(e, x, y->thread) && includes(e, y, x->thread);
}

/* --- patterns --- */

static bool orders(const struct vl_event *event, enum vg_order order)
{
    const enum vg_order its = event->op->order;
    return its == order || its == VG_ACQ_REL || its == VG_SC;
}

/* 8.8: a release on M; a release on M, or a releasing fence, and later in program order a strong
 * write on M. */
static bool release_pattern(const struct vl_execution *e, unsigned first, unsigned write)
{
    const struct vl_event *f = &e->events[first], *w = &e->events[write];
    if (!is_strong(f) || !orders(f, VG_RELEASE) || !w->may_write || !is_strong(w)) return false;
    if (f->role == VL_ACCESS && f->op->kind == VL_LOAD) return false;
    if (first == write) return true;
    if (f->thread != w->thread || f->index >= w->index) return false;
    return f->role == VL_FENCES || (f->pieces == w->pieces && !(e->without & VL_LATER_WRITES));
}

/* 8.8: an acquire on M; a strong read on M, and later an acquire on M or an acquiring fence. The
 * read of a red is in no acquire pattern. */
static bool acquire_pattern(const struct vl_execution *e, unsigned read, unsigned last)
{
    const struct vl_event *r = &e->events[read], *l = &e->events[last];
    if (!is_strong(l) || !orders(l, VG_ACQUIRE) || !r->reads || !is_strong(r)) return false;
    if (l->role == VL_ACCESS && l->op->kind == VL_STORE) return false;
    if (r->op->reg == VL_REGISTERS && !(e->without & VL_RED)) return false;
    if (read == last) return true;
    if (r->thread != l->thread || r->index >= l->index) return false;
    return l->role == VL_FENCES || (l->pieces == r->pieces && !(e->without & VL_EARLIER_READS));
}

static int find_patterns(struct vl_execution *e)
{
    for (unsigned a = e->npieces; a < e->nevents; a++)
        for (unsigned b = e->npieces; b < e->nevents; b++) {
            if (e->nreleases == VL_PATTERNS || e->nacquires == VL_PATTERNS) return -1;
            const struct vl_pattern pattern = {(uint8_t)a, (uint8_t)b};
            if (release_pattern(e, a, b)) e->releases[e->nreleases++] = pattern;
            if (acquire_pattern(e, a, b)) e->acquires[e->nacquires++] = pattern;
        }
    return 0;
}

int vl_execution_init(struct vl_execution *e, const struct vl_test *test, unsigned without)
{
    memset(e, 0, sizeof *e);
    e->test = test;
    e->without = without;
    if (find_pieces(e) || add_events(e) || find_patterns(e)) return -1;
    vl_clear(&e->program, e->nevents);
    vl_clear(&e->strong, e->nevents);
    for (unsigned a = 0; a < e->nevents; a++)
        for (unsigned b = 0; b < e->nevents; b++) {
            const struct vl_event *x = &e->events[a], *y = &e->events[b];
            const bool initial = !x->op && y->op; /* initial writes come before all else */
            const bool within = x->op && y->op && x->thread == y->thread;
            if (initial || (within && a < b)) vl_add(&e->program, a, b);
            if (a != b && morally_strong(e, a, b)) vl_add(&e->strong, a, b);
        }
    e->fixed = e->program;
    for (unsigned a = 0; a < e->nevents; a++)
        for (unsigned b = 0; b < e->nevents; b++)
            if (fixed_before(e, a, b)) vl_add(&e->fixed, a, b);
    vl_close(&e->fixed);
    return 0;
}
