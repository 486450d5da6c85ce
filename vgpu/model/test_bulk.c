/* vg_model_bulk notes what single accesses would: the same random work in two models, of which one
 * copies in bulk, has the same races at every step. */
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>

#include "world.h"

static uint64_t below(uint64_t *random, uint64_t n)
{
    *random = *random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (*random >> 33) % n;
}

static void copy(struct world *world, struct vg_block_clock *block, uint64_t offset,
                 uint64_t nbytes, bool write, bool bulk)
{
    if (bulk) {
        vg_model_bulk(block, 0, &world->region, offset, nbytes, write);
        return;
    }
    for (const uint64_t end = offset + nbytes; offset < end;) {
        uint8_t size = 16;
        while (offset % size != 0 || size > end - offset) size /= 2;
        struct vg_how how = how_of(VG_WEAK, VG_SCOPE_NONE, size, 0);
        how.engine = true;
        uint64_t value[2] = {0};
        if (write)
            vg_model_store(block, 0, &world->region, offset, &how, value);
        else
            vg_model_load(block, 0, &world->region, offset, &how, value);
        offset += size;
    }
}

/* One step of the work: a copy, ordered or not, or a few accesses of the grid that runs. */
static void step(struct world *world, uint64_t random, uint64_t number, bool bulk)
{
    static const uint64_t begins[] = {0, 4096, 4, 100, 8000, 0}, lengths[] = {8192, 4096, 1, 50};
    const uint64_t kind = below(&random, 8);
    if (kind < 4) {
        const uint64_t offset = begins[below(&random, 6)];
        uint64_t nbytes = lengths[below(&random, 4)];
        if (nbytes > WORLD_BYTES - offset) nbytes = WORLD_BYTES - offset;
        const bool ordered = kind < 3, write = below(&random, 2) == 0;
        struct vg_grid_clock *grid =
            vg_model_grid_begin(world->model, 1000 + number, 0, 1, 1, ordered ? world->past : NULL);
        struct vg_block_clock *block = vg_model_block_begin(grid, 0);
        copy(world, block, offset, nbytes, write, bulk);
        vg_model_block_end(block);
        vg_model_grid_end(grid, ordered ? world->past : NULL);
    } else if (kind == 4) { /* the grid ends and another one begins */
        world_ends(world);
        world_blocks(world, 100 + number, 0);
    } else {
        struct vg_block_clock *block = world->block[below(&random, WORLD_BLOCKS)];
        const uint32_t thread = (uint32_t)below(&random, WORLD_THREADS);
        const uint64_t offset = 4 * below(&random, WORLD_BYTES / 4);
        const struct vg_how how = kind == 7 ? RELAXED(VG_SCOPE_GPU, number) : WEAK(number);
        if (below(&random, 2) == 0)
            st(block, thread, world, offset, how, number);
        else
            ld(block, thread, world, offset, how);
    }
}

TEST(bulk, has_the_races_of_single_accesses)
{
    const char *given = getenv("TUTTI_TEST_SEED");
    struct world *one = malloc(sizeof *one), *other = malloc(sizeof *other);
    const uint64_t seed =
        given != NULL ? strtoull(given, NULL, 10) : (uint64_t)(uintptr_t)one ^ (uintptr_t)&given;
    uint64_t random = seed, races = 0;
    printf("TUTTI_TEST_SEED=%llu\n", (unsigned long long)seed);
    for (int round = 0; round < 300 && !tt_test_failed(); round++) {
        world_begin(one, (struct vg_model_settings){.seed = 1});
        world_begin(other, (struct vg_model_settings){.seed = 1});
        for (uint64_t number = 1; number < 40; number++) {
            const uint64_t choice = below(&random, UINT64_C(1) << 31);
            step(one, choice, number, true);
            step(other, choice, number, false);
            if (one->nraces == other->nraces) continue;
            CHECK_MESSAGE(false, "round %d, step %llu: %u races in bulk, %u one by one", round,
                          (unsigned long long)number, one->nraces, other->nraces);
            break;
        }
        races += one->nraces;
        world_end(one);
        world_end(other);
    }
    CHECK(races > 100); /* the work has some */
    free(one);
    free(other);
}

static uint64_t allocated(void)
{
    const struct mallinfo2 info = mallinfo2();
    return info.uordblks + info.hblkhd;
}

/* Copies that follow one another note a page once: AddressSanitizer's malloc counts nothing. */
TEST(bulk, a_copy_may_set_a_flag_that_strong_loads_of_system_scope_read)
{
    for (int way = 0; way < 3; way++) {
        struct world *w = malloc(sizeof *w);
        world_begin(w, (struct vg_model_settings){.seed = 1});
        struct vg_grid_clock *grid = vg_model_grid_begin(w->model, 1, 0, 1, 1, NULL);
        struct vg_block_clock *block = vg_model_block_begin(grid, 0);
        const struct vg_how how =
            how_of(way == 0 ? VG_WEAK : VG_ACQUIRE, way == 1 ? VG_SCOPE_GPU : VG_SCOPE_SYS, 4, 7);
        vg_model_bulk(block, 0, &w->region, 64, 16, true);
        ld(w->block[0], 0, w, 68, how);
        CHECK_EQ(w->nraces, way == 2 ? 0 : 1);
        vg_model_block_end(block);
        vg_model_grid_end(grid, NULL);
        world_end(w);
        free(w);
    }
}

TEST(bulk, of_64_mebibytes_notes_less_than_2)
{
    enum { BYTES = 64 << 20 };
    struct vg_region region = {.address = 0x10000, .nbytes = BYTES};
    struct vg_model *model = vg_model_create(&(struct vg_model_settings){.seed = 1});
    struct vg_past *past = vg_past_create();
    const uint64_t before = allocated();
    for (uint64_t turn = 0; turn < 4; turn++) {
        struct vg_grid_clock *grid = vg_model_grid_begin(model, turn, 0, 1, 1, past);
        struct vg_block_clock *block = vg_model_block_begin(grid, 0);
        vg_model_bulk(block, 0, &region, 0, BYTES, turn != 2);
        vg_model_block_end(block);
        vg_model_grid_end(grid, past);
    }
    CHECK(allocated() - before < 2 << 20);
    vg_model_forget(model, &region);
    vg_model_destroy(model);
    vg_past_destroy(past);
}
