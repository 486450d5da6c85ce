/* The collectives, one row each: what the argument checks, verify, the cost model, composed
 * algorithms and the tools ask about a collective is in its row or follows from it. */
#ifndef TT_SCHEDULE_COLLECTIVE_H
#define TT_SCHEDULE_COLLECTIVE_H

#include <stdbool.h>

/* Values are tutti.h's tuttiCollective_t. */
enum tt_collective {
    TT_ALL_REDUCE,
    TT_BROADCAST,
    TT_REDUCE,
    TT_ALL_GATHER,
    TT_REDUCE_SCATTER,
    TT_ALL_TO_ALL,
    TT_SCATTER,
    TT_GATHER,
    TT_BARRIER,
    TT_NCOLLECTIVES
};

/* Which blocks a buffer holds. */
enum tt_holds {
    TT_HOLDS_NOTHING,
    TT_HOLDS_OWN, /* the block named as the rank */
    TT_HOLDS_ALL,
};

/* What block b of a rank's OUTPUT is at the end. */
enum tt_result_kind {
    TT_RESULT_NONE,       /* there are no blocks; the call ends when all ranks have made it */
    TT_RESULT_REDUCED,    /* block b of all ranks' INPUTs, reduced */
    TT_RESULT_OF_ROOT,    /* block b of root's INPUT */
    TT_RESULT_OF_NAMED,   /* block b of rank b's INPUT */
    TT_RESULT_TRANSPOSED, /* block <this rank> of rank b's INPUT */
};

struct tt_collective_row {
    const char *name; /* "all_reduce" */
    enum tt_holds input, output;
    bool input_at_root_only; /* the other ranks' INPUT holds nothing */
    bool output_at_root_only;
    enum tt_result_kind result;
    bool splits; /* `count` elements are cut into blocks, as many as the algorithm wants; otherwise
                  * there are nranks blocks of `count` elements each */
    bool
        in_place; /* a block may be in the same memory in INPUT and OUTPUT: equal buffers where both
                   * hold all; otherwise the own block's buffer lies at its place in the other */
};

/* Static storage. */
const struct tt_collective_row *tt_collective_row(enum tt_collective collective);

/* What follows from a row. */
const char *tt_collective_name(enum tt_collective collective); /* "all_reduce", ... */
bool tt_collective_has_root(enum tt_collective collective);
bool tt_collective_reduces(enum tt_collective collective);
bool tt_collective_splits(enum tt_collective collective);
/* False: messages are empty, and a call has neither a count nor a type. */
bool tt_collective_has_data(enum tt_collective collective);
/* What INPUT, or with `input` false OUTPUT, of a rank holds. */
enum tt_holds tt_collective_holds(enum tt_collective collective, bool input, bool is_root);
/* The blocks of `count` elements each that a call's whole data has, before an algorithm cuts it. */
int tt_collective_counts(enum tt_collective collective, int nranks);

#endif
