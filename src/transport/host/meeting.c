/* Sets up the meeting of the ranks of a host. */
#include "transport/host/meeting.h"

#include <stdlib.h>

tt_status tt_meeting_init(struct tt_meeting *meeting, const struct tt_segment *segment,
                          struct tt_sleep *sleep, int channel)
{
    const int nmembers = segment->header->nlocal;
    const size_t row = (size_t)nmembers + 1;
    struct tt_flag **places = malloc(2 * row * sizeof *places);
    if (!places) return tt_fail(TT_ERR_SYSTEM, "out of memory for a meeting of %d ranks", nmembers);
    for (int parity = 0; parity < 2; parity++)
        for (int member = 0; member <= nmembers; member++)
            places[(size_t)parity * row + (size_t)member] =
                tt_segment_meet_flag(segment, channel, member, parity);
    *meeting = (struct tt_meeting){.nmembers = nmembers,
                                   .own = sleep->own,
                                   .capacity = segment->header->meet_bytes,
                                   .places = places,
                                   .area = tt_segment_meeting(segment, channel),
                                   .sleep = sleep};
    return TT_OK;
}

void tt_meeting_fini(struct tt_meeting *meeting)
{
    free(meeting->places);
    *meeting = (struct tt_meeting){.number = 0};
}
