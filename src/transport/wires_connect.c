/* Connects a wire. The lower rank dials one socket after the other; the higher rank accepts. When
 * no connection comes, the higher rank connects with a PROBE: the lower rank then knows that it
 * must dial, and the higher rank knows whether the lower one is alive. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/private_fd.h"
#include "transport/wires_internal.h"

#define PROBE_AFTER_NS INT64_C(10000000)   /* before the first probe */
#define PROBE_AGAIN_NS INT64_C(2000000000) /* between two probes */
#define AGAIN_NS INT64_C(100000000)        /* between two attempts to connect */
/* The least time for other ranks to report a failure after a peer has refused a connection. */
#define EXPLAIN_NS INT64_C(300000000)
#define ROUTE_NS                                                                                   \
    INT64_C(5000000000) /* most that an attempt may take where there is another route */

enum { MOST_ASKED = 16 }; /* hosts that are asked why a peer refuses connections */

static int route_index(const struct tt_wire *wire)
{
    return wire->tcp.nopen % wire->nroutes;
}

static const struct tt_route *route_of(const struct tt_dial *dial)
{
    return &dial->wire->routes[route_index(dial->wire)];
}

static tt_status fail(const struct tt_dial *dial, const char *why)
{
    const struct tt_room_context *up = dial->wire->wires->up;
    const struct tt_route *route = route_of(dial);
    char name[128], where[TT_ADDRESS_TEXT];
    tt_room_name(up, dial->wire->peer, name, sizeof name);
    return tt_room_fail(up, TT_ERR_REMOTE, "rank %d cannot reach %s at %s (%s) over %s: %s",
                        up->rank, name, tt_address_format(&route->target, where),
                        route->their_interface, route->interface, why);
}

void tt_dial_hang_up(struct tt_dial *dial)
{
    if (dial->fd >= 0) tt_private_fd_close(dial->fd);
    dial->fd = -1;
}

/* ---- Ready ---------------------------------------------------------------------------------- */

static void say_ready(const struct tt_wire *wire)
{
    char text[160], name[128];
    const struct tt_room_context *up = wire->wires->up;
    tt_wires_describe(wire->wires, wire->peer, text, sizeof text);
    tt_room_name(up, wire->peer, name, sizeof name);
    TT_INFO("rank %d reaches %s by %s", up->rank, name, text);
    for (int i = 0; i < wire->nroutes; i++) {
        const struct tt_route *route = &wire->routes[i];
        if (route->mtu && route->their_mtu && route->mtu != route->their_mtu)
            TT_WARN("%s of rank %d has MTU %u, %s of %s has MTU %u: large packets may be lost; set "
                    "both to the same (ip link set dev %s mtu %u)",
                    route->interface, up->rank, route->mtu, route->their_interface, name,
                    route->their_mtu,
                    route->mtu > route->their_mtu ? route->interface : route->their_interface,
                    route->mtu > route->their_mtu ? route->their_mtu : route->mtu);
    }
}

/* Number of ranks on this host, this one included. */
static int count_local(const struct tt_wires *wires)
{
    const struct tt_hosts *hosts = wires->client->hosts;
    return tt_hosts_size(hosts, hosts->host_of[wires->up->rank]);
}

/* Counts a connected wire. After the last one no rank connects or probes any more. */
static void count_made(struct tt_wires *wires)
{
    if (++wires->nmade == wires->up->nranks - count_local(wires))
        tt_acceptor_stop_listening(wires->acceptor);
}

/* Another socket of the wire is connected, and its peer has proved the key. */
static tt_status add_socket(struct tt_wire *wire, int fd, bool is_dialled)
{
    struct tt_tcp *tcp = &wire->tcp.sockets[wire->tcp.nopen];
    const struct tt_route route = is_dialled ? wire->routes[route_index(wire)]
                                             : tt_wire_route_of(wire, fd, route_index(wire));
    struct tt_tcp_route name = {.loopback = tt_address_is_loopback(&route.target)};
    char where[TT_ADDRESS_TEXT];
    if (is_dialled) tt_route_works(&route);
    snprintf(name.text, sizeof name.text, "%s over %s", tt_address_format(&route.target, where),
             route.interface);
    memcpy(name.interface, route.interface, sizeof name.interface);
    const tt_status status = tt_tcp_open(tcp, &wire->tcp, fd, &name);
    if (status) {
        tt_private_fd_close(fd);
        return tt_room_fail(wire->wires->up, status, "%s", tt_last_error());
    }
    wire->tcp.nopen++;
    TT_TRY(tt_wire_watch(wire->wires, fd, tcp, false, !is_dialled));
    const char *text = NULL;
    const tt_status failed = wire->wires->client->failure(wire->wires->up->owner, &text);
    if (failed) { /* the peer learns that, and nothing else */
        tt_set_last_error(text);
        tt_wires_send_failure(wire->wires, failed, text);
        return failed;
    }
    if (wire->tcp.nopen < wire->tcp.nsockets) return TT_OK;
    tt_dial_hang_up(&wire->dial);
    count_made(wire->wires);
    return tt_wire_agree(wire);
}

tt_status tt_wire_up(struct tt_wire *wire)
{
    wire->state = TT_WIRE_UP;
    wire->tcp.state = TT_TCP_UP;
    tt_wire_handles_settle(wire);
    say_ready(wire);
    for (int i = 0; wire->wires->encrypt && i < wire->tcp.nsockets;
         i++) { /* TLS begins with a handshake */
        const tt_status status = tt_tcp_read(&wire->tcp.sockets[i]);
        if (status < 0) return status;
    }
    return TT_OK;
}

/* ---- Dialling ------------------------------------------------------------------------------- */

/* The ranks of this host, and the peers of connected wires. */
bool tt_wires_may_explain(const struct tt_wires *wires)
{
    bool others = count_local(wires) > 1;
    for (const struct tt_wire *wire = wires->first; wire; wire = wire->following)
        others |= wire->tcp.nopen > 0 && wire->state != TT_WIRE_GONE;
    return others;
}

/* The others may be slow: a machine with fewer cores than ranks runs them one after the other. */
int64_t tt_wires_explain_ns(const struct tt_wires *wires)
{
    const int64_t patience_ns = wires->timeout_ns / 4;
    return tt_wires_may_explain(wires) && patience_ns > EXPLAIN_NS ? patience_ns : EXPLAIN_NS;
}

static bool is_called(const struct tt_wires *wires, const struct tt_group *ranks)
{
    for (int i = 0; i < ranks->number; i++) {
        const struct tt_wire *wire = wires->table[ranks->ranks[i]];
        if (wire && wire->state != TT_WIRE_GONE && !wire->dial.refused_ns) return true;
    }
    return false;
}

void tt_wires_call_hosts(struct tt_wires *wires, int most)
{
    const struct tt_hosts *hosts = wires->client->hosts;
    const int own = hosts->host_of[wires->up->rank];
    for (int i = 1; i < hosts->nhosts && i <= most; i++) {
        const struct tt_group ranks = tt_hosts_inside(hosts, (own + i) % hosts->nhosts);
        if (is_called(wires, &ranks)) continue;
        int k = 0;
        while (k < ranks.number && wires->table[ranks.ranks[k]]) k++;
        if (k < ranks.number) tt_wire_to(wires, ranks.ranks[k]);
    }
}

void tt_wires_ask_others(struct tt_wires *wires)
{
    tt_wires_call_hosts(wires, MOST_ASKED);
}

/* A peer refuses connections for good: that is said of all such peers, for one of them may have
 * died, and the others have left because of that. */
static tt_status fail_refused(const struct tt_dial *dial)
{
    const struct tt_wires *wires = dial->wire->wires;
    const char *lost = tt_wires_lost(wires);
    char text[TT_ERROR_TEXT], name[128];
    tt_room_name(wires->up, dial->wire->peer, name, sizeof name);
    if (lost) return tt_room_fail(wires->up, TT_ERR_REMOTE, "%s; %s is gone, too", lost, name);
    snprintf(text, sizeof text,
             "nothing listens there any more: it has died, or destroyed or aborted its "
             "communicator");
    for (const struct tt_wire *at = wires->first; at; at = at->following) {
        const size_t used = strlen(text);
        if (at == dial->wire || !at->dial.refused_ns) continue;
        tt_room_name(wires->up, at->peer, name, sizeof name);
        snprintf(text + used, sizeof text - used, ", and so has %s", name);
    }
    return fail(dial, text);
}

static void set_deadlines(struct tt_dial *dial, int64_t begin_ns)
{
    const int64_t timeout_ns = dial->wire->wires->timeout_ns;
    dial->deadline_ns = begin_ns + timeout_ns;
    dial->route_ns = begin_ns + (timeout_ns / 4 < ROUTE_NS ? timeout_ns / 4 : ROUTE_NS);
}

static bool is_scarcity(int error)
{
    return error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM;
}

/* Nothing connects over this route: the next attempt takes another one, if there is one. */
static bool take_detour(struct tt_dial *dial, const char *cause)
{
    const struct tt_wires *wires = dial->wire->wires;
    const struct tt_route from = *route_of(dial);
    char where[TT_ADDRESS_TEXT], name[128];
    if (!tt_wire_detour(dial->wire, route_index(dial->wire))) return false;
    tt_route_fails(&from);
    tt_room_name(wires->up, dial->wire->peer, name, sizeof name);
    TT_WARN(
        "rank %d does not reach %s at %s over %s (%s) and takes %s instead: if %s leads nowhere, "
        "leave it out (TUTTI_SOCKET_INTERFACE=^%s)",
        wires->up->rank, name, tt_address_format(&from.target, where), from.interface, cause,
        route_of(dial)->interface, from.interface, from.interface);
    dial->next_ns = tt_now_ns();
    set_deadlines(dial, dial->next_ns);
    return true;
}

/* This attempt has failed. Another one follows until the deadline. */
static tt_status try_again(struct tt_dial *dial, int error, const char *what)
{
    char why[384], words[128];
    const char *cause = error ? strerror_r(error, words, sizeof words) : "it closed the connection";
    tt_dial_hang_up(dial);
    if (dial->state == TT_DIAL_CONNECTING && error != ECONNREFUSED && !is_scarcity(error) &&
        take_detour(dial, cause))
        return TT_OK;
    if (dial->state != TT_DIAL_CONNECTING && error != ETIMEDOUT &&
        !dial->broke_off) { /* the peer is alive: its time begins again */
        dial->broke_off = true;
        dial->deadline_ns = tt_now_ns() + dial->wire->wires->timeout_ns;
    }
    if (error == ECONNREFUSED && !dial->refused_ns) {
        dial->refused_ns = tt_now_ns();
        tt_wires_ask_others(dial->wire->wires);
    }
    const bool gives_up = !dial->wire->wires->only_listens;
    if (gives_up && error == ECONNREFUSED &&
        tt_now_ns() - dial->refused_ns >= tt_wires_explain_ns(dial->wire->wires))
        return fail_refused(dial);
    if (gives_up && tt_expired(dial->deadline_ns)) {
        snprintf(why, sizeof why,
                 "%s: %s, for TUTTI_NET_TIMEOUT_MS=%lld ms; TUTTI_SOCKET_INTERFACE says over which "
                 "interfaces ranks connect",
                 what, cause, (long long)(dial->wire->wires->timeout_ns / 1000000));
        return fail(dial, why);
    }
    dial->next_ns = tt_now_ns() + AGAIN_NS;
    return TT_OK;
}

static tt_status begin_attempt(struct tt_dial *dial)
{
    const struct tt_route *route = route_of(dial);
    struct tt_wires *wires = dial->wire->wires;
    dial->state = TT_DIAL_CONNECTING;
    dial->received = 0;
    dial->unresponsive_ns = 0;
    tt_private_fd_begin();
    dial->fd = tt_private_fd_end(
        socket(tt_address_family(&route->target), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (dial->fd < 0) return try_again(dial, errno, "cannot open a socket (ulimit -n)");
    tt_tcp_tune(dial->fd, wires->timeout_ns);
    if (route->source.nbytes &&
        bind(dial->fd, (const struct sockaddr *)route->source.bytes, route->source.nbytes) != 0)
        return try_again(dial, errno, "cannot use its own address");
    if (connect(dial->fd, (const struct sockaddr *)route->target.bytes, route->target.nbytes) !=
            0 &&
        errno != EINPROGRESS)
        return try_again(dial, errno, "cannot connect");
    return tt_wire_watch(wires, dial->fd, dial, true, true);
}

void tt_wire_dial(struct tt_wire *wire)
{
    const bool lower = wire->wires->up->rank < wire->peer;
    const int64_t begin = tt_now_ns() + (lower ? 0 : PROBE_AFTER_NS);
    wire->dial = (struct tt_dial){.watched = TT_WATCHED_DIAL,
                                  .wire = wire,
                                  .fd = -1,
                                  .kind = lower ? TT_HELLO_LINK : TT_HELLO_PROBE,
                                  .next_ns = begin};
    set_deadlines(&wire->dial, begin);
}

static tt_status finish_connect(struct tt_dial *dial)
{
    int error = 0;
    socklen_t nbytes = sizeof error;
    if (getsockopt(dial->fd, SOL_SOCKET, SO_ERROR, &error, &nbytes) != 0) error = errno;
    if (error) return try_again(dial, error, "cannot connect");
    dial->refused_ns = 0;
    dial->state = TT_DIAL_GREETING;
    return tt_wire_watch(dial->wire->wires, dial->fd, dial, false, false);
}

/* TT_OK: all nbytes are received. TT_IN_PROGRESS: not yet, or the attempt is over. */
static tt_status receive(struct tt_dial *dial, void *to, size_t nbytes)
{
    const ssize_t n = recv(dial->fd, (char *)to + dial->received, nbytes - dial->received, 0);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return TT_IN_PROGRESS;
    if (n <= 0) {
        TT_TRY(try_again(dial, n < 0 ? errno : 0, "the handshake failed"));
        return TT_IN_PROGRESS;
    }
    dial->received += (size_t)n;
    return dial->received < nbytes ? TT_IN_PROGRESS : TT_OK;
}

static tt_status answer_greeting(struct tt_dial *dial)
{
    const struct tt_wires *wires = dial->wire->wires;
    TT_AWAIT(receive(dial, &dial->greeting, sizeof dial->greeting));
    const char *complaint = tt_preamble_complaint(&dial->greeting.preamble);
    if (complaint) return fail(dial, complaint);
    tt_hello_fill(&dial->hello, dial->kind, wires->up->rank, wires->up->nranks);
    dial->hello.to = dial->wire->peer;
    tt_hello_sign(&dial->hello, &dial->greeting, wires->config.key);
    const int error = tt_socket_send_now(dial->fd, &dial->hello, sizeof dial->hello);
    if (error) return try_again(dial, error, "the handshake failed");
    dial->state = TT_DIAL_ANSWER;
    dial->received = 0;
    return TT_OK;
}

static tt_status receive_answer(struct tt_dial *dial)
{
    struct tt_wire *wire = dial->wire;
    TT_AWAIT(receive(dial, &dial->answer, sizeof dial->answer));
    if (!tt_answer_verify(&dial->answer, &dial->hello, &dial->greeting, wire->wires->config.key))
        return fail(dial, "its answer does not prove the communicator's key");
    if (dial->answer.status < 0 && dial->answer.failed)
        return tt_room_fail(wire->wires->up, dial->answer.status, "%s", dial->answer.text);
    if (dial->answer.status) return fail(dial, dial->answer.text);
    const int fd = dial->fd;
    if (dial->kind == TT_HELLO_PROBE) { /* the peer is alive: another probe later */
        tt_dial_hang_up(dial);
        dial->next_ns = tt_now_ns() + PROBE_AGAIN_NS;
        dial->deadline_ns = dial->next_ns + wire->wires->timeout_ns;
        return TT_OK;
    }
    tt_wire_dial(wire); /* for the next socket */
    return add_socket(wire, fd, true);
}

tt_status tt_dial_step(struct tt_dial *dial)
{
    tt_status status;
    if (dial->fd < 0) return TT_OK; /* an earlier event of this epoll_wait has closed it */
    if (dial->state == TT_DIAL_CONNECTING)
        status = finish_connect(dial);
    else
        status = dial->state == TT_DIAL_GREETING ? answer_greeting(dial) : receive_answer(dial);
    return status < 0 ? status : TT_OK;
}

/* The kernel's keepalives do not say that while the hello is not acknowledged. */
tt_status tt_dial_check(struct tt_dial *dial)
{
    if (dial->fd < 0 || dial->state == TT_DIAL_CONNECTING) return TT_OK;
    const int64_t timeout_ns = dial->wire->wires->timeout_ns;
    if (!tt_tcp_is_unresponsive(dial->fd, &dial->unresponsive_ns, timeout_ns)) return TT_OK;
    return try_again(dial, ETIMEDOUT, "the handshake failed");
}

tt_status tt_wire_attend(struct tt_wire *wire)
{
    struct tt_dial *dial = &wire->dial;
    const int64_t now = tt_now_ns();
    if (wire->tcp.nopen == wire->tcp.nsockets) return TT_OK; /* the last one failed */
    if (dial->fd < 0) return now >= dial->next_ns ? begin_attempt(dial) : TT_OK;
    if (dial->state != TT_DIAL_CONNECTING || now < dial->route_ns) return TT_OK;
    if (now >= dial->deadline_ns || tt_wire_has_detour(wire, route_index(wire)))
        return try_again(dial, ETIMEDOUT, "cannot connect");
    dial->route_ns = dial->deadline_ns;
    return TT_OK;
}

/* ---- Accepting ------------------------------------------------------------------------------ */

/* Answers a rank that connects after a failure with the failure: this rank may be gone at its next
 * attempt. */
static bool answer_failure(struct tt_wires *wires, struct tt_answer *answer, int rank)
{
    const char *text = NULL;
    answer->status = wires->client->failure(wires->up->owner, &text);
    if (!answer->status) return false;
    answer->failed = true;
    snprintf(answer->text, sizeof answer->text, "%s", text);
    if (wires->table[rank]) wires->table[rank]->is_told = true;
    return true;
}

/* Why a connection with this hello is refused; NULL: it is accepted. */
static const char *complaint_about(const struct tt_wires *wires, const struct tt_hello *hello)
{
    const struct tt_room_context *up = wires->up;
    if (hello->kind != TT_HELLO_LINK && hello->kind != TT_HELLO_PROBE)
        return "it wants something else than a connection for data";
    if (hello->nranks != up->nranks || hello->rank < 0 || hello->rank >= up->nranks ||
        tt_wire_is_local(wires, hello->rank))
        return "there is no such rank on another host";
    if (hello->to != up->rank)
        return "the connection is meant for another rank: the network leads it astray";
    if ((hello->kind == TT_HELLO_LINK) != (hello->rank < up->rank))
        return "the lower rank connects to the higher one, and not the other way round";
    if (hello->kind == TT_HELLO_PROBE) return NULL;
    const struct tt_wire *wire = wires->table[hello->rank];
    if (wire && wire->state != TT_WIRE_MAKING) return "this rank is connected already";
    return NULL;
}

tt_status tt_wire_on_hello(void *context, struct tt_pending_connection *pending)
{
    struct tt_wires *wires = context;
    struct tt_answer answer = {.status = TT_OK};
    const char *complaint = complaint_about(wires, &pending->hello);
    if (complaint) {
        answer.status = TT_ERR_USAGE;
        snprintf(answer.text, sizeof answer.text, "rank %d of %d refused: %s", pending->hello.rank,
                 pending->hello.nranks, complaint);
        TT_WARN("%s", answer.text);
    }
    const bool failed = !complaint && answer_failure(wires, &answer, pending->hello.rank);
    tt_answer_sign(&answer, &pending->hello, &pending->greeting, wires->config.key);
    const int error = tt_socket_send_now(pending->fd, &answer, sizeof answer);
    if (error || complaint || failed) return TT_OK;
    struct tt_wire *wire = tt_wire_to(wires, pending->hello.rank);
    if (!wire) return TT_ERR_SYSTEM;
    if (pending->hello.kind == TT_HELLO_PROBE)
        return TT_OK; /* tt_wire_to dials the rank that probed */
    const int fd = tt_acceptor_take(wires->acceptor, pending);
    tt_tcp_tune(fd, wires->timeout_ns);
    return add_socket(wire, fd, false);
}
