/* Express calls: a call of the host that begins in its caller while no other call is issued. The
 * calling thread is in the engine already and waits for nothing else, so it does all it can at
 * once, looking longer at each link than the wait loop does. Where something is late, the wait loop
 * goes on with the same work. */
#ifndef TT_EXECUTOR_EXPRESS_H
#define TT_EXECUTOR_EXPRESS_H

#include "executor/work.h"

enum {
    TT_EXPRESS_BYTES = 8192, /* calls of the host of fewer bytes always run as one copy */
    TT_EXPRESS_LOOKS = 256,  /* then the wait loop takes over: some microseconds */
};

/* How a collective goes express. Two kinds are brief: one channel does the call in one round of
 * resolved steps, for which nothing else is set up. */
enum tt_express {
    TT_EXPRESS_NOT,
    TT_EXPRESS_WHOLE,
    TT_EXPRESS_LINKS,  /* brief: steps over links with short messages */
    TT_EXPRESS_MEETING /* brief: a meeting, with a core for each rank */
};

/* Of a collective like this one. NOT: among ranks of several hosts, or mixed ones, with a count for
 * each rank, and with a scalar that is read later. */
enum tt_express tt_express_kind(const struct tt_engine *engine, const struct tt_call *call);

/* Gives the call its turn, and does what can be done at once. The caller has entered the engine
 * while it was idle (tt_engine_enter_if_idle); it has been left afterwards. The call and its
 * binding stay until the work is done. TT_OK: the call is done. Else the work goes on like any
 * other. */
TT_NODISCARD tt_status tt_express_begin(struct tt_work *work, struct tt_engine *engine,
                                        const struct tt_call *call, enum tt_express kind);
/* tt_express_begin, and tt_run where that is needed. */
TT_NODISCARD tt_status tt_express_run(struct tt_engine *engine, const struct tt_call *call,
                                      enum tt_express kind);

/* Sends or receives a small message at once, as the next call between the two ranks. The caller has
 * entered the engine while it was idle. False: it cannot be done without waiting, or something is
 * wrong; then nothing has happened. */
bool tt_p2p_express(struct tt_engine *engine, bool sends, void *data, size_t nbytes, int peer);

#endif
