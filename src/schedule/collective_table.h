/* The table of collectives: X(NAME, Public, name, input, input_at, output, output_at, result,
 * blocks, place, split, join, up, down), one row each. collective.h says what the columns mean. A
 * row that lacks one does not compile.
 *   NAME, Public   TT_<NAME> here is tuttiColl<Public> in tutti.h
 *   input, output  enum tt_holds: which blocks the buffer holds,
 *   ..._at         on ALL_RANKS, or on the ROOT only
 *   result         enum tt_result_kind
 *   blocks         `count` elements are CUT into blocks, or each of nranks blocks is WHOLE
 *   place          a block's memory in INPUT and OUTPUT may be the SAME, or is OTHER
 *   split ... down enum tt_inside: the collective that composed algorithms run inside hosts */
/* clang-format off */
/* NAME           Public         name              input    at         output   at         result      blocks place  split           join        up       down */
X(ALL_REDUCE,     AllReduce,     "all_reduce",     ALL,     ALL_RANKS, ALL,     ALL_RANKS, REDUCED,    CUT,   SAME,  REDUCE_SCATTER, ALL_GATHER, REDUCE,  BROADCAST)
X(BROADCAST,      Broadcast,     "broadcast",      ALL,     ROOT,      ALL,     ALL_RANKS, OF_ROOT,    CUT,   SAME,  NOTHING,        NOTHING,    NOTHING, BROADCAST)
X(REDUCE,         Reduce,        "reduce",         ALL,     ALL_RANKS, ALL,     ROOT,      REDUCED,    CUT,   SAME,  NOTHING,        NOTHING,    REDUCE,  NOTHING)
X(ALL_GATHER,     AllGather,     "all_gather",     OWN,     ALL_RANKS, ALL,     ALL_RANKS, OF_NAMED,   WHOLE, SAME,  NOTHING,        ALL_GATHER, NOTHING, NOTHING)
X(REDUCE_SCATTER, ReduceScatter, "reduce_scatter", ALL,     ALL_RANKS, OWN,     ALL_RANKS, REDUCED,    WHOLE, SAME,  REDUCE_SCATTER, NOTHING,    NOTHING, NOTHING)
X(ALL_TO_ALL,     AllToAll,      "all_to_all",     ALL,     ALL_RANKS, ALL,     ALL_RANKS, TRANSPOSED, WHOLE, OTHER, NOTHING,        NOTHING,    NOTHING, NOTHING)
X(SCATTER,        Scatter,       "scatter",        ALL,     ROOT,      OWN,     ALL_RANKS, OF_ROOT,    WHOLE, SAME,  NOTHING,        NOTHING,    NOTHING, SCATTER)
X(GATHER,         Gather,        "gather",         OWN,     ALL_RANKS, ALL,     ROOT,      OF_NAMED,   WHOLE, SAME,  NOTHING,        NOTHING,    GATHER,  NOTHING)
X(BARRIER,        Barrier,       "barrier",        NOTHING, ALL_RANKS, NOTHING, ALL_RANKS, NONE,       WHOLE, OTHER, NOTHING,        NOTHING,    BARRIER, BARRIER)
/* clang-format on */
