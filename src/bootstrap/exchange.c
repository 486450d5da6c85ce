/* The allgather over the tree.
 *
 * Up: every rank receives its children's subtrees straight into `all`, then sends its own subtree
 * to its parent. Down: the parent sends all of `all`, in pieces, so that a rank passes on the one
 * while the next arrives. A subtree has consecutive ranks on each level:
 *
 *          0               subtree of 1 (drawn with fan-out 2): 1 | 3 4 | 7 8 9 10
 *       1     2
 *      3 4   5 6
 *
 * 2 ceil(log8 n) messages deep. A rank that fails sends the cause to its other neighbours before it
 * returns, so that all ranks name the rank that failed and not their own neighbour.
 *
 * At the deadline all ranks wait for a neighbour, and the one next to the late rank knows who that
 * is. So every rank waits longer than those from which it may hear: on the way up by GRACE_MS for
 * each level below it, on the way down by that for each level of the whole tree and each above it.
 */
#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/uio.h>

#include "base/clock.h"
#include "base/log.h"
#include "bootstrap/notice.h"
#include "bootstrap/tree.h"

#define FRAME_MAGIC 0x54624147u
enum {
    GRACE_MS = 1000, /* for a rank to fail, and for its neighbours to hear of that */
    MAX_NBYTES = 64 * 1024,
    PIECE_BYTES = 256 * 1024,
    MAX_JOBS = TT_TREE_FANOUT + 1,
    PARTS = TT_TREE_LEVELS + 1,
    MAX_LATE = 4, /* late ranks in an error */
};

enum frame_kind { FRAME_UP = 1, FRAME_DOWN, FRAME_FAILED };

struct frame {
    uint32_t magic, kind, sequence;
    uint32_t nbytes; /* of one rank's part; of the text in FRAME_FAILED */
    int32_t status;  /* FRAME_FAILED */
    uint32_t reserved;
};

enum job_kind { JOB_SEND, JOB_RECEIVE, JOB_WATCH };

/* One frame that is being sent to or received from a neighbour. A watched neighbour sends nothing
 * but a failure. */
struct job {
    enum job_kind kind;
    bool done;
    struct tt_neighbour *peer;
    struct frame frame;
    struct iovec parts[PARTS]; /* part 0 is the frame; emptied from the front */
    int part, nparts;
};

/* ---- Failing -------------------------------------------------------------------------------- */

static void tell(const struct tt_bootstrap *bootstrap, const struct tt_neighbour *peer)
{
    if (peer->fd < 0) return;
    if (!peer->midway) {
        struct {
            struct frame frame;
            char text[TT_WIRE_TEXT];
        } message = {.frame = {.magic = FRAME_MAGIC,
                               .kind = FRAME_FAILED,
                               .nbytes = TT_WIRE_TEXT,
                               .status = bootstrap->broken}};
        memcpy(message.text, bootstrap->broken_text, sizeof message.text);
        /* Best effort: a neighbour that cannot be told sees the connection end. */
        (void)tt_socket_send_now(peer->fd, &message, sizeof message);
    }
    shutdown(peer->fd, SHUT_WR);
}

void tt_bootstrap_break(struct tt_bootstrap *bootstrap, tt_status status, const char *text)
{
    snprintf(bootstrap->broken_text, sizeof bootstrap->broken_text, "%s", text);
    bootstrap->broken = status;
    tell(bootstrap, &bootstrap->parent);
    for (int i = 0; i < bootstrap->nchildren; i++) tell(bootstrap, &bootstrap->children[i]);
}

__attribute__((format(printf, 3, 4))) static tt_status give_up(struct tt_bootstrap *bootstrap,
                                                               int status, const char *format, ...)
{
    char text[TT_WIRE_TEXT];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    tt_bootstrap_break(bootstrap, status, text);
    return tt_fail(status, "%s", text);
}

enum { REST_MS = 1000 /* for the rest of a message that has begun */ };

/* The neighbour reports a failure: its text follows the frame. */
static tt_status pass_on(struct tt_bootstrap *bootstrap, const struct job *job)
{
    char text[TT_WIRE_TEXT];
    const int status = job->frame.status < 0 ? job->frame.status : TT_ERR_REMOTE;
    const bool told = job->frame.nbytes == TT_WIRE_TEXT &&
                      !tt_socket_receive(job->peer->fd, text, sizeof text, tt_deadline_ns(REST_MS));
    if (told) text[sizeof text - 1] = '\0';
    return give_up(bootstrap, status, "%s", told ? text : "a rank failed and could not say why");
}

/* The connection has ended; the neighbour may have sent the cause before. */
static tt_status lost(struct tt_bootstrap *bootstrap, struct job *job, int error)
{
    struct tt_neighbour *peer = job->peer;
    struct job reason = {.peer = peer};
    char words[128];
    if (job->kind == JOB_SEND &&
        recv(peer->fd, &reason.frame, sizeof reason.frame, 0) == (ssize_t)sizeof reason.frame &&
        reason.frame.magic == FRAME_MAGIC && reason.frame.kind == FRAME_FAILED)
        return pass_on(bootstrap, &reason);
    const bool closed = !error || error == EPIPE || error == ECONNRESET;
    return give_up(bootstrap, TT_ERR_REMOTE, "rank %d (pid %d on %s) %s%s", peer->rank, peer->pid,
                   peer->host, closed ? "has gone" : "cannot be reached: ",
                   closed ? "" : strerror_r(error, words, sizeof words));
}

static tt_status check_frame(struct tt_bootstrap *bootstrap, const struct job *job,
                             const struct frame *expected)
{
    const struct frame *frame = &job->frame;
    const struct tt_neighbour *peer = job->peer;
    if (frame->magic != FRAME_MAGIC)
        return give_up(bootstrap, TT_ERR_REMOTE, "rank %d (pid %d on %s) sent no bootstrap frame",
                       peer->rank, peer->pid, peer->host);
    if (frame->kind == FRAME_FAILED) return pass_on(bootstrap, job);
    if (job->kind == JOB_WATCH || frame->kind != expected->kind ||
        frame->sequence != expected->sequence)
        return give_up(bootstrap, TT_ERR_USAGE,
                       "rank %d is at allgather %u of its bootstrap, rank %d (pid %d) at %u: all "
                       "ranks must make the same calls",
                       bootstrap->rank, bootstrap->sequence, peer->rank, peer->pid,
                       frame->sequence);
    if (frame->nbytes != expected->nbytes)
        return give_up(bootstrap, TT_ERR_USAGE,
                       "allgather of %u bytes on rank %d, of %u bytes on rank %d (pid %d)",
                       expected->nbytes, bootstrap->rank, frame->nbytes, peer->rank, peer->pid);
    return TT_OK;
}

/* ---- Moving bytes --------------------------------------------------------------------------- */

static void add_part(struct job *job, void *memory, size_t nbytes)
{
    if (nbytes) job->parts[job->nparts++] = (struct iovec){.iov_base = memory, .iov_len = nbytes};
}

static void start_job(struct job *job, enum job_kind kind, struct tt_neighbour *peer)
{
    *job = (struct job){.kind = kind, .peer = peer};
    add_part(job, &job->frame, sizeof job->frame);
}

/* The ranks at and below `rank`, level by level, in `all`. */
static void add_subtree(struct job *job, const struct tt_bootstrap *bootstrap, int rank, void *all,
                        size_t nbytes)
{
    int64_t first = rank, count = 1;
    while (first < bootstrap->nranks) {
        const int64_t left = bootstrap->nranks - first;
        const int64_t here = count < left ? count : left;
        add_part(job, (char *)all + (size_t)first * nbytes, (size_t)here * nbytes);
        first = TT_TREE_FANOUT * first + 1;
        count *= TT_TREE_FANOUT;
    }
}

static void advance(struct job *job, size_t nbytes)
{
    while (job->part < job->nparts && nbytes >= job->parts[job->part].iov_len) {
        nbytes -= job->parts[job->part].iov_len;
        job->part++;
    }
    if (job->part == job->nparts) {
        job->done = true;
        return;
    }
    struct iovec *part = &job->parts[job->part];
    part->iov_base = (char *)part->iov_base + nbytes;
    part->iov_len -= nbytes;
}

/* Sends or receives as many bytes as the socket takes or has. */
static tt_status step(struct tt_bootstrap *bootstrap, struct job *job, const struct frame *expected)
{
    while (!job->done) {
        const bool heading = job->part == 0;
        struct msghdr message = {.msg_iov = job->parts + job->part,
                                 .msg_iovlen = (size_t)(job->nparts - job->part)};
        ssize_t n;
        if (job->kind == JOB_SEND) {
            n = sendmsg(job->peer->fd, &message, MSG_NOSIGNAL);
        } else {
            if (heading) message.msg_iovlen = 1; /* the rest depends on the frame */
            n = recvmsg(job->peer->fd, &message, 0);
            if (n == 0) return lost(bootstrap, job, 0);
        }
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && errno == EAGAIN) return TT_OK;
        if (n < 0) return lost(bootstrap, job, errno);
        advance(job, (size_t)n);
        bootstrap->counts.nbytes += (size_t)n;
        if (job->kind == JOB_SEND)
            job->peer->midway = !job->done;
        else if (heading && job->part > 0)
            TT_TRY(check_frame(bootstrap, job, expected));
    }
    return TT_OK;
}

tt_status tt_bootstrap_hear_parent(struct tt_bootstrap *bootstrap)
{
    struct job watch = {.kind = JOB_WATCH, .peer = &bootstrap->parent};
    const int error = tt_socket_receive(bootstrap->parent.fd, &watch.frame, sizeof watch.frame,
                                        tt_deadline_ns(REST_MS));
    if (error) return lost(bootstrap, &watch, error);
    bootstrap->counts.nbytes += sizeof watch.frame;
    return check_frame(bootstrap, &watch, NULL);
}

/* "rank 1 (pid 7 on a), rank 2 (pid 8 on b)": with whom the jobs are not done. */
static void name_late(const struct job *jobs, int njobs, char *names, size_t size)
{
    size_t used = 0;
    int nlate = 0;
    for (int i = 0; i < njobs; i++) {
        const struct tt_neighbour *peer = jobs[i].peer;
        if (jobs[i].done || jobs[i].kind == JOB_WATCH || nlate++ >= MAX_LATE) continue;
        used += (size_t)snprintf(names + used, size - used, "%srank %d (pid %d on %s)",
                                 used ? ", " : "", peer->rank, peer->pid, peer->host);
    }
    if (nlate > MAX_LATE) snprintf(names + used, size - used, " and %d more", nlate - MAX_LATE);
}

/* The parent may wait for another rank, of which it says more itself. */
static void say_who_is_late(const struct tt_bootstrap *bootstrap, const struct job *jobs, int njobs,
                            const struct tt_notice *notice)
{
    char names[TT_WIRE_TEXT - 160] = "";
    const bool above = bootstrap->rank > 0 && jobs[0].peer == &bootstrap->parent;
    name_late(jobs, njobs, names, sizeof names);
    TT_WARN(
        "bootstrap: rank %d still waits after %lld s for %s%s in allgather %u of its bootstrap; "
        "all ranks have come",
        bootstrap->rank, tt_notice_waited_s(notice), names,
        above ? ", or for a rank for which that one waits," : "", bootstrap->sequence);
}

static tt_status late(struct tt_bootstrap *bootstrap, const struct job *jobs, int njobs)
{
    char names[TT_WIRE_TEXT - 160] = "";
    name_late(jobs, njobs, names, sizeof names);
    return give_up(bootstrap, TT_ERR_TIMEOUT,
                   "rank %d waited for %s in allgather %u of its bootstrap until the deadline "
                   "(TUTTI_INIT_TIMEOUT_MS)",
                   bootstrap->rank, names, bootstrap->sequence);
}

/* Runs the jobs together until all but the watches are done. */
static tt_status run(struct tt_bootstrap *bootstrap, struct job *jobs, int njobs,
                     const struct frame *expected, int64_t deadline_ns)
{
    struct tt_notice notice = tt_notice_begin();
    for (;;) {
        struct pollfd entries[MAX_JOBS];
        int left = 0;
        for (int i = 0; i < njobs; i++) {
            TT_TRY(step(bootstrap, &jobs[i], expected));
            const short event = jobs[i].kind == JOB_SEND ? POLLOUT : POLLIN;
            entries[i] =
                (struct pollfd){.fd = jobs[i].done ? -1 : jobs[i].peer->fd, .events = event};
            left += !jobs[i].done && jobs[i].kind != JOB_WATCH;
        }
        if (!left) return TT_OK;
        if (tt_expired(deadline_ns)) return late(bootstrap, jobs, njobs);
        if (tt_notice_is_due(&notice)) say_who_is_late(bootstrap, jobs, njobs, &notice);
        const int64_t next_ns = notice.next_ns < deadline_ns ? notice.next_ns : deadline_ns;
        if (poll(entries, (nfds_t)njobs, tt_left_ms(next_ns)) < 0 && errno != EINTR)
            return give_up(bootstrap, TT_ERR_SYSTEM, "rank %d: poll failed (errno %d)",
                           bootstrap->rank, errno);
    }
}

/* ---- How long a rank waits ------------------------------------------------------------------ */

static int level_of(int rank)
{
    int level = 0;
    for (; rank > 0; rank = tt_tree_parent(rank)) level++;
    return level;
}

static int64_t with_grace(int64_t deadline_ns, int levels)
{
    const int64_t grace_ns = INT64_C(1000000) * GRACE_MS * levels;
    return deadline_ns > INT64_MAX - grace_ns ? INT64_MAX : deadline_ns + grace_ns;
}

/* Until when the rank waits for those below it. */
static int64_t deadline_of_children(const struct tt_bootstrap *bootstrap, int64_t deadline_ns)
{
    const int levels = level_of(bootstrap->nranks - 1) - level_of(bootstrap->rank);
    return with_grace(deadline_ns, levels);
}

/* Until when it waits for its parent. */
static int64_t deadline_of_parent(const struct tt_bootstrap *bootstrap, int64_t deadline_ns)
{
    const int levels = level_of(bootstrap->nranks - 1) + level_of(bootstrap->rank);
    return with_grace(deadline_ns, levels);
}

/* ---- The two halves ------------------------------------------------------------------------- */

static tt_status go_up(struct tt_bootstrap *bootstrap, void *all, size_t nbytes,
                       int64_t deadline_ns)
{
    struct job jobs[MAX_JOBS];
    const bool has_parent = bootstrap->parent.fd >= 0;
    const struct frame frame = {.magic = FRAME_MAGIC,
                                .kind = FRAME_UP,
                                .sequence = bootstrap->sequence,
                                .nbytes = (uint32_t)nbytes};
    for (int i = 0; i < bootstrap->nchildren; i++) {
        start_job(&jobs[i], JOB_RECEIVE, &bootstrap->children[i]);
        add_subtree(&jobs[i], bootstrap, bootstrap->children[i].rank, all, nbytes);
    }
    int njobs = bootstrap->nchildren;
    if (has_parent) start_job(&jobs[njobs++], JOB_WATCH, &bootstrap->parent);
    const int64_t below_ns = deadline_of_children(bootstrap, deadline_ns);
    TT_TRY(run(bootstrap, jobs, njobs, &frame, below_ns));
    if (!has_parent) return TT_OK;
    start_job(&jobs[0], JOB_SEND, &bootstrap->parent);
    jobs[0].frame = frame;
    add_subtree(&jobs[0], bootstrap, bootstrap->rank, all, nbytes);
    return run(bootstrap, jobs, 1, NULL, deadline_of_parent(bootstrap, deadline_ns));
}

/* A piece of `all`, of `length` bytes. */
static tt_status go_down(struct tt_bootstrap *bootstrap, void *piece, size_t length, size_t nbytes,
                         int64_t deadline_ns)
{
    struct job jobs[MAX_JOBS];
    const struct frame frame = {.magic = FRAME_MAGIC,
                                .kind = FRAME_DOWN,
                                .sequence = bootstrap->sequence,
                                .nbytes = (uint32_t)nbytes};
    if (bootstrap->parent.fd >= 0) {
        start_job(&jobs[0], JOB_RECEIVE, &bootstrap->parent);
        add_part(&jobs[0], piece, length);
        for (int i = 0; i < bootstrap->nchildren; i++)
            start_job(&jobs[1 + i], JOB_WATCH, &bootstrap->children[i]);
        const int64_t above_ns = deadline_of_parent(bootstrap, deadline_ns);
        TT_TRY(run(bootstrap, jobs, 1 + bootstrap->nchildren, &frame, above_ns));
    }
    for (int i = 0; i < bootstrap->nchildren; i++) {
        start_job(&jobs[i], JOB_SEND, &bootstrap->children[i]);
        jobs[i].frame = frame;
        add_part(&jobs[i], piece, length);
    }
    const int64_t below_ns = deadline_of_children(bootstrap, deadline_ns);
    return run(bootstrap, jobs, bootstrap->nchildren, NULL, below_ns);
}

tt_status tt_bootstrap_allgather(struct tt_bootstrap *bootstrap, const void *mine, void *all,
                                 size_t nbytes, int64_t deadline_ns)
{
    if (nbytes > MAX_NBYTES)
        return tt_fail(TT_ERR_ARGUMENT, "bootstrap allgather: %zu bytes a rank, at most %d", nbytes,
                       MAX_NBYTES);
    if (bootstrap->broken != TT_OK) return tt_fail(bootstrap->broken, "%s", bootstrap->broken_text);
    if (nbytes) memmove((char *)all + (size_t)bootstrap->rank * nbytes, mine, nbytes);
    TT_TRY(go_up(bootstrap, all, nbytes, deadline_ns));
    const size_t total = nbytes * (size_t)bootstrap->nranks;
    size_t done = 0;
    do {
        const size_t length = total - done < PIECE_BYTES ? total - done : PIECE_BYTES;
        TT_TRY(go_down(bootstrap, (char *)all + done, length, nbytes, deadline_ns));
        done += length;
    } while (done < total);
    bootstrap->sequence++;
    bootstrap->counts.messages +=
        2 * (uint64_t)(bootstrap->nchildren + (bootstrap->parent.fd >= 0));
    return TT_OK;
}
