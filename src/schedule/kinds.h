/* What a step is and where its data lies: shared by schedules and programs. Compiles as C17, C++17
 * and CUDA. */
#ifndef TT_SCHEDULE_KINDS_H
#define TT_SCHEDULE_KINDS_H

enum tt_buffer { TT_INPUT, TT_OUTPUT, TT_SCRATCH };

/* Where the i-th block of a span lies in SCRATCH. */
enum tt_slot_rule {
    TT_SLOT_BY_PLACE, /* in slot + its place (outside of composed algorithms its name) */
    TT_SLOT_IN_ORDER, /* in slot + i */
};

enum tt_step_kind {
    /* Takes `local` and one message from each of `recv`; result = their copy (exactly one source)
     * or reduction (in the order of recv, with local before the message own_at: every rank can so
     * fold in rank order); stores it in `dst`, if any; sends it to each of `send`. Neither recv nor
     * send names this rank. op: TT_FOLD where there are two sources or more, else TT_COPY. A block
     * of dst may be the same memory as the block of local at the same place only. */
    TT_STEP_LINK,
    /* A meeting of `recv`: all ranks of this rank's host in rank order, which is the order of
     * reduction. Each puts in `local` (nothing, or contiguous places without wrap; the same for
     * TT_FOLD), all wait for all, each takes `dst` (the same):
     *   TT_COPY       block b of dst from the one member that put it in
     *   TT_FOLD       block b of dst reduced over all members
     *   TT_TRANSPOSE  block m of dst = block <this rank> of what the m-th member put in
     * All spans of a meeting name places of the same part in the same order, and all members that
     * take anything finish or none does. */
    TT_STEP_MEET,
};

enum tt_step_op { TT_COPY, TT_FOLD, TT_TRANSPOSE };

#endif
