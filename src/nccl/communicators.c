/* How communicators are made, and what they tell. */
#include <string.h>

#include "nccl/face.h"

_Static_assert(sizeof(ncclUniqueId) == sizeof(tuttiUniqueId), "an id of tutti fits NCCL's");

/* Where tutti puts the handle of a new communicator. */
static tuttiComm_t *place_of(ncclComm_t *comm)
{
    return (tuttiComm_t *)(void *)comm;
}

/* As in NCCL a handle is NULL until its communicator stands, also after a failure. */
static void write_null(ncclComm_t *comms, int ncomms)
{
    for (int i = 0; comms && i < ncomms; i++) comms[i] = NULL;
}

/* The id is secret, and the caller's argument is a copy: wipes it. */
static tuttiUniqueId take_id(ncclUniqueId *id)
{
    tuttiUniqueId own;
    memcpy(&own, id, sizeof own);
    explicit_bzero(id, sizeof *id);
    return own;
}

ncclResult_t pncclGetUniqueId(ncclUniqueId *uniqueId)
{
    if (!uniqueId) return tt_face_refuse(ncclInvalidArgument, "ncclGetUniqueId: uniqueId is NULL");
    tuttiUniqueId own;
    const tuttiResult_t result = tuttiGetUniqueId(&own);
    if (!result) memcpy(uniqueId, &own, sizeof own);
    explicit_bzero(&own, sizeof own);
    return tt_face_end(result);
}

static ncclResult_t init_rank(const char *function, ncclComm_t *comm, int nranks, ncclUniqueId *id,
                              int rank, const ncclConfig_t *config)
{
    tuttiConfig_t settings;
    write_null(comm, 1);
    const ncclResult_t refused = tt_face_new_settings(function, config, &settings);
    if (refused) return tt_face_fail_group(refused);
    return tt_face_end_as(
        function, tuttiCommInitRankConfig(place_of(comm), nranks, take_id(id), rank, &settings));
}

ncclResult_t pncclCommInitRank(ncclComm_t *comm, int nranks, ncclUniqueId commId, int rank)
{
    return init_rank("ncclCommInitRank", comm, nranks, &commId, rank, NULL);
}

ncclResult_t pncclCommInitRankConfig(ncclComm_t *comm, int nranks, ncclUniqueId commId, int rank,
                                     ncclConfig_t *config)
{
    return init_rank("ncclCommInitRankConfig", comm, nranks, &commId, rank, config);
}

/* One root serves any number of ranks: all come to the first id, and the others are dropped in the
 * process that made them. The first one stays, since a failed init may be tried again. */
static void drop_others(const ncclUniqueId *ids, int nids)
{
    for (int i = 1; i < nids; i++) {
        tuttiUniqueId own;
        if (!memcmp(&ids[i], &ids[0], sizeof *ids)) continue;
        memcpy(&own, &ids[i], sizeof own);
        (void)tuttiDropUniqueId(&own);
        explicit_bzero(&own, sizeof own);
    }
}

ncclResult_t pncclCommInitRankScalable(ncclComm_t *newcomm, int nranks, int myrank, int nId,
                                       ncclUniqueId *commIds, ncclConfig_t *config)
{
    static const char function[] = "ncclCommInitRankScalable";
    write_null(newcomm, 1);
    if (nId < 1 || nId > nranks || !commIds)
        return tt_face_fail_group(tt_face_refuse(
            ncclInvalidArgument, "%s: nId is %d and commIds %p: expected 1 to %d ids", function,
            nId, (void *)commIds, nranks));
    ncclUniqueId first = commIds[0];
    drop_others(commIds, nId);
    return init_rank(function, newcomm, nranks, &first, myrank, config);
}

/* The GPU of the i-th rank: where there is no GPU at all, all ranks are the host's. */
static int device_of(const int *devlist, int i)
{
    return !tt_face_look_for_gpus() ? -1 : devlist ? devlist[i] : i;
}

ncclResult_t pncclCommInitAll(ncclComm_t *comm, int ndev, const int *devlist)
{
    tuttiConfig_t settings;
    tuttiUniqueId id;
    write_null(comm, ndev);
    const ncclResult_t refused = tt_face_new_settings("ncclCommInitAll", NULL, &settings);
    if (refused) return tt_face_fail_group(refused);
    if (!comm || ndev < 0)
        return tt_face_fail_group(tt_face_refuse(
            ncclInvalidArgument,
            "ncclCommInitAll: comm is %p and ndev %d: expected a place for 0 or more communicators",
            (void *)comm, ndev));
    for (int i = 0; devlist && i < ndev; i++)
        if (devlist[i] < 0)
            return tt_face_fail_group(tt_face_refuse(
                ncclInvalidArgument,
                "ncclCommInitAll: devlist[%d] is %d: expected the number of a GPU", i, devlist[i]));
    if (!ndev) return ncclSuccess;
    tuttiResult_t result = tuttiGetUniqueId(&id);
    if (result) return tt_face_fail_group(tt_face_failed(result));
    (void)tuttiGroupStart();
    for (int i = 0; i < ndev && !result; i++) {
        settings.device = device_of(devlist, i);
        result = tuttiCommInitRankConfig(place_of(&comm[i]), ndev, id, i, &settings);
    }
    (void)tuttiDropUniqueId(&id); /* by the group that holds the inits, when these are not made */
    const tuttiResult_t ended = tuttiGroupEnd();
    explicit_bzero(&id, sizeof id);
    return tt_face_end_as("ncclCommInitAll", result ? result : ended);
}

ncclResult_t pncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t *newcomm,
                            ncclConfig_t *config)
{
    static const char function[] = "ncclCommSplit";
    tuttiConfig_t settings = TUTTI_CONFIG_INITIALIZER; /* all else is the parent's */
    write_null(newcomm, 1);
    const ncclResult_t refused = tt_face_read_config(function, config, &settings);
    if (refused) /* takes part, so that the other ranks do not wait */
        return tt_face_end_as(function,
                              tuttiCommSplitRefuse(tt_face_comm(comm), (tuttiResult_t)refused,
                                                   pncclGetLastError(NULL)));
    return tt_face_end(
        tuttiCommSplit(tt_face_comm(comm), color, key, place_of(newcomm), &settings));
}

ncclResult_t pncclCommFinalize(ncclComm_t comm)
{
    return comm ? tt_face_end(tuttiCommFinalizeLocal(tt_face_comm(comm))) : ncclSuccess;
}

ncclResult_t pncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *asyncError)
{
    tuttiResult_t found;
    if (!asyncError)
        return tt_face_refuse(ncclInvalidArgument, "ncclCommGetAsyncError: asyncError is NULL");
    const tuttiResult_t result = tuttiCommGetAsyncError(tt_face_comm(comm), &found);
    if (result) return tt_face_failed(result);
    *asyncError = (ncclResult_t)found;
    if (found) (void)tt_face_failed(found); /* ncclGetLastError says why */
    return ncclSuccess;
}

ncclResult_t pncclCommCount(const ncclComm_t comm, int *count)
{
    return tt_face_end(tuttiCommCount(tt_face_comm(comm), count));
}

ncclResult_t pncclCommCuDevice(const ncclComm_t comm, int *device)
{
    return tt_face_end(tuttiCommDevice(tt_face_comm(comm), device));
}

ncclResult_t pncclCommUserRank(const ncclComm_t comm, int *rank)
{
    return tt_face_end(tuttiCommUserRank(tt_face_comm(comm), rank));
}

#define TT_IN_COMMUNICATORS TT_FACE_TWIN
#include "nccl/names_table.h"
