/* Express calls: a small collective, either a single meeting or a few steps over links, is done in
 * its caller, one step after the other. The express execution computes once per kind of call what
 * the general execution (work.c) computes at each step, and hands over to it when a message is
 * late. */
#ifndef TT_EXECUTOR_EXPRESS_H
#define TT_EXECUTOR_EXPRESS_H

#include "executor/work.h"

enum {
    TT_EXPRESS_STEPS = 4,
    TT_EXPRESS_BYTES = 8192, /* calls of fewer bytes always run as one copy */
    TT_EXPRESS_LOOKS = 256,  /* then the wait loop takes over: some microseconds */
};

/* DIRECT: over links, with messages that are sent by reference or posted. */
enum tt_express_kind { TT_EXPRESS_NOT, TT_EXPRESS_MEETING, TT_EXPRESS_LINKS, TT_EXPRESS_DIRECT };

/* A single meeting. */
struct tt_express_meeting {
    enum tt_step_op op;
    size_t block;                /* bytes of a block */
    uint32_t first, number;      /* blocks this rank puts in, */
    size_t part;                 /* their bytes */
    int take_first, take_number; /* blocks it takes */
    size_t raw;                  /* elements of the part, where they are raw; else 0 */
};

/* A step over links, whose spans are one piece each. */
struct tt_express_step {
    size_t local, dst;    /* bytes from where the global naming begins in their buffers */
    size_t count, nbytes; /* of the step's messages */
    bool changes, raw;    /* the operation changes raw sources; the local span is one */
};

/* Everything that does not change from call to call. Plain data. */
struct tt_express {
    enum tt_express_kind kind;
    union {
        struct tt_express_meeting meeting;
        struct {
            struct tt_express_step steps[TT_EXPRESS_STEPS]; /* of the call's program */
            size_t held[2];                                 /* DIRECT: bytes of INPUT and OUTPUT */
        };
    };
};

/* Where the express execution has stopped, and what the general execution must know to go on from
 * there.
 */
struct tt_express_state {
    struct tt_position at;
    struct tt_memory memory[2]; /* INPUT, OUTPUT, as struct tt_collective_work has them, */
    bool references, posts;     /* and these */
};

/* Works out whether calls like this one may go express, and how. */
void tt_express_prepare(struct tt_express *express, const struct tt_engine *engine,
                        const struct tt_call *call);

/* Sets up the general execution (work.c) of a call whose express execution has stopped, and counts
 * it as outstanding. */
void tt_express_hand_over(struct tt_work *work, struct tt_engine *engine,
                          const struct tt_call *call, uint64_t turn,
                          const struct tt_express_state *state);

/* Carries out the call and leaves the engine, which the caller has entered while it was idle
 * (tt_engine_enter_if_idle). */
TT_NODISCARD tt_status tt_express_run(const struct tt_express *express, struct tt_engine *engine,
                                      const struct tt_call *call);

/* Over links (express_links.c): whether it is possible for a call whose steps run once; and how
 * many steps were done: fewer than the program has when something is not there yet. */
bool tt_express_prepare_links(struct tt_express *express, const struct tt_call *call);
uint32_t tt_express_run_links(const struct tt_express *express, struct tt_engine *engine,
                              const struct tt_call *call, uint64_t signature);
/* One step, whose messages are copied. False: something is not there yet. */
bool tt_express_do_step(const struct tt_express_step *express, const struct tt_program_step *step,
                        struct tt_engine *engine, const struct tt_call *call, uint64_t signature);

/* Express calls with long messages (express_direct.c): whether that is possible for a call whose
 * steps have been prepared; and whether the call is done. If not, *state (written in any case) says
 * where the general execution goes on. */
bool tt_express_prepare_direct(struct tt_express *express, const struct tt_engine *engine,
                               const struct tt_call *call);
bool tt_express_run_direct(const struct tt_express *express, struct tt_engine *engine,
                           const struct tt_call *call, uint64_t signature,
                           struct tt_express_state *state);

#endif
