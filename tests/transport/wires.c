/* Tests of wires between two ranks of this process: messages, encryption, failures. */
#include "transport/wired.h"

#include <stdio.h>
#include <string.h>

#include "net/interface.h"
#include "shim.h"
#include "transport/tcp/tls.h"
#include "transport/wires_internal.h"

/* Each message is checked where it arrives; sizes around what is read ahead and the slot. */
static void exchange_all_sizes(struct wired *all)
{
    const int nchannels = all->ranks.fabrics[0]->context.nchannels;
    static const size_t sizes[] = {0, 1, 8, 32, 33, 4071, 4072, 4073, 5000, 65535, 65536};
    const int nsizes = sizeof sizes / sizeof *sizes;
    for (int turn = 0; turn < 3 * nsizes; turn++)
        for (int from = 0; from < 2; from++)
            for (int channel = 0; channel < nchannels; channel++) {
                const size_t nbytes = sizes[turn % nsizes];
                const unsigned seed = (unsigned)(turn * 100 + from * 30 + channel);
                struct tt_link *tx = tt_wires_tx(all->wires[from], !from, channel);
                struct tt_link *rx = tt_wires_rx(all->wires[!from], from, channel);
                void *slot = wired_slot(all, from, !from, channel, nbytes);
                REQUIRE(slot);
                wired_fill(slot, nbytes, seed);
                tx->ops->publish(tx, nbytes, seed);
                struct tt_message message;
                REQUIRE(wired_peek(all, from, !from, channel, &message));
                CHECK_EQ(message.nbytes, nbytes);
                CHECK_EQ(message.signature, seed);
                CHECK(wired_matches(message.data, nbytes, seed));
                rx->ops->release(rx);
            }
}

static void exchange_with(const char *name, const char *value)
{
    struct wired all;
    const struct tt_wires_config config = wired_config();
    if (name) setenv(name, value, 1);
    tt_config_reload();
    if (wired_open(&all, 2, &config))
        exchange_all_sizes(&all);
    else
        CHECK_MESSAGE(false, "%s", tt_last_error());
    wired_close(&all);
    if (name) unsetenv(name);
    tt_config_reload();
}

TEST(wires, carry_messages_of_all_sizes_both_ways_on_all_channels)
{
    exchange_with(NULL, NULL);
}

/* A whole slot of a kernel is one frame over a bridge. */
TEST(wires, of_the_channel_of_bridges_have_room_for_the_head_of_a_frame)
{
    static const uint64_t hosts[] = {1, 2};
    static struct together all;
    struct tt_fabric_config config = together_config();
    config.nbridges = 1;
    REQUIRE(together_open_on(&all, 2, hosts, &config) && together_join(&all, &config));
    const struct tt_fabric *fabrics[] = {all.fabrics[0], all.fabrics[1]};
    for (int c = 0; c < fabrics[0]->context.nchannels; c++) {
        const bool of_bridges = c == tt_fabric_bridge_channel(fabrics[0]);
        const size_t nbytes = config.slot_bytes + (of_bridges ? TT_BRIDGE_HEAD_BYTES : 0);
        struct tt_link *tx = tt_fabric_tx(all.fabrics[0], 1, c);
        struct tt_link *rx = tt_fabric_rx(all.fabrics[1], 0, c);
        CHECK_EQ(tx->slot_bytes, nbytes);
        CHECK_EQ(rx->slot_bytes, nbytes);
        for (int turn = 0; turn < 3 * (int)config.nslots; turn++) {
            void *slot;
            struct tt_message message;
            tt_status status = TT_IN_PROGRESS;
            while (!(slot = tx->ops->slot(tx, nbytes)))
                for (int r = 0; r < 2; r++) REQUIRE(tt_wires_progress(fabrics[r]->wires) >= 0);
            wired_fill(slot, nbytes, (unsigned)turn);
            tx->ops->publish(tx, nbytes, 0);
            while (status == TT_IN_PROGRESS) {
                status = rx->ops->peek(rx, &message);
                for (int r = 0; r < 2; r++) REQUIRE(tt_wires_progress(fabrics[r]->wires) >= 0);
            }
            REQUIRE(!status);
            CHECK_EQ(message.nbytes, nbytes);
            CHECK(wired_matches(message.data, nbytes, (unsigned)turn));
            rx->ops->release(rx);
        }
    }
    together_close(&all);
}

/* Sends as many messages on every channel as there is credit for at all times: of one slot the
 * receiver may keep back the credit. */
static void fill_slots(struct wired *all, int nchannels, size_t nslots, unsigned turn)
{
    for (int channel = 0; channel < nchannels; channel++)
        for (size_t i = 0; i < nslots - 1; i++) {
            struct tt_link *tx = tt_wires_tx(all->wires[0], 1, channel);
            void *slot = wired_slot(all, 0, 1, channel, sizeof turn);
            REQUIRE(slot);
            memcpy(slot, &turn, sizeof turn);
            tx->ops->publish(tx, sizeof turn, (uint64_t)channel * nslots + i);
        }
}

/* Rank 1 sends nothing, so only frames for credits take them back, and a frame has room for the
 * credits of fewer channels than there are. */
TEST(wires, with_the_most_channels_return_the_credits_of_all)
{
    struct wired all;
    const struct tt_wires_config config = wired_config();
    REQUIRE(wired_open_with(&all, 2, &config, TT_MAX_CHANNELS));
    exchange_all_sizes(&all);
    for (unsigned turn = 0; turn < 10; turn++) {
        fill_slots(&all, TT_MAX_CHANNELS, config.nslots, turn);
        for (int i = 0; i < TT_MAX_CHANNELS * ((int)config.nslots - 1); i++) {
            const int channel = i % TT_MAX_CHANNELS;
            struct tt_link *rx = tt_wires_rx(all.wires[1], 0, channel);
            struct tt_message message;
            REQUIRE(wired_peek(&all, 0, 1, channel, &message));
            CHECK_EQ(message.signature,
                     (uint64_t)channel * config.nslots + (uint64_t)(i / TT_MAX_CHANNELS));
            CHECK(!memcmp(message.data, &turn, sizeof turn));
            rx->ops->release(rx);
        }
    }
    wired_close(&all);
}

/* What the proofs and the executor assume of every link (TT_MIN_SLOTS). */
TEST(wires, with_fewer_than_two_slots_a_link_are_not_opened)
{
    static const size_t wrong[] = {0, 1, TT_MAX_SLOTS + 1};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct tt_wires *wires = NULL;
        struct tt_wires_info info;
        struct tt_wires_config config = wired_config();
        config.nslots = wrong[i];
        CHECK_EQ(tt_wires_open(&wires, &config, &info), TT_ERR_USAGE);
        CHECK_MESSAGE(strstr(tt_last_error(), "TUTTI_SLOTS") && strstr(tt_last_error(), "2 to 64"),
                      "%s", tt_last_error());
        tt_wires_destroy(wires);
    }
}

TEST(wires, keep_their_order_over_several_sockets)
{
    exchange_with("TUTTI_SOCKETS", "5");
}

/* A rank with an address in each of n networks, 10.0.i.0/24. */
static struct tt_wires_info on_networks(int last, const uint32_t *mbit, int n)
{
    struct tt_wires_info info = {.naddresses = n};
    for (int i = 0; i < n; i++) {
        const struct sockaddr_in in = {.sin_family = AF_INET,
                                       .sin_addr.s_addr =
                                           htonl(0x0a000000u | (uint32_t)i << 8 | (uint32_t)last)};
        info.addresses[i] = (struct tt_wire_address){.prefix = 24, .mbit = mbit[i]};
        tt_address_set(&info.addresses[i].address, (const struct sockaddr *)&in);
        snprintf(info.addresses[i].interface, TT_INTERFACE_NAME, "eth%d", i);
    }
    return info;
}

/* "012": the networks over which two ranks connect that have interfaces of these speeds. */
static void expect_routes(const uint32_t *low_mbit, const uint32_t *high_mbit, int n,
                          const char *expected)
{
    struct tt_wires_info low = on_networks(1, low_mbit, n), high = on_networks(2, high_mbit, n);
    high.network_id = 1;
    for (int lower = 0; lower < 2; lower++) {
        struct tt_route routes[TT_MAX_INTERFACES];
        char got[TT_MAX_INTERFACES + 1] = "";
        const int number =
            tt_wire_routes(routes, lower ? &low : &high, lower ? &high : &low, lower);
        for (int i = 0; i < number; i++) got[i] = routes[i].interface[3];
        CHECK_STR(got, expected);
    }
}

TEST(wires, leave_out_networks_that_are_too_slow_beside_the_others)
{
    static const uint32_t equal[] = {10000, 10000, 10000}, unknown[] = {100000, 0, 1000};
    static const uint32_t slow_last[] = {25000, 25000, 1000}, slow_first[] = {1000, 100000, 40000};
    static const uint32_t near[] = {25000, 20000, 10000};
    expect_routes(equal, equal, 3, "012");
    expect_routes(unknown, equal, 3, "012");
    expect_routes(slow_last, slow_last, 3, "01");
    expect_routes(slow_first, slow_first, 3, "1");
    expect_routes(near, near, 3, "01");
    expect_routes(equal, slow_last, 3, "01");
    expect_routes(slow_last, slow_last, 1, "0");
}

/* The name of an interface that leads to other hosts; "": there is none. */
static void find_interface(char name[TT_INTERFACE_NAME])
{
    struct tt_interfaces interfaces = {0};
    CHECK_EQ(tt_interfaces_choose(&interfaces), TT_OK);
    snprintf(name, TT_INTERFACE_NAME, "%s", interfaces.number ? interfaces.chosen[0].name : "");
}

TEST(wires, within_one_network_namespace_use_the_interfaces_that_are_set)
{
    char name[TT_INTERFACE_NAME], names[TT_INTERFACE_NAME + 8];
    find_interface(name);
    if (!name[0]) SKIP("no network interface but loopback is up");
    snprintf(names, sizeof names, "=%s", name);
    exchange_with("TUTTI_SOCKET_INTERFACE", names);
    snprintf(names, sizeof names, "=%s,lo", name);
    exchange_with("TUTTI_SOCKET_INTERFACE", names);
    exchange_with("TUTTI_SOCKET_INTERFACE", "=lo");
}

TEST(wires, carry_the_same_encrypted)
{
    if (tt_tls_load()) SKIP("no TLS: libssl3 is missing here or its headers were");
    exchange_with("TUTTI_ENCRYPT", "1");
}

TEST(wires, carry_the_same_without_the_kernels_copy)
{
    exchange_with("TUTTI_ZEROCOPY", "1");
}

TEST(wires, getting_a_link_connects_nothing_and_its_pointer_never_changes)
{
    struct wired all;
    struct tt_link *tx[2][TOGETHER_CHANNELS], *rx[2][TOGETHER_CHANNELS];
    const struct tt_wires_config config = wired_config();
    REQUIRE(wired_open(&all, 2, &config));
    for (int r = 0; r < 2; r++)
        for (int c = 0; c < TOGETHER_CHANNELS; c++) {
            tx[r][c] = tt_wires_tx(all.wires[r], !r, c);
            rx[r][c] = tt_wires_rx(all.wires[r], !r, c);
            CHECK_EQ(tx[r][c]->peer, !r);
            CHECK_EQ(rx[r][c]->slot_bytes, config.slot_bytes);
            CHECK(tx[r][c]->ops->drained(tx[r][c]) && rx[r][c]->ops->flushed(rx[r][c]));
        }
    for (int i = 0; i < 10; i++) REQUIRE(wired_turn(&all));
    for (int r = 0; r < 2; r++) CHECK(all.wires[r]->table[!r] == NULL);
    const struct tt_link_ops *before = tx[0][0]->ops;
    exchange_all_sizes(&all);
    CHECK(tx[0][0]->ops != before); /* of the sockets, for good */
    for (int r = 0; r < 2; r++)
        for (int c = 0; c < TOGETHER_CHANNELS; c++) {
            CHECK(tx[r][c] == tt_wires_tx(all.wires[r], !r, c));
            CHECK(rx[r][c] == tt_wires_rx(all.wires[r], !r, c));
            CHECK(tx[r][c]->ops == tx[0][0]->ops && rx[r][c]->ops == tx[0][0]->ops);
        }
    wired_close(&all);
}

TEST(wires, operations_loaded_before_the_wire_stood_still_work)
{
    struct wired all;
    struct tt_message message;
    const struct tt_wires_config config = wired_config();
    REQUIRE(wired_open(&all, 2, &config));
    struct tt_link *tx = tt_wires_tx(all.wires[0], 1, 2), *rx = tt_wires_rx(all.wires[1], 0, 2);
    const struct tt_link_ops *sender = tx->ops, *receiver = rx->ops;
    char from[100], to[100], got[100];
    for (unsigned i = 0; i < 6; i++) {
        void *slot;
        receiver->expect(rx, i & 1 ? to : NULL, sizeof to, i);
        while (!(slot = sender->slot(tx, sizeof from))) REQUIRE(wired_turn(&all));
        wired_fill(i & 2 ? from : slot, sizeof from, i);
        if (i & 2)
            REQUIRE(sender->publish_direct(tx, &no_memory, from, sizeof from, i));
        else
            sender->publish(tx, sizeof from, i);
        CHECK(sender->reaches(tx, &no_memory, from, sizeof from));
        while (receiver->peek(rx, &message) == TT_IN_PROGRESS) REQUIRE(wired_turn(&all));
        CHECK_EQ(message.signature, i);
        REQUIRE(receiver->fetch(rx, got, 0, sizeof got) == TT_OK);
        CHECK(wired_matches(got, sizeof got, i));
        receiver->release(rx);
        while (!sender->drained(tx) || !sender->flushed(tx) || !receiver->flushed(rx))
            REQUIRE(wired_turn(&all));
    }
    wired_close(&all);
}

TEST(wires, what_is_expected_before_the_wire_stands_is_delivered_there)
{
    struct wired all;
    char to[1000];
    struct tt_message message;
    const struct tt_wires_config config = wired_config();
    REQUIRE(wired_open(&all, 2, &config));
    struct tt_link *tx = tt_wires_tx(all.wires[0], 1, 1), *rx = tt_wires_rx(all.wires[1], 0, 1);
    rx->ops->expect(rx, to, sizeof to, 5);
    void *slot = wired_slot(&all, 0, 1, 1, sizeof to);
    REQUIRE(slot);
    wired_fill(slot, sizeof to, 3);
    tx->ops->publish(tx, sizeof to, 5);
    REQUIRE(wired_peek(&all, 0, 1, 1, &message));
    CHECK(message.data == to);
    CHECK(wired_matches(to, sizeof to, 3));
    rx->ops->release(rx);
    wired_close(&all);
}

TEST(wires, hold_as_many_messages_as_there_are_slots)
{
    struct wired all;
    const struct tt_wires_config config = wired_config();
    REQUIRE(wired_open(&all, 2, &config));
    struct tt_link *tx = tt_wires_tx(all.wires[0], 1, 0), *rx = tt_wires_rx(all.wires[1], 0, 0);
    int sent = 0, got = 0;
    for (int turn = 0; turn < 50; turn++) {
        const size_t nbytes = (size_t)(turn * 977 % 65537);
        for (; sent < got + 4; sent++) {
            void *slot = wired_slot(&all, 0, 1, 0, nbytes);
            REQUIRE(slot);
            wired_fill(slot, nbytes, (unsigned)sent);
            tx->ops->publish(tx, nbytes, (uint64_t)sent);
        }
        for (int i = 0; i < 20; i++) {
            CHECK(tx->ops->slot(tx, nbytes) == NULL);
            REQUIRE(wired_turn(&all));
        }
        for (; got < sent; got++) {
            struct tt_message message;
            REQUIRE(wired_peek(&all, 0, 1, 0, &message));
            CHECK_EQ(message.signature, got);
            CHECK(wired_matches(message.data, nbytes, (unsigned)got));
            rx->ops->release(rx);
        }
    }
    wired_close(&all);
}

TEST(wires, channels_do_not_block_one_another)
{
    struct wired all;
    const struct tt_wires_config config = wired_config();
    REQUIRE(wired_open(&all, 2, &config));
    for (int i = 0; i < 4; i++) { /* fills channel 0, which nobody reads */
        struct tt_link *tx = tt_wires_tx(all.wires[0], 1, 0);
        REQUIRE(wired_slot(&all, 0, 1, 0, 65536));
        tx->ops->publish(tx, 65536, 1);
    }
    struct tt_link *tx = tt_wires_tx(all.wires[0], 1, 1);
    int *slot = wired_slot(&all, 0, 1, 1, sizeof *slot);
    REQUIRE(slot);
    *slot = 77;
    tx->ops->publish(tx, sizeof *slot, 2);
    struct tt_message message;
    REQUIRE(wired_peek(&all, 0, 1, 1, &message));
    int value;
    memcpy(&value, message.data, sizeof value);
    CHECK_EQ(value, 77);
    wired_close(&all);
}

TEST(wires, send_from_the_callers_memory_and_deliver_where_it_is_expected)
{
    static char from[65536], to[65536];
    struct wired all;
    const struct tt_wires_config config = wired_config();
    REQUIRE(wired_open(&all, 2, &config));
    struct tt_link *tx = tt_wires_tx(all.wires[1], 0, 2), *rx = tt_wires_rx(all.wires[0], 1, 2);
    for (unsigned seed = 0; seed < 20; seed++) {
        const size_t nbytes = sizeof from - seed * 1000;
        wired_fill(from, nbytes, seed);
        REQUIRE(wired_slot(&all, 1, 0, 2, nbytes));
        rx->ops->expect(rx, to, nbytes, seed);
        CHECK(tx->ops->reaches(tx, &no_memory, from, nbytes));
        REQUIRE(tx->ops->publish_direct(tx, &no_memory, from, nbytes, seed));
        struct tt_message message;
        REQUIRE(wired_peek(&all, 1, 0, 2, &message));
        CHECK(message.data == to);
        CHECK(wired_matches(to, nbytes, seed));
        rx->ops->release(rx);
        while (!tx->ops->drained(tx)) REQUIRE(wired_turn(&all));
    }
    CHECK(!tx->ops->reaches(tx, &no_memory, from, 65537));
    wired_close(&all);
}

TEST(wires, deliver_to_a_slot_what_is_not_as_expected)
{
    static char to[1000];
    struct wired all;
    const struct tt_wires_config config = wired_config();
    REQUIRE(wired_open(&all, 2, &config));
    struct tt_link *tx = tt_wires_tx(all.wires[0], 1, 0), *rx = tt_wires_rx(all.wires[1], 0, 0);
    for (int i = 0; i < 2; i++) { /* another length, another signature */
        void *slot = wired_slot(&all, 0, 1, 0, sizeof to);
        REQUIRE(slot);
        wired_fill(slot, sizeof to, 3);
        rx->ops->expect(rx, to, i ? sizeof to : sizeof to - 1, i ? 8 : 9);
        tx->ops->publish(tx, sizeof to, 9);
        struct tt_message message;
        REQUIRE(wired_peek(&all, 0, 1, 0, &message));
        CHECK(message.data != to);
        CHECK(wired_matches(message.data, sizeof to, 3));
        rx->ops->release(rx);
    }
    wired_close(&all);
}

/* An expectation is taken back with any part of the message delivered: nothing is lost, and the
 * memory is not written any more. */
TEST(wires, an_expectation_can_be_taken_back_at_any_time)
{
    static char from[65536], to[65536], before[65536];
    struct wired all;
    const struct tt_wires_config config = wired_config();
    REQUIRE(wired_open(&all, 2, &config));
    struct tt_link *tx = tt_wires_tx(all.wires[0], 1, 0), *rx = tt_wires_rx(all.wires[1], 0, 0);
    for (int looks = 0; looks < 8; looks++) {
        const size_t nbytes = sizeof from;
        struct tt_message message;
        wired_fill(from, nbytes, (unsigned)looks);
        memset(to, 0, sizeof to);
        REQUIRE(wired_slot(&all, 0, 1, 0, nbytes));
        rx->ops->expect(rx, to, nbytes, 5);
        REQUIRE(tx->ops->publish_direct(tx, &no_memory, from, nbytes, 5));
        for (int i = 0; i < looks; i++) CHECK(rx->ops->peek(rx, &message) >= 0);
        rx->ops->expect(rx, NULL, 0, 0);
        memcpy(before, to, sizeof to);
        REQUIRE(wired_peek(&all, 0, 1, 0, &message));
        CHECK(message.data != to);
        CHECK(wired_matches(message.data, nbytes, (unsigned)looks));
        CHECK(memcmp(before, to, sizeof to) == 0);
        rx->ops->release(rx);
    }
    wired_close(&all);
}

TEST(wires, of_three_ranks_are_made_only_where_they_are_used)
{
    struct wired all;
    const struct tt_wires_config config = wired_config();
    REQUIRE(wired_open(&all, 3, &config));
    struct tt_link *tx = tt_wires_tx(all.wires[2], 0, 0);
    REQUIRE(wired_slot(&all, 2, 0, 0, 4));
    tx->ops->publish(tx, 4, 1);
    struct tt_message message;
    REQUIRE(wired_peek(&all, 2, 0, 0, &message));
    char text[128];
    tt_wires_describe(all.wires[0], 2, text, sizeof text);
    CHECK_STR(text, "tcp lo, not encrypted");
    tt_wires_describe(all.wires[0], 1, text, sizeof text);
    CHECK_STR(text, "not connected yet, will not be encrypted");
    CHECK(tt_wires_bytes(all.wires[0]) > tt_wires_bytes(all.wires[1]));
    wired_close(&all);
}

TEST(wires, say_that_they_are_encrypted)
{
    if (tt_tls_load()) SKIP("no TLS: libssl3 is missing here or its headers were");
    struct wired all;
    const struct tt_wires_config config = wired_config();
    char text[128];
    setenv("TUTTI_ENCRYPT", "1", 1);
    setenv("TUTTI_SOCKETS", "2", 1);
    tt_config_reload();
    REQUIRE(wired_open(&all, 2, &config));
    tt_wires_describe(all.wires[0], 1, text, sizeof text);
    CHECK_STR(text, "not connected yet, will be encrypted");
    exchange_all_sizes(&all);
    tt_wires_describe(all.wires[0], 1, text, sizeof text);
    CHECK_STR(text, "tcp lo (2 sockets), encrypted");
    wired_close(&all);
    unsetenv("TUTTI_ENCRYPT");
    unsetenv("TUTTI_SOCKETS");
    tt_config_reload();
}

TEST(wires, bring_what_a_rank_has_entered_ahead_of_its_message)
{
    struct wired all;
    const struct tt_wires_config config = wired_config();
    REQUIRE(wired_open(&all, 2, &config));
    struct tt_rank_record *mine = all.ranks.fabrics[0]->record;
    struct tt_entry *entry = tt_fabric_entry(all.ranks.fabrics[0], 0, 6);
    atomic_store(&entry->collective, 3);
    atomic_store(&entry->count, 1234);
    atomic_store(&entry->root, 1);
    atomic_store(&entry->seq, 6);
    atomic_store(&mine->entered, 6);
    atomic_store(&mine->done, 5);
    struct tt_link *tx = tt_wires_tx(all.wires[0], 1, 0);
    REQUIRE(wired_slot(&all, 0, 1, 0, 4));
    tx->ops->publish(tx, 4, 1);
    struct tt_message message;
    REQUIRE(wired_peek(&all, 0, 1, 0, &message));
    const struct tt_rank_record *seen = tt_fabric_record(all.ranks.fabrics[1], 0);
    CHECK_EQ(atomic_load(&seen->done), 5);
    const struct tt_entry *entered = tt_fabric_entry(all.ranks.fabrics[1], 0, 6);
    CHECK_EQ(atomic_load(&seen->entered), 6);
    CHECK_EQ(atomic_load(&entered->seq), 6);
    CHECK_EQ(atomic_load(&entered->count), 1234);
    atomic_store(&mine->done, 6);
    tt_wires_send_record(all.wires[0]);
    while (atomic_load(&seen->done) != 6) REQUIRE(wired_turn(&all));
    wired_close(&all);
}

TEST(wires, tell_of_a_replay_that_it_has_ended_when_its_messages_are_on_their_way)
{
    static const struct {
        uint64_t replays, sent, told; /* replays: twice those that have ended, and 1 for one more */
    } cases[] = {{1, 0, 1}, {2, 0, 1}, {3, 0, 1}, {3, 1, 3}, {8, 1, 3}, {9, 3, 7}, {9, 4, 9}};
    struct wired all;
    const struct tt_wires_config config = wired_config();
    REQUIRE(wired_open(&all, 2, &config));
    struct tt_fabric *fabric = all.ranks.fabrics[0];
    const struct tt_rank_record *seen = tt_fabric_record(all.ranks.fabrics[1], 0);
    struct tt_message message;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        atomic_store(&fabric->record->replays, cases[i].replays);
        atomic_store(&fabric->replays_sent, cases[i].sent);
        atomic_store(&fabric->record->entered, i + 1); /* told ahead of the next message */
        REQUIRE(wired_slot(&all, 0, 1, 0, 4));
        struct tt_link *tx = tt_wires_tx(all.wires[0], 1, 0);
        tx->ops->publish(tx, 4, 1);
        REQUIRE(wired_peek(&all, 0, 1, 0, &message));
        tt_wires_rx(all.wires[1], 0, 0)->ops->release(tt_wires_rx(all.wires[1], 0, 0));
        CHECK_EQ(atomic_load(&seen->replays), cases[i].told);
    }
    wired_close(&all);
}

TEST(wires, are_flushed_when_nothing_waits_here)
{
    struct wired all;
    const struct tt_wires_config config = wired_config();
    REQUIRE(wired_open(&all, 2, &config));
    struct tt_link *tx = tt_wires_tx(all.wires[0], 1, 0), *rx = tt_wires_rx(all.wires[1], 0, 0);
    CHECK(tt_wires_flushed(all.wires[0]));
    for (int i = 0; i < 40; i++) {
        REQUIRE(wired_slot(&all, 0, 1, 0, 65536));
        tx->ops->publish(tx, 65536, 1);
        struct tt_message message;
        REQUIRE(wired_peek(&all, 0, 1, 0, &message));
        rx->ops->release(rx);
        while (!tt_wires_flushed(all.wires[0]) || !tx->ops->flushed(tx)) REQUIRE(wired_turn(&all));
        CHECK(rx->ops->flushed(rx));
    }
    wired_close(&all);
}
