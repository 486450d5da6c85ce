/* The collectives' and point-to-point entry points: they check the arguments and issue the call. */
#include <string.h>

#include "communicator/device.h"
#include "communicator/request.h"
#include "communicator/staged.h"
#include "communicator/staged_graphs.h"

tt_status tt_request_type(const char *function, tuttiDataType_t type, size_t *element)
{
    *element = (int)type >= 0 && type < tuttiNumTypes ? tt_type_size((enum tt_type)type) : 0;
    if (*element) return TT_OK;
    return tt_fail(TT_ERR_ARGUMENT, "%s: type %d is none of 0 to %d", function, (int)type,
                   tuttiNumTypes - 1);
}

tt_status tt_request_root(const struct tt_request *request)
{
    if (request->root >= 0 && request->root < request->comm->nranks) return TT_OK;
    return tt_fail(TT_ERR_ARGUMENT, "%s: root %d is not in 0..%d", request->function, request->root,
                   request->comm->nranks - 1);
}

tt_status tt_request_op(const struct tt_request *request, struct tt_reduction *reduction,
                        const void **scalar)
{
    const enum tt_type type = (enum tt_type)request->type;
    const int op = (int)request->op;
    *reduction = (struct tt_reduction){.type = type, .op = TT_SUM, .nranks = request->comm->nranks};
    if (!tt_collective_reduces(request->collective)) return TT_OK;
    if (op >= tuttiFirstDynamicRedOp && op < tuttiFirstDynamicRedOp + TT_MAX_DYNAMIC_OPS) {
        const struct tt_dynamic_op *made = &request->comm->dynamic_ops[op - tuttiFirstDynamicRedOp];
        if (!made->used)
            return tt_fail(TT_ERR_ARGUMENT,
                           "%s: operation %d was not made on communicator %s, or destroyed",
                           request->function, op, request->comm->name);
        if (made->type != type)
            return tt_fail(TT_ERR_ARGUMENT,
                           "%s: the pre-multiplied sum is of type %s, the call of type %s",
                           request->function, tt_type_name(made->type), tt_type_name(type));
        reduction->op = TT_PREMUL_SUM;
        memcpy(reduction->scalar, made->scalar, tt_type_size(type));
        *scalar = made->pointer;
        return TT_OK;
    }
    if (op < 0 || op >= TT_NOPS || op == TT_PREMUL_SUM || !tt_op_supports((enum tt_op)op, type)) {
        return tt_fail(TT_ERR_ARGUMENT, "%s: operation %d (%s) is not defined for type %s",
                       request->function, op,
                       op >= 0 && op < TT_NOPS ? tt_op_name((enum tt_op)op) : "unknown",
                       tt_type_name(type));
    }
    reduction->op = (enum tt_op)op;
    return TT_OK;
}

tt_status tt_request_buffer(const char *function, const char *name, const void *buffer,
                            size_t nbytes)
{
    if (!nbytes) return TT_OK;
    if (!buffer)
        return tt_fail(TT_ERR_ARGUMENT, "%s: %s is NULL, expected %zu bytes", function, name,
                       nbytes);
    if ((uintptr_t)buffer > UINTPTR_MAX - nbytes)
        return tt_fail(TT_ERR_ARGUMENT, "%s: %s %p with %zu bytes ends beyond memory", function,
                       name, buffer, nbytes);
    return TT_OK;
}

tt_status tt_request_overlap(const struct tt_request *request, struct tt_extent in,
                             struct tt_extent out, uintptr_t own)
{
    if (!in.nbytes || !out.nbytes || in.first >= out.first + out.nbytes ||
        out.first >= in.first + in.nbytes)
        return TT_OK;
    const struct tt_collective_row *row = tt_collective_row(request->collective);
    const bool in_place = row->input == row->output    ? in.first == out.first
                          : row->input == TT_HOLDS_OWN ? in.first == own
                                                       : out.first == own;
    if (in_place && row->in_place) return TT_OK;
    return tt_fail(
        TT_ERR_ARGUMENT, "%s: sendbuff %p (%zu bytes) and recvbuff %p (%zu bytes) overlap; %s%s",
        request->function, (void *)in.first, in.nbytes, (void *)out.first, out.nbytes,
        row->in_place ? "" : tt_collective_name(request->collective),
        row->in_place ? "only the in-place form of tutti.h is allowed" : " is never in place");
}

/* The sizes of this rank's buffers; 0 where a buffer is not significant. And of all blocks. */
static tt_status measure(const struct tt_request *request, struct tt_memo *memo)
{
    const int n = request->comm->nranks, rank = request->comm->rank;
    if (request->count > SIZE_MAX / 2 / memo->element / (size_t)n)
        return tt_fail(TT_ERR_ARGUMENT, "%s: count %zu of %zu bytes on %d ranks overflows",
                       request->function, request->count, memo->element, n);
    const size_t block = request->count * memo->element;
    const struct tt_shape shape = {
        .collective = request->collective, .nranks = n, .root = request->root};
    const int nblocks = tt_collective_counts(request->collective, n);
    int first;
    memo->in = (size_t)tt_buffer_blocks(&shape, nblocks, TT_INPUT, rank, &first) * block;
    memo->out = (size_t)tt_buffer_blocks(&shape, nblocks, TT_OUTPUT, rank, &first) * block;
    memo->payload = (size_t)nblocks * block;
    return TT_OK;
}

/* Checks everything but the pointers. */
static tt_status check(const struct tt_request *request, struct tt_memo *fresh)
{
    *fresh = (struct tt_memo){.count = request->count,
                              .type = (int)request->type,
                              .op = (int)request->op,
                              .root = request->root};
    TT_TRY(tt_request_type(request->function, request->type, &fresh->element));
    TT_TRY(tt_request_root(request));
    TT_TRY(tt_request_op(request, &fresh->call.reduction, &fresh->call.scalar));
    if (!request->count) fresh->call.scalar = NULL; /* nothing is multiplied */
    return measure(request, fresh);
}

/* Chooses the program of a call that was checked, and remembers both. */
static tt_status prepare(const struct tt_request *request, const struct tt_memo *checked,
                         bool on_device, struct tt_memo *memo)
{
    struct tt_memo fresh = *checked;
    memo->cached = NULL;
    TT_TRY(tt_comm_select(request->comm,
                          &(struct tt_selection){.collective = request->collective,
                                                 .root = request->root,
                                                 .nbytes = fresh.payload,
                                                 .on_device = on_device},
                          &fresh.cached));
    TT_TRY(
        tt_comm_bind(request->comm, fresh.cached, request->count, fresh.element, &fresh.binding));
    if (on_device) TT_TRY(tt_comm_device_load(request->comm, fresh.cached, &fresh.binding));
    fresh.call.loaded = fresh.cached->loaded;
    fresh.call.signature =
        tt_call_signature(fresh.call.loaded->program, request->count, &fresh.call.reduction);
    fresh.call.entry =
        tt_call_entry_make(fresh.call.loaded->program, request->count, &fresh.call.reduction);
    if (on_device) fresh.call.entry.type |= TT_ENTRY_ON_DEVICE;
    *memo = fresh;
    memo->call.binding = &memo->binding;
    return TT_OK;
}

/* A pre-multiplied sum is looked up each time: it may have been destroyed, its scalar may have
 * changed. */
static bool is_remembered(const struct tt_memo *memo, const struct tt_request *request)
{
    return memo->cached && memo->count == request->count && memo->type == (int)request->type &&
           memo->op == (int)request->op && memo->root == request->root &&
           memo->op < (int)tuttiFirstDynamicRedOp;
}

/* Bytes before this rank's block in the buffer that holds all blocks. */
static size_t before_own(const struct tt_request *request, const struct tt_memo *memo)
{
    return (size_t)request->comm->rank * request->count * memo->element;
}

static tt_status check_buffers(const struct tt_request *request, const struct tt_memo *memo)
{
    TT_TRY(tt_request_buffer(request->function, "sendbuff", request->input, memo->in));
    TT_TRY(tt_request_buffer(request->function, "recvbuff", request->output, memo->out));
    const uintptr_t in = (uintptr_t)request->input, out = (uintptr_t)request->output;
    const size_t before = before_own(request, memo);
    const bool gathers = tt_collective_row(request->collective)->output == TT_HOLDS_ALL;
    return tt_request_overlap(request, (struct tt_extent){in, memo->in},
                              (struct tt_extent){out, memo->out}, (gathers ? out : in) + before);
}

/* Issues the call that the memo holds. */
static tt_status issue_memo(tuttiComm_t comm, tuttiStream_t stream, const struct tt_memo *memo)
{
    if (!stream && !tt_in_group() && !tt_comm_replays(comm)) {
        if (memo->express.kind && tt_engine_enter_if_idle(&comm->engine))
            return tt_express_run(&memo->express, &comm->engine, &memo->call);
        return tt_issue_alone(comm, memo);
    }
    return tt_issue(&(struct tt_pending_call){.comm = comm,
                                              .stream = stream,
                                              .kind = TT_WORK_COLLECTIVE,
                                              .call = memo->call,
                                              .cached = memo->cached});
}

/* The call is as the memo says. */
static tt_status issue_prepared(const struct tt_request *request, struct tt_memo *memo)
{
    TT_TRY(check_buffers(request, memo));
    memo->call.input = request->input;
    memo->call.output = request->output;
    if (!memo->ready) tt_express_prepare(&memo->express, &request->comm->engine, &memo->call);
    memo->ready = true;
    tt_count_call(&request->comm->counts.collectives[request->collective], memo->payload);
    return issue_memo(request->comm, request->stream, memo);
}

/* A call that a kernel carries out. */
static tt_status issue_on_device(const struct tt_request *request, const struct tt_memo *checked)
{
    tuttiComm_t comm = request->comm;
    struct tt_memo *memo = &comm->on_gpu->memos[request->collective];
    if (!is_remembered(memo, request)) TT_TRY(prepare(request, checked, true, memo));
    struct tt_pending_call pending = {.comm = comm,
                                      .stream = request->stream,
                                      .kind = TT_WORK_COLLECTIVE,
                                      .call = memo->call,
                                      .cached = memo->cached,
                                      .on_device = true};
    pending.call.input = request->input;
    pending.call.output = request->output;
    tt_count_call(&comm->counts.collectives[request->collective], memo->payload);
    return tt_issue(&pending);
}

/* A call on device memory that the host carries out, as the memo says. */
static tt_status issue_staged(const struct tt_request *request, const struct tt_memo *memo)
{
    struct tt_pending_call pending = {.comm = request->comm,
                                      .stream = request->stream,
                                      .kind = TT_WORK_COLLECTIVE,
                                      .call = memo->call,
                                      .cached = memo->cached};
    TT_TRY(tt_comm_stage_collective(&pending, request, memo->in, memo->out,
                                    before_own(request, memo)));
    tt_count_call(&request->comm->counts.collectives[request->collective], memo->payload);
    return tt_issue(&pending);
}

/* A call that is not like the last one, or that may be on device memory. */
static tt_status check_and_issue(const struct tt_request *request, bool may_be_on_device)
{
    struct tt_memo fresh, *memo = &request->comm->memos[request->collective];
    bool on_device = false;
    TT_TRY(check(request, &fresh));
    if (may_be_on_device) {
        TT_TRY(check_buffers(request, &fresh));
        TT_TRY(tt_comm_route(request, &fresh, &on_device));
    }
    const bool staged = on_device && request->comm->staged;
    if (on_device && !staged) return issue_on_device(request, &fresh);
    if (!is_remembered(memo, request)) TT_TRY(prepare(request, &fresh, false, memo));
    return staged ? issue_staged(request, memo) : issue_prepared(request, memo);
}

static const struct tt_stream *stream_of(const struct tt_request *request)
{
    return (const struct tt_stream *)request->stream;
}

static tt_status issue(const struct tt_request *request)
{
    tuttiComm_t comm = request->comm;
    TT_TRY(tt_comm_check_call(comm, request->stream));
    const bool may_be_on_device =
        comm->gpu >= 0 || (request->stream && tt_stream_context(stream_of(request)));
    struct tt_memo *memo = &comm->memos[request->collective];
    if (!may_be_on_device && is_remembered(memo, request)) return issue_prepared(request, memo);
    tt_comm_enter_call(comm); /* a proof takes long enough to be aborted in */
    const tt_status status = check_and_issue(request, may_be_on_device);
    tt_comm_leave_call(comm);
    return status;
}

static tuttiResult_t call(const struct tt_request *request)
{
    return tt_group_result(request->function, issue(request));
}

tuttiResult_t tuttiAllReduce(const void *sendbuff, void *recvbuff, size_t count,
                             tuttiDataType_t type, tuttiRedOp_t op, tuttiComm_t comm,
                             tuttiStream_t stream)
{
    return call(&(struct tt_request){__func__, TT_ALL_REDUCE, sendbuff, recvbuff, count, type, op,
                                     0, comm, stream});
}

tuttiResult_t tuttiReduce(const void *sendbuff, void *recvbuff, size_t count, tuttiDataType_t type,
                          tuttiRedOp_t op, int root, tuttiComm_t comm, tuttiStream_t stream)
{
    return call(&(struct tt_request){__func__, TT_REDUCE, sendbuff, recvbuff, count, type, op, root,
                                     comm, stream});
}

tuttiResult_t tuttiBroadcast(const void *sendbuff, void *recvbuff, size_t count,
                             tuttiDataType_t type, int root, tuttiComm_t comm, tuttiStream_t stream)
{
    return call(&(struct tt_request){__func__, TT_BROADCAST, sendbuff, recvbuff, count, type,
                                     tuttiSum, root, comm, stream});
}

tuttiResult_t tuttiReduceScatter(const void *sendbuff, void *recvbuff, size_t recvcount,
                                 tuttiDataType_t type, tuttiRedOp_t op, tuttiComm_t comm,
                                 tuttiStream_t stream)
{
    return call(&(struct tt_request){__func__, TT_REDUCE_SCATTER, sendbuff, recvbuff, recvcount,
                                     type, op, 0, comm, stream});
}

tuttiResult_t tuttiAllGather(const void *sendbuff, void *recvbuff, size_t sendcount,
                             tuttiDataType_t type, tuttiComm_t comm, tuttiStream_t stream)
{
    return call(&(struct tt_request){__func__, TT_ALL_GATHER, sendbuff, recvbuff, sendcount, type,
                                     tuttiSum, 0, comm, stream});
}

tuttiResult_t tuttiAlltoAll(const void *sendbuff, void *recvbuff, size_t count,
                            tuttiDataType_t type, tuttiComm_t comm, tuttiStream_t stream)
{
    return call(&(struct tt_request){__func__, TT_ALL_TO_ALL, sendbuff, recvbuff, count, type,
                                     tuttiSum, 0, comm, stream});
}

tuttiResult_t tuttiGather(const void *sendbuff, void *recvbuff, size_t count, tuttiDataType_t type,
                          int root, tuttiComm_t comm, tuttiStream_t stream)
{
    return call(&(struct tt_request){__func__, TT_GATHER, sendbuff, recvbuff, count, type, tuttiSum,
                                     root, comm, stream});
}

tuttiResult_t tuttiScatter(const void *sendbuff, void *recvbuff, size_t count, tuttiDataType_t type,
                           int root, tuttiComm_t comm, tuttiStream_t stream)
{
    return call(&(struct tt_request){__func__, TT_SCATTER, sendbuff, recvbuff, count, type,
                                     tuttiSum, root, comm, stream});
}

tuttiResult_t tuttiBarrier(tuttiComm_t comm, tuttiStream_t stream)
{
    return call(&(struct tt_request){__func__, TT_BARRIER, NULL, NULL, 0, tuttiUint8, tuttiSum, 0,
                                     comm, stream});
}

static tt_status route_p2p(const struct tt_request *request, enum tt_work_kind kind,
                           const void *data, size_t nbytes, bool *on_device)
{
    const struct tt_extent extent = {(uintptr_t)data, nbytes}, none = {0, 0};
    struct tt_request with = *request;
    if (kind == TT_WORK_SEND)
        with.input = data;
    else
        with.output = (void *)(uintptr_t)data;
    return tt_comm_route_extents(&with, kind == TT_WORK_SEND ? extent : none,
                                 kind == TT_WORK_SEND ? none : extent, NULL, on_device);
}

static tt_status check_and_issue_p2p(enum tt_work_kind kind, const void *data, size_t count,
                                     tuttiDataType_t type, int peer, tuttiComm_t comm,
                                     tuttiStream_t stream)
{
    const char *function = kind == TT_WORK_SEND ? "tuttiSend" : "tuttiRecv";
    size_t element;
    TT_TRY(tt_request_type(function, type, &element));
    if (peer < 0 || peer >= comm->nranks)
        return tt_fail(TT_ERR_ARGUMENT, "%s: peer %d is not in 0..%d", function, peer,
                       comm->nranks - 1);
    if (count > SIZE_MAX / 2 / element)
        return tt_fail(TT_ERR_ARGUMENT, "%s: count %zu of %zu bytes overflows", function, count,
                       element);
    TT_TRY(tt_request_buffer(function, kind == TT_WORK_SEND ? "sendbuff" : "recvbuff", data,
                             count * element));
    bool on_device = false;
    if (comm->gpu >= 0 || tt_stream_context((const struct tt_stream *)stream))
        TT_TRY(route_p2p(&(struct tt_request){.function = function, .comm = comm, .stream = stream},
                         kind, data, count * element, &on_device));
    if (peer == comm->rank && !tt_in_group())
        return tt_fail(TT_ERR_USAGE,
                       "%s: rank %d sends to or receives from itself outside a group: it would "
                       "wait for itself",
                       function, peer);
    tt_count_call(kind == TT_WORK_SEND ? &comm->counts.send : &comm->counts.recv, count * element);
    struct tt_pending_call pending; /* member by member: `call` is large, and of collectives */
    pending.comm = comm;
    pending.stream = stream;
    pending.kind = kind;
    pending.on_device = on_device && !comm->staged;
    pending.stage = NULL;
    pending.data = (void *)(uintptr_t)data;
    pending.nbytes = count * element;
    pending.peer = peer;
    if (on_device && comm->staged) TT_TRY(tt_comm_stage_message(&pending));
    return tt_issue(&pending);
}

static tt_status issue_p2p(enum tt_work_kind kind, const void *data, size_t count,
                           tuttiDataType_t type, int peer, tuttiComm_t comm, tuttiStream_t stream)
{
    TT_TRY(tt_comm_check_call(comm, stream));
    /* A group enters its calls when it ends. */
    if (tt_in_group()) return check_and_issue_p2p(kind, data, count, type, peer, comm, stream);
    tt_comm_enter_call(comm);
    const tt_status status = check_and_issue_p2p(kind, data, count, type, peer, comm, stream);
    tt_comm_leave_call(comm);
    return status;
}

tuttiResult_t tuttiSend(const void *sendbuff, size_t count, tuttiDataType_t type, int peer,
                        tuttiComm_t comm, tuttiStream_t stream)
{
    return tt_group_result(__func__,
                           issue_p2p(TT_WORK_SEND, sendbuff, count, type, peer, comm, stream));
}

tuttiResult_t tuttiRecv(void *recvbuff, size_t count, tuttiDataType_t type, int peer,
                        tuttiComm_t comm, tuttiStream_t stream)
{
    return tt_group_result(__func__,
                           issue_p2p(TT_WORK_RECV, recvbuff, count, type, peer, comm, stream));
}
