/* Bridges whose slots are memory of GPUs, between two ranks over RDMA links without a device; the
 * test plays the kernels. What a device writes to memory of a GPU is there only when the device has
 * read there afterwards (fake_device.h): a receiver that does not flush finds other bytes. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "carrier/kernel/bridge.h"
#include "shim.h"
#include "transport/rdma/fake_device.h"

enum {
    SLOTS = 4,
    SLOT_BYTES = 4096,
    LINK_BYTES = 1000,
    CHANNEL = 1,
    CHANNELS = 3,
    ENDS = 2 * CHANNELS,
    FRAME_BYTES = 32,
    PLACE_BYTES = sizeof(struct tt_gpu_place),
    GPU_BYTES = ENDS * SLOTS * SLOT_BYTES
};

static const struct tt_bridge_shape shape = {
    .nranks = 2, .nchannels = CHANNELS, .nslots = SLOTS, .slot_bytes = SLOT_BYTES};

/* Two ranks, each with an end that sends and one that receives on each channel. */
static struct {
    struct fake_pair pair;
    struct fake_gpu gpus[2];
    bool in_gpu[2];
    struct tt_bridges *bridges[2];
    void *memory[2][ENDS];
    struct tt_device_end ends[2][ENDS]; /* [rank][2 * channel + outgoing] */
    uint64_t sent[2];                   /* bytes */
    bool is_gone[2];                    /* as the other rank knows */
} all;

static bool is_gone(const void *arg, int rank)
{
    (void)arg;
    return all.is_gone[rank];
}

static tt_status copy_gpu(void *arg, bool to_gpu, void *gpu, void *host, size_t nbytes)
{
    return tt_rdma_copy_gpu(((struct fake_rank *)arg)->rdma, to_gpu, gpu, host, nbytes);
}

static const struct tt_bridge_calls calls = {.is_gone = is_gone, .copy_gpu = copy_gpu};

static bool open_end(int rank, int at)
{
    struct tt_rdma_wire *wire = all.pair.ranks[rank].wire;
    const struct tt_bridge_pair links = {tt_rdma_tx(wire, CHANNEL), tt_rdma_rx(wire, CHANNEL)};
    const bool in_gpu = all.in_gpu[rank];
    char *slots = in_gpu ? all.gpus[rank].base + at * SLOTS * SLOT_BYTES : NULL;
    void *memory = aligned_alloc(128, tt_bridge_bytes(&shape));
    all.memory[rank][at] = memory;
    if (!memory) return false;
    memset(memory, 0, tt_bridge_bytes(&shape));
    tt_bridges_lay(&shape, at % 2, memory, slots, &all.ends[rank][at]);
    return !tt_bridges_bind(all.bridges[rank], 1 - rank, at / 2, &links, &all.ends[rank][at],
                            in_gpu);
}

static bool open_over(size_t link_bytes, bool first_in_gpu, bool second_in_gpu)
{
    memset(&all, 0, sizeof all);
    if (!fake_open(&all.pair, link_bytes)) return false;
    all.in_gpu[0] = first_in_gpu;
    all.in_gpu[1] = second_in_gpu;
    for (int r = 0; r < 2; r++) {
        if (all.in_gpu[r] && fake_gpu_open(&all.gpus[r], &all.pair.ranks[r], GPU_BYTES, r))
            return false;
        if (tt_bridges_create(&all.bridges[r], &shape, &calls, &all.pair.ranks[r])) return false;
        for (int i = 0; i < ENDS; i++)
            if (!open_end(r, i)) return false;
    }
    return true;
}

static bool open_all(bool first_in_gpu, bool second_in_gpu)
{
    return open_over(LINK_BYTES, first_in_gpu, second_in_gpu);
}

static void end_rank(int rank)
{
    tt_bridges_destroy(all.bridges[rank]);
    all.bridges[rank] = NULL;
    fake_end(&all.pair, rank);
}

static void close_all(void)
{
    for (int r = 0; r < 2; r++) {
        tt_bridges_destroy(all.bridges[r]);
        for (int i = 0; i < ENDS; i++) free(all.memory[r][i]);
    }
    fake_close(&all.pair);
    CHECK_EQ(fake_count_gpus(), 0);
    for (int r = 0; r < 2; r++)
        if (all.in_gpu[r]) fake_gpu_close(&all.gpus[r]);
}

/* As proxies do, until nothing moves. */
static void move(void)
{
    for (bool moved = true; moved;) {
        moved = false;
        for (int r = 0; r < 2; r++) {
            if (!all.bridges[r]) continue;
            const tt_status status = tt_bridges_move(all.bridges[r]);
            CHECK_MESSAGE(status >= 0, "%s", tt_last_error());
            CHECK_EQ(tt_rdma_wire_progress(all.pair.ranks[r].wire), TT_OK);
            moved = moved || status == TT_OK;
        }
    }
}

/* The slot of the next message, as the kernel's rank sees it. */
static char *slot_of(int rank, const struct tt_device_end *end)
{
    char *slot = end->slots + end->count % SLOTS * SLOT_BYTES;
    return all.in_gpu[rank] ? all.gpus[rank].host + (slot - all.gpus[rank].base) : slot;
}

static size_t length_of(uint32_t number)
{
    return (size_t)number * 577 % (SLOT_BYTES + 1);
}

static char byte_of(int rank, int channel, uint32_t number, size_t i)
{
    return (char)(number * 7 + (uint32_t)channel * 31 + (uint32_t)rank * 101 + i);
}

/* As a kernel sends. False: no slot is free. */
static bool kernel_send(int rank, int channel)
{
    struct tt_device_end *end = &all.ends[rank][2 * channel + 1];
    end->known_tail = (uint32_t)*end->tail;
    if (end->count - end->known_tail > SLOTS - 1) return false;
    const size_t nbytes = length_of(end->count);
    char *slot = slot_of(rank, end);
    for (size_t i = 0; i < nbytes; i++) slot[i] = byte_of(rank, channel, end->count, i);
    const uint64_t head = tt_device_head(end->count + 1, 0xabc);
    end->notes[end->count % SLOTS] =
        (struct tt_device_note){.head = head, .nbytes = end->count, .length = nbytes};
    *end->head = head;
    end->count++;
    all.sent[rank] += nbytes;
    return true;
}

/* As a kernel receives and releases. False: no message has come. */
static bool kernel_take(int rank, int channel)
{
    struct tt_device_end *end = &all.ends[rank][2 * channel];
    if ((uint32_t)*end->head - end->count - 1 >= SLOTS) return false;
    const struct tt_device_note *note = &end->notes[end->count % SLOTS];
    CHECK_EQ(note->length, length_of(end->count));
    CHECK_EQ(note->nbytes, end->count);
    bool same = true;
    for (size_t i = 0; i < note->length; i++)
        same = same && slot_of(rank, end)[i] == byte_of(1 - rank, channel, end->count, i);
    CHECK(same);
    end->count++;
    *end->tail = end->count;
    return true;
}

static uint64_t copied(int rank)
{
    return all.pair.ranks[rank].counters[1];
}

static uint64_t direct(int rank)
{
    return all.pair.ranks[rank].counters[2];
}

static void exchange(int nmessages)
{
    int taken = 0;
    for (int turn = 0; turn < 10 * nmessages && taken < 2 * nmessages; turn++) {
        const int c = turn % CHANNELS;
        for (int r = 0; r < 2; r++) {
            (void)kernel_send(r, c);
            (void)kernel_send(r, c);
            while (kernel_take(r, (c + turn / 5) % CHANNELS)) taken++;
        }
        if (turn % 3) move();
    }
    move();
    for (int c = 0; c < CHANNELS; c++)
        for (int r = 0; r < 2; r++)
            while (kernel_take(r, c)) taken++;
    CHECK(taken >= 2 * nmessages);
    move();
    CHECK(!tt_bridges_have_work(all.bridges[0]) && !tt_bridges_have_work(all.bridges[1]));
}

TEST(rdma_fake_gpu, payload_goes_from_gpu_to_gpu_and_through_no_slot_of_the_host)
{
    REQUIRE(open_all(true, true));
    exchange(100);
    for (int r = 0; r < 2; r++) {
        CHECK_EQ(direct(r), all.sent[r]);
        const uint64_t nframes = *all.pair.ranks[r].context.nmessages;
        CHECK_EQ(copied(r), nframes * FRAME_BYTES + CHANNELS * PLACE_BYTES);
    }
    close_all();
}

/* As where one of the two ranks could not register memory after all. */
static void exchange_copied(void)
{
    exchange(60);
    for (int r = 0; r < 2; r++) {
        CHECK_EQ(direct(r), 0);
        CHECK(copied(r) > all.sent[r]);
    }
    close_all();
}

TEST(rdma_fake_gpu, a_device_copies_where_only_one_end_is_in_memory_of_a_gpu)
{
    REQUIRE(open_all(true, false));
    exchange_copied();
    REQUIRE(open_all(false, true));
    exchange_copied();
}

/* As over TCP, where two ranks find no RDMA after all. Here no frame can say where slots are. */
TEST(rdma_fake_gpu, devices_copy_where_the_link_cannot_write_to_the_peers_memory)
{
    REQUIRE(open_over(FRAME_BYTES + PLACE_BYTES - 1 - TT_BRIDGE_HEAD_BYTES, true, true));
    exchange_copied();
}

TEST(rdma_fake_gpu, a_kernel_hears_of_a_message_only_when_it_is_flushed)
{
    REQUIRE(open_all(true, true));
    move(); /* the first credits */
    fake_hold_reads(true);
    for (int c = 0; c < CHANNELS; c++) CHECK(kernel_send(0, c)); /* empty */
    for (int c = 0; c < CHANNELS; c++) CHECK(kernel_send(0, c));
    move();
    for (int c = 0; c < CHANNELS; c++) CHECK(!kernel_take(1, c));
    fake_hold_reads(false);
    move();
    for (int i = 0; i < 2; i++)
        for (int c = 0; c < CHANNELS; c++) CHECK(kernel_take(1, c));
    close_all();
}

/* A message that comes while a flush is under way is not a part of it. */
TEST(rdma_fake_gpu, a_flush_counts_only_for_messages_that_had_come)
{
    REQUIRE(open_all(true, true));
    move();
    CHECK(kernel_send(0, 0)); /* empty */
    move();
    CHECK(kernel_take(1, 0));
    fake_hold_reads(true);
    CHECK(kernel_send(0, 0));
    move(); /* the flush of this one is held */
    CHECK(kernel_send(0, 0));
    move();
    const uint64_t before = all.pair.ranks[1].rdma->devices[0].loop.nposted;
    fake_hold_reads(false);
    move();
    CHECK_EQ(all.pair.ranks[1].rdma->devices[0].loop.nposted, before + 1);
    CHECK(kernel_take(1, 0) && kernel_take(1, 0));
    close_all();
}

TEST(rdma_fake_gpu, one_flush_is_for_all_messages_that_have_come)
{
    REQUIRE(open_all(true, true));
    move();
    for (int i = 0; i < SLOTS; i++) CHECK(kernel_send(0, 0));
    CHECK(tt_bridges_move(all.bridges[0]) == TT_OK);
    const uint64_t before = all.pair.ranks[1].rdma->devices[0].loop.nposted;
    CHECK(tt_bridges_move(all.bridges[1]) == TT_OK);
    CHECK_EQ(all.pair.ranks[1].rdma->devices[0].loop.nposted, before + 1);
    for (int i = 0; i < SLOTS; i++) CHECK(kernel_take(1, 0));
    close_all();
}

TEST(rdma_fake_gpu, what_is_on_its_way_to_a_rank_that_ends_is_not_written)
{
    REQUIRE(open_all(true, true));
    move();
    (void)kernel_send(0, 0);
    move();
    CHECK(kernel_take(1, 0));
    fake_hold(true);
    CHECK(kernel_send(0, 0));
    (void)tt_bridges_move(all.bridges[0]);
    end_rank(1);
    tt_rdma_close(all.pair.ranks[1].rdma); /* deregisters */
    all.pair.ranks[1].rdma = NULL;
    all.is_gone[1] = all.pair.ranks[0].knows_end = true;
    CHECK_EQ(fake_count_gpus(), 1);
    char before[64];
    memcpy(before, all.gpus[1].host + SLOT_BYTES, sizeof before);
    fake_hold(false);
    fake_give_up();
    CHECK(tt_bridges_move(all.bridges[0]) >= 0);
    CHECK_EQ(tt_rdma_wire_progress(all.pair.ranks[0].wire), TT_OK);
    CHECK(!memcmp(before, all.gpus[1].host + SLOT_BYTES, sizeof before));
    CHECK_EQ(all.pair.ranks[0].nfailures, 0);
    close_all();
}

TEST(rdma_fake_gpu, a_frame_of_a_message_in_memory_of_a_gpu_that_is_not_there_is_refused)
{
    REQUIRE(open_all(false, false));
    move();
    struct tt_link *tx = tt_rdma_tx(all.pair.ranks[0].wire, CHANNEL);
    const uint16_t kind_and_channel[2] = {4, 0};
    char *frame = tx->ops->slot(tx, FRAME_BYTES);
    REQUIRE(frame);
    memset(frame, 0, FRAME_BYTES);
    memcpy(frame, kind_and_channel, sizeof kind_and_channel);
    tx->ops->publish(tx, FRAME_BYTES, 0);
    CHECK_EQ(tt_bridges_move(all.bridges[1]), TT_ERR_REMOTE);
    CHECK(strstr(tt_last_error(), "no frame of a bridge that is expected: kind 4"));
    close_all();
}

/* What the peer shows is data from outside. */
TEST(rdma_fake_gpu, a_place_that_is_not_what_it_should_be_is_not_written_to)
{
    struct tt_gpu_place place;
    REQUIRE(open_all(true, true));
    struct tt_link *tx = tt_rdma_tx(all.pair.ranks[0].wire, 0);
    struct tt_link *rx = tt_rdma_rx(all.pair.ranks[1].wire, 0);
    const char *from = all.gpus[0].base;
    REQUIRE(rx->ops->gpus->show(rx, all.gpus[1].base, 1000, &place));
    CHECK(place.address == (uintptr_t)all.gpus[1].base && place.nbytes == 1000);
    REQUIRE(tx->ops->slot(tx, 8) != NULL);
    CHECK(!tx->ops->gpus->write(tx, from, 1001, &place, 0));
    CHECK(!tx->ops->gpus->write(tx, from, 1, &place, 1000));
    CHECK(!tx->ops->gpus->write(tx, from, 1, &place, SIZE_MAX));
    CHECK(!tx->ops->gpus->write(tx, from + GPU_BYTES, 1, &place, 0));
    for (uint32_t nkeys = 0; nkeys < 10; nkeys += 2) {
        place.nkeys = nkeys;
        CHECK(!tx->ops->gpus->write(tx, from, 1, &place, 0));
    }
    place.nkeys = 1;
    CHECK(tx->ops->gpus->write(tx, from, 1000, &place, 0));
    tx->ops->publish(tx, 8, 1);
    close_all();
}

TEST(rdma_fake_gpu, a_device_that_never_takes_memory_of_a_gpu_is_asked_once)
{
    struct fake_gpu gpu;
    REQUIRE(open_all(false, false));
    fake_refuse_gpus(ENOSPC);
    CHECK_EQ(fake_gpu_open(&gpu, &all.pair.ranks[0], GPU_BYTES, 0), TT_ERR_SYSTEM);
    CHECK(strstr(tt_last_error(), "fake0"));
    fake_gpu_close(&gpu);
    fake_refuse_gpus(EOPNOTSUPP);
    for (int i = 0; i < 2; i++) {
        CHECK_EQ(fake_gpu_open(&gpu, &all.pair.ranks[0], GPU_BYTES, 0), TT_ERR_USAGE);
        CHECK(strstr(tt_last_error(), "does not support that"));
        fake_gpu_close(&gpu);
    }
    CHECK_EQ(fake_count_asked(), 2);
    close_all();
}
