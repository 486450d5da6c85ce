/* Tests of failures while RDMA links use memory of GPUs in place. Needs devices. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/config.h"
#include "transport/rdma/dmabuf_verbs.h"
#include "transport/rdma/gpus.h"
#include "shim.h"

static const char machine_only[] =
    "would break the network of this host; tests/transport/rdma/suite.sh runs "
    "this in a virtual machine";

/* Rank 0 refers to all of its memory; rank 1 has asked for the first bytes. */
static const struct move whole = {.nbytes = GPU_BYTES, .seed = 5};

static bool begin(struct gpus *gpus)
{
    struct tt_link *rx = tt_rdma_rx(gpus->pair.wires[1], 0);
    struct tt_message message;
    return !gpus_publish(gpus, &whole) && !gpus_await(rx, &message) &&
           rx->ops->gpus->fetch(rx, gpu_at(&gpus->of[1], 0)) == TT_IN_PROGRESS;
}

/* Fetches until the status is another one, for some seconds. */
static tt_status fetch_on(struct gpus *gpus, int64_t timeout_ms)
{
    struct tt_link *rx = tt_rdma_rx(gpus->pair.wires[1], 0);
    const int64_t deadline = tt_deadline_ns(timeout_ms);
    tt_status status = TT_IN_PROGRESS;
    while (status == TT_IN_PROGRESS && !tt_expired(deadline)) {
        status = rx->ops->gpus->fetch(rx, gpu_at(&gpus->of[1], 0));
        if (status == TT_IN_PROGRESS && tt_rdma_wire_progress(gpus->pair.wires[1]))
            status = TT_ERR_REMOTE;
    }
    return status;
}

static void check_text(const struct gpus *gpus, const char *const *words)
{
    const char *text = tt_fabric_failure_text(gpus->pair.all.fabrics[1]);
    for (; *words; words++) CHECK_MESSAGE(strstr(text, *words), "no \"%s\" in: %s", *words, text);
}

static void set_timeout(const char *value)
{
    if (value)
        setenv("TUTTI_RDMA_TIMEOUT", value, 1);
    else
        unsetenv("TUTTI_RDMA_TIMEOUT");
    tt_config_reload();
}

TEST(rdma_gpu_failures, a_peer_that_goes_away_while_it_is_read_is_named)
{
    if (pair_unable()) SKIP(pair_unable());
    struct gpus gpus;
    REQUIRE(gpus_open(&gpus, "=rxe0", "=rxe1"));
    gpus.pair.wires[1]->used[0]->reads_out = 1; /* so that reading takes several turns */
    REQUIRE(begin(&gpus));
    tt_rdma_wire_destroy(gpus.pair.wires[0]);
    gpus.pair.wires[0] = NULL;
    CHECK_EQ(fetch_on(&gpus, 60000), TT_ERR_REMOTE);
    check_text(&gpus, (const char *const[]){
                          "rank 0 (host ", "rxe1 port 1", "reading memory of the peer's GPU",
                          "transport retry counter exceeded", "UDP port 4791", NULL});
    CHECK_EQ(tt_rdma_rx(gpus.pair.wires[1], 0)
                 ->ops->gpus->fetch(tt_rdma_rx(gpus.pair.wires[1], 0), gpu_at(&gpus.of[1], 0)),
             TT_ERR_REMOTE);
    gpus_close(&gpus);
}

TEST(rdma_gpu_failures, what_a_lost_peer_referred_to_is_missed)
{
    if (pair_unable()) SKIP(pair_unable());
    struct gpus gpus;
    REQUIRE(gpus_open(&gpus, "=rxe0", "=rxe1"));
    gpus.pair.wires[1]->used[0]->reads_out = 1;
    REQUIRE(begin(&gpus));
    tt_rdma_wire_lost(gpus.pair.wires[1]);
    CHECK_EQ(fetch_on(&gpus, 60000), TT_ERR_REMOTE);
    check_text(&gpus, (const char *const[]){"rank 0 (host ", "is gone", NULL});
    tt_rdma_wire_give_back(gpus.pair.wires[1], tt_deadline_ns(20));
    CHECK_EQ(tt_rdma_rx(gpus.pair.wires[1], 0)->ops->flushed(tt_rdma_rx(gpus.pair.wires[1], 0)),
             true);
    gpus_close(&gpus);
}

/* Failures are not the wire's any more; but the bytes have not come. */
TEST(rdma_gpu_failures, a_read_that_fails_after_the_peer_announced_its_end_is_no_success)
{
    if (pair_unable()) SKIP(pair_unable());
    struct gpus gpus;
    struct tt_message message;
    REQUIRE(gpus_open(&gpus, NULL, NULL));
    struct tt_rdma_wire *wire = gpus.pair.wires[1];
    struct tt_link *rx = tt_rdma_rx(wire, 0);
    REQUIRE(!gpus_publish(&gpus, &(struct move){.nbytes = 5000, .seed = 1}));
    REQUIRE(!gpus_await(rx, &message));
    dmabuf_verbs_break(gpus.of[0].base);
    CHECK_EQ(rx->ops->gpus->fetch(rx, gpu_at(&gpus.of[1], 0)), TT_IN_PROGRESS);
    tt_rdma_wire_quiet(wire);
    const int64_t deadline = tt_deadline_ns(60000);
    while (wire->rx[0].nreads && !tt_expired(deadline))
        CHECK_EQ(tt_rdma_wire_progress(wire), TT_OK);
    CHECK_EQ(wire->rx[0].nreads, 0);
    CHECK_EQ(rx->ops->gpus->fetch(rx, gpu_at(&gpus.of[1], 0)), TT_IN_PROGRESS);
    CHECK_STR(tt_fabric_failure_text(gpus.pair.all.fabrics[1]), "");
    tt_rdma_wire_lost(wire);
    CHECK_EQ(rx->ops->gpus->fetch(rx, gpu_at(&gpus.of[1], 0)), TT_ERR_REMOTE);
    check_text(&gpus, (const char *const[]){"rank 0 (host ", "is gone", NULL});
    gpus_close(&gpus);
}

/* Its sender waits in vain for the release: that is no success. */
TEST(rdma_gpu_failures, a_reference_that_a_lost_peer_has_not_released_is_not_drained)
{
    if (pair_unable()) SKIP(pair_unable());
    struct gpus gpus;
    const struct move move = {.nbytes = 5000, .seed = 1};
    REQUIRE(gpus_open(&gpus, NULL, NULL));
    struct tt_link *tx = tt_rdma_tx(gpus.pair.wires[0], 0), *rx = tt_rdma_rx(gpus.pair.wires[1], 0);
    CHECK_EQ(gpus_publish(&gpus, &move), TT_OK);
    CHECK_EQ(gpus_receive(&gpus, &move), TT_OK);
    rx->ops->release(rx);
    while (!tt_rdma_wire_sent(gpus.pair.wires[1])) continue;
    tt_rdma_wire_lost(gpus.pair.wires[0]);
    CHECK(tx->ops->drained(tx)); /* the count had come */
    CHECK_EQ(tt_fabric_check(gpus.pair.all.fabrics[0]), TT_OK);
    gpus_close(&gpus);

    REQUIRE(gpus_open(&gpus, NULL, NULL));
    tx = tt_rdma_tx(gpus.pair.wires[0], 0);
    CHECK_EQ(gpus_publish(&gpus, &move), TT_OK);
    tt_rdma_wire_lost(gpus.pair.wires[0]);
    CHECK(!tx->ops->drained(tx));
    CHECK(strstr(tt_fabric_failure_text(gpus.pair.all.fabrics[0]), "is gone"));
    tt_rdma_wire_give_back(gpus.pair.wires[0], tt_deadline_ns(20));
    CHECK(tx->ops->drained(tx));
    gpus_close(&gpus);
}

TEST(rdma_gpu_failures, memory_that_may_not_be_read_is_said)
{
    if (pair_unable()) SKIP(pair_unable());
    struct gpus gpus;
    struct tt_message message;
    const struct move move = {.nbytes = 5000, .seed = 1};
    REQUIRE(gpus_open(&gpus, NULL, NULL));
    REQUIRE(!gpus_publish(&gpus, &move));
    REQUIRE(!gpus_await(tt_rdma_rx(gpus.pair.wires[1], 0), &message));
    dmabuf_verbs_break(gpus.of[0].base);
    CHECK_EQ(fetch_on(&gpus, 60000), TT_ERR_REMOTE);
    check_text(&gpus, (const char *const[]){"rank 0 (host ", "reading memory of the peer's GPU",
                                            "remote access error", "freed before the send was done",
                                            NULL});
    gpus_close(&gpus);
}

TEST(rdma_gpu_failures, memory_that_may_not_be_written_is_said)
{
    if (pair_unable()) SKIP(pair_unable());
    struct gpus gpus;
    struct tt_message message;
    REQUIRE(gpus_open(&gpus, NULL, NULL));
    REQUIRE(!gpus_publish(&gpus, &(struct move){.nbytes = 5000, .seed = 1}));
    REQUIRE(!gpus_await(tt_rdma_rx(gpus.pair.wires[1], 0), &message));
    dmabuf_verbs_break(gpus.of[1].base);
    CHECK_EQ(fetch_on(&gpus, 60000), TT_ERR_REMOTE);
    check_text(&gpus, (const char *const[]){"rank 0 (host ", "reading memory of the peer's GPU",
                                            "local protection error",
                                            "freed before the receive was done", NULL});
    gpus_close(&gpus);
}

/* ---- Giving back ---------------------------------------------------------------------------- */

/* The device would read again and again until the port is back. */
TEST(rdma_gpu_failures, memory_is_not_written_any_more_once_it_was_given_back)
{
    if (pair_unable()) SKIP(pair_unable());
    if (!getenv("RDMA_VM")) SKIP(machine_only);
    struct gpus gpus;
    set_timeout("14"); /* asked again after 67 ms */
    REQUIRE(gpus_open(&gpus, "=rxe0", "=rxe1"));
    struct tt_rdma_wire *wire = gpus.pair.wires[1];
    struct tt_link *rx = tt_rdma_rx(wire, 0);
    struct tt_message message;
    REQUIRE(!gpus_publish(&gpus, &whole) && !gpus_await(rx, &message));
    REQUIRE(pair_shell("ip link set port1 down"));
    CHECK_EQ(rx->ops->gpus->fetch(rx, gpu_at(&gpus.of[1], 0)), TT_IN_PROGRESS);
    CHECK(wire->rx[0].nreads > 0);
    tt_rdma_wire_give_back(wire, tt_deadline_ns(20));
    CHECK_EQ(wire->rx[0].nreads, 0);
    CHECK_EQ(wire->nposted, wire->ncompleted);
    pair_fill(gpus.of[1].host, GPU_BYTES, 3);
    pair_shell("ip link set port1 up");
    CHECK_EQ(fetch_on(&gpus, 1000), TT_IN_PROGRESS); /* the fabric has failed, not this call */
    CHECK(pair_same(gpus.of[1].host, GPU_BYTES, 3));
    CHECK(!rx->ops->gpus->reaches(tt_rdma_tx(wire, 0), gpus.of[1].base, 1));
    gpus_close(&gpus);
    set_timeout(NULL);
}

TEST(rdma_gpu_failures, memory_is_not_read_any_more_once_it_was_given_back)
{
    if (pair_unable()) SKIP(pair_unable());
    struct gpus gpus;
    struct tt_message message;
    const struct move move = {.nbytes = 70000, .seed = 1};
    REQUIRE(gpus_open(&gpus, "=rxe0", "=rxe1"));
    struct tt_rdma_wire *wire = gpus.pair.wires[0];
    struct tt_link *tx = tt_rdma_tx(wire, 0), *rx = tt_rdma_rx(gpus.pair.wires[1], 0);
    REQUIRE(!gpus_publish(&gpus, &move) && !gpus_await(rx, &message));
    tt_rdma_wire_give_back(wire, INT64_MAX); /* waits for nobody who may never read it */
    CHECK(tx->ops->drained(tx));
    CHECK(!tx->ops->gpus->reaches(tx, gpus.of[0].base, 1));
    CHECK_EQ(tt_rdma_wire_progress(wire), TT_OK);
    CHECK_STR(tt_fabric_failure_text(gpus.pair.all.fabrics[0]), "");
    tt_rdma_wire_give_back(wire, INT64_MAX);
    memset(gpus.of[1].host, 1, GPU_BYTES);
    pair_fill(gpus.of[0].host, GPU_BYTES, 3);
    CHECK_EQ(fetch_on(&gpus, 60000), TT_ERR_REMOTE);
    for (size_t i = 0; i < move.nbytes && !tt_test_failed(); i++) CHECK_EQ(gpus.of[1].host[i], 1);
    gpus_close(&gpus);
}

/* ---- Bad input ------------------------------------------------------------------------------ */

enum damage { SHORT, LONG, WRAPS, LATE, NO_READS, NONE };

static void receive_damaged(enum damage damage)
{
    struct gpus gpus;
    struct tt_message message = {.nbytes = 77};
    const struct move move = {.nbytes = 5000, .seed = 1};
    REQUIRE(gpus_open(&gpus, NULL, NULL));
    struct tt_link *rx = tt_rdma_rx(gpus.pair.wires[1], 0);
    char *payload = tt_rdma_payload(rx->end, false);
    struct tt_rdma_header *header = (struct tt_rdma_header *)(void *)payload - 1;
    struct tt_rdma_reference *reference = (void *)payload;
    REQUIRE(!gpus_publish(&gpus, &move));
    const int64_t deadline = tt_deadline_ns(60000);
    while (!gpus.pair.wires[1]->nreceived && !tt_expired(deadline))
        REQUIRE(!tt_rdma_wire_progress(gpus.pair.wires[1]));
    header->nbytes -= damage == SHORT;
    header->nbytes += damage == LONG;
    if (damage == WRAPS) reference->nbytes = UINT64_MAX - reference->address + 1;
    header->number += damage == LATE;
    if (damage == NO_READS) gpus.pair.wires[1]->used[0]->reads_out = 0;
    CHECK_EQ(rx->ops->peek(rx, &message), damage == NONE ? TT_OK : TT_ERR_REMOTE);
    CHECK_EQ(message.nbytes, damage == NONE ? 5000 : 77);
    if (damage != NONE)
        check_text(&gpus, (const char *const[]){"rank 0 (host ", "is not what it should be", NULL});
    const uint64_t signature = message.signature;
    header->nbytes = 100; /* the sender writes once more to a slot that is in use */
    header->signature++;
    if (damage == NONE) CHECK_EQ(rx->ops->peek(rx, &message), TT_OK);
    if (damage == NONE)
        CHECK(!message.data && message.nbytes == 5000 && message.signature == signature);
    gpus_close(&gpus);
}

TEST(rdma_gpu_failures, references_that_are_not_what_they_should_be_are_refused)
{
    if (pair_unable()) SKIP(pair_unable());
    for (int damage = SHORT; damage <= NONE && !tt_test_failed(); damage++)
        receive_damaged((enum damage)damage);
}

TEST(rdma_gpu_failures, messages_in_slots_are_not_moved_to_a_gpu)
{
    if (pair_unable()) SKIP(pair_unable());
    struct gpus gpus;
    struct tt_message message;
    REQUIRE(gpus_open(&gpus, NULL, NULL));
    struct tt_link *tx = tt_rdma_tx(gpus.pair.wires[0], 0), *rx = tt_rdma_rx(gpus.pair.wires[1], 0);
    CHECK_EQ(rx->ops->gpus->fetch(rx, gpu_at(&gpus.of[1], 0)), TT_IN_PROGRESS);
    REQUIRE(tx->ops->slot(tx, 8) != NULL);
    tx->ops->publish(tx, 8, 1);
    REQUIRE(!gpus_await(rx, &message));
    CHECK_EQ(rx->ops->gpus->fetch(rx, gpu_at(&gpus.of[1], 0)), TT_ERR_INTERNAL);
    rx->ops->release(rx);
    REQUIRE(!gpus_publish(&gpus, &(struct move){.nbytes = 5000, .seed = 1}));
    REQUIRE(!gpus_await(rx, &message));
    CHECK_EQ(rx->ops->gpus->fetch(rx, gpu_at(&gpus.of[1], GPU_BYTES - 4999)), TT_ERR_INTERNAL);
    CHECK_STR(tt_fabric_failure_text(gpus.pair.all.fabrics[1]), "");
    gpus_close(&gpus);
}
