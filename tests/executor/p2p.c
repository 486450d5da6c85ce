/* Point to point: inside a host and between hosts. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "executor/calls.h"
#include "shim.h"

static void fill(unsigned char *data, size_t nbytes, unsigned seed)
{
    for (size_t i = 0; i < nbytes; i++) data[i] = (unsigned char)(i * 31 + (i >> 8) + seed);
}

/* Advances both in turn until they end. */
static void play(struct tt_work *send, struct tt_work *recv)
{
    const int64_t deadline = tt_deadline_ns(20000);
    bool going = true;
    while (going && !tt_expired(deadline)) {
        const int sent = tt_work_advance(send), received = tt_work_advance(recv);
        going = sent == TT_IN_PROGRESS || received == TT_IN_PROGRESS;
    }
    CHECK_EQ(send->status, TT_OK);
    CHECK_EQ(recv->status, TT_OK);
    CHECK(tt_work_is_done(send) && tt_work_is_done(recv));
}

static void try_sizes(struct ranks *ranks)
{
    static const size_t sizes[] = {0, 1, 32, 33, 4096, 4097, 16384, 100000, 3000000};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes && !tt_test_failed(); i++) {
        unsigned char *from = malloc(sizes[i] + 1), *to = malloc(sizes[i] + 1);
        struct tt_work send, recv;
        fill(from, sizes[i], (unsigned)i);
        to[sizes[i]] = 0x5a;
        tt_work_send(&send, &ranks->engines[0], from, sizes[i], 1);
        tt_work_recv(&recv, &ranks->engines[1], to, sizes[i], 0);
        play(&send, &recv);
        CHECK_MESSAGE(!memcmp(from, to, sizes[i]), "%zu bytes are not what was sent", sizes[i]);
        CHECK_EQ(to[sizes[i]], 0x5a);
        free(from);
        free(to);
    }
}

TEST(p2p, carries_messages_of_any_length)
{
    static const uint64_t layouts[][2] = {{1, 1}, {1, 2}};
    for (int i = 0; i < 2; i++)
        for (size_t slot_bytes = 4096; slot_bytes <= 65536; slot_bytes *= 16) {
            struct tt_fabric_config config = together_config();
            struct ranks ranks;
            config.slot_bytes = slot_bytes;
            REQUIRE(ranks_open_on(&ranks, 2, layouts[i], &config));
            try_sizes(&ranks);
            ranks_close(&ranks);
        }
}

TEST(p2p, different_lengths_are_an_error_that_names_both)
{
    static const uint64_t layouts[][2] = {{1, 1}, {1, 2}};
    for (int i = 0; i < 2; i++) {
        const struct tt_fabric_config config = together_config();
        struct ranks ranks;
        unsigned char data[200] = {0};
        struct tt_work send, recv;
        REQUIRE(ranks_open_on(&ranks, 2, layouts[i], &config));
        tt_work_send(&send, &ranks.engines[0], data, 100, 1);
        tt_work_recv(&recv, &ranks.engines[1], data, 200, 0);
        const int64_t deadline = tt_deadline_ns(20000);
        while (!tt_work_is_done(&recv) && !tt_expired(deadline)) {
            tt_ignore(tt_work_advance(&send));
            tt_ignore(tt_work_advance(&recv));
        }
        CHECK_EQ(recv.status, TT_ERR_USAGE);
        CHECK(strstr(tt_fabric_failure_text(ranks.all.fabrics[1]), "sends 100 bytes"));
        CHECK(strstr(tt_fabric_failure_text(ranks.all.fabrics[1]), "receives 200 bytes"));
        ranks_close(&ranks);
    }
}

/* Rank 0 publishes a message of this length as a part of a send of 8 bytes. */
static void send_forged(const uint64_t *host_of, size_t nbytes)
{
    const struct tt_fabric_config config = together_config();
    struct ranks ranks;
    struct tt_work recv;
    unsigned char *data = malloc(8);
    REQUIRE(data && ranks_open_on(&ranks, 2, host_of, &config));
    struct tt_link *tx =
        tt_fabric_tx(ranks.all.fabrics[0], 1, tt_fabric_p2p_channel(ranks.all.fabrics[0]));
    const int64_t deadline = tt_deadline_ns(20000);
    void *slot;
    tt_work_recv(&recv, &ranks.engines[1], data, 8, 0);
    while (!(slot = tx->ops->slot(tx, nbytes)) && !tt_expired(deadline))
        tt_ignore(tt_work_advance(&recv));
    REQUIRE(slot);
    memset(slot, 7, nbytes);
    tx->ops->publish(tx, nbytes, 8 | 1ull << 63);
    while (!tt_work_is_done(&recv) && !tt_expired(deadline)) {
        tt_ignore(tx->ops->flushed(tx));
        tt_ignore(tt_work_advance(&recv));
    }
    CHECK_EQ(recv.status, TT_ERR_REMOTE);
    const char *text = tt_fabric_failure_text(ranks.all.fabrics[1]);
    CHECK_MESSAGE(strstr(text, "rank 0 (host ") && strstr(text, "8 of 8 bytes were left"),
                  "unexpected: %s", text);
    ranks_close(&ranks);
    free(data);
}

TEST(p2p, a_message_that_does_not_fit_the_rest_is_refused)
{
    static const uint64_t layouts[][2] = {{1, 1}, {1, 2}};
    for (int i = 0; i < 2; i++) {
        send_forged(layouts[i], 4096);
        send_forged(layouts[i], 0);
    }
}

/* A message of which the receiver has copied a part when the sender makes it shorter. */
static char shrinking[2 << 20];
static tt_status peek_at_shrinking(struct tt_link *link, struct tt_message *message)
{
    int *looks = link->end;
    *message = (struct tt_message){.data = shrinking,
                                   .nbytes = (*looks)++ ? 100 : sizeof shrinking,
                                   .signature = sizeof shrinking | 1ull << 63};
    return TT_OK;
}

static void expect_nothing(struct tt_link *link, void *to, size_t nbytes, uint64_t signature)
{
    (void)link, (void)to, (void)nbytes, (void)signature;
}

TEST(p2p, a_message_that_shrinks_while_it_is_copied_is_refused)
{
    static const uint64_t host_of[] = {1, 1};
    const struct tt_fabric_config config = together_config();
    struct ranks ranks;
    struct tt_work recv;
    int looks = 0;
    char *data = malloc(sizeof shrinking);
    REQUIRE(data && ranks_open_on(&ranks, 2, host_of, &config));
    tt_work_recv(&recv, &ranks.engines[1], data, sizeof shrinking, 0);
    CHECK_EQ(tt_work_advance(&recv), TT_IN_PROGRESS); /* it has its link */
    struct tt_link_ops ops = *recv.p2p.link->ops;
    struct tt_link link = {.ops = &ops, .end = &looks, .peer = 0, .slot_bytes = sizeof shrinking};
    ops.peek = peek_at_shrinking;
    ops.expect = expect_nothing;
    recv.p2p.link = &link;
    CHECK_EQ(tt_work_advance(&recv), TT_IN_PROGRESS);
    CHECK(recv.p2p.taken > 100);
    CHECK_EQ(tt_work_advance(&recv), TT_ERR_REMOTE);
    const char *text = tt_fabric_failure_text(ranks.all.fabrics[1]);
    CHECK_MESSAGE(strstr(text, "sent a message of 100 bytes where 1048576 of 2097152 bytes were"),
                  "unexpected: %s", text);
    ranks_close(&ranks);
    free(data);
}

TEST(p2p, nothing_is_delivered_after_a_failed_receive)
{
    static const uint64_t host_of[] = {1, 2};
    const struct tt_fabric_config config = together_config();
    struct ranks ranks;
    unsigned char first, from[1000], to[1000], untouched[1000];
    struct tt_work send, recv;
    REQUIRE(ranks_open_on(&ranks, 2, host_of, &config));
    tt_work_send(&send, &ranks.engines[0], "x", 1, 1);
    tt_work_recv(&recv, &ranks.engines[1], &first, 1, 0);
    play(&send, &recv); /* now they are connected */
    fill(from, sizeof from, 1);
    fill(to, sizeof to, 77);
    memcpy(untouched, to, sizeof to);
    tt_work_recv(&recv, &ranks.engines[1], to, sizeof to, 0);
    CHECK_EQ(tt_work_advance(&recv), TT_IN_PROGRESS); /* says where it would like the message */
    CHECK_EQ(tt_fabric_fail(ranks.all.fabrics[1], TT_ERR_REMOTE, "enough"), TT_ERR_REMOTE);
    tt_work_examine(&recv);
    CHECK(tt_work_is_done(&recv));
    struct tt_link *tx =
        tt_fabric_tx(ranks.all.fabrics[0], 1, tt_fabric_p2p_channel(ranks.all.fabrics[0]));
    void *slot = tx->ops->slot(tx, sizeof from);
    REQUIRE(slot);
    memcpy(slot, from, sizeof from);
    tx->ops->publish(tx, sizeof from, recv.p2p.nbytes | 1ull << 63);
    struct tt_link *rx =
        tt_fabric_rx(ranks.all.fabrics[1], 0, tt_fabric_p2p_channel(ranks.all.fabrics[0]));
    struct tt_message message;
    const int64_t deadline = tt_deadline_ns(20000);
    tt_status status;
    while ((status = rx->ops->peek(rx, &message)) == TT_IN_PROGRESS && !tt_expired(deadline))
        tt_cpu_relax();
    CHECK_EQ(status, TT_OK);
    CHECK(!memcmp(to, untouched, sizeof to));
    ranks_close(&ranks);
}

static bool never(struct tt_link *link)
{
    (void)link;
    return false;
}

/* The receive has all of its message, but not all that it has released has left its rank. */
TEST(p2p, a_receive_that_has_its_message_does_not_fail_when_the_sender_leaves)
{
    static const uint64_t host_of[] = {1, 2};
    const struct tt_fabric_config config = together_config();
    const int64_t deadline = tt_deadline_ns(20000);
    struct ranks ranks;
    char got = 0;
    struct tt_work send, recv;
    REQUIRE(ranks_open_on(&ranks, 2, host_of, &config));
    tt_work_send(&send, &ranks.engines[0], "w", 1, 1);
    tt_work_recv(&recv, &ranks.engines[1], &got, 1, 0);
    play(&send, &recv); /* now they are connected */
    struct tt_link *link = recv.p2p.link;
    const struct tt_link_ops *const ops = link->ops;
    struct tt_link_ops unflushed = *ops;
    unflushed.flushed = never;
    link->ops = &unflushed;
    tt_work_send(&send, &ranks.engines[0], "x", 1, 1);
    tt_work_recv(&recv, &ranks.engines[1], &got, 1, 0);
    while (recv.state != TT_WORK_LEAVING && !tt_expired(deadline)) {
        tt_ignore(tt_work_advance(&send));
        CHECK_EQ(tt_work_advance(&recv), TT_IN_PROGRESS);
    }
    atomic_store(&tt_fabric_record(ranks.all.fabrics[1], 0)->state, TT_RANK_LEFT);
    tt_work_examine(&recv);
    CHECK(!tt_work_is_done(&recv));
    link->ops = ops;
    play(&send, &recv);
    CHECK_EQ(got, 'x');
    ranks_close(&ranks);
}
