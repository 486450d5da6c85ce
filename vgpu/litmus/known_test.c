/* Litmus tests of which the answer is known from the manual or the literature: what the axioms say,
 * what the running model shows, and which of them race. */
#include <stdio.h>
#include <string.h>

#include <shim.h>
#include <vgpu/litmus/compare.h>
#include <vgpu/litmus/known.h>

enum { SEEDS = 400 };
enum expected { FORBIDDEN, SHOWN, NOT_SHOWN /* allowed, but the model does not show it */ };

struct litmus {
    const char *name, *program, *outcome;
    enum expected expected;
    bool races;     /* even with scopes that are wide enough */
    bool one_block; /* only there has the program a meaning */
};

static const struct litmus tests[] = {
    {"CoRR", "st.rlx.@ x 1 | ld.rlx.@ x a; ld.rlx.@ x b", "a=1 b=0", FORBIDDEN, false, false},
    {"CoRR by a third thread", "st.rlx.@ x 1; st.rlx.@ x 2 | ld.rlx.@ x a; ld.rlx.@ x b", "a=2 b=1",
     FORBIDDEN, false, false},
    {"CoRR seen both ways",
     "st.rlx.@ x 1 | st.rlx.@ x 2 | ld.rlx.@ x a; ld.rlx.@ x b | "
     "ld.rlx.@ x c; ld.rlx.@ x d",
     "a=1 b=2 c=2 d=1", FORBIDDEN, false, false},
    {"CoWR", "st.rlx.@ x 1; ld.rlx.@ x a | st.rlx.@ x 2", "a=0", FORBIDDEN, false, false},
    {"CoWR, overwritten", "st.rlx.@ x 1; ld.rlx.@ x a | st.rlx.@ x 2", "a=2 x=1", FORBIDDEN, false,
     false},
    {"CoRW", "ld.rlx.@ x a; st.rlx.@ x 1 | st.rlx.@ x 2", "a=2 x=2", FORBIDDEN, false, false},
    {"CoRW1", "ld.rlx.@ x a; st.rlx.@ x 1", "a=1", FORBIDDEN, false, false},
    {"CoWW", "st.rlx.@ x 1; st.rlx.@ x 2 | ld.rlx.@ x a", "x=1", FORBIDDEN, false, false},

    {"MP relaxed", "st.rlx.@ x 1; st.rlx.@ y 1 | ld.rlx.@ y a; ld.rlx.@ x b", "a=1 b=0", SHOWN,
     false, false},
    {"MP release, relaxed", "st.rlx.@ x 1; st.rel.@ y 1 | ld.rlx.@ y a; ld.rlx.@ x b", "a=1 b=0",
     SHOWN, false, false},
    {"MP relaxed, acquire", "st.rlx.@ x 1; st.rlx.@ y 1 | ld.acq.@ y a; ld.rlx.@ x b", "a=1 b=0",
     SHOWN, false, false},
    {"MP release, acquire", "st.rlx.@ x 1; st.rel.@ y 1 | ld.acq.@ y a; ld.rlx.@ x b", "a=1 b=0",
     FORBIDDEN, false, false},
    {"MP fences", "st.rlx.@ x 1; fence.ar.@; st.rlx.@ y 1 | ld.rlx.@ y a; fence.ar.@; ld.rlx.@ x b",
     "a=1 b=0", FORBIDDEN, false, false},
    {"MP fence, acquire", "st.rlx.@ x 1; fence.ar.@; st.rlx.@ y 1 | ld.acq.@ y a; ld.rlx.@ x b",
     "a=1 b=0", FORBIDDEN, false, false},
    {"MP release, then a strong write",
     "st.rlx.@ x 1; st.rel.@ y 1; st.rlx.@ y 2 | ld.acq.@ y a; ld.rlx.@ x b", "a=2 b=0", FORBIDDEN,
     false, false},
    {"MP a read, then an acquire there",
     "st.rlx.@ x 1; st.rel.@ y 1 | ld.rlx.@ y a; ld.acq.@ y c; ld.rlx.@ x b", "a=1 b=0", FORBIDDEN,
     false, false},
    {"MP a read, then an acquire that reads another's write",
     "st.rlx.@ x 1; st.rel.@ y 1 | st.rlx.@ y 2 | ld.rlx.@ y a; ld.acq.@ y c; ld.rlx.@ x b",
     "a=1 c=2 b=0", FORBIDDEN, false, false},
    {"MP fence before the data",
     "fence.ar.@; st.rlx.@ x 1; st.rlx.@ y 1 | ld.acq.@ y a; ld.rlx.@ x b", "a=1 b=0", SHOWN, false,
     false},
    {"MP release elsewhere",
     "st.rlx.@ x 1; st.rel.@ z 1; st.rlx.@ y 1 | ld.acq.@ y a; ld.rlx.@ x b", "a=1 b=0", SHOWN,
     false, false},
    {"MP acquire elsewhere",
     "st.rlx.@ x 1; st.rel.@ y 1 | ld.rlx.@ y a; ld.acq.@ z c; ld.rlx.@ x b", "a=1 b=0", SHOWN,
     false, false},
    {"MP through an rmw",
     "st.rlx.@ x 1; st.rel.@ y 1 | add.rlx.@ y 1 h | ld.acq.@ y a; ld.rlx.@ x b", "a=2 h=1 b=0",
     FORBIDDEN, false, false},
    {"MP through an overwritten flag",
     "st.rlx.@ x 1; st.rel.@ y 1 | st.rlx.@ y 2 | ld.acq.@ y a; ld.rlx.@ x b", "a=2 b=0 y=2", SHOWN,
     false, false},
    {"MP atom, then a fence",
     "st.rlx.@ x 1; st.rel.@ y 1 | add.rlx.@ y 1 a; fence.ar.@; ld.rlx.@ x b", "a=1 b=0", FORBIDDEN,
     false, false},
    {"MP red, then a fence", "st.rlx.@ x 1; st.rel.@ y 1 | red.rlx.@ y 1; fence.ar.@; ld.rlx.@ x b",
     "b=0 y=2", SHOWN, false, false},
    {"MP weak data", "st.weak x 1; st.rel.@ y 1 | ld.acq.@ y a; ld.weak x b", "a=1 b=0", FORBIDDEN,
     true, false},
    {"S relaxed", "st.rlx.@ x 2; st.rlx.@ y 1 | ld.rlx.@ y a; st.rlx.@ x 1", "a=1 x=2", SHOWN,
     false, false},
    {"S release, acquire", "st.rlx.@ x 2; st.rel.@ y 1 | ld.acq.@ y a; st.rlx.@ x 1", "a=1 x=2",
     FORBIDDEN, false, false},
    {"LB relaxed", "ld.rlx.@ x a; st.rlx.@ y 1 | ld.rlx.@ y b; st.rlx.@ x 1", "a=1 b=1", NOT_SHOWN,
     false, false},
    {"LB fences", "ld.rlx.@ x a; fence.ar.@; st.rlx.@ y 1 | ld.rlx.@ y b; fence.ar.@; st.rlx.@ x 1",
     "a=1 b=1", FORBIDDEN, false, false},

    {"SB relaxed", "st.rlx.@ x 1; ld.rlx.@ y a | st.rlx.@ y 1; ld.rlx.@ x b", "a=0 b=0", SHOWN,
     false, false},
    {"SB release, acquire", "st.rel.@ x 1; ld.acq.@ y a | st.rel.@ y 1; ld.acq.@ x b", "a=0 b=0",
     SHOWN, false, false},
    {"SB fences acq_rel",
     "st.rlx.@ x 1; fence.ar.@; ld.rlx.@ y a | st.rlx.@ y 1; fence.ar.@; ld.rlx.@ x b", "a=0 b=0",
     SHOWN, false, false},
    {"SB fences sc",
     "st.rlx.@ x 1; fence.sc.@; ld.rlx.@ y a | st.rlx.@ y 1; fence.sc.@; ld.rlx.@ x b", "a=0 b=0",
     FORBIDDEN, false, false},
    {"SB one fence sc", "st.rlx.@ x 1; fence.sc.@; ld.rlx.@ y a | st.rlx.@ y 1; ld.rlx.@ x b",
     "a=0 b=0", SHOWN, false, false},
    {"R relaxed", "st.rlx.@ x 1; st.rlx.@ y 1 | st.rlx.@ y 2; ld.rlx.@ x a", "y=2 a=0", SHOWN,
     false, false},
    {"R fences sc",
     "st.rlx.@ x 1; fence.sc.@; st.rlx.@ y 1 | st.rlx.@ y 2; fence.sc.@; ld.rlx.@ x a", "y=2 a=0",
     FORBIDDEN, false, false},
    {"2+2W relaxed", "st.rlx.@ x 1; st.rlx.@ y 2 | st.rlx.@ y 1; st.rlx.@ x 2", "x=1 y=1", SHOWN,
     false, false},
    {"2+2W fences acq_rel",
     "st.rlx.@ x 1; fence.ar.@; st.rlx.@ y 2 | st.rlx.@ y 1; fence.ar.@; st.rlx.@ x 2", "x=1 y=1",
     SHOWN, false, false},
    {"2+2W fences sc",
     "st.rlx.@ x 1; fence.sc.@; st.rlx.@ y 2 | st.rlx.@ y 1; fence.sc.@; st.rlx.@ x 2", "x=1 y=1",
     FORBIDDEN, false, false},

    {"WRC relaxed", "st.rlx.@ x 1 | ld.rlx.@ x a; st.rlx.@ y 1 | ld.rlx.@ y b; ld.rlx.@ x c",
     "a=1 b=1 c=0", SHOWN, false, false},
    {"WRC release, acquire",
     "st.rlx.@ x 1 | ld.rlx.@ x a; st.rel.@ y 1 | ld.acq.@ y b; ld.rlx.@ x c", "a=1 b=1 c=0",
     FORBIDDEN, false, false},
    {"ISA2 release, acquire",
     "st.rlx.@ x 1; st.rel.@ y 1 | ld.acq.@ y a; st.rel.@ z 1 | ld.acq.@ z b; ld.rlx.@ x c",
     "a=1 b=1 c=0", FORBIDDEN, false, false},
    {"ISA2 relaxed in the middle",
     "st.rlx.@ x 1; st.rel.@ y 1 | ld.rlx.@ y a; st.rlx.@ z 1 | ld.acq.@ z b; ld.rlx.@ x c",
     "a=1 b=1 c=0", SHOWN, false, false},
    {"IRIW relaxed",
     "st.rlx.@ x 1 | st.rlx.@ y 1 | ld.rlx.@ x a; ld.rlx.@ y b | ld.rlx.@ y c; ld.rlx.@ x d",
     "a=1 b=0 c=1 d=0", SHOWN, false, false},
    {"IRIW acquire",
     "st.rel.@ x 1 | st.rel.@ y 1 | ld.acq.@ x a; ld.acq.@ y b | ld.acq.@ y c; ld.acq.@ x d",
     "a=1 b=0 c=1 d=0", SHOWN, false, false},
    {"IRIW fences sc",
     "st.rlx.@ x 1 | st.rlx.@ y 1 | ld.rlx.@ x a; fence.sc.@; ld.rlx.@ y b | "
     "ld.rlx.@ y c; fence.sc.@; ld.rlx.@ x d",
     "a=1 b=0 c=1 d=0", FORBIDDEN, false, false},
    {"W+RWC fences",
     "st.rlx.@ x 1; st.rel.@ y 1 | ld.acq.@ y a; fence.sc.@; ld.rlx.@ z b | "
     "st.rlx.@ z 1; fence.sc.@; ld.rlx.@ x c",
     "a=1 b=0 c=0", FORBIDDEN, false, false},

    {"increments are whole", "add.rlx.@ x 1 a | add.rlx.@ x 1 b", "a=0 b=0", FORBIDDEN, false,
     false},
    {"increments are whole, final", "add.rlx.@ x 1 a | add.rlx.@ x 1 b", "x=1", FORBIDDEN, false,
     false},
    {"nothing enters before an rmw", "add.rlx.@ x 1 a | st.rlx.@ x 5", "a=0 x=1", FORBIDDEN, false,
     false},
    {"an exchange as a lock",
     "xchg.acq.@ y 1 a; ld.rlx.@ x c; st.rlx.@ x 1; st.rel.@ y 0 | "
     "xchg.acq.@ y 1 b; ld.rlx.@ x d; st.rlx.@ x 2; st.rel.@ y 0",
     "a=0 b=0 c=0 d=0", FORBIDDEN, false, false},

    /* accesses of other sizes */
    {"half of a word", "st.rlx.@ x[0,8] 1 | ld.rlx.@ x[0,4] a", "a=1", SHOWN, true, false},
    {"a flag beside data", "st.rlx.@ x[0,4] 1; st.rlx.@ x[4,4] 1 | ld.rlx.@ x[4,4] a; ld.rlx.@ x b",
     "a=1 b=0", SHOWN, false, false},
    {"a flag and data in one access", "st.rlx.@ x[0,8] 1 | ld.rlx.@ x[0,8] a", "a=1", SHOWN, false,
     false},
    {"16 bytes are whole",
     "st.rlx.@ x[0,16] 1; st.rlx.@ x[0,16] 2 | ld.rlx.@ x[0,16] a; "
     "ld.rlx.@ x[0,16] b",
     "a=2 b=1", FORBIDDEN, false, false},
    {"8 bytes are whole", "ld.weak x[4,4] b; st.rlx.@ x[0,8] 1 | ld.rlx.@ x[0,8] a", "a=1 a[4]=0",
     FORBIDDEN, false, false},
    {"a weak read behind a relaxed one", "st.rlx.@ x 1 | ld.rlx.@ x a; ld.weak x b", "a=1 b=0",
     FORBIDDEN, true, false},
    {"own half", "st.weak x[0,8] 1; st.weak x[0,2] 2; ld.weak x[0,4] a", "a=1", FORBIDDEN, false,
     false},
    {"released bytes",
     "st.weak x[0,1] 1; st.weak x[1,1] 2; st.rel.@ y[0,2] 1 | ld.acq.@ y[0,2] a; "
     "ld.weak x[0,2] b",
     "a=1 b=0", FORBIDDEN, true, false},

    /* read-modify-writes */
    {"red, then a fence", "st.rlx.@ x 1; st.rel.@ y 1 | red.rlx.@ y 2; fence.ar.@; ld.rlx.@ x a",
     "y=3 a=0", SHOWN, false, false},
    {"red hands on", "st.rlx.@ x 1; st.rel.@ y 1 | red.rlx.@ y 2 | ld.acq.@ y a; ld.rlx.@ x b",
     "a=3 b=0", FORBIDDEN, false, false},
    {"red releases", "st.rlx.@ x 1; red.rel.@ y 2 | ld.acq.@ y a; ld.rlx.@ x b", "a=2 b=0",
     FORBIDDEN, false, false},
    {"a swap that fails does not write", "cas.rlx.@ x 5 1 a; ld.rlx.@ x b", "b=1", FORBIDDEN, false,
     false},
    {"a swap that fails acquires", "st.rlx.@ x 1; st.rel.@ y 1 | cas.acq.@ y 5 7 a; ld.rlx.@ x b",
     "a=1 b=0", FORBIDDEN, false, false},
    {"a swap that fails hands nothing on",
     "st.rlx.@ x 1; cas.rel.@ y 5 7 a | st.rlx.@ y 3 | "
     "ld.acq.@ y c; ld.rlx.@ x d",
     "c=3 d=0", SHOWN, false, false},
    {"one swap succeeds", "cas.rlx.@ x 0 1 a | cas.rlx.@ x 0 2 b", "a=0 b=0", FORBIDDEN, false,
     false},
    {"swaps take turns", "cas.rlx.@ x 0 1 a | cas.rlx.@ x 1 2 b", "a=0 b=1 x=2", SHOWN, false,
     false},
    {"a swap as a lock",
     "cas.acq.@ y 0 1 a; ld.rlx.@ x c; st.rlx.@ x 1; st.rel.@ y 0 | "
     "cas.acq.@ y 0 2 b; ld.rlx.@ x d; st.rlx.@ x 2; st.rel.@ y 0",
     "a=0 b=0 c=0 d=0", FORBIDDEN, false, false},

    /* fences of one direction */
    {"MP, fences of one direction",
     "st.rlx.@ x 1; fence.rel.@; st.rlx.@ y 1 | ld.rlx.@ y a; fence.acq.@; ld.rlx.@ x b", "a=1 b=0",
     FORBIDDEN, false, false},
    {"MP, the wrong fences",
     "st.rlx.@ x 1; fence.acq.@; st.rlx.@ y 1 | ld.rlx.@ y a; fence.rel.@; ld.rlx.@ x b", "a=1 b=0",
     SHOWN, false, false},

    /* barriers */
    {"MP bar.sync", "st.weak x 1; bar 0 | bar 0; ld.weak x a", "a=0", FORBIDDEN, false, true},
    {"MP bar.arrive", "st.weak x 1; arrive 1 | bar 1; ld.weak x a", "a=0", FORBIDDEN, false, true},
    {"bar.arrive does not wait", "arrive 1; ld.rlx.@ x a | st.rlx.@ x 1; bar 1", "a=0", SHOWN,
     false, true},
    {"an arrival orders nothing that follows it", "arrive 1; st.weak x 1 | bar 1; ld.weak x a",
     "a=1", SHOWN, true, true},
    {"bar.warp.sync", "st.weak x 1; warp 0 | warp 0; ld.weak x a", "a=0", FORBIDDEN, false, true},
    {"two barriers in a row", "st.weak x 1; bar 1 | bar 1; bar 2 | bar 2; ld.weak x a", "a=0",
     FORBIDDEN, false, true},
    {"a barrier of others", "st.rlx.@ x 1; bar 1 | bar 1 | ld.rlx.@ x a", "a=0", SHOWN, false,
     true},
};

static bool allows(const struct vl_allowed *allowed, const char *outcome)
{
    for (unsigned k = 0; k < allowed->noutcomes; k++)
        if (vl_matches(&allowed->outcomes[k].outcome, outcome)) return true;
    return false;
}

bool vl_known_holds(const char *name, unsigned without)
{
    bool holds = true, found = !name;
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++) {
        struct vl_test test;
        struct vl_allowed allowed;
        const enum vl_place place = tests[i].one_block ? VL_ONE_BLOCK : VL_BLOCKS;
        if (name && strcmp(name, tests[i].name)) continue;
        found = true;
        if (!vl_read(tests[i].program, VG_SCOPE_GPU, place, &test) ||
            vl_enumerate(&test, without, &allowed))
            return false;
        holds &= allows(&allowed, tests[i].outcome) == (tests[i].expected != FORBIDDEN) &&
                 allowed.racy == tests[i].races;
        vl_allowed_free(&allowed);
    }
    CHECK_MESSAGE(found, "no known test is named %s", name ? name : "");
    return holds;
}

static bool wide_enough(enum vl_place place, enum vg_scope scope)
{
    if (place == VL_DEVICES) return scope == VG_SCOPE_SYS;
    return place == VL_ONE_BLOCK || scope >= VG_SCOPE_GPU;
}

/* Whether one of the runs shows the outcome. */
static bool shown(const struct vl_test *test, const char *outcome, enum vg_reads reads)
{
    bool yes = false;
    const uint64_t seeds = reads == VG_READ_RANDOM ? SEEDS : SEEDS / 8;
    for (uint64_t seed = 1; seed <= seeds && !yes; seed++) {
        struct vl_result result;
        const int status = vl_run(test, &(struct vl_run){.seed = seed, .reads = reads}, &result);
        CHECK_MESSAGE(!status, "%s: %d", test->name, status);
        yes = vl_matches(&result.outcome, outcome);
    }
    return yes;
}

static void check_runs(const struct litmus *known, const struct vl_test *test)
{
    const bool any = shown(test, known->outcome, VG_READ_RANDOM);
    if (known->expected == SHOWN)
        CHECK_MESSAGE(any, "%s: allowed \"%s\" was never seen", test->name, known->outcome);
    else
        CHECK_MESSAGE(!any && !shown(test, known->outcome, VG_READ_OLDEST) &&
                          !shown(test, known->outcome, VG_READ_NEWEST),
                      "%s: \"%s\" was seen", test->name, known->outcome);
}

static void check(const struct litmus *known, enum vl_place place, enum vg_scope scope)
{
    static const char *const scopes[] = {"none", "cta", "cluster", "gpu", "sys"};
    struct vl_test test;
    struct vl_allowed allowed;
    if (!vl_read(known->program, scope, place, &test)) {
        CHECK_MESSAGE(false, "%s cannot be read: %s", known->name, known->program);
        return;
    }
    snprintf(test.name, sizeof test.name, "%s (%s, %s)", known->name,
             place == VL_ONE_BLOCK ? "one block"
             : place == VL_BLOCKS  ? "blocks"
                                   : "devices",
             scopes[scope]);
    const bool wide = wide_enough(place, scope), alone = !strchr(known->program, '|');
    if (vl_enumerate(&test, 0, &allowed)) {
        CHECK_MESSAGE(false, "%s cannot be enumerated", test.name);
        return;
    }
    const bool may = allows(&allowed, known->outcome);
    if (wide)
        CHECK_MESSAGE(may == (known->expected != FORBIDDEN), "%s: the axioms %s \"%s\"", test.name,
                      may ? "allow" : "forbid", known->outcome);
    if (wide || !alone)
        CHECK_MESSAGE(allowed.racy == (!wide || known->races), "%s: the axioms say %s", test.name,
                      allowed.racy ? "it has a race" : "it has none");
    if (wide) check_runs(known, &test);
    struct vl_finding finding;
    const enum vl_verdict verdict =
        vl_compare(&test, &(struct vl_comparison){.runs = 100}, NULL, &finding);
    CHECK_MESSAGE(verdict == VL_AGREES, "%s: %s (seed %llu)", test.name, vl_verdicts[verdict],
                  (unsigned long long)finding.seed);
    vl_allowed_free(&allowed);
}

TEST(vgpu_litmus, the_axioms_and_the_model_give_the_known_answers)
{
    static const enum vl_place places[] = {VL_ONE_BLOCK, VL_BLOCKS, VL_DEVICES};
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++)
        for (int place = 0; place < 3; place++)
            for (int scope = VG_SCOPE_CTA; scope <= VG_SCOPE_SYS; scope++)
                if (scope != VG_SCOPE_CLUSTER && (!tests[i].one_block || place == 0))
                    check(&tests[i], places[place], (enum vg_scope)scope);
}
