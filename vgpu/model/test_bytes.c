/* Accesses of 16 bytes of memory that another process accesses at the same time are whole. */
#include <pthread.h>
#include <stdatomic.h>

#include "world.h"

static struct world w, other; /* other: of another process, with the same bytes */
enum { LINES_READ = 1000000, LINES_ADDED = 100000 };
static atomic_bool reading;

static struct vg_how line_of(enum vg_order order, uint64_t where)
{
    return how_of(order, VG_SCOPE_SYS, 16, where);
}

static void begin(struct world *world, bool off)
{
    world_begin(world, (struct vg_model_settings){.seed = 1, .reads = VG_READ_NEWEST, .off = off});
    world->region.reachable = true;
    world->region.bytes = w.bytes;
}

/* Both halves of a line are the same. */
static void *sends_lines(void *arg)
{
    (void)arg;
    for (uint32_t i = 1; atomic_load(&reading); i++) {
        st(other.block[0], 0, &other, 0, line_of(VG_RELAXED, 1), i);
        vg_model_flush(other.model, 0);
    }
    return NULL;
}

static uint32_t torn_lines(bool off)
{
    pthread_t sender;
    const struct vg_how how = line_of(VG_RELAXED, 2);
    uint32_t torn = 0;
    begin(&w, off);
    begin(&other, off);
    atomic_store(&reading, true);
    if (pthread_create(&sender, NULL, sends_lines, NULL) != 0) return UINT32_MAX;
    for (uint32_t i = 0; i < LINES_READ; i++) {
        uint64_t value[2];
        vg_model_load(w.block[0], 0, &w.region, 0, &how, value);
        torn += value[0] != value[1];
    }
    atomic_store(&reading, false);
    pthread_join(sender, NULL);
    world_end(&other);
    world_end(&w);
    return torn;
}

TEST(bytes, a_line_of_16_bytes_of_another_process_is_read_whole)
{
    CHECK_EQ(torn_lines(false), 0);
    CHECK_EQ(torn_lines(true), 0);
}

/* Adds 1 to the low half and 3 to the high one. */
static bool count_up(void *arg, const void *old, void *value)
{
    uint64_t half[2];
    (void)arg;
    memcpy(half, old, sizeof half);
    half[0] += 1;
    half[1] += 3;
    memcpy(value, half, sizeof half);
    return true;
}

static void add_lines(struct world *world)
{
    const struct vg_how how = line_of(VG_ACQ_REL, 3);
    for (uint32_t i = 0; i < LINES_ADDED; i++) {
        uint64_t old[2];
        vg_model_rmw(world->block[0], 0, &world->region, 0, &how, count_up, NULL, old);
        CHECK(old[1] == 3 * old[0]);
    }
}

static void *adds_lines(void *arg)
{
    add_lines(arg);
    return NULL;
}

TEST(bytes, atomics_of_16_bytes_of_two_processes_lose_nothing)
{
    pthread_t adder;
    uint64_t half[2];
    begin(&w, false);
    begin(&other, false);
    REQUIRE(pthread_create(&adder, NULL, adds_lines, &other) == 0);
    add_lines(&w);
    pthread_join(adder, NULL);
    memcpy(half, w.bytes, sizeof half);
    CHECK_EQ(half[0], 2 * LINES_ADDED);
    CHECK_EQ(half[1], 6 * LINES_ADDED);
    world_end(&other);
    world_end(&w);
}
