/* Watches the kernels of a rank while its thread still launches. The driver may hold that thread up
 * until a kernel ends that was launched before, and nobody else looks after that kernel yet: so the
 * attendant looks at the deadline, at the other ranks and at aborts, and ends the kernel. */
#ifndef TT_CARRIER_KERNEL_LAUNCHING_H
#define TT_CARRIER_KERNEL_LAUNCHING_H

#include <pthread.h>

#include "carrier/kernel/attendant.h"
#include "carrier/kernel/exchange.h"
#include "executor/work.h"

struct tt_comm_core;

/* Part of struct tt_kernel_part. */
struct tt_launching {
    struct tt_attended attended; /* first: its address is this one's */
    /* immutable after open */
    struct tt_comm_core *comm; /* NULL: not opened */
    struct tt_attendant *attendant;
    /* atomic */
    _Atomic uint64_t number;  /* of launches that have begun or ended: odd in between */
    _Atomic bool is_attended; /* the attendant looks; else it must be told */
    _Atomic bool collective;  /* the launch has calls that need all ranks */
    /* guarded by lock */
    pthread_mutex_t lock;
    const struct tt_group_exchange *exchange; /* of the launch, with its table; NULL: none so far */
    /* owner: the attendant */
    uint64_t seen, nbegun;
    int nquiet;
    int64_t deadline_ns, grace_ns;
    struct tt_exchange_grace gone; /* in the exchange */
};

void tt_launching_open(struct tt_launching *launching, struct tt_comm_core *comm,
                       struct tt_attendant *attendant);
/* Before the communicator goes. Not opened is allowed. */
void tt_launching_close(struct tt_launching *launching);

/* By the issuing thread: around all calls of the driver of a launch, before the works of its calls
 * are looked after. Begins for each call of the launch; ends as often or once. */
void tt_launching_begin(struct tt_launching *launching, bool collective);
void tt_launching_end(struct tt_launching *launching);
/* In between: the launch has this exchange, whose table is made. */
void tt_launching_exchange(struct tt_launching *launching,
                           const struct tt_group_exchange *exchange);
/* In between: whom the collectives of the launch need. */
struct tt_needs tt_launching_needs(const struct tt_launching *launching);

#endif
