/* Fits the constants of the cost model to measured times: a search along one constant after the
 * other, on their logarithms, with steps that get smaller. The error has no derivative, because
 * the choice jumps and the model has maxima. */
#include "algorithms/fit.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "algorithms/model.h"
#include "base/clock.h"

static const double MOST_FACTOR = 20;
static const double FIRST_STEP = 0.7, LAST_STEP = 0.02; /* of a logarithm */
/* What adds to the error. Of each group:
 * - the logarithm of time of the chosen algorithm / time of the fastest one, times WEIGHT_CHOICE;
 * - the variance of the logarithms of predicted / measured: the choice depends on the ratio of
 *   predictions only, and a busy machine slows all algorithms of a group alike. The fastest
 *   algorithm counts once, slower ones less, because these are hardly chosen;
 * - the square of the mean of these logarithms, times WEIGHT_LEVEL: so predictions are times.
 * Of each constant: the squared logarithm of constant / start, times WEIGHT_START. */
static const double WEIGHT_CHOICE = 10, WEIGHT_LEVEL = 0.05, WEIGHT_START = 0.05;

struct tt_fit {
    int ntimings, nmodels;
    struct timing {
        struct tt_timing given;
        const struct tt_model *model;
        double weight;
    } * timings;
    struct tt_model *models; /* one for each algorithm on each number of ranks */
};

static bool same_group(const struct tt_timing *a, const struct tt_timing *b)
{
    return a->algorithm->collective == b->algorithm->collective && a->nranks == b->nranks &&
           a->nbytes == b->nbytes;
}

/* The end of the group that begins at `first`. */
static int group_end(const struct tt_fit *fit, int first)
{
    int end = first + 1;
    while (end < fit->ntimings && same_group(&fit->timings[first].given, &fit->timings[end].given))
        end++;
    return end;
}

static double fastest_of(const struct tt_fit *fit, int first, int end)
{
    double fastest = INFINITY;
    for (int i = first; i < end; i++) fastest = fmin(fastest, fit->timings[i].given.us);
    return fastest;
}

/* ---- Create, destroy ------------------------------------------------------------------------ */

static tt_status check(const struct tt_timing *timing, const struct tt_shape *shape)
{
    if (!(timing->us > 0) || !isfinite(timing->us))
        return tt_fail(TT_ERR_ARGUMENT, "%s:%s has a time of %g us; it must be above 0",
                       tt_collective_name(shape->collective), timing->algorithm->name, timing->us);
    const char *refusal = tt_refusal(timing->algorithm, shape);
    if (!refusal) return TT_OK;
    return tt_fail(TT_ERR_ARGUMENT, "%s:%s %s", tt_collective_name(shape->collective),
                   timing->algorithm->name, refusal);
}

/* The model of a timing's algorithm, which an earlier timing may have made. */
static const struct tt_model *model_for(struct tt_fit *fit, int index, const struct tt_shape *shape)
{
    const struct timing *timing = &fit->timings[index];
    for (int i = 0; i < index; i++)
        if (fit->timings[i].given.algorithm == timing->given.algorithm &&
            fit->timings[i].given.setting == timing->given.setting &&
            fit->timings[i].given.nranks == timing->given.nranks)
            return fit->timings[i].model;
    struct tt_model *model = &fit->models[fit->nmodels++];
    *model = tt_model_of(timing->given.algorithm, shape, timing->given.setting);
    return model;
}

static tt_status fill(struct tt_fit *fit, const struct tt_timing *timings)
{
    for (int i = 0; i < fit->ntimings; i++) {
        const struct tt_shape shape = {.collective = timings[i].algorithm->collective,
                                       .nranks = timings[i].nranks};
        TT_TRY(check(&timings[i], &shape));
        fit->timings[i].given = timings[i];
        fit->timings[i].model = model_for(fit, i, &shape);
    }
    for (int first = 0; first < fit->ntimings;) {
        const int end = group_end(fit, first);
        const double fastest = fastest_of(fit, first, end);
        for (int i = first; i < end; i++)
            fit->timings[i].weight = fastest / fit->timings[i].given.us;
        first = end;
    }
    return TT_OK;
}

tt_status tt_fit_create(const struct tt_timing *timings, int ntimings, struct tt_fit **out)
{
    if (ntimings < 1) return tt_fail(TT_ERR_ARGUMENT, "there are no times to fit constants to");
    struct tt_fit *fit = calloc(1, sizeof *fit);
    if (fit) {
        fit->ntimings = ntimings;
        fit->timings = calloc((size_t)ntimings, sizeof *fit->timings);
        fit->models = calloc((size_t)ntimings, sizeof *fit->models);
    }
    const tt_status status = fit && fit->timings && fit->models
                                 ? fill(fit, timings)
                                 : tt_fail(TT_ERR_SYSTEM, "out of memory for %d times", ntimings);
    if (status) {
        tt_fit_destroy(fit);
        return status;
    }
    *out = fit;
    return TT_OK;
}

void tt_fit_destroy(struct tt_fit *fit)
{
    if (!fit) return;
    free(fit->timings);
    free(fit->models);
    free(fit);
}

/* ---- Errors --------------------------------------------------------------------------------- */

static double predict(const struct timing *timing, const struct tt_costs *costs)
{
    struct tt_setting setting = *timing->given.setting;
    setting.costs = costs;
    return tt_model_us(timing->model, &setting, timing->given.nbytes);
}

/* What one group adds to the error. *chosen: the index of the algorithm that these constants
 * choose. */
static double group_error(const struct tt_fit *fit, int first, int end,
                          const struct tt_costs *costs, int *chosen)
{
    double weights = 0, sum = 0, squares = 0, least = INFINITY;
    *chosen = first;
    for (int i = first; i < end; i++) {
        const double us = predict(&fit->timings[i], costs), weight = fit->timings[i].weight;
        if (isinf(us)) continue; /* an element does not fit a message, so it is never chosen */
        const double off = log(us / fit->timings[i].given.us);
        weights += weight;
        sum += weight * off;
        squares += weight * off * off;
        if (!tt_is_clearly_cheaper(us, least)) continue;
        least = us;
        *chosen = i;
    }
    const double level = weights > 0 ? sum * sum / weights : 0;
    return squares - level + WEIGHT_LEVEL * level -
           WEIGHT_CHOICE * log(fit->timings[*chosen].weight);
}

struct tt_fit_rating tt_fit_rate(const struct tt_fit *fit, const struct tt_costs *costs)
{
    struct tt_fit_rating rating = {.worst = 0};
    double sum = 0;
    int ngroups = 0;
    for (int first = 0; first < fit->ntimings; ngroups++) {
        const int end = group_end(fit, first);
        int chosen;
        (void)group_error(fit, first, end, costs, &chosen);
        const double ratio = 1 / fit->timings[chosen].weight;
        sum += log(ratio);
        if (ratio > rating.worst) rating.worst = ratio, rating.worst_at = chosen;
        first = end;
    }
    rating.mean = exp(sum / ngroups);
    return rating;
}

/* ---- The search ----------------------------------------------------------------------------- */

struct search {
    const struct tt_fit *fit;
    const struct tt_costs *from;
    struct tt_costs best;
    double offsets[TT_NCOSTS]; /* logarithms of best / from */
    double error;              /* of best */
    int64_t deadline_ns;
};

static double error_of(const struct search *search, const struct tt_costs *costs,
                       const double *offsets)
{
    double error = 0;
    int chosen;
    for (int first = 0; first < search->fit->ntimings;) {
        const int end = group_end(search->fit, first);
        error += group_error(search->fit, first, end, costs, &chosen);
        first = end;
    }
    for (int i = 0; i < TT_NCOSTS; i++) error += WEIGHT_START * offsets[i] * offsets[i];
    return error;
}

/* Moves one constant by a step, if the error gets less. */
static bool try_step(struct search *search, int key, double step)
{
    struct tt_costs costs = search->best;
    double offsets[TT_NCOSTS];
    memcpy(offsets, search->offsets, sizeof offsets);
    offsets[key] += step;
    if (fabs(offsets[key]) > log(MOST_FACTOR)) return false;
    costs.at[key].value = search->from->at[key].value * exp(offsets[key]);
    const double error = error_of(search, &costs, offsets);
    if (error >= search->error) return false;
    search->best = costs;
    search->error = error;
    memcpy(search->offsets, offsets, sizeof offsets);
    return true;
}

static bool is_over(const struct search *search)
{
    return tt_now_ns() >= search->deadline_ns;
}

/* Moves each constant as far as that helps. */
static bool sweep(struct search *search, double step)
{
    bool moved = false;
    for (int key = 0; key < TT_NCOSTS; key++) {
        if (!search->from->at[key].name || tt_cost_is_between_hosts((enum tt_cost_key)key))
            continue;
        double direction = step;
        if (!try_step(search, key, direction)) {
            direction = -step;
            if (!try_step(search, key, direction)) continue;
        }
        moved = true;
        while (!is_over(search) && try_step(search, key, direction)) continue;
    }
    return moved;
}

struct tt_costs tt_fit_search(const struct tt_fit *fit, const struct tt_costs *from,
                              int64_t deadline_ns)
{
    struct search search = {.fit = fit, .from = from, .best = *from, .deadline_ns = deadline_ns};
    search.error = error_of(&search, from, search.offsets);
    for (double step = FIRST_STEP; step >= LAST_STEP; step /= 2)
        while (!is_over(&search) && sweep(&search, step)) continue;
    return search.best;
}
