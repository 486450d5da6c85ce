/* Draws text from the model, one byte after the other. */
#include "gpt.h"

#include <math.h>
#include <string.h>

#include "../random.h"

/* Draws from softmax(logits / temperature); the likeliest at temperature 0. */
static unsigned char draw(const float *logits, double temperature, double uniform)
{
    int best = 0;
    for (int i = 1; i < TR_VOCABULARY; ++i)
        if (logits[i] > logits[best]) best = i;
    if (temperature <= 0) return (unsigned char)best;
    double weights[TR_VOCABULARY], total = 0;
    for (int i = 0; i < TR_VOCABULARY; ++i) {
        weights[i] = exp(((double)logits[i] - (double)logits[best]) / temperature);
        total += weights[i];
    }
    double rest = uniform * total;
    for (int i = 0; i < TR_VOCABULARY; ++i) {
        rest -= weights[i];
        if (rest < 0) return (unsigned char)i;
    }
    return (unsigned char)best;
}

void tr_gpt_sample(const struct tr_gpt *gpt, const float *weights, struct tr_acts *acts,
                   const char *prompt, unsigned char *out, long count, double temperature,
                   uint64_t seed)
{
    const long context = gpt->size.context;
    const long given = (long)strlen(prompt);
    for (long at = 0; at < count; ++at) {
        /* The last `context` bytes of prompt and what was drawn so far; a line feed when there are
         * none. */
        const long all = given + at, length = all < context ? all : context;
        unsigned char line_feed = '\n', *tokens = &line_feed, window[4096];
        const long seen = length < (long)sizeof window ? length : (long)sizeof window;
        for (long i = 0; i < seen; ++i) {
            const long from = all - seen + i;
            window[i] = from < given ? (unsigned char)prompt[from] : out[from - given];
        }
        if (seen) tokens = window;
        const long n = seen ? seen : 1;
        tr_gpt_forward(gpt, weights, acts, tokens, 1, n);
        out[at] = draw(acts->logits + (n - 1) * TR_VOCABULARY, temperature,
                       tr_random_uniform(seed, TR_RANDOM_SAMPLE, 0, (uint64_t)at));
    }
}
