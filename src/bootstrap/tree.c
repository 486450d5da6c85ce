/* Joins the tree: reports to the root, connects to the parent, and accepts the children. */
#include "bootstrap/tree.h"

#include <errno.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/config.h"
#include "base/log.h"
#include "base/private_fd.h"
#include "net/acceptor.h"
#include "net/interface.h"
#include "bootstrap/root.h"
#include "bootstrap/uses.h"

enum {
    ROOT_GRACE_MS = 2000, /* the root keeps the deadline and knows who is missing: let it say so */
    TREE_MS = 30000,      /* to connect to neighbours that are known to be there */
    VERDICT_MS = 1000,    /* for the root to say whose failure it was */
    FIRST_PAUSE_US = 500,
    LAST_PAUSE_US = 20000,
    PATIENCE_MS = 10000, /* then the log says what we wait for */
    PROBE_MS = 2000,     /* for a root to say that it is this job's */
};

/* What one rank needs while it joins. */
struct joining {
    struct tt_bootstrap *bootstrap;
    const struct tt_unique_id *id;
    struct tt_address root;
    int listener; /* -1: has no children, or not open yet */
    struct tt_address mine;
    int64_t deadline_ns;
    /* the connection to the root; fd -1: closed */
    int root_fd;
    bool known; /* the root has heard of us, and asked us to come again */
    struct tt_greeting greeting;
    struct tt_hello hello;
    struct tt_answer answer;
};

static int64_t earlier(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t later(int64_t deadline_ns, int64_t ms)
{
    return deadline_ns > INT64_MAX - ms * 1000000 ? INT64_MAX : deadline_ns + ms * 1000000;
}

static void pause_us(int64_t us)
{
    const struct timespec time = {.tv_sec = us / 1000000, .tv_nsec = us % 1000000 * 1000};
    nanosleep(&time, NULL);
}

/* Opens this rank's own listener, at the address by which it reaches the root. */
static tt_status open_listener(struct joining *joining)
{
    if (joining->bootstrap->nchildren == 0 || joining->listener >= 0) return TT_OK;
    struct tt_address mine;
    if (tt_config_string(TT_CONFIG_SOCKET_INTERFACE)[0]) {
        TT_TRY(tt_address_of_host(&mine));
    } else {
        const int error = tt_socket_own(joining->root_fd, &mine);
        if (error) return tt_fail_errno(error, "bootstrap: cannot tell the address of this host");
        tt_address_set_port(&mine, 0);
    }
    TT_TRY(tt_socket_listen(&joining->listener, &mine, !(joining->id->flags & TT_ID_LOCAL)));
    joining->mine = mine;
    return TT_OK;
}

static const char *loopback_hint(const struct joining *joining)
{
    if (joining->bootstrap->rank == 0 || !tt_address_is_loopback(&joining->root)) return "";
    return " (a loopback address is another one on every host: with several hosts, MASTER_ADDR or "
           "tcp:// must give the address by which the others reach rank 0's; see /etc/hosts)";
}

static tt_status fail_to_reach_root(const struct joining *joining, enum tt_attempt attempt,
                                    const char *why)
{
    char text[TT_ADDRESS_TEXT];
    const int rank = joining->bootstrap->rank;
    const bool awaited = joining->id->flags & TT_ID_AWAIT && !joining->known;
    const char *hint = loopback_hint(joining);
    tt_address_format(&joining->root, text);
    if (attempt == TT_ATTEMPT_LATE || attempt == TT_ATTEMPT_BUSY ||
        (attempt == TT_ATTEMPT_EARLY && awaited))
        return tt_fail(
            TT_ERR_TIMEOUT,
            "rank %d found no root at %s, where rank 0 listens, before the init deadline "
            "(TUTTI_INIT_TIMEOUT_MS): %s%s",
            rank, text, why, hint);
    if (attempt == TT_ATTEMPT_EARLY)
        return tt_fail(TT_ERR_REMOTE,
                       "rank %d: %s; the root of this unique id has gone: all its ranks have come, "
                       "init failed, or the process that made it ended",
                       rank, why);
    return tt_fail(TT_ERR_REMOTE, "rank %d cannot join at %s, where rank 0 listens: %s%s", rank,
                   text, why, hint);
}

/* Whether the root that listens at joining->root is that of this job. */
static enum tt_attempt probe_root(struct joining *joining, char why[TT_WIRE_TEXT])
{
    struct tt_greeting greeting;
    struct tt_hello hello;
    struct tt_answer answer;
    const int64_t deadline_ns = earlier(joining->deadline_ns, tt_deadline_ns(PROBE_MS));
    int fd;
    enum tt_attempt attempt =
        tt_handshake_open(&fd, &greeting, &joining->root, joining->id->sequence, deadline_ns, why);
    if (attempt != TT_ATTEMPT_OK) return attempt;
    tt_hello_fill(&hello, TT_HELLO_PROBE, -1, -1);
    attempt =
        tt_handshake_finish(fd, &greeting, &hello, &answer, joining->id->key, deadline_ns, why);
    if (attempt == TT_ATTEMPT_OK) tt_private_fd_close(fd);
    return attempt;
}

/* Finds the port at which the root listens, where it may be one of several: others may belong to
 * other jobs and programs, so each is asked until one proves the job's key. */
static tt_status find_root(struct joining *joining)
{
    const int port = tt_address_port(&joining->root), nports = (int)joining->id->nports;
    const int64_t notice_ns = tt_deadline_ns(PATIENCE_MS);
    char cause[TT_WIRE_TEXT] = "", host[TT_ADDRESS_TEXT];
    bool noticed = false;
    if (nports < 2) return TT_OK;
    for (int64_t pause = FIRST_PAUSE_US;; pause = earlier(pause + pause / 4, LAST_PAUSE_US)) {
        char why[TT_WIRE_TEXT], found[TT_WIRE_TEXT] = "";
        for (int i = 0; i < nports; i++) {
            tt_address_set_port(&joining->root, port + i);
            const enum tt_attempt attempt = probe_root(joining, why);
            if (attempt == TT_ATTEMPT_OK) return TT_OK;
            /* Who listens says more than who does not. */
            if (!found[0] || attempt == TT_ATTEMPT_BAD) memcpy(found, why, sizeof found);
        }
        /* Attempts that the deadline ended have a less precise cause than those before them. */
        if (!cause[0] || !tt_expired(joining->deadline_ns)) memcpy(cause, found, sizeof cause);
        if (!noticed && tt_expired(notice_ns)) {
            TT_WARN("bootstrap: rank %d still waits for rank 0 at ports %d to %d: %s",
                    joining->bootstrap->rank, port, port + nports - 1, cause);
            noticed = true;
        }
        pause_us(pause);
        if (tt_expired(joining->deadline_ns))
            return tt_fail(TT_ERR_TIMEOUT,
                           "rank %d found no root at %s at ports %d to %d, of which rank 0 takes "
                           "the first that is free, before the init deadline "
                           "(TUTTI_INIT_TIMEOUT_MS): %s%s",
                           joining->bootstrap->rank, tt_address_host(&joining->root, host), port,
                           port + nports - 1, cause, loopback_hint(joining));
    }
}

/* Connects to the root, trying again while it may not be up yet. */
static tt_status reach_root(struct joining *joining)
{
    char why[TT_WIRE_TEXT], before[TT_WIRE_TEXT] = "";
    const bool awaited = joining->id->flags & TT_ID_AWAIT && !joining->known;
    const int64_t notice_ns = tt_deadline_ns(PATIENCE_MS);
    bool noticed = false;
    for (int64_t pause = FIRST_PAUSE_US;; pause = earlier(pause + pause / 4, LAST_PAUSE_US)) {
        const enum tt_attempt attempt =
            tt_handshake_open(&joining->root_fd, &joining->greeting, &joining->root,
                              joining->id->sequence, joining->deadline_ns, why);
        if (attempt == TT_ATTEMPT_OK) return TT_OK;
        /* An attempt that the deadline ended has a less precise cause than the one before it. */
        if (attempt == TT_ATTEMPT_LATE && before[0])
            return fail_to_reach_root(joining, attempt, before);
        if (attempt != TT_ATTEMPT_EARLY || !awaited)
            return fail_to_reach_root(joining, attempt, why);
        if (!noticed && tt_expired(notice_ns)) {
            TT_WARN("bootstrap: rank %d still waits for rank 0: %s", joining->bootstrap->rank, why);
            noticed = true;
        }
        pause_us(pause);
        if (tt_expired(joining->deadline_ns)) return fail_to_reach_root(joining, attempt, why);
        memcpy(before, why, sizeof before);
    }
}

static void count_handshake(struct tt_bootstrap *bootstrap)
{
    bootstrap->counts.connections++;
    bootstrap->counts.messages += 3;
    bootstrap->counts.nbytes +=
        sizeof(struct tt_greeting) + sizeof(struct tt_hello) + sizeof(struct tt_answer);
}

static void leave_root(struct joining *joining)
{
    if (joining->root_fd >= 0) tt_private_fd_close(joining->root_fd);
    joining->root_fd = -1;
}

/* One connection to the root, which answers when all ranks have come. TT_IN_PROGRESS: the root asks
 * this rank to connect again in *again_ms. */
static tt_status visit_root(struct joining *joining, int64_t *again_ms)
{
    char why[TT_WIRE_TEXT];
    const uint64_t self = joining->hello.self;
    TT_TRY(reach_root(joining));
    TT_TRY(open_listener(joining));
    tt_hello_fill(&joining->hello, TT_HELLO_JOIN, joining->bootstrap->rank,
                  joining->bootstrap->nranks);
    joining->hello.self = self;
    joining->hello.left_ms = tt_left_ms(joining->deadline_ns);
    joining->hello.address = joining->mine;
    const enum tt_attempt attempt =
        tt_handshake_finish(joining->root_fd, &joining->greeting, &joining->hello, &joining->answer,
                            joining->id->key, later(joining->deadline_ns, ROOT_GRACE_MS), why);
    if (attempt != TT_ATTEMPT_OK) joining->root_fd = -1; /* closed */
    if (attempt == TT_ATTEMPT_BUSY && !tt_expired(joining->deadline_ns)) {
        *again_ms = LAST_PAUSE_US / 1000;
        return TT_IN_PROGRESS;
    }
    if (attempt != TT_ATTEMPT_OK) return fail_to_reach_root(joining, attempt, why);
    count_handshake(joining->bootstrap);
    if (joining->answer.status < 0)
        return tt_fail(joining->answer.status, "%s", joining->answer.text);
    if (joining->answer.status == TT_OK) return TT_OK;
    joining->known = true;
    *again_ms = joining->answer.again_ms;
    return TT_IN_PROGRESS;
}

/* Reports to the root; returns when all ranks have reported. */
static tt_status show_up(struct joining *joining)
{
    int64_t again_ms = 0;
    tt_status status;
    randombytes_buf(&joining->hello.self, sizeof joining->hello.self);
    while ((status = visit_root(joining, &again_ms)) == TT_IN_PROGRESS) {
        leave_root(joining);
        if (tt_expired(joining->deadline_ns))
            return tt_fail(TT_ERR_TIMEOUT,
                           "rank %d of %d: not all ranks came before the init deadline "
                           "(TUTTI_INIT_TIMEOUT_MS); the ranks that the root had room for say who "
                           "is missing",
                           joining->bootstrap->rank, joining->bootstrap->nranks);
        /* Spread, so that the ranks do not all connect again at once. */
        const int64_t us = 500 * again_ms + randombytes_uniform((uint32_t)(1000 * again_ms) + 1);
        const int64_t left_us = INT64_C(1000) * tt_left_ms(joining->deadline_ns);
        pause_us(left_us >= 0 ? earlier(us, left_us + 1000) : us);
    }
    if (status != TT_OK || !joining->answer.keeps) leave_root(joining);
    return status;
}

/* The root has sent a second answer: a rank failed. Or the root's process ended, which its
 * neighbours in the tree will notice. */
static tt_status receive_verdict(struct joining *joining, int64_t deadline_ns)
{
    const int error =
        tt_socket_receive(joining->root_fd, &joining->answer, sizeof joining->answer, deadline_ns);
    const bool heard = !error && tt_answer_verify(&joining->answer, &joining->hello,
                                                  &joining->greeting, joining->id->key);
    leave_root(joining);
    if (!heard || joining->answer.status >= 0) return TT_OK;
    return tt_fail(joining->answer.status, "%s", joining->answer.text);
}

/* Connects to the parent, again when the parent was too busy. */
static enum tt_attempt call_parent(struct joining *joining, struct tt_answer *answer,
                                   char why[TT_WIRE_TEXT])
{
    struct tt_bootstrap *bootstrap = joining->bootstrap;
    struct tt_greeting greeting;
    struct tt_hello hello;
    for (;;) {
        enum tt_attempt attempt =
            tt_handshake_open(&bootstrap->parent.fd, &greeting, &joining->answer.parent,
                              joining->id->sequence, joining->deadline_ns, why);
        if (attempt != TT_ATTEMPT_OK) return attempt;
        tt_hello_fill(&hello, TT_HELLO_CHILD, bootstrap->rank, bootstrap->nranks);
        attempt = tt_handshake_finish(bootstrap->parent.fd, &greeting, &hello, answer,
                                      joining->id->key, joining->deadline_ns, why);
        if (attempt != TT_ATTEMPT_OK) bootstrap->parent.fd = -1; /* closed */
        if (attempt != TT_ATTEMPT_BUSY || tt_expired(joining->deadline_ns)) return attempt;
        pause_us(LAST_PAUSE_US);
    }
}

static tt_status reach_parent(struct joining *joining)
{
    struct tt_bootstrap *bootstrap = joining->bootstrap;
    struct tt_neighbour *parent = &bootstrap->parent;
    struct tt_answer answer;
    char why[TT_WIRE_TEXT];
    parent->rank = tt_tree_parent(bootstrap->rank);
    parent->pid = joining->answer.parent_pid;
    memcpy(parent->host, joining->answer.parent_host, sizeof parent->host);
    if (!tt_address_valid(&joining->answer.parent))
        return tt_fail(TT_ERR_INTERNAL, "the root gave no address for rank %d", parent->rank);
    tt_address_set_scope(&joining->answer.parent, &joining->root);
    const enum tt_attempt attempt = call_parent(joining, &answer, why);
    if (attempt != TT_ATTEMPT_OK)
        return tt_fail(TT_ERR_REMOTE, "rank %d lost rank %d (pid %d on %s) during init: %s",
                       bootstrap->rank, parent->rank, parent->pid, parent->host, why);
    count_handshake(bootstrap);
    if (answer.status == TT_OK) return TT_OK;
    return tt_fail(answer.status, "%s", answer.text);
}

/* ---- Children ------------------------------------------------------------------------------- */

struct gathering {
    struct joining *joining;
    int ncame;
};

static tt_status on_child(void *context, struct tt_pending_connection *pending)
{
    struct gathering *gathering = context;
    struct tt_bootstrap *bootstrap = gathering->joining->bootstrap;
    const struct tt_hello *hello = &pending->hello;
    struct tt_answer answer = {0};
    const int64_t index = hello->rank - tt_tree_first_child(bootstrap->rank);
    const bool expected = hello->kind == TT_HELLO_CHILD && index >= 0 &&
                          index < bootstrap->nchildren && bootstrap->children[index].fd < 0;
    if (!expected) {
        answer.status = TT_ERR_USAGE;
        snprintf(answer.text, sizeof answer.text, "rank %d does not expect rank %d as its child",
                 bootstrap->rank, hello->rank);
    }
    tt_answer_sign(&answer, hello, &pending->greeting, gathering->joining->id->key);
    if (tt_socket_send_now(pending->fd, &answer, sizeof answer) != 0 || !expected) return TT_OK;
    struct tt_neighbour *child = &bootstrap->children[index];
    *child = (struct tt_neighbour){.fd = pending->fd, .rank = hello->rank, .pid = hello->pid};
    memcpy(child->host, hello->host, sizeof child->host);
    pending->fd = -1;
    count_handshake(bootstrap);
    gathering->ncame++;
    return TT_OK;
}

/* The connection to the root is readable. */
static tt_status on_watched(void *context, int tag)
{
    (void)tag;
    struct gathering *gathering = context;
    if (gathering->joining->root_fd < 0) return TT_OK;
    return receive_verdict(gathering->joining, tt_deadline_ns(VERDICT_MS));
}

static tt_status await_children(struct joining *joining)
{
    static const struct tt_acceptor_events events = {.on_hello = on_child,
                                                     .on_watched = on_watched};
    struct tt_bootstrap *bootstrap = joining->bootstrap;
    struct gathering gathering = {.joining = joining};
    struct tt_acceptor *acceptor;
    if (bootstrap->nchildren == 0) return TT_OK;
    TT_TRY(
        tt_acceptor_create(&acceptor, joining->listener, joining->id->key, joining->id->sequence));
    joining->listener = -1; /* the acceptor's now */
    tt_status status = TT_OK;
    if (joining->root_fd >= 0) status = tt_acceptor_watch(acceptor, joining->root_fd, 0);
    while (status == TT_OK && gathering.ncame < bootstrap->nchildren) {
        if (tt_expired(joining->deadline_ns)) {
            int i = 0;
            while (bootstrap->children[i].fd >= 0) i++;
            status = tt_fail(TT_ERR_REMOTE,
                             "rank %d lost rank %d during init: it came, but did not connect to "
                             "its parent in time",
                             bootstrap->rank, (int)tt_tree_first_child(bootstrap->rank) + i);
        } else {
            status = tt_acceptor_serve(acceptor, &events, &gathering, joining->deadline_ns);
        }
    }
    tt_acceptor_destroy(acceptor);
    return status;
}

/* ---- Create and destroy --------------------------------------------------------------------- */

static tt_status check(int rank, int nranks)
{
    if (nranks < 1 || nranks > TT_MAX_RANKS)
        return tt_fail(TT_ERR_ARGUMENT, "%d is no number of ranks: it must be 1 to %d", nranks,
                       TT_MAX_RANKS);
    if (rank < 0 || rank >= nranks)
        return tt_fail(TT_ERR_ARGUMENT, "rank %d is not within 0 to %d", rank, nranks - 1);
    return TT_OK;
}

static tt_status check_scope(const struct tt_address *root)
{
    char text[TT_ADDRESS_TEXT];
    if (!tt_address_lacks_scope(root)) return TT_OK;
    return tt_fail(TT_ERR_ARGUMENT,
                   "rank 0's address %s is link-local: say by which interface of this host it is "
                   "reached (MASTER_ADDR=%s%%eth0), or give a global one",
                   text, tt_address_host(root, text));
}

static int count_children(int rank, int nranks)
{
    const int64_t left = nranks - tt_tree_first_child(rank);
    return left < 0 ? 0 : left > TT_TREE_FANOUT ? TT_TREE_FANOUT : (int)left;
}

static tt_status find_place(struct joining *joining)
{
    joining->deadline_ns = earlier(joining->deadline_ns, tt_deadline_ns(TREE_MS));
    if (joining->bootstrap->rank > 0) TT_TRY(reach_parent(joining));
    return await_children(joining);
}

/* Reports to the root how joining ended. After a failure the root's answer is more precise than
 * this rank's own error: the neighbour that this rank lost may have failed because of a third rank.
 */
static tt_status report(struct joining *joining, tt_status status)
{
    struct tt_report report = {.status = status};
    if (joining->root_fd < 0) return status;
    if (status == TT_OK) {
        (void)tt_socket_send_now(joining->root_fd, &report.status, sizeof report.status);
        joining->bootstrap->counts.messages++;
        joining->bootstrap->counts.nbytes += sizeof report.status;
        leave_root(joining);
        return TT_OK;
    }
    snprintf(report.text, sizeof report.text, "%s", tt_last_error());
    (void)tt_socket_send_now(joining->root_fd, &report, sizeof report);
    const tt_status verdict = receive_verdict(joining, tt_deadline_ns(VERDICT_MS));
    return verdict == TT_OK ? status : verdict;
}

static tt_status build(struct joining *joining)
{
    TT_TRY(find_root(joining));
    TT_TRY(show_up(joining));
    const tt_status status = report(joining, find_place(joining));
    if (status != TT_OK) tt_bootstrap_break(joining->bootstrap, status, tt_last_error());
    return status;
}

tt_status tt_bootstrap_create(struct tt_bootstrap **bootstrap, const struct tt_unique_id *id,
                              int rank, int nranks, int64_t deadline_ns)
{
    struct joining joining = {.id = id, .listener = -1, .root_fd = -1, .deadline_ns = deadline_ns};
    TT_TRY(tt_handshake_prepare());
    TT_TRY(check(rank, nranks));
    TT_TRY(tt_interfaces_check()); /* not only where it matters: all ranks have the same settings */
    TT_TRY(tt_id_address(&joining.root, id));
    TT_TRY(check_scope(&joining.root));
    struct tt_bootstrap *made = calloc(1, sizeof *made);
    if (!made) return tt_fail_errno(ENOMEM, "bootstrap: no memory");
    made->rank = rank;
    made->nranks = nranks;
    made->nchildren = count_children(rank, nranks);
    made->parent.fd = -1;
    for (int i = 0; i < TT_TREE_FANOUT; i++) made->children[i].fd = -1;
    joining.bootstrap = made;
    const tt_status status = build(&joining);
    leave_root(&joining);
    if (joining.listener >= 0) tt_private_fd_close(joining.listener);
    if (status != TT_OK) {
        tt_bootstrap_destroy(made);
        return status;
    }
    if (id->flags & TT_ID_AWAIT) tt_uses_done(id->use, id->sequence);
    *bootstrap = made;
    return TT_OK;
}

struct tt_bootstrap_counts tt_bootstrap_counts(const struct tt_bootstrap *bootstrap)
{
    return bootstrap->counts;
}

void tt_bootstrap_destroy(struct tt_bootstrap *bootstrap)
{
    if (!bootstrap) return;
    if (bootstrap->parent.fd >= 0) tt_private_fd_close(bootstrap->parent.fd);
    for (int i = 0; i < bootstrap->nchildren; i++)
        if (bootstrap->children[i].fd >= 0) tt_private_fd_close(bootstrap->children[i].fd);
    free(bootstrap);
}
