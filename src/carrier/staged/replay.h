/* What captures of staged calls and their replays share (graphs.h). */
#ifndef TT_CARRIER_STAGED_REPLAY_H
#define TT_CARRIER_STAGED_REPLAY_H

#include "carrier/staged/graphs.h"

/* The calls of a group that one graph has captured. Owned by its graph. */
struct tt_replay {
    struct tt_stage_run *run;
    bool dropped; /* the capture failed: its nodes do nothing */
    bool owns;    /* the tables of blocks; and holds the programs */
    struct tt_replay *next;
};

/* The programs of the calls stay until they are released. */
void tt_replay_hold(const struct tt_stage_run *run);
void tt_replay_release(const struct tt_stage_run *run);
/* From now on the nodes do not wait. */
void tt_replay_close(const struct tt_replay *replay);
/* Runs a replay that has begun, if there is one. Returns after how many ns to look again; 0: at
 * once. By the staging thread; argument: struct tt_stage_graphs. */
int64_t tt_replays_look(void *argument);

#endif
