/* The ranks of the scenarios: the library's structs, as far as messages, meetings and waits need
 * them. */
#ifndef TT_TESTS_MODEL_RANKS_H
#define TT_TESTS_MODEL_RANKS_H

#include "executor/engine.h"
#include "transport/fabric.h"
#include "transport/host/meeting.h"

enum { RANKS = 3, CHANNELS = 3, CELLS = 4 };

/* One rank, as far as messages, meetings and waits need it. */
struct rank {
    struct tt_fabric fabric;
    struct tt_engine engines[2]; /* two: of two threads of the rank that wait apart */
    struct tt_meeting meeting;
    struct tt_shm_link to[RANKS], from[RANKS];
    _Atomic uint64_t nmessages, nbytes, other_turns;
};

extern struct rank tt_model_ranks[RANKS];
extern struct tt_segment *tt_model_segment;
/* What the messages, or the part, from a rank for another hold; messages n and n + CELLS lie in the
 * same slot. */
extern uint64_t tt_model_data[RANKS][RANKS][CELLS];

/* Before the first execution; false: there is no memory for the segment. */
bool tt_model_open(void);
/* Before each execution: nothing is published, nobody sleeps. closed: before tt_sleep_open. */
void tt_model_set_up(void), tt_model_set_up_closed(void);

static inline struct tt_sleep *tt_model_sleep(int rank)
{
    return &tt_model_ranks[rank].fabric.host.sleep;
}

#endif
