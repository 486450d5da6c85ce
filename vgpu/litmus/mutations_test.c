/* Mistakes planted in the model (in what it is told) and in the axioms: the comparison notices
 * each. What is printed is the first test that differs. */
#include <stdio.h>
#include <string.h>

#include <shim.h>
#include <vgpu/litmus/compare.h>
#include <vgpu/litmus/known.h>

/* --- operations that the model is told otherwise --- */

static void relaxed_loads(struct vl_op *op)
{
    if (op->kind == VL_LOAD && op->order == VG_ACQUIRE) op->order = VG_RELAXED;
}
static void relaxed_stores(struct vl_op *op)
{
    if (op->kind == VL_STORE && op->order == VG_RELEASE) op->order = VG_RELAXED;
}
static void acquiring_loads(struct vl_op *op)
{
    if (op->kind == VL_LOAD && op->order == VG_RELAXED) op->order = VG_ACQUIRE;
}
static void releasing_stores(struct vl_op *op)
{
    if (op->kind == VL_STORE && op->order == VG_RELAXED) op->order = VG_RELEASE;
}
static void unreleased_atomics(struct vl_op *op)
{
    if (vl_is_atomic(op) && op->order >= VG_RELEASE) op->order = VG_RELAXED;
}
static void wide_accesses(struct vl_op *op)
{
    if (vl_accesses(op)) op->scope = VG_SCOPE_SYS;
}
static void strong_loads(struct vl_op *op)
{
    if (op->kind != VL_LOAD || op->order != VG_WEAK || op->nc) return;
    op->order = VG_RELAXED;
    op->scope = VG_SCOPE_SYS;
}
static void plain_nc(struct vl_op *op)
{
    op->nc = false;
}
static void fetching_reds(struct vl_op *op)
{
    if (vl_is_atomic(op)) op->reg = 0;
}
static void no_fences(struct vl_op *op)
{
    if (op->kind == VL_FENCE) op->order = VG_RELAXED;
}
static void acq_rel_fences(struct vl_op *op)
{
    if (op->kind == VL_FENCE && op->order == VG_SC) op->order = VG_ACQ_REL;
}
static void sc_fences(struct vl_op *op)
{
    if (op->kind == VL_FENCE) op->order = VG_SC;
}
static void narrow_fences(struct vl_op *op)
{
    if (op->kind == VL_FENCE) op->scope = VG_SCOPE_CTA;
}
static void wide_fences(struct vl_op *op)
{
    if (op->kind == VL_FENCE) op->scope = VG_SCOPE_SYS;
}

/* --- calls that do something else --- */

/* Reads, and writes whatever has come between. */
static void torn_rmw(struct vg_block_clock *block, uint32_t thread, struct vg_region *region,
                     uint64_t offset, const struct vg_how *how, vg_change *change, void *arg,
                     void *old)
{
    unsigned char value[VL_BYTES];
    vg_model_load(block, thread, region, offset, how, old);
    memcpy(value, old, how->nbytes);
    if (change(arg, old, value)) vg_model_store(block, thread, region, offset, how, value);
}

/* A swap that fails writes the old value again. */
struct failing {
    vg_change *change;
    void *arg;
};
static bool always(void *arg, const void *old, void *value)
{
    const struct failing *failing = arg;
    failing->change(failing->arg, old, value);
    return true;
}
static void writing_rmw(struct vg_block_clock *block, uint32_t thread, struct vg_region *region,
                        uint64_t offset, const struct vg_how *how, vg_change *change, void *arg,
                        void *old)
{
    struct failing failing = {change, arg};
    vg_model_rmw(block, thread, region, offset, how, always, &failing, old);
}

/* Accesses of 8 bytes as two of 4. */
static void halved_load(struct vg_block_clock *block, uint32_t thread, struct vg_region *region,
                        uint64_t offset, const struct vg_how *its, void *value)
{
    struct vg_how how = *its;
    const unsigned parts = its->nbytes >= 8 ? 2 : 1;
    how.nbytes = (uint8_t)(how.nbytes / parts);
    for (unsigned k = parts; k-- > 0;)
        vg_model_load(block, thread, region, offset + k * how.nbytes, &how,
                      (unsigned char *)value + k * how.nbytes);
}

/* An acquire of scope .sys takes all that was published: it reads where nobody has looked. */
static void greedy_load(struct vg_block_clock *block, uint32_t thread, struct vg_region *region,
                        uint64_t offset, const struct vg_how *how, void *value)
{
    static unsigned looks;
    uint8_t other[VL_BYTES];
    vg_model_load(block, thread, region, offset, how, value);
    if (how->order == VG_ACQUIRE)
        vg_model_load(block, thread, region, offset + VL_BYTES + looks++ % 8 * 4, how, other);
}

static void no_barrier(struct vg_block_clock *block, uint32_t number, const uint64_t *threads)
{
    (void)block, (void)number, (void)threads;
}
static void whole_barrier(struct vg_block_clock *block, uint32_t number, const uint64_t *threads)
{
    const uint64_t all[] = {UINT64_MAX, UINT64_MAX};
    (void)threads;
    vg_model_barrier(block, number, all);
}
static void no_warp(struct vg_block_clock *block, uint32_t warp, uint32_t lanes)
{
    (void)block, (void)warp, (void)lanes;
}
static void whole_warp(struct vg_block_clock *block, uint32_t warp, uint32_t lanes)
{
    (void)lanes;
    vg_model_warp(block, warp, UINT32_MAX);
}
static struct vg_grid_clock *apart_begin(struct vg_model *model, uint64_t number, int device,
                                         uint64_t nblocks, uint32_t nthreads,
                                         const struct vg_past *before)
{
    (void)before;
    return vg_model_grid_begin(model, number, device, nblocks, nthreads, NULL);
}
static struct vg_grid_clock *one_device_begin(struct vg_model *model, uint64_t number, int device,
                                              uint64_t nblocks, uint32_t nthreads,
                                              const struct vg_past *before)
{
    (void)device;
    return vg_model_grid_begin(model, number, 0, nblocks, nthreads, before);
}

struct mutant {
    const char *name;
    enum vl_family family; /* where it shows */
    struct vl_calls calls; /* NULL: as it is */
};

static const struct mutant mutants[] = {
    {"acquiring loads are relaxed", VL_MESSAGES, {.alter = relaxed_loads}},
    {"releasing stores are relaxed", VL_MESSAGES, {.alter = relaxed_stores}},
    {"relaxed loads acquire", VL_MESSAGES, {.alter = acquiring_loads}},
    {"relaxed stores release", VL_MESSAGES, {.alter = releasing_stores}},
    {"atomics do not release", VL_MESSAGES, {.alter = unreleased_atomics}},
    {"accesses have scope .sys", VL_PLAIN, {.alter = wide_accesses}},
    {"weak loads are relaxed", VL_MESSAGES, {.alter = strong_loads}},
    {"ld.global.nc is a plain load", VL_READONLY, {.alter = plain_nc}},
    {"what a red reads is acquired", VL_MESSAGES, {.alter = fetching_reds}},
    {"fences do nothing", VL_MESSAGES, {.alter = no_fences}},
    {"fence.sc is fence.acq_rel", VL_FENCED, {.alter = acq_rel_fences}},
    {"every fence is fence.sc", VL_FENCED, {.alter = sc_fences}},
    {"fences have scope .cta", VL_FENCED, {.alter = narrow_fences}},
    {"fences have scope .sys", VL_FENCED, {.alter = wide_fences}},
    {"wide loads are two of half the size", VL_SIZES, {.load = halved_load}},
    {"an atomic is a load and a store", VL_ATOMICS, {.rmw = torn_rmw}},
    {"a swap that fails writes", VL_ATOMICS, {.rmw = writing_rmw}},
    {"bar.arrive does nothing", VL_MEETINGS, {.arrive = no_barrier}},
    {"bar.sync does nothing", VL_MEETINGS, {.barrier = no_barrier}},
    {"bar.sync is for the whole block", VL_MEETINGS, {.barrier = whole_barrier}},
    {"bar.warp.sync does nothing", VL_MEETINGS, {.warp = no_warp}},
    {"bar.warp.sync is for the whole warp", VL_MEETINGS, {.warp = whole_warp}},
    {"a stream does not order its grids", VL_STREAMED, {.grid_begin = apart_begin}},
    {"all grids are on one device", VL_STREAMED, {.grid_begin = one_device_begin}},
    {"reachable: releasing stores are relaxed", VL_REACHED, {.alter = relaxed_stores}},
    {"reachable: relaxed loads acquire", VL_REACHED, {.alter = acquiring_loads}},
    {"reachable: acquires take what is published", VL_REACHED, {.load = greedy_load}},
};

/* The first generated test of the family that differs, and does not without the mistake. */
static enum vl_verdict first_difference(const struct vl_comparison *how, enum vl_family family,
                                        struct vl_test *test)
{
    const struct vl_comparison right = {
        .runs = how->runs, .reachable = how->reachable, .strict = true};
    for (uint64_t seed = 1; seed <= 500; seed++) {
        struct vl_finding finding;
        vl_generate(seed, family, test);
        const enum vl_verdict verdict = vl_compare(test, how, NULL, &finding);
        if (verdict != VL_AGREES && vl_compare(test, &right, NULL, &finding) == VL_AGREES)
            return verdict;
    }
    return VL_AGREES;
}

TEST(vgpu_litmus_mutations, each_mistake_of_the_model_is_noticed)
{
    for (size_t i = 0; i < sizeof mutants / sizeof *mutants; i++) {
        const struct vl_comparison how = {.calls = &mutants[i].calls,
                                          .runs = 60,
                                          .reachable = mutants[i].family == VL_REACHED,
                                          .strict = true};
        struct vl_test test;
        const enum vl_verdict verdict = first_difference(&how, mutants[i].family, &test);
        printf("%-42s %s: %s\n", mutants[i].name, test.name, vl_verdicts[verdict]);
        CHECK_MESSAGE(verdict != VL_AGREES && verdict != VL_BROKEN, "not noticed: %s",
                      mutants[i].name);
    }
}

/* A known test that only the rule decides once the others that would as well are left out too;
 * NULL: the first generated test in which the model differs. */
static const struct {
    const char *name;
    enum vl_rule rule;
    unsigned others;
    const char *known;
} rules[] = {
    {"Coherence", VL_COHERENCE, 0, "S release, acquire"},
    {"Fence-SC", VL_FENCE_SC, 0, "SB fences sc"},
    {"single-copy atomicity", VL_SINGLE_COPY, VL_PER_LOCATION, "8 bytes are whole"},
    {"atomicity of read-modify-writes", VL_ATOMICITY, VL_PER_LOCATION, "increments are whole"},
    {"SC per location", VL_PER_LOCATION, VL_OBSERVED_FIRST, "CoRR"},
    {"Causality", VL_CAUSALITY, 0, "MP release, acquire"},
    {"observation through atomics", VL_THROUGH_ATOMICS, 0, "MP through an rmw"},
    {"barriers synchronize", VL_BARRIERS, 0, "two barriers in a row"},
    {"streams synchronize", VL_STREAMS, 0, NULL},
    {"release, then a strong write", VL_LATER_WRITES, 0, "MP release, then a strong write"},
    {"a strong read, then an acquire", VL_EARLIER_READS, 0,
     "MP a read, then an acquire that reads another's write"},
    {"a red acquires nothing", VL_RED, 0, "MP red, then a fence"},
    {"observation before base causality", VL_OBSERVED_FIRST, 0, "a weak read behind a relaxed one"},
    {"scopes include each other", VL_SCOPES, 0, NULL},
};

TEST(vgpu_litmus_mutations, each_rule_that_the_axioms_lack_is_noticed)
{
    CHECK(vl_known_holds(NULL, 0));
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        const struct vl_comparison how = {.without = rules[i].rule, .runs = 60};
        struct vl_test test = {.name = ""};
        enum vl_verdict verdict = VL_FORBIDDEN;
        if (rules[i].known) {
            CHECK(vl_known_holds(rules[i].known, rules[i].others));
            if (vl_known_holds(rules[i].known, rules[i].others | rules[i].rule))
                verdict = VL_AGREES;
        } else {
            verdict = first_difference(&how, VL_STREAMED, &test);
        }
        printf("without %-34s differs: %s\n", rules[i].name,
               rules[i].known ? rules[i].known : test.name);
        CHECK_MESSAGE(verdict != VL_AGREES && verdict != VL_BROKEN, "not noticed: %s",
                      rules[i].name);
    }
}

TEST(vgpu_litmus_mutations, the_shrinker_leaves_what_matters)
{
    struct vl_test test;
    struct vl_finding finding;
    const struct vl_calls calls = {.alter = no_fences};
    const struct vl_comparison how = {.calls = &calls, .runs = 200};
    REQUIRE(vl_read("ld.rlx.gpu z a; st.rlx.gpu x 1; fence.ar.gpu; bar 1; st.rlx.gpu y 1 | "
                    "ld.rlx.gpu y b; fence.ar.gpu; bar 1; ld.rlx.gpu x c | st.rlx.gpu z 1",
                    VG_SCOPE_GPU, VL_BLOCKS, &test));
    REQUIRE(vl_compare(&test, &how, NULL, &finding) == VL_FORBIDDEN);
    vl_shrink(&test, &how, VL_FORBIDDEN);
    CHECK_EQ(test.nthreads, 2);
    CHECK_EQ(test.threads[0].nops + test.threads[1].nops, 6);
}
