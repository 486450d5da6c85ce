/* See compare.h. */
#include <stdio.h>
#include <stdlib.h>

#include <vgpu/litmus/compare.h>

const char *const vl_verdicts[VL_VERDICTS] = {
    "no difference",
    "this outcome is forbidden",
    "a race is reported in a run that has none",
    "a run that has a race is not reported",
    "a race is never reported",
    "the test is too large, waits for ever, or there is no memory",
};

/* Every eighth run reads the newest values, every eighth the oldest; histories are short and soon
 * forgotten in some. */
static struct vl_run run_of(const struct vl_comparison *how, uint64_t seed)
{
    return (struct vl_run){.calls = how->calls,
                           .seed = seed,
                           .reads = seed % 8 == 0   ? VG_READ_NEWEST
                                    : seed % 8 == 1 ? VG_READ_OLDEST
                                                    : VG_READ_RANDOM,
                           .depth = seed % 16 == 3 ? 2 : 0,
                           .late = seed % 16 == 5 ? 4 : 0,
                           .reachable = how->reachable,
                           .looked = how->reachable && seed / 8 % 4 != 0};
}

static bool has_host(const struct vl_test *test)
{
    for (unsigned g = 0; g < test->ngrids; g++)
        if (test->grids[g].device == VL_HOST) return true;
    return false;
}

static bool may_miss(const struct vl_comparison *how, const struct vl_run *run)
{
    return (run->reachable && !(how->strict && run->looked)) || run->depth || run->late;
}

/* The axioms do not apply to a program with a race of partly overlapping accesses (8.7.2): then a
 * run may end in any way, but a race must be reported in a run that the axioms do not allow. A
 * model that forgets early, or of reachable memory, may miss races. */
static enum vl_verdict judge(const struct vl_comparison *how, const struct vl_allowed *allowed,
                             const struct vl_seen *seen, const struct vl_result *result,
                             const struct vl_run *run)
{
    if (!seen && !allowed->mixed) return VL_FORBIDDEN;
    if (result->races) return !seen || seen->racy ? VL_AGREES : VL_FALSE_RACE;
    return may_miss(how, run) || (seen && seen->unsure) ? VL_AGREES : VL_MISSED_RACE;
}

static void list_missing(const struct vl_test *test, const struct vl_allowed *allowed,
                         const bool *shown)
{
    char text[512];
    if (!getenv("VGPU_LITMUS_LIST")) return;
    for (unsigned k = 0; k < allowed->noutcomes; k++) {
        if (shown[k]) continue;
        vl_print_outcome(test, &allowed->outcomes[k].outcome, text, sizeof text);
        printf("allowed, never shown: %s: %s\n", test->name, text);
    }
}

static void count(struct vl_totals *totals, const struct vl_seen *seen,
                  const struct vl_result *result, bool unjudged)
{
    const bool missed = seen && !seen->clean && !result->races;
    totals->runs++;
    totals->older += result->older;
    totals->undefined += !seen;
    totals->either += seen && seen->racy && seen->clean;
    totals->with_race += seen && seen->racy && !seen->clean;
    totals->without_race += seen && !seen->racy;
    totals->missed += missed && !unjudged;
    totals->unjudged += missed && unjudged;
}

enum vl_verdict vl_compare(const struct vl_test *test, const struct vl_comparison *asked,
                           struct vl_totals *totals, struct vl_finding *finding)
{
    struct vl_comparison told = *asked;
    const struct vl_comparison *how = &told;
    struct vl_allowed allowed;
    struct vl_totals none = {0};
    enum vl_verdict verdict = VL_AGREES;
    unsigned reported = 0;
    if (!totals) totals = &none;
    told.strict = asked->strict && !has_host(test);
    *finding = (struct vl_finding){.seed = 0};
    if (vl_enumerate(test, how->without, &allowed)) return VL_BROKEN;
    bool *shown = calloc(allowed.noutcomes + 1, sizeof *shown);
    if (!shown || !allowed.noutcomes) verdict = VL_BROKEN;
    for (uint64_t seed = 1; seed <= how->runs && verdict == VL_AGREES; seed++) {
        const struct vl_run run = run_of(how, seed);
        struct vl_result result;
        finding->seed = seed;
        if (vl_run(test, &run, &result)) {
            verdict = VL_BROKEN;
            break;
        }
        const struct vl_seen *seen = vl_find(&allowed, &result.outcome);
        finding->outcome = result.outcome;
        verdict = judge(how, &allowed, seen, &result, &run);
        reported += result.races != 0;
        count(totals, seen, &result, may_miss(how, &run));
        if (seen) shown[seen - allowed.outcomes] = true;
    }
    if (verdict == VL_AGREES && allowed.sure && !reported && (!how->reachable || how->strict))
        verdict = VL_NEVER_REPORTED;
    totals->tests++;
    totals->racy += allowed.racy;
    totals->mixed += allowed.mixed;
    totals->allowed += allowed.noutcomes;
    for (unsigned k = 0; k < allowed.noutcomes && shown; k++) totals->shown += shown[k];
    if (shown && verdict != VL_BROKEN) list_missing(test, &allowed, shown);
    free(shown);
    vl_allowed_free(&allowed);
    return verdict;
}
