/* What passes between the kernel and the wires: writes in parts, and encrypted bytes. */
#include "transport/wired.h"

#include <pthread.h>
#include <stdio.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "shim.h"
#include "transport/tcp/tls.h"
#include "transport/wires_internal.h"

static int fd_of(struct wired *all, int rank, int peer)
{
    return all->wires[rank]->table[peer]->tcp.sockets[0].fd;
}

/* One message from rank 0 to rank 1, not read yet. */
static bool publish(struct wired *all, const void *data, size_t nbytes)
{
    struct tt_link *tx = tt_wires_tx(all->wires[0], 1, 0);
    void *slot = wired_slot(all, 0, 1, 0, nbytes);
    if (!slot) return false;
    memcpy(slot, data, nbytes);
    tx->ops->publish(tx, nbytes, 1);
    return true;
}

static bool receive(struct wired *all, const void *data, size_t nbytes)
{
    struct tt_link *rx = tt_wires_rx(all->wires[1], 0, 0);
    struct tt_message message;
    if (!wired_peek(all, 0, 1, 0, &message)) return false;
    const bool right = message.nbytes == nbytes && !memcmp(message.data, data, nbytes);
    rx->ops->release(rx);
    return right;
}

/* records_a_key: as in struct tt_wires_config; 0: not encrypted, or with one key. */
static void exchange_through_tiny_buffers(uint64_t records_a_key)
{
    static char data[65536];
    struct wired all;
    int nwaiting = 0;
    struct tt_wires_config config = wired_config();
    config.records_a_key = records_a_key;
    REQUIRE(wired_open(&all, 2, &config));
    REQUIRE(publish(&all, "x", 1) && receive(&all, "x", 1));
    for (int rank = 0; rank < 2; rank++) {
        const int least = 1;
        setsockopt(fd_of(&all, rank, !rank), SOL_SOCKET, SO_SNDBUF, &least, sizeof least);
    }
    for (unsigned turn = 0; turn < 10; turn++) {
        const size_t nbytes = sizeof data - turn * 501;
        for (unsigned i = 0; i < 3; i++) {
            wired_fill(data, nbytes, turn + i);
            REQUIRE(publish(&all, data, nbytes));
        }
        nwaiting += !tt_wires_flushed(all.wires[0]);
        for (unsigned i = 0; i < 3; i++) {
            wired_fill(data, nbytes, turn + i);
            CHECK(receive(&all, data, nbytes));
        }
    }
    CHECK(nwaiting > 0); /* the kernel lets the receiver's buffer grow: it may take some turns */
    if (records_a_key)   /* 30 messages of four records at least */
        CHECK(tt_tls_updates(all.wires[0]->table[1]->tcp.sockets[0].tls) >= 120 / records_a_key);
    wired_close(&all);
}

/* Little fits into the kernel's buffers between rank 0 and rank 1. */
static bool open_narrow(struct wired *all)
{
    const struct tt_wires_config config = wired_config();
    const int least = 1;
    if (!wired_open(all, 2, &config) || !publish(all, "x", 1) || !receive(all, "x", 1))
        return false;
    for (int rank = 0; rank < 2; rank++)
        setsockopt(fd_of(all, rank, !rank), SOL_SOCKET, SO_SNDBUF, &least, sizeof least);
    return true;
}

TEST(wires_bytes, still_to_be_sent_by_reference_are_copied_when_the_memory_is_needed_back)
{
    static char data[65536];
    struct wired all;
    REQUIRE(open_narrow(&all));
    struct tt_link *tx = tt_wires_tx(all.wires[0], 1, 0);
    wired_fill(data, sizeof data, 9);
    for (int i = 0; i < 3; i++)
        REQUIRE(tx->ops->publish_direct(tx, &no_memory, data, sizeof data, 1));
    CHECK(!tx->ops->drained(tx)); /* else the buffers are not narrow */
    tt_wires_give_back(all.wires[0]);
    CHECK(tx->ops->drained(tx));
    memset(data, 0, sizeof data);
    for (int i = 0; i < 3; i++) {
        struct tt_message message;
        struct tt_link *rx = tt_wires_rx(all.wires[1], 0, 0);
        REQUIRE(wired_peek(&all, 0, 1, 0, &message));
        CHECK(wired_matches(message.data, sizeof data, 9));
        rx->ops->release(rx);
    }
    wired_close(&all);
}

/* Rank 1 is away, and messages for it fill the kernel's buffers, on the last channel but `behind`.
 */
static void fill_buffers(int nbridges, int behind)
{
    static char data[65536];
    struct wired all;
    REQUIRE(open_narrow(&all));
    for (int r = 0; r < 2; r++) all.wires[r]->context.nbridges = nbridges;
    struct tt_link *p2p = tt_wires_tx(all.wires[0], 1, TOGETHER_CHANNELS - 1 - behind);
    REQUIRE(publish(&all, "x", 1) && receive(&all, "x", 1) && tt_wires_flushed(all.wires[0]));
    for (int i = 0; i < 3; i++)
        REQUIRE(p2p->ops->publish_direct(p2p, &no_memory, data, sizeof data, 1));
    CHECK(!p2p->ops->flushed(p2p)); /* else the buffers are not narrow */
    CHECK(tt_wires_flushed(all.wires[0]));
    REQUIRE(publish(&all, "y", 1));
    CHECK(!tt_wires_flushed(all.wires[0])); /* behind them */
    CHECK(receive(&all, "y", 1));
    wired_close(&all);
}

TEST(wires_bytes, of_point_to_point_that_nobody_reads_hold_no_collective_up)
{
    fill_buffers(0, 0);
    fill_buffers(1, 0);
}

TEST(wires_bytes, of_bridges_that_nobody_reads_hold_no_collective_up)
{
    fill_buffers(1, 1);
}

TEST(wires_bytes, lent_to_the_kernel_for_another_channel_hold_no_collective_up)
{
    static char data[65536], other[65536];
    struct wired all;
    const int least = 1, roomy = 1 << 20;
    const struct tt_wires_config config = wired_config();
    setenv("TUTTI_ZEROCOPY", "1", 1);
    tt_config_reload();
    REQUIRE(wired_open(&all, 2, &config) && publish(&all, "x", 1) && receive(&all, "x", 1));
    struct tt_link *tx = tt_wires_tx(all.wires[0], 1, 0);
    struct tt_link *p2p = tt_wires_tx(all.wires[0], 1, TOGETHER_CHANNELS - 1);
    wired_fill(data, sizeof data, 9);
    REQUIRE(tx->ops->publish_direct(tx, &no_memory, data, sizeof data, 1));
    CHECK(receive(&all, data, sizeof data));
    setsockopt(fd_of(&all, 1, 0), SOL_SOCKET, SO_RCVBUF, &least, sizeof least);
    for (int i = 0; i < 3; i++)
        REQUIRE(p2p->ops->publish_direct(p2p, &no_memory, other, sizeof other, 1));
    const int64_t late = tt_deadline_ns(20000);
    while (!tx->ops->drained(tx) && !tt_expired(late)) tt_test_pause();
    CHECK(!tt_expired(late));
    if (all.wires[0]->table[1]->tcp.sockets[0].zerocopy) CHECK(!p2p->ops->drained(p2p));
    setsockopt(fd_of(&all, 1, 0), SOL_SOCKET, SO_RCVBUF, &roomy, sizeof roomy);
    while (!p2p->ops->drained(p2p)) {
        REQUIRE(wired_turn(&all));
        tt_test_pause();
    }
    wired_close(&all);
    unsetenv("TUTTI_ZEROCOPY");
    tt_config_reload();
}

/* What rank 1 gets until the connection ends: how many messages. */
static int receive_rest(struct wired *all, int most, unsigned seed)
{
    struct tt_link *rx = tt_wires_rx(all->wires[1], 0, 0);
    const int64_t late = tt_deadline_ns(20000);
    struct tt_message message;
    int n = 0;
    while (n < most && !tt_expired(late)) {
        const tt_status status = rx->ops->peek(rx, &message);
        tt_ignore(tt_wires_flushed(all->wires[0]));
        if (status < 0) return n;
        if (status == TT_IN_PROGRESS) continue;
        CHECK(wired_matches(message.data, message.nbytes, seed));
        rx->ops->release(rx);
        n++;
    }
    CHECK(!tt_expired(late));
    return n;
}

TEST(wires_bytes, lent_to_the_kernel_are_not_sent_after_the_memory_was_given_back)
{
    static char data[65536];
    struct wired all;
    const struct tt_wires_config config = wired_config();
    const int least = 1;
    setenv("TUTTI_ZEROCOPY", "1", 1);
    tt_config_reload();
    REQUIRE(wired_open(&all, 2, &config) && publish(&all, "x", 1) && receive(&all, "x", 1));
    setsockopt(fd_of(&all, 1, 0), SOL_SOCKET, SO_RCVBUF, &least, sizeof least);
    struct tt_link *tx = tt_wires_tx(all.wires[0], 1, 0);
    struct tt_tcp *tcp = &all.wires[0]->table[1]->tcp.sockets[0];
    wired_fill(data, sizeof data, 9);
    for (int i = 0; i < 3; i++)
        REQUIRE(tx->ops->publish_direct(tx, &no_memory, data, sizeof data, 1));
    if (tcp->zerocopy) CHECK(!tt_tcp_returned(tcp)); /* else the kernel has sent everything */
    tt_wires_give_back(all.wires[0]);
    CHECK(tx->ops->drained(tx));
    memset(data, 0, sizeof data);
    CHECK(receive_rest(&all, 3, 9) < 3 || !tcp->zerocopy);
    wired_close(&all);
    unsetenv("TUTTI_ZEROCOPY");
    tt_config_reload();
}

static int64_t deadlines[3];
static int ndeadlines;

static void note_deadline(void *end, int64_t deadline_ns)
{
    (void)end;
    deadlines[ndeadlines++] = deadline_ns;
}

TEST(wires_bytes, are_given_back_by_all_wires_until_one_deadline)
{
    const struct tt_transport room = {.name = "test", .give_back = note_deadline};
    struct tt_wire wires[3] = {{.room = &room, .is_agreed = true, .following = &wires[1]},
                               {.room = &room, .is_agreed = true, .following = &wires[2]},
                               {.room = &room, .is_agreed = true}};
    struct tt_wires all = {.first = wires};
    tt_wires_give_back(&all);
    CHECK_EQ(ndeadlines, 3);
    CHECK(deadlines[0] == deadlines[1] && deadlines[0] == deadlines[2]);
}

TEST(wires_bytes, may_wait_for_a_peer_that_reads_nothing_for_longer_than_the_timeout)
{
    static char data[65536];
    struct wired all;
    setenv("TUTTI_NET_TIMEOUT_MS", "300", 1);
    tt_config_reload();
    REQUIRE(open_narrow(&all));
    wired_fill(data, sizeof data, 3);
    for (int channel = 0; channel < TOGETHER_CHANNELS; channel++)
        for (int i = 0; i < 3; i++) {
            struct tt_link *tx = tt_wires_tx(all.wires[0], 1, channel);
            REQUIRE(tx->ops->publish_direct(tx, &no_memory, data, sizeof data, 1));
        }
    const int64_t late = tt_deadline_ns(2000);
    while (!tt_expired(late)) {
        REQUIRE(tt_wires_progress(all.wires[0]) >= 0);
        tt_wires_wait(all.wires[0], 1000);
    }
    CHECK(!tt_wires_flushed(all.wires[0])); /* else it all fitted */
    for (int i = 0; i < 3; i++) CHECK(receive(&all, data, sizeof data));
    wired_close(&all);
    unsetenv("TUTTI_NET_TIMEOUT_MS");
    tt_config_reload();
}

/* Credits become due while everything queued has taken along those before. */
TEST(wires_bytes, that_wait_do_not_keep_back_credits)
{
    static char data[65536];
    struct wired all;
    REQUIRE(open_narrow(&all));
    for (int i = 0; i < 3; i++) REQUIRE(publish(&all, data, 4000));
    struct tt_link *back = tt_wires_tx(all.wires[1], 0, 1), *rx = tt_wires_rx(all.wires[1], 0, 0);
    for (int i = 0; i < 3; i++) {
        struct tt_message message;
        REQUIRE(wired_peek(&all, 0, 1, 0, &message));
        for (int n = 0; i == 0 && n < 2; n++) /* more than the kernel ever takes at once */
            REQUIRE(back->ops->publish_direct(back, &no_memory, data, sizeof data, 1));
        if (i == 0) CHECK(!tt_wires_flushed(all.wires[1]));
        rx->ops->release(rx);
    }
    struct tt_link *tx = tt_wires_tx(all.wires[0], 1, 0);
    void *slot = NULL;
    for (int i = 0; i < 100000 && !slot; i++) {
        slot = tx->ops->slot(tx, 4000);
        REQUIRE(wired_turn(&all));
    }
    CHECK(slot);
    wired_close(&all);
}

TEST(wires_bytes, that_the_kernel_takes_in_small_parts_arrive_whole)
{
    exchange_through_tiny_buffers(0);
}

TEST(wires_bytes, encrypted_in_small_parts_arrive_whole)
{
    if (tt_tls_load()) SKIP("no TLS: libssl3 is missing here or its headers were");
    setenv("TUTTI_ENCRYPT", "1", 1);
    tt_config_reload();
    exchange_through_tiny_buffers(0);
    exchange_through_tiny_buffers(1);
    exchange_through_tiny_buffers(5);
    unsetenv("TUTTI_ENCRYPT");
    tt_config_reload();
}

/* Whether what lies in the receiver's kernel contains the text. */
static bool can_be_read_underway(const char *encrypt)
{
    static const char text[] = "these words are nobody else's business";
    static char seen[65536];
    struct wired all;
    const struct tt_wires_config config = wired_config();
    setenv("TUTTI_ENCRYPT", encrypt, 1);
    tt_config_reload();
    bool there = false;
    if (wired_open(&all, 2, &config) && publish(&all, text, sizeof text) &&
        receive(&all, text, sizeof text) && publish(&all, text, sizeof text)) {
        const ssize_t n = recv(fd_of(&all, 1, 0), seen, sizeof seen, MSG_PEEK);
        CHECK(n > (ssize_t)sizeof text);
        there = n > 0 && memmem(seen, (size_t)n, text, sizeof text);
        CHECK(receive(&all, text, sizeof text));
    } else {
        CHECK_MESSAGE(false, "%s", tt_last_error());
    }
    wired_close(&all);
    unsetenv("TUTTI_ENCRYPT");
    tt_config_reload();
    return there;
}

TEST(wires_bytes, that_are_encrypted_cannot_be_read_underway)
{
    if (tt_tls_load()) SKIP("no TLS: libssl3 is missing here or its headers were");
    CHECK(can_be_read_underway("0"));
    CHECK(!can_be_read_underway("1"));
}

TEST(wires_bytes, that_somebody_changes_underway_are_an_error_when_encrypted)
{
    if (tt_tls_load()) SKIP("no TLS: libssl3 is missing here or its headers were");
    struct wired all;
    const struct tt_wires_config config = wired_config();
    setenv("TUTTI_ENCRYPT", "1", 1);
    tt_config_reload();
    REQUIRE(wired_open(&all, 2, &config));
    CHECK(publish(&all, "x", 1) && receive(&all, "x", 1));
    static const char forged[100] = {23, 3, 3, 0, 95}; /* a record of data, by somebody else */
    CHECK_EQ(send(fd_of(&all, 0, 1), forged, sizeof forged, MSG_NOSIGNAL), sizeof forged);
    struct tt_message message;
    CHECK(!wired_peek(&all, 0, 1, 0, &message));
    CHECK(strstr(tt_fabric_failure_text(all.ranks.fabrics[1]), "changed it underway"));
    wired_close(&all);
    unsetenv("TUTTI_ENCRYPT");
    tt_config_reload();
}

struct flood {
    struct wired *all;
    _Atomic bool stop;
};

/* Frames that change nothing, one after the other. */
static void *flood(void *argument)
{
    struct flood *flood = argument;
    enum { NFRAMES = 512 };
    static const struct tt_frame frames[NFRAMES] = {
        [0 ... NFRAMES - 1] = {.kind = TT_FRAME_CREDIT}};
    const int fd = fd_of(flood->all, 0, 1);
    size_t sent = 0; /* bytes; the kernel may take a part of a frame */
    while (!flood->stop) {
        const size_t begin = sent % sizeof *frames;
        const ssize_t n =
            send(fd, (const char *)frames + begin, sizeof frames - begin, MSG_NOSIGNAL);
        if (n > 0) sent += (size_t)n;
    }
    return NULL;
}

TEST(wires_bytes, without_end_of_a_peer_that_is_gone_are_not_all_read)
{
    struct wired all;
    struct flood sends = {.all = &all};
    const struct tt_wires_config config = wired_config();
    pthread_t thread;
    REQUIRE(wired_open(&all, 2, &config));
    REQUIRE(publish(&all, "x", 1) && receive(&all, "x", 1));
    REQUIRE(!pthread_create(&thread, NULL, flood, &sends));
    struct tt_wire *wire = all.wires[1]->table[0];
    snprintf(wire->gone, sizeof wire->gone, "rank 0 is gone");
    wire->is_lost = true;
    CHECK_EQ(tt_wire_missed(wire), TT_ERR_REMOTE);
    CHECK_STR(tt_fabric_failure_text(all.ranks.fabrics[1]), "rank 0 is gone");
    sends.stop = true;
    pthread_join(thread, NULL);
    /* A frame may have been cut: nothing that follows is read, and nobody waits for it. */
    CHECK_EQ(shutdown(fd_of(&all, 0, 1), SHUT_RDWR), 0);
    wired_close(&all);
}
