/* Staged calls: where the caller's buffers lie in staging memory. */
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "carrier/gpu_stream.h"
#include "carrier/gpu_watch.h"
#include "carrier/staged/staged.h"
#include "driver/capture.h"
#include "driver/driver.h"

enum {
    APART = 64,                 /* where input and output cannot share memory */
    IN_PLACE_MIN_BYTES = 16384, /* of a message: below, a round trip more costs more than copies */
    /* while a call waits for memory */
    PAUSE_US = 50,
    LOOK_NS = 1000000,
    WARN_NS = 1000000000,
};

/* ---- Where things lie ----------------------------------------------------------------------- */

/* The buffers of a collective call, in the caller's memory and in staging memory. */
struct layout {
    char *input, *output;
    size_t in_at, out_at;  /* in staging memory */
    size_t nbytes;         /* of it */
    struct tt_extent kept; /* of the caller's memory: the call leaves its bytes as they are */
};

/* Bytes that this rank uses. */
struct sizes {
    size_t in, out;
    size_t before_own; /* this rank's block in staging memory that holds all blocks */
};

/* The caller's bytes that are both input and output, where nothing is reduced: writing them again
 * would race with who reads them. */
static struct tt_extent find_kept(const struct tt_where *where, const struct tt_call_blocks *blocks,
                                  const struct sizes *sizes)
{
    const uintptr_t input = (uintptr_t)where->input, output = (uintptr_t)where->output;
    const struct tt_collective_row *row = tt_collective_row(blocks->collective);
    if (!sizes->in || !sizes->out || tt_collective_reduces(blocks->collective))
        return (struct tt_extent){0, 0};
    const bool gathers = row->output == TT_HOLDS_ALL;
    const uintptr_t all = gathers ? output : input, block = gathers ? input : output;
    const bool in_place =
        row->input == row->output ? input == output : block == all + blocks->before_own;
    if (!in_place) return (struct tt_extent){0, 0};
    return (struct tt_extent){block, sizes->in < sizes->out ? sizes->in : sizes->out};
}

static struct layout lay_out(const struct tt_where *where, const struct tt_call_blocks *blocks,
                             const struct sizes *sizes)
{
    const struct tt_collective_row *row = tt_collective_row(blocks->collective);
    struct layout layout = {.input = (char *)(uintptr_t)where->input, .output = where->output};
    if (row->in_place && row->input != row->output && sizes->in && sizes->out) {
        if (row->input == TT_HOLDS_OWN)
            layout.in_at = sizes->before_own;
        else
            layout.out_at = sizes->before_own;
    }
    if (!row->in_place) layout.out_at = (sizes->in + APART - 1) / APART * APART;
    const size_t in_end = layout.in_at + sizes->in, out_end = layout.out_at + sizes->out;
    layout.nbytes = in_end > out_end ? in_end : out_end;
    layout.kept = find_kept(where, blocks, sizes);
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

/* Whether the call's stream is being captured into a CUDA graph, which then has no memory of its
 * own: the call shares that of all such calls. */
static tt_status find_capturing(const struct tt_pending_call *pending, bool *captured)
{
    *captured = false;
    if (!pending->stream) return TT_OK;
    TT_TRY(tt_context_stream_capturing(pending->comm->staged->context,
                                       tt_gpu_stream_handle(pending->stream), captured));
    if (!*captured || tt_driver_connections() > 1) return TT_OK;
    return tt_fail(
        TT_ERR_USAGE,
        "communicator %s: a call through memory of the host, which is copied on a stream "
        "beside the captured one, cannot be captured where all streams share one "
        "hardware queue: set CUDA_DEVICE_MAX_CONNECTIONS to at least 2, not 1, before "
        "the process uses CUDA",
        pending->comm->name);
}

tt_status tt_staged_check_ranks(const struct tt_pending_call *pending)
{
    const struct tt_needs needs = {.collective = pending->kind == TT_CALL_COLLECTIVE,
                                   .sends = pending->kind == TT_CALL_SEND,
                                   .peer = pending->peer};
    return tt_engine_check(&pending->comm->engine, &needs);
}

static void warn_of_memory(const struct tt_pending_call *pending)
{
    TT_WARN_ONCE(
        "communicator %s: calls of rank %d that have not ended use all %zu bytes of pinned "
        "memory that there may be (%d times TUTTI_STAGE_BYTES): calls wait until some "
        "have. The streams of these calls may wait for something else",
        pending->comm->name, pending->comm->rank, pending->comm->staged->own_most,
        TT_STAGE_WAITING);
}

/* Waits where calls that have not ended have all the memory that there may be. There is no
 * deadline: the user's own work may lie in front. Of a group's calls on the communicator only the
 * first waits: the group holds the others' memory until its end. Calls of other communicators that
 * the group holds begin after the wait, as they would behind a call outside the group. */
static tt_status await_stage(struct tt_pending_call *pending, enum tt_stage_kind kind,
                             size_t nbytes, int npieces)
{
    struct tt_staged_part *staged = pending->comm->staged;
    const int64_t since_ns = tt_now_ns();
    int64_t looked_ns = since_ns;
    tt_status status;
    while ((status = tt_stage_take(staged, kind, nbytes, !pending->follows, npieces,
                                   &pending->stage)) == TT_IN_PROGRESS) {
        usleep(PAUSE_US);
        if (tt_now_ns() - looked_ns < LOOK_NS) continue;
        looked_ns = tt_now_ns();
        if (looked_ns - since_ns > WARN_NS) warn_of_memory(pending);
        TT_TRY(tt_staged_check_ranks(pending));
        TT_TRY(tt_gpu_watch_check_outside(staged->watch, &pending->comm->engine,
                                          "a call that waits for pinned memory"));
    }
    return status;
}

/* Calls of at most `most` bytes have memory of their own where there is room; those on streams in
 * any case, unless they share. */
static tt_status take(struct tt_pending_call *pending, size_t nbytes, size_t most, bool shares,
                      int npieces)
{
    struct tt_staged_part *staged = pending->comm->staged;
    bool captured;
    TT_TRY(find_capturing(pending, &captured));
    const enum tt_stage_kind kind = captured || shares ? TT_STAGE_SHARED
                                    : pending->stream  ? TT_STAGE_OWN
                                    : nbytes <= most   ? TT_STAGE_IF_ROOM
                                                       : TT_STAGE_SHARED;
    TT_TRY(await_stage(pending, kind, nbytes, npieces));
    struct tt_stage *stage = pending->stage;
    stage->failed = stage->has_told = false;
    stage->captured = captured;
    stage->is_collective = pending->kind == TT_CALL_COLLECTIVE;
    stage->by_host = !stage->memory;
    stage->position = 0;
    stage->is_linked = stage->is_late = stage->is_apart = false;
    stage->is_after = stage->is_behind = stage->is_followed = stage->is_left = false;
    stage->on_device = NULL;
    stage->in = stage->out = stage->scalar = (struct tt_extent){0, 0};
    stage->portions =
        (struct tt_stage_portions){.base = {.ops = &tt_stage_portions_ops, .number = 1},
                                   .stream = staged->copies,
                                   .pieces = stage->pieces};
    return TT_OK;
}

/* Gives the call memory of the communicator, which the call uses in its turn. status: TT_OK, or the
 * failure of the caller before: then the call is dropped. */
static tt_status share(struct tt_pending_call *pending, tt_status status,
                       struct tt_stage_shared *shared, size_t nbytes)
{
    if (!status) status = tt_stage_share(pending->comm->staged, shared, nbytes);
    if (status)
        tt_stage_drop(pending->stage);
    else
        pending->stage->portions.base.memory = shared->memory;
    return status;
}

/* Enough for most calls: it rarely grows. */
static tt_status share_collective(struct tt_pending_call *pending, size_t nbytes)
{
    struct tt_staged_part *staged = pending->comm->staged;
    return share(pending, TT_OK, &staged->collectives,
                 nbytes > 2 * staged->nbytes ? nbytes : 2 * staged->nbytes);
}

/* For a collective as a whole. */
static tt_status find_memory(struct tt_pending_call *pending, size_t nbytes, char **memory)
{
    struct tt_stage *stage = pending->stage;
    if (!stage->memory) TT_TRY(share_collective(pending, nbytes));
    *memory = stage->memory ? stage->memory : stage->portions.base.memory;
    return TT_OK;
}

static void move_scalar(struct tt_pending_call *pending)
{
    struct tt_stage *stage = pending->stage;
    struct tt_call *call = &pending->call;
    if (!call->scalar) return;
    const size_t nbytes = tt_type_size(call->reduction.type);
    stage->scalar = (struct tt_extent){(uintptr_t)call->scalar, nbytes};
    add_input(stage, (char *)(uintptr_t)call->scalar, stage->words->scalar, nbytes);
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
static int lay_out_sides(struct tt_portions *portions, const struct tt_program *program,
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
    struct tt_stage_portions *stage = &pending->stage->portions;
    struct tt_portions *portions = &stage->base;
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
        stage->users[b] = (char *)((uintptr_t)buffers[b] - binding->skipped[b]);
    }
    stage->kept = (const char *)layout->kept.first;
    stage->kept_end = stage->kept + layout->kept.nbytes;
    pending->stage->by_host = true;
    move_scalar(pending);
    return share_collective(pending,
                            portions->number > 1 ? 2 * portions->nbytes : portions->nbytes);
}

/* One count for all ranks. */
static tt_status prepare_even(struct tt_pending_call *pending, const struct tt_where *where,
                              const struct tt_call_blocks *blocks)
{
    const struct sizes sizes = {where->in.nbytes, where->out.nbytes, blocks->before_own};
    const struct layout layout = lay_out(where, blocks, &sizes);
    char *memory;
    const size_t most = pending->comm->staged->nbytes;
    /* input, scalar, the output's beginning and end */
    TT_TRY(take(pending, layout.nbytes, most, false, 4));
    struct tt_stage *stage = pending->stage;
    stage->in = where->in;
    stage->out = where->out;
    if (!stage->memory && layout.nbytes > most) return divide(pending, &layout);
    TT_TRY(find_memory(pending, layout.nbytes, &memory));
    add_input(stage, layout.input, memory + layout.in_at, sizes.in);
    move(pending, &layout, memory);
    add_output(stage, &layout.kept, layout.output, memory + layout.out_at, sizes.out);
    return TT_OK;
}

/* One side of a call with a count for each rank. */
struct side {
    enum tt_holds holds;
    int rank, nranks;
    const struct tt_call_blocks *blocks;
};

static struct side side_of(const struct tt_pending_call *pending,
                           const struct tt_call_blocks *blocks, bool input)
{
    const struct tt_comm_core *comm = pending->comm;
    const bool is_root = comm->rank == blocks->root;
    return (struct side){tt_collective_holds(blocks->collective, input, is_root), comm->rank,
                         comm->nranks, blocks};
}

static size_t bytes_of(const struct side *side)
{
    const struct tt_call_blocks *blocks = side->blocks;
    size_t count = 0;
    if (side->holds == TT_HOLDS_OWN) return blocks->counts[side->rank] * blocks->element;
    for (int r = 0; side->holds == TT_HOLDS_ALL && r < side->nranks; r++)
        count += blocks->counts[r];
    return count * blocks->element;
}

/* kept: NULL: the input. */
static void add_blocks(struct tt_stage *stage, const struct side *side,
                       const struct tt_extent *kept, char *users, char *staged)
{
    const struct tt_call_blocks *blocks = side->blocks;
    size_t packed = 0;
    for (int r = 0; r < side->nranks; r++) {
        const bool all = side->holds == TT_HOLDS_ALL;
        const size_t nbytes = blocks->counts[r] * blocks->element;
        const size_t at = all && blocks->displs ? blocks->displs[r] * blocks->element : packed;
        if (!all && (side->holds == TT_HOLDS_NOTHING || r != side->rank)) continue;
        if (!nbytes) continue;
        if (kept)
            add_output(stage, kept, users + at, staged + packed, nbytes);
        else
            add_input(stage, users + at, staged + packed, nbytes);
        packed += nbytes;
    }
}

/* A stream of which it is not known is as one that is captured: prepare gives the error. */
bool tt_stage_packs(const struct tt_pending_call *pending, size_t nbytes)
{
    bool captured;
    if (nbytes <= pending->comm->staged->nbytes) return true;
    return pending->stream && !find_capturing(pending, &captured) && !captured;
}

/* A count for each rank. */
static tt_status prepare_uneven(struct tt_pending_call *pending, const struct tt_where *where,
                                const struct tt_call_blocks *blocks)
{
    const struct tt_comm_core *comm = pending->comm;
    const struct side in = side_of(pending, blocks, true), out = side_of(pending, blocks, false);
    struct sizes sizes = {.in = bytes_of(&in), .out = bytes_of(&out)};
    char *memory;
    for (int r = 0; r < comm->rank; r++) sizes.before_own += blocks->counts[r] * blocks->element;
    const struct layout layout = lay_out(where, blocks, &sizes);
    const bool packs = tt_stage_packs(pending, blocks->total * blocks->element);
    TT_TRY(take(pending, layout.nbytes, comm->staged->nbytes, !packs, 2 * comm->nranks + 3));
    struct tt_stage *stage = pending->stage;
    stage->in = where->in;
    stage->out = where->out;
    if (!packs) return divide(pending, &layout);
    TT_TRY(find_memory(pending, layout.nbytes, &memory));
    add_blocks(stage, &in, NULL, layout.input, memory + layout.in_at);
    move(pending, &layout, memory);
    add_blocks(stage, &out, &layout.kept, layout.output, memory + layout.out_at);
    return TT_OK;
}

/* Of a message, in a portion: a multiple of a slot. Each peer has two such places for each
 * direction, so they are smaller than those of collectives. */
static size_t message_portion(const struct tt_comm_core *comm)
{
    const size_t slot = comm->fabric->segment->header->slot_bytes;
    return (comm->staged->nbytes / 4 + slot - 1) / slot * slot;
}

/* Whether a device of the network may move the message in the GPU's memory. */
static bool may_be_in_place(const struct tt_pending_call *pending)
{
    const struct tt_comm_core *comm = pending->comm;
    return pending->nbytes >= IN_PLACE_MIN_BYTES &&
           !tt_fabric_is_local(comm->fabric, pending->peer) &&
           tt_staged_is_registered(comm, pending->data, pending->nbytes);
}

static tt_status prepare_message(struct tt_pending_call *pending)
{
    struct tt_comm_core *comm = pending->comm;
    const size_t most = message_portion(comm), nbytes = pending->nbytes;
    const bool sends = pending->kind == TT_CALL_SEND, in_place = may_be_in_place(pending);
    const struct tt_extent extent = {(uintptr_t)pending->data, nbytes};
    TT_TRY(take(pending, nbytes, most, in_place, 1));
    struct tt_stage *stage = pending->stage;
    *(sends ? &stage->in : &stage->out) = extent;
    if (in_place) stage->on_device = pending->data;
    if (stage->memory) {
        add(stage, sends ? &stage->nin : &stage->nout, pending->data, stage->memory, nbytes);
        pending->data = stage->memory;
        return TT_OK;
    }
    struct tt_portions *portions = &stage->portions.base;
    portions->nbytes = most;
    portions->number = nbytes ? (nbytes + most - 1) / most : 1;
    stage->portions.users[TT_INPUT] = stage->portions.users[TT_OUTPUT] = pending->data;
    struct tt_stage_shared *shared = NULL;
    const tt_status status = tt_stage_messages(comm->staged, comm->nranks, &shared);
    const int at = sends ? pending->peer : comm->nranks + pending->peer;
    TT_TRY(share(pending, status, status ? NULL : &shared[at], 2 * most));
    pending->data = portions->memory;
    return TT_OK;
}

tt_status tt_stage_prepare(struct tt_pending_call *pending, const struct tt_where *where,
                           const struct tt_call_blocks *blocks)
{
    if (!blocks) return prepare_message(pending);
    return blocks->counts ? prepare_uneven(pending, where, blocks)
                          : prepare_even(pending, where, blocks);
}
