/* Collectives, sends and receives. The types and operations of NCCL have the same numbers in tutti,
 * which has more. */
#include "nccl/face.h"

_Static_assert((int)ncclFloat8e5m2 == (int)tuttiFloat8e5m2 && (int)ncclAvg == (int)tuttiAvg,
               "types and operations have the same values");

/* A call as tutti takes it. */
struct call {
    tuttiDataType_t type;
    tuttiRedOp_t op;
    tuttiComm_t comm;
    tuttiStream_t stream;
    ncclResult_t result; /* of a call that has ended here */
};

static inline bool is_type(ncclDataType_t type)
{
    return (unsigned)type < ncclNumTypes;
}

static inline bool is_op(ncclRedOp_t op)
{
    return (unsigned)op < ncclNumOps || (int)op >= (int)tuttiFirstDynamicRedOp;
}

ncclResult_t tt_face_check_type(const char *function, ncclDataType_t type)
{
    if (is_type(type)) return ncclSuccess;
    return tt_face_refuse(ncclInvalidArgument, "%s: type %d is none of 0 to %d", function,
                          (int)type, ncclNumTypes - 1);
}

static ncclResult_t check_op(const char *function, ncclRedOp_t op)
{
    if (is_op(op)) return ncclSuccess;
    return tt_face_refuse(ncclInvalidArgument,
                          "%s: operation %d is none of 0 to %d, and ncclRedOpCreatePreMulSum has "
                          "not made it",
                          function, (int)op, ncclNumOps - 1);
}

/* The checks of a collective of no elements, which is not passed on to tutti. */
static ncclResult_t check_empty(const struct call *call, const char *function, int root)
{
    int nranks;
    ncclResult_t result = tt_face_end_as(function, tuttiCommCount(call->comm, &nranks));
    if (!result) result = tt_face_end_as(function, tuttiCommCheck(call->comm));
    if (!result && (root < 0 || root >= nranks))
        result = tt_face_refuse(ncclInvalidArgument, "%s: root %d is not in 0..%d", function, root,
                                nranks - 1);
    return result;
}

/* The checks that tutti does not make, and what is seldom: an error, no elements, a CUDA stream.
 * Returns whether the call goes on. */
__attribute__((noinline)) static bool look(struct call *call, const char *function, size_t count,
                                           int root, ncclComm_t comm, cudaStream_t stream)
{
    call->result = tt_face_check_type(function, (ncclDataType_t)call->type);
    if (!call->result) call->result = check_op(function, (ncclRedOp_t)call->op);
    if (!call->result)
        call->result = count ? tt_face_find_stream(function, comm, stream, &call->stream)
                             : check_empty(call, function, root);
    (void)tt_face_fail_group(call->result);
    return !call->result && count;
}

/* Whether the call goes on; else call->result is its result. A collective of no elements is done.
 * Only its root is looked at then (0: it has none). */
static inline bool begins(struct call *call, const char *function, size_t count,
                          ncclDataType_t type, ncclRedOp_t op, int root, ncclComm_t comm,
                          cudaStream_t stream)
{
    call->type = (tuttiDataType_t)type;
    call->op = (tuttiRedOp_t)op;
    call->comm = tt_face_comm(comm);
    call->stream = NULL;
    const bool no_stream =
        !stream && !atomic_load_explicit(&tt_face_has_gpus, memory_order_relaxed);
    if (__builtin_expect(is_type(type) && is_op(op) && count && no_stream, 1)) return true;
    return look(call, function, count, root, comm, stream);
}

ncclResult_t pncclReduce(const void *sendbuff, void *recvbuff, size_t count,
                         ncclDataType_t datatype, ncclRedOp_t op, int root, ncclComm_t comm,
                         cudaStream_t stream)
{
    struct call call;
    if (!begins(&call, "ncclReduce", count, datatype, op, root, comm, stream)) return call.result;
    return tt_face_end(
        tuttiReduce(sendbuff, recvbuff, count, call.type, call.op, root, call.comm, call.stream));
}

ncclResult_t pncclBcast(void *buff, size_t count, ncclDataType_t datatype, int root,
                        ncclComm_t comm, cudaStream_t stream)
{
    struct call call;
    if (!begins(&call, "ncclBcast", count, datatype, ncclSum, root, comm, stream))
        return call.result;
    return tt_face_end_as(
        "ncclBcast", tuttiBroadcast(buff, buff, count, call.type, root, call.comm, call.stream));
}

ncclResult_t pncclBroadcast(const void *sendbuff, void *recvbuff, size_t count,
                            ncclDataType_t datatype, int root, ncclComm_t comm, cudaStream_t stream)
{
    struct call call;
    if (!begins(&call, "ncclBroadcast", count, datatype, ncclSum, root, comm, stream))
        return call.result;
    return tt_face_end(
        tuttiBroadcast(sendbuff, recvbuff, count, call.type, root, call.comm, call.stream));
}

ncclResult_t pncclAllReduce(const void *sendbuff, void *recvbuff, size_t count,
                            ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm,
                            cudaStream_t stream)
{
    struct call call;
    if (!begins(&call, "ncclAllReduce", count, datatype, op, 0, comm, stream)) return call.result;
    return tt_face_end(
        tuttiAllReduce(sendbuff, recvbuff, count, call.type, call.op, call.comm, call.stream));
}

ncclResult_t pncclReduceScatter(const void *sendbuff, void *recvbuff, size_t recvcount,
                                ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm,
                                cudaStream_t stream)
{
    struct call call;
    if (!begins(&call, "ncclReduceScatter", recvcount, datatype, op, 0, comm, stream))
        return call.result;
    return tt_face_end(tuttiReduceScatter(sendbuff, recvbuff, recvcount, call.type, call.op,
                                          call.comm, call.stream));
}

ncclResult_t pncclAllGather(const void *sendbuff, void *recvbuff, size_t sendcount,
                            ncclDataType_t datatype, ncclComm_t comm, cudaStream_t stream)
{
    struct call call;
    if (!begins(&call, "ncclAllGather", sendcount, datatype, ncclSum, 0, comm, stream))
        return call.result;
    return tt_face_end(
        tuttiAllGather(sendbuff, recvbuff, sendcount, call.type, call.comm, call.stream));
}

ncclResult_t pncclAlltoAll(const void *sendbuff, void *recvbuff, size_t count,
                           ncclDataType_t datatype, ncclComm_t comm, cudaStream_t stream)
{
    struct call call;
    if (!begins(&call, "ncclAlltoAll", count, datatype, ncclSum, 0, comm, stream))
        return call.result;
    return tt_face_end(tuttiAlltoAll(sendbuff, recvbuff, count, call.type, call.comm, call.stream));
}

ncclResult_t pncclGather(const void *sendbuff, void *recvbuff, size_t count,
                         ncclDataType_t datatype, int root, ncclComm_t comm, cudaStream_t stream)
{
    struct call call;
    if (!begins(&call, "ncclGather", count, datatype, ncclSum, root, comm, stream))
        return call.result;
    return tt_face_end(
        tuttiGather(sendbuff, recvbuff, count, call.type, root, call.comm, call.stream));
}

ncclResult_t pncclScatter(const void *sendbuff, void *recvbuff, size_t count,
                          ncclDataType_t datatype, int root, ncclComm_t comm, cudaStream_t stream)
{
    struct call call;
    if (!begins(&call, "ncclScatter", count, datatype, ncclSum, root, comm, stream))
        return call.result;
    return tt_face_end(
        tuttiScatter(sendbuff, recvbuff, count, call.type, root, call.comm, call.stream));
}

/* ---- With a config -------------------------------------------------------------------------- */

ncclResult_t pncclReduceConfig(const void *sendbuff, void *recvbuff, size_t count,
                               ncclDataType_t datatype, ncclRedOp_t op, int root, ncclComm_t comm,
                               cudaStream_t stream, const ncclCollConfig_t *config)
{
    const ncclResult_t refused = tt_face_check_call_config("ncclReduceConfig", config);
    return refused ? refused
                   : pncclReduce(sendbuff, recvbuff, count, datatype, op, root, comm, stream);
}

ncclResult_t pncclBroadcastConfig(const void *sendbuff, void *recvbuff, size_t count,
                                  ncclDataType_t datatype, int root, ncclComm_t comm,
                                  cudaStream_t stream, const ncclCollConfig_t *config)
{
    const ncclResult_t refused = tt_face_check_call_config("ncclBroadcastConfig", config);
    return refused ? refused
                   : pncclBroadcast(sendbuff, recvbuff, count, datatype, root, comm, stream);
}

ncclResult_t pncclAllReduceConfig(const void *sendbuff, void *recvbuff, size_t count,
                                  ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm,
                                  cudaStream_t stream, const ncclCollConfig_t *config)
{
    const ncclResult_t refused = tt_face_check_call_config("ncclAllReduceConfig", config);
    return refused ? refused
                   : pncclAllReduce(sendbuff, recvbuff, count, datatype, op, comm, stream);
}

ncclResult_t pncclReduceScatterConfig(const void *sendbuff, void *recvbuff, size_t recvcount,
                                      ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm,
                                      cudaStream_t stream, const ncclCollConfig_t *config)
{
    const ncclResult_t refused = tt_face_check_call_config("ncclReduceScatterConfig", config);
    return refused ? refused
                   : pncclReduceScatter(sendbuff, recvbuff, recvcount, datatype, op, comm, stream);
}

ncclResult_t pncclAllGatherConfig(const void *sendbuff, void *recvbuff, size_t sendcount,
                                  ncclDataType_t datatype, ncclComm_t comm, cudaStream_t stream,
                                  const ncclCollConfig_t *config)
{
    const ncclResult_t refused = tt_face_check_call_config("ncclAllGatherConfig", config);
    return refused ? refused
                   : pncclAllGather(sendbuff, recvbuff, sendcount, datatype, comm, stream);
}

ncclResult_t pncclAlltoAllConfig(const void *sendbuff, void *recvbuff, size_t count,
                                 ncclDataType_t datatype, ncclComm_t comm, cudaStream_t stream,
                                 const ncclCollConfig_t *config)
{
    const ncclResult_t refused = tt_face_check_call_config("ncclAlltoAllConfig", config);
    return refused ? refused : pncclAlltoAll(sendbuff, recvbuff, count, datatype, comm, stream);
}

ncclResult_t pncclGatherConfig(const void *sendbuff, void *recvbuff, size_t count,
                               ncclDataType_t datatype, int root, ncclComm_t comm,
                               cudaStream_t stream, const ncclCollConfig_t *config)
{
    const ncclResult_t refused = tt_face_check_call_config("ncclGatherConfig", config);
    return refused ? refused : pncclGather(sendbuff, recvbuff, count, datatype, root, comm, stream);
}

ncclResult_t pncclScatterConfig(const void *sendbuff, void *recvbuff, size_t count,
                                ncclDataType_t datatype, int root, ncclComm_t comm,
                                cudaStream_t stream, const ncclCollConfig_t *config)
{
    const ncclResult_t refused = tt_face_check_call_config("ncclScatterConfig", config);
    return refused ? refused
                   : pncclScatter(sendbuff, recvbuff, count, datatype, root, comm, stream);
}

/* ---- Point to point ------------------------------------------------------------------------- */

/* An empty message is a message: its count is never 0 for begins. */
ncclResult_t pncclSend(const void *sendbuff, size_t count, ncclDataType_t datatype, int peer,
                       ncclComm_t comm, cudaStream_t stream)
{
    struct call call;
    if (!begins(&call, "ncclSend", 1, datatype, ncclSum, 0, comm, stream)) return call.result;
    return tt_face_end(tuttiSend(sendbuff, count, call.type, peer, call.comm, call.stream));
}

ncclResult_t pncclRecv(void *recvbuff, size_t count, ncclDataType_t datatype, int peer,
                       ncclComm_t comm, cudaStream_t stream)
{
    struct call call;
    if (!begins(&call, "ncclRecv", 1, datatype, ncclSum, 0, comm, stream)) return call.result;
    return tt_face_end(tuttiRecv(recvbuff, count, call.type, peer, call.comm, call.stream));
}

#define TT_IN_COLLECTIVES TT_FACE_TWIN
#include "nccl/names_table.h"
