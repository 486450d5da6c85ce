/* Resolving the steps of a program once for a binding: where their spans lie and how long they are
 * in every round, so that an executor need not walk the spans at each step. */
#ifndef TT_PROGRAM_RESOLVE_H
#define TT_PROGRAM_RESOLVE_H

#include "program/program.h"

/* The memory that calls with a binding use. */
struct tt_footprint {
    size_t longest; /* bytes of the longest message of any rank */
    size_t scratch; /* bytes of SCRATCH */
    /* INPUT, OUTPUT: bytes of the global naming from the beginning of the first block that the
     * buffer holds to the end of the last, wherever the blocks lie in between */
    size_t begin[2], end[2];
};

/* One step of one copy. Each span is one piece of memory in every round. */
struct tt_resolved_step {
    size_t local, dst;                 /* bytes, as the offset of struct tt_piece, in round 0 */
    uint32_t local_stride, dst_stride; /* bytes that each round adds to local and dst */
    /* Elements and bytes of a span (LINK), of a block (MEET): in each of the first `full` rounds */
    size_t count, nbytes;
    uint64_t full;
    size_t rest; /* elements in the round after these; later rounds have none */
    bool known;  /* false: nothing of the above holds, the spans must be walked: they are several
                  * pieces, or the step only forwards a message, of whatever length */
};

static_assert(sizeof(struct tt_resolved_step) <= 64, "a resolved step is one cache line");

/* Plain data, one block of memory that refers to nothing. */
struct tt_step_table {
    uint32_t nsteps; /* of a copy: the program's */
    struct tt_footprint footprint;
    _Alignas(64) struct tt_resolved_step steps[]; /* [copies][nsteps], as in the program's table */
};

/* Where a known step's spans lie in a round, and how long they are. */
struct tt_resolved_round {
    size_t local, dst, count, nbytes;
};

TT_INLINE void tt_resolved_at(const struct tt_resolved_step *step, uint64_t round, size_t element,
                              struct tt_resolved_round *at)
{
    at->local = step->local + round * step->local_stride;
    at->dst = step->dst + round * step->dst_stride;
    at->count = step->count;
    at->nbytes = step->nbytes;
    if (round < step->full) return;
    at->count = round == step->full ? step->rest : 0;
    at->nbytes = at->count * element;
}

void tt_footprint_of(const struct tt_program *program, const struct tt_binding *binding,
                     struct tt_footprint *footprint);

/* Bytes of the table of a program with this binding. SIZE_MAX: it would be large, or blocks have
 * counts of their own: there is no table. */
size_t tt_step_table_bytes(const struct tt_program *program, const struct tt_binding *binding);
/* Fills the table in, which has tt_step_table_bytes. */
void tt_step_table_fill(const struct tt_program *program, const struct tt_binding *binding,
                        struct tt_step_table *resolved);

#endif
