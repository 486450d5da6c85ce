/* Opens two ranks with GPUs, and moves messages between them. */
#include "transport/rdma/gpus.h"

#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
#include "transport/rdma/dmabuf_verbs.h"
#include "shim.h"

char *gpu_at(const struct gpu *gpu, size_t offset)
{
    return (char *)(uintptr_t)gpu->base + offset;
}

bool gpu_open(struct gpu *gpu, struct tt_rdma *rdma, unsigned number)
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

void gpu_close(struct gpu *gpu, struct tt_rdma *rdma)
{
    if (rdma) tt_rdma_transport.drop_gpu(rdma, gpu->taken);
    munmap(gpu->host, GPU_BYTES);
    close(gpu->fd);
}

bool gpus_open(struct gpus *gpus, const char *low, const char *high)
{
    if (!dmabuf_verbs_install() || !pair_open(&gpus->pair, low, high)) return false;
    for (int r = 0; r < 2; r++)
        if (!gpu_open(&gpus->of[r], gpus->pair.rdma[r], (unsigned)r)) return false;
    return pair_connect(&gpus->pair);
}

void gpus_close(struct gpus *gpus)
{
    for (int r = 0; r < 2; r++) gpu_close(&gpus->of[r], gpus->pair.rdma[r]);
    pair_close(&gpus->pair);
    CHECK_EQ(dmabuf_verbs_count(), 0);
    dmabuf_verbs_remove();
}

tt_status gpus_publish(struct gpus *gpus, const struct move *move)
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

tt_status gpus_await(struct tt_link *rx, struct tt_message *message)
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

tt_status gpus_receive(struct gpus *gpus, const struct move *move)
{
    struct tt_link *rx = tt_rdma_rx(gpus->pair.wires[1 - move->from], move->channel);
    const struct gpu *gpu = &gpus->of[1 - move->from];
    struct tt_message message;
    TT_TRY(gpus_await(rx, &message));
    CHECK(!message.data);
    CHECK_EQ(message.nbytes, move->nbytes);
    CHECK_EQ(message.signature, move->seed);
    TT_TRY(fetch(rx, move, gpu_at(gpu, move->to)));
    CHECK(pair_same(move->host ? move->host : gpu->host + move->to, move->nbytes, move->seed));
    return TT_OK;
}

bool gpus_are_drained(struct gpus *gpus, const struct move *move)
{
    struct tt_link *tx = tt_rdma_tx(gpus->pair.wires[move->from], move->channel);
    const int64_t deadline = tt_deadline_ns(60000);
    while (!tx->ops->drained(tx) && !tt_expired(deadline)) continue;
    return tx->ops->drained(tx);
}
