/* The enums of a step and of its spans, shared by schedules and programs. Compiles as C17, C++17
 * and CUDA. */
#ifndef TT_SCHEDULE_KINDS_H
#define TT_SCHEDULE_KINDS_H

enum tt_buffer { TT_INPUT, TT_OUTPUT, TT_SCRATCH };

/* Where the i-th block of a span lies in SCRATCH. */
enum tt_slot_rule {
    TT_SLOT_BY_PLACE, /* in slot + place; the place is the name but in composed algorithms */
    TT_SLOT_IN_ORDER, /* in slot + i */
};

enum tt_step_kind {
    /* Takes `local` and one message from each of `recv`. The result is the copy of the only source,
     * or the reduction of all sources in the order of recv, with local before the message own_at,
     * so that every rank can fold in rank order. Stores the result in `dst`, if any, and sends it
     * to each of `send`. Neither recv nor send names this rank. op: TT_FOLD where there are two
     * sources or more, else TT_COPY. A block of dst may be the same memory as the block of local at
     * the same place only. */
    TT_STEP_LINK,
    /* A meeting of `recv`: all ranks of this rank's host in rank order, which is the order of
     * reduction. Each member puts `local` in; when all members have, each takes `dst`. Both are
     * empty or contiguous places without wrap; with TT_FOLD all members put the same places in.
     *   TT_COPY       block b of dst is block b of the one member that put it in
     *   TT_FOLD       block b of dst is block b reduced over all members
     *   TT_TRANSPOSE  block m of dst is block <this rank> of the m-th member
     * All spans of a meeting name places of the same part in the same order. Either all members
     * with a dst finish, or none. */
    TT_STEP_MEET,
};

enum tt_step_op { TT_COPY, TT_FOLD, TT_TRANSPOSE };

#endif
