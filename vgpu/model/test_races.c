/* Each class of race is reported with both parties, and its correct twin is silent. */
#include "world.h"

#define EXPECT_RACE(world, a, b)                                                                   \
    do {                                                                                           \
        CHECK_EQ((world).nraces, 1);                                                               \
        CHECK_EQ((world).races[0].first.where, a);                                                 \
        CHECK_EQ((world).races[0].second.where, b);                                                \
        CHECK((world).nraces == 0 || (world).races[0].mend != NULL);                               \
    } while (0)

static struct world w;

TEST(races, a_missing_barrier_is_reported_with_both_parties)
{
    world_begin(&w, (struct vg_model_settings){0});
    st(w.block[1], 3, &w, 64, WEAK(7), 5);
    ld(w.block[1], 40, &w, 64, WEAK(8));
    EXPECT_RACE(w, 7, 8);
    const struct vg_party *a = &w.races[0].first, *b = &w.races[0].second;
    CHECK(a->grid == 100 && a->block == 1 && a->thread == 3 && a->write && a->nbytes == 4);
    CHECK(b->grid == 100 && b->block == 1 && b->thread == 40 && !b->write);
    CHECK_EQ(a->address, 0x10040);
    CHECK(w.races[0].region == &w.region);
    CHECK(strstr(w.races[0].mend, "__syncthreads") != NULL);
    world_end(&w);
    world_begin(&w, (struct vg_model_settings){0});
    st(w.block[1], 3, &w, 64, WEAK(7), 5);
    barrier(w.block[1]);
    CHECK_EQ(ld(w.block[1], 40, &w, 64, WEAK(8)), 5);
    CHECK_EQ(w.nraces, 0);
    world_end(&w);
}

TEST(races, memory_reused_too_early_is_a_write_after_a_read)
{
    world_begin(&w, (struct vg_model_settings){0});
    for (uint32_t t = 0; t < WORLD_THREADS; t++) st(w.block[0], t, &w, 4 * t, WEAK(1), t);
    barrier(w.block[0]);
    for (uint32_t t = 0; t < WORLD_THREADS; t++)
        ld(w.block[0], t, &w, 4 * ((t + 1) % WORLD_THREADS), WEAK(2));
    CHECK_EQ(w.nraces, 0);
    for (uint32_t t = 0; t < WORLD_THREADS; t++) st(w.block[0], t, &w, 4 * t, WEAK(3), t);
    EXPECT_RACE(w, 2, 3);
    world_end(&w);
}

TEST(races, the_fast_way_through_the_notes_sees_the_same_races)
{
    static const struct vg_how store = {.nbytes = 8, .where = 1}, load = {.nbytes = 8, .where = 2};
    for (int missing = 0; missing < 3; missing++) {
        world_begin(&w, (struct vg_model_settings){0});
        for (uint32_t round = 0; round < 5; round++) {
            const bool last = round == 4;
            for (uint32_t t = 0; t < WORLD_THREADS; t++)
                vg_model_store(w.block[2], t, &w.region, 8 * t, &store, &w.block);
            if (!last || missing != 1) barrier(w.block[2]);
            uint64_t value;
            for (uint32_t t = 0; t < WORLD_THREADS; t++)
                vg_model_load(w.block[2], (t + 1) % WORLD_THREADS, &w.region, 8 * t, &load, &value);
            if (round != 3 || missing != 2) barrier(w.block[2]);
            CHECK_EQ(w.nraces, last && missing > 0);
        }
        world_end(&w);
    }
}

TEST(races, a_pair_of_places_is_reported_once)
{
    world_begin(&w, (struct vg_model_settings){0});
    for (uint32_t i = 0; i < 20; i++) {
        st(w.block[0], 1, &w, 4 * i, WEAK(1), 1);
        ld(w.block[0], 2, &w, 4 * i, WEAK(2));
        ld(w.block[0], 3, &w, 4 * i, WEAK(3));
    }
    CHECK_EQ(w.nraces, 2);
    world_end(&w);
}

TEST(races, a_barrier_of_one_block_does_not_order_another)
{
    world_begin(&w, (struct vg_model_settings){0});
    st(w.block[0], 0, &w, 0, WEAK(1), 1);
    barrier(w.block[0]);
    barrier(w.block[1]);
    ld(w.block[1], 0, &w, 0, WEAK(2));
    EXPECT_RACE(w, 1, 2);
    CHECK(strstr(w.races[0].mend, "does not order different blocks") != NULL);
    world_end(&w);
}

TEST(races, lanes_of_a_warp_race_unless_they_sync)
{
    for (int sync = 0; sync < 2; sync++) {
        world_begin(&w, (struct vg_model_settings){0});
        st(w.block[0], 33, &w, 0, WEAK(1), 1);
        if (sync) vg_model_warp(w.block[0], 1, 0x0000000f);
        ld(w.block[0], 34, &w, 0, WEAK(2));
        if (sync)
            CHECK_EQ(w.nraces, 0);
        else
            EXPECT_RACE(w, 1, 2);
        w.nraces = 0;
        ld(w.block[0], 36, &w, 0, WEAK(3)); /* this lane was not part of it */
        CHECK_EQ(w.nraces, 1);
        st(w.block[0], 37, &w, 4, WEAK(4), 1); /* this one was not either */
        if (sync) vg_model_warp(w.block[0], 1, 0x0000000f);
        ld(w.block[0], 34, &w, 4, WEAK(5));
        CHECK_EQ(w.nraces, 2);
        world_end(&w);
    }
}

TEST(races, who_only_arrives_at_a_barrier_learns_nothing)
{
    const uint64_t waiting = UINT64_C(0xffffffff), arrived = UINT64_C(0xffffffff) << 32;
    world_begin(&w, (struct vg_model_settings){0});
    st(w.block[0], 1, &w, 0, WEAK(1), 1);
    st(w.block[0], 33, &w, 4, WEAK(2), 1);
    vg_model_arrive(w.block[0], 3, &arrived);
    vg_model_barrier(w.block[0], 3, &waiting);
    ld(w.block[0], 2, &w, 0, WEAK(3));
    ld(w.block[0], 2, &w, 4, WEAK(4));
    CHECK_EQ(w.nraces, 0);
    ld(w.block[0], 33, &w, 0, WEAK(5));
    EXPECT_RACE(w, 1, 5);
    world_end(&w);
}

/* The producer writes behind its bar.arrive; another barrier's arrivals do not count either. */
TEST(races, what_follows_an_arrival_is_not_ordered_by_the_barrier)
{
    const uint64_t waiting = UINT64_C(0xffffffff), arrived = UINT64_C(0xffffffff) << 32;
    for (uint32_t number = 1; number <= 2; number++) {
        world_begin(&w, (struct vg_model_settings){0});
        st(w.block[0], 33, &w, 0, WEAK(1), 1);
        vg_model_arrive(w.block[0], number, &arrived);
        st(w.block[0], 33, &w, 4, WEAK(2), 1);
        vg_model_barrier(w.block[0], 1, &waiting);
        ld(w.block[0], 2, &w, 0, WEAK(3));
        CHECK_EQ(w.nraces, number - 1);
        ld(w.block[0], 2, &w, 4, WEAK(4));
        CHECK_EQ(w.nraces, number);
        world_end(&w);
    }
}

TEST(races, a_barrier_of_some_threads_orders_those)
{
    const uint64_t some = UINT64_C(0x3ff);
    world_begin(&w, (struct vg_model_settings){0});
    st(w.block[0], 1, &w, 0, WEAK(1), 1);
    vg_model_barrier(w.block[0], 0, &some);
    ld(w.block[0], 9, &w, 0, WEAK(2));
    CHECK_EQ(w.nraces, 0);
    ld(w.block[0], 10, &w, 0, WEAK(3));
    EXPECT_RACE(w, 1, 3);
    world_end(&w);
}

TEST(races, an_access_after_the_barrier_is_not_ordered_by_it)
{
    world_begin(&w, (struct vg_model_settings){0});
    barrier(w.block[0]);
    st(w.block[0], 1, &w, 0, WEAK(1), 1);
    ld(w.block[0], 2, &w, 0, WEAK(2));
    EXPECT_RACE(w, 1, 2);
    world_end(&w);
}

TEST(races, a_weak_access_races_with_a_relaxed_one)
{
    for (int weak_writes = 0; weak_writes < 2; weak_writes++) {
        world_begin(&w, (struct vg_model_settings){0});
        const struct vg_how relaxed = RELAXED(VG_SCOPE_GPU, 1);
        st(w.block[0], 0, &w, 0, weak_writes ? WEAK(1) : relaxed, 1);
        ld(w.block[1], 0, &w, 0, weak_writes ? RELAXED(VG_SCOPE_GPU, 2) : WEAK(2));
        EXPECT_RACE(w, 1, 2);
        world_end(&w);
        world_begin(&w, (struct vg_model_settings){0});
        st(w.block[0], 0, &w, 0, relaxed, 1);
        ld(w.block[1], 0, &w, 0, RELAXED(VG_SCOPE_GPU, 2));
        CHECK_EQ(w.nraces, 0);
        world_end(&w);
    }
}

TEST(races, a_weak_access_races_with_a_relaxed_one_of_its_block)
{
    world_begin(&w, (struct vg_model_settings){0});
    st(w.block[0], 0, &w, 0, RELAXED(VG_SCOPE_CTA, 1), 1);
    ld(w.block[0], 40, &w, 0, WEAK(2));
    EXPECT_RACE(w, 1, 2);
    world_end(&w);
}

TEST(races, a_flag_of_too_narrow_a_scope_carries_no_release)
{
    for (int wide = 0; wide < 2; wide++) {
        world_begin(&w, (struct vg_model_settings){.reads = VG_READ_NEWEST});
        st(w.block[0], 0, &w, 64, WEAK(1), 9);
        vg_model_fence(w.block[0], 0, VG_ACQ_REL, VG_SCOPE_GPU);
        st(w.block[0], 0, &w, 0, RELAXED(wide ? VG_SCOPE_GPU : VG_SCOPE_CTA, 2), 1);
        CHECK_EQ(ld(w.block[1], 0, &w, 0, ACQUIRE(VG_SCOPE_GPU, 3)), 1);
        CHECK_EQ(w.nraces, wide ? 0 : 1); /* of the flag */
        ld(w.block[1], 0, &w, 64, WEAK(4));
        CHECK_EQ(w.nraces, wide ? 0 : 2);
        world_end(&w);
    }
}

TEST(races, a_weak_read_is_remembered_behind_a_relaxed_one)
{
    world_begin(&w, (struct vg_model_settings){0});
    ld(w.block[0], 0, &w, 0, WEAK(1));
    ld(w.block[0], 0, &w, 0, RELAXED(VG_SCOPE_GPU, 2));
    st(w.block[1], 0, &w, 0, RELAXED(VG_SCOPE_GPU, 3), 1);
    EXPECT_RACE(w, 1, 3);
    world_end(&w);
}

TEST(races, scopes_must_include_the_other_thread)
{
    const struct {
        enum vg_scope first, second;
        bool races;
    } cases[] = {{VG_SCOPE_CTA, VG_SCOPE_CTA, true},
                 {VG_SCOPE_CTA, VG_SCOPE_SYS, true},
                 {VG_SCOPE_SYS, VG_SCOPE_CTA, true},
                 {VG_SCOPE_GPU, VG_SCOPE_GPU, false},
                 {VG_SCOPE_SYS, VG_SCOPE_GPU, false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        world_begin(&w, (struct vg_model_settings){0});
        add(w.block[0], 0, &w, 0, RELAXED(cases[i].first, 1), 1);
        add(w.block[1], 0, &w, 0, RELAXED(cases[i].second, 2), 1);
        CHECK_MESSAGE(w.nraces == cases[i].races, "case %zu", i);
        if (cases[i].races) CHECK(strstr(w.races[0].mend, "scope") != NULL);
        w.nraces = 0;
        add(w.block[1], 1, &w, 0, RELAXED(cases[i].second, 3), 1); /* the same block */
        add(w.block[1], 2, &w, 4, RELAXED(VG_SCOPE_CTA, 4), 1);
        add(w.block[1], 3, &w, 4, RELAXED(VG_SCOPE_CTA, 5), 1);
        CHECK_MESSAGE(w.nraces <= 1, "case %zu: %u races", i, w.nraces);
        world_end(&w);
    }
}

TEST(races, strong_accesses_of_different_sizes_race)
{
    world_begin(&w, (struct vg_model_settings){0});
    st(w.block[0], 0, &w, 8, how_of(VG_RELAXED, VG_SCOPE_SYS, 8, 1), 1);
    ld(w.block[1], 0, &w, 12, how_of(VG_RELAXED, VG_SCOPE_SYS, 4, 2));
    EXPECT_RACE(w, 1, 2);
    CHECK(strstr(w.races[0].mend, "one size") != NULL);
    world_end(&w);
    world_begin(&w, (struct vg_model_settings){0});
    st(w.block[0], 0, &w, 8, how_of(VG_RELAXED, VG_SCOPE_SYS, 8, 1), 1);
    ld(w.block[1], 0, &w, 8, how_of(VG_RELAXED, VG_SCOPE_SYS, 8, 2));
    add(w.block[1], 0, &w, 12 + 4, how_of(VG_RELAXED, VG_SCOPE_SYS, 4, 3), 1);
    CHECK_EQ(w.nraces, 0);
    add(w.block[2], 0, &w, 12, how_of(VG_RELAXED, VG_SCOPE_SYS, 4, 4), 1);
    CHECK(w.nraces >= 1);
    world_end(&w);
}

TEST(races, bytes_side_by_side_do_not_race_and_overlapping_ones_do)
{
    world_begin(&w, (struct vg_model_settings){0});
    for (uint32_t t = 0; t < 16; t++)
        st(w.block[0], t, &w, t, how_of(VG_WEAK, VG_SCOPE_NONE, 1, 1), t);
    st(w.block[0], 20, &w, 16, how_of(VG_WEAK, VG_SCOPE_NONE, 2, 2), 1);
    st(w.block[0], 21, &w, 18, how_of(VG_WEAK, VG_SCOPE_NONE, 2, 3), 1);
    CHECK_EQ(w.nraces, 0);
    ld(w.block[0], 22, &w, 16, how_of(VG_WEAK, VG_SCOPE_NONE, 1, 4));
    EXPECT_RACE(w, 2, 4);
    w.nraces = 0;
    for (uint32_t t = 0; t < 16; t++) CHECK_EQ(w.bytes[t], t);
    ld(w.block[0], 2, &w, 0, how_of(VG_WEAK, VG_SCOPE_NONE, 4, 5));
    CHECK_EQ(w.nraces, 1);
    CHECK_EQ(w.races[0].first.nbytes, 1);
    world_end(&w);
}

TEST(races, reads_through_nc_race_with_ordered_writes_of_their_own_grid)
{
    struct vg_how nc = WEAK(2);
    nc.nc = true;
    const uint64_t all = UINT64_MAX;
    for (uint32_t thread = 1; thread <= 33; thread += 32) {
        world_begin(&w, (struct vg_model_settings){0});
        st(w.block[0], 1, &w, 0, WEAK(1), 1);
        vg_model_barrier(w.block[0], 0, &all);
        ld(w.block[0], thread, &w, 0, nc);
        CHECK_EQ(w.nraces, 1);
        CHECK(strstr(w.races[0].mend, "ld.global.nc") != NULL);
        world_end(&w);
    }
}

TEST(races, reads_through_nc_race_with_writes_even_by_atomics)
{
    struct vg_how nc = WEAK(2);
    nc.nc = true;
    world_begin(&w, (struct vg_model_settings){0});
    st(w.block[0], 0, &w, 0, RELAXED(VG_SCOPE_SYS, 1), 1);
    ld(w.block[1], 0, &w, 0, nc);
    EXPECT_RACE(w, 1, 2);
    CHECK(strstr(w.races[0].mend, "ld.global.nc") != NULL);
    st(w.block[0], 0, &w, 4, RELAXED(VG_SCOPE_SYS, 3), 1);
    ld(w.block[0], 33, &w, 4, nc);
    CHECK_EQ(w.nraces, 2);
    world_ends(&w);
    w.nraces = 0;
    world_blocks(&w, 101, 0);
    CHECK_EQ(ld(w.block[2], 0, &w, 0, nc), 1);
    CHECK_EQ(w.nraces, 0);
    world_end(&w);
}

/* Observation of the byte that was read orders a later write to that byte, and to no other. */
TEST(races, what_was_read_of_a_word_is_told_from_its_other_bytes)
{
    for (uint64_t read = 0; read < 2; read++) {
        world_begin(&w, (struct vg_model_settings){.reads = VG_READ_NEWEST});
        st(w.block[0], 0, &w, 0, how_of(VG_RELAXED, VG_SCOPE_GPU, 1, 1), 1);
        st(w.block[0], 0, &w, 1, how_of(VG_RELAXED, VG_SCOPE_GPU, 1, 2), 1);
        CHECK_EQ(ld(w.block[1], 0, &w, read, how_of(VG_RELAXED, VG_SCOPE_GPU, 1, 3)), 1);
        st(w.block[1], 0, &w, 0, how_of(VG_WEAK, VG_SCOPE_NONE, 1, 4), 0);
        CHECK_EQ(w.nraces, read);
        world_end(&w);
    }
}

/* The writer looks at its flag together with the word beside it: the flag's release stays. */
TEST(races, a_read_of_another_size_takes_no_release_away)
{
    for (uint64_t seed = 1; seed <= 50; seed++) {
        world_begin(&w, (struct vg_model_settings){.seed = seed});
        st(w.block[0], 0, &w, 64, WEAK(1), 5);
        st(w.block[0], 0, &w, 0, RELEASE(VG_SCOPE_GPU, 2), 1);
        CHECK_EQ(ld(w.block[0], 0, &w, 0, how_of(VG_RELAXED, VG_SCOPE_GPU, 8, 3)), 1);
        CHECK_EQ(ld(w.block[1], 0, &w, 0, ACQUIRE(VG_SCOPE_GPU, 4)), 1);
        CHECK_EQ(ld(w.block[1], 0, &w, 64, WEAK(5)), 5);
        CHECK_EQ(w.nraces, 0);
        world_end(&w);
    }
}

TEST(races, reading_is_no_race)
{
    world_begin(&w, (struct vg_model_settings){0});
    for (uint32_t b = 0; b < WORLD_BLOCKS; b++)
        for (uint32_t t = 0; t < WORLD_THREADS; t++) {
            ld(w.block[b], t, &w, 0, WEAK(1));
            ld(w.block[b], t, &w, 0, RELAXED(VG_SCOPE_CTA, 2));
        }
    CHECK_EQ(w.nraces, 0);
    st(w.block[0], 0, &w, 0, WEAK(3), 1);
    CHECK(w.nraces >= 1);
    world_end(&w);
}

TEST(races, kernels_are_ordered_by_what_they_begin_after)
{
    for (int ordered = 0; ordered < 2; ordered++) {
        world_begin(&w, (struct vg_model_settings){0});
        st(w.block[0], 0, &w, 0, WEAK(1), 9);
        world_ends(&w);
        struct vg_past *stream = vg_past_create();
        if (ordered) vg_past_join(stream, w.past);
        struct vg_grid_clock *copy = vg_model_grid_begin(w.model, 7, -1, 1, 1, stream);
        struct vg_block_clock *block = vg_model_block_begin(copy, 0);
        CHECK_EQ(ld(block, 0, &w, 0, WEAK(2)), 9);
        if (ordered) {
            CHECK_EQ(w.nraces, 0);
        } else {
            EXPECT_RACE(w, 1, 2);
            CHECK(w.races[0].first.grid == 100 && w.races[0].second.grid == 7);
            CHECK(strstr(w.races[0].mend, "event") != NULL);
        }
        vg_model_block_end(block);
        vg_model_grid_end(copy, stream);
        vg_past_destroy(stream);
        world_blocks(&w, 102, 0);
        world_end(&w);
    }
}

TEST(races, what_a_grid_acquired_is_known_to_those_after_it)
{
    world_begin(&w, (struct vg_model_settings){0});
    struct vg_past *stream = vg_past_create();
    struct vg_grid_clock *other = vg_model_grid_begin(w.model, 8, 1, 1, 1, NULL);
    struct vg_block_clock *block = vg_model_block_begin(other, 0);
    st(w.block[0], 0, &w, 0, WEAK(1), 3);
    st(w.block[0], 0, &w, 4, RELEASE(VG_SCOPE_SYS, 2), 1);
    while (ld(block, 0, &w, 4, ACQUIRE(VG_SCOPE_SYS, 3)) == 0) continue;
    vg_model_block_end(block);
    vg_model_grid_end(other, stream);
    other = vg_model_grid_begin(w.model, 9, 1, 1, 1, stream);
    block = vg_model_block_begin(other, 0);
    CHECK_EQ(ld(block, 0, &w, 0, WEAK(4)), 3);
    CHECK_EQ(w.nraces, 0);
    vg_model_block_end(block);
    vg_model_grid_end(other, stream);
    vg_past_destroy(stream);
    world_end(&w);
}

TEST(races, a_flag_that_was_read_may_be_reset_weakly)
{
    world_begin(&w, (struct vg_model_settings){.seed = 3});
    st(w.block[0], 0, &w, 0, RELAXED(VG_SCOPE_GPU, 1), 1);
    while (ld(w.block[1], 0, &w, 0, RELAXED(VG_SCOPE_GPU, 2)) == 0) continue;
    st(w.block[1], 0, &w, 0, WEAK(3), 0);
    CHECK_EQ(w.nraces, 0);
    st(w.block[2], 0, &w, 0, WEAK(4), 0);
    CHECK(w.nraces > 0);
    world_end(&w);
}

TEST(races, the_last_of_a_chain_of_increments_may_reset_the_counter)
{
    world_begin(&w, (struct vg_model_settings){.seed = 3});
    for (uint32_t i = 0; i < 100; i++)
        add(w.block[i % 4], i / 4, &w, 0, RELAXED(VG_SCOPE_GPU, 1), 1);
    st(w.block[3], 24, &w, 0, WEAK(2), 0);
    CHECK_EQ(w.nraces, 0);
    world_end(&w);
}

TEST(races, a_fence_and_a_counter_order_all_blocks_before_the_last)
{
    for (int fenced = 0; fenced < 2; fenced++) {
        world_begin(&w, (struct vg_model_settings){.seed = 5});
        for (uint32_t b = 0; b < WORLD_BLOCKS; b++) {
            for (uint32_t t = 0; t < WORLD_THREADS; t++)
                st(w.block[b], t, &w, 256 * (b + 1) + 4 * t, WEAK(1), b);
            barrier(w.block[b]);
            if (fenced) vg_model_fence(w.block[b], 0, VG_SC, VG_SCOPE_GPU);
            const bool last = add(w.block[b], 0, &w, 0, RELAXED(VG_SCOPE_GPU, 2), 1) == 3;
            if (fenced) vg_model_fence(w.block[b], 0, VG_SC, VG_SCOPE_GPU);
            barrier(w.block[b]);
            for (uint32_t t = 0; last && t < WORLD_THREADS; t++)
                for (uint32_t k = 0; k < WORLD_BLOCKS; k++)
                    ld(w.block[b], t, &w, 256 * (k + 1) + 4 * t, WEAK(3));
        }
        if (fenced)
            CHECK_EQ(w.nraces, 0);
        else
            EXPECT_RACE(w, 1, 3);
        world_end(&w);
    }
}

TEST(races, a_release_pattern_goes_on_behind_a_weak_write_to_its_location)
{
    for (uint64_t seed = 1; seed < 50; seed++) {
        world_begin(&w, (struct vg_model_settings){.seed = seed});
        st(w.block[0], 0, &w, 64, WEAK(1), 9);
        st(w.block[0], 0, &w, 0, RELEASE(VG_SCOPE_GPU, 2), 1);
        st(w.block[0], 0, &w, 0, WEAK(3), 0);
        st(w.block[0], 0, &w, 0, RELAXED(VG_SCOPE_GPU, 4), 2);
        while (ld(w.block[1], 0, &w, 0, ACQUIRE(VG_SCOPE_GPU, 5)) != 2) continue;
        w.nraces = 0; /* the flag's weak write races with reading it */
        CHECK_EQ(ld(w.block[1], 0, &w, 64, WEAK(6)), 9);
        CHECK_EQ(w.nraces, 0);
        world_end(&w);
    }
}

TEST(races, what_follows_the_release_or_the_fence_is_not_released)
{
    const enum vg_order orders[] = {VG_RELEASE, VG_ACQ_REL, VG_SC};
    for (int i = 0; i < 3; i++) {
        world_begin(&w, (struct vg_model_settings){.reads = VG_READ_NEWEST});
        st(w.block[0], 0, &w, 64, WEAK(1), 9);
        if (i == 0)
            st(w.block[0], 0, &w, 0, RELEASE(VG_SCOPE_GPU, 2), 1);
        else
            vg_model_fence(w.block[0], 0, orders[i], VG_SCOPE_GPU);
        st(w.block[0], 0, &w, 68, WEAK(3), 9);
        if (i > 0) st(w.block[0], 0, &w, 0, RELAXED(VG_SCOPE_GPU, 2), 1);
        ld(w.block[1], 0, &w, 0, ACQUIRE(VG_SCOPE_GPU, 4));
        ld(w.block[1], 0, &w, 64, WEAK(5));
        CHECK_EQ(w.nraces, 0);
        ld(w.block[1], 0, &w, 68, WEAK(6));
        EXPECT_RACE(w, 3, 6);
        world_end(&w);
    }
}

TEST(races, every_write_becomes_visible_in_bounded_time)
{
    world_begin(&w, (struct vg_model_settings){.reads = VG_READ_OLDEST, .late = 300});
    st(w.block[0], 0, &w, 0, RELAXED(VG_SCOPE_GPU, 1), 1);
    st(w.block[0], 0, &w, 0, RELAXED(VG_SCOPE_GPU, 1), 2);
    uint32_t tries = 0;
    while (tries < 1000 && ld(w.block[1], 0, &w, 0, RELAXED(VG_SCOPE_GPU, 2)) != 2) tries++;
    CHECK_MESSAGE(tries > 250 && tries < 400, "%u loads", tries);
    struct vg_model_counts counts;
    vg_model_count(w.model, &counts);
    CHECK(counts.older == tries && counts.loads == tries + 1 && counts.stores == 2);
    world_end(&w);
}

TEST(races, only_the_last_writes_of_the_depth_are_kept)
{
    world_begin(&w, (struct vg_model_settings){.reads = VG_READ_OLDEST, .depth = 4});
    for (uint32_t i = 1; i <= 10; i++) st(w.block[0], 0, &w, 0, RELAXED(VG_SCOPE_GPU, 1), i);
    CHECK_EQ(ld(w.block[1], 0, &w, 0, RELAXED(VG_SCOPE_GPU, 2)), 7);
    CHECK_EQ(ld(w.block[0], 0, &w, 0, RELAXED(VG_SCOPE_GPU, 3)), 10);
    world_end(&w);
}

TEST(races, with_the_model_off_bytes_move_and_nothing_is_reported)
{
    world_begin(&w, (struct vg_model_settings){.off = true});
    st(w.block[0], 0, &w, 0, WEAK(1), 1);
    CHECK_EQ(ld(w.block[1], 0, &w, 0, WEAK(2)), 1);
    CHECK_EQ(add(w.block[1], 0, &w, 0, RELAXED(VG_SCOPE_CTA, 3), 4), 1);
    CHECK_EQ(ld(w.block[2], 0, &w, 0, ACQUIRE(VG_SCOPE_SYS, 4)), 5);
    vg_model_fence(w.block[0], 0, VG_SC, VG_SCOPE_SYS);
    barrier(w.block[0]);
    CHECK_EQ(w.nraces, 0);
    CHECK(w.region.notes == NULL);
    world_end(&w);
}
