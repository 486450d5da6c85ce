/* Fits constants to times with the library's model (algorithms/fit.h), and shows them. */
#include "fit/fit.h"

#include <stdlib.h>
#include <string.h>

#include "algorithms/fit.h"
#include "base/clock.h"
#include "base/config.h"
#include "datatype/datatype.h"

static const int64_t MOST_NS = 2000000000; /* of the search; it takes 0.1 s */
enum { MOST_SETTINGS = 64 };

/* The times as the library's model takes them. */
struct input {
    struct tt_setting settings[MOST_SETTINGS]; /* one for each number of ranks */
    int nranks[MOST_SETTINGS], nsettings;
    struct tt_timing *timings;
};

static bool complain(void)
{
    fprintf(stderr, "tutti-plan: %s\n", tt_last_error());
    return false;
}

/* As a communicator of ranks of one host has it. */
static struct tt_setting setting_of(double ranks_per_core)
{
    const char *wait = tt_config_string(TT_CONFIG_WAIT);
    const bool spins = !strcmp(wait, "spin"), yields = !strcmp(wait, "yield");
    return (struct tt_setting){.one_host = true,
                               .oversubscribed = yields || (!spins && ranks_per_core > 1),
                               .ranks_per_core = ranks_per_core,
                               .meet_bytes = (size_t)tt_config_int(TT_CONFIG_MEET_BYTES),
                               .slot_bytes = (size_t)tt_config_int(TT_CONFIG_SLOT_BYTES)};
}

/* NULL: there are too many numbers of ranks. */
static const struct tt_setting *setting_for(struct input *input, const struct fit_time *time)
{
    int i = 0;
    while (i < input->nsettings && input->nranks[i] != time->nranks) i++;
    if (i == MOST_SETTINGS) return NULL;
    if (i == input->nsettings) {
        input->nranks[i] = time->nranks;
        input->settings[i] = setting_of(time->ranks_per_core);
        input->nsettings++;
    }
    return &input->settings[i];
}

static bool convert(struct input *input, const struct fit_time *times, int ntimes)
{
    for (int i = 0; i < ntimes; i++) {
        const enum tt_collective collective = (enum tt_collective)times[i].collective;
        input->timings[i] =
            (struct tt_timing){.algorithm = tt_algorithm_find(collective, times[i].algorithm),
                               .nranks = times[i].nranks,
                               .setting = setting_for(input, &times[i]),
                               .nbytes = times[i].nbytes,
                               .us = times[i].us};
        if (!input->timings[i].algorithm || !input->timings[i].setting) {
            fprintf(stderr, "tutti-plan: no time can be fitted of %s:%s for %d ranks\n",
                    tt_collective_name(collective), times[i].algorithm, times[i].nranks);
            return false;
        }
    }
    return true;
}

/* Whether these constants choose no worse. What is within 1.15 of the fastest is near enough, for
 * repeated measurements differ by as much. */
static bool is_no_worse(const struct tt_fit_rating *found, const struct tt_fit_rating *shipped)
{
    const double near = shipped->worst > 1.15 ? shipped->worst : 1.15;
    return found->mean <= shipped->mean && found->worst <= near;
}

static void print_rating(FILE *table, const char *of, const struct tt_fit_rating *rating,
                         const struct tt_timing *timings)
{
    const struct tt_timing *worst = &timings[rating->worst_at];
    fprintf(table, "%s constants: %.3f in the mean, at worst %.2f (%s:%s, %zu bytes, %d ranks)\n",
            of, rating->mean, rating->worst, tt_collective_name(worst->algorithm->collective),
            worst->algorithm->name, worst->nbytes, worst->nranks);
}

static void print_table(FILE *table, const struct tt_costs *shipped, const struct tt_costs *found)
{
    fprintf(table, "%-13s %12s %12s   (microseconds)\n", "constant", "shipped", "measured");
    for (int i = 0; i < TT_NCOSTS; i++) {
        const double before = shipped->at[i].value, value = found->at[i].value;
        if (!shipped->at[i].name) continue;
        if (value != before)
            fprintf(table, "%-13s %12.6f %12.6f\n", found->at[i].name, before, value);
        else
            fprintf(table, "%-13s %12.6f %12s\n", found->at[i].name, before, "-");
    }
}

static void write_line(void *file, const char *line)
{
    fprintf(file, "%s\n", line);
}

/* The lines of the file, which the comment explains. */
static void keep_shipped(const char *why, const struct tt_costs *shipped, FILE *table, FILE *file)
{
    fprintf(table, "%s: the shipped constants are kept.\n", why);
    fprintf(file, "# %s: these are the shipped constants.\n", why);
    tt_costs_print(shipped, write_line, file);
}

static void report(const struct tt_fit *fit, const struct tt_timing *timings, FILE *table,
                   FILE *file)
{
    const struct tt_costs before = tt_costs_shipped(tt_has_fast_rep_movsb());
    const struct tt_costs found = tt_fit_search(fit, &before, tt_now_ns() + MOST_NS);
    const struct tt_fit_rating rating = tt_fit_rate(fit, &found);
    const struct tt_fit_rating shipped = tt_fit_rate(fit, &before);
    print_table(table, &before, &found);
    fputs("time of the chosen algorithm / time of the fastest one:\n", table);
    print_rating(table, "shipped ", &shipped, timings);
    print_rating(table, "measured", &rating, timings);
    if (is_no_worse(&rating, &shipped))
        tt_costs_print(&found, write_line, file);
    else
        keep_shipped("The measured constants choose worse than the shipped ones", &before, table,
                     file);
}

void fit_nothing(FILE *table, FILE *file)
{
    const struct tt_costs shipped = tt_costs_shipped(tt_has_fast_rep_movsb());
    keep_shipped("Fewer than a third of the times can be believed", &shipped, table, file);
}

bool fit_constants(const struct fit_time *times, int ntimes, FILE *table, FILE *file)
{
    struct tt_fit *fit;
    struct input input = {.nsettings = 0};
    input.timings = calloc((size_t)(ntimes > 0 ? ntimes : 1), sizeof *input.timings);
    if (!input.timings) {
        fprintf(stderr, "tutti-plan: out of memory for %d times\n", ntimes);
        return false;
    }
    bool fine = convert(&input, times, ntimes);
    if (fine && tt_fit_create(input.timings, ntimes, &fit)) fine = complain();
    if (fine) {
        report(fit, input.timings, table, file);
        tt_fit_destroy(fit);
    }
    free(input.timings);
    return fine;
}
