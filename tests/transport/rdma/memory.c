/* Tests of sending from registered and from callers' memory over RDMA. Needs devices. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/config.h"
#include "transport/rdma/pair.h"
#include "shim.h"

enum { NBYTES = 300000 };

/* Sends a piece of `memory` by reference and compares what comes; takes it back when drained. */
static void send_direct(struct pair *pair, const char *memory, size_t nbytes, unsigned seed)
{
    struct tt_link *tx = tt_rdma_tx(pair->wires[0], 0), *rx = tt_rdma_rx(pair->wires[1], 0);
    const int64_t deadline = tt_deadline_ns(60000);
    struct tt_message message;
    CHECK(tx->ops->reaches(tx, &no_memory, memory, nbytes));
    while (!tx->ops->publish_direct(tx, &no_memory, memory, nbytes, seed))
        if (tt_expired(deadline)) break;
    while (rx->ops->peek(rx, &message) == TT_IN_PROGRESS)
        if (tt_expired(deadline)) return tt_test_fail(__FILE__, __LINE__, "nothing came");
    CHECK_EQ(message.nbytes, nbytes);
    CHECK(!memcmp(message.data, memory, nbytes));
    rx->ops->release(rx);
    while (!tx->ops->drained(tx) && !tt_expired(deadline)) continue;
    CHECK(tx->ops->drained(tx));
}

TEST(rdma_memory, windows_are_sent_in_place)
{
    if (pair_unable()) SKIP(pair_unable());
    struct pair pair;
    void *memory;
    REQUIRE(pair_open(&pair, "", ""));
    REQUIRE(pair_connect(&pair));
    REQUIRE(!tt_window_create(&memory, NBYTES));
    for (unsigned i = 0; i < 30 && !tt_test_failed(); i++) {
        const size_t offset = i * 7919 % (NBYTES - PAIR_SLOT_BYTES);
        pair_fill(memory, NBYTES, i);
        send_direct(&pair, (char *)memory + offset, i ? PAIR_SLOT_BYTES - i : PAIR_SLOT_BYTES, i);
    }
    CHECK_EQ(pair.rdma[0]->pinned, NBYTES / 4096 * 4096 + 4096);
    CHECK(!tt_window_free(memory));
    pair_close(&pair);
}

/* What is still to be sent would be sent as the caller leaves it. */
TEST(rdma_memory, is_not_read_any_more_once_it_was_given_back)
{
    if (pair_unable()) SKIP(pair_unable());
    if (!getenv("RDMA_VM"))
        SKIP("would break the network of this host; tests/transport/rdma/suite.sh runs "
             "this in a virtual machine");
    struct pair pair;
    struct tt_message message;
    void *memory;
    setenv("TUTTI_RDMA_TIMEOUT", "14", 1); /* sent again after 67 ms */
    REQUIRE(pair_open(&pair, "=rxe0", "=rxe1"));
    REQUIRE(pair_connect(&pair));
    REQUIRE(!tt_window_create(&memory, NBYTES));
    send_direct(&pair, memory, 10000, 1);
    struct tt_link *tx = tt_rdma_tx(pair.wires[0], 0), *rx = tt_rdma_rx(pair.wires[1], 0);
    REQUIRE(pair_shell("ip link set port1 down"));
    pair_fill(memory, NBYTES, 2);
    CHECK(tx->ops->publish_direct(tx, &no_memory, memory, 10000, 2));
    tt_rdma_wire_give_back(pair.wires[0], tt_deadline_ns(20));
    CHECK(tx->ops->drained(tx));
    pair_fill(memory, NBYTES, 3);
    pair_shell("ip link set port1 up");
    const int64_t deadline = tt_deadline_ns(1000);
    while (!tt_expired(deadline))
        if (rx->ops->peek(rx, &message) == TT_OK) CHECK(pair_same(message.data, 10000, 2));
    CHECK(!tt_window_free(memory));
    pair_close(&pair);
    unsetenv("TUTTI_RDMA_TIMEOUT");
    tt_config_reload();
}

TEST(rdma_memory, of_the_caller_goes_through_slots)
{
    if (pair_unable()) SKIP(pair_unable());
    struct pair pair;
    static char memory[PAIR_SLOT_BYTES];
    REQUIRE(pair_open(&pair, NULL, NULL));
    REQUIRE(pair_connect(&pair));
    struct tt_link *tx = tt_rdma_tx(pair.wires[0], 0);
    CHECK(!tx->ops->reaches(tx, &no_memory, memory, sizeof memory));
    CHECK(!tx->ops->publish_direct(tx, &no_memory, memory, sizeof memory, 1));
    pair_close(&pair);
}

/* The kernel tends to map the new window where the freed one was. */
TEST(rdma_memory, that_was_freed_and_came_back_is_never_sent_stale)
{
    if (pair_unable()) SKIP(pair_unable());
    struct pair pair;
    REQUIRE(pair_open(&pair, NULL, NULL));
    REQUIRE(pair_connect(&pair));
    int again = 0;
    void *before = NULL, *memory;
    for (unsigned i = 0; i < 2 * TT_RDMA_MAX_WINDOWS && !tt_test_failed(); i++) {
        REQUIRE(!tt_window_create(&memory, NBYTES));
        again += memory == before;
        pair_fill(memory, NBYTES, i);
        send_direct(&pair, memory, PAIR_SLOT_BYTES, i);
        before = memory;
        CHECK(!tt_window_free(memory));
        CHECK(pair.rdma[0]->pinned <= 2 * NBYTES);
    }
    CHECK(again > 0);
    pair_close(&pair);
}

TEST(rdma_memory, more_windows_than_the_cache_holds_are_all_sent_right)
{
    if (pair_unable()) SKIP(pair_unable());
    enum { N = TT_RDMA_MAX_WINDOWS + 8 };
    struct pair pair;
    void *windows[N];
    REQUIRE(pair_open(&pair, NULL, NULL));
    REQUIRE(pair_connect(&pair));
    for (unsigned i = 0; i < N; i++) {
        REQUIRE(!tt_window_create(&windows[i], 8192));
        pair_fill(windows[i], 8192, i);
    }
    for (unsigned i = 0; i < 2 * N && !tt_test_failed(); i++)
        send_direct(&pair, windows[i % N], 8192, i);
    CHECK_EQ(pair.rdma[0]->pinned, TT_RDMA_MAX_WINDOWS * 8192);
    for (unsigned i = 0; i < N; i++) CHECK(!tt_window_free(windows[i]));
    pair_close(&pair);
}

TEST(rdma_memory, of_a_gpu_is_refused_where_the_device_cannot)
{
    if (pair_unable()) SKIP(pair_unable());
    struct pair pair;
    REQUIRE(pair_open(&pair, NULL, NULL));
    const struct tt_dmabuf none = {.fd = memfd_create("no-dma-buf", MFD_CLOEXEC), .nbytes = 4096};
    for (int i = 0; i < 2; i++) {
        struct ibv_mr *region = NULL;
        CHECK_EQ(tt_rdma_register_dmabuf(pair.rdma[0], 0, &none, &region), TT_ERR_USAGE);
        CHECK(strstr(tt_last_error(), "does not support that"));
        CHECK(strstr(tt_last_error(), pair.rdma[0]->devices[0].name));
        CHECK(!region);
        CHECK(pair.rdma[0]->devices[0].no_dmabuf);
    }
    close(none.fd);
    pair_close(&pair);
}
