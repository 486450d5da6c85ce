/* Relays over links that lie in this test, which plays the kernel and the host behind the link. */
#include "carrier/kernel/relay.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "carrier/fake_link.h"
#include "device/call.h"
#include "executor/work.h"
#include "shim.h"

enum { CHANNELS = 2, SLOTS = 2, SLOT_BYTES = 256, LINK_BYTES = 100, SIGNATURE = 77 };

static const struct tt_bridge_shape shape = {
    .nranks = 2, .nchannels = CHANNELS, .nslots = SLOTS, .slot_bytes = SLOT_BYTES};

/* The host of the other rank sends bytes that count on from `first`. */
static void host_sends(struct fake *fake, size_t nbytes, int first, uint64_t signature)
{
    char *to = fake->slots[place_in(fake, fake->published)];
    for (size_t i = 0; i < nbytes; i++) to[i] = (char)(first + (int)i);
    publish(&fake->link, nbytes, signature);
}

/* ---- A relay -------------------------------------------------------------------------------- */

struct one {
    struct fake fake;
    struct tt_relays *relays;
    struct tt_relay_place place;
    void *memory;
    struct tt_device_end end;
    uint32_t count; /* of the kernel */
};

static void open_one(struct one *one, int channel, bool outgoing)
{
    *one = (struct one){.place = {.peer = 1, .channel = channel, .outgoing = outgoing}};
    open_fake(&one->fake, LINK_BYTES, MOST_ROOM);
    REQUIRE(!tt_relays_create(&one->relays, &shape));
    one->memory = aligned_alloc(128, tt_bridge_bytes(&shape));
    memset(one->memory, 0, tt_bridge_bytes(&shape));
    tt_relays_lay(&shape, outgoing, one->memory, &one->end);
    CHECK(!tt_relays_has(one->relays, &one->place));
    CHECK(!tt_relays_bind(one->relays, &one->place, &one->fake.link, &one->end));
    CHECK(tt_relays_has(one->relays, &one->place));
}

static void close_one(struct one *one)
{
    tt_relays_destroy(one->relays);
    free(one->memory);
}

static bool has_slot(const struct one *one)
{
    return one->count - (uint32_t)__atomic_load_n(one->end.tail, __ATOMIC_ACQUIRE) < SLOTS;
}

static void kernel_sends(struct one *one, size_t nbytes, int first, uint64_t total)
{
    const uint32_t at = one->count % SLOTS;
    CHECK(has_slot(one));
    const uint64_t head = tt_device_head(++one->count, SIGNATURE);
    for (size_t i = 0; i < nbytes; i++)
        one->end.slots[at * SLOT_BYTES + i] = (char)(first + (int)i);
    one->end.notes[at] = (struct tt_device_note){.head = head, .nbytes = total, .length = nbytes};
    __atomic_store_n(one->end.head, head, __ATOMIC_RELEASE);
}

/* Takes the next message, which must be this one. */
static void kernel_takes(struct one *one, size_t nbytes, int first, uint32_t signature)
{
    const uint32_t at = one->count % SLOTS;
    CHECK_EQ(one->end.notes[at].head, tt_device_head(++one->count, signature));
    CHECK_EQ(one->end.notes[at].length, nbytes);
    for (size_t i = 0; i < nbytes; i++)
        CHECK_EQ(one->end.slots[at * SLOT_BYTES + i], (char)(first + (int)i));
    __atomic_store_n(one->end.tail, one->count, __ATOMIC_RELEASE);
}

static uint32_t number_of_head(const struct one *one)
{
    return (uint32_t)__atomic_load_n(one->end.head, __ATOMIC_ACQUIRE);
}

/* ---- Tests ---------------------------------------------------------------------------------- */

TEST(relays, messages_of_the_kernel_leave_when_their_call_has_begun)
{
    struct one one;
    open_one(&one, 0, true);
    kernel_sends(&one, 10, 1, 0);
    kernel_sends(&one, 20, 2, 0);
    CHECK_EQ(tt_relays_move(one.relays), TT_IN_PROGRESS);
    CHECK(!tt_relays_have_work(one.relays));
    tt_relays_grant(one.relays, &one.place, 1);
    CHECK(tt_relays_have_work(one.relays));
    CHECK(!tt_relays_have_sent(one.relays, false));
    CHECK_EQ(tt_relays_move(one.relays), TT_OK);
    CHECK_EQ(one.fake.published, 1u);
    CHECK_EQ(one.fake.nbytes[0], (size_t)10);
    CHECK_EQ(one.fake.signatures[0], (uint64_t)SIGNATURE);
    CHECK_EQ(*one.end.tail, (uint64_t)1); /* the slot is free again */
    CHECK(tt_relays_have_sent(one.relays, false) && !tt_relays_have_work(one.relays));
    CHECK_EQ(tt_relays_move(one.relays), TT_IN_PROGRESS);
    close_one(&one);
}

/* The process may end after the call. */
TEST(relays, a_message_has_left_when_it_arrives_without_this_process)
{
    struct one one;
    open_one(&one, 0, true);
    tt_relays_grant(one.relays, &one.place, 1);
    kernel_sends(&one, 10, 1, 0);
    one.fake.is_held = true;
    CHECK_EQ(tt_relays_move(one.relays), TT_OK);
    CHECK(!tt_relays_have_sent(one.relays, false) && tt_relays_have_work(one.relays));
    one.fake.is_held = false;
    CHECK(tt_relays_have_sent(one.relays, false) && !tt_relays_have_work(one.relays));
    close_one(&one);
}

TEST(relays, what_a_host_sends_for_a_later_call_stays_in_the_link)
{
    struct one one;
    open_one(&one, 0, false);
    for (int i = 0; i < 4; i++) host_sends(&one.fake, 30, i, SIGNATURE);
    CHECK_EQ(tt_relays_move(one.relays), TT_IN_PROGRESS);
    tt_relays_grant(one.relays, &one.place, 3);
    CHECK_EQ(tt_relays_move(one.relays), TT_OK);
    CHECK_EQ(number_of_head(&one), (uint32_t)SLOTS); /* no third slot is free */
    kernel_takes(&one, 30, 0, SIGNATURE);
    kernel_takes(&one, 30, 1, SIGNATURE);
    CHECK(!tt_relays_have_moved(one.relays, &one.place));
    CHECK_EQ(tt_relays_move(one.relays), TT_OK);
    kernel_takes(&one, 30, 2, SIGNATURE);
    CHECK(tt_relays_have_moved(one.relays, &one.place));
    CHECK_EQ(tt_relays_move(one.relays), TT_IN_PROGRESS);
    CHECK_EQ(one.fake.published - one.fake.released, 1u);
    close_one(&one);
}

/* A kernel takes slots that are full, and sends such; the host's messages are as long as its own
 * slots. */
TEST(relays, sends_are_cut_anew)
{
    enum { TOTAL = SLOT_BYTES + 40 };
    const uint64_t of_send = tt_signature_of_send(TOTAL);
    struct one one;
    open_one(&one, CHANNELS - 1, false);
    CHECK_EQ(tt_relay_messages(&shape, TOTAL), (uint64_t)2);
    CHECK_EQ(tt_relay_messages(&shape, 0), (uint64_t)1);
    CHECK_EQ(tt_relay_messages(&shape, SLOT_BYTES), (uint64_t)1);
    tt_relays_grant(one.relays, &one.place, 3);
    for (int at = 0; at < TOTAL; at += 100)
        host_sends(&one.fake, TOTAL - at < 100 ? (size_t)(TOTAL - at) : 100, at, of_send);
    host_sends(&one.fake, 0, 0, tt_signature_of_send(0));
    CHECK_EQ(tt_relays_move(one.relays), TT_OK);
    CHECK_EQ(one.end.notes[0].nbytes, (uint64_t)TOTAL);
    kernel_takes(&one, SLOT_BYTES, 0, TT_DEVICE_EXCHANGE_BIT);
    kernel_takes(&one, 40, SLOT_BYTES, TT_DEVICE_EXCHANGE_BIT);
    CHECK_EQ(tt_relays_move(one.relays), TT_OK);
    kernel_takes(&one, 0, 0, TT_DEVICE_EXCHANGE_BIT);
    CHECK(tt_relays_have_moved(one.relays, &one.place));
    close_one(&one);

    open_one(&one, CHANNELS - 1, true);
    tt_relays_grant(one.relays, &one.place, 2);
    kernel_sends(&one, SLOT_BYTES, 0, TOTAL);
    kernel_sends(&one, 40, 0, TOTAL);
    CHECK_EQ(tt_relays_move(one.relays), TT_OK);
    CHECK_EQ(one.fake.published, 4u);
    const size_t expected[] = {100, 100, 56, 40};
    for (int i = 0; i < 4; i++) CHECK_EQ(one.fake.nbytes[i], expected[i]);
    for (int i = 0; i < 4; i++) CHECK_EQ(one.fake.signatures[i], of_send);
    CHECK(tt_relays_have_sent(one.relays, true));
    close_one(&one);
}

TEST(relays, what_a_kernel_cannot_take_is_refused)
{
    struct one one;
    for (int way = 0; way < 3; way++) {
        open_one(&one, way == 2 ? CHANNELS - 1 : 0, false);
        tt_relays_grant(one.relays, &one.place, 1);
        one.fake.is_reference = way == 1;
        host_sends(&one.fake, way == 0 ? SLOT_BYTES + 1 : 50, 0,
                   way == 2 ? tt_signature_of_send(49) : SIGNATURE);
        CHECK_EQ(tt_relays_move(one.relays), TT_ERR_REMOTE);
        CHECK(strstr(tt_last_error(), "rank 1, which has no GPU, sent a message of"));
        CHECK_EQ(number_of_head(&one), 0u);
        close_one(&one);
    }
}

/* ---- Kernels that run beside the thread that moves ------------------------------------------ */

enum { MESSAGES = 20000 };

struct kernel {
    struct one one;
    _Atomic bool stop, has_ended;
};

/* False: the kernel waits for the thread that moves. */
static bool go_on(struct one *one)
{
    const size_t nbytes = one->count * 37 % LINK_BYTES;
    const int first = (int)(one->count % 100);
    if (one->place.outgoing) {
        if (!has_slot(one)) return false;
        kernel_sends(one, nbytes, first, 0);
    } else {
        if (number_of_head(one) == one->count) return false;
        kernel_takes(one, nbytes, first, SIGNATURE);
    }
    return true;
}

static void *run_kernel(void *argument)
{
    struct kernel *kernel = argument;
    while (kernel->one.count < MESSAGES && !atomic_load(&kernel->stop))
        if (!go_on(&kernel->one)) sched_yield();
    atomic_store(&kernel->has_ended, true);
    return NULL;
}

/* The host of the other rank sends what it has got. */
static void send_back(struct fake *from, struct fake *to)
{
    struct tt_message message;
    while (to->published - to->released < to->room && peek(&from->link, &message) == TT_OK) {
        memcpy(to->slots[place_in(to, to->published)], message.data, message.nbytes);
        publish(&to->link, message.nbytes, message.signature);
        release(&from->link);
    }
}

TEST(relays, messages_are_whole_while_kernels_run_beside)
{
    static struct kernel kernels[2];
    pthread_t threads[2];
    for (int i = 0; i < 2; i++) {
        open_one(&kernels[i].one, 0, i == 0);
        tt_relays_grant(kernels[i].one.relays, &kernels[i].one.place, MESSAGES);
    }
    for (int i = 0; i < 2; i++)
        REQUIRE(!pthread_create(&threads[i], NULL, run_kernel, &kernels[i]));
    const int64_t deadline_ns = tt_deadline_ns(60000);
    while (!atomic_load(&kernels[1].has_ended) && !tt_expired(deadline_ns) && !tt_test_failed()) {
        for (int i = 0; i < 2; i++)
            if (tt_relays_move(kernels[i].one.relays) != TT_OK) sched_yield();
        send_back(&kernels[0].one.fake, &kernels[1].one.fake);
    }
    CHECK(atomic_load(&kernels[1].has_ended));
    for (int i = 0; i < 2; i++) {
        atomic_store(&kernels[i].stop, true);
        pthread_join(threads[i], NULL);
    }
    for (int i = 0; i < 2; i++) close_one(&kernels[i].one);
}
