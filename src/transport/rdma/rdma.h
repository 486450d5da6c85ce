/* RDMA: links over reliable connections (RC queue pairs) of libibverbs, which is loaded at run
 * time.
 *
 * A message is an RDMA write with immediate into a registered slot of the receiver, small ones
 * inline; the receiver returns credits by writing its count into the sender's memory. The wire of
 * the two ranks (transport/wires.h) carries the offers over its authenticated socket, and keeps the
 * socket for control frames. */
#ifndef TT_TRANSPORT_RDMA_H
#define TT_TRANSPORT_RDMA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "transport/room.h"

struct tt_rdma;      /* one rank's devices and protection domains */
struct tt_rdma_gpu;  /* pages of a GPU that these devices use in place */
struct tt_rdma_wire; /* one rank's queue pairs to one peer */

extern const struct tt_transport tt_rdma_transport;

/* Opens the devices that may be used (TUTTI_RDMA_DEVICE, TUTTI_RDMA_GID_INDEX, ...). TT_OK with
 * *rdma NULL: there is no library or no usable device, logged once at INFO. TT_ERR_ARGUMENT: a
 * setting names a device that does not exist; the text lists those that do. */
TT_NODISCARD tt_status tt_rdma_open(struct tt_rdma **rdma, const struct tt_room_config *config);
/* Gives the devices their rank (borrowed), before the first wire. */
void tt_rdma_start(struct tt_rdma *rdma, const struct tt_room_context *context);
/* Enters descriptors into an epoll instance, with this data. They become readable at the next
 * completion of an armed wire. */
TT_NODISCARD tt_status tt_rdma_watch(struct tt_rdma *rdma, int epoll, uint64_t data);
/* Reads the notifications of completions: the descriptor that tt_rdma_watch entered becomes
 * unreadable again. */
void tt_rdma_clear_notification(struct tt_rdma *rdma);
/* Registers pages of a GPU with all devices, so that links use them in place (struct tt_gpu_ops),
 * until they are dropped or the devices closed. SYSTEM: a device cannot; USAGE:
 * it never can; the text says why. */
TT_NODISCARD tt_status tt_rdma_take_gpu(struct tt_rdma *rdma, const struct tt_dmabuf *pages,
                                        struct tt_rdma_gpu **taken);
void tt_rdma_drop_gpu(struct tt_rdma *rdma, struct tt_rdma_gpu *gpu);
TT_NODISCARD tt_status tt_rdma_copy_gpu(struct tt_rdma *rdma, bool to_gpu, void *gpu, void *host,
                                        size_t nbytes);
/* Called after all wires are destroyed. NULL is allowed. */
void tt_rdma_close(struct tt_rdma *rdma);

/* Makes queue pairs and slots for a peer; fills the offer. After a failure, which is logged once,
 * the offer is empty and the data goes over TCP. */
TT_NODISCARD tt_status tt_rdma_wire_create(struct tt_rdma_wire **wire, struct tt_rdma *rdma,
                                           int peer, struct tt_room_offer *offer);
/* Connects the queue pairs with the peer's offer. Links may be used once both ends have reported
 * success over their socket. */
TT_NODISCARD tt_status tt_rdma_wire_connect(struct tt_rdma_wire *wire,
                                            const struct tt_room_offer *theirs);
/* Failures from now on are ignored: the peer has announced its end, or this rank is about to. */
void tt_rdma_wire_quiet(struct tt_rdma_wire *wire);
/* The peer is gone. Its links still give the messages that have come; after them, and for a sender,
 * they call events->missed. */
void tt_rdma_wire_lost(struct tt_rdma_wire *wire);
/* Whether every message has arrived. Destroying the wire may lose the others. */
bool tt_rdma_wire_sent(struct tt_rdma_wire *wire);
/* NULL is allowed. */
void tt_rdma_wire_destroy(struct tt_rdma_wire *wire);

struct tt_link *tt_rdma_tx(struct tt_rdma_wire *wire, int channel);
struct tt_link *tt_rdma_rx(struct tt_rdma_wire *wire, int channel);

/* Handles completions and asynchronous events. A failure fails the fabric and is returned; its text
 * has the peer, the device, the port, the name of the status and what to check. */
TT_NODISCARD tt_status tt_rdma_wire_progress(struct tt_rdma_wire *wire);
bool tt_rdma_wire_flushed(struct tt_rdma_wire *wire);
/* After a failure: ends all reading from callers' memory. Where messages are not sent before the
 * deadline they are dropped, and the wire sends no more. */
void tt_rdma_wire_give_back(struct tt_rdma_wire *wire, int64_t deadline_ns);
/* Before a sleep: asks for a notification at the next completion (tt_rdma_watch). False:
 * completions have come already. */
bool tt_rdma_wire_arm(struct tt_rdma_wire *wire);
/* "rdma rxe0/1, rxe1/1". */
void tt_rdma_wire_describe(const struct tt_rdma_wire *wire, char *text, size_t size);
size_t tt_rdma_wire_bytes(const struct tt_rdma_wire *wire);

#endif
