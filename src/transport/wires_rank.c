/* All wires of one rank: creates wires on demand, gives out their links, drives them, and waits for
 * them. */
#include "transport/wires.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/private_fd.h"
#include "transport/wires_internal.h"

enum { GIVE_BACK_MS = 20 };         /* how long a failed call waits for its memory */
#define CHECK_NS INT64_C(250000000) /* between two looks for sockets of no use */

/* ---- The wires ------------------------------------------------------------------------------ */

tt_status tt_wire_watch(struct tt_wires *wires, int fd, void *what, bool writable, bool is_new)
{
    if (tt_epoll_set(&wires->epoll, is_new ? EPOLL_CTL_ADD : EPOLL_CTL_MOD, fd,
                     EPOLLIN | (writable ? EPOLLOUT : 0u), tt_epoll_mark_of(what)) == 0)
        return TT_OK;
    const tt_status status = tt_socket_fail(errno, "cannot watch a connection to another host");
    return wires->up ? tt_room_fail(wires->up, status, "%s", tt_last_error()) : status;
}

static struct tt_wire *wire_create(struct tt_wires *wires, int peer)
{
    const int rank = wires->up->rank;
    const struct tt_wires_info *mine = &wires->infos[rank], *theirs = &wires->infos[peer];
    struct tt_wire *wire = calloc(1, sizeof *wire);
    if (!wire) return NULL;
    *wire = (struct tt_wire){.wires = wires, .peer = peer};
    wire->nroutes = tt_wire_routes(wire->routes, mine, theirs, rank < peer);
    tt_wire_avoid(wire);
    const uint32_t each = mine->nsockets < theirs->nsockets ? mine->nsockets : theirs->nsockets;
    if (tt_tcp_end_init(&wire->tcp, &wires->tcp, wire, peer, wire->nroutes,
                        wire->nroutes * (int)each)) {
        free(wire);
        return NULL;
    }
    for (int i = 0; i < wire->tcp.nsockets; i++) wire->tcp.sockets[i].watched = TT_WATCHED_TCP;
    wires->nbytes += sizeof *wire;
    return wire;
}

struct tt_wire *tt_wire_to(struct tt_wires *wires, int peer)
{
    struct tt_wire *wire = wires->table[peer];
    if (wire) return wire;
    wire = wire_create(wires, peer);
    if (!wire) {
        tt_ignore(
            tt_room_fail(wires->up, TT_ERR_SYSTEM, "out of memory for a wire to rank %d", peer));
        return NULL;
    }
    wires->table[peer] = wire;
    wire->following = wires->first;
    wires->first = wire;
    atomic_fetch_add_explicit(&wires->nby_kernel, 1, memory_order_relaxed);
    tt_wire_dial(wire);
    return wire;
}

static struct tt_link *handle(const struct tt_wires *wires, int peer, bool outgoing, int channel)
{
    const size_t row = (size_t)peer * 2 + outgoing;
    return &wires->links[row * (size_t)wires->up->nchannels + (size_t)channel];
}

struct tt_link *tt_wires_tx(const struct tt_wires *wires, int peer, int channel)
{
    return handle(wires, peer, true, channel);
}

struct tt_link *tt_wires_rx(const struct tt_wires *wires, int peer, int channel)
{
    return handle(wires, peer, false, channel);
}

/* ---- Progress ------------------------------------------------------------------------------- */

tt_status tt_wires_serve_pending(struct tt_wires *wires)
{
    const struct tt_acceptor_events events = {.on_hello = tt_wire_on_hello};
    return tt_acceptor_serve(wires->acceptor, &events, wires, 0);
}

static void clear(const struct tt_transport_use *use)
{
    use->room->clear(use->self);
}

static tt_status deal_with(struct tt_wires *wires, void *what)
{
    switch (*(enum tt_watched *)what) {
    case TT_WATCHED_ACCEPTOR:
        return tt_wires_serve_pending(wires);
    case TT_WATCHED_DIAL:
        return tt_dial_step(what);
    case TT_WATCHED_ROOM:
        clear(what);
        return TT_OK;
    default:
        return tt_tcp_read(what);
    }
}

/* Where another transport carries the data, nothing else reads the sockets: a descriptor that the
 * program has closed reports no event. */
static tt_status lose_if_unusable(struct tt_wire *wire, struct tt_tcp *tcp)
{
    if (tcp->fd < 0) return TT_OK;
    if (tt_private_fd_is_lost(tcp->fd)) return tt_wire_lost(wire, tcp, EBADF);
    if (!tt_tcp_is_unresponsive(tcp->fd, &tcp->unresponsive_ns, wire->wires->timeout_ns))
        return TT_OK;
    return tt_wire_lost(wire, tcp, ETIMEDOUT);
}

static tt_status lose_unusable_sockets(struct tt_wires *wires)
{
    const int64_t now = tt_now_ns();
    if (now < wires->check_ns) return TT_OK;
    wires->check_ns = now + CHECK_NS;
    for (struct tt_wire *wire = wires->first; wire; wire = wire->following) {
        TT_TRY(tt_dial_check(&wire->dial));
        for (int i = 0; i < wire->tcp.nopen; i++) {
            const tt_status status = lose_if_unusable(wire, &wire->tcp.sockets[i]);
            if (status < 0) return status;
        }
    }
    return TT_OK;
}

/* Times that all sockets take, when all of them are ready. */
static int all_wakes(const struct tt_wires *wires)
{
    int nsockets = 0;
    for (const struct tt_wire *wire = wires->first; wire; wire = wire->following)
        nsockets += wire->tcp.nopen;
    return nsockets / TT_EVENTS_A_WAKE;
}

static tt_status fail_to_wait(const struct tt_wires *wires, int error)
{
    char words[128];
    if (tt_epoll_is_lost(&wires->epoll))
        return tt_room_fail(wires->up, TT_ERR_USAGE,
                            "rank %d has closed the descriptor with which it waits for other "
                            "hosts: " TT_LOST_FD,
                            wires->up->rank);
    return tt_room_fail(wires->up, TT_ERR_SYSTEM, "rank %d cannot wait for other hosts: %s",
                        wires->up->rank, strerror_r(error, words, sizeof words));
}

/* Reads all sockets before other transports are driven: a peer that leaves says so over a socket,
 * and what its end does to the other transport is no failure then. */
static tt_status deal_with_ready(struct tt_wires *wires)
{
    struct epoll_event ready[TT_EVENTS_A_WAKE];
    int n = tt_epoll_wait(&wires->epoll, ready, TT_EVENTS_A_WAKE, 0);
    for (int more = n == TT_EVENTS_A_WAKE ? all_wakes(wires) : 0;; more--) {
        if (n < 0 && errno != EINTR) return fail_to_wait(wires, errno);
        for (int i = 0; i < n; i++) {
            const tt_status status = deal_with(wires, ready[i].data.ptr);
            if (status < 0) return status;
        }
        if (n < TT_EVENTS_A_WAKE || more <= 0) return TT_OK;
        n = tt_epoll_wait(&wires->epoll, ready, TT_EVENTS_A_WAKE, 0);
    }
}

tt_status tt_wires_progress(struct tt_wires *wires)
{
    const tt_status status = deal_with_ready(wires);
    if (status < 0) return status;
    for (struct tt_wire *wire = wires->first; wire; wire = wire->following) {
        if (wire->state == TT_WIRE_MAKING) TT_TRY(tt_wire_attend(wire));
        if (wire->is_agreed) TT_TRY(wire->room->progress(wire->end));
        for (int i = 0; i < wire->tcp.nopen; i++)
            if (wire->tcp.sockets[i].count) tt_ignore(tt_tcp_flush(&wire->tcp.sockets[i]));
    }
    if (wires->acceptor->npending || wires->acceptor->rest_until_ns)
        TT_TRY(tt_wires_serve_pending(wires));
    return lose_unusable_sockets(wires);
}

/* Whether a peer that answers within microseconds may be waiting for this rank. */
static bool is_connecting(const struct tt_wires *wires)
{
    bool connecting = wires->acceptor->npending;
    for (const struct tt_wire *wire = wires->first; wire; wire = wire->following)
        connecting |= wire->state == TT_WIRE_AGREEING ||
                      (wire->state == TT_WIRE_MAKING && wire->dial.fd >= 0 &&
                       wire->dial.state != TT_DIAL_CONNECTING);
    return connecting;
}

tt_status tt_wires_listen(struct tt_wires *wires)
{
    if (wires->has_left || tt_epoll_is_lost(&wires->epoll)) return TT_OK;
    wires->only_listens = true;
    const tt_status status = tt_wires_progress(wires);
    wires->only_listens = false;
    return status < 0 || !is_connecting(wires) ? status : TT_IN_PROGRESS;
}

bool tt_wires_by_sockets(const struct tt_wires *wires)
{
    return !wires->has_device || atomic_load_explicit(&wires->nby_kernel, memory_order_relaxed) > 0;
}

void tt_wires_wait(struct tt_wires *wires, int64_t timeout_us)
{
    struct epoll_event ready;
    for (struct tt_wire *wire = wires->first; wire; wire = wire->following)
        if (wire->is_agreed && !wire->room->arm(wire->end)) return;
    for (struct tt_wire *wire = wires->first; wire; wire = wire->following)
        for (int i = 0; i < wire->tcp.nopen; i++) {
            struct tt_tcp *tcp = &wire->tcp.sockets[i];
            if (tcp->fd < 0 || tcp->awaits_room == (tcp->count > 0)) continue;
            tcp->awaits_room = tcp->count > 0;
            if (tt_wire_watch(wires, tcp->fd, tcp, tcp->awaits_room, false)) return;
        }
    const struct timespec timeout = {.tv_sec = timeout_us / 1000000,
                                     .tv_nsec = timeout_us % 1000000 * 1000};
    /* glibc has the call's function from 2.35 on only: libnccl.so.2 must load with 2.34. */
    const int n = (int)syscall(SYS_epoll_pwait2, wires->epoll.fd, &ready, 1, &timeout, NULL, 0);
    if (tt_epoll_take(&wires->epoll, &ready, n) != 1) return; /* lost: the next progress says so */
    if (*(enum tt_watched *)ready.data.ptr == TT_WATCHED_ROOM) clear(ready.data.ptr);
}

bool tt_wires_flushed(struct tt_wires *wires)
{
    bool flushed = true;
    for (struct tt_wire *wire = wires->first; wire; wire = wire->following) {
        if (wire->is_agreed) flushed &= wire->room->flushed(wire->end);
        flushed &= tt_tcp_end_flush_collectives(&wire->tcp);
    }
    return flushed;
}

void tt_wires_give_back(struct tt_wires *wires)
{
    const int64_t deadline_ns = tt_deadline_ns(GIVE_BACK_MS); /* one for all */
    for (struct tt_wire *wire = wires->first; wire; wire = wire->following)
        if (wire->is_agreed) wire->room->give_back(wire->end, deadline_ns);
}

/* ---- Memory of GPUs ------------------------------------------------------------------------- */

bool tt_wires_all_have_devices(const struct tt_wires *wires)
{
    uint32_t common = UINT32_MAX;
    bool is_there = false;
    for (int r = 0; r < wires->up->nranks; r++) common &= wires->infos[r].rooms;
    for (int i = 0; i < tt_ntransports; i++)
        is_there |= common >> i & 1 && !tt_transports[i]->by_kernel;
    return is_there;
}

/* The one whose devices can; -1: none. */
static int transport_for_gpus(const struct tt_wires *wires)
{
    int i = 0;
    while (i < tt_ntransports && !(wires->uses[i].self && wires->uses[i].room->take_gpu)) i++;
    return i < tt_ntransports ? i : -1;
}

bool tt_wires_may_use_gpus(const struct tt_wires *wires)
{
    return transport_for_gpus(wires) >= 0;
}

tt_status tt_wires_register_gpu(struct tt_wires *wires, const struct tt_dmabuf *pages,
                                struct tt_wires_gpu *registered)
{
    registered->transport = transport_for_gpus(wires);
    if (registered->transport < 0)
        return tt_fail(TT_ERR_USAGE, "no device here uses memory of GPUs in place");
    const struct tt_transport_use *use = &wires->uses[registered->transport];
    TT_TRY(use->room->take_gpu(use->self, pages, &registered->taken));
    registered->next = wires->gpus;
    wires->gpus = registered;
    return TT_OK;
}

void tt_wires_forget_gpu(struct tt_wires *wires, const struct tt_wires_gpu *registered)
{
    struct tt_wires_gpu **at = &wires->gpus;
    while (*at != registered) at = &(*at)->next;
    *at = registered->next;
    const struct tt_transport_use *use = &wires->uses[registered->transport];
    use->room->drop_gpu(use->self, registered->taken);
}

tt_status tt_wires_copy_gpu(struct tt_wires *wires, bool to_gpu, void *gpu, void *host,
                            size_t nbytes)
{
    const struct tt_transport_use *use = &wires->uses[transport_for_gpus(wires)];
    return use->room->copy_gpu(use->self, to_gpu, gpu, host, nbytes);
}

/* ---- Description ---------------------------------------------------------------------------- */

void tt_wires_describe(const struct tt_wires *wires, int peer, char *text, size_t size)
{
    const struct tt_wire *wire = wires->table[peer];
    if (!wire || wire->state < TT_WIRE_UP) {
        snprintf(text, size, "not connected yet, will %sbe encrypted",
                 wires->encrypt ? "" : "not ");
        return;
    }
    const bool agreed = wire->is_agreed; /* else the wire was lost before: describe its sockets */
    (agreed ? wire->room : &tt_tcp_transport)
        ->describe(agreed ? wire->end : &wire->tcp, text, size);
}

size_t tt_wires_bytes(const struct tt_wires *wires)
{
    return sizeof *wires + sizeof *wires->acceptor + wires->tcp.nbytes + wires->nbytes;
}
