/* Splits a communicator: the ranks with one colour become a communicator of their own. */
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/thread.h"
#include "communicator/calling.h"
#include "communicator/group.h"

static tt_status parent_allgather(void *context, const void *mine, void *all, size_t nbytes)
{
    return tt_status_of(tuttiAllGather(mine, all, nbytes, tuttiUint8, context, NULL));
}

static void fail_parent(void *context, tt_status status)
{
    tuttiComm_t parent = context;
    tt_ignore(tt_core_tell_failure(&parent->core, status));
}

struct choice {
    int32_t color, key, rank;
    int32_t status; /* of this rank's arguments */
};

static int by_key(const void *left, const void *right)
{
    const struct choice *a = left, *b = right;
    if (a->key != b->key) return a->key < b->key ? -1 : 1;
    return a->rank - b->rank;
}

/* The ranks with this color in the order of the new communicator; returns how many. */
static int select_members(struct choice *choices, int n, int color, int *members)
{
    int nmembers = 0;
    for (int r = 0; r < n; r++)
        if (choices[r].color == color) choices[nmembers++] = choices[r];
    qsort(choices, (size_t)nmembers, sizeof *choices, by_key);
    for (int i = 0; i < nmembers; i++) members[i] = choices[i].rank;
    return nmembers;
}

/* A rank that cannot split still takes part in the first all-gather, so that all of them give up.
 */
static tt_status check_choices(const struct tuttiComm *comm, const struct choice *choices,
                               tt_status own)
{
    if (own) return own;
    for (int r = 0; r < comm->core.nranks; r++)
        if (choices[r].status)
            return tt_fail(choices[r].status,
                           "rank %d could not take part in the split: its error says why", r);
    return TT_OK;
}

static tt_status split(const struct tt_pending_init *init, const struct choice *mine)
{
    tuttiComm_t comm = init->parent;
    const size_t n = (size_t)comm->core.nranks;
    struct choice *choices = calloc(n, sizeof *choices);
    int *members = calloc(n, sizeof *members);
    tt_status status = choices && members
                           ? parent_allgather(comm, mine, choices, sizeof *mine)
                           : tt_fail(TT_ERR_SYSTEM, "out of memory for a split of %zu ranks", n);
    if (!choices || !members) fail_parent(comm, status);
    if (!status) status = check_choices(comm, choices, mine->status);
    if (!status) {
        int rank = -1;
        const bool wanted = mine->color != TUTTI_SPLIT_NOCOLOR;
        const int nranks =
            wanted ? select_members(choices, comm->core.nranks, mine->color, members) : 0;
        for (int i = 0; i < nranks; i++)
            if (members[i] == comm->core.rank) rank = i;
        const struct tt_participants participants = {
            .allgather = parent_allgather,
            .give_up = fail_parent,
            .context = comm,
            .deadline_ns = tt_deadline_ns(init->config.init_timeout_ms),
            .nparticipants = comm->core.nranks,
            .key = comm->key,
            .members = members};
        status = tt_comm_assemble(init->comm, &participants, rank, nranks, &init->config);
    }
    free(choices);
    free(members);
    return status;
}

/* Of a group, since then another thread may have ended the parent. */
static tt_status enter_parent(const struct tt_pending_init *init)
{
    TT_TRY(tt_comm_enter(init->parent));
    const tt_status status = tt_comm_check_number(init->parent, init->number);
    if (status) tt_core_leave_call(&init->parent->core);
    return status;
}

/* Another thread ends the parent, and waits until the group lets go of it; the other ranks wait for
 * this one in their splits. Keeps the last error. */
static void tell_end(const struct tt_pending_init *init)
{
    if (init->holds_parent && atomic_load(&init->parent->ends))
        tt_core_tell_others(&init->parent->core, TT_ERR_REMOTE, "cannot split");
}

/* *comm is NULL where the color is TUTTI_SPLIT_NOCOLOR. */
static tt_status make_in_parent(const struct tt_pending_init *init)
{
    tuttiComm_t comm = init->parent;
    TT_TRY(enter_parent(init));
    const struct choice mine = {
        .color = init->color, .key = init->key, .rank = comm->core.rank, .status = init->status};
    const struct tt_call_counts counts =
        comm->counts; /* these all-gathers are none of the user's calls */
    const tt_status status = split(init, &mine);
    comm->counts = counts;
    tt_core_leave_call(&comm->core);
    return status;
}

static tt_status make(const struct tt_pending_init *init)
{
    const tt_status status = make_in_parent(init);
    if (status) tell_end(init);
    return status;
}

/* In place of `make`. An all-gather, as of a split outside groups, could wait for ranks that this
 * thread, whose group has failed, would have to bring: so the parent fails. */
static void give_up(const struct tt_pending_init *init, tt_status status)
{
    char text[TT_ERROR_TEXT];
    snprintf(text, sizeof text, "%s", tt_last_error());
    if (enter_parent(init)) return;
    tt_set_last_error(text);
    tt_core_tell_others(&init->parent->core, status, "does not take part in a split of its group");
    tt_core_leave_call(&init->parent->core);
}

static tt_status issue_split(tuttiComm_t comm, int color, int key, tuttiComm_t *newcomm,
                             const tuttiConfig_t *config)
{
    if (newcomm) *newcomm = NULL;
    struct tt_pending_init init = {.make = make,
                                   .give_up = give_up,
                                   .comm = newcomm,
                                   .parent = comm,
                                   .number = comm->number,
                                   .rank = comm->core.rank,
                                   .nranks = comm->core.nranks,
                                   .color = color,
                                   .key = key};
    memcpy(init.parent_key, comm->key, sizeof init.parent_key);
    if (color == TUTTI_SPLIT_REFUSED)
        init.status = TT_ERR_ARGUMENT; /* the last error says why */
    else if (!newcomm)
        init.status = tt_fail(TT_ERR_ARGUMENT, "tuttiCommSplit: newcomm is NULL");
    else if (color < 0 && color != TUTTI_SPLIT_NOCOLOR)
        init.status =
            tt_fail(TT_ERR_ARGUMENT, "color %d is negative and not TUTTI_SPLIT_NOCOLOR", color);
    if (!init.status) init.status = tt_comm_config_init(&init.config, config, comm);
    const tt_status status = tt_issue_init(&init);
    sodium_memzero(init.parent_key, sizeof init.parent_key);
    return status ? status : init.status; /* in a group, which then fails, and drops it */
}

static tt_status enter_and_issue(tuttiComm_t comm, int color, int key, tuttiComm_t *newcomm,
                                 const tuttiConfig_t *config)
{
    TT_TRY(tt_comm_enter(comm));
    const tt_status status = issue_split(comm, color, key, newcomm, config);
    tt_core_leave_call(&comm->core);
    return status;
}

tuttiResult_t tuttiCommSplit(tuttiComm_t comm, int color, int key, tuttiComm_t *newcomm,
                             const tuttiConfig_t *config)
{
    TT_CANCELS_WAIT;
    return tt_group_result(__func__, enter_and_issue(comm, color, key, newcomm, config));
}
