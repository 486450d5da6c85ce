/* Control frames of a wire: records, failures, offers; and the end of a connection. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/private_fd.h"
#include "transport/wires_internal.h"

/* How long the bytes that have come from a peer are read for a failure, or for its end. */
enum { MISSED_MS = 1000 };

/* ---- Records -------------------------------------------------------------------------------- */

uint64_t tt_wire_entered(const struct tt_wires *wires)
{
    return wires->client->entered(wires->up->owner);
}

size_t tt_wire_put_record(const struct tt_wires *wires, uint8_t *to, uint32_t state)
{
    const struct tt_frame frame = {.kind = TT_FRAME_RECORD,
                                   .nbytes = sizeof(struct tt_wire_record)};
    struct tt_wire_record record = {.state = state};
    wires->client->record(wires->up->owner, &record);
    memcpy(to, &frame, sizeof frame);
    memcpy(to + sizeof frame, &record, sizeof record);
    return sizeof frame + sizeof record;
}

/* The record that announces the end is the last frame on each socket: when it has come on all of
 * them, all data of the peer is here. */
static bool has_left_all_sockets(const struct tt_wire *wire)
{
    for (int i = 0; i < wire->tcp.nopen; i++)
        if (wire->tcp.sockets[i].fd >= 0 && !wire->tcp.sockets[i].left) return false;
    return true;
}

static tt_status take_record(struct tt_wire *wire, struct tt_tcp *tcp, const char *from)
{
    struct tt_wire_record record;
    memcpy(&record, from, sizeof record);
    const struct tt_wires *wires = wire->wires;
    if (record.state != TT_RANK_HERE && record.state != TT_RANK_LEFT &&
        record.state != TT_RANK_ABORTED)
        return tt_tcp_refuse(tcp, "state", record.state);
    wires->client->on_record(wires->up->owner, wire->peer, &record);
    if (record.state == TT_RANK_HERE) return TT_OK;
    tcp->left = true;
    if (wire->end) wire->room->quiet(wire->end);
    if (!has_left_all_sockets(wire)) return TT_OK;
    wire->peer_state = record.state;
    wires->client->on_left(wires->up->owner, wire->peer, record.state);
    return TT_OK;
}

static tt_status take_failure(struct tt_wire *wire, const struct tt_tcp *tcp,
                              const struct tt_frame *frame, char *text)
{
    const int code = (int)frame->number;
    if (code >= 0) return tt_tcp_refuse(tcp, "failure code", frame->number);
    text[frame->nbytes] = '\0';
    return tt_room_fail(wire->wires->up, code, "%s", text);
}

static tt_status take_reason(struct tt_wire *wire, const struct tt_frame *frame, char *text)
{
    text[frame->nbytes] = '\0';
    free(wire->reason);
    wire->reason = strdup(text);
    return TT_OK;
}

static tt_status take_gone(struct tt_wire *wire, const struct tt_tcp *tcp,
                           const struct tt_frame *frame, char *text)
{
    const struct tt_room_context *up = wire->wires->up;
    if (frame->number >= (uint32_t)up->nranks) return tt_tcp_refuse(tcp, "rank", frame->number);
    text[frame->nbytes] = '\0';
    const int number = wire->wires->client->on_gone(up->owner, (int)frame->number, text);
    if (number >= 0) wire->knows_gone |= 1u << number;
    return TT_OK;
}

/* ---- Frames --------------------------------------------------------------------------------- */

static tt_status check(struct tt_tcp *tcp, const struct tt_frame *frame)
{
    bool fits = false;
    switch (frame->kind) {
    case TT_FRAME_READY:
        fits = frame->nbytes == 0;
        break;
    case TT_FRAME_OFFER:
        fits = frame->nbytes <= sizeof((struct tt_room_offer *)0)->bytes;
        break;
    case TT_FRAME_RECORD:
        fits = frame->nbytes == sizeof(struct tt_wire_record);
        break;
    case TT_FRAME_FAILURE:
    case TT_FRAME_REASON:
    case TT_FRAME_GONE:
        fits = frame->nbytes < TT_ERROR_TEXT;
        break;
    default:
        return tt_tcp_refuse(tcp, "frame", frame->kind);
    }
    return fits ? TT_OK : tt_tcp_refuse(tcp, "length", frame->nbytes);
}

static tt_status take(void *owner, struct tt_tcp *tcp, const struct tt_frame *frame, char *payload)
{
    struct tt_wire *wire = owner;
    switch (frame->kind) {
    case TT_FRAME_RECORD:
        return take_record(wire, tcp, payload);
    case TT_FRAME_FAILURE:
        return take_failure(wire, tcp, frame, payload);
    case TT_FRAME_REASON:
        return take_reason(wire, frame, payload);
    case TT_FRAME_GONE:
        return take_gone(wire, tcp, frame, payload);
    case TT_FRAME_OFFER:
        return tt_wire_take_offer(wire, frame->channel, payload, frame->nbytes);
    default: /* TT_FRAME_READY */
        return tt_wire_take_ready(wire, frame->channel, frame->number != 0);
    }
}

/* The record of a collective that this rank has entered goes ahead of its first message. */
static size_t ahead(void *owner, uint8_t *to)
{
    struct tt_wire *wire = owner;
    const uint64_t entered = tt_wire_entered(wire->wires);
    if (entered == wire->told) return 0;
    wire->told = entered;
    return tt_wire_put_record(wire->wires, to, TT_RANK_HERE);
}

/* ---- The end -------------------------------------------------------------------------------- */

/* Writes into wire->gone why the peer is gone. */
static void explain_end(struct tt_wire *wire, const struct tt_tcp *tcp, int error)
{
    const struct tt_room_context *up = wire->wires->up;
    char name[128], words[128];
    const char *route = tcp->route.text;
    tt_room_name(up, wire->peer, name, sizeof name);
    wire->is_closed_here = tt_private_fd_is_lost(tcp->fd);
    wire->is_lost = !wire->is_closed_here && (!tcp->left || tcp->in_frame);
    if (wire->is_closed_here)
        snprintf(wire->gone, sizeof wire->gone,
                 "rank %d has closed the descriptor of its connection with %s (%s): " TT_LOST_FD,
                 up->rank, name, route);
    else if (!wire->is_lost)
        snprintf(wire->gone, sizeof wire->gone, "%s aborted the communicator", name);
    else if (error == ETIMEDOUT || error == EHOSTUNREACH || error == ENETUNREACH)
        snprintf(wire->gone, sizeof wire->gone,
                 "%s cannot be reached any more: its connection (%s) carried nothing for "
                 "TUTTI_NET_TIMEOUT_MS=%lld ms (%s)",
                 name, route, (long long)(wire->wires->timeout_ns / 1000000),
                 strerror_r(error, words, sizeof words));
    else if (error == EPROTO)
        snprintf(wire->gone, sizeof wire->gone,
                 "the encrypted connection to %s (%s) brought what that rank did not send: "
                 "somebody or something changed it underway",
                 name, route);
    else
        snprintf(wire->gone, sizeof wire->gone, "%s has died%s: its connection (%s) was %s", name,
                 error == ECONNRESET ? ", or failed or aborted while it was sending" : "", route,
                 !error                ? "closed"
                 : error == ECONNRESET ? "reset (if it lives, its own error says why)"
                                       : strerror_r(error, words, sizeof words));
}

/* The lower rank has made the connection. While it has sent nothing it may not have read this
 * rank's answer: where it has left because of a failure, it could not say so over the connection.
 */
static bool may_not_have_known(const struct tt_wire *wire)
{
    bool is_heard = wire->peer > wire->wires->up->rank;
    for (int i = 0; i < wire->tcp.nsockets; i++) is_heard |= wire->tcp.sockets[i].has_read;
    return !is_heard;
}

static bool may_be_explained(const struct tt_wire *wire)
{
    return wire->unheard_ns && tt_now_ns() - wire->unheard_ns < tt_wires_explain_ns(wire->wires);
}

tt_status tt_wire_lost(void *owner, struct tt_tcp *tcp, int error)
{
    struct tt_wire *wire = owner;
    if (!wire->gone[0]) {
        explain_end(wire, tcp, error);
        if (wire->is_lost && error != EPROTO && may_not_have_known(wire))
            wire->unheard_ns = tt_now_ns();
        if (wire->unheard_ns && !wire->wires->has_left) tt_wires_ask_others(wire->wires);
        if (wire->is_lost) tt_wires_seek_first(wire->wires, wire->peer);
    }
    tt_tcp_close(tcp);
    tt_dial_hang_up(&wire->dial);
    if (wire->end) wire->room->lost(wire->end);
    wire->state = TT_WIRE_GONE;
    wire->tcp.state = TT_TCP_GONE;
    tt_wire_handles_settle(wire);
    return error == EPROTO ? tt_wire_missed(wire) : TT_IN_PROGRESS;
}

void tt_wire_look(struct tt_wire *wire)
{
    const struct tt_wires *wires = wire->wires;
    const int64_t deadline_ns = tt_deadline_ns(MISSED_MS);
    for (int i = 0; i < wire->tcp.nopen; i++)
        while (!wires->client->check(wires->up->owner) &&
               tt_tcp_read(&wire->tcp.sockets[i]) == TT_OK && !tt_expired(deadline_ns))
            continue;
}

/* One peer may be gone because of another. */
static void add_lost(const struct tt_wires *wires, const struct tt_wire *except, char *text,
                     size_t size)
{
    for (const struct tt_wire *at = wires->first; at; at = at->following) {
        const size_t used = strlen(text);
        char name[128];
        if (at == except || !at->is_lost) continue;
        tt_room_name(wires->up, at->peer, name, sizeof name);
        snprintf(text + used, size - used, "; %s is gone, too", name);
    }
}

void tt_wires_add_lost(const struct tt_wires *wires, char *text, size_t size)
{
    add_lost(wires, NULL, text, size);
}

tt_status tt_wire_missed(struct tt_wire *wire)
{
    const struct tt_room_context *up = wire->wires->up;
    char text[TT_ERROR_TEXT];
    /* A failure that the peer sent before its end explains more. Where one socket has ended, the
     * others may still bring the peer's last record, which says how the peer ends. */
    tt_wire_look(wire);
    TT_TRY(wire->wires->client->check(up->owner)); /* the communicator has failed already */
    if (may_be_explained(wire)) return TT_IN_PROGRESS;
    if (wire->is_closed_here) return tt_room_fail(up, TT_ERR_USAGE, "%s", wire->gone);
    if (!wire->is_lost && wire->peer_state != TT_RANK_ABORTED)
        return wire->wires->client->on_missed_left(up->owner, wire->peer);
    snprintf(text, sizeof text, "%s", wire->gone);
    add_lost(wire->wires, wire, text, sizeof text);
    wire->wires->client->add_dead(up->owner, text, sizeof text);
    return tt_room_fail(up, TT_ERR_REMOTE, "%s", text);
}

void tt_wires_spare(struct tt_wires *wires, bool spares)
{
    wires->spares = spares;
}

bool tt_wires_have_left(const struct tt_wires *wires)
{
    return wires->has_left;
}

const char *tt_wires_lost(const struct tt_wires *wires)
{
    const struct tt_wire *wire = wires->first;
    while (wire && (!wire->is_lost || may_be_explained(wire))) wire = wire->following;
    return wire ? wire->gone : NULL;
}

const char *tt_wires_lost_peer(const struct tt_wires *wires, int peer)
{
    const struct tt_wire *wire = wires->table[peer];
    return wire && wire->is_lost ? wire->gone : NULL;
}

const char *tt_wires_missed_peer(const struct tt_wires *wires, int peer)
{
    const struct tt_wire *wire = wires->table[peer];
    return wire && may_be_explained(wire) ? NULL : tt_wires_lost_peer(wires, peer);
}

const char *tt_wires_closed_here(const struct tt_wires *wires)
{
    const struct tt_wire *wire = wires->first;
    while (wire && !(wire->is_closed_here && wire->peer_state != TT_RANK_LEFT &&
                     wire->peer_state != TT_RANK_ABORTED))
        wire = wire->following;
    return wire ? wire->gone : NULL;
}

const char *tt_wires_reason(const struct tt_wires *wires, int peer)
{
    const struct tt_wire *wire = wires->table[peer];
    return wire && wire->reason ? wire->reason : "";
}

const struct tt_tcp_owner tt_wire_owner = {
    .check = check, .take = take, .ahead = ahead, .lost = tt_wire_lost};
