/* Loops: a queue pair of each device with itself, by which it flushes memory of the rank's GPU, and
 * copies between that and memory of the host; and the registration of such memory. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "base/config.h"
#include "base/log.h"
#include "base/pause.h"
#include "transport/rdma/rdma_internal.h"

/* LOOP_DEPTH: what a loop may have outstanding. FLUSH_BYTES: that are read to flush. */
enum { LOOP_DEPTH = 64, MOST_READS = 16, FLUSH_BYTES = 8 };

/* ---- Loops ---------------------------------------------------------------------------------- */

/* What device and port give a queue pair of their own. */
static tt_status refuse(struct tt_rdma *rdma, const struct tt_rdma_device *device, const char *what)
{
    const int error = errno;
    rdma->loops_failed = TT_ERR_USAGE;
    if (!error)
        return tt_fail(TT_ERR_USAGE, "RDMA device %s cannot flush memory of a GPU: %s",
                       device->name, what);
    tt_ignore(tt_fail_errno(error, "RDMA device %s cannot flush memory of a GPU: %s", device->name,
                            what));
    return TT_ERR_USAGE;
}

static int most_reads(const struct tt_rdma *rdma, const struct tt_rdma_device *device)
{
    struct ibv_device_attr attributes = {0};
    if (rdma->verbs->query_device(device->context, &attributes)) return 0;
    const int out = attributes.max_qp_init_rd_atom, in = attributes.max_qp_rd_atom;
    const int both = out < in ? out : in;
    return both < MOST_READS ? both : MOST_READS;
}

static const struct tt_rdma_port *first_port(const struct tt_rdma *rdma,
                                             const struct tt_rdma_device *device)
{
    int i = 0;
    while (rdma->ports[i].device != device) i++;
    return &rdma->ports[i];
}

static int join_itself(const struct tt_rdma *rdma, struct ibv_qp *qp,
                       const struct tt_rdma_port *port, int nreads)
{
    const int access = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
    const int error = tt_rdma_init_pair(rdma, qp, port, access);
    if (error) return error;
    return tt_rdma_join(rdma, &(struct tt_rdma_joint){.qp = qp,
                                                      .port = port,
                                                      .target = &port->gids[0],
                                                      .qp_number = qp->qp_num,
                                                      .lid = port->attributes.lid,
                                                      .mtu = (uint8_t)port->attributes.active_mtu,
                                                      .ethernet = port->attributes.link_layer ==
                                                                  IBV_LINK_LAYER_ETHERNET,
                                                      .nreads = (uint8_t)nreads});
}

static tt_status open_loop(struct tt_rdma *rdma, struct tt_rdma_device *device)
{
    struct tt_rdma_loop *loop = &device->loop;
    const int nreads = most_reads(rdma, device);
    errno = 0;
    if (nreads < 1) return refuse(rdma, device, "it makes or answers no READs");
    loop->region = rdma->verbs->reg_mr(device->domain, rdma->bounce, TT_RDMA_BOUNCE + FLUSH_BYTES,
                                       IBV_ACCESS_LOCAL_WRITE);
    if (!loop->region) return refuse(rdma, device, "it registers no memory (ulimit -l?)");
    loop->cq = rdma->verbs->create_cq(device->context, LOOP_DEPTH, NULL, NULL, 0);
    struct ibv_qp_init_attr attributes = {
        .send_cq = loop->cq,
        .recv_cq = loop->cq,
        .qp_type = IBV_QPT_RC,
        .cap = {.max_send_wr = LOOP_DEPTH, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1},
    };
    if (loop->cq) loop->qp = rdma->verbs->create_qp(device->domain, &attributes);
    if (!loop->qp) return refuse(rdma, device, "it gives no queue pair");
    errno = join_itself(rdma, loop->qp, first_port(rdma, device), nreads);
    return errno ? refuse(rdma, device, "its port does not reach itself") : TT_OK;
}

/* Once: what fails is not tried again. The bounce memory is in shared pages: a fork must not leave
 * the devices with the child's copy. */
static tt_status open_loops(struct tt_rdma *rdma)
{
    if (rdma->loops_failed)
        return tt_fail(rdma->loops_failed, "RDMA devices cannot flush memory of a GPU");
    if (rdma->bounce) return TT_OK;
    void *memory = mmap(NULL, TT_RDMA_BOUNCE + FLUSH_BYTES, PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return tt_fail_errno(errno, "no memory for copies to and from memory of a GPU");
    rdma->bounce = memory;
    for (int i = 0; i < rdma->ndevices; i++) TT_TRY(open_loop(rdma, &rdma->devices[i]));
    return TT_OK;
}

void tt_rdma_close_loops(struct tt_rdma *rdma)
{
    for (int i = 0; i < rdma->ndevices; i++) {
        struct tt_rdma_loop *loop = &rdma->devices[i].loop;
        int failed = 0;
        if (loop->qp) failed |= rdma->verbs->destroy_qp(loop->qp);
        if (loop->cq) failed |= rdma->verbs->destroy_cq(loop->cq);
        if (loop->region) failed |= rdma->verbs->dereg_mr(loop->region);
        if (failed) TT_WARN("RDMA device %s: its loop is still in use", rdma->devices[i].name);
        *loop = (struct tt_rdma_loop){.cq = NULL};
    }
    if (rdma->bounce) munmap(rdma->bounce, TT_RDMA_BOUNCE + FLUSH_BYTES);
    rdma->bounce = NULL;
}

static tt_status fail_loop(const struct tt_rdma *rdma, const struct tt_rdma_device *device,
                           const char *what)
{
    return tt_room_fail(rdma->context, TT_ERR_SYSTEM,
                        "RDMA device %s of this host cannot read and write memory of its GPU: %s; "
                        "see the kernel's log (dmesg), and try TUTTI_RDMA_GPU=off",
                        device->name, what);
}

/* What a loop is to do: with memory of a GPU, and bounce memory at an offset. */
struct loop_work {
    enum ibv_wr_opcode opcode;
    uint64_t gpu;
    uint32_t key; /* of that memory */
    size_t offset, nbytes;
};

static tt_status post(const struct tt_rdma *rdma, struct tt_rdma_device *device,
                      const struct loop_work *work)
{
    struct ibv_sge piece = {.addr = (uintptr_t)rdma->bounce + work->offset,
                            .length = (uint32_t)work->nbytes,
                            .lkey = device->loop.region->lkey};
    struct ibv_send_wr *bad, request = {.sg_list = &piece,
                                        .num_sge = 1,
                                        .opcode = work->opcode,
                                        .send_flags = IBV_SEND_SIGNALED,
                                        .wr.rdma = {.remote_addr = work->gpu, .rkey = work->key}};
    if (ibv_post_send(device->loop.qp, &request, &bad))
        return fail_loop(rdma, device, "its queue pair refuses a request");
    device->loop.nposted++;
    return TT_OK;
}

tt_status tt_rdma_poll_loop(const struct tt_rdma *rdma, struct tt_rdma_device *device)
{
    struct ibv_wc done[LOOP_DEPTH];
    const int n = ibv_poll_cq(device->loop.cq, LOOP_DEPTH, done);
    if (n < 0) return fail_loop(rdma, device, "its completion queue cannot be read");
    for (int i = 0; i < n; i++)
        if (done[i].status != IBV_WC_SUCCESS)
            return fail_loop(rdma, device, rdma->verbs->wc_status_str(done[i].status));
    device->loop.ncompleted += (uint64_t)n;
    return TT_OK;
}

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
    TT_TRY(open_loops(rdma));
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

const struct tt_rdma_gpu *tt_rdma_find_gpu(const struct tt_rdma *rdma, const void *data,
                                           size_t nbytes)
{
    for (const struct tt_rdma_gpu *gpu = rdma->gpus; gpu; gpu = gpu->following) {
        const uintptr_t offset = (uintptr_t)data - gpu->base; /* huge for what lies before it */
        if (offset <= gpu->nbytes && nbytes <= gpu->nbytes - offset) return gpu;
    }
    return NULL;
}

/* ---- Copies --------------------------------------------------------------------------------- */

static tt_status await(const struct tt_rdma *rdma, struct tt_rdma_device *device, uint64_t number)
{
    const int64_t deadline_ns = tt_deadline_ns(tt_config_int(TT_CONFIG_NET_TIMEOUT_MS));
    struct tt_pause pause = {0};
    for (;;) {
        TT_TRY(tt_rdma_poll_loop(rdma, device));
        if (device->loop.ncompleted >= number) return TT_OK;
        if (tt_expired(deadline_ns)) return fail_loop(rdma, device, "nothing completes");
        tt_pause(&pause);
    }
}

static tt_status copy_piece(struct tt_rdma *rdma, bool to_gpu, const struct loop_work *work,
                            char *host)
{
    struct tt_rdma_device *device = &rdma->devices[0];
    while (device->loop.nposted - device->loop.ncompleted + 2 > LOOP_DEPTH)
        TT_TRY(await(rdma, device, device->loop.ncompleted + 2));
    if (to_gpu) memcpy(rdma->bounce, host, work->nbytes);
    TT_TRY(post(rdma, device, work));
    if (to_gpu)
        TT_TRY(post(rdma, device,
                    &(struct loop_work){.opcode = IBV_WR_RDMA_READ,
                                        .gpu = work->gpu,
                                        .key = work->key,
                                        .offset = TT_RDMA_BOUNCE,
                                        .nbytes = 1}));
    TT_TRY(await(rdma, device, device->loop.nposted));
    if (!to_gpu) memcpy(host, rdma->bounce, work->nbytes);
    return TT_OK;
}

tt_status tt_rdma_copy_gpu(struct tt_rdma *rdma, bool to_gpu, void *gpu, void *host, size_t nbytes)
{
    const struct tt_rdma_gpu *memory = tt_rdma_find_gpu(rdma, gpu, nbytes);
    if (!memory)
        return tt_fail(TT_ERR_INTERNAL, "%zu bytes of a GPU at %p are not registered", nbytes, gpu);
    for (size_t at = 0; at < nbytes; at += TT_RDMA_BOUNCE) {
        const size_t left = nbytes - at;
        const struct loop_work work = {.opcode = to_gpu ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ,
                                       .gpu = (uintptr_t)gpu + at,
                                       .key = memory->regions[0]->rkey,
                                       .nbytes = left < TT_RDMA_BOUNCE ? left : TT_RDMA_BOUNCE};
        TT_TRY(copy_piece(rdma, to_gpu, &work, (char *)host + at));
    }
    return TT_OK;
}

/* ---- Flushes -------------------------------------------------------------------------------- */

tt_status tt_rdma_begin_flush(const struct tt_rdma *rdma, struct tt_rdma_device *device,
                              const struct tt_rdma_gpu *gpu)
{
    TT_TRY(tt_rdma_poll_loop(rdma, device));
    if (device->loop.nposted - device->loop.ncompleted == LOOP_DEPTH) return TT_IN_PROGRESS;
    return post(rdma, device,
                &(struct loop_work){.opcode = IBV_WR_RDMA_READ,
                                    .gpu = gpu->base,
                                    .key = gpu->regions[device - rdma->devices]->rkey,
                                    .offset = TT_RDMA_BOUNCE,
                                    .nbytes = FLUSH_BYTES});
}
