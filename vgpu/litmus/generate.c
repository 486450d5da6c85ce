/* Generated litmus tests, by family. Each write of a location has a bit of its own, so that what a
 * read returns tells which writes it is made of. */
#include <stdio.h>
#include <string.h>

#include <vgpu/litmus/litmus.h>
#include <vgpu/random.h>

const char *const vl_families[VL_FAMILIES] = {"plain",    "sizes",    "atomics", "meetings",
                                              "streamed", "readonly", "hosted",  "messages",
                                              "fenced",   "mixed",    "reached"};

struct maker {
    struct vl_test *test;
    enum vl_family family;
    uint64_t state;
    unsigned reads, writes, fences; /* how many more */
    unsigned written[VL_LOCATIONS], number, warps;
    bool far;                         /* every scope is .sys */
    uint8_t menu[VL_LOCATIONS][2][2]; /* two ways to access each location: first, nbytes */
};

static uint32_t roll(struct maker *m, uint32_t n)
{
    return (uint32_t)(vg_random(&m->state) >> 32) % n;
}

static bool either(const struct maker *m, enum vl_family family)
{
    return m->family == family || m->family == VL_MIXED;
}

static void add(struct vl_thread *thread, struct vl_op op)
{
    if (thread->nops < VL_OPS) thread->ops[thread->nops++] = op;
}

static enum vg_scope scope_of(struct maker *m, const struct vl_thread *thread)
{
    static const enum vg_scope scopes[] = {VG_SCOPE_CTA, VG_SCOPE_GPU, VG_SCOPE_SYS};
    if (m->far || m->test->grids[thread->grid].device == VL_HOST) return VG_SCOPE_SYS;
    return scopes[m->family == VL_HOSTED && roll(m, 2) ? 2 : roll(m, 3)];
}

static bool fits(const struct maker *m, enum vl_kind kind)
{
    const struct vl_op op = {.kind = kind};
    return (!vl_reads(&op) || m->reads) && (!vl_writes(&op) || m->writes);
}

static enum vl_kind kind_of(struct maker *m, const struct vl_thread *thread)
{
    static const enum vl_kind often[] = {VL_LOAD,  VL_LOAD,     VL_LOAD,  VL_STORE, VL_STORE,
                                         VL_STORE, VL_EXCHANGE, VL_FENCE, VL_FENCE},
                              atomics[] = {VL_ADD, VL_ADD, VL_EXCHANGE, VL_SWAP, VL_SWAP};
    for (;;) {
        enum vl_kind kind = often[roll(m, sizeof often / sizeof *often)];
        if (either(m, VL_ATOMICS) && roll(m, 2)) kind = atomics[roll(m, 5)];
        if (!m->reads && !m->writes) return VL_FENCE;
        if ((kind == VL_FENCE && !thread->nops) || !fits(m, kind)) continue;
        return kind;
    }
}

static enum vg_order order_of(struct maker *m, const struct vl_op *op)
{
    static const enum vg_order of_fence[] = {VG_ACQUIRE, VG_RELEASE, VG_ACQ_REL, VG_ACQ_REL},
                               of_atomic[] = {VG_RELAXED, VG_RELAXED, VG_ACQUIRE,
                                              VG_RELEASE, VG_ACQ_REL, VG_ACQ_REL};
    const unsigned weight = roll(m, 6);
    if (op->kind == VL_FENCE) return of_fence[weight % 4];
    if (op->reg == VL_REGISTERS) return weight < 3 ? VG_RELAXED : VG_RELEASE;
    if (vl_is_atomic(op)) return of_atomic[weight];
    if (weight == 0) return VG_WEAK;
    if (weight < 4) return VG_RELAXED;
    return op->kind == VL_LOAD ? VG_ACQUIRE : VG_RELEASE;
}

static struct vl_op fence_of(struct maker *m, const struct vl_thread *thread)
{
    struct vl_op op = {.kind = VL_FENCE, .scope = scope_of(m, thread)};
    op.order = order_of(m, &op);
    if (m->fences && roll(m, 2)) {
        m->fences--;
        op.order = VG_SC;
    }
    /* The model does not see a host's place in Fence-SC order: README. */
    if (m->family == VL_REACHED && m->test->grids[thread->grid].device == VL_HOST)
        op.order = VG_ACQ_REL;
    return op;
}

static struct vl_op access_of(struct maker *m, const struct vl_thread *thread, enum vl_kind kind)
{
    struct vl_op op = {.kind = kind, .scope = scope_of(m, thread)};
    const bool host = m->test->grids[thread->grid].device == VL_HOST;
    op.location = (uint8_t)roll(m, m->test->nlocations);
    const uint8_t *way = m->menu[op.location][roll(m, 2)];
    op.first = way[0];
    op.nbytes = way[1];
    if (vl_is_atomic(&op) && op.nbytes == 1) op.kind = VL_LOAD; /* atoms have 2 bytes at least */
    if (op.kind == VL_SWAP) {
        const unsigned n = m->written[op.location];
        op.expected = (uint8_t)(n && roll(m, 2) ? 1u << roll(m, n) : 0);
    }
    if (op.kind != VL_LOAD) {
        op.value = (uint8_t)(1u << m->written[op.location]++);
        m->writes--;
    }
    const bool red = op.kind == VL_ADD && roll(m, 2);
    if (red) op.reg = VL_REGISTERS;
    if (vl_reads(&op)) m->reads--;
    if (vl_reads(&op) && !red) op.reg = (uint8_t)m->test->nregisters++;
    op.order = order_of(m, &op);
    if (host && op.order == VG_WEAK) op.order = VG_RELAXED;
    op.nc = m->family == VL_READONLY && op.kind == VL_LOAD && roll(m, 3) == 0;
    if (op.nc) op.order = VG_WEAK;
    return op;
}

/* A vector access is several scalar ones. */
static void add_random(struct maker *m, struct vl_thread *thread)
{
    const enum vl_kind kind = kind_of(m, thread);
    if (kind == VL_FENCE) {
        add(thread, fence_of(m, thread));
        return;
    }
    struct vl_op op = access_of(m, thread, kind);
    add(thread, op);
    const bool plain = op.kind == VL_LOAD || op.kind == VL_STORE;
    if (!either(m, VL_SIZES) || !plain || op.first + 2 * op.nbytes > VL_BYTES || roll(m, 4) ||
        !fits(m, op.kind) || op.order > VG_RELAXED || thread->nops == VL_OPS)
        return;
    op.first = (uint8_t)(op.first + op.nbytes);
    if (op.kind == VL_LOAD) {
        m->reads--;
        op.reg = (uint8_t)m->test->nregisters++;
    } else {
        m->writes--;
        op.value = (uint8_t)(1u << m->written[op.location]++);
    }
    add(thread, op);
}

/* --- barriers --- */

static unsigned block_of(const struct vl_test *test, unsigned t, bool warp)
{
    const struct vl_thread *mine = &test->threads[t];
    unsigned all = 0;
    for (unsigned u = 0; u < test->nthreads; u++) {
        const struct vl_thread *other = &test->threads[u];
        if (mine->grid == other->grid && mine->block == other->block &&
            (!warp || mine->place / VG_LANES == other->place / VG_LANES))
            all |= 1u << u;
    }
    return all;
}

/* A barrier for all threads of a block, or for some with a number of its own, where some may only
 * arrive; or for lanes of a warp. */
static void add_meeting(struct maker *m)
{
    struct vl_test *test = m->test;
    const unsigned t = roll(m, test->nthreads), kind = roll(m, 4);
    unsigned who = block_of(test, t, kind == 3), n = 0, number = 0;
    if (test->grids[test->threads[t].grid].device == VL_HOST) return;
    if (kind == 1 || kind == 2 || kind == 3) {
        for (unsigned u = 0; u < test->nthreads; u++)
            if (u != t && __builtin_popcount(who) > 2 && roll(m, 2)) who &= ~(1u << u);
        number = kind == 3 ? VL_WARP + m->warps++ : ++m->number;
    }
    if (__builtin_popcount(who) < 2) return;
    for (unsigned u = 0; u < test->nthreads; u++)
        if (who >> u & 1 && test->threads[u].nops == VL_OPS) return;
    for (unsigned u = 0; u < test->nthreads; u++) {
        if (!(who >> u & 1)) continue;
        const bool arrive = kind == 2 && u != t && (n++ == 0 || roll(m, 2));
        add(&test->threads[u],
            (struct vl_op){.kind = arrive ? VL_ARRIVE : VL_BARRIER, .number = (uint8_t)number});
    }
}

/* --- where threads run --- */

/* The first thread on one device, the last one mostly on another; between them perhaps a host. */
static void place_apart(struct maker *m)
{
    struct vl_test *test = m->test;
    const unsigned last = test->nthreads - 1;
    test->ngrids = 2;
    test->grids[1].device = 1;
    for (unsigned t = 0; t <= last; t++) {
        test->threads[t] = (struct vl_thread){.grid = t == 0 ? 0 : roll(m, 4) != 0, .place = t};
        test->threads[t].block = roll(m, 2);
    }
    if (last < 2 || roll(m, 2)) return;
    test->grids[test->ngrids].device = VL_HOST;
    test->threads[1 + roll(m, last - 1)].grid = test->ngrids++;
}

static void place_threads(struct maker *m)
{
    struct vl_test *test = m->test;
    const unsigned devices = 1 + roll(m, 3), blocks = 1 + roll(m, 2),
                   apart = m->family == VL_MEETINGS && roll(m, 3) == 0 ? 0 : roll(m, 3);
    const bool streams = either(m, VL_STREAMED) || (m->family == VL_READONLY && roll(m, 2));
    test->ngrids = streams ? 2 + roll(m, 2) : devices;
    if (!streams && roll(m, 2)) test->ngrids = 1;
    for (unsigned g = 0; g < test->ngrids; g++) {
        test->grids[g].device = (int)(streams ? roll(m, devices) : g);
        for (unsigned h = 0; h < g && streams; h++)
            if (roll(m, 2)) test->grids[g].before |= 1u << h;
    }
    for (unsigned t = 0; t < test->nthreads; t++) {
        struct vl_thread *thread = &test->threads[t];
        thread->grid = roll(m, test->ngrids);
        thread->block = roll(m, blocks);
        thread->place = apart == 0 ? t : apart == 1 ? t * 20 : t * 32 / (t & 1 ? 2 : 1);
        if (thread->place > 69) thread->place = 69;
    }
    if (m->family != VL_HOSTED) return;
    test->grids[test->ngrids++].device = VL_HOST;
    for (unsigned t = 0; t < test->nthreads; t++)
        if (t == 0 || roll(m, 4) == 0) test->threads[t].grid = test->ngrids - 1;
}

/* What overlaps in part: 8 bytes and a half of them, a word and a byte of it, ... */
static void choose_sizes(struct maker *m)
{
    static const uint8_t menus[][2][2] = {{{0, 4}, {0, 4}},  {{0, 8}, {4, 4}}, {{0, 4}, {1, 1}},
                                          {{0, 4}, {2, 2}},  {{0, 2}, {2, 2}}, {{8, 8}, {0, 16}},
                                          {{0, 16}, {4, 4}}, {{0, 8}, {0, 4}}, {{3, 1}, {2, 1}},
                                          {{0, 8}, {0, 8}},  {{4, 2}, {4, 2}}};
    const bool sizes = either(m, VL_SIZES) || (m->family == VL_HOSTED && roll(m, 2));
    for (unsigned l = 0; l < VL_LOCATIONS; l++)
        memcpy(m->menu[l], menus[sizes ? roll(m, sizeof menus / sizeof *menus) : 0],
               sizeof m->menu[l]);
}

/* --- messages --- */

enum { DATA, FLAG, SECOND };

static void add_access(struct maker *m, unsigned t, enum vl_kind kind, unsigned location,
                       bool plain)
{
    struct vl_thread *thread = &m->test->threads[t];
    struct vl_op op = {
        .kind = kind, .location = (uint8_t)location, .nbytes = 4, .scope = scope_of(m, thread)};
    if (vl_writes(&op)) op.value = (uint8_t)(1u << m->written[location]++);
    if (kind == VL_SWAP) op.expected = (uint8_t)(roll(m, 2) ? 0 : 1);
    if (kind == VL_ADD && roll(m, 2)) op.reg = VL_REGISTERS;
    if (vl_reads(&op) && op.reg < VL_REGISTERS) op.reg = (uint8_t)m->test->nregisters++;
    do op.order = order_of(m, &op);
    while (op.order == VG_WEAK);
    if (plain) op.order = VG_WEAK;
    add(thread, op);
}

static void add_fence(struct maker *m, unsigned t)
{
    if (roll(m, 3) == 0) add(&m->test->threads[t], fence_of(m, &m->test->threads[t]));
}

/* The first thread writes data and a flag, the last one reads the flag and reads or writes the
 * data; one between them may hand the flag on, by a read-modify-write or by a second flag. */
static void make_message(struct maker *m)
{
    static const enum vl_kind set[] = {VL_STORE, VL_STORE, VL_ADD, VL_EXCHANGE, VL_SWAP},
                              get[] = {VL_LOAD, VL_LOAD, VL_ADD, VL_EXCHANGE, VL_SWAP};
    const unsigned last = m->test->nthreads - 1, how = roll(m, 2);
    m->far = m->family == VL_REACHED || roll(m, 4) != 0;
    m->test->nlocations = last > 1 && how ? 3 : 2;
    add_access(m, 0, VL_STORE, DATA, roll(m, 4) != 0);
    add_fence(m, 0);
    add_access(m, 0, set[roll(m, 5)], FLAG, false);
    if (roll(m, 4) == 0) add_access(m, 0, VL_STORE, FLAG, false);
    for (unsigned t = 1; t < last; t++) {
        if (!how) {
            add_access(m, t, get[2 + roll(m, 3)], FLAG, false);
            continue;
        }
        add_access(m, t, get[roll(m, 5)], t == 1 ? FLAG : SECOND, false);
        add_fence(m, t);
        if (t == 1) add_access(m, t, set[roll(m, 5)], SECOND, false);
    }
    add_access(m, last, get[roll(m, 5)], m->test->nlocations - 1, false);
    add_fence(m, last);
    if (roll(m, 4) == 0) add_access(m, last, VL_LOAD, FLAG, false);
    add_access(m, last, roll(m, 4) ? VL_LOAD : VL_STORE, DATA, roll(m, 4) != 0);
}

/* Threads that each store or load, fence, and load or store elsewhere. */
static void make_fenced(struct maker *m)
{
    const unsigned nlocations = m->test->nlocations = 2 + roll(m, 2);
    m->far = roll(m, 3) != 0;
    m->fences = 3;
    for (unsigned t = 0; t < m->test->nthreads; t++) {
        const unsigned n = m->test->nthreads == 2 ? 2 + roll(m, 2) : 2;
        unsigned location = roll(m, nlocations);
        for (unsigned k = 0; k < n; k++) {
            const bool load = k + 1 == n ? roll(m, 4) : roll(m, 3) == 0;
            if (k) add(&m->test->threads[t], fence_of(m, &m->test->threads[t]));
            add_access(m, t, load ? VL_LOAD : VL_STORE, location, roll(m, 8) == 0);
            location = (location + 1 + roll(m, nlocations - 1)) % nlocations;
        }
    }
}

void vl_generate(uint64_t seed, enum vl_family family, struct vl_test *test)
{
    struct maker m = {.test = test,
                      .family = family,
                      .state = seed * 0x1000003 + (uint64_t)family * 977,
                      .reads = family == VL_SIZES || family == VL_MIXED ? 3 : 4,
                      .writes = 4,
                      .fences = 2};
    *test = (struct vl_test){.nthreads = 2 + roll(&m, 3), .nlocations = 1 + roll(&m, 3)};
    if (test->nlocations == 1 && roll(&m, 2)) test->nlocations = 2;
    snprintf(test->name, sizeof test->name, "generated %s %llu", vl_families[family],
             (unsigned long long)seed);
    if (family == VL_REACHED)
        place_apart(&m);
    else
        place_threads(&m);
    choose_sizes(&m);
    if (family == VL_MESSAGES || family == VL_REACHED) {
        make_message(&m);
        return;
    }
    if (family == VL_FENCED) {
        make_fenced(&m);
        return;
    }
    const bool meetings = either(&m, VL_MEETINGS) || roll(&m, 4) == 0;
    for (unsigned round = 0; round < 4; round++) {
        for (unsigned t = 0; t < test->nthreads; t++)
            if ((m.reads || m.writes) && test->threads[t].nops + 5 < VL_OPS + round)
                add_random(&m, &test->threads[t]);
        for (unsigned k = 0; meetings && round < 3 && k < 2; k++)
            if (k == 0 || either(&m, VL_MEETINGS)) add_meeting(&m);
    }
}
