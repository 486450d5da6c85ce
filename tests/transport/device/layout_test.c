/* Where things lie in the device memory of ranks. No GPU. */
#include "transport/device/layout.h"

#include <stdlib.h>

#include "shim.h"
#include "transport/device/device_room.h"

enum { MOST = 8 };

struct range {
    uintptr_t begin, end;
    bool is_counter;
};

static int compare(const void *a, const void *b)
{
    const struct range *x = a, *y = b;
    return x->begin < y->begin ? -1 : x->begin > y->begin;
}

struct ranges {
    struct range at[MOST * MOST * 4 * 8];
    size_t n;
};

static void add(struct ranges *ranges, const void *begin, size_t nbytes, bool is_counter)
{
    ranges->at[ranges->n++] =
        (struct range){(uintptr_t)begin, (uintptr_t)begin + nbytes, is_counter};
}

static uintptr_t line_of(uintptr_t address)
{
    return address / TT_DEVICE_CACHE_LINE;
}

/* All ranges of all links, seen by their senders and their receivers, are the same and disjoint. */
static void check_shape(const struct tt_device_shape *shape)
{
    static struct ranges all;
    const struct tt_device_layout at = tt_device_layout(shape);
    struct tt_device_place places[MOST];
    all.n = 0;
    for (uint32_t r = 0; r < shape->nranks; r++) {
        places[r] = (struct tt_device_place){r, (char *)((uintptr_t)(r + 1) << 40)};
        add(&all, places[r].memory + at.ends,
            (size_t)shape->nranks * shape->nchannels * 2 * sizeof(struct tt_device_end), false);
        add(&all, places[r].memory + at.nbytes, 1, false);
    }
    for (uint32_t i = 0; i < shape->nranks * shape->nranks * shape->nchannels; i++) {
        const struct tt_device_place *from = &places[i / shape->nchannels / shape->nranks];
        const struct tt_device_place *to = &places[i / shape->nchannels % shape->nranks];
        const uint32_t channel = i % shape->nchannels;
        if (from == to) {
            const struct tt_device_end own = tt_device_end_between(shape, from, to, channel, 1);
            CHECK(own.outgoing && !own.slots && !own.lines && !own.head && !own.tail);
            CHECK_EQ((uintptr_t)own.places % 16, 0);
            CHECK(!tt_device_end_between(shape, from, to, channel, 0).places);
            add(&all, own.places, (size_t)shape->nslots * shape->slot_bytes, false);
            continue;
        }
        const struct tt_device_end a = tt_device_end_between(shape, from, to, channel, 1);
        const struct tt_device_end b = tt_device_end_between(shape, to, from, channel, 0);
        CHECK(a.slots == b.slots && a.lines == b.lines && a.head == b.head && a.tail == b.tail &&
              a.notes == b.notes);
        CHECK(a.outgoing == 1 && b.outgoing == 0);
        CHECK(a.places == b.places);
        CHECK(a.places == tt_device_end_between(shape, from, from, channel, 1).places);
        CHECK_EQ((uintptr_t)a.slots % 16 + (uintptr_t)a.lines % 16 + (uintptr_t)a.notes % 16, 0);
        add(&all, a.slots, (size_t)shape->nslots * shape->slot_bytes, false);
        add(&all, a.lines, (size_t)shape->nslots * shape->line_bytes, false);
        add(&all, a.notes, shape->nslots * sizeof *a.notes, false);
        add(&all, a.head, sizeof *a.head, true);
        add(&all, a.tail, sizeof *a.tail, true);
    }
    qsort(all.at, all.n, sizeof *all.at, compare);
    for (size_t i = 0; i + 1 < all.n; i++) {
        const struct range *one = &all.at[i], *next = &all.at[i + 1];
        CHECK(one->end <= next->begin);
        if (one->is_counter || next->is_counter)
            CHECK(line_of(one->end - 1) != line_of(next->begin));
    }
}

TEST(layout, the_parts_of_all_links_are_apart_and_both_ends_mean_the_same)
{
    static const uint32_t sizes[] = {16, 48, 1024, 65536};
    for (uint32_t nranks = 1; nranks <= MOST; nranks++)
        for (uint32_t nchannels = 1; nchannels <= 4; nchannels++)
            for (uint32_t i = 0; i < 16; i++)
                check_shape(&(struct tt_device_shape){.nranks = nranks,
                                                      .nchannels = nchannels,
                                                      .nslots = 2u << i % 3,
                                                      .slot_bytes = sizes[i % 4],
                                                      .line_bytes = sizes[i / 4]});
}

TEST(layout, memory_is_what_the_formula_says)
{
    const struct tt_device_shape shape = {
        .nranks = 8, .nchannels = 9, .nslots = 8, .slot_bytes = 65536, .line_bytes = 16384};
    CHECK_EQ(tt_device_layout(&shape).nbytes, 7 * 9 * (8 * (65536 + 16384) + 256 + 256) +
                                                  8 * 9 * 128 /* notes: 192, in lines */
                                                  + 9 * 8 * 65536);
}

TEST(layout, many_ranks_and_channels_get_smaller_slots_and_stay_within_the_budget)
{
    size_t before = SIZE_MAX;
    for (uint32_t nranks = 1; nranks <= 512; nranks *= 2) {
        struct tt_device_shape shape = {.nranks = nranks,
                                        .nchannels = 9,
                                        .nslots = 4,
                                        .slot_bytes = 128 << 10,
                                        .line_bytes = 32 << 10};
        tt_device_fit(&shape, TT_DEVICE_BUDGET);
        CHECK(tt_device_layout(&shape).nbytes <= TT_DEVICE_BUDGET);
        CHECK(shape.slot_bytes >= TT_DEVICE_LEAST_BYTES && shape.slot_bytes % 16 == 0);
        CHECK(shape.line_bytes >= TT_DEVICE_LEAST_BYTES && shape.line_bytes % 16 == 0);
        CHECK(shape.nslots >= 2 && (shape.nslots & (shape.nslots - 1)) == 0);
        CHECK(nranks > 16 || shape.slot_bytes == 128 << 10);
        CHECK(shape.slot_bytes <= before);
        before = shape.slot_bytes;
    }
}

TEST(layout, what_cannot_fit_is_the_least_there_is)
{
    struct tt_device_shape shape = {.nranks = 10000,
                                    .nchannels = 65,
                                    .nslots = 64,
                                    .slot_bytes = 1000000 / 16 * 16,
                                    .line_bytes = 512};
    tt_device_fit(&shape, TT_DEVICE_BUDGET);
    CHECK_EQ(shape.nslots, 2);
    CHECK_EQ(shape.slot_bytes, TT_DEVICE_LEAST_BYTES);
    CHECK_EQ(shape.line_bytes, 512);
}
