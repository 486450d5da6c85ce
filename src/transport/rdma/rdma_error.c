/* The texts of failures on a wire: the peer, the device and port, the cause, and what to check. */
#include <arpa/inet.h>
#include <stdio.h>

#include "base/config.h"
#include "transport/rdma/rdma_internal.h"

static const char *advice(enum ibv_wc_status status)
{
    switch (status) {
    case IBV_WC_RETRY_EXC_ERR:
        return "the peer did not answer: is it alive, are the link and the switch up, is UDP port "
               "4791 open (RoCE), do the two addresses reach each other with this MTU; "
               "TUTTI_RDMA_TIMEOUT and TUTTI_RDMA_RETRIES say for how long it is tried";
    case IBV_WC_WR_FLUSH_ERR:
        return "the connection had failed before: see the peer's error and the kernel's log "
               "(dmesg)";
    case IBV_WC_RNR_RETRY_EXC_ERR:
    case IBV_WC_REM_ACCESS_ERR:
    case IBV_WC_REM_INV_REQ_ERR:
    case IBV_WC_REM_OP_ERR:
        return "the peer's device refused it: see the peer's error and its kernel's log (dmesg)";
    default:
        return "see the kernel's log of this host (dmesg)";
    }
}

/* Fails the fabric once; the wire keeps the status. Not where the peer has left or died, which the
 * sockets of the two ranks say: who waits for that peer learns it from there. While the sockets
 * bring the offer of which the wire is made, they are not read. */
static tt_status fail(struct tt_rdma_route *route, const char *what, const char *check)
{
    struct tt_rdma_wire *wire = route->wire;
    const struct tt_rdma *rdma = wire->rdma;
    if (wire->quiet || wire->failed) return wire->failed;
    if (wire->nroutes) rdma->context->events->look(rdma->context->owner, wire->peer);
    if (wire->quiet) return TT_OK;
    char peer[128], mine[INET6_ADDRSTRLEN], theirs[INET6_ADDRSTRLEN];
    struct ibv_port_attr now = {0};
    tt_room_name(rdma->context, wire->peer, peer, sizeof peer);
    tt_gid_name(&route->port->gids[route->gid], mine, sizeof mine);
    tt_gid_name(&route->their_gid, theirs, sizeof theirs);
    if (rdma->verbs->query_port(route->port->device->context, route->port->number, (void *)&now))
        now.state = IBV_PORT_NOP;
    wire->failed = tt_room_fail(
        rdma->context, TT_ERR_REMOTE,
        "RDMA connection with %s failed on %s port %d (%s to %s): %s; the port is %s now; %s", peer,
        route->port->device->name, route->port->number, mine, theirs, what,
        rdma->verbs->port_state_str(now.state), check);
    return wire->failed;
}

/* Of what is written from memory of a GPU to that of the peer's. */
static const char *advice_on_payload(enum ibv_wc_status status)
{
    switch (status) {
    case IBV_WC_REM_ACCESS_ERR:
    case IBV_WC_REM_INV_REQ_ERR:
    case IBV_WC_REM_OP_ERR:
        return "the peer's device does not let this one write to the memory of its GPU: see the "
               "peer's error and its kernel's log (dmesg), and try TUTTI_RDMA_GPU=off";
    case IBV_WC_LOC_PROT_ERR:
    case IBV_WC_LOC_ACCESS_ERR:
    case IBV_WC_LOC_QP_OP_ERR: /* rxe */
        return "this device cannot read the memory of its GPU: see the kernel's log of this host "
               "(dmesg), and try TUTTI_RDMA_GPU=off";
    default:
        return advice(status);
    }
}

tt_status tt_rdma_fail_completion(struct tt_rdma_route *route, const struct ibv_wc *wc)
{
    const bool is_payload = wc->wr_id >> 16 == TT_RDMA_PAYLOAD;
    char what[160];
    snprintf(what, sizeof what, "%s%s (status %d, vendor error %#x)",
             is_payload ? "writing from memory of a GPU to that of the peer's: " : "",
             route->wire->rdma->verbs->wc_status_str(wc->status), wc->status, wc->vendor_err);
    return fail(route, what, is_payload ? advice_on_payload(wc->status) : advice(wc->status));
}

tt_status tt_rdma_fail_route(struct tt_rdma_route *route, const char *what)
{
    return fail(route, what, "see the kernel's log of both hosts (dmesg)");
}
