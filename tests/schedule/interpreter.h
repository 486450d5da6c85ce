/* Runs schedules on real numbers: an oracle for verify that shares nothing with it but the steps.
 *
 * Every rank and channel goes on by the smallest of moves (take one message, send one message), in
 * an order drawn at random, over links of one to three messages; in half of the runs one of them
 * moves only when no other can. A step that stores and sends does either first, drawn at random; a
 * copy that sends first reads its source again. Members of a meeting store their results one by
 * one. Elements are random 64-bit numbers; a reduction is a pre-multiplied sum (what is read from
 * INPUT is scaled); to finish is an invertible map, so that nothing wrong can come out right but by
 * a chance of 2^-64. */
#ifndef TT_TESTS_SCHEDULE_INTERPRETER_H
#define TT_TESTS_SCHEDULE_INTERPRETER_H

#include "schedule/schedule.h"

enum { MOST_RANKS = 8, MOST_CHANNELS = 4 };

/* How to run. direct: what lies in INPUT or OUTPUT is sent by reference, and read when the receiver
 * computes. posts: the sender of a message that its receiver may post writes it into the receiver's
 * memory, when it computes. */
struct run {
    size_t count;
    const size_t *counts; /* of the blocks; NULL: `count` */
    bool in_place, direct, posts;
    uint64_t seed;
};

/* NULL when every rank ends with the right result; else what went wrong (static storage). All steps
 * must be well-formed (tt_step_check). */
const char *interpret(const struct tt_steps *steps, const struct run *run);

#endif
