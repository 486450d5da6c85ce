/* Cuts the text into windows, and gives them in an order drawn for each epoch. */
#include "data.h"

#include "../random.h"

uint64_t tr_sampler_windows(const struct tr_text *text, long context)
{
    /* One window less than fits leaves a whole window of room for the epoch's offset. */
    const uint64_t fit = (text->ntrain - 1) / (uint64_t)context;
    return fit > 1 ? fit - 1 : 1;
}

static void copy_window(const struct tr_text *text, size_t at, long context, int32_t *tokens,
                        int32_t *targets)
{
    const unsigned char *bytes = text->bytes + at;
    for (long i = 0; i < context; ++i) {
        tokens[i] = bytes[i];
        targets[i] = bytes[i + 1];
    }
}

void tr_sampler_get(const struct tr_text *text, uint64_t seed, uint64_t sample, long context,
                    int32_t *tokens, int32_t *targets)
{
    const uint64_t windows = tr_sampler_windows(text, context);
    const uint64_t epoch = sample / windows;
    const uint64_t window = tr_random_permute(seed, (uint32_t)epoch, sample % windows, windows);
    const uint64_t room = text->ntrain - windows * (uint64_t)context; /* at least 1 */
    const double share = tr_random_uniform(seed, TR_RANDOM_PHASE, 0, epoch);
    const uint64_t offset = (uint64_t)(share * (double)room);
    copy_window(text, offset + window * (uint64_t)context, context, tokens, targets);
}

uint64_t tr_sampler_held_out(const struct tr_text *text, long context)
{
    const size_t rest = text->nbytes - text->ntrain;
    return rest > (size_t)context ? (rest - 1) / (size_t)context : 0;
}

void tr_sampler_get_held_out(const struct tr_text *text, uint64_t index, long context,
                             int32_t *tokens, int32_t *targets)
{
    copy_window(text, text->ntrain + index * (uint64_t)context, context, tokens, targets);
}
