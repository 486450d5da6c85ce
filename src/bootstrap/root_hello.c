/* Ranks that come to a root, and the answers that they get. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/private_fd.h"
#include "bootstrap/root_internal.h"
#include "bootstrap/tree.h"

enum {
    REPORT_MS = 1000, /* for the rest of a report that has begun */
    AGAIN_MS = 20,    /* until a rank comes again, plus one for every AGAIN_RANKS away */
    AGAIN_RANKS = 10,
    MAX_AGAIN_MS = 10000,
    RESERVE = 512, /* descriptors left to the rest of the process */
};

tt_status tt_root_fail(struct tt_root *root, int status, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(root->text, sizeof root->text, format, args);
    va_end(args);
    root->status = status;
    tt_roots_keep_cause(&root->id, status, root->text);
    /* acquire: hurry_all of roots.c, ask_for_way of roots.c */
    atomic_store_explicit(&root->has_failed, true, memory_order_release);
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

/* unheld of tt_answer. A child that is DONE was answered without keeping its connection: it cannot
 * have its place in the tree already, since this rank, its parent, is only now answered. */
static uint32_t find_unheld(const struct tt_root *root, int rank)
{
    const int64_t first = tt_tree_first_child(rank);
    uint32_t unheld = 0;
    for (int i = 0; i < TT_TREE_FANOUT && first + i < root->nranks; i++) {
        const enum tt_member_state state = root->members[first + i].state;
        if (state == TT_MEMBER_AWAY || state == TT_MEMBER_DONE) unheld |= 1u << i;
    }
    return unheld;
}

/* Answers a rank; `reply` has its status already. */
static void answer(const struct tt_root *root, int fd, const struct tt_hello *hello,
                   const struct tt_greeting *greeting, struct tt_answer reply)
{
    if (reply.status < 0) {
        memcpy(reply.text, root->text, sizeof reply.text);
    } else if (reply.status == TT_OK && hello->kind == TT_HELLO_JOIN && hello->rank > 0) {
        const struct tt_member *parent = &root->members[tt_tree_parent(hello->rank)];
        reply.parent = parent->hello.address;
        reply.parent_pid = parent->hello.pid;
        memcpy(reply.parent_host, parent->hello.host, sizeof reply.parent_host);
        reachable(&reply.parent, fd);
    }
    if (reply.status == TT_OK && hello->kind == TT_HELLO_JOIN)
        reply.unheld = find_unheld(root, hello->rank);
    if (reply.status == TT_OK) reply.left_ms = tt_left_ms(root->deadline_ns);
    tt_answer_sign(&reply, hello, greeting, root->id.key);
    /* A rank that cannot be told has gone; its tree neighbours will name it. */
    (void)tt_socket_send_now(fd, &reply, sizeof reply);
}

static void let_go(struct tt_root *root, struct tt_member *member)
{
    tt_private_fd_close(member->fd);
    member->fd = -1;
    member->state = TT_MEMBER_DONE;
    root->nheld--;
}

/* A rank that has been told to find its place in the tree also hears of a failure. */
static bool awaits_answer(const struct tt_root *root, const struct tt_member *member)
{
    return member->fd >= 0 && (member->state == TT_MEMBER_WAITING ||
                               (member->state == TT_MEMBER_LINKING && root->status != TT_OK));
}

/* By its pid and its host's name. At worst a rank of another process is answered last. */
static bool is_of_this_process(const struct tt_hello *hello)
{
    char host[TT_HOST_BYTES] = "";
    return hello->pid == (int32_t)getpid() && gethostname(host, sizeof host - 1) == 0 &&
           !strcmp(host, hello->host);
}

static void answer_member(struct tt_root *root, struct tt_member *member)
{
    const struct tt_answer reply = {.status = root->status, .keeps = root->status == TT_OK};
    answer(root, member->fd, &member->hello, &member->greeting, reply);
    if (root->status == TT_OK)
        member->state = TT_MEMBER_LINKING;
    else
        let_go(root, member);
}

void tt_root_answer_all(struct tt_root *root)
{
    for (int own = 0; own < 2; own++)
        for (int rank = 0; rank < root->nranks; rank++) {
            struct tt_member *member = &root->members[rank];
            if (awaits_answer(root, member) && (own || !is_of_this_process(&member->hello)))
                answer_member(root, member);
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

static tt_status begin(struct tt_root *root, const struct tt_hello *hello)
{
    if (hello->nranks < 1 || hello->nranks > TT_MAX_RANKS)
        return tt_root_fail(root, TT_ERR_USAGE, "rank %d says that there are %d ranks", hello->rank,
                            hello->nranks);
    root->members = calloc((size_t)hello->nranks, sizeof *root->members);
    if (!root->members)
        return tt_root_fail(root, TT_ERR_SYSTEM, "the root has no memory for %d ranks",
                            hello->nranks);
    root->nranks = root->most_claimed = hello->nranks;
    root->room = count_room(hello->nranks);
    root->start_ns = tt_now_ns();
    root->notice = tt_notice_begin();
    root->deadline_ns = INT64_MAX; /* from now on the ranks' own deadlines count */
    return TT_OK;
}

static const struct tt_member *anyone(const struct tt_root *root)
{
    int rank = 0;
    while (root->members[rank].state == TT_MEMBER_ABSENT) rank++;
    return &root->members[rank];
}

static tt_status check(struct tt_root *root, const struct tt_hello *hello)
{
    if (hello->nranks != root->nranks) {
        const struct tt_hello *other = &anyone(root)->hello;
        return tt_root_fail(
            root, TT_ERR_USAGE,
            "the ranks disagree on how many they are: rank %d (pid %d on %s) says %d, "
            "rank %d (pid %d on %s) says %d",
            other->rank, other->pid, other->host, root->nranks, hello->rank, hello->pid,
            hello->host, hello->nranks);
    }
    if (hello->rank < 0 || hello->rank >= root->nranks)
        return tt_root_fail(root, TT_ERR_USAGE, "pid %d on %s says it is rank %d of %d", hello->pid,
                            hello->host, hello->rank, root->nranks);
    const struct tt_member *member = &root->members[hello->rank];
    const bool again = member->state == TT_MEMBER_AWAY && member->hello.self == hello->self;
    if (member->state != TT_MEMBER_ABSENT && !again)
        return tt_root_fail(root, TT_ERR_USAGE,
                            "rank %d of %d came twice: pid %d on %s and pid %d on %s; every rank "
                            "needs a number of its own (RANK)",
                            hello->rank, root->nranks, member->hello.pid, member->hello.host,
                            hello->pid, hello->host);
    return TT_OK;
}

/* A rank that listens at its loopback address can be reached by the ranks of its host only. */
static tt_status check_address(struct tt_root *root, const struct tt_pending_connection *pending)
{
    const struct tt_hello *hello = &pending->hello;
    struct tt_address peer, own;
    char from[TT_ADDRESS_TEXT], at[TT_ADDRESS_TEXT], own_text[TT_ADDRESS_TEXT];
    if (!hello->address.nbytes || !tt_address_is_loopback(&hello->address) ||
        tt_socket_peer(pending->fd, &peer) != 0 || tt_socket_own(pending->fd, &own) != 0 ||
        tt_address_is_loopback(&peer) ||
        !strcmp(tt_address_host(&peer, from), tt_address_host(&own, own_text)))
        return TT_OK;
    return tt_root_fail(
        root, TT_ERR_USAGE,
        "rank %d (pid %d on %s) comes from %s but waits for others at %s, where only "
        "its own host can reach it: check TUTTI_SOCKET_INTERFACE and /etc/hosts there",
        hello->rank, hello->pid, hello->host, from, tt_address_host(&hello->address, at));
}

static tt_status hold(struct tt_root *root, struct tt_member *member,
                      struct tt_pending_connection *pending)
{
    member->fd = pending->fd;
    pending->fd = -1;
    member->state = TT_MEMBER_WAITING;
    root->nheld++;
    if (tt_acceptor_watch(root->acceptor, member->fd, member->hello.rank) != TT_OK)
        return tt_root_fail(root, TT_ERR_SYSTEM, "%s", tt_last_error());
    return TT_OK;
}

/* Receives the frame in which a rank says how joining ended for it. An errno: it has gone without
 * one. */
static int receive_report(int fd, struct tt_report *report)
{
    const int64_t until_ns = tt_deadline_ns(REPORT_MS);
    int error = tt_socket_receive(fd, &report->status, sizeof report->status, until_ns);
    const size_t nbytes = offsetof(struct tt_report, rank);
    if (!error && report->status != TT_OK)
        error = tt_socket_receive(fd, (char *)report + nbytes, sizeof *report - nbytes, until_ns);
    report->text[sizeof report->text - 1] = '\0';
    return error;
}

/* What a rank says that cannot join; status 0: nothing. Before it is answered: a connection that is
 * closed with unread bytes is reset, which may take the answer with it. */
static struct tt_report hear_unable(const struct tt_pending_connection *pending)
{
    struct tt_report report = {0};
    if (pending->hello.unable && receive_report(pending->fd, &report)) report.status = TT_OK;
    return report;
}

static tt_status fail_unable(struct tt_root *root, const struct tt_pending_connection *pending,
                             const struct tt_report *report)
{
    if (report->status >= 0)
        return tt_root_fail(root, TT_ERR_REMOTE,
                            "rank %d (pid %d on %s) could not say why it failed",
                            pending->hello.rank, pending->hello.pid, pending->hello.host);
    return tt_root_fail(root, report->status, "%s", report->text);
}

/* A rank has connected, for the first time or again: the root keeps the connection, answers, or
 * asks the rank to connect again later. */
static tt_status join(struct tt_root *root, struct tt_pending_connection *pending,
                      const struct tt_report *report)
{
    const struct tt_hello *hello = &pending->hello;
    TT_TRY(check(root, hello));
    if (hello->unable) return fail_unable(root, pending, report);
    TT_TRY(check_address(root, pending));
    struct tt_member *member = &root->members[hello->rank];
    const bool all_came = root->ncame == root->nranks;
    root->ncame += member->state == TT_MEMBER_ABSENT;
    root->naway -= member->state == TT_MEMBER_AWAY;
    *member = (struct tt_member){
        .greeting = pending->greeting, .hello = *hello, .fd = -1, .state = TT_MEMBER_DONE};
    if (hello->left_ms >= 0 && hello->left_ms < INT64_MAX / 2000000) {
        const int64_t until_ns = tt_now_ns() + hello->left_ms * 1000000;
        if (until_ns < root->deadline_ns && !all_came) root->deadline_ns = until_ns;
    }
    if (all_came) {
        /* Before the last answer: whoever has one may already look for the next root here. */
        if (!root->naway) tt_root_stop_listening(root);
        answer(root, pending->fd, hello, &pending->greeting, (struct tt_answer){.status = TT_OK});
        return TT_OK;
    }
    if (root->nheld < root->room) return hold(root, member, pending);
    const int again_ms = AGAIN_MS + root->naway / AGAIN_RANKS;
    const struct tt_answer reply = {.status = TT_IN_PROGRESS,
                                    .again_ms = again_ms < MAX_AGAIN_MS ? again_ms : MAX_AGAIN_MS};
    member->state = TT_MEMBER_AWAY;
    root->naway++;
    answer(root, pending->fd, hello, &pending->greeting, reply);
    return TT_OK;
}

/* Whether this rank awaits the next root: all ranks of this one have come, and it is none of them;
 * or this one has failed, and the rank, or another process with its number, knows that already.
 * Only roots at an address that the ranks know without an id follow one another. */
static bool awaits_next(const struct tt_root *root, const struct tt_hello *hello)
{
    const bool all_came = root->members && root->ncame == root->nranks;
    if (!(root->id.flags & TT_ID_AWAIT) || (root->status == TT_OK && !all_came)) return false;
    if (hello->rank >= 0 && hello->rank < root->nranks) {
        const struct tt_member *member = &root->members[hello->rank];
        if (member->state != TT_MEMBER_ABSENT) return member->hello.self != hello->self;
    }
    if (all_came) return true;
    for (int i = 0; i < root->ntold; i++)
        if (root->told[i].rank == hello->rank && root->told[i].self != hello->self) return true;
    return false;
}

/* The rank of this hello, which does not wait for its answer, is answered the failure. Ranks that
 * disagree on their number have no places among the members. */
static void note_told(struct tt_root *root, const struct tt_hello *hello)
{
    if (hello->nranks > root->most_claimed) root->most_claimed = hello->nranks;
    if (hello->rank >= 0 && hello->rank < root->nranks) {
        struct tt_member *member = &root->members[hello->rank];
        const bool is_away = member->state == TT_MEMBER_AWAY && member->hello.self == hello->self;
        root->naway -= is_away;
        if (is_away) member->state = TT_MEMBER_DONE;
        if (member->state != TT_MEMBER_ABSENT) return;
    }
    for (int i = 0; i < root->ntold; i++)
        if (root->told[i].rank == hello->rank) return;
    if (root->ntold == TT_MOST_TOLD) return;
    root->told[root->ntold].rank = hello->rank;
    root->told[root->ntold++].self = hello->self;
}

bool tt_root_awaits_anyone(const struct tt_root *root)
{
    const bool missing = !root->is_late && root->ncame + root->ntold < root->most_claimed;
    return root->acceptor->npending > 0 || root->naway > 0 || missing;
}

static tt_status on_hello(void *context, struct tt_pending_connection *pending)
{
    struct tt_root *root = context;
    const struct tt_hello *hello = &pending->hello;
    const bool joins = hello->kind == TT_HELLO_JOIN;
    const struct tt_report report = hear_unable(pending);
    struct tt_answer reply = {0};
    tt_status status = TT_OK;
    if (joins && awaits_next(root, hello)) {
        reply = (struct tt_answer){.status = TT_IN_PROGRESS, .again_ms = AGAIN_MS, .failed = true};
    } else if (joins && root->status == TT_OK) {
        if (!root->members) status = begin(root, hello);
        if (status == TT_OK) status = join(root, pending, &report);
        if (status == TT_OK || pending->fd < 0) return status;
    }
    if (!reply.status) reply.status = root->status;
    if (joins && reply.status < 0) note_told(root, hello);
    if (reply.status < 0 && is_of_this_process(hello)) tt_root_answer_all(root); /* it comes last */
    answer(root, pending->fd, hello, &pending->greeting, reply);
    return status;
}

/* A rank that waits for its answer has nothing to say: it can only have gone. One that has it says
 * how its way into the tree ended. */
static tt_status on_watched(void *context, int tag)
{
    struct tt_root *root = context;
    struct tt_member *member = &root->members[tag];
    const struct tt_hello *hello = &member->hello;
    struct tt_report report = {0};
    if (member->fd < 0) return TT_OK;
    if (member->state == TT_MEMBER_WAITING)
        return tt_root_fail(root, TT_ERR_REMOTE,
                            "rank %d (pid %d on %s) left before all ranks had come", hello->rank,
                            hello->pid, hello->host);
    if (receive_report(member->fd, &report))
        return tt_root_fail(root, TT_ERR_REMOTE,
                            "rank %d (pid %d on %s) left before it had its place among the others",
                            hello->rank, hello->pid, hello->host);
    if (report.status == TT_OK) {
        let_go(root, member);
        return TT_OK;
    }
    return tt_root_fail(root, report.status < 0 ? report.status : TT_ERR_REMOTE, "%s", report.text);
}

const struct tt_acceptor_events tt_root_events = {.on_hello = on_hello, .on_watched = on_watched};
