#include "transport/host/fdpass.h"

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/log.h"
#include "base/private_fd.h"

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

tt_status tt_fdpass_open(int *socket_fd, struct tt_fd_address *address)
{
    struct tt_fd_address fresh;
    if (getrandom(&fresh, sizeof fresh, 0) != sizeof fresh)
        return tt_fail_errno(errno, "getrandom failed");
    tt_private_fd_begin();
    const int fd = tt_private_fd_end(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (fd < 0)
        return tt_fail_errno(
            errno, "no Unix socket for passing descriptors (limit of open files: ulimit -n)");
    struct sockaddr_un un;
    const socklen_t length = to_sockaddr(&fresh, &un);
    const int on = 1;
    if (setsockopt(fd, SOL_SOCKET, SO_PASSCRED, &on, sizeof on) ||
        bind(fd, (struct sockaddr *)&un, length)) {
        const int error = errno;
        tt_private_fd_close(fd);
        return tt_fail_errno(error, "cannot bind the Unix socket for passing descriptors");
    }
    *socket_fd = fd;
    *address = fresh;
    return TT_OK;
}

tt_status tt_fdpass_send(int socket_fd, const struct tt_fd_address *to,
                         const struct tt_fd_note *note, int fd)
{
    struct sockaddr_un un;
    const socklen_t length = to_sockaddr(to, &un);
    struct tt_fd_note copy = *note;
    struct iovec iov = {&copy, sizeof copy};
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {0};
    struct msghdr message = {.msg_name = &un,
                             .msg_namelen = length,
                             .msg_iov = &iov,
                             .msg_iovlen = 1,
                             .msg_control = control,
                             .msg_controllen = sizeof control};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof fd);
    memcpy(CMSG_DATA(header), &fd, sizeof fd);
    ssize_t sent;
    do sent = sendmsg(socket_fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    while (sent < 0 && errno == EINTR);
    if (sent >= 0) return TT_OK;
    if (errno == EAGAIN || errno == ENOBUFS || errno == ETOOMANYREFS) return TT_IN_PROGRESS;
    return tt_fail_errno(errno, "cannot pass a descriptor to another rank of this host");
}

tt_status tt_fdpass_receive(int socket_fd, uint64_t secret, struct tt_fd_note *note, int *fd)
{
    for (;;) {
        struct tt_fd_note got;
        struct iovec iov = {&got, sizeof got};
        _Alignas(struct cmsghdr) char
            control[CMSG_SPACE(sizeof(int)) + CMSG_SPACE(sizeof(struct ucred))];
        struct msghdr message = {.msg_iov = &iov,
                                 .msg_iovlen = 1,
                                 .msg_control = control,
                                 .msg_controllen = sizeof control};
        const ssize_t nbytes = recvmsg(socket_fd, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
        if (nbytes < 0 && errno == EINTR) continue;
        if (nbytes < 0 && errno == EAGAIN) return TT_IN_PROGRESS;
        if (nbytes < 0)
            return tt_fail_errno(errno, "cannot receive a descriptor from another rank");
        int passed = -1;
        struct ucred from = {.uid = (uid_t)-1};
        for (struct cmsghdr *c = CMSG_FIRSTHDR(&message); c; c = CMSG_NXTHDR(&message, c)) {
            if (c->cmsg_level != SOL_SOCKET) continue;
            if (c->cmsg_type == SCM_RIGHTS) memcpy(&passed, CMSG_DATA(c), sizeof passed);
            if (c->cmsg_type == SCM_CREDENTIALS) memcpy(&from, CMSG_DATA(c), sizeof from);
        }
        if (passed >= 0) tt_private_fd_add(passed);
        const bool known = nbytes == (ssize_t)sizeof got && got.secret == secret &&
                           (from.uid == geteuid() || from.uid == 0);
        if (known && passed < 0)
            return tt_fail(
                TT_ERR_SYSTEM,
                "cannot take a descriptor from another rank: too many open files (ulimit -n)");
        if (known) {
            *note = got;
            *fd = passed;
            return TT_OK;
        }
        if (passed >= 0) tt_private_fd_close(passed);
        TT_WARN("dropped a datagram from pid %d, uid %d: not from this communicator", (int)from.pid,
                (int)from.uid);
    }
}
