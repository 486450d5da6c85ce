/* Tests of RDMA links that use memory of GPUs in place. Needs devices; memfds stand for the GPUs'
 * memory (dmabuf_verbs.h), at addresses where nothing is mapped. */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
#include "transport/rdma/dmabuf_verbs.h"
#include "transport/rdma/gpus.h"
#include "shim.h"

static void carry(struct gpus *gpus, const struct move *move)
{
    struct tt_link *tx = tt_rdma_tx(gpus->pair.wires[move->from], move->channel),
                   *rx = tt_rdma_rx(gpus->pair.wires[1 - move->from], move->channel);
    CHECK_EQ(gpus_publish(gpus, move), TT_OK);
    CHECK_EQ(gpus_receive(gpus, move), TT_OK);
    CHECK(!tx->ops->drained(tx));
    rx->ops->release(rx);
    CHECK(rx->ops->flushed(rx));
    CHECK(gpus_are_drained(gpus, move));
}

static const size_t sizes[] = {1,     0,      3,       4096,    20000,         20001,
                               65537, 300000, 1 << 20, 1048577, GPU_BYTES - 77};
enum { NSIZES = sizeof sizes / sizeof *sizes };

static void carry_all_sizes(const char *low, const char *high)
{
    struct gpus gpus;
    REQUIRE(gpus_open(&gpus, low, high));
    for (unsigned i = 0; i < 2 * NSIZES && !tt_test_failed(); i++)
        carry(&gpus, &(struct move){.from = (int)(i & 1),
                                    .channel = (int)i % TOGETHER_CHANNELS,
                                    .nbytes = sizes[i / 2],
                                    .at = i % 78 * 7 % 77,
                                    .to = i * 13 % 77,
                                    .seed = i + 1});
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

TEST(rdma_gpu, memory_is_fetched_to_the_host_in_pieces)
{
    if (pair_unable()) SKIP(pair_unable());
    static const size_t pieces[] = {1 << 20, PAIR_SLOT_BYTES, 12345, PAIR_SLOT_BYTES + 1};
    struct gpus gpus;
    char *host = malloc(GPU_BYTES);
    REQUIRE(host && gpus_open(&gpus, "=rxe0,rxe1", "=rxe2,rxe3"));
    for (unsigned i = 0; i < 8 && !tt_test_failed(); i++)
        carry(&gpus, &(struct move){.from = (int)(i & 1),
                                    .nbytes = i < 4 ? 300000 : sizes[i - 4],
                                    .at = i,
                                    .seed = i + 1,
                                    .host = host,
                                    .piece = pieces[i % 4]});
    carry(&gpus, &(struct move){.nbytes = 3000001, .seed = 9, .host = host, .piece = 1 << 20});
    free(host);
    gpus_close(&gpus);
}

/* Message after message asks for one place, which is fetched again. */
TEST(rdma_gpu, memory_may_be_fetched_again_until_the_release)
{
    if (pair_unable()) SKIP(pair_unable());
    struct gpus gpus;
    char host[1000];
    REQUIRE(gpus_open(&gpus, NULL, NULL));
    struct tt_link *rx = tt_rdma_rx(gpus.pair.wires[1], 0);
    for (unsigned i = 0; i < 3 && !tt_test_failed(); i++) {
        const struct move move = {.nbytes = 1000, .seed = i + 1};
        struct move again = move;
        again.host = host;
        again.piece = 600;
        CHECK_EQ(gpus_publish(&gpus, &move), TT_OK);
        CHECK_EQ(gpus_receive(&gpus, &move), TT_OK);
        for (int turn = 0; turn < 2; turn++) {
            memset(host, 0, sizeof host);
            CHECK_EQ(gpus_receive(&gpus, &again), TT_OK);
        }
        CHECK_EQ(gpus_receive(&gpus, &move), TT_OK);
        rx->ops->release(rx);
        CHECK(gpus_are_drained(&gpus, &move));
    }
    gpus_close(&gpus);
}

/* ---- Many at once --------------------------------------------------------------------------- */

enum { AREAS = 8, AREA_BYTES = 65536, FLOOD = 200 };

struct flood {
    struct gpus *gpus;
    int rank;
    unsigned seed;
    int64_t deadline_ns;
    unsigned sent[TOGETHER_CHANNELS], got[TOGETHER_CHANNELS], wrong;
    char host[PAIR_SLOT_BYTES * 3];
};

/* Of a message: a third goes through slots, the others by reference, of any length. */
static size_t flood_bytes(const struct flood *flood, int from, int c, unsigned number,
                          bool *by_slot)
{
    unsigned state = flood->seed + (unsigned)from * 7919 + (unsigned)c * 104729 + number * 31;
    state = (state * 1103515245 + 12345) >> 8;
    *by_slot = state % 3 == 0;
    return state % (*by_slot ? PAIR_SLOT_BYTES : sizeof flood->host);
}

static void flood_send(struct flood *flood, int c)
{
    struct tt_link *tx = tt_rdma_tx(flood->gpus->pair.wires[flood->rank], c);
    const struct gpu *gpu = &flood->gpus->of[flood->rank];
    const unsigned number = flood->sent[c];
    bool by_slot;
    if (number == FLOOD || (number % AREAS == 0 && !tx->ops->drained(tx))) return;
    const size_t at = ((size_t)c * AREAS + number % AREAS) * AREA_BYTES;
    const size_t nbytes = flood_bytes(flood, flood->rank, c, number, &by_slot);
    void *slot = by_slot ? tx->ops->slot(tx, nbytes) : NULL;
    if (by_slot && !slot) return;
    pair_fill(by_slot ? slot : gpu->host + at, nbytes, number);
    if (by_slot)
        tx->ops->publish(tx, nbytes, number);
    else if (!tx->ops->gpus->publish(tx, gpu_at(gpu, at), nbytes, number))
        return;
    flood->sent[c]++;
}

static void flood_receive(struct flood *flood, int c)
{
    struct tt_link *rx = tt_rdma_rx(flood->gpus->pair.wires[flood->rank], c);
    const struct gpu *gpu = &flood->gpus->of[flood->rank];
    const unsigned number = flood->got[c];
    const size_t at = GPU_BYTES / 2 + (size_t)c * AREA_BYTES;
    struct tt_message message;
    bool by_slot;
    if (number == FLOOD || rx->ops->peek(rx, &message)) return;
    const size_t nbytes = flood_bytes(flood, 1 - flood->rank, c, number, &by_slot);
    flood->wrong += message.nbytes != nbytes || message.signature != number ||
                    by_slot != (message.data != NULL);
    const char *data = message.data;
    if (!by_slot && number % 2) {
        data = gpu->host + at;
        if (rx->ops->gpus->fetch(rx, gpu_at(gpu, at))) return;
    } else if (!by_slot) {
        data = flood->host;
        if (c || rx->ops->fetch(rx, flood->host, 0, nbytes)) data = NULL;
        if (!c && !data) return;
    }
    flood->wrong += data && !pair_same(data, nbytes, number);
    rx->ops->release(rx);
    flood->got[c]++;
}

static bool flood_is_done(struct flood *flood)
{
    bool done = true;
    for (int c = 0; c < TOGETHER_CHANNELS; c++) {
        struct tt_link *tx = tt_rdma_tx(flood->gpus->pair.wires[flood->rank], c);
        done &= flood->sent[c] == FLOOD && flood->got[c] == FLOOD && tx->ops->drained(tx);
    }
    return done;
}

static void *run_flood(void *argument)
{
    struct flood *flood = argument;
    while (!flood_is_done(flood) && !tt_expired(flood->deadline_ns) && flood->wrong == 0) {
        for (int c = 0; c < TOGETHER_CHANNELS; c++) {
            flood_send(flood, c);
            flood_receive(flood, c);
        }
        if (tt_rdma_wire_progress(flood->gpus->pair.wires[flood->rank])) break;
        sched_yield();
    }
    return NULL;
}

/* Of channel 0 every other reference goes to the host; the other channels drop those. */
TEST(rdma_gpu, references_and_messages_in_slots_keep_their_order_both_ways)
{
    if (pair_unable()) SKIP(pair_unable());
    static struct flood floods[2];
    struct gpus gpus;
    pthread_t threads[2];
    const char *text = getenv("TUTTI_TEST_SEED");
    const unsigned seed = text ? (unsigned)atoi(text) : (unsigned)tt_now_ns();
    printf("TUTTI_TEST_SEED=%u\n", seed);
    REQUIRE(gpus_open(&gpus, "=rxe0,rxe1", "=rxe2,rxe3"));
    for (int r = 0; r < 2; r++) {
        floods[r] = (struct flood){
            .gpus = &gpus, .rank = r, .seed = seed, .deadline_ns = tt_deadline_ns(120000)};
        REQUIRE(!pthread_create(&threads[r], NULL, run_flood, &floods[r]));
    }
    for (int r = 0; r < 2; r++) pthread_join(threads[r], NULL);
    for (int r = 0; r < 2; r++) {
        CHECK_EQ(floods[r].wrong, 0);
        for (int c = 0; c < TOGETHER_CHANNELS; c++) CHECK_EQ(floods[r].got[c], FLOOD);
        CHECK_STR(tt_fabric_failure_text(gpus.pair.all.fabrics[r]), "");
    }
    gpus_close(&gpus);
}

/* As many counts as may be in flight are in flight: the sender hears of the release when one of
 * them has arrived. */
TEST(rdma_gpu, a_release_is_told_later_when_it_cannot_be_told_now)
{
    if (pair_unable()) SKIP(pair_unable());
    struct gpus gpus;
    const struct move moves[2] = {{.nbytes = 5000, .seed = 1},
                                  {.nbytes = 6000, .at = 9000, .seed = 2}};
    REQUIRE(gpus_open(&gpus, NULL, NULL));
    struct tt_link *rx = tt_rdma_rx(gpus.pair.wires[1], 0);
    struct tt_rdma_link *end = rx->end;
    for (int i = 0; i < 2; i++) CHECK_EQ(gpus_publish(&gpus, &moves[i]), TT_OK);
    CHECK_EQ(gpus_receive(&gpus, &moves[0]), TT_OK);
    rx->ops->release(rx);
    CHECK_EQ(end->ntold, 1);
    CHECK_EQ(gpus_receive(&gpus, &moves[1]), TT_OK);
    end->ntold = PAIR_SLOTS;
    rx->ops->release(rx);
    CHECK(!rx->ops->flushed(rx));
    const int64_t deadline = tt_deadline_ns(60000);
    end->ntold = PAIR_SLOTS - 1; /* one has arrived */
    CHECK_EQ(end->told, 1);
    pair_exchange(&gpus.pair, 0, 0, 10, 3);
    while (!rx->ops->flushed(rx) && !tt_expired(deadline))
        CHECK_EQ(tt_rdma_wire_progress(gpus.pair.wires[1]), TT_OK);
    CHECK(gpus_are_drained(&gpus, &moves[1]));
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

TEST(rdma_gpu, memory_is_reached_from_connecting_until_it_is_dropped)
{
    if (pair_unable()) SKIP(pair_unable());
    struct pair pair;
    struct gpu gpu, more;
    REQUIRE(dmabuf_verbs_install());
    REQUIRE(pair_open(&pair, NULL, NULL));
    REQUIRE(gpu_open(&gpu, pair.rdma[0], 0));
    struct tt_link *tx = tt_rdma_tx(pair.wires[0], 0);
    CHECK(!tx->ops->gpus->reaches(tx, gpu.base, 1));
    REQUIRE(pair_connect(&pair));
    CHECK(tx->ops->gpus->reaches(tx, gpu.base, GPU_BYTES));
    CHECK(tx->ops->gpus->reaches(tx, gpu.base + 1, GPU_BYTES - 1));
    CHECK(!tx->ops->gpus->reaches(tx, gpu.base + 1, GPU_BYTES));
    CHECK(!tx->ops->gpus->reaches(tx, gpu.base - 1, 1));
    CHECK(!tx->ops->gpus->reaches(tx, gpu.base + GPU_BYTES, 1));
    CHECK(!tx->ops->gpus->reaches(tx, gpu.base + 1, SIZE_MAX));
    REQUIRE(gpu_open(&more, pair.rdma[0], 1));
    CHECK(tx->ops->gpus->reaches(tx, gpu.base, 5) && tx->ops->gpus->reaches(tx, more.base, 5));
    gpu_close(&gpu, pair.rdma[0]);
    CHECK(!tx->ops->gpus->reaches(tx, gpu.base, 5) && tx->ops->gpus->reaches(tx, more.base, 5));
    CHECK(!tx->ops->gpus->publish(tx, gpu.base, 5, 1));
    tt_rdma_wire_quiet(pair.wires[0]);
    CHECK(!tx->ops->gpus->reaches(tx, more.base, 5));
    CHECK_EQ(dmabuf_verbs_count(), 1);
    gpu_close(&more, NULL);
    pair_close(&pair); /* drops what is left */
    CHECK_EQ(dmabuf_verbs_count(), 0);
    dmabuf_verbs_remove();
}

TEST(rdma_gpu, memory_is_not_reached_where_devices_make_no_reads)
{
    if (pair_unable()) SKIP(pair_unable());
    struct gpus gpus;
    REQUIRE(dmabuf_verbs_install());
    dmabuf_verbs_allow_reads(false);
    REQUIRE(gpus_open(&gpus, NULL, NULL));
    dmabuf_verbs_allow_reads(true);
    struct tt_link *tx = tt_rdma_tx(gpus.pair.wires[0], 0);
    CHECK(!tx->ops->gpus->reaches(tx, gpus.of[0].base, 1));
    CHECK_EQ(pair_exchange(&gpus.pair, 0, 0, 1000, 1), TT_OK);
    gpus_close(&gpus);
}

/* The message begins 5 GiB before the memory that there is. */
TEST(rdma_gpu, memory_of_many_gigabytes_is_referred_to)
{
    if (pair_unable()) SKIP(pair_unable());
    const size_t before = (size_t)5 << 30;
    struct gpus gpus;
    struct tt_message message;
    char host[1000];
    REQUIRE(gpus_open(&gpus, NULL, NULL));
    struct tt_rdma_gpu *gpu = gpus.of[0].taken;
    gpu->base -= before;
    gpu->nbytes += before;
    struct tt_link *tx = tt_rdma_tx(gpus.pair.wires[0], 0), *rx = tt_rdma_rx(gpus.pair.wires[1], 0);
    pair_fill(gpus.of[0].host, 1000, 7);
    CHECK(tx->ops->slot(tx, 1) != NULL);
    CHECK(tx->ops->gpus->publish(tx, gpus.of[0].base - before, before + 1000, 7));
    CHECK_EQ(gpus_await(rx, &message), TT_OK);
    CHECK_EQ(message.nbytes, before + 1000);
    tt_status status = TT_IN_PROGRESS;
    const int64_t deadline = tt_deadline_ns(60000);
    while (status == TT_IN_PROGRESS && !tt_expired(deadline))
        status = rx->ops->fetch(rx, host, before, 1000);
    CHECK_EQ(status, TT_OK);
    CHECK(pair_same(host, 1000, 7));
    CHECK_EQ(rx->ops->fetch(rx, host, before, 1001), TT_ERR_INTERNAL);
    CHECK_EQ(rx->ops->fetch(rx, host, SIZE_MAX, 2), TT_ERR_INTERNAL);
    rx->ops->release(rx);
    gpus_close(&gpus);
}
