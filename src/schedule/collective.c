/* The table of collectives, and functions that answer from its rows. */
#include "schedule/collective.h"

/* Words of the table that are no values by themselves. */
enum { AT_ALL_RANKS = false, AT_ROOT = true };
enum { BLOCKS_WHOLE = false, BLOCKS_CUT = true };
enum { PLACE_OTHER = false, PLACE_SAME = true };
enum { TT_NOTHING = TT_NCOLLECTIVES };

const struct tt_collective_row tt_collective_rows[TT_NCOLLECTIVES] = {
#define X(NAME, PUBLIC, NAMED, INPUT, INPUT_AT, OUTPUT, OUTPUT_AT, RESULT, BLOCKS, PLACE, SPLIT,   \
          JOIN, UP, DOWN)                                                                          \
    [TT_##NAME] = {.name = NAMED,                                                                  \
                   .input = TT_HOLDS_##INPUT,                                                      \
                   .output = TT_HOLDS_##OUTPUT,                                                    \
                   .input_at_root_only = AT_##INPUT_AT,                                            \
                   .output_at_root_only = AT_##OUTPUT_AT,                                          \
                   .result = TT_RESULT_##RESULT,                                                   \
                   .splits = BLOCKS_##BLOCKS,                                                      \
                   .in_place = PLACE_##PLACE,                                                      \
                   .inside = {TT_##SPLIT, TT_##JOIN, TT_##UP, TT_##DOWN}},
#include "schedule/collective_table.h"
#undef X
};

const char *tt_collective_name(enum tt_collective collective)
{
    return tt_collective_rows[collective].name;
}

bool tt_collective_has_root(enum tt_collective collective)
{
    return tt_collective_rows[collective].input_at_root_only ||
           tt_collective_rows[collective].output_at_root_only;
}

bool tt_collective_reduces(enum tt_collective collective)
{
    return tt_collective_rows[collective].result == TT_RESULT_REDUCED;
}

bool tt_collective_splits(enum tt_collective collective)
{
    return tt_collective_rows[collective].splits;
}

bool tt_collective_has_data(enum tt_collective collective)
{
    return tt_collective_rows[collective].result != TT_RESULT_NONE;
}

enum tt_holds tt_collective_holds(enum tt_collective collective, bool input, bool is_root)
{
    const struct tt_collective_row *row = &tt_collective_rows[collective];
    const bool root_only = input ? row->input_at_root_only : row->output_at_root_only;
    if (root_only && !is_root) return TT_HOLDS_NOTHING;
    return input ? row->input : row->output;
}

int tt_collective_counts(enum tt_collective collective, int nranks)
{
    if (!tt_collective_has_data(collective)) return 0;
    return tt_collective_rows[collective].splits ? 1 : nranks;
}
