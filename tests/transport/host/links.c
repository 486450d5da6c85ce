/* Tests of the links of one host. */
#include <string.h>

#include "shim.h"
#include "transport/together.h"

TEST(links, carry_messages_in_order_and_hold_as_many_as_they_have_slots_or_flags)
{
    struct together all;
    const struct tt_fabric_config config = together_config();
    REQUIRE(together_open(&all, 2, &config));
    struct tt_link *tx = tt_fabric_tx(all.fabrics[0], 1, 0),
                   *rx = tt_fabric_rx(all.fabrics[1], 0, 0);
    struct tt_message message;
    CHECK_EQ(rx->ops->peek(rx, &message), TT_IN_PROGRESS);
    int sent = 0, got = 0;
    /* A group of short messages, or the slot that they share, may not be reported as taken yet. */
    const int unreported = 8, most = (int)tt_link_flags(config.nslots);
    for (int turn = 0; turn < 50; turn++) {
        const size_t nbytes = (size_t)(turn * 37 % 4097); /* inline, slot, full slot, empty */
        for (char *slot; (slot = tx->ops->slot(tx, nbytes)); sent++) {
            memset(slot, sent & 255, nbytes);
            tx->ops->publish(tx, nbytes, (uint64_t)sent);
        }
        /* In their flags, or eight share a slot; two of at most 2048 bytes share one. */
        const bool is_short = nbytes <= 512;
        CHECK(sent - got >= (is_short ? most - unreported : (int)config.nslots - 1));
        CHECK(sent - got <= (nbytes <= 2048 ? most : (int)config.nslots));
        CHECK(!tx->ops->drained(tx));
        for (; rx->ops->peek(rx, &message) == TT_OK; got++) {
            CHECK_EQ(message.signature, got);
            CHECK_EQ(message.nbytes, nbytes);
            for (size_t i = 0; i < nbytes; i++)
                if (((const unsigned char *)message.data)[i] != (got & 255)) {
                    CHECK_MESSAGE(false, "message %d has a wrong byte %zu", got, i);
                    break;
                }
            rx->ops->release(rx);
        }
        CHECK_EQ(sent, got);
        CHECK(tx->ops->drained(tx));
    }
    together_close(&all);
}

TEST(links, let_a_sender_of_short_messages_be_as_far_ahead_as_there_are_flags)
{
    static const size_t lengths[] = {8, 33, 64, 512};
    for (size_t l = 0; l < sizeof lengths / sizeof *lengths; l++) {
        struct together all;
        const struct tt_fabric_config config = together_config();
        REQUIRE(together_open(&all, 2, &config));
        struct tt_link *tx = tt_fabric_tx(all.fabrics[0], 1, 0),
                       *rx = tt_fabric_rx(all.fabrics[1], 0, 0);
        uint32_t sent = 0;
        for (char *slot; (slot = tx->ops->slot(tx, lengths[l])); sent++) {
            memset(slot, (int)sent, lengths[l]);
            tx->ops->publish(tx, lengths[l], sent);
        }
        CHECK_EQ(sent, tt_link_flags(config.nslots));
        struct tt_message message;
        for (uint32_t got = 0; got < sent; got++) {
            REQUIRE(rx->ops->peek(rx, &message) == TT_OK);
            const unsigned char *data = message.data;
            CHECK(data[0] == got && data[lengths[l] - 1] == got);
            rx->ops->release(rx);
        }
        together_close(&all);
    }
}

/* How many messages of this length a link holds; all arrive unchanged. */
static uint32_t count_held(size_t nbytes)
{
    struct together all;
    const struct tt_fabric_config config = together_config();
    struct tt_message message;
    uint32_t nsent = 0;
    CHECK(together_open(&all, 2, &config));
    struct tt_link *tx = tt_fabric_tx(all.fabrics[0], 1, 0),
                   *rx = tt_fabric_rx(all.fabrics[1], 0, 0);
    for (unsigned char *slot; (slot = tx->ops->slot(tx, nbytes)); nsent++) {
        for (size_t i = 0; i < nbytes; i++) slot[i] = (unsigned char)(i * 7 + nsent);
        tx->ops->publish(tx, nbytes, nsent);
    }
    for (uint32_t got = 0; got < nsent && rx->ops->peek(rx, &message) == TT_OK; got++) {
        const unsigned char *data = message.data;
        size_t nright = 0;
        while (nright < nbytes && data[nright] == (unsigned char)(nright * 7 + got)) nright++;
        CHECK_MESSAGE(message.nbytes == nbytes && nright == nbytes, "message %u of %zu bytes", got,
                      nbytes);
        rx->ops->release(rx);
    }
    CHECK(tx->ops->drained(tx));
    together_close(&all);
    return nsent;
}

TEST(links, share_slots_among_messages_of_2048_bytes_but_not_of_2049)
{
    const struct tt_fabric_config config = together_config();
    const uint32_t nslots = (uint32_t)config.nslots;
    CHECK_EQ(count_held(2048), (uint32_t)(config.slot_bytes / 2048) * nslots);
    CHECK_EQ(count_held(2049), nslots);
}

TEST(links, have_room_for_any_message_when_all_are_taken_however_few_slots_there_are)
{
    struct together all;
    struct tt_fabric_config config = together_config();
    config.nslots = TT_MIN_SLOTS;
    config.slot_bytes = TT_MIN_SLOT_BYTES;
    REQUIRE(together_open(&all, 2, &config));
    struct tt_link *tx = tt_fabric_tx(all.fabrics[0], 1, 0),
                   *rx = tt_fabric_rx(all.fabrics[1], 0, 0);
    static const size_t lengths[] = {0, 8, 33, 100, 512, 513, TT_MIN_SLOT_BYTES};
    unsigned seed = 99;
    for (int turn = 0; turn < 5000 && !tt_test_failed(); turn++) {
        struct tt_message message;
        seed = seed * 1103515245u + 12345u;
        for (unsigned left = seed >> 16 & 7; left > 0; left--) {
            seed = seed * 1103515245u + 12345u;
            const size_t nbytes = lengths[(seed >> 16) % (sizeof lengths / sizeof *lengths)];
            char *slot = tx->ops->slot(tx, nbytes);
            if (slot) tx->ops->publish(tx, nbytes, 1);
        }
        while (rx->ops->peek(rx, &message) == TT_OK) rx->ops->release(rx);
        for (size_t l = 0; l < sizeof lengths / sizeof *lengths; l++)
            CHECK_MESSAGE(tx->ops->slot(tx, lengths[l]), "turn %d: no room for %zu bytes", turn,
                          lengths[l]);
        CHECK(tx->ops->drained(tx));
    }
    together_close(&all);
}

/* How many places a sender of long messages uses whose receiver takes each at once. */
static int count_places(bool oversubscribed, size_t nbytes)
{
    struct together all;
    struct tt_fabric_config config = together_config();
    config.slot_bytes = 16384;
    CHECK(together_open(&all, 2, &config));
    all.fabrics[0]->host.config.oversubscribed = oversubscribed;
    struct tt_link *tx = tt_fabric_tx(all.fabrics[0], 1, 0),
                   *rx = tt_fabric_rx(all.fabrics[1], 0, 0);
    const char *places[4] = {NULL};
    struct tt_message message;
    int nplaces = 0;
    for (int sent = 0; sent < 12; sent++) {
        const char *slot = tx->ops->slot(tx, nbytes);
        int at = 0;
        while (at < nplaces && places[at] != slot) at++;
        if (at == nplaces && nplaces < 4) places[nplaces++] = slot;
        tx->ops->publish(tx, nbytes, 1);
        CHECK(rx->ops->peek(rx, &message) == TT_OK);
        rx->ops->release(rx);
    }
    together_close(&all);
    return nplaces;
}

TEST(links, of_ranks_that_share_cores_keep_long_messages_in_two_slots)
{
    CHECK_EQ(count_places(false, 16384), 4); /* all slots */
    CHECK_EQ(count_places(true, 16384), 2);
    CHECK_EQ(count_places(false, 8192), 4); /* begins again after six slots, but has four */
    CHECK_EQ(count_places(true, 8192), 4);
}

/* Messages of any length up to `most`, of which now and then all are taken, and slots that are
 * asked for and not filled. Each byte of a message is checked when it is taken. */
static void use_slots_again(size_t nslots, size_t slot_bytes, unsigned seed)
{
    struct together all;
    struct tt_fabric_config config = together_config();
    config.nslots = nslots;
    config.slot_bytes = slot_bytes;
    REQUIRE(together_open(&all, 2, &config));
    struct tt_link *tx = tt_fabric_tx(all.fabrics[0], 1, 0),
                   *rx = tt_fabric_rx(all.fabrics[1], 0, 0);
    struct tt_message message;
    uint64_t sent = 0, got = 0;
    for (int turn = 0; turn < 20000 && !tt_test_failed(); turn++) {
        seed = seed * 1103515245u + 12345u;
        const size_t most = seed >> 19 & 3 ? 4000 : slot_bytes - 40;
        const size_t nbytes = seed >> 16 & 1 ? 8 : 40 + (seed >> 18) % most;
        const bool drains = (seed >> 21 & 31) == 0;
        char *slot = seed >> 17 & 1 ? tx->ops->slot(tx, nbytes) : NULL;
        if (slot && (seed >> 26 & 7)) {
            memset(slot, (int)(sent & 255), nbytes);
            tx->ops->publish(tx, nbytes, sent++);
        }
        if (slot && !drains) continue;
        while (rx->ops->peek(rx, &message) == TT_OK) {
            const unsigned char *data = message.data;
            size_t nright = 0;
            while (nright < message.nbytes && data[nright] == (got & 255)) nright++;
            CHECK_EQ(message.signature, got);
            CHECK_EQ(nright, message.nbytes);
            rx->ops->release(rx);
            got++;
            if (!drains) break;
        }
    }
    CHECK(got > 4000);
    together_close(&all);
}

TEST(links, use_slots_again_in_the_order_of_release_whatever_goes_between)
{
    for (unsigned seed = 1; seed <= 3; seed++) {
        use_slots_again(4, 8192, seed);
        use_slots_again(16, 8192, seed);
        use_slots_again(16, 32768, seed);
        use_slots_again(7, 20000, seed);
    }
}

/* A link with 16 slots of 32 KiB. */
static bool open_long_link(struct together *all, struct tt_link **tx, struct tt_link **rx)
{
    struct tt_fabric_config config = together_config();
    config.nslots = 16;
    config.slot_bytes = 32768;
    if (!together_open(all, 2, &config)) return false;
    *tx = tt_fabric_tx(all->fabrics[0], 1, 0);
    *rx = tt_fabric_rx(all->fabrics[1], 0, 0);
    return true;
}

TEST(links, use_few_slots_for_messages_of_some_kilobytes_and_all_for_long_ones)
{
    static const size_t lengths[] = {4096, 32768}, expected[] = {6, 16};
    for (int l = 0; l < 2; l++) {
        struct together all;
        struct tt_link *tx, *rx;
        REQUIRE(open_long_link(&all, &tx, &rx));
        const char *first = tx->ops->slot(tx, lengths[l]);
        size_t most = 0;
        for (int turn = 0; turn < 50; turn++) {
            const char *slot = tx->ops->slot(tx, lengths[l]);
            const size_t number = (size_t)(slot - first) / 32768 + 1;
            if (number > most) most = number;
            tx->ops->publish(tx, lengths[l], 1);
            rx->ops->release(rx);
        }
        CHECK_EQ(most, expected[l]);
        together_close(&all);
    }
}

TEST(links, a_slot_that_short_messages_share_is_not_filled_again_before_they_are_taken)
{
    struct together all;
    struct tt_link *tx, *rx;
    struct tt_message message;
    REQUIRE(open_long_link(&all, &tx, &rx));
    for (int i = 0; i < 7; i++) { /* the last one in a slot that it may share */
        const size_t nbytes = i < 6 ? 4096 : 1000;
        CHECK(tx->ops->slot(tx, nbytes));
        tx->ops->publish(tx, nbytes, 1);
    }
    for (int i = 0; i < 7; i++) rx->ops->release(rx);
    CHECK(tx->ops->slot(tx, 4096)); /* the first one again; it is not filled */
    char *slot = tx->ops->slot(tx, 1000);
    memset(slot, 7, 1000);
    tx->ops->publish(tx, 1000, 1);
    while ((slot = tx->ops->slot(tx, 4096)) != NULL) {
        memset(slot, 9, 4096);
        tx->ops->publish(tx, 4096, 1);
    }
    REQUIRE(rx->ops->peek(rx, &message) == TT_OK);
    const char *data = message.data;
    CHECK(data[0] == 7 && data[999] == 7);
    together_close(&all);
}

TEST(links, refer_to_memory_of_the_same_process_in_place)
{
    struct together all;
    const struct tt_fabric_config config = together_config();
    REQUIRE(together_open(&all, 2, &config));
    static char memory[100000];
    struct tt_link *tx = tt_fabric_tx(all.fabrics[1], 0, 1),
                   *rx = tt_fabric_rx(all.fabrics[0], 1, 1);
    CHECK(tx->ops->reaches(tx, &no_memory, memory, sizeof memory));
    CHECK(tx->ops->publish_direct(tx, &no_memory, memory, sizeof memory, 9));
    struct tt_message message;
    REQUIRE(rx->ops->peek(rx, &message) == TT_OK);
    CHECK(message.data == memory);
    CHECK_EQ(message.nbytes, sizeof memory);
    CHECK(!tx->ops->drained(tx));
    rx->ops->release(rx);
    CHECK(tx->ops->drained(tx));
    together_close(&all);
}

static void send_on_all_channels(int nchannels)
{
    struct together all;
    struct tt_fabric_config config = together_config();
    config.nchannels = nchannels;
    REQUIRE(together_open(&all, 3, &config));
    for (int from = 0; from < 3; from++)
        for (int to = 0; to < 3; to++)
            for (int channel = 0; channel < nchannels; channel++) {
                struct tt_link *tx = tt_fabric_tx(all.fabrics[from], to, channel);
                int *slot = tx->ops->slot(tx, sizeof *slot);
                REQUIRE(slot);
                *slot = from * 1000 + to * 100 + channel;
                tx->ops->publish(tx, sizeof *slot, 1);
            }
    for (int from = 0; from < 3; from++)
        for (int to = 0; to < 3; to++)
            for (int channel = 0; channel < nchannels; channel++) {
                struct tt_link *rx = tt_fabric_rx(all.fabrics[to], from, channel);
                struct tt_message message;
                REQUIRE(rx->ops->peek(rx, &message) == TT_OK);
                int value;
                memcpy(&value, message.data, sizeof value);
                CHECK_EQ(value, from * 1000 + to * 100 + channel);
                rx->ops->release(rx);
            }
    together_close(&all);
}

TEST(links, of_different_channels_and_directions_do_not_mix)
{
    send_on_all_channels(TT_MIN_CHANNELS);
    send_on_all_channels(7);
    send_on_all_channels(TT_MAX_CHANNELS);
}
