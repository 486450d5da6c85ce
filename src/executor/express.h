/* The express way: a small collective that is one meeting, done in a straight line in its caller.
 * What the general way works out step by step is worked out once per kind of call. When the others
 * are late, the general way takes over. */
#ifndef TT_EXECUTOR_EXPRESS_H
#define TT_EXECUTOR_EXPRESS_H

#include "executor/engine.h"

/* Everything that does not change from call to call. Plain data. */
struct tt_express {
    bool possible;
    enum tt_step_op op;
    size_t block;                /* bytes of a block */
    uint32_t first, number;      /* blocks this rank puts in, */
    size_t part;                 /* their bytes */
    int take_first, take_number; /* blocks it takes */
};

/* Works out whether calls like this one may go express, and how. */
void tt_express_prepare(struct tt_express *express, const struct tt_engine *engine,
                        const struct tt_call *call);

/* Carries out the call and leaves the engine, which the caller has entered while it was idle
 * (tt_engine_enter_if_idle). */
TT_NODISCARD tt_status tt_express_run(const struct tt_express *express, struct tt_engine *engine,
                                      const struct tt_call *call);

#endif
