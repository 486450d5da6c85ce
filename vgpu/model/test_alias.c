/* Accesses at two addresses of one memory: which fences make them see each other, and which race.
 */
#include "world.h"

static struct world w;
static struct vg_region second; /* of the same bytes as w.region */
enum { SEEDS = 200, DATA = 0, FLAG = 4096, ROUNDS = 20 };

static void begin(uint64_t seed)
{
    world_begin(&w, (struct vg_model_settings){.seed = seed});
    second = w.region;
    second.address = 0x90000;
    w.region.reachable = second.reachable = true;
    vg_model_alias(&second, &w.region);
}

static void end(void)
{
    vg_model_forget(w.model, &second);
    CHECK(w.region.alias == NULL && second.alias == NULL);
    world_end(&w);
}

static uint64_t ld_second(struct vg_block_clock *block, uint32_t thread, uint64_t where)
{
    const struct vg_how how = WEAK(where);
    uint64_t value = 0;
    vg_model_load(block, thread, &second, DATA, &how, &value);
    return value;
}

static void st_second(struct vg_block_clock *block, uint32_t thread, uint64_t value)
{
    const struct vg_how how = WEAK(7);
    vg_model_store(block, thread, &second, DATA, &how, &value);
}

TEST(alias, a_thread_sees_its_store_at_the_other_address_behind_the_fence)
{
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        begin(seed);
        for (uint64_t i = 1; i <= ROUNDS; i++) {
            st(w.block[0], 0, &w, DATA, WEAK(1), i);
            vg_model_fence_alias(w.block[0], 0);
            CHECK_EQ(ld_second(w.block[0], 0, 2), i);
            vg_model_fence_alias(w.block[0], 0);
        }
        CHECK_EQ(w.nraces, 0);
        end();
    }
}

TEST(alias, a_thread_that_forgets_the_fence_sees_older_values_and_is_reported)
{
    uint32_t older = 0;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        begin(seed);
        for (uint64_t i = 1; i <= ROUNDS; i++) {
            st(w.block[0], 0, &w, DATA, WEAK(1), i);
            older += ld_second(w.block[0], 0, 2) != i;
        }
        CHECK_EQ(w.nraces, 1);
        CHECK(w.races[0].alias && w.races[0].first.write && !w.races[0].second.write);
        CHECK_EQ(w.races[0].first.address, w.region.address + DATA);
        CHECK_EQ(w.races[0].second.address, second.address + DATA);
        end();
    }
    CHECK(older > SEEDS);
}

/* Block 0 stores, block 1 loads at the other address behind a flag; with the fence here or there.
 */
static void message(uint64_t seed, int fence)
{
    begin(seed);
    if (fence == 1) vg_model_fence_alias(w.block[0], 0);
    st(w.block[0], 0, &w, DATA, WEAK(1), 7);
    if (fence == 2) vg_model_fence_alias(w.block[0], 0);
    st(w.block[0], 0, &w, FLAG, RELEASE(VG_SCOPE_SYS, 3), 1);
    if (fence == 3) vg_model_fence_alias(w.block[0], 0);
    if (fence == 4) vg_model_fence_alias(w.block[1], 0);
    while (ld(w.block[1], 0, &w, FLAG, ACQUIRE(VG_SCOPE_SYS, 4)) == 0) {
    }
    if (fence == 5) vg_model_fence_alias(w.block[1], 0);
    const bool same = ld_second(w.block[1], 0, 2) == 7;
    const bool linked = fence == 2 || fence == 5;
    CHECK_MESSAGE(w.nraces == (linked ? 0 : 1), "fence %d: %u races", fence, w.nraces);
    CHECK(same || !linked);
    end();
}

TEST(alias, a_message_needs_the_fence_between_the_two_accesses)
{
    for (uint64_t seed = 1; seed <= SEEDS; seed++)
        for (int fence = 0; fence <= 5; fence++) message(seed, fence);
}

TEST(alias, a_barrier_links_the_fence_of_one_thread_and_not_those_before_the_access)
{
    for (int late = 0; late < 2; late++) {
        begin(3);
        if (!late) vg_model_fence_alias(w.block[0], 0);
        st(w.block[0], 0, &w, DATA, WEAK(1), 7);
        if (late) vg_model_fence_alias(w.block[0], 0);
        barrier(w.block[0]);
        ld_second(w.block[0], 5, 2);
        CHECK_EQ(w.nraces, late ? 0 : 1);
        end();
    }
}

TEST(alias, flags_at_two_addresses_are_not_morally_strong)
{
    begin(5);
    const struct vg_how how = RELAXED(VG_SCOPE_SYS, 8);
    const uint64_t one = 1;
    vg_model_store(w.block[1], 0, &second, DATA, &how, &one);
    ld(w.block[0], 0, &w, DATA, RELAXED(VG_SCOPE_SYS, 9));
    CHECK_EQ(w.nraces, 1);
    end();
}

TEST(alias, grids_one_behind_another_need_no_fence)
{
    begin(5);
    st(w.block[0], 0, &w, DATA, WEAK(1), 7);
    world_ends(&w);
    world_blocks(&w, 101, 0);
    CHECK_EQ(ld_second(w.block[2], 3, 2), 7);
    CHECK_EQ(w.nraces, 0);
    vg_model_bulk(w.block[0], 0, &second, 0, WORLD_BYTES, true); /* the other block has read it */
    CHECK_EQ(w.nraces, 1);
    end();
}

TEST(alias, copies_race_with_accesses_at_the_other_address)
{
    for (int write = 0; write < 2; write++) {
        begin(5);
        struct vg_grid_clock *copy = vg_model_grid_begin(w.model, 7, 0, 1, 1, NULL);
        struct vg_block_clock *block = vg_model_block_begin(copy, 0);
        vg_model_bulk(block, 0, &second, 0, WORLD_BYTES, write);
        st(w.block[0], 0, &w, 4096, WEAK(1), 7);
        CHECK_EQ(w.nraces, 1);
        vg_model_block_end(block);
        vg_model_grid_end(copy, NULL);
        end();
    }
}

TEST(alias, more_fences_than_are_kept_invent_no_race)
{
    begin(5);
    st(w.block[0], 0, &w, DATA, WEAK(1), 7);
    vg_model_fence_alias(w.block[0], 0);
    barrier(w.block[0]);
    for (uint32_t i = 0; i < 1000; i++) vg_model_fence_alias(w.block[1], i % WORLD_THREADS);
    ld_second(w.block[0], 1, 2);
    CHECK_EQ(w.nraces, 0);
    st_second(w.block[2], 0, 8); /* the fences that are not kept count for everybody */
    CHECK_EQ(w.nraces, 1);       /* with the load */
    end();
}

TEST(alias, three_addresses_are_one_memory_until_they_are_forgotten)
{
    begin(5);
    struct vg_region third = w.region;
    third.address = 0xa0000;
    third.notes = NULL;
    third.alias = NULL;
    vg_model_alias(&third, &w.region);
    const struct vg_how how = WEAK(11);
    uint64_t value = 1;
    vg_model_store(w.block[0], 0, &third, DATA, &how, &value);
    ld_second(w.block[0], 0, 2);
    CHECK_EQ(w.nraces, 1);
    vg_model_forget(w.model, &third);
    CHECK(w.region.alias == &second && second.alias == &w.region);
    end();
}
