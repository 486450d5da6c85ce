/* Staged calls: where the caller's buffers lie in staging memory, and the copies there and back. */
#include <stdio.h>
#include <stdlib.h>

#include "communicator/device.h"
#include "communicator/staged.h"
#include "driver/capture.h"

enum { APART = 64 }; /* where input and output cannot share memory */

/* ---- Where things lie ----------------------------------------------------------------------- */

/* The buffers of a collective call, in the caller's memory and in staging memory. */
struct layout {
    char *input, *output;
    size_t in_at, out_at;  /* in staging memory */
    size_t nbytes;         /* of it */
    struct tt_extent kept; /* of the caller's memory: the call leaves its bytes as they are */
};

/* The caller's bytes that are both input and output, where nothing is reduced: writing them again
 * would race with who reads them. */
static struct tt_extent find_kept(const struct tt_request *request, size_t in, size_t out,
                                  size_t own)
{
    const uintptr_t input = (uintptr_t)request->input, output = (uintptr_t)request->output;
    const struct tt_collective_row *row = tt_collective_row(request->collective);
    if (!in || !out || tt_collective_reduces(request->collective)) return (struct tt_extent){0, 0};
    const bool gathers = row->output == TT_HOLDS_ALL;
    const uintptr_t all = gathers ? output : input, block = gathers ? input : output;
    const bool in_place = row->input == row->output ? input == output : block == all + own;
    return in_place ? (struct tt_extent){block, in < out ? in : out} : (struct tt_extent){0, 0};
}

static struct layout lay_out(const struct tt_request *request, size_t in, size_t out, size_t own)
{
    const struct tt_collective_row *row = tt_collective_row(request->collective);
    struct layout layout = {.input = (char *)(uintptr_t)request->input, .output = request->output};
    if (row->in_place && row->input != row->output && in && out) {
        if (row->input == TT_HOLDS_OWN)
            layout.in_at = own;
        else
            layout.out_at = own;
    }
    if (!row->in_place) layout.out_at = (in + APART - 1) / APART * APART;
    const size_t in_end = layout.in_at + in, out_end = layout.out_at + out;
    layout.nbytes = in_end > out_end ? in_end : out_end;
    layout.kept = find_kept(request, in, out, own);
    return layout;
}

/* Pieces that follow one another in both memories become one. */
static void add(struct tt_stage *stage, int *number, char *users, char *staged, size_t nbytes)
{
    const int end = stage->nin + stage->nout;
    struct tt_stage_piece *last = *number ? &stage->pieces[end - 1] : NULL;
    if (!nbytes) return;
    if (last && last->users + last->nbytes == users && last->staged + last->nbytes == staged) {
        last->nbytes += nbytes;
        return;
    }
    stage->pieces[end] = (struct tt_stage_piece){users, staged, nbytes};
    ++*number;
}

static void add_input(struct tt_stage *stage, char *users, char *staged, size_t nbytes)
{
    add(stage, &stage->nin, users, staged, nbytes);
}

/* Leaves out what is kept. */
static void add_output(struct tt_stage *stage, const struct tt_extent *kept, char *users,
                       char *staged, size_t nbytes)
{
    const uintptr_t first = (uintptr_t)users, end = first + nbytes;
    const uintptr_t kept_end = kept->first + kept->nbytes;
    if (!kept->nbytes || kept->first >= end || kept_end <= first) {
        add(stage, &stage->nout, users, staged, nbytes);
        return;
    }
    const size_t before = kept->first > first ? kept->first - first : 0;
    const size_t after = end > kept_end ? end - kept_end : 0;
    add(stage, &stage->nout, users, staged, before);
    add(stage, &stage->nout, users + (nbytes - after), staged + (nbytes - after), after);
}

/* ---- Calls ---------------------------------------------------------------------------------- */

static tt_status take(struct tt_pending_call *pending, size_t nbytes, int npieces)
{
    const tt_status status = tt_stage_take(pending->comm->staged, nbytes, npieces, &pending->stage);
    if (status) return tt_comm_fail_call(pending->comm, status);
    pending->stage->failed = false;
    pending->stage->is_collective = pending->kind == TT_WORK_COLLECTIVE;
    return TT_OK;
}

/* From here on the call's buffers are staging memory. */
static void move(struct tt_pending_call *pending, const struct layout *layout, size_t element)
{
    struct tt_stage *stage = pending->stage;
    struct tt_call *call = &pending->call;
    call->input = stage->memory + layout->in_at;
    call->output = stage->memory + layout->out_at;
    if (!call->scalar) return;
    add_input(stage, (char *)(uintptr_t)call->scalar, stage->words->scalar, element);
    call->scalar = stage->words->scalar;
}

tt_status tt_comm_stage_collective(struct tt_pending_call *pending,
                                   const struct tt_request *request, size_t in, size_t out,
                                   size_t own)
{
    const struct layout layout = lay_out(request, in, out, own);
    TT_TRY(take(pending, layout.nbytes, 4)); /* input, scalar, the output's beginning and end */
    struct tt_stage *stage = pending->stage;
    add_input(stage, layout.input, stage->memory + layout.in_at, in);
    move(pending, &layout, pending->call.binding->element);
    add_output(stage, &layout.kept, layout.output, stage->memory + layout.out_at, out);
    return TT_OK;
}

/* One side of a call with a count for each rank. */
struct blocks {
    enum tt_holds holds;
    int rank, nranks;
    const size_t *counts, *displs;
    size_t element;
};

static size_t bytes_of(const struct blocks *blocks)
{
    size_t count = 0;
    if (blocks->holds == TT_HOLDS_OWN) return blocks->counts[blocks->rank] * blocks->element;
    for (int r = 0; blocks->holds == TT_HOLDS_ALL && r < blocks->nranks; r++)
        count += blocks->counts[r];
    return count * blocks->element;
}

/* kept: NULL: the input. */
static void add_blocks(struct tt_stage *stage, const struct blocks *blocks,
                       const struct tt_extent *kept, char *users, char *staged)
{
    size_t packed = 0;
    for (int r = 0; r < blocks->nranks; r++) {
        const bool all = blocks->holds == TT_HOLDS_ALL;
        const size_t nbytes = blocks->counts[r] * blocks->element;
        const size_t at = all && blocks->displs ? blocks->displs[r] * blocks->element : packed;
        if (!all && (blocks->holds == TT_HOLDS_NOTHING || r != blocks->rank)) continue;
        if (!nbytes) continue;
        if (kept)
            add_output(stage, kept, users + at, staged + packed, nbytes);
        else
            add_input(stage, users + at, staged + packed, nbytes);
        packed += nbytes;
    }
}

tt_status tt_comm_stage_uneven(struct tt_pending_call *pending, const struct tt_request *request,
                               const size_t *counts, const size_t *displs, size_t element)
{
    const struct tuttiComm *comm = request->comm;
    const bool is_root = comm->rank == request->root;
    struct blocks in = {tt_collective_holds(request->collective, true, is_root),
                        comm->rank,
                        comm->nranks,
                        counts,
                        displs,
                        element};
    struct blocks out = in;
    out.holds = tt_collective_holds(request->collective, false, is_root);
    size_t before = 0;
    for (int r = 0; r < comm->rank; r++) before += counts[r] * element;
    struct layout layout = lay_out(request, bytes_of(&in), bytes_of(&out), before);
    const size_t displaced = displs ? displs[comm->rank] * element : before;
    layout.kept = find_kept(request, bytes_of(&in), bytes_of(&out), displaced);
    TT_TRY(take(pending, layout.nbytes, 2 * comm->nranks + 3));
    struct tt_stage *stage = pending->stage;
    add_blocks(stage, &in, NULL, layout.input, stage->memory + layout.in_at);
    move(pending, &layout, element);
    add_blocks(stage, &out, &layout.kept, layout.output, stage->memory + layout.out_at);
    return TT_OK;
}

tt_status tt_comm_stage_message(struct tt_pending_call *pending)
{
    TT_TRY(take(pending, pending->nbytes, 1));
    struct tt_stage *stage = pending->stage;
    add(stage, pending->kind == TT_WORK_SEND ? &stage->nin : &stage->nout, pending->data,
        stage->memory, pending->nbytes);
    pending->data = stage->memory;
    return TT_OK;
}

/* ---- Calls of a group that depend on one another -------------------------------------------- */

static void *stream_of(const struct tt_pending_call *pending)
{
    struct tt_stream *stream = (struct tt_stream *)pending->stream;
    return stream ? tt_stream_device_stream(stream) : pending->comm->staged->stream;
}

/* What both pieces have of the caller's memory is copied from staging memory to staging memory when
 * the later call begins. */
static tt_status link_pieces(struct tt_stage *later, const struct tt_stage_piece *input,
                             const struct tt_stage_piece *output)
{
    const char *const input_end = input->users + input->nbytes;
    const char *const output_end = output->users + output->nbytes;
    if (input->users >= output_end || output->users >= input_end) return TT_OK;
    const char *const first = input->users > output->users ? input->users : output->users;
    const char *const end = input_end < output_end ? input_end : output_end;
    struct tt_stage_copy *copy = malloc(sizeof *copy), **last = &later->before;
    if (!copy) return tt_fail(TT_ERR_SYSTEM, "out of memory for a group of calls");
    *copy = (struct tt_stage_copy){.to = input->staged + (first - input->users),
                                   .from = output->staged + (first - output->users),
                                   .nbytes = (size_t)(end - first)};
    while (*last) last = &(*last)->next;
    *last = copy;
    return TT_OK;
}

static tt_status link_calls(struct tt_stage *later, struct tt_stage *earlier)
{
    const struct tt_stage_copy *const none = later->before;
    for (int i = 0; i < later->nin; i++)
        for (int o = earlier->nin; o < earlier->nin + earlier->nout; o++)
            TT_TRY(link_pieces(later, &later->pieces[i], &earlier->pieces[o]));
    if (later->before == none) return TT_OK;
    earlier->reader = later;
    earlier->reader_number = later->number;
    return TT_OK;
}

/* Since the call was checked, a capture may have begun. */
static tt_status check_capture(const struct tt_pending_call *pending)
{
    bool capturing = false;
    if (!pending->stage || !pending->stream) return TT_OK;
    TT_TRY(tt_context_stream_capturing(pending->comm->staged->context, stream_of(pending),
                                       &capturing));
    if (!capturing) return TT_OK;
    return tt_fail(
        TT_ERR_USAGE,
        "the CUDA stream of a call in the group is being captured into a graph: calls of "
        "communicator %s cannot be captured, because they go through memory of the "
        "host: %s",
        pending->comm->name, pending->comm->no_gpu);
}

/* Collectives of a rank run in order also in a group; messages do not. */
tt_status tt_comm_staged_link(const struct tt_pending_call *calls, int ncalls)
{
    for (int i = 0; i < ncalls; i++) TT_TRY(check_capture(&calls[i]));
    for (int later = 1; later < ncalls; later++)
        for (int i = 0; i < later; i++)
            if (calls[i].comm == calls[later].comm && calls[i].stage && calls[later].stage &&
                calls[i].stage->is_collective && calls[later].stage->is_collective)
                TT_TRY(link_calls(calls[later].stage, calls[i].stage));
    return TT_OK;
}

/* ---- Copies --------------------------------------------------------------------------------- */

void tt_comm_staged_begin(const struct tt_pending_call *pending, struct tt_work *work)
{
    const struct tt_comm_staged *staged = pending->comm->staged;
    work->staged = (struct tt_staged_run){.words = pending->stage->words,
                                          .number = pending->stage->number,
                                          .context = staged->context,
                                          .stream = staged->stream,
                                          .before = pending->stage->before};
}

static tt_status copy_in(const struct tt_pending_call *pending)
{
    struct tt_context *context = pending->comm->staged->context;
    const struct tt_stage *stage = pending->stage;
    void *stream = stream_of(pending);
    if (!pending->stream) TT_TRY(tt_context_stream_follow(context, stream, NULL));
    TT_TRY(tt_context_event_wait(context, pending->comm->staged->order, stream));
    for (int i = 0; i < stage->nin; i++) {
        const struct tt_stage_piece *piece = &stage->pieces[i];
        TT_TRY(tt_context_stream_copy(context, stream, piece->staged, piece->users, piece->nbytes));
    }
    /* In a group, outputs of other streams are written after this. */
    TT_TRY(tt_context_event_record(context, pending->comm->staged->order, stream));
    /* acquire: tt_staged_is_ready */
    return tt_context_stream_store(context, stream, &stage->words->ready, stage->number);
}

/* Outputs are written in the order of the calls, whatever their streams. succeeded: of a call
 * without a stream, which has run; one that failed leaves the output. */
static tt_status copy_out(const struct tt_pending_call *pending, bool succeeded)
{
    struct tt_context *context = pending->comm->staged->context;
    const struct tt_stage *stage = pending->stage;
    void *stream = stream_of(pending);
    if (pending->stream) {
        TT_TRY(tt_context_event_wait(context, pending->comm->staged->order, stream));
        TT_TRY(tt_context_stream_await(context, stream, &stage->words->done, stage->number));
    }
    for (int i = stage->nin; succeeded && i < stage->nin + stage->nout; i++) {
        const struct tt_stage_piece *piece = &stage->pieces[i];
        TT_TRY(tt_context_stream_copy(context, stream, piece->users, piece->staged, piece->nbytes));
    }
    if (pending->stream) /* complete when it returns, where it has none */
        TT_TRY(tt_context_event_record(context, pending->comm->staged->order, stream));
    /* acquire: has_ended of staged_memory.c */
    return tt_context_stream_store(context, stream, &stage->words->ended, stage->number);
}

static void check(const struct tt_pending_call *pending, tt_status status)
{
    if (!status) return;
    pending->stage->failed = true;
    tt_ignore(tt_comm_fail_call(pending->comm, status));
}

void tt_comm_staged_launch(const struct tt_pending_call *calls, int ncalls)
{
    for (int i = 0; i < ncalls; i++)
        if (calls[i].stage) check(&calls[i], copy_in(&calls[i]));
    for (int i = 0; i < ncalls; i++) {
        if (!calls[i].stage) continue;
        if (!calls[i].stream)
            tt_comm_enter_call(calls[i].comm);
        else if (!calls[i].stage->failed)
            check(&calls[i], copy_out(&calls[i], true));
    }
}

tt_status tt_comm_staged_finish(const struct tt_pending_call *calls, int ncalls, tt_status status)
{
    char text[TT_ERROR_TEXT];
    snprintf(text, sizeof text, "%s", status ? tt_last_error() : "");
    for (int i = 0; i < ncalls; i++) {
        const struct tt_pending_call *call = &calls[i];
        if (!call->stage || call->stream || call->stage->failed) continue;
        check(call, copy_out(call, !tt_fabric_failure_text(call->comm->fabric)[0]));
    }
    for (int i = 0; i < ncalls; i++) {
        const struct tt_pending_call *call = &calls[i];
        if (!call->stage || call->stream) continue;
        tt_status own = tt_fabric_check(call->comm->fabric);
        if (!own) {
            struct tt_comm_staged *staged = call->comm->staged;
            own = tt_context_stream_synchronize(staged->context, staged->stream);
            check(call, own);
        }
        if (own && !status) {
            status = own;
            snprintf(text, sizeof text, "%s", tt_last_error());
        }
        tt_comm_leave_call(call->comm);
    }
    if (status) tt_set_last_error(text);
    return status;
}
