/* Order, waits, residency, launches, printf, special registers. */
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "builder.h"
#include "shim.h"

enum { A = R, B = R + 1, C = R + 2, D = R + 4, W = R + 8 };

/* while (ld.relaxed(out[at / 4]) == 0); */
static void spin(struct builder *b, int64_t at)
{
    const uint32_t top = b_here(b);
    struct vg_instr *in = b_ld(b, VG_B32, VG_GLOBAL, A, OUT, at);
    in->order = VG_ACQUIRE;
    in->scope = VG_SCOPE_GPU;
    b_setp(b, VG_EQ, 0, A, b_k(b, 0));
    b_bra(b, 0, false)->target = top;
}

static struct vg_instr *release(struct builder *b, int64_t at)
{
    struct vg_instr *in = b_st(b, VG_B32, VG_GLOBAL, OUT, at, b_k(b, 1));
    in->order = VG_RELEASE;
    in->scope = VG_SCOPE_GPU;
    return in;
}

TEST(vgpu_schedule, a_block_that_waits_for_a_later_block_gets_its_value)
{
    struct builder *b = b_create();
    b_kernel(b);
    b_setp(b, VG_EQ, 1, CTA, b_k(b, 7));
    b_guard(release(b, 65536), 1, false);
    spin(b, 65536);
    b_result(b, TID);
    for (b->settings.seed = 1; b->settings.seed < 4; b->settings.seed++) {
        memset(b->out, 0, B_OUTPUT);
        CHECK_MESSAGE(b_run(b, 8, 64) == VG_DONE, "%s", b->text);
        CHECK_EQ(b->out[511], 63);
    }
    b_destroy(b);
}

/* Two barriers of a block; threads 0 and 1 release, all others fence. Relaxed stores are no fence.
 */
TEST(vgpu_schedule, barriers_and_fences_are_counted)
{
    struct builder *b = b_create();
    b_kernel(b);
    b_sync(b, b_k(b, 0), VG_NONE);
    b_setp(b, VG_LT, 1, TID, b_k(b, 2));
    struct vg_instr *in = b_st(b, VG_B32, VG_GLOBAL, MINE, 0, b_k(b, 1));
    in->order = VG_RELAXED;
    in->scope = VG_SCOPE_GPU;
    in = b_st(b, VG_B32, VG_GLOBAL, MINE, 0, b_k(b, 1));
    in->order = VG_RELEASE;
    in->scope = VG_SCOPE_GPU;
    b_guard(in, 1, false);
    in = b_add(b, VG_FENCE, VG_B32);
    in->order = VG_ACQ_REL;
    in->scope = VG_SCOPE_GPU;
    b_guard(in, 1, true);
    b_sync(b, b_k(b, 1), b_k(b, 64));
    b_exit(b);
    CHECK_MESSAGE(b_run(b, 3, 64) == VG_DONE, "%s", b->text);
    CHECK_EQ(b->traffic.barriers, 3 * 2);
    CHECK_EQ(b->traffic.fences, 3 * 64);
    b_destroy(b);
}

TEST(vgpu_schedule, a_wait_for_nobody_is_told_with_its_place_and_word)
{
    struct builder *b = b_create();
    b_kernel(b);
    spin(b, 4096);
    b_exit(b);
    CHECK(b_run(b, 2, 64) == VG_WAITING);
    CHECK_STR(b->text, "kernel k: 2 blocks are resident, 0 have ended, 0 have not started\n"
                       "  128 threads, the first block (0,0,0), thread (0,0,0), read "
                       "0x700000001000 (offset 4096 of cuMemAlloc) again and again\n"
                       "    at PTX line 8\n");
    CHECK(!b->for_host);
    b->buffer.reachable = true;
    CHECK(b_run(b, 2, 64) == VG_WAITING);
    CHECK(b->for_host);
    b_destroy(b);
}

/* Writes word 0 once it sees word 64. */
static void *host_answers(void *arg)
{
    uint32_t *word = arg;
    while (__atomic_load_n(word + 64, __ATOMIC_ACQUIRE) == 0) sched_yield();
    __atomic_store_n(word, 1, __ATOMIC_RELEASE);
    return NULL;
}

/* Block 0 waits for the host, block 1 counts for a while and tells the host to write. */
TEST(vgpu_schedule, a_plain_load_that_waits_for_the_host_is_reported)
{
    for (int plain = 0; plain < 2; plain++) {
        struct builder *b = b_create();
        pthread_t host;
        b_kernel(b);
        b->buffer.reachable = true;
        b_mov(b, C, b_k(b, 0));
        b_setp(b, VG_EQ, 1, CTA, b_k(b, 1));
        struct vg_instr *second = b_bra(b, 1, false);
        const uint32_t top = b_here(b);
        struct vg_instr *in = b_ld(b, VG_B32, VG_GLOBAL, A, OUT, 65536);
        in->order = plain ? VG_WEAK : VG_RELAXED;
        in->scope = plain ? VG_SCOPE_NONE : VG_SCOPE_SYS;
        b_setp(b, VG_EQ, 0, A, b_k(b, 0));
        b_bra(b, 0, false)->target = top;
        b_exit(b);
        b_land(b, second);
        const uint32_t again = b_here(b);
        b_alu(b, VG_ADD, VG_U32, C, C, b_k(b, 1));
        b_setp(b, VG_LT, 0, C, b_k(b, 100000));
        b_bra(b, 0, false)->target = again;
        in = b_st(b, VG_B32, VG_GLOBAL, OUT, 65536 + 256, b_k(b, 1));
        in->order = VG_RELAXED;
        in->scope = VG_SCOPE_SYS;
        const uint32_t counts = b_here(b); /* keeps the grid from waiting for ever */
        b_alu(b, VG_ADD, VG_U32, C, C, b_k(b, 1));
        in = b_ld(b, VG_B32, VG_GLOBAL, A, OUT, 65536);
        in->order = VG_RELAXED;
        in->scope = VG_SCOPE_SYS;
        b_setp(b, VG_EQ, 0, A, b_k(b, 0));
        b_bra(b, 0, false)->target = counts;
        b_exit(b);
        REQUIRE(pthread_create(&host, NULL, host_answers, b->out + 16384) == 0);
        CHECK_MESSAGE(b_run(b, 2, 1) == VG_DONE, "%s", b->text);
        CHECK_EQ(pthread_join(host, NULL), 0);
        CHECK_EQ(b->model_counts.races, plain);
        b_destroy(b);
    }
}

TEST(vgpu_schedule, a_wait_for_a_block_that_has_no_room_says_how_many_have_not_started)
{
    struct builder *b = b_create();
    b_kernel(b);
    b->gpu.nsms = 1;
    b->gpu.blocks_per_sm = 3;
    b_setp(b, VG_EQ, 1, CTA, b_k(b, 7));
    b_guard(release(b, 65536), 1, false);
    spin(b, 65536);
    b_exit(b);
    CHECK(b_run(b, 8, 64) == VG_WAITING);
    CHECK_MESSAGE(strstr(b->text, "kernel k: 3 blocks are resident, 0 have ended, 5 have not "
                                  "started, for the GPU has no room\n") == b->text,
                  "%s", b->text);
    b->cooperative = true;
    CHECK(b_run(b, 8, 64) == VG_FAULTED);
    CHECK_STR(b->text, "kernel k: a cooperative grid of 8 blocks, 3 can be resident at once");
    b_destroy(b);
}

TEST(vgpu_schedule, long_computations_and_readers_are_no_waits)
{
    struct builder *b = b_create();
    b_kernel(b);
    b->settings.patience = 50;
    b_mov(b, B, b_k(b, 0));
    b_mov(b, C, b_k(b, 0));
    const uint32_t top = b_here(b);
    b_alu(b, VG_ADD, VG_U32, B, B, b_k(b, 1));
    b_setp(b, VG_LT, 0, B, b_k(b, 20000));
    b_bra(b, 0, false)->target = top;
    b_result(b, B);
    CHECK_MESSAGE(b_run(b, 1, 32) == VG_DONE, "%s", b->text);
    CHECK_EQ(b->out[31], 20000);
    b_destroy(b);
}

TEST(vgpu_schedule, a_long_computation_that_reads_the_same_word_is_no_wait)
{
    struct builder *b = b_create();
    b_kernel(b);
    b->settings.patience = 50;
    b_mov(b, B, b_k(b, 0));
    const uint32_t top = b_here(b);
    b_ld(b, VG_U32, VG_GLOBAL, C, OUT, 4096);
    b_alu(b, VG_ADD, VG_U32, B, B, b_k(b, 1));
    b_alu(b, VG_ADD, VG_U32, B, B, C);
    b_setp(b, VG_LT, 0, B, b_k(b, 20000));
    b_bra(b, 0, false)->target = top;
    b_result(b, B);
    CHECK_MESSAGE(b_run(b, 1, 32) == VG_DONE, "%s", b->text);
    CHECK_EQ(b->out[31], 20000);
    b_destroy(b);
}

TEST(vgpu_schedule, a_thread_that_goes_round_eight_words_waits)
{
    struct builder *b = b_create();
    b_kernel(b);
    b->settings.patience = 50;
    b_mov(b, B, b_k(b, 0));
    const uint32_t top = b_here(b);
    b_alu(b, VG_ADD, VG_U32, B, B, b_k(b, 4));
    b_alu(b, VG_AND, VG_U32, B, B, b_k(b, 31));
    struct vg_instr *wide = b_alu(b, VG_MAD, VG_U32, D, B, b_k(b, 1));
    wide->src[2] = OUT;
    wide->mode = VG_MUL_WIDE;
    struct vg_instr *load = b_ld(b, VG_U32, VG_GLOBAL, C, D, 4096);
    load->order = VG_RELAXED;
    load->scope = VG_SCOPE_SYS;
    b_setp(b, VG_NE, 0, C, b_k(b, 77));
    b_bra(b, 0, false)->target = top;
    b_result(b, C);
    for (uint32_t i = 0; i < 8; i++) b->out[1024 + i] = i; /* different values */
    CHECK(b_run(b, 1, 32) == VG_WAITING);
    b_destroy(b);
}

/* Each thread takes a ticket: the order of threads. */
static void tickets(struct builder *b)
{
    b_kernel(b);
    b_atom(b, VG_ATOM_ADD, VG_U32, VG_GLOBAL, A, OUT, b_k(b, 1));
    b_alu(b, VG_ADD, VG_U64, MINE, MINE, b_k64(b, 4096));
    b_result(b, A);
}

TEST(vgpu_schedule, a_seed_replays_its_order_and_another_one_has_another_order)
{
    enum { N = 4 * 96 };
    uint32_t first[N];
    struct builder *b = b_create();
    tickets(b);
    b->settings.quantum = 20;
    for (uint64_t seed = 1; seed <= 2; seed++)
        for (int again = 0; again < 3; again++) {
            b->settings.seed = seed;
            b->out[0] = 0;
            CHECK_MESSAGE(b_run(b, 4, 96) == VG_DONE, "%s", b->text);
            if (seed == 1 && again == 0) memcpy(first, b->out + 1024, sizeof first);
            const bool same = memcmp(first, b->out + 1024, sizeof first) == 0;
            CHECK(same == (seed == 1));
        }
    b_destroy(b);
}

/* With one block at a time blocks run in the order in which they are admitted. */
TEST(vgpu_schedule, blocks_start_by_index_or_in_the_order_of_the_seed)
{
    struct builder *b = b_create();
    tickets(b);
    b->gpu.nsms = 1;
    b->gpu.blocks_per_sm = 1;
    CHECK(b_run(b, 50, 1) == VG_DONE);
    for (uint32_t i = 0; i < 50; i++) CHECK_EQ(b->out[1024 + i], i);
    b->settings.shuffled_blocks = true;
    b->out[0] = 0;
    CHECK(b_run(b, 50, 1) == VG_DONE);
    uint64_t seen = 0;
    bool moved = false;
    for (uint32_t i = 0; i < 50; i++) {
        seen |= UINT64_C(1) << (b->out[1024 + i] & 63);
        moved = moved || b->out[1024 + i] != i;
    }
    CHECK(seen == (UINT64_C(1) << 50) - 1);
    CHECK(moved);
    b_destroy(b);
}

TEST(vgpu_schedule, occupancy_follows_threads_blocks_and_shared_memory)
{
    const struct vg_gpu gpu = {.nsms = 132,
                               .threads_per_sm = 2048,
                               .blocks_per_sm = 32,
                               .shared_per_sm = 233472,
                               .shared_per_block = 232448,
                               .capability = 90};
    const struct vg_function kernel = {.name = "k", .kernel = true, .shared_bytes = 1000};
    CHECK_EQ(vg_occupancy(&gpu, &kernel, 256, 0), 8);
    CHECK_EQ(vg_occupancy(&gpu, &kernel, 1, 0), 32);
    CHECK_EQ(vg_occupancy(&gpu, &kernel, 1024, 0), 2);
    CHECK_EQ(vg_occupancy(&gpu, &kernel, 256, 49152), 4);
    CHECK_EQ(vg_occupancy(&gpu, &kernel, 32, 200000), 1);
}

TEST(vgpu_schedule, launches_that_cannot_be_are_refused_with_the_limit)
{
    struct builder *b = b_create();
    b_kernel(b);
    b_exit(b);
    CHECK(b_run(b, 1, 1025) == VG_FAULTED);
    CHECK_STR(b->text, "kernel k: 1025x1x1 threads a block, the limit is 1024");
    CHECK(b_run(b, 0, 32) == VG_FAULTED);
    b->shared = 50000;
    CHECK(b_run(b, 1, 32) == VG_FAULTED);
    CHECK_STR(b->text, "kernel k: 50000 bytes of shared memory (0 static, 50000 dynamic), the "
                       "limit of a block is 49152");
    b->shared = 0;
    b->functions[0].max_threads = 128;
    CHECK(b_run(b, 1, 129) == VG_FAULTED);
    b->functions[0].unsupported = "wgmma.fence (line 12)";
    CHECK(b_run(b, 1, 32) == VG_FAULTED);
    CHECK_STR(b->text, "kernel k cannot run: unsupported: wgmma.fence (line 12)");
    b_destroy(b);
}

/* printf("%d %5.2f %s %llx %c%%|%08X\n", ...) through the buffers that nvcc makes. */
TEST(vgpu_schedule, printf_formats_the_arguments_of_each_thread)
{
    static const char format[] = "%d %5.2f %s %llx %c%%|%08X\n";
    struct builder *b = b_create();
    b_kernel(b);
    b->f->local_bytes = 80; /* at 0 the parameters, at 32 the arguments */
    b_st(b, VG_B64, VG_LOCAL, VG_NONE, 0, b_k64(b, B_ADDRESS + 4096));
    b_alu(b, VG_ADDRESS_LOCAL, VG_B64, D, VG_NONE, VG_NONE)->imm = 32;
    b_alu(b, VG_CVTA, VG_U64, D, D, VG_NONE)->space = VG_LOCAL;
    b_st(b, VG_B64, VG_LOCAL, VG_NONE, 8, D);
    b_alu(b, VG_SUB, VG_U32, A, TID, b_k(b, 1));
    b_st(b, VG_B32, VG_LOCAL, VG_NONE, 32, A);
    b_st(b, VG_B64, VG_LOCAL, VG_NONE, 40, b_k64(b, UINT64_C(0x4004000000000000))); /* 2.5 */
    b_st(b, VG_B64, VG_LOCAL, VG_NONE, 48, b_k64(b, B_ADDRESS + 8192));
    b_st(b, VG_B64, VG_LOCAL, VG_NONE, 56, b_k64(b, UINT64_C(0x123456789abcdef0)));
    b_st(b, VG_B32, VG_LOCAL, VG_NONE, 64, b_k(b, 'x'));
    b_st(b, VG_B32, VG_LOCAL, VG_NONE, 68, b_k(b, 0xbeef));
    b_add(b, VG_PRINTF, VG_B32);
    b_ld(b, VG_B32, VG_LOCAL, A, VG_NONE, 16);
    b_result(b, A);
    memcpy(b->out + 1024, format, sizeof format);
    memcpy(b->out + 2048, "words", 6);
    CHECK_MESSAGE(b_run(b, 1, 2) == VG_DONE, "%s", b->text);
    CHECK_STR(b->printed, "-1  2.50 words 123456789abcdef0 x%|0000BEEF\n"
                          "0  2.50 words 123456789abcdef0 x%|0000BEEF\n");
    b_destroy(b);
}

/* A kernel that prints "from" to its 1024 words on with one argument. */
static struct builder *prints(uint64_t format, uint64_t args, uint64_t argument)
{
    struct builder *b = b_create();
    b_kernel(b);
    b->f->local_bytes = 80;
    b_st(b, VG_B64, VG_LOCAL, VG_NONE, 0, b_k64(b, format));
    b_alu(b, VG_ADDRESS_LOCAL, VG_B64, D, VG_NONE, VG_NONE)->imm = 32;
    b_alu(b, VG_CVTA, VG_U64, D, D, VG_NONE)->space = VG_LOCAL;
    b_st(b, VG_B64, VG_LOCAL, VG_NONE, 8, args != 0 ? b_k64(b, args) : D);
    b_st(b, VG_B64, VG_LOCAL, VG_NONE, 32, b_k64(b, argument));
    b_add(b, VG_PRINTF, VG_B32);
    b_exit(b);
    return b;
}

TEST(vgpu_schedule, printf_with_wild_addresses_is_a_fault_that_names_them)
{
    static const uint64_t format = B_ADDRESS + 4096;
    static const struct {
        const char *text;
        uint64_t format, args, argument;
        const char *said;
    } rows[] = {
        {"", 0xdead0000, 0, 0, "printf reads its format at 0xdead0000, where no memory lies"},
        {"", UINT64_MAX - 3, 0, 0, "printf reads its format at 0xfffffffffffffffc, where no"},
        {"", 0, 0, 0, "printf reads its format at 0x0, where no memory lies"},
        {"%s", format, 0, 0xbad000, "printf reads the string of %s at 0xbad000, where no memory"},
        {"%d", format, 0xbad0, 0, "printf reads an argument of 4 bytes at 0xbad0, where no memory"},
        {"%*d", format, 0xbad0, 0, "printf reads an argument of 4 bytes at 0xbad0, where no mem"},
        {"%f", format, VG_LOCAL_WINDOW + 4000000, 0, "printf reads an argument of 8 bytes at 0x"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct builder *b = prints(rows[i].format, rows[i].args, rows[i].argument);
        strcpy((char *)(b->out + 1024), rows[i].text);
        CHECK_MESSAGE(b_run(b, 1, 1) == VG_FAULTED, "row %zu", i);
        CHECK_EQ(b->fault, VG_FAULT_ADDRESS);
        CHECK_MESSAGE(strstr(b->text, rows[i].said) != NULL, "row %zu: %s", i, b->text);
        b_destroy(b);
    }
}

/* What the manual's printf does not know is printed as it stands; widths are bounded. */
TEST(vgpu_schedule, printf_with_a_wild_format_prints_something)
{
    static const char *const formats[] = {
        "%",
        "%%%",
        "%n",
        "%999999999d",
        "%.999999999f",
        "%-+ #0*.*lld",
        "%1$d",
        "%hhhhhhhhhhd",
        "%\xff",
        "%00000000000000000000000000000000d",
        "%s",
        "%lls",
        "%*.*s",
        "%999999999s",
    };
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
        struct builder *b = prints(B_ADDRESS + 4096, 0, 0);
        strcpy((char *)(b->out + 1024), formats[i]);
        CHECK_MESSAGE(b_run(b, 1, 1) == VG_DONE, "%s: %s", formats[i], b->text);
        CHECK(strlen(b->printed) < 1024);
        b_destroy(b);
    }
}

TEST(vgpu_schedule, assert_fails_with_its_expression_and_line)
{
    struct builder *b = b_create();
    b_kernel(b);
    b->f->local_bytes = 40;
    for (uint32_t i = 0; i < 3; i++)
        b_st(b, VG_B64, VG_LOCAL, VG_NONE, i == 2 ? 24 : 8 * i,
             b_k64(b, B_ADDRESS + 4096 + 256 * i));
    b_st(b, VG_B32, VG_LOCAL, VG_NONE, 16, b_k(b, 77));
    b_add(b, VG_ASSERTFAIL, VG_B32);
    strcpy((char *)(b->out + 1024), "n > 0");
    strcpy((char *)(b->out + 1024 + 64), "a.cu");
    strcpy((char *)(b->out + 1024 + 128), "k(int)");
    CHECK(b_run(b, 1, 1) == VG_FAULTED);
    CHECK_EQ(b->fault, VG_FAULT_ASSERT);
    CHECK_MESSAGE(strstr(b->text, "a.cu:77: k(int): assertion `n > 0' failed\n") != NULL, "%s",
                  b->text);
    b_destroy(b);
}

TEST(vgpu_schedule, special_registers_name_the_place_in_the_grid)
{
    static const struct {
        enum vg_special which;
        uint32_t want; /* of thread 37 of block 2, 64 threads each */
    } rows[] = {{VG_TID_X, 37},
                {VG_TID_Y, 0},
                {VG_NTID_X, 64},
                {VG_NTID_Z, 1},
                {VG_CTAID_X, 2},
                {VG_NCTAID_X, 3},
                {VG_LANEID, 5},
                {VG_WARPID, 1},
                {VG_NSMID, 4},
                {VG_GRIDID, 1},
                {VG_LANEMASK_EQ, 32},
                {VG_LANEMASK_LT, 31},
                {VG_LANEMASK_LE, 63},
                {VG_LANEMASK_GE, ~31u},
                {VG_LANEMASK_GT, ~63u},
                {VG_DYNAMIC_SMEM_SIZE, 512},
                {VG_TOTAL_SMEM_SIZE, 512}};
    for (unsigned i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct builder *b = b_create();
        b_kernel(b);
        b->shared = 512;
        b_special(b, A, rows[i].which);
        b_result(b, A);
        CHECK(b_run(b, 3, 64) == VG_DONE);
        CHECK_MESSAGE(b->out[165] == rows[i].want, "register %d: %u", (int)rows[i].which,
                      b->out[165]);
        b_destroy(b);
    }
}

/* start = clock; while (clock - start < 5000) nanosleep; */
TEST(vgpu_schedule, the_clock_moves_while_a_thread_sleeps)
{
    struct builder *b = b_create();
    b_kernel(b);
    b_alu(b, VG_SPECIAL, VG_U64, C, VG_NONE, VG_NONE)->imm = VG_GLOBALTIMER;
    const uint32_t top = b_here(b);
    b_add(b, VG_NANOSLEEP, VG_B32);
    b_alu(b, VG_SPECIAL, VG_U64, D, VG_NONE, VG_NONE)->imm = VG_GLOBALTIMER;
    b_alu(b, VG_SUB, VG_U64, W, D, C);
    b_alu(b, VG_SETP, VG_U64, 0, W, b_k64(b, 1000000))->compare = VG_LT;
    b_bra(b, 0, false)->target = top;
    b_result(b, b_k(b, 1));
    CHECK(b_run(b, 1, 32) == VG_DONE);
    CHECK_EQ(b->out[31], 1);
    b_destroy(b);
}

/* Barriers of the grid: all threads are resident at the same time. */
TEST(vgpu_schedule, threads_of_65536_fit_into_2_GiB)
{
    struct builder *b = b_create();
    b_kernel(b);
    b->gpu.nsms = 132;
    b->functions[0].nunits = 256;
    b->functions[0].local_bytes = 256;
    b_st(b, VG_B32, VG_LOCAL, VG_NONE, 128, GLOBAL);
    b_setp(b, VG_EQ, 1, TID, b_k(b, 0));
    struct vg_instr *others = b_bra(b, 1, true);
    struct vg_instr *in = b_atom(b, VG_ATOM_ADD, VG_U32, VG_GLOBAL, VG_NONE, OUT, b_k(b, 1));
    in->order = VG_ACQ_REL;
    const uint32_t top = b_here(b);
    in = b_ld(b, VG_B32, VG_GLOBAL, A, OUT, 0);
    in->order = VG_ACQUIRE;
    in->scope = VG_SCOPE_GPU;
    b_setp(b, VG_LT, 0, A, b_k(b, 256));
    b_bra(b, 0, false)->target = top;
    b_land(b, others);
    b_sync(b, b_k(b, 0), VG_NONE);
    b_ld(b, VG_B32, VG_LOCAL, A, VG_NONE, 128);
    b_alu(b, VG_ADD, VG_U64, MINE, MINE, b_k64(b, 4096));
    b_result(b, A);
    CHECK_MESSAGE(b_run(b, 256, 256) == VG_DONE, "%s", b->text);
    for (uint32_t i = 0; i < 65536; i++)
        if (b->out[1024 + i] != i) {
            CHECK_EQ(b->out[1024 + i], i);
            break;
        }
    long peak = 0;
    char line[128];
    FILE *file = fopen("/proc/self/status", "r");
    REQUIRE(file != NULL);
    while (fgets(line, sizeof line, file) != NULL)
        if (strncmp(line, "VmHWM:", 6) == 0) peak = strtol(line + 6, NULL, 10);
    fclose(file);
    CHECK_MESSAGE(peak > 0 && peak < 2 * 1024 * 1024, "peak %ld KiB", peak);
    b_destroy(b);
}
