/* Tests of RDMA links that use memory of GPUs in place. Needs devices; memfds stand for the GPUs'
 * memory (dmabuf_verbs.h), at addresses where nothing is mapped. */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "transport/rdma/dmabuf_verbs.h"
#include "transport/rdma/gpus.h"
#include "shim.h"

static const size_t sizes[] = {1, 3, 4096, 20000, 65537, 300000, 1 << 20, GPU_BYTES - 77};
enum { NSIZES = sizeof sizes / sizeof *sizes };

static void carry_all_sizes(const char *low, const char *high)
{
    struct gpus gpus;
    REQUIRE(gpus_open(&gpus, low, high));
    for (unsigned i = 0; i < 2 * NSIZES && !tt_test_failed(); i++) {
        const struct move move = {.from = (int)(i & 1),
                                  .channel = (int)i % TOGETHER_CHANNELS,
                                  .nbytes = sizes[i / 2],
                                  .at = i % 78 * 7 % 77,
                                  .to = i * 13 % 77,
                                  .seed = i + 1};
        CHECK_EQ(gpus_publish(&gpus, &move), TT_OK);
        CHECK_EQ(gpus_receive(&gpus, &move), TT_OK);
    }
    gpus_close(&gpus);
}

TEST(rdma_gpu, memory_goes_to_memory_of_a_gpu_over_one_card)
{
    if (pair_unable()) SKIP(pair_unable());
    carry_all_sizes(NULL, NULL);
}

TEST(rdma_gpu, memory_goes_to_memory_of_a_gpu_over_all_cards)
{
    if (pair_unable()) SKIP(pair_unable());
    carry_all_sizes("", "");
}

/* As many as there are slots, to places of their own, over all cards in turn. */
TEST(rdma_gpu, several_messages_are_under_way)
{
    if (pair_unable()) SKIP(pair_unable());
    enum { EACH = 50000, TURNS = 10 };
    struct gpus gpus;
    REQUIRE(gpus_open(&gpus, "=rxe0,rxe1", "=rxe2,rxe3"));
    for (unsigned turn = 0; turn < TURNS && !tt_test_failed(); turn++) {
        struct move moves[2 * PAIR_SLOTS];
        for (unsigned i = 0; i < 2 * PAIR_SLOTS; i++) {
            moves[i] = (struct move){.from = (int)(i & 1),
                                     .nbytes = EACH - i * 1000 - turn,
                                     .at = i * EACH,
                                     .to = (2 * PAIR_SLOTS + i) * EACH,
                                     .seed = turn * 100 + i + 1};
            CHECK_EQ(gpus_publish(&gpus, &moves[i]), TT_OK);
        }
        for (unsigned i = 0; i < 2 * PAIR_SLOTS; i++)
            CHECK_EQ(gpus_receive(&gpus, &moves[i]), TT_OK);
    }
    gpus_close(&gpus);
}

TEST(rdma_gpu, a_device_copies_to_and_from_the_host)
{
    if (pair_unable()) SKIP(pair_unable());
    enum { NBYTES = 3 * TT_RDMA_BOUNCE + 77 };
    static char host[NBYTES];
    struct gpus gpus;
    REQUIRE(gpus_open(&gpus, NULL, NULL));
    struct tt_rdma *rdma = gpus.pair.rdma[0];
    pair_fill(host, NBYTES, 1);
    CHECK_EQ(tt_rdma_copy_gpu(rdma, true, gpu_at(&gpus.of[0], 33), host, NBYTES), TT_OK);
    CHECK(pair_same(gpus.of[0].host + 33, NBYTES, 1));
    CHECK(!gpus.of[0].host[32] && !gpus.of[0].host[33 + NBYTES]);
    pair_fill(gpus.of[0].host + 5, NBYTES, 2);
    CHECK_EQ(tt_rdma_copy_gpu(rdma, false, gpu_at(&gpus.of[0], 5), host, NBYTES), TT_OK);
    CHECK(pair_same(host, NBYTES, 2));
    CHECK_EQ(tt_rdma_copy_gpu(rdma, false, gpu_at(&gpus.of[0], GPU_BYTES - 4), host, 5),
             TT_ERR_INTERNAL);
    gpus_close(&gpus);
}

/* ---- Registering ---------------------------------------------------------------------------- */

TEST(rdma_gpu, memory_is_registered_with_all_devices_or_none)
{
    if (pair_unable()) SKIP(pair_unable());
    static const int errors[] = {ENOMEM, EOPNOTSUPP};
    struct pair pair;
    REQUIRE(dmabuf_verbs_install());
    REQUIRE(pair_open(&pair, "=rxe0,rxe1", "=rxe2"));
    const struct tt_dmabuf pages = {.fd = memfd_create("gpu", MFD_CLOEXEC),
                                    .base = (const char *)0x200000000000,
                                    .nbytes = 8192};
    REQUIRE(!ftruncate(pages.fd, 8192));
    for (int i = 0; i < 2; i++) {
        void *taken = &pair;
        const tt_status refused = i ? TT_ERR_USAGE : TT_ERR_SYSTEM; /* USAGE: it never can */
        dmabuf_verbs_refuse("rxe1", errors[i]);
        CHECK_EQ(tt_rdma_transport.take_gpu(pair.rdma[0], &pages, &taken), refused);
        CHECK(taken == &pair);
        CHECK_MESSAGE(strstr(tt_last_error(), "rxe1"), "%s", tt_last_error());
        CHECK_EQ(dmabuf_verbs_count(), 0);
        CHECK(!pair.rdma[0]->gpus);
        dmabuf_verbs_refuse(NULL, 0);
        const tt_status status = tt_rdma_transport.take_gpu(pair.rdma[0], &pages, &taken);
        CHECK_EQ(status, i ? refused : TT_OK);
        CHECK_EQ(dmabuf_verbs_count(), i ? 0 : 2);
        if (!status) tt_rdma_transport.drop_gpu(pair.rdma[0], taken);
        CHECK_EQ(dmabuf_verbs_count(), 0);
    }
    close(pages.fd);
    pair_close(&pair);
    dmabuf_verbs_remove();
}

TEST(rdma_gpu, memory_is_shown_from_connecting_until_it_is_dropped)
{
    if (pair_unable()) SKIP(pair_unable());
    struct pair pair;
    struct gpu gpu, more;
    struct tt_gpu_place place;
    REQUIRE(dmabuf_verbs_install());
    REQUIRE(pair_open(&pair, NULL, NULL));
    REQUIRE(gpu_open(&gpu, pair.rdma[0], 0));
    struct tt_link *rx = tt_rdma_rx(pair.wires[0], 0);
    CHECK(!rx->ops->gpus->show(rx, gpu.base, 1, &place));
    REQUIRE(pair_connect(&pair));
    CHECK(rx->ops->gpus->show(rx, gpu.base, GPU_BYTES, &place));
    CHECK(place.address == (uintptr_t)gpu.base && place.nbytes == GPU_BYTES && place.nkeys == 1);
    CHECK(rx->ops->gpus->show(rx, gpu.base + 1, GPU_BYTES - 1, &place));
    CHECK(!rx->ops->gpus->show(rx, gpu.base + 1, GPU_BYTES, &place));
    CHECK(!rx->ops->gpus->show(rx, gpu.base - 1, 1, &place));
    CHECK(!rx->ops->gpus->show(rx, gpu.base + GPU_BYTES, 1, &place));
    CHECK(!rx->ops->gpus->show(rx, gpu.base + 1, SIZE_MAX, &place));
    REQUIRE(gpu_open(&more, pair.rdma[0], 1));
    CHECK(rx->ops->gpus->show(rx, more.base, 5, &place));
    gpu_close(&gpu, pair.rdma[0]);
    CHECK(!rx->ops->gpus->show(rx, gpu.base, 5, &place));
    CHECK(rx->ops->gpus->show(rx, more.base, 5, &place));
    tt_rdma_wire_quiet(pair.wires[0]);
    CHECK(!rx->ops->gpus->show(rx, more.base, 5, &place));
    CHECK_EQ(dmabuf_verbs_count(), 1);
    gpu_close(&more, NULL);
    pair_close(&pair); /* drops what is left */
    CHECK_EQ(dmabuf_verbs_count(), 0);
    dmabuf_verbs_remove();
}

/* Nobody could flush it. */
TEST(rdma_gpu, memory_is_not_taken_where_devices_make_no_reads)
{
    if (pair_unable()) SKIP(pair_unable());
    struct pair pair;
    void *taken;
    REQUIRE(dmabuf_verbs_install());
    dmabuf_verbs_allow_reads(false);
    REQUIRE(pair_open(&pair, NULL, NULL));
    const struct tt_dmabuf pages = {.fd = memfd_create("gpu", MFD_CLOEXEC), .nbytes = 8192};
    for (int i = 0; i < 2; i++)
        CHECK_EQ(tt_rdma_transport.take_gpu(pair.rdma[0], &pages, &taken), TT_ERR_USAGE);
    dmabuf_verbs_allow_reads(true);
    REQUIRE(pair_connect(&pair));
    CHECK_EQ(pair_exchange(&pair, 0, 0, 1000, 1), TT_OK);
    close(pages.fd);
    pair_close(&pair);
    dmabuf_verbs_remove();
}
