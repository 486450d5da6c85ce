/* tutti-plan: any schedule for any number of ranks, printed, proved and counted; a model of its
 * time on GPUs (cost); and the constants of the cost model, measured (tune.c). */
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cost/cost.h"
#include "plan_options.h"
#include "programs/streams.h"
#include "tune.h"
#include "tutti.h"

static struct plan_options options;

/* An algorithm of a collective. */
struct subject {
    tuttiCollective_t collective;
    const char *algorithm;
    bool named; /* asked for by its name */
};

/* ---- Subjects ------------------------------------------------------------------------------- */

static int next_ranks(int nranks)
{
    int next = 0;
    for (int i = 0; i < options.nranges; i++) {
        const struct plan_range *range = &options.ranks[i];
        const int candidate = nranks < range->from ? range->from : nranks + 1;
        if (candidate <= range->to && (next == 0 || candidate < next)) next = candidate;
    }
    return next;
}

/* The index-th placement of ranks to look at, once *place is the one before; false past the end. */
static bool place_at(const struct subject *subject, int index, struct plan_place *place)
{
    if (options.nplaces > 0) {
        if (index < options.nplaces) *place = options.places[index];
        return index < options.nplaces;
    }
    if (strchr(subject->algorithm, '/') && options.nusual > 0) {
        if (index < options.nusual) *place = options.usual[index];
        return index < options.nusual;
    }
    *place = (struct plan_place){.nranks = next_ranks(index > 0 ? place->nranks : 0)};
    return place->nranks > 0;
}

static tuttiResult_t create(tuttiPlan_t *plan, const struct subject *subject,
                            const struct plan_place *place, int root)
{
    if (!place->host_of)
        return tuttiPlanCreate(plan, subject->collective, subject->algorithm, place->nranks, root);
    return tuttiPlanCreateOnHosts(plan, subject->collective, subject->algorithm, place->nranks,
                                  root, place->host_of);
}

/* Whether it is an algorithm that nobody named and that cannot be on these hosts. */
static bool is_elsewhere(const struct subject *subject, const struct plan_place *place)
{
    return !subject->named && !tuttiAlgorithmFits(subject->collective, subject->algorithm,
                                                  place->nranks, place->host_of);
}

static int visit(int (*visitor)(const struct subject *), int collective, const char *algorithm)
{
    int result = PLAN_DONE;
    bool found = false;
    const char *name;
    for (int i = 0; (name = tuttiAlgorithmName((tuttiCollective_t)collective, i)) != NULL; i++) {
        if (algorithm ? strcmp(name, algorithm) != 0 : strchr(name, '/') && !options.pairs)
            continue;
        if (options.deterministic &&
            !tuttiAlgorithmIsDeterministic((tuttiCollective_t)collective, name)) {
            if (!algorithm) continue;
            return plan_complain("a deterministic communicator does not use", algorithm);
        }
        const struct subject subject = {.collective = (tuttiCollective_t)collective,
                                        .algorithm = name,
                                        .named = algorithm != NULL};
        const int outcome = visitor(&subject);
        if (outcome > result) result = outcome;
        found = true;
    }
    return found ? result
                 : plan_complain("there is no such algorithm (see tutti-plan list):", algorithm);
}

/* "all_reduce", "all_reduce:ring". */
static int visit_named(int (*visitor)(const struct subject *), const char *name)
{
    const char *colon = strchr(name, ':');
    const size_t length = colon ? (size_t)(colon - name) : strlen(name);
    for (int i = 0; i < tuttiNumCollectives; i++) {
        const char *collective = tuttiCollectiveName((tuttiCollective_t)i);
        if (strlen(collective) == length && strncmp(collective, name, length) == 0)
            return visit(visitor, i, colon ? colon + 1 : NULL);
    }
    return plan_complain("there is no such collective (see tutti-plan list):", name);
}

static int visit_all(int (*visitor)(const struct subject *))
{
    int result = PLAN_DONE;
    for (int i = 0; i < tuttiNumCollectives && options.all && result != PLAN_BAD_USAGE; i++) {
        const int outcome = visit(visitor, i, NULL);
        if (outcome > result) result = outcome;
    }
    for (int i = 0; i < options.nnames && result != PLAN_BAD_USAGE; i++) {
        const int outcome = visit_named(visitor, options.names[i]);
        if (outcome > result) result = outcome;
    }
    return result;
}

static void subject_name(const struct subject *subject, char *text, size_t size)
{
    snprintf(text, size, "%s:%s", tuttiCollectiveName(subject->collective), subject->algorithm);
}

/* The library has refused. */
static int fail(tuttiResult_t result)
{
    fflush(stdout);
    fprintf(stderr, "tutti-plan: %s\n", tuttiGetLastError(NULL));
    return result == tuttiInvalidArgument ? PLAN_BAD_USAGE : PLAN_WRONG;
}

/* The exit code where making a plan or proving it failed: InvalidUsage then means hosts on which
 * the algorithm cannot be. */
static int fail_plan(tuttiResult_t result)
{
    const int status = fail(result);
    return result == tuttiInvalidUsage ? PLAN_BAD_USAGE : status;
}

/* ---- list, print ---------------------------------------------------------------------------- */

static int list_one(const struct subject *subject)
{
    char name[64];
    subject_name(subject, name, sizeof name);
    puts(name);
    return PLAN_DONE;
}

static void print_line(void *arg, const char *line)
{
    (void)arg;
    printf("  %s\n", line);
}

static int print_ranks(tuttiPlan_t plan, int nranks)
{
    const int first = options.has_rank ? options.rank : 0;
    const int last = options.has_rank ? options.rank : nranks - 1;
    for (int rank = first; rank <= last; rank++) {
        if (!options.has_rank) printf("rank %d\n", rank);
        const tuttiResult_t result = tuttiPlanPrint(plan, rank, print_line, NULL);
        if (result != tuttiSuccess) return fail(result);
    }
    return PLAN_DONE;
}

static int print_one(const struct subject *subject)
{
    struct plan_place place;
    tuttiPlan_t plan;
    if (!place_at(subject, 0, &place)) return PLAN_DONE;
    const tuttiResult_t created = create(&plan, subject, &place, options.root);
    if (created != tuttiSuccess) return fail_plan(created);
    const int result = print_ranks(plan, place.nranks);
    tuttiPlanDestroy(plan);
    return result;
}

/* ---- verify --------------------------------------------------------------------------------- */

static struct {
    int algorithms;
    long cases, refuted;
} totals;

/* What verifying one algorithm has found. */
struct verdict {
    long cases, refuted;
    char first[2048]; /* refutation */
};

/* A refutation is a verdict, not an error. */
static tuttiResult_t verify_count(tuttiPlan_t plan, long long count, struct verdict *verdict)
{
    if (count < 0) return tuttiSuccess;
    const tuttiResult_t result = tuttiPlanVerify(plan, (size_t)count);
    if (result != tuttiSuccess && result != tuttiInvalidUsage) return result;
    verdict->cases++;
    if (result == tuttiSuccess) return tuttiSuccess;
    if (verdict->refuted++ == 0)
        snprintf(verdict->first, sizeof verdict->first, "%s", tuttiGetLastError(NULL));
    return tuttiSuccess;
}

static tuttiResult_t verify_root(const struct subject *subject, const struct plan_place *place,
                                 int root, struct verdict *verdict)
{
    tuttiPlan_t plan;
    const tuttiResult_t created = create(&plan, subject, place, root);
    if (created != tuttiSuccess) return created;
    tuttiResult_t result = tuttiSuccess;
    for (int i = 0; i < options.ncounts && result == tuttiSuccess; i++)
        result = verify_count(
            plan, options.counts[i].offset + (options.counts[i].has_n ? place->nranks : 0),
            verdict);
    tuttiPlanDestroy(plan);
    return result;
}

/* Every root that is asked for. */
static tuttiResult_t verify_roots(const struct subject *subject, const struct plan_place *place,
                                  struct verdict *verdict)
{
    const bool all = options.root == PLAN_ALL_ROOTS && tuttiCollectiveHasRoot(subject->collective);
    const int first = all || !tuttiCollectiveHasRoot(subject->collective) ? 0 : options.root;
    const int last = all ? place->nranks - 1 : first;
    tuttiResult_t result = tuttiSuccess;
    for (int root = first; root <= last && result == tuttiSuccess; root++)
        result = verify_root(subject, place, root, verdict);
    return result;
}

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static int verify_one(const struct subject *subject)
{
    struct verdict verdict = {.cases = 0};
    const double start = seconds();
    char name[64];
    subject_name(subject, name, sizeof name);
    struct plan_place place;
    for (int i = 0; place_at(subject, i, &place); i++) {
        if (is_elsewhere(subject, &place)) continue;
        const tuttiResult_t result = verify_roots(subject, &place, &verdict);
        if (result != tuttiSuccess) return fail_plan(result);
    }
    if (verdict.cases == 0) return PLAN_DONE;
    printf("%-52s %-8s %6ld cases %7.2f s\n", name, verdict.refuted ? "REFUTED" : "proved",
           verdict.cases, seconds() - start);
    if (verdict.refuted)
        printf("  %ld of %ld cases are wrong; the first: %s\n", verdict.refuted, verdict.cases,
               verdict.first);
    fflush(stdout);
    totals.algorithms++;
    totals.cases += verdict.cases;
    totals.refuted += verdict.refuted;
    return verdict.refuted ? PLAN_WRONG : PLAN_DONE;
}

/* Whether any count that was asked for is one with any number of ranks that was asked for. */
static bool any_case(void)
{
    for (int p = 0; p < options.nplaces; p++)
        for (int i = 0; i < options.ncounts; i++)
            if (options.counts[i].offset +
                    (options.counts[i].has_n ? options.places[p].nranks : 0) >=
                0)
                return true;
    for (int nranks = next_ranks(0); nranks > 0; nranks = next_ranks(nranks))
        for (int i = 0; i < options.ncounts; i++)
            if (options.counts[i].offset + (options.counts[i].has_n ? nranks : 0) >= 0) return true;
    return false;
}

static int verify_all(void)
{
    const double start = seconds();
    const int result = visit_all(verify_one);
    if (totals.algorithms > 0)
        printf("%d algorithms, %ld cases: %ld proved, %ld refuted, %.1f s\n", totals.algorithms,
               totals.cases, totals.cases - totals.refuted, totals.refuted, seconds() - start);
    return result;
}

/* ---- count ---------------------------------------------------------------------------------- */

static void bytes_text(uint64_t nbytes, char *text, size_t size)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    double value = (double)nbytes;
    int unit = 0;
    for (; value >= 9999.5 && unit < 6; unit++) value /= 1024;
    snprintf(text, size, unit == 0 || value >= 999.5 ? "%.0f %s" : "%.1f %s", value, units[unit]);
}

/* off_host: NULL where it is not counted. */
static void print_cost(const char *name, int nranks, const char *from, const tuttiPlanCost_t *cost,
                       const uint64_t *off_host)
{
    char sent[32], reduced[32], scratch[32], plan[32], off[32] = "";
    bytes_text(cost->bytesSent, sent, sizeof sent);
    bytes_text(cost->bytesReduced, reduced, sizeof reduced);
    bytes_text(cost->scratchBytes, scratch, sizeof scratch);
    bytes_text(cost->planBytes, plan, sizeof plan);
    if (off_host) bytes_text(*off_host, off, sizeof off);
    printf("%-52s %7d %-8s %8" PRIu64 " %8" PRIu64 " %11s %11s %11s %8s %11s\n", name, nranks, from,
           cost->steps, cost->depth, sent, reduced, scratch, plan, off);
}

/* Depth and sums of algorithms X/Y are at most what the formula says. */
static bool agrees(const char *name, const tuttiPlanCost_t *formula, const tuttiPlanCost_t *counted)
{
    if (!strchr(name, '/')) return memcmp(formula, counted, sizeof *formula) == 0;
    return counted->steps <= formula->steps && counted->depth <= formula->depth &&
           counted->bytesSent <= formula->bytesSent &&
           counted->bytesReduced <= formula->bytesReduced &&
           counted->scratchBytes <= formula->scratchBytes;
}

static int count_plan(const char *name, const struct plan_place *place, tuttiPlan_t plan)
{
    tuttiPlanCost_t formula, counted;
    uint64_t off_host = 0;
    tuttiResult_t result = tuttiPlanCost(plan, options.nbytes, 1, 0, &formula);
    if (result == tuttiSuccess && place->host_of)
        result = tuttiPlanOffHost(plan, options.nbytes, 1, &off_host);
    if (result != tuttiSuccess) return fail(result);
    print_cost(name, place->nranks, "formula", &formula, place->host_of ? &off_host : NULL);
    if (!options.exact) return PLAN_DONE;
    result = tuttiPlanCost(plan, options.nbytes, 1, 1, &counted);
    if (result != tuttiSuccess) return fail(result);
    const bool same = agrees(name, &formula, &counted);
    print_cost(name, place->nranks, same ? "counted" : "DIFFERS", &counted, NULL);
    return same ? PLAN_DONE : PLAN_WRONG;
}

static int count_one(const struct subject *subject)
{
    char name[64];
    int worst = PLAN_DONE;
    struct plan_place place;
    subject_name(subject, name, sizeof name);
    for (int i = 0; place_at(subject, i, &place); i++) {
        tuttiPlan_t plan;
        if (is_elsewhere(subject, &place)) continue;
        const tuttiResult_t created = create(&plan, subject, &place, options.root);
        if (created != tuttiSuccess) return fail_plan(created);
        const int result = count_plan(name, &place, plan);
        if (result > worst) worst = result;
        tuttiPlanDestroy(plan);
    }
    return worst;
}

static int count_all(void)
{
    printf("%-52s %7s %-8s %8s %8s %11s %11s %11s %8s %11s\n", "", "ranks", "from", "steps",
           "depth", "sent", "reduced", "scratch", "plan", options.nplaces ? "off host" : "");
    return visit_all(count_one);
}

/* ---- cost ----------------------------------------------------------------------------------- */

static bool are_on_one_host(const struct plan_place *place)
{
    for (int r = 1; r < place->nranks; r++)
        if (place->host_of[r] != place->host_of[0]) return false;
    return true;
}

static int run_cost(void)
{
    const struct plan_place *gpus = &options.gpus;
    char problem[COST_PROBLEM];
    if (!gpus->nranks) return plan_complain("--gpus is missing", NULL);
    if (!options.has_bytes) return plan_complain("--bytes is missing", NULL);
    if (options.nnames > 1) return plan_complain("cost takes one COLLECTIVE[:ALGORITHM]", NULL);
    const bool one_host = are_on_one_host(gpus);
    const struct cost_request request = {.name = options.nnames ? options.names[0] : "all_reduce",
                                         .nranks = gpus->nranks,
                                         .host_of = one_host ? NULL : gpus->host_of,
                                         .link = options.link ? options.link
                                                 : one_host   ? "nvlink4"
                                                              : "tcp",
                                         .staged = options.staged,
                                         .nblocks = options.nblocks,
                                         .nbytes = options.nbytes};
    return cost_print(&request, stdout, problem) ? PLAN_DONE : plan_complain(problem, NULL);
}

/* ---- Commands ------------------------------------------------------------------------------- */

static int need_ranks_and_names(void)
{
    if (options.nranges == 0 && options.nplaces == 0)
        return plan_complain("--ranks or --hosts is missing", NULL);
    if (options.nranges > 0 && options.nplaces > 0)
        return plan_complain("--ranks or --hosts, not both", NULL);
    options.pairs = options.nplaces > 0;
    if (options.nnames == 0 && !options.all)
        return plan_complain("which algorithm? COLLECTIVE[:ALGORITHM], or --all", NULL);
    return PLAN_DONE;
}

static int run_print(void)
{
    if (need_ranks_and_names() != PLAN_DONE) return PLAN_BAD_USAGE;
    if (options.nnames != 1 || !strchr(options.names[0], ':'))
        return plan_complain("print takes one COLLECTIVE:ALGORITHM", NULL);
    if (options.nplaces != 1 &&
        (options.nranges != 1 || options.ranks[0].from != options.ranks[0].to))
        return plan_complain("print takes one number of ranks, or one --hosts", NULL);
    if (options.root == PLAN_ALL_ROOTS) return plan_complain("print takes one root", NULL);
    return visit_all(print_one);
}

static void take_usual_hosts(void)
{
    const char *text;
    options.pairs = true;
    for (int i = 0; (text = tuttiPlanPlacement(i)) != NULL && i < PLAN_MOST_ITEMS; i++)
        if (plan_place_parse(&options.usual[i], text)) options.nusual++;
}

static int run_command(void)
{
    if (strcmp(options.command, "list") == 0) {
        options.all = options.pairs = true;
        return visit_all(list_one);
    }
    if (strcmp(options.command, "print") == 0) return run_print();
    if (strcmp(options.command, "verify") == 0) {
        if (!options.has_root) options.root = PLAN_ALL_ROOTS;
        if (need_ranks_and_names() != PLAN_DONE) return PLAN_BAD_USAGE;
        if (options.all && options.nplaces == 0) take_usual_hosts();
        if (!any_case())
            return plan_complain("no count of --counts is 0 or more with --ranks", NULL);
        return verify_all();
    }
    if (strcmp(options.command, "count") == 0) {
        if (need_ranks_and_names() != PLAN_DONE) return PLAN_BAD_USAGE;
        if (!options.has_bytes) return plan_complain("--bytes is missing", NULL);
        if (options.root == PLAN_ALL_ROOTS) return plan_complain("count takes one root", NULL);
        return count_all();
    }
    if (strcmp(options.command, "cost") == 0) return run_cost();
    if (strcmp(options.command, "tune") == 0) {
        if (options.nnames > 0)
            return plan_complain("tune takes no names of collectives, but there is",
                                 options.names[0]);
        return tune_run(&options);
    }
    return plan_complain("there is no such command:", options.command);
}

int main(int argc, char *argv[])
{
    streams_begin("tutti-plan");
    const int wrong = plan_options_parse(&options, argc, argv);
    return wrong ? wrong : run_command();
}
