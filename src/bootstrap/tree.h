/* A rank's place in the tree: with fan-out 8, rank r's children are 8r+1 to 8r+8, so that the ranks
 * below r on one level are consecutive. */
#ifndef TT_BOOTSTRAP_TREE_H
#define TT_BOOTSTRAP_TREE_H

#include <stdbool.h>
#include <stdint.h>

#include "bootstrap/bootstrap.h"
#include "net/handshake.h"

enum { TT_TREE_FANOUT = 8, TT_TREE_LEVELS = 8 };

static inline int tt_tree_parent(int rank)
{
    return (rank - 1) / TT_TREE_FANOUT;
}

/* May be a rank that does not exist. */
static inline int64_t tt_tree_first_child(int rank)
{
    return INT64_C(1) * TT_TREE_FANOUT * rank + 1;
}

struct tt_neighbour {
    int fd; /* owned; -1: none */
    int rank, pid;
    bool midway; /* part of a frame has been sent: nothing else may follow it */
    char host[TT_HOST_BYTES];
};

struct tt_bootstrap {
    struct tt_unique_id id; /* with the sequence and the key of all ranks */
    int rank, nranks, nchildren;
    int64_t deadline_ns; /* the earliest of all ranks */
    uint32_t sequence;   /* of the next allgather */
    tt_status broken;    /* the failure that ended it, with its text */
    char broken_text[TT_WIRE_TEXT];
    struct tt_bootstrap_counts counts;
    struct tt_neighbour parent; /* fd -1 on rank 0 */
    struct tt_neighbour children[TT_TREE_FANOUT];
};

/* How joining the tree ended for a rank: its last frame to the root, if the root kept the
 * connection. What comes after the status follows a failure only. */
struct tt_report {
    int32_t status;
    int32_t rank, nranks; /* the rank, and of how many */
    char text[TT_WIRE_TEXT];
};
_Static_assert(sizeof(struct tt_report) == 12 + TT_WIRE_TEXT, "no padding on the wire");

/* The parent has sent a failure, or has gone: ends the bootstrap with that. */
TT_NODISCARD tt_status tt_bootstrap_hear_parent(struct tt_bootstrap *bootstrap);

/* Ends the bootstrap: the neighbours are told, every later call fails alike. */
void tt_bootstrap_break(struct tt_bootstrap *bootstrap, tt_status status, const char *text);

#endif
