/* The entry points of calls. */
#include "communicator/call.h"

static tuttiResult_t call(const struct tt_request *request)
{
    return tt_call_collective(request);
}

tuttiResult_t tuttiAllReduce(const void *sendbuff, void *recvbuff, size_t count,
                             tuttiDataType_t type, tuttiRedOp_t op, tuttiComm_t comm,
                             tuttiStream_t stream)
{
    return call(&(struct tt_request){__func__, TT_ALL_REDUCE, sendbuff, recvbuff, count, type, op,
                                     0, comm, stream, NULL});
}

tuttiResult_t tuttiReduce(const void *sendbuff, void *recvbuff, size_t count, tuttiDataType_t type,
                          tuttiRedOp_t op, int root, tuttiComm_t comm, tuttiStream_t stream)
{
    return call(&(struct tt_request){__func__, TT_REDUCE, sendbuff, recvbuff, count, type, op, root,
                                     comm, stream, NULL});
}

tuttiResult_t tuttiBroadcast(const void *sendbuff, void *recvbuff, size_t count,
                             tuttiDataType_t type, int root, tuttiComm_t comm, tuttiStream_t stream)
{
    return call(&(struct tt_request){__func__, TT_BROADCAST, sendbuff, recvbuff, count, type,
                                     tuttiSum, root, comm, stream, NULL});
}

tuttiResult_t tuttiReduceScatter(const void *sendbuff, void *recvbuff, size_t recvcount,
                                 tuttiDataType_t type, tuttiRedOp_t op, tuttiComm_t comm,
                                 tuttiStream_t stream)
{
    return call(&(struct tt_request){__func__, TT_REDUCE_SCATTER, sendbuff, recvbuff, recvcount,
                                     type, op, 0, comm, stream, NULL});
}

tuttiResult_t tuttiAllGather(const void *sendbuff, void *recvbuff, size_t sendcount,
                             tuttiDataType_t type, tuttiComm_t comm, tuttiStream_t stream)
{
    return call(&(struct tt_request){__func__, TT_ALL_GATHER, sendbuff, recvbuff, sendcount, type,
                                     tuttiSum, 0, comm, stream, NULL});
}

tuttiResult_t tuttiAlltoAll(const void *sendbuff, void *recvbuff, size_t count,
                            tuttiDataType_t type, tuttiComm_t comm, tuttiStream_t stream)
{
    return call(&(struct tt_request){__func__, TT_ALL_TO_ALL, sendbuff, recvbuff, count, type,
                                     tuttiSum, 0, comm, stream, NULL});
}

tuttiResult_t tuttiGather(const void *sendbuff, void *recvbuff, size_t count, tuttiDataType_t type,
                          int root, tuttiComm_t comm, tuttiStream_t stream)
{
    return call(&(struct tt_request){__func__, TT_GATHER, sendbuff, recvbuff, count, type, tuttiSum,
                                     root, comm, stream, NULL});
}

tuttiResult_t tuttiScatter(const void *sendbuff, void *recvbuff, size_t count, tuttiDataType_t type,
                           int root, tuttiComm_t comm, tuttiStream_t stream)
{
    return call(&(struct tt_request){__func__, TT_SCATTER, sendbuff, recvbuff, count, type,
                                     tuttiSum, root, comm, stream, NULL});
}

tuttiResult_t tuttiBarrier(tuttiComm_t comm, tuttiStream_t stream)
{
    return call(&(struct tt_request){__func__, TT_BARRIER, NULL, NULL, 0, tuttiUint8, tuttiSum, 0,
                                     comm, stream, NULL});
}

/* ---- A count for each rank ------------------------------------------------------------------ */

tuttiResult_t tuttiAllGatherV(const void *sendbuff, void *recvbuff, const size_t recvcounts[],
                              const size_t displs[], tuttiDataType_t type, tuttiComm_t comm,
                              tuttiStream_t stream)
{
    const struct tt_uneven uneven = {"recvcounts", "displs", recvcounts, displs};
    return call(&(struct tt_request){__func__, TT_ALL_GATHER, sendbuff, recvbuff, 0, type, tuttiSum,
                                     0, comm, stream, &uneven});
}

tuttiResult_t tuttiReduceScatterV(const void *sendbuff, void *recvbuff, const size_t recvcounts[],
                                  tuttiDataType_t type, tuttiRedOp_t op, tuttiComm_t comm,
                                  tuttiStream_t stream)
{
    const struct tt_uneven uneven = {"recvcounts", "displs", recvcounts, NULL};
    return call(&(struct tt_request){__func__, TT_REDUCE_SCATTER, sendbuff, recvbuff, 0, type, op,
                                     0, comm, stream, &uneven});
}

tuttiResult_t tuttiGatherV(const void *sendbuff, void *recvbuff, const size_t recvcounts[],
                           const size_t displs[], tuttiDataType_t type, int root, tuttiComm_t comm,
                           tuttiStream_t stream)
{
    const struct tt_uneven uneven = {"recvcounts", "displs", recvcounts, displs};
    return call(&(struct tt_request){__func__, TT_GATHER, sendbuff, recvbuff, 0, type, tuttiSum,
                                     root, comm, stream, &uneven});
}

tuttiResult_t tuttiScatterV(const void *sendbuff, void *recvbuff, const size_t sendcounts[],
                            const size_t displs[], tuttiDataType_t type, int root, tuttiComm_t comm,
                            tuttiStream_t stream)
{
    const struct tt_uneven uneven = {"sendcounts", "displs", sendcounts, displs};
    return call(&(struct tt_request){__func__, TT_SCATTER, sendbuff, recvbuff, 0, type, tuttiSum,
                                     root, comm, stream, &uneven});
}

tuttiResult_t tuttiAlltoAllV(const void *sendbuff, const size_t sendcounts[],
                             const size_t sdispls[], void *recvbuff, const size_t recvcounts[],
                             const size_t rdispls[], tuttiDataType_t type, tuttiComm_t comm,
                             tuttiStream_t stream)
{
    const struct tt_uneven sent = {"sendcounts", "sdispls", sendcounts, sdispls},
                           received = {"recvcounts", "rdispls", recvcounts, rdispls};
    return tt_call_exchange(&(struct tt_request){__func__, TT_ALL_TO_ALL, sendbuff, recvbuff, 0,
                                                 type, tuttiSum, 0, comm, stream, NULL},
                            &sent, &received);
}

/* ---- Messages ------------------------------------------------------------------------------- */

tuttiResult_t tuttiSend(const void *sendbuff, size_t count, tuttiDataType_t type, int peer,
                        tuttiComm_t comm, tuttiStream_t stream)
{
    return tt_call_message(&(struct tt_message_request){
        __func__, TT_CALL_SEND, (void *)(uintptr_t)sendbuff, count, type, peer, comm, stream});
}

tuttiResult_t tuttiRecv(void *recvbuff, size_t count, tuttiDataType_t type, int peer,
                        tuttiComm_t comm, tuttiStream_t stream)
{
    return tt_call_message(&(struct tt_message_request){__func__, TT_CALL_RECV, recvbuff, count,
                                                        type, peer, comm, stream});
}
