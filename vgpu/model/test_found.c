/* What the comparison with the axioms (litmus/) found, each as the smallest test. */
#include "world.h"

static struct world w;

static struct vg_how strong(uint8_t nbytes, uint64_t where)
{
    return how_of(VG_RELAXED, VG_SCOPE_SYS, nbytes, where);
}

static void newest(void)
{
    world_begin(&w, (struct vg_model_settings){.reads = VG_READ_NEWEST});
}

TEST(found, a_write_is_not_seen_because_other_bytes_were_written_after_it)
{
    newest();
    st(w.block[0], 0, &w, 0, strong(16, 1), 2);
    st(w.block[0], 0, &w, 8, strong(8, 2), 4);
    CHECK_EQ(ld(w.block[1], 0, &w, 8, strong(8, 3)), 4);
    CHECK_EQ(w.nraces, 1);
    CHECK(w.races[0].first.where == 1 && w.races[0].second.where == 3);
    world_end(&w);
}

TEST(found, a_write_is_not_seen_because_a_swap_of_other_bytes_failed)
{
    newest();
    st(w.block[0], 0, &w, 4, strong(4, 1), 1);
    CHECK_EQ(swap(w.block[0], 0, &w, 0, strong(8, 2), 1, 4), UINT64_C(1) << 32);
    ld(w.block[1], 0, &w, 0, how_of(VG_WEAK, VG_SCOPE_NONE, 8, 3));
    CHECK_EQ(w.nraces, 1);
    CHECK(w.races[0].first.where == 1 && w.races[0].second.where == 3);
    world_end(&w);
}

TEST(found, a_write_is_not_seen_because_a_part_of_it_was_written_weakly)
{
    newest();
    st(w.block[0], 0, &w, 0, strong(2, 1), 1);
    st(w.block[0], 0, &w, 0, how_of(VG_WEAK, VG_SCOPE_NONE, 1, 2), 3);
    ld(w.block[1], 0, &w, 1, how_of(VG_WEAK, VG_SCOPE_NONE, 1, 3));
    CHECK_EQ(w.nraces, 1);
    CHECK(w.races[0].first.where == 1 && w.races[0].second.where == 3);
    world_end(&w);
}

TEST(found, a_weak_write_of_a_line_races_with_a_strong_one_of_its_end)
{
    newest();
    st(w.block[0], 0, &w, 0, strong(16, 1), 1);
    barrier(w.block[0]);
    st(w.block[0], 0, &w, 8, strong(8, 2), 8);
    CHECK_EQ(w.nraces, 0);
    st(w.block[0], 1, &w, 0, how_of(VG_WEAK, VG_SCOPE_NONE, 16, 3), 4);
    CHECK_EQ(w.nraces, 1);
    CHECK(w.races[0].first.where == 2 && w.races[0].second.where == 3);
    world_end(&w);
}

/* The twin: who read a line of 16 bytes may take it back in smaller pieces, as often as it likes,
 * and what the line was written with again is new. */
TEST(found, what_was_read_stays_seen_behind_accesses_of_other_bytes)
{
    for (uint64_t seed = 1; seed < 40; seed++) {
        world_begin(&w, (struct vg_model_settings){.seed = seed});
        st(w.block[0], 0, &w, 0, strong(16, 1), 5);
        while (ld(w.block[1], 0, &w, 0, strong(16, 2)) != 5) continue;
        for (int i = 0; i < 4; i++) {
            st(w.block[1], 0, &w, 4, strong(4, 3), 7);
            add(w.block[1], 0, &w, 8, strong(8, 4), 1);
            CHECK_EQ(ld(w.block[1], 0, &w, 0, strong(8, 5)), UINT64_C(7) << 32 | 5);
        }
        CHECK_EQ(add(w.block[1], 0, &w, 8, strong(8, 6), 1), 9);
        st(w.block[1], 0, &w, 0, how_of(VG_WEAK, VG_SCOPE_NONE, 16, 7), 0);
        CHECK_EQ(ld(w.block[1], 0, &w, 0, strong(16, 8)), 0);
        CHECK_EQ(w.nraces, 0);
        world_end(&w);
    }
}

TEST(found, a_strong_read_of_another_block_does_not_stand_for_an_earlier_one)
{
    newest();
    CHECK_EQ(ld(w.block[1], 0, &w, 0, strong(4, 1)), 0);
    add(w.block[1], 0, &w, 64, RELEASE(VG_SCOPE_SYS, 2), 1);
    CHECK_EQ(ld(w.block[0], 1, &w, 64, ACQUIRE(VG_SCOPE_SYS, 3)), 1);
    CHECK_EQ(ld(w.block[0], 1, &w, 0, strong(4, 4)), 0);
    CHECK_EQ(w.nraces, 0);
    st(w.block[0], 0, &w, 0, RELAXED(VG_SCOPE_CTA, 5), 1); /* morally strong with 4 only */
    CHECK_EQ(w.nraces, 1);
    CHECK(w.races[0].first.where == 1 && w.races[0].second.where == 5);
    world_end(&w);
}

/* More blocks than there is room for: a weak read is not forgotten for their sake. */
TEST(found, strong_accesses_of_many_blocks_take_no_weak_ones_place)
{
    for (uint64_t seed = 1; seed < 40; seed++) {
        world_begin(&w, (struct vg_model_settings){.seed = seed, .reads = VG_READ_NEWEST});
        ld(w.block[3], 63, &w, 0, WEAK(1));
        for (uint32_t i = 0; i < 100; i++)
            ld(w.block[i % 3], i / 3, &w, 0, RELAXED(VG_SCOPE_GPU, 2));
        st(w.block[0], 0, &w, 0, RELAXED(VG_SCOPE_GPU, 3), 1);
        CHECK_EQ(w.nraces, 1);
        CHECK(w.races[0].first.where == 1 && w.races[0].second.where == 3);
        world_end(&w);
    }
}

TEST(found, an_acquire_does_not_race_with_what_it_acquires)
{
    for (int change = 0; change < 2; change++) {
        newest();
        st(w.block[0], 0, &w, 0, WEAK(1), 4);
        st(w.block[0], 0, &w, 0, RELEASE(VG_SCOPE_SYS, 2), 8);
        if (change)
            CHECK_EQ(add(w.block[1], 0, &w, 0, ACQUIRE(VG_SCOPE_SYS, 3), 1), 8);
        else
            CHECK_EQ(ld(w.block[1], 0, &w, 0, ACQUIRE(VG_SCOPE_SYS, 3)), 8);
        CHECK_EQ(w.nraces, 0);
        world_end(&w);
        world_begin(&w, (struct vg_model_settings){.reads = VG_READ_OLDEST});
        st(w.block[0], 0, &w, 0, WEAK(1), 4);
        st(w.block[0], 0, &w, 0, RELEASE(VG_SCOPE_SYS, 2), 8);
        CHECK_EQ(ld(w.block[1], 0, &w, 0, ACQUIRE(VG_SCOPE_SYS, 3)), 4);
        CHECK_EQ(w.nraces, 1);
        world_end(&w);
    }
}

TEST(found, an_acquire_of_too_narrow_a_scope_still_races)
{
    for (int change = 0; change < 2; change++) {
        newest();
        add(w.block[0], 0, &w, 0, how_of(VG_ACQ_REL, VG_SCOPE_CTA, 4, 1), 1);
        if (change)
            add(w.block[1], 0, &w, 0, how_of(VG_ACQ_REL, VG_SCOPE_GPU, 4, 2), 1);
        else
            ld(w.block[1], 0, &w, 0, ACQUIRE(VG_SCOPE_GPU, 2));
        CHECK_EQ(w.nraces, 1);
        CHECK(w.races[0].first.where == 1 && w.races[0].second.where == 2);
        world_end(&w);
    }
}

TEST(found, a_swap_that_fails_is_the_first_part_of_a_release_pattern)
{
    for (int releases = 0; releases < 2; releases++) {
        newest();
        st(w.block[0], 0, &w, 64, WEAK(1), 1);
        swap(w.block[0], 0, &w, 0, releases ? RELEASE(VG_SCOPE_SYS, 2) : strong(4, 2), 1, 2);
        st(w.block[0], 0, &w, 0, strong(4, 3), 4);
        CHECK_EQ(ld(w.block[1], 0, &w, 0, ACQUIRE(VG_SCOPE_SYS, 4)), 4);
        ld(w.block[1], 0, &w, 64, WEAK(5));
        CHECK_EQ(w.nraces, releases ? 0 : 1);
        world_end(&w);
    }
}

TEST(found, what_follows_a_swap_that_fails_is_not_released)
{
    newest();
    swap(w.block[0], 0, &w, 0, RELEASE(VG_SCOPE_SYS, 1), 1, 2);
    st(w.block[0], 0, &w, 64, WEAK(2), 1);
    st(w.block[0], 0, &w, 0, strong(4, 3), 4);
    CHECK_EQ(ld(w.block[1], 0, &w, 0, ACQUIRE(VG_SCOPE_SYS, 4)), 4);
    ld(w.block[1], 0, &w, 64, WEAK(5));
    CHECK_EQ(w.nraces, 1);
    world_end(&w);
}

/* In memory that the host can reach the values tell: what was stored before is there. */
TEST(found, a_swap_that_fails_releases_reachable_memory)
{
    for (uint64_t seed = 1; seed < 200; seed++) {
        world_begin(&w, (struct vg_model_settings){.seed = seed});
        w.region.reachable = true;
        st(w.block[0], 0, &w, 64, WEAK(1), 1);
        swap(w.block[0], 0, &w, 0, RELEASE(VG_SCOPE_SYS, 2), 1, 2);
        st(w.block[0], 0, &w, 0, strong(4, 3), 4);
        uint32_t flag = 0, data = 0;
        for (uint32_t i = 0; flag != 4 && i < 100000; i++) {
            ld(w.block[1], 0, &w, 128, strong(4, 4));
            memcpy(&flag, w.bytes, sizeof flag); /* a host thread looks */
        }
        memcpy(&data, w.bytes + 64, sizeof data);
        CHECK(flag == 4 && data == 1);
        world_end(&w);
    }
}
