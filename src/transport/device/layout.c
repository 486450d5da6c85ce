/* Lays out the device memory of a rank: ends, words, notes, lines, slots. A rank has no link with
 * itself, so the links of each kind are counted over the other ranks of its host. */
#include "transport/device/layout.h"

#include "transport/device/device_room.h"

static size_t round_up(size_t nbytes)
{
    return (nbytes + TT_DEVICE_CACHE_LINE - 1) / TT_DEVICE_CACHE_LINE * TT_DEVICE_CACHE_LINE;
}

struct tt_device_layout tt_device_layout(const struct tt_device_shape *shape)
{
    const uint32_t nlinked = shape->nlocal ? shape->nlocal : shape->nranks;
    const size_t nlinks = (size_t)(nlinked - 1) * shape->nchannels;
    const size_t nends = (size_t)shape->nranks * shape->nchannels * 2;
    struct tt_device_layout at = {
        .notes_stride = round_up(shape->nslots * sizeof(struct tt_device_note)),
        .lines_stride = round_up((size_t)shape->nslots * shape->line_bytes),
        .slots_stride = round_up((size_t)shape->nslots * shape->slot_bytes)};
    at.heads = round_up(nends * sizeof(struct tt_device_end));
    at.tails = at.heads + nlinks * TT_DEVICE_CACHE_LINE;
    at.notes = at.tails + nlinks * TT_DEVICE_CACHE_LINE;
    at.lines = at.notes + nlinks * at.notes_stride;
    at.slots = at.lines + nlinks * at.lines_stride;
    at.places = at.slots + nlinks * at.slots_stride;
    at.nbytes = at.places + shape->nchannels * at.slots_stride;
    return at;
}

static uint32_t half(uint32_t nbytes)
{
    const uint32_t less = nbytes / 2 / TT_LINE_BYTES * TT_LINE_BYTES;
    return less > TT_DEVICE_LEAST_BYTES ? less : TT_DEVICE_LEAST_BYTES;
}

void tt_device_fit(struct tt_device_shape *shape, size_t budget)
{
    while (tt_device_layout(shape).nbytes > budget) {
        uint32_t *larger =
            shape->slot_bytes >= shape->line_bytes ? &shape->slot_bytes : &shape->line_bytes;
        if (*larger > TT_DEVICE_LEAST_BYTES)
            *larger = half(*larger);
        else if (shape->nslots > 2)
            shape->nslots /= 2;
        else
            return;
    }
}

/* The number of the link between the owner of the memory and another rank. */
static size_t link_of(const struct tt_device_shape *shape, uint32_t owner, uint32_t other,
                      uint32_t channel)
{
    return (size_t)(other < owner ? other : other - 1) * shape->nchannels + channel;
}

struct tt_device_end tt_device_end_between(const struct tt_device_shape *shape,
                                           const struct tt_device_place *self,
                                           const struct tt_device_place *peer, uint32_t channel,
                                           uint32_t outgoing)
{
    const struct tt_device_layout at = tt_device_layout(shape);
    const struct tt_device_place *sender = outgoing ? self : peer;
    const struct tt_device_place *receiver = outgoing ? peer : self;
    char *places = sender->memory + at.places + channel * at.slots_stride;
    if (self->rank == peer->rank)
        return (struct tt_device_end){.places = outgoing ? places : NULL,
                                      .outgoing = outgoing != 0};
    const size_t in = link_of(shape, receiver->rank, sender->rank, channel);
    const size_t out = link_of(shape, sender->rank, receiver->rank, channel);
    char *theirs = receiver->memory;
    return (struct tt_device_end){
        .slots = theirs + at.slots + in * at.slots_stride,
        .lines = theirs + at.lines + in * at.lines_stride,
        .head = (uint64_t *)(theirs + at.heads + in * TT_DEVICE_CACHE_LINE),
        .notes = (struct tt_device_note *)(theirs + at.notes + in * at.notes_stride),
        .tail = (uint64_t *)(sender->memory + at.tails + out * TT_DEVICE_CACHE_LINE),
        .places = places,
        .outgoing = outgoing != 0};
}
