#include "transport/wired.h"

#include "shim.h"

TEST(wires, carry_messages_of_all_sizes_both_ways_on_all_channels)
{
    struct wired all;
    const struct tt_wires_config config = wired_config();
    REQUIRE(wired_open(&all, 2, &config));
    static const size_t sizes[] = {0, 1, 8, 32, 33, 4071, 4072, 4073, 5000, 65535, 65536};
    const int nsizes = sizeof sizes / sizeof *sizes;
    for (int turn = 0; turn < 5 * nsizes; turn++)
        for (int from = 0; from < 2; from++)
            for (int channel = 0; channel < TT_NCHANNELS; channel++) {
                const size_t nbytes = sizes[turn % nsizes];
                const unsigned seed = (unsigned)(turn * 10 + from * 3 + channel);
                struct tt_link *tx = tt_wires_tx(all.wires[from], !from, channel);
                struct tt_link *rx = tt_wires_rx(all.wires[!from], from, channel);
                void *slot = wired_slot(&all, from, !from, channel, nbytes);
                REQUIRE(slot);
                wired_fill(slot, nbytes, seed);
                tx->ops->publish(tx, nbytes, seed);
                struct tt_message message;
                REQUIRE(wired_peek(&all, from, !from, channel, &message));
                CHECK_EQ(message.nbytes, nbytes);
                CHECK_EQ(message.signature, seed);
                CHECK(wired_matches(message.data, nbytes, seed));
                rx->ops->release(rx);
            }
    wired_close(&all);
}
