/* Seeks a rank that is gone among the ranks of other hosts with which this rank has no connection:
 * connects with the listener of one after the other, and closes the connection at once. A rank that
 * lives listens until it ends its communicator, whatever it does, or has connections with all ranks
 * of other hosts; the kernel of its host connects for it. Where the kernel refuses, nothing listens
 * any more. That the network does not lead there says nothing. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/private_fd.h"
#include "transport/wires_internal.h"

enum { REFUSALS = 2 };                /* so many in a row are no accident */
#define ASK_NS INT64_C(500000000)     /* between two attempts */
#define AGAIN_NS INT64_C(100000000)   /* between two attempts with a rank that has refused one */
#define ANSWER_NS (4 * ASK_NS)        /* most that an attempt may take */
#define REFUSED_NS INT64_C(300000000) /* for so long is no accident */

void tt_seek_hang_up(struct tt_seek *seek)
{
    if (seek->fd >= 0) tt_private_fd_close(seek->fd);
    seek->fd = -1;
}

/* Whether all attempts to make the wire are refused, so that nothing listens there any more. */
static bool is_refused(const struct tt_wire *wire)
{
    return wire->state == TT_WIRE_MAKING && wire->dial.refused_ns &&
           tt_now_ns() - wire->dial.refused_ns >= REFUSED_NS;
}

bool tt_wires_miss(const struct tt_wires *wires, int peer)
{
    const struct tt_wire *wire = wires->table[peer];
    return wire ? wire->is_lost || is_refused(wire) : wires->seek.found == peer;
}

/* A wire that is being made asks itself; one that is lost does not. */
static bool may_be_asked(const struct tt_wires *wires, int peer)
{
    const struct tt_wire *wire = wires->table[peer];
    return !tt_wire_is_local(wires, peer) && (!wire || wire->is_lost);
}

/* The next rank to be asked; -1: none. Each rank begins behind itself, so that ranks that wait for
 * the same call ask different ones. */
static int next_peer(const struct tt_wires *wires, const struct tt_missing *missing)
{
    const int nranks = wires->up->nranks;
    for (int i = 0; i < nranks; i++) {
        const int peer = (wires->seek.next + i) % nranks;
        if (may_be_asked(wires, peer) && missing->is_missing(missing->arg, peer)) return peer;
    }
    return -1;
}

static void report(struct tt_wires *wires)
{
    const struct tt_seek *seek = &wires->seek;
    const struct tt_room_context *up = wires->up;
    char name[128], where[TT_ADDRESS_TEXT], text[TT_ERROR_TEXT];
    tt_room_name(up, seek->peer, name, sizeof name);
    snprintf(text, sizeof text,
             "rank %d cannot reach %s at %s (%s) over %s: nothing listens there any more: it has "
             "died, or destroyed or aborted its communicator",
             up->rank, name, tt_address_format(&seek->route.target, where),
             seek->route.their_interface, seek->route.interface);
    wires->client->on_gone(up->owner, seek->peer, text);
}

/* error 0: somebody listens. */
static void end_attempt(struct tt_wires *wires, int error)
{
    struct tt_seek *seek = &wires->seek;
    tt_seek_hang_up(seek);
    seek->nrefused = error == ECONNREFUSED ? seek->nrefused + 1 : 0;
    const bool again = seek->nrefused && seek->nrefused < REFUSALS; /* the same rank */
    seek->next_ns = tt_now_ns() + (again ? AGAIN_NS : ASK_NS);
    if (again) return;
    if (seek->next == seek->peer) seek->next = (seek->peer + 1) % wires->up->nranks;
    if (seek->nrefused) {
        seek->found = seek->peer;
        report(wires);
    }
    seek->nrefused = 0;
}

static void begin_attempt(struct tt_wires *wires, const struct tt_missing *missing)
{
    struct tt_seek *seek = &wires->seek;
    struct tt_route routes[TT_MAX_INTERFACES];
    const int peer = next_peer(wires, missing);
    seek->next_ns = tt_now_ns() + ASK_NS;
    if (peer < 0) return;
    if (peer != seek->peer) seek->nrefused = 0;
    seek->next = seek->peer = peer;
    const int nroutes = tt_wire_routes(routes, &wires->infos[wires->up->rank],
                                       &wires->infos[seek->peer], wires->up->rank < seek->peer);
    if (!nroutes) return;
    seek->route = routes[seek->nattempts++ % (unsigned)nroutes];
    const struct tt_address *source = &seek->route.source, *target = &seek->route.target;
    tt_private_fd_begin();
    seek->fd = tt_private_fd_end(
        socket(tt_address_family(target), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (seek->fd < 0) return;
    seek->next_ns = tt_now_ns() + ANSWER_NS;
    if (source->nbytes && bind(seek->fd, (const struct sockaddr *)source->bytes, source->nbytes))
        end_attempt(wires, errno);
    else if (connect(seek->fd, (const struct sockaddr *)target->bytes, target->nbytes) == 0)
        end_attempt(wires, 0);
    else if (errno != EINPROGRESS)
        end_attempt(wires, errno);
}

static void look_at_attempt(struct tt_wires *wires)
{
    struct tt_seek *seek = &wires->seek;
    struct pollfd poll_fd = {.fd = seek->fd, .events = POLLOUT};
    int error = 0;
    socklen_t nbytes = sizeof error;
    if (tt_private_fd_is_lost(seek->fd)) /* it is the program's file now, or none */
        end_attempt(wires, EBADF);
    else if (poll(&poll_fd, 1, 0) > 0)
        end_attempt(wires,
                    getsockopt(seek->fd, SOL_SOCKET, SO_ERROR, &error, &nbytes) ? errno : error);
    else if (tt_expired(seek->next_ns))
        end_attempt(wires, ETIMEDOUT);
}

bool tt_wires_seek_gone(struct tt_wires *wires, const struct tt_missing *missing)
{
    if (wires->seek.fd >= 0)
        look_at_attempt(wires);
    else if (tt_expired(wires->seek.next_ns))
        begin_attempt(wires, missing);
    return wires->seek.fd >= 0 || wires->seek.nrefused;
}
