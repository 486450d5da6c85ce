/* Wires: creates the queue pairs between two ranks and their memory, exchanges offers, connects,
 * and checks progress. */
#include <arpa/inet.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>

#include "base/clock.h"
#include "base/config.h"
#include "base/log.h"
#include "transport/rdma/rdma_internal.h"
#include "transport/window.h"

enum { OFFER_VERSION = 6, INLINE_BYTES = 256, RARELY = 256 };

/* The offer as it travels. */
struct offer {
    uint32_t version, nends;
    uint64_t nslots, slot_bytes, nchannels;
    uint64_t memory; /* address */
    struct tt_rdma_end ends[TT_RDMA_MAX_PORTS];
};
_Static_assert(sizeof(struct offer) <= sizeof((struct tt_room_offer *)0)->bytes, "must fit");

/* ---- Making --------------------------------------------------------------------------------- */

/* Logs why there is no RDMA, with errno's text; once, because all wires would log the same. */
__attribute__((format(printf, 2, 3))) static tt_status refuse(struct tt_rdma *rdma,
                                                              const char *format, ...)
{
    char text[256];
    const int error = errno;
    if (rdma->said) return TT_ERR_SYSTEM;
    rdma->said = true;
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return tt_fail_errno(error, "no RDMA: %s", text);
}

static tt_status register_memory(struct tt_rdma_wire *wire)
{
    struct tt_rdma *rdma = wire->rdma;
    struct rlimit limit = {0};
    for (int i = 0; i < rdma->ndevices; i++) {
        wire->regions[i] = rdma->verbs->reg_mr(rdma->devices[i].domain, wire->memory, wire->nbytes,
                                               IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
        if (wire->regions[i]) continue;
        const int error = errno;
        getrlimit(RLIMIT_MEMLOCK, &limit);
        errno = error;
        return refuse(rdma,
                      "%zu bytes cannot be registered with %s (ulimit -l is %llu KiB; "
                      "raise it, or lower TUTTI_SLOTS or TUTTI_SLOT_BYTES)",
                      wire->nbytes, rdma->devices[i].name,
                      (unsigned long long)limit.rlim_cur / 1024);
    }
    return TT_OK;
}

/* The slots, in shared pages: a fork must not leave the device with the child's copy. */
static tt_status make_memory(struct tt_rdma_wire *wire)
{
    const struct tt_rdma *rdma = wire->rdma;
    const size_t most = rdma->slot_bytes + (rdma->context->nbridges ? TT_BRIDGE_HEAD_BYTES : 0);
    wire->stride = TT_CACHE_LINE + (most + TT_CACHE_LINE - 1) / TT_CACHE_LINE * TT_CACHE_LINE;
    wire->nbytes = tt_rdma_slot_at(wire, true, wire->nchannels, 0);
    void *memory =
        mmap(NULL, wire->nbytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return refuse(wire->rdma, "no memory for slots of %zu bytes", wire->nbytes);
    madvise(memory, wire->nbytes, MADV_DONTDUMP);
    wire->memory = memory;
    TT_TRY(tt_window_pin(memory, wire->nbytes));
    return register_memory(wire);
}

/* Inline sends of as many bytes as the device grants. */
static struct ibv_qp *create_qp(const struct tt_rdma_route *route, uint32_t *inline_bytes)
{
    const struct tt_rdma *rdma = route->wire->rdma;
    const uint32_t nmessages = (uint32_t)rdma->nslots * (uint32_t)route->wire->nchannels;
    const uint32_t npayloads = (uint32_t)rdma->nslots * (uint32_t)rdma->context->nbridges;
    for (uint32_t asked = INLINE_BYTES;; asked /= 2) {
        struct ibv_qp_init_attr attributes = {
            .qp_context = (void *)(uintptr_t)route,
            .send_cq = route->cq,
            .recv_cq = route->cq,
            .qp_type = IBV_QPT_RC,
            .cap = {.max_send_wr = 2 * nmessages + npayloads, /* data and credits */
                    .max_recv_wr = nmessages,
                    .max_send_sge = 2,
                    .max_recv_sge = 1,
                    .max_inline_data = asked},
        };
        struct ibv_qp *qp = rdma->verbs->create_qp(route->port->device->domain, &attributes);
        if (qp) *inline_bytes = attributes.cap.max_inline_data;
        if (qp || asked == 0) return qp;
    }
}

static tt_status to_init(const struct tt_rdma_route *route)
{
    struct tt_rdma *rdma = route->wire->rdma;
    errno = tt_rdma_init_pair(rdma, route->qp, route->port, IBV_ACCESS_REMOTE_WRITE);
    return errno ? refuse(rdma, "a queue pair of %s port %d cannot be used",
                          route->port->device->name, route->port->number)
                 : TT_OK;
}

static tt_status make_route(struct tt_rdma_route *route)
{
    struct tt_rdma *rdma = route->wire->rdma;
    const struct tt_rdma_port *port = route->port;
    const int nmessages = (int)rdma->nslots * route->wire->nchannels;
    const int npayloads = (int)rdma->nslots * rdma->context->nbridges;
    route->cq = rdma->verbs->create_cq(port->device->context, 3 * nmessages + npayloads, NULL,
                                       port->device->channel, 0);
    if (route->cq) route->qp = create_qp(route, &route->inline_bytes);
    if (!route->qp)
        return refuse(rdma, "%s port %d gives no queue pair for %d messages", port->device->name,
                      port->number, nmessages);
    if (getrandom(&route->first_packet, sizeof route->first_packet, 0) < 0) route->first_packet = 0;
    route->first_packet &= 0xffffff;
    TT_TRY(to_init(route));
    return tt_rdma_post_receives(route, nmessages);
}

static void fill_end(struct tt_rdma_end *end, const struct tt_rdma_route *route)
{
    const struct tt_rdma_port *port = route->port;
    const struct tt_rdma *rdma = route->wire->rdma;
    *end = (struct tt_rdma_end){
        .qp_number = route->qp->qp_num,
        .first_packet = route->first_packet,
        .key = route->wire->regions[port->device - rdma->devices]->rkey,
        .lid = port->attributes.lid,
        .mtu = (uint8_t)port->attributes.active_mtu,
        .ethernet = port->attributes.link_layer == IBV_LINK_LAYER_ETHERNET,
        .ngids = (uint8_t)port->ngids,
        .is_near = port->is_near,
    };
    memcpy(end->gids, port->gids, sizeof end->gids);
}

static void fill_offer(const struct tt_rdma_wire *wire, struct offer *offer)
{
    *offer = (struct offer){.version = OFFER_VERSION,
                            .nends = (uint32_t)wire->nends,
                            .nslots = wire->rdma->nslots,
                            .slot_bytes = wire->rdma->slot_bytes,
                            .nchannels = (uint64_t)wire->nchannels,
                            .memory = (uintptr_t)wire->memory};
    for (int i = 0; i < wire->nends; i++) fill_end(&offer->ends[i], &wire->ends[i]);
}

tt_status tt_rdma_wire_create(struct tt_rdma_wire **out, struct tt_rdma *rdma, int peer,
                              struct tt_room_offer *offer)
{
    offer->nbytes = 0;
    struct tt_rdma_wire *wire = calloc(1, sizeof *wire);
    if (!wire)
        return refuse(rdma, "out of memory for a connection with rank %d (%zu bytes)", peer,
                      sizeof *wire);
    wire->rdma = rdma;
    wire->peer = peer;
    wire->nchannels = rdma->context->nchannels;
    wire->tx = calloc(2 * (size_t)wire->nchannels, sizeof *wire->tx);
    wire->rx = wire->tx + wire->nchannels;
    tt_status status =
        wire->tx
            ? make_memory(wire)
            : refuse(rdma, "out of memory for %d links with rank %d (%zu bytes)",
                     2 * wire->nchannels, peer, 2 * (size_t)wire->nchannels * sizeof *wire->tx);
    for (int i = 0; i < rdma->nports && !status; i++) {
        wire->ends[i] = (struct tt_rdma_route){.wire = wire, .port = &rdma->ports[i]};
        wire->nends++;
        status = make_route(&wire->ends[i]);
    }
    if (status) {
        tt_rdma_wire_destroy(wire);
        return status;
    }
    for (int c = 0; c < wire->nchannels; c++) {
        tt_rdma_link_init(&wire->tx[c], wire, c, true);
        tt_rdma_link_init(&wire->rx[c], wire, c, false);
    }
    struct offer mine;
    fill_offer(wire, &mine);
    offer->nbytes = sizeof mine;
    memcpy(offer->bytes, &mine, sizeof mine);
    *out = wire;
    return TT_OK;
}

/* ---- Connecting ----------------------------------------------------------------------------- */

static tt_status to_ready(struct tt_rdma_route *route)
{
    const struct tt_rdma_end *theirs = &route->theirs;
    const int error = tt_rdma_join(route->wire->rdma,
                                   &(struct tt_rdma_joint){.qp = route->qp,
                                                           .port = route->port,
                                                           .gid = route->gid,
                                                           .target = &route->their_gid,
                                                           .qp_number = theirs->qp_number,
                                                           .first_packet = theirs->first_packet,
                                                           .lid = theirs->lid,
                                                           .mtu = theirs->mtu,
                                                           .ethernet = theirs->ethernet,
                                                           .my_first_packet = route->first_packet});
    return error ? tt_fail_errno(error, "a queue pair cannot be connected") : TT_OK;
}

static tt_status connect_route(struct tt_rdma_route *route)
{
    char peer[128], mine[INET6_ADDRSTRLEN], theirs[INET6_ADDRSTRLEN];
    struct tt_rdma_port *port = route->port;
    tt_room_name(route->wire->rdma->context, route->wire->peer, peer, sizeof peer);
    tt_gid_name(&port->gids[route->gid], mine, sizeof mine);
    tt_gid_name(&route->their_gid, theirs, sizeof theirs);
    if (route->theirs.mtu != port->attributes.active_mtu)
        TT_INFO("RDMA %s/%d: the path MTU to %s is %d, for the ports differ (%d here, %d there)",
                port->device->name, port->number, peer,
                128 << (route->theirs.mtu < port->attributes.active_mtu
                            ? route->theirs.mtu
                            : port->attributes.active_mtu),
                128 << port->attributes.active_mtu, 128 << route->theirs.mtu);
    TT_TRY(to_ready(route));
    port->gids_used |= 1u << route->gid;
    TT_INFO("RDMA to %s: %s port %d, %s to %s, %u bytes inline", peer, port->device->name,
            port->number, mine, theirs, route->inline_bytes);
    return TT_OK;
}

/* Checks an offer: it is data from outside. */
static tt_status check_offer(const struct tt_rdma_wire *wire, const struct tt_room_offer *bytes,
                             struct offer *offer)
{
    char peer[128];
    tt_room_name(wire->rdma->context, wire->peer, peer, sizeof peer);
    if (bytes->nbytes != sizeof *offer)
        return tt_fail(TT_ERR_REMOTE, "no RDMA with %s: its offer has %u bytes, expected %zu", peer,
                       bytes->nbytes, sizeof *offer);
    memcpy(offer, bytes->bytes, sizeof *offer);
    if (offer->version != OFFER_VERSION || offer->nends > TT_RDMA_MAX_PORTS)
        return tt_fail(TT_ERR_REMOTE, "no RDMA with %s: its offer is of another version of tutti",
                       peer);
    if (offer->nslots != wire->rdma->nslots || offer->slot_bytes != wire->rdma->slot_bytes ||
        offer->nchannels != (uint64_t)wire->nchannels)
        return tt_fail(TT_ERR_REMOTE,
                       "no RDMA with %s: it has %llu slots of %llu bytes on %llu channels, this "
                       "rank %zu of %zu on %d; TUTTI_SLOTS, TUTTI_SLOT_BYTES and TUTTI_CHANNELS "
                       "must be the same everywhere",
                       peer, (unsigned long long)offer->nslots,
                       (unsigned long long)offer->slot_bytes, (unsigned long long)offer->nchannels,
                       wire->rdma->nslots, wire->rdma->slot_bytes, wire->nchannels);
    for (uint32_t i = 0; i < offer->nends; i++)
        if (offer->ends[i].ngids > TT_RDMA_MAX_GIDS || offer->ends[i].mtu < IBV_MTU_256 ||
            offer->ends[i].mtu > IBV_MTU_4096)
            return tt_fail(TT_ERR_REMOTE, "no RDMA with %s: its offer is damaged", peer);
    return TT_OK;
}

tt_status tt_rdma_wire_connect(struct tt_rdma_wire *wire, const struct tt_room_offer *theirs)
{
    struct offer mine, other;
    struct tt_rdma_pair pairs[TT_RDMA_MAX_PORTS];
    TT_TRY(check_offer(wire, theirs, &other));
    fill_offer(wire, &mine);
    const bool low = wire->rdma->context->rank < wire->peer;
    const struct offer *a = low ? &mine : &other, *b = low ? &other : &mine;
    const int n = tt_rdma_pair_ends(a->ends, (int)a->nends, b->ends, (int)b->nends, pairs);
    if (n == 0) {
        char peer[128];
        tt_room_name(wire->rdma->context, wire->peer, peer, sizeof peer);
        return tt_fail(TT_ERR_REMOTE,
                       "no RDMA with %s: no port here and there have addresses (GIDs) of one kind",
                       peer);
    }
    for (int k = 0; k < n; k++) {
        struct tt_rdma_route *route = &wire->ends[low ? pairs[k].low : pairs[k].high];
        route->gid = low ? pairs[k].low_gid : pairs[k].high_gid;
        route->theirs = other.ends[low ? pairs[k].high : pairs[k].low];
        route->their_gid = route->theirs.gids[low ? pairs[k].high_gid : pairs[k].low_gid];
        TT_TRY(connect_route(route));
        wire->used[k] = route;
    }
    wire->nroutes = n;
    wire->their_memory = other.memory;
    return TT_OK;
}

/* ---- While it lives ------------------------------------------------------------------------- */

struct tt_link *tt_rdma_tx(struct tt_rdma_wire *wire, int channel)
{
    return &wire->tx[channel].link;
}

struct tt_link *tt_rdma_rx(struct tt_rdma_wire *wire, int channel)
{
    return &wire->rx[channel].link;
}

/* The device gives up after its retries; if it does not, this rank fails the wire. */
static tt_status check_overdue(struct tt_rdma_wire *wire)
{
    const int64_t timeout_ms = tt_config_int(TT_CONFIG_NET_TIMEOUT_MS);
    if (wire->nposted == wire->ncompleted || timeout_ms <= 0 || wire->quiet) {
        wire->since_ns = 0;
        return TT_OK;
    }
    const int64_t now = tt_now_ns();
    if (!wire->since_ns || wire->ncompleted_seen != wire->ncompleted) {
        wire->ncompleted_seen = wire->ncompleted;
        wire->since_ns = now;
        return TT_OK;
    }
    if (now - wire->since_ns < timeout_ms * 1000000) return TT_OK;
    char what[128];
    snprintf(what, sizeof what, "nothing was acknowledged for %lld ms (TUTTI_NET_TIMEOUT_MS)",
             (long long)timeout_ms);
    return tt_rdma_fail_route(wire->used[0], what);
}

tt_status tt_rdma_wire_progress(struct tt_rdma_wire *wire)
{
    for (int i = 0; i < wire->nroutes; i++) TT_TRY(tt_rdma_poll(wire->used[i]));
    if (++wire->turns % RARELY) return wire->failed; /* the checks below take system calls */
    TT_TRY(tt_rdma_events(wire->rdma));
    return check_overdue(wire);
}

bool tt_rdma_wire_flushed(struct tt_rdma_wire *wire)
{
    for (int c = 0; c < wire->nchannels; c++) {
        struct tt_link *rx = &wire->rx[c].link;
        if (!rx->ops->flushed(rx)) return false;
    }
    return true;
}

/* A completion that came before its queue was armed gives no notification: polls for it after
 * arming. */
bool tt_rdma_wire_arm(struct tt_rdma_wire *wire)
{
    const uint64_t before = wire->ncompleted + wire->nreceived;
    for (int i = 0; i < wire->nroutes; i++)
        if (ibv_req_notify_cq(wire->used[i]->cq, 0) || tt_rdma_poll(wire->used[i])) return true;
    return wire->ncompleted + wire->nreceived == before;
}

void tt_rdma_wire_describe(const struct tt_rdma_wire *wire, char *text, size_t size)
{
    size_t used = (size_t)snprintf(text, size, "rdma");
    for (int i = 0; i < wire->nroutes && used < size; i++)
        used += (size_t)snprintf(text + used, size - used, "%s %s/%d", i ? "," : "",
                                 wire->used[i]->port->device->name, wire->used[i]->port->number);
}

size_t tt_rdma_wire_bytes(const struct tt_rdma_wire *wire)
{
    return sizeof *wire + 2 * (size_t)wire->nchannels * sizeof *wire->tx + wire->nbytes;
}
