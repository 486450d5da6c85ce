/* One TCP connection: queues frames, sends them with few system calls, reads frames and puts their
 * payloads where the receiver wants them.
 *
 * Outgoing frames wait in a ring. One write takes up to FRAMES_A_WRITE of them; large bodies are
 * lent to the kernel (MSG_ZEROCOPY) where that pays. Every header carries the credits that are due.
 * Incoming bytes are read ahead into `incoming` until a header is complete; the payload is then
 * read straight into its place. With TLS the same pieces go through tls.c. */
#include "transport/tcp/tcp.h"

#include <errno.h>
#include <limits.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>
#include <linux/errqueue.h> /* needs time.h */

#include "base/clock.h"
#include "base/config.h"
#include "base/private_fd.h"
#include "transport/tcp/tls.h"

enum {
    SPARE_FRAMES = 9, /* places of the queue for frames that are not data */
    FRAMES_A_WRITE = 8,
    TOGETHER_BYTES = 256,       /* up to which a copy is cheaper than a list of pieces */
    ZEROCOPY_MIN_BYTES = 32768, /* below, the notifications cost more than the copy */
};

/* Not TCP_USER_TIMEOUT: that also closes the connection to a live peer that does not read for so
 * long. */
void tt_tcp_tune(int fd, int64_t timeout_ns)
{
    const int timeout_ms = timeout_ns / 1000000 < INT_MAX ? (int)(timeout_ns / 1000000) : INT_MAX;
    const int third_s = timeout_ms < 3000 ? 1 : timeout_ms / 3000; /* idle time, then two probes */
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &(int){1}, sizeof(int));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &third_s, sizeof third_s);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &third_s, sizeof third_s);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &(int){2}, sizeof(int));
}

/* Not over loopback: the kernel would copy all the same. */
static void choose_zerocopy(struct tt_tcp *tcp, bool loopback)
{
    const int64_t setting = tt_config_int(TT_CONFIG_ZEROCOPY); /* -1: auto */
    tcp->zerocopy_always = setting == 1;
    if (tcp->tls || setting == 0 || (loopback && !tcp->zerocopy_always)) return;
    tcp->zerocopy = setsockopt(tcp->fd, SOL_SOCKET, SO_ZEROCOPY, &(int){1}, sizeof(int)) == 0;
}

tt_status tt_tcp_open(struct tt_tcp *tcp, struct tt_tcp_end *end, int fd,
                      const struct tt_tcp_route *route)
{
    struct tt_tcp_room *of = end->room;
    const uint32_t room = (uint32_t)of->nslots * (uint32_t)end->nchannels + SPARE_FRAMES;
    struct tt_tls *tls = NULL;
    if (of->key)
        TT_TRY(tt_tls_open(&tls, fd, of->key, of->context->rank < end->peer, of->records_a_key));
    struct tt_outgoing *queue = calloc(room, sizeof *queue);
    char *control = malloc(TT_CONTROL_BYTES);
    if (!queue || !control) {
        free(queue);
        free(control);
        tt_tls_close(tls);
        return tt_fail(TT_ERR_SYSTEM, "out of memory for a connection to rank %d", end->peer);
    }
    *tcp = (struct tt_tcp){.watched = tcp->watched,
                           .end = end,
                           .fd = fd,
                           .route = *route,
                           .tls = tls,
                           .control = control,
                           .queue = queue,
                           .room = room};
    choose_zerocopy(tcp, route->loopback);
    of->nbytes += room * sizeof *queue + TT_CONTROL_BYTES;
    return TT_OK;
}

/* ---- Out ------------------------------------------------------------------------------------ */

static struct tt_outgoing *queued(struct tt_tcp *tcp, uint32_t i)
{
    return &tcp->queue[(tcp->first + i) % tcp->room];
}

struct tt_outgoing *tt_tcp_push(struct tt_tcp *tcp)
{
    if (tcp->count == tcp->room) return NULL;
    struct tt_outgoing *item = queued(tcp, tcp->count++);
    item->head_nbytes = item->body_nbytes = 0;
    item->body = NULL;
    item->link = NULL;
    item->stamped = item->is_p2p = false;
    return item;
}

/* Moves credits that are due into the frame's header: of the channels after the one whose credits
 * went last, so that each channel has its turn. */
static void stamp(struct tt_outgoing *item, struct tt_tcp_end *end)
{
    if (item->stamped) return;
    struct tt_credits credits[TT_FRAME_CREDITS] = {{0}};
    for (int i = 0, n = 0; i < end->nchannels && n < TT_FRAME_CREDITS; i++) {
        end->stamped = end->stamped + 1 < end->nchannels ? end->stamped + 1 : 0;
        struct tt_tcp_link *link = tt_tcp_link_at(end, false, end->stamped);
        if (!link->credits_due) continue;
        credits[n++] = (struct tt_credits){(uint8_t)end->stamped, link->credits_due};
        link->credits_due = 0;
    }
    uint8_t *frame = item->head + item->head_nbytes - sizeof(struct tt_frame);
    memcpy(frame + offsetof(struct tt_frame, credits), credits, sizeof credits);
    item->stamped = true;
}

static void drop_first(struct tt_tcp *tcp)
{
    struct tt_outgoing *item = queued(tcp, 0);
    if (item->link) item->link->references--;
    tcp->np2p -= item->is_p2p;
    tcp->first = (tcp->first + 1) % tcp->room;
    tcp->count--;
    tcp->sent = 0;
}

static void drop_all(struct tt_tcp *tcp)
{
    while (tcp->count) drop_first(tcp);
}

/* A kernel that still reads lent memory would send later what the owner of the memory writes there
 * next, and the peer would take it for the message: the kernel is made to drop it. */
static void end_lending(struct tt_tcp *tcp)
{
    const struct linger now = {.l_onoff = 1};
    if (!tt_tcp_returned(tcp)) setsockopt(tcp->fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
}

void tt_tcp_close(struct tt_tcp *tcp)
{
    drop_all(tcp);
    if (!tt_private_fd_is_lost(tcp->fd)) end_lending(tcp);
    tt_tls_close(tcp->tls);
    tcp->tls = NULL;
    if (tcp->fd >= 0) tt_private_fd_close(tcp->fd);
    tcp->fd = -1;
    free(tcp->queue);
    free(tcp->control);
    tcp->queue = NULL;
    tcp->control = NULL;
}

static void drop_sent(struct tt_tcp *tcp, size_t nbytes)
{
    while (tcp->count) {
        const struct tt_outgoing *item = queued(tcp, 0);
        const size_t left = item->head_nbytes + (size_t)item->body_nbytes - tcp->sent;
        if (nbytes < left) {
            tcp->sent += nbytes;
            return;
        }
        nbytes -= left;
        drop_first(tcp);
    }
}

static bool is_lent(const struct tt_tcp *tcp, const struct tt_outgoing *item)
{
    return tcp->zerocopy && item->link && item->body_nbytes >= ZEROCOPY_MIN_BYTES;
}

/* The first frames of the queue as pieces of memory, up to a body that is lent. Adds the flags
 * for sending them. */
static int gather(struct tt_tcp *tcp, struct iovec *pieces, int *flags)
{
    int n = 0;
    size_t skip = tcp->sent;
    for (uint32_t i = 0; i < tcp->count && i < FRAMES_A_WRITE; i++) {
        struct tt_outgoing *item = queued(tcp, i);
        const bool lent = is_lent(tcp, item);
        stamp(item, tcp->end);
        const size_t in_head = skip < item->head_nbytes ? skip : item->head_nbytes;
        if (in_head < item->head_nbytes)
            pieces[n++] = (struct iovec){item->head + in_head, item->head_nbytes - in_head};
        if (lent && n) {
            *flags |= MSG_MORE;
            return n;
        }
        skip -= in_head;
        if (skip < item->body_nbytes)
            pieces[n++] =
                (struct iovec){(char *)(uintptr_t)item->body + skip, item->body_nbytes - skip};
        skip = 0;
        if (lent) {
            *flags |= MSG_ZEROCOPY;
            return n;
        }
    }
    return n;
}

static ssize_t write_pieces(struct tt_tcp *tcp, struct iovec *pieces, int npieces, int flags)
{
    if (tcp->tls) return tt_tls_send(tcp->tls, pieces, npieces);
    if (npieces == 2 && pieces[0].iov_len + pieces[1].iov_len <= TOGETHER_BYTES) {
        uint8_t together[TOGETHER_BYTES];
        memcpy(together, pieces[0].iov_base, pieces[0].iov_len);
        memcpy(together + pieces[0].iov_len, pieces[1].iov_base, pieces[1].iov_len);
        return send(tcp->fd, together, pieces[0].iov_len + pieces[1].iov_len,
                    MSG_NOSIGNAL | MSG_DONTWAIT);
    }
    const struct msghdr message = {.msg_iov = pieces, .msg_iovlen = (size_t)npieces};
    ssize_t n = sendmsg(tcp->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT | flags);
    if (n >= 0 && flags & MSG_ZEROCOPY) tcp->lent_to[queued(tcp, 0)->link->channel] = ++tcp->lent;
    if (n < 0 && errno == ENOBUFS && flags & MSG_ZEROCOPY) /* the limit of lent memory is reached */
        n = sendmsg(tcp->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    return n;
}

/* One write. False when the kernel takes no more. */
static bool write_some(struct tt_tcp *tcp)
{
    struct iovec pieces[2 * FRAMES_A_WRITE];
    int flags = 0;
    const int npieces = gather(tcp, pieces, &flags);
    size_t offered = 0;
    for (int i = 0; i < npieces; i++) offered += pieces[i].iov_len;
    const ssize_t n = write_pieces(tcp, pieces, npieces, flags);
    if (n >= 0) {
        drop_sent(tcp, (size_t)n);
        return (size_t)n == offered;
    }
    if (errno == EAGAIN || errno == EINTR) return false;
    tcp->broken = errno;
    drop_all(tcp);
    return true;
}

/* Reads the kernel's notifications about lent memory. When the kernel copied after all, lending is
 * switched off for this connection. */
static void read_notifications(struct tt_tcp *tcp)
{
    for (;;) {
        char control[256];
        struct msghdr message = {.msg_control = control, .msg_controllen = sizeof control};
        if (recvmsg(tcp->fd, &message, MSG_ERRQUEUE | MSG_DONTWAIT) < 0) return;
        for (struct cmsghdr *c = CMSG_FIRSTHDR(&message); c; c = CMSG_NXTHDR(&message, c)) {
            struct sock_extended_err notification;
            if (c->cmsg_len < CMSG_LEN(sizeof notification)) continue;
            memcpy(&notification, CMSG_DATA(c), sizeof notification);
            if (notification.ee_origin != SO_EE_ORIGIN_ZEROCOPY) continue;
            /* The kernel's numbers of writes are the lower halves of these. */
            const uint32_t number = notification.ee_data - notification.ee_info + 1;
            tcp->returned += number;
            if (notification.ee_info == (uint32_t)tcp->returned_to) tcp->returned_to += number;
            if (notification.ee_code & SO_EE_CODE_ZEROCOPY_COPIED && !tcp->zerocopy_always)
                tcp->zerocopy = false;
        }
    }
}

bool tt_tcp_returned(struct tt_tcp *tcp)
{
    if (tcp->lent != tcp->returned && tcp->fd >= 0) read_notifications(tcp);
    return tcp->lent == tcp->returned || tcp->fd < 0;
}

/* Other channels may always have memory lent, or have lent it to a peer that reads nothing.
 * Notifications that come out of order, as after a retransmission, count when all have come. */
bool tt_tcp_returned_of(struct tt_tcp *tcp, int channel)
{
    if (tt_tcp_returned(tcp)) tcp->returned_to = tcp->lent;
    return tcp->returned_to >= tcp->lent_to[channel];
}

/* Queues a frame of its own for credits when enough of a channel are due. */
static bool put_credits(struct tt_tcp *tcp)
{
    const struct tt_tcp_end *end = tcp->end;
    const struct tt_frame frame = {.kind = TT_FRAME_CREDIT};
    bool due = false;
    for (int c = 0; c < end->nchannels; c++)
        due |= tt_tcp_link_at(end, false, c)->credits_due >= end->room->credits_due_max;
    if (!due) return false;
    struct tt_outgoing *item = tt_tcp_push(tcp);
    memcpy(item->head, &frame, sizeof frame);
    item->head_nbytes = sizeof frame;
    return true;
}

tt_status tt_tcp_flush(struct tt_tcp *tcp)
{
    if (tcp->fd < 0 || tcp->broken) {
        drop_all(tcp);
        return TT_OK;
    }
    while (tcp->count || (!tcp->broken && put_credits(tcp)))
        if (!write_some(tcp)) return TT_IN_PROGRESS;
    return TT_OK;
}

bool tt_tcp_is_unresponsive(int fd, int64_t *unresponsive_ns, int64_t timeout_ns)
{
    struct tcp_info info;
    socklen_t nbytes = sizeof info;
    if (fd < 0 || getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &nbytes) != 0) return false;
    const int64_t now = tt_now_ns(), heard_ns = now - info.tcpi_last_ack_recv * INT64_C(1000000);
    /* One probe of a closed window may stay unanswered: Linux limits their rate. */
    const bool unanswered =
        info.tcpi_probes > 1 ||
        (info.tcpi_retransmits && info.tcpi_last_ack_recv > info.tcpi_last_data_sent);
    if (!unanswered || !*unresponsive_ns || heard_ns > *unresponsive_ns)
        *unresponsive_ns = unanswered ? now : 0;
    return unanswered && now - *unresponsive_ns >= timeout_ns;
}

size_t tt_tcp_unsent(const struct tt_tcp *tcp)
{
    int in_kernel = 0;
    if (tcp->fd < 0 || tcp->broken || tcp->left) return 0;
    /* Acknowledges at once: the peer may wait for the acknowledgement in this same function. */
    setsockopt(tcp->fd, IPPROTO_TCP, TCP_QUICKACK, &(int){1}, sizeof(int));
    if (ioctl(tcp->fd, SIOCOUTQ, &in_kernel) != 0) in_kernel = 0;
    return (size_t)in_kernel + tcp->count;
}

/* ---- In ------------------------------------------------------------------------------------- */

static tt_status lost(struct tt_tcp *tcp, int error)
{
    return tcp->end->room->owner->lost(tcp->end->owner, tcp, error);
}

static size_t payload_left(const struct tt_tcp *tcp)
{
    return tcp->in_frame ? tcp->frame.nbytes - tcp->got : 0;
}

/* The payload's place is chosen as late as possible: until then the receiver may call expect() with
 * its buffer. */
static tt_status choose_place(struct tt_tcp *tcp)
{
    if (!tcp->in_frame || tcp->to) return TT_OK;
    const tt_status status = tt_tcp_place(tcp, &tcp->frame, &tcp->to);
    /* Out of memory, which has failed the communicator: the incoming bytes have no place. */
    if (status < 0) tt_ignore(lost(tcp, ENOMEM));
    return status;
}

static tt_status finish_if_whole(struct tt_tcp *tcp)
{
    if (!tcp->in_frame || payload_left(tcp)) return TT_OK;
    TT_TRY(choose_place(tcp));
    char *to = tcp->to;
    tcp->in_frame = false;
    tcp->to = NULL;
    return tt_tcp_take(tcp, &tcp->frame, to);
}

/* Splits the incoming bytes into frames. */
static tt_status parse(struct tt_tcp *tcp)
{
    while (tcp->incoming_begin < tcp->incoming_end) {
        const uint8_t *from = tcp->incoming + tcp->incoming_begin;
        size_t n = tcp->incoming_end - tcp->incoming_begin;
        if (tcp->in_frame) {
            TT_TRY(choose_place(tcp));
            if (n > payload_left(tcp)) n = payload_left(tcp);
            memcpy(tcp->to + tcp->got, from, n);
            tcp->got += n;
        } else {
            if (n < sizeof tcp->frame) break;
            n = sizeof tcp->frame;
            memcpy(&tcp->frame, from, n);
            TT_TRY(tt_tcp_check(tcp, &tcp->frame));
            tcp->in_frame = true;
            tcp->got = 0;
        }
        tcp->incoming_begin += (uint32_t)n;
        TT_TRY(finish_if_whole(tcp));
    }
    const uint32_t rest = tcp->incoming_end - tcp->incoming_begin;
    if (rest) memmove(tcp->incoming, tcp->incoming + tcp->incoming_begin, rest);
    tcp->incoming_begin = 0;
    tcp->incoming_end = rest;
    return TT_OK;
}

/* Reads the rest of a payload into its place and the next header behind it; without a payload,
 * reads ahead. */
static ssize_t read_some(struct tt_tcp *tcp)
{
    const size_t left = payload_left(tcp);
    uint8_t *ahead = tcp->incoming + tcp->incoming_end;
    const size_t room = sizeof tcp->incoming - tcp->incoming_end;
    if (tcp->tls)
        return left ? tt_tls_receive(tcp->tls, tcp->to + tcp->got, left)
                    : tt_tls_receive(tcp->tls, ahead, room);
    if (!left) return recv(tcp->fd, ahead, room, MSG_DONTWAIT);
    struct iovec pieces[2] = {{tcp->to + tcp->got, left}, {tcp->incoming, sizeof(struct tt_frame)}};
    struct msghdr message = {.msg_iov = pieces, .msg_iovlen = 2};
    return recvmsg(tcp->fd, &message, MSG_DONTWAIT);
}

static tt_status read_once(struct tt_tcp *tcp)
{
    TT_TRY(choose_place(tcp));
    const size_t left = payload_left(tcp);
    const ssize_t n = read_some(tcp);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return TT_IN_PROGRESS;
    if (n < 0) return lost(tcp, errno);
    if (n == 0) return lost(tcp, tcp->broken == EPIPE ? 0 : tcp->broken);
    tcp->has_read = true;
    const size_t into_place = (size_t)n < left ? (size_t)n : left;
    tcp->got += into_place;
    tcp->incoming_end += (uint32_t)((size_t)n - into_place);
    TT_TRY(finish_if_whole(tcp));
    return parse(tcp);
}

tt_status tt_tcp_read(struct tt_tcp *tcp)
{
    if (tcp->fd < 0) return TT_IN_PROGRESS;
    if (tcp->lent != tcp->returned) read_notifications(tcp);
    TT_AWAIT(read_once(tcp));
    while (tcp->tls && tt_tls_holds(tcp->tls))
        TT_AWAIT(read_once(tcp)); /* epoll does not report records that OpenSSL has read already */
    return TT_OK;
}
