/* cp.async: its read and its write may happen at any time between the issue and the wait. */
#include "builder.h"
#include "shim.h"

enum { A = R, B = R + 1, C = R + 2, D = R + 4, E = R + 5, W = R + 8, SEEDS = 40 };
enum { AFTER_WAIT = 65536, BEFORE_WAIT = 65536 + 4096 };

static void run_done(struct builder *b, uint32_t nthreads)
{
    CHECK_MESSAGE(b_run(b, 1, nthreads) == VG_DONE, "%s", b->text);
}

/* A: the thread's 16 bytes of shared memory; C: its 16 bytes of the buffer. */
static struct builder *begin(void)
{
    struct builder *b = b_create();
    b_kernel(b);
    b->f->shared_bytes = 8192;
    b_alu(b, VG_SHL, VG_B32, A, TID, b_k(b, 4));
    struct vg_instr *in = b_alu(b, VG_MAD, VG_U32, C, GLOBAL, b_k(b, 16));
    in->mode = VG_MUL_WIDE;
    in->src[2] = OUT;
    for (uint32_t i = 0; i < 4096; i++) b->out[i] = i + 1;
    return b;
}

static struct vg_instr *copy(struct builder *b, int64_t to)
{
    struct vg_instr *in = b_alu(b, VG_CP_ASYNC, VG_B32, VG_NONE, A, C);
    in->type2 = VG_B32;
    in->count = 16;
    in->imm = to;
    return in;
}

static void wait(struct builder *b, int64_t keep)
{
    struct vg_instr *in = b_add(b, VG_CP_ASYNC_WAIT, VG_B32);
    in->imm = keep < 0 ? 0 : keep;
    if (keep < 0) in->flags |= VG_ALL_GROUPS;
}

static void finish(struct builder *b, uint16_t before, uint16_t after)
{
    b_st(b, VG_B32, VG_GLOBAL, MINE, BEFORE_WAIT, before);
    b_st(b, VG_B32, VG_GLOBAL, MINE, AFTER_WAIT, after);
    b_exit(b);
}

static uint64_t races(struct builder *b)
{
    run_done(b, 64);
    const uint64_t n = b->model_counts.races;
    b_destroy(b);
    return n;
}

TEST(vgpu_async, a_copy_is_there_behind_its_wait_and_its_thread_may_read_it_then)
{
    for (int64_t keep = -1; keep < 1; keep++) {
        struct builder *b = begin();
        b_st(b, VG_B32, VG_SHARED, A, 0, b_k(b, 0));
        copy(b, 0);
        b_add(b, VG_CP_ASYNC_COMMIT, VG_B32);
        wait(b, keep);
        b_ld(b, VG_B32, VG_SHARED, D, A, 0);
        finish(b, TID, D);
        for (b->settings.seed = 1; b->settings.seed < SEEDS; b->settings.seed++) {
            run_done(b, 64);
            for (uint32_t i = 0; i < 64; i++) CHECK_EQ(b->out[AFTER_WAIT / 4 + i], 4 * i + 1);
            CHECK_EQ(b->model_counts.races, 0);
        }
        b_destroy(b);
    }
}

/* A read before the wait is a race, and by the seed it finds the old bytes or the new ones. */
TEST(vgpu_async, a_read_before_the_wait_races_and_finds_old_or_new_bytes)
{
    uint32_t old = 0, new = 0;
    struct builder *b = begin();
    b_st(b, VG_B32, VG_SHARED, A, 0, b_k(b, 0));
    copy(b, 0);
    b_add(b, VG_CP_ASYNC_COMMIT, VG_B32);
    b_ld(b, VG_B32, VG_SHARED, B, A, 0);
    wait(b, 0);
    finish(b, B, B);
    for (b->settings.seed = 1; b->settings.seed < SEEDS; b->settings.seed++) {
        run_done(b, 64);
        CHECK_EQ(b->model_counts.races, 1);
        for (uint32_t i = 0; i < 64; i++) {
            const uint32_t value = b->out[BEFORE_WAIT / 4 + i];
            CHECK(value == 0 || value == 4 * i + 1);
            old += value == 0;
            new += value != 0;
        }
    }
    CHECK(old > 20);
    CHECK(new > 20);
    b_destroy(b);
}

TEST(vgpu_async, writing_the_destination_or_the_source_before_the_wait_races)
{
    for (int which = 0; which < 4; which++) {
        struct builder *b = begin();
        copy(b, 0);
        b_add(b, VG_CP_ASYNC_COMMIT, VG_B32);
        if (which >= 2) wait(b, 0);
        if (which % 2 == 0)
            b_st(b, VG_B32, VG_SHARED, A, 4, TID);
        else
            b_st(b, VG_B32, VG_GLOBAL, C, 12, TID);
        wait(b, 0);
        finish(b, TID, TID);
        CHECK_EQ(races(b), which < 2);
    }
}

TEST(vgpu_async, reading_the_source_before_the_wait_is_no_race)
{
    struct builder *b = begin();
    copy(b, 0);
    b_ld(b, VG_B32, VG_GLOBAL, B, C, 0);
    wait(b, -1);
    finish(b, B, B);
    CHECK_EQ(races(b), 0);
}

TEST(vgpu_async, a_neighbour_reads_a_copy_after_a_wait_and_a_barrier)
{
    for (int meets = 0; meets < 2; meets++) {
        struct builder *b = begin();
        copy(b, 0);
        wait(b, -1);
        if (meets) b_sync(b, b_k(b, 0), VG_NONE);
        b_alu(b, VG_XOR, VG_B32, E, A, b_k(b, 16));
        b_ld(b, VG_B32, VG_SHARED, B, E, 0);
        finish(b, B, B);
        CHECK_EQ(races(b), !meets);
    }
}

/* A barrier alone makes nobody wait for a copy. */
TEST(vgpu_async, a_barrier_without_a_wait_orders_no_copy)
{
    struct builder *b = begin();
    copy(b, 0);
    b_sync(b, b_k(b, 0), VG_NONE);
    b_ld(b, VG_B32, VG_SHARED, B, A, 0);
    finish(b, B, B);
    CHECK_EQ(races(b), 1);
}

TEST(vgpu_async, a_wait_for_groups_leaves_the_last_ones_open)
{
    for (int last = 0; last < 2; last++) {
        struct builder *b = begin();
        for (int64_t k = 0; k < 40; k++) {
            copy(b, k % 4 * 1024);
            b_add(b, VG_CP_ASYNC_COMMIT, VG_B32);
            wait(b, 2);
        }
        b_ld(b, VG_B32, VG_SHARED, B, A, last ? 39 % 4 * 1024 : 37 % 4 * 1024);
        finish(b, B, B);
        CHECK_EQ(races(b), last);
    }
}

TEST(vgpu_async, two_copies_to_one_place_race_unless_one_is_waited_for)
{
    for (int waits = 0; waits < 2; waits++) {
        struct builder *b = begin();
        copy(b, 0);
        b_add(b, VG_CP_ASYNC_COMMIT, VG_B32);
        if (waits) wait(b, 0);
        copy(b, 0);
        wait(b, -1);
        finish(b, TID, TID);
        CHECK_EQ(races(b), !waits);
    }
}

TEST(vgpu_async, zeros_beyond_the_bytes_that_are_read_are_written_too)
{
    struct builder *b = begin();
    b_st(b, VG_B32, VG_SHARED, A, 12, TID);
    struct vg_instr *in = copy(b, 0);
    in->src[2] = b_k(b, 6);
    wait(b, -1);
    b_ld(b, VG_B32, VG_SHARED, B, A, 4);
    b_ld(b, VG_B32, VG_SHARED, D, A, 12);
    finish(b, B, D);
    run_done(b, 64);
    for (uint32_t i = 0; i < 64; i++) {
        CHECK_EQ(b->out[BEFORE_WAIT / 4 + i], (4 * i + 2) & 0xffff);
        CHECK_EQ(b->out[AFTER_WAIT / 4 + i], 0);
    }
    CHECK_EQ(b->model_counts.races, 0);
    b_destroy(b);
}

static void b32(struct vg_instr *in)
{
    in->type2 = VG_B32;
}

enum { MBARRIER = 4096 };
enum tracked { LOOPS, NO_LOOK, ONE_LOOK };

/* Each thread copies, the mbarrier tracks its copies, and each reads its neighbour's. noinc: the
 * arrivals are those that the mbarrier was made for. Else each thread arrives by itself as well. */
static struct builder *tracked(bool noinc, enum tracked how, uint32_t neighbour)
{
    struct builder *b = begin();
    b_setp(b, VG_EQ, 0, TID, b_k(b, 0));
    struct vg_instr *in = b_alu(b, VG_MBARRIER_INIT, VG_B64, VG_NONE, b_k(b, MBARRIER), b_k(b, 64));
    b32(in);
    b_guard(in, 0, false);
    b_sync(b, b_k(b, 0), VG_NONE);
    copy(b, 0);
    in = b_alu(b, VG_CP_ASYNC_MBARRIER, VG_B64, VG_NONE, b_k(b, MBARRIER), VG_NONE);
    b32(in);
    if (noinc)
        in->flags |= VG_NO_COMPLETE;
    else
        b32(b_alu(b, VG_MBARRIER_ARRIVE, VG_B64, W, b_k(b, MBARRIER), VG_NONE));
    const uint32_t top = b_here(b);
    if (how != NO_LOOK) {
        in = b_alu(b, VG_MBARRIER_TEST_WAIT, VG_B64, 1, b_k(b, MBARRIER), b_k(b, 0));
        b32(in);
        in->flags |= VG_PARITY;
        if (how == LOOPS) b_bra(b, 1, true)->target = top;
    }
    b_alu(b, VG_XOR, VG_B32, E, A, b_k(b, neighbour));
    b_ld(b, VG_B32, VG_SHARED, B, E, 0);
    finish(b, B, B);
    return b;
}

TEST(vgpu_async, an_mbarrier_that_tracks_copies_orders_those_who_wait_for_it)
{
    for (int noinc = 0; noinc < 2; noinc++) {
        struct builder *b = tracked(noinc != 0, LOOPS, 16);
        for (b->settings.seed = 1; b->settings.seed < SEEDS; b->settings.seed++) {
            run_done(b, 64);
            CHECK_MESSAGE(b->model_counts.races == 0, "noinc %d", noinc);
            for (uint32_t i = 0; i < 64; i++)
                CHECK_EQ(b->out[BEFORE_WAIT / 4 + i], 4 * (i ^ 1) + 1);
        }
        b_destroy(b);
    }
}

TEST(vgpu_async, a_thread_that_only_let_an_mbarrier_track_its_copy_has_not_waited)
{
    for (int noinc = 0; noinc < 2; noinc++) {
        CHECK_EQ(races(tracked(noinc != 0, NO_LOOK, 0)), 1);
        CHECK_EQ(races(tracked(noinc != 0, ONE_LOOK, 16)), 1);
    }
}

/* A copy that is issued behind the arrival is not part of it. */
TEST(vgpu_async, an_mbarrier_does_not_track_later_copies)
{
    struct builder *b = begin();
    b32(b_alu(b, VG_MBARRIER_INIT, VG_B64, VG_NONE, b_k(b, MBARRIER), b_k(b, 1)));
    copy(b, 0);
    struct vg_instr *in =
        b_alu(b, VG_CP_ASYNC_MBARRIER, VG_B64, VG_NONE, b_k(b, MBARRIER), VG_NONE);
    b32(in);
    in->flags |= VG_NO_COMPLETE;
    copy(b, 1024);
    const uint32_t top = b_here(b);
    in = b_alu(b, VG_MBARRIER_TEST_WAIT, VG_B64, 1, b_k(b, MBARRIER), b_k(b, 0));
    b32(in);
    in->flags |= VG_PARITY;
    b_bra(b, 1, true)->target = top;
    b_ld(b, VG_B32, VG_SHARED, B, A, 0);
    b_ld(b, VG_B32, VG_SHARED, D, A, 1024);
    finish(b, B, D);
    run_done(b, 1);
    CHECK_EQ(b->model_counts.races, 1);
    b_destroy(b);
}

/* A wait for a group covers what was copied before an arrival in the same group. */
TEST(vgpu_async, an_arrival_between_copies_of_a_group_splits_no_group)
{
    for (int waits = 0; waits < 2; waits++) {
        struct builder *b = begin();
        b32(b_alu(b, VG_MBARRIER_INIT, VG_B64, VG_NONE, b_k(b, MBARRIER), b_k(b, 1)));
        copy(b, 0);
        struct vg_instr *in =
            b_alu(b, VG_CP_ASYNC_MBARRIER, VG_B64, VG_NONE, b_k(b, MBARRIER), VG_NONE);
        b32(in);
        in->flags |= VG_NO_COMPLETE;
        copy(b, 1024);
        b_add(b, VG_CP_ASYNC_COMMIT, VG_B32);
        copy(b, 2048);
        b_add(b, VG_CP_ASYNC_COMMIT, VG_B32);
        wait(b, 1);
        b_ld(b, VG_B32, VG_SHARED, B, A, 0);
        b_ld(b, VG_B32, VG_SHARED, D, A, waits ? 1024 : 2048);
        finish(b, B, D);
        run_done(b, 1);
        CHECK_EQ(b->model_counts.races, !waits);
        b_destroy(b);
    }
}

/* A warp stores and arrives; each thread looks once, and reads its neighbour's word. The mbarrier
 * expects them, or one more, so that no look returns true. */
TEST(vgpu_async, a_look_at_an_mbarrier_that_returns_false_acquires_nothing)
{
    for (uint32_t more = 0; more < 2; more++)
        for (int op = 0; op < 2; op++) {
            struct builder *b = begin();
            b_setp(b, VG_EQ, 0, TID, b_k(b, 0));
            struct vg_instr *in =
                b_alu(b, VG_MBARRIER_INIT, VG_B64, VG_NONE, b_k(b, MBARRIER), b_k(b, 32 + more));
            b32(in);
            b_guard(in, 0, false);
            b_sync(b, b_k(b, 0), VG_NONE);
            b_st(b, VG_B32, VG_SHARED, A, 0, TID);
            b32(b_alu(b, VG_MBARRIER_ARRIVE, VG_B64, VG_NONE, b_k(b, MBARRIER), VG_NONE));
            const uint32_t top = b_here(b);
            in = b_alu(b, op == 0 ? VG_MBARRIER_TEST_WAIT : VG_MBARRIER_TRY_WAIT, VG_B64, 1,
                       b_k(b, MBARRIER), b_k(b, 0));
            b32(in);
            in->flags |= VG_PARITY;
            if (!more) b_bra(b, 1, true)->target = top;
            b_alu(b, VG_XOR, VG_B32, A, A, b_k(b, 16));
            b_ld(b, VG_B32, VG_SHARED, B, A, 0);
            finish(b, B, B);
            for (b->settings.seed = 1; b->settings.seed < 10; b->settings.seed++) {
                run_done(b, 32);
                CHECK_EQ(b->model_counts.races > 0, more);
            }
            b_destroy(b);
        }
}

/* A warp stores and expects no bytes, which is relaxed; its first lane arrives. */
TEST(vgpu_async, to_expect_bytes_releases_nothing_unless_it_arrives)
{
    for (uint32_t arrives = 0; arrives < 2; arrives++) {
        struct builder *b = begin();
        b_setp(b, VG_EQ, 0, TID, b_k(b, 0));
        struct vg_instr *in =
            b_alu(b, VG_MBARRIER_INIT, VG_B64, VG_NONE, b_k(b, MBARRIER), b_k(b, arrives ? 33 : 1));
        b32(in);
        b_guard(in, 0, false);
        b_sync(b, b_k(b, 0), VG_NONE);
        b_st(b, VG_B32, VG_SHARED, A, 0, TID);
        in = b_alu(b, VG_MBARRIER_EXPECT, VG_B64, VG_NONE, b_k(b, MBARRIER), b_k(b, 0));
        b32(in);
        in->mode = arrives != 0;
        in = b_alu(b, VG_MBARRIER_ARRIVE, VG_B64, VG_NONE, b_k(b, MBARRIER), VG_NONE);
        b32(in);
        b_guard(in, 0, false);
        const uint32_t top = b_here(b);
        in = b_alu(b, VG_MBARRIER_TEST_WAIT, VG_B64, 1, b_k(b, MBARRIER), b_k(b, 0));
        b32(in);
        in->flags |= VG_PARITY;
        b_bra(b, 1, true)->target = top;
        b_alu(b, VG_XOR, VG_B32, A, A, b_k(b, 16));
        b_ld(b, VG_B32, VG_SHARED, B, A, 0);
        finish(b, B, B);
        run_done(b, 32);
        CHECK_EQ(b->model_counts.races > 0, !arrives);
        b_destroy(b);
    }
}
