/* A serial reference for the collectives: what each rank puts in, and what must come out. */
#ifndef TT_TESTS_INTEGRATION_REFERENCE_H
#define TT_TESTS_INTEGRATION_REFERENCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tutti.h"

/* The collectives' numbers are tuttiCollective_t's; an exchange is a send to one rank and a receive
 * from another. Those with a V have a count for each rank. */
enum {
    EXCHANGE = tuttiNumCollectives,
    ALL_GATHER_V,
    REDUCE_SCATTER_V,
    GATHER_V,
    SCATTER_V,
    ALL_TO_ALL_V,
    NKINDS
};
enum { MOST_CALL_RANKS = 8 };

/* One call, as every rank of its communicator sees it. Plain data. */
struct call {
    int kind;
    size_t count;
    tuttiDataType_t type;
    tuttiRedOp_t op; /* tuttiFirstDynamicRedOp stands for a pre-multiplied sum */
    int root;        /* for an exchange: how far on the receiver is */
    uint64_t salt;   /* makes the data */
    int nranks;
};

size_t call_type_size(tuttiDataType_t type);
bool call_reduces(const struct call *call);
/* The pre-multiplied sum's factor, as one element. */
void call_scalar(const struct call *call, void *element);
/* For the kinds with a V. Elements of the block from rank `from` to rank `to` (ALL_TO_ALL_V), or of
 * rank `to`'s block; and where rank's block begins in a buffer of all that belongs to `of`. */
size_t call_block(const struct call *call, int from, int to);
size_t call_displ(const struct call *call, bool input, int of, int rank);
/* Whether the blocks of `of`'s buffer of all have gaps, so that the call must say where they begin.
 */
bool call_has_gaps(const struct call *call, bool input, int of);

/* The arrays that a rank passes to a kind with a V; [1]: of the input. */
struct call_arrays {
    size_t counts[2][MOST_CALL_RANKS], displs[2][MOST_CALL_RANKS];
    const size_t *begins[2]; /* the displs; NULL: the blocks are packed */
};
void call_arrays_of(const struct call *call, int rank, struct call_arrays *arrays);

/* Whether the call has a form in place. */
bool call_can_be_in_place(const struct call *call);
/* Where a rank's input and output lie in the memory that they share in place, in bytes. */
void call_in_place(const struct call *call, int rank, size_t *input, size_t *output);

/* Elements in a rank's buffers, with gaps; 0 where the buffer means nothing. */
size_t call_input_count(const struct call *call, int rank);
size_t call_output_count(const struct call *call, int rank);
/* Fills rank's whole input. */
void call_input(const struct call *call, int rank, void *buffer);
/* Fills what rank's output must be. */
void call_expected(const struct call *call, int rank, void *buffer);
/* "all_reduce of 17 x type 7, op 0, root 0, 5 ranks". Static storage per thread. */
const char *call_text(const struct call *call);

#endif
