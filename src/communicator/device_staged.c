/* Staged calls: where the caller's buffers lie in staging memory, and the copies there and back. */
#include <stdio.h>
#include <stdlib.h>

#include "communicator/device.h"
#include "communicator/staged.h"
#include "driver/capture.h"

enum {
    APART = 64,                 /* where input and output cannot share memory */
    IN_PLACE_MIN_BYTES = 16384, /* of a message: below, a round trip more costs more than copies */
};

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

static tt_status fail(const struct tt_pending_call *pending, tt_status status)
{
    return status ? tt_comm_fail_call(pending->comm, status) : TT_OK;
}

/* A call that is captured has no memory of its own, so that graphs hold none. */
static tt_status take(struct tt_pending_call *pending, size_t nbytes, int npieces)
{
    struct tt_comm_staged *staged = pending->comm->staged;
    const struct tt_stream *stream = (const struct tt_stream *)pending->stream;
    bool captured = false;
    if (stream)
        TT_TRY(tt_context_stream_capturing(staged->context, tt_stream_device_stream(stream),
                                           &captured));
    if (captured) nbytes = SIZE_MAX;
    TT_TRY(fail(pending, tt_stage_take(staged, nbytes, npieces, &pending->stage)));
    struct tt_stage *stage = pending->stage;
    stage->failed = false;
    stage->captured = captured;
    stage->is_collective = pending->kind == TT_WORK_COLLECTIVE;
    stage->by_host = !stage->memory;
    stage->gpu = NULL;
    stage->in = stage->out = (struct tt_extent){0, 0};
    stage->portions = (struct tt_stage_portions){
        .stream = pending->comm->staged->copies, .number = 1, .pieces = stage->pieces};
    return TT_OK;
}

/* Gives the call memory of the communicator, which the call uses in its turn. status: TT_OK, or the
 * failure of the caller before: then the call is dropped. */
static tt_status share(struct tt_pending_call *pending, tt_status status,
                       struct tt_stage_shared *shared, size_t nbytes)
{
    if (!status) status = tt_stage_share(pending->comm->staged, shared, nbytes);
    if (status) {
        tt_stage_drop(pending->stage);
        return fail(pending, status);
    }
    pending->stage->portions.memory = shared->memory;
    return TT_OK;
}

/* Enough for most calls: it rarely grows. */
static tt_status share_collective(struct tt_pending_call *pending, size_t nbytes)
{
    struct tt_comm_staged *staged = pending->comm->staged;
    return share(pending, TT_OK, &staged->collectives,
                 nbytes > 2 * staged->nbytes ? nbytes : 2 * staged->nbytes);
}

/* For a collective as a whole. */
static tt_status find_memory(struct tt_pending_call *pending, size_t nbytes, char **memory)
{
    struct tt_stage *stage = pending->stage;
    if (!stage->memory) TT_TRY(share_collective(pending, nbytes));
    *memory = stage->memory ? stage->memory : stage->portions.memory;
    return TT_OK;
}

static void move_scalar(struct tt_pending_call *pending)
{
    struct tt_stage *stage = pending->stage;
    struct tt_call *call = &pending->call;
    if (!call->scalar) return;
    add_input(stage, (char *)(uintptr_t)call->scalar, stage->words->scalar,
              tt_type_size(call->reduction.type));
    call->scalar = stage->words->scalar;
}

/* From here on the call's buffers are staging memory. */
static void move(struct tt_pending_call *pending, const struct layout *layout, char *memory)
{
    pending->call.input = memory + layout->in_at;
    pending->call.output = memory + layout->out_at;
    move_scalar(pending);
}

/* Blocks that the buffers have in a portion: where both may be one, they are. Counts the sides'
 * `at` in blocks, of which divide makes bytes. */
static int lay_out_sides(struct tt_stage_portions *portions, const struct tt_program *program,
                         bool in_place)
{
    int total = 0;
    int32_t first = INT32_MAX, end = 0;
    for (int b = TT_INPUT; b <= TT_OUTPUT; b++) {
        const struct tt_program_blocks *held = &program->held[b];
        portions->sides[b].first = held->first;
        portions->sides[b].at = (size_t)total;
        total += held->number;
        if (held->number && held->first < first) first = held->first;
        if (held->number && held->first + held->number > end) end = held->first + held->number;
    }
    if (!in_place || !total) return total;
    for (int b = TT_INPUT; b <= TT_OUTPUT; b++) {
        portions->sides[b].first = first;
        portions->sides[b].at = 0;
    }
    return end - first;
}

/* The call's buffers stay where they are and pass through staging memory, some rounds at a time. */
static tt_status divide(struct tt_pending_call *pending, const struct layout *layout)
{
    const struct tt_binding *binding = pending->call.binding;
    struct tt_stage_portions *portions = &pending->stage->portions;
    const struct tt_program *program = pending->call.loaded->program;
    const size_t part = binding->piece * binding->element;
    const size_t block = binding->parts[0].nparts * part;
    const bool in_place = tt_collective_row((enum tt_collective)program->collective)->in_place != 0;
    const size_t round = (size_t)lay_out_sides(portions, program, in_place) * block;
    const size_t most = round ? pending->comm->staged->nbytes / round : binding->nrounds;
    portions->rounds = most < 1 ? 1 : most < binding->nrounds ? most : binding->nrounds;
    portions->number = (binding->nrounds + portions->rounds - 1) / portions->rounds;
    portions->nbytes = round * portions->rounds;
    char *const buffers[2] = {layout->input, layout->output};
    for (int b = TT_INPUT; b <= TT_OUTPUT; b++) {
        portions->sides[b].at *= block * portions->rounds;
        portions->sides[b].users = (char *)((uintptr_t)buffers[b] - binding->skipped[b]);
    }
    portions->kept = (const char *)layout->kept.first;
    portions->kept_end = portions->kept + layout->kept.nbytes;
    pending->stage->by_host = true;
    move_scalar(pending);
    return share_collective(pending,
                            portions->number > 1 ? 2 * portions->nbytes : portions->nbytes);
}

tt_status tt_comm_stage_collective(struct tt_pending_call *pending,
                                   const struct tt_request *request, size_t in, size_t out,
                                   size_t own)
{
    const struct layout layout = lay_out(request, in, out, own);
    char *memory;
    TT_TRY(take(pending, layout.nbytes, 4)); /* input, scalar, the output's beginning and end */
    struct tt_stage *stage = pending->stage;
    stage->in = (struct tt_extent){(uintptr_t)layout.input, in};
    stage->out = (struct tt_extent){(uintptr_t)layout.output, out};
    if (layout.nbytes > pending->comm->staged->nbytes) return divide(pending, &layout);
    TT_TRY(find_memory(pending, layout.nbytes, &memory));
    add_input(stage, layout.input, memory + layout.in_at, in);
    move(pending, &layout, memory);
    add_output(stage, &layout.kept, layout.output, memory + layout.out_at, out);
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

/* From the first element to the last, wherever the blocks lie in between. */
static struct tt_extent extent_of(const struct blocks *blocks, const void *buffer)
{
    size_t end = 0;
    const bool all = blocks->holds == TT_HOLDS_ALL && blocks->displs;
    for (int r = 0; all && r < blocks->nranks; r++)
        if (blocks->counts[r] && blocks->displs[r] + blocks->counts[r] > end)
            end = blocks->displs[r] + blocks->counts[r];
    return (struct tt_extent){(uintptr_t)buffer, all ? end * blocks->element : bytes_of(blocks)};
}

bool tt_comm_stage_packs(const struct tuttiComm *comm, size_t nbytes)
{
    return nbytes <= comm->staged->nbytes;
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
    char *memory;
    for (int r = 0; r < comm->rank; r++) before += counts[r] * element;
    struct layout layout = lay_out(request, bytes_of(&in), bytes_of(&out), before);
    const size_t displaced = displs ? displs[comm->rank] * element : before;
    layout.kept = find_kept(request, bytes_of(&in), bytes_of(&out), displaced);
    const bool packs = tt_comm_stage_packs(comm, pending->call.binding->total * element);
    TT_TRY(take(pending, packs ? layout.nbytes : SIZE_MAX, 2 * comm->nranks + 3));
    struct tt_stage *stage = pending->stage;
    stage->in = extent_of(&in, layout.input);
    stage->out = extent_of(&out, layout.output);
    if (!packs) return divide(pending, &layout);
    TT_TRY(find_memory(pending, layout.nbytes, &memory));
    add_blocks(stage, &in, NULL, layout.input, memory + layout.in_at);
    move(pending, &layout, memory);
    add_blocks(stage, &out, &layout.kept, layout.output, memory + layout.out_at);
    return TT_OK;
}

/* Of a message, in a portion: a multiple of a slot. Each peer has two such places for each
 * direction, so they are smaller than those of collectives. */
static size_t message_portion(const struct tuttiComm *comm)
{
    const size_t slot = comm->fabric->segment->header->slot_bytes;
    return (comm->staged->nbytes / 4 + slot - 1) / slot * slot;
}

/* Whether a device of the network may move the message in the GPU's memory. */
static bool may_be_in_place(const struct tt_pending_call *pending)
{
    const struct tuttiComm *comm = pending->comm;
    return pending->nbytes >= IN_PLACE_MIN_BYTES &&
           !tt_fabric_is_local(comm->fabric, pending->peer) &&
           tt_comm_devices_use(comm, pending->data, pending->nbytes);
}

tt_status tt_comm_stage_message(struct tt_pending_call *pending)
{
    tuttiComm_t comm = pending->comm;
    const size_t most = message_portion(comm), nbytes = pending->nbytes;
    const bool sends = pending->kind == TT_WORK_SEND, in_place = may_be_in_place(pending);
    TT_TRY(take(pending, nbytes <= most && !in_place ? nbytes : SIZE_MAX, 1));
    struct tt_stage *stage = pending->stage;
    if (in_place) stage->gpu = pending->data;
    if (stage->memory) {
        add(stage, sends ? &stage->nin : &stage->nout, pending->data, stage->memory, nbytes);
        pending->data = stage->memory;
        return TT_OK;
    }
    struct tt_stage_portions *portions = &stage->portions;
    portions->nbytes = most;
    portions->number = nbytes ? (nbytes + most - 1) / most : 1;
    portions->sides[TT_INPUT].users = portions->sides[TT_OUTPUT].users = pending->data;
    struct tt_stage_shared *shared = NULL;
    const tt_status status = tt_stage_messages(comm->staged, comm->nranks, &shared);
    const int at = sends ? pending->peer : comm->nranks + pending->peer;
    TT_TRY(share(pending, status, status ? NULL : &shared[at], 2 * most));
    pending->data = portions->memory;
    return TT_OK;
}

/* ---- Copies --------------------------------------------------------------------------------- */

void tt_comm_staged_begin(const struct tt_pending_call *pending, struct tt_work *work)
{
    const struct tt_comm_staged *staged = pending->comm->staged;
    struct tt_stage *stage = pending->stage;
    stage->portions.nin = stage->nin;
    stage->portions.nout = stage->nout;
    if (stage->is_kept) { /* the copies of the last replay have been made */
        stage->portions.in = stage->portions.out = 0;
        __atomic_store_n(&stage->words->in, 0, __ATOMIC_RELAXED);
        __atomic_store_n(&stage->words->out, 0, __ATOMIC_RELAXED);
    }
    work->staged =
        (struct tt_staged_run){.words = stage->words,
                               .number = stage->is_kept ? TT_REPLAY_BEGUN : stage->number,
                               .replayed = stage->is_kept,
                               .context = staged->context,
                               .stream = staged->stream,
                               .portions = stage->by_host ? &stage->portions : NULL,
                               .gpu = stage->gpu};
}

static tt_status copy_in(const struct tt_pending_call *pending)
{
    struct tt_context *context = pending->comm->staged->context;
    const struct tt_stage *stage = pending->stage;
    void *stream = tt_staged_stream(pending);
    if (!pending->stream) TT_TRY(tt_context_stream_follow(context, stream, NULL));
    TT_TRY(tt_context_event_wait(context, pending->comm->staged->order, stream));
    for (int i = 0; !stage->by_host && i < stage->nin; i++) {
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
    void *stream = tt_staged_stream(pending);
    if (pending->stream) {
        TT_TRY(tt_context_event_wait(context, pending->comm->staged->order, stream));
        TT_TRY(tt_context_stream_await(context, stream, &stage->words->done, stage->number));
    }
    for (int i = stage->nin; succeeded && !stage->by_host && i < stage->nin + stage->nout; i++) {
        const struct tt_stage_piece *piece = &stage->pieces[i];
        TT_TRY(tt_context_stream_copy(context, stream, piece->users, piece->staged, piece->nbytes));
    }
    if (pending->stream) /* complete when it returns, where it has none */
        TT_TRY(tt_context_event_record(context, pending->comm->staged->order, stream));
    /* acquire: has_ended of staged_memory.c */
    return tt_context_stream_store(context, stream, &stage->words->ended, stage->number);
}

void tt_comm_staged_launch(const struct tt_pending_call *calls, int ncalls)
{
    tt_comm_staged_join(calls, ncalls, true);
    for (int i = 0; i < ncalls; i++) {
        if (!calls[i].stage) continue;
        tt_staged_check_call(&calls[i], copy_in(&calls[i]));
        if (!calls[i].stream) tt_comm_enter_call(calls[i].comm);
    }
}

void tt_comm_staged_follow(const struct tt_pending_call *calls, int ncalls)
{
    for (int i = 0; i < ncalls; i++)
        if (calls[i].stage && calls[i].stream && !calls[i].stage->failed)
            tt_staged_check_call(&calls[i], copy_out(&calls[i], true));
    tt_comm_staged_join(calls, ncalls, false);
}

tt_status tt_comm_staged_give_up(const struct tt_pending_call *pending)
{
    if (!pending->stage->failed) tt_staged_check_call(pending, copy_out(pending, false));
    const tt_status status = tt_fabric_check(pending->comm->fabric);
    tt_comm_leave_call(pending->comm);
    return status;
}

tt_status tt_comm_staged_finish(const struct tt_pending_call *calls, int ncalls, tt_status status)
{
    char text[TT_ERROR_TEXT];
    snprintf(text, sizeof text, "%s", status ? tt_last_error() : "");
    for (int i = 0; i < ncalls; i++) {
        const struct tt_pending_call *call = &calls[i];
        if (!call->stage || call->stream || call->stage->failed) continue;
        tt_staged_check_call(call, copy_out(call, !tt_fabric_failure_text(call->comm->fabric)[0]));
    }
    for (int i = 0; i < ncalls; i++) {
        const struct tt_pending_call *call = &calls[i];
        if (!call->stage || call->stream) continue;
        tt_status own = tt_fabric_check(call->comm->fabric);
        if (!own) {
            struct tt_comm_staged *staged = call->comm->staged;
            own = tt_context_stream_synchronize(staged->context, staged->stream);
            tt_staged_check_call(call, own);
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
