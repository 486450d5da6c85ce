/* Tests of failures while RDMA links use memory of GPUs in place. Needs devices. */
#include <string.h>

#include "base/clock.h"
#include "transport/rdma/dmabuf_verbs.h"
#include "transport/rdma/gpus.h"
#include "shim.h"

static const struct move some = {.nbytes = 5000, .seed = 5};

/* The failure of rank 0, which sends, within a minute. */
static void check_failure(struct gpus *gpus, const char *const *words)
{
    const int64_t deadline = tt_deadline_ns(60000);
    while (!tt_rdma_wire_progress(gpus->pair.wires[0]) && !tt_expired(deadline)) continue;
    CHECK_EQ(tt_rdma_wire_progress(gpus->pair.wires[0]), TT_ERR_REMOTE);
    const char *text = tt_fabric_failure_text(gpus->pair.all.fabrics[0]);
    for (; *words; words++) CHECK_MESSAGE(strstr(text, *words), "no \"%s\" in: %s", *words, text);
}

TEST(rdma_gpu_failures, a_peer_that_goes_away_while_it_is_written_to_is_named)
{
    if (pair_unable()) SKIP(pair_unable());
    struct gpus gpus;
    struct tt_gpu_place place;
    REQUIRE(gpus_open(&gpus, "=rxe0", "=rxe1"));
    struct tt_link *tx = tt_rdma_tx(gpus.pair.wires[0], 0), *rx = tt_rdma_rx(gpus.pair.wires[1], 0);
    REQUIRE(rx->ops->gpus->show(rx, gpus.of[1].base, GPU_BYTES, &place));
    tt_rdma_wire_destroy(gpus.pair.wires[1]);
    gpus.pair.wires[1] = NULL;
    REQUIRE(tx->ops->slot(tx, 8) != NULL);
    CHECK(tx->ops->gpus->write(tx, gpus.of[0].base, GPU_BYTES, &place, 0));
    tx->ops->publish(tx, 8, 1);
    check_failure(&gpus,
                  (const char *const[]){"rank 1 (host ", "rxe0 port 1",
                                        "writing from memory of a GPU", "UDP port 4791", NULL});
    gpus_close(&gpus);
}

TEST(rdma_gpu_failures, memory_that_may_not_be_written_is_said)
{
    if (pair_unable()) SKIP(pair_unable());
    struct gpus gpus;
    struct tt_gpu_place place;
    REQUIRE(gpus_open(&gpus, NULL, NULL));
    struct tt_link *tx = tt_rdma_tx(gpus.pair.wires[0], 0), *rx = tt_rdma_rx(gpus.pair.wires[1], 0);
    REQUIRE(rx->ops->gpus->show(rx, gpus.of[1].base, GPU_BYTES, &place));
    dmabuf_verbs_break(gpus.of[1].base);
    REQUIRE(tx->ops->slot(tx, 8) != NULL);
    CHECK(tx->ops->gpus->write(tx, gpus.of[0].base, 5000, &place, 0));
    tx->ops->publish(tx, 8, 1);
    check_failure(&gpus,
                  (const char *const[]){"rank 1 (host ", "remote access error",
                                        "does not let this one write", "TUTTI_RDMA_GPU=off", NULL});
    gpus_close(&gpus);
}

TEST(rdma_gpu_failures, memory_that_may_not_be_read_is_said)
{
    if (pair_unable()) SKIP(pair_unable());
    struct gpus gpus;
    REQUIRE(gpus_open(&gpus, NULL, NULL));
    dmabuf_verbs_break(gpus.of[0].base);
    REQUIRE(!gpus_publish(&gpus, &some));
    check_failure(
        &gpus, (const char *const[]){"rank 1 (host ", "cannot read the memory of its GPU", NULL});
    gpus_close(&gpus);
}

/* Its GPU would not see what has come. */
TEST(rdma_gpu_failures, a_flush_that_fails_fails_the_fabric)
{
    if (pair_unable()) SKIP(pair_unable());
    struct gpus gpus;
    REQUIRE(gpus_open(&gpus, NULL, NULL));
    REQUIRE(!gpus_publish(&gpus, &some));
    while (!tt_rdma_wire_sent(gpus.pair.wires[0])) continue;
    dmabuf_verbs_break(gpus.of[1].base);
    CHECK_EQ(gpus_receive(&gpus, &some), TT_ERR_SYSTEM);
    const char *text = tt_fabric_failure_text(gpus.pair.all.fabrics[1]);
    CHECK_MESSAGE(strstr(text, "cannot read and write memory of its GPU"), "%s", text);
    gpus_close(&gpus);
}

/* ---- Bad input ------------------------------------------------------------------------------ */

TEST(rdma_gpu_failures, memory_that_is_not_registered_is_not_flushed)
{
    if (pair_unable()) SKIP(pair_unable());
    struct gpus gpus;
    REQUIRE(gpus_open(&gpus, NULL, NULL));
    struct tt_link *rx = tt_rdma_rx(gpus.pair.wires[1], 0);
    CHECK_EQ(rx->ops->gpus->flush(rx, gpus.of[0].base), TT_ERR_INTERNAL);
    gpus_close(&gpus);
}
