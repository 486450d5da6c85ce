/* A link: a one-way FIFO of messages from one rank to another on one channel.
 *
 * The sender fills a slot and publishes it (copying), or publishes a reference to its own memory
 * (direct); the receiver looks at the first message where it lies, and releases it. Nothing here
 * blocks. One thread at a time per end. */
#ifndef TT_TRANSPORT_LINK_H
#define TT_TRANSPORT_LINK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* Messages of at most this many bytes travel in the cache line of their flag. */
enum { TT_INLINE_BYTES = 32 };

struct tt_link;

/* The first message of a link, as its receiver sees it. */
struct tt_message {
    const void *data; /* where it lies; NULL: only fetch can get it */
    size_t nbytes;
    uint64_t signature; /* of the call it belongs to */
};

struct tt_link_ops {
    /* Sender: memory for a message of nbytes (<= the link's slot_bytes), NULL while the link is
     * full. */
    void *(*slot)(struct tt_link *link, size_t nbytes);
    /* Publishes what slot() gave. */
    void (*publish)(struct tt_link *link, size_t nbytes, uint64_t signature);
    /* Publishes a reference to memory that stays unchanged until drained() is true again. False:
     * the receiver cannot address it, or the link is full: use a slot. */
    bool (*publish_direct)(struct tt_link *link, const void *data, size_t nbytes,
                           uint64_t signature);
    /* Whether the receiver could address [data, data + nbytes). */
    bool (*reaches)(struct tt_link *link, const void *data, size_t nbytes);
    /* Whether the memory of every reference published so far is the sender's own again. A message
     * that was copied into a slot counts too where the receiver looks at the slot itself. */
    bool (*drained)(struct tt_link *link);
    /* Whether everything published will arrive, and everything released will be known to the
     * sender, without this rank calling anything any more. */
    bool (*flushed)(struct tt_link *link);
    /* Receiver, a hint: when the next message has this length and signature and has not come yet,
     * it may be delivered to `to` (peek then says data == to). Holds for that one message; NULL
     * takes it back (afterwards `to` is not written any more). */
    void (*expect)(struct tt_link *link, void *to, size_t nbytes, uint64_t signature);
    /* Receiver: TT_OK and the first message, TT_IN_PROGRESS when there is none, or an error. */
    tt_status (*peek)(struct tt_link *link, struct tt_message *message);
    /* Copies bytes [offset, offset + nbytes) of the first message. */
    tt_status (*fetch)(struct tt_link *link, void *to, size_t offset, size_t nbytes);
    /* Lets the sender reuse the first message's memory. */
    void (*release)(struct tt_link *link);
};

/* One end. Owned by the fabric. */
struct tt_link {
    const struct tt_link_ops *ops;
    int peer;
    size_t slot_bytes;
};

#endif
