/* Passing file descriptors between the ranks of a host: each rank listens at a socket in the
 * abstract namespace, so that nothing is left behind; a sender connects, sends one message, and
 * closes. Nobody waits for anybody. The kernel says on both sides of a connection whose the other
 * end is: neither sends to nor receives from anybody but this user and root. What strangers do
 * costs them their connection, at most 128 of which wait, and few lines in the log. */
#ifndef TT_TRANSPORT_FDPASS_H
#define TT_TRANSPORT_FDPASS_H

#include <stdint.h>

#include "base/status.h"

/* Address of a rank's socket; random, so knowing it means having been told. Plain data, travels
 * through bootstrap. */
struct tt_fd_address {
    uint8_t name[16];
};

/* What comes with a descriptor. */
struct tt_fd_note {
    uint64_t secret; /* of the communicator; others are dropped */
    uint64_t id;     /* of the segment, or name of the window (windows.c) */
    uint64_t place;  /* of the rank whose window it is */
    uint64_t nbytes;
    uint64_t gone[4]; /* index + 1 of windows sent before that the receiver may unmap; 0: none */
    uint64_t kind;    /* enum tt_fd_kind */
};
enum tt_fd_kind { TT_FD_SEGMENT, TT_FD_WINDOW };
enum { TT_FD_GONE_MAX = 4 };

/* Opens a socket under a new random address. */
TT_NODISCARD tt_status tt_fdpass_open(int *socket_fd, struct tt_fd_address *address);

/* Takes a descriptor to send by, so that a process that may open no more later can still send. */
TT_NODISCARD tt_status tt_fdpass_reserve(int *spare);

/* Sends fd; TT_IN_PROGRESS when it cannot be done now: the receiver's queue is full, or there are
 * too many descriptors. TT_ERR_USAGE when another user's process listens there. *spare: of
 * tt_fdpass_reserve, used where this process may open no more, and taken anew; -1: there is none;
 * NULL: no such. */
TT_NODISCARD tt_status tt_fdpass_send(const struct tt_fd_address *to, const struct tt_fd_note *note,
                                      int fd, int *spare);

/* Takes one descriptor if one has come from this user with this secret, else TT_IN_PROGRESS;
 * TT_ERR_SYSTEM when this process may have no more of them. Others are closed; some are logged. *fd
 * is the caller's to close. */
TT_NODISCARD tt_status tt_fdpass_receive(int socket_fd, uint64_t secret, struct tt_fd_note *note,
                                         int *fd);

#endif
