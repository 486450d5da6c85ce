/* Copies of a call on staging memory that whoever runs the call queues: where staging memory is
 * smaller than the call, which then passes through it in portions, and where a call must find what
 * an earlier one of its group has stored. There are two places in staging memory:
 *
 *     place 0   | copy in 0 | run 0     | copy out 0, in 2 | run 2      | copy out 2 ...
 *     place 1               | copy in 1 | run 1            | copy out 1, in 3 | run 3 ...
 *
 * A portion of a collective is some rounds of its binding: of every part of every block the
 * elements of these rounds. So the call's steps, messages and results are those of the undivided
 * call, and no other rank can tell. A portion of a message is the next bytes of it. All copies are
 * made in order by one stream. */
#ifndef TT_EXECUTOR_STAGED_PORTIONS_H
#define TT_EXECUTOR_STAGED_PORTIONS_H

#include <stddef.h>
#include <stdint.h>

/* A piece of the caller's memory and its place in staging memory. */
struct tt_stage_piece {
    char *users, *staged;
    size_t nbytes;
};

/* The caller's buffer of one side. */
struct tt_stage_side {
    char *users;   /* where element 0 of the global naming would lie; of a message: the message */
    int32_t first; /* block at the beginning of the side's blocks in a portion */
    size_t at;     /* bytes of a portion before these blocks */
};

/* Owned by the staging memory of the call (communicator/staged.h). */
struct tt_stage_portions {
    /* immutable when the call is issued */
    void *stream; /* for the copies; the communicator's */
    char *memory; /* staging memory for two portions, or for the only one */
    size_t nbytes;
    uint64_t number; /* of portions, at least 1 */
    size_t rounds;   /* of a collective, in each portion; 0: the pieces are the call's buffers */
    const struct tt_stage_piece *pieces;
    int nin, nout; /* pieces copied before the first portion, then those after the last one */
    struct tt_stage_side sides[2]; /* INPUT, OUTPUT; of a message: both the same */
    const char *kept, *kept_end;   /* of the caller's memory: not written */
    /* owner: who runs the call */
    uint64_t in, out; /* portions whose copies are queued */
};

#endif
