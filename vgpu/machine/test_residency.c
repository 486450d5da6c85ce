/* Runs that are resident at the same time on one GPU. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "builder.h"
#include "shim.h"
#ifdef TT_COUNTS_ALLOCATIONS
#include "allocations.h"
#endif

enum { A = R, C = R + 2, D = R + 4 };

/* Runs of a kernel that waits for out[1024] to be set. */
struct pair {
    struct builder *b;
    struct vg_machine *machine;
    struct vg_image *image;
    struct vg_past *past;
    struct vg_run *run[2];
    uint64_t apart; /* the second one's buffer begins so far behind the first's */
};

static uint64_t no_place(void *arg, uint64_t nbytes, uint32_t align)
{
    (void)arg;
    (void)nbytes;
    return align;
}

static bool begin(struct pair *p, int which, uint32_t nblocks, bool cooperative)
{
    const uint64_t params = B_ADDRESS + (which == 0 ? 0 : p->apart);
    const struct vg_launch launch = {.gpu = &p->b->gpu,
                                     .image = p->image,
                                     .kernel = &p->b->functions[0],
                                     .grid = {nblocks, 1, 1},
                                     .block = {64, 1, 1},
                                     .params = &params,
                                     .cooperative = cooperative,
                                     .number = (uint64_t)which + 1,
                                     .before = p->past};
    return vg_run_begin(p->machine, &launch, &p->run[which], p->b->text) == 0;
}

static struct pair open_machine(struct builder *b, uint32_t nsms)
{
    struct pair p = {.b = b};
    b->gpu.nsms = nsms;
    b->gpu.blocks_per_sm = 1;
    b->buffer.reachable = true;
    p.machine = vg_machine_create(&b->settings);
    p.past = vg_past_create();
    if (p.machine == NULL || p.past == NULL) abort();
    if (vg_image_create(&b->module, no_place, NULL, &b->regions, &p.image, b->text) != 0) abort();
    return p;
}

static struct pair open_pair(uint32_t nsms)
{
    struct builder *b = b_create();
    b_kernel(b);
    const uint32_t top = b_here(b);
    struct vg_instr *in = b_ld(b, VG_B32, VG_GLOBAL, A, OUT, 4096);
    in->order = VG_RELAXED;
    in->scope = VG_SCOPE_SYS;
    b_setp(b, VG_EQ, 0, A, b_k(b, 0));
    b_bra(b, 0, false)->target = top;
    b_exit(b);
    return open_machine(b, nsms);
}

static void close_pair(struct pair *p)
{
    for (int i = 0; i < 2; i++) vg_run_end(p->run[i], p->past);
    vg_image_destroy(p->image, &p->b->regions, vg_machine_model(p->machine));
    vg_model_forget(vg_machine_model(p->machine), &p->b->buffer);
    vg_machine_destroy(p->machine);
    vg_past_destroy(p->past);
    b_destroy(p->b);
}

static enum vg_progress until_it_stops(struct vg_run *run)
{
    enum vg_progress progress;
    do progress = vg_run_step(run);
    while (progress == VG_MOVED);
    return progress;
}

TEST(vgpu_residency, a_run_waits_for_the_room_of_another_and_says_so)
{
    struct pair p = open_pair(1);
    REQUIRE(begin(&p, 0, 1, false) && begin(&p, 1, 2, false));
    CHECK(until_it_stops(p.run[0]) == VG_WAITING);
    CHECK(until_it_stops(p.run[1]) == VG_WAITING);
    CHECK(!vg_run_waits_for_host(p.run[1]));
    vg_run_describe(p.run[1], p.b->text, sizeof p.b->text);
    CHECK_STR(p.b->text, "kernel k: 0 blocks are resident, 0 have ended, 2 have not started, for "
                         "the GPU has no room\n");
    p.b->out[1024] = 1;
    CHECK(until_it_stops(p.run[0]) == VG_DONE);
    CHECK(until_it_stops(p.run[1]) == VG_DONE);
    close_pair(&p);
}

TEST(vgpu_residency, a_run_that_is_given_up_leaves_its_room_to_others)
{
    struct pair p = open_pair(1);
    REQUIRE(begin(&p, 0, 1, false) && begin(&p, 1, 1, false));
    CHECK(until_it_stops(p.run[0]) == VG_WAITING);
    CHECK(until_it_stops(p.run[1]) == VG_WAITING);
    vg_run_end(p.run[0], p.past);
    p.run[0] = NULL;
    p.b->out[1024] = 1;
    CHECK(until_it_stops(p.run[1]) == VG_DONE);
    close_pair(&p);
}

/* Two cooperative grids of which each has half of the GPU would wait for one another for ever. */
TEST(vgpu_residency, a_cooperative_run_begins_with_all_its_blocks_or_none)
{
    struct pair p = open_pair(2);
    REQUIRE(begin(&p, 0, 1, true) && begin(&p, 1, 2, true));
    CHECK(until_it_stops(p.run[0]) == VG_WAITING);
    CHECK(until_it_stops(p.run[1]) == VG_WAITING);
    vg_run_describe(p.run[1], p.b->text, sizeof p.b->text);
    CHECK_MESSAGE(strstr(p.b->text, "kernel k: 0 blocks are resident") == p.b->text, "%s",
                  p.b->text);
    p.b->out[1024] = 1;
    CHECK(until_it_stops(p.run[0]) == VG_DONE);
    CHECK(until_it_stops(p.run[1]) == VG_DONE);
    close_pair(&p);
}

/* Nanoseconds that a loop takes are written to the run's buffer. */
static struct builder *timed_loop(void)
{
    struct builder *b = b_create();
    b_kernel(b);
    b_alu(b, VG_SPECIAL, VG_U64, C, VG_NONE, VG_NONE)->imm = VG_GLOBALTIMER;
    b_mov(b, A, b_k(b, 0));
    const uint32_t top = b_here(b);
    b_alu(b, VG_ADD, VG_U32, A, A, b_k(b, 1));
    b_setp(b, VG_LT, 0, A, b_k(b, 100000));
    b_bra(b, 0, false)->target = top;
    b_alu(b, VG_SPECIAL, VG_U64, D, VG_NONE, VG_NONE)->imm = VG_GLOBALTIMER;
    b_alu(b, VG_SUB, VG_U64, C, D, C);
    b_st(b, VG_B64, VG_GLOBAL, OUT, 0, C);
    b_exit(b);
    return b;
}

TEST(vgpu_residency, the_global_timer_goes_as_fast_for_two_runs_as_for_one)
{
    struct pair p = open_machine(timed_loop(), 2);
    const uint64_t *ns = (const uint64_t *)(const void *)p.b->out;
    p.apart = 4096;
    REQUIRE(begin(&p, 0, 1, false));
    CHECK(until_it_stops(p.run[0]) == VG_DONE);
    vg_run_end(p.run[0], p.past);
    const uint64_t alone = ns[0];
    REQUIRE(begin(&p, 0, 1, false) && begin(&p, 1, 1, false));
    enum vg_progress progress[2] = {VG_MOVED, VG_MOVED};
    while (progress[0] == VG_MOVED || progress[1] == VG_MOVED)
        for (int i = 0; i < 2; i++)
            if (progress[i] == VG_MOVED) progress[i] = vg_run_step(p.run[i]);
    CHECK(progress[0] == VG_DONE && progress[1] == VG_DONE);
    for (int i = 0; i < 2; i++)
        CHECK_MESSAGE(ns[512 * i] < alone * 3 / 2, "run %d: %llu ns, alone %llu", i,
                      (unsigned long long)ns[512 * i], (unsigned long long)alone);
    close_pair(&p);
}

#ifdef TT_COUNTS_ALLOCATIONS
/* Each allocation in turn. Three blocks, of which the GPU has room for two. */
TEST(vgpu_residency, a_run_without_memory_for_a_block_ends_and_leaves_its_room_to_others)
{
    struct pair p = open_pair(2);
    bool was_refused = true;
    int n = 0;
    p.b->out[1024] = 1;
    while (was_refused && n < 1000 && !tt_test_failed()) {
        REQUIRE(begin(&p, 0, 3, false));
        refuse_allocation((uint64_t)++n);
        const enum vg_progress progress = until_it_stops(p.run[0]);
        was_refused = !allocation_is_to_come();
        refuse_allocation(0);
        CHECK(progress == VG_DONE || (was_refused && progress == VG_FAULTED));
        vg_run_end(p.run[0], p.past);
        p.run[0] = NULL;
        REQUIRE(begin(&p, 1, 3, false));
        CHECK(until_it_stops(p.run[1]) == VG_DONE);
        vg_run_end(p.run[1], p.past);
        p.run[1] = NULL;
    }
    printf("%d allocations\n", n - 1);
    CHECK(n > 2 && n < 1000);
    close_pair(&p);
}
#endif
