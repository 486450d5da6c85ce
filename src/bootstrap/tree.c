/* Joins the tree: after the root's answer, connects to the parent and accepts the children. */
#include "bootstrap/tree.h"

#include <errno.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/private_fd.h"
#include "bootstrap/joining.h"
#include "bootstrap/root.h"
#include "net/acceptor.h"
#include "net/interface.h"

enum {
    TREE_MS = 30000,   /* to connect to neighbours that are known to be there, in an init that has
                        * a deadline */
    VERDICT_MS = 1000, /* for the root to say whose failure it was */
    /* For children whose end the root would not notice, in an init without a deadline: they may be
     * answered LINK_MS of root.c after all have come. */
    CHILDREN_MS = 45000,
};

/* The root has sent a second answer: a rank failed. Or the root's process ended, which its
 * neighbours in the tree will notice. */
static tt_status receive_verdict(struct tt_joining *joining, int64_t deadline_ns)
{
    const int error =
        tt_socket_receive(joining->root_fd, &joining->answer, sizeof joining->answer, deadline_ns);
    const bool heard = !error && tt_answer_verify(&joining->answer, &joining->hello,
                                                  &joining->greeting, joining->id->key);
    tt_joining_leave_root(joining);
    if (!heard || joining->answer.status >= 0) return TT_OK;
    return tt_fail(joining->answer.status, "%s", joining->answer.text);
}

static void say_parent_is_silent(struct tt_joining *joining, const struct tt_notice *notice)
{
    const struct tt_neighbour *parent = &joining->bootstrap->parent;
    TT_WARN("bootstrap: rank %d still waits after %lld s for rank %d (pid %d on %s) to accept its "
            "connection; all ranks have come",
            joining->bootstrap->rank, tt_notice_waited_s(notice), parent->rank, parent->pid,
            parent->host);
}

/* The handshake with the parent on its connection `fd`; closes fd when it is not OK. */
static enum tt_attempt meet_parent(struct tt_joining *joining, int fd, struct tt_answer *answer,
                                   char why[TT_WIRE_TEXT])
{
    const int64_t until_ns = joining->deadline_ns;
    const uint8_t *key = joining->id->key;
    struct tt_greeting greeting;
    struct tt_hello hello;
    tt_joining_await(joining, fd, until_ns, say_parent_is_silent);
    enum tt_attempt attempt = tt_handshake_meet(fd, &greeting, &joining->answer.parent,
                                                &joining->id->sequence, until_ns, why);
    if (attempt != TT_ATTEMPT_OK) return attempt;
    tt_hello_fill(&hello, TT_HELLO_CHILD, joining->bootstrap->rank, joining->bootstrap->nranks);
    attempt = tt_handshake_say(fd, &greeting, &hello, key, until_ns, why);
    if (attempt != TT_ATTEMPT_OK) return attempt;
    tt_joining_await(joining, fd, until_ns, say_parent_is_silent);
    return tt_handshake_hear(fd, &greeting, &hello, answer, key, until_ns, why);
}

/* Connects to the parent, again when the parent was too busy. */
static enum tt_attempt call_parent(struct tt_joining *joining, struct tt_answer *answer,
                                   char why[TT_WIRE_TEXT])
{
    struct tt_bootstrap *bootstrap = joining->bootstrap;
    for (;;) {
        int fd;
        enum tt_attempt attempt =
            tt_handshake_connect(&fd, &joining->answer.parent, joining->deadline_ns, why);
        if (attempt != TT_ATTEMPT_OK) return attempt;
        attempt = meet_parent(joining, fd, answer, why);
        if (attempt == TT_ATTEMPT_OK) bootstrap->parent.fd = fd;
        if (attempt != TT_ATTEMPT_BUSY || tt_expired(joining->deadline_ns)) return attempt;
        tt_joining_pause(TT_PAUSE_US);
    }
}

static tt_status reach_parent(struct tt_joining *joining)
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
    const char *hint =
        attempt == TT_ATTEMPT_EARLY || attempt == TT_ATTEMPT_NO_ROUTE
            ? "; if no way leads there, TUTTI_SOCKET_INTERFACE names another interface"
            : "";
    if (attempt != TT_ATTEMPT_OK)
        return tt_fail(TT_ERR_REMOTE, "rank %d lost rank %d (pid %d on %s) during init: %s%s",
                       bootstrap->rank, parent->rank, parent->pid, parent->host, why, hint);
    tt_joining_count_handshake(bootstrap);
    if (answer.status == TT_OK) return TT_OK;
    return tt_fail(answer.status, "%s", answer.text);
}

/* ---- Children ------------------------------------------------------------------------------- */

struct gathering {
    struct tt_joining *joining;
    int ncame;
    uint32_t unheld;  /* of the root's answer */
    int64_t since_ns; /* since when a missing child may have gone unnoticed */
};

enum watched { WATCH_ROOT, WATCH_PARENT };

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
    tt_joining_count_handshake(bootstrap);
    gathering->ncame++;
    return TT_OK;
}

/* Whether the end of a child would go unnoticed. The root notices that of a child whose connection
 * it holds. */
static bool may_lose_child(const struct gathering *gathering)
{
    const struct tt_bootstrap *bootstrap = gathering->joining->bootstrap;
    bool may_lose = gathering->joining->root_fd < 0;
    for (int i = 0; i < bootstrap->nchildren; i++)
        may_lose |= bootstrap->children[i].fd < 0 && gathering->unheld >> i & 1;
    return may_lose;
}

/* The connection to the root or to the parent is readable. */
static tt_status on_watched(void *context, int tag)
{
    struct gathering *gathering = context;
    if (tag == WATCH_PARENT) return tt_bootstrap_hear_parent(gathering->joining->bootstrap);
    if (gathering->joining->root_fd < 0) return TT_OK;
    if (!may_lose_child(gathering)) gathering->since_ns = tt_now_ns();
    return receive_verdict(gathering->joining, tt_deadline_ns(VERDICT_MS));
}

enum { NAMES_BYTES = TT_TREE_FANOUT * 16 };

/* "rank 1", "ranks 1, 2": the children that have not connected. */
static void name_late_children(const struct tt_bootstrap *bootstrap, char names[NAMES_BYTES])
{
    char numbers[NAMES_BYTES - 8] = "";
    size_t used = 0;
    int nlate = 0;
    for (int i = 0; i < bootstrap->nchildren; i++) {
        if (bootstrap->children[i].fd >= 0) continue;
        used += (size_t)snprintf(numbers + used, sizeof numbers - used, "%s%d", nlate++ ? ", " : "",
                                 (int)tt_tree_first_child(bootstrap->rank) + i);
    }
    snprintf(names, NAMES_BYTES, "rank%s %s", nlate > 1 ? "s" : "", numbers);
}

static void say_children_are_late(const struct tt_bootstrap *bootstrap,
                                  const struct tt_notice *notice)
{
    char names[NAMES_BYTES];
    name_late_children(bootstrap, names);
    TT_WARN("bootstrap: rank %d still waits after %lld s for %s to connect to it; all ranks have "
            "come",
            bootstrap->rank, tt_notice_waited_s(notice), names);
}

static tt_status fail_children(const struct tt_bootstrap *bootstrap)
{
    char names[NAMES_BYTES];
    name_late_children(bootstrap, names);
    return tt_fail(TT_ERR_REMOTE,
                   "rank %d lost %s during init: all ranks came, but not all connected to their "
                   "parents in time",
                   bootstrap->rank, names);
}

/* Until when the rank waits for its children. */
static int64_t find_limit(const struct gathering *gathering)
{
    const int64_t limit_ns = may_lose_child(gathering)
                                 ? gathering->since_ns + INT64_C(1000000) * CHILDREN_MS
                                 : INT64_MAX;
    return tt_earlier(gathering->joining->deadline_ns, limit_ns);
}

static tt_status watch(struct tt_joining *joining)
{
    const int fds[] = {
        [WATCH_ROOT] = joining->root_fd, [WATCH_PARENT] = joining->bootstrap->parent.fd};
    for (int i = 0; i < 2; i++)
        if (fds[i] >= 0) TT_TRY(tt_acceptor_watch(joining->acceptor, fds[i], i));
    return TT_OK;
}

static tt_status await_children(struct tt_joining *joining)
{
    static const struct tt_acceptor_events events = {.on_hello = on_child,
                                                     .on_watched = on_watched};
    struct tt_bootstrap *bootstrap = joining->bootstrap;
    struct gathering gathering = {
        .joining = joining, .unheld = joining->answer.unheld, .since_ns = tt_now_ns()};
    struct tt_acceptor *acceptor;
    if (bootstrap->nchildren == 0) return TT_OK;
    TT_TRY(
        tt_acceptor_create(&acceptor, joining->listener, joining->id->key, joining->id->sequence));
    joining->listener = -1; /* the acceptor's now */
    joining->acceptor = acceptor;
    acceptor->gives_up = true;
    struct tt_notice notice = tt_notice_begin();
    TT_TRY(watch(joining));
    while (gathering.ncame < bootstrap->nchildren) {
        const int64_t limit_ns = find_limit(&gathering);
        if (tt_expired(limit_ns)) return fail_children(bootstrap);
        if (tt_notice_is_due(&notice)) say_children_are_late(bootstrap, &notice);
        TT_TRY(
            tt_acceptor_serve(acceptor, &events, &gathering, tt_earlier(limit_ns, notice.next_ns)));
    }
    return TT_OK;
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

static tt_status find_place(struct tt_joining *joining)
{
    if (joining->deadline_ns != INT64_MAX)
        joining->deadline_ns = tt_earlier(joining->deadline_ns, tt_deadline_ns(TREE_MS));
    if (joining->bootstrap->rank > 0) TT_TRY(reach_parent(joining));
    return await_children(joining);
}

/* Reports to the root how joining ended. After a failure the root's answer is more precise than
 * this rank's own error: the neighbour that this rank lost may have failed because of a third rank.
 */
static tt_status report(struct tt_joining *joining, tt_status status)
{
    struct tt_report report = {
        .status = status, .rank = joining->bootstrap->rank, .nranks = joining->bootstrap->nranks};
    if (joining->root_fd < 0) return status;
    if (status == TT_OK) {
        (void)tt_socket_send_now(joining->root_fd, &report.status, sizeof report.status);
        joining->bootstrap->counts.messages++;
        joining->bootstrap->counts.nbytes += sizeof report.status;
        tt_joining_leave_root(joining);
        return TT_OK;
    }
    snprintf(report.text, sizeof report.text, "%s", tt_last_error());
    (void)tt_socket_send_now(joining->root_fd, &report, sizeof report);
    const tt_status verdict = receive_verdict(joining, tt_deadline_ns(VERDICT_MS));
    return verdict == TT_OK ? status : verdict;
}

static tt_status show_up(struct tt_joining *joining)
{
    /* Not only where it matters: all ranks have the same settings. */
    const tt_status able = tt_interfaces_check();
    if (able == TT_OK) return tt_joining_show_up(joining);
    tt_joining_tell_root(joining, able);
    return able;
}

static tt_status build(struct tt_joining *joining)
{
    TT_TRY(show_up(joining));
    joining->bootstrap->deadline_ns = joining->deadline_ns;
    const tt_status status = report(joining, find_place(joining));
    if (status != TT_OK) tt_bootstrap_break(joining->bootstrap, status, tt_last_error());
    return status;
}

tt_status tt_bootstrap_create(struct tt_bootstrap **bootstrap, const struct tt_unique_id *id,
                              int rank, int nranks, int64_t deadline_ns)
{
    struct tt_joining joining = {.listener = -1,
                                 .root_fd = -1,
                                 .deadline_ns = deadline_ns,
                                 .takes_any = id->flags & TT_ID_UNMET};
    TT_TRY(tt_handshake_prepare());
    TT_TRY(check(rank, nranks));
    TT_TRY(tt_id_address(&joining.root, id));
    TT_TRY(check_scope(&joining.root));
    joining.port = tt_address_port(&joining.root);
    randombytes_buf(&joining.hello.self, sizeof joining.hello.self);
    struct tt_bootstrap *made = calloc(1, sizeof *made);
    if (!made) {
        const tt_status status = tt_fail_errno(ENOMEM, "bootstrap: no memory");
        tt_unique_id_fail(id, rank, nranks, status);
        return status;
    }
    memcpy(&made->id, id, sizeof made->id); /* leaves no copy of the key on the stack */
    made->rank = rank;
    made->nranks = nranks;
    made->nchildren = count_children(rank, nranks);
    made->parent.fd = -1;
    for (int i = 0; i < TT_TREE_FANOUT; i++) made->children[i].fd = -1;
    joining.bootstrap = made;
    joining.id = &made->id;
    const tt_status status = build(&joining);
    tt_joining_leave_root(&joining);
    tt_acceptor_destroy(joining.acceptor);
    if (joining.listener >= 0) tt_private_fd_close(joining.listener);
    if (status != TT_OK) {
        tt_joining_tell_own_root(&joining, status);
        tt_bootstrap_destroy(made);
        return status;
    }
    *bootstrap = made;
    return TT_OK;
}

int64_t tt_bootstrap_deadline(const struct tt_bootstrap *bootstrap)
{
    return bootstrap->deadline_ns;
}

const uint8_t *tt_bootstrap_key(const struct tt_bootstrap *bootstrap)
{
    return bootstrap->id.key;
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
    sodium_memzero(&bootstrap->id, sizeof bootstrap->id);
    free(bootstrap);
}
