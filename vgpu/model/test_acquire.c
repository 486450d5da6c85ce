/* What an acquire of memory that others can reach takes: what the write that it read released, and
 * what the host may have handed on. */
#include "world.h"

static struct world w;
enum { SEEDS = 300, FLAG = 0, OTHER = 128, NEAR = 256 };

/* Plain data that only the devices have, and a grid on device 1. */
static unsigned char bytes[64];
static struct vg_region data;
static struct vg_grid_clock *grid;
static struct vg_block_clock *far;

static void begin(uint64_t seed)
{
    world_begin(&w, (struct vg_model_settings){.seed = seed, .late = 500});
    w.region.reachable = true;
    data = (struct vg_region){.address = 0x90000, .nbytes = sizeof bytes, .bytes = bytes};
    grid = vg_model_grid_begin(w.model, 5, 1, 1, 32, NULL);
    far = vg_model_block_begin(grid, 0);
    for (uint64_t at = 0; at <= OTHER; at += OTHER) ld(far, 31, &w, at, RELAXED(VG_SCOPE_SYS, 90));
}

static void end(void)
{
    vg_model_forget(w.model, &data);
    vg_model_block_end(far);
    vg_model_grid_end(grid, NULL);
    world_end(&w);
}

static void write_data(struct vg_block_clock *block)
{
    const struct vg_how how = WEAK(1);
    const uint32_t value = 7;
    vg_model_store(block, 0, &data, 0, &how, &value);
}

static void read_data(struct vg_block_clock *block)
{
    const struct vg_how how = WEAK(2);
    uint32_t value;
    vg_model_load(block, 0, &data, 0, &how, &value);
}

/* Other accesses: buffered stores may leave, lines may be read again. */
static void pass_time(uint64_t n)
{
    for (uint64_t i = 0; i < n; i++) {
        ld(w.block[3], 0, &w, 1024, RELAXED(VG_SCOPE_SYS, 91));
        ld(far, 31, &w, 1024, RELAXED(VG_SCOPE_SYS, 92));
    }
}

TEST(acquire, a_flag_that_was_read_too_early_orders_nothing)
{
    uint32_t early = 0, landed = 0;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        begin(seed);
        write_data(w.block[0]);
        st(w.block[0], 0, &w, FLAG, RELEASE(VG_SCOPE_SYS, 3), 1);
        pass_time(seed % 7);
        landed += w.bytes[FLAG] == 1;
        const bool set = ld(far, 0, &w, FLAG, ACQUIRE(VG_SCOPE_SYS, 4)) == 1;
        early += !set && w.bytes[FLAG] == 1;
        read_data(far);
        CHECK_MESSAGE(w.nraces == (set ? 0 : 1), "seed %llu: read %d, %u races",
                      (unsigned long long)seed, set, w.nraces);
        end();
    }
    CHECK(landed > 10 && landed < SEEDS - 10);
    CHECK(early > 10); /* the flag was there, and the device read what it had read before */
}

TEST(acquire, a_thread_that_waits_for_the_flag_is_ordered)
{
    for (uint64_t seed = 1; seed <= SEEDS; seed++)
        for (int fence = 0; fence < 2; fence++) {
            begin(seed);
            write_data(w.block[0]);
            st(w.block[0], 0, &w, FLAG, RELEASE(VG_SCOPE_SYS, 3), 1);
            const struct vg_how how = fence ? RELAXED(VG_SCOPE_SYS, 4) : ACQUIRE(VG_SCOPE_SYS, 4);
            while (ld(far, 0, &w, FLAG, how) == 0) pass_time(1);
            if (fence) vg_model_fence(far, 0, VG_ACQ_REL, VG_SCOPE_SYS);
            read_data(far);
            CHECK_EQ(w.nraces, 0);
            end();
        }
}

TEST(acquire, a_thread_that_waits_for_another_flag_is_not_ordered)
{
    for (uint64_t seed = 1; seed <= SEEDS; seed++)
        for (int atomic = 0; atomic < 2; atomic++) {
            begin(seed);
            write_data(w.block[0]);
            st(w.block[0], 0, &w, FLAG, RELEASE(VG_SCOPE_SYS, 3), 1);
            vg_model_flush(w.model, 0);
            st(w.block[1], 0, &w, OTHER, RELEASE(VG_SCOPE_SYS, 4), 1);
            if (atomic)
                while (add(far, 0, &w, OTHER, ACQUIRE(VG_SCOPE_SYS, 5), 0) == 0) pass_time(1);
            else
                while (ld(far, 0, &w, OTHER, ACQUIRE(VG_SCOPE_SYS, 5)) == 0) pass_time(1);
            read_data(far);
            CHECK_EQ(w.nraces, 1);
            end();
        }
}

/* A fence takes what the relaxed load before it read, and no more. */
TEST(acquire, a_fence_behind_a_flag_that_was_read_too_early_orders_nothing)
{
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        begin(seed);
        write_data(w.block[0]);
        st(w.block[0], 0, &w, FLAG, RELEASE(VG_SCOPE_SYS, 3), 1);
        pass_time(seed % 7);
        const bool set = ld(far, 0, &w, FLAG, RELAXED(VG_SCOPE_SYS, 4)) == 1;
        vg_model_fence(far, 0, VG_ACQ_REL, VG_SCOPE_SYS);
        read_data(far);
        CHECK_EQ(w.nraces, set ? 0 : 1);
        end();
    }
}

/* Acquired through memory of one device, read by another block: scope .gpu. */
TEST(acquire, a_block_of_the_same_device_takes_what_it_read)
{
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        begin(seed);
        write_data(w.block[0]);
        for (uint32_t i = 0; i < seed % 12; i++) /* more than are kept */
            st(w.block[0], 0, &w, NEAR, RELEASE(VG_SCOPE_GPU, 3), i + 1);
        pass_time(seed % 7);
        const uint64_t value = ld(w.block[1], 0, &w, NEAR, ACQUIRE(VG_SCOPE_GPU, 4));
        read_data(w.block[1]);
        CHECK_EQ(w.nraces, value > 0 ? 0 : 1);
        end();
    }
}

TEST(acquire, an_atomic_hands_on_what_it_read_and_a_store_does_not)
{
    for (uint64_t seed = 1; seed <= SEEDS; seed++)
        for (int atomic = 0; atomic < 2; atomic++) {
            begin(seed);
            write_data(w.block[0]);
            st(w.block[0], 0, &w, FLAG, RELEASE(VG_SCOPE_SYS, 3), 1);
            vg_model_flush(w.model, 0);
            if (atomic)
                add(w.block[1], 0, &w, FLAG, RELAXED(VG_SCOPE_SYS, 4), 1);
            else
                st(w.block[1], 0, &w, FLAG, RELAXED(VG_SCOPE_SYS, 4), 2);
            while (ld(far, 30, &w, FLAG, RELAXED(VG_SCOPE_SYS, 5)) != 2) pass_time(1);
            CHECK_EQ(ld(far, 0, &w, FLAG, ACQUIRE(VG_SCOPE_SYS, 6)), 2);
            read_data(far);
            CHECK_EQ(w.nraces, !atomic);
            end();
        }
}

static uint32_t *word(uint64_t offset)
{
    return (uint32_t *)(void *)(w.bytes + offset);
}

/* The host sees the flag and sets another one, adds to it, or takes it back and sets it again. */
TEST(acquire, what_the_host_has_seen_it_may_hand_on)
{
    for (uint64_t seed = 1; seed <= SEEDS; seed++)
        for (int how = 0; how < 3; how++) {
            const uint64_t at = how == 0 ? OTHER : FLAG;
            const uint32_t expected = how == 1 ? 2 : 1;
            begin(seed);
            write_data(w.block[0]);
            st(w.block[0], 0, &w, FLAG, RELEASE(VG_SCOPE_SYS, 3), 1);
            while (__atomic_load_n(word(FLAG), __ATOMIC_ACQUIRE) == 0) pass_time(1);
            if (how == 0) __atomic_store_n(word(OTHER), 1, __ATOMIC_RELEASE);
            if (how == 1) __atomic_fetch_add(word(FLAG), 1, __ATOMIC_RELAXED);
            if (how == 2) __atomic_store_n(word(FLAG), 3, __ATOMIC_RELEASE);
            if (how == 2) pass_time(4);
            if (how == 2) __atomic_store_n(word(FLAG), 1, __ATOMIC_RELEASE);
            while (ld(far, 0, &w, at, ACQUIRE(VG_SCOPE_SYS, 5)) != expected) pass_time(1);
            read_data(far);
            CHECK_EQ(w.nraces, 0);
            end();
        }
}

/* The host hands on by a lock, which it leaves as it was: once it was seen to write there, an
 * acquire may have read its value. */
TEST(acquire, a_lock_of_the_host_hands_on)
{
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        begin(seed);
        __atomic_store_n(word(OTHER), 1, __ATOMIC_RELEASE);
        while (swap(far, 0, &w, OTHER, ACQUIRE(VG_SCOPE_SYS, 5), 0, 1) != 0)
            __atomic_store_n(word(OTHER), 0, __ATOMIC_RELEASE);
        st(far, 0, &w, OTHER, RELEASE(VG_SCOPE_SYS, 6), 0);
        vg_model_flush(w.model, 1);
        write_data(w.block[0]);
        st(w.block[0], 0, &w, FLAG, RELEASE(VG_SCOPE_SYS, 3), 1);
        while (__atomic_load_n(word(FLAG), __ATOMIC_ACQUIRE) == 0) pass_time(1);
        __atomic_store_n(word(OTHER), 1, __ATOMIC_RELEASE);
        __atomic_store_n(word(OTHER), 0, __ATOMIC_RELEASE);
        CHECK_EQ(swap(far, 0, &w, OTHER, ACQUIRE(VG_SCOPE_SYS, 5), 0, 1), 0);
        read_data(far);
        CHECK_EQ(w.nraces, 0);
        end();
    }
}

/* More flags than a small table holds, each set by a block that released its data. */
TEST(acquire, a_thread_that_polls_many_flags_acquires_none_of_them)
{
    enum { FLAGS = 200 };
    static unsigned char many[4 * FLAGS];
    for (int which = 0; which < 2; which++) {
        world_begin(&w, (struct vg_model_settings){.seed = 1, .reads = VG_READ_NEWEST});
        data = (struct vg_region){.address = 0x90000, .nbytes = sizeof many, .bytes = many};
        const struct vg_how write = WEAK(1), read = WEAK(2);
        uint32_t value = 7;
        for (uint32_t i = 0; i < FLAGS; i++) {
            vg_model_store(w.block[i % 3], i / 3 % 64, &data, 4 * i, &write, &value);
            st(w.block[i % 3], i / 3 % 64, &w, 4 * i, RELEASE(VG_SCOPE_GPU, 3), 1);
        }
        for (uint32_t i = 0; i < FLAGS; i++)
            CHECK_EQ(ld(w.block[3], 0, &w, 4 * i, RELAXED(VG_SCOPE_GPU, 4)), 1);
        if (which == 1) /* an acquire takes what was read there, as long ago as it may be */
            for (uint32_t i = 0; i < FLAGS; i++)
                ld(w.block[3], 0, &w, 4 * i, ACQUIRE(VG_SCOPE_GPU, 5));
        vg_model_load(w.block[3], 0, &data, 0, &read, &value);
        CHECK_EQ(w.nraces, which == 0);
        vg_model_forget(w.model, &data);
        world_end(&w);
    }
}

/* Of many flags that a thread sets, a release at one is no release at another. */
TEST(acquire, a_thread_that_releases_at_many_places_has_made_no_fence)
{
    enum { FLAGS = 200 };
    begin(1);
    w.region.reachable = false;
    write_data(w.block[0]);
    for (uint32_t i = 0; i < FLAGS; i++)
        st(w.block[0], 0, &w, 2048 + 4 * i, RELEASE(VG_SCOPE_GPU, 3), 1);
    st(w.block[0], 0, &w, 1024, RELAXED(VG_SCOPE_GPU, 4), 1);
    while (ld(w.block[1], 0, &w, 1024, ACQUIRE(VG_SCOPE_GPU, 5)) == 0) continue;
    read_data(w.block[1]);
    CHECK_EQ(w.nraces, 1);
    end();
}

/* What a thread read of a location, and asks for later (mbarrier.test_wait that returns true). */
TEST(acquire, a_relaxed_read_acquires_when_it_is_asked_to)
{
    for (int asks = 0; asks < 2; asks++) {
        begin(1);
        w.region.reachable = false;
        write_data(w.block[0]);
        st(w.block[0], 0, &w, 1024, RELEASE(VG_SCOPE_GPU, 3), 1);
        const struct vg_how how = RELAXED(VG_SCOPE_GPU, 4);
        while (ld(w.block[1], 0, &w, 1024, how) == 0) continue;
        if (asks) vg_model_acquire(w.block[1], 0, &w.region, 1024, VG_SCOPE_GPU);
        read_data(w.block[1]);
        CHECK_EQ(w.nraces, !asks);
        end();
    }
}
