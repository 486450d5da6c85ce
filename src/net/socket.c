/* Addresses, and sockets that connect, listen, send and receive under a deadline. */
#include "net/socket.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/config.h"
#include "base/private_fd.h"

enum { BACKLOG = 4096 }; /* the kernel cuts it down to its own limit */

/* ---- Addresses ------------------------------------------------------------------------------ */

static size_t family_bytes(int family)
{
    if (family == AF_INET) return sizeof(struct sockaddr_in);
    return family == AF_INET6 ? sizeof(struct sockaddr_in6) : 0;
}

int tt_address_family(const struct tt_address *address)
{
    sa_family_t family;
    memcpy(&family, address->bytes + offsetof(struct sockaddr, sa_family), sizeof family);
    return family;
}

bool tt_address_valid(const struct tt_address *address)
{
    const size_t nbytes = family_bytes(tt_address_family(address));
    return nbytes != 0 && address->nbytes == nbytes;
}

void tt_address_set(struct tt_address *address, const struct sockaddr *from)
{
    const size_t nbytes = family_bytes(from->sa_family);
    *address = (struct tt_address){.nbytes = (uint32_t)nbytes};
    memcpy(address->bytes, from, nbytes);
}

/* sin_port and sin6_port lie at the same offset. */
_Static_assert(offsetof(struct sockaddr_in, sin_port) == offsetof(struct sockaddr_in6, sin6_port),
               "one offset for both families");

int tt_address_port(const struct tt_address *address)
{
    in_port_t port;
    memcpy(&port, address->bytes + offsetof(struct sockaddr_in, sin_port), sizeof port);
    return ntohs(port);
}

void tt_address_set_port(struct tt_address *address, int port)
{
    const in_port_t wire = htons((uint16_t)port);
    memcpy(address->bytes + offsetof(struct sockaddr_in, sin_port), &wire, sizeof wire);
}

static size_t offset_of_host(const struct tt_address *address)
{
    return tt_address_family(address) == AF_INET ? offsetof(struct sockaddr_in, sin_addr)
                                                 : offsetof(struct sockaddr_in6, sin6_addr);
}

bool tt_address_lacks_scope(const struct tt_address *address)
{
    struct sockaddr_in6 in6;
    memcpy(&in6, address->bytes, sizeof in6);
    return in6.sin6_family == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&in6.sin6_addr) &&
           !in6.sin6_scope_id;
}

void tt_address_set_scope(struct tt_address *address, const struct tt_address *like)
{
    if (tt_address_family(address) != AF_INET6 || tt_address_family(like) != AF_INET6) return;
    struct sockaddr_in6 in6, link;
    memcpy(&in6, address->bytes, sizeof in6);
    memcpy(&link, like->bytes, sizeof link);
    if (!IN6_IS_ADDR_LINKLOCAL(&in6.sin6_addr) || !link.sin6_scope_id) return;
    in6.sin6_scope_id = link.sin6_scope_id;
    memcpy(address->bytes, &in6, sizeof in6);
}

bool tt_address_is_loopback(const struct tt_address *address)
{
    if (tt_address_family(address) == AF_INET) {
        struct sockaddr_in in;
        memcpy(&in, address->bytes, sizeof in);
        return ntohl(in.sin_addr.s_addr) >> 24 == 127;
    }
    struct sockaddr_in6 in6;
    memcpy(&in6, address->bytes, sizeof in6);
    return IN6_IS_ADDR_LOOPBACK(&in6.sin6_addr);
}

const char *tt_address_host(const struct tt_address *address, char text[TT_ADDRESS_TEXT])
{
    const bool v4 = tt_address_family(address) == AF_INET;
    if (!inet_ntop(v4 ? AF_INET : AF_INET6, address->bytes + offset_of_host(address), text,
                   TT_ADDRESS_TEXT))
        strcpy(text, "?");
    struct sockaddr_in6 in6;
    memcpy(&in6, address->bytes, sizeof in6);
    if (v4 || !in6.sin6_scope_id) return text;
    const size_t length = strlen(text);
    snprintf(text + length, TT_ADDRESS_TEXT - length, "%%%u", in6.sin6_scope_id);
    return text;
}

const char *tt_address_format(const struct tt_address *address, char text[TT_ADDRESS_TEXT])
{
    char host[TT_ADDRESS_TEXT];
    tt_address_host(address, host);
    const bool v4 = tt_address_family(address) == AF_INET;
    snprintf(text, TT_ADDRESS_TEXT, v4 ? "%.50s:%d" : "[%.50s]:%d", host, tt_address_port(address));
    return text;
}

/* Without ::ffff: before an IPv4 address, as a listener of both families shows it. */
static void unmap(struct tt_address *address)
{
    if (tt_address_family(address) != AF_INET6) return;
    struct sockaddr_in6 in6;
    memcpy(&in6, address->bytes, sizeof in6);
    if (!IN6_IS_ADDR_V4MAPPED(&in6.sin6_addr)) return;
    struct sockaddr_in in = {.sin_family = AF_INET, .sin_port = in6.sin6_port};
    memcpy(&in.sin_addr, in6.sin6_addr.s6_addr + 12, sizeof in.sin_addr);
    tt_address_set(address, (const struct sockaddr *)&in);
}

static int ask_address(struct tt_address *address, int fd,
                       int (*ask)(int, struct sockaddr *, socklen_t *))
{
    struct tt_address found = {0};
    socklen_t nbytes = sizeof found.bytes;
    if (ask(fd, (struct sockaddr *)found.bytes, &nbytes) != 0) return errno;
    found.nbytes = nbytes;
    unmap(&found);
    *address = found;
    return 0;
}

int tt_socket_own(int fd, struct tt_address *address)
{
    return ask_address(address, fd, getsockname);
}

int tt_socket_peer(int fd, struct tt_address *address)
{
    return ask_address(address, fd, getpeername);
}

/* ---- Listening ------------------------------------------------------------------------------ */

tt_status tt_socket_fail(int error, const char *what)
{
    if (error != EMFILE && error != ENFILE) return tt_fail_errno(error, "%s", what);
    struct rlimit limit = {0};
    getrlimit(RLIMIT_NOFILE, &limit);
    return tt_fail_errno(error,
                         "%s: no file descriptor is left of %llu; raise the limit (ulimit -n, at "
                         "most %llu without root)",
                         what, (unsigned long long)limit.rlim_cur,
                         (unsigned long long)limit.rlim_max);
}

/* `address` has the last of nports ports. */
static tt_status fail_listen(int error, const struct tt_address *address, int nports)
{
    char text[TT_ADDRESS_TEXT], first[24] = "port ", *be = nports > 1 ? "are" : "is";
    if (nports > 1)
        snprintf(first, sizeof first, "ports %d to ", tt_address_port(address) - nports + 1);
    tt_address_format(address, text);
    if (error == EADDRINUSE)
        return tt_fail_errno(
            error,
            "cannot listen at %s: %s%d %s taken; choose another (MASTER_PORT, "
            "tcp://host:port, tutti-run --master-port) or end its holder (ss -tanp)",
            text, first, tt_address_port(address), be);
    if (error == EADDRNOTAVAIL)
        return tt_fail_errno(
            error,
            "cannot listen at %s: no interface of this host has that address; rank "
            "0 must run on the host that MASTER_ADDR (or tcp://) names",
            text);
    if (error == EACCES)
        return tt_fail_errno(error, "cannot listen at %s: ports below 1024 need root", text);
    char what[TT_ADDRESS_TEXT + 32];
    snprintf(what, sizeof what, "cannot listen at %s", text);
    return tt_socket_fail(error, what);
}

/* Binds there, and listens if `listens`; 0 or an errno value. */
static int bind_at(int *fd, struct tt_address *at, bool listens)
{
    tt_private_fd_begin();
    const int opened = tt_private_fd_end(
        socket(tt_address_family(at), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (opened < 0) return errno;
    /* Without it a port is refused for a minute after its last connection. */
    setsockopt(opened, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int));
    if (tt_address_family(at) == AF_INET6) /* :: means IPv4 as well */
        setsockopt(opened, IPPROTO_IPV6, IPV6_V6ONLY, &(int){0}, sizeof(int));
    int error = 0;
    socklen_t nbytes = sizeof at->bytes;
    if (bind(opened, (const struct sockaddr *)at->bytes, at->nbytes) != 0 ||
        (listens && listen(opened, BACKLOG) != 0) ||
        getsockname(opened, (struct sockaddr *)at->bytes, &nbytes) != 0)
        error = errno;
    if (error)
        tt_private_fd_close(opened);
    else
        *fd = opened;
    return error;
}

/* All interfaces: of both families, where there are both. */
static int bind_everywhere(int *fd, struct tt_address *at, bool listens)
{
    const int port = tt_address_port(at);
    const bool v4 = tt_address_family(at) == AF_INET;
    tt_address_set(at, (const struct sockaddr *)&(struct sockaddr_in6){.sin6_family = AF_INET6});
    tt_address_set_port(at, port);
    const int error = bind_at(fd, at, listens);
    if (!v4 || (error != EAFNOSUPPORT && error != EADDRNOTAVAIL)) return error;
    tt_address_set(at, (const struct sockaddr *)&(struct sockaddr_in){.sin_family = AF_INET});
    tt_address_set_port(at, port);
    return bind_at(fd, at, listens);
}

tt_status tt_socket_listen_first(int *fd, struct tt_address *address, int nports, bool everywhere)
{
    struct tt_address at = *address;
    const int port = tt_address_port(&at);
    const bool narrowed = !port && tt_config_string(TT_CONFIG_SOCKET_INTERFACE)[0];
    int error = EADDRINUSE;
    for (int i = 0; i < nports && error == EADDRINUSE; i++) {
        at = *address;
        tt_address_set_port(&at, port + i);
        error = everywhere && !narrowed ? bind_everywhere(fd, &at, true) : bind_at(fd, &at, true);
    }
    if (error) return fail_listen(error, &at, nports);
    tt_address_set_port(address, tt_address_port(&at));
    return TT_OK;
}

tt_status tt_socket_listen(int *fd, struct tt_address *address, bool everywhere)
{
    return tt_socket_listen_first(fd, address, 1, everywhere);
}

tt_status tt_socket_listen_everywhere(int *fd, struct tt_address *address)
{
    struct tt_address at = *address;
    tt_address_set_port(&at, 0);
    const int error = bind_everywhere(fd, &at, true);
    if (error) return fail_listen(error, &at, 1);
    tt_address_set_port(address, tt_address_port(&at));
    return TT_OK;
}

tt_status tt_socket_reserve(int *fd, struct tt_address *address)
{
    struct tt_address at = *address;
    tt_address_set_port(&at, 0);
    const int error = bind_everywhere(fd, &at, false);
    if (error) return tt_socket_fail(error, "bootstrap: cannot reserve a port");
    tt_address_set_port(address, tt_address_port(&at));
    return TT_OK;
}

int tt_socket_accept(int listener, struct tt_address *peer)
{
    struct tt_address found = {0};
    socklen_t nbytes = sizeof found.bytes;
    tt_private_fd_begin();
    const int fd = tt_private_fd_end(
        accept4(listener, (struct sockaddr *)found.bytes, &nbytes, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (fd < 0) return -1;
    found.nbytes = nbytes;
    unmap(&found);
    *peer = found;
    return fd;
}

/* ---- Connections ---------------------------------------------------------------------------- */

void tt_socket_tune(int fd)
{
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
    /* A host that fails without closing its connections is noticed within two minutes. */
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &(int){1}, sizeof(int));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &(int){60}, sizeof(int));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &(int){10}, sizeof(int));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &(int){6}, sizeof(int));
}

/* Waits for `events` on fd: 0, ETIMEDOUT or another errno. */
static int await(int fd, short events, int64_t deadline_ns)
{
    for (;;) {
        struct pollfd entry = {.fd = fd, .events = events};
        const int n = poll(&entry, 1, tt_left_ms(deadline_ns));
        if (n > 0) return 0;
        if (n < 0 && errno != EINTR) return errno;
        if (tt_expired(deadline_ns)) return ETIMEDOUT;
    }
}

int tt_socket_await(int fd, int64_t deadline_ns)
{
    return await(fd, POLLIN, deadline_ns);
}

/* While nobody listens at a port from which the kernel also picks, a connection to it may be given
 * that very port as its own and meet itself. */
static bool meets_itself(int fd, const struct tt_address *peer)
{
    struct tt_address own;
    if (tt_socket_own(fd, &own) != 0) return false;
    char own_text[TT_ADDRESS_TEXT], peer_text[TT_ADDRESS_TEXT];
    return !strcmp(tt_address_format(&own, own_text), tt_address_format(peer, peer_text));
}

int tt_socket_connect(int *fd, const struct tt_address *address, int64_t deadline_ns)
{
    tt_private_fd_begin();
    const int opened = tt_private_fd_end(
        socket(tt_address_family(address), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (opened < 0) return errno;
    int error = 0;
    /* Else the port that the kernel picks could not be listened at while this connection lasts. */
    setsockopt(opened, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int));
    if (connect(opened, (const struct sockaddr *)address->bytes, address->nbytes) != 0)
        error = errno;
    if (error == EINPROGRESS || error == EINTR) {
        socklen_t nbytes = sizeof error;
        const int waited = await(opened, POLLOUT, deadline_ns);
        if (waited)
            error = waited;
        else if (getsockopt(opened, SOL_SOCKET, SO_ERROR, &error, &nbytes) != 0)
            error = errno;
    }
    if (!error && meets_itself(opened, address)) error = ECONNREFUSED;
    if (error) {
        tt_private_fd_close(opened);
        return error;
    }
    tt_socket_tune(opened);
    setsockopt(opened, IPPROTO_TCP, TCP_KEEPIDLE, &(int){1}, sizeof(int));
    *fd = opened;
    return 0;
}

int tt_socket_receive(int fd, void *buffer, size_t nbytes, int64_t deadline_ns)
{
    for (size_t done = 0; done < nbytes;) {
        const ssize_t n = recv(fd, (char *)buffer + done, nbytes - done, 0);
        if (n > 0) {
            done += (size_t)n;
            continue;
        }
        if (n == 0) return EPIPE;
        if (errno == EINTR) continue;
        if (errno != EAGAIN) return errno;
        const int error = await(fd, POLLIN, deadline_ns);
        if (error) return error;
    }
    return 0;
}

int tt_socket_send(int fd, const void *buffer, size_t nbytes, int64_t deadline_ns)
{
    for (size_t done = 0; done < nbytes;) {
        const ssize_t n = send(fd, (const char *)buffer + done, nbytes - done, MSG_NOSIGNAL);
        if (n >= 0) {
            done += (size_t)n;
            continue;
        }
        if (errno == EINTR) continue;
        if (errno != EAGAIN) return errno;
        const int error = await(fd, POLLOUT, deadline_ns);
        if (error) return error;
    }
    return 0;
}

int tt_socket_send_now(int fd, const void *buffer, size_t nbytes)
{
    ssize_t n;
    do n = send(fd, buffer, nbytes, MSG_NOSIGNAL | MSG_DONTWAIT);
    while (n < 0 && errno == EINTR);
    if (n < 0) return errno;
    return (size_t)n == nbytes ? 0 : ENOBUFS;
}
