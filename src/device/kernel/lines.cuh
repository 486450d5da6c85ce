/* Messages as lines: each thread waits for the lines that it reads, folds them and stores lines. */
#ifndef TT_DEVICE_KERNEL_LINES_CUH
#define TT_DEVICE_KERNEL_LINES_CUH

#include "device/kernel/block.cuh"

/* A piece of a step. */
struct tt_step_piece {
    char *from, *to; /* NULL: no local span; no dst */
    size_t count;
    size_t before; /* bytes, or lines, of the messages before this piece */
};

/* Whether the local span is a raw source: input that the operation changes before it is folded. */
static __device__ bool tt_is_raw(const struct tt_program_step *step)
{
    const struct tt_fold *fold = &block.call.fold;
    const bool integer = fold->type < TT_FLOAT16 || fold->type >= TT_INT16;
    return step->local.number && step->local.buffer == TT_INPUT &&
           (fold->op == TT_PREMUL_SUM || (fold->op == TT_AVG && !integer));
}

/* Of the next message. */
static __device__ char *tt_lines_of(const struct tt_device_end *end)
{
    const struct tt_device_links *links = &block.call.links;
    return end->lines + (size_t)(end->count % links->nslots) * links->line_bytes;
}

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

/* One thread: waits for a line of the message. False: there is no hope. */
static __device__ __noinline__ bool tt_await_line(const struct tt_block_message *message,
                                                  const char *line, uint64_t *word)
{
    struct tt_watch watch = tt_watch_begin();
    uint64_t flag;
    tt_load_line(line, word, &flag);
    if (tt_wait_for_line(line, message->head, &watch, word, &flag)) return true;
    if ((uint32_t)flag != (uint32_t)message->head) return tt_fail_wait(message->peer);
    tt_block_fail(TT_DEVICE_MISMATCH, message->peer);
    return false;
}

/* Lines that tt_take_lines reads, of messages that it loads at once. */
struct tt_lines_taken {
    uint32_t first;  /* message; the lines are in the sources of the pass */
    uint32_t nwords; /* of messages, and one that is the rank's own: */
    uint32_t own;    /* where that is; UINT32_MAX: none */
    bool counts;     /* the own one has a place among messages and sources too */
    size_t at;       /* bytes before the line */
};

/* One thread: a line of each message; of words[0..nwords) all but the own one. Several loads are on
 * their way at once. False: there is no hope. */
static __device__ __noinline__ bool tt_take_lines(struct tt_lines_taken taken, uint64_t *words)
{
    enum { AT_ONCE = 4 };
#pragma unroll 1
    for (uint32_t w = 0; w < taken.nwords; w += AT_ONCE) {
        uint64_t data[AT_ONCE], flags[AT_ONCE];
        uint32_t late = 0;
#pragma unroll
        for (uint32_t k = 0; k < AT_ONCE; k++) {
            const uint32_t s = w + k - (!taken.counts && w + k > taken.own);
            if (w + k < taken.nwords && w + k != taken.own)
                tt_load_line(block.pass.sources[s] + taken.at, &data[k], &flags[k]);
        }
#pragma unroll
        for (uint32_t k = 0; k < AT_ONCE; k++) {
            const uint32_t s = w + k - (!taken.counts && w + k > taken.own);
            if (w + k >= taken.nwords || w + k == taken.own) continue;
            words[w + k] = data[k];
            if (flags[k] != block.in[taken.first + s].head) late |= 1u << k;
        }
#pragma unroll 1
        for (; late; late &= late - 1) {
            const uint32_t at = w + (uint32_t)__ffs((int)late) - 1;
            const uint32_t s = at - (!taken.counts && at > taken.own);
            if (!tt_await_line(&block.in[taken.first + s], block.pass.sources[s] + taken.at,
                               &words[at]))
                return false;
        }
    }
    return true;
}

/* One thread: one line of the piece, of which it holds n bytes of elements from `at` on. */
static __device__ bool tt_do_line(const struct tt_program_step *step,
                                  const struct tt_step_piece *piece, size_t at, uint32_t n)
{
    const size_t line = (piece->before + at / TT_LINE_DATA) * TT_LINE_BYTES;
    const uint32_t own = piece->from ? (uint32_t)(step->own_at < 0 ? 0 : step->own_at) : UINT32_MAX;
    const uint32_t nwords = step->nrecv + (piece->from != NULL);
    const bool raw = piece->from && tt_is_raw(step);
    uint64_t words[TT_DEVICE_MOST_PEERS + 1], result = 0;
    if (piece->from) words[own] = tt_load_word(piece->from + at, n);
    if (step->nrecv && !tt_take_lines({0, nwords, own, false, line}, words)) return false;
    if (nwords)
        result = tt_fold_line(&block.call.fold, words, nwords, raw ? (int32_t)own : -1,
                              step->finish != 0);
    if (piece->to) tt_store_word(piece->to + at, result, n);
    for (uint32_t i = 0; i < step->nsend; i++) {
        const struct tt_block_message *message = &block.out[i];
        tt_store_line(message->at + line, result, message->head, message->system);
    }
    return true;
}

/* All threads: the piece's lines; at least `least`. */
static __device__ __noinline__ bool tt_do_lines(const struct tt_program_step *step,
                                                struct tt_step_piece piece, size_t least)
{
    const size_t nbytes = piece.count * block.call.fold.element;
    size_t nlines = (nbytes + TT_LINE_DATA - 1) / TT_LINE_DATA;
    if (nlines < least) nlines = least;
    for (size_t i = threadIdx.x; i < nlines; i += blockDim.x) {
        const size_t at = i * TT_LINE_DATA, left = at < nbytes ? nbytes - at : 0;
        if (!tt_do_line(step, &piece, at, left < TT_LINE_DATA ? (uint32_t)left : TT_LINE_DATA))
            return false;
    }
    return true;
}

#endif
