/* Memory of GPUs that the devices use in place. The sender publishes a reference: the address and
 * length of the memory, and the keys with which the receiver's devices may read it. The receiver's
 * devices read it (RDMA READ) into memory of the receiver's GPU, or through the message's slot into
 * memory of the host. Then the receiver releases the message, of which the sender hears at once,
 * because it waits for that. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "transport/rdma/rdma_internal.h"

/* Bytes of a READ. Long messages have several outstanding; shorter ones are divided between the
 * routes. */
enum { READ_BYTES = 1 << 20, MIN_READ_BYTES = 1 << 16 };

/* ---- Registered memory ---------------------------------------------------------------------- */

static void deregister(struct tt_rdma *rdma, struct tt_rdma_gpu *gpu, int ndevices)
{
    for (int i = 0; i < ndevices; i++) {
        errno = rdma->verbs->dereg_mr(gpu->regions[i]);
        if (errno)
            TT_WARN("RDMA device %s keeps memory of a GPU that it should give up: %m",
                    rdma->devices[i].name);
    }
    free(gpu);
}

tt_status tt_rdma_take_gpu(struct tt_rdma *rdma, const struct tt_dmabuf *pages,
                           struct tt_rdma_gpu **taken)
{
    struct tt_rdma_gpu *gpu = malloc(sizeof *gpu);
    if (!gpu) return tt_fail(TT_ERR_SYSTEM, "out of memory to register memory of a GPU");
    *gpu = (struct tt_rdma_gpu){.base = (uintptr_t)pages->base, .nbytes = pages->nbytes};
    for (int i = 0; i < rdma->ndevices; i++) {
        const tt_status status = tt_rdma_register_dmabuf(rdma, i, pages, &gpu->regions[i]);
        if (!status) continue;
        deregister(rdma, gpu, i);
        return status;
    }
    gpu->following = rdma->gpus;
    *taken = rdma->gpus = gpu;
    return TT_OK;
}

void tt_rdma_drop_gpu(struct tt_rdma *rdma, struct tt_rdma_gpu *gpu)
{
    struct tt_rdma_gpu **at = &rdma->gpus;
    while (*at != gpu) at = &(*at)->following;
    *at = gpu->following;
    deregister(rdma, gpu, rdma->ndevices);
}

static const struct tt_rdma_gpu *find_gpu(const struct tt_rdma *rdma, const void *data,
                                          size_t nbytes)
{
    for (const struct tt_rdma_gpu *gpu = rdma->gpus; gpu; gpu = gpu->following) {
        const uintptr_t offset = (uintptr_t)data - gpu->base; /* huge for what lies before it */
        if (offset <= gpu->nbytes && nbytes <= gpu->nbytes - offset) return gpu;
    }
    return NULL;
}

static struct ibv_mr *region_of(const struct tt_rdma_route *route, struct ibv_mr *const *regions)
{
    return regions[route->port->device - route->wire->rdma->devices];
}

/* ---- Sender --------------------------------------------------------------------------------- */

static bool reaches(const struct tt_link *link, const void *data, size_t nbytes)
{
    const struct tt_rdma_link *end = link->end;
    const struct tt_rdma_wire *wire = end->wire;
    for (int i = 0; i < wire->nroutes; i++)
        if (!(end->outgoing ? wire->used[i]->reads_in : wire->used[i]->reads_out)) return false;
    return wire->nroutes && !wire->quiet && find_gpu(wire->rdma, data, nbytes);
}

static size_t reference_bytes(const struct tt_rdma_wire *wire)
{
    return offsetof(struct tt_rdma_reference, keys) +
           (size_t)wire->nroutes * sizeof((struct tt_rdma_reference *)0)->keys[0];
}

static bool publish(struct tt_link *link, const void *data, size_t nbytes, uint64_t signature)
{
    struct tt_rdma_link *tx = link->end;
    const struct tt_rdma_wire *wire = tx->wire;
    const struct tt_rdma_gpu *gpu = find_gpu(wire->rdma, data, nbytes);
    if (!gpu || !tt_rdma_has_room(tx)) return false;
    struct tt_rdma_reference reference = {.address = (uintptr_t)data, .nbytes = nbytes};
    for (int i = 0; i < wire->nroutes; i++)
        reference.keys[i] = region_of(wire->used[i], gpu->regions)->rkey;
    memcpy(tt_rdma_payload(tx, true), &reference, reference_bytes(wire));
    tt_count_more(wire->rdma->context->nbytes_direct, nbytes);
    tt_rdma_publish_reference(tx, reference_bytes(wire), signature);
    return true;
}

/* ---- Receiver ------------------------------------------------------------------------------- */

bool tt_rdma_take_reference(struct tt_rdma_link *rx, const struct tt_rdma_header *header)
{
    const struct tt_rdma_wire *wire = rx->wire;
    struct tt_rdma_reference from = {0};
    if ((header->nbytes & ~TT_RDMA_REFERENCE) != reference_bytes(wire)) return false;
    for (int i = 0; i < wire->nroutes; i++)
        if (!wire->used[i]->reads_out) return false;
    memcpy(&from, tt_rdma_payload(rx, false), reference_bytes(wire));
    if (from.nbytes > SIZE_MAX - from.address) return false;
    rx->reading = (struct tt_rdma_reading){.from = from};
    return true;
}

/* Begins to read for a caller who wants the bytes from offset on at `to`, or goes on. */
static tt_status begin(struct tt_rdma_link *rx, void *to, size_t offset)
{
    struct tt_rdma_reading *reading = &rx->reading;
    if (reading->to == to && reading->offset == offset) return TT_OK;
    TT_TRY(tt_rdma_poll_all(rx->wire));
    if (rx->nreads) return TT_IN_PROGRESS; /* for another place */
    reading->to = to;
    reading->offset = offset;
    reading->asked = reading->copied = 0;
    return TT_OK;
}

static bool post_read(struct tt_rdma_link *rx, int k, const struct ibv_sge *piece)
{
    struct tt_rdma_route *route = rx->wire->used[k];
    const struct tt_rdma_reading *reading = &rx->reading;
    struct ibv_send_wr request = {
        .wr_id = tt_rdma_work_id(TT_RDMA_READ, rx->channel, 0),
        .sg_list = (struct ibv_sge *)(uintptr_t)piece,
        .num_sge = 1,
        .opcode = IBV_WR_RDMA_READ,
        .send_flags = IBV_SEND_SIGNALED,
        .wr.rdma = {.remote_addr = reading->from.address + reading->offset + reading->asked,
                    .rkey = reading->from.keys[k]}};
    if (!tt_rdma_post(route, &request)) return false;
    route->nreads++;
    rx->nreads++;
    return true;
}

/* Posts READs of the bytes that were not asked for, up to `end`, as many as the routes may have
 * outstanding. at: where the first of these bytes goes, in memory with these regions. */
static void ask(struct tt_rdma_link *rx, uint64_t at, struct ibv_mr *const *regions, uint64_t end)
{
    struct tt_rdma_wire *wire = rx->wire;
    struct tt_rdma_reading *reading = &rx->reading;
    const uint64_t nroutes = (uint64_t)wire->nroutes, share = (end - reading->copied) / nroutes + 1;
    const uint64_t most = share > READ_BYTES       ? READ_BYTES
                          : share < MIN_READ_BYTES ? MIN_READ_BYTES
                                                   : share;
    for (int nfull = 0; reading->asked < end && nfull < wire->nroutes;) {
        const int k = (int)(wire->read_route++ % nroutes);
        const struct tt_rdma_route *route = wire->used[k];
        if (route->nreads == route->reads_out) {
            nfull++;
            continue;
        }
        const uint64_t left = end - reading->asked, nbytes = left < most ? left : most;
        const struct ibv_sge piece = {
            .addr = at, .length = (uint32_t)nbytes, .lkey = region_of(route, regions)->lkey};
        if (!post_read(rx, k, &piece)) return;
        nfull = 0;
        at += nbytes;
        reading->asked += nbytes;
    }
}

/* TT_OK: all bytes up to `end` have come. A peer that is gone, or is about to, answers no READ. */
static tt_status await(const struct tt_rdma_link *rx, uint64_t end)
{
    const struct tt_rdma_wire *wire = rx->wire;
    if (wire->failed) return wire->failed;
    if (rx->reading.asked == end && !rx->nreads && !wire->read_failed) return TT_OK;
    return wire->lost ? tt_rdma_missed(wire) : TT_IN_PROGRESS;
}

tt_status tt_rdma_fetch_reference(struct tt_rdma_link *rx, void *to, size_t offset, size_t nbytes)
{
    const struct tt_rdma_wire *wire = rx->wire;
    struct tt_rdma_reading *reading = &rx->reading;
    const size_t slot_bytes = rx->link.slot_bytes;
    if (!nbytes) return TT_OK;
    if (offset > reading->from.nbytes || nbytes > reading->from.nbytes - offset)
        return tt_fail(TT_ERR_INTERNAL, "bytes %zu to %zu of a message of %zu bytes are fetched",
                       offset, offset + nbytes, (size_t)reading->from.nbytes);
    TT_AWAIT(begin(rx, to, offset));
    char *slot = tt_rdma_payload(rx, false);
    while (reading->copied < nbytes) {
        const size_t left = nbytes - (size_t)reading->copied;
        const uint64_t end = reading->copied + (left < slot_bytes ? left : slot_bytes);
        TT_TRY(tt_rdma_poll_all(rx->wire));
        ask(rx, (uintptr_t)slot + reading->asked - reading->copied, wire->regions, end);
        TT_AWAIT(await(rx, end));
        memcpy((char *)to + reading->copied, slot, (size_t)(end - reading->copied));
        reading->copied = end;
    }
    reading->to = NULL; /* the same place may be asked for again */
    return TT_OK;
}

static tt_status fetch(struct tt_link *link, void *to)
{
    struct tt_rdma_link *rx = link->end;
    const struct tt_rdma *rdma = rx->wire->rdma;
    struct tt_message message;
    TT_AWAIT(tt_rdma_peek(link, &message));
    if (!message.data && !message.nbytes) return TT_OK;
    const struct tt_rdma_gpu *gpu = find_gpu(rdma, to, message.nbytes);
    if (message.data || !gpu)
        return tt_fail(TT_ERR_INTERNAL, "a message of rank %d cannot be moved to a GPU: %s",
                       rx->wire->peer,
                       message.data ? "it came to memory of the host"
                                    : "its devices do not use that memory of the GPU");
    TT_AWAIT(begin(rx, to, 0));
    TT_TRY(tt_rdma_poll_all(rx->wire));
    ask(rx, (uintptr_t)to + rx->reading.asked, gpu->regions, message.nbytes);
    return await(rx, message.nbytes);
}

const struct tt_gpu_ops tt_rdma_gpus = {.reaches = reaches, .publish = publish, .fetch = fetch};
