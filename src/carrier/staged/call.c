/* Staged calls: where the caller's buffers lie in their staging memory. */
#include <stdlib.h>

#include "carrier/staged/staged.h"

/* ---- Copies --------------------------------------------------------------------------------- */

/* Pieces that follow one another in both memories become one. */
static void add(struct tt_stage *stage, int *number, char *users, size_t at, size_t nbytes)
{
    const int end = stage->nin + stage->nout;
    struct tt_stage_piece *last = *number ? &stage->pieces[end - 1] : NULL;
    if (!nbytes) return;
    if (last && last->users + last->nbytes == users && last->at + last->nbytes == at) {
        last->nbytes += nbytes;
        return;
    }
    stage->pieces[end] = (struct tt_stage_piece){users, at, nbytes};
    ++*number;
}

/* Leaves out what is kept. */
static void add_output(struct tt_stage *stage, const struct tt_extent *kept, char *users, size_t at,
                       size_t nbytes)
{
    const uintptr_t first = (uintptr_t)users, end = first + nbytes;
    const uintptr_t kept_end = kept->first + kept->nbytes;
    const bool apart = !kept->nbytes || kept->first >= end || kept_end <= first;
    const size_t before = apart ? nbytes : kept->first > first ? kept->first - first : 0;
    const size_t after = !apart && end > kept_end ? end - kept_end : 0;
    add(stage, &stage->nout, users, at, before);
    add(stage, &stage->nout, users + (nbytes - after), at + (nbytes - after), after);
}

/* One side of a collective. */
struct side {
    bool is_input, packs; /* packs: it has a block of each rank, which are packed */
    int nranks;
    const struct tt_call_blocks *blocks;
    size_t nbytes; /* that this rank uses */
    char *users;
};

static struct side side_of(const struct tt_pending_call *pending, const struct tt_where *where,
                           const struct tt_call_blocks *blocks, bool input)
{
    const struct tt_comm_core *comm = pending->comm;
    const enum tt_holds holds =
        tt_collective_holds(blocks->collective, input, comm->rank == blocks->root);
    struct side side = {input,
                        blocks->counts && holds == TT_HOLDS_ALL,
                        comm->nranks,
                        blocks,
                        input ? where->in.nbytes : where->out.nbytes,
                        input ? (char *)(uintptr_t)where->input : where->output};
    if (side.packs) side.nbytes = blocks->total * blocks->element;
    return side;
}

static void add_side(struct tt_stage *stage, const struct side *side, const struct tt_extent *kept,
                     size_t at)
{
    const struct tt_call_blocks *blocks = side->blocks;
    size_t packed = 0;
    for (int r = 0; r < (side->packs ? side->nranks : 1); r++) {
        const size_t nbytes = side->packs ? blocks->counts[r] * blocks->element : side->nbytes;
        const bool is_apart = side->packs && blocks->displs;
        char *users = side->users + (is_apart ? blocks->displs[r] * blocks->element : packed);
        if (side->is_input)
            add(stage, &stage->nin, users, at + packed, nbytes);
        else
            add_output(stage, kept, users, at + packed, nbytes);
        packed += nbytes;
    }
}

/* ---- Calls ---------------------------------------------------------------------------------- */

static tt_status take(struct tt_pending_call *pending, size_t nbytes, int npieces)
{
    struct tt_stage *stage = calloc(1, sizeof *stage + (size_t)npieces * sizeof stage->pieces[0]);
    if (!stage) return tt_fail(TT_ERR_SYSTEM, "out of memory for %d copies", npieces);
    stage->nbytes = nbytes;
    pending->stage = stage;
    return TT_OK;
}

static size_t aligned(size_t nbytes)
{
    return (nbytes + TT_STAGE_ALIGNMENT - 1) / TT_STAGE_ALIGNMENT * TT_STAGE_ALIGNMENT;
}

/* The caller's bytes that are both input and output, where nothing is reduced: writing them again
 * would race with who reads them. */
static struct tt_extent find_kept(const struct tt_call_blocks *blocks, const struct side *in,
                                  const struct side *out)
{
    const struct tt_collective_row *row = tt_collective_row(blocks->collective);
    const bool gathers = row->output == TT_HOLDS_ALL;
    const char *all = gathers ? out->users : in->users, *block = gathers ? in->users : out->users;
    if (row->input != row->output) all += blocks->before_own;
    if (block != all || !row->in_place || !in->nbytes || !out->nbytes ||
        tt_collective_reduces(blocks->collective))
        return (struct tt_extent){0, 0};
    return (struct tt_extent){(uintptr_t)block,
                              in->nbytes < out->nbytes ? in->nbytes : out->nbytes};
}

static tt_status prepare_collective(struct tt_pending_call *pending, const struct tt_where *where,
                                    const struct tt_call_blocks *blocks)
{
    const struct tt_comm_core *comm = pending->comm;
    const struct tt_collective_row *row = tt_collective_row(blocks->collective);
    const struct side in = side_of(pending, where, blocks, true);
    const struct side out = side_of(pending, where, blocks, false);
    const struct tt_extent kept = find_kept(blocks, &in, &out);
    struct tt_call *call = &pending->call;
    const size_t scalar = call->scalar ? tt_type_size(call->reduction.type) : 0;
    size_t own = blocks->counts ? 0 : blocks->before_own, in_at = 0, out_at = 0;
    for (int r = 0; blocks->counts && r < comm->rank; r++)
        own += blocks->counts[r] * blocks->element;
    if (!row->in_place)
        out_at = aligned(in.nbytes);
    else if (row->input != row->output && in.nbytes && out.nbytes)
        *(row->input == TT_HOLDS_OWN ? &in_at : &out_at) = own;
    const size_t in_end = in_at + in.nbytes, out_end = out_at + out.nbytes;
    const size_t scalar_at = aligned(in_end > out_end ? in_end : out_end);
    /* the scalar, and the output's part behind what is kept */
    const int npieces = (in.packs ? comm->nranks : 1) + (out.packs ? comm->nranks : 1) + 2;
    TT_TRY(take(pending, scalar_at + scalar, npieces));
    struct tt_stage *stage = pending->stage;
    stage->in = where->in;
    stage->out = where->out;
    stage->scalar = (struct tt_extent){(uintptr_t)call->scalar, scalar};
    stage->in_at = in_at;
    stage->out_at = out_at;
    stage->scalar_at = scalar_at;
    add_side(stage, &in, NULL, in_at);
    add(stage, &stage->nin, (char *)(uintptr_t)call->scalar, scalar_at, scalar);
    add_side(stage, &out, &kept, out_at);
    return TT_OK;
}

tt_status tt_stage_prepare(struct tt_pending_call *pending, const struct tt_where *where,
                           const struct tt_call_blocks *blocks)
{
    const bool sends = pending->kind == TT_CALL_SEND;
    if (blocks) return prepare_collective(pending, where, blocks);
    TT_TRY(take(pending, pending->nbytes, 1));
    struct tt_stage *stage = pending->stage;
    *(sends ? &stage->in : &stage->out) =
        (struct tt_extent){(uintptr_t)pending->data, pending->nbytes};
    add(stage, sends ? &stage->nin : &stage->nout, pending->data, 0, pending->nbytes);
    return TT_OK;
}

void tt_stage_place(struct tt_pending_call *pending, char *memory)
{
    struct tt_stage *stage = pending->stage;
    stage->memory = memory;
    if (pending->kind != TT_CALL_COLLECTIVE) {
        pending->data = memory;
        return;
    }
    pending->call.input = memory + stage->in_at;
    pending->call.output = memory + stage->out_at;
    if (stage->scalar.nbytes) pending->call.scalar = memory + stage->scalar_at;
}
