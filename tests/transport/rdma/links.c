/* Tests of RDMA links. Needs devices. */
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/clock.h"
#include "transport/rdma/pair.h"
#include "shim.h"

static const size_t sizes[] = {0,   1,    8,    32,   200,   223,   224,   225,  256,
                               257, 4063, 4064, 4065, 12345, 16384, 19999, 20000};
enum { NSIZES = sizeof sizes / sizeof *sizes };

TEST(rdma_links, carry_messages_of_every_size_on_every_channel_both_ways)
{
    if (pair_unable()) SKIP(pair_unable());
    struct pair pair;
    REQUIRE(pair_open(&pair, NULL, NULL));
    REQUIRE(pair_connect(&pair));
    for (unsigned i = 0; i < 4 * NSIZES && !tt_test_failed(); i++)
        for (int c = 0; c < TOGETHER_CHANNELS; c++)
            CHECK_EQ(pair_exchange(&pair, (int)(i & 1), c, sizes[i % NSIZES], 100 * i + 1), TT_OK);
    pair_close(&pair);
}

TEST(rdma_links, hold_as_many_messages_as_they_have_slots)
{
    if (pair_unable()) SKIP(pair_unable());
    struct pair pair;
    REQUIRE(pair_open(&pair, NULL, NULL));
    REQUIRE(pair_connect(&pair));
    struct tt_link *tx = tt_rdma_tx(pair.wires[0], 1), *rx = tt_rdma_rx(pair.wires[1], 1);
    unsigned sent = 0, got = 0;
    for (int turn = 0; turn < 20 && !tt_test_failed(); turn++) {
        const int64_t deadline = tt_deadline_ns(60000);
        while (sent - got < PAIR_SLOTS && !tt_expired(deadline)) {
            void *slot = tx->ops->slot(tx, sizes[sent % NSIZES]);
            if (!slot) continue;
            pair_fill(slot, sizes[sent % NSIZES], sent);
            tx->ops->publish(tx, sizes[sent % NSIZES], sent);
            sent++;
        }
        CHECK_EQ(sent - got, PAIR_SLOTS);
        for (int i = 0; i < 100; i++) {
            CHECK(!tt_rdma_wire_progress(pair.wires[0]));
            CHECK(tx->ops->slot(tx, 1) == NULL);
        }
        struct tt_message message;
        while (got < sent && !tt_expired(deadline)) {
            if (rx->ops->peek(rx, &message)) continue;
            CHECK(message.signature == got && message.nbytes == sizes[got % NSIZES]);
            CHECK(pair_same(message.data, message.nbytes, got));
            rx->ops->release(rx);
            got++;
        }
        CHECK_EQ(sent, got);
    }
    CHECK(tt_rdma_wire_flushed(pair.wires[1]));
    pair_close(&pair);
}

/* Rank 1 answers each message before rank 0 looks at any answer: the credits come in answers that
 * rank 0 does not take while it waits for credits. */
TEST(rdma_links, learn_credits_from_messages_that_nobody_has_looked_at)
{
    if (pair_unable()) SKIP(pair_unable());
    struct pair pair;
    REQUIRE(pair_open(&pair, NULL, NULL));
    REQUIRE(pair_connect(&pair));
    struct tt_link *tx = tt_rdma_tx(pair.wires[0], 0), *rx = tt_rdma_rx(pair.wires[1], 0);
    struct tt_link *back = tt_rdma_tx(pair.wires[1], 0);
    const int64_t deadline = tt_deadline_ns(60000);
    int sent = 0, got = 0;
    while (sent < 2 * PAIR_SLOTS && !tt_expired(deadline)) {
        struct tt_message message;
        if (tx->ops->slot(tx, 8)) {
            tx->ops->publish(tx, 8, 1);
            sent++;
        }
        if (rx->ops->peek(rx, &message) == TT_OK) {
            rx->ops->release(rx);
            if (got++ < PAIR_SLOTS && back->ops->slot(back, 8)) back->ops->publish(back, 8, 2);
        }
    }
    CHECK_EQ(sent, 2 * PAIR_SLOTS);
    pair_close(&pair);
}

/* Whether the descriptor is readable, within timeout_ms. */
static bool is_readable(int epoll, int timeout_ms)
{
    struct epoll_event event;
    return epoll_wait(epoll, &event, 1, timeout_ms) == 1;
}

TEST(rdma_links, wake_who_sleeps_until_a_message_comes)
{
    if (pair_unable()) SKIP(pair_unable());
    struct pair pair;
    struct tt_message message;
    REQUIRE(pair_open(&pair, NULL, NULL));
    REQUIRE(pair_connect(&pair));
    const int epoll = epoll_create1(EPOLL_CLOEXEC);
    REQUIRE(epoll >= 0);
    CHECK_EQ(tt_rdma_watch(pair.rdma[1], epoll, 1), TT_OK);
    struct tt_link *tx = tt_rdma_tx(pair.wires[0], 0), *rx = tt_rdma_rx(pair.wires[1], 0);
    for (unsigned i = 0; i < 20 && !tt_test_failed(); i++) {
        while (!tt_rdma_wire_arm(pair.wires[1])) continue; /* credits */
        const int64_t deadline = tt_deadline_ns(60000);
        while (!tx->ops->slot(tx, 8) && !tt_expired(deadline)) sched_yield();
        tx->ops->publish(tx, 8, i);
        CHECK(is_readable(epoll, 60000));
        while (rx->ops->peek(rx, &message) && !tt_expired(deadline)) {
            tt_rdma_clear_notification(pair.rdma[1]);
            if (tt_rdma_wire_arm(pair.wires[1])) CHECK(is_readable(epoll, 60000));
        }
        CHECK_EQ(message.signature, i);
        rx->ops->release(rx);
    }
    close(epoll);
    pair_close(&pair);
}

/* ---- Two threads ---------------------------------------------------------------------------- */

struct flood {
    struct pair *pair;
    int rank;
    unsigned count, seed;
    int64_t deadline_ns;
    unsigned sent[TOGETHER_CHANNELS], got[TOGETHER_CHANNELS], wrong;
};

static size_t flood_bytes(const struct flood *flood, int from, int channel, unsigned number)
{
    unsigned state = flood->seed + (unsigned)from * 7919 + (unsigned)channel * 104729 + number;
    state = state * 1103515245 + 12345;
    return sizes[(state >> 16) % NSIZES];
}

static bool flood_done(const struct flood *flood)
{
    for (int c = 0; c < TOGETHER_CHANNELS; c++)
        if (flood->sent[c] < flood->count || flood->got[c] < flood->count) return false;
    return true;
}

static void flood_channel(struct flood *flood, int c)
{
    struct tt_rdma_wire *wire = flood->pair->wires[flood->rank];
    struct tt_link *tx = tt_rdma_tx(wire, c), *rx = tt_rdma_rx(wire, c);
    struct tt_message message;
    const size_t nbytes = flood_bytes(flood, flood->rank, c, flood->sent[c]);
    void *slot = flood->sent[c] < flood->count ? tx->ops->slot(tx, nbytes) : NULL;
    if (slot) {
        pair_fill(slot, nbytes, flood->sent[c]);
        tx->ops->publish(tx, nbytes, flood->sent[c]++);
    }
    if (flood->got[c] == flood->count || rx->ops->peek(rx, &message)) return;
    if (message.nbytes != flood_bytes(flood, 1 - flood->rank, c, flood->got[c]) ||
        message.signature != flood->got[c] ||
        !pair_same(message.data, message.nbytes, flood->got[c]))
        flood->wrong++;
    flood->got[c]++;
    rx->ops->release(rx);
}

static void *run_flood(void *argument)
{
    struct flood *flood = argument;
    while (!flood_done(flood) && !tt_expired(flood->deadline_ns)) {
        for (int c = 0; c < TOGETHER_CHANNELS; c++) flood_channel(flood, c);
        if (tt_rdma_wire_progress(flood->pair->wires[flood->rank])) break;
        sched_yield();
    }
    return NULL;
}

static void flood_over(const char *low, const char *high, int nroutes)
{
    struct pair pair;
    struct flood floods[2];
    pthread_t threads[2];
    const char *text = getenv("TUTTI_TEST_SEED");
    const unsigned seed = text ? (unsigned)atoi(text) : (unsigned)tt_now_ns();
    printf("TUTTI_TEST_SEED=%u\n", seed);
    REQUIRE(pair_open(&pair, low, high));
    REQUIRE(pair_connect(&pair));
    CHECK_EQ(pair.wires[0]->nroutes, nroutes);
    for (int r = 0; r < 2; r++)
        floods[r] = (struct flood){.pair = &pair,
                                   .rank = r,
                                   .count = 300,
                                   .seed = seed,
                                   .deadline_ns = tt_deadline_ns(120000)};
    for (int r = 0; r < 2; r++) REQUIRE(!pthread_create(&threads[r], NULL, run_flood, &floods[r]));
    for (int r = 0; r < 2; r++) pthread_join(threads[r], NULL);
    for (int r = 0; r < 2; r++) {
        CHECK_EQ(floods[r].wrong, 0);
        for (int c = 0; c < TOGETHER_CHANNELS; c++) CHECK_EQ(floods[r].got[c], 300);
        CHECK_STR(tt_fabric_failure_text(pair.all.fabrics[r]), "");
    }
    pair_close(&pair);
}

static int ndevices(void)
{
    int n;
    const struct tt_verbs *verbs = tt_verbs_load();
    struct ibv_device **list = verbs->get_device_list(&n);
    verbs->free_device_list(list);
    return n;
}

TEST(rdma_links, keep_the_order_between_two_threads_over_one_route)
{
    if (pair_unable()) SKIP(pair_unable());
    if (ndevices() < 2) SKIP("needs two RDMA devices");
    flood_over("=rxe0", "=rxe1", 1);
}

TEST(rdma_links, keep_the_order_over_all_routes)
{
    if (pair_unable()) SKIP(pair_unable());
    flood_over("", "", ndevices());
}

TEST(rdma_links, keep_the_order_over_two_routes_between_four_devices)
{
    if (pair_unable()) SKIP(pair_unable());
    if (ndevices() < 4) SKIP("needs four RDMA devices");
    flood_over("=rxe0,rxe1", "=rxe2,rxe3", 2);
}
