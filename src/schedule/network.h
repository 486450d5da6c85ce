/* Runs one channel of a schedule family: every rank is a process, links hold one message.
 *
 * A step first waits for all its messages and takes them together, then waits until all its links
 * have room and sends together. Whatever terminates so terminates with deeper links, with steps
 * that take and send one peer after the other, and with links of two messages from which a message
 * is released only after its step has sent: each of these can imitate this execution, and of a Kahn
 * network all executions end alike. A step of the executor may send before it stores its result;
 * as only its own rank's later steps read what it stores, that changes nothing here. Memory that
 * other ranks read or write is direct.h's part. */
#ifndef TT_SCHEDULE_NETWORK_H
#define TT_SCHEDULE_NETWORK_H

#include "schedule/schedule.h"

struct tt_network;

/* What the steps do. A failure ends the execution. */
struct tt_network_ops {
    /* A process has come to a step. Must fail unless tt_step_check finds nothing wrong with it. */
    tt_status (*begin)(void *arg, int rank, int index, const struct tt_step *step);
    /* A LINK step has its messages: received[i] is from the i-th of step->recv. *sent goes to every
     * peer of step->send; each of them gets it once. */
    tt_status (*link)(void *arg, int rank, int index, const struct tt_step *step,
                      void *const *received, void **sent);
    /* All members have come to a meeting: see tt_network_step. */
    tt_status (*meet)(void *arg, const struct tt_network *network, const struct tt_peers *members);
    /* A message that nobody will receive. */
    void (*drop)(void *arg, void *message);
};

/* Counts of an execution, and what went wrong when it was the network's fault (TT_ERR_USAGE). */
struct tt_network_report {
    char text[512];
    uint64_t nsteps, nmessages;
};

/* The steps of a family, mutated or not. */
int tt_steps_number(const struct tt_steps *steps, int rank, int channel);
void tt_steps_get(const struct tt_steps *steps, int rank, int channel, int index,
                  struct tt_step *step);

/* The step that a rank is at. Valid in `meet`. */
const struct tt_step *tt_network_step(const struct tt_network *network, int rank, int *index);

/* Runs all ranks to their ends. TT_OK, TT_ERR_USAGE with report->text for a deadlock or left-over
 * messages, TT_ERR_SYSTEM without memory, or what an operation returned. */
TT_NODISCARD tt_status tt_network_run(const struct tt_steps *steps, int channel,
                                      const struct tt_network_ops *ops, void *arg,
                                      struct tt_network_report *report);

#endif
