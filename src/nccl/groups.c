/* Groups, and the end of communicators, which may stand in a group: it waits until the group's
 * calls are issued. */
#include <stdio.h>
#include <stdlib.h>

#include "nccl/face.h"

/* A communicator that the group ends. */
struct ending {
    tuttiComm_t comm;
    tuttiResult_t (*end)(tuttiComm_t comm);
};

/* Of this thread. */
static _Thread_local struct {
    int depth;
    ncclResult_t refused; /* the first refusal by the face: the group issues nothing */
    char text[512];       /* its sentence */
    struct ending *endings;
    int nendings, room;
} group;

void tt_face_fail_group(ncclResult_t result)
{
    if (!group.depth || group.refused) return;
    group.refused = result;
    snprintf(group.text, sizeof group.text, "%s", pncclGetLastError(NULL));
    (void)tuttiBarrier(NULL, NULL); /* is refused, so tutti's group fails */
}

ncclResult_t pncclGroupStart(void)
{
    group.depth++;
    return tt_face_end(tuttiGroupStart());
}

static tuttiResult_t end_communicators(void)
{
    tuttiResult_t first = tuttiSuccess;
    for (int i = 0; i < group.nendings; i++) {
        const tuttiResult_t result = group.endings[i].end(group.endings[i].comm);
        if (!first) first = result;
    }
    free(group.endings);
    group.endings = NULL;
    group.nendings = group.room = 0;
    return first;
}

ncclResult_t pncclGroupEnd(void)
{
    tuttiResult_t result = tuttiGroupEnd();
    if (group.depth == 0 || --group.depth > 0) return tt_face_end(result);
    const ncclResult_t refused = group.refused;
    group.refused = ncclSuccess;
    if (!result || !group.nendings) {
        const tuttiResult_t ended = end_communicators();
        if (!result) result = ended;
    } else {
        (void)end_communicators(); /* the group's own error comes first */
    }
    return refused ? tt_face_refuse(refused, "%s", group.text) : tt_face_end(result);
}

static ncclResult_t hold(const char *function, struct ending ending)
{
    int nranks;
    tuttiResult_t result = tuttiCommCount(ending.comm, &nranks);
    if (result) return tt_face_failed(result);
    if (group.nendings == group.room) {
        const int room = group.room ? 2 * group.room : 8;
        struct ending *grown = realloc(group.endings, (size_t)room * sizeof *grown);
        if (!grown)
            return tt_face_refuse(ncclSystemError, "%s: out of memory for a group of %d", function,
                                  room);
        group.endings = grown;
        group.room = room;
    }
    group.endings[group.nendings++] = ending;
    return ncclSuccess;
}

/* Now, or with the group. */
static ncclResult_t end(const char *function, struct ending ending)
{
    if (group.depth && ending.comm) return hold(function, ending);
    return tt_face_end(ending.end(ending.comm));
}

ncclResult_t pncclCommDestroy(ncclComm_t comm)
{
    return end("ncclCommDestroy", (struct ending){tt_face_comm(comm), tuttiCommDestroy});
}

ncclResult_t pncclCommAbort(ncclComm_t comm)
{
    return end("ncclCommAbort", (struct ending){tt_face_comm(comm), tuttiCommAbort});
}

#define TT_IN_GROUPS TT_FACE_TWIN
#include "nccl/names_table.h"
