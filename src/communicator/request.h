/* A collective call as the user made it, and the checks of its arguments that all entry points
 * share. Messages begin with the entry point's name. */
#ifndef TT_COMMUNICATOR_REQUEST_H
#define TT_COMMUNICATOR_REQUEST_H

#include "communicator/communicator.h"

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
};

/* Bytes [first, first + nbytes) of a buffer. */
struct tt_extent {
    uintptr_t first;
    size_t nbytes;
};

/* *element: its bytes. */
TT_NODISCARD tt_status tt_request_type(const char *function, tuttiDataType_t type, size_t *element);
TT_NODISCARD tt_status tt_request_root(const struct tt_request *request);
/* Fills in operation and scalar. Pre-multiplied sums are the communicator's. */
TT_NODISCARD tt_status tt_request_op(const struct tt_request *request,
                                     struct tt_reduction *reduction, const void **scalar);
/* `name` is the argument's; with 0 bytes it may be NULL. */
TT_NODISCARD tt_status tt_request_buffer(const char *function, const char *name, const void *buffer,
                                         size_t nbytes);
/* The overlap that the collective's row allows, or none. own: where this rank's block lies in the
 * buffer that holds all, if only one does. */
TT_NODISCARD tt_status tt_request_overlap(const struct tt_request *request, struct tt_extent in,
                                          struct tt_extent out, uintptr_t own);

#endif
