/* What a program asks of a communicator before it uses NCCL's device API: which ranks it could
 * reach in memory. Here each rank reaches only itself, so such programs take their other way. */
#include <stddef.h>
#include <string.h>

#include "nccl/face.h"

/* No struct of properties is larger: in 2.32.3 it has 152 bytes. */
enum { LEAST_PROPERTIES = 40 /* of NCCL 2.29.2 */, MOST_PROPERTIES = 4096 };

static struct ncclTeam team_of(ncclComm_t comm, bool is_all)
{
    struct ncclTeam team = {.nRanks = 1, .rank = 0, .stride = 1};
    if (!is_all) return team;
    if (tt_face_end(tuttiCommCount(tt_face_comm(comm), &team.nRanks)) ||
        tt_face_end(tuttiCommUserRank(tt_face_comm(comm), &team.rank)))
        team = (struct ncclTeam){0};
    return team;
}

struct ncclTeam pncclTeamWorld(ncclComm_t comm)
{
    return team_of(comm, true);
}

struct ncclTeam pncclTeamLsa(ncclComm_t comm)
{
    return team_of(comm, false);
}

/* The ranks that have the same place in their LSA teams, which are of one rank. */
struct ncclTeam pncclTeamRail(ncclComm_t comm)
{
    return team_of(comm, true);
}

struct ncclTeam pncclTeamCft(ncclComm_t comm, int mode)
{
    (void)mode;
    return team_of(comm, false);
}

struct ncclTeam pncclTeamCftMultimem(ncclComm_t comm)
{
    return team_of(comm, false);
}

int pncclTeamRankToWorld(ncclComm_t comm, struct ncclTeam team, int rank)
{
    return team_of(comm, true).rank + (rank - team.rank) * team.stride;
}

int pncclTeamRankToLsa(ncclComm_t comm, struct ncclTeam team, int rank)
{
    (void)comm;
    return (rank - team.rank) * team.stride;
}

/* No session of the device API can be made, so none has slots. */
int pncclLLA2ACalcSlots(int most_elements, int most_bytes)
{
    (void)most_elements, (void)most_bytes;
    return 0;
}

ncclResult_t pncclCommQueryProperties(ncclComm_t comm, struct ncclCommProperties *properties)
{
    const tuttiComm_t own = tt_face_comm(comm);
    int rank, nranks, device;
    if (!properties || properties->magic != NCCL_API_MAGIC || properties->size < LEAST_PROPERTIES ||
        properties->size > MOST_PROPERTIES)
        return tt_face_refuse(ncclInvalidArgument,
                              "ncclCommQueryProperties: the properties %p are not from "
                              "NCCL_COMM_PROPERTIES_INITIALIZER of 2.29 or later",
                              (void *)properties);
    tuttiResult_t result = tuttiCommUserRank(own, &rank);
    if (!result) result = tuttiCommCount(own, &nranks);
    if (!result) result = tuttiCommDevice(own, &device);
    if (result) return tt_face_end_as("ncclCommQueryProperties", result);
    memset(&properties->rank, 0, properties->size - offsetof(struct ncclCommProperties, rank));
    properties->rank = rank;
    properties->nRanks = nranks;
    properties->cudaDev = properties->nvmlDev = device;
    if (properties->size >= offsetof(struct ncclCommProperties, nLsaTeams) + sizeof(int))
        properties->nLsaTeams = nranks;
    return ncclSuccess;
}

#define TT_IN_TEAMS TT_FACE_TWIN
#include "nccl/names_table.h"
