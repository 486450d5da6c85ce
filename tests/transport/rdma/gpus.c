/* Opens two ranks with GPUs, and moves messages between them. */
#include "transport/rdma/gpus.h"

#include <string.h>
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
    struct tt_link *tx = tt_rdma_tx(gpus->pair.wires[move->from], move->channel),
                   *rx = tt_rdma_rx(gpus->pair.wires[1 - move->from], move->channel);
    const struct gpu *gpu = &gpus->of[move->from], *other = &gpus->of[1 - move->from];
    const int64_t deadline = tt_deadline_ns(60000);
    struct tt_gpu_place place;
    void *slot;
    CHECK(rx->ops->gpus->show(rx, other->base, GPU_BYTES, &place));
    pair_fill(gpu->host + move->at, move->nbytes, move->seed);
    while (!(slot = tx->ops->slot(tx, sizeof move->seed))) {
        TT_TRY(tt_rdma_wire_progress(gpus->pair.wires[move->from]));
        if (tt_expired(deadline)) return TT_ERR_TIMEOUT;
    }
    memcpy(slot, &move->seed, sizeof move->seed);
    CHECK(tx->ops->gpus->write(tx, gpu_at(gpu, move->at), move->nbytes, &place, move->to));
    tx->ops->publish(tx, sizeof move->seed, move->seed);
    return TT_OK;
}

/* TT_OK: the message has come, and what was written before it. */
static tt_status look(struct gpus *gpus, const struct move *move, struct tt_message *message)
{
    struct tt_link *rx = tt_rdma_rx(gpus->pair.wires[1 - move->from], move->channel);
    const tt_status status = rx->ops->peek(rx, message);
    return status ? status : rx->ops->gpus->flush(rx, gpus->of[1 - move->from].base);
}

tt_status gpus_receive(struct gpus *gpus, const struct move *move)
{
    struct tt_link *rx = tt_rdma_rx(gpus->pair.wires[1 - move->from], move->channel);
    const int64_t deadline = tt_deadline_ns(60000);
    struct tt_message message;
    tt_status status = TT_IN_PROGRESS;
    while (status == TT_IN_PROGRESS) {
        status = look(gpus, move, &message);
        if (!status) status = tt_rdma_wire_progress(gpus->pair.wires[move->from]);
        if (tt_expired(deadline)) return TT_ERR_TIMEOUT;
    }
    if (status) return status;
    CHECK_EQ(message.signature, move->seed);
    CHECK(pair_same(gpus->of[1 - move->from].host + move->to, move->nbytes, move->seed));
    rx->ops->release(rx);
    return TT_OK;
}
