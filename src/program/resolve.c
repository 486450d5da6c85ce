/* Resolves the steps of a program for a binding to a count. */
#include "program/resolve.h"

/* Of a table: steps of more are walked, in programs for hundreds of ranks. */
enum { MOST_BYTES = 64 << 10 };

/* ---- Memory --------------------------------------------------------------------------------- */

static void find_extent(const struct tt_program *program, const struct tt_binding *binding,
                        int buffer, struct tt_footprint *footprint)
{
    const struct tt_program_blocks *held = &program->held[buffer];
    const int32_t last = held->first + held->number - 1;
    /* Only blocks with counts of their own may lie in any order. */
    const int32_t stride = binding->table_at || held->number < 2 ? 1 : held->number - 1;
    size_t begin = SIZE_MAX, end = 0;
    for (int32_t block = held->first; block <= last; block += stride) {
        size_t at;
        const size_t length = tt_binding_block(binding, block, &at);
        begin = at < begin ? at : begin;
        end = at + length > end ? at + length : end;
    }
    footprint->begin[buffer] = held->number ? begin * binding->element : 0;
    footprint->end[buffer] = end * binding->element;
}

void tt_footprint_of(const struct tt_program *program, const struct tt_binding *binding,
                     struct tt_footprint *footprint)
{
    const size_t piece = binding->piece * binding->element;
    footprint->longest = piece * (size_t)program->message;
    footprint->scratch = piece * (size_t)program->nscratch * binding->parts[0].nparts;
    for (int b = TT_INPUT; b <= TT_OUTPUT; b++) find_extent(program, binding, b, footprint);
}

/* ---- Steps ---------------------------------------------------------------------------------- */

/* A span over all rounds. */
struct extent {
    size_t offset, stride; /* bytes; stride: what a round adds */
    size_t length;         /* elements */
    bool whole;            /* of all its blocks, in the only round */
};

/* False: the span is several pieces of memory. */
static bool resolve_span(const struct tt_program *program, const struct tt_binding *binding,
                         const struct tt_program_span *span, int part, struct extent *extent)
{
    size_t begin;
    *extent = (struct extent){.whole = tt_span_is_whole(binding, span)};
    if (extent->whole) {
        struct tt_piece piece;
        struct tt_walk walk = tt_walk_begin(program, binding, span, part, 0, true);
        if (!tt_walk_next(&walk, &piece)) return false;
        extent->offset = piece.offset;
        extent->length = piece.count;
        return true;
    }
    if (span->number != 1) return false;
    extent->length =
        tt_binding_part(binding, tt_span_name_at(program, span, span->first), part, &begin);
    if (span->buffer == TT_SCRATCH) {
        const int32_t slot = span->slot + (span->slot_rule == TT_SLOT_IN_ORDER ? 0 : span->first);
        const size_t at = (size_t)slot * binding->parts[0].nparts + (size_t)part;
        extent->offset = at * binding->piece * binding->element;
    } else {
        extent->offset = begin * binding->element;
        extent->stride = binding->piece * binding->element;
    }
    return true;
}

/* Elements in each round, of `length` over all rounds. */
static void cut_into_rounds(struct tt_resolved_step *out, const struct tt_binding *binding,
                            size_t length, bool whole)
{
    const bool cut = !whole && length > binding->piece;
    out->count = cut ? binding->piece : length;
    out->full = cut ? length / binding->piece : 1;
    out->rest = cut ? length % binding->piece : 0;
    out->nbytes = out->count * binding->element;
}

/* All blocks of a meeting have one length, and so have their parts. */
static bool resolve_blocks(const struct tt_program *program, const struct tt_binding *binding,
                           int part, struct tt_resolved_step *out)
{
    size_t begin;
    if (program->splits && program->nblocks > 1) return false;
    cut_into_rounds(out, binding, program->nblocks ? tt_binding_part(binding, 0, part, &begin) : 0,
                    false);
    return true;
}

static bool resolve_step(const struct tt_program *program, const struct tt_binding *binding,
                         const struct tt_program_step *step, int part, struct tt_resolved_step *out)
{
    struct extent local = {.length = 0}, dst = {.length = 0};
    const bool has_local = step->local.number, has_dst = step->dst.number;
    *out = (struct tt_resolved_step){.known = false};
    if (has_local && !resolve_span(program, binding, &step->local, part, &local)) return false;
    if (has_dst && !resolve_span(program, binding, &step->dst, part, &dst)) return false;
    if (local.stride > UINT32_MAX || dst.stride > UINT32_MAX) return false;
    if (step->kind == TT_STEP_MEET) {
        if (!resolve_blocks(program, binding, part, out)) return false;
    } else {
        if (program->nblocks && !has_local && !has_dst) return false;
        if (has_local && has_dst && local.length != dst.length) return false;
        cut_into_rounds(out, binding, has_dst ? dst.length : local.length,
                        local.whole || dst.whole);
    }
    out->local = local.offset;
    out->dst = dst.offset;
    out->local_stride = (uint32_t)local.stride;
    out->dst_stride = (uint32_t)dst.stride;
    return true;
}

size_t tt_step_table_bytes(const struct tt_program *program, const struct tt_binding *binding)
{
    const size_t nbytes = sizeof(struct tt_step_table) + (size_t)binding->copies * program->nsteps *
                                                             sizeof(struct tt_resolved_step);
    return binding->table_at || nbytes > MOST_BYTES ? SIZE_MAX : nbytes;
}

void tt_step_table_fill(const struct tt_program *program, const struct tt_binding *binding,
                        struct tt_step_table *resolved)
{
    resolved->nsteps = program->nsteps;
    tt_footprint_of(program, binding, &resolved->footprint);
    for (int copy = 0; copy < binding->copies; copy++)
        for (int c = 0; c < program->nchannels; c++) {
            const struct tt_program_channel *row = tt_program_channel(program, c);
            for (uint32_t s = 0; s < row->nsteps; s++) {
                struct tt_resolved_step *out =
                    &resolved->steps[(size_t)copy * program->nsteps + row->first + s];
                out->known = resolve_step(program, binding, tt_program_step(program, c, s),
                                          copy * program->nchannels + c, out);
            }
        }
}
