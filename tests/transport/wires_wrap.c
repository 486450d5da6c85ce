/* Wires whose counts of messages and writes pass 2^31 and 2^32: frames say the lower half. */
#include "transport/wired.h"

#include <fcntl.h>
#include <unistd.h>

#include "shim.h"
#include "transport/wires_internal.h"

enum { NBYTES = 3000, NMESSAGES = 24, CHANNEL = 1 };

static struct tt_tcp_link *end_of(struct wired *all, int rank, bool outgoing)
{
    return tt_tcp_link_at(&all->wires[rank]->table[!rank]->tcp, outgoing, CHANNEL);
}

/* As if n messages had gone each way; no message is under way. */
static void count_from(struct wired *all, uint64_t n)
{
    for (int rank = 0; rank < 2; rank++) {
        struct tt_tcp_link *tx = end_of(all, rank, true), *rx = end_of(all, rank, false);
        tx->allowed += n - tx->next;
        tx->next = rx->next = n;
    }
}

/* From a slot; every second one from the sender's memory, of which it may be asked back at once. */
static bool send_one(struct wired *all, int from, unsigned i, const char *data)
{
    struct tt_link *tx = tt_wires_tx(all->wires[from], !from, CHANNEL);
    void *slot = wired_slot(all, from, !from, CHANNEL, NBYTES);
    if (!slot) return false;
    if (i % 2) {
        if (!tx->ops->publish_direct(tx, &no_memory, data, NBYTES, i)) return false;
        if (i % 4 == 1) tt_wires_give_back(all->wires[from]);
        return true;
    }
    memcpy(slot, data, NBYTES);
    tx->ops->publish(tx, NBYTES, i);
    return true;
}

/* Both ways, always one message behind the next. */
static void exchange(struct wired *all)
{
    static char data[2][NMESSAGES][NBYTES];
    for (unsigned i = 0; i <= NMESSAGES; i++)
        for (int from = 0; from < 2; from++) {
            struct tt_link *rx = tt_wires_rx(all->wires[!from], from, CHANNEL);
            struct tt_message message;
            if (i < NMESSAGES) {
                wired_fill(data[from][i], NBYTES, i + 100 * (unsigned)from);
                REQUIRE(send_one(all, from, i, data[from][i]));
            }
            if (!i) continue;
            REQUIRE(wired_peek(all, from, !from, CHANNEL, &message));
            CHECK_EQ(message.signature, i - 1);
            CHECK(message.nbytes == NBYTES &&
                  wired_matches(message.data, NBYTES, i - 1 + 100 * (unsigned)from));
            rx->ops->release(rx);
        }
}

static void pass(uint64_t boundary, size_t nslots)
{
    struct wired all;
    struct tt_wires_config config = wired_config();
    config.nslots = nslots;
    REQUIRE(wired_open(&all, 2, &config));
    exchange(&all);
    count_from(&all, boundary - NMESSAGES / 2);
    exchange(&all);
    CHECK(end_of(&all, 0, true)->next > boundary && end_of(&all, 1, false)->next > boundary);
    wired_close(&all);
}

TEST(wires_wrap, messages_are_right_while_their_numbers_pass_2_to_31_and_2_to_32)
{
    setenv("TUTTI_SOCKETS", "3", 1);
    tt_config_reload();
    for (size_t nslots = 3; nslots <= 8; nslots++)
        for (int bits = 31; bits <= 32; bits++) pass(UINT64_C(1) << bits, nslots);
    unsetenv("TUTTI_SOCKETS");
    tt_config_reload();
}

/* A channel lends nothing to the kernel while others lend more and more. */
TEST(wires_wrap, a_channel_that_lent_nothing_for_long_has_all_its_memory)
{
    for (int bits = 30; bits <= 33; bits++) {
        struct tt_tcp tcp = {.fd = -1};
        tcp.lent = tcp.returned = tcp.returned_to = 3ull << bits;
        CHECK(tt_tcp_returned_of(&tcp, CHANNEL));
        tcp.lent_to[CHANNEL] = ++tcp.lent;
        tcp.fd = open("/dev/null", O_RDONLY);
        CHECK(!tt_tcp_returned_of(&tcp, CHANNEL)); /* the kernel has said nothing of that */
        CHECK(tt_tcp_returned_of(&tcp, 0));
        close(tcp.fd);
    }
}
