/* Takes another way to a peer where an interface leads nowhere: it is up on both hosts and has
 * addresses of one subnet, but no packet arrives. Such an interface is tried once by a process, not
 * by each wire. */
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/process_lock.h"
#include "transport/wires_internal.h"

enum { MOST_KNOWN = 2 * TT_MAX_INTERFACES };
#define REMEMBERED_NS INT64_C(600000000000) /* then a failed interface is tried again */

/* ---- What is known of this host's interfaces ------------------------------------------------- */

struct known {
    char interface[TT_INTERFACE_NAME];
    bool works;        /* something has connected over it */
    int64_t failed_ns; /* when nothing did, the last time; 0: never */
};

static struct tt_process_lock lock = TT_PROCESS_LOCK;
static struct known known[MOST_KNOWN]; /* guarded by lock, as nknown */
static int nknown;

/* NULL: nothing is known, and there is no place for more. */
static struct known *find_locked(const char *interface, bool enter)
{
    for (int i = 0; i < nknown; i++)
        if (!strcmp(known[i].interface, interface)) return &known[i];
    if (!enter || nknown == MOST_KNOWN) return NULL;
    struct known *made = &known[nknown++];
    *made = (struct known){.works = false};
    strncpy(made->interface, interface, sizeof made->interface - 1);
    return made;
}

void tt_route_works(const struct tt_route *route)
{
    tt_process_lock(&lock);
    struct known *entry = find_locked(route->interface, true);
    if (entry) entry->works = true;
    tt_process_unlock(&lock);
}

void tt_route_fails(const struct tt_route *route)
{
    tt_process_lock(&lock);
    struct known *entry = find_locked(route->interface, true);
    if (entry) entry->failed_ns = tt_now_ns();
    tt_process_unlock(&lock);
}

static bool leads_nowhere(const struct tt_route *route)
{
    tt_process_lock(&lock);
    const struct known *entry = find_locked(route->interface, false);
    const bool nowhere = entry && !entry->works && entry->failed_ns &&
                         tt_now_ns() - entry->failed_ns < REMEMBERED_NS;
    tt_process_unlock(&lock);
    return nowhere;
}

/* ---- Detours --------------------------------------------------------------------------------- */

static bool is_same(const struct tt_address *a, const struct tt_address *b)
{
    char text[2][TT_ADDRESS_TEXT];
    return a->nbytes == b->nbytes &&
           (!a->nbytes || !strcmp(tt_address_host(a, text[0]), tt_address_host(b, text[1])));
}

/* The next pair from number *next on that is worth a try. */
static bool find_detour(const struct tt_wire *wire, int index, int *next, struct tt_route *found)
{
    const struct tt_wires *wires = wire->wires;
    const struct tt_wires_info *mine = &wires->infos[wires->up->rank];
    const struct tt_wires_info *theirs = &wires->infos[wire->peer];
    const struct tt_route *bad = &wire->routes[index];
    while (tt_wire_any_route(found, mine, theirs, (*next)++))
        if (!leads_nowhere(found) &&
            !(is_same(&found->source, &bad->source) && is_same(&found->target, &bad->target)))
            return true;
    return false;
}

bool tt_wire_has_detour(const struct tt_wire *wire, int index)
{
    struct tt_route found;
    int next = wire->ndetours;
    return find_detour(wire, index, &next, &found);
}

bool tt_wire_detour(struct tt_wire *wire, int index)
{
    struct tt_route found;
    if (!find_detour(wire, index, &wire->ndetours, &found)) return false;
    wire->routes[index] = found;
    return true;
}

void tt_wire_avoid(struct tt_wire *wire)
{
    for (int i = 0; i < wire->nroutes; i++) {
        wire->ndetours = 0;
        if (leads_nowhere(&wire->routes[i])) (void)tt_wire_detour(wire, i);
    }
    wire->ndetours = 0;
}

/* ---- Connections that have come ---------------------------------------------------------------
 */

static const struct tt_wire_address *find_address(const struct tt_wires_info *info,
                                                  const struct tt_address *address)
{
    for (int i = 0; i < info->naddresses; i++)
        if (is_same(&info->addresses[i].address, address)) return &info->addresses[i];
    return NULL;
}

struct tt_route tt_wire_route_of(const struct tt_wire *wire, int fd, int index)
{
    const struct tt_wires *wires = wire->wires;
    struct tt_route route = wire->routes[index];
    struct tt_address own, theirs;
    if (tt_socket_own(fd, &own) != 0 || tt_socket_peer(fd, &theirs) != 0) return route;
    const struct tt_wire_address *here = find_address(&wires->infos[wires->up->rank], &own);
    const struct tt_wire_address *there = find_address(&wires->infos[wire->peer], &theirs);
    if (!here || !there) return route;
    route.target = there->address;
    memcpy(route.interface, here->interface, sizeof route.interface);
    memcpy(route.their_interface, there->interface, sizeof route.their_interface);
    return route;
}
