/* The program: one rank's steps of a schedule as an executor walks them, on the host or on a GPU.
 *
 * A program is lowered once from a schedule (program/lower.h) and does not depend on the count. It
 * is one block of plain data without pointers: the header below, then its tables, found by byte
 * offsets. A copy of the block is the program. A binding says how the program's blocks become
 * elements for one call: it too is plain data. Both compile as C17, C++17 and CUDA; finding the
 * next piece of a span takes no division.
 *
 * Peers are ranges of the program's table of links. An executor keeps, beside the program, one
 * handle for each entry of that table and each copy of the program (struct tt_binding). */
#ifndef TT_PROGRAM_PROGRAM_H
#define TT_PROGRAM_PROGRAM_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "schedule/cut.h"
#include "schedule/kinds.h"

/* Some blocks of one buffer: the i-th, 0 <= i < number, is at the place
 *   (first + i / run * stride + i % run) mod modulo
 * and has the name order[base + place], or base + place without an order. number 0: no span. */
struct tt_program_span {
    int32_t first, number; /* 0 <= first < modulo */
    int32_t run, stride;   /* 1 <= run <= number; 0 <= stride < modulo */
    int32_t base, modulo;  /* modulo >= 1 */
    int32_t order;         /* where the order begins in the table of orders; -1: none */
    int32_t slot;          /* SCRATCH: by the rule */
    uint8_t buffer;        /* enum tt_buffer */
    uint8_t slot_rule;     /* enum tt_slot_rule */
    uint8_t contiguous;    /* neighbours by name, without wrapping round, not in SCRATCH */
    uint8_t all;           /* contiguous, and all blocks there are */
};

/* LINK: takes `local` and one message of each recv link; the result is their copy, or their
 * reduction in the order of the recv links with `local` before the own_at-th; stores the result in
 * `dst`, if any, and sends it over each send link. MEET: see schedule.h. */
struct tt_program_step {
    struct tt_program_span local, dst;
    uint32_t recv,
        nrecv; /* links recv, recv + 1, ... of the table; MEET: nrecv is 0, and entries
                * recv, recv + 1, ... of the table of puts are those of ranks 0, 1, ... */
    uint32_t send, nsend;
    int32_t own_at;  /* LINK: how many recv links come before `local`; -1: no local span */
    uint8_t kind;    /* enum tt_step_kind */
    uint8_t op;      /* enum tt_step_op */
    uint8_t finish;  /* the result is complete */
    uint8_t meeting; /* MEET: which of the rank's meetings; 0: of all ranks of its host */
};
static_assert(sizeof(struct tt_program_step) <= 128, "a step is two cache lines at most");

/* One entry of the table of links. */
struct tt_program_link {
    int32_t peer;
    uint16_t channel;
    uint16_t outgoing; /* 1: this rank sends */
};

struct tt_program_channel {
    uint32_t first, nsteps;      /* of the table of steps */
    uint32_t first_post, nposts; /* of the table of posts */
};

/* A step that only stores one message in OUTPUT, in memory that is free from the beginning of the
 * round: the sender of the message may write it there. The first such step of each link. */
struct tt_program_post {
    uint32_t step;    /* of the channel */
    uint32_t ahead;   /* messages that come over the step's link before, in the same round */
    uint32_t is_read; /* 1: the rank reads the message in the same round, to send it on */
};

/* Blocks [first, first + number): that a buffer of this rank holds; that a rank puts into a
 * meeting, by their places. */
struct tt_program_blocks {
    int32_t first, number;
};

/* The header. */
struct tt_program {
    uint64_t algorithm; /* id, the same on all ranks */
    uint32_t nbytes;    /* of the header and all tables */
    uint32_t steps_at, channels_at, links_at, posts_at, orders_at,
        puts_at; /* bytes from the header */
    uint32_t nsteps, nlinks, nposts, norders;
    uint32_t
        nputs; /* nranks for each meeting; 0: there is none, or not all ranks are its members */
    int32_t rank, nranks, root;
    int32_t nblocks, nchannels, nscratch;
    int32_t message;     /* most blocks in one message of any rank */
    uint8_t collective;  /* enum tt_collective */
    uint8_t splits;      /* the count is cut into blocks; else each block has `count` elements */
    uint8_t meets;       /* some rank has meetings */
    uint8_t direct_safe; /* a sent INPUT or OUTPUT span stays unchanged until it has been taken */
    struct tt_program_blocks held[2]; /* INPUT, OUTPUT */
};

TT_INLINE const struct tt_program_channel *tt_program_channel(const struct tt_program *program,
                                                              int channel)
{
    return (const struct tt_program_channel *)((const char *)program + program->channels_at) +
           channel;
}

/* All steps, those of channel 0 first. */
TT_INLINE const struct tt_program_step *tt_program_steps(const struct tt_program *program)
{
    return (const struct tt_program_step *)((const char *)program + program->steps_at);
}

TT_INLINE const struct tt_program_step *tt_program_step(const struct tt_program *program,
                                                        int channel, uint32_t index)
{
    return tt_program_steps(program) + tt_program_channel(program, channel)->first + index;
}

TT_INLINE const struct tt_program_link *tt_program_links(const struct tt_program *program)
{
    return (const struct tt_program_link *)((const char *)program + program->links_at);
}

TT_INLINE const struct tt_program_post *tt_program_posts(const struct tt_program *program)
{
    return (const struct tt_program_post *)((const char *)program + program->posts_at);
}

TT_INLINE const struct tt_program_blocks *tt_program_puts(const struct tt_program *program)
{
    return (const struct tt_program_blocks *)((const char *)program + program->puts_at);
}

TT_INLINE const int32_t *tt_program_orders(const struct tt_program *program)
{
    return (const int32_t *)((const char *)program + program->orders_at);
}

/* ---- Binding: blocks become elements -------------------------------------------------------- */

enum {
    /* Results of at least this many bytes do not stay in the caches anyway. */
    TT_NONTEMPORAL_MIN_BYTES = 1 << 20,
    /* From this many on, a message that the receiver does not read in the same round is stored past
     * the caches: a cache line of another rank's buffer costs a core more to get than to send to
     * memory, and the receiver as much to read from one as from the other. */
    TT_NONTEMPORAL_POST_MIN_BYTES = 32 << 10
};

/* One block of a call in which every block has a count of its own. */
struct tt_own_block {
    size_t begin;        /* elements from the first block's beginning, where a buffer holds all */
    struct tt_cut parts; /* the block into parts; its length is the block's */
};

/* How a program's blocks become elements for one count and element size, or, with a table of
 * blocks, for a count for each block. The table lies behind the binding: copy both together.
 *
 * The program runs `copies` times side by side. Each block is cut into copies * nchannels parts,
 * and channel c of copy k works on part k * nchannels + c, on the communicator's channel of the
 * same number: its links, its meeting, its scratch memory are no other part's. So every copy is the
 * same program, proved for blocks of any length, on elements that no other copy touches; the parts
 * of all copies are the whole block. */
struct tt_binding {
    uint32_t table_at, nbytes; /* bytes from the binding to its table of blocks, [nblocks], 0: none;
                                * bytes of both */
    int32_t copies;            /* >= 1; the same on every rank */
    size_t count, element;     /* the call's count, with a table of all blocks together; bytes of an
                                * element, 0: nothing is bound */
    struct tt_cut blocks;      /* all elements into blocks */
    struct tt_cut parts[3]; /* a block into parts: a longer block, a shorter one, the last one; with
                             * a table only nparts of [0] holds */
    size_t total;           /* elements of all blocks */
    size_t piece;           /* most elements that a round takes of a part of a block */
    size_t nrounds;
    size_t skipped[2]; /* bytes of the global naming before INPUT's and OUTPUT's first block */
    bool merged;       /* one part, one round, no gaps: contiguous names are contiguous memory */
    bool nontemporal;  /* results are stored past the caches */
    bool nontemporal_posts; /* messages to posts that are not read in the same round are, too */
};

TT_INLINE const struct tt_own_block *tt_binding_own_block(const struct tt_binding *binding,
                                                          int32_t block)
{
    return (const struct tt_own_block *)((const char *)binding + binding->table_at) + block;
}

/* Elements of a block over all parts, and where they begin. */
TT_INLINE size_t tt_binding_block(const struct tt_binding *binding, int32_t block, size_t *begin)
{
    if (binding->table_at) {
        const struct tt_own_block *own = tt_binding_own_block(binding, block);
        *begin = own->begin;
        return own->parts.length;
    }
    return tt_cut_part(&binding->blocks, (uint32_t)block, begin);
}

/* Elements of a part of a block, 0 <= part < copies * nchannels, and where they begin. */
TT_INLINE size_t tt_binding_part(const struct tt_binding *binding, int32_t block, int part,
                                 size_t *begin)
{
    const uint32_t index = (uint32_t)block;
    const size_t length = tt_binding_block(binding, block, begin);
    if (binding->parts[0].nparts == 1) return length;
    const int kind = index + 1 == binding->blocks.nparts ? 2
                     : index < binding->blocks.longer    ? 0
                                                         : 1;
    const struct tt_cut *parts =
        binding->table_at ? &tt_binding_own_block(binding, block)->parts : &binding->parts[kind];
    size_t offset;
    const size_t count = tt_cut_part(parts, (uint32_t)part, &offset);
    *begin += offset;
    return count;
}

/* ---- Walking a span ------------------------------------------------------------------------- */

/* Where one channel of one copy stands in a call. Zeroed at the beginning. */
struct tt_position {
    uint64_t round;
    uint32_t step;
    uint32_t ready;  /* messages or members of the present step seen so far */
    uint32_t nslots; /* slots of the present step got so far */
    uint8_t entered; /* MEET: the own part is in */
    uint8_t asked;   /* the message of the present step may be delivered in place */
    uint8_t posted;  /* the posts of the present round have been made */
    uint8_t refers;  /* a message of the present step lies in memory of a rank of another process */
    uint8_t borrows; /* a message of the present step lies in memory of another rank of this one */
    uint8_t done;
};

/* What a walk goes through. */
struct tt_walk {
    const struct tt_program *program;
    const struct tt_binding *binding;
    const struct tt_program_span *span;
    int part; /* of every block */
    size_t round;
    bool whole; /* one piece: the binding is merged and the span contiguous */
    int32_t index, within, place;
};

/* A piece of memory: bytes from where the buffer's first block would begin in the global naming (in
 * SCRATCH: from its beginning), and elements. */
struct tt_piece {
    size_t offset, count;
};

TT_INLINE bool tt_span_is_whole(const struct tt_binding *binding,
                                const struct tt_program_span *span)
{
    return binding->merged && span->contiguous;
}

/* whole: the caller found that all spans it walks together may be walked as one piece. */
TT_INLINE struct tt_walk tt_walk_begin(const struct tt_program *program,
                                       const struct tt_binding *binding,
                                       const struct tt_program_span *span, int part, size_t round,
                                       bool whole)
{
    struct tt_walk walk;
    walk.program = program;
    walk.binding = binding;
    walk.span = span;
    walk.part = part;
    walk.round = round;
    walk.whole = whole;
    walk.index = walk.within = 0;
    walk.place = span->first;
    return walk;
}

/* The place after `place`. */
TT_INLINE void tt_walk_step(struct tt_walk *walk)
{
    const struct tt_program_span *span = walk->span;
    walk->index++;
    if (++walk->within < span->run) {
        walk->place++;
    } else {
        walk->within = 0;
        walk->place += span->stride - span->run + 1;
    }
    if (walk->place >= span->modulo) walk->place -= span->modulo;
    if (walk->place < 0) walk->place += span->modulo;
}

TT_INLINE int32_t tt_span_name_at(const struct tt_program *program,
                                  const struct tt_program_span *span, int32_t place)
{
    const int32_t at = span->base + place;
    return span->order < 0 ? at : tt_program_orders(program)[span->order + at];
}

TT_INLINE void tt_walk_whole(struct tt_walk *walk, struct tt_piece *piece)
{
    const struct tt_binding *binding = walk->binding;
    const struct tt_program_span *span = walk->span;
    walk->index = span->number;
    if (span->all) {
        piece->offset = 0;
        piece->count = binding->total;
        return;
    }
    size_t begin, last;
    const int32_t first = span->base + span->first;
    tt_binding_block(binding, first, &begin);
    const size_t tail = tt_binding_block(binding, first + span->number - 1, &last);
    piece->offset = begin * binding->element;
    piece->count = last + tail - begin;
}

/* The next piece of the span; false at its end. A piece may be empty. */
TT_INLINE bool tt_walk_next(struct tt_walk *walk, struct tt_piece *piece)
{
    const struct tt_binding *binding = walk->binding;
    const struct tt_program_span *span = walk->span;
    if (walk->index >= span->number) return false;
    if (walk->whole) {
        tt_walk_whole(walk, piece);
        return true;
    }
    size_t begin;
    const int32_t name = tt_span_name_at(walk->program, span, walk->place);
    const size_t length = tt_binding_part(binding, name, walk->part, &begin);
    const size_t skip = walk->round * binding->piece;
    const size_t left = skip < length ? length - skip : 0;
    piece->count = left < binding->piece ? left : binding->piece;
    if (span->buffer == TT_SCRATCH) {
        const int32_t slot =
            span->slot + (span->slot_rule == TT_SLOT_IN_ORDER ? walk->index : walk->place);
        const size_t at = (size_t)slot * binding->parts[0].nparts + (size_t)walk->part;
        piece->offset = at * binding->piece * binding->element;
    } else {
        piece->offset = (begin + (left ? skip : 0)) * binding->element;
    }
    tt_walk_step(walk);
    return true;
}

/* Elements of a span in a round. */
TT_INLINE size_t tt_span_count(const struct tt_program *program, const struct tt_binding *binding,
                               const struct tt_program_span *span, int part, size_t round)
{
    if (!span->number) return 0;
    if (binding->merged && span->all) return binding->total;
    struct tt_walk walk =
        tt_walk_begin(program, binding, span, part, round, tt_span_is_whole(binding, span));
    struct tt_piece piece;
    size_t total = 0;
    while (tt_walk_next(&walk, &piece)) total += piece.count;
    return total;
}

#endif
