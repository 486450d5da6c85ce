/* The root: a thread of rank 0's process that collects the hellos of all ranks and tells each rank
 * the address of its parent in the tree. */
#include "bootstrap/root.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sodium.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/open.h"
#include "base/private_fd.h"
#include "base/thread.h"
#include "net/acceptor.h"
#include "bootstrap/tree.h"

enum {
    LINGER_MS = 2000, /* after a failure, for late ranks to get its text */
    LINK_MS = 40000,  /* for all ranks to find their places in the tree; they have less */
    REPORT_MS = 1000, /* for the rest of a report that has begun */
    AGAIN_MS = 20,    /* until a rank comes again, plus one for every AGAIN_RANKS away */
    AGAIN_RANKS = 10,
    MAX_AGAIN_MS = 10000,
    STACK_BYTES = 512 * 1024,
    RESERVE = 512,       /* descriptors left to the rest of the process */
    MAX_NAMED = 16,      /* missing ranks in an error */
    PATIENCE_MS = 10000, /* then the log says who is missing */
};

enum state {
    ABSENT,
    WAITING, /* for its answer, connected */
    AWAY,    /* has come, and will come again for its answer */
    LINKING, /* answered, still connected: it has yet to find its place in the tree */
    DONE,
};

struct member {
    struct tt_greeting greeting;
    struct tt_hello hello;
    int fd; /* owned; WAITING and LINKING only */
    enum state state;
};

/* Owned by its thread. */
struct root {
    struct tt_acceptor *acceptor;
    struct tt_unique_id id;
    char *path;             /* NULL: no file */
    struct member *members; /* nranks of them; NULL until the first has come */
    int nranks, ncame;
    int room; /* connections that may be held at a time */
    int nheld, naway;
    int64_t start_ns, deadline_ns, notice_ns;
    tt_status status; /* what everyone will be answered */
    char text[TT_WIRE_TEXT];
};

__attribute__((format(printf, 3, 4))) static tt_status fail_all(struct root *root, int status,
                                                                const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(root->text, sizeof root->text, format, args);
    va_end(args);
    root->status = status;
    return status;
}

/* ---- Answers -------------------------------------------------------------------------------- */

/* A rank on the root's host may have said that it listens at 127.0.0.1; for others that is the
 * address at which they reached this host. */
static void reachable(struct tt_address *parent, int child_fd)
{
    struct tt_address peer, own;
    if (!tt_address_is_loopback(parent) || tt_socket_peer(child_fd, &peer) != 0 ||
        tt_socket_own(child_fd, &own) != 0 || tt_address_is_loopback(&peer))
        return;
    tt_address_set_port(&own, tt_address_port(parent));
    *parent = own;
}

/* Answers a rank; `reply` has its status already. */
static void answer(const struct root *root, int fd, const struct tt_hello *hello,
                   const struct tt_greeting *greeting, struct tt_answer reply)
{
    if (reply.status < 0) {
        memcpy(reply.text, root->text, sizeof reply.text);
    } else if (reply.status == TT_OK && hello->kind == TT_HELLO_JOIN && hello->rank > 0) {
        const struct member *parent = &root->members[tt_tree_parent(hello->rank)];
        reply.parent = parent->hello.address;
        reply.parent_pid = parent->hello.pid;
        memcpy(reply.parent_host, parent->hello.host, sizeof reply.parent_host);
        reachable(&reply.parent, fd);
    }
    tt_answer_sign(&reply, hello, greeting, root->id.key);
    /* A rank that cannot be told has gone; its tree neighbours will name it. */
    (void)tt_socket_send_now(fd, &reply, sizeof reply);
}

static void let_go(struct root *root, struct member *member)
{
    tt_private_fd_close(member->fd);
    member->fd = -1;
    member->state = DONE;
    root->nheld--;
}

/* Answers all connected ranks, and keeps their connections if there is no failure. */
static void answer_all(struct root *root)
{
    const struct tt_answer reply = {.status = root->status, .keeps = root->status == TT_OK};
    for (int rank = 0; rank < root->nranks; rank++) {
        struct member *member = &root->members[rank];
        if (member->fd < 0 || (member->state != WAITING && member->state != LINKING)) continue;
        answer(root, member->fd, &member->hello, &member->greeting, reply);
        if (root->status == TT_OK)
            member->state = LINKING;
        else
            let_go(root, member);
    }
}

/* ---- Arrivals ------------------------------------------------------------------------------- */

/* How many ranks' connections can be held at a time, within the process's limit on descriptors,
 * which is its owner's to change. */
static int count_room(int nranks)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return nranks;
    const rlim_t reserve = limit.rlim_cur / 2 < RESERVE ? limit.rlim_cur / 2 : RESERVE;
    const rlim_t room = limit.rlim_cur - reserve;
    if (room >= (rlim_t)nranks) return nranks;
    TT_INFO("bootstrap: the root has descriptors for %llu ranks of %d at a time (ulimit -n %llu); "
            "the others come in turns",
            (unsigned long long)room, nranks, (unsigned long long)limit.rlim_cur);
    return (int)room;
}

static tt_status begin(struct root *root, const struct tt_hello *hello)
{
    if (hello->nranks < 1 || hello->nranks > TT_MAX_RANKS)
        return fail_all(root, TT_ERR_USAGE, "rank %d says that there are %d ranks", hello->rank,
                        hello->nranks);
    root->members = calloc((size_t)hello->nranks, sizeof *root->members);
    if (!root->members)
        return fail_all(root, TT_ERR_SYSTEM, "the root has no memory for %d ranks", hello->nranks);
    root->nranks = hello->nranks;
    root->room = count_room(hello->nranks);
    root->start_ns = tt_now_ns();
    root->notice_ns = tt_deadline_ns(PATIENCE_MS);
    root->deadline_ns = INT64_MAX; /* from now on the ranks' own deadlines count */
    return TT_OK;
}

static const struct member *anyone(const struct root *root)
{
    int rank = 0;
    while (root->members[rank].state == ABSENT) rank++;
    return &root->members[rank];
}

static tt_status check(struct root *root, const struct tt_hello *hello)
{
    if (hello->nranks != root->nranks) {
        const struct tt_hello *other = &anyone(root)->hello;
        return fail_all(root, TT_ERR_USAGE,
                        "the ranks disagree on how many they are: rank %d (pid %d on %s) says %d, "
                        "rank %d (pid %d on %s) says %d",
                        other->rank, other->pid, other->host, root->nranks, hello->rank, hello->pid,
                        hello->host, hello->nranks);
    }
    if (hello->rank < 0 || hello->rank >= root->nranks)
        return fail_all(root, TT_ERR_USAGE, "pid %d on %s says it is rank %d of %d", hello->pid,
                        hello->host, hello->rank, root->nranks);
    const struct member *member = &root->members[hello->rank];
    const bool again = member->state == AWAY && member->hello.self == hello->self;
    if (member->state != ABSENT && !again)
        return fail_all(root, TT_ERR_USAGE,
                        "rank %d of %d came twice: pid %d on %s and pid %d on %s; every rank "
                        "needs a number of its own (RANK)",
                        hello->rank, root->nranks, member->hello.pid, member->hello.host,
                        hello->pid, hello->host);
    return TT_OK;
}

/* A rank that listens at its loopback address can be reached by the ranks of its host only. */
static tt_status check_address(struct root *root, const struct tt_pending_connection *pending)
{
    const struct tt_hello *hello = &pending->hello;
    struct tt_address peer, own;
    char from[TT_ADDRESS_TEXT], at[TT_ADDRESS_TEXT], own_text[TT_ADDRESS_TEXT];
    if (!hello->address.nbytes || !tt_address_is_loopback(&hello->address) ||
        tt_socket_peer(pending->fd, &peer) != 0 || tt_socket_own(pending->fd, &own) != 0 ||
        tt_address_is_loopback(&peer) ||
        !strcmp(tt_address_host(&peer, from), tt_address_host(&own, own_text)))
        return TT_OK;
    return fail_all(root, TT_ERR_USAGE,
                    "rank %d (pid %d on %s) comes from %s but waits for others at %s, where only "
                    "its own host can reach it: check TUTTI_SOCKET_INTERFACE and /etc/hosts there",
                    hello->rank, hello->pid, hello->host, from,
                    tt_address_host(&hello->address, at));
}

static tt_status hold(struct root *root, struct member *member,
                      struct tt_pending_connection *pending)
{
    member->fd = pending->fd;
    pending->fd = -1;
    member->state = WAITING;
    root->nheld++;
    if (tt_acceptor_watch(root->acceptor, member->fd, member->hello.rank) != TT_OK)
        return fail_all(root, TT_ERR_SYSTEM, "%s", tt_last_error());
    return TT_OK;
}

/* A rank has connected, for the first time or again: the root keeps the connection, answers, or
 * asks the rank to connect again later. */
static tt_status join(struct root *root, struct tt_pending_connection *pending)
{
    const struct tt_hello *hello = &pending->hello;
    TT_TRY(check(root, hello));
    TT_TRY(check_address(root, pending));
    struct member *member = &root->members[hello->rank];
    const bool all_came = root->ncame == root->nranks;
    root->ncame += member->state == ABSENT;
    root->naway -= member->state == AWAY;
    *member =
        (struct member){.greeting = pending->greeting, .hello = *hello, .fd = -1, .state = DONE};
    if (hello->left_ms >= 0 && hello->left_ms < INT64_MAX / 2000000) {
        const int64_t until_ns = tt_now_ns() + hello->left_ms * 1000000;
        if (until_ns < root->deadline_ns && !all_came) root->deadline_ns = until_ns;
    }
    if (all_came) {
        /* Before the last answer: whoever has one may already look for the next root here. */
        if (!root->naway) tt_acceptor_stop_listening(root->acceptor);
        answer(root, pending->fd, hello, &pending->greeting, (struct tt_answer){.status = TT_OK});
        return TT_OK;
    }
    if (root->nheld < root->room) return hold(root, member, pending);
    const int again_ms = AGAIN_MS + root->naway / AGAIN_RANKS;
    const struct tt_answer reply = {.status = TT_IN_PROGRESS,
                                    .again_ms = again_ms < MAX_AGAIN_MS ? again_ms : MAX_AGAIN_MS};
    member->state = AWAY;
    root->naway++;
    answer(root, pending->fd, hello, &pending->greeting, reply);
    return TT_OK;
}

static tt_status on_hello(void *context, struct tt_pending_connection *pending)
{
    struct root *root = context;
    tt_status status = TT_OK;
    if (pending->hello.kind == TT_HELLO_JOIN && root->status == TT_OK) {
        if (!root->members) status = begin(root, &pending->hello);
        if (status == TT_OK) status = join(root, pending);
        if (status == TT_OK || pending->fd < 0) return status;
    }
    const struct tt_answer reply = {.status = root->status};
    answer(root, pending->fd, &pending->hello, &pending->greeting, reply);
    return status;
}

/* A rank that waits for its answer has nothing to say: it can only have gone. One that has it says
 * how its way into the tree ended. */
static tt_status on_watched(void *context, int tag)
{
    struct root *root = context;
    struct member *member = &root->members[tag];
    const struct tt_hello *hello = &member->hello;
    struct tt_report report;
    if (member->fd < 0) return TT_OK;
    if (member->state == WAITING)
        return fail_all(root, TT_ERR_REMOTE,
                        "rank %d (pid %d on %s) left before all ranks had come", hello->rank,
                        hello->pid, hello->host);
    const int64_t until_ns = tt_deadline_ns(REPORT_MS);
    int error = tt_socket_receive(member->fd, &report.status, sizeof report.status, until_ns);
    if (!error && report.status != TT_OK)
        error = tt_socket_receive(member->fd, report.text, sizeof report.text, until_ns);
    if (error)
        return fail_all(root, TT_ERR_REMOTE,
                        "rank %d (pid %d on %s) left before it had its place among the others",
                        hello->rank, hello->pid, hello->host);
    if (report.status == TT_OK) {
        let_go(root, member);
        return TT_OK;
    }
    report.text[sizeof report.text - 1] = '\0';
    return fail_all(root, report.status < 0 ? report.status : TT_ERR_REMOTE, "%s", report.text);
}

/* "ranks 2, 5 of 8" */
static void name_missing(const struct root *root, char *text, size_t size)
{
    char names[256];
    size_t used = 0;
    int nmissing = 0;
    for (int rank = 0; rank < root->nranks; rank++) {
        if (root->members[rank].state != ABSENT) continue;
        if (nmissing++ < MAX_NAMED)
            used +=
                (size_t)snprintf(names + used, sizeof names - used, "%s%d", used ? ", " : "", rank);
    }
    if (nmissing > MAX_NAMED)
        snprintf(names + used, sizeof names - used, " and %d more", nmissing - MAX_NAMED);
    snprintf(text, size, "rank%s %s of %d", nmissing > 1 ? "s" : "", names, root->nranks);
}

/* Names the missing ranks: in the log when it takes long, to all ranks at the deadline. */
static void look_at_clock(struct root *root)
{
    char missing[320];
    if (!root->members || root->ncame == root->nranks) return;
    const long long waited_ms = (tt_now_ns() - root->start_ns) / 1000000;
    if (tt_expired(root->notice_ns)) {
        name_missing(root, missing, sizeof missing);
        TT_WARN("bootstrap: still waiting for %s after %lld s", missing, waited_ms / 1000);
        root->notice_ns = INT64_MAX;
    }
    if (!tt_expired(root->deadline_ns)) return;
    name_missing(root, missing, sizeof missing);
    (void)fail_all(root, TT_ERR_TIMEOUT, "%s did not come within %lld ms (TUTTI_INIT_TIMEOUT_MS)",
                   missing, waited_ms);
}

/* ---- The thread ----------------------------------------------------------------------------- */

static void remove_file(const struct root *root)
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

static void destroy(struct root *root)
{
    tt_acceptor_destroy(root->acceptor);
    for (int rank = 0; rank < root->nranks; rank++)
        if (root->members[rank].fd >= 0 && root->members[rank].state != ABSENT)
            tt_private_fd_close(root->members[rank].fd);
    sodium_memzero(&root->id, sizeof root->id);
    free(root->members);
    free(root->path);
    free(root);
}

static const struct tt_acceptor_events events = {.on_hello = on_hello, .on_watched = on_watched};

/* Answers the failure to connected ranks, and for a while to ranks that connect late. */
static void answer_late(struct root *root)
{
    struct tt_acceptor *acceptor = root->acceptor;
    const int64_t until_ns = tt_deadline_ns(LINGER_MS);
    while (!tt_expired(until_ns) && (acceptor->listener >= 0 || acceptor->npending)) {
        const tt_status status = tt_acceptor_serve(acceptor, &events, root, until_ns);
        if (status != TT_OK && acceptor->listener < 0) return;
        if (status != TT_OK) tt_acceptor_stop_listening(acceptor);
    }
}

/* Serves until all ranks have come, or until a failure. */
static void gather(struct root *root)
{
    while (root->status == TT_OK && (!root->members || root->ncame < root->nranks)) {
        const int64_t next_ns =
            root->notice_ns < root->deadline_ns ? root->notice_ns : root->deadline_ns;
        const tt_status status = tt_acceptor_serve(root->acceptor, &events, root, next_ns);
        if (root->status != TT_OK) break;
        if (status != TT_OK)
            (void)fail_all(root, status, "%s", tt_last_error());
        else
            look_at_clock(root);
        if (!root->members && tt_expired(root->deadline_ns)) break; /* no rank came */
    }
}

/* Until all have been answered and found their places. Who takes too long fails by itself, and is
 * named by its neighbours. */
static void link_all(struct root *root)
{
    const int64_t until_ns = tt_deadline_ns(LINK_MS);
    while (root->status == TT_OK && (root->nheld || root->naway) && !tt_expired(until_ns)) {
        const tt_status status = tt_acceptor_serve(root->acceptor, &events, root, until_ns);
        if (status != TT_OK && root->status == TT_OK)
            (void)fail_all(root, status, "%s", tt_last_error());
    }
}

static void say_cost(const struct root *root)
{
    struct timespec used = {0};
    if (root->status != TT_OK || !root->ncame) return;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
    const double us = (double)used.tv_sec * 1e6 + (double)used.tv_nsec / 1e3;
    TT_INFO("bootstrap: %d ranks came and found their places within %lld ms; the root used %.1f us "
            "of processor time for each",
            root->nranks, (long long)(tt_now_ns() - root->start_ns) / 1000000, us / root->nranks);
}

static void *serve(void *argument)
{
    struct root *root = argument;
    prctl(PR_SET_NAME, "tutti-root");
    gather(root);
    remove_file(root);
    /* Before the answers: whoever has one may already look for the next root at this address. */
    if (!root->naway && (root->status == TT_OK || root->id.flags & TT_ID_AWAIT))
        tt_acceptor_stop_listening(root->acceptor);
    answer_all(root);
    link_all(root);
    if (root->status != TT_OK) {
        answer_all(root);
        answer_late(root);
    }
    say_cost(root);
    destroy(root);
    return NULL;
}

static int start_thread(struct root *root)
{
    pthread_t thread;
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    const int error = tt_thread_start(&thread, &attributes, serve, root);
    pthread_attr_destroy(&attributes);
    return error;
}

tt_status tt_root_start(int listener, const struct tt_unique_id *id, const char *path,
                        int64_t deadline_ns)
{
    struct root *root = calloc(1, sizeof *root);
    char *copy = path ? strdup(path) : NULL;
    if (!root || (path && !copy)) {
        free(root);
        free(copy);
        tt_private_fd_close(listener);
        return tt_fail_errno(ENOMEM, "bootstrap: no memory for the root");
    }
    *root = (struct root){.path = copy, .deadline_ns = deadline_ns, .notice_ns = INT64_MAX};
    memcpy(&root->id, id, sizeof *id); /* leaves no copy of the key on the stack */
    const tt_status status = tt_acceptor_create(&root->acceptor, listener, id->key, id->sequence);
    if (status != TT_OK) {
        tt_private_fd_close(listener);
        destroy(root);
        return status;
    }
    const int error = start_thread(root);
    if (!error) return TT_OK;
    destroy(root);
    return tt_fail_errno(error, "bootstrap: cannot start the root's thread (ulimit -u?)");
}

bool tt_root_alive(const struct tt_unique_id *id, int64_t deadline_ns)
{
    struct tt_address address;
    struct tt_greeting greeting;
    struct tt_hello hello;
    struct tt_answer reply;
    char why[TT_WIRE_TEXT];
    int fd;
    address.nbytes = id->address_bytes;
    memcpy(address.bytes, id->address, sizeof address.bytes);
    if (tt_handshake_open(&fd, &greeting, &address, id->sequence, deadline_ns, why)) return false;
    tt_hello_fill(&hello, TT_HELLO_PROBE, -1, -1);
    if (tt_handshake_finish(fd, &greeting, &hello, &reply, id->key, deadline_ns, why)) return false;
    tt_private_fd_close(fd);
    return reply.status == TT_OK;
}
