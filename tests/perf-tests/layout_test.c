/* Tests of the perf tests' layouts and bandwidth factors. */
#include "common/perf.h"

#include "shim.h"

static const struct perf_collective plain = {.name = "plain"};
static const struct perf_collective gathers = {.name = "gathers", .gets_blocks = true};
static const struct perf_collective scatters = {.name = "scatters", .sends_blocks = true};
static const struct perf_collective exchanges = {
    .name = "exchanges", .sends_blocks = true, .gets_blocks = true};

TEST(perf_layout, a_plain_collective_moves_all_elements)
{
    struct perf_layout layout = perf_layout_of(&plain, 1030, 4, 16, 3);
    CHECK_EQ(layout.count, 257);
    CHECK_EQ(layout.send, 257);
    CHECK_EQ(layout.recv, 257);
    CHECK_EQ(layout.send_step, 0);
    CHECK_EQ(layout.recv_step, 0);
}

TEST(perf_layout, blocks_are_rounded_down_to_the_alignment)
{
    struct perf_layout layout = perf_layout_of(&gathers, 1024, 4, 16, 3);
    CHECK_EQ(layout.count, 84);
    CHECK_EQ(layout.send, 84);
    CHECK_EQ(layout.recv, 252);
    CHECK_EQ(layout.send_step, 84);
    CHECK_EQ(layout.recv_step, 0);
    CHECK_EQ(perf_layout_of(&gathers, 1024, 4, 1, 3).count, 85);
    CHECK_EQ(perf_layout_of(&gathers, 1024, 8, 16, 3).count, 42);
    CHECK_EQ(perf_layout_of(&gathers, 8, 4, 16, 3).count, 0);
}

TEST(perf_layout, in_place_the_single_block_lies_at_its_rank)
{
    struct perf_layout layout = perf_layout_of(&scatters, 1024, 4, 1, 2);
    CHECK_EQ(layout.send, 256);
    CHECK_EQ(layout.recv, 128);
    CHECK_EQ(layout.send_step, 0);
    CHECK_EQ(layout.recv_step, 128);
    layout = perf_layout_of(&exchanges, 1024, 4, 1, 2);
    CHECK_EQ(layout.send, 256);
    CHECK_EQ(layout.recv, 256);
    CHECK_EQ(layout.send_step, 0);
    CHECK_EQ(layout.recv_step, 0);
}

TEST(perf_layout, factors_are_those_of_nccl_tests)
{
    CHECK(perf_factor_twice_others(4) == 1.5);
    CHECK(perf_factor_twice_others(1) == 0);
    CHECK(perf_factor_others(4) == 0.75);
    CHECK(perf_factor_one(4) == 1);
    CHECK(perf_volume_all(4) == 4);
    CHECK(perf_volume_others(4) == 3);
    CHECK(perf_volume_one(4) == 1);
}

TEST(perf_layout, blocks_of_every_spread_fit_the_buffers_and_follow_each_other)
{
    static const struct perf_collective programs[] = {
        {.name = "gathers", .gets_blocks = true, .uneven = true},
        {.name = "scatters", .sends_blocks = true, .uneven = true},
        {.name = "exchanges", .sends_blocks = true, .gets_blocks = true, .uneven = true}};
    for (int i = 0; i < 3 * 3 * 5; i++) {
        const struct perf_collective *program = &programs[i % 3];
        int nranks = 1 + i / 9;
        struct perf_layout layout = perf_layout_of(program, 4000, 4, 4, nranks);
        struct perf_blocks blocks =
            perf_blocks_of(program, &layout, (enum perf_spread)(i / 3 % 3), nranks);
        size_t sent = 0, received = 0;
        for (int rank = 0; rank < nranks; rank++) {
            struct perf_share share = perf_share_of(program, &layout, &blocks, rank);
            CHECK(share.send_at + share.send <= layout.count * (size_t)nranks);
            CHECK(share.recv_at + share.recv <= layout.count * (size_t)nranks);
            CHECK(share.send_at == 0 || share.send_at == perf_block_begin(&blocks, rank, rank));
            sent += share.send;
            received += share.recv;
        }
        if (program->sends_blocks && program->gets_blocks) CHECK_EQ(sent, received);
    }
}
