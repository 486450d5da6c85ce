/* The root: a thread of rank 0's process that collects the hellos of all ranks and tells each rank
 * the address of its parent in the tree. */
#include "bootstrap/root.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/open.h"
#include "base/private_fd.h"
#include "base/thread.h"
#include "bootstrap/root_internal.h"

enum {
    LINGER_MS = 2000, /* after a failure, for late ranks to get its text */
    HURRY_MS = 1000,  /* the same when the process is to end */
    /* For all ranks to find their places in the tree, for which they have less time; without a
     * deadline of the init, for ranks to come again for their answer. */
    LINK_MS = 40000,
    LOOK_MS = 20,      /* after a failure: between two looks at what other threads want */
    PENDING_MS = 1000, /* for ranks whose connections were accepted to say who they are */
    TOLD_MS = 500,     /* while ranks come: between two looks at what those of this process say */
    MAX_NAMED = 16,    /* missing ranks in an error */
};

/* "ranks 2, 5 of 8" */
static void name_missing(const struct tt_root *root, char *text, size_t size)
{
    char names[256];
    size_t used = 0;
    int nmissing = 0;
    for (int rank = 0; rank < root->nranks; rank++) {
        if (root->members[rank].state != TT_MEMBER_ABSENT) continue;
        if (nmissing++ < MAX_NAMED)
            used +=
                (size_t)snprintf(names + used, sizeof names - used, "%s%d", used ? ", " : "", rank);
    }
    if (nmissing > MAX_NAMED)
        snprintf(names + used, sizeof names - used, " and %d more", nmissing - MAX_NAMED);
    snprintf(text, size, "rank%s %s of %d", nmissing > 1 ? "s" : "", names, root->nranks);
}

/* Names the missing ranks: in the log when it takes long, and again each time the wait has lasted
 * twice as long; to all ranks at the deadline. */
static void look_at_clock(struct tt_root *root)
{
    char missing[320];
    if (!root->members || root->ncame == root->nranks) return;
    const long long waited_ms = (tt_now_ns() - root->start_ns) / 1000000;
    if (tt_notice_is_due(&root->notice)) {
        name_missing(root, missing, sizeof missing);
        TT_WARN("bootstrap: still waiting for %s after %lld s", missing,
                tt_notice_waited_s(&root->notice));
    }
    if (!tt_expired(root->deadline_ns)) return;
    name_missing(root, missing, sizeof missing);
    root->is_late = true;
    (void)tt_root_fail(root, TT_ERR_TIMEOUT,
                       "%s did not come within %lld ms (TUTTI_INIT_TIMEOUT_MS)", missing,
                       waited_ms);
}

/* A rank of this process that cannot join says so to all ranks, also where none has come yet. */
static void look_at_report(struct tt_root *root)
{
    const struct tt_report report = tt_roots_report(root);
    if (!report.status || root->status != TT_OK) return;
    const int nothers = report.nranks - 1; /* that rank knows */
    if (nothers > root->most_claimed) root->most_claimed = nothers;
    (void)tt_root_fail(root, report.status, "%s", report.text);
}

/* ---- The thread ----------------------------------------------------------------------------- */

static void remove_file(const struct tt_root *root)
{
    struct tt_unique_id found;
    if (!root->path) return;
    const int fd = tt_open(root->path, O_RDONLY | O_NOFOLLOW, 0);
    if (fd < 0) return;
    const bool ours = read(fd, &found, sizeof found) == (ssize_t)sizeof found &&
                      !sodium_memcmp(&found, &root->id, sizeof found);
    close(fd);
    sodium_memzero(&found, sizeof found);
    if (ours) unlink(root->path);
}

static void destroy(struct tt_root *root)
{
    tt_acceptor_destroy(root->acceptor);
    for (int rank = 0; rank < root->nranks; rank++)
        if (root->members[rank].fd >= 0 && root->members[rank].state != TT_MEMBER_ABSENT)
            tt_private_fd_close(root->members[rank].fd);
    sodium_memzero(&root->id, sizeof root->id);
    free(root->members);
    free(root->path);
    free(root);
}

/* Answers the failure for a while to ranks that connect late. Another thread may want the address,
 * or end the process. */
static void answer_late(struct tt_root *root)
{
    struct tt_acceptor *acceptor = root->acceptor;
    const int64_t until_ns = tt_deadline_ns(LINGER_MS), hurry_ns = tt_deadline_ns(HURRY_MS);
    /* At an address that the ranks know without an id the next root is looked for. Who has not come
     * in time does that, too. */
    if (root->id.flags & TT_ID_AWAIT && root->is_late && !root->naway) tt_root_stop_listening(root);
    while (!tt_expired(until_ns) && (acceptor->listener >= 0 || acceptor->npending)) {
        if (atomic_load_explicit(&root->hurries, memory_order_relaxed) &&
            (tt_expired(hurry_ns) || !tt_root_awaits_anyone(root)))
            return;
        if (atomic_load_explicit(&root->makes_way, memory_order_relaxed))
            tt_root_stop_listening(root);
        const int64_t look_ns = tt_deadline_ns(LOOK_MS);
        const tt_status status = tt_acceptor_serve(acceptor, &tt_root_events, root,
                                                   look_ns < until_ns ? look_ns : until_ns);
        if (status != TT_OK && acceptor->listener < 0) return;
        if (status != TT_OK) tt_root_stop_listening(root);
    }
}

/* Ranks that await the next root may have connected before this one stopped to listen. They are
 * told so: to a rank that has said who it is, the end of its connection is that of the root's
 * process. */
static void serve_pending(struct tt_root *root)
{
    const int64_t until_ns = tt_deadline_ns(PENDING_MS);
    tt_root_stop_listening(root);
    while (root->id.flags & TT_ID_AWAIT && root->acceptor->npending && !tt_expired(until_ns) &&
           !atomic_load_explicit(&root->hurries, memory_order_relaxed)) {
        const int64_t look_ns = tt_earlier(until_ns, tt_deadline_ns(LOOK_MS));
        if (tt_acceptor_serve(root->acceptor, &tt_root_events, root, look_ns) != TT_OK) return;
    }
}

/* Serves until all ranks have come, or until a failure; where none has come, until the deadline or
 * until the id is dropped. */
static void gather(struct tt_root *root)
{
    while (root->status == TT_OK && (!root->members || root->ncame < root->nranks)) {
        const int64_t next_ns = tt_earlier(tt_earlier(root->notice.next_ns, root->deadline_ns),
                                           tt_deadline_ns(TOLD_MS));
        const tt_status status = tt_acceptor_serve(root->acceptor, &tt_root_events, root, next_ns);
        if (root->status != TT_OK) break;
        if (status != TT_OK)
            (void)tt_root_fail(root, status, "%s", tt_last_error());
        else
            look_at_clock(root);
        look_at_report(root);
        const bool is_dropped = atomic_load_explicit(&root->is_dropped, memory_order_relaxed);
        if (!root->members && (is_dropped || tt_expired(root->deadline_ns))) break;
    }
}

/* A rank that has gone while it had no connection here would never be missed. */
static void fail_away(struct tt_root *root)
{
    int rank = 0;
    while (root->members[rank].state != TT_MEMBER_AWAY) rank++;
    const struct tt_hello *hello = &root->members[rank].hello;
    (void)tt_root_fail(root, TT_ERR_REMOTE,
                       "rank %d (pid %d on %s) came, but did not come again for its answer within "
                       "%d s",
                       rank, hello->pid, hello->host, LINK_MS / 1000);
}

/* Until all have been answered and found their places. In an init with a deadline a rank that takes
 * too long fails by itself; its neighbours name it. */
static void link_all(struct tt_root *root)
{
    const bool is_endless = root->deadline_ns == INT64_MAX;
    const int64_t limit_ns = tt_deadline_ns(LINK_MS);
    while (root->status == TT_OK && (root->nheld || root->naway)) {
        if (tt_expired(limit_ns) && !is_endless) return;
        if (tt_expired(limit_ns) && root->naway) {
            fail_away(root);
            return;
        }
        const int64_t until_ns = is_endless && !root->naway ? INT64_MAX : limit_ns;
        const tt_status status = tt_acceptor_serve(root->acceptor, &tt_root_events, root, until_ns);
        if (status != TT_OK && root->status == TT_OK)
            (void)tt_root_fail(root, status, "%s", tt_last_error());
    }
}

static void say_cost(const struct tt_root *root)
{
    struct timespec used = {0};
    if (root->status != TT_OK || !root->ncame) return;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
    const double us = (double)used.tv_sec * 1e6 + (double)used.tv_nsec / 1e3;
    TT_INFO("bootstrap: %d ranks came and found their places within %lld ms; the root used %.1f us "
            "of processor time for each",
            root->nranks, (long long)(tt_now_ns() - root->start_ns) / 1000000, us / root->nranks);
}

void tt_root_serve(struct tt_root *root)
{
    prctl(PR_SET_NAME, "tutti-root");
    gather(root);
    if (root->status == TT_OK) {
        /* Before the answers: whoever has one may already look for the next root here. */
        remove_file(root);
        if (!root->naway) tt_root_stop_listening(root);
        atomic_store_explicit(&root->sends_on, root->id.flags & TT_ID_AWAIT, memory_order_relaxed);
        tt_root_answer_all(root);
        link_all(root);
    }
    if (root->status != TT_OK) {
        tt_root_answer_all(root);
        if (root->is_late) remove_file(root);
        answer_late(root);
        tt_root_stop_listening(root);
        remove_file(root);
    }
    say_cost(root);
    serve_pending(root);
    tt_roots_remove(root);
    destroy(root);
}

static void *serve(void *root)
{
    tt_root_serve(root);
    return NULL;
}

int tt_root_start_thread(void *(*run)(void *), void *argument)
{
    return tt_thread_start(NULL, run, argument);
}

tt_status tt_root_make(struct tt_root **made, int listener, const struct tt_unique_id *id,
                       const char *path, int64_t deadline_ns)
{
    struct tt_root *root = calloc(1, sizeof *root);
    char *copy = path ? strdup(path) : NULL;
    if (!root || (path && !copy)) {
        free(root);
        free(copy);
        return tt_fail_errno(ENOMEM, "bootstrap: no memory for the root");
    }
    *root = (struct tt_root){.path = copy, .deadline_ns = deadline_ns, .notice.next_ns = INT64_MAX};
    memcpy(&root->id, id, sizeof *id); /* leaves no copy of the key on the stack */
    const tt_status status = tt_acceptor_create(&root->acceptor, listener, id->key, id->sequence);
    if (status != TT_OK) {
        destroy(root);
        return status;
    }
    root->acceptor->gives_up = true;
    struct tt_address at;
    if (tt_socket_own(listener, &at) == 0) root->port = tt_address_port(&at);
    atomic_init(&root->listens, true);
    tt_roots_enter(root);
    *made = root;
    return TT_OK;
}

tt_status tt_root_start(int listener, const struct tt_unique_id *id, const char *path,
                        int64_t deadline_ns)
{
    struct tt_root *root;
    const tt_status status = tt_root_make(&root, listener, id, path, deadline_ns);
    if (status != TT_OK) {
        tt_private_fd_close(listener);
        return status;
    }
    const int error = tt_root_start_thread(serve, root);
    if (!error) return TT_OK;
    tt_roots_remove(root);
    destroy(root);
    return tt_fail_errno(error, "bootstrap: cannot start the root's thread%s",
                         tt_thread_hint(error));
}

enum tt_root_health tt_root_probe(const struct tt_unique_id *id, int64_t deadline_ns)
{
    struct tt_address address;
    struct tt_greeting greeting;
    struct tt_hello hello;
    struct tt_answer reply;
    char why[TT_WIRE_TEXT];
    int fd;
    address.nbytes = id->address_bytes;
    memcpy(address.bytes, id->address, sizeof address.bytes);
    if (tt_handshake_open(&fd, &greeting, &address, id->sequence, deadline_ns, why))
        return TT_ROOT_GONE;
    tt_hello_fill(&hello, TT_HELLO_PROBE, -1, -1);
    if (tt_handshake_finish(fd, &greeting, &hello, &reply, id->key, deadline_ns, why))
        return TT_ROOT_GONE;
    tt_private_fd_close(fd);
    return reply.status == TT_OK ? TT_ROOT_SERVES : TT_ROOT_FAILED;
}
