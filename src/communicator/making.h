/* A communicator in the making: what its makers share. */
#ifndef TT_COMMUNICATOR_MAKING_H
#define TT_COMMUNICATOR_MAKING_H

#include "communicator/communicator.h"

/* One participant's status after a round of the creation. */
struct tt_verdict {
    int32_t status;
    char text[252];
};

struct tt_making {
    const struct tt_participants *participants;
    const struct tt_comm_config *config;
    int rank, nranks;
    bool member;
    bool has_no_gpu;  /* this rank; kernels of others may run their part of calls */
    tt_status status; /* how far this rank has come */
    tuttiComm_t comm; /* NULL: there is nothing to free yet */
    struct tt_comm_links links;
    struct tt_peer_info mine;
    int fd_socket;                         /* -1: the fabric has it */
    struct tt_wires *wires;                /* until the fabric has them */
    struct tt_peer_info *everyone;         /* [nparticipants] */
    struct tt_wires_info *everyones_wires; /* [nparticipants]; NULL: all are on one host */
    struct tt_verdict *verdicts;           /* [nparticipants] */
};

/* All participants learn of all failures; the first one's text becomes everyone's error. */
TT_NODISCARD tt_status tt_making_agree(const struct tt_making *making);
/* The participant that is a rank of the new communicator. */
int tt_making_participant(const struct tt_making *making, int rank);
/* Whether several hosts have ranks of this rank's new communicator, or, with `any` true, of all new
 * communicators together; the latter is the same for all participants. */
bool tt_making_several_hosts(const struct tt_making *making, bool any);
/* Where any rank has a GPU: decides who carries the calls on its memory. Rounds of all
 * participants. */
TT_NODISCARD tt_status tt_making_connect_gpus(struct tt_making *making);

#endif
