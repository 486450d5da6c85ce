/* Staged calls: where the caller's buffers lie in their staging memory. */
#include <stdlib.h>

#include "carrier/staged/staged.h"

enum { ALIGNMENT = 64 };

static size_t aligned(size_t nbytes)
{
    return (nbytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

/* Gives the call a stage without pieces. */
static tt_status make_stage(struct tt_pending_call *pending, size_t nbytes, int npieces)
{
    struct tt_stage *stage = calloc(1, sizeof *stage + (size_t)npieces * sizeof stage->pieces[0]);
    if (!stage) return tt_fail(TT_ERR_SYSTEM, "out of memory for %d copies", npieces);
    stage->nbytes = aligned(nbytes);
    pending->stage = stage;
    return TT_OK;
}

/* number: nin, or nout. Pieces that follow one another in both memories become one. */
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

/* ---- Collectives ---------------------------------------------------------------------------- */

/* A caller's buffer. */
struct side {
    char *users;
    size_t nbytes; /* that this rank uses */
    int nblocks;   /* 1, or those of all ranks, which staging memory has packed */
    bool packs;
};

static struct side side_of(const struct tt_comm_core *comm, const struct tt_call_blocks *blocks,
                           bool input, const struct tt_where *where)
{
    const enum tt_holds holds =
        tt_collective_holds(blocks->collective, input, comm->rank == blocks->root);
    char *users = input ? (char *)(uintptr_t)where->input : where->output;
    if (blocks->counts && holds == TT_HOLDS_ALL)
        return (struct side){users, blocks->total * blocks->element, comm->nranks, true};
    return (struct side){users, input ? where->in.nbytes : where->out.nbytes, 1, false};
}

/* Bytes of a side, as it lies in staging memory. */
struct span {
    size_t begin, end;
};

/* Adds what the call uses of the side, but for `kept`. */
static void add_side(struct tt_stage *stage, int *number, const struct side *side, size_t at,
                     const struct tt_call_blocks *blocks, struct span kept)
{
    size_t begin = 0;
    for (int r = 0; r < side->nblocks; r++) {
        const bool is_apart = side->packs && blocks->displs;
        char *users = side->users + (is_apart ? blocks->displs[r] * blocks->element : begin);
        const size_t end = side->packs ? begin + blocks->counts[r] * blocks->element : side->nbytes;
        const size_t before = end < kept.begin ? end : kept.begin;
        const size_t behind = begin > kept.end ? begin : kept.end;
        if (begin < before) add(stage, number, users, at + begin, before - begin);
        if (behind < end) add(stage, number, users + (behind - begin), at + behind, end - behind);
        begin = end;
    }
}

/* Whether the caller's buffers are in place, and nothing is reduced: what is input and output at
 * once is not written again, which would race with who reads it. */
static bool keeps_input(const struct tt_call_blocks *blocks, const struct tt_where *where)
{
    const struct tt_collective_row *row = tt_collective_row(blocks->collective);
    const uintptr_t input = (uintptr_t)where->input, output = (uintptr_t)where->output;
    return row->in_place && !tt_collective_reduces(blocks->collective) &&
           input + (row->output == TT_HOLDS_OWN ? blocks->before_own : 0) ==
               output + (row->input == TT_HOLDS_OWN ? blocks->before_own : 0);
}

static tt_status prepare_collective(struct tt_pending_call *pending, const struct tt_where *where,
                                    const struct tt_call_blocks *blocks)
{
    const struct tt_comm_core *comm = pending->comm;
    const struct tt_collective_row *row = tt_collective_row(blocks->collective);
    const struct side in = side_of(comm, blocks, true, where);
    const struct side out = side_of(comm, blocks, false, where);
    const size_t both = in.nbytes < out.nbytes ? in.nbytes : out.nbytes;
    const size_t kept = keeps_input(blocks, where) ? both : 0;
    const size_t scalar = pending->call.scalar ? tt_type_size(pending->call.reduction.type) : 0;
    size_t own = blocks->counts ? 0 : blocks->before_own;
    for (int r = 0; blocks->counts && r < comm->rank; r++)
        own += blocks->counts[r] * blocks->element;
    const size_t in_at = both && row->input == TT_HOLDS_OWN ? own : 0;
    const size_t out_at = !row->in_place                        ? aligned(in.nbytes)
                          : both && row->output == TT_HOLDS_OWN ? own
                                                                : 0;
    const size_t in_end = in_at + in.nbytes, out_end = out_at + out.nbytes;
    const size_t scalar_at = aligned(in_end > out_end ? in_end : out_end);
    /* Two more: the scalar, and what lies behind the kept part of the output. */
    TT_TRY(make_stage(pending, scalar_at + scalar, in.nblocks + out.nblocks + 2));
    struct tt_stage *stage = pending->stage;
    stage->in = where->in;
    stage->out = where->out;
    stage->scalar = (struct tt_extent){(uintptr_t)pending->call.scalar, scalar};
    stage->in_at = in_at;
    stage->out_at = out_at;
    stage->scalar_at = scalar_at;
    add_side(stage, &stage->nin, &in, in_at, blocks, (struct span){0, 0});
    add(stage, &stage->nin, (char *)(uintptr_t)pending->call.scalar, scalar_at, scalar);
    add_side(stage, &stage->nout, &out, out_at, blocks, (struct span){in_at, in_at + kept});
    return TT_OK;
}

/* ---- Calls ---------------------------------------------------------------------------------- */

tt_status tt_stage_prepare(struct tt_pending_call *pending, const struct tt_where *where,
                           const struct tt_call_blocks *blocks)
{
    const bool sends = pending->kind == TT_CALL_SEND;
    if (blocks) return prepare_collective(pending, where, blocks);
    TT_TRY(make_stage(pending, pending->nbytes, 1));
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
