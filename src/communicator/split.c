/* Splits a communicator: the ranks with one colour become a communicator of their own. */
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/thread.h"
#include "communicator/calling.h"
#include "communicator/group.h"

/* The parent, for the all-gathers of a split. */
struct over_parent {
    tuttiComm_t comm;
    bool is_held; /* by calls of the group */
};

/* A call of a split fails on this rank, mostly since another thread ends the parent: that one waits
 * until the group lets go of it, and the other ranks wait for this one in their splits. Keeps the
 * last error. */
static tt_status tell_end(const struct over_parent *over, tt_status status)
{
    if (status && over->is_held && atomic_load(&over->comm->ends))
        tt_core_tell_others(&over->comm->core, TT_ERR_REMOTE, "cannot split");
    return status;
}

static tt_status parent_allgather(void *context, const void *mine, void *all, size_t nbytes)
{
    const struct over_parent *over = context;
    return tell_end(over,
                    tt_status_of(tuttiAllGather(mine, all, nbytes, tuttiUint8, over->comm, NULL)));
}

static void fail_parent(void *context, tt_status status)
{
    const struct over_parent *over = context;
    tt_ignore(tt_core_tell_failure(&over->comm->core, status));
}

struct choice {
    int32_t color, key, rank;
    int32_t status; /* of this rank's arguments */
    char text[240]; /* why it cannot take part */
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
static tt_status check_choices(const struct tuttiComm *comm, struct choice *choices, tt_status own)
{
    if (own) return own;
    for (int r = 0; r < comm->core.nranks; r++) {
        choices[r].text[sizeof choices[r].text - 1] = '\0';
        if (choices[r].status)
            return tt_fail(choices[r].status, "rank %d could not take part in the split: %s", r,
                           choices[r].text);
    }
    return TT_OK;
}

static tt_status split(const struct tt_pending_init *init, struct over_parent *over,
                       const struct choice *mine)
{
    tuttiComm_t comm = init->parent;
    const size_t n = (size_t)comm->core.nranks;
    struct choice *choices = calloc(n, sizeof *choices);
    int *members = calloc(n, sizeof *members);
    tt_status status = choices && members
                           ? parent_allgather(over, mine, choices, sizeof *mine)
                           : tt_fail(TT_ERR_SYSTEM, "out of memory for a split of %zu ranks", n);
    if (!choices || !members) fail_parent(over, status);
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
            .context = over,
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

/* *comm is NULL where the color is TUTTI_SPLIT_NOCOLOR. */
static tt_status make(const struct tt_pending_init *init)
{
    tuttiComm_t comm = init->parent;
    struct over_parent over = {.comm = comm, .is_held = init->holds_parent};
    TT_TRY(tell_end(&over, enter_parent(init)));
    struct choice mine = {
        .color = init->color, .key = init->key, .rank = comm->core.rank, .status = init->status};
    if (mine.status) snprintf(mine.text, sizeof mine.text, "%s", tt_last_error());
    const struct tt_call_counts counts =
        comm->counts; /* these all-gathers are none of the user's calls */
    const tt_status status = split(init, &over, &mine);
    comm->counts = counts;
    tt_core_leave_call(&comm->core);
    return status;
}

/* A parent that has failed is entered, too: ranks that wait for this one may not know of it. */
static bool enter_to_give_up(const struct tt_pending_init *init)
{
    tuttiComm_t comm = init->parent;
    if (tt_comm_enter_to_ask(comm)) return false;
    if (!tt_comm_is_inherited(comm) && comm->number == init->number) return true;
    tt_core_leave_call(&comm->core);
    return false;
}

/* In place of `make`. An all-gather, as of a split outside groups, could wait for ranks that this
 * thread, whose group has failed, would have to bring: so the parent fails. */
static void give_up(const struct tt_pending_init *init, tt_status status)
{
    char text[TT_ERROR_TEXT];
    snprintf(text, sizeof text, "%s", tt_last_error());
    const bool is_there = enter_to_give_up(init);
    tt_set_last_error(text);
    if (!is_there) return;
    tt_core_tell_others(&init->parent->core, status, "does not take part in a split of its group");
    tt_core_leave_call(&init->parent->core);
}

/* init->status: why this rank refuses, of which the last error says more. */
static tt_status issue_split(struct tt_pending_init *init, const tuttiConfig_t *config)
{
    tuttiComm_t comm = init->parent;
    init->make = make;
    init->give_up = give_up;
    init->number = comm->number;
    init->rank = comm->core.rank;
    init->nranks = comm->core.nranks;
    memcpy(init->parent_key, comm->key, sizeof init->parent_key);
    if (!init->status && !init->comm)
        init->status = tt_fail(TT_ERR_ARGUMENT, "tuttiCommSplit: newcomm is NULL");
    if (!init->status && init->color < 0 && init->color != TUTTI_SPLIT_NOCOLOR)
        init->status =
            tt_fail(TT_ERR_ARGUMENT, "color %d: expected 0 or more, or TUTTI_SPLIT_NOCOLOR (%d)",
                    init->color, TUTTI_SPLIT_NOCOLOR);
    if (!init->status) init->status = tt_comm_config_init(&init->config, config, comm);
    const tt_status status = tt_issue_init(init);
    sodium_memzero(init->parent_key, sizeof init->parent_key);
    return status ? status : init->status; /* in a group, which then fails, and drops it */
}

tuttiResult_t tuttiCommSplit(tuttiComm_t comm, int color, int key, tuttiComm_t *newcomm,
                             const tuttiConfig_t *config)
{
    TT_CANCELS_WAIT;
    struct tt_pending_init init = {.comm = newcomm, .parent = comm, .color = color, .key = key};
    tt_status status = tt_comm_enter(comm);
    if (status) return tt_group_result(__func__, status);
    if (newcomm) *newcomm = NULL;
    status = issue_split(&init, config);
    tt_core_leave_call(&comm->core);
    return tt_group_result(__func__, status);
}

tuttiResult_t tuttiCommSplitRefuse(tuttiComm_t comm, tuttiResult_t result, const char *text)
{
    TT_CANCELS_WAIT;
    struct tt_pending_init init = {.parent = comm};
    tt_status status = tt_comm_enter(comm);
    if (status) return tt_group_result(__func__, status);
    init.status = tt_check_refusal(result, text);
    const char *function = init.status ? __func__ : NULL; /* the caller's text has its own name */
    if (!init.status) {
        tt_set_last_error(text);
        init.status = tt_status_of(result);
    }
    status = issue_split(&init, NULL);
    tt_core_leave_call(&comm->core);
    return tt_group_result(function, status);
}
