/* Leaving: sends records and failures over the wires of one rank, announces the end of the rank to
 * all peers, and closes the wires. */
#include <errno.h>
#include <sched.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include "base/clock.h"
#include "base/private_fd.h"
#include "transport/wires_internal.h"

#define FAILED_LEAVE_NS                                                                            \
    INT64_C(1000000000) /* for leaving after a failure: the peers may have stopped reading */

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

/* Connections whose descriptors the program has closed: what is sent would go into its own files.
 */
static void lose_closed(struct tt_wires *wires)
{
    for (struct tt_wire *wire = wires->first; wire; wire = wire->following)
        for (int i = 0; i < wire->tcp.nopen; i++) {
            struct tt_tcp *tcp = &wire->tcp.sockets[i];
            if (tcp->fd >= 0 && tt_private_fd_is_lost(tcp->fd))
                tt_ignore(tt_wire_lost(wire, tcp, EBADF));
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

/* Whether a rank that leaves has waited for its peers for long enough. They may have stopped
 * reading: so it does not wait for long after a failure, nor once another thread aborts what this
 * one destroys. */
static bool has_waited(const struct tt_wires *wires, int64_t start_ns, bool has_failed)
{
    const bool haste = has_failed || atomic_load(wires->client->aborted);
    const int64_t most_ns =
        haste && FAILED_LEAVE_NS < wires->timeout_ns ? FAILED_LEAVE_NS : wires->timeout_ns;
    return tt_now_ns() - start_ns >= most_ns;
}

/* The last record goes over the sockets and must not overtake data that goes over another
 * transport. */
static void finish_sending(struct tt_wires *wires, int64_t start_ns, bool has_failed)
{
    for (struct tt_wire *wire = wires->first; wire; wire = wire->following) {
        if (!wire->is_agreed) continue;
        wire->room->quiet(wire->end);
        while (!wire->room->sent(wire->end) && !has_waited(wires, start_ns, has_failed))
            sched_yield();
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
    struct epoll_event ready[TT_EVENTS_A_WAKE];
    const int n = epoll_wait(wires->epoll, ready, TT_EVENTS_A_WAKE, 0);
    for (int i = 0; i < n; i++)
        if (*(enum tt_watched *)ready[i].data.ptr == TT_WATCHED_DIAL)
            tt_ignore(tt_dial_step(ready[i].data.ptr));
    for (struct tt_wire *wire = wires->first; wire; wire = wire->following)
        if (wire->state == TT_WIRE_MAKING) tt_ignore(tt_wire_attend(wire));
    tt_ignore(tt_wires_serve_pending(wires));
}

void tt_wires_leave(struct tt_wires *wires)
{
    const struct tt_wires_client *client = wires->client;
    const uint32_t state = atomic_load(client->aborted) ? TT_RANK_ABORTED : TT_RANK_LEFT;
    const bool has_failed = client->has_failed(wires->up->owner);
    const int64_t start_ns = tt_now_ns();
    lose_closed(wires);
    const tt_status failed = client->check(wires->up->owner);
    finish_sending(wires, start_ns, has_failed);
    if (failed) tt_wires_send_failure(wires, failed, tt_last_error());
    for (struct tt_wire *wire = wires->first; wire; wire = wire->following)
        for (int i = 0; i < wire->tcp.nopen; i++) push_record(wire, &wire->tcp.sockets[i], state);
    while ((!is_drained(wires) || (failed && !all_told(wires))) &&
           !has_waited(wires, start_ns, has_failed)) {
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
