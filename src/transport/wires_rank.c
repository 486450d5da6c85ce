/* All wires of one rank: opens the listener and the rooms, creates wires on demand, drives them,
 * sends control frames over them, and leaves and closes them. */
#include "transport/wires.h"

#include <errno.h>
#include <sched.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/config.h"
#include "base/private_fd.h"
#include "topology/topology.h"
#include "transport/tcp/tls.h"
#include "transport/wires_internal.h"

enum { EVENTS_A_WAKE = 16 };
#define CHECK_NS INT64_C(250000000) /* between two looks for unresponsive peers */
#define FAILED_LEAVE_NS                                                                            \
    INT64_C(1000000000) /* for leaving after a failure: the peers may have stopped reading */

/* ---- Opening -------------------------------------------------------------------------------- */

static void fill_address(struct tt_wire_address *to, const struct tt_interface *from, int port)
{
    *to = (struct tt_wire_address){
        .address = from->address, .prefix = from->prefix, .mtu = from->mtu, .mbit = from->mbit};
    tt_address_set_port(&to->address, port);
    memcpy(to->interface, from->name, sizeof to->interface);
}

/* Listens on all addresses. The peers choose the address to connect to; a connection must prove the
 * key. */
static tt_status listen_for_peers(int *listener, struct tt_wires_info *info)
{
    struct tt_interfaces interfaces;
    TT_TRY(tt_interfaces_choose(&interfaces));
    struct tt_address at = interfaces.number ? interfaces.chosen[0].address : interfaces.loopback;
    if (!at.nbytes)
        return tt_fail(TT_ERR_SYSTEM, "this host has no network interface that is up, and so no "
                                      "way to the ranks of other hosts");
    TT_TRY(tt_socket_listen(listener, &at, true));
    const int port = tt_address_port(&at);
    for (int i = 0; i < interfaces.number; i++)
        fill_address(&info->addresses[info->naddresses++], &interfaces.chosen[i], port);
    info->loopback = interfaces.loopback;
    if (info->loopback.nbytes) tt_address_set_port(&info->loopback, port);
    return TT_OK;
}

static tt_status open_rooms(struct tt_wires *wires, struct tt_wires_info *info)
{
    const struct tt_room_config config = {.nslots = wires->config.nslots,
                                          .slot_bytes = wires->config.slot_bytes,
                                          .encrypt = wires->encrypt,
                                          .sockets = &wires->tcp};
    for (int i = 0; i < tt_ntransports; i++) {
        struct tt_transport_use *use = &wires->uses[i];
        *use = (struct tt_transport_use){.watched = TT_WATCHED_ROOM, .room = tt_transports[i]};
        if (!(wires->config.allowed >> i & 1)) continue;
        TT_TRY(use->room->open(&use->self, &config));
        if (!use->self) continue;
        TT_TRY(use->room->watch(use->self, wires->epoll, use));
        info->rooms |= 1u << i;
        wires->has_device |= !use->room->by_kernel;
    }
    return TT_OK;
}

/* What the proofs and the executor assume of links, in whichever room they are. */
static tt_status check_slots(const struct tt_wires_config *config)
{
    if (config->nslots >= TT_MIN_SLOTS && config->nslots <= TT_MAX_SLOTS) return TT_OK;
    return tt_fail(TT_ERR_USAGE,
                   "a link to another host has %zu slots, expected %d to %d: set TUTTI_SLOTS",
                   config->nslots, TT_MIN_SLOTS, TT_MAX_SLOTS);
}

tt_status tt_wires_open(struct tt_wires **out, const struct tt_wires_config *config,
                        struct tt_wires_info *info)
{
    int listener;
    TT_TRY(check_slots(config));
    struct tt_wires_info made = {.network_id = tt_network_id(),
                                 .nsockets = (uint32_t)tt_config_int(TT_CONFIG_SOCKETS),
                                 .encrypt = tt_config_int(TT_CONFIG_ENCRYPT) != 0};
    if (made.nsockets < 1 || made.nsockets > TT_MAX_SOCKETS)
        return tt_fail(TT_ERR_ARGUMENT, "TUTTI_SOCKETS=%s: expected 1 to %d",
                       tt_config_string(TT_CONFIG_SOCKETS), TT_MAX_SOCKETS);
    if (made.encrypt) TT_TRY(tt_tls_load());
    struct tt_wires *wires = calloc(1, sizeof *wires);
    if (!wires) return tt_fail(TT_ERR_SYSTEM, "out of memory for the wires to other hosts");
    wires->config = *config;
    wires->tcp =
        (struct tt_tcp_room){.owner = &tt_wire_owner,
                             .nslots = config->nslots,
                             .slot_bytes = config->slot_bytes,
                             .credits_due_max = config->nslots >= 4 ? (int)config->nslots / 2 : 1,
                             .key = made.encrypt ? wires->config.key : NULL,
                             .records_a_key = config->records_a_key};
    const int64_t timeout_ms = tt_config_int(TT_CONFIG_NET_TIMEOUT_MS);
    wires->encrypt = made.encrypt;
    wires->timeout_ns = (timeout_ms > 0 ? timeout_ms : 1) * 1000000;
    wires->watched = TT_WATCHED_ACCEPTOR;
    tt_private_fd_begin();
    wires->epoll = tt_private_fd_end(epoll_create1(EPOLL_CLOEXEC));
    tt_status status = wires->epoll < 0
                           ? tt_socket_fail(errno, "cannot wait for the ranks of other hosts")
                           : listen_for_peers(&listener, &made);
    if (!status) {
        status = tt_acceptor_create(&wires->acceptor, listener, config->key, 0);
        if (status) tt_private_fd_close(listener);
    }
    if (!status) status = tt_wire_watch(wires, wires->acceptor->epoll, wires, false, true);
    if (!status) status = open_rooms(wires, &made);
    if (status) {
        tt_wires_destroy(wires);
        return status;
    }
    *out = wires;
    *info = made;
    return TT_OK;
}

static bool is_sound(const struct tt_wires_info *info)
{
    bool sound = info->naddresses >= 0 && info->naddresses <= TT_MAX_INTERFACES &&
                 info->nsockets >= 1 && info->nsockets <= TT_MAX_SOCKETS &&
                 (!info->loopback.nbytes || tt_address_valid(&info->loopback));
    for (int i = 0; sound && i < info->naddresses; i++) {
        const struct tt_wire_address *at = &info->addresses[i];
        sound = tt_address_valid(&at->address) &&
                at->prefix <= (tt_address_family(&at->address) == AF_INET ? 32 : 128) &&
                memchr(at->interface, '\0', sizeof at->interface);
    }
    return sound;
}

/* Checks that the info of a peer is well-formed, and that some route leads to the peer. */
static tt_status check_peer(const struct tt_wires *wires, int peer)
{
    const struct tt_room_context *up = wires->up;
    const struct tt_wires_info *infos = wires->infos;
    struct tt_route routes[TT_MAX_INTERFACES];
    char name[128], first[128];
    tt_room_name(up, peer, name, sizeof name);
    tt_room_name(up, 0, first, sizeof first);
    if (!is_sound(&infos[peer]))
        return tt_fail(TT_ERR_REMOTE, "%s sent a malformed description of its network", name);
    if (infos[peer].encrypt != infos[0].encrypt)
        return tt_fail(TT_ERR_USAGE, "%s has TUTTI_ENCRYPT=%d, %s has %d: give all ranks the same",
                       first, infos[0].encrypt != 0, name, infos[peer].encrypt != 0);
    if (tt_wire_is_local(wires, peer) ||
        tt_wire_routes(routes, &infos[up->rank], &infos[peer], up->rank < peer))
        return TT_OK;
    return tt_fail(TT_ERR_SYSTEM,
                   "rank %d and %s have no network in common: one of them has loopback only, or "
                   "one IPv4 and the other IPv6 (TUTTI_SOCKET_INTERFACE, TUTTI_SOCKET_FAMILY; "
                   "tutti-info lists the interfaces)",
                   up->rank, name);
}

/* ---- What the rooms report ------------------------------------------------------------------ */

static tt_status on_fail(void *owner, int code, const char *text)
{
    const struct tt_room_context *up = ((struct tt_wires *)owner)->up;
    return up->events->fail(up->owner, code, text);
}

static tt_status on_missed(void *owner, int peer)
{
    return tt_wire_missed(((struct tt_wires *)owner)->table[peer]);
}

static void on_name(const void *owner, int rank, char *text, size_t size)
{
    tt_room_name(((const struct tt_wires *)owner)->up, rank, text, size);
}

static const struct tt_room_events room_events = {
    .fail = on_fail, .missed = on_missed, .name = on_name};

tt_status tt_wires_start(struct tt_wires *wires, const struct tt_wires_client *client,
                         const struct tt_wires_info *infos)
{
    const struct tt_room_context *up = client->context;
    const size_t n = (size_t)up->nranks;
    wires->client = client;
    wires->up = up;
    wires->context = *up;
    wires->context.events = &room_events;
    wires->context.owner = wires;
    wires->tcp.context = &wires->context;
    wires->infos = malloc(n * sizeof *infos);
    wires->table = calloc(n, sizeof *wires->table);
    wires->links = calloc(n * 2 * TT_NCHANNELS, sizeof *wires->links);
    if (!wires->infos || !wires->table || !wires->links)
        return tt_fail(TT_ERR_SYSTEM, "out of memory for the wires to %zu ranks", n);
    memcpy(wires->infos, infos, n * sizeof *infos);
    for (int r = 0; r < up->nranks; r++) tt_wire_handles_init(wires, r);
    wires->nbytes +=
        n * (sizeof *infos + sizeof *wires->table + 2 * TT_NCHANNELS * sizeof *wires->links);
    for (int i = 0; i < tt_ntransports; i++)
        if (wires->uses[i].self) wires->uses[i].room->start(wires->uses[i].self, &wires->context);
    for (int r = 0; r < up->nranks; r++) TT_TRY(check_peer(wires, r));
    return TT_OK;
}

/* ---- The wires ------------------------------------------------------------------------------ */

tt_status tt_wire_watch(struct tt_wires *wires, int fd, void *what, bool writable, bool is_new)
{
    struct epoll_event event = {.events = EPOLLIN | (writable ? EPOLLOUT : 0u), .data.ptr = what};
    if (epoll_ctl(wires->epoll, is_new ? EPOLL_CTL_ADD : EPOLL_CTL_MOD, fd, &event) == 0)
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
    return &wires->links[((size_t)peer * 2 + outgoing) * TT_NCHANNELS + (size_t)channel];
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

static tt_status serve_pending(struct tt_wires *wires)
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
        return serve_pending(wires);
    case TT_WATCHED_DIAL:
        return tt_dial_step(what);
    case TT_WATCHED_ROOM:
        clear(what);
        return TT_OK;
    default:
        return tt_tcp_read(what);
    }
}

static tt_status lose_unresponsive_peers(struct tt_wires *wires)
{
    const int64_t now = tt_now_ns();
    if (now < wires->check_ns) return TT_OK;
    wires->check_ns = now + CHECK_NS;
    for (struct tt_wire *wire = wires->first; wire; wire = wire->following)
        for (int i = 0; i < wire->tcp.nopen; i++) {
            const bool unresponsive =
                tt_tcp_is_unresponsive(&wire->tcp.sockets[i], wires->timeout_ns);
            const tt_status status =
                unresponsive ? tt_wire_lost(wire, &wire->tcp.sockets[i], ETIMEDOUT) : TT_OK;
            if (status < 0) return status;
        }
    return TT_OK;
}

tt_status tt_wires_progress(struct tt_wires *wires)
{
    struct epoll_event ready[EVENTS_A_WAKE];
    const int n = epoll_wait(wires->epoll, ready, EVENTS_A_WAKE, 0);
    for (int i = 0; i < n; i++) {
        const tt_status status = deal_with(wires, ready[i].data.ptr);
        if (status < 0) return status;
    }
    for (struct tt_wire *wire = wires->first; wire; wire = wire->following) {
        if (wire->state == TT_WIRE_MAKING) TT_TRY(tt_wire_attend(wire));
        if (wire->is_agreed) TT_TRY(wire->room->progress(wire->end));
        for (int i = 0; i < wire->tcp.nopen; i++)
            if (wire->tcp.sockets[i].count) tt_ignore(tt_tcp_flush(&wire->tcp.sockets[i]));
    }
    if (wires->acceptor->npending || wires->acceptor->rest_until_ns) TT_TRY(serve_pending(wires));
    return lose_unresponsive_peers(wires);
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
    const int n = epoll_pwait2(wires->epoll, &ready, 1, &timeout, NULL);
    if (n == 1 && *(enum tt_watched *)ready.data.ptr == TT_WATCHED_ROOM) clear(ready.data.ptr);
}

bool tt_wires_flushed(struct tt_wires *wires)
{
    bool flushed = true;
    for (struct tt_wire *wire = wires->first; wire; wire = wire->following) {
        if (wire->is_agreed) flushed &= wire->room->flushed(wire->end);
        flushed &= tt_tcp_end_flush(&wire->tcp);
    }
    return flushed;
}

void tt_wires_give_back(struct tt_wires *wires)
{
    for (struct tt_wire *wire = wires->first; wire; wire = wire->following) {
        if (wire->is_agreed) wire->room->give_back(wire->end);
    }
}

/* ---- Control -------------------------------------------------------------------------------- */

static void push_record(struct tt_wire *wire, struct tt_tcp *tcp, uint32_t state)
{
    struct tt_outgoing *item = tcp->fd < 0 ? NULL : tt_tcp_push(tcp);
    if (!item) return;
    const struct tt_frame credit = {.kind = TT_FRAME_CREDIT};
    item->head_nbytes = (uint32_t)tt_wire_put_record(wire->wires, item->head, state);
    memcpy(item->head + item->head_nbytes, &credit, sizeof credit);
    item->head_nbytes += (uint32_t)sizeof credit;
    wire->told = tt_wire_entered(wire->wires);
    tt_ignore(tt_tcp_flush(tcp));
}

void tt_wires_send_record(struct tt_wires *wires)
{
    for (struct tt_wire *wire = wires->first; wire; wire = wire->following)
        if (wire->state == TT_WIRE_UP && !wire->tcp.sockets[0].count)
            push_record(wire, &wire->tcp.sockets[0], TT_RANK_HERE);
}

void tt_wires_send_failure(struct tt_wires *wires, int code, const char *text)
{
    for (struct tt_wire *wire = wires->first; wire; wire = wire->following) {
        struct tt_tcp *tcp = &wire->tcp.sockets[0];
        struct tt_outgoing *item =
            wire->tcp.nopen == 0 || tcp->fd < 0 || wire->failure[0] ? NULL : tt_tcp_push(tcp);
        if (!item) continue;
        snprintf(wire->failure, sizeof wire->failure, "%s", text);
        const struct tt_frame frame = {.kind = TT_FRAME_FAILURE,
                                       .number = (uint32_t)code,
                                       .nbytes = (uint32_t)strlen(wire->failure)};
        memcpy(item->head, &frame, sizeof frame);
        item->head_nbytes = sizeof frame;
        item->body = wire->failure;
        item->body_nbytes = frame.nbytes;
        tt_ignore(tt_tcp_flush(tcp));
    }
}

/* ---- The end -------------------------------------------------------------------------------- */

/* Whether the peers have acknowledged all bytes sent, after reading all bytes that came: closing
 * then loses nothing. */
static bool is_drained(struct tt_wires *wires)
{
    bool done = true;
    for (struct tt_wire *wire = wires->first; wire; wire = wire->following)
        for (int i = 0; i < wire->tcp.nopen; i++) {
            struct tt_tcp *tcp = &wire->tcp.sockets[i];
            tt_ignore(tt_tcp_flush(tcp));
            tt_ignore(tt_tcp_read(tcp));
            done &= tt_tcp_unsent(tcp) == 0;
        }
    return done;
}

/* The last record goes over the sockets and must not overtake data that goes over another
 * transport. */
static void finish_sending(struct tt_wires *wires, int64_t deadline)
{
    for (struct tt_wire *wire = wires->first; wire; wire = wire->following) {
        if (!wire->is_agreed) continue;
        wire->room->quiet(wire->end);
        while (!wire->room->sent(wire->end) && !tt_expired(deadline)) sched_yield();
    }
}

/* Whether nobody who wants a connection with this rank could miss why it leaves. A wire without a
 * socket cannot carry the failure: its peer is answered when it connects, or is connected to. */
static bool all_told(const struct tt_wires *wires)
{
    bool told = true;
    for (const struct tt_wire *wire = wires->first; wire; wire = wire->following)
        told &= wire->failure[0] || wire->is_told || wire->state == TT_WIRE_GONE ||
                wire->dial.refused_ns;
    return told;
}

/* Connects and answers only to pass the failure on. Errors change nothing: the communicator has
 * failed. */
static void tell_failure(struct tt_wires *wires)
{
    struct epoll_event ready[EVENTS_A_WAKE];
    const int n = epoll_wait(wires->epoll, ready, EVENTS_A_WAKE, 0);
    for (int i = 0; i < n; i++)
        if (*(enum tt_watched *)ready[i].data.ptr == TT_WATCHED_DIAL)
            tt_ignore(tt_dial_step(ready[i].data.ptr));
    for (struct tt_wire *wire = wires->first; wire; wire = wire->following)
        if (wire->state == TT_WIRE_MAKING) tt_ignore(tt_wire_attend(wire));
    tt_ignore(serve_pending(wires));
}

void tt_wires_leave(struct tt_wires *wires)
{
    const struct tt_wires_client *client = wires->client;
    const uint32_t state = atomic_load(client->aborted) ? TT_RANK_ABORTED : TT_RANK_LEFT;
    const bool haste = state == TT_RANK_ABORTED || client->has_failed(wires->up->owner);
    const int64_t deadline =
        tt_now_ns() +
        (haste && FAILED_LEAVE_NS < wires->timeout_ns ? FAILED_LEAVE_NS : wires->timeout_ns);
    const tt_status failed = client->check(wires->up->owner);
    finish_sending(wires, deadline);
    if (failed) tt_wires_send_failure(wires, failed, tt_last_error());
    for (struct tt_wire *wire = wires->first; wire; wire = wire->following)
        for (int i = 0; i < wire->tcp.nopen; i++) push_record(wire, &wire->tcp.sockets[i], state);
    while ((!is_drained(wires) || (failed && !all_told(wires))) && !tt_expired(deadline)) {
        if (failed) tell_failure(wires);
        tt_wires_wait(wires, 1000);
    }
}

static void wire_destroy(struct tt_wire *wire)
{
    tt_dial_hang_up(&wire->dial);
    if (wire->end) wire->room->destroy(wire->end);
    tt_tcp_end_fini(&wire->tcp);
    free(wire->agreement);
    free(wire);
}

void tt_wires_destroy(struct tt_wires *wires)
{
    if (!wires) return;
    if (wires->first) tt_wires_leave(wires);
    while (wires->first) {
        struct tt_wire *wire = wires->first;
        wires->first = wire->following;
        wire_destroy(wire);
    }
    for (int i = 0; i < tt_ntransports; i++)
        if (wires->uses[i].self) wires->uses[i].room->close(wires->uses[i].self);
    tt_acceptor_destroy(wires->acceptor);
    if (wires->epoll >= 0) tt_private_fd_close(wires->epoll);
    sodium_memzero(wires->config.key, sizeof wires->config.key);
    free(wires->links);
    free(wires->table);
    free(wires->infos);
    free(wires);
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
