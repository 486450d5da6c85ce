/* Calls whose buffers pass through other memory in portions, because the host cannot use the
 * caller's memory. The carrier that gives a work its portions also copies them; the host's code
 * runs the call on the places of the portions. There are two places:
 *
 *     place 0   | copy in 0 | run 0     | copy out 0, in 2 | run 2      | copy out 2 ...
 *     place 1               | copy in 1 | run 1            | copy out 1, in 3 | run 3 ...
 *
 * A portion of a collective is some rounds of its binding: of every part of every block the
 * elements of these rounds. So the call's steps, messages and results are those of the undivided
 * call, and no other rank can tell. A portion of a message is the next bytes of it. */
#ifndef TT_EXECUTOR_PORTIONS_H
#define TT_EXECUTOR_PORTIONS_H

#include "executor/work.h"

struct tt_portions_ops {
    /* Before the call's first portion: TT_OK when the portion is there; TT_IN_PROGRESS. */
    tt_status (*begin)(struct tt_work *work);
    /* Whether the place of a portion is the running call's: what was there before has been copied
     * out, its input is there. */
    bool (*has)(const struct tt_work *work, uint64_t portion);
    /* A device of the network has written to the memory of the GPU: TT_OK when that is seen there;
     * TT_IN_PROGRESS: call again. */
    tt_status (*flush_writes)(struct tt_work *work);
};

/* The blocks of one side in a portion. */
struct tt_portion_side {
    int32_t first; /* block at the beginning of the side's blocks in a portion */
    size_t at;     /* bytes of a portion before these blocks */
};

/* Part of a struct of the owner. Immutable when the call is issued. */
struct tt_portions {
    const struct tt_portions_ops *ops;
    char *memory;    /* of two portions, or of the only one */
    size_t nbytes;   /* of a portion */
    uint64_t number; /* of portions, at least 1 */
    size_t rounds;   /* of a collective, in each portion; 0: the call's buffers are `memory` */
    struct tt_portion_side sides[2]; /* INPUT, OUTPUT */
};

/* Whether the buffers of a collective pass through its portions. */
static inline bool tt_is_divided(const struct tt_work *work)
{
    return work->portions && work->portions->rounds;
}

/* Whether a collective may begin the round. */
static inline bool tt_portions_have_round(const struct tt_work *work, uint64_t round)
{
    const struct tt_portions *portions = work->portions;
    return !tt_is_divided(work) || portions->ops->has(work, round / portions->rounds);
}

/* Bytes of the place of a portion that lie before it. */
static inline size_t tt_portion_place(const struct tt_portions *portions, uint64_t portion)
{
    return (size_t)(portion & 1) * portions->nbytes;
}

/* Bytes of a portion before the elements of a part of a block. */
size_t tt_portion_part(const struct tt_work *work, int buffer, int32_t block, int part);
/* Where the piece of a walk lies in the portions, in place of its place in the caller's memory. */
void tt_portion_piece(const struct tt_work *work, const struct tt_walk *walk, int32_t place,
                      struct tt_piece *piece);
/* Where the next bytes of a message lie, and how many follow there. */
char *tt_portion_message(const struct tt_work *work, size_t *nbytes);
/* Portions that every channel of a running collective has finished. */
uint64_t tt_portions_finished(const struct tt_work *work);

#endif
