/* Compares clocks with plain arrays of epochs, over random operations. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <shim.h>

#include "clock.h"

enum { BLOCKS = 70, THREADS = 80, CLOCKS = 4, STEPS = 4000 };

static uint32_t plain[CLOCKS][BLOCKS][THREADS];

static uint64_t state = 88172645463325252u;
static uint32_t below(uint32_t n)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (uint32_t)(state >> 33) % n;
}

static void raise_epoch(uint32_t *epoch, uint32_t to)
{
    if (*epoch < to) *epoch = to;
}

static void step(struct vg_clock *clocks[CLOCKS])
{
    const uint32_t c = below(CLOCKS), block = below(BLOCKS), thread = below(THREADS);
    const uint32_t epoch = below(50) + 1, other = below(CLOCKS);
    switch (below(6)) {
    case 0:
        vg_clock_join(&clocks[c], clocks[other]);
        for (uint32_t b = 0; b < BLOCKS; b++)
            for (uint32_t t = 0; t < THREADS; t++) raise_epoch(&plain[c][b][t], plain[other][b][t]);
        break;
    case 1:
        vg_clock_replace(&clocks[c], NULL);
        memset(plain[c], 0, sizeof plain[c]);
        break;
    case 2:
        vg_clock_learn(&clocks[c], block, thread, VG_PART_WARP, epoch);
        for (uint32_t t = thread / 32 * 32; t < THREADS && t < thread / 32 * 32 + 32; t++)
            raise_epoch(&plain[c][block][t], epoch);
        break;
    case 3:
        vg_clock_learn(&clocks[c], block, thread, VG_PART_BLOCK, epoch);
        for (uint32_t t = 0; t < THREADS; t++) raise_epoch(&plain[c][block][t], epoch);
        break;
    case 4: {
        const uint32_t n = below(40) == 0 ? below(BLOCKS - block) : 0;
        vg_clock_end(&clocks[c], block, n);
        for (uint32_t b = block; b < block + n; b++)
            for (uint32_t t = 0; t < THREADS; t++) plain[c][b][t] = VG_ENDED;
        break;
    }
    default:
        vg_clock_learn(&clocks[c], block, thread, VG_PART_THREAD, epoch);
        raise_epoch(&plain[c][block][thread], epoch);
    }
}

TEST(clock, trees_and_plain_arrays_say_the_same)
{
    struct vg_clock *clocks[CLOCKS] = {0};
    static struct vg_looked_up looked_up[VG_LOOKED_UP];
    const uint64_t before = vg_clock_nodes();
    for (int i = 0; i < STEPS; i++) {
        step(clocks);
        for (uint32_t c = 0; c < CLOCKS; c++) {
            const uint32_t block = below(BLOCKS), thread = below(THREADS);
            const uint32_t found = vg_clock_epoch(clocks[c], block, thread),
                           again = vg_clock_epoch_again(looked_up, clocks[c], 0, thread);
            if (found == plain[c][block][thread] && again == plain[c][0][thread]) continue;
            CHECK_MESSAGE(false,
                          "step %d clock %u thread %u: in block %u %u, expected %u; in block 0, "
                          "looked up before, %u, expected %u",
                          i, c, thread, block, found, plain[c][block][thread], again,
                          plain[c][0][thread]);
            return;
        }
    }
    for (uint32_t c = 0; c < CLOCKS; c++) {
        uint32_t ended = 0;
        while (ended < BLOCKS && plain[c][ended][0] == VG_ENDED &&
               plain[c][ended][THREADS - 1] == VG_ENDED)
            ended++;
        CHECK_EQ(vg_clock_ended_below(clocks[c]), ended);
        vg_clock_put(clocks[c]);
    }
    CHECK_EQ(vg_clock_nodes(), before);
}

TEST(clock, ended_grids_take_no_room)
{
    struct vg_clock *clock = NULL;
    const uint64_t before = vg_clock_nodes();
    vg_clock_end(&clock, 0, 1);
    for (uint32_t grid = 0; grid < 10000; grid++) {
        for (uint32_t block = 0; block < 8; block++)
            vg_clock_learn(&clock, 1 + grid * 8 + block, 5, VG_PART_THREAD, 7);
        vg_clock_end(&clock, 1 + grid * 8, 8);
        CHECK(vg_clock_ended_below(clock) == 1 + grid * 8 + 8);
    }
    CHECK_MESSAGE(vg_clock_nodes() - before < 200, "%llu nodes",
                  (unsigned long long)(vg_clock_nodes() - before));
    vg_clock_put(clock);
    CHECK_EQ(vg_clock_nodes(), before);
}
