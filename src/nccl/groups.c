/* Groups, and the end of communicators, which tutti's group holds until its calls are issued. */
#include "nccl/face.h"

ncclResult_t pncclGroupStart(void)
{
    return tt_face_end(tuttiGroupStart());
}

ncclResult_t pncclGroupEnd(void)
{
    return tt_face_end(tuttiGroupEnd());
}

/* Ends the group like ncclGroupEnd, but its calls are not issued. */
ncclResult_t pncclGroupSimulateEnd(ncclSimInfo_t *info)
{
    (void)info;
    const ncclResult_t refused = tt_face_fail_group(
        tt_face_refuse(ncclInvalidUsage,
                       "ncclGroupSimulateEnd: estimating the time of a group is not there yet "
                       "in tutti's libnccl.so.2 (docs/nccl.md); the group has ended, and none of "
                       "its calls is issued"));
    const ncclResult_t ended = pncclGroupEnd(); /* where the group had failed before: with that */
    return ended ? ended : refused;
}

ncclResult_t pncclCommDestroy(ncclComm_t comm)
{
    return tt_face_end(tuttiCommDestroy(tt_face_comm(comm)));
}

ncclResult_t pncclCommAbort(ncclComm_t comm)
{
    return tt_face_end(tuttiCommAbort(tt_face_comm(comm)));
}

#define TT_IN_GROUPS TT_FACE_TWIN
#include "nccl/names_table.h"
