/* Finds the root of a unique id, reports to it, and waits for its answer. */
#include <errno.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/config.h"
#include "base/log.h"
#include "base/private_fd.h"
#include "bootstrap/joining.h"
#include "bootstrap/root.h"
#include "net/interface.h"

enum {
    ROOT_GRACE_MS = 2000, /* the root keeps the deadline and knows who is missing: let it say so */
    FIRST_PAUSE_US = 500,
    PROBE_MS = 2000, /* for a root to say that it is this job's */
    ROUTE_MS = 5000, /* for a host without a route to the root to get one */
    TELL_MS = 1000,  /* for the root to come, when it is to be told of a failure */
    MOST_OF_ERROR = TT_WIRE_TEXT - 160, /* beside the rank's name */
};

void tt_joining_pause(int64_t us)
{
    const struct timespec time = {.tv_sec = us / 1000000, .tv_nsec = us % 1000000 * 1000};
    nanosleep(&time, NULL);
}

void tt_joining_await(struct tt_joining *joining, int fd, int64_t deadline_ns,
                      void (*say)(struct tt_joining *joining, const struct tt_notice *notice))
{
    struct tt_notice notice = tt_notice_begin();
    while (tt_socket_await(fd, tt_earlier(deadline_ns, notice.next_ns)) == ETIMEDOUT) {
        if (tt_expired(deadline_ns)) return;
        if (tt_notice_is_due(&notice)) say(joining, &notice);
    }
}

void tt_joining_count_handshake(struct tt_bootstrap *bootstrap)
{
    bootstrap->counts.connections++;
    bootstrap->counts.messages += 3;
    bootstrap->counts.nbytes +=
        sizeof(struct tt_greeting) + sizeof(struct tt_hello) + sizeof(struct tt_answer);
}

void tt_joining_leave_root(struct tt_joining *joining)
{
    if (joining->root_fd >= 0) tt_private_fd_close(joining->root_fd);
    joining->root_fd = -1;
}

/* Whether TUTTI_SOCKET_INTERFACE allows this address, at which the root has been reached. */
static tt_status may_use(const struct tt_address *address, bool *allowed)
{
    struct tt_interfaces interfaces;
    char own[TT_ADDRESS_TEXT], chosen[TT_ADDRESS_TEXT];
    TT_TRY(tt_interfaces_choose(&interfaces));
    tt_address_host(address, own);
    *allowed = false;
    for (int i = 0; i < interfaces.number; i++)
        *allowed |= !strcmp(own, tt_address_host(&interfaces.chosen[i].address, chosen));
    return TT_OK;
}

/* Opens this rank's own listener, at the address by which it reaches the root, if it may. */
static tt_status open_listener(struct tt_joining *joining)
{
    if (joining->bootstrap->nchildren == 0 || joining->listener >= 0) return TT_OK;
    struct tt_address mine;
    bool allowed = true;
    const int error = tt_socket_own(joining->root_fd, &mine);
    if (error) return tt_fail_errno(error, "bootstrap: cannot tell the address of this host");
    tt_address_set_port(&mine, 0);
    if (tt_config_string(TT_CONFIG_SOCKET_INTERFACE)[0]) TT_TRY(may_use(&mine, &allowed));
    if (!allowed) TT_TRY(tt_address_of_host(&mine));
    TT_TRY(tt_socket_listen(&joining->listener, &mine, !(joining->id->flags & TT_ID_LOCAL)));
    joining->mine = mine;
    return TT_OK;
}

/* ---- What is said when there is no root ------------------------------------------------------ */

static const char *loopback_hint(const struct tt_joining *joining)
{
    if (joining->bootstrap->rank == 0 || !tt_address_is_loopback(&joining->root)) return "";
    return " (a loopback address is another one on every host: with several hosts, MASTER_ADDR or "
           "tcp:// must give the address by which the others reach rank 0's; see /etc/hosts)";
}

static tt_status fail_to_reach_root(const struct tt_joining *joining, enum tt_attempt attempt,
                                    const char *why)
{
    char text[TT_ADDRESS_TEXT];
    const int rank = joining->bootstrap->rank;
    const bool awaited = joining->id->flags & TT_ID_AWAIT && !joining->known;
    const char *hint = loopback_hint(joining);
    char cause[TT_WIRE_TEXT];
    const tt_status failure =
        attempt == TT_ATTEMPT_EARLY ? tt_root_cause(joining->id, cause) : TT_OK;
    if (failure) return tt_fail(failure, "rank %d: %s", rank, cause);
    tt_address_format(&joining->root, text);
    if (attempt == TT_ATTEMPT_EARLY && awaited)
        return tt_fail(TT_ERR_TIMEOUT,
                       "rank %d found no root at %s, where rank 0 listens, before the init "
                       "deadline (TUTTI_INIT_TIMEOUT_MS): %s; rank 0 has not come, or its init has "
                       "failed, of which its own error says more%s",
                       rank, text, why, hint);
    if (attempt == TT_ATTEMPT_LATE || attempt == TT_ATTEMPT_BUSY)
        return tt_fail(
            TT_ERR_TIMEOUT,
            "rank %d found no root at %s, where rank 0 listens, before the init deadline "
            "(TUTTI_INIT_TIMEOUT_MS): %s%s",
            rank, text, why, hint);
    if (attempt == TT_ATTEMPT_EARLY)
        return tt_fail(TT_ERR_REMOTE,
                       "rank %d: %s; the root of this unique id has gone (all its ranks have come, "
                       "init failed, or the process that made it ended), or no way leads there "
                       "(TUTTI_SOCKET_INTERFACE of that process names another interface)",
                       rank, why);
    if (attempt == TT_ATTEMPT_NO_ROUTE)
        return tt_fail(TT_ERR_SYSTEM,
                       "rank %d has no way to %s, where rank 0 listens: %s; is the interface up "
                       "(ip route get), and the address right?",
                       rank, text, why);
    return tt_fail(TT_ERR_REMOTE, "rank %d cannot join at %s, where rank 0 listens: %s%s", rank,
                   text, why, hint);
}

/* ---- Waiting for the root ---------------------------------------------------------------------
 */

/* How long and how often a rank tries. */
struct patience {
    int64_t until_ns; /* the deadline */
    struct tt_notice notice;
    int64_t route_ns; /* then a host without a route there gives up */
    int64_t pause_us;
};

static struct patience patience_until(int64_t until_ns)
{
    return (struct patience){.until_ns = until_ns,
                             .notice = tt_notice_begin(),
                             .route_ns = tt_deadline_ns(ROUTE_MS),
                             .pause_us = FIRST_PAUSE_US};
}

/* Sleeps before the next attempt. False: the deadline has passed. */
static bool go_on(struct patience *patience)
{
    tt_joining_pause(patience->pause_us);
    patience->pause_us = tt_earlier(patience->pause_us + patience->pause_us / 4, TT_PAUSE_US);
    return !tt_expired(patience->until_ns);
}

/* Receives the greeting of the root on its connection `fd`; where the rank takes any root, `id`
 * gets its sequence. Closes fd when it is not OK. */
static enum tt_attempt meet_root(const struct tt_joining *joining, int fd,
                                 struct tt_greeting *greeting, struct tt_unique_id *id,
                                 int64_t until_ns, char why[TT_WIRE_TEXT])
{
    const uint64_t *expected = joining->takes_any ? NULL : &id->sequence;
    const enum tt_attempt attempt =
        tt_handshake_meet(fd, greeting, &joining->root, expected, until_ns, why);
    if (attempt == TT_ATTEMPT_OK && joining->takes_any) tt_id_set_sequence(id, greeting->sequence);
    return attempt;
}

/* Connects to the root, and meets it; *fd is the caller's when it is OK, else -1. */
static enum tt_attempt call_root(const struct tt_joining *joining, int *fd,
                                 struct tt_greeting *greeting, struct tt_unique_id *id,
                                 int64_t until_ns, char why[TT_WIRE_TEXT])
{
    int opened;
    *fd = -1;
    enum tt_attempt attempt = tt_handshake_connect(&opened, &joining->root, until_ns, why);
    if (attempt == TT_ATTEMPT_OK) attempt = meet_root(joining, opened, greeting, id, until_ns, why);
    if (attempt == TT_ATTEMPT_OK) *fd = opened;
    return attempt;
}

/* Whether the root that listens at joining->root is that of this job. */
static enum tt_attempt probe_root(const struct tt_joining *joining, char why[TT_WIRE_TEXT])
{
    struct tt_unique_id id = *joining->id;
    struct tt_greeting greeting;
    struct tt_hello hello;
    struct tt_answer answer;
    const int64_t deadline_ns = tt_earlier(joining->deadline_ns, tt_deadline_ns(PROBE_MS));
    int fd;
    enum tt_attempt attempt = call_root(joining, &fd, &greeting, &id, deadline_ns, why);
    if (attempt == TT_ATTEMPT_OK) {
        tt_hello_fill(&hello, TT_HELLO_PROBE, -1, -1);
        attempt = tt_handshake_finish(fd, &greeting, &hello, &answer, id.key, deadline_ns, why);
        if (attempt == TT_ATTEMPT_OK) tt_private_fd_close(fd);
    }
    sodium_memzero(&id, sizeof id);
    return attempt;
}

/* One look at each port. OK: joining->root is the root. Else what the ports had in common, or the
 * most telling of what they had: `why`. */
static enum tt_attempt probe_ports(struct tt_joining *joining, int port, int nports,
                                   char why[TT_WIRE_TEXT])
{
    enum tt_attempt found = TT_ATTEMPT_NO_ROUTE;
    for (int i = 0; i < nports; i++) {
        char here[TT_WIRE_TEXT];
        tt_address_set_port(&joining->root, port + i);
        const enum tt_attempt attempt = probe_root(joining, here);
        if (attempt == TT_ATTEMPT_OK) return attempt;
        /* Who listens says more than who does not. */
        if (i == 0 || attempt == TT_ATTEMPT_BAD) memcpy(why, here, TT_WIRE_TEXT);
        if (attempt != TT_ATTEMPT_NO_ROUTE) found = TT_ATTEMPT_EARLY;
    }
    return found;
}

/* Finds the port at which the root listens, where it may be one of several: others may belong to
 * other jobs and programs, so each is asked until one proves the job's key. */
static tt_status find_root(struct tt_joining *joining)
{
    const int port = joining->port, nports = (int)joining->id->nports;
    struct patience patience = patience_until(joining->deadline_ns);
    char cause[TT_WIRE_TEXT] = "", host[TT_ADDRESS_TEXT];
    if (nports < 2) return TT_OK;
    do {
        char why[TT_WIRE_TEXT];
        const enum tt_attempt attempt = probe_ports(joining, port, nports, why);
        if (attempt == TT_ATTEMPT_OK) return TT_OK;
        /* Attempts that the deadline ended have a less precise cause than those before them. */
        if (!cause[0] || !tt_expired(joining->deadline_ns)) memcpy(cause, why, sizeof cause);
        if (attempt == TT_ATTEMPT_NO_ROUTE && tt_expired(patience.route_ns))
            return fail_to_reach_root(joining, attempt, cause);
        if (tt_notice_is_due(&patience.notice))
            TT_WARN("bootstrap: rank %d still waits for rank 0 at ports %d to %d: %s",
                    joining->bootstrap->rank, port, port + nports - 1, cause);
    } while (go_on(&patience));
    return tt_fail(TT_ERR_TIMEOUT,
                   "rank %d found no root at %s at ports %d to %d, of which rank 0 takes the first "
                   "that is free, before the init deadline (TUTTI_INIT_TIMEOUT_MS): %s%s",
                   joining->bootstrap->rank, tt_address_host(&joining->root, host), port,
                   port + nports - 1, cause, loopback_hint(joining));
}

/* The root names the ranks that have not come, unless its process does nothing: then this rank says
 * that. */
static void say_root_is_silent(struct tt_joining *joining, const struct tt_notice *notice)
{
    char why[TT_WIRE_TEXT], where[TT_ADDRESS_TEXT];
    const bool serves = probe_root(joining, why) == TT_ATTEMPT_OK;
    const bool has_answered = tt_socket_await(joining->root_fd, tt_now_ns()) == 0;
    if (serves || has_answered) return;
    TT_WARN("bootstrap: rank %d still waits after %lld s for the process at %s, at which the ranks "
            "meet, and which does not answer: %s",
            joining->bootstrap->rank, tt_notice_waited_s(notice),
            tt_address_format(&joining->root, where), why);
}

/* Connects to the root, whose greeting is waited for as long as the init may take where it has no
 * deadline: the process that made the id may be stopped. What listens at an address that the ranks
 * know without an id may be another program. */
static enum tt_attempt open_root(struct tt_joining *joining, int64_t until_ns,
                                 char why[TT_WIRE_TEXT])
{
    const enum tt_attempt attempt =
        tt_handshake_connect(&joining->root_fd, &joining->root, until_ns, why);
    if (attempt != TT_ATTEMPT_OK) return attempt;
    if (until_ns == INT64_MAX && !(joining->id->flags & TT_ID_AWAIT))
        tt_joining_await(joining, joining->root_fd, until_ns, say_root_is_silent);
    const enum tt_attempt met =
        meet_root(joining, joining->root_fd, &joining->greeting, joining->id, until_ns, why);
    if (met != TT_ATTEMPT_OK) joining->root_fd = -1; /* closed */
    return met;
}

/* Connects to the root, trying again while it may not be up yet. A root that has asked this rank to
 * come again also answers a little after the deadline. */
static tt_status reach_root(struct tt_joining *joining)
{
    char why[TT_WIRE_TEXT], before[TT_WIRE_TEXT] = "";
    const bool awaited = joining->id->flags & TT_ID_AWAIT && !joining->known;
    const int64_t until_ns =
        joining->known ? tt_later(joining->deadline_ns, ROOT_GRACE_MS) : joining->deadline_ns;
    struct patience patience = patience_until(until_ns);
    enum tt_attempt attempt;
    do {
        attempt = open_root(joining, until_ns, why);
        if (attempt == TT_ATTEMPT_OK) return TT_OK;
        /* An attempt that the deadline ended has a less precise cause than the one before it. */
        if (attempt == TT_ATTEMPT_LATE && before[0])
            return fail_to_reach_root(joining, TT_ATTEMPT_EARLY, before);
        const bool routed = attempt == TT_ATTEMPT_EARLY || !tt_expired(patience.route_ns);
        const bool again = attempt == TT_ATTEMPT_EARLY || attempt == TT_ATTEMPT_NO_ROUTE;
        if (!again || !awaited || !routed) return fail_to_reach_root(joining, attempt, why);
        if (tt_notice_is_due(&patience.notice))
            TT_WARN("bootstrap: rank %d still waits for rank 0: %s", joining->bootstrap->rank, why);
        memcpy(before, why, sizeof before);
    } while (go_on(&patience));
    return fail_to_reach_root(joining, attempt, why);
}

/* ---- Reporting --------------------------------------------------------------------------------
 */

static void fill_hello(struct tt_joining *joining)
{
    const uint64_t self = joining->hello.self;
    tt_hello_fill(&joining->hello, TT_HELLO_JOIN, joining->bootstrap->rank,
                  joining->bootstrap->nranks);
    joining->hello.self = self;
    joining->hello.left_ms = tt_left_ms(joining->deadline_ns);
    joining->hello.address = joining->mine;
}

/* The root has heard of this rank and says that all have come, when the deadline of all is. */
static void take_deadline(struct tt_joining *joining)
{
    const int left_ms = joining->answer.left_ms;
    if (left_ms < 0) return;
    const int64_t of_all_ns = tt_now_ns() + INT64_C(1000000) * left_ms;
    joining->deadline_ns = tt_earlier(joining->deadline_ns, of_all_ns);
}

/* Connects to the root at any of its ports, if that succeeds before the deadline. The root of an id
 * that is not awaited listens before anybody has the id. */
static bool reach_quietly(struct tt_joining *joining, int64_t until_ns)
{
    const int nports = joining->id->nports > 1 ? (int)joining->id->nports : 1;
    struct patience patience = patience_until(until_ns);
    char why[TT_WIRE_TEXT];
    do
        for (int i = 0; i < nports; i++) {
            tt_address_set_port(&joining->root, joining->port + i);
            if (nports > 1 && probe_root(joining, why) != TT_ATTEMPT_OK) continue;
            if (call_root(joining, &joining->root_fd, &joining->greeting, joining->id, until_ns,
                          why) == TT_ATTEMPT_OK)
                return true;
        }
    while (joining->id->flags & TT_ID_AWAIT && go_on(&patience));
    return false;
}

/* The failure of the rank of this hello. */
static struct tt_report report_of(const struct tt_hello *hello, tt_status status)
{
    struct tt_report report = {.status = status, .rank = hello->rank, .nranks = hello->nranks};
    snprintf(report.text, sizeof report.text, "rank %d (pid %d on %s) cannot join: %.*s",
             hello->rank, hello->pid, hello->host, MOST_OF_ERROR, tt_last_error());
    return report;
}

/* A root whose deadline has come names all ranks that are late. */
void tt_joining_tell_own_root(struct tt_joining *joining, tt_status status)
{
    if (status == TT_ERR_TIMEOUT) return;
    fill_hello(joining);
    const struct tt_report report = report_of(&joining->hello, status);
    (void)tt_root_tell(joining->id, &report);
}

/* Tells the root to which the rank is connected. TT_IN_PROGRESS: it is that of another
 * communicator, and will make way. */
static tt_status tell(struct tt_joining *joining, tt_status status, int64_t until_ns)
{
    char why[TT_WIRE_TEXT];
    const uint8_t *key = joining->id->key;
    fill_hello(joining);
    joining->hello.unable = true;
    const struct tt_report report = report_of(&joining->hello, status);
    enum tt_attempt attempt =
        tt_handshake_say(joining->root_fd, &joining->greeting, &joining->hello, key, until_ns, why);
    if (attempt == TT_ATTEMPT_OK) {
        (void)tt_socket_send_now(joining->root_fd, &report, sizeof report);
        attempt = tt_handshake_hear(joining->root_fd, &joining->greeting, &joining->hello,
                                    &joining->answer, key, until_ns, why);
    }
    if (attempt == TT_ATTEMPT_OK) return joining->answer.status;
    joining->root_fd = -1; /* closed */
    return TT_OK;
}

void tt_joining_tell_root(struct tt_joining *joining, tt_status status)
{
    const int64_t until_ns = tt_earlier(joining->deadline_ns, tt_deadline_ns(TELL_MS));
    while ((joining->root_fd >= 0 || reach_quietly(joining, until_ns)) &&
           tell(joining, status, until_ns) == TT_IN_PROGRESS && !tt_expired(until_ns)) {
        tt_joining_leave_root(joining);
        tt_joining_pause(TT_PAUSE_US);
    }
}

void tt_unique_id_fail(const struct tt_unique_id *id, int rank, int nranks, tt_status status)
{
    struct tt_bootstrap place = {.rank = rank, .nranks = nranks};
    struct tt_joining joining = {.bootstrap = &place,
                                 .id = &place.id,
                                 .takes_any = id->flags & TT_ID_UNMET,
                                 .deadline_ns = tt_deadline_ns(TELL_MS),
                                 .root_fd = -1};
    if (!tt_id_has_address(id, &joining.root) || tt_handshake_prepare()) return;
    joining.port = tt_address_port(&joining.root);
    memcpy(&place.id, id, sizeof place.id); /* leaves no copy of the key on the stack */
    randombytes_buf(&joining.hello.self, sizeof joining.hello.self);
    fill_hello(&joining);
    const struct tt_report report = report_of(&joining.hello, status);
    if (!tt_root_tell(id, &report)) tt_joining_tell_root(&joining, status);
    tt_joining_leave_root(&joining);
    sodium_memzero(&place.id, sizeof place.id);
}

/* tt_handshake_finish with the root, which answers when all ranks have come. */
static enum tt_attempt hear_root(struct tt_joining *joining, char why[TT_WIRE_TEXT])
{
    const int64_t until_ns = tt_later(joining->deadline_ns, ROOT_GRACE_MS);
    const uint8_t *key = joining->id->key;
    const enum tt_attempt attempt =
        tt_handshake_say(joining->root_fd, &joining->greeting, &joining->hello, key, until_ns, why);
    if (attempt != TT_ATTEMPT_OK) return attempt;
    tt_joining_await(joining, joining->root_fd, until_ns, say_root_is_silent);
    return tt_handshake_hear(joining->root_fd, &joining->greeting, &joining->hello,
                             &joining->answer, key, until_ns, why);
}

/* One connection to the root, which answers when all ranks have come. TT_IN_PROGRESS: the root asks
 * this rank to connect again in *again_ms. */
static tt_status visit_root(struct tt_joining *joining, int64_t *again_ms)
{
    char why[TT_WIRE_TEXT];
    TT_TRY(reach_root(joining));
    const tt_status able = open_listener(joining);
    if (able != TT_OK) {
        tt_joining_tell_root(joining, able);
        return able;
    }
    fill_hello(joining);
    const enum tt_attempt attempt = hear_root(joining, why);
    if (attempt != TT_ATTEMPT_OK) joining->root_fd = -1; /* closed */
    if (attempt == TT_ATTEMPT_BUSY && !tt_expired(joining->deadline_ns)) {
        *again_ms = TT_PAUSE_US / 1000;
        return TT_IN_PROGRESS;
    }
    if (attempt != TT_ATTEMPT_OK) return fail_to_reach_root(joining, attempt, why);
    tt_joining_count_handshake(joining->bootstrap);
    if (joining->answer.status < 0)
        return tt_fail(joining->answer.status, "%s", joining->answer.text);
    if (joining->answer.status == TT_OK) {
        take_deadline(joining);
        return TT_OK;
    }
    joining->known = !joining->answer.failed; /* else another root will come */
    if (!joining->known && joining->takes_any) joining->id->flags |= TT_ID_UNMET;
    *again_ms = joining->answer.again_ms;
    return TT_IN_PROGRESS;
}

/* Spread, so that the ranks do not all connect again at once; not long beyond the deadline, where
 * the root answers what it knows. */
static void await_next_visit(const struct tt_joining *joining, int64_t again_ms)
{
    const int64_t us = 500 * again_ms + randombytes_uniform((uint32_t)(1000 * again_ms) + 1);
    const int64_t left_us = INT64_C(1000) * tt_left_ms(joining->deadline_ns);
    const int64_t spread_us = (int64_t)randombytes_uniform(1000 * ROOT_GRACE_MS / 4);
    tt_joining_pause(left_us >= 0 ? tt_earlier(us, left_us + spread_us) : us);
}

tt_status tt_joining_show_up(struct tt_joining *joining)
{
    int64_t again_ms = 0;
    tt_status status;
    TT_TRY(find_root(joining));
    while ((status = visit_root(joining, &again_ms)) == TT_IN_PROGRESS) {
        tt_joining_leave_root(joining);
        if (tt_expired(tt_later(joining->deadline_ns, ROOT_GRACE_MS)))
            return tt_fail(TT_ERR_TIMEOUT,
                           "rank %d of %d: not all ranks came before the init deadline "
                           "(TUTTI_INIT_TIMEOUT_MS); the ranks that the root had room for say who "
                           "is missing",
                           joining->bootstrap->rank, joining->bootstrap->nranks);
        await_next_visit(joining, again_ms);
        if (!joining->known) TT_TRY(find_root(joining));
    }
    if (status != TT_OK || !joining->answer.keeps) tt_joining_leave_root(joining);
    return status;
}
