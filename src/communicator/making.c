/* What the makers of a communicator share. */
#include "communicator/making.h"

#include <stdio.h>

tt_status tt_making_agree(const struct tt_making *making)
{
    const struct tt_participants *participants = making->participants;
    struct tt_verdict own = {.status = making->status}, *all = making->verdicts;
    if (own.status) snprintf(own.text, sizeof own.text, "%s", tt_last_error());
    /* Mostly all is well, which four bytes say. */
    int32_t *statuses = (int32_t *)(void *)all;
    bool well = true;
    TT_TRY(
        participants->allgather(participants->context, &own.status, statuses, sizeof own.status));
    for (int p = 0; p < participants->nparticipants; p++) well = well && !statuses[p];
    if (well) return TT_OK;
    TT_TRY(participants->allgather(participants->context, &own, all, sizeof own));
    for (int p = 0; p < participants->nparticipants; p++)
        if (all[p].status) {
            all[p].text[sizeof all[p].text - 1] = '\0';
            if (own.status) return own.status;
            return tt_fail(all[p].status, "rank %d could not join: %s", p, all[p].text);
        }
    return TT_OK;
}

int tt_making_participant(const struct tt_making *making, int rank)
{
    return making->participants->members ? making->participants->members[rank] : rank;
}

bool tt_making_several_hosts(const struct tt_making *making, bool any)
{
    const int number = any ? making->participants->nparticipants : making->nranks;
    uint64_t host_id = 0;
    for (int i = 0; i < number; i++) {
        const struct tt_peer_info *info =
            &making->everyone[any ? i : tt_making_participant(making, i)];
        if (!info->pid) continue; /* a participant without a new communicator */
        if (host_id && info->host_id != host_id) return true;
        host_id = info->host_id;
    }
    return false;
}
