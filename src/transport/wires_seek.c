/* Seeks a rank that is gone among the ranks of other hosts with which this rank has no connection:
 * connects with the listener of one after the other, and closes the connection at once. A rank that
 * lives listens until it ends its communicator, whatever it does, or has connections with all ranks
 * of other hosts; the kernel of its host connects for it. Where the kernel refuses, nothing listens
 * any more. That the network does not lead there says nothing. */
#include <errno.h>
#include <poll.h>

#include "base/clock.h"
#include "base/private_fd.h"
#include "transport/wires_internal.h"

enum { REFUSALS = 2 };                /* so many in a row are no accident */
#define ASK_NS INT64_C(500000000)     /* between two attempts */
#define AGAIN_NS INT64_C(100000000)   /* between two attempts with a rank that has refused one */
#define ANSWER_NS (4 * ASK_NS)        /* most that an attempt may take */
#define REFUSED_NS INT64_C(300000000) /* for so long is no accident */
/* Between two attempts at most, when all missing ranks have been asked: a rank that is stopped does
 * not take the connections out of its listener's queue, which may fill up. */
#define MOST_PAUSE_NS INT64_C(10000000000)
#define INTERRUPTED_NS INT64_C(2000000000) /* a search that rested for so long begins anew */

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

static bool was_found(const struct tt_seek *seek, int peer)
{
    int i = 0;
    while (i < seek->nfound && seek->found[i] != peer) i++;
    return i < seek->nfound;
}

bool tt_wires_has_found_gone(const struct tt_wires *wires, int peer)
{
    const struct tt_wire *wire = wires->table[peer];
    return wire ? wire->is_lost || is_refused(wire) : was_found(&wires->seek, peer);
}

/* A wire that is being made asks itself; one that is lost does not. */
static bool may_be_asked(const struct tt_wires *wires, int peer)
{
    const struct tt_wire *wire = wires->table[peer];
    return !tt_wire_is_local(wires, peer) && (!wire || wire->is_lost) &&
           !was_found(&wires->seek, peer);
}

/* The next rank to be asked, and how many there are; -1: none. Each rank begins behind itself, so
 * that ranks that wait for the same call ask different ones. */
static int next_peer(const struct tt_wires *wires, const struct tt_missing *missing, int *nmissing)
{
    const int nranks = wires->up->nranks;
    int first = -1, n = 0;
    for (int i = 0; i < nranks; i++) {
        const int peer = (wires->seek.next + i) % nranks;
        if (!may_be_asked(wires, peer) || !missing->is_missing(missing->arg, peer)) continue;
        n++;
        if (first < 0) first = peer;
    }
    *nmissing = n;
    return first;
}

/* There is news: the pauses are short again, and one that is under way is over. */
static void begin_anew(struct tt_seek *seek)
{
    seek->pause_ns = ASK_NS;
    seek->nasked = 0;
    if (seek->fd < 0 && !seek->nrefused) seek->next_ns = 0;
}

void tt_wires_seek_first(struct tt_wires *wires, int peer)
{
    wires->seek.next = peer;
    begin_anew(&wires->seek);
}

static void report(struct tt_wires *wires)
{
    const struct tt_seek *seek = &wires->seek;
    const struct tt_room_context *up = wires->up;
    char text[TT_ERROR_TEXT];
    tt_route_describe_failure(&seek->route, up, seek->peer, TT_NOTHING_LISTENS, text, sizeof text);
    wires->client->on_gone(up->owner, seek->peer, text);
}

static int64_t pause_after_attempt(struct tt_seek *seek)
{
    if (++seek->nasked < seek->nmissing) return ASK_NS;
    const int64_t pause_ns = seek->pause_ns;
    seek->nasked = 0;
    seek->pause_ns = 2 * pause_ns < MOST_PAUSE_NS ? 2 * pause_ns : MOST_PAUSE_NS;
    return pause_ns;
}

/* error 0: somebody listens. */
static void end_attempt(struct tt_wires *wires, int error)
{
    struct tt_seek *seek = &wires->seek;
    tt_seek_hang_up(seek);
    seek->nrefused = error == ECONNREFUSED ? seek->nrefused + 1 : 0;
    const bool again = seek->nrefused && seek->nrefused < REFUSALS; /* the same rank */
    seek->next_ns = tt_now_ns() + (again ? AGAIN_NS : pause_after_attempt(seek));
    if (again) return;
    if (seek->next == seek->peer) seek->next = (seek->peer + 1) % wires->up->nranks;
    if (seek->nrefused) {
        seek->found[seek->nfound++] = seek->peer;
        report(wires);
    }
    seek->nrefused = 0;
}

static void begin_attempt(struct tt_wires *wires, const struct tt_missing *missing)
{
    struct tt_seek *seek = &wires->seek;
    struct tt_route routes[TT_MAX_INTERFACES];
    const char *what;
    const int peer = next_peer(wires, missing, &seek->nmissing);
    seek->next_ns = tt_now_ns() + ASK_NS;
    if (peer < 0) return;
    if (peer != seek->peer) seek->nrefused = 0;
    seek->next = seek->peer = peer;
    const int nroutes = tt_wire_routes(routes, &wires->infos[wires->up->rank],
                                       &wires->infos[seek->peer], wires->up->rank < seek->peer);
    if (!nroutes) return;
    seek->route = routes[seek->nattempts++ % (unsigned)nroutes];
    const int error = tt_route_connect(&seek->route, wires->timeout_ns, &seek->fd, &what);
    if (seek->fd < 0) return;
    seek->next_ns = tt_now_ns() + ANSWER_NS;
    if (error) end_attempt(wires, error);
}

static void look_at_attempt(struct tt_wires *wires)
{
    struct tt_seek *seek = &wires->seek;
    struct pollfd poll_fd = {.fd = seek->fd, .events = POLLOUT};
    if (tt_private_fd_is_lost(seek->fd)) /* it is the program's file now, or none */
        end_attempt(wires, EBADF);
    else if (poll(&poll_fd, 1, 0) > 0)
        end_attempt(wires, tt_route_connect_error(seek->fd));
    else if (tt_expired(seek->next_ns))
        end_attempt(wires, ETIMEDOUT);
}

bool tt_wires_seek_gone(struct tt_wires *wires, const struct tt_missing *missing)
{
    struct tt_seek *seek = &wires->seek;
    const int64_t now_ns = tt_now_ns();
    if (!seek->called_ns || now_ns - seek->called_ns > INTERRUPTED_NS) begin_anew(seek);
    seek->called_ns = now_ns;
    if (seek->fd >= 0)
        look_at_attempt(wires);
    else if (seek->nfound < TT_MOST_FOUND && now_ns >= seek->next_ns)
        begin_attempt(wires, missing);
    return seek->fd >= 0 || seek->nrefused;
}
