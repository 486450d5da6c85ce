/* Where the blocks and messages of a call lie in its portions. */
#include "executor/portions.h"

size_t tt_portion_part(const struct tt_work *work, int buffer, int32_t block, int part)
{
    const struct tt_portions *portions = work->portions;
    const struct tt_portion_side *side = &portions->sides[buffer];
    const struct tt_binding *binding = work->collective.binding;
    const size_t index = (size_t)(block - side->first) * binding->parts[0].nparts + (size_t)part;
    return side->at + index * portions->rounds * binding->piece * binding->element;
}

void tt_portion_piece(const struct tt_work *work, const struct tt_walk *walk, int32_t place,
                      struct tt_piece *piece)
{
    const struct tt_portions *portions = work->portions;
    const struct tt_binding *binding = work->collective.binding;
    const int32_t block = tt_span_name_at(walk->program, walk->span, place);
    const size_t portion = walk->round / portions->rounds, within = walk->round % portions->rounds;
    piece->offset = tt_portion_place(portions, portion) +
                    tt_portion_part(work, walk->span->buffer, block, walk->part) +
                    within * binding->piece * binding->element;
}

char *tt_portion_message(const struct tt_work *work, size_t *nbytes)
{
    const struct tt_portions *portions = work->portions;
    const size_t offset = work->p2p.offset, left = work->p2p.nbytes - offset;
    const size_t within = offset % portions->nbytes, room = portions->nbytes - within;
    *nbytes = left < room ? left : room;
    return portions->memory + tt_portion_place(portions, offset / portions->nbytes) + within;
}

uint64_t tt_portions_finished(const struct tt_work *work)
{
    const struct tt_portions *portions = work->portions;
    const int nparts = (int)work->collective.binding->parts[0].nparts;
    uint64_t least = UINT64_MAX;
    for (int part = 0; part < nparts; part++) {
        const struct tt_position *at = &work->collective.channels[part];
        if (!at->done && at->round < least) least = at->round;
    }
    return least == UINT64_MAX ? portions->number : least / portions->rounds;
}
