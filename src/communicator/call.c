/* The way of every call: check, find its carrier, choose a program, bind it, count, issue. */
#include "communicator/call.h"

#include <stdlib.h>

#include "base/thread.h"
#include "communicator/calling.h"
#include "communicator/issue.h"

/* ---- Calls like the last one ---------------------------------------------------------------- */

/* A pre-multiplied sum is looked up each time: it may have been destroyed, its scalar may have
 * changed. */
static bool is_remembered(const struct tt_memo *memo, const struct tt_request *request)
{
    return memo->cached && memo->count == request->count && memo->type == (int)request->type &&
           memo->op == (int)request->op && memo->root == request->root &&
           memo->op < (int)tuttiFirstDynamicRedOp;
}

/* The call needs no place in a list. */
__attribute__((noinline)) static tt_status run_alone(tuttiComm_t comm, const struct tt_memo *memo)
{
    struct tt_work work;
    TT_TRY(tt_check_may_wait(&comm->core, &comm->core.engine.collectives_done));
    tt_work_collective(&work, &comm->core.engine, &memo->call);
    memo->cached->last_turn = work.turn;
    return tt_run(&work, false);
}

__attribute__((noinline)) static tt_status issue_memo(tuttiComm_t comm, struct tt_stream *stream,
                                                      const struct tt_memo *memo)
{
    return tt_issue(&(struct tt_pending_call){.comm = &comm->core,
                                              .carrier = &tt_carrier_host,
                                              .stream = stream,
                                              .kind = TT_CALL_COLLECTIVE,
                                              .call = memo->call,
                                              .cached = memo->cached,
                                              .users = {memo->call.input, memo->call.output}});
}

/* The host carries the call, which is as the memo says. Outside groups, without a stream, most go
 * express: that way is short, so the others are functions of their own. */
static tt_status issue_remembered(const struct tt_request *request, struct tt_stream *stream,
                                  struct tt_memo *memo)
{
    tuttiComm_t comm = request->comm;
    if (request->input != memo->call.input || request->output != memo->call.output) {
        TT_TRY(tt_request_pointers(request, memo->in, memo->out, memo->before_own));
        memo->call.input = request->input;
        memo->call.output = request->output;
    }
    tt_count_call(&comm->counts.collectives[request->collective], memo->payload);
    if (stream || tt_in_group()) return issue_memo(comm, stream, memo);
    if (memo->express && tt_engine_enter_if_idle(&comm->core.engine))
        return tt_express_run(&comm->core.engine, &memo->call, memo->express);
    return run_alone(comm, memo);
}

/* ---- Programs ------------------------------------------------------------------------------- */

static tt_status choose_program(const struct tt_request *request, const struct tt_checked *checked,
                                const struct tt_carrier *carrier, struct tt_cached **cached)
{
    return tt_comm_select(
        request->comm,
        &(struct tt_selection){.collective = request->collective,
                               .root = request->root,
                               .nbytes = checked->blocks.total * checked->blocks.element,
                               .uneven = request->uneven != NULL,
                               .carrier = carrier},
        cached);
}

/* Fills in all of a call but its buffers. count: what the ranks must agree on. */
static void describe_call(struct tt_call *call, const struct tt_cached *cached,
                          const struct tt_checked *checked, size_t count, size_t entry_count)
{
    call->loaded = cached->loaded;
    call->reduction = checked->reduction;
    call->scalar = checked->where.scalar;
    call->signature = tt_call_signature(call->loaded->program, count, &call->reduction);
    call->entry = tt_call_entry_make(call->loaded->program, entry_count, &call->reduction);
}

/* Chooses the program of a call that was checked, and remembers both. */
static tt_status remember(const struct tt_request *request, const struct tt_checked *checked,
                          const struct tt_carrier *carrier, struct tt_memo *memo)
{
    const size_t element = checked->blocks.element, count = request->count;
    struct tt_memo fresh = {.count = count,
                            .type = (int)request->type,
                            .op = (int)request->op,
                            .root = request->root,
                            .in = checked->where.in.nbytes,
                            .out = checked->where.out.nbytes,
                            .before_own = checked->blocks.before_own,
                            .payload = checked->blocks.total * element,
                            .call = {.input = request->input, .output = request->output}};
    memo->cached = NULL;
    TT_TRY(choose_program(request, checked, carrier, &fresh.cached));
    TT_TRY(tt_comm_bind(request->comm, fresh.cached, count, element, &fresh.binding,
                        &fresh.call.resolved));
    describe_call(&fresh.call, fresh.cached, checked, count, count);
    *memo = fresh;
    memo->call.binding = &memo->binding;
    memo->express = tt_express_kind(&request->comm->core.engine, &memo->call);
    return TT_OK;
}

/* A program bound to a count for each rank; its table of blocks is memory of the call's own. */
static tt_status bind_counts(const struct tt_request *request, const struct tt_checked *checked,
                             struct tt_pending_call *pending)
{
    const struct tt_call_blocks *blocks = &checked->blocks;
    const struct tt_carrier *carrier = pending->carrier;
    struct tt_binding *binding;
    TT_TRY(choose_program(request, checked, carrier, &pending->cached));
    const struct tt_counts counts = {.counts = blocks->counts,
                                     .begins = carrier->packs ? NULL : blocks->displs};
    TT_TRY(tt_comm_bind_counts(request->comm, pending->cached, &counts, blocks->element, &binding));
    pending->call.binding = binding;
    describe_call(&pending->call, pending->cached, checked,
                  tt_counts_signature(blocks->counts, pending->comm->nranks), blocks->total);
    return TT_OK;
}

/* The carrier's part of a call. */
static tt_status prepare(struct tt_pending_call *pending, const struct tt_where *where,
                         const struct tt_call_blocks *blocks)
{
    if (!pending->carrier->prepare) return TT_OK;
    return pending->carrier->prepare(pending, where, blocks);
}

/* ---- Collectives ---------------------------------------------------------------------------- */

/* With the carrier's part of it. */
static tt_status issue_prepared(const struct tt_request *request, const struct tt_checked *checked,
                                struct tt_pending_call *pending)
{
    const struct tt_call_blocks *blocks = &checked->blocks;
    pending->call.input = request->input;
    pending->call.output = request->output;
    pending->users[0] = request->input;
    pending->users[1] = request->output;
    const tt_status status = prepare(pending, &checked->where, blocks);
    if (status) {
        if (tt_call_has_table(pending)) free((void *)(uintptr_t)pending->call.binding);
        return status;
    }
    tt_count_call(&request->comm->counts.collectives[request->collective],
                  blocks->total * blocks->element);
    return tt_issue(pending);
}

/* A call that is not like the last one, or that may be on a GPU. */
static tt_status check_and_issue(const struct tt_request *request, bool may_be_on_gpu)
{
    tuttiComm_t comm = request->comm;
    struct tt_checked checked;
    const struct tt_carrier *carrier = &tt_carrier_host;
    TT_TRY(tt_request_check(request, &checked));
    if (may_be_on_gpu) TT_TRY(tt_carrier_select(&comm->core, &checked.where, &carrier));
    struct tt_memo *memo =
        request->uneven ? NULL : &comm->memos[carrier->programs][request->collective];
    if (memo && !is_remembered(memo, request)) TT_TRY(remember(request, &checked, carrier, memo));
    struct tt_stream *stream = checked.where.stream;
    if (memo && carrier == &tt_carrier_host) return issue_remembered(request, stream, memo);
    struct tt_pending_call pending = {
        .comm = &comm->core, .carrier = carrier, .stream = stream, .kind = TT_CALL_COLLECTIVE};
    if (memo) {
        pending.call = memo->call;
        pending.cached = memo->cached;
    } else {
        TT_TRY(bind_counts(request, &checked, &pending));
    }
    return issue_prepared(request, &checked, &pending);
}

/* The driver's functions may be cancellation points: a thread that ended in one would leave the
 * communicator marked, and tuttiCommAbort would wait for good. Calls of the host pay nothing. */
__attribute__((noinline)) static tt_status check_and_issue_on_gpu(const struct tt_request *request)
{
    TT_CANCELS_WAIT;
    return check_and_issue(request, true);
}

/* comm: the request's. */
static tt_status issue(const struct tt_request *request, tuttiComm_t comm)
{
    struct tt_stream *stream = tt_request_stream(request);
    const bool may_be_on_gpu = tt_may_be_on_gpu(&comm->core, stream);
    struct tt_memo *memo = &comm->memos[TT_PROGRAMS_OF_HOST][request->collective];
    if (!may_be_on_gpu && !request->uneven && is_remembered(memo, request))
        return issue_remembered(request, stream, memo);
    return may_be_on_gpu ? check_and_issue_on_gpu(request) : check_and_issue(request, false);
}

tuttiResult_t tt_call_collective(const struct tt_request *request)
{
    tuttiComm_t comm = request->comm;
    tt_status status = tt_comm_begin_call(comm, request->stream);
    if (!status) {
        status = issue(request, comm);
        if (status) status = tt_core_tell_failure(&comm->core, status);
        tt_comm_end_call(comm);
    }
    return status ? tt_group_result(request->function, status) : tuttiSuccess;
}

/* ---- Messages ------------------------------------------------------------------------------- */

/* *stream: that of the request; NULL, where the call has none. */
static tt_status find_carrier(const struct tt_message_request *request, size_t nbytes,
                              const struct tt_carrier **carrier, struct tt_stream **stream)
{
    const struct tt_comm_core *core = &request->comm->core;
    const bool sends = request->kind == TT_CALL_SEND;
    const struct tt_extent extent = {(uintptr_t)request->data, nbytes}, none = {0, 0};
    struct tt_where where = {.function = request->function,
                             .input = sends ? request->data : NULL,
                             .output = sends ? NULL : request->data,
                             .in = sends ? extent : none,
                             .out = sends ? none : extent,
                             .stream = *stream,
                             .may_be_empty = true};
    TT_TRY(tt_carrier_select(core, &where, carrier));
    *stream = where.stream;
    return TT_OK;
}

/* A send or receive whose arguments are checked. */
struct message {
    struct tt_stream *stream;
    enum tt_call_kind kind;
    int peer;
    void *data;
    size_t nbytes;
};

/* Inlined: the struct then costs nothing. */
__attribute__((always_inline)) static inline tt_status
issue_message(tuttiComm_t comm, const struct tt_carrier *carrier, const struct message *message)
{
    struct tt_pending_call pending; /* member by member: `call` is large, and of collectives */
    pending.comm = &comm->core;
    pending.carrier = carrier;
    pending.stream = message->stream;
    pending.kind = message->kind;
    pending.peer = message->peer;
    pending.data = message->data;
    pending.nbytes = message->nbytes;
    pending.users[0] = pending.users[1] = message->data;
    pending.exchange = NULL;
    pending.stage = NULL;
    TT_TRY(prepare(&pending, NULL, NULL));
    return tt_issue(&pending);
}

static tt_status check_message(const struct tt_message_request *request, bool may_be_on_gpu)
{
    tuttiComm_t comm = request->comm;
    const struct tt_carrier *carrier = &tt_carrier_host;
    const bool sends = request->kind == TT_CALL_SEND;
    const int peer = request->peer;
    struct tt_stream *stream = (struct tt_stream *)request->stream;
    size_t element;
    TT_TRY(tt_request_type(request->function, request->type, &element));
    if (peer < 0 || peer >= comm->core.nranks)
        return tt_fail(TT_ERR_ARGUMENT, "%s: peer %d is not in 0..%d", request->function, peer,
                       comm->core.nranks - 1);
    if (request->count > SIZE_MAX / 2 / element)
        return tt_fail(TT_ERR_ARGUMENT, "%s: count %zu of %zu bytes overflows", request->function,
                       request->count, element);
    const size_t nbytes = request->count * element;
    TT_TRY(tt_request_buffer(request->function, sends ? "sendbuff" : "recvbuff", request->data,
                             nbytes));
    if (may_be_on_gpu) TT_TRY(find_carrier(request, nbytes, &carrier, &stream));
    if (peer == comm->core.rank && !tt_in_group())
        return tt_fail(TT_ERR_USAGE,
                       "%s: rank %d sends to or receives from itself outside a group: it would "
                       "wait for itself",
                       request->function, peer);
    tt_count_call(sends ? &comm->counts.send : &comm->counts.recv, nbytes);
    return issue_message(comm, carrier,
                         &(struct message){stream, request->kind, peer, request->data, nbytes});
}

/* A message in memory of a GPU: its preparation calls the driver, where no thread may be cancelled.
 */
__attribute__((noinline)) static tt_status
check_message_on_gpu(const struct tt_message_request *request)
{
    TT_CANCELS_WAIT;
    return check_message(request, true);
}

tuttiResult_t tt_call_message(const struct tt_message_request *request)
{
    tuttiComm_t comm = request->comm;
    tt_status status = tt_comm_begin_call(comm, request->stream);
    if (status) return tt_group_result(request->function, status);
    status = tt_may_be_on_gpu(&comm->core, (struct tt_stream *)request->stream)
                 ? check_message_on_gpu(request)
                 : check_message(request, false);
    if (status) status = tt_core_tell_failure(&comm->core, status);
    tt_comm_end_call(comm);
    return status ? tt_group_result(request->function, status) : tuttiSuccess;
}

/* ---- All-to-all with counts ----------------------------------------------------------------- */

/* One side of an exchange: the next peer, and where its block lies. */
struct side {
    const struct tt_uneven *uneven;
    struct tt_stream *stream; /* of its messages */
    enum tt_call_kind kind;
    uintptr_t buffer;
    size_t packed; /* elements before the next peer's, where blocks are packed */
};

static tt_status issue_next(const struct tt_request *request, const struct tt_carrier *carrier,
                            struct side *side, int peer, size_t element)
{
    const struct tt_uneven *uneven = side->uneven;
    const size_t count = uneven->counts[peer];
    if (peer == 0) side->packed = 0;
    const size_t begin = uneven->displs ? uneven->displs[peer] : side->packed;
    side->packed += count;
    void *data = (void *)(count ? side->buffer + begin * element : 0);
    return issue_message(request->comm, carrier,
                         &(struct message){side->stream, side->kind, peer, data, count * element});
}

/* In a group. Each rank begins with the next one, so that no rank is everybody's first. */
static tt_status issue_exchange(const struct tt_request *request, const struct tt_carrier *carrier,
                                const struct tt_uneven *sent, const struct tt_uneven *received,
                                const struct tt_checked *checked)
{
    const int nranks = request->comm->core.nranks, next = request->comm->core.rank + 1;
    const size_t element = checked->blocks.element;
    struct tt_stream *stream = checked->where.stream;
    struct side sends = {sent, stream, TT_CALL_SEND, (uintptr_t)request->input,
                         tt_uneven_before(sent, next)},
                recvs = {received, stream, TT_CALL_RECV, (uintptr_t)request->output,
                         tt_uneven_before(received, next)};
    for (int i = 0; i < nranks; i++) {
        const int peer = (next + i) % nranks;
        TT_TRY(issue_next(request, carrier, &sends, peer, element));
        TT_TRY(issue_next(request, carrier, &recvs, peer, element));
    }
    return TT_OK;
}

static tuttiResult_t exchange(const struct tt_request *request, const struct tt_uneven *sent,
                              const struct tt_uneven *received)
{
    struct tt_comm_core *core = &request->comm->core;
    const struct tt_carrier *carrier = &tt_carrier_host;
    struct tt_checked checked;
    tt_status status = tt_request_check_exchange(request, sent, received, &checked);
    if (!status && tt_may_be_on_gpu(core, tt_request_stream(request)))
        status = tt_carrier_select(core, &checked.where, &carrier);
    if (status) return tt_group_result(request->function, tt_core_tell_failure(core, status));
    tt_count_call(&request->comm->counts.collectives[TT_ALL_TO_ALL],
                  checked.blocks.total * checked.blocks.element);
    tt_group_start();
    status = tt_core_tell_failure(core, issue_exchange(request, carrier, sent, received, &checked));
    const tuttiResult_t issued = tt_group_result(request->function, status);
    const tuttiResult_t end = tt_group_end(false);
    return issued != tuttiSuccess ? issued : end;
}

/* An exchange in memory of a GPU: its preparation calls the driver, where no thread may be
 * cancelled. */
static tuttiResult_t exchange_on_gpu(const struct tt_request *request, const struct tt_uneven *sent,
                                     const struct tt_uneven *received)
{
    TT_CANCELS_WAIT;
    return exchange(request, sent, received);
}

tuttiResult_t tt_call_exchange(const struct tt_request *request, const struct tt_uneven *sent,
                               const struct tt_uneven *received)
{
    tuttiComm_t comm = request->comm;
    const tt_status status = tt_comm_begin_call(comm, request->stream);
    if (status) return tt_group_result(request->function, status);
    tt_core_enter_call(&comm->core); /* the end of the exchange's group ends `calling` */
    const tuttiResult_t result = tt_may_be_on_gpu(&comm->core, tt_request_stream(request))
                                     ? exchange_on_gpu(request, sent, received)
                                     : exchange(request, sent, received);
    tt_core_leave_call(&comm->core);
    tt_comm_end_call(comm);
    return result;
}
