/* The named litmus tests on the model: what the manual forbids is never seen, what it allows is
 * seen unless the list says that the model does not show it. */
#include <string.h>

#include <shim.h>

#include "litmus_run.h"

enum { SEEDS = 1000 };
enum expected { FORBIDDEN, SHOWN, NOT_SHOWN /* allowed, but the model does not show it */ };

struct litmus {
    const char *name, *program, *outcome;
    enum expected expected;
    bool races; /* even with scopes that are wide enough */
};

static const struct litmus tests[] = {
    {"CoRR", "st.rlx.@ x 1 | ld.rlx.@ x a; ld.rlx.@ x b", "a=1 b=0", FORBIDDEN, false},
    {"CoRR by a third thread", "st.rlx.@ x 1; st.rlx.@ x 2 | ld.rlx.@ x a; ld.rlx.@ x b", "a=2 b=1",
     FORBIDDEN, false},
    {"CoRR seen both ways",
     "st.rlx.@ x 1 | st.rlx.@ x 2 | ld.rlx.@ x a; ld.rlx.@ x b | "
     "ld.rlx.@ x c; ld.rlx.@ x d",
     "a=1 b=2 c=2 d=1", FORBIDDEN, false},
    {"CoWR", "st.rlx.@ x 1; ld.rlx.@ x a | st.rlx.@ x 2", "a=0", FORBIDDEN, false},
    {"CoWR, overwritten", "st.rlx.@ x 1; ld.rlx.@ x a | st.rlx.@ x 2", "a=2 x=1", FORBIDDEN, false},
    {"CoRW", "ld.rlx.@ x a; st.rlx.@ x 1 | st.rlx.@ x 2", "a=2 x=2", FORBIDDEN, false},
    {"CoRW1", "ld.rlx.@ x a; st.rlx.@ x 1", "a=1", FORBIDDEN, false},
    {"CoWW", "st.rlx.@ x 1; st.rlx.@ x 2 | ld.rlx.@ x a", "x=1", FORBIDDEN, false},

    {"MP relaxed", "st.rlx.@ x 1; st.rlx.@ y 1 | ld.rlx.@ y a; ld.rlx.@ x b", "a=1 b=0", SHOWN,
     false},
    {"MP release, relaxed", "st.rlx.@ x 1; st.rel.@ y 1 | ld.rlx.@ y a; ld.rlx.@ x b", "a=1 b=0",
     SHOWN, false},
    {"MP relaxed, acquire", "st.rlx.@ x 1; st.rlx.@ y 1 | ld.acq.@ y a; ld.rlx.@ x b", "a=1 b=0",
     SHOWN, false},
    {"MP release, acquire", "st.rlx.@ x 1; st.rel.@ y 1 | ld.acq.@ y a; ld.rlx.@ x b", "a=1 b=0",
     FORBIDDEN, false},
    {"MP fences", "st.rlx.@ x 1; fence.ar.@; st.rlx.@ y 1 | ld.rlx.@ y a; fence.ar.@; ld.rlx.@ x b",
     "a=1 b=0", FORBIDDEN, false},
    {"MP fence, acquire", "st.rlx.@ x 1; fence.ar.@; st.rlx.@ y 1 | ld.acq.@ y a; ld.rlx.@ x b",
     "a=1 b=0", FORBIDDEN, false},
    {"MP release, then a strong write",
     "st.rlx.@ x 1; st.rel.@ y 1; st.rlx.@ y 2 | ld.acq.@ y a; ld.rlx.@ x b", "a=2 b=0", FORBIDDEN,
     false},
    {"MP a read, then an acquire there",
     "st.rlx.@ x 1; st.rel.@ y 1 | ld.rlx.@ y a; ld.acq.@ y c; ld.rlx.@ x b", "a=1 b=0", FORBIDDEN,
     false},
    {"MP a read, then an acquire that reads another's write",
     "st.rlx.@ x 1; st.rel.@ y 1 | st.rlx.@ y 2 | ld.rlx.@ y a; ld.acq.@ y c; ld.rlx.@ x b",
     "a=1 c=2 b=0", FORBIDDEN, false},
    {"MP fence before the data",
     "fence.ar.@; st.rlx.@ x 1; st.rlx.@ y 1 | ld.acq.@ y a; ld.rlx.@ x b", "a=1 b=0", SHOWN,
     false},
    {"MP release elsewhere",
     "st.rlx.@ x 1; st.rel.@ z 1; st.rlx.@ y 1 | ld.acq.@ y a; ld.rlx.@ x b", "a=1 b=0", SHOWN,
     false},
    {"MP acquire elsewhere",
     "st.rlx.@ x 1; st.rel.@ y 1 | ld.rlx.@ y a; ld.acq.@ z c; ld.rlx.@ x b", "a=1 b=0", SHOWN,
     false},
    {"MP through an rmw",
     "st.rlx.@ x 1; st.rel.@ y 1 | add.rlx.@ y 1 h | ld.acq.@ y a; ld.rlx.@ x b", "a=2 h=1 b=0",
     FORBIDDEN, false},
    {"MP through an overwritten flag",
     "st.rlx.@ x 1; st.rel.@ y 1 | st.rlx.@ y 2 | ld.acq.@ y a; ld.rlx.@ x b", "a=2 b=0 y=2", SHOWN,
     false},
    {"MP atom, then a fence",
     "st.rlx.@ x 1; st.rel.@ y 1 | add.rlx.@ y 1 a; fence.ar.@; ld.rlx.@ x b", "a=1 b=0", FORBIDDEN,
     false},
    {"MP red, then a fence", "st.rlx.@ x 1; st.rel.@ y 1 | red.rlx.@ y 1; fence.ar.@; ld.rlx.@ x b",
     "b=0 y=2", SHOWN, false},
    {"MP weak data", "st.weak x 1; st.rel.@ y 1 | ld.acq.@ y a; ld.weak x b", "a=1 b=0", FORBIDDEN,
     true},
    {"S relaxed", "st.rlx.@ x 2; st.rlx.@ y 1 | ld.rlx.@ y a; st.rlx.@ x 1", "a=1 x=2", SHOWN,
     false},
    {"S release, acquire", "st.rlx.@ x 2; st.rel.@ y 1 | ld.acq.@ y a; st.rlx.@ x 1", "a=1 x=2",
     FORBIDDEN, false},
    {"LB relaxed", "ld.rlx.@ x a; st.rlx.@ y 1 | ld.rlx.@ y b; st.rlx.@ x 1", "a=1 b=1", NOT_SHOWN,
     false},
    {"LB fences", "ld.rlx.@ x a; fence.ar.@; st.rlx.@ y 1 | ld.rlx.@ y b; fence.ar.@; st.rlx.@ x 1",
     "a=1 b=1", FORBIDDEN, false},

    {"SB relaxed", "st.rlx.@ x 1; ld.rlx.@ y a | st.rlx.@ y 1; ld.rlx.@ x b", "a=0 b=0", SHOWN,
     false},
    {"SB release, acquire", "st.rel.@ x 1; ld.acq.@ y a | st.rel.@ y 1; ld.acq.@ x b", "a=0 b=0",
     SHOWN, false},
    {"SB fences acq_rel",
     "st.rlx.@ x 1; fence.ar.@; ld.rlx.@ y a | st.rlx.@ y 1; fence.ar.@; ld.rlx.@ x b", "a=0 b=0",
     SHOWN, false},
    {"SB fences sc",
     "st.rlx.@ x 1; fence.sc.@; ld.rlx.@ y a | st.rlx.@ y 1; fence.sc.@; ld.rlx.@ x b", "a=0 b=0",
     FORBIDDEN, false},
    {"SB one fence sc", "st.rlx.@ x 1; fence.sc.@; ld.rlx.@ y a | st.rlx.@ y 1; ld.rlx.@ x b",
     "a=0 b=0", SHOWN, false},
    {"R relaxed", "st.rlx.@ x 1; st.rlx.@ y 1 | st.rlx.@ y 2; ld.rlx.@ x a", "y=2 a=0", SHOWN,
     false},
    {"R fences sc",
     "st.rlx.@ x 1; fence.sc.@; st.rlx.@ y 1 | st.rlx.@ y 2; fence.sc.@; ld.rlx.@ x a", "y=2 a=0",
     FORBIDDEN, false},
    {"2+2W relaxed", "st.rlx.@ x 1; st.rlx.@ y 2 | st.rlx.@ y 1; st.rlx.@ x 2", "x=1 y=1", SHOWN,
     false},
    {"2+2W fences acq_rel",
     "st.rlx.@ x 1; fence.ar.@; st.rlx.@ y 2 | st.rlx.@ y 1; fence.ar.@; st.rlx.@ x 2", "x=1 y=1",
     SHOWN, false},
    {"2+2W fences sc",
     "st.rlx.@ x 1; fence.sc.@; st.rlx.@ y 2 | st.rlx.@ y 1; fence.sc.@; st.rlx.@ x 2", "x=1 y=1",
     FORBIDDEN, false},

    {"WRC relaxed", "st.rlx.@ x 1 | ld.rlx.@ x a; st.rlx.@ y 1 | ld.rlx.@ y b; ld.rlx.@ x c",
     "a=1 b=1 c=0", SHOWN, false},
    {"WRC release, acquire",
     "st.rlx.@ x 1 | ld.rlx.@ x a; st.rel.@ y 1 | ld.acq.@ y b; ld.rlx.@ x c", "a=1 b=1 c=0",
     FORBIDDEN, false},
    {"ISA2 release, acquire",
     "st.rlx.@ x 1; st.rel.@ y 1 | ld.acq.@ y a; st.rel.@ z 1 | ld.acq.@ z b; ld.rlx.@ x c",
     "a=1 b=1 c=0", FORBIDDEN, false},
    {"ISA2 relaxed in the middle",
     "st.rlx.@ x 1; st.rel.@ y 1 | ld.rlx.@ y a; st.rlx.@ z 1 | ld.acq.@ z b; ld.rlx.@ x c",
     "a=1 b=1 c=0", SHOWN, false},
    {"IRIW relaxed",
     "st.rlx.@ x 1 | st.rlx.@ y 1 | ld.rlx.@ x a; ld.rlx.@ y b | ld.rlx.@ y c; ld.rlx.@ x d",
     "a=1 b=0 c=1 d=0", SHOWN, false},
    {"IRIW acquire",
     "st.rel.@ x 1 | st.rel.@ y 1 | ld.acq.@ x a; ld.acq.@ y b | ld.acq.@ y c; ld.acq.@ x d",
     "a=1 b=0 c=1 d=0", SHOWN, false},
    {"IRIW fences sc",
     "st.rlx.@ x 1 | st.rlx.@ y 1 | ld.rlx.@ x a; fence.sc.@; ld.rlx.@ y b | "
     "ld.rlx.@ y c; fence.sc.@; ld.rlx.@ x d",
     "a=1 b=0 c=1 d=0", FORBIDDEN, false},
    {"W+RWC fences",
     "st.rlx.@ x 1; st.rel.@ y 1 | ld.acq.@ y a; fence.sc.@; ld.rlx.@ z b | "
     "st.rlx.@ z 1; fence.sc.@; ld.rlx.@ x c",
     "a=1 b=0 c=0", FORBIDDEN, false},

    {"increments are whole", "add.rlx.@ x 1 a | add.rlx.@ x 1 b", "a=0 b=0", FORBIDDEN, false},
    {"increments are whole, final", "add.rlx.@ x 1 a | add.rlx.@ x 1 b", "x=1", FORBIDDEN, false},
    {"nothing enters before an rmw", "add.rlx.@ x 1 a | st.rlx.@ x 5", "a=0 x=1", FORBIDDEN, false},
    {"an exchange as a lock",
     "xchg.acq.@ y 1 a; ld.rlx.@ x c; st.rlx.@ x 1; st.rel.@ y 0 | "
     "xchg.acq.@ y 1 b; ld.rlx.@ x d; st.rlx.@ x 2; st.rel.@ y 0",
     "a=0 b=0 c=0 d=0", FORBIDDEN, false},
};

static bool wide_enough(enum litmus_where where, enum vg_scope scope)
{
    if (where == DEVICES) return scope == VG_SCOPE_SYS;
    return where == ONE_BLOCK || scope >= VG_SCOPE_GPU;
}

static void check_litmus(const struct litmus *test, enum litmus_where where, enum vg_scope scope,
                         enum vg_reads reads)
{
    static const char *const places[] = {"one block", "blocks", "devices"};
    static const char *const scopes[] = {"none", "cta", "cluster", "gpu", "sys"};
    struct litmus_result result;
    const struct litmus_run run = {.program = test->program,
                                   .outcome = test->outcome,
                                   .where = where,
                                   .scope = scope,
                                   .reads = reads,
                                   .seeds = reads == VG_READ_RANDOM ? SEEDS : SEEDS / 4};
    litmus_run(&run, &result);
    const bool wide = wide_enough(where, scope);
    if (wide && test->expected == FORBIDDEN)
        CHECK_MESSAGE(result.seen == 0,
                      "%s (%s, %s, reads %d): forbidden \"%s\" was seen %llu times", test->name,
                      places[where], scopes[scope], (int)reads, test->outcome,
                      (unsigned long long)result.seen);
    if (wide && test->expected == SHOWN && reads == VG_READ_RANDOM)
        CHECK_MESSAGE(result.seen > 0, "%s (%s, %s): allowed \"%s\" was never seen", test->name,
                      places[where], scopes[scope], test->outcome);
    if (wide && test->expected == NOT_SHOWN) CHECK_EQ(result.seen, 0);
    if (!wide && strchr(test->program, '|') != NULL)
        CHECK_MESSAGE(result.raced > 0, "%s (%s, %s): no race, although the scope is too narrow",
                      test->name, places[where], scopes[scope]);
    if (wide && !test->races)
        CHECK_MESSAGE(result.raced == 0, "%s (%s, %s): a race of %llu and %llu, expected none",
                      test->name, places[where], scopes[scope],
                      (unsigned long long)result.last.first.where,
                      (unsigned long long)result.last.second.where);
}

TEST(litmus, forbidden_outcomes_are_never_seen_and_allowed_ones_are)
{
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++)
        for (int where = ONE_BLOCK; where <= DEVICES; where++)
            for (int scope = VG_SCOPE_CTA; scope <= VG_SCOPE_SYS; scope++)
                check_litmus(&tests[i], (enum litmus_where)where, (enum vg_scope)scope,
                             VG_READ_RANDOM);
}

TEST(litmus, forbidden_outcomes_are_never_seen_with_newest_and_oldest_values)
{
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++)
        for (int where = ONE_BLOCK; where <= DEVICES; where++) {
            check_litmus(&tests[i], (enum litmus_where)where, VG_SCOPE_SYS, VG_READ_OLDEST);
            check_litmus(&tests[i], (enum litmus_where)where, VG_SCOPE_SYS, VG_READ_NEWEST);
        }
}
