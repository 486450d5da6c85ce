/* RDMA: links over reliable connections (RC queue pairs) of libibverbs, which is loaded at run
 * time.
 *
 * A message is an RDMA write with immediate into a registered slot of the receiver, small ones
 * inline; the receiver returns credits by writing its count into the sender's memory. The wire that
 * owns it (transport/wires.h) carries the offers over its authenticated socket, and keeps the
 * socket for control. */
#ifndef TT_TRANSPORT_RDMA_H
#define TT_TRANSPORT_RDMA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "transport/room.h"

struct tt_rdma;      /* one rank's devices and protection domains */
struct tt_rdma_wire; /* its queue pairs to one peer */

extern const struct tt_transport tt_rdma_transport;

/* Opens the devices that may be used (TUTTI_RDMA_DEVICE, TUTTI_RDMA_GID_INDEX, ...). TT_OK with
 * *rdma NULL: there is no library or no usable device, said once at INFO; a setting that names what
 * does not exist is TT_ERR_ARGUMENT and lists what does. */
TT_NODISCARD tt_status tt_rdma_open(struct tt_rdma **rdma, size_t nslots, size_t slot_bytes);
/* The rank it works for (borrowed), before the first wire. */
void tt_rdma_start(struct tt_rdma *rdma, const struct tt_room_context *context);
/* Enters into an epoll instance, with this mark, what becomes readable at the next completion of a
 * wire that was armed. */
TT_NODISCARD tt_status tt_rdma_watch(struct tt_rdma *rdma, int epoll, void *mark);
/* Reads the notifications of completions: the descriptor that tt_rdma_watch entered becomes
 * unreadable again. */
void tt_rdma_clear_notification(struct tt_rdma *rdma);
/* After its wires. NULL is allowed. */
void tt_rdma_close(struct tt_rdma *rdma);

/* Makes queue pairs and slots for a peer; fills the offer. On failure (said once) the wire falls
 * back to TCP: the offer is empty. */
TT_NODISCARD tt_status tt_rdma_wire_create(struct tt_rdma_wire **wire, struct tt_rdma *rdma,
                                           int peer, struct tt_room_offer *offer);
/* With the peer's offer: to ready-to-receive and ready-to-send. Links may be used once both ends
 * have said over their socket that this succeeded. */
TT_NODISCARD tt_status tt_rdma_wire_connect(struct tt_rdma_wire *wire,
                                            const struct tt_room_offer *theirs);
/* Failures from now on are ignored: the peer has announced its end, or this rank is about to. */
void tt_rdma_wire_quiet(struct tt_rdma_wire *wire);
/* The peer is gone. Its links still give what has come; then, and for whoever wants to send, they
 * call events->missed. */
void tt_rdma_wire_lost(struct tt_rdma_wire *wire);
/* Whether every message has arrived. Destroying the wire may lose the others. */
bool tt_rdma_wire_sent(struct tt_rdma_wire *wire);
/* NULL is allowed. */
void tt_rdma_wire_destroy(struct tt_rdma_wire *wire);

struct tt_link *tt_rdma_tx(struct tt_rdma_wire *wire, int channel);
struct tt_link *tt_rdma_rx(struct tt_rdma_wire *wire, int channel);

/* Completions and asynchronous events: a failure fails the fabric and is returned; it says peer,
 * device, port, the status in words and what to check. */
TT_NODISCARD tt_status tt_rdma_wire_progress(struct tt_rdma_wire *wire);
bool tt_rdma_wire_flushed(struct tt_rdma_wire *wire);
/* After a failure: nothing is read from the callers' memory any more. What is not sent within some
 * milliseconds never is, and nothing else on this wire either. */
void tt_rdma_wire_give_back(struct tt_rdma_wire *wire);
/* Before a sleep: asks for a wake at the next completion (tt_rdma_watch). False: some have come
 * already, there is something to do. */
bool tt_rdma_wire_arm(struct tt_rdma_wire *wire);
/* "rdma rxe0/1, rxe1/1". */
void tt_rdma_wire_describe(const struct tt_rdma_wire *wire, char *text, size_t size);
size_t tt_rdma_wire_bytes(const struct tt_rdma_wire *wire);

#endif
