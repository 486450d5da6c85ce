/* Bridges between two ranks over links that lie in this test, which also plays the kernels. */
#include "carrier/kernel/bridge.h"

#include <stdlib.h>
#include <string.h>

#include "shim.h"

enum { CHANNELS = 3, SLOTS = 4, SLOT_BYTES = 256, ROOM = 3, MOST_LINK_BYTES = 1024 };

static const struct tt_bridge_shape shape = {
    .nranks = 2, .nchannels = CHANNELS, .nslots = SLOTS, .slot_bytes = SLOT_BYTES};

/* ---- A link: what one end publishes the other one finds ------------------------------------- */

struct fake {
    struct tt_link link;
    char slots[ROOM][MOST_LINK_BYTES];
    size_t nbytes[ROOM];
    unsigned published, released;
    bool lies_nowhere; /* messages must be fetched */
    bool is_busy;      /* never seen flushed */
    bool is_held;      /* what was sent is with a device, which drops it when the process ends */
    bool is_closed;    /* its sender is gone: to look for more is a failure */
};

static struct fake *fake_of(struct tt_link *link)
{
    return link->end;
}

static void *slot(struct tt_link *link, size_t nbytes)
{
    struct fake *fake = fake_of(link);
    CHECK(nbytes <= link->slot_bytes);
    return fake->published - fake->released < ROOM ? fake->slots[fake->published % ROOM] : NULL;
}

static void publish(struct tt_link *link, size_t nbytes, uint64_t signature)
{
    struct fake *fake = fake_of(link);
    (void)signature;
    fake->nbytes[fake->published++ % ROOM] = nbytes;
}

static tt_status peek(struct tt_link *link, struct tt_message *message)
{
    const struct fake *fake = fake_of(link);
    if (fake->published == fake->released) return fake->is_closed ? TT_ERR_REMOTE : TT_IN_PROGRESS;
    *message =
        (struct tt_message){.data = fake->lies_nowhere ? NULL : fake->slots[fake->released % ROOM],
                            .nbytes = fake->nbytes[fake->released % ROOM]};
    return TT_OK;
}

static tt_status fetch(struct tt_link *link, void *to, size_t offset, size_t nbytes)
{
    const struct fake *fake = fake_of(link);
    memcpy(to, fake->slots[fake->released % ROOM] + offset, nbytes);
    return TT_OK;
}

static void release(struct tt_link *link)
{
    fake_of(link)->released++;
}

static bool flushed(struct tt_link *link)
{
    return !fake_of(link)->is_busy;
}

static bool delivered(struct tt_link *link)
{
    return !fake_of(link)->is_busy && !fake_of(link)->is_held;
}

static const struct tt_link_ops ops = {.slot = slot,
                                       .publish = publish,
                                       .peek = peek,
                                       .fetch = fetch,
                                       .release = release,
                                       .flushed = flushed,
                                       .delivered = delivered};

static void open_fake(struct fake *fake, size_t slot_bytes)
{
    *fake = (struct fake){.link = {.ops = &ops, .end = fake, .slot_bytes = slot_bytes}};
}

/* ---- Two ranks ------------------------------------------------------------------------------ */

struct pair {
    struct fake links[2]; /* [the rank that sends] */
    struct tt_bridges *bridges[2];
    bool is_gone[2]; /* as the other rank knows */
    void *memory[2][2 * CHANNELS];
    struct tt_device_end ends[2][2 * CHANNELS];
};

static bool is_gone(const void *arg, int rank)
{
    return ((const struct pair *)arg)->is_gone[rank];
}

static void pair_open(struct pair *pair, size_t link_bytes)
{
    memset(pair, 0, sizeof *pair);
    for (int r = 0; r < 2; r++) {
        open_fake(&pair->links[r], link_bytes);
        REQUIRE(!tt_bridges_create(&pair->bridges[r], &shape, is_gone, pair));
    }
}

static struct tt_device_end *pair_bind(struct pair *pair, int rank, int channel, bool outgoing)
{
    const struct tt_bridge_pair links = {&pair->links[rank].link, &pair->links[1 - rank].link};
    const int at = 2 * channel + outgoing;
    CHECK(!tt_bridges_has(pair->bridges[rank], 1 - rank, channel, outgoing));
    pair->memory[rank][at] = aligned_alloc(128, tt_bridge_bytes(&shape));
    memset(pair->memory[rank][at], 0, tt_bridge_bytes(&shape));
    tt_bridges_lay(&shape, outgoing, pair->memory[rank][at], &pair->ends[rank][at]);
    CHECK(!tt_bridges_has(pair->bridges[rank], 1 - rank, channel, outgoing));
    CHECK(!tt_bridges_bind(pair->bridges[rank], 1 - rank, channel, &links, &pair->ends[rank][at]));
    CHECK(tt_bridges_has(pair->bridges[rank], 1 - rank, channel, outgoing));
    return &pair->ends[rank][at];
}

static void pair_close(struct pair *pair)
{
    for (int r = 0; r < 2; r++) {
        tt_bridges_destroy(pair->bridges[r]);
        for (int i = 0; i < 2 * CHANNELS; i++) free(pair->memory[r][i]);
    }
}

/* Until nothing moves any more. */
static void pair_move(struct pair *pair)
{
    for (bool moved = true; moved;) {
        moved = false;
        for (int r = 0; r < 2; r++) {
            const tt_status status = tt_bridges_move(pair->bridges[r]);
            CHECK(status >= 0);
            moved = moved || status == TT_OK;
        }
    }
}

/* ---- Kernels -------------------------------------------------------------------------------- */

static char byte_of(uint32_t number, int channel, size_t i)
{
    return (char)(number * 7 + (uint32_t)channel * 31 + i);
}

static size_t length_of(uint32_t number)
{
    return (size_t)number * 37 % (SLOT_BYTES + 1);
}

/* As a kernel sends. False: no slot is free. */
static bool kernel_send(struct tt_device_end *end, int channel)
{
    end->known_tail = (uint32_t)*end->tail;
    if (end->count - end->known_tail > SLOTS - 1) return false;
    const uint32_t at = end->count % SLOTS;
    const size_t nbytes = length_of(end->count);
    for (size_t i = 0; i < nbytes; i++)
        end->slots[at * SLOT_BYTES + i] = byte_of(end->count, channel, i);
    const uint64_t head = tt_device_head(end->count + 1, 0xabc);
    end->notes[at] = (struct tt_device_note){.head = head, .nbytes = end->count, .length = nbytes};
    *end->head = head;
    end->count++;
    return true;
}

/* As a kernel receives; releases if `releases`. False: no message has come. */
static bool kernel_take(struct tt_device_end *end, int channel, bool releases)
{
    if ((uint32_t)*end->head - end->count - 1 >= SLOTS) return false;
    const uint32_t at = end->count % SLOTS;
    CHECK_EQ(end->notes[at].head, tt_device_head(end->count + 1, 0xabc));
    CHECK_EQ(end->notes[at].nbytes, end->count);
    CHECK_EQ(end->notes[at].reference, 0);
    bool same = true;
    for (size_t i = 0; i < length_of(end->count); i++)
        same = same && end->slots[at * SLOT_BYTES + i] == byte_of(end->count, channel, i);
    CHECK(same);
    end->count++;
    if (releases) *end->tail = end->count;
    return true;
}

/* ---- Tests ---------------------------------------------------------------------------------- */

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
    tt_bridges_lay(&shape, false, memory, &laid);
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
    pair_move(&pair);
    CHECK(has_sent(pair.bridges[1]));
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
