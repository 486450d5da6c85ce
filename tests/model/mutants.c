/* Runs all scenarios with the protocol as it is written, and then with each mutant: one order, one
 * operation of one site changed. Each must fail in some scenario, or be listed here with the reason
 * why it does not. */
#include <stdio.h>
#include <string.h>

#include "ranks.h"
#include "scenarios.h"
#include "shim.h"

/* Enough for each scenario as it is written; a mutant may have more executions. */
static const uint64_t most_executions = 4000000, most_of_mutant = 400000;

static struct tt_exploration exploration;

struct mutant {
    struct tt_site *site; /* NULL: the second look is left out */
    enum tt_mutation mutation;
};

/* A mutant that no scenario notices, and why. */
struct unnoticed {
    const char *function, *object;
    enum tt_operation operation;
    enum tt_mutation mutation;
    const char *why;
};
static const struct unnoticed unnoticed[] = {
    {"tt_sleep_arm", "nwakes", TT_AT_LOAD, TT_RELAXED,
     "keeps the store of asleep behind it on processors that buffer loads; the model has none"},
    {"wake", "nwakes", TT_AT_ADD, TT_RELAXED,
     "keeps the exchange of asleep before it on processors that buffer loads; the model has none"},
    {"wake", "nwakes", TT_AT_ADD, TT_TORN,
     "of two wakes that count as one, who armed between them has seen what the second published"},
    {"count_locked", "number", TT_AT_SUBTRACT, TT_LATE,
     "a rank that is counted for longer costs publishers a look"},
    {"tt_sleep_retire", "number", TT_AT_SUBTRACT, TT_LATE,
     "a rank that is counted for longer costs publishers a look"},
    {"tt_sleep_retire", "is_counted", TT_AT_STORE, TT_LATE,
     "still under the lock; without it is_counted is only a hint that it may be time to retire"},
    {"tt_sleep_wake", "npasses", TT_AT_STORE, TT_LATE,
     "a wrong npasses only moves the moment at which the rank retires"},
    {"tt_sleep_arm", "npasses", TT_AT_STORE, TT_LATE,
     "a wrong npasses only moves the moment at which the rank retires"},
    {"tt_sleep_wait", "nsleeps", TT_AT_ADD, TT_LATE, "a counter, which orders nothing"},
    {"count_locked", "nbarriers", TT_AT_ADD, TT_LATE, "a counter, which orders nothing"},
    {"count_locked", "nbarriers", TT_AT_ADD, TT_TORN, "a counter, which is changed under the lock"},
    {"tt_sleep_open", "wakes", TT_AT_STORE, TT_RELAXED,
     "the exchange of all ranks before tt_sleep_finish orders it already; sleep.c alone needs it"},
    {"tt_sleep_finish", "wakes", TT_AT_LOAD, TT_RELAXED,
     "the exchange of all ranks before tt_sleep_finish orders it already; sleep.c alone needs it"},
    {NULL, NULL, TT_AT_LOAD, TT_AS_WRITTEN, NULL},
};

static bool is_of_protocol(const struct tt_site *site)
{
    static const char *const files[] = {"host/sleep.c", "host/sleep.h", "host/shm.c",
                                        "host/meeting.h"};
    bool found = false;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        found = found || strstr(site->file, files[i]);
    return found;
}

static const char *text_of(const struct mutant *mutant)
{
    static char text[256];
    static const char *const operations[] = {[TT_AT_LOAD] = "load",
                                             [TT_AT_STORE] = "store",
                                             [TT_AT_ADD] = "fetch_add",
                                             [TT_AT_SUBTRACT] = "fetch_sub",
                                             [TT_AT_OR] = "fetch_or",
                                             [TT_AT_EXCHANGE] = "exchange",
                                             [TT_AT_COMPARE] = "compare_exchange",
                                             [TT_AT_FENCE] = "fence",
                                             [TT_AT_LOCK] = "lock",
                                             [TT_AT_SYSTEM_CALL] = "system call",
                                             [TT_AT_UNLOCK] = "unlock",
                                             [TT_AT_COMPILER_FENCE] = "compiler fence"};
    static const char *const mutations[] = {[TT_RELAXED] = "relaxed",
                                            [TT_ACQ_REL] = "acquire and release only",
                                            [TT_ACQUIRE] = "acquire only",
                                            [TT_RELEASE] = "release only",
                                            [TT_LEFT_OUT_LOCKED] = "left out in tt_sleep_retire",
                                            [TT_LEFT_OUT] = "left out",
                                            [TT_TORN] = "a load and a store",
                                            [TT_LATE] = "after what follows",
                                            [TT_BLIND] = "does not compare"};
    if (!mutant->site) return "the second look left out";
    const char *object = mutant->site->object;
    if (strrchr(object, '>')) object = strrchr(object, '>') + 1;
    if (strrchr(object, '.')) object = strrchr(object, '.') + 1;
    snprintf(text, sizeof text, "%s: %s%s%s %s", mutant->site->function,
             operations[mutant->site->operation], *object ? " " : "", object,
             mutations[mutant->mutation]);
    return text;
}

static bool applies(const struct tt_site *site, enum tt_mutation mutation)
{
    const enum tt_operation operation = site->operation;
    const bool is_change = operation == TT_AT_ADD || operation == TT_AT_SUBTRACT ||
                           operation == TT_AT_OR || operation == TT_AT_EXCHANGE ||
                           operation == TT_AT_COMPARE;
    const bool waits = !strcmp(site->function, "tt_sleep_wait");
    switch (mutation) {
    case TT_RELAXED:
        return (is_change || operation == TT_AT_LOAD || operation == TT_AT_STORE) &&
               site->order != memory_order_relaxed;
    case TT_ACQUIRE:
    case TT_RELEASE:
        return is_change && site->order == memory_order_acq_rel;
    case TT_LEFT_OUT_LOCKED:
        return operation == TT_AT_LOAD && !strcmp(site->function, "wake");
    case TT_ACQ_REL:
        return operation == TT_AT_FENCE;
    case TT_LEFT_OUT: /* who does not wait looks again: a spin, and no wake is lost */
        return operation != TT_AT_UNLOCK && operation != TT_AT_COMPILER_FENCE && !waits;
    case TT_TORN:
        return is_change;
    case TT_LATE:
        return is_change || operation == TT_AT_STORE;
    case TT_BLIND:
        return operation == TT_AT_SYSTEM_CALL && waits;
    default:
        return false;
    }
}

/* The scenario that notices the mutant; NULL: none. */
static const struct tt_scenario *find_noticing(const struct mutant *mutant, bool *ended)
{
    const struct tt_scenario *noticing = NULL;
    *ended = true;
    tt_machine_mutate(mutant->site, mutant->mutation);
    tt_scenarios_look_once = !mutant->site;
    for (int s = 0; s < tt_nscenarios && !noticing; s++) {
        if (tt_scenarios[s].is_large ||
            (mutant->site && !(mutant->site->scenarios & UINT64_C(1) << s)))
            continue;
        tt_machine_explore(&tt_scenarios[s], most_of_mutant, &exploration);
        *ended = *ended && exploration.ended;
        if (exploration.failed) noticing = &tt_scenarios[s];
    }
    tt_machine_mutate(NULL, TT_AS_WRITTEN);
    tt_scenarios_look_once = false;
    return noticing;
}

static const char *why_unnoticed(const struct mutant *mutant)
{
    for (size_t i = 0; mutant->site && unnoticed[i].function; i++)
        if (unnoticed[i].mutation == mutant->mutation &&
            unnoticed[i].operation == mutant->site->operation &&
            !strcmp(unnoticed[i].function, mutant->site->function) &&
            (!unnoticed[i].object || strstr(mutant->site->object, unnoticed[i].object)))
            return unnoticed[i].why;
    return NULL;
}

static void try_mutant(const struct mutant *mutant)
{
    bool ended;
    const struct tt_scenario *noticing = find_noticing(mutant, &ended);
    const char *why = why_unnoticed(mutant);
    const int length = noticing ? (int)strcspn(exploration.error, "\n") : 0;
    printf("  %-60s %s%s%.*s\n", text_of(mutant),
           noticing ? noticing->name
           : ended  ? "not noticed: "
                    : "not noticed, with more executions left: ",
           noticing ? ": "
           : why    ? why
                    : "",
           length, exploration.error);
    fflush(stdout);
    CHECK_MESSAGE(noticing || why, "no scenario notices: %s", text_of(mutant));
    CHECK_MESSAGE(!noticing || !why, "%s notices what is listed as not noticed: %s",
                  noticing ? noticing->name : "", text_of(mutant));
}

static void run_as_written(const struct tt_scenario *scenario)
{
    tt_machine_explore(scenario, most_executions, &exploration);
    printf("  %-20s %8llu executions %7llu states %3d operations: %s\n", scenario->name,
           (unsigned long long)exploration.executions, (unsigned long long)exploration.states,
           exploration.longest, scenario->says);
    fflush(stdout);
    CHECK_MESSAGE(!exploration.failed, "%s: %s", scenario->name, exploration.error);
    CHECK_MESSAGE(exploration.ended, "%s: more than %llu executions", scenario->name,
                  (unsigned long long)most_executions);
}

/* First as it is written, by which the machine also learns the sites. */
TEST(model, no_wake_is_lost_and_mutants_are_noticed)
{
    REQUIRE(tt_model_open());
    for (int s = 0; s < tt_nscenarios; s++) {
        REQUIRE(tt_scenarios[s].number == s);
        run_as_written(&tt_scenarios[s]);
    }
    try_mutant(&(struct mutant){.site = NULL});
    for (struct tt_site *site = tt_machine_sites(); site; site = site->next)
        for (enum tt_mutation m = TT_RELAXED; m < TT_MUTATIONS; m++)
            if (is_of_protocol(site) && applies(site, m))
                try_mutant(&(struct mutant){.site = site, .mutation = m});
}
