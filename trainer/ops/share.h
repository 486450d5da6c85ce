/* Threads share an optimizer's update of a piece, where each float depends on those at its place
 * only. Included by optimizers' files. */
#ifndef TR_SHARE_H
#define TR_SHARE_H

#include "optimizer.h"
#include "pool.h"

typedef void tr_update(const struct tr_optimizer *how, const struct tr_tensor_piece *piece,
                       const double *sums);

struct tr_share {
    tr_update *update;
    const struct tr_optimizer *how;
    const struct tr_tensor_piece *piece;
    const double *sums;
};

static inline void tr_share_part(const void *arg, long index)
{
    const struct tr_share *share = arg;
    const struct tr_range range = tr_range_at((long)share->piece->count, TR_PIECE_FLOATS, index);
    struct tr_tensor_piece part = *share->piece;
    part.count = (size_t)range.n;
    part.w += range.first;
    part.g = tr_at(part.g, part.type, (size_t)range.first);
    for (int i = 0; i < TR_MOST_STATES; ++i)
        if (part.states[i] && part.shapes[i] == TR_STATE_TENSOR) part.states[i] += range.first;
    share->update(share->how, &part, share->sums);
}

/* Calls `update` for parts of the piece, on any thread. The slices of a part stay those of the
 * whole piece, and so do its states of other shapes than the tensor's, which `update` only reads.
 */
static inline void tr_share(tr_update *update, const struct tr_optimizer *how,
                            const struct tr_tensor_piece *piece, const double *sums)
{
    const struct tr_share share = {update, how, piece, sums};
    tr_pool_run(tr_share_part, &share, tr_ranges((long)piece->count, TR_PIECE_FLOATS));
}

#endif
