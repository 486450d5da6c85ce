/* The collectives, one row of collective_table.h each. The argument checks, verify, the cost model,
 * composed algorithms and the tools derive from the row what they need to know of a collective. */
#ifndef TT_SCHEDULE_COLLECTIVE_H
#define TT_SCHEDULE_COLLECTIVE_H

#include <stdbool.h>

/* Values are tutti.h's tuttiCollective_t. */
enum tt_collective {
#define X(NAME, ...) TT_##NAME,
#include "schedule/collective_table.h"
#undef X
    TT_NCOLLECTIVES
};

/* Which blocks a buffer holds. */
enum tt_holds {
    TT_HOLDS_NOTHING,
    TT_HOLDS_OWN, /* the block named as the rank */
    TT_HOLDS_ALL,
};

/* The content of block b of a rank's OUTPUT at the end. */
enum tt_result_kind {
    TT_RESULT_NONE,       /* there are no blocks; the call ends when all ranks have made it */
    TT_RESULT_REDUCED,    /* block b of all ranks' INPUTs, reduced */
    TT_RESULT_OF_ROOT,    /* block b of root's INPUT */
    TT_RESULT_OF_NAMED,   /* block b of rank b's INPUT */
    TT_RESULT_TRANSPOSED, /* block <this rank> of rank b's INPUT */
};

/* What a composed algorithm X/Y does inside each host (struct tt_parts). Where no X exists for
 * split or join, X/Y works by leaders only; where none exists for up or down, on lanes only; where
 * one of each pair is missing, there is no X/Y. Y can be any algorithm without meetings. */
enum tt_inside { TT_INSIDE_SPLIT, TT_INSIDE_JOIN, TT_INSIDE_UP, TT_INSIDE_DOWN, TT_NINSIDE };

struct tt_collective_row {
    const char *name; /* "all_reduce" */
    enum tt_holds input, output;
    bool input_at_root_only; /* the other ranks' INPUT holds nothing */
    bool output_at_root_only;
    enum tt_result_kind result;
    /* `count` elements are cut into as many blocks as the algorithm has; otherwise there are nranks
     * blocks of `count` elements each. */
    bool splits;
    /* A block may have the same memory in INPUT and OUTPUT: the buffers are equal where both hold
     * all blocks; otherwise the buffer of the own block lies at that block's place in the other. */
    bool in_place;
    /* enum tt_collective: that of which the part is the algorithm X; TT_NCOLLECTIVES: none. */
    int inside[TT_NINSIDE];
};

extern const struct tt_collective_row tt_collective_rows[TT_NCOLLECTIVES];

static inline const struct tt_collective_row *tt_collective_row(enum tt_collective collective)
{
    return &tt_collective_rows[collective];
}

/* Derived from a row. */
const char *tt_collective_name(enum tt_collective collective); /* "all_reduce", ... */
bool tt_collective_has_root(enum tt_collective collective);
bool tt_collective_reduces(enum tt_collective collective);
bool tt_collective_splits(enum tt_collective collective);
/* False: messages are empty, and a call has neither a count nor a type. */
bool tt_collective_has_data(enum tt_collective collective);
/* Which blocks a rank's INPUT holds, or, with `input` false, its OUTPUT. */
enum tt_holds tt_collective_holds(enum tt_collective collective, bool input, bool is_root);
/* How often the whole data of a call has `count` elements: 1 where the count is split, else nranks;
 * 0 without data. */
int tt_collective_counts(enum tt_collective collective, int nranks);

#endif
