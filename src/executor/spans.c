/* Walks the spans of a step that the table of resolved steps does not have. */
#include "executor/internal.h"

/* Where the span lies; NULL: there is none, or it is several pieces. */
static char *walk_span(const struct tt_work *work, int channel, const struct tt_program_span *span,
                       struct tt_spans *spans)
{
    struct tt_piece piece;
    struct tt_walk walk =
        tt_work_walk(work, channel, span, tt_span_is_whole(work->collective.binding, span));
    if (!tt_walk_next(&walk, &piece)) return NULL;
    char *first = tt_piece_data(work, span, &piece);
    int npieces = 1;
    for (spans->count = piece.count; tt_walk_next(&walk, &piece); npieces++)
        spans->count += piece.count;
    spans->has_pieces |= npieces > 1;
    return npieces > 1 ? NULL : first;
}

void tt_walk_spans(const struct tt_work *work, int channel, const struct tt_program_step *step,
                   struct tt_spans *spans)
{
    spans->count = 0;
    spans->is_walked = true;
    spans->has_pieces = false;
    spans->local = walk_span(work, channel, &step->local, spans);
    spans->dst = walk_span(work, channel, &step->dst, spans);
    spans->nbytes = spans->count * work->collective.binding->element;
}
