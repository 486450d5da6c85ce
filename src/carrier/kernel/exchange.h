/* The sends and receives of a group that kernels carry out: one call, an exchange (device/call.h).
 * What the host says of it: its errors name the ranks that have not done their part. */
#ifndef TT_CARRIER_KERNEL_EXCHANGE_H
#define TT_CARRIER_KERNEL_EXCHANGE_H

#include "carrier/carrier.h"
#include "device/call.h"

struct tt_proxy;

struct tt_exchange_call {
    char *data;
    size_t nbytes;
    int peer;
    bool sends;
    /* of messages with a rank without a GPU (mixed.c) */
    bool is_granted; /* may be moved */
    uint64_t turn;   /* among those of the host with that rank; 0: none, or the message is moved */
};

/* Owned by its works together, one for each stream of the group; the last one frees it. */
struct tt_group_exchange {
    _Atomic int nworks;               /* that are not done */
    uint64_t number;                  /* of its kernel; 0: a captured one's, or not begun */
    struct tt_device_exchange *table; /* pinned, written by the kernel; NULL: not launched */
    _Atomic uint64_t *held;           /* of the table: 0 is stored when the last work is done */
    int ncalls, nbegun;               /* nbegun: of the first ones; owner: the issuing thread */
    /* In the order of the group. Their turns: owner: the issuing thread until the exchange is
     * launched, then who has entered the engine */
    struct tt_exchange_call calls[];
};

/* The time in which a kernel may see what a rank did that is gone. Begins zeroed. */
struct tt_exchange_grace {
    int64_t until_ns; /* 0: nobody is gone whose part is missing */
    int peer;         /* the rank */
};

/* One of its works is done, or will not be. */
void tt_exchange_release(struct tt_group_exchange *exchange);

/* The next call of the exchange begins. A message with a rank without a GPU gets a turn among those
 * of the host with that rank, which the rank takes in the order of the group. By the issuing
 * thread. */
void tt_exchange_take_turn(struct tt_group_exchange *exchange, struct tt_comm_core *core);
/* Lets those be moved that have their turn, and ends the turns of those that are moved. By who has
 * entered the engine. */
void tt_exchange_look_at_turns(struct tt_group_exchange *exchange, struct tt_engine *engine,
                               struct tt_proxy *proxy);
/* Whether all messages that are missing wait for earlier calls of this rank. */
bool tt_exchange_is_behind(const struct tt_group_exchange *exchange,
                           const struct tt_fabric *fabric);

/* "send to 1 (400 bytes)", "group of 3 sends and receives". */
void tt_exchange_describe(const struct tt_group_exchange *exchange, char *text, size_t size);
/* For the message of a timeout: which messages have not been received or sent. */
void tt_exchange_missing(const struct tt_group_exchange *exchange, struct tt_fabric *fabric,
                         char *text, size_t size);
/* Fails the communicator because a receive got another message. */
TT_NODISCARD tt_status tt_exchange_mismatch(const struct tt_group_exchange *exchange,
                                            struct tt_fabric *fabric,
                                            const struct tt_device_report *report);
/* A system call: fails the communicator where a rank is gone that has not done its part, after its
 * grace: each rank has its own time. */
TT_NODISCARD tt_status tt_exchange_check(const struct tt_group_exchange *exchange,
                                         struct tt_fabric *fabric, struct tt_exchange_grace *grace);

#endif
