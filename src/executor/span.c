#include "executor/internal.h"

bool tt_span_is_whole(const struct tt_work *work, const struct tt_span *span)
{
    if (!work->bound.merged || span->buffer == TT_SCRATCH || span->order) return false;
    const bool contiguous = span->run >= span->number || span->stride == span->run;
    const int modulo = span->modulo ? span->modulo : work->bound.geometry.nblocks;
    return contiguous && span->first >= 0 && span->first + span->number <= modulo;
}

void tt_cursor_init(struct tt_cursor *cursor, const struct tt_work *work,
                    const struct tt_span *span, int channel, size_t round, bool whole)
{
    *cursor = (struct tt_cursor){.work = work,
                                 .span = span,
                                 .channel = channel,
                                 .n = span->number,
                                 .round = round,
                                 .whole = whole};
}

/* Elements of a block's part that belong to the round, and where they start. */
static size_t round_part(const struct tt_work *work, int block, int channel, size_t round,
                         size_t *begin)
{
    const size_t length = tt_geometry_part(&work->bound.geometry, block, channel, begin);
    const size_t skip = round * work->bound.piece;
    if (skip >= length) return 0;
    *begin += skip;
    return length - skip < work->bound.piece ? length - skip : work->bound.piece;
}

static bool next_whole(struct tt_cursor *cursor, char **data, size_t *count)
{
    const struct tt_work *work = cursor->work;
    const struct tt_span *span = cursor->span;
    cursor->i = cursor->n;
    if (span->number == work->bound.geometry.nblocks) {
        *data = (char *)work->origin[span->buffer];
        *count = work->bound.total;
        return true;
    }
    size_t begin, last;
    const int first = span->base + span->first;
    tt_geometry_block(&work->bound.geometry, first, &begin);
    const size_t tail = tt_geometry_block(&work->bound.geometry, first + span->number - 1, &last);
    *data = (char *)(work->origin[span->buffer] + begin * work->bound.element);
    *count = last + tail - begin;
    return true;
}

bool tt_cursor_next(struct tt_cursor *cursor, char **data, size_t *count)
{
    if (cursor->i >= cursor->n) return false;
    if (cursor->whole) return next_whole(cursor, data, count);
    const struct tt_work *work = cursor->work;
    const struct tt_span *span = cursor->span;
    const int name = tt_span_name(span, cursor->i, work->bound.geometry.nblocks);
    size_t begin;
    *count = round_part(work, name, cursor->channel, cursor->round, &begin);
    if (span->buffer == TT_SCRATCH) {
        const int slot = tt_span_slot(span, cursor->i, work->bound.geometry.nblocks);
        const size_t index =
            (size_t)slot * (size_t)work->bound.geometry.nchannels + (size_t)cursor->channel;
        *data = work->engine->scratch + index * work->bound.piece * work->bound.element;
    } else {
        *data = (char *)(work->origin[span->buffer] + begin * work->bound.element);
    }
    cursor->i++;
    return true;
}

size_t tt_span_count(const struct tt_work *work, const struct tt_span *span, int channel,
                     size_t round)
{
    if (!span->number) return 0;
    if (tt_span_is_all(work, span)) return work->bound.total;
    struct tt_cursor cursor;
    char *data;
    size_t count, total = 0;
    tt_cursor_init(&cursor, work, span, channel, round, tt_span_is_whole(work, span));
    while (tt_cursor_next(&cursor, &data, &count)) total += count;
    return total;
}
