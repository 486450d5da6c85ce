/* Tests of RDMA links, on a device that the tests make: whether a link calls messages delivered
 * that the device still has, and whether it fails for a peer that has left or died. */
#include <string.h>

#include "shim.h"
#include "transport/rdma/fake_device.h"

static struct fake_pair pair;

static struct tt_link *tx_of(int rank)
{
    return tt_rdma_tx(pair.ranks[rank].wire, 1);
}

static struct tt_link *rx_of(int rank)
{
    return tt_rdma_rx(pair.ranks[rank].wire, 1);
}

static bool put(int rank, int value)
{
    struct tt_link *tx = tx_of(rank);
    int *slot = tx->ops->slot(tx, sizeof *slot);
    if (!slot) return false;
    *slot = value;
    tx->ops->publish(tx, sizeof *slot, 1);
    return true;
}

/* -1: no message has come. */
static int take(int rank)
{
    struct tt_link *rx = rx_of(rank);
    struct tt_message message;
    if (rx->ops->peek(rx, &message)) return -1;
    const int value = *(const int *)message.data;
    rx->ops->release(rx);
    return value;
}

TEST(rdma_fake, messages_come_in_order_and_credits_return)
{
    REQUIRE(fake_open(&pair, 1000));
    for (int i = 0, n = 0; i < 20; i++) {
        int sent = 0;
        while (put(0, n + sent)) sent++;
        CHECK_EQ(sent, FAKE_SLOTS);
        for (int k = 0; k < sent; k++) CHECK_EQ(take(1), n++);
        CHECK_EQ(take(1), -1);
    }
    fake_close(&pair);
}

TEST(rdma_fake, what_a_device_has_not_sent_is_flushed_and_not_delivered)
{
    REQUIRE(fake_open(&pair, 1000));
    struct tt_link *tx = tx_of(0);
    CHECK(tx->ops->delivered(tx));
    fake_hold(true);
    CHECK(put(0, 7));
    CHECK(tx->ops->flushed(tx));
    CHECK(!tx->ops->delivered(tx));
    CHECK(!tx->ops->delivered(tx));
    CHECK_EQ(take(1), -1);
    fake_hold(false);
    CHECK(tx->ops->delivered(tx));
    fake_end(&pair, 0);
    CHECK_EQ(take(1), 7);
    fake_close(&pair);
}

/* Nobody would ever be done. */
TEST(rdma_fake, of_a_peer_that_is_gone_nothing_more_is_to_be_delivered)
{
    REQUIRE(fake_open(&pair, 1000));
    struct tt_link *tx = tx_of(0);
    fake_hold(true);
    CHECK(put(0, 7));
    CHECK(!tx->ops->delivered(tx));
    tt_rdma_wire_lost(pair.ranks[0].wire);
    CHECK(tx->ops->delivered(tx));
    fake_close(&pair);
}

/* The rank was away for so long that the device has given up: its end is read from the wires only
 * now. */
TEST(rdma_fake, a_peer_that_has_left_unread_is_no_failure)
{
    REQUIRE(fake_open(&pair, 1000));
    struct tt_link *tx = tx_of(0), *rx = rx_of(0);
    struct tt_message message;
    CHECK(put(1, 5));
    fake_end(&pair, 1);
    CHECK(put(0, 7));
    CHECK(!tx->ops->delivered(tx));
    fake_give_up();
    pair.ranks[0].knows_end = true;
    CHECK_EQ(tt_rdma_wire_progress(pair.ranks[0].wire), TT_OK);
    CHECK_EQ(pair.ranks[0].nlooks, 1);
    CHECK_EQ(pair.ranks[0].nfailures, 0);
    CHECK(tx->ops->delivered(tx));
    CHECK_EQ(take(0), 5); /* it came before */
    CHECK_EQ(pair.ranks[0].nmissed, 0);
    CHECK_EQ(rx->ops->peek(rx, &message), TT_IN_PROGRESS);
    CHECK_EQ(pair.ranks[0].nmissed, 1);
    CHECK(!tx->ops->slot(tx, 4));
    CHECK_EQ(pair.ranks[0].nmissed, 2);
    CHECK_EQ(pair.ranks[0].nfailures, 0);
    fake_close(&pair);
}

TEST(rdma_fake, a_peer_of_which_nothing_is_known_fails_after_a_look)
{
    REQUIRE(fake_open(&pair, 1000));
    struct tt_link *tx = tx_of(0);
    fake_end(&pair, 1);
    CHECK(put(0, 7) && put(0, 8));
    fake_give_up();
    CHECK_EQ(tt_rdma_wire_progress(pair.ranks[0].wire), TT_ERR_REMOTE);
    CHECK_EQ(pair.ranks[0].nlooks, 1);
    CHECK_EQ(pair.ranks[0].nfailures, 1);
    CHECK(strstr(pair.ranks[0].failure, "RDMA connection with rank 1 failed on fake0 port 1 "
                                        "(10.0.0.1 to 10.0.0.2): transport retry counter "
                                        "exceeded"));
    CHECK(tx->ops->delivered(tx));
    fake_close(&pair);
}
