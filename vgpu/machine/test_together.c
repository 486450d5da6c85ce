/* What lanes and threads do together: shuffles, votes, match, redux, elect, barriers. */
#include <string.h>

#include "builder.h"
#include "shim.h"

enum { A = R, B = R + 1, C = R + 2, D = R + 4 };

/* Runs and compares out[i] with want(i). */
static void compare(struct builder *b, uint32_t nthreads, uint32_t (*want)(uint32_t i))
{
    for (uint64_t seed = 1; seed <= 3; seed++) {
        b->settings.seed = seed;
        memset(b->out, 0xee, B_OUTPUT);
        CHECK_MESSAGE(b_run(b, 1, nthreads) == VG_DONE, "%s", b->text);
        for (uint32_t i = 0; i < nthreads; i++)
            if (b->out[i] != want(i)) {
                CHECK_MESSAGE(false, "thread %u: 0x%x, expected 0x%x", i, b->out[i], want(i));
                return;
            }
    }
}

static struct vg_instr *shuffle(struct builder *b, enum vg_shuffle mode, uint32_t by, uint32_t c)
{
    struct vg_instr *in = b_alu(b, VG_SHFL, VG_B32, A, TID, b_k(b, by));
    in->mode = (uint8_t)mode;
    in->src[2] = b_k(b, c);
    in->src[3] = b_k(b, UINT32_MAX);
    in->dst[1] = 0;
    return in;
}

static void shuffle_case(enum vg_shuffle mode, uint32_t by, uint32_t c,
                         uint32_t (*want)(uint32_t i))
{
    struct builder *b = b_create();
    b_kernel(b);
    shuffle(b, mode, by, c);
    b_guard(b_alu(b, VG_ADD, VG_U32, A, A, b_k(b, 1000)), 0, false); /* the source was valid */
    b_result(b, A);
    compare(b, 64, want);
    b_destroy(b);
}

static uint32_t down(uint32_t i)
{
    return i % 32 + 4 <= 31 ? i + 4 + 1000 : i;
}
static uint32_t up(uint32_t i)
{
    return i % 32 >= 3 ? i - 3 + 1000 : i;
}
static uint32_t bfly(uint32_t i)
{
    return (i ^ 8) + 1000;
}
/* segments of 8: c = (32 - 8) << 8 | 31 */
static uint32_t idx_in_eights(uint32_t i)
{
    return (i & ~7u) + 5 + 1000;
}

TEST(vgpu_together, shuffles_follow_the_manual)
{
    shuffle_case(VG_SHFL_DOWN, 4, 31, down);
    shuffle_case(VG_SHFL_UP, 3, 0, up);
    shuffle_case(VG_SHFL_BFLY, 8, 31, bfly);
    shuffle_case(VG_SHFL_IDX, 5, 24 << 8 | 31, idx_in_eights);
}

/* Odd and even lanes shuffle with the full mask at different instructions. */
static uint32_t from_neighbour(uint32_t i)
{
    return i ^ 1;
}

TEST(vgpu_together, lanes_shuffle_at_different_instructions_of_divergent_code)
{
    struct builder *b = b_create();
    b_kernel(b);
    b_alu(b, VG_AND, VG_B32, B, TID, b_k(b, 1));
    b_setp(b, VG_EQ, 1, B, b_k(b, 0));
    struct vg_instr *even = b_bra(b, 1, false);
    shuffle(b, VG_SHFL_BFLY, 1, 31);
    b_result(b, A);
    b_land(b, even);
    for (int i = 0; i < 20; i++) b_add(b, VG_NOP, VG_B32);
    shuffle(b, VG_SHFL_BFLY, 1, 31);
    b_result(b, A);
    compare(b, 64, from_neighbour);
    b_destroy(b);
}

static struct vg_instr *vote(struct builder *b, enum vg_vote mode, uint16_t d, uint16_t p,
                             uint16_t mask)
{
    struct vg_instr *in = b_alu(b, VG_VOTE, mode == VG_VOTE_BALLOT ? VG_B32 : VG_PRED, d, p, mask);
    in->mode = (uint8_t)mode;
    return in;
}

static uint32_t votes(uint32_t i)
{
    return (0xffff0000u & ~7u) + (i % 64 < 32 ? 3 : 2) + (i < 32 ? 0 : 0);
}

TEST(vgpu_together, votes_count_the_lanes_of_the_mask)
{
    struct builder *b = b_create();
    b_kernel(b);
    b_setp(b, VG_GE, 0, LANE, b_k(b, 16)); /* upper half of each warp */
    b_setp(b, VG_LT, 1, TID, b_k(b, 32));  /* the first warp: uniform in each */
    vote(b, VG_VOTE_BALLOT, A, 0, b_k(b, UINT32_MAX));
    vote(b, VG_VOTE_ALL, 2, 1, b_k(b, UINT32_MAX));
    vote(b, VG_VOTE_UNI, 3, 1, b_k(b, UINT32_MAX));
    vote(b, VG_VOTE_ANY, 4, 0, b_k(b, UINT32_MAX));
    vote(b, VG_VOTE_ALL, 5, 0, b_k(b, UINT32_MAX)); /* false */
    b_guard(b_alu(b, VG_ADD, VG_U32, A, A, b_k(b, 1)), 2, false);
    b_guard(b_alu(b, VG_ADD, VG_U32, A, A, b_k(b, 1)), 3, false);
    b_guard(b_alu(b, VG_ADD, VG_U32, A, A, b_k(b, 1)), 4, false);
    b_guard(b_alu(b, VG_ADD, VG_U32, A, A, b_k(b, 4)), 5, false);
    b_result(b, A);
    compare(b, 64, votes);
    b_destroy(b);
}

static uint32_t matched(uint32_t i)
{
    return 0x11111111u << i % 4;
}

TEST(vgpu_together, match_any_finds_lanes_with_equal_values)
{
    struct builder *b = b_create();
    b_kernel(b);
    b_alu(b, VG_AND, VG_B32, B, TID, b_k(b, 3));
    b_alu(b, VG_MATCH_ANY, VG_B32, A, B, b_k(b, UINT32_MAX));
    b_result(b, A);
    compare(b, 64, matched);
    b_destroy(b);
}

/* Groups by match_any sum their lanes: each lane has its group's mask. */
static uint32_t group_sum(uint32_t i)
{
    uint32_t sum = 0;
    for (uint32_t k = i % 4; k < 32; k += 4) sum += k;
    return sum + 100 * (i % 4);
}

TEST(vgpu_together, redux_and_elect_work_in_groups_with_masks_of_their_own)
{
    struct builder *b = b_create();
    b_kernel(b);
    b_alu(b, VG_AND, VG_B32, B, TID, b_k(b, 3));
    b_alu(b, VG_MATCH_ANY, VG_B32, C, B, b_k(b, UINT32_MAX));
    b_alu(b, VG_REDUX, VG_U32, A, LANE, C)->mode = VG_REDUCE_ADD;
    struct vg_instr *in = b_alu(b, VG_ELECT, VG_B32, B, C, VG_NONE);
    in->dst[1] = 0;
    in = b_alu(b, VG_MAD, VG_U32, A, B, b_k(b, 100));
    in->src[2] = A;
    in->mode = VG_MUL_LO;
    b_result(b, A);
    compare(b, 64, group_sum);
    b_destroy(b);
}

TEST(vgpu_together, a_lane_outside_of_its_own_mask_is_a_fault)
{
    struct builder *b = b_create();
    b_kernel(b);
    b_alu(b, VG_WARP_SYNC, VG_B32, VG_NONE, b_k(b, 0xffff), VG_NONE);
    b_exit(b);
    CHECK(b_run(b, 1, 32) == VG_FAULTED);
    CHECK_STR(b->text, "kernel k, block (0,0,0), thread (16,0,0): the lane is not in its own mask "
                       "of lanes 0x0000ffff\n  at PTX line 8");
    b_destroy(b);
}

TEST(vgpu_together, a_named_lane_that_never_comes_is_a_fault)
{
    struct builder *b = b_create();
    b_kernel(b);
    b_setp(b, VG_LT, 0, LANE, b_k(b, 16));
    struct vg_instr *low = b_bra(b, 0, false);
    b_sync(b, b_k(b, 3), VG_NONE)->flags = 0; /* the upper lanes wait elsewhere */
    b_land(b, low);
    b_alu(b, VG_WARP_SYNC, VG_B32, VG_NONE, b_k(b, UINT32_MAX), VG_NONE);
    b_exit(b);
    CHECK(b_run(b, 1, 32) == VG_FAULTED);
    CHECK_EQ(b->fault, VG_FAULT_BARRIER);
    CHECK_MESSAGE(strstr(b->text, "wait for lanes 0xffff0000 of their warp, which do not come\n"
                                  "    at PTX line 11") != NULL,
                  "%s", b->text);
    b_destroy(b);
}

static uint32_t one(uint32_t i)
{
    return i < 8 ? 0xeeeeeeee : 1;
}

TEST(vgpu_together, lanes_that_exited_need_not_come)
{
    struct builder *b = b_create();
    b_kernel(b);
    b_setp(b, VG_LT, 0, TID, b_k(b, 8));
    b_guard(b_add(b, VG_EXIT, VG_B32), 0, false);
    b_alu(b, VG_WARP_SYNC, VG_B32, VG_NONE, b_k(b, UINT32_MAX), VG_NONE);
    b_sync(b, b_k(b, 0), VG_NONE);
    b_result(b, b_k(b, 1));
    compare(b, 70, one);
    b_destroy(b);
}

/* Each thread writes shared[tid], all meet, each reads its mirror image; 20 rounds. */
static uint32_t mirrored(uint32_t i)
{
    return 255 - i + 19;
}

TEST(vgpu_together, bar_sync_orders_shared_memory)
{
    struct builder *b = b_create();
    b_kernel(b);
    b->f->shared_bytes = 1024;
    b_mov(b, D, b_k(b, 0));
    b_alu(b, VG_SHL, VG_B32, B, TID, b_k(b, 2));
    b_alu(b, VG_SUB, VG_U32, C, b_k(b, 1020), B);
    const uint32_t top = b_here(b);
    b_alu(b, VG_ADD, VG_U32, A, TID, D);
    b_st(b, VG_B32, VG_SHARED, B, 0, A);
    b_sync(b, b_k(b, 0), VG_NONE);
    b_ld(b, VG_B32, VG_SHARED, A, C, 0);
    b_sync(b, b_k(b, 0), VG_NONE);
    b_alu(b, VG_ADD, VG_U32, D, D, b_k(b, 1));
    b_setp(b, VG_LT, 0, D, b_k(b, 20));
    b_bra(b, 0, false)->target = top;
    b_result(b, A);
    compare(b, 256, mirrored);
    CHECK_EQ(b->model_counts.races, 0);
    b_destroy(b);
}

/* Warp 0 fills, arrives at 1 and waits at 2; warp 1 waits at 1, takes and arrives at 2. */
static uint32_t produced(uint32_t i)
{
    return i < 32 ? 0 : i - 32 + 9;
}

TEST(vgpu_together, producer_and_consumer_warps_meet_at_counted_barriers)
{
    struct builder *b = b_create();
    b_kernel(b);
    b->f->shared_bytes = 128;
    b_mov(b, D, b_k(b, 0));
    b_mov(b, A, b_k(b, 0));
    b_alu(b, VG_SHL, VG_B32, B, LANE, b_k(b, 2));
    b_setp(b, VG_GE, 0, TID, b_k(b, 32));
    const uint32_t top = b_here(b);
    struct vg_instr *consumer = b_bra(b, 0, false);
    b_alu(b, VG_ADD, VG_U32, C, LANE, D);
    b_st(b, VG_B32, VG_SHARED, B, 0, C);
    b_sync(b, b_k(b, 1), b_k(b, 64))->op = VG_BAR_ARRIVE;
    b_sync(b, b_k(b, 2), b_k(b, 64));
    struct vg_instr *end = b_bra(b, VG_NONE, false);
    b_land(b, consumer);
    b_sync(b, b_k(b, 1), b_k(b, 64));
    b_ld(b, VG_B32, VG_SHARED, A, B, 0);
    b_sync(b, b_k(b, 2), b_k(b, 64))->op = VG_BAR_ARRIVE;
    b_land(b, end);
    b_alu(b, VG_ADD, VG_U32, D, D, b_k(b, 1));
    b_setp(b, VG_LT, 1, D, b_k(b, 10));
    b_bra(b, 1, false)->target = top;
    b_result(b, A);
    compare(b, 64, produced);
    CHECK_EQ(b->model_counts.races, 0);
    b_destroy(b);
}

static uint32_t reduced(uint32_t i)
{
    (void)i;
    return 40 + 1000;
}

TEST(vgpu_together, bar_red_counts_and_combines_predicates)
{
    struct builder *b = b_create();
    b_kernel(b);
    b_setp(b, VG_LT, 0, TID, b_k(b, 40));
    b_setp(b, VG_GE, 1, TID, b_k(b, 0));
    static const struct {
        enum vg_reduce mode;
        uint16_t d, p;
    } rows[] = {
        {VG_REDUCE_POPC, A, 0}, {VG_REDUCE_OR, 2, 0}, {VG_REDUCE_AND, 3, 0}, {VG_REDUCE_AND, 4, 1}};
    for (unsigned i = 0; i < 4; i++) {
        struct vg_instr *in = b_sync(b, b_k(b, i), VG_NONE);
        in->op = VG_BAR_RED;
        in->mode = (uint8_t)rows[i].mode;
        in->dst[0] = rows[i].d;
        in->src[2] = rows[i].p;
    }
    b_guard(b_alu(b, VG_ADD, VG_U32, A, A, b_k(b, 500)), 2, false);
    b_guard(b_alu(b, VG_ADD, VG_U32, A, A, b_k(b, 9999)), 3, false);
    b_guard(b_alu(b, VG_ADD, VG_U32, A, A, b_k(b, 500)), 4, false);
    b_result(b, A);
    compare(b, 100, reduced);
    b_destroy(b);
}

TEST(vgpu_together, a_divergent_bar_is_a_fault)
{
    struct builder *b = b_create();
    b_kernel(b);
    b_setp(b, VG_LT, 0, TID, b_k(b, 5));
    struct vg_instr *low = b_bra(b, 0, false);
    b_sync(b, b_k(b, 0), VG_NONE);
    b_exit(b);
    b_land(b, low);
    b_sync(b, b_k(b, 0), VG_NONE);
    b_exit(b);
    CHECK(b_run(b, 1, 64) == VG_FAULTED);
    CHECK_EQ(b->fault, VG_FAULT_BARRIER);
    CHECK_MESSAGE(strstr(b->text, "barrier 0: divergent barrier: lanes of one warp wait at "
                                  "different bar instructions\n  at PTX line") != NULL,
                  "%s", b->text);
    b_destroy(b);
}

TEST(vgpu_together, a_barrier_that_is_not_aligned_takes_lanes_from_different_places)
{
    struct builder *b = b_create();
    b_kernel(b);
    b_setp(b, VG_LT, 0, TID, b_k(b, 5));
    struct vg_instr *low = b_bra(b, 0, false);
    b_sync(b, b_k(b, 0), VG_NONE)->flags = 0;
    b_exit(b);
    b_land(b, low);
    b_sync(b, b_k(b, 0), VG_NONE)->flags = 0;
    b_exit(b);
    CHECK_MESSAGE(b_run(b, 1, 64) == VG_DONE, "%s", b->text);
    b_destroy(b);
}

TEST(vgpu_together, impossible_barriers_are_faults)
{
    static const struct {
        uint32_t number, count;
        const char *text;
    } rows[] = {{16, 0, "barrier 16: a block has barriers 0 to 15"},
                {1, 33, "barrier 1 with 33 threads: expected a multiple of 32 above 0"},
                {1, 128, "barrier 1 waits for 128 threads, the block has 64"}};
    for (unsigned i = 0; i < 3; i++) {
        struct builder *b = b_create();
        b_kernel(b);
        b_sync(b, b_k(b, rows[i].number), rows[i].count == 0 ? VG_NONE : b_k(b, rows[i].count));
        b_exit(b);
        CHECK(b_run(b, 1, 64) == VG_FAULTED);
        CHECK_EQ(b->fault, VG_FAULT_BARRIER);
        CHECK_MESSAGE(strstr(b->text, rows[i].text) != NULL, "%s", b->text);
        b_destroy(b);
    }
}

TEST(vgpu_together, a_barrier_that_half_of_the_block_never_reaches_is_a_fault)
{
    struct builder *b = b_create();
    b_kernel(b);
    b_setp(b, VG_LT, 0, TID, b_k(b, 32));
    struct vg_instr *low = b_bra(b, 0, false);
    b_sync(b, b_k(b, 1), b_k(b, 64)); /* the first warp waits at 2 */
    b_exit(b);
    b_land(b, low);
    b_sync(b, b_k(b, 2), b_k(b, 64));
    b_exit(b);
    CHECK(b_run(b, 1, 64) == VG_FAULTED);
    CHECK_EQ(b->fault, VG_FAULT_BARRIER);
    CHECK_STR(b->text,
              "kernel k, block (0,0,0): all its threads wait for one another for ever\n"
              "  32 threads, the first block (0,0,0), thread (0,0,0), wait at barrier 2, where 1 "
              "of 2 warps have arrived\n    at PTX line 12\n"
              "  32 threads, the first block (0,0,0), thread (32,0,0), wait at barrier 1, where 1 "
              "of 2 warps have arrived\n    at PTX line 10\n");
    b_destroy(b);
}
