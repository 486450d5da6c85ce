/* One step of a program, by all threads of a block.
 *
 * The first threads wait for the messages and for free slots, all threads compute, the last warp
 * publishes what was sent and releases what was taken. With lines every thread waits for the
 * lines that it reads. A function that returns bool returns whether to go on, the same to all
 * threads of the block where it ends in a barrier. */
#ifndef TT_DEVICE_KERNEL_STEP_CUH
#define TT_DEVICE_KERNEL_STEP_CUH

#include "device/kernel/lines.cuh"

/* ---- Resolving ------------------------------------------------------------------------------ */

static __device__ char *tt_piece_at(const struct tt_program_span *span,
                                    const struct tt_piece *piece)
{
    return block.call.origin[span->buffer] + piece->offset;
}

/* The only piece of a span; false: it has several, or none. */
static __device__ bool tt_one_piece(const struct tt_program_span *span, struct tt_piece *piece)
{
    const bool whole =
        block.call.protocol == TT_PROTOCOL_SLOTS && tt_span_is_whole(block.binding, span);
    struct tt_walk walk =
        tt_walk_begin(block.program, block.binding, span, (int)block.part, block.round, whole);
    return tt_walk_next(&walk, piece) && walk.index == span->number;
}

/* Whether exactly the one piece of the span is what the step sends, and may be read where it lies
 * until the call ends. */
static __device__ bool tt_may_refer(const struct tt_program_step *step,
                                    const struct tt_program_span *span, size_t count)
{
    if (block.call.protocol != TT_PROTOCOL_SLOTS || !block.program->direct_safe) return false;
    if (!step->nsend || span->buffer == TT_SCRATCH) return false;
    if (span == &step->local && (step->nrecv || step->finish)) return false;
    if (span->buffer == TT_INPUT && block.call.fold.op == TT_PREMUL_SUM) return false;
    return count && count * block.call.fold.element >= block.call.reference_bytes;
}

static __device__ void tt_resolve_step(const struct tt_program_step *step, struct tt_resolved *out)
{
    out->from = out->to = NULL;
    out->reference = NULL;
    out->count = 0;
    out->single = true;
#pragma unroll 1
    for (int i = 0; i < 2; i++) {
        const struct tt_program_span *span = i ? &step->dst : &step->local;
        struct tt_piece piece = {0, 0};
        if (!span->number) continue;
        const bool one = tt_one_piece(span, &piece);
        char *at = tt_piece_at(span, &piece);
        out->single = out->single && one;
        out->count = piece.count;
        (i ? out->to : out->from) = at;
        out->reference = one && tt_may_refer(step, span, piece.count) ? at : NULL;
    }
}

/* Of the block's first n threads thread i finds the pieces of the i-th step from the present one
 * on. They pass a barrier before these are used. */
static __device__ __noinline__ void tt_resolve(const struct tt_program_step *steps, uint32_t nsteps,
                                               uint32_t n)
{
    const uint32_t first = block.step;
    for (uint32_t i = threadIdx.x; i < TT_MOST_RESOLVED && first + i < nsteps; i += n)
        tt_resolve_step(&steps[first + i], &block.resolved[i]);
}

/* One thread, when nobody looks at the present step any more: there is a next one. */
static __device__ void tt_advance(void)
{
    if (++block.step < block.nsteps) return;
    block.step = 0;
    block.round++;
}

/* ---- Waiting -------------------------------------------------------------------------------- */

/* The message is there: where it lies; says whether it is raw. NULL: there is no hope. */
static __device__ char *tt_find_message(struct tt_device_end *end, struct tt_block_message *message,
                                        uint64_t head)
{
    const uint32_t slot = end->count % block.call.links.nslots;
    if ((uint32_t)head != (uint32_t)message->head) head = end->notes[slot].head;
    if (head != message->head) {
        tt_block_fail(TT_DEVICE_MISMATCH, message->peer);
        return NULL;
    }
    char *data = end->slots + (size_t)slot * block.call.links.slot_bytes;
    bool withdrawn;
    message->raw = false;
    if (!end->reaches) return data;
    const uint64_t reference = tt_take_reference(end, &end->notes[slot], &withdrawn);
    struct tt_watch watch = tt_watch_begin();
    while (withdrawn)
        if (!tt_watch(&watch)) {
            tt_fail_wait(message->peer);
            return NULL;
        }
    message->raw = reference & TT_REFERENCE_RAW;
    return reference ? (char *)(reference & ~TT_REFERENCE_RAW) : data;
}

/* SLOTS, one thread: waits until the message is there. */
static __device__ bool tt_prepare_message(struct tt_device_end *end,
                                          struct tt_block_message *message)
{
    const struct tt_device_links *links = &block.call.links;
    struct tt_watch watch = tt_watch_begin();
    uint64_t head;
    if (!tt_wait_for_message(end, links->nslots, &watch, &head)) return tt_fail_wait(message->peer);
    message->at = tt_find_message(end, message, head);
    return message->at;
}

/* Where the peer reads what the step sends, which lies at `reference`; 0: it cannot. */
static __device__ uint64_t tt_reference_to(const struct tt_program_step *step, uint32_t reaches,
                                           int32_t peer, const char *reference)
{
    if (!reference || reaches != TT_REACHES_OPENED) return reaches ? (uint64_t)reference : 0;
    const uint32_t buffer = step->dst.number ? step->dst.buffer : step->local.buffer;
    const uint64_t *opened = block.call.opened[buffer];
    const uint64_t from = opened ? opened[peer] : TT_NOT_OPENED;
    return from == TT_NOT_OPENED ? 0 : (uint64_t)reference + from;
}

/* One thread: a slot for a message that the step sends. */
static __device__ bool tt_prepare_slot(const struct tt_program_step *step,
                                       struct tt_device_end *end, struct tt_block_message *message,
                                       const char *reference)
{
    const struct tt_device_links *links = &block.call.links;
    struct tt_watch watch = tt_watch_begin();
    if (!tt_wait_for_release(end, &watch, links->nslots - 1)) return tt_fail_wait(message->peer);
    const bool lines = block.call.protocol == TT_PROTOCOL_LINES;
    const uint64_t there =
        lines ? 0 : tt_reference_to(step, end->reaches, message->peer, reference);
    message->refers = there;
    if (lines)
        message->at = tt_lines_of(end);
    else if (there)
        message->at = (char *)there;
    else
        message->at = end->slots + (size_t)(end->count % links->nslots) * links->slot_bytes;
    return true;
}

/* All threads: waits for what the step needs. */
static __device__ bool tt_prepare(const struct tt_program_step *step, const char *reference)
{
    bool go = true;
    for (uint32_t i = threadIdx.x; i < step->nrecv + step->nsend; i += blockDim.x) {
        const bool comes = i < step->nrecv;
        const uint32_t s = comes ? i : i - step->nrecv;
        const uint32_t link = comes ? step->recv + s : step->send + s;
        struct tt_block_message *message = comes ? &block.in[s] : &block.out[s];
        const uint16_t place = block.places[link];
        struct tt_device_end *end = tt_end(place);
        message->end = place;
        message->system = end->system;
        message->peer = tt_program_links(block.program)[link].peer;
        message->head = tt_device_head(end->count + 1, block.call.signature);
        if (!comes)
            go = go && tt_prepare_slot(step, end, message, reference);
        else if (block.call.protocol == TT_PROTOCOL_LINES)
            block.pass.sources[s] = tt_lines_of(end);
        else
            go = go && tt_prepare_message(end, message);
    }
    return __syncthreads_and(go);
}

/* One thread: the message is in its slot, in lines, or a reference, with the bits `mark`. */
static __device__ void tt_finish_slot(struct tt_device_end *end,
                                      const struct tt_block_message *message, uint64_t mark)
{
    const bool lines = block.call.protocol == TT_PROTOCOL_LINES;
    if (!lines) {
        struct tt_device_note *note = &end->notes[end->count % block.call.links.nslots];
        note->reference = message->refers ? (uint64_t)message->at | mark : 0;
        note->head = message->head;
        if (!end->lines) note->length = block.length;
        if (message->refers) end->refers = 1; /* the call ends when the receiver has read */
    }
    if (!lines || tt_device_renews(end->count, block.call.links.nslots)) end->due = 1;
    end->count++;
}

/* All threads, which have passed a barrier since the step was computed: counts its messages, and
 * tells of them. */
static __device__ void tt_finish_step(const struct tt_program_step *step, const char *reference)
{
    const bool raw = reference && !step->dst.number && tt_is_raw(step);
    for (uint32_t i = threadIdx.x; i < step->nrecv + step->nsend; i += blockDim.x) {
        if (i < step->nrecv) {
            tt_count_read(tt_end(block.in[i].end), &block.call.links);
        } else {
            const struct tt_block_message *message = &block.out[i - step->nrecv];
            tt_finish_slot(tt_end(message->end), message, raw ? TT_REFERENCE_RAW : 0);
        }
    }
    if (threadIdx.x == blockDim.x - 1) tt_advance();
    __syncthreads();
    tt_tell(tt_most_read());
}

/* ---- Slots ---------------------------------------------------------------------------------- */

/* Of the messages before i that the step sends, those with a slot to fill. */
static __device__ uint32_t tt_slots_before(uint32_t i)
{
    uint32_t n = 0;
    for (uint32_t j = 0; j < i; j++) n += !block.out[j].refers;
    return n;
}

/* Whether one of the step's messages is raw. */
static __device__ bool tt_has_raw_message(const struct tt_program_step *step)
{
    bool raw = false;
    for (uint32_t i = 0; i < step->nrecv; i++) raw = raw || block.in[i].raw;
    return raw;
}

/* All threads: lists where the piece's elements come from, in the order of the fold, and go. */
static __device__ void tt_list_pass(const struct tt_program_step *step,
                                    const struct tt_step_piece *piece)
{
    struct tt_pass *pass = &block.pass;
    const uint32_t own =
        piece->from ? (uint32_t)(step->own_at < 0 ? 0 : step->own_at) : step->nrecv;
    const bool raw = piece->from && tt_is_raw(step);
    /* A copy onto itself writes nothing: peers may still read that memory. */
    const bool changes = step->nrecv || raw || step->finish;
    const uint32_t ndsts = piece->to && (piece->to != piece->from || changes);
    for (uint32_t i = threadIdx.x; i <= step->nrecv + step->nsend; i += blockDim.x) {
        if (i < step->nrecv) {
            const uint32_t s = i + (piece->from && i >= own);
            pass->sources[s] = block.in[i].at + piece->before;
            pass->raw[s] = block.in[i].raw;
        } else if (i < step->nrecv + step->nsend) {
            const uint32_t s = i - step->nrecv;
            if (!block.out[s].refers)
                pass->targets[ndsts + tt_slots_before(s)] = block.out[s].at + piece->before;
        } else {
            if (piece->from) pass->sources[own] = piece->from;
            if (piece->from) pass->raw[own] = raw;
            if (ndsts) pass->targets[0] = piece->to;
            pass->nsources = step->nrecv + (piece->from ? 1 : 0);
            pass->ntargets = ndsts + tt_slots_before(step->nsend);
            pass->changes = {raw || tt_has_raw_message(step), step->finish != 0};
            pass->count = piece->count;
        }
    }
    __syncthreads();
}

/* All threads: the piece's elements. */
static __device__ __noinline__ void tt_do_slots(const struct tt_program_step *step,
                                                struct tt_step_piece piece)
{
    tt_list_pass(step, &piece);
    if (block.pass.nsources && block.pass.ntargets) tt_fold_pass(&block.call.fold, &block.pass);
}

/* ---- A step --------------------------------------------------------------------------------- */

/* Bytes of a message that the piece takes, or lines. */
static __device__ size_t tt_piece_length(size_t count)
{
    const size_t nbytes = count * block.call.fold.element;
    return block.call.protocol == TT_PROTOCOL_SLOTS ? nbytes
                                                    : (nbytes + TT_LINE_DATA - 1) / TT_LINE_DATA;
}

/* Whether the messages up to the end of the piece fit. The binding says that they do. */
static __device__ bool tt_piece_fits(const struct tt_program_step *step,
                                     const struct tt_step_piece *piece, const char *reference)
{
    const size_t end = piece->before + tt_piece_length(piece->count);
    const size_t room = block.call.protocol == TT_PROTOCOL_SLOTS
                            ? block.call.links.slot_bytes
                            : block.call.links.line_bytes / TT_LINE_BYTES;
    if (end <= room || reference || (!step->nrecv && !step->nsend)) return true;
    tt_report_failure(&block.call, TT_DEVICE_IMPOSSIBLE, -1, block.part, block.step);
    return false;
}

/* All threads: one piece; least: lines that are taken and sent at least. The result of a thread. */
static __device__ bool tt_do_piece(const struct tt_program_step *step,
                                   const struct tt_step_piece *piece, size_t least,
                                   const char *reference)
{
    if (!tt_piece_fits(step, piece, reference)) return false;
    if (block.call.protocol == TT_PROTOCOL_LINES) return tt_do_lines(step, *piece, least);
    if (piece->count) tt_do_slots(step, *piece);
    return true;
}

/* tt_walk_next. A function of its own: a walk is long, and would take all registers. */
static __device__ __noinline__ bool tt_next(struct tt_walk *walk, struct tt_piece *piece)
{
    return tt_walk_next(walk, piece);
}

/* The pieces of a step. */
struct tt_step_walk {
    struct tt_walk locals, dsts;
};

static __device__ struct tt_step_walk tt_step_begin(const struct tt_program_step *step)
{
    const struct tt_binding *binding = block.binding;
    const struct tt_program_span *local = &step->local, *dst = &step->dst;
    const bool whole = block.call.protocol == TT_PROTOCOL_SLOTS &&
                       (!local->number || tt_span_is_whole(binding, local)) &&
                       (!dst->number || tt_span_is_whole(binding, dst));
    return {tt_walk_begin(block.program, binding, local, (int)block.part, block.round, whole),
            tt_walk_begin(block.program, binding, dst, (int)block.part, block.round, whole)};
}

/* The next piece, but for what is before it; false: there is none, and it is empty. */
static __device__ bool tt_step_next(struct tt_step_walk *walk, struct tt_step_piece *piece)
{
    struct tt_piece from = {0, 0}, to = {0, 0};
    const bool has_from = tt_next(&walk->locals, &from), has_to = tt_next(&walk->dsts, &to);
    piece->from = has_from ? tt_piece_at(walk->locals.span, &from) : NULL;
    piece->to = has_to ? tt_piece_at(walk->dsts.span, &to) : NULL;
    piece->count = has_to ? to.count : from.count;
    return has_from || has_to;
}

/* All threads: a step whose spans are several pieces. With lines a piece is a block: pieces must be
 * the same at both ends of a link, as each begins with a line of its own. */
static __device__ __noinline__ bool tt_do_pieces(const struct tt_program_step *step,
                                                 const char *reference)
{
    struct tt_step_walk walk = tt_step_begin(step);
    struct tt_step_piece piece = {NULL, NULL, 0, 0};
    bool go = true, more;
    do {
        more = tt_step_next(&walk, &piece);
        if (!more && piece.before) return go;
        if (go) go = tt_do_piece(step, &piece, !more, reference);
        piece.before += tt_piece_length(piece.count);
        /* The pass is used again. */
        if (block.call.protocol == TT_PROTOCOL_SLOTS) __syncthreads();
        if (threadIdx.x == 0) block.length = piece.before;
    } while (more);
    return go;
}

/* All threads: the present step. */
static __device__ __noinline__ bool tt_do_step(const struct tt_program_step *step,
                                               const struct tt_resolved *known)
{
    const char *reference = known->reference;
    if (!tt_prepare(step, reference)) return false;
    bool go;
    if (known->single) {
        const struct tt_step_piece piece = {known->from, known->to, known->count, 0};
        if (threadIdx.x == 0) block.length = known->count * block.call.fold.element;
        go = tt_do_piece(step, &piece, step->nrecv + step->nsend ? 1 : 0, reference);
    } else {
        go = tt_do_pieces(step, reference);
    }
    if (!__syncthreads_and(go)) return false;
    tt_finish_step(step, reference);
    return true;
}

#endif
