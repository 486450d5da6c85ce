/* Where everything lies in the device memory of a rank. Pure functions. */
#ifndef TT_TRANSPORT_DEVICE_LAYOUT_H
#define TT_TRANSPORT_DEVICE_LAYOUT_H

#include <stddef.h>
#include <stdint.h>

#include "transport/device/end.h"

/* Bytes of a cache line of a GPU: words with different writers do not share one. */
enum { TT_DEVICE_CACHE_LINE = 128 };

/* What all ranks of a communicator have in common, but for nlocal. */
struct tt_device_shape {
    uint32_t nranks; /* that have ends */
    uint32_t nlocal; /* of the rank's host, which have links; 0: all */
    uint32_t nchannels;
    uint32_t nslots, slot_bytes, line_bytes;
};

/* Offsets from the beginning of the memory, and the distance from one link to the next. The links
 * that a rank receives by have lines, slots, notes and heads; those that it sends by have tails.
 * Each channel has places, as many bytes as a link has slots. */
struct tt_device_layout {
    size_t ends;
    size_t heads, tails;
    size_t notes, notes_stride;
    size_t lines, lines_stride;
    size_t slots, slots_stride;
    size_t places; /* those of a channel are slots_stride bytes */
    size_t nbytes;
};

struct tt_device_layout tt_device_layout(const struct tt_device_shape *shape);

/* Makes slots and lines smaller, then fewer, until the memory of a rank is at most `budget` or they
 * are the least that device_room.h allows. */
void tt_device_fit(struct tt_device_shape *shape, size_t budget);

/* A rank as another one, or itself, sees it. */
struct tt_device_place {
    uint32_t rank; /* its number among those that have links */
    char *memory;
};

/* The end at `self` of the link on the channel from or to the peer, or, where the peer is the same
 * rank, the outgoing one, which has no link; the addresses are those that self's GPU uses.
 * `reaches` and `system` are 0. */
struct tt_device_end tt_device_end_between(const struct tt_device_shape *shape,
                                           const struct tt_device_place *self,
                                           const struct tt_device_place *peer, uint32_t channel,
                                           uint32_t outgoing);

#endif
