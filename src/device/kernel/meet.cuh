/* A MEET step of a program, by all threads of a block: every rank puts its blocks in, and takes
 * what it needs of those of all ranks, in rank order.
 *
 * On the host ranks meet in memory that all of them share. Here each rank sends a message to each
 * other rank, over the links of the channel, which carry nothing else (device/tables.c). Lines: a
 * message is what the sender puts in, so a rank reads only its own memory. Slots: that stands in
 * the sender's place, and a rank reads there what it needs; the messages only say that it is there.
 * Either way nobody ends a meeting before all have begun it. */
#ifndef TT_DEVICE_KERNEL_MEET_CUH
#define TT_DEVICE_KERNEL_MEET_CUH

#include "device/kernel/step.cuh"

/* The outgoing end with this rank itself counts the meetings. */
static __device__ struct tt_device_end *tt_meet_end(uint32_t rank, uint32_t outgoing)
{
    return tt_end(2 * rank + outgoing);
}

/* ---- Where blocks lie ----------------------------------------------------------------------- */

/* Blocks [first, first + number) of the meeting, by their places. */
static __device__ struct tt_walk tt_meet_walk(struct tt_program_span *span, int32_t first,
                                              int32_t number)
{
    span->first = first;
    span->number = span->run = number;
    return tt_walk_begin(block.program, block.binding, span, (int)block.part, block.round, false);
}

/* Bytes, or lines, before block `at` in what the rank has put in. */
static __device__ size_t tt_meet_before(const struct tt_program_step *step, uint32_t rank,
                                        int32_t at)
{
    const int32_t first = tt_program_puts(block.program)[step->recv + rank].first;
    struct tt_program_span span = step->dst.number ? step->dst : step->local;
    struct tt_walk walk = tt_meet_walk(&span, first, at - first);
    struct tt_piece piece;
    size_t before = 0;
    while (tt_next(&walk, &piece)) before += tt_piece_length(piece.count);
    return before;
}

static __device__ bool tt_meet_has(const struct tt_program_step *step, uint32_t rank, int32_t at)
{
    const struct tt_program_blocks *puts = tt_program_puts(block.program) + step->recv + rank;
    return at >= puts->first && at < puts->first + puts->number;
}

/* Who has put in the block that is copied to place `at`. A block is usually its own rank's: look
 * there first. */
static __device__ uint32_t tt_meet_owner(const struct tt_program_step *step, int32_t at)
{
    const uint32_t nranks = (uint32_t)block.program->nranks;
    if (step->op == TT_TRANSPOSE) return (uint32_t)at;
    uint32_t rank = (uint32_t)at % nranks;
    for (uint32_t i = 0; i < nranks && !tt_meet_has(step, rank, at); i++)
        rank = rank + 1 == nranks ? 0 : rank + 1;
    return rank;
}

/* ---- Messages ------------------------------------------------------------------------------- */

static __device__ char *tt_meet_place(const struct tt_device_end *end, uint32_t count)
{
    return end->places + (size_t)(count % block.call.links.nslots) * block.call.links.slot_bytes;
}

/* One thread: waits until a message to the rank has room, and finds where messages lie. */
static __device__ bool tt_meet_prepare(uint32_t rank)
{
    struct tt_device_end *out = tt_meet_end(rank, 1), *in = tt_meet_end(rank, 0);
    struct tt_block_message *from = &block.in[rank], *to = &block.out[rank];
    if (rank == (uint32_t)block.program->rank) {
        from->at = to->at = tt_meet_place(out, out->count);
        return true;
    }
    struct tt_watch watch = tt_watch_begin();
    if (!tt_wait_for_release(out, &watch, block.call.links.nslots - 1))
        return tt_fail_wait((int32_t)rank);
    from->peer = (int32_t)rank;
    from->head = tt_device_head(in->count + 1, block.call.signature);
    from->at = tt_lines_of(in);
    to->head = tt_device_head(out->count + 1, block.call.signature);
    to->at = tt_lines_of(out);
    to->system = out->system;
    return true;
}

/* SLOTS, one thread: writes the note of the message to the rank, and counts it. tt_tell publishes
 * it.
 */
static __device__ void tt_meet_send(uint32_t rank)
{
    struct tt_device_end *end = tt_meet_end(rank, 1);
    struct tt_device_note *note = &end->notes[end->count % block.call.links.nslots];
    note->reference = 0;
    note->head = block.out[rank].head;
    end->due = 1;
    end->count++;
}

/* SLOTS, one thread: waits until the rank's place is written. */
static __device__ bool tt_meet_await(uint32_t rank)
{
    const uint32_t own = (uint32_t)block.program->rank, nslots = block.call.links.nslots;
    const struct tt_device_end *end = tt_meet_end(rank, 0);
    const uint64_t mine = block.in[rank].head;
    struct tt_watch watch = tt_watch_begin();
    uint64_t head;
    if (!tt_wait_for_message(end, nslots, &watch, &head)) return tt_fail_wait((int32_t)rank);
    if ((uint32_t)head != (uint32_t)mine) head = end->notes[end->count % nslots].head;
    if (head != mine) {
        tt_block_fail(TT_DEVICE_MISMATCH, (int32_t)rank);
        return false;
    }
    block.in[rank].at = tt_meet_place(end, tt_meet_end(own, 1)->count);
    return true;
}

/* One thread: the message from the rank is read; LINES: the one to it is sent. */
static __device__ void tt_meet_count(uint32_t rank)
{
    struct tt_device_end *out = tt_meet_end(rank, 1);
    const bool self = rank == (uint32_t)block.program->rank;
    const bool lines = block.call.protocol == TT_PROTOCOL_LINES;
    if (!self && lines && tt_device_renews(out->count, block.call.links.nslots)) out->due = 1;
    if (self || lines) out->count++;
    if (!self) tt_count_read(tt_meet_end(rank, 0), &block.call.links);
}

/* ---- Putting in ----------------------------------------------------------------------------- */

/* One thread: the word of a line that this rank puts in. */
static __device__ uint64_t tt_meet_own_word(const struct tt_program_step *step, const char *from,
                                            uint32_t n)
{
    const uint64_t word = tt_load_word(from, n);
    if (!tt_is_raw(step)) return word;
    return tt_fold_line(&block.call.fold, &word, 1, 0, false);
}

/* Bytes of the i-th line of a piece of nbytes. */
static __device__ uint32_t tt_meet_line_bytes(size_t nbytes, size_t i)
{
    const size_t at = i * TT_LINE_DATA, left = at < nbytes ? nbytes - at : 0;
    return left < TT_LINE_DATA ? (uint32_t)left : TT_LINE_DATA;
}

/* LINES, all threads: a piece, from line `before` of the messages on; at least `least` lines. */
static __device__ void tt_meet_put_lines(const struct tt_program_step *step, const char *from,
                                         size_t nbytes, size_t before, size_t least)
{
    const uint32_t own = (uint32_t)block.program->rank, nranks = (uint32_t)block.program->nranks;
    size_t nlines = (nbytes + TT_LINE_DATA - 1) / TT_LINE_DATA;
    if (nlines < least) nlines = least;
    for (size_t i = threadIdx.x; i < nlines; i += blockDim.x) {
        const uint32_t n = tt_meet_line_bytes(nbytes, i);
        const uint64_t word = n ? tt_meet_own_word(step, from + i * TT_LINE_DATA, n) : 0;
        for (uint32_t rank = 0; rank < nranks; rank++)
            if (rank != own)
                tt_store_line(block.out[rank].at + (before + i) * TT_LINE_BYTES, word,
                              block.out[rank].head, block.out[rank].system);
    }
}

/* SLOTS, all threads: a piece to the own place. */
static __device__ void tt_meet_put_place(const struct tt_program_step *step, const char *from,
                                         size_t count, size_t before)
{
    struct tt_pass *pass = &block.pass;
    __syncthreads(); /* the pass is used again */
    if (threadIdx.x == 0) {
        pass->sources[0] = from;
        pass->targets[0] = block.out[block.program->rank].at + before;
        pass->nsources = pass->ntargets = 1;
        pass->raw[0] = tt_is_raw(step);
        pass->changes = {pass->raw[0], false};
        pass->count = count;
    }
    __syncthreads();
    tt_fold_pass(&block.call.fold, pass);
}

/* All threads: what this rank puts in. */
static __device__ bool tt_meet_put(const struct tt_program_step *step)
{
    const bool lines = block.call.protocol == TT_PROTOCOL_LINES;
    const size_t room =
        lines ? block.call.links.line_bytes / TT_LINE_BYTES : block.call.links.slot_bytes;
    struct tt_walk walk = tt_walk_begin(block.program, block.binding, &step->local, (int)block.part,
                                        block.round, false);
    struct tt_piece piece;
    size_t before = 0;
    while (tt_next(&walk, &piece)) {
        const size_t length = tt_piece_length(piece.count);
        const char *from = tt_piece_at(&step->local, &piece);
        if (before + length > room) { /* the binding says that it fits */
            tt_block_fail(TT_DEVICE_IMPOSSIBLE, block.program->rank);
            return false;
        }
        if (lines)
            tt_meet_put_lines(step, from, piece.count * block.call.fold.element, before, 0);
        else if (length)
            tt_meet_put_place(step, from, piece.count, before);
        before += length;
    }
    if (lines && !before) tt_meet_put_lines(step, NULL, 0, 0, 1);
    return true;
}

/* ---- Taking --------------------------------------------------------------------------------- */

/* A block that is taken. */
struct tt_meet_piece {
    int32_t at;   /* its place; TRANSPOSE: that of its rank */
    uint32_t one; /* copied: from this rank */
    bool fold;    /* of all ranks */
    char *to;
    const char *own; /* LINES: what this rank has put in, where that is taken */
    size_t count;
};

/* All threads: lists where the block lies in the messages. */
static __device__ void tt_meet_list(const struct tt_program_step *step,
                                    const struct tt_meet_piece *piece)
{
    struct tt_pass *pass = &block.pass;
    const int32_t at = step->op == TT_TRANSPOSE ? block.program->rank : piece->at;
    const uint32_t n = piece->fold ? (uint32_t)block.program->nranks : 1;
    const size_t unit = block.call.protocol == TT_PROTOCOL_LINES ? TT_LINE_BYTES : 1;
    __syncthreads(); /* the pass is used again */
    for (uint32_t i = threadIdx.x; i < n; i += blockDim.x) {
        const uint32_t rank = piece->fold ? i : piece->one;
        pass->sources[i] = block.in[rank].at + tt_meet_before(step, rank, at) * unit;
        if (i) continue;
        pass->targets[0] = piece->to;
        pass->nsources = n;
        pass->ntargets = 1;
        pass->changes = {false, piece->fold && step->finish};
        pass->count = piece->count;
    }
    __syncthreads();
}

/* LINES, all threads: a listed block. */
static __device__ bool tt_meet_take_lines(const struct tt_program_step *step,
                                          const struct tt_meet_piece *piece)
{
    const uint32_t rank = (uint32_t)block.program->rank;
    const uint32_t own = piece->fold ? rank : rank == piece->one ? 0 : UINT32_MAX;
    const uint32_t nwords = block.pass.nsources;
    const size_t nbytes = piece->count * block.call.fold.element;
    for (size_t i = threadIdx.x; i * TT_LINE_DATA < nbytes; i += blockDim.x) {
        const uint32_t n = tt_meet_line_bytes(nbytes, i);
        uint64_t words[TT_DEVICE_MOST_PEERS + 1];
        if (own != UINT32_MAX)
            words[own] = tt_meet_own_word(step, piece->own + i * TT_LINE_DATA, n);
        if (!tt_take_lines({piece->one, nwords, own, true, i * TT_LINE_BYTES}, words)) return false;
        const uint64_t result =
            tt_fold_line(&block.call.fold, words, nwords, -1, block.pass.changes.finish);
        tt_store_word(piece->to + i * TT_LINE_DATA, result, n);
    }
    return true;
}

/* What of its own input, where it has put that in, a rank takes with the block. */
static __device__ const char *tt_meet_own(const struct tt_program_step *step,
                                          const struct tt_meet_piece *piece)
{
    const int32_t at = step->op == TT_TRANSPOSE ? block.program->rank : piece->at;
    struct tt_program_span span = step->local;
    struct tt_piece own;
    if (!piece->fold && piece->one != (uint32_t)block.program->rank) return NULL;
    struct tt_walk walk = tt_meet_walk(&span, at, 1);
    return tt_next(&walk, &own) ? tt_piece_at(&step->local, &own) : NULL;
}

/* All threads: what this rank takes. */
static __device__ bool tt_meet_take(const struct tt_program_step *step)
{
    const bool lines = block.call.protocol == TT_PROTOCOL_LINES;
    struct tt_walk walk = tt_walk_begin(block.program, block.binding, &step->dst, (int)block.part,
                                        block.round, false);
    struct tt_piece found;
    bool go = true;
    for (int32_t i = 0; tt_next(&walk, &found); i++) {
        if (!found.count) continue;
        struct tt_meet_piece piece;
        piece.at = step->dst.first + i;
        piece.fold = step->op == TT_FOLD;
        piece.one = piece.fold ? 0 : tt_meet_owner(step, piece.at);
        piece.to = tt_piece_at(&step->dst, &found);
        piece.own = lines ? tt_meet_own(step, &piece) : NULL;
        piece.count = found.count;
        tt_meet_list(step, &piece);
        if (lines)
            go = go && tt_meet_take_lines(step, &piece);
        else
            tt_fold_pass(&block.call.fold, &block.pass);
    }
    return go;
}

/* LINES, one thread: waits for the first line of the rank's message, which has one at least. So
 * what is released has been sent, also where nothing of it is taken. */
static __device__ bool tt_meet_await_lines(uint32_t rank)
{
    uint64_t word;
    return tt_await_line(&block.in[rank], block.in[rank].at, &word);
}

/* ---- A step --------------------------------------------------------------------------------- */

/* All threads: the present step. */
static __device__ __noinline__ bool tt_do_meeting(const struct tt_program_step *step)
{
    const uint32_t own = (uint32_t)block.program->rank, nranks = (uint32_t)block.program->nranks;
    const bool lines = block.call.protocol == TT_PROTOCOL_LINES;
    bool go = true;
    for (uint32_t rank = threadIdx.x; rank < nranks; rank += blockDim.x)
        go = go && tt_meet_prepare(rank);
    if (!__syncthreads_and(go)) return false;
    if (!tt_meet_put(step)) return false; /* for all threads alike */
    for (uint32_t rank = threadIdx.x; !lines && rank < nranks; rank += blockDim.x)
        if (rank != own) tt_meet_send(rank);
    if (!lines) {
        __syncthreads();
        tt_tell(tt_most_read());
    }
    for (uint32_t rank = threadIdx.x; rank < nranks; rank += blockDim.x)
        if (rank != own) go = go && (lines ? tt_meet_await_lines(rank) : tt_meet_await(rank));
    if (!lines && !__syncthreads_and(go)) return false;
    go = tt_meet_take(step) && go;
    if (!__syncthreads_and(go)) return false;
    for (uint32_t rank = threadIdx.x; rank < nranks; rank += blockDim.x) tt_meet_count(rank);
    if (threadIdx.x == blockDim.x - 1) tt_advance();
    __syncthreads();
    tt_tell(tt_most_read());
    return true;
}

#endif
