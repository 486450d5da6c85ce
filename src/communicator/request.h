/* A collective call as the user made it, and the checks of its arguments. Messages begin with the
 * entry point's name. */
#ifndef TT_COMMUNICATOR_REQUEST_H
#define TT_COMMUNICATOR_REQUEST_H

#include "communicator/communicator.h"

/* A count for each rank, and where the blocks lie in this rank's buffer that holds all of them. */
struct tt_uneven {
    const char *counts_name, *displs_name; /* for messages */
    const size_t *counts;                  /* [nranks] elements */
    const size_t *displs;                  /* [nranks] elements; NULL: packed */
};

/* A collective call before it is checked. */
struct tt_request {
    const char *function; /* for messages */
    enum tt_collective collective;
    const void *input;
    void *output;
    size_t count; /* 0 where each rank has a count of its own */
    tuttiDataType_t type;
    tuttiRedOp_t op;
    int root;
    tuttiComm_t comm;
    tuttiStream_t stream;
    const struct tt_uneven *uneven; /* NULL: `count` for all ranks */
};

/* What the checks have found. */
struct tt_checked {
    struct tt_reduction reduction;
    struct tt_where where;
    struct tt_call_blocks blocks;
};

/* Checks all arguments of a collective but its communicator. */
TT_NODISCARD tt_status tt_request_check(const struct tt_request *request,
                                        struct tt_checked *checked);
/* Of all-to-all with counts: what is sent and what is received, each with counts of its own.
 * blocks.total: elements that this rank sends, or receives, where that is more. */
TT_NODISCARD tt_status tt_request_check_exchange(const struct tt_request *request,
                                                 const struct tt_uneven *sent,
                                                 const struct tt_uneven *received,
                                                 struct tt_checked *checked);

/* *element: its bytes. */
TT_NODISCARD tt_status tt_request_type(const char *function, tuttiDataType_t type, size_t *element);
/* `name` is the argument's; with 0 bytes it may be NULL. */
TT_NODISCARD tt_status tt_request_buffer(const char *function, const char *name, const void *buffer,
                                         size_t nbytes);
/* The pointers of a call whose sizes are known. before_own: bytes before this rank's block in the
 * buffer that holds all. */
TT_NODISCARD tt_status tt_request_pointers(const struct tt_request *request, size_t in, size_t out,
                                           size_t before_own);

/* Elements of the blocks of the ranks before this one. */
size_t tt_uneven_before(const struct tt_uneven *uneven, int rank);

static inline struct tt_stream *tt_request_stream(const struct tt_request *request)
{
    return (struct tt_stream *)request->stream;
}

#endif
