/* The running memory model against the axioms: no outcome that they forbid is ever seen, a test
 * that has no race is never reported, a test that has one is reported in some run. What they allow
 * and the model never shows is counted and, with VGPU_LITMUS_LIST=1, listed. VGPU_LITMUS_RUNS and
 * VGPU_LITMUS_TESTS ask for more. */
#include <shim.h>
#include <stdio.h>
#include <stdlib.h>

#include <vgpu/litmus/run.h>

struct totals {
    unsigned tests, racy, runs, allowed, shown, unreported;
};

static unsigned setting(const char *name, unsigned otherwise)
{
    const char *text = getenv(name);
    return text ? (unsigned)atoi(text) : otherwise;
}

static void say(const struct vl_test *test, const char *what, vl_outcome outcome, uint64_t seed)
{
    char text[1024];
    vl_print(test, text, sizeof text);
    tt_test_fail(__FILE__, __LINE__, "%s (seed %llu; zyx and r7 to r0 are %03llx %08llx):\n%s",
                 what, (unsigned long long)seed, (unsigned long long)(outcome >> 32),
                 (unsigned long long)(outcome & 0xffffffff), text);
}

static void list_missing(const struct vl_test *test, const struct vl_allowed *allowed,
                         const bool *seen)
{
    if (!getenv("VGPU_LITMUS_LIST")) return;
    for (unsigned k = 0; k < allowed->noutcomes; k++)
        if (!seen[k])
            printf("allowed, never shown: %s: %03llx %08llx\n", test->name,
                   (unsigned long long)(allowed->outcomes[k] >> 32),
                   (unsigned long long)(allowed->outcomes[k] & 0xffffffff));
}

static void compare(const struct vl_test *test, unsigned runs, struct totals *totals)
{
    struct vl_allowed allowed;
    bool seen[4096] = {false}, failed = false;
    unsigned reported = 0;
    if (vl_enumerate(test, &allowed)) {
        tt_test_fail(__FILE__, __LINE__, "%s cannot be enumerated", test->name);
        return;
    }
    CHECK(allowed.noutcomes > 0 && allowed.noutcomes <= 4096);
    for (unsigned seed = 1; seed <= runs && !failed; seed++) {
        vl_outcome outcome;
        unsigned races;
        const enum vg_reads reads = seed % 8 == 0   ? VG_READ_NEWEST
                                    : seed % 8 == 1 ? VG_READ_OLDEST
                                                    : VG_READ_RANDOM;
        if (vl_run(test, seed, reads, &outcome, &races))
            failed = true, say(test, "no memory", 0, seed);
        else if (!vl_is_allowed(&allowed, outcome))
            failed = true, say(test, "this outcome is forbidden", outcome, seed);
        else if (races && !allowed.racy)
            failed = true, say(test, "a race is reported where there is none", outcome, seed);
        reported += races != 0;
        for (unsigned k = 0; k < allowed.noutcomes && k < 4096; k++)
            seen[k] |= allowed.outcomes[k] == outcome;
    }
    totals->tests++;
    totals->runs += runs;
    totals->racy += allowed.racy;
    totals->allowed += allowed.noutcomes;
    for (unsigned k = 0; k < allowed.noutcomes && k < 4096; k++) totals->shown += seen[k];
    if (allowed.racy && !reported) totals->unreported++;
    if (allowed.racy && !reported && getenv("VGPU_LITMUS_LIST"))
        printf("race never reported: %s\n", test->name);
    list_missing(test, &allowed, seen);
    vl_allowed_free(&allowed);
}

static void print(const char *what, const struct totals *t)
{
    printf("%u %s tests, %u runs: %u of %u allowed outcomes were shown; %u tests have races, %u of "
           "them never reported\n",
           t->tests, what, t->runs, t->shown, t->allowed, t->racy, t->unreported);
}

TEST(vgpu_litmus, named_tests_show_only_what_the_axioms_allow)
{
    const unsigned runs = setting("VGPU_LITMUS_RUNS", 300);
    struct totals totals = {0};
    for (unsigned k = 0; k < vl_named_count(); k++) {
        struct vl_test test;
        vl_named(k, &test);
        compare(&test, runs, &totals);
    }
    print("named", &totals);
    CHECK_EQ(totals.unreported, 0);
}

TEST(vgpu_litmus, generated_tests_show_only_what_the_axioms_allow)
{
    const unsigned runs = setting("VGPU_LITMUS_RUNS", 300),
                   tests = setting("VGPU_LITMUS_TESTS", 600);
    struct totals totals = {0};
    for (unsigned k = 0; k < tests; k++) {
        struct vl_test test;
        vl_generate(k + 1, &test);
        compare(&test, runs, &totals);
    }
    print("generated", &totals);
    CHECK_EQ(totals.unreported, 0);
}

/* The outcomes that the manual and the literature give for well-known tests. */
static bool allows(const char *name, vl_outcome outcome)
{
    for (unsigned k = 0; k < vl_named_count(); k++) {
        struct vl_test test;
        vl_named(k, &test);
        if (__builtin_strcmp(test.name, name) != 0) continue;
        struct vl_allowed allowed;
        if (vl_enumerate(&test, &allowed)) break;
        const bool yes = vl_is_allowed(&allowed, outcome);
        vl_allowed_free(&allowed);
        return yes;
    }
    tt_test_fail(__FILE__, __LINE__, "no test is named %s", name);
    return false;
}

#define OUTCOME(zyx, registers) ((vl_outcome)(zyx) << 32 | (registers))

TEST(vgpu_litmus, the_axioms_give_the_known_answers)
{
    CHECK(allows("MP relaxed.gpu, two blocks", OUTCOME(0x11, 0x01)));
    CHECK(!allows("MP release/acquire.gpu, two blocks", OUTCOME(0x11, 0x01)));
    CHECK(allows("MP release/acquire.cta, two blocks", OUTCOME(0x11, 0x01)));
    CHECK(!allows("MP release/acquire.cta, one block", OUTCOME(0x11, 0x01)));
    CHECK(allows("MP release/acquire.gpu, two GPUs", OUTCOME(0x11, 0x01)));
    CHECK(!allows("MP fence.acq_rel.sys, two GPUs", OUTCOME(0x11, 0x01)));
    CHECK(allows("SB release/acquire.gpu, two blocks", OUTCOME(0x11, 0x00)));
    CHECK(allows("SB fence.acq_rel.gpu, two blocks", OUTCOME(0x11, 0x00)));
    CHECK(!allows("SB fence.sc.gpu, two blocks", OUTCOME(0x11, 0x00)));
    CHECK(allows("SB fence.sc.cta, two blocks", OUTCOME(0x11, 0x00)));
    CHECK(allows("LB relaxed.gpu, two blocks", OUTCOME(0x11, 0x11)));
    CHECK(!allows("LB release/acquire.gpu, two blocks", OUTCOME(0x11, 0x11)));
    CHECK(allows("IRIW release/acquire.gpu, two blocks", OUTCOME(0x11, 0x0101)));
    CHECK(!allows("IRIW fence.sc.gpu, two blocks", OUTCOME(0x11, 0x0101)));
    CHECK(!allows("WRC release/acquire.gpu, two blocks", OUTCOME(0x11, 0x011)));
    CHECK(!allows("ISA2 release/acquire.gpu, two blocks", OUTCOME(0x111, 0x011)));
    CHECK(!allows("CoRR relaxed.gpu, two blocks", OUTCOME(0x1, 0x01)));
    CHECK(allows("CoRR weak.gpu, two blocks", OUTCOME(0x1, 0x01)));
    CHECK(allows("2+2W relaxed.gpu, two blocks", OUTCOME(0x11, 0)));
    CHECK(!allows("2+2W fence.sc.gpu, two blocks", OUTCOME(0x11, 0)));
}
