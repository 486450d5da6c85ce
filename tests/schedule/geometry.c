/* Tests of how blocks become elements. */
#include <stdlib.h>

#include "schedule/schedule.h"
#include "shim.h"

static const size_t counts[] = {0, 1, 2, 3, 7, 8, 9, 63, 64, 65, 100, 1000, 1023, 4097, 1000003};
static const int numbers[] = {1, 2, 3, 5, 8, 33};
static const int channels[] = {1, 2, 3, 8, 32}; /* times copies of the schedule */
static const size_t aligns[] = {1, 2, 12, 16, 64};
enum { NCOUNTS = sizeof counts / sizeof *counts, NNUMBERS = 6, NALIGNS = 5, NPARTS = 5 };

/* Calls `check` with every combination. */
static void every_geometry(void (*check)(const struct tt_geometry *))
{
    for (int i = 0; i < NCOUNTS * NNUMBERS * NPARTS * NALIGNS * 2; i++) {
        int rest = i;
        struct tt_geometry geometry = {.split = rest % 2};
        rest /= 2;
        geometry.align = aligns[rest % NALIGNS];
        rest /= NALIGNS;
        geometry.nchannels = channels[rest % NPARTS];
        rest /= NPARTS;
        geometry.nblocks = numbers[rest % NNUMBERS];
        geometry.count = counts[rest / NNUMBERS];
        check(&geometry);
    }
}

static void check_tiling(const struct tt_geometry *geometry)
{
    size_t at = 0, begin;
    for (int block = 0; block < geometry->nblocks; block++) {
        const size_t length = tt_geometry_block(geometry, block, &begin);
        CHECK_EQ(begin, at);
        for (int channel = 0; channel < geometry->nchannels; channel++) {
            const size_t part = tt_geometry_part(geometry, block, channel, &begin);
            CHECK_EQ(begin, at);
            at += part;
        }
        tt_geometry_block(geometry, block, &begin);
        CHECK_EQ(begin + length, at);
    }
    CHECK_EQ(at, geometry->split ? geometry->count : geometry->count * (size_t)geometry->nblocks);
}

TEST(geometry, blocks_and_parts_tile_the_data_without_gap_or_overlap)
{
    every_geometry(check_tiling);
}

static void check_alignment(const struct tt_geometry *geometry)
{
    if (!geometry->split || geometry->count / geometry->align < (size_t)geometry->nblocks) return;
    size_t begin, shortest = geometry->count, longest = 0;
    for (int block = 0; block < geometry->nblocks; block++) {
        const size_t length = tt_geometry_block(geometry, block, &begin);
        CHECK_EQ(begin % geometry->align, 0);
        if (length < shortest) shortest = length;
        if (length > longest) longest = length;
    }
    CHECK(longest - shortest <= geometry->align);
    CHECK(shortest >= geometry->align);
}

TEST(geometry, bounds_are_aligned_and_blocks_balanced_where_the_count_allows)
{
    every_geometry(check_alignment);
}

static void check_short_counts(const struct tt_geometry *geometry)
{
    if (!geometry->split || geometry->count >= (size_t)geometry->nblocks) return;
    size_t begin;
    for (int block = 0; block < geometry->nblocks; block++)
        CHECK_EQ(tt_geometry_block(geometry, block, &begin), (size_t)block < geometry->count);
}

TEST(geometry, fewer_elements_than_blocks_leave_the_last_blocks_empty)
{
    every_geometry(check_short_counts);
}

static void check_largest(const struct tt_geometry *geometry)
{
    size_t largest = 0, begin;
    for (int block = 0; block < geometry->nblocks; block++) {
        for (int channel = 0; channel < geometry->nchannels; channel++) {
            const size_t part = tt_geometry_part(geometry, block, channel, &begin);
            if (part > largest) largest = part;
        }
    }
    CHECK_EQ(tt_geometry_largest_part(geometry), largest);
}

TEST(geometry, the_largest_part_is_the_largest_of_all)
{
    every_geometry(check_largest);
}

TEST(geometry, a_buffer_holds_what_the_collective_says)
{
    const struct {
        enum tt_collective collective;
        int rank, input_first, input, output_first, output;
    } rows[] = {{TT_ALL_REDUCE, 1, 0, 7, 0, 7},     {TT_BROADCAST, 2, 0, 7, 0, 7},
                {TT_BROADCAST, 1, 0, 0, 0, 7},      {TT_REDUCE, 2, 0, 7, 0, 7},
                {TT_REDUCE, 1, 0, 7, 0, 0},         {TT_ALL_GATHER, 1, 1, 1, 0, 7},
                {TT_REDUCE_SCATTER, 1, 0, 7, 1, 1}, {TT_ALL_TO_ALL, 1, 0, 7, 0, 7},
                {TT_SCATTER, 2, 0, 7, 2, 1},        {TT_SCATTER, 1, 0, 0, 1, 1},
                {TT_GATHER, 2, 2, 1, 0, 7},         {TT_GATHER, 1, 1, 1, 0, 0},
                {TT_BARRIER, 1, 0, 0, 0, 0}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct tt_shape shape = {.collective = rows[i].collective, .nranks = 7, .root = 2};
        int first;
        CHECK_EQ(tt_buffer_blocks(&shape, 7, TT_INPUT, rows[i].rank, &first), rows[i].input);
        if (rows[i].input > 0) CHECK_EQ(first, rows[i].input_first);
        CHECK_EQ(tt_buffer_blocks(&shape, 7, TT_OUTPUT, rows[i].rank, &first), rows[i].output);
        if (rows[i].output > 0) CHECK_EQ(first, rows[i].output_first);
        CHECK_EQ(tt_buffer_blocks(&shape, 7, TT_SCRATCH, rows[i].rank, &first), 0);
    }
}

TEST(collective, every_row_is_whole)
{
    for (int c = 0; c < TT_NCOLLECTIVES; c++) {
        const enum tt_collective collective = (enum tt_collective)c;
        const struct tt_collective_row *row = tt_collective_row(collective);
        const bool data = tt_collective_has_data(collective);
        REQUIRE(row->name && row->name[0]);
        CHECK_EQ(row->input != TT_HOLDS_NOTHING, data);
        CHECK_EQ(row->output != TT_HOLDS_NOTHING, data);
        CHECK(!(row->input_at_root_only && row->output_at_root_only));
        /* A buffer of one block each holds the own one, so there are nranks blocks. */
        if (row->splits) CHECK(row->input == TT_HOLDS_ALL && row->output == TT_HOLDS_ALL);
        if (row->result == TT_RESULT_OF_ROOT) CHECK(row->input_at_root_only);
        if (row->result == TT_RESULT_TRANSPOSED) CHECK(!row->in_place);
        CHECK_EQ(tt_collective_counts(collective, 7), !data ? 0 : row->splits ? 1 : 7);
    }
}

static void check_rounds(const struct tt_geometry *geometry)
{
    static const size_t rooms[] = {8, 64, 1000, 1024, 65536};
    const size_t largest = tt_geometry_largest_part(geometry);
    for (size_t i = 0; i < 5 * 3 * 2; i++) {
        const size_t room = rooms[i % 5], element = i / 5 % 2 ? 8 : 1,
                     message = i / 10 ? (size_t)geometry->nblocks / (i / 10) : 1;
        const struct tt_rounds rounds = tt_geometry_rounds(geometry, element, message, room);
        const size_t least = tt_geometry_least_room(geometry, element, message);
        CHECK_EQ(rounds.number > 0, room >= least || geometry->count == 0);
        if (rounds.number == 0) continue;
        CHECK(rounds.piece * rounds.number >= largest);
        CHECK(rounds.piece * (rounds.number - 1) < largest || largest == 0);
        const size_t nblocks = message > 0 ? message : 1, most = nblocks * rounds.piece;
        CHECK(element * (geometry->split && most > geometry->count ? geometry->count : most) <=
              room);
    }
}

TEST(geometry, rounds_move_every_part_and_messages_that_fit)
{
    every_geometry(check_rounds);
}
