/* A link that lies in the test: what one end publishes the other one finds. */
#ifndef TT_TESTS_CARRIER_FAKE_LINK_H
#define TT_TESTS_CARRIER_FAKE_LINK_H

#include <string.h>

#include "shim.h"
#include "transport/link.h"

enum { MOST_ROOM = 8, MOST_LINK_BYTES = 1024 };

struct fake {
    struct tt_link link;
    char slots[MOST_ROOM][MOST_LINK_BYTES];
    size_t nbytes[MOST_ROOM];
    uint64_t signatures[MOST_ROOM];
    unsigned room; /* messages that it holds */
    unsigned published, released;
    bool is_reference; /* messages are references */
    bool lies_nowhere; /* messages must be fetched */
    bool is_busy;      /* never seen flushed */
    bool is_held;      /* what was sent is with a device, which drops it when the process ends */
    bool is_closed;    /* its sender is gone: to look for more is a failure */
};

static inline struct fake *fake_of(struct tt_link *link)
{
    return link->end;
}

/* Of the message of this number. */
static inline unsigned place_in(const struct fake *fake, unsigned number)
{
    return number % fake->room;
}

static inline void *slot(struct tt_link *link, size_t nbytes)
{
    struct fake *fake = fake_of(link);
    CHECK(nbytes <= link->slot_bytes);
    if (fake->published - fake->released >= fake->room) return NULL;
    return fake->slots[place_in(fake, fake->published)];
}

static inline void publish(struct tt_link *link, size_t nbytes, uint64_t signature)
{
    struct fake *fake = fake_of(link);
    const unsigned at = place_in(fake, fake->published++);
    fake->nbytes[at] = nbytes;
    fake->signatures[at] = signature;
}

static inline tt_status peek(struct tt_link *link, struct tt_message *message)
{
    const struct fake *fake = fake_of(link);
    const unsigned at = place_in(fake, fake->released);
    if (fake->published == fake->released) return fake->is_closed ? TT_ERR_REMOTE : TT_IN_PROGRESS;
    *message = (struct tt_message){.data = fake->lies_nowhere ? NULL : fake->slots[at],
                                   .nbytes = fake->nbytes[at],
                                   .signature = fake->signatures[at],
                                   .is_reference = fake->is_reference};
    return TT_OK;
}

static inline tt_status fetch(struct tt_link *link, void *to, size_t offset, size_t nbytes)
{
    const struct fake *fake = fake_of(link);
    memcpy(to, fake->slots[place_in(fake, fake->released)] + offset, nbytes);
    return TT_OK;
}

/* The sender may write there again at once. */
static inline void release(struct tt_link *link)
{
    struct fake *fake = fake_of(link);
    memset(fake->slots[place_in(fake, fake->released++)], 0xee, MOST_LINK_BYTES);
}

static inline bool flushed(struct tt_link *link)
{
    return !fake_of(link)->is_busy;
}

static inline bool delivered(struct tt_link *link)
{
    return !fake_of(link)->is_busy && !fake_of(link)->is_held;
}

static const struct tt_link_ops ops = {.slot = slot,
                                       .publish = publish,
                                       .peek = peek,
                                       .fetch = fetch,
                                       .release = release,
                                       .flushed = flushed,
                                       .delivered = delivered};

static inline void open_fake(struct fake *fake, size_t slot_bytes, unsigned room)
{
    *fake =
        (struct fake){.link = {.ops = &ops, .end = fake, .slot_bytes = slot_bytes}, .room = room};
}

#endif
