/* Leaving: sends records and failures over the wires of one rank, announces the end of the rank to
 * all peers, and closes the wires. */
#include <errno.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include "base/clock.h"
#include "base/pause.h"
#include "base/private_fd.h"
#include "transport/wires_internal.h"

#define HASTE_NS INT64_C(1000000000) /* for leaving where the peers may have stopped reading */

enum { MOST_HOSTS = 64 }; /* of those that hear of a failure without being connected */

/* ---- Control -------------------------------------------------------------------------------- */

/* False: there is no room for it now. */
static bool push_record(struct tt_wire *wire, struct tt_tcp *tcp, uint32_t state)
{
    struct tt_outgoing *item = tt_tcp_push(tcp);
    if (!item) return false;
    const struct tt_frame credit = {.kind = TT_FRAME_CREDIT};
    item->head_nbytes = (uint32_t)tt_wire_put_record(wire->wires, item->head, state);
    memcpy(item->head + item->head_nbytes, &credit, sizeof credit);
    item->head_nbytes += (uint32_t)sizeof credit;
    wire->told = tt_wire_entered(wire->wires);
    tt_ignore(tt_tcp_flush(tcp));
    return true;
}

/* The text stays as it is until it is sent. */
static bool push_text(struct tt_tcp *tcp, enum tt_control_kind kind, int code, const char *text)
{
    struct tt_outgoing *item = tt_tcp_push(tcp);
    if (!item) return false;
    const struct tt_frame frame = {
        .kind = (uint8_t)kind, .number = (uint32_t)code, .nbytes = (uint32_t)strlen(text)};
    memcpy(item->head, &frame, sizeof frame);
    item->head_nbytes = sizeof frame;
    item->body = text;
    item->body_nbytes = frame.nbytes;
    tt_ignore(tt_tcp_flush(tcp));
    return true;
}

/* A connection whose descriptor the program has closed: what is sent would go into its own files.
 * Whether it is one. */
static bool lose_if_closed(struct tt_wire *wire, struct tt_tcp *tcp)
{
    if (tcp->fd < 0 || !tt_private_fd_is_lost(tcp->fd)) return false;
    tt_ignore(tt_wire_lost(wire, tcp, EBADF));
    return true;
}

static void lose_closed(struct tt_wires *wires)
{
    for (struct tt_wire *wire = wires->first; wire; wire = wire->following)
        for (int i = 0; i < wire->tcp.nopen; i++) lose_if_closed(wire, &wire->tcp.sockets[i]);
}

/* Whether something may be sent over the first socket, besides the end of this rank. */
static bool takes_control(struct tt_wire *wire)
{
    struct tt_tcp *tcp = &wire->tcp.sockets[0];
    return wire->state == TT_WIRE_UP && tcp->fd >= 0 && !wire->nannounced &&
           !lose_if_closed(wire, tcp);
}

bool tt_wires_send_record(struct tt_wires *wires)
{
    bool sent = true;
    for (struct tt_wire *wire = wires->first; wire; wire = wire->following) {
        struct tt_tcp *tcp = &wire->tcp.sockets[0];
        if (!takes_control(wire)) continue;
        sent = !tcp->count && push_record(wire, tcp, TT_RANK_HERE) && sent;
    }
    return sent;
}

void tt_wires_send_failure(struct tt_wires *wires, int code, const char *text)
{
    for (struct tt_wire *wire = wires->first; wire; wire = wire->following) {
        struct tt_tcp *tcp = &wire->tcp.sockets[0];
        if (wire->tcp.nopen == 0 || tcp->fd < 0 || wire->failure[0]) continue;
        if (lose_if_closed(wire, tcp)) continue;
        snprintf(wire->failure, sizeof wire->failure, "%s", text);
        if (!push_text(tcp, TT_FRAME_FAILURE, code, wire->failure)) wire->failure[0] = '\0';
    }
}

void tt_wires_send_gone(struct tt_wires *wires, int number, int rank, const char *text)
{
    const uint32_t bit = 1u << number;
    for (struct tt_wire *wire = wires->first; wire; wire = wire->following)
        if (!(wire->knows_gone & bit) && takes_control(wire) &&
            push_text(&wire->tcp.sockets[0], TT_FRAME_GONE, rank, text))
            wire->knows_gone |= bit;
}

/* ---- The end -------------------------------------------------------------------------------- */

/* How a rank leaves, and since when. */
struct leaving {
    bool has_failed; /* the communicator */
    int64_t start_ns;
    int64_t moved_ns; /* when peers last acknowledged something */
    size_t unsent;    /* bytes and frames that they had not */
};

/* Whether the peers have acknowledged all bytes sent, after reading all bytes that came: closing
 * then loses nothing. */
static bool is_drained(struct tt_wires *wires, struct leaving *leaving)
{
    size_t unsent = 0;
    for (struct tt_wire *wire = wires->first; wire; wire = wire->following)
        for (int i = 0; i < wire->tcp.nopen; i++) {
            struct tt_tcp *tcp = &wire->tcp.sockets[i];
            tt_ignore(tt_tcp_flush(tcp));
            tt_ignore(tt_tcp_read(tcp));
            unsent += tt_tcp_unsent(tcp);
        }
    if (unsent != leaving->unsent) leaving->moved_ns = tt_now_ns();
    leaving->unsent = unsent;
    return !unsent;
}

/* Whether a rank that leaves has waited for its peers for long enough. They may have stopped
 * reading: so it does not wait for long after a failure, nor for what calls have sent that it has
 * aborted, nor once another thread aborts what this one destroys. But what calls have sent that
 * have ended reaches peers that read late, too. */
static bool has_waited(const struct tt_wires *wires, const struct leaving *leaving)
{
    const int64_t now_ns = tt_now_ns();
    const bool hurries = atomic_load(wires->client->hurries);
    return now_ns - leaving->start_ns >= wires->timeout_ns ||
           (leaving->has_failed && now_ns - leaving->start_ns >= HASTE_NS) ||
           (hurries && now_ns - leaving->moved_ns >= HASTE_NS);
}

/* The last record goes over the sockets and must not overtake data that goes over another
 * transport. */
static void finish_sending(struct tt_wires *wires, const struct leaving *leaving)
{
    for (struct tt_wire *wire = wires->first; wire; wire = wire->following) {
        if (!wire->is_agreed) continue;
        wire->room->quiet(wire->end);
        struct tt_pause pause = {0};
        while (!wire->room->sent(wire->end) && !has_waited(wires, leaving)) tt_pause(&pause);
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

/* Answers, and dials, only to pass the failure on. Errors change nothing: the communicator has
 * failed. */
static void connect_to_tell(struct tt_wires *wires, bool dials)
{
    struct epoll_event ready[TT_EVENTS_A_WAKE];
    if (tt_epoll_is_lost(&wires->epoll)) return;
    const int n = tt_epoll_wait(&wires->epoll, ready, TT_EVENTS_A_WAKE, 0);
    for (int i = 0; i < n; i++)
        if (*(enum tt_watched *)ready[i].data.ptr == TT_WATCHED_DIAL)
            tt_ignore(tt_dial_step(ready[i].data.ptr));
    for (struct tt_wire *wire = wires->first; wire; wire = wire->following)
        if (wire->state == TT_WIRE_MAKING && dials) tt_ignore(tt_wire_attend(wire));
    tt_ignore(tt_wires_serve_pending(wires));
}

void tt_wires_begin_telling(struct tt_wires *wires)
{
    wires->dials_until_ns = tt_now_ns() + HASTE_NS;
    tt_wires_call_hosts(wires, MOST_HOSTS);
}

void tt_wires_tell(struct tt_wires *wires)
{
    const char *text = NULL;
    const tt_status failed = wires->client->failure(wires->up->owner, &text);
    if (!failed || wires->has_left) return;
    lose_closed(wires);
    connect_to_tell(wires, tt_now_ns() < wires->dials_until_ns);
    tt_wires_send_failure(wires, failed, text);
    for (struct tt_wire *wire = wires->first; wire; wire = wire->following)
        for (int i = 0; i < wire->tcp.nopen; i++) { /* reading: TLS begins with a handshake */
            tt_ignore(tt_tcp_flush(&wire->tcp.sockets[i]));
            tt_ignore(tt_tcp_read(&wire->tcp.sockets[i]));
        }
}

/* Over each socket once; before that over the first one the failure, or the reason of leaving
 * without one: whoever hears of the end knows why. */
static void announce_end(struct tt_wire *wire, uint32_t state, bool has_failed)
{
    struct tt_tcp_end *tcp = &wire->tcp;
    const char *reason = wire->wires->client->reason(wire->wires->up->owner);
    for (; wire->nannounced < tcp->nopen; wire->nannounced++) {
        struct tt_tcp *socket = &tcp->sockets[wire->nannounced];
        if (socket->fd < 0) continue;
        if (wire->nannounced == 0 && has_failed && !wire->failure[0]) return;
        if (wire->nannounced == 0 && !has_failed && reason[0] && !wire->failure[0]) {
            snprintf(wire->failure, sizeof wire->failure, "%s", reason);
            if (!push_text(socket, TT_FRAME_REASON, 0, wire->failure)) wire->failure[0] = '\0';
            if (!wire->failure[0]) return;
        }
        if (!push_record(wire, socket, state)) return;
    }
}

static bool has_announced(const struct tt_wires *wires)
{
    bool all = true;
    for (const struct tt_wire *wire = wires->first; wire; wire = wire->following)
        all &= wire->nannounced >= wire->tcp.nopen || wire->tcp.sockets[0].fd < 0;
    return all;
}

static uint32_t last_state(const struct tt_wires *wires)
{
    return atomic_load(wires->client->aborted) ? TT_RANK_ABORTED : TT_RANK_LEFT;
}

void tt_wires_announce(struct tt_wires *wires)
{
    lose_closed(wires);
    for (struct tt_wire *wire = wires->first; wire; wire = wire->following) {
        if (wire->is_agreed) wire->room->quiet(wire->end);
        if (!wire->is_agreed || wire->room->sent(wire->end))
            announce_end(wire, last_state(wires), false);
    }
}

void tt_wires_leave(struct tt_wires *wires)
{
    const struct tt_wires_client *client = wires->client;
    void *owner = wires->up->owner;
    const int64_t now_ns = tt_now_ns();
    struct leaving leaving = {
        .has_failed = client->failure(owner, NULL), .start_ns = now_ns, .moved_ns = now_ns};
    wires->has_left = true;
    lose_closed(wires);
    finish_sending(wires, &leaving);
    if (leaving.has_failed) tt_wires_call_hosts(wires, MOST_HOSTS);
    for (;;) {
        const char *text = NULL;
        const tt_status failed = client->failure(owner, &text);
        /* Before it looks: what has come while this process did not run is answered. */
        const bool waited = has_waited(wires, &leaving);
        if (failed) {
            connect_to_tell(wires, true);
            tt_wires_send_failure(wires, failed, text);
        }
        for (struct tt_wire *wire = wires->first; wire; wire = wire->following)
            announce_end(wire, last_state(wires), failed);
        const bool told = has_announced(wires) && (!failed || all_told(wires));
        if ((is_drained(wires, &leaving) && told) || waited) return;
        /* Others may connect, because they need this rank. */
        if (!failed && atomic_load(client->aborted)) tt_ignore(tt_wires_progress(wires));
        tt_wires_wait(wires, 1000);
    }
}

static void wire_destroy(struct tt_wire *wire)
{
    tt_dial_hang_up(&wire->dial);
    if (wire->end) wire->room->destroy(wire->end);
    tt_tcp_end_fini(&wire->tcp);
    free(wire->agreement);
    free(wire->reason);
    free(wire);
}

void tt_wires_destroy(struct tt_wires *wires)
{
    if (!wires) return;
    tt_seek_hang_up(&wires->seek);
    if (wires->first || (wires->up && wires->client->failure(wires->up->owner, NULL)))
        tt_wires_leave(wires);
    while (wires->first) {
        struct tt_wire *wire = wires->first;
        wires->first = wire->following;
        wire_destroy(wire);
    }
    for (int i = 0; i < tt_ntransports; i++)
        if (wires->uses[i].self) wires->uses[i].room->close(wires->uses[i].self);
    while (wires->gpus) {
        struct tt_wires_gpu *gpu = wires->gpus;
        wires->gpus = gpu->next;
        gpu->let_go(gpu);
    }
    tt_acceptor_destroy(wires->acceptor);
    tt_epoll_close(&wires->epoll);
    sodium_memzero(wires->config.key, sizeof wires->config.key);
    free(wires->links);
    free(wires->table);
    free(wires->infos);
    free(wires);
}
