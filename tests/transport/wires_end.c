/* How wires end: leaving, deaths, failures, and what strangers and broken peers send. */
#include "transport/wired.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "net/handshake.h"
#include "shim.h"
#include "transport/tcp/tcp.h"
#include "transport/wires_internal.h"

/* Sends one message on channel 0 and receives it. */
static bool say(struct wired *all, int from, int to, int value)
{
    struct tt_link *tx = tt_wires_tx(all->wires[from], to, 0);
    struct tt_link *rx = tt_wires_rx(all->wires[to], from, 0);
    struct tt_message message;
    int *slot = wired_slot(all, from, to, 0, sizeof *slot);
    if (!slot) return false;
    *slot = value;
    tx->ops->publish(tx, sizeof *slot, 1);
    if (!wired_peek(all, from, to, 0, &message)) return false;
    const bool right = !memcmp(message.data, &value, sizeof value);
    rx->ops->release(rx);
    return right;
}

/* Turns of one rank's wait loop until its communicator has failed. */
static const char *failure_of(struct wired *all, int rank)
{
    struct tt_fabric *fabric = all->ranks.fabrics[rank];
    const int64_t deadline = tt_deadline_ns(20000);
    while (tt_wires_progress(all->wires[rank]) >= 0 && tt_fabric_check(fabric) == TT_OK &&
           !tt_expired(deadline))
        tt_wires_wait(all->wires[rank], 1000);
    return tt_fabric_failure_text(fabric);
}

static struct tt_wire *wire_between(struct wired *all, int rank, int peer)
{
    return all->wires[rank]->table[peer];
}

TEST(wires_end, a_rank_that_left_is_known_and_what_it_sent_is_read)
{
    struct wired all;
    const struct tt_wires_config config = wired_config();
    REQUIRE(wired_open(&all, 2, &config));
    REQUIRE(say(&all, 0, 1, 5));
    for (int i = 0; i < 3;
         i++) { /* the reader also has credits to return when the writer has gone */
        struct tt_link *tx = tt_wires_tx(all.wires[0], 1, 1);
        void *slot = wired_slot(&all, 0, 1, 1, 20000);
        REQUIRE(slot);
        wired_fill(slot, 20000, (unsigned)i);
        tx->ops->publish(tx, 20000, 1);
    }
    tt_wires_destroy(all.wires[0]);
    all.wires[0] = NULL;
    struct tt_link *rx = tt_wires_rx(all.wires[1], 0, 1);
    for (int i = 0; i < 3; i++) {
        struct tt_message message;
        tt_status status;
        while ((status = rx->ops->peek(rx, &message)) == TT_IN_PROGRESS) {
        }
        REQUIRE(status == TT_OK);
        CHECK(wired_matches(message.data, 20000, (unsigned)i));
        rx->ops->release(rx);
    }
    const struct tt_rank_record *seen = tt_fabric_record(all.ranks.fabrics[1], 0);
    while (atomic_load(&seen->state) != TT_RANK_LEFT) REQUIRE(tt_wires_progress(all.wires[1]) >= 0);
    for (int i = 0; i < 10; i++) REQUIRE(tt_wires_progress(all.wires[1]) >= 0);
    CHECK_EQ(tt_fabric_check(all.ranks.fabrics[1]), TT_OK);
    wired_close(&all);
}

/* A peer that ends without a last record: what it sent before is read, then waiting for more fails.
 */
static void end_connection(bool reset, bool to_send)
{
    struct wired all;
    const struct tt_wires_config config = wired_config();
    REQUIRE(wired_open(&all, 2, &config));
    REQUIRE(say(&all, 0, 1, 5));
    struct tt_link *tx = tt_wires_tx(all.wires[0], 1, 1);
    int *slot = wired_slot(&all, 0, 1, 1, sizeof *slot);
    REQUIRE(slot);
    *slot = 77;
    tx->ops->publish(tx, sizeof *slot, 1);
    struct tt_tcp *tcp = &wire_between(&all, 0, 1)->tcp.sockets[0];
    const struct linger now = {.l_onoff = reset};
    setsockopt(tcp->fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
    tt_tcp_close(tcp);
    while (wire_between(&all, 1, 0)->state != TT_WIRE_GONE)
        REQUIRE(tt_wires_progress(all.wires[1]) >= 0);
    struct tt_link *rx = tt_wires_rx(all.wires[1], 0, 1);
    struct tt_message message;
    REQUIRE(rx->ops->peek(rx, &message) == TT_OK);
    CHECK_EQ(*(const int *)message.data, 77);
    rx->ops->release(rx);
    CHECK(tt_wires_flushed(all.wires[1]));
    REQUIRE(tt_fabric_check(all.ranks.fabrics[1]) == TT_OK);
    struct tt_link *back = tt_wires_tx(all.wires[1], 0, 0);
    if (to_send)
        CHECK(back->ops->slot(back, 4) == NULL);
    else
        CHECK_EQ(rx->ops->peek(rx, &message), TT_ERR_REMOTE);
    const char *text = tt_fabric_failure_text(all.ranks.fabrics[1]);
    CHECK_MESSAGE(strstr(text, "rank 0 (host ") && strstr(text, "has died") &&
                      strstr(text, "over lo") && strstr(text, reset ? "reset" : "closed"),
                  "unexpected: %s", text);
    wired_close(&all);
}

TEST(wires_end, a_connection_that_just_ends_is_a_death_for_who_needs_the_peer)
{
    for (int i = 0; i < 4; i++) end_connection(i & 1, i & 2);
}

TEST(wires_end, a_slot_may_be_published_after_its_peer_has_gone)
{
    struct wired all;
    const struct tt_wires_config config = wired_config();
    REQUIRE(wired_open(&all, 2, &config));
    REQUIRE(say(&all, 0, 1, 5));
    struct tt_link *tx = tt_wires_tx(all.wires[1], 0, 0);
    int *slot = wired_slot(&all, 1, 0, 0, sizeof *slot);
    REQUIRE(slot);
    tt_wires_destroy(all.wires[0]);
    all.wires[0] = NULL;
    while (wire_between(&all, 1, 0)->state != TT_WIRE_GONE)
        REQUIRE(tt_wires_progress(all.wires[1]) >= 0);
    *slot = 1;
    tx->ops->publish(tx, sizeof *slot, 1);
    CHECK(tx->ops->drained(tx) && tx->ops->flushed(tx));
    CHECK_EQ(tt_fabric_check(all.ranks.fabrics[1]), TT_OK);
    CHECK(tx->ops->slot(tx, 4) == NULL); /* this one is needed */
    CHECK(strstr(tt_fabric_failure_text(all.ranks.fabrics[1]), "has left"));
    wired_close(&all);
}

TEST(wires_end, the_last_record_counts_when_it_has_come_over_all_sockets)
{
    struct wired all;
    const struct tt_wires_config config = wired_config();
    uint8_t last[TT_HEAD_BYTES];
    setenv("TUTTI_SOCKETS", "2", 1);
    tt_config_reload();
    REQUIRE(wired_open(&all, 2, &config));
    REQUIRE(say(&all, 0, 1, 5));
    const size_t nbytes = tt_wire_put_record(all.wires[0], last, TT_RANK_LEFT);
    const struct tt_rank_record *seen = tt_fabric_record(all.ranks.fabrics[1], 0);
    for (int i = 0; i < 2; i++) {
        struct tt_tcp *there = &wire_between(&all, 1, 0)->tcp.sockets[i];
        CHECK(atomic_load(&seen->state) != TT_RANK_LEFT);
        CHECK_EQ(send(wire_between(&all, 0, 1)->tcp.sockets[i].fd, last, nbytes, MSG_NOSIGNAL),
                 nbytes);
        while (!there->left) REQUIRE(tt_wires_progress(all.wires[1]) >= 0);
    }
    CHECK_EQ(atomic_load(&seen->state), TT_RANK_LEFT);
    wired_close(&all);
    unsetenv("TUTTI_SOCKETS");
    tt_config_reload();
}

TEST(wires_end, a_handshake_that_took_too_long_is_begun_again)
{
    struct wired all;
    const struct tt_wires_config config = wired_config();
    REQUIRE(wired_open(&all, 2, &config));
    struct tt_link *tx = tt_wires_tx(all.wires[0], 1, 0);
    CHECK(tx->ops->slot(tx, 4) == NULL); /* begins to dial */
    struct tt_dial *dial = &wire_between(&all, 0, 1)->dial;
    struct tt_acceptor *acceptor = all.wires[1]->acceptor;
    while (dial->state != TT_DIAL_GREETING) REQUIRE(tt_wires_progress(all.wires[0]) >= 0);
    while (!acceptor->npending) REQUIRE(tt_wires_progress(all.wires[1]) >= 0);
    acceptor->pending[0].since_ns = INT64_MIN / 2; /* this rank was away for ages */
    dial->deadline_ns = 1;
    while (acceptor->npending) REQUIRE(tt_wires_progress(all.wires[1]) >= 0);
    CHECK(say(&all, 0, 1, 5));
    wired_close(&all);
}

TEST(wires_end, a_failure_reaches_the_other_hosts)
{
    struct wired all;
    const struct tt_wires_config config = wired_config();
    REQUIRE(wired_open(&all, 3, &config));
    REQUIRE(say(&all, 0, 1, 5));
    REQUIRE(say(&all, 0, 2, 6));
    tt_wires_send_failure(all.wires[0], TT_ERR_ARGUMENT, "the count is wrong");
    for (int r = 1; r < 3; r++) {
        CHECK_STR(failure_of(&all, r), "the count is wrong");
        CHECK_EQ(tt_fabric_check(all.ranks.fabrics[r]), TT_ERR_ARGUMENT);
    }
    wired_close(&all);
}

TEST(wires_end, who_is_gone_before_the_wire_was_made_is_an_error_on_both_sides)
{
    for (int gone = 0; gone < 2; gone++) {
        struct wired all;
        const struct tt_wires_config config = wired_config();
        setenv("TUTTI_NET_TIMEOUT_MS", "500", 1);
        tt_config_reload();
        REQUIRE(wired_open(&all, 2, &config));
        tt_wires_destroy(all.wires[gone]);
        all.wires[gone] = NULL;
        struct tt_link *tx = tt_wires_tx(all.wires[!gone], gone, 0);
        CHECK(tx->ops->slot(tx, 4) == NULL);
        const char *text = failure_of(&all, !gone);
        char name[64];
        snprintf(name, sizeof name, "cannot reach rank %d (host ", gone);
        CHECK_MESSAGE(strstr(text, name) && strstr(text, "nothing listens there"), "unexpected: %s",
                      text);
        wired_close(&all);
        unsetenv("TUTTI_NET_TIMEOUT_MS");
        tt_config_reload();
    }
}

TEST(wires_end, ranks_without_a_common_transport_fail_and_do_not_connect_again)
{
    struct wired all;
    struct tt_wires_config config = wired_config();
    config.allowed = 0;
    REQUIRE(wired_open(&all, 2, &config));
    REQUIRE(tt_wire_to(all.wires[0], 1) && tt_wire_to(all.wires[1], 0));
    const int64_t deadline = tt_deadline_ns(20000);
    while (!tt_expired(deadline) && (!tt_fabric_failure_text(all.ranks.fabrics[0])[0] ||
                                     !tt_fabric_failure_text(all.ranks.fabrics[1])[0]))
        for (int r = 0; r < 2; r++) tt_ignore(tt_wires_progress(all.wires[r]));
    for (int r = 0; r < 2; r++) {
        CHECK_EQ(tt_fabric_check(all.ranks.fabrics[r]), TT_ERR_ARGUMENT);
        CHECK(strstr(tt_last_error(), "TUTTI_TRANSPORT allows only none"));
        for (int i = 0; i < tt_ntransports; i++)
            CHECK_MESSAGE(strstr(tt_last_error(), tt_transports[i]->name), "%s is not named: %s",
                          tt_transports[i]->name, tt_last_error());
    }
    for (int turn = 0; turn < 100; turn++) {
        const struct tt_wire *wire = wire_between(&all, turn & 1, !(turn & 1));
        tt_ignore(tt_wires_progress(all.wires[turn & 1]));
        REQUIRE(wire->dial.fd < 0 && wire->tcp.nopen == wire->tcp.nsockets);
    }
    wired_close(&all);
}

/* Whether rank 0, which finds nobody at rank 2's address, still waits for the cause after a while.
 */
static bool waits_for_cause(struct wired *all)
{
    struct tt_link *tx = tt_wires_tx(all->wires[0], 2, 0);
    tt_wires_destroy(all->wires[2]);
    all->wires[2] = NULL;
    CHECK(tx->ops->slot(tx, 4) == NULL);
    struct tt_dial *dial = &wire_between(all, 0, 2)->dial;
    while (!dial->refused_ns && tt_wires_progress(all->wires[0]) >= 0) {
    }
    dial->refused_ns -= 1000000000; /* as if a second had passed */
    const int64_t last_ns = dial->next_ns;
    while (dial->next_ns == last_ns && tt_wires_progress(all->wires[0]) >= 0) {
    }
    return tt_fabric_check(all->ranks.fabrics[0]) == TT_OK;
}

TEST(wires_end, who_finds_a_rank_gone_waits_for_the_cause_while_others_may_tell_it)
{
    for (int connected = 0; connected < 2; connected++) {
        struct wired all;
        const struct tt_wires_config config = wired_config();
        REQUIRE(wired_open(&all, 3, &config));
        if (connected) REQUIRE(say(&all, 0, 1, 5));
        CHECK_EQ(waits_for_cause(&all), connected);
        if (connected) tt_wires_send_failure(all.wires[1], TT_ERR_ARGUMENT, "the count is wrong");
        const char *text = failure_of(&all, 0);
        CHECK_MESSAGE(strstr(text, connected ? "the count is wrong" : "nothing listens there"),
                      "unexpected: %s", text);
        wired_close(&all);
    }
}

static void *leave(void *wires)
{
    tt_wires_destroy(wires);
    return NULL;
}

TEST(wires_end, a_rank_that_leaves_after_a_failure_tells_who_is_being_connected)
{
    for (int i = 0; i < 4; i++) {
        const int gone = i & 1, rest = !gone;
        const bool both = i & 2; /* want the connection, and not only the one that leaves */
        struct wired all;
        pthread_t thread;
        const struct tt_wires_config config = wired_config();
        REQUIRE(wired_open(&all, 2, &config));
        REQUIRE(tt_wire_to(all.wires[gone], rest));
        if (both) REQUIRE(tt_wire_to(all.wires[rest], gone));
        CHECK_EQ(tt_fabric_fail(all.ranks.fabrics[gone], TT_ERR_ARGUMENT, "number %d", 7),
                 TT_ERR_ARGUMENT);
        REQUIRE(!pthread_create(&thread, NULL, leave, all.wires[gone]));
        all.wires[gone] = NULL;
        CHECK_STR(failure_of(&all, rest), "number 7");
        CHECK_EQ(tt_fabric_check(all.ranks.fabrics[rest]), TT_ERR_ARGUMENT);
        pthread_join(thread, NULL);
        wired_close(&all);
    }
}

/* ---- Frames that no rank sends ----------------------------------------------------------------
 */

static void send_raw(struct wired *all, const struct tt_frame *frame)
{
    const int fd = wire_between(all, 0, 1)->tcp.sockets[0].fd;
    CHECK_EQ(send(fd, frame, sizeof *frame, MSG_NOSIGNAL), sizeof *frame);
}

static void expect_refusal(const struct tt_frame *frame, const char *what)
{
    struct wired all;
    const struct tt_wires_config config = wired_config();
    REQUIRE(wired_open(&all, 2, &config));
    REQUIRE(say(&all, 0, 1, 5));
    send_raw(&all, frame);
    const char *text = failure_of(&all, 1);
    CHECK_MESSAGE(strstr(text, what) && strstr(text, "rank 0 (host ") && strstr(text, "over lo"),
                  "unexpected: %s", text);
    wired_close(&all);
}

TEST(wires_end, frames_that_no_rank_sends_are_refused_by_name)
{
    expect_refusal(&(struct tt_frame){.kind = 0}, "frame 0");
    expect_refusal(&(struct tt_frame){.kind = 99}, "frame 99");
    expect_refusal(&(struct tt_frame){.kind = TT_FRAME_DATA, .channel = 3}, "channel 3");
    expect_refusal(&(struct tt_frame){.kind = TT_FRAME_CREDIT, .credits = {{0, 0}, {3, 1}}},
                   "credits of channel 3");
    expect_refusal(&(struct tt_frame){.kind = TT_FRAME_DATA, .number = 1, .nbytes = 65537},
                   "length 65537");
    expect_refusal(&(struct tt_frame){.kind = TT_FRAME_DATA, .number = 5}, "message number 5");
    expect_refusal(&(struct tt_frame){.kind = TT_FRAME_DATA, .number = 0}, "message number 0");
    expect_refusal(&(struct tt_frame){.kind = TT_FRAME_CREDIT, .nbytes = 1}, "length 1");
    expect_refusal(&(struct tt_frame){.kind = TT_FRAME_CREDIT, .credits = {{1, 200}}},
                   "credits 200");
    expect_refusal(&(struct tt_frame){.kind = TT_FRAME_RECORD, .nbytes = 4}, "length 4");
    expect_refusal(&(struct tt_frame){.kind = TT_FRAME_FAILURE, .nbytes = 1u << 31},
                   "length 2147483648");
    expect_refusal(&(struct tt_frame){.kind = TT_FRAME_FAILURE, .number = 4}, "failure code 4");
    expect_refusal(&(struct tt_frame){.kind = TT_FRAME_GONE, .number = 4}, "rank 4");
}

/* More messages than the queue has places for would be written beside it. */
TEST(wires_end, credits_that_are_refused_do_not_count)
{
    struct wired all;
    const struct tt_wires_config config = wired_config();
    REQUIRE(wired_open(&all, 2, &config));
    REQUIRE(say(&all, 0, 1, 5));
    send_raw(&all, &(struct tt_frame){.kind = TT_FRAME_CREDIT, .credits = {{1, 200}}});
    CHECK(strstr(failure_of(&all, 1), "credits 200"));
    struct tt_link *tx = tt_wires_tx(all.wires[1], 0, 1);
    size_t n = 0;
    for (; n <= config.nslots && tx->ops->slot(tx, 4); n++) tx->ops->publish(tx, 4, 1);
    CHECK_EQ(n, config.nslots);
    wired_close(&all);
}

/* Credits for messages that are not sent yet: the queue of the connection is full at some time. */
TEST(wires_end, credits_for_what_was_not_sent_are_refused)
{
    struct wired all;
    const int least = 1;
    const struct tt_wires_config config = wired_config();
    const uint8_t n = (uint8_t)config.nslots;
    REQUIRE(wired_open(&all, 2, &config));
    REQUIRE(say(&all, 0, 1, 5));
    setsockopt(wire_between(&all, 1, 0)->tcp.sockets[0].fd, SOL_SOCKET, SO_SNDBUF, &least,
               sizeof least);
    struct tt_link *tx = tt_wires_tx(all.wires[1], 0, 1);
    for (int i = 0; i < 300 && tt_fabric_check(all.ranks.fabrics[1]) == TT_OK; i++) {
        while (tt_fabric_check(all.ranks.fabrics[1]) == TT_OK && tx->ops->slot(tx, 65536))
            tx->ops->publish(tx, 65536, 1);
        send_raw(&all, &(struct tt_frame){.kind = TT_FRAME_CREDIT, .credits = {{1, n}}});
    }
    CHECK(strstr(tt_fabric_failure_text(all.ranks.fabrics[1]), "credits, in all"));
    wired_close(&all);
}

/* The hint was given before the ranks agreed on another transport, and the buffer may be gone. */
TEST(wires_end, data_over_the_sockets_is_refused_where_another_transport_carries_it)
{
    struct wired all;
    char buffer[4] = "old";
    const struct tt_wires_config config = wired_config();
    const struct tt_transport other = tt_tcp_transport;
    REQUIRE(wired_open(&all, 2, &config));
    REQUIRE(say(&all, 0, 1, 5));
    struct tt_link *rx = tt_wires_rx(all.wires[1], 0, 1);
    rx->ops->expect(rx, buffer, sizeof buffer, 9);
    struct tt_wire *wire = wire_between(&all, 1, 0);
    wire->room = &other;
    wire->is_settled = false;
    tt_wire_handles_settle(wire);
    send_raw(&all,
             &(struct tt_frame){.kind = TT_FRAME_DATA, .channel = 1, .nbytes = 4, .signature = 9});
    CHECK_EQ(send(wire_between(&all, 0, 1)->tcp.sockets[0].fd, "new", 4, MSG_NOSIGNAL), 4);
    CHECK(strstr(failure_of(&all, 1), "frame 1"));
    CHECK_STR(buffer, "old");
    wired_close(&all);
}

TEST(wires_end, all_that_leave_at_once_are_known_before_other_transports_are_driven)
{
    struct wired all;
    const struct tt_wires_config config = wired_config();
    setenv("TUTTI_SOCKETS", "3", 1);
    tt_config_reload();
    REQUIRE(wired_open(&all, TOGETHER_MAX, &config));
    for (int r = 1; r < TOGETHER_MAX; r++) REQUIRE(say(&all, 0, r, 5));
    for (int r = 1; r < TOGETHER_MAX; r++) tt_wires_leave(all.wires[r]);
    tt_ignore(tt_wires_progress(all.wires[0]));
    for (int r = 1; r < TOGETHER_MAX; r++)
        CHECK_EQ(atomic_load(&tt_fabric_record(all.ranks.fabrics[0], r)->state), TT_RANK_LEFT);
    wired_close(&all);
    unsetenv("TUTTI_SOCKETS");
    tt_config_reload();
}

TEST(wires_end, a_message_sent_twice_is_refused)
{
    struct wired all;
    const struct tt_wires_config config = wired_config();
    REQUIRE(wired_open(&all, 2, &config));
    REQUIRE(say(&all, 0, 1, 5));
    const struct tt_frame frame = {.kind = TT_FRAME_DATA, .number = 1};
    send_raw(&all, &frame);
    send_raw(&all, &frame);
    CHECK(strstr(failure_of(&all, 1), "message number 1"));
    wired_close(&all);
}

TEST(wires_end, a_rank_whose_wires_all_stand_does_not_listen_any_more)
{
    struct wired all;
    const struct tt_wires_config config = wired_config();
    REQUIRE(wired_open(&all, 3, &config));
    REQUIRE(say(&all, 0, 1, 5) && say(&all, 1, 0, 6));
    for (int r = 0; r < 3; r++) CHECK(all.wires[r]->acceptor->listener >= 0);
    REQUIRE(say(&all, 1, 2, 7));
    CHECK(all.wires[0]->acceptor->listener >= 0 && all.wires[2]->acceptor->listener >= 0);
    CHECK_EQ(all.wires[1]->acceptor->listener, -1);
    REQUIRE(say(&all, 2, 0, 8));
    for (int r = 0; r < 3; r++) CHECK_EQ(all.wires[r]->acceptor->listener, -1);
    REQUIRE(say(&all, 0, 1, 9) && say(&all, 2, 1, 10));
    wired_close(&all);
}

/* ---- Strangers ------------------------------------------------------------------------------ */

static int connect_to(const struct tt_wires_info *info)
{
    int fd;
    return tt_socket_connect(&fd, &info->loopback, tt_deadline_ns(5000)) ? -1 : fd;
}

/* A turn for each rank until the other end has closed. */
static bool is_turned_away(struct wired *all, int fd)
{
    char byte[2000];
    const int64_t deadline = tt_deadline_ns(20000);
    while (!tt_expired(deadline)) {
        const ssize_t n = recv(fd, byte, sizeof byte, MSG_DONTWAIT);
        if (n == 0 || (n < 0 && errno == ECONNRESET)) return true;
        if (!wired_turn(all)) return false;
    }
    return false;
}

TEST(wires_end, strangers_at_the_listener_change_nothing)
{
    struct wired all;
    const struct tt_wires_config config = wired_config();
    static char garbage[5000];
    REQUIRE(wired_open(&all, 2, &config));
    memset(garbage, 'x', sizeof garbage);
    const int loud = connect_to(&all.infos[1]), silent = connect_to(&all.infos[1]);
    REQUIRE(loud >= 0 && silent >= 0);
    CHECK_EQ(send(loud, garbage, sizeof garbage, MSG_NOSIGNAL), sizeof garbage);
    CHECK(say(&all, 0, 1, 5));
    CHECK(is_turned_away(&all, loud));
    CHECK(say(&all, 1, 0, 6));
    close(loud);
    close(silent);
    wired_close(&all);
}

/* A hello with another key, or a right one that does not belong here. */
static void greet_and_say(struct wired *all, const uint8_t key[32], int rank,
                          enum tt_hello_kind kind)
{
    struct tt_greeting greeting;
    struct tt_hello hello;
    const int fd = connect_to(&all->infos[1]);
    REQUIRE(fd >= 0);
    for (size_t n = 0; n < sizeof greeting;) {
        const ssize_t more = recv(fd, (char *)&greeting + n, sizeof greeting - n, MSG_DONTWAIT);
        if (more > 0) n += (size_t)more;
        REQUIRE(wired_turn(all));
    }
    tt_hello_fill(&hello, kind, rank, all->ranks.nranks);
    hello.to = 1;
    tt_hello_sign(&hello, &greeting, key);
    CHECK_EQ(tt_socket_send_now(fd, &hello, sizeof hello), 0);
    CHECK(is_turned_away(all, fd));
    close(fd);
}

TEST(wires_end, who_does_not_belong_here_is_turned_away)
{
    struct wired all;
    const struct tt_wires_config config = wired_config();
    const uint8_t foreign[32] = {9};
    REQUIRE(wired_open(&all, 3, &config)); /* rank 1 still expects rank 2 */
    greet_and_say(&all, foreign, 0, TT_HELLO_LINK);
    greet_and_say(&all, config.key, 1, TT_HELLO_LINK);
    greet_and_say(&all, config.key, 7, TT_HELLO_LINK);
    greet_and_say(&all, config.key, -1, TT_HELLO_LINK);
    greet_and_say(&all, config.key, 0, TT_HELLO_JOIN);
    CHECK(say(&all, 0, 1, 5));
    greet_and_say(&all, config.key, 0, TT_HELLO_LINK); /* joined already */
    CHECK(say(&all, 0, 1, 6));
    wired_close(&all);
}

/* Who is on the way between hosts needs no key to lead a connection to another rank. */
TEST(wires_end, a_rank_that_is_not_meant_refuses_the_connection)
{
    for (int lower = 0; lower < 2; lower++) { /* LINK, PROBE */
        struct wired all;
        const struct tt_wires_config config = wired_config();
        REQUIRE(wired_open(&all, 3, &config));
        const int from = lower ? 2 : 0, meant = 1, other = lower ? 0 : 2;
        struct tt_wires_info *infos = all.wires[from]->infos;
        infos[meant].loopback = infos[other].loopback;
        struct tt_link *tx = tt_wires_tx(all.wires[from], meant, 0);
        const int64_t deadline = tt_deadline_ns(20000);
        while (!tx->ops->slot(tx, 4) && !tt_fabric_failure_text(all.ranks.fabrics[from])[0] &&
               !tt_expired(deadline))
            REQUIRE(tt_wires_progress(all.wires[other]) >= 0);
        const char *text = tt_fabric_failure_text(all.ranks.fabrics[from]);
        CHECK_MESSAGE(strstr(text, "cannot reach rank 1 (host ") && strstr(text, "another rank"),
                      "unexpected: %s", text);
        CHECK(!wire_between(&all, other, from));
        wired_close(&all);
    }
}

static tt_status start_again(struct wired *all, const struct tt_wires_info *infos)
{
    free(all->wires[0]->infos);
    free(all->wires[0]->links);
    free(all->wires[0]->table);
    return tt_fabric_start_wires(all->ranks.fabrics[0], all->wires[0], infos);
}

TEST(wires_end, what_ranks_tell_each_other_is_checked)
{
    struct wired all;
    const struct tt_wires_config config = wired_config();
    REQUIRE(wired_open(&all, 2, &config));
    struct tt_wires_info infos[2];
    memcpy(infos, all.infos, sizeof infos);
    infos[1].naddresses = 9;
    CHECK_EQ(start_again(&all, infos), TT_ERR_REMOTE);
    memcpy(infos, all.infos, sizeof infos);
    infos[1].encrypt = 1;
    CHECK_EQ(start_again(&all, infos), TT_ERR_USAGE);
    CHECK(strstr(tt_last_error(), "TUTTI_ENCRYPT=0, rank 1 (host "));
    memcpy(infos, all.infos, sizeof infos);
    infos[1].network_id++; /* elsewhere, and with nothing but loopback */
    infos[1].naddresses = 0;
    CHECK_EQ(start_again(&all, infos), TT_ERR_SYSTEM);
    CHECK(strstr(tt_last_error(), "no network in common"));
    wired_close(&all);
}
