/* Memory of GPUs that the devices use in place. A sender writes from memory of its GPU to memory of
 * the receiver's, over the queue pair that carries its next message, so the bytes are on their way
 * before that message is. When the message has come, the device has sent the bytes to the GPU, but
 * they may not be there yet. A read over the same bus comes behind them: the receiver's device
 * reads a word of that memory over its loop, a queue pair with itself, before anybody is told of
 * the message. */
#include "transport/rdma/rdma_internal.h"

static const struct ibv_mr *region_of(const struct tt_rdma_route *route,
                                      struct ibv_mr *const *regions)
{
    return regions[route->port->device - route->wire->rdma->devices];
}

static bool show(struct tt_link *link, const void *data, size_t nbytes, struct tt_gpu_place *place)
{
    const struct tt_rdma_link *rx = link->end;
    const struct tt_rdma_wire *wire = rx->wire;
    const struct tt_rdma_gpu *gpu = tt_rdma_find_gpu(wire->rdma, data, nbytes);
    if (!gpu || !wire->nroutes || wire->quiet) return false;
    *place = (struct tt_gpu_place){
        .address = (uintptr_t)data, .nbytes = nbytes, .nkeys = (uint32_t)wire->nroutes};
    for (int i = 0; i < wire->nroutes; i++)
        place->keys[i] = region_of(wire->used[i], gpu->regions)->rkey;
    return true;
}

static bool write_payload(struct tt_link *link, const void *data, size_t nbytes,
                          const struct tt_gpu_place *place, size_t offset)
{
    struct tt_rdma_link *tx = link->end;
    const struct tt_rdma_wire *wire = tx->wire;
    const struct tt_rdma_gpu *gpu = tt_rdma_find_gpu(wire->rdma, data, nbytes);
    if (!gpu || place->nkeys != (uint32_t)wire->nroutes || offset > place->nbytes ||
        nbytes > place->nbytes - offset)
        return false;
    struct tt_rdma_route *route = tt_rdma_route_of(wire, tx->next);
    struct ibv_sge piece = {.addr = (uintptr_t)data,
                            .length = (uint32_t)nbytes,
                            .lkey = region_of(route, gpu->regions)->lkey};
    struct ibv_send_wr request = {
        .wr_id = tt_rdma_work_id(TT_RDMA_PAYLOAD, tx->channel, 0),
        .sg_list = &piece,
        .num_sge = 1,
        .opcode = IBV_WR_RDMA_WRITE,
        .send_flags = IBV_SEND_SIGNALED,
        .wr.rdma = {.remote_addr = place->address + offset,
                    .rkey = place->keys[tx->next % (uint64_t)wire->nroutes]}};
    if (!tt_rdma_post(route, &request)) return false;
    tt_count_more(wire->rdma->context->nbytes_direct, nbytes);
    return true;
}

/* The device of the wire's route; NULL: an earlier route has it, too. */
static struct tt_rdma_device *device_of(const struct tt_rdma_wire *wire, int route)
{
    struct tt_rdma_device *device = wire->used[route]->port->device;
    for (int i = 0; i < route; i++)
        if (wire->used[i]->port->device == device) return NULL;
    return device;
}

/* Messages up to the first one that has not come. */
static uint64_t count_come(const struct tt_rdma_link *rx)
{
    const uint64_t nslots = rx->wire->rdma->nslots;
    uint64_t n = rx->next;
    while (n - rx->next < nslots && rx->slots >> n % nslots & 1) n++;
    return n;
}

/* Begins a flush at each device, of all messages that have come. TT_IN_PROGRESS: a loop is full;
 * where others have begun, another flush does no harm. */
static tt_status ask(struct tt_rdma_link *rx, const struct tt_rdma_gpu *gpu)
{
    const struct tt_rdma_wire *wire = rx->wire;
    for (int i = 0; i < wire->nroutes; i++) {
        struct tt_rdma_device *device = device_of(wire, i);
        if (!device) continue;
        TT_AWAIT(tt_rdma_begin_flush(wire->rdma, device, gpu));
        rx->flushed.awaited[device - wire->rdma->devices] = device->loop.nposted;
    }
    rx->flushed.asked = count_come(rx);
    return TT_OK;
}

static tt_status flush(struct tt_link *link, const void *data)
{
    struct tt_rdma_link *rx = link->end;
    const struct tt_rdma_wire *wire = rx->wire;
    struct tt_rdma_flushed *flushed = &rx->flushed;
    if (flushed->done > rx->next) return TT_OK;
    const struct tt_rdma_gpu *gpu = tt_rdma_find_gpu(wire->rdma, data, 1);
    if (!gpu) return tt_fail(TT_ERR_INTERNAL, "the memory of a GPU at %p is not registered", data);
    if (flushed->asked <= rx->next) TT_AWAIT(ask(rx, gpu));
    for (int i = 0; i < wire->nroutes; i++) {
        struct tt_rdma_device *device = wire->used[i]->port->device;
        TT_TRY(tt_rdma_poll_loop(wire->rdma, device));
        if (device->loop.ncompleted < flushed->awaited[device - wire->rdma->devices])
            return TT_IN_PROGRESS;
    }
    flushed->done = flushed->asked;
    return TT_OK;
}

const struct tt_gpu_ops tt_rdma_gpus = {.show = show, .write = write_payload, .flush = flush};
