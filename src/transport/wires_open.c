/* Opens the wires of one rank: the listener, the rooms, and what the rooms report to the fabric.
 * Checks the settings and the descriptions that the peers sent. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/config.h"
#include "base/private_fd.h"
#include "topology/topology.h"
#include "transport/tcp/tls.h"
#include "transport/wires_internal.h"

static void fill_address(struct tt_wire_address *to, const struct tt_interface *from, int port)
{
    *to = (struct tt_wire_address){
        .address = from->address, .prefix = from->prefix, .mtu = from->mtu, .mbit = from->mbit};
    tt_address_set_port(&to->address, port);
    memcpy(to->interface, from->name, sizeof to->interface);
}

/* Listens at all addresses, of which the peers choose one; a connection must prove the key. Where
 * TUTTI_SOCKET_INTERFACE leaves one interface, listens only there, and tells the peers of no other
 * address. */
static tt_status listen_for_peers(int *listener, struct tt_wires_info *info)
{
    struct tt_interfaces interfaces;
    TT_TRY(tt_interfaces_choose(&interfaces));
    const bool only =
        interfaces.number == 1 && tt_config_string(TT_CONFIG_SOCKET_INTERFACE)[0] != '\0';
    struct tt_address at = interfaces.number ? interfaces.chosen[0].address : interfaces.loopback;
    if (!at.nbytes)
        return tt_fail(TT_ERR_SYSTEM, "this host has no network interface that is up, and so no "
                                      "way to the ranks of other hosts");
    TT_TRY(only ? tt_socket_listen(listener, &at, false)
                : tt_socket_listen_everywhere(listener, &at));
    const int port = tt_address_port(&at);
    for (int i = 0; i < interfaces.number; i++)
        fill_address(&info->addresses[info->naddresses++], &interfaces.chosen[i], port);
    if (only && !tt_address_is_loopback(&at)) return TT_OK;
    info->loopback = interfaces.loopback;
    if (info->loopback.nbytes) tt_address_set_port(&info->loopback, port);
    return TT_OK;
}

static tt_status open_rooms(struct tt_wires *wires, struct tt_wires_info *info)
{
    const struct tt_room_config config = {.nslots = wires->config.nslots,
                                          .slot_bytes = wires->config.slot_bytes,
                                          .encrypt = wires->encrypt,
                                          .sockets = &wires->tcp,
                                          .gpu_path = wires->config.gpu_path};
    for (int i = 0; i < tt_ntransports; i++) {
        struct tt_transport_use *use = &wires->uses[i];
        *use = (struct tt_transport_use){.watched = TT_WATCHED_ROOM, .room = tt_transports[i]};
        if (!(wires->config.allowed >> i & 1)) continue;
        TT_TRY(use->room->open(&use->self, &config));
        if (!use->self) continue;
        TT_TRY(use->room->watch(use->self, wires->epoll.fd,
                                tt_epoll_data(&wires->epoll, tt_epoll_mark_of(use))));
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
    wires->seek = (struct tt_seek){.fd = -1};
    tt_status status = tt_epoll_open(&wires->epoll)
                           ? tt_socket_fail(errno, "cannot wait for the ranks of other hosts")
                           : listen_for_peers(&listener, &made);
    if (!status) {
        status = tt_acceptor_create(&wires->acceptor, listener, config->key, 0);
        if (status) tt_private_fd_close(listener);
    }
    if (!status) status = tt_wire_watch(wires, wires->acceptor->epoll.fd, wires, false, true);
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
    const struct tt_wires *wires = owner;
    return wires->spares ? TT_IN_PROGRESS : tt_wire_missed(wires->table[peer]);
}

static void on_look(void *owner, int peer)
{
    const struct tt_wires *wires = owner;
    tt_wire_look(wires->table[peer]);
}

static void on_name(const void *owner, int rank, char *text, size_t size)
{
    tt_room_name(((const struct tt_wires *)owner)->up, rank, text, size);
}

static const struct tt_room_events room_events = {
    .fail = on_fail, .missed = on_missed, .look = on_look, .name = on_name};

tt_status tt_wires_start(struct tt_wires *wires, const struct tt_wires_client *client,
                         const struct tt_wires_info *infos)
{
    const struct tt_room_context *up = client->context;
    const size_t n = (size_t)up->nranks, nlinks = n * 2 * (size_t)up->nchannels;
    wires->client = client;
    wires->up = up;
    wires->context = *up;
    wires->context.events = &room_events;
    wires->context.owner = wires;
    wires->tcp.context = &wires->context;
    wires->seek.next = up->rank;
    wires->infos = malloc(n * sizeof *infos);
    wires->table = calloc(n, sizeof *wires->table);
    wires->links = calloc(nlinks, sizeof *wires->links);
    if (!wires->infos || !wires->table || !wires->links)
        return tt_fail(TT_ERR_SYSTEM, "out of memory for the wires to %zu ranks", n);
    memcpy(wires->infos, infos, n * sizeof *infos);
    for (int r = 0; r < up->nranks; r++) tt_wire_handles_init(wires, r);
    wires->nbytes += n * (sizeof *infos + sizeof *wires->table) + nlinks * sizeof *wires->links;
    for (int i = 0; i < tt_ntransports; i++)
        if (wires->uses[i].self) wires->uses[i].room->start(wires->uses[i].self, &wires->context);
    for (int r = 0; r < up->nranks; r++) TT_TRY(check_peer(wires, r));
    return TT_OK;
}
