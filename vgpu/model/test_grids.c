/* Several grids, and a host that stands between them. */
#include "world.h"

static struct world w;

static struct vg_how nc_of(uint64_t where)
{
    struct vg_how nc = WEAK(where);
    nc.nc = true;
    return nc;
}

/* A grid of one thread beside the world's. */
struct other {
    struct vg_grid_clock *grid;
    struct vg_block_clock *block;
};

static struct other other_begin(uint64_t number, const struct vg_past *before)
{
    struct other other = {.grid = vg_model_grid_begin(w.model, number, 0, 1, 32, before)};
    other.block = vg_model_block_begin(other.grid, 0);
    return other;
}

static void other_end(struct other other, struct vg_past *after)
{
    vg_model_block_end(other.block);
    vg_model_grid_end(other.grid, after);
}

/* ld.global.nc of memory that a grid of another stream writes: flags do not order it. */
TEST(grids, reads_through_nc_race_with_writes_of_a_grid_that_runs_beside)
{
    for (int plain = 0; plain < 2; plain++) {
        world_begin(&w, (struct vg_model_settings){.reads = VG_READ_NEWEST});
        const struct other other = other_begin(7, NULL);
        st(other.block, 0, &w, 64, WEAK(1), 5);
        st(other.block, 0, &w, 0, RELEASE(VG_SCOPE_GPU, 2), 1);
        CHECK_EQ(ld(w.block[0], 0, &w, 0, ACQUIRE(VG_SCOPE_GPU, 3)), 1);
        CHECK_EQ(ld(w.block[0], 0, &w, 64, plain ? WEAK(4) : nc_of(4)), 5);
        CHECK_EQ(w.nraces, !plain);
        other_end(other, NULL);
        world_end(&w);
    }
}

TEST(grids, a_write_behind_reads_through_nc_races_while_their_grid_may_run)
{
    for (int plain = 0; plain < 2; plain++) {
        world_begin(&w, (struct vg_model_settings){.reads = VG_READ_NEWEST});
        const struct other other = other_begin(7, NULL);
        ld(w.block[0], 0, &w, 64, plain ? WEAK(4) : nc_of(4));
        st(w.block[0], 0, &w, 0, RELEASE(VG_SCOPE_GPU, 2), 1);
        CHECK_EQ(ld(other.block, 0, &w, 0, ACQUIRE(VG_SCOPE_GPU, 3)), 1);
        st(other.block, 0, &w, 64, WEAK(1), 5);
        CHECK_EQ(w.nraces, !plain);
        other_end(other, NULL);
        world_end(&w);
    }
}

TEST(grids, reads_through_nc_follow_writes_of_a_grid_that_ended_before_theirs_began)
{
    world_begin(&w, (struct vg_model_settings){0});
    struct vg_past *stream = vg_past_create();
    struct other other = other_begin(7, NULL);
    st(other.block, 0, &w, 64, WEAK(1), 5);
    other_end(other, stream);
    other = other_begin(8, stream);
    CHECK_EQ(ld(other.block, 0, &w, 64, nc_of(2)), 5);
    other_end(other, stream);
    other = other_begin(9, stream);
    st(other.block, 0, &w, 64, WEAK(3), 6);
    CHECK_EQ(w.nraces, 0);
    other_end(other, stream);
    vg_past_destroy(stream);
    world_end(&w);
}

/* A plain load of the same word by the same thread must not stand for the one through nc. */
TEST(grids, a_read_through_nc_is_remembered_behind_a_plain_one)
{
    for (int quick = 0; quick < 2; quick++) {
        static const struct vg_how load = {.nbytes = 4, .where = 2};
        world_begin(&w, (struct vg_model_settings){0});
        uint32_t value;
        for (int i = 0; i < 2; i++) vg_model_load(w.block[0], 0, &w.region, 128, &load, &value);
        ld(w.block[0], 0, &w, 64, nc_of(1));
        if (quick)
            vg_model_load(w.block[0], 0, &w.region, 64, &load, &value);
        else
            ld(w.block[0], 0, &w, 64, WEAK(2));
        st(w.block[0], 0, &w, 64, WEAK(3), 6);
        CHECK_EQ(w.nraces, 1);
        CHECK(w.nraces == 0 || (w.races[0].first.nc && w.races[0].first.where == 1));
        world_end(&w);
    }
}

/* What a running grid did is not forgotten because many grids ran since. */
TEST(grids, a_grid_that_runs_is_remembered_however_many_grids_follow)
{
    world_begin(&w, (struct vg_model_settings){0});
    st(w.block[1], 3, &w, 64, WEAK(1), 5);
    st(w.block[1], 3, &w, 68, RELAXED(VG_SCOPE_GPU, 2), 5);
    struct vg_past *stream = vg_past_create();
    for (uint64_t i = 0; i < 70000; i++) other_end(other_begin(1000 + i, stream), stream);
    const struct other other = other_begin(7, stream);
    ld(other.block, 0, &w, 68, RELAXED(VG_SCOPE_GPU, 3));
    CHECK_EQ(w.nraces, 0);
    ld(other.block, 0, &w, 64, WEAK(4));
    CHECK_EQ(w.nraces, 1);
    CHECK(w.races[0].first.grid == 100 && w.races[0].first.block == 1);
    CHECK(w.races[0].first.thread == 3 && w.races[0].second.grid == 7);
    other_end(other, stream);
    vg_past_destroy(stream);
    world_end(&w);
}

static uint32_t host_reads(uint64_t offset)
{
    return __atomic_load_n((uint32_t *)(void *)(w.bytes + offset), __ATOMIC_ACQUIRE);
}

enum { FLAG = 0, ELSEWHERE = 256 };

/* Data in memory of the device, a flag in memory that the host reads before it launches a grid. */
static uint32_t races_behind_a_flag(uint64_t seed, enum vg_order order, bool sees)
{
    unsigned char data[64] = {0};
    struct vg_region region = {.address = 0x90000, .nbytes = 64, .bytes = data};
    const struct vg_how how = WEAK(1);
    uint32_t value = 6;
    world_begin(&w, (struct vg_model_settings){.seed = seed});
    w.region.reachable = true;
    vg_model_store(w.block[0], 0, &region, 0, &how, &value);
    st(w.block[0], 0, &w, FLAG, how_of(order, VG_SCOPE_SYS, 4, 2), 1);
    while (sees && host_reads(FLAG) == 0) ld(w.block[0], 0, &w, ELSEWHERE, WEAK(3));
    const bool visible = host_reads(FLAG) != 0;
    struct vg_past *stream = vg_past_create();
    vg_model_published(w.model, stream);
    const struct other other = other_begin(7, stream);
    value = 0;
    vg_model_load(other.block, 0, &region, 0, &how, &value);
    CHECK_EQ(value, 6);
    const uint32_t n = w.nraces;
    CHECK(sees || !visible || n == 0);
    CHECK(sees || visible || n == 1);
    other_end(other, stream);
    vg_past_destroy(stream);
    vg_model_forget(w.model, &region);
    world_end(&w);
    return n;
}

TEST(grids, a_host_that_saw_a_released_flag_may_launch_a_grid_behind_it)
{
    for (uint64_t seed = 1; seed <= 50; seed++) {
        CHECK_EQ(races_behind_a_flag(seed, VG_RELEASE, true), 0);
        CHECK_EQ(races_behind_a_flag(seed, VG_RELAXED, true), 1);
    }
}

/* The release store waits in the device's buffer: the host cannot have seen it. */
TEST(grids, a_release_that_the_host_cannot_have_seen_orders_no_launch)
{
    uint32_t n = 0;
    for (uint64_t seed = 1; seed <= 50; seed++) n += races_behind_a_flag(seed, VG_RELEASE, false);
    CHECK(n > 10);
}

static bool never(void *arg, const void *old, void *value)
{
    (void)arg;
    (void)old;
    (void)value;
    return false;
}

/* One block stores and then fails to swap, or the other one reads by a swap that fails. */
TEST(grids, a_failed_compare_and_swap_acquires_and_does_not_release)
{
    for (int fails = 0; fails < 2; fails++) {
        const struct vg_how how = how_of(VG_ACQ_REL, VG_SCOPE_GPU, 4, 2);
        uint32_t old = 0;
        world_begin(&w, (struct vg_model_settings){.reads = VG_READ_NEWEST});
        st(w.block[0], 0, &w, 64, WEAK(1), 5);
        if (fails)
            vg_model_rmw(w.block[0], 0, &w.region, 0, &how, never, NULL, &old);
        else
            st(w.block[0], 0, &w, 0, RELEASE(VG_SCOPE_GPU, 3), 1);
        vg_model_rmw(w.block[1], 0, &w.region, 0, &how, never, NULL, &old);
        CHECK_EQ(old, !fails);
        ld(w.block[1], 0, &w, 64, WEAK(4));
        CHECK_EQ(w.nraces, fails);
        world_end(&w);
    }
}
