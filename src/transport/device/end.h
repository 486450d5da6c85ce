/* One end of a link between ranks on GPUs: plain data in device memory, which the kernels work on.
 * Compiles as C17, C++17 and CUDA.
 *
 * A link is a ring of nslots messages. Message n, counted from 0 for as long as the link lives,
 * lies in slot n % nslots. The sender may fill a slot when the receiver has released the message
 * that was there: tail > n - nslots. It then publishes: head = n + 1. A link has two areas: slots,
 * and lines, in which each access carries data and flag. A word of `lines` is never written by
 * anything but a line, so that no data is taken for a flag.
 *
 * In a meeting each rank sends a message to each other one. As lines, every message has what the
 * rank puts in. Else that stands once, in the sender's place of number (meetings on the channel) %
 * nslots, and the messages are empty: the place is free when all that said so are released.
 *
 * With a rank of another host a link is a bridge: each of the two ranks has an end in pinned memory
 * of its own host, where a thread of its process is the other party (carrier/kernel/bridge.h).
 *
 * Counts of messages have 32 bits and begin at 0 again after 2^32 messages, which nslots divides.
 * What the memory of a link still says of message n must be gone when message n + 2^32 is awaited.
 * Words that every message changes are; heads, which messages in lines leave as they are, and
 * lines, which shorter messages leave, may be as old as the link. So with each of the last nslots
 * messages before a multiple of 2^31 the sender publishes a head, in any case, and the receiver,
 * before it releases the slot, writes the number of the message into all of the slot's lines and
 * its note. Nothing in a link is then older than 2^31 + nslots messages. */
#ifndef TT_TRANSPORT_DEVICE_END_H
#define TT_TRANSPORT_DEVICE_END_H

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>

/* A message as lines: 16 bytes each, 8 of data and 8 of flag, stored by one access. */
enum { TT_LINE_DATA = 8, TT_LINE_BYTES = 16 };

/* Shorter messages are copied: for a reference the sender waits at the end. */
enum { TT_REFERENCE_BYTES = 8192 };

/* Which memory of the sender the receiver of a link can read in place. */
enum tt_reach {
    TT_REACHES_NOTHING,
    TT_REACHES_ALL,   /* all of its device memory, at the sender's addresses; the atomics of both
                       * work there */
    TT_REACHES_OPENED /* what it has opened, where it has that (tt_device_call's `opened`) */
};

/* What the sender of a message in `slots` says beside it, before it publishes the message. */
struct tt_device_note {
    uint64_t reference; /* where the receiver finds the message; 0: in its slot. Only where
                         * end->reaches */
    uint64_t head;      /* of this message: a receiver may find the head of a later one */
    uint64_t nbytes;    /* of the send of which this message is a part; other calls do not say it */
    uint64_t length;    /* bytes of the message in its slot; said only where end->lines is NULL */
};

struct tt_device_end {
    /* immutable once connected; addresses as this rank's GPU uses them */
    char *slots;    /* [nslots][slot_bytes]: memory of the receiver; 16-byte aligned */
    char *lines;    /* [nslots][line_bytes]: memory of the receiver; 16-byte aligned. NULL: the end
                     * of a bridge, which takes messages in slots only */
    uint64_t *head; /* memory of the receiver, written by the sender: tt_device_head(); head[1],
                     * OPENED: not 0: the sender has failed */
    uint64_t *tail; /* memory of the sender, written by the receiver: messages released, in the
                     * lower half; tail[1], OPENED: which message it took first by reference in its
                     * last call that took one */
    struct tt_device_note *notes; /* [nslots], memory of the receiver, written by the sender */
    char *places; /* [nslots][slot_bytes]: memory of the sender: what it puts into meetings on this
                   * channel; all its peers read it; 16-byte aligned */
    uint8_t outgoing; /* 1: this rank sends */
    uint8_t reaches;  /* enum tt_reach */
    uint8_t system;   /* 1: ordering accesses need scope .sys: the peer is on another GPU, in
                       * another process, or on the host */
    /* owner: the block that runs this link's channel */
    uint8_t due;     /* 1: messages are counted that no head says yet; in device memory 0 */
    uint32_t refers; /* 1: this call has sent a reference, or, incoming and OPENED, taken one; in
                      * device memory 0 */
    /* kept from call to call, stored together */
    uint32_t count;      /* messages sent or taken */
    uint32_t known_tail; /* sender: the tail as last read; receiver: as last written */
};
static_assert(sizeof(struct tt_device_end) == 64, "a cache line");

/* The links of a rank on a GPU. Plain data. The end of a link with `peer` on `channel` of the
 * communicator is ends[tt_device_end_at(...)]. Of those of this rank with itself the outgoing one
 * has its places, and as its count the meetings on the channel; all else is zero. */
struct tt_device_links {
    struct tt_device_end *ends; /* [nranks * nchannels * 2], device memory of this rank */
    uint32_t nranks, nchannels;
    uint32_t nslots;     /* a power of two, >= 2 */
    uint32_t slot_bytes; /* a multiple of 16 */
    uint32_t line_bytes; /* lines of one message: a multiple of TT_LINE_BYTES */
    uint32_t unused;
};

/* A word of the memory of a link, by which the mappings of memory are tested before they are used
 * (device_room.h). Host memory that GPUs can use. */
struct tt_device_probe {
    uint64_t *word; /* an address that this rank's GPU uses */
    uint64_t value; /* to be stored, or expected */
    uint64_t found; /* written by the kernel that loads the word */
};

#ifdef __CUDACC__
#define TT_DEVICE_INLINE static __host__ __device__ inline
#else
#define TT_DEVICE_INLINE static inline
#endif

TT_DEVICE_INLINE uint32_t tt_device_end_at(uint32_t nchannels, uint32_t peer, uint32_t channel,
                                           uint32_t outgoing)
{
    return (peer * nchannels + channel) * 2 + outgoing;
}

/* The word that publishes a message: the number of messages sent, and in the upper half what the
 * call is, so that a receiver in another call notices. */
TT_DEVICE_INLINE uint64_t tt_device_head(uint32_t count, uint32_t signature)
{
    return (uint64_t)signature << 32 | count;
}

/* Whether what the link's memory says must be made new with message n. */
TT_DEVICE_INLINE bool tt_device_renews(uint32_t n, uint32_t nslots)
{
    const uint32_t half = 1u << 31;
    return n % half >= half - nslots;
}

#endif
