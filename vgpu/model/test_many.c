/* Many threads, many grids: what the model takes stays bounded. */
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>

#include <shim.h>
#include <vgpu/model.h>

#include "clock.h"

enum { BLOCKS = 256, THREADS = 256 };

struct many {
    struct vg_model *model;
    struct vg_region region;
    uint64_t races;
};

static void count_race(void *arg, const struct vg_race *race)
{
    struct many *many = arg;
    (void)race;
    many->races++;
}

static void begin(struct many *many, uint64_t nbytes)
{
    *many = (struct many){.region = {.address = 0x10000, .nbytes = nbytes}};
    many->region.bytes = calloc(1, nbytes);
    many->model =
        vg_model_create(&(struct vg_model_settings){.seed = 1, .race = count_race, .arg = many});
}

static void end(struct many *many)
{
    vg_model_forget(many->model, &many->region);
    vg_model_destroy(many->model);
    free(many->region.bytes);
}

static bool increment(void *arg, const void *old, void *value)
{
    (void)arg;
    *(uint32_t *)value = *(const uint32_t *)old + 1;
    return true;
}

static const struct vg_how store = {.nbytes = 4, .where = 1};
static const struct vg_how load = {.nbytes = 4, .where = 2};
static const struct vg_how relaxed = {
    .nbytes = 4, .order = VG_RELAXED, .scope = VG_SCOPE_GPU, .where = 3};
static const struct vg_how both = {
    .nbytes = 4, .order = VG_ACQ_REL, .scope = VG_SCOPE_GPU, .where = 4};

static uint64_t megabytes(void)
{
    const struct mallinfo2 info = mallinfo2();
    return (info.uordblks + info.hblkhd) >> 20;
}

TEST(many, each_of_65536_threads_fences_and_some_count_in_less_than_a_gigabyte)
{
    struct many many;
    begin(&many, 4 * BLOCKS * THREADS + 64);
    static struct vg_block_clock *blocks[BLOCKS];
    const uint64_t before = megabytes();
    struct vg_grid_clock *grid = vg_model_grid_begin(many.model, 1, 0, BLOCKS, THREADS, NULL);
    const uint64_t counter = 4 * BLOCKS * THREADS;
    uint32_t old = 0;
    for (uint32_t b = 0; b < BLOCKS; b++) blocks[b] = vg_model_block_begin(grid, b);
    for (uint32_t i = 0; i < BLOCKS * THREADS; i++) {
        struct vg_block_clock *block = blocks[i % BLOCKS];
        const uint32_t t = i / BLOCKS;
        vg_model_store(block, t, &many.region, 4 * i, &store, &i);
        vg_model_fence(block, t, VG_SC, VG_SCOPE_GPU);
        if (t % 32 == 0)
            vg_model_rmw(block, t, &many.region, counter, i % 2 ? &both : &relaxed, increment, NULL,
                         &old);
    }
    CHECK_EQ(old, BLOCKS * THREADS / 32 - 1);
    vg_model_fence(blocks[0], 0, VG_SC, VG_SCOPE_GPU);
    for (uint32_t i = 0; i < BLOCKS * THREADS; i++)
        vg_model_load(blocks[0], 0, &many.region, 4 * i, &load, &old);
    CHECK_EQ(many.races, 0);
    CHECK_MESSAGE(megabytes() - before < 1024, "%llu MiB",
                  (unsigned long long)(megabytes() - before));
    for (uint32_t b = 0; b < BLOCKS; b++) vg_model_block_end(blocks[b]);
    vg_model_grid_end(grid, NULL);
    end(&many);
}

TEST(many, barriers_of_a_whole_grid_keep_clocks_small)
{
    struct many many;
    begin(&many, 4 * BLOCKS * THREADS + 64);
    static struct vg_block_clock *blocks[BLOCKS];
    const uint64_t all[THREADS / 64] = {UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX};
    struct vg_grid_clock *grid = vg_model_grid_begin(many.model, 1, 0, BLOCKS, THREADS, NULL);
    const uint64_t counter = 4 * BLOCKS * THREADS;
    uint32_t value = 0;
    for (uint32_t b = 0; b < BLOCKS; b++) blocks[b] = vg_model_block_begin(grid, b);
    for (uint32_t round = 1; round <= 20; round++) {
        for (uint32_t b = 0; b < BLOCKS; b++) {
            const uint32_t t = (b + round) % THREADS;
            vg_model_store(blocks[b], t, &many.region, 4 * (b * THREADS + round), &store, &round);
            vg_model_barrier(blocks[b], 0, all);
            vg_model_rmw(blocks[b], 0, &many.region, counter, &both, increment, NULL, &value);
        }
        for (uint32_t b = 0; b < BLOCKS; b++) {
            vg_model_rmw(blocks[b], 0, &many.region, counter + 4, &both, increment, NULL, &value);
            vg_model_rmw(blocks[b], 0, &many.region, counter, &both, increment, NULL, &value);
            vg_model_barrier(blocks[b], 0, all);
            const uint64_t there = 4 * ((b + 1) % BLOCKS * THREADS + round);
            vg_model_load(blocks[b], (b + 7) % THREADS, &many.region, there, &load, &value);
            CHECK_EQ(value, round);
        }
    }
    CHECK_EQ(many.races, 0);
    CHECK_MESSAGE(vg_clock_nodes() < 200000, "%llu nodes", (unsigned long long)vg_clock_nodes());
    for (uint32_t b = 0; b < BLOCKS; b++) vg_model_block_end(blocks[b]);
    vg_model_grid_end(grid, NULL);
    end(&many);
    CHECK_EQ(vg_clock_nodes(), 0);
}

TEST(many, thousands_of_grids_leave_nothing_behind)
{
    struct many many;
    begin(&many, 4096);
    struct vg_past *streams[2] = {vg_past_create(), vg_past_create()};
    uint32_t value = 0;
    uint64_t before = 0;
    for (uint32_t i = 0; i < 100000; i++) {
        struct vg_past *stream = streams[i % 2];
        struct vg_grid_clock *grid = vg_model_grid_begin(many.model, i, 0, 3, 32, stream);
        struct vg_block_clock *block = vg_model_block_begin(grid, i % 3);
        const uint64_t offset = 2048 * (i % 2) + 4 * (i % 97);
        vg_model_store(block, 1, &many.region, offset, &store, &i);
        vg_model_load(block, 1, &many.region, offset, &load, &value);
        vg_model_block_end(block);
        vg_model_grid_end(grid, stream);
        if (i % 10000 == 9999) vg_past_join(streams[0], streams[1]);
        if (i == 70000) before = megabytes();
    }
    CHECK_EQ(many.races, 0);
    CHECK(megabytes() <= before + 2);
    CHECK_MESSAGE(vg_clock_nodes() < 30000, "%llu nodes", (unsigned long long)vg_clock_nodes());
    vg_past_destroy(streams[0]);
    vg_past_destroy(streams[1]);
    end(&many);
    CHECK_EQ(vg_clock_nodes(), 0);
}

TEST(many, a_word_that_all_threads_read_and_a_race_with_it)
{
    struct many many;
    begin(&many, 4096);
    struct vg_grid_clock *grid = vg_model_grid_begin(many.model, 1, 0, BLOCKS, THREADS, NULL);
    uint32_t value = 0;
    for (uint32_t b = 0; b < BLOCKS; b++) {
        struct vg_block_clock *block = vg_model_block_begin(grid, b);
        for (uint32_t t = 0; t < THREADS; t++)
            for (uint32_t i = 0; i < 4; i++)
                vg_model_load(block, t, &many.region, 4 * i, &load, &value);
        if (b == BLOCKS - 1) vg_model_store(block, 0, &many.region, 0, &store, &value);
        vg_model_block_end(block);
    }
    CHECK_EQ(many.races, 1);
    vg_model_grid_end(grid, NULL);
    end(&many);
}

/* Each thread has a word of its own and a neighbour's: release, acquire, atomics. */
TEST(many, atomics_of_65536_threads_on_words_of_their_own_take_bounded_memory)
{
    enum { THREADS_ALL = BLOCKS * THREADS, ROUNDS = 3 };
    struct many many;
    begin(&many, 8 * THREADS_ALL);
    static struct vg_block_clock *blocks[BLOCKS];
    const uint64_t before = megabytes();
    struct vg_grid_clock *grid = vg_model_grid_begin(many.model, 1, 0, BLOCKS, THREADS, NULL);
    uint32_t old = 0;
    for (uint32_t b = 0; b < BLOCKS; b++) blocks[b] = vg_model_block_begin(grid, b);
    for (uint32_t round = 0; round < ROUNDS; round++)
        for (uint32_t i = 0; i < THREADS_ALL; i++) {
            struct vg_block_clock *block = blocks[i / THREADS];
            vg_model_rmw(block, i % THREADS, &many.region, 8 * i, &both, increment, NULL, &old);
            CHECK(old == round * 2 || old == round * 2 + 1);
            const uint32_t there = (i + 1 + round * 97) % THREADS_ALL;
            vg_model_rmw(block, i % THREADS, &many.region, 8 * there + 4, &both, increment, NULL,
                         &old);
            vg_model_rmw(block, i % THREADS, &many.region, 8 * i, &relaxed, increment, NULL, &old);
        }
    const uint64_t used = megabytes() - before;
    printf("%u words and threads: %llu MiB, %llu bytes a word\n", 2 * THREADS_ALL,
           (unsigned long long)used, (unsigned long long)((used << 20) / (2 * THREADS_ALL)));
    CHECK_EQ(many.races, 0);
    CHECK_MESSAGE(used < 600, "%llu MiB", (unsigned long long)used);
    for (uint32_t b = 0; b < BLOCKS; b++) vg_model_block_end(blocks[b]);
    vg_model_grid_end(grid, NULL);
    end(&many);
    CHECK_EQ(vg_clock_nodes(), 0);
}

/* A counter that every block of many grids increments: what it carries does not grow. */
TEST(many, a_counter_of_many_grids_carries_a_bounded_list)
{
    struct many many;
    begin(&many, 4096);
    uint32_t old = 0;
    uint64_t before = 0, after = 0;
    struct vg_past *stream = vg_past_create();
    for (uint32_t i = 0; i < 3000; i++) {
        struct vg_grid_clock *grid = vg_model_grid_begin(many.model, i, 0, 8, 32, stream);
        for (uint32_t b = 0; b < 8; b++) {
            struct vg_block_clock *block = vg_model_block_begin(grid, b);
            vg_model_rmw(block, 0, &many.region, 0, &both, increment, NULL, &old);
            vg_model_block_end(block);
        }
        vg_model_grid_end(grid, stream);
        if (i == 1000) before = mallinfo2().uordblks;
        if (i == 2999) after = mallinfo2().uordblks;
    }
    CHECK_EQ(old, 8 * 3000 - 1);
    CHECK_EQ(many.races, 0);
    CHECK_MESSAGE(after < before + 65536 * 3, "%llu bytes more",
                  (unsigned long long)(after - before));
    vg_past_destroy(stream);
    end(&many);
}

/* A histogram: relaxed atomics on very many words. */
TEST(many, words_with_relaxed_atomics_alone_take_few_bytes)
{
    enum { WORDS = 1 << 19 };
    struct many many;
    begin(&many, 4 * WORDS);
    struct vg_grid_clock *grid = vg_model_grid_begin(many.model, 1, 0, 4, 32, NULL);
    struct vg_block_clock *blocks[4];
    uint32_t old = 0;
    for (uint32_t b = 0; b < 4; b++) blocks[b] = vg_model_block_begin(grid, b);
    const uint64_t before = megabytes();
    for (uint32_t i = 0; i < 3 * WORDS; i++)
        vg_model_rmw(blocks[i % 4], i / 4 % 32, &many.region, 4 * (i % WORDS), &relaxed, increment,
                     NULL, &old);
    CHECK_EQ(old, 2);
    const uint64_t used = megabytes() - before;
    printf("%u words: %llu bytes a word\n", WORDS, (unsigned long long)((used << 20) / WORDS));
    CHECK_MESSAGE(used <= 60, "%llu MiB", (unsigned long long)used);
    CHECK_EQ(many.races, 0);
    for (uint32_t b = 0; b < 4; b++) vg_model_block_end(blocks[b]);
    vg_model_grid_end(grid, NULL);
    end(&many);
}
