/* The functions that NVIDIA declares in nccl_device.h and that libnccl.so.2 exports: what a program
 * asks of the host before its kernels use NCCL's device API. */
#ifndef TT_NCCL_DEVICE_H
#define TT_NCCL_DEVICE_H

#include <stdbool.h>

#include "nccl.h"

struct ncclDevComm;
struct ncclDevCommRequirements;
struct ncclDevResourceRequirements;
struct ncclLLA2AHandle;
struct ncclLsaBarrierHandle;
struct ncclGinBarrierHandle;
struct ncclGinOutboxHandle;
struct ncclGinInboxA2AHandle;

struct ncclMultimemHandle {
    void *mcBasePtr;
};

/* nRanks ranks of the communicator, `stride` apart, of which this one is number `rank`. */
struct ncclTeam {
    int nRanks, rank, stride;
};

/* As of 2.30.7. Later versions have more fields behind, in which 0 says that something is not
 * there.
 */
struct ncclCommProperties {
    size_t size;
    unsigned int magic;
    unsigned int version;
    int rank;
    int nRanks;
    int cudaDev;
    int nvmlDev;
    bool deviceApiSupport;
    bool multimemSupport;
    int ginType;
    int nLsaTeams;
    bool hostRmaSupport;
    int railedGinType;
};

/* Their types are those of the table. */
#define TT_LATER(name, what, parameters)                                                           \
    ncclResult_t nccl##name parameters;                                                            \
    ncclResult_t pnccl##name parameters;
#define TT_LATER_CALL TT_LATER
#include "nccl/names_table.h"

#define TT_FACE_BOTH(result, name, parameters)                                                     \
    result nccl##name parameters;                                                                  \
    result pnccl##name parameters
TT_FACE_BOTH(ncclResult_t, CommQueryProperties,
             (ncclComm_t comm, struct ncclCommProperties *properties));
TT_FACE_BOTH(struct ncclTeam, TeamWorld, (ncclComm_t comm));
TT_FACE_BOTH(struct ncclTeam, TeamLsa, (ncclComm_t comm));
TT_FACE_BOTH(struct ncclTeam, TeamRail, (ncclComm_t comm));
TT_FACE_BOTH(struct ncclTeam, TeamCft, (ncclComm_t comm, int mode));
TT_FACE_BOTH(struct ncclTeam, TeamCftMultimem, (ncclComm_t comm));
TT_FACE_BOTH(int, TeamRankToWorld, (ncclComm_t comm, struct ncclTeam team, int rank));
TT_FACE_BOTH(int, TeamRankToLsa, (ncclComm_t comm, struct ncclTeam team, int rank));
TT_FACE_BOTH(int, LLA2ACalcSlots, (int most_elements, int most_bytes));
#undef TT_FACE_BOTH

#endif
