/* The way of every call: its arguments are checked, then it is issued. */
#ifndef TT_COMMUNICATOR_CALL_H
#define TT_COMMUNICATOR_CALL_H

#include "communicator/group.h"
#include "communicator/request.h"

/* A collective: checks it, finds its carrier, chooses and binds its program, counts and issues it.
 */
tuttiResult_t tt_call_collective(const struct tt_request *request);
/* All-to-all with counts: a group of sends and receives. */
tuttiResult_t tt_call_exchange(const struct tt_request *request, const struct tt_uneven *sent,
                               const struct tt_uneven *received);

/* A message before it is checked. */
struct tt_message_request {
    const char *function;
    enum tt_call_kind kind; /* TT_CALL_SEND, TT_CALL_RECV */
    void *data;
    size_t count;
    tuttiDataType_t type;
    int peer;
    tuttiComm_t comm;
    tuttiStream_t stream;
};
tuttiResult_t tt_call_message(const struct tt_message_request *request);

#endif
