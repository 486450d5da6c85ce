/* Bridges: the links of a rank on a GPU with ranks of other hosts. A bridge has an end in each of
 * the two processes, as kernels know ends (transport/device/end.h), in pinned memory, and between
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
 * The slots are pinned memory of the host too, or memory of the GPU, where the devices of the link
 * use that (struct tt_gpu_ops): then they write a message from the sender's slot to the receiver's,
 * and the frame that follows says so and has no bytes. Where only one of the two ends is such, or
 * the link is of another kind than was expected, a device copies between slot and frame.
 *
 * Nothing here waits, but for such copies. One thread at a time calls these functions: the one that
 * has entered the engine. */
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

/* The bytes of a whole end of a bridge; of its words and notes alone; of its slots alone. */
size_t tt_bridge_bytes(const struct tt_bridge_shape *shape);
size_t tt_bridge_word_bytes(const struct tt_bridge_shape *shape);
size_t tt_bridge_slot_bytes(const struct tt_bridge_shape *shape);

/* What bridges call, with their `arg`. */
struct tt_bridge_calls {
    /* Whether a rank is gone: it needs nothing any more, and a link with it is never ready for
     * sending. Asked whenever the bridges are used. */
    bool (*is_gone)(const void *arg, int rank);
    /* Copies between memory of the host and slots in memory of the GPU: the bytes are there when it
     * returns. NULL: no end has such slots. */
    tt_status (*copy_gpu)(void *arg, bool to_gpu, void *gpu, void *host, size_t nbytes);
};

/* calls: borrowed. */
TT_NODISCARD tt_status tt_bridges_create(struct tt_bridges **bridges,
                                         const struct tt_bridge_shape *shape,
                                         const struct tt_bridge_calls *calls, void *arg);
/* The memory of the ends is the caller's. NULL is allowed. */
void tt_bridges_destroy(struct tt_bridges *bridges);

/* Whether the end is bound. */
bool tt_bridges_has(const struct tt_bridges *bridges, int peer, int channel, bool outgoing);
/* Lays an end out in memory of the host, which is tt_bridge_bytes, zeroed, or, where its slots are
 * elsewhere, tt_bridge_word_bytes: *end is for the kernels. slots: NULL, or tt_bridge_slot_bytes of
 * memory of the GPU. */
void tt_bridges_lay(const struct tt_bridge_shape *shape, bool outgoing, void *memory, void *slots,
                    struct tt_device_end *end);
/* Binds an end as it was laid out, which no kernel uses yet: peers may send to it from now on.
 * in_gpu: its slots are memory of the GPU that devices use. SYSTEM: out of memory, and nothing is
 * bound. */
TT_NODISCARD tt_status tt_bridges_bind(struct tt_bridges *bridges, int peer, int channel,
                                       const struct tt_bridge_pair *pair,
                                       const struct tt_device_end *laid, bool in_gpu);

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
