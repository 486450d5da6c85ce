/* Two ranks that are joined by bridges, over links that lie in the test, which also plays the
 * kernels. */
#ifndef TT_TESTS_CARRIER_TWO_RANKS_H
#define TT_TESTS_CARRIER_TWO_RANKS_H

#include <stdlib.h>
#include <string.h>

#include "carrier/fake_link.h"
#include "carrier/kernel/bridge.h"
#include "shim.h"

enum { CHANNELS = 3, SLOTS = 4, SLOT_BYTES = 256, ROOM = 3 };

static const struct tt_bridge_shape shape = {
    .nranks = 2, .nchannels = CHANNELS, .nslots = SLOTS, .slot_bytes = SLOT_BYTES};

/* ---- Two ranks ------------------------------------------------------------------------------ */

struct pair {
    struct fake links[2]; /* [the rank that sends] */
    struct tt_bridges *bridges[2];
    bool is_gone[2]; /* as the other rank knows */
    void *memory[2][2 * CHANNELS];
    struct tt_device_end ends[2][2 * CHANNELS];
};

static inline bool is_gone(const void *arg, int rank)
{
    return ((const struct pair *)arg)->is_gone[rank];
}

static const struct tt_bridge_calls bridge_calls = {.is_gone = is_gone};

static inline void pair_open(struct pair *pair, size_t link_bytes)
{
    memset(pair, 0, sizeof *pair);
    for (int r = 0; r < 2; r++) {
        open_fake(&pair->links[r], link_bytes, ROOM);
        REQUIRE(!tt_bridges_create(&pair->bridges[r], &shape, &bridge_calls, pair));
    }
}

static inline struct tt_device_end *pair_bind(struct pair *pair, int rank, int channel,
                                              bool outgoing)
{
    const struct tt_bridge_pair links = {&pair->links[rank].link, &pair->links[1 - rank].link};
    const int at = 2 * channel + outgoing;
    CHECK(!tt_bridges_has(pair->bridges[rank], 1 - rank, channel, outgoing));
    pair->memory[rank][at] = aligned_alloc(128, tt_bridge_bytes(&shape));
    memset(pair->memory[rank][at], 0, tt_bridge_bytes(&shape));
    tt_bridges_lay(&shape, outgoing, pair->memory[rank][at], NULL, &pair->ends[rank][at]);
    CHECK(!tt_bridges_has(pair->bridges[rank], 1 - rank, channel, outgoing));
    CHECK(!tt_bridges_bind(pair->bridges[rank], 1 - rank, channel, &links, &pair->ends[rank][at],
                           false));
    CHECK(tt_bridges_has(pair->bridges[rank], 1 - rank, channel, outgoing));
    return &pair->ends[rank][at];
}

static inline void pair_close(struct pair *pair)
{
    for (int r = 0; r < 2; r++) {
        tt_bridges_destroy(pair->bridges[r]);
        for (int i = 0; i < 2 * CHANNELS; i++) free(pair->memory[r][i]);
    }
}

/* Until nothing moves any more. */
static inline void pair_move(struct pair *pair)
{
    for (bool moved = true; moved;) {
        moved = false;
        for (int r = 0; r < 2; r++) {
            const tt_status status = tt_bridges_move(pair->bridges[r]);
            CHECK(status >= 0);
            moved = moved || status == TT_OK;
        }
    }
}

/* ---- Kernels -------------------------------------------------------------------------------- */

static inline char byte_of(uint32_t number, int channel, size_t i)
{
    return (char)(number * 7 + (uint32_t)channel * 31 + i);
}

static inline size_t length_of(uint32_t number)
{
    return (size_t)number * 37 % (SLOT_BYTES + 1);
}

/* As a kernel sends. False: no slot is free. */
static inline bool kernel_send(struct tt_device_end *end, int channel)
{
    end->known_tail = (uint32_t)__atomic_load_n(end->tail, __ATOMIC_ACQUIRE);
    if (end->count - end->known_tail > SLOTS - 1) return false;
    const uint32_t at = end->count % SLOTS;
    const size_t nbytes = length_of(end->count);
    for (size_t i = 0; i < nbytes; i++)
        end->slots[at * SLOT_BYTES + i] = byte_of(end->count, channel, i);
    const uint64_t head = tt_device_head(end->count + 1, 0xabc);
    end->notes[at] = (struct tt_device_note){.head = head, .nbytes = end->count, .length = nbytes};
    __atomic_store_n(end->head, head, __ATOMIC_RELEASE);
    end->count++;
    return true;
}

/* As a kernel receives; releases if `releases`. False: no message has come. */
static inline bool kernel_take(struct tt_device_end *end, int channel, bool releases)
{
    const uint32_t head = (uint32_t)__atomic_load_n(end->head, __ATOMIC_ACQUIRE);
    if (head - end->count - 1 >= SLOTS) return false;
    const uint32_t at = end->count % SLOTS;
    CHECK_EQ(end->notes[at].head, tt_device_head(end->count + 1, 0xabc));
    CHECK_EQ(end->notes[at].nbytes, end->count);
    CHECK_EQ(end->notes[at].reference, 0);
    bool same = true;
    for (size_t i = 0; i < length_of(end->count); i++)
        same = same && end->slots[at * SLOT_BYTES + i] == byte_of(end->count, channel, i);
    CHECK(same);
    end->count++;
    if (releases) __atomic_store_n(end->tail, end->count, __ATOMIC_RELEASE);
    return true;
}

#endif
