/* Passes file descriptors over Unix datagram sockets, with the sender's credentials checked. */
#include "transport/host/fdpass.h"

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <poll.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/private_fd.h"
#include "base/thread.h"

enum {
    QUEUE = 128,    /* connections that may wait at a socket */
    SEND_MS = 1000, /* for a rank that has connected to send */
};

static socklen_t to_sockaddr(const struct tt_fd_address *address, struct sockaddr_un *un)
{
    static const char hex[] = "0123456789abcdef";
    static const char prefix[] = "tutti-";
    memset(un, 0, sizeof *un);
    un->sun_family = AF_UNIX;
    char *out = un->sun_path + 1; /* a leading NUL: the abstract namespace */
    memcpy(out, prefix, sizeof prefix - 1);
    out += sizeof prefix - 1;
    for (size_t i = 0; i < sizeof address->name; i++) {
        *out++ = hex[address->name[i] >> 4];
        *out++ = hex[address->name[i] & 15];
    }
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + (size_t)(out - un->sun_path));
}

static int open_socket(void)
{
    tt_private_fd_begin();
    return tt_private_fd_end(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

tt_status tt_fdpass_open(int *socket_fd, struct tt_fd_address *address)
{
    struct tt_fd_address fresh;
    if (getrandom(&fresh, sizeof fresh, 0) != sizeof fresh)
        return tt_fail_errno(errno, "getrandom failed");
    const int fd = open_socket();
    if (fd < 0)
        return tt_fail_errno(
            errno, "no Unix socket for passing descriptors (limit of open files: ulimit -n)");
    struct sockaddr_un un;
    const socklen_t length = to_sockaddr(&fresh, &un);
    if (bind(fd, (struct sockaddr *)&un, length) || listen(fd, QUEUE - 1)) {
        const int error = errno;
        tt_private_fd_close(fd);
        return tt_fail_errno(error, "cannot bind the Unix socket for passing descriptors");
    }
    *socket_fd = fd;
    *address = fresh;
    return TT_OK;
}

/* Who is at the other end, as the kernel says: who connected, or who was listening. */
static struct ucred owner_of(int connection)
{
    struct ucred owner = {.uid = (uid_t)-1};
    socklen_t size = sizeof owner;
    if (getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &owner, &size)) owner.uid = (uid_t)-1;
    return owner;
}

static bool is_trusted(const struct ucred *owner)
{
    return owner->uid == geteuid() || owner->uid == 0;
}

/* ---- Sending -------------------------------------------------------------------------------- */

static bool is_for_now(int error)
{
    return error == EAGAIN || error == ENOBUFS || error == ETOOMANYREFS || error == EMFILE ||
           error == ENFILE;
}

static tt_status fail_to_pass(int error)
{
    if (is_for_now(error)) return TT_IN_PROGRESS;
    return tt_fail_errno(error, "cannot pass a descriptor to another rank of this host");
}

/* Who listens there now need not be the rank that told the address. */
static tt_status check_recipient(int connection)
{
    const struct ucred owner = owner_of(connection);
    if (is_trusted(&owner)) return TT_OK;
    return tt_fail(TT_ERR_USAGE,
                   "no memory is shared with pid %d of uid %d, which listens at the address of "
                   "another rank of this host; this rank runs as uid %d: run all ranks of a host "
                   "as one user",
                   (int)owner.pid, (int)owner.uid, (int)geteuid());
}

static int send_on(int connection, const struct tt_fd_note *note, int fd)
{
    struct tt_fd_note copy = *note;
    struct iovec iov = {&copy, sizeof copy};
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {0};
    struct msghdr message = {
        .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof fd);
    memcpy(CMSG_DATA(header), &fd, sizeof fd);
    ssize_t sent;
    do sent = sendmsg(connection, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    while (sent < 0 && errno == EINTR);
    return sent < 0 ? errno : 0;
}

tt_status tt_fdpass_reserve(int *spare)
{
    *spare = open_socket();
    if (*spare >= 0) return TT_OK;
    return tt_fail_errno(errno, "no Unix socket to pass memory to the other ranks of this host by "
                                "(limit of open files: ulimit -n)");
}

tt_status tt_fdpass_send(const struct tt_fd_address *to, const struct tt_fd_note *note, int fd,
                         int *spare)
{
    TT_CANCELS_WAIT;
    struct sockaddr_un un;
    const socklen_t length = to_sockaddr(to, &un);
    int connection = open_socket();
    const bool takes_spare = connection < 0 && spare && *spare >= 0;
    if (takes_spare) connection = *spare;
    if (connection < 0) return fail_to_pass(errno);
    int error = connect(connection, (struct sockaddr *)&un, length) ? errno : 0;
    const bool is_unused = error;
    tt_status status = error ? fail_to_pass(error) : check_recipient(connection);
    if (!status) {
        error = send_on(connection, note, fd);
        if (error) status = fail_to_pass(error);
    }
    if (takes_spare && is_unused) return status; /* it stays the spare */
    tt_private_fd_close(connection);
    if (takes_spare) *spare = open_socket();
    return status;
}

/* ---- Receiving ------------------------------------------------------------------------------ */

/* The first one at once, then ever more rarely: at 10, 100, 1000 ... */
static void say_dropped(const struct ucred *from, const char *why)
{
    static _Atomic uint64_t ndropped;
    const uint64_t n = atomic_fetch_add_explicit(&ndropped, 1, memory_order_relaxed) + 1;
    uint64_t power = 1;
    while (power < n) power *= 10;
    if (power == n)
        TT_WARN("dropped a descriptor from pid %d, uid %d: %s (%llu dropped so far)",
                (int)from->pid, (int)from->uid, why, (unsigned long long)n);
}

/* The first descriptor that came; more than one is not ours, and they are closed. -1: none. */
static int take_first(struct msghdr *message)
{
    int first = -1;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(message); c; c = CMSG_NXTHDR(message, c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
        for (size_t at = 0; CMSG_LEN(at + sizeof(int)) <= c->cmsg_len; at += sizeof(int)) {
            int fd;
            memcpy(&fd, CMSG_DATA(c) + at, sizeof fd);
            if (first < 0)
                first = fd;
            else
                close(fd);
        }
    }
    return first;
}

/* Until the message has come, or can come no more: a sender that is too late is refused. */
static void await_message(int connection)
{
    const int64_t deadline_ns = tt_deadline_ns(SEND_MS);
    struct pollfd poll_fd = {.fd = connection, .events = POLLIN};
    int n;
    do n = poll(&poll_fd, 1, tt_left_ms(deadline_ns));
    while (n < 0 && errno == EINTR && !tt_expired(deadline_ns));
    if (n < 1) shutdown(connection, SHUT_RDWR);
}

/* What one connection brings; TT_IN_PROGRESS: it was dropped. */
static tt_status receive_on(int connection, uint64_t secret, struct tt_fd_note *note, int *fd)
{
    const struct ucred from = owner_of(connection);
    struct tt_fd_note got;
    struct iovec iov = {&got, sizeof got};
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(int))];
    struct msghdr message = {
        .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    if (!is_trusted(&from)) {
        say_dropped(&from, "of another user");
        return TT_IN_PROGRESS;
    }
    await_message(connection);
    tt_private_fd_begin();
    const ssize_t nbytes = recvmsg(connection, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    const int passed = tt_private_fd_end(nbytes < 0 ? -1 : take_first(&message));
    if (nbytes != (ssize_t)sizeof got || got.secret != secret) {
        if (passed >= 0) tt_private_fd_close(passed);
        say_dropped(&from, nbytes <= 0 ? "nothing came" : "not from this communicator");
        return TT_IN_PROGRESS;
    }
    if (passed < 0)
        return tt_fail(
            TT_ERR_SYSTEM,
            "cannot take a descriptor from another rank: too many open files (ulimit -n)");
    *note = got;
    *fd = passed;
    return TT_OK;
}

tt_status tt_fdpass_receive(int socket_fd, uint64_t secret, struct tt_fd_note *note, int *fd)
{
    TT_CANCELS_WAIT;
    /* All that waits now, and not what strangers add meanwhile. */
    for (int i = 0; i < QUEUE; i++) {
        tt_private_fd_begin();
        const int connection =
            tt_private_fd_end(accept4(socket_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK));
        if (connection < 0 && (errno == EINTR || errno == ECONNABORTED)) continue;
        if (connection < 0 && errno == EAGAIN) return TT_IN_PROGRESS;
        if (connection < 0 && tt_private_fd_is_lost(socket_fd))
            return tt_fail(TT_ERR_USAGE, "this process has closed the descriptor on which it is "
                                         "shown memory of other ranks: " TT_LOST_FD);
        if (connection < 0)
            return tt_fail_errno(
                errno, "cannot receive a descriptor from another rank (open files: ulimit -n)");
        const tt_status status = receive_on(connection, secret, note, fd);
        tt_private_fd_close(connection);
        if (status != TT_IN_PROGRESS) return status;
    }
    return TT_IN_PROGRESS;
}
