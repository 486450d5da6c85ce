/* Staged calls: where the caller's buffers lie in staging memory. */
#include <stdlib.h>

#include "carrier/staged/staged.h"

enum { ALIGNMENT = 64 };

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
    if (!row->in_place) layout.out_at = (sizes->in + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    const size_t in_end = layout.in_at + sizes->in, out_end = layout.out_at + sizes->out;
    layout.nbytes = in_end > out_end ? in_end : out_end;
    layout.kept = find_kept(where, blocks, sizes);
    return layout;
}

/* ---- Copies --------------------------------------------------------------------------------- */

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

/* One side of a collective. */
struct side {
    enum tt_holds holds;
    int rank, nranks;
    const struct tt_call_blocks *blocks;
    size_t nbytes; /* that this rank uses */
};

static struct side side_of(const struct tt_pending_call *pending,
                           const struct tt_call_blocks *blocks, const struct tt_where *where,
                           bool input)
{
    const struct tt_comm_core *comm = pending->comm;
    struct side side = {tt_collective_holds(blocks->collective, input, comm->rank == blocks->root),
                        comm->rank, comm->nranks, blocks,
                        input ? where->in.nbytes : where->out.nbytes};
    if (!blocks->counts) return side;
    size_t count = side.holds == TT_HOLDS_OWN ? blocks->counts[comm->rank] : 0;
    for (int r = 0; side.holds == TT_HOLDS_ALL && r < comm->nranks; r++) count += blocks->counts[r];
    side.nbytes = count * blocks->element;
    return side;
}

/* kept: NULL: the input. */
static void add_side(struct tt_stage *stage, const struct side *side, const struct tt_extent *kept,
                     char *users, char *staged)
{
    const struct tt_call_blocks *blocks = side->blocks;
    const bool all = blocks->counts && side->holds == TT_HOLDS_ALL;
    size_t packed = 0;
    for (int r = 0; r < (all ? side->nranks : 1); r++) {
        const size_t nbytes = all ? blocks->counts[r] * blocks->element : side->nbytes;
        const size_t at = all && blocks->displs ? blocks->displs[r] * blocks->element : packed;
        if (kept)
            add_output(stage, kept, users + at, staged + packed, nbytes);
        else
            add(stage, &stage->nin, users + at, staged + packed, nbytes);
        packed += nbytes;
    }
}

/* ---- Calls ---------------------------------------------------------------------------------- */

static tt_status take_stage(struct tt_staged_part *staged, int npieces, struct tt_stage **out)
{
    struct tt_stage *stage = staged->stages;
    while (stage && (stage->is_used || stage->room < npieces)) stage = stage->next;
    if (!stage) {
        const size_t nbytes = sizeof *stage + (size_t)npieces * sizeof stage->pieces[0];
        stage = malloc(nbytes);
        if (!stage) return tt_fail(TT_ERR_SYSTEM, "out of memory for %d copies", npieces);
        stage->room = npieces;
        stage->next = staged->stages;
        staged->stages = stage;
        staged->held_bytes += nbytes;
    }
    stage->is_used = true;
    stage->nin = stage->nout = 0;
    stage->in = stage->out = stage->scalar = (struct tt_extent){0, 0};
    *out = stage;
    return TT_OK;
}

static tt_status take(struct tt_pending_call *pending, size_t nbytes, int npieces, char **memory)
{
    struct tt_staged_part *staged = pending->comm->staged;
    TT_TRY(tt_stage_memory(staged, nbytes, !pending->follows, memory));
    return take_stage(staged, npieces, &pending->stage);
}

static tt_status prepare_collective(struct tt_pending_call *pending, const struct tt_where *where,
                                    const struct tt_call_blocks *blocks)
{
    const struct tt_comm_core *comm = pending->comm;
    const struct side in = side_of(pending, blocks, where, true);
    const struct side out = side_of(pending, blocks, where, false);
    struct sizes sizes = {in.nbytes, out.nbytes, blocks->counts ? 0 : blocks->before_own};
    struct tt_call *call = &pending->call;
    char *memory;
    for (int r = 0; blocks->counts && r < comm->rank; r++)
        sizes.before_own += blocks->counts[r] * blocks->element;
    const struct layout layout = lay_out(where, blocks, &sizes);
    const size_t scalar_at = (layout.nbytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    const size_t scalar_bytes = call->scalar ? tt_type_size(call->reduction.type) : 0;
    /* the scalar, and the output's part behind what is kept */
    TT_TRY(take(pending, scalar_at + scalar_bytes, (blocks->counts ? 2 * comm->nranks : 2) + 2,
                &memory));
    struct tt_stage *stage = pending->stage;
    stage->in = where->in;
    stage->out = where->out;
    add_side(stage, &in, NULL, layout.input, memory + layout.in_at);
    if (call->scalar) {
        stage->scalar = (struct tt_extent){(uintptr_t)call->scalar, scalar_bytes};
        add(stage, &stage->nin, (char *)(uintptr_t)call->scalar, memory + scalar_at, scalar_bytes);
        call->scalar = memory + scalar_at;
    }
    add_side(stage, &out, &layout.kept, layout.output, memory + layout.out_at);
    call->input = memory + layout.in_at;
    call->output = memory + layout.out_at;
    return TT_OK;
}

tt_status tt_stage_prepare(struct tt_pending_call *pending, const struct tt_where *where,
                           const struct tt_call_blocks *blocks)
{
    char *memory;
    if (blocks) return prepare_collective(pending, where, blocks);
    TT_TRY(take(pending, pending->nbytes, 1, &memory));
    struct tt_stage *stage = pending->stage;
    const bool sends = pending->kind == TT_CALL_SEND;
    *(sends ? &stage->in : &stage->out) =
        (struct tt_extent){(uintptr_t)pending->data, pending->nbytes};
    add(stage, sends ? &stage->nin : &stage->nout, pending->data, memory, pending->nbytes);
    pending->data = memory;
    return TT_OK;
}
