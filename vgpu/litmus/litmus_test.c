/* The running memory model against the axioms: in no run a forbidden outcome; a race is reported in
 * each run whose outcome only executions with a race have, and in none whose outcome only others
 * have. What the axioms allow and the model never shows is counted and, with VGPU_LITMUS_LIST=1,
 * listed. VGPU_LITMUS_RUNS (of a test) and VGPU_LITMUS_TESTS (generated, of a family) ask for more.
 */
#include <shim.h>
#include <stdio.h>
#include <stdlib.h>

#include <vgpu/litmus/compare.h>

#ifdef __SANITIZE_ADDRESS__ /* slower */
enum { TESTS = 40, RUNS = 30 };
#else
enum { TESTS = 200, RUNS = 150 };
#endif

static unsigned setting(const char *name, unsigned otherwise)
{
    const char *text = getenv(name);
    return text ? (unsigned)atoi(text) : otherwise;
}

/* Prints the test that differs, and the smallest one that does. */
static void say(const struct vl_test *test, const struct vl_comparison *how,
                enum vl_verdict verdict, const struct vl_finding *finding)
{
    char text[2048], smallest[2048], outcome[512];
    struct vl_test small = *test;
    vl_print(test, text, sizeof text);
    vl_print_outcome(test, &finding->outcome, outcome, sizeof outcome);
    vl_shrink(&small, how, verdict);
    vl_print(&small, smallest, sizeof smallest);
    tt_test_fail(__FILE__, __LINE__, "%s (seed %llu, outcome %s):\n%s\nsmallest: %s",
                 vl_verdicts[verdict], (unsigned long long)finding->seed, outcome, text, smallest);
}

static void compare(const struct vl_test *test, const struct vl_comparison *how,
                    struct vl_totals *totals)
{
    struct vl_finding finding;
    const enum vl_verdict verdict = vl_compare(test, how, totals, &finding);
    if (verdict != VL_AGREES) say(test, how, verdict, &finding);
}

static void print(const char *what, const struct vl_totals *t)
{
    printf("%-10s %u tests (%u can race, %u in part), %llu runs: %llu with a race, %llu without, "
           "%llu either, %llu beyond the axioms; known difference: %llu missed; "
           "not judged: %llu missed; "
           "%llu of %llu allowed outcomes shown; %llu older values\n",
           what, t->tests, t->racy, t->mixed, (unsigned long long)t->runs,
           (unsigned long long)t->with_race, (unsigned long long)t->without_race,
           (unsigned long long)t->either, (unsigned long long)t->undefined,
           (unsigned long long)t->missed, (unsigned long long)t->unjudged,
           (unsigned long long)t->shown, (unsigned long long)t->allowed,
           (unsigned long long)t->older);
}

static void compare_named(bool reachable)
{
    const struct vl_comparison how = {
        .runs = setting("VGPU_LITMUS_RUNS", RUNS), .reachable = reachable, .strict = true};
    struct vl_totals totals = {0};
    for (unsigned k = 0; k < vl_named_count(); k++) {
        struct vl_test test;
        vl_named(k, &test);
        compare(&test, &how, &totals);
    }
    print(reachable ? "named, reachable" : "named", &totals);
}

TEST(vgpu_litmus, named_tests_agree_with_the_axioms_in_every_run)
{
    compare_named(false);
}

static void compare_family(enum vl_family family, bool reachable)
{
    const struct vl_comparison how = {.runs = setting("VGPU_LITMUS_RUNS", RUNS),
                                      .reachable = reachable,
                                      .strict = family != VL_SIZES && family != VL_MIXED};
    const unsigned tests = setting("VGPU_LITMUS_TESTS", TESTS),
                   first = setting("VGPU_LITMUS_SEED", 1);
    struct vl_totals totals = {0};
    for (unsigned k = 0; k < tests; k++) {
        struct vl_test test;
        vl_generate(first + k, family, &test);
        compare(&test, &how, &totals);
    }
    printf("seeds %u to %u: ", first, first + tests - 1);
    print(vl_families[family], &totals);
}

TEST(vgpu_litmus, generated_words_agree_with_the_axioms)
{
    compare_family(VL_PLAIN, false);
}

TEST(vgpu_litmus, generated_accesses_that_overlap_in_part_agree_with_the_axioms)
{
    compare_family(VL_SIZES, false);
}

TEST(vgpu_litmus, generated_atomics_agree_with_the_axioms)
{
    compare_family(VL_ATOMICS, false);
}

TEST(vgpu_litmus, generated_barriers_agree_with_the_axioms)
{
    compare_family(VL_MEETINGS, false);
}

TEST(vgpu_litmus, generated_grids_agree_with_the_axioms)
{
    compare_family(VL_STREAMED, false);
}

TEST(vgpu_litmus, generated_read_only_loads_agree_with_the_axioms)
{
    compare_family(VL_READONLY, false);
}

TEST(vgpu_litmus, messages_through_reachable_memory_agree_with_the_axioms)
{
    compare_family(VL_REACHED, true);
}

/* The races of words are all reported when nobody else writes there; others need not be. */
TEST(vgpu_litmus, reachable_memory_shows_nothing_forbidden)
{
    compare_family(VL_HOSTED, true);
    compare_family(VL_PLAIN, true);
    compare_family(VL_SIZES, true);
    compare_family(VL_ATOMICS, true);
    compare_family(VL_STREAMED, true);
    compare_family(VL_MEETINGS, true);
    compare_family(VL_FENCED, true);
    compare_family(VL_MIXED, true);
}

TEST(vgpu_litmus, named_tests_in_reachable_memory_show_nothing_forbidden)
{
    compare_named(true);
}

TEST(vgpu_litmus, generated_messages_agree_with_the_axioms)
{
    compare_family(VL_MESSAGES, false);
    compare_family(VL_MESSAGES, true);
}

TEST(vgpu_litmus, generated_fences_agree_with_the_axioms)
{
    compare_family(VL_FENCED, false);
}

TEST(vgpu_litmus, generated_mixtures_agree_with_the_axioms)
{
    compare_family(VL_MIXED, false);
}
