/* Chooses the pairs of addresses between which two ranks connect, and connects over one of them.
 * Both ranks compute the pairs from the same two infos and get the same ones. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "base/private_fd.h"
#include "transport/wires_internal.h"

static const uint8_t *bits_of(const struct tt_address *address)
{
    const size_t at = tt_address_family(address) == AF_INET
                          ? offsetof(struct sockaddr_in, sin_addr)
                          : offsetof(struct sockaddr_in6, sin6_addr);
    return address->bytes + at;
}

static bool same_subnet(const struct tt_wire_address *a, const struct tt_wire_address *b)
{
    const uint8_t *bits_a = bits_of(&a->address), *bits_b = bits_of(&b->address);
    if (a->prefix != b->prefix || memcmp(bits_a, bits_b, a->prefix / 8) != 0) return false;
    const uint8_t mask = (uint8_t)(0xff00u >> a->prefix % 8);
    return !mask || !((bits_a[a->prefix / 8] ^ bits_b[a->prefix / 8]) & mask);
}

static bool same_family(const struct tt_wire_address *a, const struct tt_wire_address *b)
{
    return tt_address_family(&a->address) == tt_address_family(&b->address);
}

static void set_route(struct tt_route *route, const struct tt_wire_address *mine,
                      const struct tt_wire_address *theirs, bool bound)
{
    *route =
        (struct tt_route){.target = theirs->address, .mtu = mine->mtu, .their_mtu = theirs->mtu};
    route->mbit = mine->mbit < theirs->mbit ? mine->mbit : theirs->mbit;
    if (bound) {
        route->source = mine->address;
        tt_address_set_port(&route->source, 0);
    }
    memcpy(route->interface, mine->interface, sizeof route->interface);
    memcpy(route->their_interface, theirs->interface, sizeof route->their_interface);
}

/* The lower rank's i-th address goes with the first of the higher one's that `fit` and is free. */
static int pair_up(struct tt_route *routes, const struct tt_wires_info *mine,
                   const struct tt_wires_info *theirs, bool lower)
{
    const struct tt_wires_info *first = lower ? mine : theirs, *second = lower ? theirs : mine;
    bool taken[TT_MAX_INTERFACES] = {0};
    int n = 0;
    for (int i = 0; i < first->naddresses; i++)
        for (int k = 0; k < second->naddresses; k++) {
            const struct tt_wire_address *a = &first->addresses[i], *b = &second->addresses[k];
            if (taken[k] || !same_family(a, b) || !same_subnet(a, b)) continue;
            taken[k] = true;
            set_route(&routes[n++], lower ? a : b, lower ? b : a, true);
            break;
        }
    return n;
}

static int any_pair(struct tt_route *routes, const struct tt_wires_info *mine,
                    const struct tt_wires_info *theirs, bool lower)
{
    const struct tt_wires_info *first = lower ? mine : theirs, *second = lower ? theirs : mine;
    for (int i = 0; i < first->naddresses; i++)
        for (int k = 0; k < second->naddresses; k++) {
            const struct tt_wire_address *a = &first->addresses[i], *b = &second->addresses[k];
            if (!same_family(a, b)) continue;
            set_route(routes, lower ? a : b, lower ? b : a, false);
            return 1;
        }
    return 0;
}

/* Messages take turns over the routes, so n routes carry n times as much as the slowest of them.
 * Keeps those of the fastest that carry most: a slow network beside a fast one would hold it up.
 * Returns their number. */
static int keep_fastest(struct tt_route *routes, int n)
{
    uint64_t most = 0;
    uint32_t least = 0; /* speed of the slowest that is kept */
    for (int i = 0; i < n; i++) {
        const uint32_t speed = routes[i].mbit;
        uint64_t number = 0;
        for (int k = 0; k < n; k++) number += routes[k].mbit >= speed;
        if (!speed) return n;
        if (number * speed < most || (number * speed == most && speed <= least)) continue;
        most = number * speed;
        least = speed;
    }
    int kept = 0;
    for (int i = 0; i < n; i++)
        if (routes[i].mbit >= least) routes[kept++] = routes[i];
    return kept;
}

int tt_wire_routes(struct tt_route *routes, const struct tt_wires_info *mine,
                   const struct tt_wires_info *theirs, bool lower)
{
    if (mine->network_id == theirs->network_id && mine->loopback.nbytes &&
        theirs->loopback.nbytes) {
        *routes = (struct tt_route){
            .target = theirs->loopback, .interface = "lo", .their_interface = "lo"};
        return 1;
    }
    const int n = keep_fastest(routes, pair_up(routes, mine, theirs, lower));
    return n ? n : any_pair(routes, mine, theirs, lower);
}

bool tt_wire_any_route(struct tt_route *route, const struct tt_wires_info *mine,
                       const struct tt_wires_info *theirs, int number)
{
    for (int near = 1; near >= 0; near--)
        for (int i = 0; i < mine->naddresses; i++)
            for (int k = 0; k < theirs->naddresses; k++) {
                const struct tt_wire_address *a = &mine->addresses[i], *b = &theirs->addresses[k];
                if (!same_family(a, b) || same_subnet(a, b) != near || number-- > 0) continue;
                set_route(route, a, b, near);
                return true;
            }
    return false;
}

int tt_route_connect(const struct tt_route *route, int64_t timeout_ns, int *fd, const char **what)
{
    const struct tt_address *source = &route->source, *target = &route->target;
    tt_private_fd_begin();
    *fd = tt_private_fd_end(
        socket(tt_address_family(target), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    *what = "cannot open a socket (ulimit -n)";
    if (*fd < 0) return errno;
    tt_tcp_tune(*fd, timeout_ns);
    *what = "cannot use its own address";
    if (source->nbytes && bind(*fd, (const struct sockaddr *)source->bytes, source->nbytes))
        return errno;
    *what = "cannot connect";
    if (!connect(*fd, (const struct sockaddr *)target->bytes, target->nbytes)) return 0;
    return errno == EINPROGRESS ? 0 : errno;
}

int tt_route_connect_error(int fd)
{
    int error = 0;
    socklen_t nbytes = sizeof error;
    return getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &nbytes) ? errno : error;
}

void tt_route_describe_failure(const struct tt_route *route, const struct tt_room_context *up,
                               int peer, const char *why, char *text, size_t size)
{
    char name[128], where[TT_ADDRESS_TEXT];
    tt_room_name(up, peer, name, sizeof name);
    snprintf(text, size, "rank %d cannot reach %s at %s (%s) over %s: %s", up->rank, name,
             tt_address_format(&route->target, where), route->their_interface, route->interface,
             why);
}
