/* Tests of base/arena.h. */
#include "base/arena.h"

#include <stdint.h>
#include <string.h>

#include "shim.h"

TEST(arena, memory_is_zeroed_and_aligned_to_a_cache_line)
{
    struct tt_arena arena = {0};
    static const size_t sizes[] = {1, 63, 64, 65, 1000, 16384, 16385, 1 << 20, 1};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        unsigned char *memory = tt_arena_get(&arena, sizes[i]);
        REQUIRE(memory);
        CHECK_EQ((uintptr_t)memory % 64, 0);
        for (size_t k = 0; k < sizes[i]; k++)
            if (memory[k]) tt_test_fail(__FILE__, __LINE__, "byte %zu of %zu is set", k, sizes[i]);
        memset(memory, 0xab, sizes[i]); /* a later piece that overlaps would not be zero */
    }
    tt_arena_fini(&arena);
}

TEST(arena, pieces_do_not_overlap)
{
    struct tt_arena arena = {0};
    unsigned char *pieces[200];
    for (int i = 0; i < 200; i++) {
        pieces[i] = tt_arena_get(&arena, 300);
        REQUIRE(pieces[i]);
        memset(pieces[i], i, 300);
    }
    for (int i = 0; i < 200; i++)
        for (int k = 0; k < 300; k++) CHECK_EQ(pieces[i][k], (unsigned char)i);
    tt_arena_fini(&arena);
}

TEST(arena, bytes_are_counted_and_fini_starts_over)
{
    struct tt_arena arena = {0};
    CHECK_EQ(arena.nbytes, 0);
    REQUIRE(tt_arena_get(&arena, 100) && tt_arena_get(&arena, 1));
    CHECK_EQ(arena.nbytes, 128 + 64);
    tt_arena_fini(&arena);
    CHECK_EQ(arena.nbytes, 0);
    REQUIRE(tt_arena_get(&arena, 10));
    tt_arena_fini(&arena);
    tt_arena_fini(&arena);
}

TEST(arena, more_than_there_is_gives_null_and_keeps_the_rest)
{
    struct tt_arena arena = {0};
    char *before = tt_arena_get(&arena, 8);
    REQUIRE(before);
    strcpy(before, "here");
    CHECK(!tt_arena_get(&arena, SIZE_MAX));
    CHECK(!tt_arena_get(&arena, SIZE_MAX / 2 + 1));
    CHECK_STR(before, "here");
    CHECK(tt_arena_get(&arena, 8));
    tt_arena_fini(&arena);
}
