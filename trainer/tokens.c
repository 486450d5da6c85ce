/* The tokens of a micro-batch: made by the host, then written to the backend. */
#include <stdlib.h>

#include "engine.h"

tr_status tr_staging_init(struct tr_staging *s, long context, long rows)
{
    const size_t n = (size_t)context, m = (size_t)rows;
    *s = (struct tr_staging){.sample_ids = calloc(n, sizeof *s->sample_ids),
                             .sample_targets = calloc(n, sizeof *s->sample_targets),
                             .sample_weights = calloc(n, sizeof *s->sample_weights),
                             .ids = calloc(m, sizeof *s->ids),
                             .targets = calloc(m, sizeof *s->targets),
                             .positions = calloc(m, sizeof *s->positions),
                             .weights = calloc(m, sizeof *s->weights)};
    if (s->sample_ids && s->sample_targets && s->sample_weights && s->ids && s->targets &&
        s->positions && s->weights)
        return TR_OK;
    return tr_fail("out of memory for %ld tokens", rows);
}

void tr_staging_fini(struct tr_staging *s)
{
    free(s->sample_ids);
    free(s->sample_targets);
    free(s->sample_weights);
    free(s->ids);
    free(s->targets);
    free(s->positions);
    free(s->weights);
}

/* Row `row` is the token that this rank has at place i of its part of the sample; padding has id 0
 * and weight 0. */
static void place_token(struct tr_engine *e, long row, long i)
{
    const struct tr_sequence *sequence = &e->sequence;
    struct tr_staging *s = &e->staging;
    const long position = tr_sequence_position(sequence, i), table = e->options.model.context,
               place = sequence->before + position;
    const bool real = position < sequence->length;
    s->ids[row] = real ? s->sample_ids[position] : 0;
    s->targets[row] = real ? s->sample_targets[position] : 0;
    s->weights[row] = real ? s->sample_weights[position] : 0;
    /* Padding takes the last row of a table of positions: its gradient is zero. */
    s->positions[row] = (int32_t)(place < table ? place : table - 1);
}

/* From the staging to the backend; the ranks of tp have `own` rows each of the stream. */
static void write_tokens(const struct tr_engine *e, struct tr_micro *micro, long rows, long own)
{
    const struct tr_staging *s = &e->staging;
    const size_t nbytes = (size_t)rows * sizeof *s->ids;
    const int32_t *own_positions = s->positions + e->parallel.tp->rank * own;
    e->backend->write(micro->ids, s->ids, nbytes);
    e->backend->write(micro->targets, s->targets, nbytes);
    e->backend->write(micro->positions, s->positions, nbytes);
    e->backend->write(micro->own_positions, own_positions, (size_t)own * sizeof *own_positions);
    e->backend->write(micro->weights, s->weights, (size_t)rows * sizeof *s->weights);
}

long tr_pass_batch(const struct tr_engine *e, const struct tr_samples *samples, int pass)
{
    const long most = e->options.micro_batch, rest = samples->count - pass * most;
    return rest < 0 ? 0 : rest < most ? rest : most;
}

struct tr_micro *tr_pass_take_set(struct tr_engine *e, const struct tr_samples *samples, int set,
                                  int pass)
{
    const struct tr_feed *feed = samples->feed;
    struct tr_micro *micro = &e->sets[set];
    struct tr_staging *s = &e->staging;
    const uint64_t first = samples->first + (uint64_t)(pass * e->options.micro_batch);
    const long batch = tr_pass_batch(e, samples, pass), local = e->sequence.local,
               rows = batch * local, own = rows / e->seams.tp;
    const bool has_tokens = feed->sample && s->ids;
    for (long b = 0; has_tokens && b < batch; ++b) {
        feed->sample(feed->arg, first + (uint64_t)b, e->sequence.length, s->sample_ids,
                     s->sample_targets, s->sample_weights);
        for (long i = 0; i < local; ++i) place_token(e, b * local + i, i);
    }
    micro->count = 0;
    for (long row = 0; has_tokens && row < rows; ++row) micro->count += (double)s->weights[row];
    if (has_tokens) write_tokens(e, micro, rows, own);
    micro->tokens = (struct tr_tokens){.batch = batch,
                                       .context = local,
                                       .rows = rows,
                                       .own = own,
                                       .ids = micro->ids,
                                       .positions = micro->positions,
                                       .own_positions = micro->own_positions,
                                       .targets = micro->targets,
                                       .weights = micro->weights};
    return micro;
}
