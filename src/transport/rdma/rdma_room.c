/* RDMA as a room: the table of functions that transports.c lists. */
#include "transport/rdma/rdma.h"

#include <stdio.h>
#include <string.h>

/* RDMA writes are not encrypted. */
static tt_status open_devices(void **self, const struct tt_room_config *config)
{
    struct tt_rdma *rdma = NULL;
    if (!config->encrypt) TT_TRY(tt_rdma_open(&rdma, config));
    *self = rdma;
    return TT_OK;
}

static void start(void *self, const struct tt_room_context *context)
{
    tt_rdma_start(self, context);
}

static tt_status watch(void *self, int epoll, uint64_t data)
{
    return tt_rdma_watch(self, epoll, data);
}

static void clear(void *self)
{
    tt_rdma_clear_notification(self);
}

static void close_devices(void *self)
{
    tt_rdma_close(self);
}

static tt_status take_gpu(void *self, const struct tt_dmabuf *pages, void **taken)
{
    struct tt_rdma_gpu *gpu;
    TT_TRY(tt_rdma_take_gpu(self, pages, &gpu));
    *taken = gpu;
    return TT_OK;
}

static void drop_gpu(void *self, void *taken)
{
    tt_rdma_drop_gpu(self, taken);
}

static tt_status copy_gpu(void *self, bool to_gpu, void *gpu, void *host, size_t nbytes)
{
    return tt_rdma_copy_gpu(self, to_gpu, gpu, host, nbytes);
}

static tt_status offer(void *self, int peer, struct tt_tcp_end *connection, void **end,
                       struct tt_room_offer *mine)
{
    struct tt_rdma_wire *wire;
    (void)connection;
    TT_TRY(tt_rdma_wire_create(&wire, self, peer, mine));
    *end = wire;
    return TT_OK;
}

static tt_status connect(void *end, const struct tt_room_offer *theirs)
{
    return tt_rdma_wire_connect(end, theirs);
}

static struct tt_link *tx(void *end, int channel)
{
    return tt_rdma_tx(end, channel);
}

static struct tt_link *rx(void *end, int channel)
{
    return tt_rdma_rx(end, channel);
}

static tt_status progress(void *end)
{
    return tt_rdma_wire_progress(end);
}

static bool arm(void *end)
{
    return tt_rdma_wire_arm(end);
}

static bool flushed(void *end)
{
    return tt_rdma_wire_flushed(end);
}

static void give_back(void *end, int64_t deadline_ns)
{
    tt_rdma_wire_give_back(end, deadline_ns);
}

static void quiet(void *end)
{
    tt_rdma_wire_quiet(end);
}

static bool sent(void *end)
{
    return tt_rdma_wire_sent(end);
}

static void lost(void *end)
{
    tt_rdma_wire_lost(end);
}

static void destroy(void *end)
{
    tt_rdma_wire_destroy(end);
}

static size_t bytes(const void *end)
{
    return tt_rdma_wire_bytes(end);
}

static void describe(const void *end, char *text, size_t size)
{
    tt_rdma_wire_describe(end, text, size);
    const size_t n = strlen(text);
    snprintf(text + n, size - n, ", not encrypted");
}

const struct tt_transport tt_rdma_transport = {
    .name = "rdma",
    .cost = 1,
    .open = open_devices,
    .start = start,
    .watch = watch,
    .clear = clear,
    .close = close_devices,
    .take_gpu = take_gpu,
    .drop_gpu = drop_gpu,
    .copy_gpu = copy_gpu,
    .offer = offer,
    .connect = connect,
    .tx = tx,
    .rx = rx,
    .progress = progress,
    .arm = arm,
    .flushed = flushed,
    .give_back = give_back,
    .quiet = quiet,
    .sent = sent,
    .lost = lost,
    .destroy = destroy,
    .bytes = bytes,
    .describe = describe,
};
