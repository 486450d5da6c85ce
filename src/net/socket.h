/* Sockets of the bootstrap: non-blocking, close-on-exec, no delay, never SIGPIPE, every wait with a
 * deadline. */
#ifndef TT_NET_SOCKET_H
#define TT_NET_SOCKET_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include "base/status.h"

enum { TT_ADDRESS_BYTES = 28, TT_ADDRESS_TEXT = 64 };

/* An IPv4 or IPv6 address with its port; travels on the wire as it is. */
struct tt_address {
    uint32_t nbytes; /* of the sockaddr in bytes; 0: none */
    uint8_t bytes[TT_ADDRESS_BYTES];
};
_Static_assert(sizeof(struct sockaddr_in6) <= TT_ADDRESS_BYTES, "an IPv6 address must fit");

/* Whether it holds a well-formed sockaddr_in or sockaddr_in6: for addresses that came from
 * elsewhere. */
bool tt_address_valid(const struct tt_address *address);
void tt_address_set(struct tt_address *address, const struct sockaddr *from);
int tt_address_family(const struct tt_address *address);
int tt_address_port(const struct tt_address *address);
void tt_address_set_port(struct tt_address *address, int port);
/* Whether it is link-local and does not say on which link. */
bool tt_address_lacks_scope(const struct tt_address *address);
/* Makes a link-local address of another host mean the link of `like`, which is link-local too. */
void tt_address_set_scope(struct tt_address *address, const struct tt_address *like);
bool tt_address_is_loopback(const struct tt_address *address);
/* "192.0.2.1" or "fd00::1". Returns text. */
const char *tt_address_host(const struct tt_address *address, char text[TT_ADDRESS_TEXT]);
/* "192.0.2.1:29500" or "[fd00::1]:29500". Returns text. */
const char *tt_address_format(const struct tt_address *address, char text[TT_ADDRESS_TEXT]);

/* Listens at `address` (when `everywhere` at all interfaces, IPv4 and IPv6; TUTTI_SOCKET_INTERFACE
 * narrows that again when the port is 0), port 0 meaning any free one, and stores the port in
 * `address`. TT_ERR_SYSTEM says what the OS refused and the remedy. */
TT_NODISCARD tt_status tt_socket_listen(int *fd, struct tt_address *address, bool everywhere);

/* Listens at a free port of all interfaces, whatever TUTTI_SOCKET_INTERFACE says, and stores it in
 * `address`, whose family is preferred. */
TT_NODISCARD tt_status tt_socket_listen_everywhere(int *fd, struct tt_address *address);

/* Listens at the first of nports ports, from that of `address` on, that is not taken. */
TT_NODISCARD tt_status tt_socket_listen_first(int *fd, struct tt_address *address, int nports,
                                              bool everywhere);

/* Reserves a free port for this process at all interfaces and stores it in `address`: bound, but
 * not listening, so that tt_socket_listen can listen at it as long as *fd is open. A port that is
 * bound at one address only may be the port of an outgoing connection from another address, and
 * then nobody could listen at all interfaces. TT_ERR_SYSTEM says what the OS refused. */
TT_NODISCARD tt_status tt_socket_reserve(int *fd, struct tt_address *address);

/* The following return 0 or an errno value: ETIMEDOUT at the deadline, EPIPE when the other end has
 * closed.
 *
 * A kernel that closes a listener may forget a connection that comes at that moment, and not tell
 * its other end (Linux 6.18 does). So this connection is probed after 1 s of silence, until
 * tt_socket_tune: a receive then fails with ECONNRESET. */
int tt_socket_connect(int *fd, const struct tt_address *address, int64_t deadline_ns);
/* Waits until something can be received, or the other end has closed. */
int tt_socket_await(int fd, int64_t deadline_ns);
int tt_socket_receive(int fd, void *buffer, size_t nbytes, int64_t deadline_ns);
int tt_socket_send(int fd, const void *buffer, size_t nbytes, int64_t deadline_ns);
/* Sends at once or not at all: for frames far smaller than an empty socket buffer. */
int tt_socket_send_now(int fd, const void *buffer, size_t nbytes);

/* The address of this end and of the other one; IPv4 never in its IPv6 form. */
int tt_socket_own(int fd, struct tt_address *address);
int tt_socket_peer(int fd, struct tt_address *address);
/* A connection that has come, non-blocking, and from where, also if it has gone again. -1: errno.
 */
int tt_socket_accept(int listener, struct tt_address *peer);

/* Options every connection has. */
void tt_socket_tune(int fd);

/* Records a failure to get a socket or thread: names the limit and the remedy for EMFILE and
 * ENFILE. */
tt_status tt_socket_fail(int error, const char *what);

#endif
