/* TCP as a room. The wire (transport/wires.h) owns the sockets: it drives, flushes and closes them.
 * The room only sends and receives data over them. */
#include "transport/tcp/tcp.h"

#include <stdio.h>

static tt_status tcp_open(void **self, const struct tt_room_config *config)
{
    *self = config->sockets;
    return TT_OK;
}

static void tcp_start(void *self, const struct tt_room_context *context)
{
    struct tt_tcp_room *room = self;
    room->context = context;
}

static tt_status tcp_watch(void *self, int epoll, uint64_t data)
{
    (void)self, (void)epoll, (void)data;
    return TT_OK;
}

static void do_nothing(void *self)
{
    (void)self;
}

static tt_status tcp_offer(void *self, int peer, struct tt_tcp_end *connection, void **end,
                           struct tt_room_offer *mine)
{
    (void)self, (void)peer;
    mine->nbytes = 0;
    *end = connection;
    return TT_OK;
}

static tt_status tcp_connect(void *end, const struct tt_room_offer *theirs)
{
    (void)end, (void)theirs;
    return TT_OK;
}

static struct tt_link *tcp_tx(void *end, int channel)
{
    return &tt_tcp_link_at(end, true, channel)->link;
}

static struct tt_link *tcp_rx(void *end, int channel)
{
    return &tt_tcp_link_at(end, false, channel)->link;
}

static tt_status tcp_progress(void *end)
{
    (void)end;
    return TT_OK;
}

static bool is_true(void *end)
{
    (void)end;
    return true;
}

static void tcp_give_back(void *end, int64_t deadline_ns)
{
    tt_tcp_end_give_back(end, deadline_ns);
}

/* The sockets and slots are counted where they are made: in struct tt_tcp_room. */
static size_t tcp_bytes(const void *end)
{
    (void)end;
    return 0;
}

/* Whether every socket is encrypted. */
static bool is_encrypted(const struct tt_tcp_end *end)
{
    bool encrypted = true;
    for (int i = 0; i < end->nsockets; i++) encrypted &= end->sockets[i].tls != NULL;
    return encrypted;
}

static void tcp_describe(const void *self, char *text, size_t size)
{
    const struct tt_tcp_end *end = self;
    size_t n = (size_t)snprintf(text, size, "tcp ");
    for (int i = 0; i < end->nroutes && n < size; i++)
        n += (size_t)snprintf(text + n, size - n, "%s%s", i ? ", " : "",
                              end->sockets[i].route.interface);
    if (n < size && end->nsockets > 1)
        n += (size_t)snprintf(text + n, size - n, " (%d sockets)", end->nsockets);
    if (n < size)
        snprintf(text + n, size - n, is_encrypted(end) ? ", encrypted" : ", not encrypted");
}

const struct tt_transport tt_tcp_transport = {
    .name = "tcp",
    .cost = 10,
    .by_kernel = true,
    .is_certain = true,
    .open = tcp_open,
    .start = tcp_start,
    .watch = tcp_watch,
    .clear = do_nothing,
    .close = do_nothing,
    .offer = tcp_offer,
    .connect = tcp_connect,
    .tx = tcp_tx,
    .rx = tcp_rx,
    .progress = tcp_progress,
    .arm = is_true,
    .flushed = is_true,
    .give_back = tcp_give_back,
    .quiet = do_nothing,
    .sent = is_true,
    .lost = do_nothing,
    .destroy = do_nothing,
    .bytes = tcp_bytes,
    .describe = tcp_describe,
};
