/* The table of collectives, and functions that answer from its rows. */
#include "schedule/collective.h"

static const struct tt_collective_row rows[TT_NCOLLECTIVES] = {
    [TT_ALL_REDUCE] = {.name = "all_reduce",
                       .input = TT_HOLDS_ALL,
                       .output = TT_HOLDS_ALL,
                       .result = TT_RESULT_REDUCED,
                       .splits = true,
                       .in_place = true},
    [TT_BROADCAST] = {.name = "broadcast",
                      .input = TT_HOLDS_ALL,
                      .output = TT_HOLDS_ALL,
                      .input_at_root_only = true,
                      .result = TT_RESULT_OF_ROOT,
                      .splits = true,
                      .in_place = true},
    [TT_REDUCE] = {.name = "reduce",
                   .input = TT_HOLDS_ALL,
                   .output = TT_HOLDS_ALL,
                   .output_at_root_only = true,
                   .result = TT_RESULT_REDUCED,
                   .splits = true,
                   .in_place = true},
    [TT_ALL_GATHER] = {.name = "all_gather",
                       .input = TT_HOLDS_OWN,
                       .output = TT_HOLDS_ALL,
                       .result = TT_RESULT_OF_NAMED,
                       .in_place = true},
    [TT_REDUCE_SCATTER] = {.name = "reduce_scatter",
                           .input = TT_HOLDS_ALL,
                           .output = TT_HOLDS_OWN,
                           .result = TT_RESULT_REDUCED,
                           .in_place = true},
    [TT_ALL_TO_ALL] = {.name = "all_to_all",
                       .input = TT_HOLDS_ALL,
                       .output = TT_HOLDS_ALL,
                       .result = TT_RESULT_TRANSPOSED},
    [TT_SCATTER] = {.name = "scatter",
                    .input = TT_HOLDS_ALL,
                    .output = TT_HOLDS_OWN,
                    .input_at_root_only = true,
                    .result = TT_RESULT_OF_ROOT,
                    .in_place = true},
    [TT_GATHER] = {.name = "gather",
                   .input = TT_HOLDS_OWN,
                   .output = TT_HOLDS_ALL,
                   .output_at_root_only = true,
                   .result = TT_RESULT_OF_NAMED,
                   .in_place = true},
    [TT_BARRIER] = {.name = "barrier"},
};

const struct tt_collective_row *tt_collective_row(enum tt_collective collective)
{
    return &rows[collective];
}

const char *tt_collective_name(enum tt_collective collective)
{
    return rows[collective].name;
}

bool tt_collective_has_root(enum tt_collective collective)
{
    return rows[collective].input_at_root_only || rows[collective].output_at_root_only;
}

bool tt_collective_reduces(enum tt_collective collective)
{
    return rows[collective].result == TT_RESULT_REDUCED;
}

bool tt_collective_splits(enum tt_collective collective)
{
    return rows[collective].splits;
}

bool tt_collective_has_data(enum tt_collective collective)
{
    return rows[collective].result != TT_RESULT_NONE;
}

enum tt_holds tt_collective_holds(enum tt_collective collective, bool input, bool is_root)
{
    const struct tt_collective_row *row = &rows[collective];
    const bool root_only = input ? row->input_at_root_only : row->output_at_root_only;
    if (root_only && !is_root) return TT_HOLDS_NOTHING;
    return input ? row->input : row->output;
}

int tt_collective_counts(enum tt_collective collective, int nranks)
{
    if (!tt_collective_has_data(collective)) return 0;
    return rows[collective].splits ? 1 : nranks;
}
