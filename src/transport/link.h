/* A link: a one-way FIFO of messages from one rank to another on one channel.
 *
 * The sender fills a slot and publishes it (copying), or publishes a reference to its own memory
 * (direct); the receiver looks at the first message where it lies, and releases it. Nothing here
 * blocks. One thread at a time per end.
 *
 * Lifetime. A rank holds a link as a pointer to struct tt_link, which tt_fabric_tx and tt_fabric_rx
 * give. The pointer is the same for the life of the communicator: callers may keep it in a table.
 * Getting it opens nothing; a link to another host is connected by its first use (slot,
 * publish_direct, expect or peek). `ops` and `end` change once, before the first message, where
 * the wires are advanced (tt_wires_progress): inside one of these calls or, say, when
 * tuttiCommGetAsyncError looks for failures (tt_engine_look); in the thread that holds the
 * engine's `busy`. Operations that were loaded before still work, with one jump more. */
#ifndef TT_TRANSPORT_LINK_H
#define TT_TRANSPORT_LINK_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

enum { TT_CACHE_LINE = 64 }; /* bytes of a cache line */

/* Slots of a link. A rank may keep the message that it reads while it waits for a slot of the next
 * link: with a single slot a ring of ranks would wait for itself. The smallest link of a host, with
 * its flags, fits a page. */
enum { TT_MIN_SLOTS = 2, TT_MAX_SLOTS = 64, TT_MIN_SLOT_BYTES = 960 };

/* Slots where nobody says how many. Inside a host long messages are quickest when more bytes are on
 * their way than a core's second cache holds: the sender then writes memory that the receiver's
 * cache has given up. Between hosts each slot takes memory, which RDMA pins. */
enum { TT_SLOTS_INSIDE = 16, TT_SLOTS_BETWEEN = 6 };

/* Channels of two ranks, in each direction: those of collectives, whose number is a setting of the
 * communicator (TUTTI_CHANNELS, 2 to 16); where kernels reach ranks that have no GPU of their host,
 * one for bridges (tt_peers_may_bridge); and the last one, for point to point. At least two are for
 * collectives, because some algorithms have two. */
enum {
    TT_MAX_COLLECTIVE_CHANNELS = 16,
    TT_MIN_CHANNELS = 2 + 1,
    TT_MAX_CHANNELS = TT_MAX_COLLECTIVE_CHANNELS + 2
};

/* Of the channel for bridges a slot has so many bytes more than others between hosts: the head of a
 * frame, so that a whole slot of a kernel is one frame where TUTTI_DEVICE_SLOT_BYTES is no more
 * than TUTTI_SLOT_BYTES. */
enum { TT_BRIDGE_HEAD_BYTES = TT_CACHE_LINE };

/* Messages of at most this many bytes travel in the cache line of their flag. */
enum { TT_INLINE_BYTES = 32 };

struct tt_link;

/* A buffer of a call, as links address it; found once, before the call's first message
 * (tt_fabric_find_memory). The window, if any, need not hold all of the buffer. */
struct tt_memory {
    const char *base; /* of the window */
    size_t nbytes;
    uint64_t window; /* what this rank and the others of its host call it; TT_NO_WINDOW: none */
};
#define TT_NO_WINDOW UINT64_MAX

/* The first message of a link, as its receiver sees it. */
struct tt_message {
    const void *data;   /* where it lies; NULL: only fetch can get it */
    size_t nbytes;      /* of a reference they may be more than slot_bytes */
    uint64_t signature; /* of the call it belongs to */
    bool is_reference;  /* the bytes lie in memory of the sender, which may change when it aborts
                         * (tt_fabric_check_source) */
    bool is_borrowed; /* the bytes lie in memory of a rank of this process, which may free it after
                       * a failure (tt_fabric_borrow) */
};

/* Where the receiver of a link wants a message. */
struct tt_posted {
    void *to; /* as the one who asks has it mapped */
    size_t nbytes;
    uint64_t signature;
    bool nontemporal; /* to be stored past the caches */
};

/* Of links between ranks that share memory; the other links have tt_no_posts. */
struct tt_post_ops {
    /* Receiver, a hint, once a round at most: the message that comes after `ahead` others, when it
     * has this length and signature, may be written by its sender to posted->to, a place in
     * `memory` of this rank that nothing else uses until then (peek then says data == to). It may
     * also come otherwise. */
    void (*post)(struct tt_link *link, uint64_t ahead, const struct tt_memory *memory,
                 const struct tt_posted *posted);
    /* Sender, when slot() has given memory: sets posted->to and ->nontemporal to where and how the
     * receiver wants the next message, if that has posted's length and signature; to be filled and
     * published at once. False: nowhere that can be written from here. */
    bool (*claim)(struct tt_link *link, struct tt_posted *posted);
    /* Ends this end's post or claim, if any, before its message is published. TT_IN_PROGRESS: the
     * sender is writing to the posted memory, or died while it was writing. */
    tt_status (*withdraw)(struct tt_link *link);
};

/* Nothing is posted or claimed. */
extern const struct tt_post_ops tt_no_posts;

/* Where a sender may write in memory of the receiver's GPU. Plain data, which travels between the
 * two. */
enum { TT_MAX_GPU_KEYS = 8 };
struct tt_gpu_place {
    uint64_t address, nbytes; /* as the GPU has it */
    uint32_t nkeys, unused;
    uint32_t keys[TT_MAX_GPU_KEYS]; /* of the receiver's devices, for this link */
};
static_assert(sizeof(struct tt_gpu_place) == 56, "no padding on the wire");

/* Of links whose devices read and write the memory of GPUs themselves, where it was registered with
 * them (tt_wires_register_gpu); the other links have tt_no_gpus. */
struct tt_gpu_ops {
    /* Receiver, when the link is connected: lets the sender write to [data, data + nbytes). False:
     * the devices of this link do not use that memory. */
    bool (*show)(struct tt_link *link, const void *data, size_t nbytes, struct tt_gpu_place *place);
    /* Sender, when slot() has given memory: writes [data, data + nbytes), which is such memory of
     * this rank and stays unchanged until the receiver has seen the bytes, to place + offset. They
     * are there before the message that is published next. False: they cannot be written so. */
    bool (*write)(struct tt_link *link, const void *data, size_t nbytes,
                  const struct tt_gpu_place *place, size_t offset);
    /* Receiver, when peek has given a message. TT_OK: the GPU sees what was written to its memory
     * before the message was published. TT_IN_PROGRESS: to be called again. data: any such memory
     * of this GPU. */
    tt_status (*flush)(struct tt_link *link, const void *data);
};

/* No memory of GPUs is used in place. */
extern const struct tt_gpu_ops tt_no_gpus;

struct tt_link_ops {
    /* Sender: memory for a message of nbytes (<= the link's slot_bytes), NULL while the link is
     * full. */
    void *(*slot)(struct tt_link *link, size_t nbytes);
    /* Publishes the memory that slot(), or after it claim(), gave. */
    void (*publish)(struct tt_link *link, size_t nbytes, uint64_t signature);
    /* Publishes a reference to [data, data + nbytes) of a buffer, which stays unchanged until
     * drained() is true again. False: the receiver cannot address it, or the link is full: use a
     * slot. */
    bool (*publish_direct)(struct tt_link *link, const struct tt_memory *memory, const void *data,
                           size_t nbytes, uint64_t signature);
    /* Whether the receiver could address [data, data + nbytes) of a buffer. */
    bool (*reaches)(struct tt_link *link, const struct tt_memory *memory, const void *data,
                    size_t nbytes);
    /* Whether the memory of every reference published so far is the sender's own again. Some links
     * also wait until messages in slots are released and there is room for one more message. */
    bool (*drained)(struct tt_link *link);
    /* Whether everything published will arrive, and everything released will be known to the
     * sender, without this rank calling anything any more. */
    bool (*flushed)(struct tt_link *link);
    /* Sender: whether everything published will arrive even if this process ends now, whatever its
     * end. Implies flushed. */
    bool (*delivered)(struct tt_link *link);
    /* Receiver, a hint: when the next message has this length and signature and has not come yet,
     * it may be delivered to `to` (peek then says data == to). Holds for that one message; NULL
     * takes it back (afterwards `to` is not written any more). */
    void (*expect)(struct tt_link *link, void *to, size_t nbytes, uint64_t signature);
    /* Receiver: TT_OK and the first message, TT_IN_PROGRESS when there is none, or an error. */
    tt_status (*peek)(struct tt_link *link, struct tt_message *message);
    /* Copies bytes [offset, offset + nbytes) of the first message. TT_IN_PROGRESS: they are on
     * their way; to be called again with the same arguments. */
    tt_status (*fetch)(struct tt_link *link, void *to, size_t offset, size_t nbytes);
    /* Lets the sender reuse the first message's memory. */
    void (*release)(struct tt_link *link);
    const struct tt_post_ops *posts;
    const struct tt_gpu_ops *gpus;
};

/* How a rank stores what other ranks of its host read (executor/shared_store.h). Begins zeroed. */
struct tt_shared_store {
    bool past_caches;  /* stores go past the caches */
    uint8_t nsurprise; /* looks in a row that speak for the other way */
    uint32_t left;     /* messages until the next look */
    uint32_t interval; /* from look to look while stores go past the caches */
};

/* One end, as the rank holds it. Owned by the fabric; never moves. */
struct tt_link {
    const struct tt_link_ops *ops;
    void *end; /* of the transport that carries the link */
    int peer;
    size_t slot_bytes;
    struct tt_shared_store *store; /* the rank's; NULL: slots are not memory that ranks share */
};

#endif
