/* Bridges between two ranks over links that lie in this test, which also plays the kernels. */
#include "carrier/two_ranks.h"

TEST(bridges, a_sender_has_no_slot_before_its_receiver_is_bound)
{
    static struct pair pair;
    pair_open(&pair, 1024);
    struct tt_device_end *out = pair_bind(&pair, 0, 1, true);
    CHECK(out->outgoing && out->system && !out->reaches && !out->lines);
    pair_move(&pair);
    CHECK(!kernel_send(out, 1));
    struct tt_device_end *in = pair_bind(&pair, 1, 1, false);
    pair_move(&pair);
    CHECK(kernel_send(out, 1));
    pair_move(&pair);
    CHECK(kernel_take(in, 1, true));
    CHECK(!kernel_take(in, 1, true));
    pair_close(&pair);
}

TEST(bridges, a_credit_that_came_before_the_sender_was_bound_counts)
{
    static struct pair pair;
    pair_open(&pair, 1024);
    (void)pair_bind(&pair, 1, 2, false);
    (void)pair_bind(&pair, 0, 0, true); /* so that rank 0 reads */
    pair_move(&pair);
    CHECK(kernel_send(pair_bind(&pair, 0, 2, true), 2));
    pair_close(&pair);
}

/* Its peer may make no call for long. */
TEST(bridges, a_mark_waits_for_no_first_credit_that_a_full_link_does_not_take)
{
    static struct pair pair;
    pair_open(&pair, 1024);
    (void)pair_bind(&pair, 0, 0, false);
    pair.links[0].published = ROOM;
    CHECK_EQ(tt_bridges_move(pair.bridges[0]), TT_IN_PROGRESS);
    tt_bridges_mark(pair.bridges[0], TT_BRIDGE_EXCHANGES);
    CHECK(tt_bridges_have_sent(pair.bridges[0], TT_BRIDGE_EXCHANGES));
    pair_close(&pair);
}

TEST(bridges, a_rank_that_has_only_received_ends_when_its_peer_knows_of_it)
{
    static struct pair pair;
    pair_open(&pair, 1024);
    struct tt_device_end *out = pair_bind(&pair, 0, 0, true), *in = pair_bind(&pair, 1, 0, false);
    pair_move(&pair);
    CHECK(kernel_send(out, 0));
    pair_move(&pair);
    CHECK(kernel_take(in, 0, true));
    tt_bridges_end(pair.bridges[1]);
    CHECK(!tt_bridges_has_ended(pair.bridges[1], 0));
    CHECK_EQ(tt_bridges_move(pair.bridges[1]), TT_OK);
    CHECK(tt_bridges_has_ended(pair.bridges[1], 0));
    CHECK_EQ(tt_bridges_move(pair.bridges[0]), TT_OK);
    CHECK_EQ((uint32_t)*out->tail, 1);
    pair_close(&pair);
}

/* It may be laid out again, as by a call after one that could not tell the kernels. */
TEST(bridges, an_end_that_is_laid_out_only_is_not_there_for_its_peer)
{
    static struct pair pair;
    char memory[8192];
    struct tt_device_end laid;
    REQUIRE(tt_bridge_bytes(&shape) <= sizeof memory);
    memset(memory, 0, sizeof memory);
    pair_open(&pair, 1024);
    struct tt_device_end *out = pair_bind(&pair, 0, 0, true);
    (void)pair_bind(&pair, 1, 1, false);
    tt_bridges_lay(&shape, false, memory, NULL, &laid);
    pair_move(&pair);
    CHECK(!kernel_send(out, 0));
    for (size_t i = 0; i < sizeof memory; i++) CHECK(!memory[i]);
    struct tt_device_end *in = pair_bind(&pair, 1, 0, false);
    pair_move(&pair);
    CHECK(kernel_send(out, 0));
    pair_move(&pair);
    CHECK(kernel_take(in, 0, true));
    pair_close(&pair);
}

static void send_many(size_t link_bytes, bool lies_nowhere, int nmoves)
{
    enum { TURNS = 2000 };
    static struct pair pair;
    struct tt_device_end *out[CHANNELS], *in[CHANNELS];
    uint32_t seed = 1;
    pair_open(&pair, link_bytes);
    pair.links[0].lies_nowhere = pair.links[1].lies_nowhere = lies_nowhere;
    for (int c = 0; c < CHANNELS; c++) {
        out[c] = pair_bind(&pair, c % 2, c, true);
        in[c] = pair_bind(&pair, 1 - c % 2, c, false);
    }
    for (int turn = 0; turn < TURNS; turn++) {
        const int c = (int)((seed = seed * 1664525 + 1013904223) >> 8) % CHANNELS;
        (void)kernel_send(out[c], c);
        for (int i = 0; i < nmoves; i++) CHECK(tt_bridges_move(pair.bridges[(turn + i) % 2]) >= 0);
        (void)kernel_take(in[(c + turn) % CHANNELS], (c + turn) % CHANNELS, true);
    }
    pair_move(&pair);
    for (int c = 0; c < CHANNELS; c++) {
        while (kernel_take(in[c], c, true)) continue;
        CHECK_EQ(in[c]->count, out[c]->count);
        CHECK(in[c]->count > TURNS / CHANNELS / 2);
    }
    pair_move(&pair);
    CHECK(!tt_bridges_have_work(pair.bridges[0]) && !tt_bridges_have_work(pair.bridges[1]));
    pair_close(&pair);
}

TEST(bridges, messages_of_all_channels_come_whole_and_in_order)
{
    send_many(1024, false, 1);
    send_many(1024, true, 1);
}

TEST(bridges, long_messages_pass_links_with_short_slots)
{
    send_many(64, false, 20);
    send_many(33, true, 400);
}

TEST(bridges, a_channel_whose_receiver_waits_holds_up_no_other)
{
    static struct pair pair;
    pair_open(&pair, 64);
    struct tt_device_end *stuck = pair_bind(&pair, 0, 0, true), *out = pair_bind(&pair, 0, 1, true);
    struct tt_device_end *full = pair_bind(&pair, 1, 0, false), *in = pair_bind(&pair, 1, 1, false);
    pair_move(&pair);
    for (int i = 0; i < 100; i++) {
        (void)kernel_send(stuck, 0);
        CHECK(kernel_send(out, 1));
        pair_move(&pair);
        CHECK(kernel_take(in, 1, true));
        pair_move(&pair);
    }
    CHECK_EQ(stuck->count, SLOTS);
    for (int i = 0; i < SLOTS; i++) CHECK(kernel_take(full, 0, false));
    CHECK(!kernel_send(stuck, 0));
    pair_close(&pair);
}

TEST(bridges, a_rank_ends_when_all_that_it_has_sent_is_released)
{
    static struct pair pair;
    pair_open(&pair, 1024);
    struct tt_device_end *out = pair_bind(&pair, 0, 0, true), *in = pair_bind(&pair, 1, 0, false);
    pair_move(&pair);
    CHECK(kernel_send(out, 0));
    tt_bridges_end(pair.bridges[0]);
    pair_move(&pair);
    CHECK(kernel_take(in, 0, false));
    pair_move(&pair);
    CHECK(!tt_bridges_has_ended(pair.bridges[0], 1));
    *in->tail = in->count;
    pair_move(&pair);
    CHECK(tt_bridges_has_ended(pair.bridges[0], 1));
    CHECK(tt_bridges_has_ended(pair.bridges[1], 0)); /* it needs nothing any more */
    CHECK_EQ(tt_bridges_move(pair.bridges[1]), TT_IN_PROGRESS);
    pair_close(&pair);
}

TEST(bridges, a_rank_does_not_wait_for_one_over_whose_bridges_no_message_went)
{
    static struct pair pair;
    pair_open(&pair, 1024);
    struct tt_device_end *out = pair_bind(&pair, 0, 0, true);
    (void)pair_bind(&pair, 0, 0, false);
    pair.links[0].published = ROOM; /* full: the peer has made no call */
    tt_bridges_end(pair.bridges[0]);
    CHECK(tt_bridges_has_ended(pair.bridges[0], 1));
    *out->head = tt_device_head(1, 0xabc);
    CHECK(!tt_bridges_has_ended(pair.bridges[0], 1));
    pair_close(&pair);
}

TEST(bridges, a_rank_that_has_heard_of_the_others_end_may_leave_at_once)
{
    static struct pair pair;
    pair_open(&pair, 1024);
    (void)pair_bind(&pair, 0, 0, true);
    (void)pair_bind(&pair, 1, 0, false);
    pair_move(&pair);
    tt_bridges_end(pair.bridges[0]);
    CHECK_EQ(tt_bridges_move(pair.bridges[0]), TT_OK);
    CHECK_EQ(tt_bridges_move(pair.bridges[1]), TT_OK);
    tt_bridges_end(pair.bridges[1]);
    CHECK(tt_bridges_has_ended(pair.bridges[0], 1) && tt_bridges_has_ended(pair.bridges[1], 0));
    pair.links[1].is_closed = true;
    CHECK_EQ(tt_bridges_move(pair.bridges[0]), TT_IN_PROGRESS);
    pair.links[0].is_closed = true; /* all that rank 0 sends was taken */
    CHECK_EQ(tt_bridges_move(pair.bridges[1]), TT_IN_PROGRESS);
    pair_close(&pair);
}

/* Whether all is that kernels have published and released. */
static bool has_sent(struct tt_bridges *bridges)
{
    tt_bridges_mark(bridges, TT_BRIDGE_COLLECTIVES);
    return tt_bridges_have_sent(bridges, TT_BRIDGE_COLLECTIVES);
}

TEST(bridges, what_kernels_have_published_or_released_is_sent_when_links_have_had_room_for_it)
{
    static struct pair pair;
    pair_open(&pair, 64);
    struct tt_device_end *out = pair_bind(&pair, 0, 0, true), *in = pair_bind(&pair, 1, 0, false);
    pair_move(&pair);
    for (int i = 0; i < SLOTS; i++) CHECK(kernel_send(out, 0));
    CHECK(!has_sent(pair.bridges[0]));
    CHECK(tt_bridges_move(pair.bridges[0]) >= 0);
    CHECK(!has_sent(pair.bridges[0]));
    pair_move(&pair);
    CHECK(has_sent(pair.bridges[0]));
    for (int i = 0; i < SLOTS; i++) CHECK(kernel_take(in, 0, true));
    CHECK(!has_sent(pair.bridges[1]));
    CHECK(tt_bridges_have_work(pair.bridges[1]));
    pair_move(&pair);
    CHECK(has_sent(pair.bridges[1]));
    CHECK(!tt_bridges_have_work(pair.bridges[1]));
    pair_close(&pair);
}

TEST(bridges, a_credit_that_a_full_link_does_not_take_is_sent_later)
{
    static struct pair pair;
    pair_open(&pair, 1024);
    struct tt_device_end *out = pair_bind(&pair, 0, 0, true), *in = pair_bind(&pair, 1, 0, false);
    pair_move(&pair);
    CHECK(kernel_send(out, 0));
    pair_move(&pair);
    CHECK(kernel_take(in, 0, true));
    pair.links[1].published += ROOM;
    CHECK_EQ(tt_bridges_move(pair.bridges[1]), TT_IN_PROGRESS);
    pair.links[1].published -= ROOM;
    pair_move(&pair);
    CHECK_EQ((uint32_t)*out->tail, 1);
    pair_close(&pair);
}

TEST(bridges, what_a_device_may_drop_is_not_sent)
{
    static struct pair pair;
    pair_open(&pair, 1024);
    struct tt_device_end *out = pair_bind(&pair, 0, 0, true), *in = pair_bind(&pair, 1, 0, false);
    pair_move(&pair);
    CHECK(kernel_send(out, 0));
    pair.links[0].is_held = true;
    pair_move(&pair);
    CHECK(!has_sent(pair.bridges[0]));
    CHECK(tt_bridges_have_work(pair.bridges[0]));
    pair.links[0].is_held = false;
    CHECK(has_sent(pair.bridges[0]));
    CHECK(!tt_bridges_have_work(pair.bridges[0]));
    CHECK(kernel_take(in, 0, true));
    pair.links[1].is_held = true;
    pair_move(&pair);
    CHECK(!has_sent(pair.bridges[1])); /* the credit */
    pair.links[1].is_held = false;
    CHECK(has_sent(pair.bridges[1]));
    pair_close(&pair);
}

TEST(bridges, what_a_call_has_sent_is_on_its_way_while_later_calls_send_on)
{
    enum { LATER = 400 };
    static struct pair pair;
    pair_open(&pair, 1024);
    struct tt_device_end *out = pair_bind(&pair, 0, 0, true), *in = pair_bind(&pair, 1, 0, false);
    int first = -1;
    pair_move(&pair);
    CHECK(kernel_send(out, 0));
    tt_bridges_mark(pair.bridges[0], TT_BRIDGE_EXCHANGES);
    pair.links[0].is_busy = true;
    for (int i = 0; i < LATER; i++) {
        CHECK(kernel_send(out, 0));
        CHECK(!has_sent(pair.bridges[0]));
        pair_move(&pair);
        while (kernel_take(in, 0, true)) continue;
        pair_move(&pair);
        if (first < 0 && tt_bridges_have_sent(pair.bridges[0], TT_BRIDGE_EXCHANGES)) first = i;
    }
    CHECK(first > ROOM && first < LATER / 2);
    CHECK(tt_bridges_have_sent(pair.bridges[0], TT_BRIDGE_EXCHANGES));
    pair_close(&pair);
}

TEST(bridges, a_mark_waits_for_no_message_that_a_full_link_does_not_take_yet)
{
    static struct pair pair;
    pair_open(&pair, 1024);
    struct tt_device_end *out = pair_bind(&pair, 0, 0, true);
    (void)pair_bind(&pair, 1, 0, false);
    pair_move(&pair);
    CHECK(kernel_send(out, 0));
    tt_bridges_mark(pair.bridges[0], TT_BRIDGE_EXCHANGES);
    CHECK(!tt_bridges_have_sent(pair.bridges[0], TT_BRIDGE_EXCHANGES));
    for (int i = 1; i < SLOTS; i++) CHECK(kernel_send(out, 0));
    CHECK(tt_bridges_move(pair.bridges[0]) >= 0);
    CHECK(!has_sent(pair.bridges[0]));
    CHECK(tt_bridges_have_sent(pair.bridges[0], TT_BRIDGE_EXCHANGES));
    pair_close(&pair);
}

TEST(bridges, a_rank_that_is_gone_gets_nothing_and_what_it_sent_is_taken)
{
    static struct pair pair;
    pair_open(&pair, 1024);
    struct tt_device_end *in = pair_bind(&pair, 0, 0, false), *to = pair_bind(&pair, 0, 1, true);
    struct tt_device_end *out = pair_bind(&pair, 1, 0, true);
    (void)pair_bind(&pair, 1, 1, false);
    pair_move(&pair);
    CHECK(kernel_send(out, 0) && kernel_send(to, 1));
    CHECK_EQ(tt_bridges_move(pair.bridges[1]), TT_OK);
    pair.is_gone[1] = true;
    CHECK_EQ(tt_bridges_move(pair.bridges[0]), TT_OK);
    CHECK(kernel_take(in, 0, true));
    CHECK_EQ(tt_bridges_move(pair.bridges[0]), TT_IN_PROGRESS);
    CHECK(!tt_bridges_have_work(pair.bridges[0]) && has_sent(pair.bridges[0]));
    tt_bridges_end(pair.bridges[0]);
    CHECK(tt_bridges_has_ended(pair.bridges[0], 1));
    pair_close(&pair);
}

/* What rank 1 says to a message of these words from rank 0. */
static tt_status take_words(struct pair *pair, const uint32_t *words, size_t nbytes)
{
    struct tt_link *link = &pair->links[0].link;
    memcpy(link->ops->slot(link, nbytes), words, nbytes);
    link->ops->publish(link, nbytes, 0);
    return tt_bridges_move(pair->bridges[1]);
}

TEST(bridges, what_is_no_frame_that_is_expected_is_an_error)
{
    enum { DATA = 1, CREDIT = 2, UNKNOWN = 9, WORDS = 8 };
    static const uint32_t frames[][WORDS] = {
        {UNKNOWN},                    /* no such kind */
        {CREDIT | CHANNELS << 16},    /* no such channel */
        {DATA | 2 << 16},             /* a channel that is not bound */
        {DATA, 1},                    /* not the next message */
        {DATA, 0, 8, 8},              /* not its next part */
        {DATA, 0, 0, SLOT_BYTES + 1}, /* longer than a slot */
    };
    /* parts of one message that say different lengths */
    static const uint32_t first[WORDS + 2] = {DATA, 0, 0, 16}, shorter[WORDS] = {DATA, 0, 8, 4},
                                        longer[WORDS] = {DATA, 0, 8, 32};
    for (size_t i = 0; i <= sizeof frames / sizeof *frames; i++) {
        static struct pair pair;
        const bool is_short = i == sizeof frames / sizeof *frames;
        pair_open(&pair, 1024);
        (void)pair_bind(&pair, 1, 0, false);
        CHECK_EQ(take_words(&pair, frames[is_short ? 0 : i], is_short ? 4 : sizeof frames[0]),
                 TT_ERR_REMOTE);
        CHECK(strstr(tt_last_error(), "rank 0 sent no frame"));
        pair_close(&pair);
    }
    for (int i = 0; i < 2; i++) {
        static struct pair pair;
        pair_open(&pair, 1024);
        (void)pair_bind(&pair, 1, 0, false);
        CHECK_EQ(take_words(&pair, first, sizeof first), TT_OK);
        CHECK_EQ(take_words(&pair, i ? longer : shorter, sizeof longer), TT_ERR_REMOTE);
        pair_close(&pair);
    }
}

/* Such a frame would overwrite what the kernel has not read. */
TEST(bridges, a_message_without_a_credit_is_an_error)
{
    enum { DATA = 1, WORDS = 8 };
    static struct pair pair;
    pair_open(&pair, 1024);
    (void)pair_bind(&pair, 1, 0, false);
    for (uint32_t i = 0; i < SLOTS; i++)
        CHECK_EQ(take_words(&pair, (const uint32_t[WORDS]){DATA, i}, 4 * WORDS), TT_OK);
    CHECK_EQ(take_words(&pair, (const uint32_t[WORDS]){DATA, SLOTS}, 4 * WORDS), TT_ERR_REMOTE);
    pair_close(&pair);
}

TEST(bridges, a_credit_that_no_receiver_gives_is_an_error)
{
    enum { CREDIT = 2, WORDS = 8 };
    static const uint32_t numbers[] = {3, UINT32_MAX,
                                       0}; /* more than were sent; less than before */
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        static struct pair pair;
        const uint32_t frame[WORDS] = {CREDIT, numbers[i]};
        pair_open(&pair, 1024);
        struct tt_device_end *out = pair_bind(&pair, 1, 0, true);
        struct tt_device_end *in = pair_bind(&pair, 0, 0, false);
        pair_move(&pair);
        CHECK(kernel_send(out, 0) && kernel_send(out, 0));
        pair_move(&pair);
        CHECK(kernel_take(in, 0, true));
        pair_move(&pair);
        CHECK_EQ(take_words(&pair, frame, sizeof frame), TT_ERR_REMOTE);
        pair_close(&pair);
    }
}
