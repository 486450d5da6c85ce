/* Bridges between two ranks over RDMA links without a device; the test plays the kernels. */
#include <stdlib.h>
#include <string.h>

#include "carrier/kernel/bridge.h"
#include "shim.h"
#include "transport/rdma/fake_device.h"

enum { SLOTS = 4, SLOT_BYTES = 256, LINK_BYTES = 100, CHANNEL = 1, LENGTH = 200 };

static const struct tt_bridge_shape shape = {
    .nranks = 2, .nchannels = 1, .nslots = SLOTS, .slot_bytes = SLOT_BYTES};

/* Two ranks, each with an end that sends and one that receives. */
static struct {
    struct fake_pair pair;
    struct tt_bridges *bridges[2];
    void *memory[2][2];
    struct tt_device_end ends[2][2]; /* [rank][outgoing] */
    bool is_gone[2];                 /* as the other rank knows */
} all;

static bool is_gone(const void *arg, int rank)
{
    (void)arg;
    return all.is_gone[rank];
}

static const struct tt_bridge_calls calls = {.is_gone = is_gone};

static bool open_rank(int rank)
{
    struct tt_rdma_wire *wire = all.pair.ranks[rank].wire;
    const struct tt_bridge_pair links = {tt_rdma_tx(wire, CHANNEL), tt_rdma_rx(wire, CHANNEL)};
    if (tt_bridges_create(&all.bridges[rank], &shape, &calls, NULL)) return false;
    for (int outgoing = 0; outgoing < 2; outgoing++) {
        void *memory = aligned_alloc(128, tt_bridge_bytes(&shape));
        all.memory[rank][outgoing] = memory;
        if (!memory) return false;
        memset(memory, 0, tt_bridge_bytes(&shape));
        tt_bridges_lay(&shape, outgoing, memory, NULL, &all.ends[rank][outgoing]);
        if (tt_bridges_bind(all.bridges[rank], 1 - rank, 0, &links, &all.ends[rank][outgoing],
                            false))
            return false;
    }
    return true;
}

static bool open_all(void)
{
    memset(&all, 0, sizeof all);
    return fake_open(&all.pair, LINK_BYTES) && open_rank(0) && open_rank(1);
}

static void end_rank(int rank)
{
    tt_bridges_destroy(all.bridges[rank]);
    all.bridges[rank] = NULL;
    fake_end(&all.pair, rank);
}

static void close_all(void)
{
    for (int r = 0; r < 2; r++) {
        tt_bridges_destroy(all.bridges[r]);
        for (int i = 0; i < 2; i++) free(all.memory[r][i]);
    }
    fake_close(&all.pair);
}

/* As proxies do, until nothing moves. */
static void move(void)
{
    for (bool moved = true; moved;) {
        moved = false;
        for (int r = 0; r < 2; r++) {
            if (!all.bridges[r]) continue;
            const tt_status status = tt_bridges_move(all.bridges[r]);
            CHECK(status >= 0);
            CHECK_EQ(tt_rdma_wire_progress(all.pair.ranks[r].wire), TT_OK);
            moved = moved || status == TT_OK;
        }
    }
}

/* As a kernel sends. False: no slot is free. */
static bool kernel_send(int rank)
{
    struct tt_device_end *end = &all.ends[rank][1];
    end->known_tail = (uint32_t)*end->tail;
    if (end->count - end->known_tail > SLOTS - 1) return false;
    const uint32_t at = end->count % SLOTS;
    memset(end->slots + at * SLOT_BYTES, (int)(end->count + (uint32_t)rank), LENGTH);
    const uint64_t head = tt_device_head(end->count + 1, 0xabc);
    end->notes[at] = (struct tt_device_note){.head = head, .nbytes = LENGTH, .length = LENGTH};
    *end->head = head;
    end->count++;
    return true;
}

/* As a kernel receives and releases. False: no message has come. */
static bool kernel_take(int rank)
{
    struct tt_device_end *end = &all.ends[rank][0];
    if ((uint32_t)*end->head - end->count - 1 >= SLOTS) return false;
    const uint32_t at = end->count % SLOTS;
    CHECK_EQ(end->notes[at].length, LENGTH);
    for (int i = 0; i < LENGTH; i++)
        CHECK_EQ(end->slots[at * SLOT_BYTES + (uint32_t)i],
                 (char)(end->count + (uint32_t)(1 - rank)));
    end->count++;
    *end->tail = end->count;
    return true;
}

static bool has_sent(int rank)
{
    tt_bridges_mark(all.bridges[rank], TT_BRIDGE_COLLECTIVES);
    return tt_bridges_have_sent(all.bridges[rank], TT_BRIDGE_COLLECTIVES);
}

TEST(rdma_fake, bridges_move_messages_both_ways_over_slots_shorter_than_theirs)
{
    enum { MESSAGES = 50 };
    REQUIRE(open_all());
    int sent[2] = {0}, taken[2] = {0};
    for (int turn = 0; turn < 1000 && taken[0] + taken[1] < 2 * MESSAGES; turn++) {
        for (int r = 0; r < 2; r++) {
            while (sent[r] < MESSAGES && kernel_send(r)) sent[r]++;
            while (kernel_take(r)) taken[r]++;
        }
        move();
    }
    CHECK_EQ(taken[0], MESSAGES);
    CHECK_EQ(taken[1], MESSAGES);
    CHECK(has_sent(0) && has_sent(1));
    CHECK(!tt_bridges_have_work(all.bridges[0]) && !tt_bridges_have_work(all.bridges[1]));
    close_all();
}

/* A call that is done may be followed by the end of the process, and the device drops what it has
 * then. */
TEST(rdma_fake, what_bridges_have_sent_comes_though_the_process_ends)
{
    REQUIRE(open_all());
    move(); /* the first credits */
    fake_hold(true);
    CHECK(kernel_send(0));
    move();
    CHECK(!has_sent(0));
    CHECK(tt_bridges_have_work(all.bridges[0]));
    fake_hold(false);
    CHECK(has_sent(0));
    end_rank(0);
    all.is_gone[0] = true;
    tt_rdma_wire_lost(all.pair.ranks[1].wire);
    move();
    CHECK(kernel_take(1));
    CHECK(!kernel_take(1));
    CHECK(has_sent(1)); /* the credit is for nobody */
    CHECK_EQ(all.pair.ranks[1].nfailures, 0);
    close_all();
}

/* Its proxy was held up for longer than the device tries. */
TEST(rdma_fake, a_rank_that_is_gone_fails_no_idle_rank_whose_device_has_given_it_up)
{
    REQUIRE(open_all());
    move();
    CHECK(kernel_send(0));
    move();
    CHECK(kernel_take(1)); /* the credit is not sent yet */
    CHECK(kernel_send(1));
    end_rank(0);
    CHECK(tt_bridges_move(all.bridges[1]) >= 0);
    fake_give_up();
    all.is_gone[0] = all.pair.ranks[1].knows_end = true;
    CHECK(tt_bridges_move(all.bridges[1]) >= 0);
    move();
    CHECK_EQ(all.pair.ranks[1].nfailures, 0);
    CHECK_EQ(all.pair.ranks[1].nlooks, 1);
    CHECK(has_sent(1));
    CHECK(!tt_bridges_have_work(all.bridges[1]));
    close_all();
}
