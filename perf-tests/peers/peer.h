/* What bench.c times: one library's collectives on floats, behind the same few functions. Each
 * library is one file that implements all of this; a program is bench.c and one of them. */
#ifndef TT_PERF_TESTS_PEERS_PEER_H
#define TT_PERF_TESTS_PEERS_PEER_H

#include <stdbool.h>
#include <stddef.h>

enum peer_operation {
    PEER_ALL_REDUCE,
    PEER_BROADCAST,
    PEER_REDUCE,
    PEER_ALL_GATHER,
    PEER_REDUCE_SCATTER,
    PEER_ALL_TO_ALL,
    PEER_SCATTER,
    PEER_GATHER,
    PEER_SEND_RECV, /* to the next rank, from the one before */
    PEER_BARRIER,
    PEER_PING_PONG, /* rank 0 to 1 and back, nothing else on the way */
    PEER_STREAM,    /* from rank 0 to 1 only */
    PEER_NOPERATIONS
};

/* Joins the ranks that the library's launcher started. False, after saying why, when it cannot. */
bool peer_open(int *argc, char ***argv, int *rank, int *nranks);
void peer_close(void);

/* Memory as the library's user would get it. NULL when there is none. */
void *peer_alloc(size_t nbytes);
void peer_free(void *memory);

/* Whether the library has the operation. */
bool peer_has(enum peer_operation operation);

/* One call, done on return, of an operation that the library has. `count` floats: of the whole
 * vector for all-reduce, broadcast, reduce and the point-to-point ones; of one rank's block
 * elsewhere. Root is rank 0. False when the library fails. */
bool peer_run(enum peer_operation operation, const float *input, float *output, size_t count);

/* Each of the `count` values becomes the largest of the ranks' values at its place; also a barrier.
 * False when the library fails. */
bool peer_max(double *values, size_t count);

#endif
