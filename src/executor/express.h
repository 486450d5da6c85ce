/* Express calls: a small collective, either a single meeting or a few steps over links, is done in
 * a straight line in its caller. The express execution computes once per kind of call what the
 * general execution (work.c) computes at each step, and hands over to it when a message is late. */
#ifndef TT_EXECUTOR_EXPRESS_H
#define TT_EXECUTOR_EXPRESS_H

#include "executor/engine.h"

enum {
    TT_EXPRESS_STEPS = 4,
    TT_EXPRESS_BYTES = 8192, /* messages over links are shorter: none is a reference or posted
                              * (TT_DIRECT_MIN_BYTES) */
    TT_EXPRESS_LOOKS = 256,  /* then the wait loop takes over: some microseconds */
};

enum tt_express_kind { TT_EXPRESS_NOT, TT_EXPRESS_MEETING, TT_EXPRESS_LINKS };

/* A single meeting. */
struct tt_express_meeting {
    enum tt_step_op op;
    size_t block;                /* bytes of a block */
    uint32_t first, number;      /* blocks this rank puts in, */
    size_t part;                 /* their bytes */
    int take_first, take_number; /* blocks it takes */
};

/* A step over links, whose spans are one piece each. */
struct tt_express_step {
    size_t local, dst;    /* bytes from where the global naming begins in their buffers */
    size_t count, nbytes; /* of the step's messages */
};

/* Everything that does not change from call to call. Plain data. */
struct tt_express {
    enum tt_express_kind kind;
    union {
        struct tt_express_meeting meeting;
        struct tt_express_step steps[TT_EXPRESS_STEPS]; /* of the call's program */
    };
};

/* Works out whether calls like this one may go express, and how. */
void tt_express_prepare(struct tt_express *express, const struct tt_engine *engine,
                        const struct tt_call *call);

/* Carries out the call and leaves the engine, which the caller has entered while it was idle
 * (tt_engine_enter_if_idle). */
TT_NODISCARD tt_status tt_express_run(const struct tt_express *express, struct tt_engine *engine,
                                      const struct tt_call *call);

/* Over links (express_links.c): whether it is possible for a call whose steps run once; and how
 * many steps were done: fewer than the program has when something is not there yet. */
bool tt_express_prepare_links(struct tt_express *express, const struct tt_call *call);
uint32_t tt_express_run_links(const struct tt_express *express, struct tt_engine *engine,
                              const struct tt_call *call, uint64_t signature);

#endif
