/* One step of a program, by all threads of a block.
 *
 * The first threads wait for the messages and for free slots, all threads compute, the first
 * threads publish what was sent and release what was taken. With lines every thread waits for the
 * lines that it reads. A function that returns bool returns whether to go on, the same to all
 * threads of the block where it ends in a barrier. */
#ifndef TT_DEVICE_KERNEL_STEP_CUH
#define TT_DEVICE_KERNEL_STEP_CUH

#include "device/kernel/block.cuh"

static __device__ struct tt_watch tt_watch_begin(const struct tt_block *block)
{
    return {&block->call, 0};
}

/* link: of the program's table. */
static __device__ void tt_fail(const struct tt_block *block, uint32_t failure, uint32_t link,
                               uint32_t step)
{
    tt_report_failure(&block->call, failure, tt_program_links(block->program)[link].peer,
                      block->part, step);
}

/* After a wait has ended without what it waited for. */
static __device__ void tt_fail_wait(const struct tt_block *block, uint32_t link, uint32_t step)
{
    if (tt_load_abort(block->call.report)) tt_fail(block, TT_DEVICE_ABORTED, link, step);
}

/* ---- Resolving ------------------------------------------------------------------------------ */

static __device__ char *tt_piece_at(const struct tt_block *block,
                                    const struct tt_program_span *span,
                                    const struct tt_piece *piece)
{
    return block->call.origin[span->buffer] + piece->offset;
}

/* Whether the local span is a raw source: input that the operation changes before it is folded. */
static __device__ bool tt_is_raw(const struct tt_block *block, const struct tt_program_step *step)
{
    return block->fold.op == TT_PREMUL_SUM && step->local.number && step->local.buffer == TT_INPUT;
}

/* The only piece of a span; false: it has several, or none. */
static __device__ bool tt_one_piece(const struct tt_block *block,
                                    const struct tt_program_span *span, struct tt_piece *piece)
{
    const bool whole =
        block->call.protocol == TT_PROTOCOL_SLOTS && tt_span_is_whole(block->binding, span);
    struct tt_walk walk =
        tt_walk_begin(block->program, block->binding, span, (int)block->part, block->round, whole);
    return tt_walk_next(&walk, piece) && walk.index == span->number;
}

/* Memory that holds exactly what the step sends and may be read there until the call ends. */
static __device__ const char *tt_find_reference(const struct tt_block *block,
                                                const struct tt_program_step *step)
{
    const struct tt_program_span *span = step->dst.number ? &step->dst : &step->local;
    struct tt_piece piece;
    if (block->call.protocol != TT_PROTOCOL_SLOTS || !block->program->direct_safe) return NULL;
    if (!step->nsend || !span->number || span->buffer == TT_SCRATCH) return NULL;
    if (span == &step->local && (step->nrecv || step->finish || tt_is_raw(block, step)))
        return NULL;
    if (!tt_one_piece(block, span, &piece) || !piece.count ||
        piece.count * block->fold.element < block->call.reference_bytes)
        return NULL;
    return tt_piece_at(block, span, &piece);
}

static __device__ void tt_resolve_step(const struct tt_block *block,
                                       const struct tt_program_step *step, struct tt_resolved *out)
{
    struct tt_piece from = {0, 0}, to = {0, 0};
    const bool has_from = step->local.number, has_to = step->dst.number;
    out->single = (!has_from || tt_one_piece(block, &step->local, &from)) &&
                  (!has_to || tt_one_piece(block, &step->dst, &to));
    out->from = has_from ? tt_piece_at(block, &step->local, &from) : NULL;
    out->to = has_to ? tt_piece_at(block, &step->dst, &to) : NULL;
    out->count = has_to ? to.count : from.count;
    out->reference = tt_find_reference(block, step);
}

/* Thread i finds the pieces of step first + i. */
static __device__ void tt_resolve(struct tt_block *block, const struct tt_program_step *steps,
                                  uint32_t first, uint32_t nsteps)
{
    for (uint32_t i = threadIdx.x; i < TT_MOST_RESOLVED && first + i < nsteps; i += blockDim.x)
        tt_resolve_step(block, &steps[first + i], &block->resolved[i]);
    __syncthreads();
}

/* ---- Waiting -------------------------------------------------------------------------------- */

/* The message is there: where it lies. NULL: there is no hope. */
static __device__ const char *tt_find_message(const struct tt_block *block,
                                              struct tt_device_end *end, uint32_t link,
                                              uint32_t index, uint64_t head)
{
    const uint64_t mine = tt_device_head(end->count + 1, block->call.signature);
    const uint32_t slot = end->count % block->call.links.nslots;
    if ((uint32_t)head != (uint32_t)mine) head = end->notes[slot].head;
    if (head != mine) {
        tt_fail(block, TT_DEVICE_MISMATCH, link, index);
        return NULL;
    }
    const char *data = end->slots + (size_t)slot * block->call.links.slot_bytes;
    bool withdrawn;
    if (!end->reaches) return data;
    const uint64_t reference = tt_take_reference(&end->notes[slot], end->system, &withdrawn);
    struct tt_watch watch = tt_watch_begin(block);
    while (withdrawn)
        if (!tt_watch(&watch)) {
            tt_fail_wait(block, link, index);
            return NULL;
        }
    return reference ? (const char *)reference : data;
}

/* One thread: message i of the step. */
static __device__ bool tt_prepare_message(struct tt_block *block,
                                          const struct tt_program_step *step, uint32_t i,
                                          uint32_t index)
{
    struct tt_device_end *end = tt_link_end(block, step->recv + i);
    struct tt_watch watch = tt_watch_begin(block);
    uint64_t head;
    block->heads_in[i] = tt_device_head(end->count + 1, block->call.signature);
    if (block->call.protocol == TT_PROTOCOL_LINES) {
        block->messages[i] = end->lines + (size_t)(end->count % block->call.links.nslots) *
                                              block->call.links.line_bytes;
        return true;
    }
    if (!tt_wait_for_message(end, block->call.links.nslots, &watch, &head)) {
        tt_fail_wait(block, step->recv + i, index);
        return false;
    }
    block->messages[i] = tt_find_message(block, end, step->recv + i, index, head);
    return block->messages[i];
}

/* One thread: a slot for message i that the step sends. */
static __device__ bool tt_prepare_slot(struct tt_block *block, const struct tt_program_step *step,
                                       uint32_t i, uint32_t index, const char *reference)
{
    struct tt_device_end *end = tt_link_end(block, step->send + i);
    const struct tt_device_links *links = &block->call.links;
    struct tt_watch watch = tt_watch_begin(block);
    if (!tt_wait_for_release(end, &watch, links->nslots - 1)) {
        tt_fail_wait(block, step->send + i, index);
        return false;
    }
    const size_t slot = end->count % links->nslots;
    block->heads_out[i] = tt_device_head(end->count + 1, block->call.signature);
    block->slots[i] = block->call.protocol == TT_PROTOCOL_LINES
                          ? end->lines + slot * links->line_bytes
                      : reference && end->reaches ? NULL
                                                  : end->slots + slot * links->slot_bytes;
    return true;
}

/* All threads: waits for what the step needs. */
static __device__ bool tt_prepare(struct tt_block *block, const struct tt_program_step *step,
                                  uint32_t index, const char *reference)
{
    bool go = true;
    for (uint32_t i = threadIdx.x; i < step->nrecv + step->nsend; i += blockDim.x)
        go = go &&
             (i < step->nrecv ? tt_prepare_message(block, step, i, index)
                              : tt_prepare_slot(block, step, i - step->nrecv, index, reference));
    return __syncthreads_and(go);
}

/* All threads, which have passed a barrier since the step was computed. */
static __device__ void tt_finish_step(struct tt_block *block, const struct tt_program_step *step,
                                      const char *reference)
{
    const bool lines = block->call.protocol == TT_PROTOCOL_LINES;
    /* A release costs as much as a step, so every second message makes one. A step takes messages
     * while it waits for slots: two messages must always find room. */
    const uint32_t batch = block->call.links.nslots > 2 ? 2 : 1;
    for (uint32_t i = threadIdx.x; i < step->nrecv + step->nsend; i += blockDim.x) {
        if (i < step->nrecv) {
            struct tt_device_end *end = tt_link_end(block, step->recv + i);
            tt_count_read(end, &block->call.links);
            if (end->count % batch) continue;
            end->known_tail = end->count;
            tt_release(end, end->count);
            continue;
        }
        const uint32_t s = i - step->nrecv;
        struct tt_device_end *end = tt_link_end(block, step->send + s);
        if (!lines) {
            const bool refers = reference && end->reaches;
            struct tt_device_note *note = &end->notes[end->count % block->call.links.nslots];
            note->reference = refers ? (uint64_t)reference : 0;
            note->head = block->heads_out[s];
            if (refers) end->refers = 1; /* the call ends when the receiver has read */
        }
        if (!lines || tt_device_renews(end->count, block->call.links.nslots))
            tt_publish(end, block->heads_out[s]);
        end->count++;
    }
    __syncthreads();
}

/* ---- Slots ---------------------------------------------------------------------------------- */

/* A piece of a step. */
struct tt_step_piece {
    char *from, *to; /* NULL: no local span; no dst */
    size_t count;
    size_t before; /* bytes, or lines, of the messages before this piece */
};

/* Of the messages before i that the step sends, those with a slot to fill. */
static __device__ uint32_t tt_slots_before(const struct tt_block *block, uint32_t i)
{
    uint32_t n = 0;
    for (uint32_t j = 0; j < i; j++) n += block->slots[j] != NULL;
    return n;
}

/* All threads: lists where the piece's elements come from, in the order of the fold, and go. */
static __device__ void tt_list_pass(struct tt_block *block, const struct tt_program_step *step,
                                    const struct tt_step_piece *piece)
{
    struct tt_pass *pass = &block->pass;
    const uint32_t own =
        piece->from ? (uint32_t)(step->own_at < 0 ? 0 : step->own_at) : step->nrecv;
    const bool raw = piece->from && tt_is_raw(block, step);
    /* A copy onto itself writes nothing: peers may still read that memory. */
    const bool changes = step->nrecv || raw || step->finish;
    const uint32_t ndsts = piece->to && (piece->to != piece->from || changes);
    for (uint32_t i = threadIdx.x; i <= step->nrecv + step->nsend; i += blockDim.x) {
        if (i < step->nrecv) {
            const uint32_t s = i + (piece->from && i >= own);
            pass->sources[s] = block->messages[i] + piece->before;
            pass->raw[s] = false;
        } else if (i < step->nrecv + step->nsend) {
            const uint32_t s = i - step->nrecv;
            if (block->slots[s])
                pass->targets[ndsts + tt_slots_before(block, s)] = block->slots[s] + piece->before;
        } else {
            if (piece->from) pass->sources[own] = piece->from;
            if (piece->from) pass->raw[own] = raw;
            if (ndsts) pass->targets[0] = piece->to;
            pass->nsources = step->nrecv + (piece->from ? 1 : 0);
            pass->ntargets = ndsts + tt_slots_before(block, step->nsend);
            pass->changes = {raw, step->finish != 0};
            pass->count = piece->count;
        }
    }
    __syncthreads();
}

/* ---- Lines ---------------------------------------------------------------------------------- */

/* The word's first n bytes, from memory without alignment. */
static __device__ uint64_t tt_load_word(const char *from, uint32_t n)
{
    uint64_t word = 0;
    if (n == 8 && (uintptr_t)from % 8 == 0) return *(const uint64_t *)from;
    if (n == 8 && (uintptr_t)from % 4 == 0)
        return (uint64_t)((const uint32_t *)from)[1] << 32 | *(const uint32_t *)from;
    for (uint32_t i = 0; i < n; i++) word |= (uint64_t)(uint8_t)from[i] << 8 * i;
    return word;
}

static __device__ void tt_store_word(char *to, uint64_t word, uint32_t n)
{
    if (n == 8 && (uintptr_t)to % 8 == 0) {
        *(uint64_t *)to = word;
    } else if (n == 8 && (uintptr_t)to % 4 == 0) {
        ((uint32_t *)to)[0] = (uint32_t)word;
        ((uint32_t *)to)[1] = (uint32_t)(word >> 32);
    } else {
        for (uint32_t i = 0; i < n; i++) to[i] = (char)(word >> 8 * i);
    }
}

/* One thread: line `line` of message i of the step. False: there is no hope. */
static __device__ bool tt_take_line(const struct tt_block *block,
                                    const struct tt_program_step *step, uint32_t i, size_t line,
                                    uint64_t *word)
{
    const bool system = tt_link_end(block, step->recv + i)->system;
    struct tt_watch watch = tt_watch_begin(block);
    uint64_t flag = block->heads_in[i];
    if (tt_wait_for_line(block->messages[i] + line * TT_LINE_BYTES, system, &watch, word, &flag))
        return true;
    const uint32_t index = block->step;
    if (flag != block->heads_in[i])
        tt_fail(block, TT_DEVICE_MISMATCH, step->recv + i, index);
    else
        tt_fail_wait(block, step->recv + i, index);
    return false;
}

/* One thread: one line of the piece, of which it holds n bytes of elements from `at` on. */
static __device__ bool tt_do_line(const struct tt_block *block, const struct tt_program_step *step,
                                  const struct tt_step_piece *piece, size_t at, uint32_t n)
{
    const size_t line = piece->before + at / TT_LINE_DATA;
    const int32_t own = piece->from ? (step->own_at < 0 ? 0 : step->own_at) : -1;
    const int32_t raw = own >= 0 && tt_is_raw(block, step) ? own : -1;
    uint64_t words[TT_DEVICE_MOST_PEERS + 1];
    uint32_t nwords = 0;
    for (int32_t s = 0, i = 0; i < (int32_t)step->nrecv || s == own; s++) {
        const bool is_own = s == own;
        uint64_t word;
        if (is_own)
            word = tt_load_word(piece->from + at, n);
        else if (!tt_take_line(block, step, (uint32_t)i++, line, &word))
            return false;
        words[nwords++] = word;
    }
    const uint64_t result =
        nwords ? tt_fold_line(&block->fold, words, nwords, raw, step->finish != 0) : 0;
    if (piece->to) tt_store_word(piece->to + at, result, n);
    for (uint32_t i = 0; i < step->nsend; i++)
        tt_store_line(block->slots[i] + line * TT_LINE_BYTES, result, block->heads_out[i],
                      tt_link_end(block, step->send + i)->system);
    return true;
}

/* All threads: the piece's lines; at least `least`. */
static __device__ bool tt_do_lines(const struct tt_block *block, const struct tt_program_step *step,
                                   const struct tt_step_piece *piece, size_t least)
{
    const size_t nbytes = piece->count * block->fold.element;
    size_t nlines = (nbytes + TT_LINE_DATA - 1) / TT_LINE_DATA;
    if (nlines < least) nlines = least;
    for (size_t i = threadIdx.x; i < nlines; i += blockDim.x) {
        const size_t at = i * TT_LINE_DATA, left = at < nbytes ? nbytes - at : 0;
        if (!tt_do_line(block, step, piece, at,
                        left < TT_LINE_DATA ? (uint32_t)left : TT_LINE_DATA))
            return false;
    }
    return true;
}

/* ---- A step --------------------------------------------------------------------------------- */

/* Bytes of a message that the piece takes, or lines. */
static __device__ size_t tt_piece_length(const struct tt_block *block, size_t count)
{
    const size_t nbytes = count * block->fold.element;
    return block->call.protocol == TT_PROTOCOL_SLOTS ? nbytes
                                                     : (nbytes + TT_LINE_DATA - 1) / TT_LINE_DATA;
}

/* Whether the messages up to the end of the piece fit. The binding says that they do. */
static __device__ bool tt_piece_fits(const struct tt_block *block,
                                     const struct tt_program_step *step,
                                     const struct tt_step_piece *piece, const char *reference)
{
    const size_t end = piece->before + tt_piece_length(block, piece->count);
    const size_t room = block->call.protocol == TT_PROTOCOL_SLOTS
                            ? block->call.links.slot_bytes
                            : block->call.links.line_bytes / TT_LINE_BYTES;
    if (end <= room || reference || (!step->nrecv && !step->nsend)) return true;
    tt_report_failure(&block->call, TT_DEVICE_IMPOSSIBLE, -1, block->part, block->step);
    return false;
}

/* All threads: one piece; least: lines that are taken and sent at least. The result of a thread. */
static __device__ bool tt_do_piece(struct tt_block *block, const struct tt_program_step *step,
                                   const struct tt_step_piece *piece, size_t least,
                                   const char *reference)
{
    if (!tt_piece_fits(block, step, piece, reference)) return false;
    if (block->call.protocol == TT_PROTOCOL_LINES) return tt_do_lines(block, step, piece, least);
    if (!piece->count) return true;
    tt_list_pass(block, step, piece);
    if (block->pass.nsources && block->pass.ntargets) tt_fold_pass(&block->fold, &block->pass);
    return true;
}

/* All threads: a step whose spans are several pieces. With lines a piece is a block: pieces must be
 * the same at both ends of a link, as each begins with a line of its own. */
static __device__ bool tt_do_pieces(struct tt_block *block, const struct tt_program_step *step,
                                    const char *reference)
{
    const struct tt_binding *binding = block->binding;
    const struct tt_program_span *local = &step->local, *dst = &step->dst;
    const bool whole = block->call.protocol == TT_PROTOCOL_SLOTS &&
                       (!local->number || tt_span_is_whole(binding, local)) &&
                       (!dst->number || tt_span_is_whole(binding, dst));
    struct tt_walk locals =
        tt_walk_begin(block->program, binding, local, (int)block->part, block->round, whole);
    struct tt_walk dsts =
        tt_walk_begin(block->program, binding, dst, (int)block->part, block->round, whole);
    bool go = true;
    for (size_t before = 0;;) {
        struct tt_piece from = {0, 0}, to = {0, 0};
        const bool has_from = tt_walk_next(&locals, &from), has_to = tt_walk_next(&dsts, &to);
        const bool ends = !has_from && !has_to;
        if (ends && before) return go;
        const struct tt_step_piece piece = {has_from ? tt_piece_at(block, local, &from) : NULL,
                                            has_to ? tt_piece_at(block, dst, &to) : NULL,
                                            has_to ? to.count : from.count, before};
        if (go) go = tt_do_piece(block, step, &piece, ends ? 1 : 0, reference);
        if (ends) return go;
        before += tt_piece_length(block, piece.count);
        if (block->call.protocol == TT_PROTOCOL_SLOTS) __syncthreads(); /* the pass is used again */
    }
}

/* All threads: step number block->step. */
static __device__ bool tt_do_step(struct tt_block *block, const struct tt_program_step *step,
                                  const struct tt_resolved *known)
{
    const char *reference = known->reference;
    if (!tt_prepare(block, step, block->step, reference)) return false;
    bool go;
    if (known->single) {
        const struct tt_step_piece piece = {known->from, known->to, known->count, 0};
        go = tt_do_piece(block, step, &piece, step->nrecv + step->nsend ? 1 : 0, reference);
    } else {
        go = tt_do_pieces(block, step, reference);
    }
    if (!__syncthreads_and(go)) return false;
    tt_finish_step(block, step, reference);
    return true;
}

#endif
