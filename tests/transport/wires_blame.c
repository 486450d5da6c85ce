/* Who is named when ranks of other hosts are gone: the one that has died or why the communicator
 * has failed, not a rank that left because of that. */
#include "transport/wired.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/sanitizers.h"
#include "shim.h"
#include "transport/reason.h"
#include "transport/tcp/tcp.h"
#include "transport/wires_internal.h"

/* Ranks on hosts of their own whose fabrics have the wires, as those of communicators. */
static bool open_all(struct wired *all, int nranks)
{
    const struct tt_wires_config config = wired_config();
    tt_reason_note("");
    if (!wired_open(all, nranks, &config)) return false;
    for (int r = 0; r < nranks; r++) all->ranks.fabrics[r]->wires = all->wires[r];
    return true;
}

static void close_all(struct wired *all)
{
    for (int r = 0; r < all->ranks.nranks; r++) all->wires[r] = NULL;
    wired_close(all); /* the fabrics end their wires */
}

/* A message on channel 0, so that the two are connected. */
static bool connect_ranks(struct wired *all, int from, int to)
{
    struct tt_link *tx = tt_wires_tx(all->wires[from], to, 0);
    struct tt_link *rx = tt_wires_rx(all->wires[to], from, 0);
    struct tt_message message;
    if (!wired_slot(all, from, to, 0, 4)) return false;
    tx->ops->publish(tx, 4, 1);
    if (!wired_peek(all, from, to, 0, &message)) return false;
    rx->ops->release(rx);
    return true;
}

/* The end of a rank's process: its connections are closed, and nothing more is said. */
static void kill_rank(struct wired *all, int rank)
{
    struct tt_wires *wires = all->wires[rank];
    for (struct tt_wire *wire = wires->first; wire; wire = wire->following)
        for (int i = 0; i < wire->tcp.nopen; i++) shutdown(wire->tcp.sockets[i].fd, SHUT_RDWR);
    tt_acceptor_stop_listening(wires->acceptor);
}

static void *leave(void *fabric)
{
    tt_fabric_disconnect(fabric);
    return NULL;
}

/* Turns of the rank's wait for a message of `peer` until its communicator has failed. */
static const char *failure_of(struct wired *all, int rank, int peer)
{
    struct tt_fabric *fabric = all->ranks.fabrics[rank];
    struct tt_link *rx = tt_wires_rx(all->wires[rank], peer, 1);
    const int64_t deadline_ns = tt_deadline_ns(20000);
    struct tt_message message;
    while (rx->ops->peek(rx, &message) == TT_IN_PROGRESS && tt_fabric_check(fabric) == TT_OK &&
           tt_fabric_check_peers(fabric, 0, peer, false) == TT_OK && !tt_expired(deadline_ns)) {
        if (tt_wires_progress(all->wires[rank]) < 0) break;
        tt_wires_wait(all->wires[rank], 1000);
    }
    return tt_fabric_failure_text(fabric);
}

static void check_text(const char *text, const char *wanted)
{
    CHECK_MESSAGE(strstr(text, wanted), "'%s' is not in: %s", wanted, text);
}

TEST(wires_blame, a_failed_rank_also_tells_hosts_with_which_nobody_is_connected)
{
    for (int leaver = 0; leaver < 3; leaver += 2) { /* the lower and the higher one dials */
        struct wired all;
        pthread_t thread;
        REQUIRE(open_all(&all, 3));
        REQUIRE(connect_ranks(&all, leaver, 2 - leaver));
        tt_ignore(
            tt_fabric_fail(all.ranks.fabrics[leaver], TT_ERR_REMOTE, "somebody else has died"));
        REQUIRE(!pthread_create(&thread, NULL, leave, all.ranks.fabrics[leaver]));
        check_text(failure_of(&all, 1, leaver), "somebody else has died");
        pthread_join(thread, NULL);
        all.wires[leaver] = NULL;
        check_text(failure_of(&all, 2 - leaver, leaver), "somebody else has died");
        close_all(&all);
    }
}

TEST(wires_blame, a_rank_that_has_died_is_named_before_one_that_has_left)
{
    for (int first = 0; first < 2; first++) { /* whose end is seen first */
        struct wired all;
        REQUIRE(open_all(&all, 3));
        REQUIRE(connect_ranks(&all, 0, 1) && connect_ranks(&all, 2, 1));
        if (first) kill_rank(&all, 2);
        leave(all.ranks.fabrics[0]);
        all.wires[0] = NULL;
        const struct tt_rank_record *left = tt_fabric_record(all.ranks.fabrics[1], 0);
        while (atomic_load(&left->state) != TT_RANK_LEFT)
            REQUIRE(tt_wires_progress(all.wires[1]) >= 0);
        if (!first) {
            CHECK_EQ(tt_fabric_check_peers(all.ranks.fabrics[1], 1, -1, false), TT_OK);
            kill_rank(&all, 2);
        }
        check_text(failure_of(&all, 1, 0), "rank 2 (host ");
        check_text(tt_fabric_failure_text(all.ranks.fabrics[1]), "has died");
        close_all(&all);
    }
}

TEST(wires_blame, a_rank_that_leaves_after_another_failure_says_which)
{
    struct wired all, other;
    char reason[TT_REASON_TEXT];
    REQUIRE(open_all(&other, 2));
    CHECK(!tt_reason_recent(0, reason));
    tt_ignore(tt_fabric_fail(other.ranks.fabrics[0], TT_ERR_REMOTE, "rank 7 has caught fire"));
    close_all(&other);
    REQUIRE(tt_reason_recent(0, reason));
    CHECK_STR(reason, "rank 7 has caught fire");
    REQUIRE(open_all(&all, 3));
    tt_reason_note(reason); /* which opening has forgotten */
    REQUIRE(connect_ranks(&all, 0, 1));
    leave(all.ranks.fabrics[0]);
    all.wires[0] = NULL;
    check_text(failure_of(&all, 1, 0), "rank 0 (host ");
    check_text(tt_fabric_failure_text(all.ranks.fabrics[1]),
               "has left: it destroyed its communicator, after another one of its process had "
               "failed (ranks as numbered there): rank 7 has caught fire");
    close_all(&all);
}

TEST(wires_blame, a_rank_of_the_same_host_gets_the_reason_too)
{
    struct together all;
    const struct tt_fabric_config config = together_config();
    REQUIRE(together_open_on(&all, 2, NULL, &config));
    tt_reason_note("rank 8 has drowned");
    tt_fabric_leave(all.fabrics[0]);
    CHECK_EQ(tt_fabric_check_peers(all.fabrics[1], 1, -1, false), TT_ERR_REMOTE);
    check_text(tt_fabric_failure_text(all.fabrics[1]), "numbered there): rank 8 has drowned");
    together_close(&all);
}

TEST(wires_blame, a_failure_before_a_communicator_was_made_is_no_reason)
{
    struct together all;
    const struct tt_fabric_config config = together_config();
    tt_reason_note("rank 8 has drowned");
    usleep(1); /* the clock goes on */
    REQUIRE(together_open_on(&all, 2, NULL, &config));
    tt_fabric_leave(all.fabrics[0]);
    CHECK_EQ(tt_fabric_check_peers(all.fabrics[1], 1, -1, false), TT_ERR_REMOTE);
    check_text(tt_fabric_failure_text(all.fabrics[1]), "it destroyed its communicator");
    CHECK(!strstr(tt_fabric_failure_text(all.fabrics[1]), "drowned"));
    together_close(&all);
}

TEST(wires_blame, that_a_rank_has_left_is_no_reason)
{
    static const char left[] = "rank 1 (host a, pid 2) has left: it destroyed its communicator";
    char reason[TT_REASON_TEXT], text[512];
    tt_reason_note("");
    tt_reason_note(left);
    CHECK(!tt_reason_recent(0, reason));
    snprintf(text, sizeof text, "rank 3 (host b, pid 4) has died, and %s, after another", left);
    tt_reason_note(text);
    REQUIRE(tt_reason_recent(0, reason));
    CHECK_STR(reason, "rank 3 (host b, pid 4) has died");
    tt_reason_note(left); /* the cause stays */
    REQUIRE(tt_reason_recent(0, reason));
    CHECK_STR(reason, "rank 3 (host b, pid 4) has died");
    tt_reason_note("");
    CHECK(!tt_reason_recent(0, reason));
}

/* Rank 0 of two leaves for the reason that its process knows; rank 1's process notes what it finds.
 */
static void pass_on(const char *expected)
{
    struct together all;
    char reason[TT_REASON_TEXT];
    const struct tt_fabric_config config = together_config();
    REQUIRE(tt_reason_recent(0, reason));
    REQUIRE(together_open_on(&all, 2, NULL, &config));
    tt_reason_note(reason); /* after the communicator was made */
    tt_fabric_leave(all.fabrics[0]);
    tt_reason_note(""); /* the other process knows nothing */
    CHECK_EQ(tt_fabric_check_peers(all.fabrics[1], 1, -1, false), TT_ERR_REMOTE);
    check_text(tt_fabric_failure_text(all.fabrics[1]), expected);
    together_close(&all);
}

TEST(wires_blame, a_cause_survives_any_number_of_communicators)
{
    static const char cause[] = "rank 7 (host a, pid 2) has died",
                      expected[] = "has left: it destroyed its communicator, after another one of "
                                   "its process had failed (ranks as numbered there): rank 7 (host "
                                   "a, pid 2) has died";
    char reason[TT_REASON_TEXT];
    tt_reason_note(cause);
    for (int i = 0; i < 6; i++) {
        pass_on(expected);
        REQUIRE(tt_reason_recent(0, reason));
        CHECK_STR(reason, cause);
    }
    tt_reason_note("");
}

TEST(wires_blame, who_is_refused_by_one_rank_names_all_that_refuse)
{
    struct wired all;
    REQUIRE(open_all(&all, 3));
    kill_rank(&all, 0);
    kill_rank(&all, 2);
    const char *text = failure_of(&all, 1, 2);
    check_text(text, "rank 1 cannot reach rank "); /* whichever of them refused first */
    check_text(text, "rank 0 (host ");
    check_text(text, ", and so has rank ");
    check_text(text, "rank 2 (host ");
    close_all(&all);
}

TEST(wires_blame, who_is_refused_names_a_rank_that_has_died)
{
    struct wired all;
    REQUIRE(open_all(&all, 3));
    REQUIRE(connect_ranks(&all, 0, 1));
    kill_rank(&all, 0);
    leave(all.ranks.fabrics[2]);
    all.wires[2] = NULL;
    const char *text = failure_of(&all, 1, 2);
    check_text(text, "rank 0 (host ");
    check_text(text, "has died");
    check_text(text, "rank 2 (host ");
    close_all(&all);
}

/* Rank 0 has aborted, and waits for its streams: it neither leaves nor reads. */
TEST(wires_blame, an_abort_is_known_at_once_behind_what_was_sent)
{
    struct wired all;
    struct tt_message message;
    REQUIRE(open_all(&all, 2) && connect_ranks(&all, 0, 1));
    struct tt_fabric *fabric = all.ranks.fabrics[1];
    struct tt_link *tx = tt_wires_tx(all.wires[0], 1, 1), *rx = tt_wires_rx(all.wires[1], 0, 1);
    int *slot = wired_slot(&all, 0, 1, 1, sizeof *slot);
    REQUIRE(slot);
    *slot = 77;
    tx->ops->publish(tx, sizeof *slot, 1);
    tt_fabric_abort(all.ranks.fabrics[0], "rank 0 aborted");
    tt_wires_announce(all.wires[0]);
    tt_wires_send_record(all.wires[0]);
    const struct tt_rank_record *seen = tt_fabric_record(fabric, 0);
    const int64_t deadline = tt_deadline_ns(20000);
    while (atomic_load(&seen->state) != TT_RANK_ABORTED && !tt_expired(deadline))
        REQUIRE(tt_wires_progress(all.wires[1]) >= 0);
    CHECK_EQ(atomic_load(&seen->state), TT_RANK_ABORTED);
    REQUIRE(rx->ops->peek(rx, &message) == TT_OK);
    CHECK_EQ(*(const int *)message.data, 77);
    rx->ops->release(rx);
    CHECK_EQ(tt_fabric_check(fabric), TT_OK);
    CHECK_EQ(tt_fabric_check_peers(fabric, 1, -1, false), TT_ERR_REMOTE);
    CHECK_MESSAGE(strstr(tt_last_error(), "rank 0 (host ") && strstr(tt_last_error(), "aborted"),
                  "%s", tt_last_error());
    close_all(&all);
}

/* As when RDMA fails to reach a peer: nobody has waited for the sockets. */
TEST(wires_blame, who_looks_at_the_sockets_of_a_peer_learns_of_its_end)
{
    for (int dies = 0; dies < 2; dies++) {
        struct wired all;
        REQUIRE(open_all(&all, 2) && connect_ranks(&all, 0, 1));
        struct tt_wires *wires = all.wires[1];
        const struct tt_rank_record *seen = tt_fabric_record(all.ranks.fabrics[1], 0);
        const int64_t deadline_ns = tt_deadline_ns(20000);
        if (dies) kill_rank(&all, 0);
        if (!dies) leave(all.ranks.fabrics[0]);
        if (!dies) all.wires[0] = NULL;
        while (!tt_wires_lost(wires) && atomic_load(&seen->state) != TT_RANK_LEFT &&
               !tt_expired(deadline_ns))
            wires->context.events->look(wires, 0);
        CHECK_EQ(tt_wires_lost(wires) != NULL, dies);
        CHECK_EQ(atomic_load(&seen->state) == TT_RANK_LEFT, !dies);
        CHECK_EQ(tt_fabric_check(all.ranks.fabrics[1]), TT_OK);
        close_all(&all);
    }
}

/* Rank 0 has aborted and closed its first socket; rank 1 has read that one only, and needs rank 0.
 */
TEST(wires_blame, an_abort_is_one_also_for_who_has_not_read_all_sockets)
{
    struct wired all;
    uint8_t last[TT_HEAD_BYTES];
    setenv("TUTTI_SOCKETS", "2", 1);
    tt_config_reload();
    REQUIRE(open_all(&all, 2) && connect_ranks(&all, 0, 1));
    struct tt_wire *wire = all.wires[1]->table[0];
    struct tt_tcp *first = &wire->tcp.sockets[0];
    const struct tt_tcp *own = all.wires[0]->table[1]->tcp.sockets;
    REQUIRE(wire->tcp.nopen == 2);
    const size_t nbytes = tt_wire_put_record(all.wires[0], last, TT_RANK_ABORTED);
    for (int i = 1; i >= 0; i--) CHECK_EQ(send(own[i].fd, last, nbytes, MSG_NOSIGNAL), nbytes);
    shutdown(own[0].fd, SHUT_WR);
    const int64_t deadline_ns = tt_deadline_ns(20000);
    while (first->fd >= 0 && !tt_expired(deadline_ns)) tt_ignore(tt_tcp_read(first));
    CHECK_EQ(tt_fabric_check(all.ranks.fabrics[1]), TT_OK);
    CHECK_EQ(tt_wire_missed(wire), TT_ERR_REMOTE);
    check_text(tt_fabric_failure_text(all.ranks.fabrics[1]), "aborted the communicator");
    close_all(&all);
    unsetenv("TUTTI_SOCKETS");
    tt_config_reload();
}

/* How a rank whose kernels reach the others by bridges learns that rank 0 is gone: it waits for no
 * link of that rank, but its checks look. */
static const char *bridged_failure_of(struct wired *all, int rank)
{
    struct tt_fabric *fabric = all->ranks.fabrics[rank];
    const int64_t deadline_ns = tt_deadline_ns(20000);
    fabric->bridged = true;
    while (tt_fabric_check(fabric) == TT_OK && !tt_expired(deadline_ns)) {
        struct tt_message message;
        tt_wires_spare(all->wires[rank], true);
        struct tt_link *rx = tt_wires_rx(all->wires[rank], 0, 1);
        if (rx->ops->peek(rx, &message) == TT_OK) rx->ops->release(rx);
        tt_wires_spare(all->wires[rank], false);
        tt_ignore(tt_wires_progress(all->wires[rank]));
        tt_ignore(tt_fabric_check_peers(fabric, 1, -1, false));
    }
    return tt_fabric_failure_text(fabric);
}

/* unread: messages for the rank that fails, which ends its connection by a reset then. */
static void fail_and_leave(int unread)
{
    struct wired all;
    REQUIRE(open_all(&all, 2));
    REQUIRE(connect_ranks(&all, 0, 1));
    for (int i = 0; i < unread; i++) {
        struct tt_link *tx = tt_wires_tx(all.wires[1], 0, 0);
        REQUIRE(wired_slot(&all, 1, 0, 0, 65536));
        tx->ops->publish(tx, 65536, 1);
    }
    tt_ignore(tt_fabric_fail(all.ranks.fabrics[0], TT_ERR_USAGE, "ranks disagree"));
    leave(all.ranks.fabrics[0]);
    all.wires[0] = NULL;
    check_text(bridged_failure_of(&all, 1), "ranks disagree");
    close_all(&all);
}

TEST(wires_blame, over_bridges_the_failure_of_a_rank_comes_before_its_end)
{
    fail_and_leave(0);
    fail_and_leave(3);
}

/* The wire never stood: its links learn of the end too. */
TEST(wires_blame, a_rank_that_dies_between_two_connections_of_a_wire_is_named)
{
    struct wired all;
    const int64_t deadline_ns = tt_deadline_ns(20000);
    setenv("TUTTI_SOCKETS", "2", 1);
    tt_config_reload();
    REQUIRE(open_all(&all, 2));
    unsetenv("TUTTI_SOCKETS");
    tt_config_reload();
    struct tt_link *tx = tt_wires_tx(all.wires[0], 1, 0);
    CHECK(!tx->ops->slot(tx, 4));
    const struct tt_wire *wire = all.wires[0]->table[1];
    while (!wire->tcp.nopen && !tt_expired(deadline_ns)) REQUIRE(wired_turn(&all));
    REQUIRE(wire->tcp.nopen == 1 && wire->state == TT_WIRE_MAKING);
    kill_rank(&all, 1);
    const char *text = failure_of(&all, 0, 1);
    check_text(text, "rank 1 (host ");
    check_text(text, "has died");
    close_all(&all);
}

/* Rank 0 has dialled rank 1 and waits for its answer, which rank 1 has not made yet. */
static struct tt_wire *dial_rank_1(struct wired *all)
{
    struct tt_link *tx = tt_wires_tx(all->wires[0], 1, 0);
    const int64_t deadline_ns = tt_deadline_ns(20000);
    if (tx->ops->slot(tx, 4)) return NULL;
    struct tt_wire *wire = all->wires[0]->table[1];
    while (wire->dial.state != TT_DIAL_ANSWER && !tt_expired(deadline_ns))
        if (tt_wires_progress(all->wires[1]) < 0 || tt_wires_progress(all->wires[0]) < 0)
            return NULL;
    return wire->dial.state == TT_DIAL_ANSWER ? wire : NULL;
}

static bool answer_rank_0(struct wired *all)
{
    const struct tt_wire *const *wire = (const struct tt_wire *const *)&all->wires[1]->table[0];
    const int64_t deadline_ns = tt_deadline_ns(20000);
    while ((!*wire || !(*wire)->tcp.nopen) && !tt_expired(deadline_ns))
        if (tt_wires_progress(all->wires[1]) < 0) return false;
    return *wire && (*wire)->tcp.nopen;
}

static atomic_int is_held, goes_on;

/* The thread does not run for longer than a failed rank waits when it leaves. */
static void hold(int number)
{
    (void)number;
    atomic_store(&is_held, 1);
    while (!atomic_load(&goes_on)) usleep(1000);
}

TEST(wires_blame, a_failed_rank_that_did_not_run_while_it_was_answered_still_says_why_it_leaves)
{
    enum { BEGINS_US = 200000, WAITED_US = 1200000 };
    struct wired all;
    pthread_t thread;
    if (tt_is_thread_sanitizer()) SKIP("ThreadSanitizer puts signals off");
    REQUIRE(open_all(&all, 2) && dial_rank_1(&all));
    tt_ignore(tt_fabric_fail(all.ranks.fabrics[0], TT_ERR_USAGE, "ranks disagree"));
    REQUIRE(signal(SIGUSR1, hold) != SIG_ERR);
    REQUIRE(!pthread_create(&thread, NULL, leave, all.ranks.fabrics[0]));
    usleep(BEGINS_US); /* it has begun to leave; else this test finds nothing */
    REQUIRE(!pthread_kill(thread, SIGUSR1));
    while (!atomic_load(&is_held)) usleep(1000);
    CHECK(answer_rank_0(&all));
    usleep(WAITED_US);
    atomic_store(&goes_on, 1);
    pthread_join(thread, NULL);
    all.wires[0] = NULL;
    check_text(bridged_failure_of(&all, 1), "ranks disagree");
    close_all(&all);
}

/* Rank 0 has failed and left because rank 1 answered too late. bridged: how rank 1 learns it. */
static void end_before_the_answer(bool bridged)
{
    struct wired all;
    REQUIRE(open_all(&all, 3));
    REQUIRE(connect_ranks(&all, 1, 2));
    struct tt_wire *dialling = dial_rank_1(&all);
    REQUIRE(dialling);
    REQUIRE(answer_rank_0(&all));
    const struct tt_wire *wire = all.wires[1]->table[0];
    shutdown(dialling->dial.fd, SHUT_RDWR);
    kill_rank(&all, 0);
    all.ranks.fabrics[1]->bridged = bridged;
    while (wire->state != TT_WIRE_GONE) REQUIRE(tt_wires_progress(all.wires[1]) >= 0);
    CHECK_EQ(tt_fabric_check_peers(all.ranks.fabrics[1], 1, -1, false), TT_OK);
    CHECK(tt_wires_lost_peer(all.wires[1], 0)); /* who asks learns it at once */
    tt_ignore(tt_fabric_fail(all.ranks.fabrics[2], TT_ERR_USAGE, "ranks disagree"));
    check_text(bridged ? bridged_failure_of(&all, 1) : failure_of(&all, 1, 0), "ranks disagree");
    close_all(&all);
}

TEST(wires_blame, a_connection_that_ended_before_the_peer_knew_of_it_is_no_death_at_once)
{
    end_before_the_answer(false);
    end_before_the_answer(true);
}

/* Nobody says why: the rank is named all the same. */
TEST(wires_blame, a_rank_that_died_before_it_knew_of_a_connection_is_named)
{
    struct wired all;
    REQUIRE(open_all(&all, 2));
    struct tt_wire *dialling = dial_rank_1(&all);
    REQUIRE(dialling);
    REQUIRE(answer_rank_0(&all));
    shutdown(dialling->dial.fd, SHUT_RDWR);
    kill_rank(&all, 0);
    check_text(failure_of(&all, 1, 0), "rank 0 (host ");
    check_text(tt_fabric_failure_text(all.ranks.fabrics[1]), "has died");
    close_all(&all);
}
