/* The acceptor: accepts connections, sends each a greeting, reads its hello, and hands over the
 * connection when the hello proves the key. */
#include "net/acceptor.h"

#include <errno.h>
#include <pthread.h>
#include <sodium.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/private_fd.h"

enum {
    PENDING_MS = 10000, /* how long a connection may take to prove the key */
    CROWDED_MS = 300,   /* the same when all places are taken; slow ranks connect again */
    REST_MS = 20,       /* between two attempts to accept while descriptors are scarce */
    EVENTS_A_WAKE = 64, /* also bounds the accepts between two looks at pending connections */
};

/* The pending connections of all acceptors of this process. */
static _Atomic int npending_of_process;

/* The acceptors of the parent serve nobody in the child. */
static void forget_pending_of_parent(void)
{
    atomic_store_explicit(&npending_of_process, 0, memory_order_relaxed);
}

static void install_fork_handler(void)
{
    pthread_atfork(NULL, NULL, forget_pending_of_parent);
}

/* epoll's marks: the index of a pending connection, the listener, or a watched tag above both. */
enum { LISTENER = TT_MAX_PENDING, WATCHED };

/* Most pending connections of all acceptors of this process together. */
static int most_of_process(void)
{
    struct rlimit limit;
    const bool known = getrlimit(RLIMIT_NOFILE, &limit) == 0;
    return known && limit.rlim_cur / 4 < TT_MAX_PROCESS_PENDING ? (int)(limit.rlim_cur / 4)
                                                                : TT_MAX_PROCESS_PENDING;
}

tt_status tt_acceptor_create(struct tt_acceptor **acceptor, int listener, const uint8_t key[32],
                             uint64_t sequence)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, install_fork_handler);
    struct tt_acceptor *made = calloc(1, sizeof *made);
    if (!made) return tt_fail_errno(ENOMEM, "no memory for the listener");
    made->listener = listener;
    made->sequence = sequence;
    made->listening = true;
    made->most_of_process = most_of_process();
    memcpy(made->key, key, sizeof made->key);
    tt_socket_tune(listener); /* what it accepts inherits that */
    if (tt_epoll_open(&made->epoll) ||
        tt_epoll_set(&made->epoll, EPOLL_CTL_ADD, listener, EPOLLIN, LISTENER)) {
        const tt_status status = tt_socket_fail(errno, "cannot watch the listener");
        tt_epoll_close(&made->epoll);
        sodium_memzero(made->key, sizeof made->key);
        free(made);
        return status;
    }
    *acceptor = made;
    return TT_OK;
}

int tt_acceptor_take(struct tt_acceptor *acceptor, struct tt_pending_connection *pending)
{
    const int fd = pending->fd;
    tt_epoll_set(&acceptor->epoll, EPOLL_CTL_DEL, fd, 0, 0);
    pending->fd = -1;
    return fd;
}

tt_status tt_acceptor_watch(struct tt_acceptor *acceptor, int fd, int tag)
{
    const uint32_t events = EPOLLIN | EPOLLRDHUP;
    const uint64_t mark = (uint64_t)WATCHED + (uint64_t)tag;
    /* MOD first: the fd of a pending connection is watched already. */
    if (tt_epoll_set(&acceptor->epoll, EPOLL_CTL_MOD, fd, events, mark) != 0 &&
        tt_epoll_set(&acceptor->epoll, EPOLL_CTL_ADD, fd, events, mark) != 0)
        return tt_socket_fail(errno, "cannot watch a connection");
    return TT_OK;
}

static void listen_again(struct tt_acceptor *acceptor, bool listening)
{
    if (acceptor->listener < 0 || acceptor->listening == listening) return;
    tt_epoll_set(&acceptor->epoll, EPOLL_CTL_MOD, acceptor->listener, listening ? EPOLLIN : 0,
                 LISTENER);
    acceptor->listening = listening;
    acceptor->rest_until_ns = 0;
}

/* Leaves new connections in the kernel's queue for a moment. */
static void rest(struct tt_acceptor *acceptor)
{
    listen_again(acceptor, false);
    acceptor->rest_until_ns = tt_deadline_ns(REST_MS);
}

static void close_pending(struct tt_acceptor *acceptor, struct tt_pending_connection *pending)
{
    if (pending->fd >= 0) tt_private_fd_close(pending->fd);
    pending->fd = -1;
    acceptor->npending--;
    atomic_fetch_sub_explicit(&npending_of_process, 1, memory_order_relaxed);
    listen_again(acceptor, true);
}

/* Whether this complaint about this host is new, and there is room to remember it. */
static bool is_news(struct tt_acceptor *acceptor, const struct tt_address *peer, const char *what)
{
    struct tt_address host = *peer;
    tt_address_set_port(&host, 0);
    for (int i = 0; i < acceptor->nlogged; i++)
        if (acceptor->logged[i].what == what &&
            !memcmp(&acceptor->logged[i].host, &host, sizeof host))
            return false;
    if (acceptor->nlogged == TT_MAX_LOGGED) return false;
    acceptor->logged[acceptor->nlogged].host = host;
    acceptor->logged[acceptor->nlogged++].what = what;
    return true;
}

/* Logs a refusal once for each host and cause, so that many connections do not make many lines.
 * `what` is static. */
static void log_refusal(struct tt_acceptor *acceptor, const struct tt_pending_connection *pending,
                        const char *what)
{
    /* Port scanners and health checks connect and go. */
    const enum tt_log_level level = pending->received ? TT_LOG_WARN : TT_LOG_INFO;
    char text[TT_ADDRESS_TEXT];
    if (tt_log_level() < level || !is_news(acceptor, &pending->peer, what)) return;
    tt_address_format(&pending->peer, text);
    const bool full = acceptor->nlogged == TT_MAX_LOGGED;
    TT_LOG_AT(level, "connection from %s closed: %s (%s will not be logged)", text, what,
              full ? "others" : "more such connections from there");
}

static void refuse(struct tt_acceptor *acceptor, struct tt_pending_connection *pending,
                   const char *what)
{
    log_refusal(acceptor, pending, what);
    close_pending(acceptor, pending);
}

/* Whether the rest of its hello has come and only waits to be read: this rank was away for long. */
static bool has_said_all(const struct tt_pending_connection *pending)
{
    int nbytes = 0;
    return ioctl(pending->fd, FIONREAD, &nbytes) == 0 &&
           (size_t)nbytes >= sizeof pending->hello - pending->received;
}

/* Closes the connections that have not proved the key in time; returns when the next one is late.
 */
static int64_t close_late(struct tt_acceptor *acceptor)
{
    const bool crowded = acceptor->listener >= 0 && !acceptor->listening;
    const int64_t allowed_ns = (crowded ? CROWDED_MS : PENDING_MS) * INT64_C(1000000);
    const int64_t now = tt_now_ns();
    int64_t next = INT64_MAX;
    for (int i = 0; i < acceptor->nplaces; i++) {
        struct tt_pending_connection *pending = &acceptor->pending[i];
        if (pending->fd < 0) continue;
        const int64_t until = pending->since_ns + allowed_ns;
        if (until <= now && has_said_all(pending))
            next = now;
        else if (until <= now)
            refuse(acceptor, pending, "it did not say who it is in time");
        else if (until < next)
            next = until;
    }
    return next;
}

static void greet(struct tt_acceptor *acceptor, int fd, const struct tt_address *peer)
{
    int i = 0;
    while (i < acceptor->nplaces && acceptor->pending[i].fd >= 0) i++;
    if (i == acceptor->nplaces) acceptor->nplaces++;
    struct tt_pending_connection *pending = &acceptor->pending[i];
    *pending = (struct tt_pending_connection){.fd = fd, .peer = *peer, .since_ns = tt_now_ns()};
    acceptor->npending++;
    atomic_fetch_add_explicit(&npending_of_process, 1, memory_order_relaxed);
    tt_greeting_fill(&pending->greeting, acceptor->sequence);
    if (tt_epoll_set(&acceptor->epoll, EPOLL_CTL_ADD, fd, EPOLLIN | EPOLLRDHUP, (uint64_t)i) != 0 ||
        tt_socket_send_now(fd, &pending->greeting, sizeof pending->greeting) != 0)
        close_pending(acceptor, pending);
}

/* A few places are each acceptor's own: pending connections of a communicator that no rank uses
 * just now must not keep the ranks of another one out. */
static bool process_has_room(const struct tt_acceptor *acceptor)
{
    return acceptor->npending < TT_OWN_PENDING ||
           atomic_load_explicit(&npending_of_process, memory_order_relaxed) <
               acceptor->most_of_process;
}

/* Rests because descriptors are scarce: they may be free in a moment. */
static tt_status rest_for_descriptors(struct tt_acceptor *acceptor, int error)
{
    if (tt_scarce_is_news(&acceptor->scarce)) {
        errno = error;
        TT_WARN("connections have to wait: %m (limit of open files: ulimit -n); will not be "
                "logged again");
    }
    rest(acceptor);
    if (!tt_scarce_for_long(&acceptor->scarce) || !acceptor->gives_up) return TT_OK;
    tt_scarce_has_passed(&acceptor->scarce); /* the owner may serve on */
    return tt_socket_fail(error, "connections have waited for 10 s");
}

static tt_status accept_pending(struct tt_acceptor *acceptor)
{
    if (acceptor->listener < 0) return TT_OK; /* closed by an event of the same epoll_wait */
    for (int i = 0; acceptor->npending < TT_MAX_PENDING; i++) {
        if (i == EVENTS_A_WAKE) return TT_OK; /* look at the pending connections first */
        if (!process_has_room(acceptor)) {
            rest(acceptor);
            return TT_OK;
        }
        struct tt_address peer;
        const int fd = tt_socket_accept(acceptor->listener, &peer);
        if (fd >= 0) {
            greet(acceptor, fd, &peer);
        } else if (errno == EAGAIN) {
            tt_scarce_has_passed(&acceptor->scarce);
            return TT_OK;
        } else if (tt_is_scarcity(errno)) {
            return rest_for_descriptors(acceptor, errno);
        }
        /* All other errors concern a connection that has just ended, not the listener. */
    }
    listen_again(acceptor, false);
    return TT_OK;
}

static tt_status read_hello(struct tt_acceptor *acceptor, struct tt_pending_connection *pending,
                            const struct tt_acceptor_events *events, void *context)
{
    const ssize_t n = recv(pending->fd, (char *)&pending->hello + pending->received,
                           sizeof pending->hello - pending->received, 0);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return TT_OK;
    if (n <= 0) {
        refuse(acceptor, pending, "it left before it said who it is");
        return TT_OK;
    }
    pending->received += (uint32_t)n;
    if (pending->received >= sizeof pending->hello.preamble) {
        const char *complaint = tt_preamble_complaint(&pending->hello.preamble);
        if (complaint) {
            refuse(acceptor, pending, complaint);
            return TT_OK;
        }
    }
    if (pending->received < sizeof pending->hello) return TT_OK;
    if (!tt_hello_verify(&pending->hello, &pending->greeting, acceptor->key)) {
        refuse(acceptor, pending, "it does not know the job's key (TUTTI_JOB_KEY, unique id)");
        return TT_OK;
    }
    if (pending->hello.kind != TT_HELLO_PROBE)
        tt_scarce_has_passed(&acceptor->scarce); /* some come through */
    const tt_status status = events->on_hello(context, pending);
    close_pending(acceptor, pending);
    return status;
}

static tt_status fail_to_wait(const struct tt_acceptor *acceptor, int error)
{
    if (tt_epoll_is_lost(&acceptor->epoll))
        return tt_fail(TT_ERR_USAGE, "the descriptor with which this process waits for ranks was "
                                     "closed: " TT_LOST_FD);
    return tt_fail_errno(error, "cannot wait for ranks");
}

tt_status tt_acceptor_serve(struct tt_acceptor *acceptor, const struct tt_acceptor_events *events,
                            void *context, int64_t deadline_ns)
{
    struct epoll_event ready[EVENTS_A_WAKE];
    const int64_t late_ns = close_late(acceptor);
    int64_t until_ns = late_ns < deadline_ns ? late_ns : deadline_ns;
    if (acceptor->rest_until_ns && tt_expired(acceptor->rest_until_ns))
        listen_again(acceptor, true);
    if (acceptor->rest_until_ns && acceptor->rest_until_ns < until_ns)
        until_ns = acceptor->rest_until_ns;
    const int n = tt_epoll_wait(&acceptor->epoll, ready, EVENTS_A_WAKE, tt_left_ms(until_ns));
    if (n < 0 && errno != EINTR) return fail_to_wait(acceptor, errno);
    tt_status status = TT_OK;
    for (int i = 0; i < n && status == TT_OK; i++) {
        const uint64_t who = ready[i].data.u64;
        if (who == LISTENER)
            status = accept_pending(acceptor);
        else if (who >= WATCHED)
            status = events->on_watched(context, (int)(who - WATCHED));
        else if (acceptor->pending[who].fd >= 0)
            status = read_hello(acceptor, &acceptor->pending[who], events, context);
    }
    return status;
}

void tt_acceptor_stop_listening(struct tt_acceptor *acceptor)
{
    if (acceptor->listener < 0) return;
    /* A process that was just forked may hold it for a moment: then closing does not end this. */
    tt_epoll_set(&acceptor->epoll, EPOLL_CTL_DEL, acceptor->listener, 0, 0);
    tt_private_fd_close(acceptor->listener);
    acceptor->listener = -1;
    acceptor->rest_until_ns = 0;
}

void tt_acceptor_destroy(struct tt_acceptor *acceptor)
{
    if (!acceptor) return;
    for (int i = 0; i < acceptor->nplaces; i++)
        if (acceptor->pending[i].fd >= 0) close_pending(acceptor, &acceptor->pending[i]);
    tt_acceptor_stop_listening(acceptor);
    tt_epoll_close(&acceptor->epoll);
    sodium_memzero(acceptor->key, sizeof acceptor->key);
    free(acceptor);
}
