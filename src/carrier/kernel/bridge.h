/* Bridges: the links of a rank on a GPU with ranks of other hosts. A bridge has an end in pinned
 * memory of each of the two processes, as kernels know ends (transport/device/end.h), and between
 * them the one ordinary link of the two ranks on the fabric's channel for bridges:
 *
 *   kernel -> slots, head | proxy -> frames ->  proxy | slots, head -> kernel
 *          <- tail        |       <- credits <-        | tail        <-
 *
 * The proxy of each rank (proxy.h) moves messages, not calls; it knows neither programs nor types.
 * A frame has a message or a part of one. Its slot at the receiver is free: a sender fills slots
 * only as far as the receiver's kernel has released them, which credits say. The first credit says
 * that the receiver has an end; before that the sender's kernel sees no free slot. So a frame never
 * waits at the receiver, and messages of one channel hold up none of another.
 *
 * Nothing here waits. One thread at a time calls these functions: the one that has entered the
 * engine. */
#ifndef TT_CARRIER_KERNEL_BRIDGE_H
#define TT_CARRIER_KERNEL_BRIDGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "executor/engine.h"
#include "transport/device/end.h"

/* The bridges of a rank. */
struct tt_bridges;

struct tt_bridge_shape {
    int nranks;
    uint32_t nchannels, nslots, slot_bytes; /* as in struct tt_device_links */
};

/* The ordinary link with a rank, in both directions. */
struct tt_bridge_pair {
    struct tt_link *tx, *rx;
};

/* Kinds of calls, each with a mark of its own: calls of a kind end one after the other. REPLAYS:
 * collectives of replays, which the proxy counts. ALL_REPLAYS: of all that have ended, at the end
 * of the process. */
enum tt_bridge_mark {
    TT_BRIDGE_COLLECTIVES,
    TT_BRIDGE_EXCHANGES,
    TT_BRIDGE_REPLAYS,
    TT_BRIDGE_ALL_REPLAYS,
    TT_BRIDGE_MARKS
};

/* Bytes of pinned memory of an end. */
size_t tt_bridge_bytes(const struct tt_bridge_shape *shape);

/* Whether a rank is gone: it needs nothing any more, and a link with it is never ready for sending.
 */
typedef bool (*tt_bridge_is_gone)(const void *arg, int rank);

/* arg: for is_gone, which is asked whenever the bridges are used. */
TT_NODISCARD tt_status tt_bridges_create(struct tt_bridges **bridges,
                                         const struct tt_bridge_shape *shape,
                                         tt_bridge_is_gone is_gone, const void *arg);
/* The memory of the ends is the caller's. NULL is allowed. */
void tt_bridges_destroy(struct tt_bridges *bridges);

/* Whether the end is bound. */
bool tt_bridges_has(const struct tt_bridges *bridges, int peer, int channel, bool outgoing);
/* Lays an end out in memory, which is tt_bridge_bytes, zeroed: *end is for the kernels. */
void tt_bridges_lay(const struct tt_bridge_shape *shape, bool outgoing, void *memory,
                    struct tt_device_end *end);
/* Binds an end as it was laid out, when kernels can find it there: peers may send to it from now
 * on. SYSTEM: out of memory, and nothing is bound. */
TT_NODISCARD tt_status tt_bridges_bind(struct tt_bridges *bridges, int peer, int channel,
                                       const struct tt_bridge_pair *pair,
                                       const struct tt_device_end *laid);

/* Moves what can be moved. TT_OK: something was; TT_IN_PROGRESS: nothing; else a link has failed,
 * or a rank has sent what is no frame. What a rank that is gone has sent is still taken. */
tt_status tt_bridges_move(struct tt_bridges *bridges);
/* Whether what kernels have published or released is not sent, or not yet on its way. */
bool tt_bridges_have_work(struct tt_bridges *bridges);
/* Notes what kernels have published and released so far, in the place of the kind's mark before. */
void tt_bridges_mark(struct tt_bridges *bridges, enum tt_bridge_mark mark);
/* Whether all that was marked is on its way to ranks that are not gone, whatever came after it. */
bool tt_bridges_have_sent(struct tt_bridges *bridges, enum tt_bridge_mark mark);
/* The kernels use the bridges no more: tells each rank that has released all messages that this
 * rank sends it nothing more. */
void tt_bridges_end(struct tt_bridges *bridges);
/* After tt_bridges_end: whether all messages to the rank are released, and it knows of the end; or
 * it is gone, or there was no message. */
bool tt_bridges_has_ended(struct tt_bridges *bridges, int peer);

#endif
