/* Sets the ranks of the scenarios up, for each execution again. */
#include "ranks.h"

#include <string.h>

#include "machine.h"

struct rank tt_model_ranks[RANKS];
struct tt_segment *tt_model_segment;
uint64_t tt_model_data[RANKS][RANKS][CELLS];
static struct tt_host_member members[RANKS];

bool tt_model_open(void)
{
    const struct tt_segment_layout layout = {.nlocal = RANKS,
                                             .nchannels = CHANNELS,
                                             .nslots = TT_MIN_SLOTS,
                                             .slot_bytes = TT_MIN_SLOT_BYTES,
                                             .meet_bytes = TT_CACHE_LINE};
    for (int r = 0; r < RANKS; r++) members[r] = (struct tt_host_member){.rank = r};
    if (tt_segment_create(1, &layout, &tt_model_segment)) return false;
    for (int r = 0; r < RANKS; r++)
        if (tt_meeting_init(&tt_model_ranks[r].meeting, tt_model_segment,
                            &(struct tt_sleep){.own = r}, 0))
            return false;
    return true;
}

static void set_up_rank(int r)
{
    struct rank *rank = &tt_model_ranks[r];
    struct tt_flag **places = rank->meeting.places;
    memset(&rank->fabric, 0, sizeof rank->fabric);
    memset(rank->engines, 0, sizeof rank->engines);
    rank->other_turns = 0;
    rank->fabric.segment = rank->fabric.host.segment = tt_model_segment;
    atomic_init(&rank->fabric.seen, &tt_model_segment->header->failure);
    rank->fabric.record = &tt_model_segment->header->records[r];
    rank->fabric.host.context = &rank->fabric.context;
    rank->fabric.context = (struct tt_room_context){.rank = r,
                                                    .nranks = RANKS,
                                                    .nchannels = CHANNELS,
                                                    .nmessages = &rank->nmessages,
                                                    .nbytes_copied = &rank->nbytes,
                                                    .nbytes_direct = &rank->nbytes};
    rank->fabric.host.config =
        (struct tt_host_config){.nlocal = RANKS, .local = r, .members = members};
    rank->meeting = (struct tt_meeting){.nmembers = RANKS,
                                        .own = r,
                                        .capacity = TT_CACHE_LINE,
                                        .places = places,
                                        .area = tt_segment_meeting(tt_model_segment, 0),
                                        .sleep = &rank->fabric.host.sleep};
    for (int e = 0; e < 2; e++) {
        rank->engines[e].fabric = &rank->fabric;
        rank->engines[e].crowded_until_ns = INT64_MAX; /* waits sleep at once */
    }
    for (int peer = 0; peer < RANKS; peer++) {
        if (peer == r) continue;
        tt_shm_open(&rank->to[peer], &rank->fabric.host, peer, 0, true);
        tt_shm_open(&rank->from[peer], &rank->fabric.host, peer, 0, false);
    }
}

static void reset_segment(void)
{
    struct tt_sleepers *sleepers = tt_segment_sleepers(tt_model_segment);
    memset(sleepers, 0, sizeof *sleepers + RANKS * sizeof *sleepers->each);
    memset(tt_segment_meeting(tt_model_segment, 0), 0, sizeof(struct tt_meeting_area));
    for (int r = 0; r <= RANKS; r++)
        for (int parity = 0; parity < 2; parity++)
            memset(tt_segment_meet_flag(tt_model_segment, 0, r, parity), 0, sizeof(struct tt_flag));
    for (int r = 0; r < RANKS; r++)
        for (int peer = 0; peer < RANKS; peer++) {
            if (peer == r) continue;
            struct tt_link_area *area = tt_segment_link(tt_model_segment, r, peer, 0);
            memset(area, 0, sizeof *area + 8 * sizeof(struct tt_flag));
        }
    memset(tt_model_data, 0, sizeof tt_model_data);
}

void tt_model_set_up_closed(void)
{
    reset_segment();
    for (int r = 0; r < RANKS; r++) set_up_rank(r);
}

void tt_model_set_up(void)
{
    tt_model_set_up_closed();
    for (int r = 0; r < RANKS; r++) {
        tt_machine_rank = r;
        tt_sleep_open(tt_model_sleep(r), tt_model_segment, r);
    }
    for (int r = 0; r < RANKS; r++) tt_sleep_finish(tt_model_sleep(r));
}
