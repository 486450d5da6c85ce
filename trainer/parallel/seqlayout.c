/* The order of a cut sequence. */
#include "seqlayout.h"

struct tr_sequence tr_sequence_of(long length, int ring, int ring_rank, int ulysses,
                                  int ulysses_rank, int tp, bool zigzag)
{
    const long ranks = (long)ring * ulysses * tp, unit = ranks > 1 ? 2 * ranks : 1;
    const long padded = (length + unit - 1) / unit * unit;
    return (struct tr_sequence){.length = length,
                                .padded = padded,
                                .local = padded / ring / ulysses,
                                .ring = ring,
                                .ring_rank = ring_rank,
                                .ulysses = ulysses,
                                .ulysses_rank = ulysses_rank,
                                .zigzag = zigzag && ring > 1};
}

void tr_sequence_chunk(const struct tr_sequence *s, int ring_rank, int chunk, long *first,
                       long *count)
{
    if (s->zigzag) {
        *count = s->padded / (2 * s->ring);
        *first = (chunk ? 2 * s->ring - 1 - ring_rank : ring_rank) * *count;
    } else {
        *count = chunk ? 0 : s->padded / s->ring;
        *first = ring_rank * (s->padded / s->ring);
    }
}

long tr_sequence_position(const struct tr_sequence *s, long i)
{
    const long at = s->ulysses_rank * s->local + i; /* within what the ring rank has */
    long first, count;
    tr_sequence_chunk(s, s->ring_rank, 0, &first, &count);
    if (at < count) return first + at;
    const long rest = at - count;
    tr_sequence_chunk(s, s->ring_rank, 1, &first, &count);
    return first + rest;
}
