/* The sends and receives of a group that kernels carry out: one call, an exchange (device/call.h).
 * What the host says of it: its errors name the ranks that have not done their part. */
#ifndef TT_EXECUTOR_EXCHANGE_H
#define TT_EXECUTOR_EXCHANGE_H

#include "executor/internal.h"

struct tt_exchange_call {
    char *data;
    size_t nbytes;
    int peer;
    bool sends;
};

/* Owned by its works together, one for each stream of the group; the last one frees it. */
struct tt_group_exchange {
    _Atomic int nworks; /* that are not done */
    struct tt_kernel_run kernel;
    bool uses_peers;                  /* what the first work begins with */
    struct tt_device_exchange *table; /* pinned, written by the kernel; NULL: not launched */
    _Atomic uint64_t *held;           /* of the table: 0 is stored when the last work is done */
    int ncalls;
    struct tt_exchange_call calls[]; /* in the order of the group */
};

/* Gives the work its turn. The kernel is the exchange's; `first`: the first of its works, for which
 * it is launched. */
void tt_exchange_begin(struct tt_work *work, struct tt_engine *engine,
                       struct tt_group_exchange *exchange, bool first);
/* One of its works is done, or will not be. */
void tt_exchange_release(struct tt_group_exchange *exchange);

/* "send to 1 (400 bytes)", "group of 3 sends and receives". */
void tt_exchange_describe(const struct tt_work *work, char *text, size_t size);
/* For the message of a timeout: which messages have not been received or sent. */
void tt_exchange_list_missing(const struct tt_work *work, char *text, size_t size);
/* Fails the communicator because a receive got another message. */
TT_NODISCARD tt_status tt_exchange_mismatch(struct tt_work *work);
/* A system call: fails the communicator where a rank is gone that has not done its part. */
TT_NODISCARD tt_status tt_exchange_check(struct tt_work *work);

#endif
