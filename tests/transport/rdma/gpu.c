/* Tests of RDMA links that use memory of GPUs in place. Needs devices; memfds stand for the GPUs'
 * memory (dmabuf_verbs.h), at addresses where nothing is mapped. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/config.h"
#include "transport/rdma/dmabuf_verbs.h"
#include "transport/rdma/pair.h"
#include "shim.h"

enum { GPU_BYTES = 8 << 20 };

/* The memory of one rank's GPU. */
struct gpu {
    int fd;
    char *host;       /* the same memory, as the test sees it */
    const char *base; /* as the GPU would */
    void *taken;
};

static char *gpu_at(const struct gpu *gpu, size_t offset)
{
    return (char *)(uintptr_t)gpu->base + offset;
}

static bool gpu_open(struct gpu *gpu, struct tt_rdma *rdma, unsigned number)
{
    *gpu = (struct gpu){.fd = memfd_create("gpu", MFD_CLOEXEC),
                        .base = (const char *)(0x200000000000 + number * UINT64_C(0x1000000000))};
    if (gpu->fd < 0 || ftruncate(gpu->fd, GPU_BYTES)) return false;
    gpu->host = mmap(NULL, GPU_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, gpu->fd, 0);
    const struct tt_dmabuf pages = {.fd = gpu->fd, .base = gpu->base, .nbytes = GPU_BYTES};
    const tt_status status = tt_rdma_transport.take_gpu(rdma, &pages, &gpu->taken);
    CHECK_MESSAGE(!status, "%s", tt_last_error());
    return !status;
}

static void gpu_close(struct gpu *gpu, struct tt_rdma *rdma)
{
    if (rdma) tt_rdma_transport.drop_gpu(rdma, gpu->taken);
    munmap(gpu->host, GPU_BYTES);
    close(gpu->fd);
}

/* Two ranks with a GPU each. */
struct gpus {
    struct pair pair;
    struct gpu of[2];
};

static bool gpus_open(struct gpus *gpus, const char *low, const char *high)
{
    if (!dmabuf_verbs_install() || !pair_open(&gpus->pair, low, high)) return false;
    for (int r = 0; r < 2; r++)
        if (!gpu_open(&gpus->of[r], gpus->pair.rdma[r], (unsigned)r)) return false;
    return pair_connect(&gpus->pair);
}

static void gpus_close(struct gpus *gpus)
{
    for (int r = 0; r < 2; r++) gpu_close(&gpus->of[r], gpus->pair.rdma[r]);
    pair_close(&gpus->pair);
    CHECK_EQ(dmabuf_verbs_count(), 0);
}

/* One message between the ranks. */
struct move {
    int from, channel;
    size_t nbytes, at, to; /* offsets in the GPUs' memory */
    unsigned seed;
    char *host; /* receive here instead, in pieces; NULL: at the GPU */
    size_t piece;
};

static tt_status publish(struct gpus *gpus, const struct move *move)
{
    struct tt_link *tx = tt_rdma_tx(gpus->pair.wires[move->from], move->channel);
    const struct gpu *gpu = &gpus->of[move->from];
    const int64_t deadline = tt_deadline_ns(60000);
    pair_fill(gpu->host + move->at, move->nbytes, move->seed);
    CHECK(tx->ops->gpus->reaches(tx, gpu_at(gpu, move->at), move->nbytes));
    while (!tx->ops->gpus->publish(tx, gpu_at(gpu, move->at), move->nbytes, move->seed)) {
        TT_TRY(tt_rdma_wire_progress(gpus->pair.wires[move->from]));
        if (tt_expired(deadline)) return TT_ERR_TIMEOUT;
    }
    CHECK(!tx->ops->drained(tx));
    return TT_OK;
}

static tt_status await_message(struct tt_link *rx, struct tt_message *message)
{
    const int64_t deadline = tt_deadline_ns(60000);
    tt_status status = TT_IN_PROGRESS;
    while (status == TT_IN_PROGRESS) {
        status = rx->ops->peek(rx, message);
        if (tt_expired(deadline)) return TT_ERR_TIMEOUT;
    }
    return status;
}

static tt_status fetch(struct tt_link *rx, const struct move *move, char *to)
{
    const int64_t deadline = tt_deadline_ns(60000);
    const size_t piece = move->host ? move->piece : move->nbytes;
    for (size_t done = 0; done < move->nbytes || !move->nbytes; done += piece) {
        const size_t left = move->nbytes - done;
        tt_status status = TT_IN_PROGRESS;
        while (status == TT_IN_PROGRESS) {
            status = move->host
                         ? rx->ops->fetch(rx, move->host + done, done, left < piece ? left : piece)
                         : rx->ops->gpus->fetch(rx, to);
            if (tt_expired(deadline)) return TT_ERR_TIMEOUT;
        }
        if (status || !move->nbytes) return status;
    }
    return TT_OK;
}

static tt_status receive(struct gpus *gpus, const struct move *move)
{
    struct tt_link *rx = tt_rdma_rx(gpus->pair.wires[1 - move->from], move->channel);
    const struct gpu *gpu = &gpus->of[1 - move->from];
    struct tt_message message;
    TT_TRY(await_message(rx, &message));
    CHECK(!message.data);
    CHECK_EQ(message.nbytes, move->nbytes);
    CHECK_EQ(message.signature, move->seed);
    TT_TRY(fetch(rx, move, gpu_at(gpu, move->to)));
    CHECK(pair_same(move->host ? move->host : gpu->host + move->to, move->nbytes, move->seed));
    return TT_OK;
}

static bool is_drained(struct gpus *gpus, const struct move *move)
{
    struct tt_link *tx = tt_rdma_tx(gpus->pair.wires[move->from], move->channel);
    const int64_t deadline = tt_deadline_ns(60000);
    while (!tx->ops->drained(tx) && !tt_expired(deadline)) continue;
    return tx->ops->drained(tx);
}

static void carry(struct gpus *gpus, const struct move *move)
{
    struct tt_link *tx = tt_rdma_tx(gpus->pair.wires[move->from], move->channel),
                   *rx = tt_rdma_rx(gpus->pair.wires[1 - move->from], move->channel);
    CHECK_EQ(publish(gpus, move), TT_OK);
    CHECK_EQ(receive(gpus, move), TT_OK);
    CHECK(!tx->ops->drained(tx));
    rx->ops->release(rx);
    CHECK(rx->ops->flushed(rx));
    CHECK(is_drained(gpus, move));
}

static const size_t sizes[] = {1,     0,      3,       4096,    20000,   20001,
                               65537, 300000, 1 << 20, 1048577, 3000001, GPU_BYTES - 77};
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
