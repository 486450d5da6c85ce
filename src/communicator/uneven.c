/* The collectives in which each rank has a count of its own: they check the counts and where the
 * blocks lie, and issue the call. */
#include <stdlib.h>

#include "communicator/device.h"
#include "communicator/staged.h"

/* The counts of a call, and where the blocks lie in this rank's buffer that holds all of them. */
struct uneven {
    const char *counts_name, *displs_name; /* for messages */
    const size_t *counts;                  /* [nranks] elements */
    const size_t *displs;                  /* [nranks] elements; NULL: packed */
};

/* *total: elements of all blocks. */
static tt_status check_counts(const char *function, const struct uneven *uneven, int nranks,
                              size_t element, size_t *total)
{
    const size_t most = SIZE_MAX / 2 / element;
    *total = 0;
    if (!uneven->counts)
        return tt_fail(TT_ERR_ARGUMENT, "%s: %s is NULL, expected %d counts", function,
                       uneven->counts_name, nranks);
    for (int r = 0; r < nranks; r++) {
        const size_t count = uneven->counts[r];
        if (count > most - *total)
            return tt_fail(TT_ERR_ARGUMENT,
                           "%s: %s[%d] is %zu, which with those before it overflows: at most %zu "
                           "elements of %zu bytes",
                           function, uneven->counts_name, r, count, most, element);
        *total += count;
        if (uneven->displs && uneven->displs[r] > most - count)
            return tt_fail(TT_ERR_ARGUMENT,
                           "%s: %s[%d] is %zu, which with %zu elements of %zu bytes overflows",
                           function, uneven->displs_name, r, uneven->displs[r], count, element);
    }
    return TT_OK;
}

/* Where a rank's block lies, in elements. */
struct range {
    size_t begin, end;
    int rank;
};

static int compare_ranges(const void *left, const void *right)
{
    const struct range *a = left, *b = right;
    return (a->begin > b->begin) - (a->begin < b->begin);
}

/* Two blocks that are written must not share elements. */
static tt_status check_apart(const char *function, const struct uneven *uneven, int nranks)
{
    if (!uneven->displs) return TT_OK;
    struct range *ranges = malloc((size_t)nranks * sizeof *ranges);
    if (!ranges) return tt_fail(TT_ERR_SYSTEM, "%s: out of memory for %d counts", function, nranks);
    int n = 0;
    for (int r = 0; r < nranks; r++) {
        const size_t begin = uneven->displs[r], count = uneven->counts[r];
        if (count) ranges[n++] = (struct range){begin, begin + count, r};
    }
    qsort(ranges, (size_t)n, sizeof *ranges, compare_ranges);
    tt_status status = TT_OK;
    for (int i = 1; i < n && !status; i++) {
        const struct range *a = &ranges[i - 1], *b = &ranges[i];
        if (b->begin < a->end)
            status = tt_fail(TT_ERR_ARGUMENT,
                             "%s: %s puts the block of rank %d (elements %zu to %zu) over that of "
                             "rank %d (%zu to %zu): blocks must not overlap",
                             function, uneven->displs_name, b->rank, b->begin, b->end - 1, a->rank,
                             a->begin, a->end - 1);
    }
    free(ranges);
    return status;
}

/* Elements of the blocks of the ranks before this one. */
static size_t packed_before(const struct uneven *uneven, int rank)
{
    size_t begin = 0;
    for (int r = 0; r < rank; r++) begin += uneven->counts[r];
    return begin;
}

/* From the first element of any block to the last of any, whose buffer begins at `buffer`. */
static struct tt_extent extent_of_all(const struct uneven *uneven, int nranks, const void *buffer,
                                      size_t element)
{
    size_t first = SIZE_MAX, end = 0, packed = 0;
    for (int r = 0; r < nranks; r++) {
        const size_t begin = uneven->displs ? uneven->displs[r] : packed;
        packed += uneven->counts[r];
        if (!uneven->counts[r]) continue;
        if (begin < first) first = begin;
        if (begin + uneven->counts[r] > end) end = begin + uneven->counts[r];
    }
    if (end == 0) return (struct tt_extent){.first = (uintptr_t)buffer};
    return (struct tt_extent){(uintptr_t)buffer + first * element, (end - first) * element};
}

static tt_status check_pointer(const struct tt_request *request, bool input,
                               const struct tt_extent *extent)
{
    const void *buffer = input ? request->input : request->output;
    const size_t before = extent->first - (uintptr_t)buffer;
    return tt_request_buffer(request->function, input ? "sendbuff" : "recvbuff", buffer,
                             extent->nbytes ? before + extent->nbytes : 0);
}

static tt_status check_one_buffer(const struct tt_request *request, const struct uneven *uneven,
                                  bool input, size_t element, struct tt_extent *extent)
{
    const struct tuttiComm *comm = request->comm;
    const void *buffer = input ? request->input : request->output;
    const enum tt_holds holds =
        tt_collective_holds(request->collective, input, comm->rank == request->root);
    *extent = (struct tt_extent){.first = (uintptr_t)buffer};
    if (holds == TT_HOLDS_OWN) extent->nbytes = uneven->counts[comm->rank] * element;
    if (holds == TT_HOLDS_ALL) *extent = extent_of_all(uneven, comm->nranks, buffer, element);
    TT_TRY(check_pointer(request, input, extent));
    return holds == TT_HOLDS_ALL && !input ? check_apart(request->function, uneven, comm->nranks)
                                           : TT_OK;
}

/* What this rank uses of its buffers. */
struct extents {
    struct tt_extent in, out;
};

static tt_status check_buffers(const struct tt_request *request, const struct uneven *uneven,
                               size_t element, struct extents *used)
{
    TT_TRY(check_one_buffer(request, uneven, true, element, &used->in));
    TT_TRY(check_one_buffer(request, uneven, false, element, &used->out));
    const bool gathers = tt_collective_row(request->collective)->output == TT_HOLDS_ALL;
    const uintptr_t all = gathers ? (uintptr_t)request->output : (uintptr_t)request->input;
    const int rank = request->comm->rank;
    const size_t begin = uneven->displs ? uneven->displs[rank] : packed_before(uneven, rank);
    return tt_request_overlap(request, used->in, used->out, all + begin * element);
}

static bool may_be_on_device(const struct tt_request *request)
{
    return request->comm->gpu >= 0 ||
           tt_stream_context((const struct tt_stream *)request->stream) != NULL;
}

/* Displacements are looked at only where this rank has the buffer that they are of. */
static bool holds_all(const struct tt_request *request)
{
    const bool is_root = request->comm->rank == request->root;
    return tt_collective_holds(request->collective, true, is_root) == TT_HOLDS_ALL ||
           tt_collective_holds(request->collective, false, is_root) == TT_HOLDS_ALL;
}

/* The selected program to the counts, on the GPU where the call is. */
static tt_status bind_counts(struct tt_pending_call *pending, const struct tt_counts *counts,
                             size_t element)
{
    struct tt_binding *binding;
    tuttiComm_t comm = pending->comm;
    TT_TRY(tt_comm_bind_counts(comm, pending->cached, counts, element, &binding));
    const tt_status status =
        pending->on_device ? tt_comm_device_load(comm, pending->cached, binding) : TT_OK;
    if (status) {
        free(binding);
        return status;
    }
    pending->call.loaded = pending->cached->loaded;
    pending->call.binding = binding;
    return TT_OK;
}

static tt_status prepare_and_issue(const struct tt_request *request, const struct uneven *given)
{
    const int nranks = request->comm->nranks;
    struct uneven uneven = *given;
    struct tt_pending_call pending = {
        .comm = request->comm, .stream = request->stream, .kind = TT_WORK_COLLECTIVE};
    size_t element, total;
    struct extents used;
    TT_TRY(tt_request_type(request->function, request->type, &element));
    TT_TRY(tt_request_root(request));
    if (!holds_all(request)) uneven.displs = NULL;
    TT_TRY(tt_request_op(request, &pending.call.reduction, &pending.call.scalar));
    TT_TRY(check_counts(request->function, &uneven, nranks, element, &total));
    if (!total) pending.call.scalar = NULL; /* nothing is multiplied */
    TT_TRY(check_buffers(request, &uneven, element, &used));
    if (may_be_on_device(request))
        TT_TRY(tt_comm_route_extents(request, used.in, used.out, pending.call.scalar,
                                     &pending.on_device));
    const bool staged = pending.on_device && request->comm->staged;
    pending.on_device = pending.on_device && !staged;
    const struct tt_selection selection = {.collective = request->collective,
                                           .root = request->root,
                                           .nbytes = total * element,
                                           .uneven = true,
                                           .on_device = pending.on_device};
    TT_TRY(tt_comm_select(request->comm, &selection, &pending.cached));
    const bool packs = staged && tt_comm_stage_packs(request->comm, total * element);
    const struct tt_counts counts = {.counts = uneven.counts,
                                     .begins = packs ? NULL : uneven.displs};
    TT_TRY(bind_counts(&pending, &counts, element));
    pending.call.input = request->input;
    pending.call.output = request->output;
    pending.call.signature =
        tt_call_signature(pending.call.loaded->program, tt_counts_signature(uneven.counts, nranks),
                          &pending.call.reduction);
    pending.call.entry =
        tt_call_entry_make(pending.call.loaded->program, total, &pending.call.reduction);
    if (pending.on_device) pending.call.entry.type |= TT_ENTRY_ON_DEVICE;
    const tt_status status =
        staged ? tt_comm_stage_uneven(&pending, request, uneven.counts, uneven.displs, element)
               : TT_OK;
    if (status) {
        free((void *)(uintptr_t)pending.call.binding);
        return status;
    }
    tt_count_call(&request->comm->counts.collectives[request->collective], total * element);
    return tt_issue(&pending);
}

static tt_status issue(const struct tt_request *request, const struct uneven *given)
{
    TT_TRY(tt_comm_check_call(request->comm, request->stream));
    tt_comm_enter_call(request->comm);
    const tt_status status = prepare_and_issue(request, given);
    tt_comm_leave_call(request->comm);
    return status;
}

static tuttiResult_t call(const struct tt_request *request, const struct uneven *uneven)
{
    return tt_group_result(request->function, issue(request, uneven));
}

tuttiResult_t tuttiAllGatherV(const void *sendbuff, void *recvbuff, const size_t recvcounts[],
                              const size_t displs[], tuttiDataType_t type, tuttiComm_t comm,
                              tuttiStream_t stream)
{
    return call(&(struct tt_request){__func__, TT_ALL_GATHER, sendbuff, recvbuff, 0, type, tuttiSum,
                                     0, comm, stream},
                &(struct uneven){"recvcounts", "displs", recvcounts, displs});
}

tuttiResult_t tuttiReduceScatterV(const void *sendbuff, void *recvbuff, const size_t recvcounts[],
                                  tuttiDataType_t type, tuttiRedOp_t op, tuttiComm_t comm,
                                  tuttiStream_t stream)
{
    return call(&(struct tt_request){__func__, TT_REDUCE_SCATTER, sendbuff, recvbuff, 0, type, op,
                                     0, comm, stream},
                &(struct uneven){"recvcounts", "displs", recvcounts, NULL});
}

tuttiResult_t tuttiGatherV(const void *sendbuff, void *recvbuff, const size_t recvcounts[],
                           const size_t displs[], tuttiDataType_t type, int root, tuttiComm_t comm,
                           tuttiStream_t stream)
{
    return call(&(struct tt_request){__func__, TT_GATHER, sendbuff, recvbuff, 0, type, tuttiSum,
                                     root, comm, stream},
                &(struct uneven){"recvcounts", "displs", recvcounts, displs});
}

tuttiResult_t tuttiScatterV(const void *sendbuff, void *recvbuff, const size_t sendcounts[],
                            const size_t displs[], tuttiDataType_t type, int root, tuttiComm_t comm,
                            tuttiStream_t stream)
{
    return call(&(struct tt_request){__func__, TT_SCATTER, sendbuff, recvbuff, 0, type, tuttiSum,
                                     root, comm, stream},
                &(struct uneven){"sendcounts", "displs", sendcounts, displs});
}

/* ---- All to all: grouped point to point -------------------------------------------------------
 */

/* *total: elements that this rank sends, or receives, where that is more. */
static tt_status check_exchange(const struct tt_request *request, const struct uneven *sent,
                                const struct uneven *received, size_t *element, size_t *total,
                                bool *on_device)
{
    size_t in_total, out_total;
    const int nranks = request->comm->nranks;
    TT_TRY(tt_request_type(request->function, request->type, element));
    TT_TRY(check_counts(request->function, sent, nranks, *element, &in_total));
    TT_TRY(check_counts(request->function, received, nranks, *element, &out_total));
    TT_TRY(check_apart(request->function, received, nranks));
    *total = in_total > out_total ? in_total : out_total;
    const struct tt_extent in = extent_of_all(sent, nranks, request->input, *element);
    const struct tt_extent out = extent_of_all(received, nranks, request->output, *element);
    TT_TRY(check_pointer(request, true, &in));
    TT_TRY(check_pointer(request, false, &out));
    *on_device = false;
    if (may_be_on_device(request)) TT_TRY(tt_comm_route_extents(request, in, out, NULL, on_device));
    return tt_request_overlap(request, in, out, 0);
}

/* One side of an exchange: the next peer, and where its block lies. */
struct side {
    const struct uneven *uneven;
    enum tt_work_kind kind;
    uintptr_t buffer;
    size_t packed; /* elements before the next peer's, where blocks are packed */
    bool on_device;
};

static tt_status issue_next(const struct tt_request *request, struct side *side, int peer,
                            size_t element)
{
    const struct uneven *uneven = side->uneven;
    const size_t count = uneven->counts[peer];
    if (peer == 0) side->packed = 0;
    const size_t begin = uneven->displs ? uneven->displs[peer] : side->packed;
    side->packed += count;
    const bool staged = side->on_device && request->comm->staged;
    struct tt_pending_call pending = {.comm = request->comm,
                                      .stream = request->stream,
                                      .kind = side->kind,
                                      .on_device = side->on_device && !staged,
                                      .data = (void *)(count ? side->buffer + begin * element : 0),
                                      .nbytes = count * element,
                                      .peer = peer};
    if (staged) TT_TRY(tt_comm_stage_message(&pending));
    return tt_issue(&pending);
}

/* In a group. Each rank begins with the next one, so that no rank is everybody's first. */
static tt_status issue_exchange(const struct tt_request *request, const struct uneven *sent,
                                const struct uneven *received, size_t element, bool on_device)
{
    const int nranks = request->comm->nranks, next = request->comm->rank + 1;
    struct side sends = {sent, TT_WORK_SEND, (uintptr_t)request->input, packed_before(sent, next),
                         on_device},
                recvs = {received, TT_WORK_RECV, (uintptr_t)request->output,
                         packed_before(received, next), on_device};
    for (int i = 0; i < nranks; i++) {
        const int peer = (next + i) % nranks;
        TT_TRY(issue_next(request, &sends, peer, element));
        TT_TRY(issue_next(request, &recvs, peer, element));
    }
    return TT_OK;
}

static tuttiResult_t exchange(const struct tt_request *request, const struct uneven *sent,
                              const struct uneven *received)
{
    size_t element, total;
    bool on_device;
    const tt_status status = check_exchange(request, sent, received, &element, &total, &on_device);
    if (status) return tt_group_result(request->function, status);
    tt_count_call(&request->comm->counts.collectives[TT_ALL_TO_ALL], total * element);
    const tuttiResult_t start = tuttiGroupStart();
    if (start != tuttiSuccess) return start;
    const tuttiResult_t issued = tt_group_result(
        request->function, issue_exchange(request, sent, received, element, on_device));
    const tuttiResult_t end = tt_group_end(false);
    return issued != tuttiSuccess ? issued : end;
}

tuttiResult_t tuttiAlltoAllV(const void *sendbuff, const size_t sendcounts[],
                             const size_t sdispls[], void *recvbuff, const size_t recvcounts[],
                             const size_t rdispls[], tuttiDataType_t type, tuttiComm_t comm,
                             tuttiStream_t stream)
{
    const struct tt_request request = {__func__, TT_ALL_TO_ALL, sendbuff, recvbuff, 0,
                                       type,     tuttiSum,      0,        comm,     stream};
    const struct uneven sent = {"sendcounts", "sdispls", sendcounts, sdispls},
                        received = {"recvcounts", "rdispls", recvcounts, rdispls};
    const tt_status status = tt_comm_check_call(comm, stream);
    if (status) return tt_group_result(__func__, status);
    tt_comm_enter_call(comm);
    const tuttiResult_t result = exchange(&request, &sent, &received);
    tt_comm_leave_call(comm);
    return result;
}
