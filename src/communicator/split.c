#include <stdlib.h>

#include "communicator/communicator.h"

static tt_status parent_allgather(void *context, const void *mine, void *all, size_t nbytes)
{
    tuttiComm_t comm = context;
    const tuttiResult_t result = tuttiAllGather(mine, all, nbytes, tuttiUint8, comm, NULL);
    if (result == tuttiSuccess) return TT_OK;
    const tt_status failure = tt_fabric_check(comm->fabric);
    return failure ? failure : TT_ERR_INTERNAL;
}

struct choice {
    int32_t color, key, rank;
};

static int by_key(const void *a, const void *b)
{
    const struct choice *x = a, *y = b;
    if (x->key != y->key) return x->key < y->key ? -1 : 1;
    return x->rank - y->rank;
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

static tt_status split(tuttiComm_t comm, int color, int key, tuttiComm_t *newcomm,
                       const struct tt_comm_config *config, struct choice *choices, int *members)
{
    const struct choice mine = {color, key, comm->rank};
    TT_TRY(parent_allgather(comm, &mine, choices, sizeof mine));
    int rank = -1, nranks = 0;
    if (color != TUTTI_SPLIT_NOCOLOR) {
        nranks = select_members(choices, comm->nranks, color, members);
        for (int i = 0; i < nranks; i++)
            if (members[i] == comm->rank) rank = i;
    }
    const struct tt_exchange exchange = {.allgather = parent_allgather,
                                         .context = comm,
                                         .nparticipants = comm->nranks,
                                         .members = members};
    return tt_comm_assemble(newcomm, &exchange, rank, nranks, config);
}

tuttiResult_t tuttiCommSplit(tuttiComm_t comm, int color, int key, tuttiComm_t *newcomm,
                             const tuttiConfig_t *config)
{
    tt_status status = tt_comm_check(comm);
    if (status) return tt_result(status);
    if (!newcomm) return tt_result(tt_fail(TT_ERR_ARGUMENT, "tuttiCommSplit: newcomm is NULL"));
    if (tt_in_group())
        return tt_result(tt_fail(
            TT_ERR_USAGE, "tuttiCommSplit inside a group: call it outside, one thread a rank"));
    if (color < 0 && color != TUTTI_SPLIT_NOCOLOR)
        return tt_result(
            tt_fail(TT_ERR_ARGUMENT, "color %d is negative and not TUTTI_SPLIT_NOCOLOR", color));
    struct tt_comm_config settings;
    status = tt_comm_config_init(&settings, config, comm);
    if (status) return tt_result(status);
    settings.device = comm->device;
    const size_t n = (size_t)comm->nranks;
    struct choice *choices = calloc(n, sizeof *choices);
    int *members = calloc(n, sizeof *members);
    *newcomm = NULL;
    if (choices && members)
        status = split(comm, color, key, newcomm, &settings, choices, members);
    else
        status = tt_fail(TT_ERR_SYSTEM, "out of memory for a split of %zu ranks", n);
    free(choices);
    free(members);
    return tt_result(status);
}
