/* Checks the arguments of collective calls. */
#include "communicator/request.h"

#include <stdlib.h>
#include <string.h>

tt_status tt_request_type(const char *function, tuttiDataType_t type, size_t *element)
{
    *element = (int)type >= 0 && type < tuttiNumTypes ? tt_type_size((enum tt_type)type) : 0;
    if (*element) return TT_OK;
    return tt_fail(TT_ERR_ARGUMENT, "%s: type %d is none of 0 to %d", function, (int)type,
                   tuttiNumTypes - 1);
}

static tt_status check_root(const struct tt_request *request)
{
    const int nranks = request->comm->core.nranks;
    if (request->root >= 0 && request->root < nranks) return TT_OK;
    return tt_fail(TT_ERR_ARGUMENT, "%s: root %d is not in 0..%d", request->function, request->root,
                   nranks - 1);
}

/* ---- The operation -------------------------------------------------------------------------- */

static tt_status find_dynamic_op(const struct tt_request *request, struct tt_checked *checked)
{
    const enum tt_type type = (enum tt_type)request->type;
    const int op = (int)request->op;
    const struct tt_dynamic_op *made = tt_comm_find_op(request->comm, op);
    if (!made)
        return tt_fail(TT_ERR_ARGUMENT,
                       "%s: operation %d was not made on communicator %s, or destroyed",
                       request->function, op, request->comm->core.name);
    if (made->type != type)
        return tt_fail(TT_ERR_ARGUMENT,
                       "%s: the pre-multiplied sum is of type %s, the call of type %s",
                       request->function, tt_type_name(made->type), tt_type_name(type));
    checked->reduction.op = TT_PREMUL_SUM;
    memcpy(checked->reduction.scalar, made->scalar, tt_type_size(type));
    checked->where.scalar = made->pointer;
    return TT_OK;
}

/* Fills in operation and scalar. Pre-multiplied sums are the communicator's. */
static tt_status check_op(const struct tt_request *request, struct tt_checked *checked)
{
    const enum tt_type type = (enum tt_type)request->type;
    const int op = (int)request->op;
    checked->reduction =
        (struct tt_reduction){.type = type, .op = TT_SUM, .nranks = request->comm->core.nranks};
    if (!tt_collective_reduces(request->collective)) return TT_OK;
    if (op >= tuttiFirstDynamicRedOp && op < tuttiMaxRedOp)
        return find_dynamic_op(request, checked);
    if (op < 0 || op >= TT_NOPS || op == TT_PREMUL_SUM || !tt_op_supports((enum tt_op)op, type))
        return tt_fail(TT_ERR_ARGUMENT, "%s: operation %d (%s) is not defined for type %s",
                       request->function, op,
                       op >= 0 && op < TT_NOPS ? tt_op_name((enum tt_op)op) : "unknown",
                       tt_type_name(type));
    checked->reduction.op = (enum tt_op)op;
    return TT_OK;
}

/* ---- Buffers -------------------------------------------------------------------------------- */

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

/* Where this rank's block lies in the buffer that holds all. */
static uintptr_t own_block(const struct tt_request *request, size_t before_own)
{
    const bool gathers = tt_collective_row(request->collective)->output == TT_HOLDS_ALL;
    return (gathers ? (uintptr_t)request->output : (uintptr_t)request->input) + before_own;
}

/* Whether buffers that overlap do so as the collective's row allows. before_own: bytes before this
 * rank's block in the buffer that holds all, if only one does. */
static tt_status check_in_place(const struct tt_request *request, struct tt_extent in,
                                struct tt_extent out, size_t before_own)
{
    const uintptr_t own = own_block(request, before_own);
    const struct tt_collective_row *row = tt_collective_row(request->collective);
    const bool in_place = row->input == row->output    ? in.first == out.first
                          : row->input == TT_HOLDS_OWN ? in.first == own
                                                       : out.first == own;
    if ((in_place && row->in_place) || request->comm->overlaps) return TT_OK;
    return tt_fail(
        TT_ERR_ARGUMENT, "%s: sendbuff %p (%zu bytes) and recvbuff %p (%zu bytes) overlap; %s%s",
        request->function, (void *)in.first, in.nbytes, (void *)out.first, out.nbytes,
        row->in_place ? "" : tt_collective_name(request->collective),
        row->in_place ? "only the in-place form of tutti.h is allowed" : " is never in place");
}

tt_status tt_request_pointers(const struct tt_request *request, size_t in, size_t out,
                              size_t before_own)
{
    TT_TRY(tt_request_buffer(request->function, "sendbuff", request->input, in));
    TT_TRY(tt_request_buffer(request->function, "recvbuff", request->output, out));
    const struct tt_extent input = {(uintptr_t)request->input, in};
    const struct tt_extent output = {(uintptr_t)request->output, out};
    return tt_extents_overlap(input, output) ? check_in_place(request, input, output, before_own)
                                             : TT_OK;
}

static tt_status check_overlap(const struct tt_checked *checked, const struct tt_request *request,
                               size_t before_own)
{
    const struct tt_extent in = checked->where.in, out = checked->where.out;
    return tt_extents_overlap(in, out) ? check_in_place(request, in, out, before_own) : TT_OK;
}

/* ---- One count for all ranks ---------------------------------------------------------------- */

static tt_status check_count(const struct tt_request *request, struct tt_checked *checked)
{
    const int n = request->comm->core.nranks, rank = request->comm->core.rank;
    const size_t element = checked->blocks.element;
    if (request->count > SIZE_MAX / 2 / element / (size_t)n)
        return tt_fail(TT_ERR_ARGUMENT, "%s: count %zu of %zu bytes on %d ranks overflows",
                       request->function, request->count, element, n);
    const size_t block = request->count * element;
    const struct tt_shape shape = {
        .collective = request->collective, .nranks = n, .root = request->root};
    const int nblocks = tt_collective_counts(request->collective, n);
    int first;
    const size_t in = (size_t)tt_buffer_blocks(&shape, nblocks, TT_INPUT, rank, &first) * block;
    const size_t out = (size_t)tt_buffer_blocks(&shape, nblocks, TT_OUTPUT, rank, &first) * block;
    checked->where.in = (struct tt_extent){(uintptr_t)request->input, in};
    checked->where.out = (struct tt_extent){(uintptr_t)request->output, out};
    checked->blocks.total = (size_t)nblocks * request->count;
    checked->blocks.before_own = (size_t)rank * block;
    return tt_request_pointers(request, in, out, checked->blocks.before_own);
}

/* ---- A count for each rank ------------------------------------------------------------------ */

/* *total: elements of all blocks. */
static tt_status check_counts(const char *function, const struct tt_uneven *uneven, int nranks,
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
static tt_status check_apart(const char *function, const struct tt_uneven *uneven, int nranks)
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

size_t tt_uneven_before(const struct tt_uneven *uneven, int rank)
{
    size_t begin = 0;
    for (int r = 0; r < rank; r++) begin += uneven->counts[r];
    return begin;
}

/* From the first element of any block to the last of any, whose buffer begins at `buffer`. */
static struct tt_extent extent_of_all(const struct tt_uneven *uneven, int nranks,
                                      const void *buffer, size_t element)
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

static tt_status check_one_buffer(const struct tt_request *request, const struct tt_uneven *uneven,
                                  bool input, size_t element, struct tt_extent *extent)
{
    const struct tt_comm_core *comm = &request->comm->core;
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

/* Displacements are looked at only where this rank has the buffer that they are of. */
static bool holds_all(const struct tt_request *request)
{
    const bool is_root = request->comm->core.rank == request->root;
    return tt_collective_holds(request->collective, true, is_root) == TT_HOLDS_ALL ||
           tt_collective_holds(request->collective, false, is_root) == TT_HOLDS_ALL;
}

static tt_status check_uneven(const struct tt_request *request, struct tt_checked *checked)
{
    const int rank = request->comm->core.rank;
    struct tt_call_blocks *blocks = &checked->blocks;
    struct tt_uneven uneven = *request->uneven;
    if (!holds_all(request)) uneven.displs = NULL;
    TT_TRY(check_counts(request->function, &uneven, request->comm->core.nranks, blocks->element,
                        &blocks->total));
    TT_TRY(check_one_buffer(request, &uneven, true, blocks->element, &checked->where.in));
    TT_TRY(check_one_buffer(request, &uneven, false, blocks->element, &checked->where.out));
    blocks->counts = uneven.counts;
    blocks->displs = uneven.displs;
    blocks->before_own =
        blocks->element * (uneven.displs ? uneven.displs[rank] : tt_uneven_before(&uneven, rank));
    checked->where.may_be_empty = true;
    return check_overlap(checked, request, blocks->before_own);
}

/* ---- All arguments -------------------------------------------------------------------------- */

static struct tt_checked unchecked(const struct tt_request *request)
{
    return (struct tt_checked){
        .where = {.function = request->function,
                  .input = request->input,
                  .output = request->output,
                  .stream = tt_request_stream(request)},
        .blocks = {.collective = request->collective, .root = request->root}};
}

tt_status tt_request_check(const struct tt_request *request, struct tt_checked *checked)
{
    *checked = unchecked(request);
    TT_TRY(tt_request_type(request->function, request->type, &checked->blocks.element));
    TT_TRY(check_root(request));
    TT_TRY(check_op(request, checked));
    TT_TRY(request->uneven ? check_uneven(request, checked) : check_count(request, checked));
    if (!checked->blocks.total) checked->where.scalar = NULL; /* nothing is multiplied */
    return TT_OK;
}

tt_status tt_request_check_exchange(const struct tt_request *request, const struct tt_uneven *sent,
                                    const struct tt_uneven *received, struct tt_checked *checked)
{
    const int nranks = request->comm->core.nranks;
    size_t element, in_total, out_total;
    *checked = unchecked(request);
    TT_TRY(tt_request_type(request->function, request->type, &element));
    TT_TRY(check_counts(request->function, sent, nranks, element, &in_total));
    TT_TRY(check_counts(request->function, received, nranks, element, &out_total));
    TT_TRY(check_apart(request->function, received, nranks));
    checked->where.in = extent_of_all(sent, nranks, request->input, element);
    checked->where.out = extent_of_all(received, nranks, request->output, element);
    checked->where.may_be_empty = true;
    checked->blocks.element = element;
    checked->blocks.total = in_total > out_total ? in_total : out_total;
    TT_TRY(check_pointer(request, true, &checked->where.in));
    TT_TRY(check_pointer(request, false, &checked->where.out));
    return check_overlap(checked, request, 0);
}
