/* Draws a token from logits: temperature, the likeliest k, the likeliest of probability p. */
#include <math.h>
#include <stdlib.h>

#include "generate.h"

struct tr_choice tr_choice_of(const struct tr_config *config)
{
    return (struct tr_choice){.temperature = config->temperature,
                              .top_k = (long)config->top_k,
                              .top_p = config->top_p,
                              .seed = (uint64_t)config->seed};
}

struct likely {
    double logit;
    long place;
};

/* The likelier first; of equals the first. */
static int compare(const void *a, const void *b)
{
    const struct likely *x = a, *y = b;
    if (x->logit != y->logit) return x->logit > y->logit ? -1 : 1;
    return x->place < y->place ? -1 : 1;
}

/* Gives weight 0 to what --top-k and --top-p leave out. */
static void leave_out(const struct tr_choice *choice, const float *logits, long n, double *weights)
{
    struct likely order[TR_BYTES];
    double all = 0, so_far = 0;
    if (!choice->top_k && choice->top_p >= 1) return;
    for (long i = 0; i < n; ++i) order[i] = (struct likely){(double)logits[i], i};
    qsort(order, (size_t)n, sizeof *order, compare);
    const long most = choice->top_k && choice->top_k < n ? choice->top_k : n;
    for (long i = 0; i < most; ++i) all += weights[order[i].place];
    for (long i = 0; i < n; ++i) {
        const bool is_out = i >= most || (i > 0 && so_far >= choice->top_p * all);
        so_far += weights[order[i].place];
        if (is_out) weights[order[i].place] = 0;
    }
}

long tr_choice_draw(const struct tr_choice *choice, const float *logits, long n, double uniform)
{
    double weights[TR_BYTES];
    long best = 0;
    for (long i = 1; i < n; ++i)
        if (logits[i] > logits[best]) best = i;
    if (choice->temperature <= 0) return best;
    for (long i = 0; i < n; ++i)
        weights[i] = exp(((double)logits[i] - (double)logits[best]) / choice->temperature);
    leave_out(choice, logits, n, weights);
    double total = 0;
    for (long i = 0; i < n; ++i) total += weights[i];
    double rest = uniform * total;
    long last = best;
    for (long i = 0; i < n; ++i) {
        if (weights[i] > 0) last = i;
        rest -= weights[i];
        if (rest < 0) return i;
    }
    return last; /* the sum was rounded */
}
