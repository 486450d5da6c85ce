/* Memory that the host can address: what the host sees late, what a device sees late, and when
 * both see everything. */
#include <pthread.h>
#include <stdatomic.h>

#include "world.h"

static struct world w;
enum { SEEDS = 300 };

static uint32_t host_reads(uint64_t offset)
{
    return __atomic_load_n((uint32_t *)(void *)(w.bytes + offset), __ATOMIC_ACQUIRE);
}

static void host_writes(uint64_t offset, uint32_t value)
{
    __atomic_store_n((uint32_t *)(void *)(w.bytes + offset), value, __ATOMIC_RELEASE);
}

static void begin(uint64_t seed)
{
    world_begin(&w, (struct vg_model_settings){.seed = seed, .late = 500});
    w.region.reachable = true;
}

/* How many seeds show the host a flag without the data. */
static uint32_t flags_without_data(bool fence, enum vg_scope scope, enum vg_order order)
{
    uint32_t wrong = 0;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        begin(seed);
        st(w.block[0], 0, &w, 0, WEAK(1), 5);
        if (fence) vg_model_fence(w.block[0], 0, VG_ACQ_REL, scope);
        st(w.block[0], 0, &w, 128, how_of(order, VG_SCOPE_SYS, 4, 2), 1);
        for (int i = 0; i < 1000 && host_reads(128) == 0; i++)
            ld(w.block[0], 0, &w, 256, RELAXED(VG_SCOPE_SYS, 3));
        CHECK_EQ(host_reads(128), 1);
        wrong += host_reads(0) != 5;
        world_end(&w);
    }
    return wrong;
}

TEST(reachable, the_host_may_see_the_flag_before_the_data_unless_a_fence_orders_them)
{
    CHECK(flags_without_data(false, VG_SCOPE_SYS, VG_RELAXED) > 10);
    CHECK(flags_without_data(true, VG_SCOPE_GPU, VG_RELAXED) > 10);
    CHECK_EQ(flags_without_data(true, VG_SCOPE_SYS, VG_RELAXED), 0);
    CHECK_EQ(flags_without_data(false, VG_SCOPE_SYS, VG_RELEASE), 0);
}

/* How many seeds show the device a flag of the host without the data. */
static uint32_t data_that_is_old(enum vg_order order, bool fence)
{
    uint32_t wrong = 0;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        begin(seed);
        ld(w.block[0], 0, &w, 0, WEAK(1));
        ld(w.block[0], 0, &w, 128, RELAXED(VG_SCOPE_SYS, 2));
        host_writes(0, 5);
        host_writes(128, 1);
        uint32_t tries = 0;
        while (ld(w.block[0], 0, &w, 128, how_of(order, VG_SCOPE_SYS, 4, 3)) == 0) tries++;
        CHECK(tries < 600);
        if (fence) vg_model_fence(w.block[0], 0, VG_ACQ_REL, VG_SCOPE_SYS);
        wrong += ld(w.block[0], 0, &w, 0, WEAK(4)) != 5;
        world_end(&w);
    }
    return wrong;
}

TEST(reachable, a_device_may_read_old_data_behind_a_new_flag_unless_it_acquires)
{
    CHECK(data_that_is_old(VG_RELAXED, false) > 10);
    CHECK_EQ(data_that_is_old(VG_ACQUIRE, false), 0);
    CHECK_EQ(data_that_is_old(VG_RELAXED, true), 0);
}

TEST(reachable, a_device_sees_its_own_stores_at_once_and_never_goes_back)
{
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        begin(seed);
        ld(w.block[0], 0, &w, 8, WEAK(1));
        for (uint32_t i = 1; i < 200; i++) {
            st(w.block[0], 0, &w, 8, WEAK(2), i);
            if (i % 7 == 0) st(w.block[0], 0, &w, 8, how_of(VG_WEAK, VG_SCOPE_NONE, 1, 3), i);
            const uint64_t value = ld(w.block[0], 0, &w, 8, WEAK(4));
            CHECK_MESSAGE(value == i, "seed %llu: %llu, expected %u", (unsigned long long)seed,
                          (unsigned long long)value, i);
        }
        vg_model_flush(w.model, 0);
        CHECK_EQ(host_reads(8), 199);
        world_end(&w);
    }
}

TEST(reachable, the_values_of_a_word_are_seen_in_the_hosts_order)
{
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        begin(seed);
        uint64_t last = 0;
        for (uint32_t i = 1; i < 100; i++) {
            host_writes(64, i);
            const uint64_t value = ld(w.block[i % 4], 1, &w, 64, RELAXED(VG_SCOPE_SYS, 1));
            CHECK(value >= last && value <= i);
            last = value;
        }
        world_end(&w);
    }
}

TEST(reachable, a_store_arrives_without_a_fence_after_some_accesses_elsewhere)
{
    begin(1);
    unsigned char other[64] = {0};
    struct vg_region region = {.address = 0x90000, .nbytes = 64, .bytes = other};
    const struct vg_how how = WEAK(2);
    for (uint32_t i = 0; i < 40; i++) st(w.block[0], 0, &w, 4 * i, WEAK(1), 1);
    uint32_t value;
    for (int i = 0; i < 600; i++) vg_model_load(w.block[1], 0, &region, 0, &how, &value);
    for (uint32_t i = 0; i < 40; i++) CHECK_EQ(host_reads(4 * i), 1);
    vg_model_forget(w.model, &region);
    world_end(&w);
}

TEST(reachable, the_end_of_a_grid_and_forgetting_the_region_write_everything)
{
    begin(1);
    for (uint32_t i = 0; i < 40; i++) st(w.block[0], 0, &w, 4 * i, WEAK(1), 1);
    world_ends(&w);
    for (uint32_t i = 0; i < 40; i++) CHECK_EQ(host_reads(4 * i), 1);
    world_blocks(&w, 101, 0);
    for (uint32_t i = 0; i < 40; i++) st(w.block[0], 0, &w, 4 * i, WEAK(1), 2);
    vg_model_forget(w.model, &w.region);
    for (uint32_t i = 0; i < 40; i++) CHECK_EQ(host_reads(4 * i), 2);
    world_end(&w);
}

TEST(reachable, a_grid_sees_what_the_host_wrote_before_it_began)
{
    for (uint64_t seed = 1; seed <= 50; seed++) {
        begin(seed);
        ld(w.block[0], 0, &w, 0, WEAK(1));
        world_ends(&w);
        host_writes(0, 77);
        world_blocks(&w, 101, 0);
        CHECK_EQ(ld(w.block[0], 0, &w, 0, WEAK(1)), 77);
        world_end(&w);
    }
}

TEST(reachable, flags_in_host_memory_order_threads_of_two_devices)
{
    for (uint64_t seed = 1; seed <= 50; seed++) {
        begin(seed);
        unsigned char data[64] = {0};
        struct vg_region region = {.address = 0x90000, .nbytes = 64, .bytes = data};
        struct vg_grid_clock *grid = vg_model_grid_begin(w.model, 5, 1, 1, 32, NULL);
        struct vg_block_clock *block = vg_model_block_begin(grid, 0);
        const struct vg_how how = WEAK(3);
        uint32_t value = 6;
        vg_model_store(w.block[0], 0, &region, 0, &how, &value);
        st(w.block[0], 0, &w, 0, RELEASE(VG_SCOPE_SYS, 1), 1);
        for (int i = 0; ld(block, 0, &w, 0, ACQUIRE(VG_SCOPE_SYS, 2)) == 0; i++) REQUIRE(i < 2000);
        value = 0;
        vg_model_load(block, 0, &region, 0, &how, &value);
        CHECK_EQ(value, 6);
        CHECK_EQ(w.nraces, 0);
        vg_model_load(block, 1, &region, 0, &how, &value);
        CHECK_EQ(w.nraces, 1);
        vg_model_forget(w.model, &region);
        vg_model_block_end(block);
        vg_model_grid_end(grid, NULL);
        world_end(&w);
    }
}

enum { ROUNDS = 20000 };

static void *host_adds(void *arg)
{
    (void)arg;
    for (int i = 0; i < ROUNDS; i++) {
        __atomic_fetch_add((uint32_t *)(void *)(w.bytes + 4), 1, __ATOMIC_ACQ_REL);
        __atomic_fetch_add((uint64_t *)(void *)(w.bytes + 8), 1, __ATOMIC_ACQ_REL);
        __atomic_fetch_add((uint16_t *)(void *)(w.bytes + 16), 1, __ATOMIC_ACQ_REL);
    }
    return NULL;
}

TEST(reachable, atomics_of_a_device_and_of_the_host_lose_nothing)
{
    begin(1);
    pthread_t host;
    REQUIRE(pthread_create(&host, NULL, host_adds, NULL) == 0);
    for (int i = 0; i < ROUNDS; i++) {
        add(w.block[i % 4], 0, &w, 4, RELAXED(VG_SCOPE_SYS, 1), 1);
        add(w.block[i % 4], 0, &w, 8, how_of(VG_ACQ_REL, VG_SCOPE_SYS, 8, 2), 1);
        add(w.block[i % 4], 0, &w, 16, how_of(VG_RELAXED, VG_SCOPE_SYS, 2, 3), 1);
    }
    CHECK_EQ(pthread_join(host, NULL), 0);
    uint64_t wide;
    memcpy(&wide, w.bytes + 8, 8);
    CHECK_EQ(host_reads(4), 2 * ROUNDS);
    CHECK_EQ(wide, 2 * ROUNDS);
    CHECK_EQ(host_reads(16), 2 * ROUNDS);
    CHECK_EQ(w.nraces, 0);
    world_end(&w);
}

/* The first store overlaps the second, which overlaps the atomic: all must land before it. */
TEST(reachable, an_atomic_follows_its_threads_earlier_stores_of_other_sizes)
{
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        begin(seed);
        st(w.block[0], 0, &w, 4, WEAK(1), 7);
        st(w.block[0], 0, &w, 0, how_of(VG_WEAK, VG_SCOPE_NONE, 8, 2), 5);
        CHECK_EQ(add(w.block[0], 0, &w, 0, RELAXED(VG_SCOPE_SYS, 3), 1), 5);
        world_end(&w);
        CHECK_EQ(host_reads(0), 6);
        CHECK_EQ(host_reads(4), 0);
    }
}

/* Strong and weak accesses of one word by different blocks, nothing between them. */
TEST(reachable, weak_and_strong_accesses_without_order_race_in_either_order)
{
    for (int which = 0; which < 6; which++) {
        begin(1);
        const bool strong_first = which < 3;
        for (int i = 0; i < 2; i++) {
            const bool is_strong = (i == 0) == strong_first;
            const struct vg_how how = is_strong ? RELAXED(VG_SCOPE_SYS, 1) : WEAK(2);
            const int action =
                which % 3; /* writes and writes, writes and reads, reads and writes */
            if (action == 0 || action == i + 1)
                st(w.block[i], 0, &w, 0, how, 5);
            else
                ld(w.block[i], 0, &w, 0, how);
        }
        CHECK_MESSAGE(w.nraces == 1, "case %d: %u", which, w.nraces);
        world_end(&w);
    }
}

TEST(reachable, who_read_a_word_strongly_may_write_it_weakly_then)
{
    for (uint64_t seed = 1; seed <= 50; seed++) {
        begin(seed);
        st(w.block[0], 0, &w, 0, RELAXED(VG_SCOPE_SYS, 1), 1);
        while (ld(w.block[1], 0, &w, 0, RELAXED(VG_SCOPE_SYS, 2)) == 0) continue;
        st(w.block[1], 0, &w, 0, WEAK(3), 0);
        CHECK_EQ(w.nraces, 0);
        st(w.block[2], 0, &w, 0, WEAK(4), 0);
        CHECK(w.nraces > 0);
        world_end(&w);
    }
}

/* A host thread sees the word, then sets another one that a block waits for. */
TEST(reachable, a_host_may_hand_a_strongly_written_word_on)
{
    for (int acquires = 0; acquires < 2; acquires++) {
        begin(3);
        st(w.block[0], 0, &w, 0, RELAXED(VG_SCOPE_SYS, 1), 1);
        while (host_reads(0) == 0) ld(w.block[0], 0, &w, 256, WEAK(9));
        host_writes(128, 1);
        while (ld(w.block[1], 0, &w, 128,
                  how_of(acquires ? VG_ACQUIRE : VG_RELAXED, VG_SCOPE_SYS, 4, 2)) == 0)
            continue;
        st(w.block[1], 0, &w, 0, WEAK(3), 0);
        CHECK_EQ(w.nraces, !acquires);
        world_end(&w);
    }
}

/* Releases of scope .gpu and .cta through memory that the host can reach. */
TEST(reachable, a_flag_there_orders_two_blocks_and_its_scope_must_be_wide_enough)
{
    for (uint64_t seed = 1; seed <= 50; seed++)
        for (int wide = 0; wide < 2; wide++) {
            begin(seed);
            unsigned char data[64] = {0};
            struct vg_region region = {.address = 0x90000, .nbytes = 64, .bytes = data};
            const struct vg_how how = WEAK(3);
            uint32_t value = 6;
            vg_model_store(w.block[0], 0, &region, 0, &how, &value);
            vg_model_fence(w.block[0], 0, VG_ACQ_REL, wide ? VG_SCOPE_GPU : VG_SCOPE_CTA);
            for (uint32_t i = 1; i < 40; i++) st(w.block[0], 0, &w, 0, RELAXED(VG_SCOPE_GPU, 1), i);
            while (ld(w.block[1], 0, &w, 0, ACQUIRE(VG_SCOPE_GPU, 2)) == 0) continue;
            vg_model_load(w.block[1], 0, &region, 0, &how, &value);
            CHECK_EQ(w.nraces, !wide);
            vg_model_forget(w.model, &region);
            world_end(&w);
        }
}

static bool never(void *arg, const void *old, void *value)
{
    (void)arg;
    (void)old;
    (void)value;
    return false;
}

/* A compare and swap that fails writes nothing: its release waits for a later write there. */
TEST(reachable, a_failed_compare_and_swap_alone_releases_nothing)
{
    uint32_t late = 0;
    const struct vg_how how = how_of(VG_ACQ_REL, VG_SCOPE_SYS, 4, 2);
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        begin(seed);
        uint32_t old;
        st(w.block[0], 0, &w, 0, WEAK(1), 5);
        vg_model_rmw(w.block[0], 0, &w.region, 128, &how, never, NULL, &old);
        late += host_reads(0) != 5;
        world_end(&w);
    }
    CHECK(late > 10);
}
